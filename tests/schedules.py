"""Programs, and all schedules of them, every one of which is run: `refdist.explore` is compared with these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import refdist
from refdist.coordinator import ClusterCoordinator
from refdist.insight import explorer
from refdist.insight.schedules import PROGRAM, Process, Run

MOST = 10_000
Body = Callable[[ClusterCoordinator, Any], object]
Options = Callable[[Run, dict[Process, int]], list[int]]
"""The choices at a point, given the run and an option for each process that can go on."""


def program(body: Body) -> Callable[[], object]:
    """A program that calls `body` with a coordinator of two workers and a variable."""
    resolver = refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]}))

    def run() -> object:
        strategy = refdist.ParameterServerStrategy(resolver)
        with strategy.scope():
            v = refdist.Variable(0.0, name="v")
        return body(ClusterCoordinator(strategy), v)

    return run


def twice(coordinator: ClusterCoordinator, step: Callable[[int], object]) -> None:
    """Schedules `step` with 0 and with 1, and waits."""
    for k in range(2):
        coordinator.schedule(step, args=(k,))
    coordinator.join()


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


def all_outcomes(run_of: Callable[[], object]) -> set[str]:
    """What a program and its variables come to in all schedules, every one of which is run."""
    return {_shown(trial) for trial in all_schedules(run_of) if trial.came is not None}


def explored_outcomes(run_of: Callable[[], object]) -> set[str]:
    """The same of the schedules that `refdist.explore` runs."""
    explored = explorer._Explorer(run_of, lambda result: True, "10min")
    outcomes: set[str] = set()
    note = explored._note
    explored._note = lambda trial: (outcomes.add(_shown(trial)), note(trial))[1]  # type: ignore[method-assign]
    explored.explore()
    return outcomes


def _shown(trial: explorer._Trial) -> str:
    return f"{trial.came} with {trial.came.variables if trial.came is not None else None}"
