"""refdist on several workers with one replica each: simulated, or the processes that mpiexec started.

A value that differs between replicas is one bare value on each worker, so it is marked here, and its parts are
brought together when a program looks at them.

    mpiexec -n 2 python -m refdist.conformance.adapters.workers --expected-failures FILE
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import refdist
from refdist.array.convert import is_array, to_numpy
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.case import Case, Verdict, judge
from refdist.conformance.cases import load


class Part:
    """What this worker's replica has of a distributed value."""

    def __init__(self, value: Any) -> None:
        self.value = value


def marked(value: Any) -> Any:
    """Arrays as parts of distributed values."""
    return refdist.nest.map_structure(
        lambda leaf: Part(leaf) if is_array(leaf) else leaf, value)


def bare(value: Any) -> Any:
    """Parts as arrays."""
    return refdist.nest.map_structure(lambda leaf: leaf.value if isinstance(leaf, Part) else leaf, value)


class Worker(Simulated):
    """What one worker does."""

    name = "refdist (workers)"

    def strategy(self, kind: str, replicas: int) -> Any:
        return super().strategy(kind, replicas) if kind != "mirrored" else refdist.MultiWorkerMirroredStrategy()

    def run(self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return marked(super().run(strategy, fn, bare(args)))

    def reduce(self, strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        return super().reduce(strategy, reduce_op, bare(value), axis)

    def gather(self, strategy: Any, value: Any, axis: Any) -> Any:
        return super().gather(strategy, bare(value), axis)

    def values_from_function(self, strategy: Any, fn: Callable[[Any], Any]) -> Any:
        return Part(super().values_from_function(strategy, fn).values[0])

    def is_distributed(self, value: Any) -> bool:
        return isinstance(value, (Part, refdist.DistributedVariable))

    def local_results(self, strategy: Any, value: Any) -> tuple[Any, ...]:
        if not self.is_distributed(value):
            return super().local_results(strategy, value)
        mine = value.value if isinstance(value, Part) else value.values[0].numpy()
        return tuple(self._everybody(strategy, to_numpy(mine)))

    def _everybody(self, strategy: Any, value: Any) -> list[Any]:
        transport = strategy.extended.transport
        found: list[Any] = transport.all_gather_object(transport.call("looking"), value)
        return found

    def distribute(self, strategy: Any, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Iterable[Any]:
        return self._marked(super().distribute(strategy, rows, batch, drop, policy, repeat))

    def distribute_from_function(self, strategy: Any, rows: int, batch: int, drop: bool) -> Iterable[Any]:
        return self._marked(super().distribute_from_function(strategy, rows, batch, drop))

    def _marked(self, elements: Iterable[Any]) -> Iterator[Any]:
        return map(marked, elements)


def fits(case: Case) -> bool:
    """Whether a case speaks of replicas that workers can be."""
    return case.strategy[0] == "mirrored" and case.strategy[1] > 1


class Workers:
    """Several simulated workers; all of them must come to the same verdict."""

    name = Worker.name

    def judge(self, case: Case) -> Verdict:
        """Runs a case on as many workers as it has replicas."""
        if not fits(case):
            return Verdict(case, "skipped", "needs replicas that workers can be")
        try:
            verdicts: list[Verdict] = refdist.simulate_workers(lambda: judge(case, Worker()), case.strategy[1])
        except Exception as error:
            # A worker that went another way than the others ends all; that is the error of this case.
            kind = Worker().kind_of(error)
            return Verdict(case, "passed" if kind in case.fails else "failed", f"raised {error}")
        return next((verdict for verdict in verdicts if verdict.outcome != "passed"), verdicts[0])


def main() -> int:
    """Runs the cases for as many replicas as there are processes; 1 when one fails that is not expected to."""
    from refdist.conformance.plugin import read_expected

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expected-failures")
    known = read_expected(parser.parse_args().expected_failures, {case.name for case in load()})
    strategy = refdist.MultiWorkerMirroredStrategy()
    transport, processes = strategy.extended.transport, strategy.num_replicas_in_sync
    counts: Counter[str] = Counter()
    failed = False
    for case in load():
        if fits(case) and case.strategy[1] == processes and case.name not in known:
            verdict = judge(case, Worker())
            # One word of all workers, so that none goes on alone.
            outcomes = transport.all_gather_object(transport.call("verdict"), verdict.outcome)
            worst = next((outcome for outcome in outcomes if outcome != "passed"), "passed")
            counts[worst] += 1
            if verdict.outcome != "passed":
                print(f"worker {transport.rank}: {case.name}: {verdict.message}", file=sys.stderr)
            failed |= worst != "passed"
    if transport.rank == 0:
        print(f"{processes} processes: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
