"""Workers that are processes started by `mpiexec` or `srun`: collectives through mpi4py.

Every collective begins with one small all-gather, the rendezvous, in which each worker sends a block of 256 bytes: a
header, and behind it the data where they fit.  So a scalar `all_reduce` is one call of MPI.  The header has

* a sequence number and a hash of the call, which must be the same on all workers;
* a bitmask of the buffers for results that this worker has released (`reduce`);
* the size of the data.

MPI checks nothing of this: workers that make different calls hang, crash, or add what does not belong together.  All
workers see the same headers, so all of them see the same difference; then they exchange full descriptions and raise
the same error.  No data have moved by then, and the program can go on.

How data travel, by their size: in the block; to 64 KiB to all workers, each of which adds everything up, through memory
that all share before the rendezvous, or by messages after it; beyond, each worker adds a slice (`reduce`).  The
additions and their order are the same in all of them.

No wait is without a limit.  There is no blocking call: every request is polled with `Test`.  While each process has a
core it spins for half a millisecond, which takes as long as a blocking call (3 us for a scalar).  From then on, and
where processes share cores, it yields after every look: spinning would keep the very process from running that is
waited for (2 ms), or be held against this one when other programs want the core that it needs next.  Every 50 ms it
looks whether a process has died or another worker has given up (`failure`).  From the first of these on it rests for
0.1 ms between two questions: a wait that long is for a worker that computes, which yielding alone would keep from half
of a core.  Time in which this process itself was stopped does not count, and a request that is complete by then is.

MPI's own fault tolerance is not used.  In MPICH its calls are missing, or do not return after a death.  OpenMPI started
with `--with-ft ulfm` raises by itself, which `_wait` translates.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import math
import os
import pickle
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from refdist import errors, journal
from refdist.array.convert import frozen
from refdist.array.float_errors import report, reporting
from refdist.array.ordered_sum import ordered_sum
from refdist.array.types import Array
from refdist.backends.mpi import between_hosts, failure, gather, greeting, mpi_types, supervised
from refdist.backends.mpi.messages import MPIPeers
from refdist.backends.mpi.mpi_types import Bytes, HostArray, Prepared, Request
from refdist.backends.mpi.reduce import aligned
from refdist.backends.mpi.shared_memory import NoSharedMemory, Slots
from refdist.backends.mpi.start import limit, started
from refdist.backends.mpi.supervisor import TIMEOUT_VARIABLE
from refdist.backends.mpi.watch import Watch
from refdist.core import agreement, checks, history, saved
from refdist.core.agreement import NOTHING_TO_COMPARE, CollectiveCall, Signature
from refdist.core.call_site import Site
from refdist.workers.connection import ConnectableTransport, Group
from refdist.workers.launcher import RESTARTS_VARIABLE, Task, launched
from refdist.workers.transport import Columns, compare, concatenated, header_of, on_every_worker

SUMS_VARIABLE = "REFDIST_SUMS"  # "sent" is the way through MPI alone, also on one host

# Header from each rank: sequence number, hash of the call (both must match on all ranks), bitmask of released buffers,
# payload size.
_HEADER = struct.Struct("<QQQQ")
_BLOCK = 256
_INLINE = _BLOCK - _HEADER.size
_SMALL = 1 << 16  # bytes of a worker's arrays that all others receive at a rendezvous
_UNCHECKED = 0
_LOOK = 0.05  # seconds between two looks at the others
_REST = 1e-4  # seconds between two questions to MPI, once the first look has passed
_SPIN = 5e-4  # seconds in which it is asked without a pause
_LONGEST_LOOK = 1.0  # of which at most so many count: in the rest, this process was stopped, not waiting

T = TypeVar("T")
P = ParamSpec("P")


def _whole(collective: Callable[Concatenate[MPITransport, CollectiveCall, P], T]
           ) -> Callable[Concatenate[MPITransport, CollectiveCall, P], T]:
    """Makes a method one that begins only where no other collective of this worker is under way, or was broken off.

    Raises:
        RD09: one is.  RD22: one was.
    """

    @functools.wraps(collective)
    def alone(self: MPITransport, call: CollectiveCall, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._alone._is_owned():  # type: ignore[attr-defined]
            raise self._overlapping(call)
        begun: int | None = None
        # An interrupt may come after each call, and what that has returned is then lost.  So `finally` gives up the
        # lock whether it was taken or not, with its first call; another thread's stays that one's.
        try:
            if not self._alone.acquire(blocking=False):
                raise self._overlapping(call)
            begun = self._count
            if self._broken_off:
                raise errors.error("RD22", str(call), self._broken_off, "Let the program end, and start the job again "
                                   "from its last checkpoint.")
            return collective(self, call, *args, **kwargs)
        except BaseException as error:
            if begun is not None and self._count != begun and self._exchanged != self._count:
                self._break_off(error)
            raise
        finally:
            try:  # noqa: SIM105 - that would be a call
                self._alone.release()
            except RuntimeError:
                pass

    return alone


class MPITransport(ConnectableTransport):
    """This process and those started together with it."""

    shares_results = False

    def __init__(self, mpi: mpi_types.MPI, watch: Watch, timeout: float) -> None:
        self._mpi = mpi
        # Making a communicator spins until all take part, and another worker may still read its data.
        arrived = mpi.COMM_WORLD.Ibarrier()
        while not arrived.Test():
            time.sleep(_REST)
        self._comm = mpi.COMM_WORLD.Dup()
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()
        self._name = f"worker {self.rank}"
        self._watch = watch
        self.timeout = timeout
        self._ends_mpi = False
        self._process = os.getpid()
        self._level = _level()
        self._count = 0
        # The last call of which the others wait for nothing more, noted before what may then raise an error.
        self._exchanged = 0
        self._alone = threading.RLock()  # held while a collective is under way
        self._broken_off = ""  # which one was, and by what
        self._fingerprints: dict[tuple[object, ...], int] = {}
        self._last: dict[int, tuple[Site, Signature, str, int]] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._out = bytearray(_BLOCK)
        self._in = bytearray(_BLOCK * self.size)
        self._headers = struct.Struct("<" + f"QQQQ{_INLINE}x" * self.size)
        self._inline = [self._in] * self.size, range(_HEADER.size, _BLOCK * self.size, _BLOCK)
        self._scalars: dict[np.dtype[np.generic], HostArray] = {}  # by their dtype, those in the blocks of all workers
        node = self._comm.Split_type(mpi.COMM_TYPE_SHARED)
        # Together, because a launcher may have bound each process to a core of its own.
        cores = len(set[int]().union(*node.allgather(os.sched_getaffinity(0))))
        self._spin = node.Get_size() <= cores
        one_host = node.Get_size() == self.size
        # In this place versions before greetings tell each other what `listen` returns.
        greeting.compare(self._exchange_bytes(greeting.own()), self.rank)
        # The rendezvous is the same exchange each time, which MPI prepares once.  One that was given up may never end.
        self._prepared: Prepared | None = None
        with contextlib.suppress(NotImplementedError, mpi.Exception):
            self._prepared = self._comm.Allgather_init(self._out, self._in)
        everyone = self._exchange_raw(watch.listen(one_host))
        if one_host:
            watch.join(everyone, lambda _: None)
        else:
            watch.join(everyone, supervised.hand_over, self._stand_in, supervised.lost)
        sent = _sent()
        self._reducer = between_hosts.make(mpi, self._comm, node, self._exchange_raw, self._wait, self._of_all, sent)
        self._slots: Slots | None = None
        if one_host and not sent:
            with contextlib.suppress(NoSharedMemory):
                self._slots = Slots(self.rank, self.size, self._exchange_raw)
        node.Free()

    @classmethod
    def group(cls) -> Group | None:
        launch = launched()
        return None if launch is None else Group(launch.rank, launch.size)

    @classmethod
    def connect(cls, timeout: float | None) -> MPITransport:
        seconds = limit(timeout)
        with started(seconds) as (mpi, ends_here):
            transport = cls(mpi, Watch(mpi.COMM_WORLD.Get_rank()), seconds)
            transport._ends_mpi = ends_here
        atexit.register(transport.finish)
        return transport

    @classmethod
    def alone(cls) -> None:
        if supervised.attach():
            saved.hand_over(supervised.saved)

    @classmethod
    def gather(cls, rank: int, tasks: Mapping[Task, str], timeout: float | None) -> bool:
        gather.gather(rank, tasks, limit(timeout))
        return True

    @classmethod
    def meet(cls, task: Task, cluster: Mapping[str, Sequence[int]]) -> MPIPeers:
        return MPIPeers(task, cluster)

    # Waiting.

    def _wait(self, request: Request) -> None:
        watch = self._watch
        watch.waits, watch.looks = True, watch.looks + 1
        try:
            self._poll(request)
        except self._mpi.Exception as error:
            # OpenMPI reports a dead process itself.
            watch.speaks()
            watch.told(self._failed())
            raise self._lost() from error
        watch.waits = False

    def _overlapping(self, call: CollectiveCall) -> errors.RefdistError:
        return errors.error("RD09", str(call), f"call {self._count} of this worker, {self._watch.status()}, has not "
                            "ended: another thread has made it, or a signal handler interrupts it",
                            "Make the collective calls of a worker one after another, in one thread.")

    def _break_off(self, error: BaseException) -> None:
        # The others would take what this worker contributes to the next call for a part of this one.
        self._broken_off = (f"{type(error).__name__} has broken off call {self._count} of this worker, "
                            f"{self._watch.status()}, which the other workers make")
        if isinstance(error, errors.RefdistError):  # which the program may have caught, and not shown
            self._broken_off += f":\n{error}".removesuffix(".")

    def _poll(self, request: Request) -> None:
        if request.Test():
            return
        spin, test, rest = self._spin, request.Test, 0.0
        waited, before = 0.0, time.monotonic()
        spins_until = before + _SPIN
        while True:
            for _ in range(64):
                if test():
                    return
                if rest or not spin:
                    time.sleep(rest)
            now = time.monotonic()
            spin = spin and now < spins_until
            if now > before + _LOOK:
                waited, before = waited + min(now - before, _LONGEST_LOOK), now
                self._watch.looks += 1
                rest = _REST
                if waited > self.timeout or self._watch.is_in_vain():
                    if test():
                        return
                    self._watch.speaks()
                    raise self._lost()

    def _stand_in(self) -> None:
        # Reports the error as if the program, which is stuck in a call of MPI, had raised it.
        error = self._lost()
        sys.excepthook(type(error), error, None)

    def _failed(self) -> list[int]:
        # Workers that MPI takes for dead.
        try:
            return self._comm.Get_failed().Translate_ranks(None, self._comm.Get_group())
        except (self._mpi.Exception, NotImplementedError):
            return []

    def _lost(self) -> errors.RefdistError:
        report = self._watch.report()
        gone = self._watch.dead()  # now that the others have been asked
        supervised.tell("absent", ranks=self._watch.absent, dead=gone)
        if gone:
            restarts = ("" if RESTARTS_VARIABLE in os.environ else
                        "; `python -m refdist launch --max-restarts 3` starts a job again, from its last checkpoint")
            problem, fix = f"{agreement.names(gone, 'worker')} died", (
                f"Look at what the workers that died printed last{restarts}.")
        else:
            problem, fix = f"not all workers arrived within {self.timeout:g} s", (
                "Look at the lines of the workers that are missing; to wait longer, set "
                f"CommunicationOptions(timeout_seconds=...) or {TIMEOUT_VARIABLE}.")
        return history.explained(on_every_worker(errors.error(
            "RD01", self._watch.status(), f"{problem}:\n{report}", fix)))

    # Rendezvous.

    def _rendezvous(self, call: CollectiveCall, data: bytes | Bytes = b"") -> tuple[int, ...]:
        """Compares the call with those of all other workers, which receive the data that fit into a block or a slot.

        Args:
            call: what is compared.
            data: what is sent; an array is a part of this worker's slot, in which they lie already.

        Returns:
            The size of each worker's data.
        """
        count = self._count + 1
        self._watch.entered(count, call)
        journal.history.value.append((self._name, call.kind, call.signature, call.call_site))
        out, nbytes, fingerprint = self._out, len(data), self._fingerprint(call)
        _HEADER.pack_into(out, 0, count, fingerprint, self._reducer.released(), nbytes)
        if nbytes <= _INLINE:
            out[_HEADER.size:_HEADER.size + nbytes] = data
        elif type(data) is bytes and self._slots is not None and nbytes <= Slots.nbytes:
            self._slots.own(count)[:nbytes] = np.frombuffer(data, np.uint8)
        self._count = count  # what is interrupted before has sent nothing, and the next call takes its place
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            self._wait(self._comm.Iallgather(out, self._in))
        else:
            prepared.Start()
            self._wait(prepared)
            self._prepared = prepared
        fields = self._headers.unpack_from(self._in)
        if fields[::4] != (count,) * self.size or fields[1::4] != (fingerprint,) * self.size:
            raise history.explained(self._difference(call))
        self._reducer.set_released(fields[2::4])
        return fields[3::4]

    def _fingerprint(self, call: CollectiveCall) -> int:
        if self._level == "off":
            return _UNCHECKED
        site, signature = call.call_site, call.signature
        last = self._last.get(id(site))  # calls of one place have one site, which is kept here, so its id is not reused
        if last is not None and last[1] is signature and last[2] == call.kind:
            return last[3]
        key = (call.kind, signature, tuple(map(id, site)))
        if self._level == "first":
            if key[2] in self._seen:
                return _UNCHECKED
            self._seen.add(key[2])
        known = self._fingerprints.get(key)
        if known is None:
            text = repr(header_of(call))
            digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1
            known = self._fingerprints[key] = digest
        if self._level == "all":
            self._last[id(site)] = site, signature, call.kind, known
        return known

    def _difference(self, call: CollectiveCall) -> errors.RefdistError:
        headers = self._exchange_raw(header_of(call))
        self._exchanged = self._count
        try:
            compare(headers)
        except errors.RefdistError as error:
            return error
        return on_every_worker(errors.error(
            "RD02", call.kind, "the workers have made different numbers of collective calls: worker "
            f"{self.rank} is at call {self._count}, {call}"))

    def _exchange_raw(self, value: T) -> list[T]:
        return [pickle.loads(part) for part in self._exchange_bytes(pickle.dumps(value))]

    def _exchange_bytes(self, data: bytes) -> list[bytes]:
        sizes = np.zeros(self.size, np.int64)
        self._wait(self._comm.Iallgather(np.array([len(data)], np.int64), sizes))
        return [part.tobytes() for part in self._gather_bytes(np.frombuffer(data, np.uint8), sizes.tolist())]

    def _gather_bytes(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        # Parts of one array, one after another.
        if min(sizes) == max(sizes):  # a third less time than the general way takes at 64 KiB
            equal = np.empty((self.size, sizes[0]), np.uint8)
            self._wait(self._comm.Iallgather(data, equal))
            return list(equal)
        ends = np.cumsum(sizes, dtype=np.int64)
        everything = np.empty(ends[-1], np.uint8)
        self._wait(self._comm.Iallgatherv(data, [everything, (np.array(sizes, np.int64), ends - sizes)]))
        return np.split(everything, ends[:-1])

    def _all(self, call: CollectiveCall, data: bytes) -> Sequence[bytearray | memoryview]:
        """The data of all workers; nothing more is exchanged in this call."""
        everyone = self._data(data, self._rendezvous(call, data))
        self._exchanged = self._count
        return everyone

    def _data(self, data: bytes | Bytes, sizes: tuple[int, ...]) -> Sequence[bytearray | memoryview]:
        # Of all workers, after the rendezvous.
        if max(sizes) <= (_INLINE if self._slots is None else Slots.nbytes):
            return [self._received(rank, size) for rank, size in enumerate(sizes)]
        parts = self._gather_bytes(np.frombuffer(data, np.uint8), sizes)
        return [part.data for part in parts]

    def _received(self, rank: int, size: int) -> bytearray | memoryview:
        if self._slots is not None and size > _INLINE:
            return self._slots.found(self._count, rank, size)
        first = rank * _BLOCK + _HEADER.size
        return self._in[first:first + size]

    # The contract.

    @_whole
    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        with journal.span("exchange", called=call, contributed=value):
            return self._objects(call, value)

    def _objects(self, call: CollectiveCall, value: object) -> list[Any]:
        return [pickle.loads(part) for part in self._all(call, pickle.dumps(value))]

    @_whole
    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        parts = _numpy(columns)
        with journal.span("exchange", called=call, contributed=parts):
            nbytes = sum([part.nbytes for column in parts for part in column])
            if nbytes <= _SMALL:
                return self._sum_small(call, parts, nbytes)
            layout = self._reducer.begin(parts)
            self._rendezvous(call)
            totals, bits = self._reducer.sum(layout, ordered)
            self._exchanged = self._count
            report(bits, "add")
            return totals

    def _of_all(self, bits: int) -> int:
        # Each worker has added a part of the sums.
        everyone = np.empty(self.size, np.uint8)
        self._wait(self._comm.Iallgather(np.array([bits], np.uint8), everyone))
        return int(np.bitwise_or.reduce(everyone))

    def _sum_small(self, call: CollectiveCall, columns: list[list[HostArray]], nbytes: int) -> list[HostArray]:
        scalar: HostArray | None = None
        if len(columns) == 1 and len(columns[0]) == 1 and not columns[0][0].ndim and columns[0][0].dtype.kind == "f":
            scalar = columns[0][0]
        data = self._written(b"", columns, nbytes) if scalar is None else scalar.tobytes()
        sizes = self._rendezvous(call, data)
        if nbytes <= _INLINE and sizes == (nbytes,) * self.size:
            self._exchanged = self._count
            return _added(columns, *self._inline) if scalar is None else [
                _scalars_added(self._scalars_of(scalar.dtype))]
        everyone = self._data(data, sizes)
        self._exchanged = self._count
        return _added(columns, everyone, [0] * self.size)

    def _scalars_of(self, dtype: np.dtype[np.generic]) -> HostArray:
        scalars = self._scalars.get(dtype)
        if scalars is None:
            scalars = self._scalars[dtype] = np.ndarray((self.size,), dtype, self._in, _HEADER.size, (_BLOCK,))
        return scalars

    def _written(self, head: bytes, columns: list[list[HostArray]], nbytes: int) -> bytes | Bytes:
        # What the next rendezvous sends, a head and arrays behind it; in this worker's slot where they need it and fit.
        start = aligned(len(head))
        if start + nbytes <= _INLINE or self._slots is None or start + nbytes > Slots.nbytes:
            return b"".join([head.ljust(start, b"\0"), *[part.tobytes() for column in columns for part in column]])
        slot = self._slots.own(self._count + 1)[:start + nbytes]
        slot[:len(head)] = np.frombuffer(head, np.uint8)
        for column in columns:
            for part in column:
                slot[start:start + part.nbytes] = part.reshape(-1).view(np.uint8)
                start += part.nbytes
        return slot

    @_whole
    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        parts = _numpy(columns)
        with journal.span("exchange", called=call, contributed=parts):
            return self._concatenated(call, parts, axis)

    def _concatenated(self, call: CollectiveCall, parts: list[list[HostArray]], axis: int) -> list[Any]:
        shapes = [[part.shape for part in column] for column in parts]
        nbytes = sum([part.nbytes for column in parts for part in column])
        text = any(column[0].dtype.hasobject or column[0].dtype.kind in "US" for column in parts)
        # Texts are sent with their shapes, and so are arrays that fit behind them.
        small = not text and nbytes <= _SMALL
        head = pickle.dumps((shapes, parts if text else None, nbytes if small else -1))
        data = self._written(head, parts, nbytes) if small else head
        received = self._data(data, self._rendezvous(call, data))
        if text:
            self._exchanged = self._count
        everyone = [pickle.loads(theirs) for theirs in received]
        all_small = all(behind >= 0 for *_, behind in everyone)
        if all_small:
            self._exchanged = self._count
        if text:
            return concatenated([theirs for _, theirs, _ in everyone], axis)
        of_all = [of for of, *_ in everyone]
        if all_small:
            return concatenated([_arrays(theirs, len(theirs) - behind, parts, of) for theirs, (of, _, behind)
                                 in zip(received, everyone, strict=True)], axis)
        if joined := self._joined(parts, of_all, axis):
            return joined
        shapes_of = [[theirs[i] for theirs in of_all] for i in range(len(parts))]
        gathered = [self._gather_column(column, theirs) for column, theirs in zip(parts, shapes_of, strict=True)]
        self._exchanged = self._count
        return [_along(data, theirs, column[0].dtype, axis)
                for column, data, theirs in zip(parts, gathered, shapes_of, strict=True)]

    def _joined(self, parts: list[list[HostArray]], shapes: Sequence[list[list[tuple[int, ...]]]],
                axis: int) -> list[HostArray]:
        # Each worker writes its arrays to their places in results that all of them share; [] where they cannot.
        places, end = [], 0
        for i, column in enumerate(parts):
            dtype, everyone = column[0].dtype, [shape for theirs in shapes for shape in theirs[i]]
            before, after = everyone[0][:axis], everyone[0][axis + 1:]
            if any(shape[:axis] != before or shape[axis + 1:] != after for shape in everyone):
                return []  # of workers that compare no calls
            first = sum(shape[axis] for theirs in shapes[:self.rank] for shape in theirs[i])
            whole = (*before, sum(shape[axis] for shape in everyone), *after)
            nbytes = math.prod(whole) * dtype.itemsize
            places.append((column, first, end, end + nbytes, dtype, whole))
            end = aligned(end + nbytes)

        def write(everything: Bytes) -> None:
            for column, at, low, high, dtype, whole in places:
                result = everything[low:high].view(dtype).reshape(whole)
                for part in column:
                    stop = at + part.shape[axis]
                    result[(slice(None),) * axis + (slice(at, stop),)] = part
                    at = stop

        everything = self._reducer.together(max(end, 1), write)
        return [] if everything is None else [
            frozen(everything[low:high].view(dtype).reshape(whole)) for *_, low, high, dtype, whole in places]

    def _gather_column(self, column: list[HostArray], shapes: list[list[tuple[int, ...]]]) -> list[Bytes]:
        # The arrays of each worker, one after the other.
        dtype = column[0].dtype
        flat = [part.reshape(-1).view(np.uint8) for part in column]
        return self._gather_bytes(flat[0] if len(flat) == 1 else np.concatenate(flat),
                                  [sum(map(math.prod, theirs)) * dtype.itemsize for theirs in shapes])

    @_whole
    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        with journal.span("exchange", called=call, contributed=array):
            return self._from_first(call, array)

    def _from_first(self, call: CollectiveCall, array: Array) -> Any:
        part = np.asarray(array, order="C")
        dtype, shape, nbytes = part.dtype, part.shape, part.nbytes
        if dtype.hasobject or dtype.kind in "US":
            return frozen(self._objects(call, np.array(part))[0])
        if nbytes <= (_INLINE if self._slots is None else _SMALL):
            self._rendezvous(call, self._written(b"", [[part]], nbytes) if self.rank == 0 else b"")
            return frozen(np.ndarray(shape, dtype, self._received(0, nbytes)).copy())
        self._rendezvous(call)
        data = part.reshape(-1).view(np.uint8)

        def write(everything: Bytes) -> None:
            if self.rank == 0:
                everything[...] = data

        everything = self._reducer.together(nbytes, write)
        if everything is None:
            everything = data.copy()
            self._wait(self._comm.Ibcast(everything, 0))
        return frozen(everything.view(dtype).reshape(shape))

    @_whole
    def _end(self, call: CollectiveCall) -> None:
        self._rendezvous(call)

    def finish(self) -> None:
        """Tells the others that this worker's program has ended; an error unless theirs have too."""
        if os.getpid() != self._process:  # it is no worker what a worker has forked
            return
        try:
            self._end(CollectiveCall("the end of the program", NOTHING_TO_COMPARE, site=()))
        except errors.RefdistError as error:
            failure.end_too_early(self._name, error, self._mpi.COMM_WORLD.Abort)
        except KeyboardInterrupt:
            failure.interrupted(self._mpi.COMM_WORLD.Abort)
        else:
            supervised.tell("finished")
            if self._ends_mpi:
                self._mpi.Finalize()


def _add(columns: list[list[HostArray]], data: Sequence[bytearray | memoryview],
         starts: Sequence[int]) -> list[HostArray]:
    # Of each column the sum of the arrays of all workers, whose data lie one column after another, from a start on.
    totals, before = [], 0
    for column in columns:
        first = column[0]
        shape, dtype, step = first.shape, first.dtype, first.nbytes
        totals.append(ordered_sum([np.ndarray(shape, dtype, theirs, start + before + i * step)
                                   for theirs, start in zip(data, starts, strict=True) for i in range(len(column))]))
        before += step * len(column)
    return totals


def _arrays(data: bytearray | memoryview, start: int, columns: list[list[HostArray]],
            shapes: list[list[tuple[int, ...]]]) -> list[list[HostArray]]:
    # Those of a worker, which lie in its data one after another; of the dtypes of this one's.
    arrays: list[list[HostArray]] = []
    for column, theirs in zip(columns, shapes, strict=True):
        dtype = column[0].dtype
        arrays.append([])
        for shape in theirs:
            arrays[-1].append(np.ndarray(shape, dtype, data, start))
            start += math.prod(shape) * dtype.itemsize
    return arrays


def _add_scalars(scalars: HostArray) -> HostArray:
    # From left to right, as `ordered_sum` does, which knows what to keep of several NaNs.
    total: Any = scalars[0]
    for i in range(1, len(scalars)):
        total = total + scalars[i]
    return frozen(np.asarray(total)) if total == total else ordered_sum(
        [scalars[i:i + 1].reshape(()) for i in range(len(scalars))])


_added = reporting("add", _add)
_scalars_added = reporting("add", _add_scalars)


def _numpy(columns: Columns) -> list[list[HostArray]]:
    # Contiguous and in the byte order of the machine, which the results have, too.
    return [[_as_sent(part) for part in column] for column in columns]


def _as_sent(part: Array) -> HostArray:
    if type(part) is np.ndarray and part.flags.c_contiguous and part.dtype.isnative:  # nearly always
        return part
    array = np.asarray(part, order="C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _along(gathered: list[Bytes], shapes: list[list[tuple[int, ...]]], dtype: np.dtype[np.generic],
           axis: int) -> HostArray:
    # The arrays of all workers, joined along an axis.
    first_shape, *other_shapes = (shape for theirs in shapes for shape in theirs)
    if math.prod(first_shape[:axis]) == 1:
        # Nothing comes before the axis, so they already lie one after another.
        length = sum(shape[axis] for shape in (first_shape, *other_shapes))
        everything: Any = gathered[0].base
        result: HostArray = frozen(everything.view(dtype).reshape(*first_shape[:axis], length, *first_shape[axis + 1:]))
        return result
    return concatenated([[_unpacked(data, theirs, dtype)] for data, theirs in zip(gathered, shapes, strict=True)],
                        axis)[0]


def _unpacked(data: Bytes, shapes: Sequence[tuple[int, ...]], dtype: np.dtype[np.generic]) -> list[HostArray]:
    ends = np.cumsum([math.prod(shape) * dtype.itemsize for shape in shapes])
    return [part.view(dtype).reshape(shape) for part, shape in zip(np.split(data, ends[:-1]), shapes, strict=True)]


def _level() -> str:
    return checks.asked()[2]


def _sent() -> bool:
    way = os.environ.get(SUMS_VARIABLE, "shared")
    if way not in ("shared", "sent"):
        raise errors.error("RD34", f"environment variable {SUMS_VARIABLE}={way!r}", "it is not a way of adding",
                           "Write shared or sent.")
    return way == "sent"
