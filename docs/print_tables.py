"""Prints docs/tables.md, docs/errors.md and docs/semantics.md from the tables in the code; `make docs` runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill

from refdist import errors
from refdist.conformance.old.case import Case
from refdist.conformance.old.cases import load
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


def semantics() -> str:
    parts = ["""# Semantics

The specification that the conformance suite tests, printed from its cases by `make docs`. A clause is a sentence that
holds for every strategy named; *required* means documented, *recommended* not documented: observed in TensorFlow
2.21, or an error where a wrong result would come out. *document* says what TensorFlow's page says of it. Every
example runs: `shows` runs a program of the suite's language (see
[Testing your implementation](testing-your-implementation.md)) on refdist and compares.

```python
from refdist.conformance.old.adapters.simulated import Simulated
from refdist.conformance.old.case import Case, judge

def shows(program, gives=None, fails=(), dtype=None, then=None, strategy=("mirrored", 2)):
    case = Case("example", program, gives, tuple(fails), then, strategy, dtype=dtype)
    verdict = judge(case, Simulated())
    assert verdict.outcome == "passed", verdict.message
```

A program returns nested lists, with the `dtype` stated, or fails with an error of one of the kinds; `then` is a program
that afterwards still returns what follows it.
"""]
    clauses: dict[tuple[str, ...], list[Case]] = {}
    for case in load():
        # A clause is one sentence on which all its cases agree; a name ends with the strategy where others share it.
        kind, count = case.strategy
        sentence = case.name.removeprefix(f"{case.concept}: ").removesuffix(f": {kind} {count}")
        said = (case.concept, sentence, case.level, case.source, case.document, case.dtype or "")
        clauses.setdefault(said, []).append(case)
    chapter, number, before = 0, 0, ""
    for (concept, sentence, level, source, document, _), cases in clauses.items():
        if concept != before:
            chapter, number, before = chapter + 1, 0, concept
            parts.append(f"## {chapter}. {concept.replace('_', ' ')}\n")
        number += 1
        first = cases[0]
        kinds = ", ".join(f"{kind} {count}" for kind, count in dict.fromkeys(case.strategy for case in cases))
        outcome = f"fails={first.fails!r}" if first.fails else f"gives={first.gives!r}"
        outcome += f", dtype={first.dtype!r}" if first.dtype else ""
        outcome += f", then={first.then!r}" if first.then else ""
        parts.append(f"**{chapter}.{number}** {sentence}. *{level}; {source}; document {document}; {len(cases)} "
                     f"case{'s' * (len(cases) > 1)}: {kinds}*\n\n```python\nshows({first.program!r}, {outcome}, "
                     f"strategy={first.strategy!r})\n```\n")
    return "\n".join(parts)


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


PAGES = {"tables.md": tables, "errors.md": catalogue, "semantics.md": semantics}

if __name__ == "__main__":
    for name, text in PAGES.items():
        (Path(__file__).parent / name).write_text(text())
