"""The contract of a transport: collectives between workers, and their checks.

A worker is a process, or a simulated one (`simulate_workers`), with replicas of its own.  Inside it replicas run in
lock step; a transport carries arrays from worker to worker.  Its verbs are MPI's; it knows nothing of variables or of
what the arrays mean.

Invariants:

* Every verb is a collective: all workers call it, in the same order, each with the `CollectiveCall` that led there.
  The calls are compared before any data moves, and a difference is the same error on every worker.
* A sum is taken left to right over worker 0's arrays, then worker 1's, and so on.  A worker cannot add up its own
  arrays before it sends them: (a + b) + (c + d) has other bits than ((a + b) + c) + d.  That is why `all_reduce` takes
  all arrays of a worker and not their sum.
* Results are read-only, because all workers of a process may share them.
* No wait is without a limit.

Callers do not ask how many workers there are.  They call `transport.call(...)` for the description of what they do, and
then a verb.  With one worker the transport is a `LoneWorker`: it describes nothing, compares nothing, and its verbs
return what the backend makes of the worker's own arrays.  A description costs a walk over the frames of the program
(`call_site`), so the transport makes it, and a lone worker never pays for one.  Whatever else costs time, such as a
checksum or a text for a message, is made inside the verb.

Of the verbs only `all_gather_object` is abstract.  The others are defined by it here, and a transport overrides those
that it can do better: under MPI all of them, between simulated workers those whose result they can share.
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from refdist import errors
from refdist.array import collectives
from refdist.array.backend import beside, current_backend
from refdist.array.collectives import Part
from refdist.array.convert import frozen, to_numpy
from refdist.array.float_errors import Reported
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.ordered_sum import ordered_sum
from refdist.array.types import Array
from refdist.core import agreement, call_site
from refdist.core.agreement import NOTHING_TO_COMPARE, CollectiveCall, Signature
from refdist.core.interfaces import Layout
from refdist.core.rules.options import ReduceOp

Columns = Sequence[Sequence[Array]]  # for every result one array per replica of this worker
HostArray = npt.NDArray[np.generic]
HostColumns = Sequence[Sequence[HostArray]]  # the same, of arrays that have travelled


class Transport(ABC):
    """What carries arrays between workers.

    Attributes:
        rank: this worker, from 0.
        size: how many workers there are.
        timeout: seconds that a worker waits for the others.
        shares_results: whether another worker of this process may hold the arrays of a result, too.

    Every verb raises:
        RD02 ... RD07, RD21: the workers made different calls.
        RD01: a worker has ended, or did not come within the time limit.
    """

    rank: int = 0
    size: int = 1
    timeout: float = 300.0
    shares_results: bool = True

    def __deepcopy__(self, memo: dict[int, object]) -> Transport:
        return self  # the processes are connected once

    # The verbs.

    @abstractmethod
    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        """The small Python objects of all workers, in worker order.

        Args:
            call: what led here.
            value: of any kind that can be pickled.
        """

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        """The sum of each column over the local arrays of all workers.

        Args:
            call: what led here.
            columns: for every result the arrays of this worker's replicas; of one shape and dtype everywhere.
            ordered: whether the sum is taken left to right over worker 0's arrays, then worker 1's, and so on,
                so that the bits do not depend on the number of workers; False leaves the order to the transport.

        Returns:
            Read-only arrays.
        """
        everyone = self.all_gather_object(call, columns)
        with Reported("add"):
            return summed(everyone)

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        """For each column the local arrays of all workers one after another; lengths along `axis` may differ.

        Args:
            call: what led here.
            columns: for every result the arrays of this worker's replicas, of rank 1 or more, and of one dtype and
                shape everywhere but for the length along `axis`.
            axis: an int in [-rank, rank).
        """
        return concatenated(self.all_gather_object(call, columns), axis)

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        """Worker 0's array; every worker passes one of its shape and dtype.

        Args:
            call: what led here.
            array: of any shape and dtype.
        """
        return frozen(self.all_gather_object(call, array)[0])

    # What callers need around the verbs.

    def call(self, kind: str, target: object = None, op: ReduceOp | None = None, axis: object = None,
             like: Part | tuple[Part, ...] | None = None, varying: int | None = None) -> CollectiveCall:
        """The description of a call that all workers make; what it says is compared between them.

        Args:
            kind: what is done, for messages.
            target: what it is done to, for example the name of a variable.
            op: the reduce op.
            axis: the axis, or what else the workers have to agree on.
            like: the array or IndexedSlices whose dtype and shape are compared, a tuple of several, or None.
            varying: instead of `axis`, the axis along which lengths may differ.
        """
        arrays: Sequence[Any] = (None, None, None)
        if isinstance(like, tuple):
            arrays = tuple(zip(*[collectives.signature(part, varying) for part in like], strict=True))
        elif like is not None:
            arrays = collectives.signature(like, varying)
        return CollectiveCall(kind, Signature(
            target, op, axis if varying is None else varying, None, *arrays))

    def layout(self, devices: Sequence[str]) -> Layout:
        """How replicas are numbered that are on `devices` here, and on as many on every other worker.

        Args:
            devices: the names of this worker's devices, one for each replica.
        """
        return Layout(tuple(devices), self.rank, self.size)

    def check_same_bits(self, call: CollectiveCall, value: Part, text: Callable[[Part], str]) -> None:
        """Raises unless all workers have the same bits.

        Args:
            call: what led here.
            value: an array or IndexedSlices.
            text: shows the value of a worker in a message.

        Raises:
            RD12: they have not.
        """
        # A checksum finds a drift; nothing is forged here, so a short and fast one will do.
        check = [zlib.crc32(to_numpy(leaf).tobytes()) for leaf in collectives.leaves(value)]
        of_workers = self.all_gather_object(call, (check, text(value)))
        for i, (other, shown) in enumerate(of_workers):
            if other != of_workers[0][0]:
                raise errors.error("RD12", str(call), f"worker 0 has {of_workers[0][1]}, worker {i} has {shown}",
                                   "Pass the same value on every worker, or reduce it first.")


class LoneWorker(Transport):
    """The only worker there is: it has no one to compare with, and its backend combines its own arrays.

    >>> alone = LoneWorker()
    >>> alone.all_gather_object(alone.call("greeting"), "hello")
    ['hello']
    """

    def call(self, kind: str, target: object = None, op: ReduceOp | None = None, axis: object = None,
             like: Part | tuple[Part, ...] | None = None, varying: int | None = None) -> CollectiveCall:
        return _UNDESCRIBED

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        return [value]

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        backend = current_backend()
        return [backend.sum(column) for column in columns]

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        backend = current_backend()
        return [backend.concatenate(column, axis) for column in columns]

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        return array

    def check_same_bits(self, call: CollectiveCall, value: Part, text: Callable[[Part], str]) -> None:
        pass


_UNDESCRIBED = CollectiveCall("a call of one worker", NOTHING_TO_COMPARE, site=())


# Collectives on what replicas contribute, arrays or IndexedSlices; of IndexedSlices the leaves travel.

def reduce(transport: Transport, call: CollectiveCall, op: ReduceOp, columns: Sequence[Sequence[Part]], count: int,
           ordered: bool = True) -> list[Any]:
    """One value per column from the contributions of all workers.

    Args:
        transport: between the workers.
        call: what led here.
        op: SUM or MEAN.
        columns: for every result the contributions, arrays or IndexedSlices, of this worker.
        count: how many contributions all workers have together, for MEAN.
        ordered: see `Transport.all_reduce`.
    """
    dense = [column for column in columns if _is_dense(column)]
    if dense and len(dense) == len(columns):  # nearly always
        summed_up = transport.all_reduce(call, dense, ordered)
        return summed_up if op is ReduceOp.SUM else [_divided(op, total, count) for total in summed_up]
    totals = iter(transport.all_reduce(call, dense, ordered) if dense else ())
    # Slices are put one after another, as within a worker: values and indices of each column.
    leaves = [leaf for column in columns if isinstance(column[0], IndexedSlices)
              for leaf in zip(*map(collectives.leaves, column), strict=True)]
    joined = iter(transport.all_gather(call, leaves, 0) if leaves else ())
    results = []
    for column in columns:
        if isinstance(column[0], IndexedSlices):
            values, indices = next(joined), next(joined)
            results.append(collectives.with_leaves(column[0], (_divided(op, values, count), indices)))
        else:
            results.append(_divided(op, next(totals), count))
    return results


def _is_dense(column: Sequence[Part]) -> TypeGuard[Sequence[Array]]:
    return not isinstance(column[0], IndexedSlices)


def _divided(op: ReduceOp, total: Array, count: int) -> Any:
    return total if op is ReduceOp.SUM else collectives.divide(current_backend(), total, count)


def first(transport: Transport, call: CollectiveCall, part: Part) -> Any:
    """Gives worker 0's array or IndexedSlices to all workers.

    Args:
        transport: between the workers, all of which call this.
        call: what led here.
        part: this worker's: an array of worker 0's shape and dtype, or IndexedSlices of any number of slices.
    """
    if not isinstance(part, IndexedSlices):
        return beside(transport.broadcast(call, part), part)
    shape = None if part.dense_shape is None else to_numpy(part.dense_shape)
    values, indices, shape = transport.all_gather_object(call, (*map(to_numpy, collectives.leaves(part)), shape))[0]
    return IndexedSlices(beside(values, part.values), beside(indices, part.indices), shape)


def widest(transports: Iterable[Transport]) -> Transport:
    """The transport that connects the most workers; a lone worker's where there is none."""
    return max(transports, key=lambda transport: transport.size, default=LoneWorker())


# For transports between processes.

class CallHeader(NamedTuple):
    """What other processes are told of a call."""

    kind: str
    signature: Signature
    call_site: call_site.Site


def header_of(call: CollectiveCall) -> CallHeader:
    """The parts of a call that are compared, as plain values that can be pickled."""
    # Files may lie elsewhere on another host, so only their last name counts.
    site = tuple(place._replace(file=place.file.rpartition(os.sep)[2]) for place in call.call_site)
    signature = call.signature
    plain = signature._replace(target=agreement.shown(signature.target),
                               structure=signature.structure and str(signature.structure))
    return CallHeader(call.kind, plain, site)


def compare(headers: Sequence[CallHeader]) -> None:
    """Raises unless all workers, in worker order, have made the same call.

    Raises:
        RD02 ... RD07, RD21: they have not.
    """
    try:
        agreement.compare(headers, unit_name="worker")
    except errors.RefdistError as error:
        raise on_every_worker(error) from None


def on_every_worker(error: errors.RefdistError) -> errors.RefdistError:
    """Marks an error that every worker raises, so that none has to end the others."""
    error.on_every_worker = True
    return error


# What every worker computes from the arrays of all, in worker order.

def summed(everyone: Sequence[HostColumns]) -> list[HostArray]:
    """Of each column the sum over all workers, left to right."""
    return [ordered_sum([part for column in same for part in column]) for same in zip(*everyone, strict=True)]


def concatenated(everyone: Sequence[HostColumns], axis: int) -> list[HostArray]:
    """Of each column the arrays of all workers one after another."""
    return [frozen(np.concatenate([part for column in same for part in column], axis))
            for same in zip(*everyone, strict=True)]
