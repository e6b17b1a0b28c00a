"""The report: JSON, markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path
from typing import TypedDict

from refdist.conformance.old.case import Verdict
from refdist.conformance.old.language import Program

_STYLE = """
body{font:14px/1.5 sans-serif;margin:2em;color:#222}table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #ddd;padding:3px 8px;text-align:left;vertical-align:top}
tr.row{cursor:pointer}.passed{color:#1a7f37}.failed,.errored{color:#b30000}.skipped{color:#777}
.expected{color:#9a6700}pre{background:#f6f6f6;padding:8px;white-space:pre-wrap}
input,select{font:inherit;padding:4px;margin-right:8px}tr.more{display:none}
"""
_SCRIPT = """
const rows=[...document.querySelectorAll('tr.row')];
function filter(){const words=document.getElementById('search').value.toLowerCase().split(/\\s+/);
 const outcome=document.getElementById('outcome').value;let shown=0;
 for(const row of rows){const text=row.textContent.toLowerCase();
  const keep=words.every(w=>text.includes(w))&&(!outcome||row.dataset.outcomes.split(',').includes(outcome));
  row.style.display=keep?'':'none';if(!keep)row.nextElementSibling.style.display='none';if(keep)shown++;}
 document.getElementById('count').textContent=shown+' cases';}
for(const row of rows)row.onclick=()=>{const more=row.nextElementSibling;
 more.style.display=more.style.display==='table-row'?'none':'table-row';};
document.getElementById('search').oninput=filter;document.getElementById('outcome').onchange=filter;filter();
"""


class Row(TypedDict):
    """A verdict in report.json."""

    concept: str
    name: str
    outcome: str
    message: str
    source: str
    level: str
    document: str
    strategy: list[str | int]
    program: Program
    expected: object
    got: object


def rows(verdicts: list[Verdict]) -> list[Row]:
    """The verdicts as data that JSON can hold."""
    return [{"concept": verdict.case.concept, "name": verdict.case.name, "outcome": verdict.outcome,
             "message": verdict.message, "source": verdict.case.source, "level": verdict.case.level,
             "document": verdict.case.document, "strategy": list(verdict.case.strategy),
             "program": verdict.case.program, "expected": verdict.expected, "got": verdict.found}
            for verdict in verdicts]


def write(folder: Path, name: str, verdicts: list[Verdict]) -> None:
    """Writes report.json, report.md and report.html; results of other implementations in the folder are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    everything: dict[str, list[Row]] = json.loads(path.read_text()) if path.exists() else {}
    everything[name] = rows(verdicts)
    path.write_text(json.dumps(everything, indent=1, default=str))
    (folder / "report.md").write_text(markdown(everything))
    (folder / "report.html").write_text(page(everything))


def markdown(everything: dict[str, list[Row]]) -> str:
    """A table of concepts for each implementation."""
    lines = []
    for name, found in everything.items():
        outcomes = sorted({row["outcome"] for row in found})
        lines += [f"## {name}", "", f"| concept | {' | '.join(outcomes)} |", "|---" * (len(outcomes) + 1) + "|"]
        counts: dict[str, Counter[str]] = {}
        for row in found:
            counts.setdefault(row["concept"], Counter())[row["outcome"]] += 1
        lines += [f"| {concept} | {' | '.join(str(counter[outcome]) for outcome in outcomes)} |"
                  for concept, counter in counts.items()]
        lines.append("")
    return "\n".join(lines)


def page(everything: dict[str, list[Row]]) -> str:
    """Implementations side by side; a click on a case shows its source and program, what was expected and found."""
    names = list(everything)
    by_case: dict[tuple[str, str], dict[str, Row]] = {}
    for name, found in everything.items():
        for row in found:
            by_case.setdefault((row["concept"], row["name"]), {})[name] = row
    body = []
    for (concept, case), cells in by_case.items():
        outcomes = [cells[name]["outcome"] if name in cells else "not run" for name in names]
        marks = "".join(f'<td class="{outcome.split(" ")[0]}">{html.escape(outcome)}</td>' for outcome in outcomes)
        body.append(f'<tr class="row" data-outcomes="{",".join(outcomes)}"><td>{html.escape(concept)}</td>'
                    f"<td>{html.escape(case)}</td>{marks}</tr>")
        details = html.escape(_details(cells))
        body.append(f'<tr class="more"><td colspan="{2 + len(names)}"><pre>{details}</pre></td></tr>')
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    choices = "".join(f"<option>{outcome}</option>" for outcome in
                      ("passed", "failed", "expected failure", "errored", "skipped"))
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Conformance</title><style>{_STYLE}</style>'
            f'<h1>Conformance to tf.distribute</h1><p><input id="search" placeholder="search"><select id="outcome">'
            f'<option value="">all</option>{choices}</select><span id="count"></span></p><table><tr><th>concept</th>'
            f'<th>case</th>{heads}</tr>{"".join(body)}</table><script>{_SCRIPT}</script></html>')


def _details(cells: dict[str, Row]) -> str:
    first = next(iter(cells.values()))
    lines = [f"source: {first['source']}", f"level: {first['level']}; the document is {first['document']}",
             f"strategy: {first['strategy']}", f"program: {json.dumps(first['program'])}"]
    for name, row in cells.items():
        if row["message"]:
            lines += [f"{name}: {row['message']}", f"  expected: {row['expected']}", f"  got: {row['got']}"]
    return "\n".join(lines)
