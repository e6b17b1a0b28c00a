"""What watching costs: the remarks that nobody asks for, and those of the check `watch`.

    python benchmarks/watches.py

CPU time with and without, in turns, the best of several rounds of each.  Without the ones that nobody asks for means
that the functions that look are replaced by ones that do nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import refdist
from refdist.strategies import watch
from refdist.variables import habits

Context = Callable[[], AbstractContextManager[Any]]


def nothing(*_: Any) -> None:
    """In the place of a function that looks."""


def both(call: Callable[[], Any], without: Context, beside: Context, times: int,
         rounds: int = 15) -> tuple[float, float]:
    """Microseconds of a call without and with what is measured, at best."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, context in enumerate((without, beside)):
            with context():
                call()
                start = time.process_time()
                for _ in range(times):
                    call()
                best[i] = min(best[i], (time.process_time() - start) / times)
    return best[0] * 1e6, best[1] * 1e6


def all_reduce(value: Any) -> Any:
    """What each of eight replicas adds."""
    return refdist.get_replica_context().all_reduce("SUM", value)


def in_a_loop() -> None:
    """Ten sums in a loop over names."""
    for name in "abcdefghij":
        all_reduce(np.float32(len(name)))


def main() -> None:
    """Prints the table."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])
    big = [np.ones(1 << 20, np.float32) for _ in range(8)]
    parts = strategy.experimental_distribute_values_from_function(lambda context: big[context.replica_id_in_sync_group])
    rows = np.ones((8 * 1000, 16), np.float32)
    dataset = refdist.data.Dataset.from_tensor_slices(rows).batch(8)
    batches = strategy.experimental_distribute_dataset(dataset)
    other_strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])

    def epoch() -> None:
        for _ in batches:
            pass

    def first_step() -> None:
        next(iter(batches))

    numbers: Context = lambda: mock.patch.object(watch, "look", nothing)  # noqa: E731
    variables: Context = lambda: mock.patch.object(habits.Habits, "look", nothing)  # noqa: E731
    asked: Context = lambda: refdist.config.checks(watch=True)  # noqa: E731
    measured: list[tuple[str, Callable[[], Any], Context, Context, int]] = [
        ("numbers: a scalar all_reduce, 8 replicas", lambda: strategy.run(all_reduce, (1.0,)), numbers, nullcontext,
         300),
        ("numbers: an all_reduce of 4 MiB each, 8 replicas", lambda: strategy.run(all_reduce, (parts,)), numbers,
         nullcontext, 10),
        ("a variable made in a run of 8 replicas", lambda: other_strategy.run(lambda: refdist.Variable(0.0)), variables,
         nullcontext, 100),
        ("asked for: a scalar all_reduce, 8 replicas", lambda: strategy.run(all_reduce, (1.0,)), nullcontext, asked,
         300),
        ("asked for: ten of them in a loop", lambda: strategy.run(in_a_loop), nullcontext, asked, 50),
        ("asked for: an all_reduce of 4 MiB each, 8 replicas", lambda: strategy.run(all_reduce, (parts,)), nullcontext,
         asked, 10),
        ("asked for: an iterator and its first step", first_step, nullcontext, asked, 100),
    ]
    print("| what | without | with | ratio |\n|---|---|---|---|")
    for what, call, without, beside, times in measured:
        before, after = both(call, without, beside, times)
        print(f"| {what} | {before:,.1f} us | {after:,.1f} us | {after / before:.2f} x |", flush=True)
    seconds = min(timed(epoch) for _ in range(15))
    counting = min(timed(counted) for _ in range(15))
    print(f"a step of a distributed dataset takes {seconds * 1e3:.2f} us, of which counting it takes {counting:.3f} us")


def timed(call: Callable[[], None]) -> float:
    """The CPU time of a call, in seconds."""
    start = time.process_time()
    call()
    return time.process_time() - start


def counted() -> None:
    """What a step of an iterator does to be counted, a million times."""
    class Counter:
        given, long = 0, -1

    counter = Counter()
    for _ in range(1_000_000):
        counter.given += 1
        if counter.given == counter.long:
            break


if __name__ == "__main__":
    main()
