"""The cases that are kept as data, in `cases.jsonl`, and what a testee is asked.

To record a case takes longer than most testees need to answer it. So what is asked is taken from the file, where that
has the case as the chapter says it; any other one (of a chapter that has just been changed) is recorded when it is
asked. A property is kept with the values that it is asked with, so that they are the same for every testee, whatever
the version of Hypothesis.
"""

from __future__ import annotations

import ast
import functools
import json
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .chapters import Case
from .distribution import WHOLE
from .protocol import MESSAGES, Message, case_message, written

FILE = Path(__file__).parent / "cases.jsonl"
# The version of the form of the file; see cases.schema.json.  In form 1 every example repeated its chapter's preamble.
FORM = 2
# What all cases of an example have in common.
SHARED = ("clause", "python", "observe")


def examples(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The examples in lines of a file of form 1 or 2, each with the preamble of its chapter."""
    preamble: Any = None
    for fields in map(json.loads, lines):
        if "chapter" in fields:
            preamble = fields["preamble"]
        else:
            python = fields["python"]
            fields["python"] = {"file": python["file"], "preamble": python.get("preamble", preamble),
                                "example": python["example"]}
            yield fields


def cases_in(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cases of an example, each complete."""
    for case in example["cases"]:
        programs = {"programs": example["programs"][case["programs"]]} if "programs" in case else {}
        values = {"property": example["property"]} if "property" in example else {}
        yield {**{key: example[key] for key in SHARED}, **values, **case, **programs}


def question(case: Case) -> Message:
    """A case as an implementation in another language is asked it: with its steps, or why there are none."""
    message = case_message(case)
    stored = _cases_of_clause(case.clause.name).get(case.name, {})
    if all(stored.get(key) == value for key, value in message.items()):
        return written("case", **{key: stored[key] for key in MESSAGES["case"] if key in stored})
    if not WHOLE:
        return case_message(case, only_python="it is not among the cases that are kept")
    from .recording import record

    with warnings.catch_warnings():
        # What refdist says of the program while it is recorded is not about the implementation that is tested.
        warnings.simplefilter("ignore")
        return record.question(case)


def draws(case: Case) -> list[Case]:
    """The cases of a property, one for each kept choice of values, the simplest first.

    There are none if the chapter has been changed since, and lets the names have other values.
    """
    drawn = [case.drawn(_values(stored["python"]["example"]["source"], case.example.parameters))
             for name, stored in _cases_of_clause(case.clause.name).items()
             if name.startswith(f"{case.name}, ") and stored["property"] == case.example.parameters]
    return sorted(drawn, key=lambda case: (len(case.name), case.name))


def _values(source: str, names: Collection[str]) -> dict[str, object]:
    """What a program assigns to the names of its property."""
    return {statement.targets[0].id: ast.literal_eval(statement.value) for statement in ast.parse(source).body
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            and statement.targets[0].id in names}


@functools.cache
def _lines() -> dict[str, list[str]]:
    """The lines of the file, by their clauses; before those of a clause is that of its chapter."""
    lines, chapter = defaultdict(list), ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        # The lines are long and few of them are asked for: the name is read without the rest.
        name = line.partition('"clause":"')[2].partition('"')[0]
        if not name:
            chapter = line
        else:
            if name not in lines:
                lines[name].append(chapter)
            lines[name].append(line)
    return lines


@functools.lru_cache(maxsize=1)
def _cases_of_clause(name: str) -> dict[str, dict[str, Any]]:
    return {case["name"]: case for example in examples(_lines().get(name, [])) for case in cases_in(example)}
