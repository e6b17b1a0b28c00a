"""The command `python -m refdist.conformance dump cases.jsonl`: all cases as data.

A line of the file is a chapter, with its preamble, or one of the examples of the chapter before it, as
`cases.schema.json` says; a property is there with the values that testees are asked. The strategies that an example is
run on are its `cases`, and where what it does is the same on several of them, they share an entry of `programs`.
`kept.examples` puts the preambles back, and `kept.cases_in` takes an example apart into what a testee is asked and what
is expected of it.

The file is generated and committed, so that a project without Python can take it from the repository or from a
release; a test demands that it is what the chapters say.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refdist.conformance.adapter.properties import DRAWS, drawn
from refdist.conformance.chapters import Case, cases
from refdist.conformance.distribution import VERSION
from refdist.conformance.kept import FORM, SHARED, cases_in, draws, examples
from refdist.conformance.recording.record import record


def main(arguments: list[str]) -> int:
    """Writes all cases into the file that the only argument names; returns the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m refdist.conformance dump FILE", file=sys.stderr)
        return 4
    with warnings.catch_warnings():
        # What refdist says of a program while it is recorded is of no use to who reads the file.
        warnings.simplefilter("ignore")
        done = list(lines(cases()))
    text = "".join(line + "\n" for line in done)
    Path(arguments[0]).write_text(text, encoding="utf-8")
    read = list(examples(done))
    counts = Counter("only_python" in case for example in read for case in cases_in(example))
    print(f"{len(read)} examples, {counts.total()} cases, {counts[True]} of them in Python only; {len(text):,} bytes")
    return 0


def lines(chosen: Iterable[Case]) -> Iterator[str]:
    """The lines of the file, one for each chapter and each example; the cases of a clause follow each other."""
    chapter = None
    for _, cases_of_clause in itertools.groupby(chosen, key=lambda case: case.clause):
        by_source: dict[str, list[Case]] = {}
        for case in cases_of_clause:
            # What is kept stays, so that the file is the same in every environment: what Hypothesis draws is not.
            for example_case in (draws(case) or drawn(case, DRAWS)) if case.example.parameters else [case]:
                by_source.setdefault(example_case.example.source, []).append(example_case)
        for same in by_source.values():
            records = [record(case) for case in same]
            python = records[0]["python"]
            if python["file"] != chapter:
                chapter = python["file"]
                yield _compact({"schema": FORM, "suite": VERSION, "chapter": chapter, "preamble": python["preamble"]})
            yield _line(same[0], records)


def _line(case: Case, records: list[dict[str, Any]]) -> str:
    clause = case.clause
    programs: list[object] = []
    done: dict[str, Any] = {
        "schema": FORM, "suite": VERSION, "clause": clause.name, "rule": clause.rule,
        "level": clause.level, "page": clause.page, "section": clause.section, "standing": clause.standing,
        **{key: records[0][key] for key in SHARED}}
    done["python"] = {key: done["python"][key] for key in ("file", "example")}
    if case.values:
        done["property"] = clause.examples[case.example.number - 1].parameters
    done["cases"] = []
    for fields in records:
        own = {key: value for key, value in fields.items() if key not in SHARED}
        if "programs" in own:
            if own["programs"] not in programs:
                programs.append(own["programs"])
            own["programs"] = programs.index(own["programs"])
        done["cases"].append(own)
    return _compact(done | {"programs": programs})


def _compact(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
