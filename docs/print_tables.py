"""Prints the pages that follow from tables, the catalogue of errors and the specification; `make docs` runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import fill

from refdist import errors
from refdist.conformance import capabilities
from refdist.conformance.chapters import LEVELS, STANDINGS, Clause, cases, load
from refdist.conformance.examples import program
from refdist.conformance.results import KINDS
from refdist.core import rules
from refdist.core.rules.table import Table


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def section(rows: Table) -> str:
    """A table with what its rows, columns and actions are."""
    actions = "".join(f"- *{action}*: {meaning}\n" for action, meaning in rows.actions.items())
    cells = table(["", *rows.columns], ([f"`{name}`", *row.values()] for name, row in rows.items()))
    about = fill(rows.about.replace(".  ", ". "), 120)
    return f"## {rows.title}\n\n{about}\n\n{actions}\n{cells}"


def tables() -> str:
    means = table(["dtype", "dtype of its mean"], ([f"{name}", mean] for name, mean in rules.MEAN_DTYPE.items()))
    return f"""# Tables

Printed from `refdist/core/rules/` by `make docs`. A situation is seen from the strategy that is called, or that made
the variable: *outside* every scope, *cross*-replica, in an *update*, in a *replica*, or in the cross-replica or replica
context of an *other* strategy. A cell is an action or the code of the error, "RDnn".

{section(rules.CALLS)}
{section(rules.MISMATCH)}
{chr(10).join(map(section, (rules.CREATION, rules.TRAINABLE, rules.TRAITS, rules.READS, rules.WRITES,
                            rules.FOREIGN_WRITES, rules.FOREIGN_UPDATES)))}
{section(rules.REDUCE)}
{section(rules.RESULTS)}
{section(rules.LOCAL)}
{section(rules.DTYPES)}
## Means of integers

Floats keep their dtype.

{means}
{chr(10).join(map(section, (rules.SHARDING, rules.CUTS, rules.UNEVEN, rules.MODES)))}"""


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
link leads to the program that shows it. `conformance/expected/tensorflow.txt` names the cases, and a run of the suite
on TensorFlow checks that they still fail as it says. What refdist leaves out is in [Porting](porting.md#left-out).

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
attribute `code`, and most are one of Python's own exceptions as well. The class named is that of most messages; some
are of the class that fits them better: a value that is wrong is a `ValueError` where a wrong type is a `TypeError`.
"""]
    for code, row in errors.CATALOGUE.items():
        kind = next(base.__name__ for base in row.error.__mro__ if base.__module__ == "builtins")
        python = "" if kind == "Exception" else f", {'an' if kind[0] in 'AEIO' else 'a'} `{kind}`"
        parts.append(f"## {code}: {row.title}\n\nRaised as `{row.error.__name__}`{python}.\n\n**Rule.** {row.rule}\n\n"
                     f"**What to do.** {row.fix}\n")
    return "\n".join(parts)


def capabilities_page() -> str:
    needed = Counter(name for case in cases() for name in capabilities.needs(program(case)))
    have = table(["capability", "what it is", "cases"], ([f"`{name}`", what, str(needed[name])]
                                                         for name, what, _ in capabilities.ROWS))
    kinds = table(["kind", "means"], ([f"`{name}`", what] for name, what in KINDS.items()))
    levels = table(["level", "means"], LEVELS.items())
    standings = table(["the page is", "means"], STANDINGS.items())
    strategies = table(["strategy", "cases"], ([f"`{name}`", str(count)] for name, count in Counter(
        case.strategy for case in cases()).most_common()))
    return f"""# Capabilities, strategies and kinds of errors

Printed from the code of the [suite](testing-your-implementation.md) by `make docs`.

An implementation says what it has or lacks; a case that needs a capability that is lacking is skipped. What a case
needs is read off its program. Everything else an implementation has to have to be tested at all: constants, contexts,
`run`, and scopes.

{have}
## Strategies

"Mirrored 3" has three replicas on one worker, "Central 2" two with the variables in one place; "MultiWorker 2x1" has
two workers with one replica each.

{strategies}
## Kinds of errors

{kinds}
## Levels, and what the cited page says

{levels}
{standings}"""


PAGES = {"tables.md": tables, "capabilities.md": capabilities_page, "errors.md": catalogue,
         "specification.md": specification, "differences.md": differences}

if __name__ == "__main__":
    for name, text in PAGES.items():
        (Path(__file__).parent / name).write_text(text())
