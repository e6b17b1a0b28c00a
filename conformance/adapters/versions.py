"""TensorFlow from 2.12 on, version by version: what of the suite changed, and why; and other libraries' collectives.

    python -m refdist.conformance versions FOLDER [options of the suite] > docs/implementations.md

For each version there is a folder in FOLDER with an environment that has TensorFlow and nothing else, and the report of
the suite run on it.  What is there already is kept, so that a run that was interrupted goes on where it was, and
another one only prints.  Of a report, clauses whose programs have changed since are run again, and all of them where it
was made with other options of the suite.

The page shows how many cases passed, and the cases whose outcome changed between two versions, by the reason.
Reasons are in `expected/versions.txt`, lines `cases | version | why`: since that version these cases, patterns with a
comma between them, have another outcome than before.  A line that no report confirms is an error, and a change without
a line is printed as not explained.

Libraries of collectives have a section each, of the chapters that speak of collectives, whatever options are given: how
their adapter asks them, in its own words, what was not asked and why, and each clause that fails.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
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
from refdist.conformance.adapters import CLASSES
from refdist.conformance.chapters import LEVELS, load
from refdist.conformance.report import OUTCOMES, Row

# The latest of each minor version that has wheels for Python 3.11.
TENSORFLOW = ("2.12.1", "2.13.1", "2.14.1", "2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0")
LIBRARIES = {"torch": "torch==2.15.0", "jax": "jax==0.10.2"}  # libraries of collectives: an adapter, and its package
CHAPTERS = ("all_reduce", "all_gather")  # that they are asked
REASONS = Path(__file__).parents[1] / "expected" / "versions.txt"
ADAPTERS = Path(__file__).parent
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
            reports[version] = report(options.folder.resolve() / version, f"tensorflow-cpu=={version}",
                                      options.selection)
            print(f"{version}: {len(reports[version])} cases", file=sys.stderr)
        libraries = {adapter: report(options.folder.resolve() / package.replace("==", "-"), package, (), adapter,
                                     CHAPTERS) for adapter, package in LIBRARIES.items()}
        print(page(reports, options.selection, REASONS.read_text(encoding="utf-8")) + collectives(libraries), end="")
    except (Impossible, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def report(folder: Path, package: str, selection: Sequence[str], adapter: str = "tensorflow",
           chapters: Sequence[str] = ()) -> list[Row]:
    """The rows of an implementation's report, as far as it is there; what is not is run.

    Args:
        folder: where its environment and its report are kept.
        package: what its environment has.
        selection: options of the suite that select cases.
        adapter: its adapter.
        chapters: all that it is asked, of which no option need select clauses; the whole suite if there are none.

    Raises:
        Impossible: the package cannot be installed, or the suite cannot be run on it.
    """
    file, now = folder / "made.json", _clauses(_level(selection), chapters)
    before = json.loads(file.read_text()) if file.exists() else {}
    if before.get("options") != list(selection):
        before = {"clauses": {}, "rows": []}
    changed = [name for name, programs in now.items() if before["clauses"].get(name) != programs]
    rows = {row["case"]: row for row in before["rows"] if row["clause"] in now and row["clause"] not in changed}
    if changed:
        python = environment(folder / "env", package)
        asked = changed if before["clauses"] or chapters else []
        written = folder / "report" / "report.json"
        written.unlink(missing_ok=True)
        done = subprocess.run([*SUITE, "--adapter", adapter, "--python", str(python), *selection,
                               *(part for name in asked for part in ("--clause", name)),
                               "--tb=no", "--report", str(written.parent)], stdout=subprocess.PIPE, text=True)
        if written.exists():
            [new] = json.loads(written.read_text())["implementations"].values()
            rows |= {row["case"]: row for row in new}
        elif done.returncode != NOTHING_SELECTED:
            raise Impossible(f"{package}: the suite ended with exit status {done.returncode}\n{done.stdout}")
        file.write_text(json.dumps({"options": list(selection), "clauses": now, "rows": list(rows.values())}))
    order = {name: i for i, name in enumerate(now)}
    return sorted(rows.values(), key=lambda row: order[row["clause"]])


def _level(selection: Sequence[str]) -> str | None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--level")
    level: str | None = parser.parse_known_args(selection)[0].level
    return level


def _clauses(level: str | None, chapters: Sequence[str]) -> dict[str, str]:
    """For each clause of a level, of these chapters or of all, a digest of its programs and of what is expected."""
    digests: dict[str, str] = {}
    for chapter in load():
        preamble = chapter.preamble.source if chapter.preamble else ""
        for clause in chapter.clauses:
            if (level and clause.level.lower() != level) or (chapters and chapter.name not in chapters):
                continue
            programs = [[(statement.source, statement.expectations) for statement in example.statements]
                        for example in clause.examples]
            text = repr((preamble, clause.strategies, programs, [example.parameters for example in clause.examples]))
            digests[clause.name] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return digests


def environment(folder: Path, package: str) -> Path:
    """The Python of an environment with a package, which is made unless it is there.

    Raises:
        Impossible: the package cannot be installed.
    """
    python, stamp = folder / "bin" / "python", folder / ".made"
    if not stamp.exists():
        venv.create(folder, clear=True, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
                              stdout=sys.stderr)
        if done.returncode:
            raise Impossible(f"{package} cannot be installed in {folder} for Python "
                             f"{'.'.join(map(str, sys.version_info[:2]))}; every version has wheels for Python 3.11")
        stamp.touch()
    return python


def page(reports: Mapping[str, Sequence[Row]], selection: Sequence[str], reasons: str) -> str:
    """docs/implementations.md, as far as it is about TensorFlow.

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
        reasons_of = [reason for reason in known if reason.version == _minor(after)]
        changes = _changes(reports[before], reports[after], reasons_of)
        if changes:
            parts.append(f"\n### From {_minor(before)} to {_minor(after)}")
        for why, lines in changes.items():
            parts += ["", fill(why.text if why else "**Not explained.**", WIDTH), "",
                      "| case | before | after |", "| --- | --- | --- |", *lines]
        used |= changes.keys()
    run = {row["case"] for rows in reports.values() for row in rows}
    for reason in known:
        if reason.version in map(_minor, versions[1:]) and reason not in used and any(map(reason.is_of, run)):
            raise ValueError(f"{REASONS.name}: {' | '.join(reason)}: no case changed so")
    return "\n".join(parts) + "\n"


def collectives(libraries: Mapping[str, Sequence[Row]]) -> str:
    """The rest of docs/implementations.md: the reports of libraries of collectives, by their adapters."""
    parts = ["\n## Collectives of other libraries\n",
             fill(f"All cases of the chapters {' and '.join(CHAPTERS)}. These libraries do not promise what "
                  "tf.distribute promises: what fails has another result with them, which need not be a fault.", WIDTH)]
    for adapter, rows in libraries.items():
        module = CLASSES[adapter].partition(":")[0].rpartition(".")[2]
        about = ast.get_docstring(ast.parse((ADAPTERS / f"{module}.py").read_text(encoding="utf-8"))) or ""
        skipped = Counter(need for row in rows if row["outcome"] == "skipped"
                          for need in row["message"].removeprefix("needs ").split(", "))
        unsupported = Counter(row["message"].partition(": ")[2].partition(", where")[0] for row in rows
                              if row["outcome"] == "unsupported")
        parts += [f"\n### {LIBRARIES[adapter].replace('==', ' ')}",
                  *("\n" + fill(" ".join(paragraph.split()), WIDTH) for paragraph in about.split("\n\n")), "",
                  *_totals({name: [row for row in rows if row["chapter"] == name] for name in CHAPTERS}, "chapter"), "",
                  fill(f"Cases are skipped that need {_counted(skipped)}; some need several of them. Unsupported are "
                       f"{_counted(unsupported)}.", WIDTH), "",
                  "| clause | cases that fail | the first of them |", "| --- | ---: | --- |", *_failures(rows)]
    return "\n".join(parts) + "\n"


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each clause of which a case failed, of those that could be asked."""
    judged: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] not in ("skipped", "unsupported"):
            judged.setdefault(row["clause"], []).append(row)
    for clause, asked in judged.items():
        if failed := [row for row in asked if row["outcome"] != "passed"]:
            outcome = _told(failed[0]).replace("|", "\\|")
            yield f"| [{clause}]({_link(failed[0])}) | {len(failed)} of {len(asked)} | {outcome} |"


def _changes(before: Sequence[Row], after: Sequence[Row],
             reasons: Sequence[_Reason]) -> dict[_Reason | None, list[str]]:
    """The lines of the cases with another outcome, by the reason."""
    lines = dict[_Reason | None, list[str]]()
    old = {row["case"]: row for row in before}
    for row in after:
        case = row["case"]
        if case in old and old[case]["outcome"] != row["outcome"]:
            cells = [f"[{case}]({_link(row)})", _told(old[case]), _told(row)]
            line = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            lines.setdefault(next((reason for reason in reasons if reason.is_of(case)), None), []).append(line)
    return lines


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} ({count})" for what, count in counts.most_common())


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _link(row: Row) -> str:
    return f"../conformance/spec/{row['chapter']}.md#{row['clause'].replace('.', '')}"


def _totals(reports: Mapping[str, Sequence[Row]], of: str = "version") -> Iterator[str]:
    pairs = {(row["level"], row["outcome"]) for rows in reports.values() for row in rows}
    levels = [level for level in LEVELS if any(level == of_row for of_row, _ in pairs)]
    outcomes = [outcome for outcome in OUTCOMES if any(outcome == of_row for _, of_row in pairs)]
    yield f"| {of} | " + " | ".join(f"{level} {outcome}" for level in levels for outcome in outcomes) + " |"
    yield "| --- |" + " ---: |" * (len(levels) * len(outcomes))
    for name, rows in reports.items():
        counts = Counter((row["level"], row["outcome"]) for row in rows)
        cells = [str(counts[level, outcome]) for level in levels for outcome in outcomes]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _told(row: Row) -> str:
    # Where in the files of that environment it was raised is of no use to readers.
    message = row["message"].partition(" (most recent call last)")[0].replace("`", "'")
    message = re.sub(r'"/[^"]*/', '"', message)
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."
    return f"{row['outcome']}: {message}" if message else row["outcome"]


def _read(text: str) -> list[_Reason]:
    reasons = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|", 2)]
            if len(parts) != 3 or not all(parts):
                raise ValueError(f"{REASONS.name}:{number}: {line!r} is not `cases | version | why`")
            reasons.append(_Reason(*parts))
    return reasons
