"""The examples of frontrun, which tries the orders of Python's threads, beside the same on refdist's variables.

    python benchmarks/beside_frontrun.py                                  # refdist
    pip install frontrun
    python -m frontrun.cli python benchmarks/beside_frontrun.py threads   # frontrun, which needs its own command

A counter, of two and of three; transfers between three accounts, and the same without the mistake.  frontrun's
corrected form has a lock; refdist has none, and its form is one access.  Not carried over: philosophers who wait for
locks, and databases.  The accounts of refdist's corrected form can go below zero.

The times are those until the answer, on the clock and of the CPU: medians of five calls after one that is not counted.
frontrun stops at the first fault and runs it ten times more; "all" is without a bound on preemptions, without stopping
and without these ten runs.  refdist runs all classes and makes the schedule of what it finds shorter.

Source: lucaswiman/frontrun, README.md and examples/dpor_bank_transfer.py, dpor_bank_transfer_locked.py; written anew.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))


class Counter:
    """Counts without a lock."""

    def __init__(self) -> None:
        self.value = 0

    def increment(self) -> None:
        value = self.value
        self.value = value + 1


class Accounts:
    """Three accounts of 100 each."""

    def __init__(self) -> None:
        self.a = self.b = self.c = 100
        self.lock = threading.Lock()


def from_a_to_b(accounts: Accounts) -> None:
    """60 of them."""
    if accounts.a >= 60:
        accounts.a -= 60
        accounts.b += 60


def from_b_to_c(accounts: Accounts) -> None:
    """80 of them."""
    if accounts.b >= 80:
        accounts.b -= 80
        accounts.c += 80


def locked(transfer: Callable[[Accounts], None]) -> Callable[[Accounts], None]:
    """The same, alone."""

    def alone(accounts: Accounts) -> None:
        with accounts.lock:
            transfer(accounts)

    return alone


def counted(count: int) -> dict[str, Any]:
    return {"setup": Counter, "workers": [Counter.increment] * count, "invariant": lambda c: c.value == count}


def transferred(*workers: Callable[[Accounts], None]) -> dict[str, Any]:
    return {"setup": Accounts, "workers": list(workers), "invariant": lambda a: a.a + a.b + a.c == 300}


THREADS = {
    "counter, 2": counted(2),
    "counter, 3": counted(3),
    "accounts": transferred(from_a_to_b, from_b_to_c),
    "accounts, corrected": transferred(locked(from_a_to_b), locked(from_b_to_c)),
}


def strategy_of(workers: int) -> Any:
    import refdist

    spec = refdist.train.ClusterSpec({"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1"]})
    return refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))


def program(values: dict[str, Any], *functions: Callable[..., object]) -> Callable[[], list[Any]]:
    """Schedules the functions, each on a worker of its own, with variables of these names; returns their values."""
    import refdist

    def run() -> list[Any]:
        strategy = strategy_of(len(functions))
        with strategy.scope():
            variables = [refdist.Variable(value, name=name) for name, value in values.items()]
        coordinator = refdist.coordinator.ClusterCoordinator(strategy)
        for function in functions:
            coordinator.schedule(function, args=tuple(variables))
        coordinator.join()
        return [variable.numpy().tolist() for variable in variables]

    return run


def increment(value: Any) -> None:
    value.assign(value + 1)


def a_to_b(a: Any, b: Any, c: Any) -> None:
    if int(a) >= 60:
        a.assign(a - 60)
        b.assign(b + 60)


def b_to_c(a: Any, b: Any, c: Any) -> None:
    if int(b) >= 80:
        b.assign(b - 80)
        c.assign(c + 80)


VARIABLES: dict[str, tuple[Callable[[], list[Any]], Callable[[Any], bool]]] = {
    "counter, 2": (program({"value": 0}, increment, increment), lambda out: bool(out == [2])),
    "counter, 3": (program({"value": 0}, increment, increment, increment), lambda out: bool(out == [3])),
    "accounts": (program({"a": 100, "b": 100, "c": 100}, a_to_b, b_to_c), lambda out: bool(sum(out) == 300)),
    "accounts, corrected": (
        program({"accounts": [100, 100, 100]}, lambda accounts: accounts.assign_add([-60, 60, 0], read_value=False),
                lambda accounts: accounts.assign_add([0, -80, 80], read_value=False)),
        lambda out: bool(sum(out[0]) == 300)),
}


def timed(answer: Callable[[], Any]) -> tuple[str, Any]:
    """The medians of five times in milliseconds, and the last answer."""
    answer()
    times, busy = [], []
    for _ in range(5):
        before, used = time.perf_counter(), time.process_time()
        result = answer()
        times.append(time.perf_counter() - before)
        busy.append(time.process_time() - used)
    return f"{statistics.median(times) * 1e3:7.1f} ms, {statistics.median(busy) * 1e3:7.1f} of CPU", result


def main() -> None:
    if sys.argv[1:] == ["threads"]:
        import frontrun

        for name, example in THREADS.items():
            first, result = timed(lambda example=example: frontrun.explore(**example))
            everything, every = timed(lambda example=example: frontrun.explore(
                **example, stop_on_first=False, preemption_bound=None, reproduce_on_failure=0))
            answer = "holds" if result.property_holds else "found"
            print(f"{name:20}  {answer:6}  {first}  {result.num_explored:3} runs   "
                  f"all: {everything}  {every.num_explored:3} runs")
    else:
        import refdist

        for name, (run, check) in VARIABLES.items():
            took, report = timed(lambda run=run, check=check: refdist.explore(run, check, budget="10min"))
            print(f"{name:20}  {'proved' if report.proved else 'found':6}  {took}  {report.runs:3} runs   "
                  f"{report.classes} classes")


if __name__ == "__main__":
    main()
