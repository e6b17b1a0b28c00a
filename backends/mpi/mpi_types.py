"""What is used of mpi4py, which is optional and so not there where types are checked.

Names and arguments are mpi4py's.  A buffer is memory that MPI reads or writes while a request is open, so its
buffers are kept alive and untouched until `Test` has returned True.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
HostArray = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]
# Bytes, an array, or (array, (how many elements of each process, where they begin)).
Buffer = bytearray | HostArray | list[HostArray | tuple[HostArray, HostArray]]


class InPlace(Protocol):
    """The type of MPI.IN_PLACE, which has the buffer of the result for a buffer."""


class Op(Protocol):
    """A reduction, such as MPI.SUM."""


class Request(Protocol):
    """A collective that has begun."""

    def Test(self) -> bool: ...


class Prepared(Request, Protocol):
    """A collective that begins anew each time."""

    def Start(self) -> None: ...


class Group(Protocol):
    """Processes, numbered."""

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]: ...


class Communicator(Protocol):
    """Processes that call collectives together."""

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...
    def Dup(self) -> Communicator: ...
    def Split(self, color: int = 0, key: int = 0) -> Communicator: ...
    def Split_type(self, split_type: int) -> Communicator: ...
    def Free(self) -> None: ...
    def Abort(self, errorcode: int = 0) -> None: ...
    def allgather(self, sendobj: T) -> list[T]: ...
    def Get_group(self) -> Group: ...
    def Get_failed(self) -> Group: ...
    def Isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request: ...
    def Irecv(self, buf: Buffer, source: int = -1, tag: int = -1) -> Request: ...
    def Ibarrier(self) -> Request: ...
    def Ibcast(self, buf: Buffer, root: int = 0) -> Request: ...
    def Iallgather(self, sendbuf: Buffer | InPlace, recvbuf: Buffer) -> Request: ...
    def Allgather_init(self, sendbuf: Buffer, recvbuf: Buffer) -> Prepared: ...
    def Iallgatherv(self, sendbuf: Buffer, recvbuf: Buffer) -> Request: ...
    def Ialltoall(self, sendbuf: Buffer, recvbuf: Buffer) -> Request: ...
    def Iallreduce(self, sendbuf: Buffer | InPlace, recvbuf: Buffer, op: Op) -> Request: ...


class MPI(Protocol):
    """The module mpi4py.MPI."""

    COMM_WORLD: Communicator
    COMM_TYPE_SHARED: int
    IN_PLACE: InPlace
    SUM: Op
    Exception: type[Exception]

    def Finalize(self) -> None: ...
