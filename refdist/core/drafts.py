"""What an update has written so far: drafts, which become the variables' values at its end, or are dropped.

`extended.update` calls a function of the program for each copy of a variable, one after the other.  Either all copies
are updated, or nothing has changed; and until then nobody else should find copies of which some are updated.  So the
function writes to drafts.  Code inside the update reads what it has written; all other code, other threads included,
reads what was there before.

A draft remembers how it was made: the functions that were applied to the value, one after the other, each with the
context variables of that moment, such as NumPy's `errstate`.  Where another thread has replaced the value in the
meantime, they are applied once more to the new one, as a cell does it (`cell`).  So no update is lost, and the
program's function is not called twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol

Value = tuple[Any, ...]


class Cell(Protocol):
    """Holds the arrays of a variable: a `cell.Cell`, or one on a parameter server that is another process.

    Attributes:
        drafted: whether an update has ever written it.
    """

    drafted: bool

    def newest(self) -> tuple[Any, Value]:
        """The newest version, and its value."""

    def replace(self, seen: Any, value: Value) -> bool:
        """Makes `value` the newest, unless there is a newer version than `seen`; whether it did."""


class Owner(Protocol):
    """The part of a variable that drafts call."""

    def _settled(self, arrays: Value) -> Value:
        """Checks the arrays that an update has computed, and returns those that are stored."""

    def _put_back(self, arrays: Value) -> None:
        """Called after a failed update, with the arrays that the variable still holds."""


class Draft:
    """The new value that an update computes for one cell, before it is stored.

    Attributes:
        owner: the variable.
        seen, base: the version that it began with, and its arrays; `arrays` is what was made of them.
        changes: the functions that were applied: to the array of this number, or (None) to all of them.
    """

    __slots__ = ("arrays", "base", "cell", "changes", "owner", "seen")

    def __init__(self, cell: Cell, owner: Owner) -> None:
        self.cell = cell
        self.owner = owner
        self.seen, self.base = cell.newest()
        self.arrays = list(self.base)
        self.changes: list[tuple[int | None, Callable[[Any], Any], Context]] = []

    def change(self, place: int | None, function: Callable[[Any], Any]) -> Any:
        """Replaces one array by `function(array)`, or all of them by `function(arrays)`; returns what is new."""
        new = self._carry_out(place, function)
        self.changes.append((place, function, copy_context()))  # only now, because a change that raises does not count
        return new

    def _carry_out(self, place: int | None, function: Callable[[Any], Any]) -> Any:
        if place is None:
            new = function(tuple(self.arrays))
            self.arrays = list(new)
        else:
            self.arrays[place] = new = function(self.arrays[place])
        return new

    def settle(self) -> None:
        """Asks the variable what is to be stored; see `Owner._settled`."""
        self.arrays = list(self.owner._settled(tuple(self.arrays)))

    def store(self) -> None:
        """Makes the draft the cell's value."""
        while not self.cell.replace(self.seen, tuple(self.arrays)):
            self.seen, self.base = self.cell.newest()
            self.arrays = list(self.base)
            for place, function, context in self.changes:
                context.run(self._carry_out, place, function)
            self.settle()


class Drafts:
    """The drafts of one update."""

    __slots__ = ("_drafts",)

    def __init__(self) -> None:
        self._drafts: dict[int, Draft] = {}

    def of(self, cell: Cell) -> Draft | None:
        """What code inside this update finds in a cell, if it was written."""
        return self._drafts.get(id(cell))

    def open(self, cell: Cell, owner: Owner) -> Draft:
        """This update's draft of a cell, which is made where there is none."""
        draft = self._drafts.get(id(cell))
        if draft is None:
            draft = self._drafts[id(cell)] = Draft(cell, owner)
            cell.drafted = True
        return draft

    def settle(self) -> None:
        """Asks each variable what is to be stored.

        Raises:
            What a variable raises that cannot hold what was written.
        """
        for draft in self._drafts.values():
            draft.settle()

    def store(self) -> None:
        """Makes the drafts the values, after `settle`."""
        for draft in self._drafts.values():
            draft.store()

    def put_back(self) -> None:
        """Tells each variable, after a failed update, that it still holds what it held before."""
        for draft in self._drafts.values():
            draft.owner._put_back(draft.base)
