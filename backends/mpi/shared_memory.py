"""Memory that the processes of a host share, and that each of them also has as its own.

A block is memory without a name (memfd): whichever process is killed, nothing of it stays, and the size of /dev/shm
does not matter.  One process makes it, and the others open it through /proc.  Each allocates a part of the pages, so
memory that is not there is an error here, on every process, and not a SIGBUS at a later write.

A process maps a block twice.  `shared` is what all of them see.  `own` is a private mapping of the same memory: a page
is read from where all have it until this process writes to it; then the kernel copies the page, and no other process
sees the write.  So a library that ignores that NumPy's arrays are read-only (`torch.from_numpy`) changes its own
numbers only.

Such a copied page hides what is written to the block later, and is dropped before the block is used again (`renew`).
/proc/self/pagemap says whether there is one; to drop all pages unseen would make each a page fault at the next read,
which costs ten times as much.

A child made by `fork` inherits the mappings and outlives its parent's views, so its numbers would change when the block
is used again.  Therefore a fork first makes copies of all pages of the blocks in use (`keep`), which the child inherits
like any other memory.

`Slots` are memory for a few bytes of each process, which the others read once.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from refdist.backends.mpi.mpi_types import Bytes

Exchange = Callable[[Any], list[Any]]  # gathers a small object of each process

_PAGE = mmap.PAGESIZE
# Of the most significant byte of an entry of /proc/self/pagemap, the bits for: in memory or swapped out; of a file, as
# shared memory is.  A page that has the first and not the second is a copy that this process has written to.
_THERE, _OF_A_FILE = 0xC0, 0x20
_COPY = bytes(bool(byte & _THERE and not byte & _OF_A_FILE) for byte in range(256))
_MOST_SIGNIFICANT = slice(7 if sys.byteorder == "little" else 0, None, 8)


class NoSharedMemory(Exception):
    """The processes cannot share as much memory; raised by all of them."""


class Block:
    """Memory that all processes of a host have mapped.

    Attributes:
        shared: its bytes; a write is seen by all.
        own: the same bytes; a write is seen by this process only.
        asked: how many bytes were asked for, the same on hosts with different numbers of processes.
    """

    def __init__(self, file: int, nbytes: int, asked: int) -> None:
        self.asked = asked
        self.shared: Bytes = np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
        self._mapping = mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY)
        self.own: Bytes = np.frombuffer(self._mapping, np.uint8)
        self._first = self.own.ctypes.data // _PAGE

    def renew(self, nbytes: int) -> None:
        """Makes the first bytes of `own`, those of a result, show what is shared, whatever has been written to them."""
        if self._written(-(-nbytes // _PAGE)):
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def keep(self) -> None:
        """Makes `own` keep the bytes that it has now, whatever is shared later."""
        pages = self.own[::_PAGE]
        np.bitwise_or(pages, 0, out=pages)

    def _written(self, pages: int) -> bool:
        with contextlib.suppress(OSError):
            entries = os.pread(_pagemap(), 8 * pages, 8 * self._first)
            return len(entries) < 8 * pages or 1 in entries[_MOST_SIGNIFICANT].translate(_COPY)
        return True


@functools.cache
def _pagemap() -> int:
    # Kept open, because to open it costs more than to read it.  In a child made by fork it is still that of the parent;
    # the child has its own pages (`keep`), and shares none of them any more.
    return os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)


def allocate(nbytes: int, rank: int, size: int, exchange: Exchange) -> Block:
    """A new block of at least `nbytes`; the processes of a host call this together.

    Args:
        nbytes: the same on all.
        rank, size: this process among those of the host.
        exchange: between them.

    Raises:
        NoSharedMemory: a process cannot have it; on all of them.
    """
    part = -(-nbytes // (size * _PAGE)) * _PAGE
    file, block, problem = -1, None, ""
    name = f"refdist {secrets.token_hex(8)}"
    try:
        try:
            if rank == 0:
                file = os.memfd_create(name)
                os.ftruncate(file, size * part)
        except OSError as error:
            problem = str(error)
        path, name, problem = exchange((f"/proc/{os.getpid()}/fd/{file}", name, problem))[0]
        try:
            if rank != 0 and not problem:
                file = _opened(path, name)
            if not problem:
                os.posix_fallocate(file, rank * part, part)
                block = Block(file, size * part, nbytes)
        except OSError as error:
            problem = str(error)
        problem = next(filter(None, exchange(problem)), "")
    finally:
        if file >= 0:
            os.close(file)
    if block is None or problem:
        raise NoSharedMemory(problem)
    return block


class Slots:
    """Memory in which each process of a host leaves some bytes for the others, to be read after their next rendezvous.

    Two halves take turns, by the number of the rendezvous.  Who has passed one knows that all have entered it, so they
    have read what was left for the one before, and its half can be written to.
    """

    nbytes = (1 << 16) + (1 << 12)  # of each process: data, and what is told of them

    def __init__(self, rank: int, size: int, exchange: Exchange) -> None:
        """Makes the memory; the processes of the host call this together.

        Raises:
            NoSharedMemory: a process cannot have it; on all of them.
        """
        memory = allocate(2 * size * self.nbytes, rank, size, exchange).shared[:2 * size * self.nbytes]
        self._halves = memory.reshape(2, size, self.nbytes)
        self._mine = self._halves[:, rank]

    def own(self, number: int) -> Bytes:
        """Where this process leaves bytes for the rendezvous of this number, before it is entered."""
        half: Bytes = self._mine[number % 2]
        return half

    def found(self, number: int, rank: int, size: int) -> memoryview:
        """The bytes that a process has left for the rendezvous of this number, until the next one is entered."""
        half: Bytes = self._halves[number % 2]
        return half[rank, :size].data


def _opened(path: str, name: str) -> int:
    # Where processes do not see each other, another one may have this number.
    if name not in os.readlink(path):
        raise OSError(f"{path} is not {name}")
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
