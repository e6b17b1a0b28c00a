"""Random programs, run on two implementations, which must observe the same.

    python -m refdist.conformance random --against refdist.conformance.adapters.tensorflow:TensorFlow --programs 1000

A program is made of statements that a person could have written, as in the chapters: values made in replicas,
collectives, reductions, variables of every kind and their updates, merge calls, datasets, and errors on purpose, after
which the program goes on; checkpoints, random generators, nests, parameter servers, and a second strategy beside the
first (`writer.py`, `operations.py` and the files that it names). Every result is looked at, bit by
bit. What differs is put into classes, and each class is printed with how often it was seen and a program that is as
short as possible (`comparison.py`), as a clause of a chapter: what is printed is a chapter that can be read.

**Known differences** stand in a file, `class | clause`: a pattern with `*` for classes, and the clause that describes
the difference. They are counted and not printed again, so that the exit status, 1, means something new. A class names
the operation, the kind of strategy and the difference, so that a line hides no other difference of the same operation.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from refdist.conformance.chapters import load
from refdist.conformance.protocol import Unusable
from refdist.conformance.random_programs.comparison import Comparison, Found, Kind, text
from refdist.conformance.random_programs.writer import PREAMBLE
from refdist.conformance.session import LIMIT, Tester, tester


def known_classes(path: str | Path) -> dict[str, str]:
    """Patterns of known classes, and the clause of each.

    Raises:
        ValueError: a line is not `class | clause`, or names no clause.
    """
    clauses = {clause.name for chapter in load() for clause in chapter.clauses}
    classes = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, clause = (part.strip() for part in line.rpartition("|"))
        if not pattern or clause not in clauses:
            raise ValueError(f"{path}:{number}: {line!r} is not `class | clause` with a clause of the specification")
        classes[pattern] = clause
    return classes


def clause_of(kind: Kind, known: Mapping[str, str]) -> str | None:
    """The clause that describes a class of differences; None for a new one."""
    return next((clause for pattern, clause in known.items() if fnmatchcase(str(kind), pattern)), None)


def page(comparison: Comparison, known: Mapping[str, str], start: int) -> str:
    """What was found, as a chapter: how often known classes were seen, and a clause for each new one."""
    new = [kind for kind in comparison.found if not clause_of(kind, known)]
    left_out = f", and {comparison.left_out} that one of them does not run" if comparison.left_out else ""
    lines = ["# random", "", f"{comparison.first.name} and {comparison.second.name} {comparison.second.version} on "
             f"{comparison.done} programs{left_out}, seed {start}: {len(comparison.found)} classes of differences, "
             f"{len(new)} of them new.", ""]
    lines += [f"* {seen.count} times {kind} ({clause})" for kind, seen in sorted(
        comparison.found.items(), key=lambda item: str(item[0])) if (clause := clause_of(kind, known))]
    lines += ["", _indented(PREAMBLE)] if new else []
    for number, kind in enumerate(new, 1):
        lines += ["", *_clause(comparison, number, kind, comparison.found[kind], start)]
    return "\n".join(lines)


def _clause(comparison: Comparison, number: int, kind: Kind, seen: Found, start: int) -> list[str]:
    example = seen.difference.example
    reply = comparison.first.ask(example.program())
    return [f"## random.{number}", "", f"**{kind}**", f"SHOULD. Random programs, seed {start}. The page is silent.",
            f"On {example.strategy}.", "", f"Seen {seen.count} times. {comparison.second.name} has at the end:", "",
            f"> {seen.difference.text}", "", _indented(text(example, reply.answers))]


def _indented(source: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in source.splitlines())


def _tester(option: str, adapter: str, limit: float) -> Tester:
    try:
        return tester(adapter, limit)
    except Unusable as error:
        raise ValueError(f"{option} {adapter}: {error}") from None


def main(arguments: Sequence[str]) -> int:
    """The command; 1 where there are differences that are not known, 4 where it cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m refdist.conformance random", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default="refdist.conformance.adapters.simulated:Simulated")
    parser.add_argument("--against", required=True, help="another adapter, or testee:COMMAND")
    parser.add_argument("--programs", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (%(default)s)")
    parser.add_argument("--known", metavar="FILE", help="known differences: lines `class | clause`")
    parser.add_argument("--bitwise", action="store_true", help="floats must agree to the bit")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a program may take (%(default)s)")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as started:
        try:
            if options.programs < 1:
                raise ValueError(f"--programs is {options.programs}; make it 1 or more")
            known = known_classes(options.known) if options.known else {}
            reference, other = (started.enter_context(contextlib.closing(_tester(option, adapter, options.limit)))
                                for option, adapter in (("--adapter", options.adapter), ("--against", options.against)))
        except (ValueError, OSError) as error:
            print(f"ERROR: {error}", file=sys.stderr)
            return 4
        comparison = Comparison(reference, other, lambda kind: clause_of(kind, known) is not None, options.bitwise)
        comparison.run(options.programs, options.seed)
        print(page(comparison, known, options.seed))
    return int(any(clause_of(kind, known) is None for kind in comparison.found))
