"""The report: a table in the terminal, and in a folder JSON, Markdown, a page and a badge (`page.py`).

`report.json` is what the others are made from.  It holds one or more runs, each under the name of its implementation,
and once for all of them what the clauses say, so that it can be read where the suite is not, or another one is.
`report.schema.json` describes every field; a change of the form is another number of `SCHEMA`.
"""

from __future__ import annotations

import datetime
import json
import platform
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from .chapters import LEVELS, Case, Chapter, Clause
from .distribution import VERSION
from .judging import NEEDS, Verdict

OUTCOMES = ("passed", "failed", "expected failure", "errored", "unsupported", "skipped")
FILE = "report.json"
SCHEMA = 1  # the version of the form; see report.schema.json
MOST = 10  # reasons of an implementation that the terminal lists


class Row(TypedDict):
    """A verdict; `example` is the number of the program of its clause, from 1, `line` one of the chapter, and `seconds`
    how long the implementation took, with its judgement."""

    chapter: str
    clause: str
    case: str
    example: int
    strategy: str
    level: str
    outcome: str
    message: str
    reason: str
    line: int
    expected: str
    found: str
    output: str
    seconds: float


class RunFacts(TypedDict):
    """What was run where and when, and by which command, to which the options that select cases are added; `cases` are
    those of the whole suite, by level."""

    suite: str
    python: str
    date: str
    command: str
    cases: dict[str, int]


class Source(TypedDict):
    """A program, and the line of the chapter in which it begins."""

    source: str
    line: int


class ClauseFacts(TypedDict):
    """A clause (`chapters.py`) as data."""

    chapter: str
    level: str
    rule: str
    page: str
    section: str
    standing: str
    remark: str
    tensorflow: str
    examples: list[Source]


class Report(TypedDict):
    """What `report.json` holds: its form, runs and their rows by name, what chapters define, and clauses."""

    schema: int
    runs: dict[str, RunFacts]
    chapters: dict[str, Source | None]
    clauses: dict[str, ClauseFacts]
    implementations: dict[str, list[Row]]


def empty() -> Report:
    """A report without a run."""
    return {"schema": SCHEMA, "runs": {}, "chapters": {}, "clauses": {}, "implementations": {}}


def row(verdict: Verdict, outcome: str, message: str, reason: str) -> Row:
    """A verdict as data."""
    case = verdict.case
    return {"chapter": case.chapter.name, "clause": case.clause.name, "case": case.name,
            "example": case.example.number, "strategy": case.strategy, "level": case.clause.level, "outcome": outcome,
            "message": message, "reason": reason, "line": verdict.line, "expected": verdict.expected,
            "found": verdict.found, "output": verdict.output, "seconds": 0.0}


def add(report: Report, name: str, rows: Sequence[Row], cases: Sequence[Case], command: str) -> None:
    """Puts a run of now into a report, in place of an older one of the same implementation.

    Args:
        report: is changed.
        name: of the implementation, with its version.
        rows: the verdicts.
        cases: all that the suite has.
        command: what ran it, without the options that selected cases.
    """
    place = {case.name: i for i, case in enumerate(cases)}
    put(report, name, sorted(rows, key=lambda row: place[row["case"]]),
        Counter(case.clause.level for case in cases), command)
    for case in cases:
        report["chapters"][case.chapter.name] = _chapter(case.chapter)
        report["clauses"][case.clause.name] = _clause(case.chapter, case.clause)


def put(report: Report, name: str, rows: Sequence[Row], cases: Mapping[str, int], command: str) -> None:
    """Puts the rows of a run of now into a report, in place of those of an older one of the same name.

    Args:
        report: is changed; what its clauses say is not.
        name: of what was run, with its version.
        rows: the verdicts, in order.
        cases: how many there are of each level, also those that were not selected.
        command: what ran it, without the options that selected cases.
    """
    report["runs"][name] = {"suite": VERSION, "python": platform.python_version(),
                            "date": datetime.date.today().isoformat(), "command": command, "cases": dict(cases)}
    report["implementations"][name] = list(rows)


def _chapter(chapter: Chapter) -> Source | None:
    return {"source": chapter.preamble.source, "line": chapter.preamble.line} if chapter.preamble else None


def _clause(chapter: Chapter, clause: Clause) -> ClauseFacts:
    return {"chapter": chapter.name, "level": clause.level, "rule": clause.rule, "page": clause.page,
            "section": clause.section, "standing": clause.standing, "remark": clause.remark,
            "tensorflow": clause.tensorflow,
            "examples": [{"source": example.source, "line": example.line} for example in clause.examples]}


def merged(reports: Mapping[str, Report]) -> Report:
    """One report with the runs of several.

    Args:
        reports: by what tells them apart, which is added to a name that two of them have.
    """
    every = Counter(name for report in reports.values() for name in report["runs"])
    result = empty()
    for label, report in reports.items():
        for name in report["runs"]:
            called = name if every[name] == 1 else f"{name} ({label})"
            result["runs"][called] = report["runs"][name]
            result["implementations"][called] = report["implementations"][name]
        result["chapters"].update(report["chapters"])
        result["clauses"].update(report["clauses"])
    return result


def read(path: Path) -> Report:
    """The report in a file or a folder.

    Raises:
        ValueError: what is there is not a report of this form.
        OSError: it cannot be read.
    """
    path = path / FILE if path.is_dir() else path
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        known = (report.keys() == empty().keys() and report["schema"] == SCHEMA
                 and report["runs"].keys() == report["implementations"].keys()
                 and all(facts.keys() == RunFacts.__annotations__.keys() for facts in report["runs"].values()))
    except (ValueError, AttributeError):
        known = False
    if not known:
        raise ValueError(f"{path} is not a report of this version of the suite; remove it, and run the suite again")
    return cast("Report", report)


def begun(folder: Path) -> Report:
    """The report in a folder, or an empty one.

    Raises:
        ValueError: the folder has a report of another form.
        OSError: it cannot be read.
    """
    return read(folder) if (folder / FILE).exists() else empty()


def markdown(report: Report) -> str:
    """The table of each implementation, and what it fails."""
    parts = []
    for name, rows in report["implementations"].items():
        facts = report["runs"][name]
        failed = [f"* `{row['case']}`: {row['message']}\n  Run alone: `{facts['command']} --clause {row['clause']}`"
                  for row in rows if row["outcome"] in ("failed", "errored")]
        parts += [f"## {name}", "", f"Suite {facts['suite']} on Python {facts['python']}, {facts['date']}.", "", "```",
                  *table(rows), "```", "", *failed, ""]
    return "\n".join(parts)


def badge(facts: RunFacts, rows: Sequence[Row], label: str = "tf.distribute") -> dict[str, str | int]:
    """A badge in the form that shields.io reads: how many cases that a document promises passed, of all there are.

    A case that was skipped or not run has not passed, so that a badge is green for the whole suite only.
    """
    must, counts = facts["cases"].get("MUST", 0), Counter(row["outcome"] for row in rows if row["level"] == "MUST")
    wrong = counts["failed"] + counts["errored"] + counts["expected failure"]
    return {"schemaVersion": 1, "label": label, "message": f"{counts['passed']} of {must} MUST",
            "color": "red" if wrong > must / 10 else "orange" if wrong else
                     "brightgreen" if counts["passed"] == must else "yellow"}


def skipped(rows: Sequence[Row]) -> Iterator[str]:
    """Lines that say why cases were skipped: how many need which capability, and what an implementation says itself."""
    reasons = Counter(row["message"] for row in rows if row["outcome"] == "skipped")
    lacking: Counter[str] = Counter()
    for reason, count in reasons.items():
        if reason.startswith(NEEDS):
            lacking.update(dict.fromkeys(reason.removeprefix(NEEDS).split(", "), count))
    if lacking:
        count = sum(count for reason, count in reasons.items() if reason.startswith(NEEDS))
        needs = ", ".join(f"{name} ({count})" for name, count in lacking.most_common())
        yield from textwrap.wrap(f"{count} skipped, which need {needs}", 100, subsequent_indent="  ")
    own = [(reason, count) for reason, count in reasons.most_common() if not reason.startswith(NEEDS)]
    # One reason more is not worth a line that counts it.
    listed = own if len(own) <= MOST + 1 else own[:MOST]
    yield from (f"{count} skipped: {reason}" for reason, count in listed)
    if rest := own[len(listed):]:
        yield f"{sum(count for _, count in rest)} skipped for {len(rest)} other reasons; --report FOLDER has all"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines with the number of cases of each outcome, by chapter and by level."""
    outcomes = [outcome for outcome in OUTCOMES if any(row["outcome"] == outcome for row in rows)]
    width = max(len(row["chapter"]) for row in rows) + 2
    yield f"{'':{width}}" + "".join(f"{outcome:>{len(outcome) + 3}}" for outcome in outcomes)

    def line(name: str, some: Sequence[Row]) -> str:
        counts = Counter(row["outcome"] for row in some)
        return f"{name:{width}}" + "".join(f"{counts[outcome] or '-':>{len(outcome) + 3}}" for outcome in outcomes)

    for chapter in dict.fromkeys(row["chapter"] for row in rows):
        yield line(chapter, [row for row in rows if row["chapter"] == chapter])
    for level in LEVELS:
        yield line(level, [row for row in rows if row["level"] == level])
    yield line("all", rows)
    judged = [row for row in rows if row["outcome"] not in ("skipped", "unsupported")]
    clauses = {row["clause"] for row in rows}
    yield (f"{len(judged)} of {len(rows)} cases were judged ({100 * len(judged) // len(rows)} %), of "
           f"{len({row['clause'] for row in judged})} of {len(clauses)} clauses")
