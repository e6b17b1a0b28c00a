"""Some of the schedules of a program that has too many: those with few switches, and then those drawn by lot.

Random priorities: each process has one that is drawn, and whoever has the highest goes on; at one step of the run,
which is drawn too, the process that would go on gets the lowest of all.  An error that shows whenever one function is
overtaken at one place ("of depth 2") is found in each such run with probability 1/(n k) or more, for n processes and k
steps, however the program goes on elsewhere.

Source: S. Burckhardt, P. Kothari, M. Musuvathi, S. Nagarakatte, "A randomized scheduler with probabilistic guarantees
of finding bugs", ASPLOS 2010 (PCT, with d = 2); M. Musuvathi, S. Qadeer, "Iterative context bounding for systematic
testing of multithreaded programs", PLDI 2007 (few switches first).
"""

from __future__ import annotations

import random

from refdist.insight.schedules import Decide, Process, Run


def by_priorities(seed: int, steps: int) -> Decide:
    """A schedule of random priorities, for a program of so many steps."""
    generator = random.Random(seed)
    priorities: dict[Process, float] = {}
    changes = generator.randrange(max(steps, 1))

    def decide(run: Run, processes: dict[Process, int]) -> int:
        for process in processes:
            priorities.setdefault(process, generator.random())
        highest = max(processes, key=priorities.__getitem__)
        if len(run.steps) == changes:
            priorities[highest] = -1.0
            highest = max(processes, key=priorities.__getitem__)
        return processes[highest]

    return decide


def by_lot(seed: int) -> Decide:
    """A schedule in which at each step any process that can goes on."""
    generator = random.Random(seed)
    return lambda run, processes: generator.choice(list(processes.values()))


def probability(processes: int, steps: int, runs: int) -> float:
    """A lower bound for the probability that so many runs of random priorities find an error of depth 2."""
    return 1.0 - (1.0 - 1.0 / (processes * steps)) ** runs if processes and steps else 0.0
