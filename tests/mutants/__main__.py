"""The command `PYTHONPATH=tests python -m mutants`."""

from __future__ import annotations

import argparse
import re
import select
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from mutants import reach, slips, source
from mutants.cells import Cell, cells
from mutants.forks import DOES_NOT_WORK, Fork
from refdist.conformance.chapters import cases

SURVIVORS = Path(__file__).with_name("survivors.txt")


class Mutant(Protocol):
    """Something wrong."""

    @property
    def name(self) -> str: ...
    @property
    def mutate(self) -> Callable[[], None]: ...


def tried(mutants: Sequence[Mutant], jobs: int) -> dict[str, str | None]:
    """The case that kills each mutant, by the mutant's name; None for a survivor.

    A case that has killed one is tried first on the next, because neighbours are often killed by the same; properties,
    which take longest, are tried last.
    """
    order = [case.name for case in sorted(cases(), key=lambda case: bool(case.example.parameters))]
    can_kill = _reaching(mutants, order)
    killers: dict[str, str | None] = {}

    running: dict[Fork, Mutant] = {}
    left = list(reversed(mutants))
    while left or running:
        while left and len(running) < jobs:
            mutant = left.pop()
            position = {name: i for i, name in enumerate(order)}
            names = sorted(can_kill(mutant), key=lambda name: position.get(name, 0))
            running[Fork(mutant.mutate, names)] = mutant
        ready, _, _ = select.select(list(running), [], [])
        for fork in ready:
            name = running.pop(fork).name
            case = killers[name] = fork.killer()
            if case in order:
                order.remove(case)
                order.insert(0, case)
            if case is None or case.startswith(DOES_NOT_WORK):
                print(f"survives: {name}{f' ({case})' if case else ''}", flush=True)
                killers[name] = None
    return killers


def _reaching(mutants: Sequence[Mutant], names: Sequence[str]) -> Callable[[Mutant], Collection[str]]:
    # The cases that can kill a mutant: those that reach what differs, and of a slip those of its clause.
    cells_read = reach.of_cells(names) if any(isinstance(mutant, Cell) for mutant in mutants) else {}
    lines = {(mutant.file, line) for mutant in mutants if isinstance(mutant, source.Mutant)
             for line in mutant.lines or ()}
    lines_run = reach.of_lines(names, lines) if lines else {}

    def reaching(mutant: Mutant) -> Collection[str]:
        if isinstance(mutant, slips.Slip):
            return [mutant.clause]
        if isinstance(mutant, Cell) and mutant.place:
            return cells_read.get(mutant.place, [])
        if isinstance(mutant, source.Mutant) and mutant.lines:
            return {name for line in mutant.lines for name in lines_run.get(f"{mutant.file}:{line}", [])}
        return names

    return reaching


def excused(names: Iterable[str]) -> dict[str, str]:
    """Why mutants survive, by name: the lines of survivors.txt, `name | reason`, where * is any text."""
    reasons = [line.rsplit(" | ", 1) for line in SURVIVORS.read_text().splitlines() if line and line[0] != "#"]
    patterns = [(re.compile(".*".join(map(re.escape, name.split("*")))), reason) for name, reason in reasons]
    return {name: reason for name in names for pattern, reason in patterns if pattern.fullmatch(name)}


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
        mutants += source.sample(options.source, options.seed)
    mutants = [mutant for mutant in mutants if options.only in mutant.name]
    killers = tried(mutants, options.jobs)
    reasons = excused(killers)
    wrong = {name: case for name, case in killers.items() if case is not None and name in reasons}
    for name, case in wrong.items():
        print(f"survivors.txt has a reason, but {case} kills: {name}")
    killed = sum(case is not None for case in killers.values())
    others = sum(case is None and name in reasons for name, case in killers.items())
    counted = len(killers) - others
    print(f"{killed} of {counted} killed ({100 * killed / max(counted, 1):.1f} %); no program can tell {others} more, "
          "see survivors.txt")
    return int(killed < counted or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
