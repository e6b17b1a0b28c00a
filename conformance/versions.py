"""TensorFlow from 2.12 on, version by version: what of the suite changed, and why.

    python -m refdist.conformance versions FOLDER [options of the suite] > docs/implementations.md

For each version there is a folder in FOLDER with an environment that has TensorFlow and nothing else, and the report of
the suite run on it.  What is there already is kept, so that a run that was interrupted goes on where it was, and
another one only prints.  Of a report, clauses whose programs have changed since are run again, and all of them where it
was made with other options of the suite.

The page shows how many cases passed, and the cases whose outcome changed between two versions, by the reason.
Reasons are in `expected/versions.txt`, lines `cases | version | why`: since that version these cases, patterns with a
comma between them, have another outcome than before.  A line that no report confirms is an error, and a change without
a line is printed as not explained.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import refdist
from refdist.conformance.chapters import LEVELS, load
from refdist.conformance.report import OUTCOMES, Row

# The latest of each minor version that has wheels for Python 3.11.
TENSORFLOW = ("2.12.1", "2.13.1", "2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
REASONS = Path(__file__).parent / "expected" / "versions.txt"
LONGEST = 240  # characters of a message
WIDTH = 120  # of the page
NOTHING_SELECTED = 5  # the exit status where no case of the changed clauses is asked for
SUITE = [sys.executable, "-m", "refdist.conformance"]


class _Reason(NamedTuple):
    """A line of the reasons."""

    cases: str
    version: str
    text: str

    def is_of(self, case: str) -> bool:
        """Whether it is the reason of this case."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases.split(", "))


class Impossible(Exception):
    """A version cannot be installed or tested; the text says why."""


def main(arguments: Sequence[str]) -> int:
    """The command; 1 where a version cannot be installed or tested, or a reason is wrong."""
    parser = argparse.ArgumentParser(prog="python -m refdist.conformance versions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where environments and reports are kept")
    parser.add_argument("selection", nargs=argparse.REMAINDER, metavar="OPTION",
                        help="options of the suite that select cases, such as --level must")
    options = parser.parse_args(arguments)
    try:
        reports = {}
        for version in TENSORFLOW:
            reports[version] = report(options.folder.resolve() / version, version, options.selection)
            print(f"{version}: {len(reports[version])} cases", file=sys.stderr)
        print(page(reports, options.selection, REASONS.read_text(encoding="utf-8")), end="")
    except (Impossible, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def report(folder: Path, version: str, selection: Sequence[str]) -> list[Row]:
    """The rows of a version's report, as far as it is there; what is not is run.

    Raises:
        Impossible: the version cannot be installed, or the suite cannot be run on it.
    """
    made, now = folder / "made.json", _clauses()
    before = json.loads(made.read_text()) if made.exists() else {}
    if before.get("options") != list(selection):
        before = {"clauses": {}, "rows": []}
    changed = [name for name, programs in now.items() if before["clauses"].get(name) != programs]
    rows = {row["case"]: row for row in before["rows"] if row["clause"] in now and row["clause"] not in changed}
    if changed:
        python = environment(folder / "env", f"tensorflow-cpu=={version}")
        only = [part for name in changed for part in ("--clause", name)] if before["clauses"] else []
        found = folder / "report" / "report.json"
        found.unlink(missing_ok=True)
        done = subprocess.run([*SUITE, "--adapter", "tensorflow", "--python", str(python), *selection, *only,
                               "--tb=no", "--report", str(found.parent)], stdout=subprocess.PIPE, text=True)
        if found.exists():
            [new] = json.loads(found.read_text())["implementations"].values()
            rows |= {row["case"]: row for row in new}
        elif done.returncode != NOTHING_SELECTED:
            raise Impossible(f"TensorFlow {version}: the suite ended with exit status {done.returncode}\n{done.stdout}")
        made.write_text(json.dumps({"options": list(selection), "clauses": now, "rows": list(rows.values())}))
    order = {name: i for i, name in enumerate(now)}
    return sorted(rows.values(), key=lambda row: order[row["clause"]])


def _clauses() -> dict[str, str]:
    """For each clause a digest of its programs and of what is expected of them."""
    found: dict[str, str] = {}
    for chapter in load():
        preamble = chapter.preamble.source if chapter.preamble else ""
        for clause in chapter.clauses:
            programs = [[(one.source, one.expectations) for one in example.statements] for example in clause.examples]
            text = repr((preamble, clause.strategies, programs, [example.parameters for example in clause.examples]))
            found[clause.name] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return found


def environment(folder: Path, package: str) -> Path:
    """The Python of an environment with a package, which is made unless it is there.

    Raises:
        Impossible: the package cannot be installed.
    """
    python, made = folder / "bin" / "python", folder / ".made"
    if not made.exists():
        venv.create(folder, clear=True, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
                              stdout=sys.stderr)
        if done.returncode:
            raise Impossible(f"{package} cannot be installed in {folder} for Python "
                             f"{'.'.join(map(str, sys.version_info[:2]))}; every version has wheels for Python 3.11")
        made.touch()
    return python


def page(reports: Mapping[str, Sequence[Row]], selection: Sequence[str], reasons: str) -> str:
    """docs/implementations.md.

    Raises:
        ValueError: a line of the reasons has another form, or is of a change that the reports do not show.
    """
    versions = list(reports)
    command = shlex.join(["python", "-m", "refdist.conformance", "versions", "FOLDER", *selection])
    chosen = f"Only the cases that `{shlex.join(selection)}` selects were run." if selection else "All cases were run."
    printed = f"Printed by `{command}`, with the suite of refdist {refdist.__version__}."
    parts = ["# Implementations\n", fill(printed, WIDTH),
             f"\n## TensorFlow {_minor(versions[0])} to {_minor(versions[-1])}\n",
             fill(f"Each version in an environment of its own, on CPUs. {chosen} Numbers are of cases.", WIDTH), "",
             *_totals(reports), "",
             fill("Below are the cases whose outcome changed between two versions; between all others none did. "
                  "A case is a program, which its clause shows; what came of it before and after is beside it.", WIDTH)]
    known, used = _read(reasons), set[_Reason | None]()
    for before, after in pairwise(versions):
        changes = _changes(reports[before], reports[after], [one for one in known if one.version == _minor(after)])
        if changes:
            parts.append(f"\n### From {_minor(before)} to {_minor(after)}")
        for why, lines in changes.items():
            parts += ["", fill(why.text if why else "**Not explained.**", WIDTH), "",
                      "| case | before | after |", "| --- | --- | --- |", *lines]
        used |= changes.keys()
    run = {row["case"] for rows in reports.values() for row in rows}
    for one in known:
        if one.version in map(_minor, versions[1:]) and one not in used and any(map(one.is_of, run)):
            raise ValueError(f"{REASONS.name}: {' | '.join(one)}: no case changed so")
    return "\n".join(parts) + "\n"


def _changes(before: Sequence[Row], after: Sequence[Row],
             reasons: Sequence[_Reason]) -> dict[_Reason | None, list[str]]:
    """The lines of the cases with another outcome, by the reason."""
    found = dict[_Reason | None, list[str]]()
    old = {row["case"]: row for row in before}
    for row in after:
        case = row["case"]
        if case in old and old[case]["outcome"] != row["outcome"]:
            cells = [f"[{case}]({_link(row)})", _told(old[case]), _told(row)]
            line = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            found.setdefault(next((one for one in reasons if one.is_of(case)), None), []).append(line)
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _link(row: Row) -> str:
    return f"../conformance/spec/{row['chapter']}.md#{row['clause'].replace('.', '')}"


def _totals(reports: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    outcomes = [one for one in OUTCOMES if any(row["outcome"] == one for rows in reports.values() for row in rows)]
    levels = [level for level in LEVELS if any(row["level"] == level for rows in reports.values() for row in rows)]
    yield "| version | " + " | ".join(f"{level} {outcome}" for level in levels for outcome in outcomes) + " |"
    yield "| --- |" + " ---: |" * (len(levels) * len(outcomes))
    for version, rows in reports.items():
        counts = Counter((row["level"], row["outcome"]) for row in rows)
        yield f"| {version} | " + " | ".join(str(counts[level, one]) for level in levels for one in outcomes) + " |"


def _told(row: Row) -> str:
    # Where in the files of that environment it was raised is of no use to readers.
    message = row["message"].partition(" (most recent call last)")[0].replace("`", "'")
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."
    return f"{row['outcome']}: {message}" if message else row["outcome"]


def _read(text: str) -> list[_Reason]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|", 2)]
            if len(parts) != 3 or not all(parts):
                raise ValueError(f"{REASONS.name}:{number}: {line!r} is not `cases | version | why`")
            found.append(_Reason(*parts))
    return found
