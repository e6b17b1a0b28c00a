"""Workers that are processes started by `mpiexec` or `srun`: collectives through mpi4py.

A meeting begins with one small all-gather in which every worker says what it came for, and which carries the
data too when they are small.  No wait is without a limit.  How large arrays are summed is in `reduce`, who is
lost in `failure`.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from refdist import errors
from refdist.array.connection import ConnectableTransport, Group
from refdist.array.convert import frozen
from refdist.array.ordered_sum import ordered_sum
from refdist.array.transport import Columns, compare, concatenated, header_of, on_every_worker
from refdist.array.types import Array
from refdist.backends.mpi import failure, mpi_types, reduce
from refdist.backends.mpi.mpi_types import HostArray, Request
from refdist.core import agreement
from refdist.core.agreement import NOTHING_TO_COMPARE, CollectiveCall
from refdist.core.launcher import launched

TIMEOUT_VARIABLE = "REFDIST_TIMEOUT"
CHECKS_VARIABLE = "REFDIST_CHECKS"
SUMS_VARIABLE = "REFDIST_SUMS"  # "sent" is the way through MPI alone, also on one host
CHECKS = ("all", "first", "off")
DEFAULT_TIMEOUT = 300.0  # seconds

# What every worker says first: number of the meeting and fingerprint, which must agree; buffers it has let go of,
# and bytes that follow.
_HEADER = struct.Struct("<QQQQ")
_RELEASED_AND_SIZE = struct.Struct("<QQ")
_AGREED = 16
_BLOCK = 256
_INLINE = _BLOCK - _HEADER.size
_SMALL = 1 << 16
_UNCHECKED = 0

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]


class MPITransport(ConnectableTransport):
    """This process and those started together with it."""

    def __init__(self, mpi: mpi_types.MPI, watch: failure.Watch, timeout: float) -> None:
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD.Dup()
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()
        self._watch = watch
        self.timeout = timeout
        self._level = _level()
        self._count = 0
        self._fingerprints: dict[tuple[object, ...], int] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._out = bytearray(_BLOCK)
        self._in = bytearray(_BLOCK * self.size)
        self._starts = range(0, _BLOCK * self.size, _BLOCK)
        node = self._comm.Split_type(mpi.COMM_TYPE_SHARED)
        cores = len(os.sched_getaffinity(0))
        self._spin = node.Get_size() <= cores
        self._reducer = reduce.make(mpi, self._comm, node, self._wait, cores, _sent())
        node.Free()
        watch.set_peers(self._exchange_raw(watch.endpoint()))

    @classmethod
    def group(cls) -> Group | None:
        found = launched()
        return None if found is None else Group(found.rank, found.size)

    @classmethod
    def connect(cls, timeout: float | None) -> MPITransport:
        seconds = _timeout(timeout)
        launch = launched()
        if "mpi4py.MPI" not in sys.modules and launch is not None and launch.launcher == "Hydra":
            failure.supervise()
        watch = failure.Watch(0)
        alarm = failure.limit_start(seconds)
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise errors.error("RD27", "workers under MPI", f"mpi4py cannot be used: {error}",
                               "Run `pip install mpi4py mpich`, which brings an MPI library and its mpiexec."
                               ) from error
        watch.rank = MPI.COMM_WORLD.Get_rank()
        failure.end_job_on_exceptions(watch.rank, MPI.COMM_WORLD.Abort)
        transport = cls(MPI, watch, seconds)
        alarm.cancel()
        atexit.register(transport.finish)
        return transport

    # Waiting.

    def _wait(self, request: Request) -> None:
        try:
            self._poll(request)
        except self._mpi.Exception as error:
            # OpenMPI says itself that a process is gone.
            raise self._lost(self._watch.dead()) from error

    def _poll(self, request: Request) -> None:
        if request.Test():
            return
        spin, test = self._spin, request.Test
        start = time.monotonic()
        look = start + 0.05
        while True:
            for _ in range(64):
                if test():
                    return
                if not spin:
                    time.sleep(0)
            now = time.monotonic()
            if now > look:
                look = now + 0.05
                gone = self._watch.dead()
                if gone or now - start > self.timeout or self._watch.given_up >= self._count:
                    raise self._lost(gone)

    def _lost(self, gone: list[int]) -> errors.RefdistError:
        what = (f"{agreement.names(gone, 'worker')} died" if gone
                else f"not all workers came within {self.timeout:.0f} s")
        return on_every_worker(errors.error(
            "RD01", self._watch.status(), f"{what}:\n{self._watch.report()}\n",
            "Look at the lines of those who are missing; a longer wait is "
            f"CommunicationOptions(timeout_seconds=...) or {TIMEOUT_VARIABLE}."))

    # Meeting.

    def _rendezvous(self, call: CollectiveCall, data: bytes) -> tuple[int, ...]:
        """Lets all workers say what they came for.

        Returns:
            How many bytes each brought; they are in `_in` already where they fit.
        """
        self._count += 1
        self._watch.entered(self._count, call)
        out, blocks = self._out, self._in
        _HEADER.pack_into(out, 0, self._count, self._fingerprint(call), self._reducer.released(), len(data))
        if len(data) <= _INLINE:
            out[_HEADER.size:_HEADER.size + len(data)] = data
        self._wait(self._comm.Iallgather(out, blocks))
        mine = out[:_AGREED]
        for start in self._starts:
            if blocks[start:start + _AGREED] != mine:
                raise self._difference(call)
        released, sizes = zip(*[_RELEASED_AND_SIZE.unpack_from(blocks, start + _AGREED) for start in self._starts],
                              strict=True)
        self._reducer.let_go(released)
        return sizes

    def _fingerprint(self, call: CollectiveCall) -> int:
        if self._level == "off":
            return _UNCHECKED
        key = (call.kind, call.signature, tuple(map(id, call.call_site)))
        if self._level == "first":
            if key[2] in self._seen:
                return _UNCHECKED
            self._seen.add(key[2])
        known = self._fingerprints.get(key)
        if known is None:
            text = repr(header_of(call))
            digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1
            known = self._fingerprints[key] = digest
        return known

    def _difference(self, call: CollectiveCall) -> errors.RefdistError:
        try:
            compare(self._exchange_raw(header_of(call)))
        except errors.RefdistError as error:
            return error
        return on_every_worker(errors.error(
            "RD02", call.kind, "the workers have made different numbers of calls that need all of them: worker "
            f"{self.rank} is at its number {self._count}, {call}"))

    def _exchange_raw(self, value: T) -> list[T]:
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.zeros(self.size, np.int64)
        self._wait(self._comm.Iallgather(np.array([data.size], np.int64), sizes))
        return [pickle.loads(part.tobytes()) for part in self._gather_bytes(data, sizes)]

    def _gather_bytes(self, data: Bytes, sizes: npt.NDArray[np.int64]) -> list[Bytes]:
        everything = np.empty(int(sum(sizes)), np.uint8)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._wait(self._comm.Iallgatherv(data, [everything, (sizes, offsets[:-1])]))
        return [everything[offsets[i]:offsets[i + 1]] for i in range(self.size)]

    def _all(self, call: CollectiveCall, data: bytes) -> Sequence[bytearray | memoryview]:
        """The bytes of all workers."""
        sizes = self._rendezvous(call, data)
        if max(sizes) <= _INLINE:
            first = _HEADER.size
            return [self._in[start + first:start + first + size]
                    for start, size in zip(self._starts, sizes, strict=True)]
        parts = self._gather_bytes(np.frombuffer(data, np.uint8), np.array(sizes, np.int64))
        return [part.data for part in parts]

    # The contract.

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        return [pickle.loads(part) for part in self._all(call, pickle.dumps(value))]

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        parts = _numpy(columns)
        if sum(part.nbytes for column in parts for part in column) <= _SMALL:
            return self._sum_small(call, parts)
        self._rendezvous(call, b"")
        return self._reducer.sum(parts, ordered)

    def _sum_small(self, call: CollectiveCall, columns: list[list[HostArray]]) -> list[HostArray]:
        mine = b"".join([part.tobytes() for column in columns for part in column])
        everybody = self._all(call, mine)
        totals, start = [], 0
        for column in columns:
            first = column[0]
            step = first.nbytes
            parts = [np.ndarray(first.shape, first.dtype, data, start + i * step)
                     for data in everybody for i in range(len(column))]
            totals.append(ordered_sum(parts))
            start += step * len(column)
        return totals

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        parts = _numpy(columns)
        if any(part.dtype.hasobject for column in parts for part in column):
            return concatenated(self.all_gather_object(call, parts), axis)
        shapes = self.all_gather_object(call, [[part.shape for part in column] for column in parts])
        mine = b"".join([part.tobytes() for column in parts for part in column])
        sizes = [sum(int(np.prod(shape)) * column[0].dtype.itemsize
                     for column, others in zip(parts, theirs, strict=True) for shape in others)
                 for theirs in shapes]
        everyone = self._gather_bytes(np.frombuffer(mine, np.uint8), np.array(sizes, np.int64))
        return concatenated([_unpacked(data, theirs, parts)
                             for data, theirs in zip(everyone, shapes, strict=True)], axis)

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        copy = np.array(array, order="C")  # else reshape would copy, and MPI fill the copy
        if copy.dtype.hasobject or copy.dtype.kind in "USV":
            return frozen(self.all_gather_object(call, copy)[0])
        self._rendezvous(call, b"")
        self._wait(self._comm.Ibcast(copy.reshape(-1).view(np.uint8), 0))
        return frozen(copy)

    def barrier(self, call: CollectiveCall) -> None:
        self._rendezvous(call, b"")

    def finish(self) -> None:
        """Says that this worker's program has ended; the others must have come to their end too."""
        try:
            self._rendezvous(CollectiveCall("the end of the program", NOTHING_TO_COMPARE, site=()), b"")
        except errors.RefdistError as error:
            os.write(2, f"[worker {self.rank}] {error}\n".encode())
            failure.let_others_speak()
            self._mpi.COMM_WORLD.Abort(70)


def _numpy(columns: Columns) -> list[list[HostArray]]:
    return [[np.asarray(part, order="C") for part in column] for column in columns]


def _unpacked(data: Bytes, shapes: Sequence[Sequence[tuple[int, ...]]],
              columns: list[list[HostArray]]) -> list[list[HostArray]]:
    found, start = [], 0
    for column, theirs in zip(columns, shapes, strict=True):
        dtype, parts = column[0].dtype, []
        for shape in theirs:
            stop = start + int(np.prod(shape)) * dtype.itemsize
            parts.append(data[start:stop].view(dtype).reshape(shape))
            start = stop
        found.append(parts)
    return found


def _level() -> str:
    level = os.environ.get(CHECKS_VARIABLE, "all")
    if level not in CHECKS:
        raise errors.error("RD25", f"environment variable {CHECKS_VARIABLE}={level!r}", "there is no such level",
                           f"Write one of {', '.join(CHECKS)}.", kind=errors.InvalidValueError)
    return level


def _sent() -> bool:
    way = os.environ.get(SUMS_VARIABLE, "shared")
    if way not in ("shared", "sent"):
        raise errors.error("RD25", f"environment variable {SUMS_VARIABLE}={way!r}", "there is no such way",
                           "Write shared or sent.", kind=errors.InvalidValueError)
    return way == "sent"


def _timeout(wanted: float | None) -> float:
    text = os.environ.get(TIMEOUT_VARIABLE)
    try:
        seconds = wanted if wanted is not None else float(text) if text else DEFAULT_TIMEOUT
    except ValueError as error:
        raise errors.error("RD25", f"environment variable {TIMEOUT_VARIABLE}={text!r}", "it is no number",
                           f"Write {TIMEOUT_VARIABLE}=60.", kind=errors.InvalidValueError) from error
    return seconds
