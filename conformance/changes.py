"""The command `python -m refdist.conformance changes OLD`: what is asked otherwise since an older file of cases.

Whoever has a testee reads three things: which clauses and cases have come and gone, what of the others is asked or
expected otherwise, and how just these are run. Where an example has moved to another line of its chapter, or another
wording asks for the same steps, nothing has changed for a testee, and nothing is said.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import textwrap
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .distribution import COMMAND, VERSION
from .kept import FILE, FORM, cases_in, examples
from .options import quoted

WIDTH = 118
# Of a case, what a testee is asked: where one of these is another, so is the question.
ASKED = ("strategy", "programs", "only_python", "observe")
# Of a clause, what says what it is about.
ABOUT = ("rule", "level", "page", "section", "standing")


class Unreadable(ValueError):
    """A file has no cases; the text says which, and what to write instead."""


@dataclass
class Clause:
    """A clause as a file has it.

    Attributes:
        about: its rule, level, page, section and standing.
        cases: what is asked, by the names of the cases.
    """

    about: dict[str, str]
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Version:
    """A file of cases.

    Attributes:
        suite: the version of the suite that wrote it.
        form: the version of the form of the file.
        clauses: its clauses, by name.
    """

    suite: str
    form: int
    clauses: dict[str, Clause]


def read(path: Path) -> Version:
    """Reads a file of cases, or the one in a wheel.

    Raises:
        Unreadable: there is no such file, or it has no cases, or a newer suite wrote it in another form.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as wheel:
                [name] = [name for name in wheel.namelist() if name.endswith(f"conformance/{FILE.name}")]
                lines = wheel.read(name).decode().splitlines()
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
        first = json.loads(lines[0])
        if first["schema"] > FORM:
            raise Unreadable(f"{path} is a file of form {first['schema']}, of suite {first['suite']}, and this suite, "
                             f"{VERSION}, reads forms up to {FORM}; use the newer suite")
        clauses: dict[str, Clause] = {}
        for example in examples(lines):
            clause = clauses.setdefault(example["clause"], Clause({name: example[name] for name in ABOUT}))
            clause.cases |= {case["name"]: case for case in cases_in(example)}
        return Version(first["suite"], first["schema"], clauses)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}; name a file of cases, or a wheel") from error
    except Unreadable:
        raise
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Unreadable(f"{path} has no cases; name a file that is a {FILE.name}, or a wheel of the suite") from error


def report(old: Version, new: Version) -> Iterator[str]:
    """Lines that say what has changed."""
    yield f"from {_named(old)}"
    yield f"to   {_named(new)}"
    if old.form != new.form:
        yield from ("", f"The form of the file was version {old.form} and is version {new.form}: who reads it without "
                        f"this command reads cases.schema.json again.")
    added, removed = ({name: clause for name, clause in these.clauses.items() if name not in others.clauses}
                      for these, others in ((new, old), (old, new)))
    for title, clauses in (("Clauses that have come", added), ("Clauses that have gone", removed)):
        if clauses:
            yield from ("", f"{title}: {len(clauses)}")
        for name, clause in clauses.items():
            yield f"  {name}  ({clause.about['level']}; {_cases(len(clause.cases))})"
            yield from _wrapped(clause.about["rule"], 6)
            yield from _wrapped(f"needs {', '.join(sorted(_needs(clause)))}", 6)
    differences = {name: lines for name in new.clauses if name in old.clauses
                   if (lines := list(_of_clause(old.clauses[name], new.clauses[name])))}
    if differences:
        yield from ("", f"Clauses that have changed: {len(differences)}")
    for name, lines in differences.items():
        yield from (f"  {name}", *lines)
    if not (added or removed or differences):
        yield from ("", "Nothing is asked or expected otherwise.")


def to_run(old: Version, new: Version) -> list[str]:
    """The clauses that have cases that are new, or asked or expected otherwise."""
    return [name for name, clause in new.clauses.items() if any(
        name not in old.clauses or _differ(old.clauses[name].cases.get(case, {}), asked, (*ASKED, "expected", "needs"))
        for case, asked in clause.cases.items())]


def _named(version: Version) -> str:
    cases = sum(len(clause.cases) for clause in version.clauses.values())
    return (f"suite {version.suite}, form {version.form} of the file: {len(version.clauses):,} clauses, "
            f"{_cases(cases)}")


def _cases(count: int) -> str:
    return f"{count:,} case{'s' * (count != 1)}"


def _needs(clause: Clause) -> set[str]:
    """What any case of a clause needs; a strategy where there is no other."""
    every = [set(case["needs"]) for case in clause.cases.values()]
    return set.intersection(*every) or set.union(*every)


def _differ(old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]) -> bool:
    return any(old.get(name) != new.get(name) for name in names) or (
        "only_python" in new and _source(old) != _source(new))


def _source(case: Mapping[str, Any]) -> list[str]:
    """The text of an example, which is all that is asked of what only Python can run."""
    blocks = case.get("python", {})
    return [blocks[name]["source"] for name in ("preamble", "example") if blocks.get(name)]


def _of_clause(old: Clause, new: Clause) -> Iterator[str]:
    """What is other about a clause that both versions have."""
    for name in ABOUT:
        if old.about[name] != new.about[name]:
            yield from _was_is(name, old.about[name], new.about[name])
    for title, these, others in (("also asked", new, old), ("no longer asked", old, new)):
        yield from _listed(title, [name for name in these.cases if name not in others.cases])
    programs: dict[tuple[str, str], list[str]] = {}
    results: dict[tuple[str, str, str], list[str]] = {}
    for name, now in new.cases.items():
        before = old.cases.get(name, now)
        if _differ(before, now, ASKED):
            programs.setdefault((_source(before)[-1], _source(now)[-1]), []).append(name)
            continue  # statements have other numbers now: what is expected cannot be set beside what was
        for what, was, now_is in _expected(before, now):
            results.setdefault((what, was, now_is), []).append(name)
        was, now_is = (", ".join(sorted(case["needs"])) for case in (before, now))
        if was != now_is:
            results.setdefault(("needs", was, now_is), []).append(name)
    for (was, now_is), names in programs.items():
        yield from _listed("asked otherwise", names)
        lines = difflib.unified_diff(was.splitlines(), now_is.splitlines(), n=0, lineterm="")
        yield from (f"          {line}" for line in lines if not line.startswith(("---", "+++", "@@")))
    for (what, was, now_is), names in results.items():
        yield from _was_is(f"{what}, {', '.join(_strategies(names))}", was, now_is)


def _expected(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(which statement, what was expected of it, what is) where that differs; the statements are the same."""
    for before, now in zip(old["expected"], new["expected"], strict=True):
        if before != now:
            was, now_is = (json.dumps(expected.get("results", expected.get("holds")), ensure_ascii=False)
                           for expected in (before, now))
            yield f"expected of statement {now['statement']}", was, now_is


def _listed(title: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        yield from _wrapped(f"{title}: {'; '.join(_strategies(names))}", 6)


def _strategies(names: Iterable[str]) -> list[str]:
    """Names of cases without that of their clause; those that differ in values only are counted."""
    counts = Counter(name.partition(" ")[2].partition(", ")[0] for name in names if ", " in name)
    plain = [name.partition(" ")[2] for name in names if ", " not in name]
    return [*plain, *(f"{place} with {count} value{'s' * (count != 1)}" for place, count in counts.items())]


def _was_is(what: str, was: str, now_is: str) -> Iterator[str]:
    yield from _wrapped(f"{what}:", 6)
    yield from _wrapped(f"was {was}", 10)
    yield from _wrapped(f"is  {now_is}", 10)


def _wrapped(text: str, margin: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * margin, subsequent_indent=" " * (margin + 4),
                         break_long_words=False, break_on_hyphens=False)


def main(arguments: Sequence[str]) -> int:
    """Prints what has changed; returns the exit status."""
    parser = argparse.ArgumentParser(f"{COMMAND} changes", description="Says what is asked or expected otherwise since "
                                     "an older version of the suite, and how just that is run.")
    parser.add_argument("old", type=Path, metavar="OLD", help="a cases.jsonl, or a wheel of the suite")
    parser.add_argument("new", type=Path, metavar="NEW", nargs="?", default=FILE,
                        help="a newer one; the cases that are installed if it is left out")
    parser.add_argument("--adapter", default="testee:YOURS", help="what the printed command tests")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:
        return 4 if ended.code else 0
    try:
        old, new = read(options.old), read(options.new)
    except Unreadable as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    print(*report(old, new), sep="\n")
    if (clauses := to_run(old, new)) and options.new == FILE:
        chosen = " ".join(f"--clause {name}" for name in clauses)
        print("", "To run what has come or changed:", f"    {COMMAND} --adapter {quoted(options.adapter)} {chosen}",
              sep="\n")
    return 0
