"""NCCL communicators between GPUs, of one process or of several, and the collectives that run over them.

NCCL carries data; adding is refdist's own unless REFDIST_NCCL=fastest asks for NCCL's.  The order in which NCCL adds
depends on the number of GPUs and on the algorithm that it picks, so the bits of its sums do too.  In order means:

1. arrays of one dtype are packed into one buffer, so that many small ones are one call;
2. every rank receives its slice of every replica's buffer (grouped sends and receives, an all-to-all);
3. it adds the slices left to right over the replica ids, with the kernel that sums on one GPU;
4. the sums of the slices are gathered on all ranks (all-gather).

With one replica per GPU that moves as many bytes as a ring all-reduce does.

Invariants, most of them NCCL's:

* A thread that issues calls of several ranks does so in a group; outside of one the first call would wait for the
  others without end.  A group that was begun is ended also after an error, or every later call of this thread would be
  queued and never run.  Groups belong to the thread, so lock step does not switch replicas inside one.
* NCCL sees addresses and counts only.  Device, dtype, contiguity and lifetime of arrays are checked here or nowhere.
* Two ranks on one GPU are refused by NCCL; callers see to it that they are not.
* After an error a communicator is aborted and not used again; the next call connects a new one.
* Communicators with other processes are kept until the process ends, and freed in the order in which they were made,
  which is the same on all ranks: freeing one can wait for the other ranks.
* Nothing waits without a limit.  Connecting blocks until every rank has come and takes no limit, so it runs in a
  thread; results are waited for by polling an event, while NCCL is asked for errors that happened meanwhile.

Ranks and GPUs are known here.  A replica is a number with a rank that owns it; workers are not known.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from refdist import errors
from refdist.array.convert import frozen
from refdist.backends.gpu.cupy_types import Cupy, DeviceArray, DType, Nccl, NcclCommunicator
from refdist.backends.gpu.kernels import Job, contiguous, stored

if TYPE_CHECKING:
    from refdist.backends.gpu.backend import GPU

# dtype -> NCCL's name of it; other dtypes are always added in order.
NCCL_TYPES = {"int8": "INT8", "uint8": "UINT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
              "uint64": "UINT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32",
              "float64": "FLOAT64"}


Places: TypeAlias = Sequence[tuple[str, str]]
"""The GPU of every rank, as the names of its host and of its place on the PCI bus."""

VARIABLE = "REFDIST_NCCL"
WAYS = ("ordered", "fastest", "off")


def way() -> str:
    """How GPUs are connected, one of WAYS: in order, by NCCL's own sums, or without NCCL.

    Raises:
        RD34: REFDIST_NCCL is something else.
    """
    chosen = os.environ.get(VARIABLE) or WAYS[0]
    if chosen not in WAYS:
        raise errors.error("RD34", f"environment variable {VARIABLE}={chosen!r}", "it is not a way to connect GPUs",
                           f"Write {', '.join(WAYS[:-1])} or {WAYS[-1]}.")
    return chosen


def library() -> Nccl | None:
    """CuPy's module for NCCL; None where NCCL is not installed or not wanted."""
    nccl = _nccl()
    return nccl if nccl.available and way() != "off" else None


def _nccl() -> Nccl:
    from cupy.cuda import nccl

    module: Nccl = nccl
    return module


def is_nccl_error(error: BaseException) -> bool:
    """Whether NCCL raised it; CuPy's wrapper raises KeyError for codes it does not know."""
    return type(error).__name__ == "NcclError"


class Communicator:
    """The ranks of one NCCL communicator that are in this process.

    Attributes:
        size: ranks in all.
        here: (rank, GPU) for every rank of this process.
        limit: seconds to wait for other processes; None where all ranks are in this one.
        broken: whether it was aborted after an error.
    """

    def __init__(self, cupy: Cupy, here: Sequence[tuple[int, int]], size: int, comms: Sequence[NcclCommunicator],
                 limit: float | None = None) -> None:
        self.cupy = cupy
        self.here = list(here)
        self.size = size
        self.limit = limit
        self.broken = False
        self._comms = list(comms)

    def group(self, calls: Callable[[int, int, NcclCommunicator, int], None], what: str) -> None:
        """Issues `calls(rank, gpu, communicator, stream)` for every rank of this process, as one NCCL group.

        Args:
            calls: issues the calls of one rank.
            what: the operation, for error messages.

        Raises:
            RD28: NCCL reports an error, or has done so before.
        """
        nccl, cuda = _nccl(), self.cupy.cuda
        if self.broken:
            raise errors.error("RD28", what, "the communicator was given up after an error")
        try:
            nccl.groupStart()
            try:
                for (rank, gpu), comm in zip(self.here, self._comms, strict=True):
                    with cuda.Device(gpu):
                        calls(rank, gpu, comm, cuda.get_current_stream().ptr)
            finally:
                # Without its end, every later call of this thread would be queued and never run.
                nccl.groupEnd()
        except BaseException as error:
            self.give_up()
            if is_nccl_error(error):
                raise errors.error("RD28", f"{what} over {self.size} GPUs", f"NCCL says {error}",
                                   "Set NCCL_DEBUG=INFO to see what it says before.") from error
            raise

    def check(self) -> None:
        """Raises an error that NCCL has reported since the calls were issued."""
        for comm in self._comms:
            try:
                comm.check_async_error()
            except Exception as error:
                if isinstance(error, KeyError):  # CuPy's table of codes lacks "in progress"
                    continue
                self.give_up()
                raise errors.error("RD28", "waiting for NCCL", f"NCCL says {error}") from error

    def close(self) -> None:
        """Frees the communicator when nothing is in flight; it cannot be used again."""
        self.broken = True
        comms, self._comms = self._comms, []
        for comm in comms:
            comm.destroy()

    def give_up(self) -> None:
        """Aborts what is in flight; the communicator is not used again."""
        self.broken = True
        comms, self._comms = self._comms, []
        for comm in comms:
            comm.abort()


def alone(cupy: Cupy, gpus: Sequence[int]) -> Communicator | None:
    """A communicator over GPUs of this process; None where NCCL is not installed."""
    nccl = library()
    if nccl is None:
        return None
    try:
        comms = nccl.NcclCommunicator.initAll(list(gpus))
    except Exception as error:
        if is_nccl_error(error):
            raise errors.error("RD28", f"connecting GPUs {list(gpus)}", f"NCCL says {error}",
                               "Set NCCL_DEBUG=INFO to see what it says before.") from error
        raise
    return Communicator(cupy, list(enumerate(gpus)), len(gpus), comms)


def among(cupy: Cupy, here: Sequence[tuple[int, int]], size: int, unique_id: bytes, limit: float) -> Communicator:
    """A communicator over GPUs of several processes, each of which calls this.

    Raises:
        RD28: NCCL fails, or a rank does not come within `limit` seconds.
    """
    nccl = _nccl()
    communicators: list[NcclCommunicator] = []
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            if len(here) > 1:
                nccl.groupStart()
            try:
                for rank, gpu in here:
                    with cupy.cuda.Device(gpu):
                        communicators.append(nccl.NcclCommunicator(size, unique_id, rank))
            finally:
                if len(here) > 1:
                    nccl.groupEnd()
        except BaseException as error:
            failed.append(error)

    # In a thread, because it waits for all ranks and has no limit of its own.
    thread = threading.Thread(target=connect, daemon=True, name="refdist NCCL")
    thread.start()
    thread.join(limit)
    attempted = f"connecting {size} GPUs as rank {here[0][0]}"
    if thread.is_alive():
        raise errors.error("RD28", attempted, f"not all ranks connected within {limit:g} s",
                           "Look at the other workers' messages, and set NCCL_DEBUG=INFO.")
    if failed:
        raise errors.error("RD28", attempted, f"it failed with {failed[0]}",
                           "Set NCCL_DEBUG=INFO to see what it says before.") from failed[0]
    return Communicator(cupy, here, size, communicators, limit)


def wait(cupy: Cupy, communicators: Iterable[Communicator], gpu: int) -> None:
    """Waits for the current stream of a GPU where communicators with other processes are in use.

    Raises:
        RD28: NCCL failed, or the limit has passed; the communicator is aborted, and what was in flight is lost.
    """
    shared = [communicator for communicator in communicators
              if communicator.limit is not None and not communicator.broken
              and any(own == gpu for _, own in communicator.here)]
    if not shared:
        return
    issued = cupy.cuda.get_current_stream().record()
    end = time.monotonic() + min(communicator.limit for communicator in shared if communicator.limit is not None)
    while not issued.done:
        for communicator in shared:
            communicator.check()
            if time.monotonic() > end:
                communicator.give_up()
                raise errors.error("RD28", f"waiting for a collective on GPU {gpu}", f"it did not end within "
                                   f"{communicator.limit:g} s", "Another worker has stopped; look at its messages.")
        time.sleep(0)


def all_reduce(backend: GPU, communicator: Communicator, columns: Sequence[Sequence[DeviceArray]],
               owners: Sequence[int], ranks: Sequence[int], ordered: bool) -> list[list[DeviceArray]]:
    """The sum of each column over the replicas of all ranks.

    Args:
        backend: the backend of the arrays.
        communicator: connects the ranks.
        columns: for every result the arrays of the replicas here, each on its owner's GPU.
        owners: the rank of every replica, here and elsewhere, in replica order.
        ranks: the rank of each replica here, in the order of the arrays in a column.
        ordered: whether to add left to right; what NCCL cannot add is always added so.

    Returns:
        For each column a read-only array per replica here.
    """
    results: list[list[DeviceArray]] = [[] for _ in columns]
    by_dtype: dict[DType, list[int]] = {}
    for number, column in enumerate(columns):
        by_dtype.setdefault(column[0].dtype, []).append(number)
    for dtype, numbers in by_dtype.items():
        name, _ = stored(dtype)
        flats = []
        for i, rank in enumerate(ranks):
            with backend.on(dict(communicator.here)[rank], "packing"):
                flats.append(_packed(communicator.cupy, [columns[number][i] for number in numbers]))
        if ordered or name not in NCCL_TYPES:
            totals = _in_order(backend, communicator, name, flats, owners, ranks)
        else:
            totals = _by_nccl(backend, communicator, name, flats, ranks)
        shapes = [columns[number][0].shape for number in numbers]
        unpacked = {}
        for rank, gpu in communicator.here:
            with backend.on(gpu, "unpacking"):
                unpacked[rank] = _unpacked(totals[rank], dtype, shapes)
        for place, number in enumerate(numbers):
            results[number] = [unpacked[rank][place] for rank in ranks]
    return results


def _packed(cupy: Cupy, parts: Sequence[DeviceArray]) -> DeviceArray:
    flat = [contiguous(part).reshape(-1) for part in parts]
    whole = flat[0] if len(flat) == 1 else cupy.concatenate(flat)
    return whole.view(stored(whole.dtype)[0]) if whole.dtype.kind == "c" else whole


def _unpacked(total: DeviceArray, dtype: DType, shapes: Sequence[tuple[int, ...]]) -> list[DeviceArray]:
    total, start = total.view(dtype), 0
    arrays: list[DeviceArray] = []
    for shape in shapes:
        stop = start + math.prod(shape)
        arrays.append(frozen(total[start:stop].reshape(shape)))
        start = stop
    return arrays


def slices(length: int, size: int) -> tuple[int, list[tuple[int, int]]]:
    """`length` elements cut for `size` ranks: the length of a slice, and where each begins and ends.

    >>> slices(5, 2)
    (3, [(0, 3), (3, 5)])
    """
    each = -(-length // size)
    return each, [(min(rank * each, length), min((rank + 1) * each, length)) for rank in range(size)]


def _in_order(backend: GPU, communicator: Communicator, name: str, flats: Sequence[DeviceArray],
              owners: Sequence[int], ranks: Sequence[int]) -> dict[int, DeviceArray]:
    cupy, nccl = communicator.cupy, _nccl()
    length, itemsize = flats[0].size, flats[0].dtype.itemsize
    each, cuts = slices(length, communicator.size)
    # For every rank here, its slice of each replica's buffer: a view of its own replicas', memory to receive others'.
    pieces: dict[int, list[DeviceArray]] = {}
    for rank, gpu in communicator.here:
        own = iter([flat for flat, owner in zip(flats, ranks, strict=True) if owner == rank])
        start, stop = cuts[rank]
        with backend.on(gpu, "receiving"):
            pieces[rank] = [next(own)[start:stop] if owner == rank else cupy.empty(stop - start, flats[0].dtype)
                            for owner in owners]

    def exchange(rank: int, gpu: int, comm: NcclCommunicator, stream: int) -> None:
        own = iter([flat for flat, owner in zip(flats, ranks, strict=True) if owner == rank])
        for piece, owner in zip(pieces[rank], owners, strict=True):
            if owner == rank:
                flat = next(own)
                for peer, (start, stop) in enumerate(cuts):
                    if peer != rank and stop > start:
                        comm.send(flat[start:stop].data.ptr, (stop - start) * itemsize, nccl.NCCL_UINT8, peer, stream)
            elif piece.size:
                comm.recv(piece.data.ptr, piece.nbytes, nccl.NCCL_UINT8, owner, stream)

    communicator.group(exchange, "all_reduce in order")
    totals = {}
    for rank, gpu in communicator.here:
        with backend.on(gpu, "sum"):
            whole = cupy.empty(each * communicator.size, flats[0].dtype)
            start, stop = cuts[rank]
            target = whole[rank * each:rank * each + (stop - start)]
            backend.combine(name, [Job(target.data.ptr, target.size, [piece.data.ptr for piece in pieces[rank]])])
            totals[rank] = whole

    def share(rank: int, gpu: int, comm: NcclCommunicator, stream: int) -> None:
        whole = totals[rank]
        if each:
            comm.allGather(whole[rank * each:].data.ptr, whole.data.ptr, each * itemsize, nccl.NCCL_UINT8, stream)

    communicator.group(share, "all_reduce in order")
    return {rank: whole[:length] for rank, whole in totals.items()}


def _by_nccl(backend: GPU, communicator: Communicator, name: str, flats: Sequence[DeviceArray],
             ranks: Sequence[int]) -> dict[int, DeviceArray]:
    nccl = _nccl()
    totals = {rank: backend.sums([[flat for flat, owner in zip(flats, ranks, strict=True) if owner == rank]], gpu)[0]
              for rank, gpu in communicator.here}
    kind = getattr(nccl, f"NCCL_{NCCL_TYPES[name]}")

    def reduce(rank: int, gpu: int, comm: NcclCommunicator, stream: int) -> None:
        total = totals[rank]
        if total.size:
            comm.allReduce(total.data.ptr, total.data.ptr, total.size, kind, nccl.NCCL_SUM, stream)

    communicator.group(reduce, "all_reduce by NCCL")
    return totals


def gather(backend: GPU, communicator: Communicator, parts: Sequence[DeviceArray], ranks: Sequence[int],
           owners: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> dict[int, list[DeviceArray]]:
    """Every replica's array on every rank here; shapes may differ.

    Args:
        backend: the backend of the arrays.
        communicator: connects the ranks.
        parts: the arrays of the replicas here, each on its owner's GPU.
        ranks: the rank of each of them.
        owners: the rank of every replica of all ranks.
        shapes: the shape of every replica's array.
    """
    cupy, nccl = communicator.cupy, _nccl()
    dtype = parts[0].dtype
    gathered: dict[int, list[DeviceArray]] = {}
    for rank, gpu in communicator.here:
        own = iter([part for part, owner in zip(parts, ranks, strict=True) if owner == rank])
        with backend.on(gpu, "receiving"):
            gathered[rank] = [contiguous(next(own)) if owner == rank else cupy.empty(shape, dtype)
                           for owner, shape in zip(owners, shapes, strict=True)]

    def exchange(rank: int, gpu: int, comm: NcclCommunicator, stream: int) -> None:
        for array, owner in zip(gathered[rank], owners, strict=True):
            for peer in range(communicator.size) if owner == rank and array.size else ():
                if peer != rank:
                    comm.send(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, stream)
            if owner != rank and array.size:
                comm.recv(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, owner, stream)

    communicator.group(exchange, "all_gather")
    return gathered
