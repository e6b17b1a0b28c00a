"""Failures of a trainer that are expected: lines of a file as that of the suite, with a clause in place of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .. import expected_failures
from ..expected_failures import Expected
from .clauses import CLAUSES
from .verdicts import Verdict

EXPECTED = "expected"  # the outcome of a failure that a line of the file names
FAILURES = ("WRONG", "errored")


def read(path: Path) -> dict[str, Expected]:
    """The clauses that are expected to fail, by name.

    Raises:
        ValueError: a line has another form, or names no clause, or one that another line names.
        OSError: it cannot be read.
    """
    return expected_failures.of_names(path, {clause.name: "" for clause in CLAUSES}, "clause",
                                      "docs/trainer-clauses.md lists the names")


def compared(judged: Sequence[Verdict], expected: Mapping[str, Expected]) -> list[Verdict]:
    """The verdicts: a failure that the file lists is expected; a clause that is listed and does not fail is stale."""
    return [_compared(verdict, expected[verdict.clause]) if verdict.clause in expected else verdict
            for verdict in judged]


def _compared(verdict: Verdict, known: Expected) -> Verdict:
    if verdict.outcome not in FAILURES:
        why = f": {verdict.message}" if verdict.message else ""
        message = f"{verdict.outcome}, but is expected to fail: {known.line!r}; remove that line{why}"
        return replace(verdict, outcome="stale", message=message)
    if known.message not in verdict.message:
        return replace(verdict, message=f"{verdict.message} (it is expected to fail with {known.message!r})")
    return replace(verdict, outcome=EXPECTED)
