"""Tables are law: every cell, changed, changes what the code does.

A test passes to `survivors` a table and a function that shows what the code does where a cell applies.  Cells are
changed one at a time; the changes that nothing shows come back, and there must be none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from refdist.array.indexed_slices import IndexedSlices
from refdist.core import context_stack
from refdist.core.rules.table import Refusal
from refdist.variables.values import DistributedValues
from refdist.variables.variable import Variable

# With a code that is in no table.
REFUSED = Refusal("RD22")


def cells(table: Mapping[Any, Any]) -> Iterator[tuple[Any, MutableMapping[Any, Any], Any]]:
    """(cell, row that holds it, its key there) of a table, or of a table of rows, where a cell is (row, column)."""
    for key, value in table.items():
        if isinstance(value, MutableMapping):
            yield from (((key, column), value, column) for column in value)
        else:
            assert isinstance(table, MutableMapping)
            yield key, table, key


@contextmanager
def changed(row: MutableMapping[Any, Any], key: Any, value: Any) -> Iterator[None]:
    """The cell has another value for the length of a `with` block."""
    before = row[key]
    row[key] = value
    try:
        yield
    finally:
        row[key] = before


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, as something that compares by value, or the error that it raises.

    Scopes that it leaves open are left.
    """
    top = context_stack.frame()
    try:
        return seen(call())
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        context_stack.top.set(top)


def seen(value: Any) -> Any:
    """A value by its type, dtype, shape and bits; of a variable those of all its copies."""
    if isinstance(value, Variable):
        copies = getattr(value, "_copies", (value,))
        return type(value).__name__, value.name, [seen(copy._array) for copy in copies]
    if isinstance(value, DistributedValues):
        return type(value).__name__, [seen(part) for part in value.values]
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, value.dtype.name, value.shape, value.tolist()
    if isinstance(value, IndexedSlices):
        return "IndexedSlices", seen(value.values), seen(value.indices), value.shape
    if isinstance(value, dict):
        return "dict", {key: seen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [seen(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, Enum)):
        return type(value).__name__, value
    return type(value).__name__


def survivors(table: Mapping[Any, Any], observe: Callable[[Any], Any],
              others: Callable[[Any, Any], Iterable[Any]] = lambda cell, value: (REFUSED,),
              column: Any = None, row: Any = None) -> list[str]:
    """The changes of cells that show nothing.

    Args:
        table: cells by key, or rows of cells by key.
        observe: of a cell, does what the cell decides.  It returns what can be seen of it, or raises.
        others: of a cell and its value, what it is changed to; a code that no table has where this is not given.
        column, row: in a table of rows, changes the cells of these only.
    """
    unnoticed = []
    for cell, holder, key in list(cells(table)):
        if (column is not None and key != column) or (row is not None and cell[0] != row):
            continue
        look = partial(observe, cell)
        true = outcome(look)
        again = outcome(look)
        assert again == true, f"{cell} shows something else every time: {true}, then {again}"
        tried = [value for value in others(cell, holder[key]) if value != holder[key]]
        assert tried, f"{cell} is changed to nothing"
        for value in tried:
            with changed(holder, key, value):
                if outcome(look) == true:
                    unnoticed.append(f"{cell}: {value!r}")
    return unnoticed
