"""`Origin`: the numbers that the rows of a dataset's elements have in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from refdist.data import iterators
from refdist.data.facts import Reading

_T = TypeVar("_T")
Read = Callable[[Reading], Iterable[object]]


class Change(Protocol):
    """Chooses or reorders the results of a function: elements, row numbers, or the origins of both."""

    def __call__(self, read: Callable[[Reading], Iterable[_T]], reading: Reading, /) -> Iterable[_T]: ...


class Origin(NamedTuple):
    """Where in its source each row of a dataset comes from.

    Attributes:
        read: for every element, in order, the number of its row in the source; or an array of numbers, shape [rows].
        single: whether every element is one row, so that `read` yields single numbers.
        calls: whether `read` calls functions of the program.
    """

    read: Read
    single: bool = True
    calls: bool = False

    def changed(self, change: Change) -> Origin:
        """The origin after elements were chosen or reordered."""
        return self._replace(read=lambda reading: change(self.read, reading))

    def batched(self, size: int, drop_remainder: bool) -> Origin:
        """The origin after `size` elements each were stacked into a batch."""
        return self._replace(single=False, read=lambda reading: iterators.batch(
            self.read(reading), size, drop_remainder, lambda rows, _: np.asarray(rows)))
