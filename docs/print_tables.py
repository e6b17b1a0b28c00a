"""Prints the pages that follow from tables, the catalogue of errors and the specification; `make docs` runs it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from refdist import errors
from refdist.conformance import capabilities, comparison, kept, process, promises, protocol, results, session
from refdist.conformance.chapters import LEVELS, STANDINGS, Clause, cases, load
from refdist.conformance.examples import program
from refdist.conformance.recording import replay
from refdist.conformance.results import KINDS
from refdist.conformance.trainers import clauses as of_trainers
from refdist.conformance.trainers.sources import Source
from refdist.core.rules import calls, input, replica_types, values, variables
from refdist.core.rules.table import Table, word
from refdist.insight import events

SCHEMA = json.loads((kept.FILE.parent / "cases.schema.json").read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def section(rows: Table[Any, Any, Any]) -> str:
    """A table with what its rows, columns and actions are."""
    actions = {**{word(action): meaning for action, meaning in rows.actions.items()},
               **({"-": rows.unreached} if rows.unreached else {})}
    explained = "".join(f"- *{action}*: {meaning}\n" for action, meaning in actions.items())
    cells = table(["", *map(word, rows.columns)], (
        [f"`{name}`", *(word(rows[keys[0]].get(column, "-")) for column in rows.columns)]
        for name, keys in rows.lines.items()))
    about = fill(rows.about.replace(".  ", ". "), 120)
    return f"## {rows.title}\n\n{about}\n\n{explained}\n{cells}"


def tables() -> str:
    means = table(["dtype", "dtype of its mean"], ([f"{name}", mean] for name, mean in values.MEAN_DTYPE.items()))
    return f"""# Tables

Printed from `refdist/core/rules/` by `make docs`. A situation is seen from the strategy that is called, or that made
the variable: *outside* every scope, *cross*-replica, in an *update*, in a *replica*, or in the cross-replica or replica
context of an *other* strategy. A cell is an action or the code of the error, "RDnn".

{section(calls.CALLS)}
{section(calls.MISMATCH)}
{chr(10).join(map(section, (variables.CREATION, variables.TRAINABLE, variables.TRAITS, variables.READS,
                            variables.WRITES, variables.FOREIGN_WRITES, variables.FOREIGN_UPDATES)))}
{section(values.REDUCE)}
{section(values.RESULTS)}
{section(values.LOCAL)}
{section(values.DTYPES)}
## Means of integers

Floats keep their dtype.

{means}
{chr(10).join(map(section, (input.SHARDING, input.CUTS, input.UNEVEN, input.MODES)))}
{chr(10).join(map(section, (*replica_types.COMBINED.values(), replica_types.ALONG, replica_types.REPLICAS)))}"""


def rows(clauses: Iterable[Clause], text: Callable[[Clause], str]) -> str:
    """A table of clauses: name, rule, and a text about each."""
    return table(["clause", "rule", ""], ([f"[{clause.name}]({link(clause)})", clause.rule, text(clause)]
                                          for clause in clauses))


def link(clause: Clause) -> str:
    """Where a clause stands, seen from docs/."""
    chapter = clause.name.partition(".")[0]
    return f"../conformance/spec/{chapter}.md#{clause.name.replace('.', '')}"


def specification() -> str:
    parts = ["""# The specification

Printed from the chapters in `conformance/spec/` by `make docs`: every clause in one line. The chapters are written to
be read from top to bottom, and every example in them is run; [Testing your
implementation](testing-your-implementation.md) says how, on refdist or on anything else. *MUST* is promised by a
document; *SHOULD* is not, and is what a reasonable person expects.
"""]
    for chapter in load():
        sentence = " ".join(chapter.prose.split("\n\n")[0].split())
        lines = table(["clause", "level", "rule"], ([f"[{clause.name}]({link(clause)})", clause.level, clause.rule]
                                                    for clause in chapter.clauses))
        title = f"[{chapter.name}](../conformance/spec/{chapter.name}.md)"
        parts.append(f"## {title}\n\n{fill(sentence, 120)}\n\n{lines}")
    return "\n".join(parts)


def differences() -> str:
    clauses = [clause for chapter in load() for clause in chapter.clauses]

    def differing(level: str) -> str:
        return rows((clause for clause in clauses if clause.tensorflow and clause.level == level),
                    lambda clause: f"TensorFlow 2.21: {clause.tensorflow}")

    def of_page(*standings: str) -> str:
        return rows((clause for clause in clauses if clause.standing in standings),
                    lambda clause: f"{clause.page}, {clause.section}: {clause.standing}; {clause.remark}")

    return f"""# Where TensorFlow 2.21 and its documents differ

Printed from the chapters of the [specification](specification.md) by `make docs`. refdist does what the clause says; a
link leads to the program that shows it. `tensorflow.txt` and `tensorflow-2x2.txt` in `conformance/expected/` name the
cases, and a run of the suite on TensorFlow checks that they still fail as these say. What refdist leaves out is in
[Porting](porting.md#left-out).

## What a document promises, and TensorFlow 2.21 does otherwise

{differing("MUST")}
## Where the documents are silent

{differing("SHOULD")}
## Where a document is wrong, or another one contradicts it

{of_page("wrong", "contradicted")}
## Where a document can be read in several ways

{of_page("ambiguous")}"""


def catalogue() -> str:
    parts = ["""# Errors

Printed from `refdist/errors.py` by `make docs`. Every error is a `refdist.errors.RefdistError` with its code in the
attribute `code`, and most are one of Python's own exceptions as well. From RD35 on they are warnings, which
[Keras under a strategy](keras.md) and [Checks](checks.md) explain. The class named is that of most messages; where
another class fits a message better, it has that one: under a code for a wrong type, a wrong value is a `ValueError`.
"""]
    for code, row in errors.CATALOGUE.items():
        kind = next(base.__name__ for base in row.error.__mro__ if base.__module__ == "builtins")
        python = "" if kind == "Exception" else f", {'an' if kind[0] in 'AEIO' else 'a'} `{kind}`"
        verb = "Given" if issubclass(row.error, Warning) else "Raised"
        parts.append(f"## {code}: {row.title}\n\n{verb} as `{row.error.__name__}`{python}.\n\n**Rule.** {row.rule}\n\n"
                     f"**What to do.** {row.fix}\n")
    return "\n".join(parts)


def capabilities_page() -> str:
    needed = Counter(name for case in cases() for name in capabilities.needs(program(case)))
    have = table(["capability", "what it is", "cases"], ([f"`{name}`", what, str(needed[name])]
                                                         for name, what, _ in capabilities.ROWS))
    every = [capabilities.needs(program(case)) for case in cases()]
    profiles = table(["profile", "what it is", "cases", "capabilities"], (
        [f"`{name}`", what, str(sum(needs <= has for needs in every)),
         ", ".join(f"`{capability}`" for capability in capabilities.TABLE if capability in has)]
        for name, (what, has) in capabilities.PROFILES.items()))
    kinds = table(["kind", "means"], ([f"`{name}`", what] for name, what in KINDS.items()))
    levels = table(["level", "means"], LEVELS.items())
    standings = table(["the page is", "means"], STANDINGS.items())
    strategies = table(["strategy", "cases"], ([f"`{name}`", str(count)] for name, count in Counter(
        case.strategy for case in cases()).most_common()))
    return f"""# Capabilities, strategies and kinds of errors

Printed from the code of the [suite](testing-your-implementation.md) by `make docs`.

An implementation says which capabilities it has or lacks; a case that needs a missing one is skipped. What a case needs
is derived from its program. Every implementation must have what is not in this table: constants, contexts, `run`, and
scopes.

{have}
## Profiles

A profile is a set of capabilities that a typical implementation has. An implementation that names its profile is asked
only the cases that need no others, and its table has only these; `lacks` removes capabilities from a profile, and `has`
adds some.

{profiles}
## Strategies

"Mirrored 3" has three replicas on one worker, "Central 2" two with the variables in one place; "MultiWorker 2x1" has
two workers with one replica each, and "TPU 8" a replica on each of the eight cores of a TPU.

{strategies}
## Kinds of errors

{kinds}
Where a document names what is raised, or one kind alone fits what is wrong, a clause has that kind. Elsewhere it lists
those that an implementation may choose, as `raises value or type`, and each of them passes.

## Levels, and what the cited page says

{levels}
{standings}"""


# The objects of a recorded case, by their names in cases.schema.json, in the order in which a reader meets them.
PARTS = {"statement": "Statements", "step": "Steps", "value": "Values", "function": "Functions", "body": "Bodies"}


def fields(definition: dict[str, Any]) -> dict[str, str]:
    """What a schema says of the keys of an object, or of the objects that it may be."""
    descriptions = dict[str, str]()
    for choice in definition.get("anyOf", [definition]):
        shown = SCHEMA["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        about = shown.get("description", "")
        for name, row in shown.get("properties", {}).items():
            descriptions.setdefault(name, row.get("description", about))
    return descriptions


def part(name: str, title: str) -> str:
    """An object of a recorded case."""
    definition = SCHEMA["$defs"][name]
    rows = table(["key", "what it is"], ([f"`{key}`", what] for key, what in fields(definition).items()))
    about = definition["description"]
    return f"### {title}\n\n{fill(about[0].upper() + about[1:] + '.', 120)}\n\n{rows}"


def spoken() -> tuple[set[str], set[str], set[str]]:
    """What the recorded programs name: functions, classes and constants; methods; attributes."""
    names, methods, attributes = set[str](), set[str](), set[str]()

    def look(tree: Any) -> None:
        if isinstance(tree, dict):
            names.update(word for word in (tree.get("call"), tree.get("name"))
                         if isinstance(word, str) and word.startswith("tf."))
            methods.update(word for word in [tree.get("method")] if isinstance(word, str))
            attributes.update(word for word in (tree.get("get"), tree.get("set")) if isinstance(word, str))
        for branch in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            look(branch)

    for line in kept.FILE.read_text(encoding="utf-8").splitlines():
        look(json.loads(line).get("programs"))
    return names, methods, attributes


def protocol_page() -> str:
    messages = "\n".join(f"### {title}\n\n" + table(["field", "what it is"], (
        [f"`{name}`", what] for name, what in protocol.MESSAGES[kind].items())) for kind, title in {
            "suite": "What the suite says first", "implementation": "What the implementation says first",
            "question": "A question", "case": "Its case", "strategy": "The strategy of a case",
            "python": "The example in Python", "code": "A block of code", "answer": "An answer"}.items())
    limits = table(["what", "limit"], [
        ["until the implementation has said who it is", f"{session.START_LIMIT:g} s"],
        ["for an answer; `--limit` changes it", f"{session.LIMIT:g} s"],
        ["between the request to end and being killed", f"{process.GRACE:g} s"],
        ["a line", f"{process.LARGEST:,} bytes"],
        ["of what is printed for one case, kept", f"the last {process.KEPT:,} bytes"],
        ["starts in a row that fail, before the rest of the cases is given up", f"{session.STARTS}"],
        ["results in results", f"{results.DEPTH}"],
        ["dimensions of an array", f"{results.RANK}"],
        ["the difference of two floats that are taken to be equal", f"{comparison.ULPS} units in the last place"]])
    steps = SCHEMA["$defs"]["step"]["properties"]["operator"]["anyOf"]
    meanings = {row["const"]: row["description"] for row in steps}
    operators = table(["operator", "does"], ([f"`{name}`".replace("|", "\\|"), meanings[name]]
                                             for name in replay.OPERATORS))
    names, methods, attributes = (fill(", ".join(f"`{word}`" for word in sorted(words)), 120, break_on_hyphens=False)
                                  for words in spoken())
    dtypes = [*results.FLOATS, *results.COMPLEX, *sorted(results.INTS, key=lambda dtype: (dtype[0], len(dtype), dtype)),
              *sorted(results.DTYPES & {"bool", "string"})]
    return f"""# The protocol

Printed from the code of the [suite](testing-your-implementation.md) by `make docs`: what a testee reads and writes.
Each message is a JSON object on one line, in UTF-8.

This is version {protocol.PROTOCOL} of the protocol, and version {protocol.SCHEMA} of the form of a case.

## Messages

{messages}
## Limits

{limits}
## Recorded cases

A program is a list of statements, and a statement a list of steps. `conformance/cases.schema.json` says the same as
JSON Schema.

{chr(10).join(part(name, title) for name, title in PARTS.items())}
### Operators

Of arrays, operators work element by element. Of two arrays of one dtype and one shape, or of an array and a number,
the result has that dtype, except that comparisons give bools; where shapes differ, they are broadcast as in NumPy.

{operators}
### Names

What programs call or read by name; their arguments and meaning are TensorFlow's:

{names}

Methods:

{methods}

Attributes:

{attributes}

## Results

{part("result", "Forms").partition(chr(10) * 2)[2]}
Null, a bool and a text are themselves. JSON has no NaN, infinity and negative zero, and many readers hold every number
as a double: so these floats are the texts "nan", "inf", "-inf" and "-0.0", and integers beyond `2**53` the text of
their digits.

{fill(f"The dtypes are {', '.join(f'`{dtype}`' for dtype in dtypes)}.", 120)}

The kinds of errors are in [Capabilities](capabilities.md#kinds-of-errors).
"""


def promises_page() -> str:
    files = {row.page: path.name for path in promises.FOLDER.glob("*.md") for row in promises.read(path)}
    counts = {page: Counter[str]() for page in sorted(files)}
    for row in promises.load():
        counts[row.page][row.reason or "clauses"] += len(row.sentences)
    sums = sum(counts.values(), Counter[str]())
    reasons = table(["reason", "why a sentence has no clause", "sentences"], (
        [reason, meaning, str(sums[reason])] for reason, meaning in promises.REASONS.items()))

    def line(page: str) -> list[str]:
        anchor = "".join(sign for sign in page.lower().replace(" ", "-") if sign.isalnum() or sign in "-_")
        without = ", ".join(f"{reason} {counts[page][reason]}" for reason in promises.REASONS if counts[page][reason])
        name = f"`{page}`" if "__" in page else page
        return [f"[{name}](../conformance/promises/{files[page]}#{anchor})", str(counts[page].total()),
                str(counts[page]["clauses"] or ""), without]

    pages = table(["page", "sentences", "with clauses", "without"], map(line, counts))
    return f"""# Promises

Printed from the rows in `conformance/promises/` by `make docs`. Each sentence of the pages of tf.distribute in
TensorFlow 2.21, and of web pages of older versions (`web:`), has a row. It says in other words what the sentence
promises, and which clauses of the [specification](specification.md) test that, or why none does. A link leads to the
rows of a page. Equal sentences of a page are counted once, and so are sentences that a web page shares with the
docstrings.

The command below finds a sentence of a docstring by its first words, three or more, and a sentence of a web page by all
of its words. Other words are searched for in rows and clauses. It prints what the sentence promises, the clauses that
test it, where TensorFlow 2.21 differs, and how each clause is run alone on your implementation.

    python -m refdist.conformance promises --find "Reduce value across replicas" --adapter "testee:./mine"

There are {sums.total()} sentences, of which {sums["clauses"]} have clauses.

## Reasons

{reasons}
## Pages

{pages}"""


def events_page() -> str:
    common = table(["what all have", "meaning"], ([f"`{name}`", meaning] for name, meaning in events.COMMON.items()))
    kinds = "\n".join(f"## {kind}\n\n{about}\n\n" + table(["field", "meaning"], (
        [f"`{name}`", meaning] for name, meaning in fields.items())) for kind, (about, fields) in events.KINDS.items())
    summary = table(["", "meaning"], ([f"`{name}`", meaning] for name, meaning in events.SUMMARY.items()))
    return f"""# Events

Printed from `refdist/insight/events.py` by `make docs`. [Recording](recording.md) says how to get them. In a file, an
event is a line of JSON with all its fields; floats that JSON does not have are text: "NaN", "Infinity", "-Infinity".
The first line of a part is `{{"format": "refdist recording", "version": {events.VERSION}, "rank": ..., "size": ...}}`,
source files are lines `{{"file": ..., "text": ...}}`, and a complete part ends with `{{"complete": true}}`.
The last field of each line is `crc`: the CRC-32 of all bytes of the line before the comma in front of it, as zlib
computes it, in eight hexadecimal digits. `refdist.insight.load` refuses a line whose checksum does not match (RD30).

{common}
{kinds}
## Summaries of arrays

{summary}
While a program runs, its file gets the data from which summaries are made: `[dtype, shape, items]` for a small array,
and `[dtype, shape, first items, norm, min, max]` for a large one without NaN, with the bytes of the items in
hexadecimal digits. `refdist.insight.load` makes the summary, and `Recording.save` writes it.
"""


def trainers_page() -> str:
    def quoted(label: str, pages: Iterable[Source]) -> str:
        return "".join(fill(f"- {label}: [{source.title}]({source.page}). {source.promise}", 120,
                            break_on_hyphens=False, break_long_words=False, subsequent_indent="  ") + "\n"
                       for source in pages)

    parts = []
    for clause in of_trainers.CLAUSES:
        replicas = sorted({job["replicas"] for job in clause.jobs})
        jobs = f"{len(clause.jobs)} job{'s' * (len(clause.jobs) > 1)} on {', '.join(map(str, replicas))} " \
               f"replica{'s' * (replicas != [1])}"
        hang = " A trainer that does not answer in time is wrong here." if clause.hang else ""
        parts.append(f"## {clause.name}\n\n" + fill(f"**{clause.rule}** {clause.level}; {jobs}.", 120) + "\n\n"
                     + fill(f"*The mistake:* {clause.mistake}{hang}", 120) + "\n\n"
                     + quoted("Promised", clause.sources) + quoted("Said otherwise", clause.caveats))
    return f"""# What a trainer must do

Printed from `conformance/trainers/clauses.py` by `make docs`. [Testing a trainer](testing-a-trainer.md) says how a
program is tested with these clauses. *MUST* is promised by one of the pages named; *SHOULD* is not, or not for several
replicas, but is what users would expect. The promises are paraphrased. Where a page says otherwise, a trainer can
declare that page: its verdict is then *documented*, and not *WRONG*.

{chr(10).join(parts)}"""


PAGES = {"tables.md": tables, "capabilities.md": capabilities_page, "protocol.md": protocol_page,
         "errors.md": catalogue, "specification.md": specification, "differences.md": differences,
         "promises.md": promises_page, "events.md": events_page, "trainer-clauses.md": trainers_page}

if __name__ == "__main__":
    for name, text in PAGES.items():
        (Path(__file__).parent / name).write_text(text())
