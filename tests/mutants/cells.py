"""Every cell of the tables of rules, with every other value that its table has.

The code of an error is refdist's own and no clause speaks of it; so a cell that is a code is not changed to another
code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cells import cells as of_table

from refdist.core import rules
from refdist.core.rules import variables
from refdist.core.rules.table import Table

_CODE = re.compile(r"RD\d\d")


class Cell(NamedTuple):
    """A cell, and what it is changed to."""

    table: str
    row: object
    column: object
    was: str
    value: str

    @property
    def name(self) -> str:
        """Where it is, and what it is changed to."""
        where = f"{self.row}, {self.column}" if self.column is not None else f"{self.row}"
        return f"{self.table}[{where}]: {self.was} -> {self.value}"

    @property
    def mutate(self) -> Callable[[], None]:
        """What changes it, in a fork."""
        def change() -> None:
            where = self.row if self.column is None else (self.row, self.column)
            [(row, key)] = [(row, key) for cell, row, key in of_table(getattr(rules, self.table)) if cell == where]
            row[key] = self.value
            # Variables look in rows that were made of these tables.
            for key, reads in variables._reads().items():
                rules.READS_OF[key].update(reads)
            for key, writes in variables._writes().items():
                rules.WRITES_OF[key].update(writes)
        return change

    @property
    def place(self) -> str:
        """What `reach.py` calls the cell; empty where it does not see reads."""
        title = getattr(getattr(rules, self.table), "title", "")
        return f"{title}: {self.row}, {self.column}" if title else ""


def cells() -> Iterator[Cell]:
    """All changes of cells."""
    for name, table in vars(rules).items():
        if isinstance(table, Table):
            values = {value for row in table.values() for value in row.values()}
            for (row, column), holder, key in of_table(table):
                yield from (Cell(name, row, column, holder[key], value) for value in _others(holder[key], values))
    means: Mapping[str, str] = rules.MEAN_DTYPE
    for row, holder, key in of_table(means):
        if not re.search("int[24]$", row):
            yield from (Cell("MEAN_DTYPE", row, None, holder[key], value)
                        for value in sorted(set(means.values()) - {holder[key]}))


def _others(was: str, values: set[str]) -> Iterator[str]:
    codes = sorted(filter(_CODE.fullmatch, values))
    if not _CODE.fullmatch(was):
        yield from codes[:1] or ["RD22"]
    yield from sorted(values - set(codes) - {was, "-"})
