"""The run of a trainer as rows of the suite's report, and as JUnit XML.

A clause is a row: its case is the clause, its program the jobs, one a line as a trainer reads them.  Outcomes have the
suite's names, so that one report, one page and one comparison hold runs of both kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from ..report import Report, Row, put
from .clauses import CLAUSES, Clause, jobs
from .expected import EXPECTED
from .verdicts import BAD, Verdict

CHAPTER = "trainers"
# What is documented is a failure that is expected, for a reason; what a trainer cannot do is not asked of it.
OUTCOMES = {"right": "passed", "WRONG": "failed", "stale": "failed", "documented": "expected failure",
            EXPECTED: "expected failure", "errored": "errored", "unsupported": "skipped"}
# What JUnit has below a case that did not pass, and the type that pytest gives it.
JUNIT = {"failed": ("failure", ""), "errored": ("error", ""), "expected failure": ("skipped", "pytest.xfail"),
         "skipped": ("skipped", "pytest.skip")}
UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # which XML cannot hold


def row(verdict: Verdict, clause: Clause, seconds: float, reason: str = "") -> Row:
    """A verdict as data.

    Args:
        verdict: on a clause.
        clause: that clause.
        seconds: what its jobs took.
        reason: why it is expected to fail, where a line of a file says so.
    """
    reason = "its documentation says so" if verdict.outcome == "documented" else reason
    counts = ", ".join(str(count) for count in sorted({job["replicas"] for job in clause.jobs}))
    return {"chapter": CHAPTER, "clause": clause.name, "case": clause.name, "example": 1,
            "strategy": f"{counts} replica{'s' * (counts != '1')}", "level": clause.level,
            "outcome": OUTCOMES[verdict.outcome], "message": verdict.message,
            "reason": reason, "line": 0, "expected": "", "found": "",
            "output": verdict.output if verdict.outcome in BAD else "", "seconds": round(seconds, 3)}


def add(report: Report, name: str, rows: Sequence[Row], command: str) -> None:
    """Puts a run of now into a report, in place of an older one of the same name, and says what its clauses are.

    Args:
        report: is changed.
        name: of the trainer, with its version.
        rows: one for each clause that was judged, in their order.
        command: what ran it, without the options that selected clauses.
    """
    levels = [clause.level for clause in CLAUSES]
    put(report, name, rows, {level: levels.count(level) for level in dict.fromkeys(levels)}, command)
    report["chapters"][CHAPTER] = None
    numbered = jobs()
    for clause in CLAUSES:
        first = clause.sources[0]
        remark = f"{first.promise.rstrip('.')}. The mistake that is made: {clause.mistake.rstrip('.')}"
        if clause.caveats:
            remark += ". Otherwise: " + "; ".join(f"{caveat.page}, “{caveat.section}”" for caveat in clause.caveats)
        report["clauses"][clause.name] = {
            "chapter": CHAPTER, "level": clause.level, "rule": clause.rule, "page": first.page,
            "section": first.section, "remark": remark, "tensorflow": "",
            "standing": "contradicted" if clause.caveats else "right" if clause.level == "MUST" else "silent",
            "examples": [{"source": "\n".join(json.dumps(job) for job in numbered if job["clause"] == clause.name),
                          "line": 1}]}


def junit(report: Report, name: str) -> str:
    """A run of a report as JUnit XML, each verdict with the properties that one of the suite has there."""
    rows = report["implementations"][name]
    suite = ElementTree.Element("testsuite", name=CHAPTER, tests=str(len(rows)),
                                time=f"{sum(row['seconds'] for row in rows):.3f}")
    for tag, counted in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(tag, str(sum(JUNIT.get(row["outcome"], ("", ""))[0] == counted for row in rows)))
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=CHAPTER, name=row["case"],
                                      time=f"{row['seconds']:.3f}")
        facts = report["clauses"][row["clause"]]
        properties = ElementTree.SubElement(case, "properties")
        for key, value in (("source", f"{facts['page']}, {facts['section']}"), ("level", row["level"]),
                           ("clause", row["clause"]), ("standing", facts["standing"])):
            ElementTree.SubElement(properties, "property", name=key, value=value)
        if row["outcome"] in JUNIT:
            tag, kind = JUNIT[row["outcome"]]
            below = ElementTree.SubElement(case, tag, message=UNPRINTABLE.sub("?", row["message"]))
            below.text = UNPRINTABLE.sub("?", row["output"] or row["reason"])
            if kind:
                below.set("type", kind)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return '<?xml version="1.0" encoding="utf-8"?>' + ElementTree.tostring(suites, encoding="unicode")
