"""`Origin`: the numbers that the rows of a dataset's elements have in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from refdist.data import iterators
from refdist.data.facts import Reading

Read = Callable[[Reading], Iterable[Any]]


class Origin(NamedTuple):
    """Attributes:
        read: for every element, in order, the numbers of its rows in the source.
        single: every element is one row, and its number a scalar.
    """

    read: Read
    single: bool = True

    def changed(self, change: Callable[[Read, Reading], Iterable[Any]]) -> Origin:
        """After elements were chosen or put into another order."""
        return Origin(lambda reading: change(self.read, reading), self.single)

    def batched(self, size: int, drop_remainder: bool) -> Origin:
        """After elements were put together."""
        return Origin(lambda reading: iterators.batch(self.read(reading), size, drop_remainder,
                                                      lambda rows, _: np.asarray(rows)), single=False)
