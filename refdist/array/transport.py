"""The contract of a transport: collectives between workers, and their checks.

Every collective is entered by all workers, each with the call that led to it; the calls are compared before any
data moves, and a difference is the same error on every worker.  Which replica or variable is meant is not
known here.  Towards transports the words are MPI's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist.array.convert import frozen
from refdist.core.lockstep import CollectiveCall


class Transport(ABC):
    """What carries arrays between workers.

    Attributes:
        rank: this worker, from 0.
        size: how many workers there are.
        timeout: seconds that a worker waits for the others.

    Every call raises:
        RD02 ... RD07, RD21: workers came with different calls.
        RD01: a worker has ended, or did not come within the time limit.
    """

    rank: int = 0
    size: int = 1
    timeout: float = 300.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Transport:
        return self  # the processes are connected once

    @abstractmethod
    def all_gather_object(self, call: CollectiveCall, value: Any) -> list[Any]:
        """The small Python objects of all workers, in worker order."""

    @abstractmethod
    def all_reduce(self, call: CollectiveCall, columns: Sequence[Sequence[Any]], ordered: bool = True) -> list[Any]:
        """The sum of each column over the local arrays of all workers.

        Args:
            call: what led here.
            columns: for every result the arrays of this worker's replicas; of one shape and dtype everywhere.
            ordered: whether the sum is taken left to right over worker 0's arrays, then worker 1's, and so on,
                so that every world gives the same bits; False leaves the order to the transport.

        Returns:
            Read-only arrays.
        """

    @abstractmethod
    def all_gather(self, call: CollectiveCall, columns: Sequence[Sequence[Any]], axis: int) -> list[Any]:
        """For each column the local arrays of all workers one after another; lengths along `axis` may differ."""

    @abstractmethod
    def broadcast(self, call: CollectiveCall, array: Any) -> Any:
        """Worker 0's array, which has the shape and dtype of everybody's."""


class LoneWorker(Transport):
    """One worker and nobody to talk to.

    >>> LoneWorker().all_gather_object(None, "alone")
    ['alone']
    """

    def all_gather_object(self, call: CollectiveCall, value: Any) -> list[Any]:
        return [value]

    def all_reduce(self, call: CollectiveCall, columns: Sequence[Sequence[Any]], ordered: bool = True) -> list[Any]:
        return [add(column) for column in columns]

    def all_gather(self, call: CollectiveCall, columns: Sequence[Sequence[Any]], axis: int) -> list[Any]:
        return [frozen(np.concatenate(column, axis)) for column in columns]

    def broadcast(self, call: CollectiveCall, array: Any) -> Any:
        return array


def add(arrays: Sequence[Any]) -> Any:
    """The arrays summed from left to right."""
    total = np.asarray(arrays[0]).copy() if len(arrays) == 1 else np.asarray(arrays[0] + arrays[1])
    for array in arrays[2:]:
        np.add(total, array, out=total)
    return frozen(total)
