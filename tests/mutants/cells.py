"""Every cell of the tables of rules, with every other value that its table has.

The code of an error is refdist's own and no clause speaks of it; so a cell that is a code is not changed to another
code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from refdist.core.rules import calls, input, values, variables
from refdist.core.rules.table import Refusal, Table, word

TABLES: dict[str, Table[Any, Any, Any]] = {
    name: table for module in (calls, variables, values, input) for name, table in vars(module).items()
    if isinstance(table, Table)}


class Cell(NamedTuple):
    """A cell, which a line of the text may have for several rows, and what it is changed to."""

    table: str
    line: str
    column: str
    was: object
    value: object

    @property
    def name(self) -> str:
        """Where it is, and what it is changed to."""
        where = f"{self.line}, {self.column}" if self.column else self.line
        return f"{self.table}[{where}]: {word(self.was)} -> {word(self.value)}"

    @property
    def mutate(self) -> Callable[[], None]:
        """What changes it, in a fork."""
        def change() -> None:
            if self.table not in TABLES:
                values.MEAN_DTYPE[self.line] = self.value  # type: ignore[assignment]
                return
            table = TABLES[self.table]
            for row in table.lines[self.line]:
                table[row][next(column for column in table.columns if word(column) == self.column)] = self.value
        return change

    @property
    def place(self) -> str:
        """What `reach.py` calls the cell; empty where it does not see reads."""
        return f"{TABLES[self.table].title}: {self.line}, {self.column}" if self.table in TABLES else ""


def cells() -> Iterator[Cell]:
    """All changes of cells."""
    for name, table in TABLES.items():
        used = [value for row in table.values() for value in row.values()]
        for line, rows in table.lines.items():
            for column, cell in table[rows[0]].items():
                yield from (Cell(name, line, word(column), cell, value) for value in _others(cell, used))
    for dtype, mean in values.MEAN_DTYPE.items():
        if not re.search("int[24]$", dtype):
            yield from (Cell("MEAN_DTYPE", dtype, "", mean, value)
                        for value in sorted({*values.MEAN_DTYPE.values()} - {mean}))


def _others(was: object, used: list[object]) -> Iterator[object]:
    refusals = sorted({cell for cell in used if isinstance(cell, Refusal)})
    if not isinstance(was, Refusal):
        yield (refusals or [Refusal("RD22")])[0]
    yield from sorted({cell for cell in used if not isinstance(cell, Refusal)} - {was}, key=word)
