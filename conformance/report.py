"""The report: a table in the terminal, JSON, markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

import datetime
import html
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import refdist
from refdist.conformance.chapters import LEVELS
from refdist.conformance.judging import Verdict

OUTCOMES = ("passed", "failed", "expected failure", "errored", "unsupported", "skipped")


class Row(TypedDict):
    """A verdict in report.json."""

    chapter: str
    clause: str
    case: str
    strategy: str
    rule: str
    level: str
    page: str
    section: str
    standing: str
    outcome: str
    message: str
    reason: str
    line: int
    expected: str
    found: str
    output: str
    program: str


def row(verdict: Verdict, outcome: str, message: str, reason: str) -> Row:
    """A verdict as data that JSON can hold."""
    case, clause = verdict.case, verdict.case.clause
    return {"chapter": case.chapter.name, "clause": clause.name, "case": case.name,
            "strategy": case.strategy, "rule": clause.rule, "level": clause.level, "page": clause.page,
            "section": clause.section, "standing": f"{clause.standing}: {clause.remark}".removesuffix(": "),
            "outcome": outcome, "message": message, "reason": reason, "line": verdict.line,
            "expected": verdict.expected, "found": verdict.found, "output": verdict.output, "program": case.source}


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


def write(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Writes report.json, report.md and report.html; results of other implementations in the folder are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    everything: dict[str, list[Row]] = json.loads(path.read_text())["implementations"] if path.exists() else {}
    everything[name] = list(rows)
    data = {"suite": refdist.__version__, "date": datetime.date.today().isoformat(), "implementations": everything}
    path.write_text(json.dumps(data, indent=1))
    (folder / "report.md").write_text(markdown(everything))
    (folder / "report.html").write_text(page(everything))


def markdown(everything: dict[str, list[Row]]) -> str:
    """The table of each implementation, and what it fails."""
    parts = []
    for name, rows in everything.items():
        failed = [f"* `{row['case']}`: {row['message']}" for row in rows if row["outcome"] in ("failed", "errored")]
        parts += [f"## {name}", "", "```", *table(rows), "```", "", *failed, ""]
    return "\n".join(parts)


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:4px 8px;text-align:left;
vertical-align:top}tr.row{cursor:pointer}.passed{color:#1a7f37}.failed,.errored{color:#b30000}
.skipped,.unsupported{color:#777}.expected{color:#9a6700}pre{background:#f6f6f6;padding:8px;white-space:pre-wrap;
overflow-wrap:anywhere}input,select{font:inherit;padding:4px;margin-right:8px}tr.more{display:none}
"""
_SCRIPT = """
const rows=[...document.querySelectorAll('tr.row')];
function filter(){const words=document.getElementById('search').value.toLowerCase().split(/\\s+/);
 const outcome=document.getElementById('outcome').value;const level=document.getElementById('level').value;
 const differ=document.getElementById('differ').checked;let shown=0;
 for(const row of rows){const more=row.nextElementSibling;
  const text=(row.textContent+more.textContent).toLowerCase();const outcomes=row.dataset.outcomes.split(',');
  const keep=words.every(w=>text.includes(w))&&(!outcome||outcomes.includes(outcome))
   &&(!level||row.dataset.level===level)&&(!differ||new Set(outcomes).size>1);
  row.style.display=keep?'':'none';if(!keep)more.style.display='none';if(keep)shown++;}
 document.getElementById('count').textContent=shown+' cases';}
for(const row of rows)row.onclick=()=>{const more=row.nextElementSibling;
 more.style.display=more.style.display==='table-row'?'none':'table-row';};
for(const id of ['search','outcome','level','differ'])document.getElementById(id).oninput=filter;filter();
if(location.hash){const row=document.getElementById(location.hash.slice(1));if(row)row.click();}
"""


def page(everything: dict[str, list[Row]]) -> str:
    """Implementations side by side; a click on a case shows its clause and program, what was expected and found."""
    names = list(everything)
    by_case: dict[str, dict[str, Row]] = {}
    for name, rows in everything.items():
        for one in rows:
            by_case.setdefault(one["case"], {})[name] = one
    body = []
    for case, cells in by_case.items():
        first = next(iter(cells.values()))
        outcomes = [cells[name]["outcome"] if name in cells else "not run" for name in names]
        marks = "".join(f'<td class="{outcome.split(" ")[0]}">{html.escape(outcome)}</td>' for outcome in outcomes)
        anchor = html.escape(case.replace(" ", "-"))
        body.append(f'<tr class="row" id="{anchor}" data-level="{first["level"]}" data-outcomes="{",".join(outcomes)}">'
                    f'<td><a href="#{anchor}">{html.escape(case)}</a></td><td>{first["level"]}</td>{marks}</tr>'
                    f'<tr class="more"><td colspan="{2 + len(names)}">{_details(first, cells)}</td></tr>')
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    totals = "".join(f"<h2>{html.escape(name)}</h2><pre>{html.escape(chr(10).join(table(rows)))}</pre>"
                     for name, rows in everything.items())
    outcomes_ = "".join(f"<option>{outcome}</option>" for outcome in OUTCOMES)
    levels = "".join(f"<option>{level}</option>" for level in LEVELS)
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Conformance to tf.distribute</title><style>{_STYLE}</style><h1>Conformance to tf.distribute</h1>"
            f'{totals}<p><input id="search" placeholder="search"><select id="outcome"><option value="">all outcomes'
            f'</option>{outcomes_}</select><select id="level"><option value="">all levels</option>{levels}</select>'
            f'<label><input type="checkbox" id="differ">only where they differ</label> <span id="count"></span></p>'
            f"<table><tr><th>case</th><th>level</th>{heads}</tr>{''.join(body)}</table><script>{_SCRIPT}</script>"
            "</html>")


def _details(first: Row, cells: dict[str, Row]) -> str:
    parts = [f"<p><b>{html.escape(first['rule'])}</b><br>{html.escape(first['page'])}, "
             f"{html.escape(first['section'])}; the page is {html.escape(first['standing'])}.</p>",
             f"<pre>{html.escape(first['program'])}</pre>"]
    for name, one in cells.items():
        if one["message"]:
            lines = [f"{name}: {one['message']}"]
            lines += [f"expected: {one['expected']}"] if one["expected"] else []
            lines += [f"found: {one['found']}"] if one["found"] else []
            lines += [f"known: {one['reason']}"] if one["reason"] else []
            lines += [f"printed: {one['output']}"] if one["output"] else []
            parts.append(f"<pre>{html.escape(chr(10).join(lines))}</pre>")
    return "".join(parts)
