"""The command `python -m refdist.conformance.mutants`."""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from refdist.conformance.chapters import cases
from refdist.conformance.mutants import slips
from refdist.conformance.mutants.cells import cells
from refdist.conformance.mutants.killing import Fork


class Mutant(Protocol):
    """Something wrong."""

    @property
    def name(self) -> str: ...
    @property
    def mutate(self) -> Callable[[], None]: ...


def tried(mutants: Sequence[Mutant], jobs: int) -> dict[str, str | None]:
    """The case that kills each mutant, by the mutant's name; None for a survivor.

    Of a slip only the cases of its clause are tried.  Of others all are, and a case that has killed one is tried first
    on the next, because neighbours are often killed by the same.
    """
    order = [case.name for case in cases()]
    found: dict[str, str | None] = {}

    running: dict[Fork, Mutant] = {}
    left = list(reversed(mutants))
    while left or running:
        while left and len(running) < jobs:
            mutant = left.pop()
            names = [mutant.clause] if isinstance(mutant, slips.Slip) else order
            running[Fork(mutant.mutate, names)] = mutant
        limit = max(0.0, min(fork.deadline for fork in running) - time.monotonic())
        ready, _, _ = select.select(list(running), [], [], limit)
        for fork in ready or [min(running, key=lambda one: one.deadline)]:
            name = running.pop(fork).name
            case = found[name] = fork.killer()
            if case in order:
                order.remove(case)
                order.insert(0, case)
            if case is None:
                print(f"survives: {name}", flush=True)
    return found


def main() -> int:
    """Tries mutants and prints how many are killed, and which are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slips", action="store_true", help="mistakes that people make")
    parser.add_argument("--cells", action="store_true", help="the cells of the tables of rules")
    parser.add_argument("--source", type=int, metavar="N", help="N mutants of the source of the core, by cosmic-ray")
    parser.add_argument("--seed", type=int, default=0, help="which of them (%(default)s)")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (%(default)s)")
    options = parser.parse_args()
    mutants: list[Mutant] = []
    if options.slips or not (options.cells or options.source):
        mutants += slips.load()
    if options.cells:
        mutants += cells()
    if options.source:
        from refdist.conformance.mutants import source

        mutants += source.sample(options.source, options.seed)
    mutants = [mutant for mutant in mutants if options.only in mutant.name]
    found = tried(mutants, options.jobs)
    killed = sum(case is not None for case in found.values())
    print(f"{killed} of {len(found)} killed ({100 * killed / max(len(found), 1):.1f} %)")
    return int(killed < len(found))


if __name__ == "__main__":
    sys.exit(main())
