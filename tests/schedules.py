"""All schedules of a program, every one of which is run: what `refdist.explore` runs and says is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from refdist.insight import explorer
from refdist.insight.schedules import PROGRAM, Process, Run

MOST = 10_000
Options = Callable[[Run, dict[Process, int]], list[int]]
"""The choices at a point, given the run and an option for each process that can go on."""


def any_process(run: Run, processes: dict[Process, int]) -> list[int]:
    """Whoever can go on."""
    return list(processes.values())


def seen_by_others(run: Run, processes: dict[Process, int]) -> list[int]:
    """Whoever can go on, except that a coordinator that schedules or waits, which nobody sees, does so at once."""
    if PROGRAM in processes and run.touch_of(PROGRAM) is None:
        return [processes[PROGRAM]]
    return list(processes.values())


def all_schedules(program: Callable[[], object], options: Options = any_process,
                  faults: str | None = None) -> Iterator[explorer._Trial]:
    """Runs a program under every schedule that these options make; at most 10,000."""
    explored = explorer._Explorer(program, lambda result: True, "60s", faults)
    prefix: list[int] = []
    for _ in range(MOST):
        taken: list[int] = []
        widths: list[int] = []

        def decide(run: Run, processes: dict[Process, int], prefix: list[int] = prefix, taken: list[int] = taken,
                   widths: list[int] = widths) -> int:
            could = options(run, processes)
            taken.append(prefix[len(taken)] if len(taken) < len(prefix) else 0)
            widths.append(len(could))
            return could[taken[-1]]

        yield explored.attempt(decide)
        while taken and taken[-1] + 1 >= widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        prefix = [*taken[:-1], taken[-1] + 1]
    raise AssertionError(f"there are more than {MOST} schedules")
