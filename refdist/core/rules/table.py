"""What a table is: text that can be read in the source, and is parsed against the types of its rows, columns and cells.

A table in which a word is misspelt, a row is unknown, missing or there twice, or the columns are not those that it
should have, does not import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeVar, get_args

from refdist import errors


class Word(Enum):
    """A row, a column or a cell of tables; its value is the text that stands there.

    Python 3.11 finds the members of an Enum by a call.  Code that runs at every read, write or run therefore names a
    member, or a row, once, as a constant of its module.
    """

    # Members are compared by identity; Enum's own hash is that of the name, and a call.
    __hash__ = object.__hash__


class Permission(Word):
    """A cell that allows what is asked."""

    OK = "ok"


class Refusal(NamedTuple):
    """A cell that refuses what is asked, with the code of an error."""

    code: str


Allowed = Permission | Refusal

_REFUSALS = {code: Refusal(code) for code in errors.CATALOGUE}
_UNREACHED = "-"

K = TypeVar("K")
R = TypeVar("R")
C = TypeVar("C")
A = TypeVar("A")


def word(part: object) -> str:
    """The text of a row, a column or a cell.

    >>> word(Permission.OK), word(Refusal("RD13")), word(None)
    ('ok', 'RD13', 'None')
    """
    if isinstance(part, Refusal):
        return part.code
    if isinstance(part, tuple):
        return ", ".join(map(word, part))
    if isinstance(part, Enum):
        return part.value if isinstance(part.value, str) else part.name
    return str(part)


class Table(dict[R, dict[C, A]]):
    """Rows of cells by their columns.

    A row or column is a member of an Enum, or a NamedTuple of such.  In the text the row of a NamedTuple names its
    fields, with ";" between them, and may stand for several: "any" is every member, "SUM, MEAN" are these two.

    Args:
        title: what is decided.
        about: what rows and columns are, and where the cells come from.
        actions: what each cell means that is not a refusal.
        text: lines of parts that are two or more spaces apart; the first line names the columns, and every other line
            begins with the name of a row.
        rows: all of them; each is in the text once.
        columns: all of them, in the order of the text.
        cells: what a cell is: an Enum, `Refusal`, or a union of these.
        unreached: why no program reaches some cells, which are "-" in the text, and which the table does not have.

    Attributes:
        title, about, actions, columns, unreached: as above.
        lines: the rows that each line of the text stands for, by its name.

    Raises:
        InternalError: the text is not such a table.

    >>> class Door(Word):
    ...     FRONT = "front"
    >>> class Time(Word):
    ...     DAY, NIGHT = "by day", "at night"
    >>> doors: Table[Door, Time, Allowed] = Table("Doors", "Rows: doors.  Columns: times.",
    ...                                           {Permission.OK: "one can pass"}, '''
    ...              by day  at night
    ...     front    ok      RD31
    ... ''', rows=Door, columns=Time, cells=Allowed)
    >>> doors[Door.FRONT][Time.NIGHT]
    Refusal(code='RD31')
    """

    def __init__(self, title: str, about: str, actions: Mapping[A, str], text: str, *, rows: Iterable[R],
                 columns: Iterable[C], cells: object, unreached: str = "") -> None:
        super().__init__()
        self.title = title
        self.about = about
        self.actions = actions
        self.columns = list(columns)
        self.unreached = unreached
        self.lines: dict[str, list[R]] = {}
        known = list(rows)
        words: dict[str, Any] = {word(cell): cell for cell in _members(cells)}
        if unreached:
            words[_UNREACHED] = _UNREACHED
        head, *lines = [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]
        if head != [*map(word, self.columns)]:
            self._refuse(f"the columns are {head} and should be {[*map(word, self.columns)]}")
        expanded = _Names(known)
        for name, *line in lines:
            if len(line) != len(head):
                self._refuse(f"row {name!r} has {len(line)} cells and should have {len(head)}")
            for label, cell in zip(head, line, strict=True):
                if cell not in words:
                    self._refuse(f"{cell!r} in row {name!r}, column {label!r}, is not a cell; "
                                 f"cells are {_listed(words.values())}")
            self.lines[name] = keys = expanded(name)
            if not keys:
                self._refuse(f"row {name!r} is unknown; rows are {[*map(word, known)]}")
            for key in keys:
                if key in self:
                    self._refuse(f"row {word(key)!r} is there twice, the second time as {name!r}")
                self[key] = {column: words[cell] for column, cell in zip(self.columns, line, strict=True)
                             if cell != _UNREACHED}
        if len(self) != len(known):
            self._refuse(f"rows are missing: {[word(key) for key in known if key not in self]}")
        explained = [cell for cell in words.values() if not isinstance(cell, Refusal) and cell != _UNREACHED]
        if {*actions} != {*explained}:
            self._refuse(f"the actions {[*map(word, actions)]} are explained and should be {[*map(word, explained)]}")

    def row(self, key: R, cells: object) -> Mapping[C, Any]:
        """The row, for code that knows what to do with `cells` only.

        Raises:
            InternalError: another cell is in it.
        """
        self._check(key, self[key].values(), cells)
        return self[key]

    def column(self, key: C, cells: object) -> Mapping[R, Any]:
        """The column, for code that knows what to do with `cells` only.

        Raises:
            InternalError: another cell is in it.
        """
        column = _Column(self, key)
        self._check(key, column.values(), cells)
        return column

    def _check(self, key: object, used: Iterable[A], cells: object) -> None:
        wanted = list(_members(cells))
        for cell in used:
            if cell not in wanted:
                self._refuse(f"{word(cell)!r} in {word(key)!r} is not one of {_listed(wanted)}")

    def _refuse(self, found: str) -> NoReturn:
        raise errors.InternalError(f"table {self.title!r}: {found}")


class _Column(Mapping[R, A]):
    # A column, read from the table each time: a test that changes a cell of the table changes it here, too.

    def __init__(self, table: Table[R, C, A], key: C) -> None:
        self._table = table
        self._key = key

    def __getitem__(self, row: R) -> A:
        return self._table[row][self._key]

    def __iter__(self) -> Iterator[R]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class _Names:
    # The keys that the name of a line stands for.

    def __init__(self, keys: Sequence[Any]) -> None:
        self._plain = {word(key): [key] for key in keys}
        self._fields = [(key, [*map(word, key)]) for key in keys if isinstance(key, tuple)]
        self._words = [{*column} for column in zip(*(words for _, words in self._fields), strict=True)]

    def __call__(self, name: str) -> list[Any]:
        if name in self._plain:
            return self._plain[name]
        fields = [field.split(", ") for field in name.split("; ")]
        if len(fields) != len(self._words) or any(
                field != ["any"] and not words.issuperset(field)
                for field, words in zip(fields, self._words, strict=True)):
            return []
        return [key for key, words in self._fields if all(
            field == ["any"] or text in field for field, text in zip(fields, words, strict=True))]


def _members(cells: object) -> Iterator[Any]:
    # All values that a cell of this type can have.
    if cells is Refusal:
        yield from _REFUSALS.values()
    elif isinstance(cells, type) and issubclass(cells, Enum):
        yield from cells
    elif get_args(cells):
        for kind in get_args(cells):
            yield from _members(kind)
    else:
        yield cells


def _listed(cells: Iterable[object]) -> str:
    cells = list(cells)
    texts = [repr(word(cell)) for cell in cells if not isinstance(cell, Refusal)]
    return ", ".join(texts + ["the code of an error"] * any(isinstance(cell, Refusal) for cell in cells))
