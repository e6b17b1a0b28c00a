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
which costs 20 times as much.

A child made by `fork` inherits the mappings and outlives its parent's views, so its numbers would change when the block
is used again.  Therefore a fork first makes copies of all pages of the blocks in use (`keep`), which the child inherits
like any other memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist.backends.mpi.mpi_types import Bytes

Exchange = Callable[[Any], list[Any]]  # gathers a small object of each process

_PAGE = mmap.PAGESIZE
# Bits of an entry of /proc/self/pagemap: in memory or swapped out; of a file, as shared memory is.
_THERE = np.uint64(3 << 62)
_OF_A_FILE = np.uint64(1 << 61)


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

    def renew(self) -> None:
        """Makes `own` show what is shared, whatever has been written to it."""
        if self._written():
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def keep(self) -> None:
        """Makes `own` keep the bytes that it has now, whatever is shared later."""
        pages = self.own[::_PAGE]
        np.bitwise_or(pages, 0, out=pages)

    def _written(self) -> bool:
        first, count = self.own.ctypes.data // _PAGE, self.own.size // _PAGE
        with contextlib.suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as file:
            file.seek(8 * first)
            pages: npt.NDArray[np.uint64] = np.frombuffer(file.read(8 * count), np.uint64)
            return pages.size < count or bool(np.any((pages & _THERE != 0) & (pages & _OF_A_FILE == 0)))
        return True


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


def _opened(path: str, name: str) -> int:
    # Where processes do not see each other, another one may have this number.
    if name not in os.readlink(path):
        raise OSError(f"{path} is not {name}")
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
