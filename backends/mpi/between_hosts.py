"""Sums over several hosts, left to right over the replica ids: in shared memory on each, and from host to host.

The order of additions says what can travel.  Over hosts with workers {a, b} and {c, d} the sum is ((a + b) + c) + d, so
the second host cannot add c + d before it has a + b.  It goes on where the first one ended: the running sum travels
from host to host, and the last one has the total, which travels round to the others.  A host sends and receives the
arrays at most twice, however many workers it has.

Everything is cut into chunks, which follow each other: while the second host adds to one, the first adds up the next,
and totals travel beside the running sums of later chunks.  Within a host each worker adds a slice of the chunk, and
sends it itself: such a lane is a ring of workers, one on each host, who receive from the one before and send to the
next.  On a host with more workers than another the last ones only stage their arrays.

A slice is received where the result will be, in memory that the host's workers share, is added to and sent from there.
That needs no other copy, because the total can come back only after the running sum has been sent.  No message is
waited for while there is something else to do: totals are sequences of requests of their own (`Sequences`).

Measured on 2 cores with namespaces as hosts, 50 MB of float32, beside MPI's Allreduce, which knows no order: 1.0 of its
speed with 2 hosts of 1 worker, 1.7 with 3 of 1, 2.7 with 2 of 2; with one sender per host, 2.1.  Over links of 1 Gbit/s
2 hosts of 2 have 1.2; the all-to-all of slices (`reduce.MessageReducer`), in which every worker sends, 0.6.

Not done.  Where workers are not numbered host by host the running sum would travel back and forth; such sums are left
to the `MessageReducer`.  With a single array per host and more than 2 hosts, slices sent to one adder each would load
all links alike, where here the hosts in the middle receive two arrays for 4/3 or less; it was not faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from refdist.backends.mpi.mpi_types import MPI, Bytes, Communicator, Request
from refdist.backends.mpi.reduce import Agree, Layout, MessageReducer, SharedMemoryReducer, Wait
from refdist.backends.mpi.shared_memory import Exchange

_LANE = 1 << 20  # bytes of a message
_AHEAD = 8  # messages that a worker has sent before it waits until the next one takes them
_TAGS = 1 << 15  # that MPI promises

Steps = Iterator[Request]


class Sequences:
    """Sequences of requests, as one request: each goes on as soon as its own is done."""

    def __init__(self) -> None:
        self._open: list[tuple[Steps, Request]] = []

    def add(self, steps: Steps) -> None:
        """Begins one, or goes on with it."""
        for request in steps:
            if not request.Test():
                self._open.append((steps, request))
                return

    def Test(self) -> bool:  # noqa: N802 - as that of MPI's requests
        """Goes on with those whose requests are done; whether all have come to their end."""
        before, self._open = self._open, []
        for steps, request in before:
            if request.Test():
                self.add(steps)
            else:
                self._open.append((steps, request))
        return not self._open


class BetweenHostsReducer(SharedMemoryReducer):
    """Sums through memory on each host and messages between them."""

    def __init__(self, comm: Communicator, node: Communicator, exchange: Exchange, wait: Wait, agree: Agree,
                 messages: MessageReducer) -> None:
        super().__init__(node, exchange, wait, agree, messages)
        self._lanes = min(comm.allgather(self._size))
        # The workers with this one's number on each host, in the order of the hosts.
        self._ring = comm.Split(self._rank, comm.Get_rank())
        hosts, self._host = self._ring.Get_size(), self._ring.Get_rank()
        self._last = hosts - 1
        self._before, self._next = (self._host - 1) % hosts, (self._host + 1) % hosts
        self._chunk = _LANE * self._lanes

    def together(self, nbytes: int, write: Callable[[Bytes], object]) -> Bytes | None:
        """Hosts share no memory."""
        return None

    def _add(self, layout: Layout, staging: Bytes, result: Bytes) -> None:
        open_ones = Sequences()
        open_ones.add(self._chunks(layout, staging, result, open_ones))
        self._wait(open_ones)

    def _halves(self, layout: Layout) -> tuple[int, int]:
        return 2, min(self._chunk, 1 << (layout.total - 1).bit_length())

    def _chunks(self, layout: Layout, staging: Bytes, result: Bytes, beside: Sequences) -> Steps:
        sent: deque[Request] = deque()
        for turn, start in enumerate(range(0, layout.total, staging.shape[-1])):
            stop = min(start + staging.shape[-1], layout.total)
            half, tag = turn % 2, turn % _TAGS
            low, high = stop, stop  # a worker without a lane adds nothing
            if self._rank < self._lanes:
                low, high = layout.slice(start, stop, self._rank, self._lanes)
            for first, end in ((start, low), (high, stop)):
                layout.copy(first, end, staging[self._rank, half], start)
            # As within one host: a half is written again only after the next barrier, when all have read it.
            yield self._comm.Ibarrier()
            if low == high:
                continue
            slice_here = result[low:high]
            blocks = [None if rank == self._rank else staging[rank, half] for rank in range(self._size)]
            if self._host > 0:
                yield self._ring.Irecv(slice_here, self._before, tag)
                blocks.insert(0, result[None, start:stop])
            layout.add(low, high, blocks, start, result)
            sent.append(self._ring.Isend(slice_here, self._next, tag))
            if self._host < self._last:
                beside.add(self._total(slice_here, sent[-1], tag))
            if len(sent) > _AHEAD:
                yield sent.popleft()
        yield from sent

    def _total(self, part: Bytes, sent: Request, tag: int) -> Steps:
        # Of the same chunk and from the same worker as the running sum, but always after that.
        yield sent
        yield self._ring.Irecv(part, self._before, tag)
        if self._next != self._last:
            yield self._ring.Isend(part, self._next, tag)


def make(mpi: MPI, comm: Communicator, node: Communicator, exchange: Exchange, wait: Wait, agree: Agree,
         sent: bool) -> SharedMemoryReducer | MessageReducer:
    """The fastest reducer that works for these processes.

    Args:
        mpi: mpi4py.MPI.
        comm: all processes.
        node: those of this host.
        exchange: gathers a small object of each process.
        wait: waits for a request, with a limit.
        agree: see `reduce.Agree`, of all processes.
        sent: whether to use MPI alone even within a host.
    """
    messages = MessageReducer(mpi, comm, wait, agree)
    ranks = node.allgather(comm.Get_rank())
    host_by_host = all(comm.allgather(ranks == list(range(ranks[0], ranks[0] + len(ranks)))))
    if sent or not host_by_host:
        return messages
    if len(ranks) == comm.Get_size():
        return SharedMemoryReducer(comm, exchange, wait, agree, messages)

    def here_first(value: object) -> list[object]:
        # Memory is shared within a host, and whether there is enough is decided by all.
        values = exchange(value)
        return values[ranks[0]:ranks[-1] + 1] + values[:ranks[0]] + values[ranks[-1] + 1:]

    return BetweenHostsReducer(comm, node.Dup(), here_first, wait, agree, messages)
