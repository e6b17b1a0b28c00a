"""Sums of large arrays over processes, left to right over the replica ids.

A process may not add up its own arrays before it sends them: (a + b) + (c + d) has other bits than ((a + b) + c) + d.
So each process adds one slice of the arrays of all replicas, and every process gets the sums of all slices.

`SharedMemoryReducer`, for processes of one host.  Arrays are staged in a block of memory that all processes see; the
sums are written to another one.  Nothing is staged for the slice that a process adds itself.

Where other programs want the cores, what a sum costs is how often its processes wait for each other: at each wait the
last one may have to wait for a core.  So nearly every sum has two waits.  Arrays are staged before the rendezvous
(`begin`): who has passed it knows that all of them are there.  At the end processes tell each other which
floating-point errors they have seen: who has heard from all knows that all slices are added up.  Only arrays that have
no room in the block go chunk by chunk, through two halves of it: one barrier per chunk is enough, because a half is
written again only after the next barrier, when all have read it.

Results of up to 128 KiB are copied out.  Larger ones stay where they are, as each process's own view of the block
(`shared_memory`).  The block can be used again when no process holds a view of it.  Each process tells the others in
its headers which ones it has released; all have the same masks, so all choose the same block without talking about it.
There are 64, the bits of the mask; while all of them are in use, results are copied out.

What is gathered or broadcast lies in such a block, too: each process writes its own arrays to their places in the
result (`together`), and nothing is copied besides, where MPI copies the arrays of all on every process.

`MessageReducer`, where no memory can be shared: an all-to-all of slices and an all-gather of their sums.  Where the
order of additions does not matter (RING), Allreduce in chunks, which is faster than in one piece (26 ms for 40 above);
not of dtypes that MPI libraries need not know, as float16 and bfloat16: their sums are ordered ones.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from refdist.array.convert import frozen
from refdist.array.float_errors import Noted
from refdist.array.ordered_sum import ordered_sum
from refdist.backends.mpi import shared_memory
from refdist.backends.mpi.mpi_types import MPI, Bytes, Communicator, HostArray, Request
from refdist.backends.mpi.shared_memory import Block, Exchange, NoSharedMemory
from refdist.core import call_site

_ALIGN = 64
_STAGED = 1 << 28  # bytes that the processes of a host stage at once
_CHUNK = 1 << 22  # bytes of a message
_BLOCKS = 64  # bits of the mask in a header
_COPIED = 1 << 17  # bytes of results that are copied out
_ADDED_BY_MPI = frozenset("bBhHiIlLqQfdgFDG")  # characters of the dtypes that every MPI library adds

Columns = Sequence[Sequence[HostArray]]  # for every result this process's arrays, contiguous and in its byte order
Wait = Callable[[Request], None]
Agree = Callable[[int], int]  # from the bits of this process to those that any has set; all wait for each other


def aligned(nbytes: int) -> int:
    """Where the next array begins, after so many bytes."""
    return -(-nbytes // _ALIGN) * _ALIGN


class Layout:
    """What is added up, and where every array lies among all bytes of the sum; each begins at a multiple of 64.

    Attributes:
        columns: the arrays.
        offsets: where those of each column begin.
        total: how many bytes there are.
        replicas: how many arrays each column has.
        staged: whether they lie in memory that other processes see.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.staged = False
        self.offsets = []
        end = 0
        for column in columns:
            self.offsets.append(end)
            end = aligned(end + column[0].nbytes)
        self.total = end
        self.replicas = len(columns[0])
        self._dtypes = [column[0].dtype for column in columns]
        self._sizes = [column[0].nbytes for column in columns]
        self._shapes = [column[0].shape for column in columns]
        self._bytes = [[part.reshape(-1).view(np.uint8) for part in column] for column in columns]

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        # (column, first byte and end within its array, first byte among all) of what lies in [start, stop).
        low = int(np.searchsorted(self.offsets, start, "right")) - 1
        for i in range(max(low, 0), len(self.offsets)):
            offset = self.offsets[i]
            if offset >= stop:
                return
            first, end = max(start - offset, 0), min(stop - offset, self._sizes[i])
            if first < end:
                yield i, first, end, offset + first

    def slice(self, start: int, stop: int, rank: int, size: int) -> tuple[int, int]:
        """The part of [start, stop) that one of `size` processes sums."""
        each = -(-(stop - start) // (size * _ALIGN)) * _ALIGN
        return min(start + rank * each, stop), min(start + (rank + 1) * each, stop)

    def copy(self, start: int, stop: int, block: Bytes, origin: int) -> None:
        """Copies bytes [start, stop) of this process's arrays.

        Args:
            start, stop: among all bytes of the sum.
            block: where to, [replicas, n]; its columns begin at byte `origin` of the sum.
        """
        for i, a, b, at in self._pieces(start, stop):
            for r, array in enumerate(self._bytes[i]):
                block[r, at - origin:at - origin + b - a] = array[a:b]

    def add(self, start: int, stop: int, blocks: Sequence[Bytes | None], origin: int, result: Bytes) -> None:
        """Adds up bytes [start, stop) of all processes' arrays, left to right.

        Args:
            start, stop: among all bytes of the sum.
            blocks: for every process what it has copied, see `copy`; None for this one's arrays themselves.
            origin: the byte of the sum that the blocks begin at.
            result: all bytes of the sum.
        """
        for i, a, b, at in self._pieces(start, stop):
            dtype = self._dtypes[i]
            sources = [part.view(dtype) for block in blocks for part in (
                [array[a:b] for array in self._bytes[i]] if block is None
                else block[:, at - origin:at - origin + b - a])]
            ordered_sum(sources, result[at:at + b - a].view(dtype))

    def views(self, result: Bytes) -> list[HostArray]:
        """The arrays that all bytes of the sum are, one for each column."""
        return [result[offset:offset + size].view(dtype).reshape(shape) for offset, size, dtype, shape
                in zip(self.offsets, self._sizes, self._dtypes, self._shapes, strict=True)]


class SharedMemoryReducer:
    """Sums through memory that all processes of the host share; by messages where they cannot have it."""

    def __init__(self, comm: Communicator, exchange: Exchange, wait: Wait, agree: Agree,
                 messages: MessageReducer) -> None:
        self._comm = comm
        self._exchange = exchange
        self._wait = wait
        self._agree = agree
        self._rank, self._size = comm.Get_rank(), comm.Get_size()
        self._room = _STAGED // self._size  # bytes that this process stages at once
        self._messages = messages
        self._gave_up = False
        self._staging: Block | None = None
        self._copied: Block | None = None  # for results that are copied out
        self._blocks: list[Block] = []  # for those that are not
        self._mine = (1 << _BLOCKS) - 1  # bitmask of the blocks that this process has released
        self._free = self._mine  # those that all had released at the last rendezvous
        os.register_at_fork(before=self._keep)

    def released(self) -> int:
        """The bitmask of blocks whose results this process has released."""
        return self._mine

    def set_released(self, masks: Sequence[int]) -> None:
        """Takes the masks of all processes, from the headers of a rendezvous."""
        free = masks[0]
        for mask in masks[1:]:
            free &= mask
        self._free = free

    def begin(self, columns: Columns) -> Layout:
        """Stages these arrays before the rendezvous, if all of them have room; see `sum`."""
        layout = Layout(columns)
        halves, chunk = self._halves(layout)
        if halves == 1 and self._staging is not None and self._size * layout.replicas * chunk <= self._staging.asked:
            # Nobody reads any more what was staged for the last sum: all have seen its end.
            self._copy(layout, self._memory(layout), 0, layout.total, 0)
            layout.staged = True
        return layout

    def sum(self, layout: Layout, ordered: bool) -> tuple[list[HostArray], int]:
        """Adds up the arrays of each column, of all processes.

        Args:
            layout: what `begin` has returned before the rendezvous.
            ordered: whether they must be added from left to right.

        Returns:
            The sums, and the floating-point errors that any process has seen.
        """
        if not self._gave_up:
            try:
                block, number = self._result(layout.total)
                staging = self._stage(layout)
            except NoSharedMemory as error:
                self._give_up(layout.total, error)
            else:
                with Noted() as noted:
                    self._add(layout, staging, block.shared)
                bits = self._agree(noted.bits)  # and all slices are there
                return self._results(layout, block, number), bits
        return self._messages.sum(layout, ordered)

    def together(self, nbytes: int, write: Callable[[Bytes], object]) -> Bytes | None:
        """Bytes that all processes have, of which each writes some; they call this together.

        Args:
            nbytes: how many, the same on all.
            write: writes this process's part of them.

        Returns:
            An array, to be frozen, or None where the processes of all workers cannot share so much memory.
        """
        if self._gave_up:
            return None
        try:
            block, number = self._result(nbytes)
        except NoSharedMemory as error:
            self._give_up(nbytes, error)
            return None
        write(block.shared[:nbytes])
        self._barrier()
        return block.shared[:nbytes].copy() if number is None else self._taken(block, number, nbytes)

    def _give_up(self, nbytes: int, error: NoSharedMemory) -> None:
        # All processes do.  Results that are still in use keep their blocks alive.
        self._gave_up = True
        self._staging = self._copied = None
        self._blocks = []
        if self._rank == 0:
            call_site.warn(f"sums are sent from now on, which is slower: the processes cannot share {nbytes} bytes of "
                           f"memory ({error})")

    def _copy(self, layout: Layout, staging: npt.NDArray[np.uint8], start: int, stop: int, half: int) -> None:
        # Nothing is staged for the slice that this process adds itself.
        low, high = layout.slice(start, stop, self._rank, self._size)
        for first, end in ((start, low), (high, stop)):
            layout.copy(first, end, staging[self._rank, half], start)

    def _add(self, layout: Layout, staging: npt.NDArray[np.uint8], result: Bytes) -> None:
        for turn, start in enumerate(range(0, layout.total, staging.shape[-1])):
            stop = min(start + staging.shape[-1], layout.total)
            half = turn % 2
            if not layout.staged:
                self._copy(layout, staging, start, stop, half)
                # A half is written again only after the next barrier, when all have read it.
                self._barrier()
            low, high = layout.slice(start, stop, self._rank, self._size)
            blocks = [None if rank == self._rank else staging[rank, half] for rank in range(self._size)]
            layout.add(low, high, blocks, start, result)

    def _barrier(self) -> None:
        self._wait(self._comm.Ibarrier())

    def _results(self, layout: Layout, block: Block, number: int | None) -> list[HostArray]:
        if number is None:
            return [frozen(view.copy()) for view in layout.views(block.shared)]
        return layout.views(self._taken(block, number, layout.total))

    def _taken(self, block: Block, number: int, nbytes: int) -> Bytes:
        # A result that stays where it is until nobody holds it any more.
        self._mine &= ~(1 << number)
        root = np.frombuffer(block.own.data[:nbytes], np.uint8)
        root.flags.writeable = False
        weakref.finalize(root, self._release, number, block, nbytes)
        return root

    def _release(self, number: int, block: Block, nbytes: int) -> None:
        block.renew(nbytes)
        self._mine |= 1 << number

    def _keep(self) -> None:
        for number, block in enumerate(self._blocks):
            if not self._mine >> number & 1:
                block.keep()

    def _result(self, nbytes: int) -> tuple[Block, int | None]:
        # Its number is None where results are copied out.  All processes have the same mask, so they choose the same.
        free = [number for number in range(_BLOCKS) if self._free >> number & 1]
        if nbytes <= _COPIED or not free:
            if self._copied is None or self._copied.asked < nbytes:
                self._copied = self._allocate(max(nbytes, _COPIED))
            return self._copied, None
        fitting = [(block.asked, number) for number, block in enumerate(self._blocks)
                   if number in free and block.asked >= nbytes]
        if fitting:
            _, number = min(fitting)
        else:
            number = free[0]
            self._blocks[number:number + 1] = [self._allocate(nbytes)]
        return self._blocks[number], number

    def _halves(self, layout: Layout) -> tuple[int, int]:
        # Into how many parts a process's part of the staged bytes is divided, and the bytes of each.
        room, total = self._room // layout.replicas, max(layout.total, 1)
        return (1, aligned(total)) if total <= room else (2, aligned(room // 2))

    def _stage(self, layout: Layout) -> npt.NDArray[np.uint8]:
        halves, chunk = self._halves(layout)
        part = halves * layout.replicas * chunk  # of a process, the same on hosts with different numbers of processes
        if self._staging is None or self._staging.asked < self._size * part:
            # No more than is needed, because all of it is allocated, and not for every sum that is a little larger.
            step = max((1 << (part - 1).bit_length()) // 8, _ALIGN)
            self._staging = self._allocate(self._size * -(-part // step) * step)
        return self._memory(layout)

    def _memory(self, layout: Layout) -> npt.NDArray[np.uint8]:
        # [process, half, replica, byte]
        assert self._staging is not None
        halves, chunk = self._halves(layout)
        shape = self._size, halves, layout.replicas, chunk
        return self._staging.shared[:math.prod(shape)].reshape(shape)

    def _allocate(self, nbytes: int) -> Block:
        return shared_memory.allocate(nbytes, self._rank, self._size, self._exchange)


class MessageReducer:
    """Sums in which processes send each other slices."""

    def __init__(self, mpi: MPI, comm: Communicator, wait: Wait, agree: Agree) -> None:
        self._mpi = mpi
        self._comm = comm
        self._wait = wait
        self._agree = agree
        self._size = comm.Get_size()

    def released(self) -> int:
        """No blocks are shared."""
        return 0

    def set_released(self, masks: Sequence[int]) -> None:
        """No blocks are shared."""

    def together(self, nbytes: int, write: Callable[[Bytes], object]) -> Bytes | None:
        """No memory is shared."""
        return None

    def begin(self, columns: Columns) -> Layout:
        """Stages nothing before the rendezvous."""
        return Layout(columns)

    def sum(self, layout: Layout, ordered: bool) -> tuple[list[HostArray], int]:
        """See `SharedMemoryReducer.sum`."""
        by_mpi = not ordered and all(column[0].dtype.char in _ADDED_BY_MPI for column in layout.columns)
        with Noted() as noted:
            totals = self._unordered(layout.columns) if by_mpi else self._ordered(layout)
        return totals, self._agree(noted.bits)

    def _unordered(self, columns: Columns) -> list[HostArray]:
        totals, waiting = [], []
        for column in columns:
            total = ordered_sum(column, np.empty_like(column[0]))
            totals.append(total)
            flat = total.reshape(-1)
            step = max(_CHUNK // total.itemsize, 1)
            for start in range(0, flat.size, step):
                waiting.append(self._comm.Iallreduce(self._mpi.IN_PLACE, flat[start:start + step], self._mpi.SUM))
        for request in waiting:
            self._wait(request)
        return [frozen(total) for total in totals]

    def _ordered(self, layout: Layout) -> list[HostArray]:
        size = self._size
        slices = [layout.slice(0, layout.total, rank, size) for rank in range(size)]
        each = slices[0][1]
        sent = np.empty((size, layout.replicas, each), np.uint8)
        for rank, (start, stop) in enumerate(slices):
            layout.copy(start, stop, sent[rank], start)
        received = np.empty_like(sent)
        self._wait(self._comm.Ialltoall(sent, received))
        start, stop = slices[self._comm.Get_rank()]
        result = np.empty(size * each, np.uint8)
        layout.add(start, stop, list(received), start, result)
        self._wait(self._comm.Iallgather(self._mpi.IN_PLACE, result))
        return [frozen(view) for view in layout.views(result)]
