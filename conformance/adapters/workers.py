"""refdist on several workers that are processes: those that mpiexec, or the launcher of another transport, started.

    mpiexec -n 2 python -m refdist.conformance.adapters.workers

Every process runs the cases that have as many workers as there are processes; the first one compares what all of them
observed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

import refdist
from refdist.conformance import expected_failures
from refdist.conformance.adapter import properties
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import cases, having
from refdist.conformance.examples import Answer, Program, program
from refdist.conformance.judging import judge
from refdist.conformance.options import select
from refdist.conformance.programs import size

DRAWS = 5  # cases that are made of a property; the same ones in every process


class Worker(Simulated):
    """refdist in one of several processes."""

    name = "refdist (processes)"

    def strategy(self, kind: str) -> Any:
        if kind.startswith("MultiWorker"):
            refdist.config.set_simulated_devices(gpu=size(kind)[1])
        return super().strategy(kind)

    def run(self, program: Program) -> list[Answer]:
        """The answers of all workers, on each."""
        answer = self.execute(program, {})
        refdist.config.set_simulated_devices(gpu=1)
        transport = refdist.MultiWorkerMirroredStrategy().extended.transport
        while True:
            try:
                return list(transport.all_gather_object(transport.call("answers"), answer))
            except RuntimeError:
                # Another worker is still at a collective of the example, and has just learned that this one is not.
                continue


def main() -> int:
    """Runs the cases; 1 when there are none for so many processes, or one fails unexpectedly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expected-failures", metavar="FILE")
    parser.add_argument("--clause", action="append", default=[], metavar="PREFIX",
                        help="only the clauses whose name begins so; may be repeated")
    options = parser.parse_args()
    known = expected_failures.read(options.expected_failures, cases()) if options.expected_failures else {}
    refdist.config.set_simulated_devices(gpu=1)
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank, processes = strategy.extended.transport.rank, strategy.num_replicas_in_sync
    some = cases(having(options.clause))
    multi = [case for case in select(some, options.clause, [], None) if case.strategy.startswith("MultiWorker")]
    chosen = [drawn_case for case in multi if size(case.strategy)[0] == processes
            for drawn_case in (properties.drawn(case, DRAWS) if case.example.parameters else [case])]
    if not chosen:
        # Most likely the launcher of the transport did not start this process, which is alone then.
        sizes = ", ".join(map(str, sorted({size(case.strategy)[0] for case in multi})))
        print(f"no case has {processes} workers, so that nothing was tested; start as many processes as a case has "
              f"workers, {sizes}, with the launcher of the transport", file=sys.stderr)
        return 1
    worker = Worker()
    counts: Counter[str] = Counter()
    for case in chosen:
        verdict = judge(case, worker.run(program(case)))
        expected = known.get(case.name)
        outcome = verdict.outcome
        if expected is not None:
            outcome = "expected failure" if outcome != "passed" and expected.message in verdict.message else "failed"
        counts[outcome] += 1
        if rank == 0 and outcome not in ("passed", "expected failure"):
            print(f"{case.chapter.path.name}:{verdict.line}: {case.name}: {verdict.message}", file=sys.stderr)
    if rank == 0:
        print(f"{processes} processes: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    return int(set(counts) - {"passed", "expected failure"} != set())


if __name__ == "__main__":
    sys.exit(main())
