"""The files of a report, of which the page has all runs side by side and needs nothing else.

`page.html` is the page, with JavaScript of its own that builds what is seen from the data inlined here.  What came from
an implementation is hostile until shown otherwise: it stands in the page as JSON in which no tag can begin, the script
makes text of it and nothing else, and the policy in the page's head allows no other script and no address.

The data is small where it can be: outcomes are a character for each case, and what differs (`details`) is there once,
however many versions of an implementation agree in it.  A clause is built when it is opened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import files
from . import report as reports
from .chapters import LEVELS
from .excerpts import TRACEBACK, excerpt
from .report import FILE, OUTCOMES, Report, Row

TEMPLATE = Path(__file__).with_name("page.html")
LONGEST = 1000  # characters that are shown of a text of an implementation
OPTION, PAGE, TABLES, BADGE = "--report", "report.html", "report.md", "badge.json"


def check(folder: Path) -> None:
    """Makes the folder of a report if there is none, and sees whether its files can be written.

    Raises:
        files.NotWritten: one cannot be.
    """
    files.check(OPTION, [folder / name for name in (FILE, TABLES, PAGE, BADGE)])


def write(folder: Path, report: Report, badge: str = "") -> Path:
    """Writes report.json, report.md, report.html, and badge.json where there is one, into a folder that exists.

    Returns:
        The page.

    Raises:
        files.NotWritten: one cannot be written; then none is.
    """
    contents = {folder / FILE: json.dumps(report, indent=1), folder / TABLES: reports.markdown(report),
                folder / PAGE: render(report)}
    files.write(OPTION, contents | ({folder / BADGE: badge} if badge else {}))
    return folder / PAGE


def write_run(folder: Path, report: Report, name: str, label: str = "tf.distribute") -> Path:
    """Writes the four files of a report, of which the badge is that of one run.

    Args:
        folder: where they are written; it exists.
        report: with all runs.
        name: of the run of the badge.
        label: what the badge says that the run was tested on.

    Returns:
        The page.

    Raises:
        files.NotWritten: one cannot be written; then none is.
    """
    badge = reports.badge(report["runs"][name], report["implementations"][name], label)
    return write(folder, report, json.dumps(badge) + "\n")


def render(report: Report) -> str:
    """The page of a report."""
    text = json.dumps(data(report), separators=(",", ":")).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text)


def data(report: Report) -> dict[str, Any]:
    """What the script of the page reads."""
    ran = {row["case"]: row for rows in report["implementations"].values() for row in rows}
    shown = {row["clause"] for row in ran.values()}
    names = [name for name in report["clauses"] if name in shown]
    chapters = dict.fromkeys(report["clauses"][name]["chapter"] for name in names)
    number = {name: i for i, name in enumerate(names)}
    cases = sorted(ran.values(), key=lambda row: number[row["clause"]])
    details: dict[tuple[str | int, ...], int] = {}
    runs = []
    for name, rows in report["implementations"].items():
        by_case = {row["case"]: row for row in rows}
        here = [by_case.get(case["case"]) for case in cases]
        runs.append({"name": name, **report["runs"][name],
                     "outcomes": "".join(str(OUTCOMES.index(row["outcome"])) if row else "-" for row in here),
                     "details": {i: details.setdefault(_detail(row), len(details)) for i, row in enumerate(here)
                                 if row and row["outcome"] != "passed"}})
    return {"outcomes": OUTCOMES, "levels": list(LEVELS),
            "chapters": {name: report["chapters"][name] for name in chapters},
            "clauses": [{"name": name, **report["clauses"][name]} for name in names],
            "cases": [(number[row["clause"]], row["example"], row["strategy"]) for row in cases],
            "runs": runs, "details": list(details)}


def _detail(row: Row) -> tuple[str | int, ...]:
    """What is shown of a case that did not pass, in the order in which the script names it."""
    texts = (_cut(row[key]) for key in ("message", "reason", "expected", "found"))
    return row["line"], *texts, _printed(row["output"])


def _printed(output: str) -> str:
    """What is shown of what was printed: where it is long, the first traceback, or the end."""
    if len(output) > LONGEST and TRACEBACK in output:
        output = f"({len(output):,} characters) ...\n" + "\n".join(excerpt(output))
    return _cut(output, last=True)


def _cut(text: str, last: bool = False) -> str:
    if len(text) <= LONGEST:
        return text
    length = f"({len(text):,} characters)"
    return f"{length} ... {text[-LONGEST:]}" if last else f"{text[:LONGEST]} ... {length}"
