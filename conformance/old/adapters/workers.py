"""refdist on several workers with one replica each: simulated, or the processes that mpiexec started.

The interpreter asks whether a value is distributed and for its parts.  On workers with one replica each, a value that
differs between replicas is a plain array on each worker, so this adapter marks such values as a `Part`, and gathers the
parts of all workers when a program asks for them.

    mpiexec -n 2 python -m refdist.conformance.old.adapters.workers --expected-failures FILE
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import refdist
from refdist.array.convert import is_array, to_numpy
from refdist.conformance.old.adapters.library import Strategy
from refdist.conformance.old.adapters.simulated import Simulated
from refdist.conformance.old.case import Case, Verdict, judge
from refdist.conformance.old.cases import load


class Part:
    """The part of a distributed value that this worker's replica has."""

    def __init__(self, value: object) -> None:
        self.value = value


def marked(value: object) -> object:
    """The nest with a Part for every array."""
    return refdist.nest.map_structure(
        lambda leaf: Part(leaf) if is_array(leaf) else leaf, value)


def bare(value: object) -> object:
    """The nest with the array of every Part."""
    return refdist.nest.map_structure(lambda leaf: leaf.value if isinstance(leaf, Part) else leaf, value)


class Worker(Simulated):
    """The adapter of one worker."""

    name = "refdist (workers)"

    def strategy(self, kind: str, replicas: int) -> Strategy:
        return super().strategy(kind, replicas) if kind != "mirrored" else refdist.MultiWorkerMirroredStrategy()

    def run(self, strategy: Strategy, fn: Callable[..., object], args: tuple[object, ...]) -> object:
        return marked(super().run(strategy, fn, tuple(map(bare, args))))

    def reduce(self, strategy: Strategy, reduce_op: object, value: object, axis: object) -> object:
        return super().reduce(strategy, reduce_op, bare(value), axis)

    def gather(self, strategy: Strategy, value: object, axis: object) -> object:
        return super().gather(strategy, bare(value), axis)

    def values_from_function(self, strategy: Strategy, fn: Callable[..., object]) -> object:
        found = super().values_from_function(strategy, fn)
        assert isinstance(found, refdist.DistributedValues)
        return Part(found.values[0])

    def is_distributed(self, value: object) -> bool:
        return isinstance(value, (Part, refdist.DistributedVariable))

    def local_results(self, strategy: Strategy, value: object) -> tuple[object, ...]:
        if isinstance(value, Part):
            mine = value.value
        elif isinstance(value, refdist.DistributedVariable):
            mine = value.values[0].numpy()
        else:
            return super().local_results(strategy, value)
        transport = strategy.extended.transport
        return tuple(transport.all_gather_object(transport.call("local results of the workers"), to_numpy(mine)))

    def distribute(self, strategy: Strategy, rows: int, batch: int, drop: bool, policy: str,
                   repeat: int) -> Iterable[object]:
        return self._marked(super().distribute(strategy, rows, batch, drop, policy, repeat))

    def distribute_from_function(self, strategy: Strategy, rows: int, batch: int, drop: bool) -> Iterable[object]:
        return self._marked(super().distribute_from_function(strategy, rows, batch, drop))

    def _marked(self, elements: Iterable[object]) -> Iterator[object]:
        return map(marked, elements)


def fits(case: Case) -> bool:
    """Whether the replicas of a case can be workers: several mirrored ones."""
    return case.strategy[0] == "mirrored" and case.strategy[1] > 1


class Workers:
    """Several simulated workers; all of them must come to the same verdict."""

    name = Worker.name

    def judge(self, case: Case) -> Verdict:
        """Runs a case on as many workers as it has replicas."""
        if not fits(case):
            return Verdict(case, "skipped", "needs several mirrored replicas, one per worker")
        try:
            verdicts: list[Verdict] = refdist.simulate_workers(lambda: judge(case, Worker()), case.strategy[1])
        except Exception as error:
            # A worker whose calls differ from those of the others ends the run: that is the error of this case.
            kind = Worker().kind_of(error)
            return Verdict(case, "passed" if kind in case.fails else "failed", f"raised {error}")
        return next((verdict for verdict in verdicts if verdict.outcome != "passed"), verdicts[0])


def main() -> int:
    """Runs the cases for as many replicas as there are processes; 1 when there are none, or one fails unexpectedly."""
    from refdist.conformance.old.plugin import read_expected

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expected-failures")
    known = read_expected(parser.parse_args().expected_failures, {case.name for case in load()})
    strategy = refdist.MultiWorkerMirroredStrategy()
    transport, processes = strategy.extended.transport, strategy.num_replicas_in_sync
    cases = [case for case in load() if fits(case)]
    sizes = sorted({case.strategy[1] for case in cases})
    if processes not in sizes:
        # Most likely the launcher of the transport did not start this process, which is alone then.
        print(f"no case has {processes} replicas, so that nothing was tested; start as many processes as a case has "
              f"replicas, {', '.join(map(str, sizes))}, with the launcher of the transport", file=sys.stderr)
        return 1
    counts: Counter[str] = Counter()
    failed = False
    for case in cases:
        if case.strategy[1] == processes and case.name not in known:
            verdict = judge(case, Worker())
            # All workers learn the verdicts of all, so that they stay together when a case fails on one.
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
