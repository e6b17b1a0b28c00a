"""The helper that changes tables finds cells that decide nothing, and puts back what it changed."""

from __future__ import annotations

import itertools

import pytest
from cells import REFUSED, survivors

TABLE = {"a": "ok", "b": "ok", "c": "no"}
ROWS = {"first": {"x": 1, "y": 2}, "second": {"x": 3, "y": 4}}


def test_a_cell_that_the_code_obeys_does_not_survive() -> None:
    assert survivors(TABLE, lambda cell: TABLE[cell]) == []
    assert survivors(ROWS, lambda cell: ROWS[cell[0]][cell[1]], lambda cell, value: (5, 6)) == []


def test_a_cell_that_nobody_reads_survives() -> None:
    unnoticed = survivors(TABLE, lambda cell: TABLE[cell] if cell != "b" else "ok")
    assert [text.split(":")[0] for text in unnoticed] == ["b"]
    unnoticed = survivors(ROWS, lambda cell: ROWS[cell[0]]["x"])
    assert [text.split(":")[0] for text in unnoticed] == ["('first', 'y')", "('second', 'y')"]


def test_every_other_value_must_be_told_apart() -> None:
    unnoticed = survivors(TABLE, lambda cell: TABLE[cell] == "ok", lambda cell, value: ("ok", "no", REFUSED))
    assert sorted(text.split(" for")[0] for text in unnoticed) == ["c: Refusal(code='RD22')"]


def test_the_table_is_as_before() -> None:
    before = {key: dict(row) for key, row in ROWS.items()}

    def fail(cell: tuple[str, str]) -> None:
        raise KeyError(cell, ROWS[cell[0]][cell[1]])

    assert survivors(ROWS, fail) == []
    assert before == ROWS


def test_what_differs_by_itself_shows_nothing() -> None:
    count = itertools.count()
    with pytest.raises(AssertionError, match="every time"):
        survivors(TABLE, lambda cell: next(count))


def test_a_cell_must_be_changed_to_something() -> None:
    with pytest.raises(AssertionError, match="to nothing"):
        survivors(TABLE, lambda cell: TABLE[cell], lambda cell, value: (value,))
