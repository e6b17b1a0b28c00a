"""A value that several threads replace, each by what it makes of the one before, so that no update is lost.

A version of the value is a list of two: the value, and a dict that is empty until there is a newer version and then
holds it.  Who wants to replace the value reads the newest version, computes, and adds its own version to the dict of
the one it has read.  `dict.setdefault` does that in one step, in which no other thread and no signal handler runs: of
several writers one gets its version in, and each of the others sees that it is not its own, and computes again from the
newest.  It gives up the older version's value at once, because who still computes with that one keeps it, and with it
all later versions, however many the others make meanwhile.

There is no lock, and so nothing that a signal handler or a forked process could wait for in vain.  Two kinds of lock
were tried.  Replicas take turns in one thread, which may enter an `RLock` again: two of them are then inside it.  With
a plain `Lock` a signal handler that writes the variable waits for the code that it has interrupted.

What computes a new value is called again where another writer was faster, so it must have no other effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# The value (None once there is a newer one), and a dict with the next version under None where there is one.  Both are
# read in this order: a value that is read before a look into the empty dict was the newest.
Version = list[Any]


class Cell(Generic[T]):
    """Something that is replaced as a whole.

    Attributes:
        head: a version from which the newest one is reached; nearly always the newest one itself.
        drafted: whether an update has ever written it, so that the running one may have a draft of it (`drafts`).

    >>> cell = Cell(1)
    >>> cell.change(lambda value: value + 1)
    2
    >>> cell.newest()[1]
    2
    """

    __slots__ = ("drafted", "head")

    def __init__(self, value: T) -> None:
        self.head: Version = [value, {}]
        self.drafted = False

    def newest(self) -> tuple[Version, T]:
        """The newest version, and its value."""
        version = self.head
        while True:
            value, following = version
            if not following:
                return version, value
            version = following[None]

    def replace(self, seen: Version, value: T) -> bool:
        """Makes `value` the newest, unless there is a newer version than `seen`; whether it did."""
        version: Version = [value, {}]
        if seen[1].setdefault(None, version) is not version:
            return False
        seen[0] = None
        self.head = version
        while version[1]:  # other threads replaced this version before it became the head
            self.head = version = version[1][None]
        return True

    def change(self, function: Callable[[T], T]) -> T:
        """Replaces the value by `function(value)`, which it returns."""
        while True:
            seen, value = self.newest()
            new = function(value)
            if self.replace(seen, new):
                return new
