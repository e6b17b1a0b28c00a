"""What workers do with results that lie in memory they share: shared.py NAME, under mpiexec."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import tracemalloc
import warnings
from typing import Any

import numpy as np

import refdist
from refdist.backends.mpi.transport import MPITransport

LARGE = 300_000  # float32 numbers, so that the sum lies in memory that is shared
Aggregation = refdist.VariableAggregation


def total(number: float, size: int = LARGE) -> Any:
    """The sum of arrays that are full of `number`, times 1 on worker 0, 2 on worker 1."""
    def step() -> Any:
        context = refdist.get_replica_context()
        return context.all_reduce("SUM", np.full(size, number * (context.replica_id_in_sync_group + 1), np.float32))
    return strategy.run(step)


def is_full(array: Any, number: float) -> bool:
    return bool(np.all(array == 3 * number))


def write_through(array: Any) -> None:
    """Fills an array, as a library does that knows its address and nothing of its flags."""
    assert not array.flags.writeable
    ctypes.memset(array.ctypes.data, 0, array.nbytes)


def writes() -> None:
    for turn in range(1, 4):
        first = total(turn)
        address = first.ctypes.data
        if rank == 0:
            write_through(first)
            assert is_full(first, 0)
        small = total(1, 1)  # all have written
        assert is_full(first, turn if rank else 0) and is_full(small, 1)
        del first
        total(1, 1)  # all have told the others that the memory is free
        again = total(10 * turn)
        assert again.ctypes.data == address, "the same memory is used again"
        assert is_full(again, 10 * turn)
        del again
        total(1, 1)


def a_few_bytes() -> None:
    """One page is written to, and results of another size come next."""
    first = total(1)
    if rank == 1:
        ctypes.memset(first[-7:].ctypes.data, 0, 5)
    view = first[10:20]
    del first
    second = total(2)  # elsewhere, because a view is left
    assert is_full(view, 1) and is_full(second, 2)
    del view, second
    total(1, 1)
    assert is_full(total(3, LARGE - 5), 3)
    assert is_full(total(4), 4)


def forks() -> None:
    """A child of fork keeps the numbers that its parent had."""
    first = total(1)
    address = first.ctypes.data
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0 if is_full(first, 1) else 3)
    assert is_full(first, 1)
    del first
    total(1, 1)
    again = total(2)
    assert again.ctypes.data == address and is_full(again, 2)
    os.write(writing, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def many() -> None:
    """More results are kept than there are bits in a mask, by variables too, and nothing is said."""
    kept = [total(number) for number in range(150)]
    parts = [total(number)[:1] for number in range(150)]
    with strategy.scope():
        variables = [refdist.Variable(np.zeros(LARGE, np.float32), aggregation=Aggregation.SUM) for _ in range(70)]
        sums = [refdist.Variable(np.zeros(LARGE, np.float32), aggregation=Aggregation.SUM,
                                 synchronization=refdist.VariableSynchronization.ON_READ) for _ in range(70)]

    def step() -> None:
        for number, (variable, on_read) in enumerate(zip(variables, sums, strict=True)):
            contribution = np.full(LARGE, number * (rank + 1), np.float32)
            variable.assign_add(contribution)
            on_read.assign_add(contribution)

    strategy.run(step)
    read = [value.read_value() for value in sums]
    assert all(is_full(value, number) for totals in (kept, parts) for number, value in enumerate(totals))
    assert all(is_full(value.numpy(), number) for number, value in enumerate(variables))
    assert all(is_full(value, number) for number, value in enumerate(read))


def too_little() -> None:
    """There is less memory than is needed: once from the beginning, once for a larger result."""
    first = total(1) if "later" in sys.argv else None
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        totals = [total(number, 3 * LARGE) for number in range(3)]
        contribution = np.full((LARGE, 1), rank + 1.0)
        rows = strategy.run(lambda: refdist.get_replica_context().all_gather(contribution, axis=0))
        transport = strategy.extended.transport
        received = transport.broadcast(transport.call("telling", like=contribution), contribution)
    assert all(is_full(total, number) for number, total in enumerate(totals))
    assert np.all(rows[:LARGE] == 1) and np.all(rows[LARGE:] == 2) and np.all(received == 1)
    assert first is None or is_full(first, 1)
    assert len(caught) == (rank == 0), caught
    assert all("sums are sent from now on" in str(warning.message) and warning.filename == __file__
               for warning in caught)


def of_any_size() -> None:
    """Exchanges of data that fit into a header, into a slot, or into neither, on one worker or on both."""
    sizes, context, kept = (0, 1, 20, 30, 300, 7_000, 9_000, 30_000), refdist.get_replica_context, []
    for turn in range(1, 8 * len(sizes) + 1):
        lengths = [sizes[turn % 8], sizes[turn // 8 % 8]]
        contributions = [np.full(lengths[rank], number * turn, np.float32) for number in (1, 2)]
        gathered = strategy.run(lambda parts=contributions: context().all_gather(parts, axis=0))
        assert [array.size for array in gathered] == [sum(lengths)] * 2
        assert all(np.all(array == number * turn) for number, array in enumerate(gathered, 1))
        kept.append((turn, total(turn, sizes[turn % 8])))
    assert all(is_full(total, turn) for turn, total in kept)
    for dtype in (np.float16, np.float32, np.float64):
        single, (first, none) = strategy.run(lambda kind=dtype: (
            context().all_reduce("SUM", kind(rank + 1)),
            context().all_reduce("SUM", [kind(rank + 1), np.zeros(0, kind)])))
        assert single == first == 3 and single.dtype == first.dtype == dtype and none.shape == (0,)
        assert not single.flags.writeable and strategy.run(lambda kind=dtype: context().all_reduce("SUM", kind(1))) == 2
        assert single == 3


def memory() -> int:
    """Bytes of memory that this process has; of what it shares with others its part."""
    with open("/proc/self/smaps_rollup") as rows:
        return next(int(row.split()[1]) << 10 for row in rows if row.startswith("Pss:"))


def gathers() -> None:
    """Results of 64 MB and no other copy of them, of which each worker may spoil its own."""
    wide, context = np.full((500, 8000), rank + 1.0), refdist.get_replica_context
    transport = strategy.extended.transport
    for turn in range(3):
        before = memory()
        tracemalloc.start()
        gathered = strategy.run(lambda: context().all_gather(wide, axis=1))
        assert gathered.shape == (500, 16_000) and not gathered.flags.writeable
        _, private = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert gathered.sum() == 4_000_000 + 8_000_000
        assert private < 0.1 * gathered.nbytes and memory() - before < 1.1 * gathered.nbytes
        assert np.all(gathered[:, :8000] == 1) and np.all(gathered[:, 8000:] == 2)
        received = transport.broadcast(transport.call("telling", like=wide), wide)
        assert received.shape == wide.shape and np.all(received == 1) and not received.flags.writeable
        for array in (gathered, received) if rank == turn % 2 else ():
            write_through(array)
        several = strategy.run(lambda: context().all_gather([wide, np.full((1 + rank, 3), rank), wide[:0]], axis=0))
        assert [array.shape for array in several[::2]] == [(1000, 8000), (0, 8000)]
        assert np.all(several[0][:500] == 1) and np.all(several[0][500:] == 2)
        assert np.all(gathered[:, -1] == (0 if rank == turn % 2 else 2)) and np.all(received == (rank != turn % 2))
        del gathered, received, several
        total(1, 1)


def differ() -> None:
    """Workers of which nobody compares the calls gather arrays of different shapes."""
    for columns in (100_000, 3):  # large arrays are exchanged after their shapes
        try:
            strategy.run(lambda: refdist.get_replica_context().all_gather(
                np.ones((2 + rank, columns)), axis=1))  # noqa: B023
        except ValueError as error:
            assert "dimension" in str(error), error
        else:
            raise AssertionError


def waits() -> None:
    """Once there is memory, a large sum waits for the others when it begins and when it ends, and at no other time."""
    waited: list[Any] = []
    wait = MPITransport._wait

    def counted(self: Any, request: Any) -> None:
        waited.append(request)
        wait(self, request)

    for size in (5_000_000, 20_000):  # the results of small ones lie elsewhere
        total(1, size)
    MPITransport._wait = counted  # type: ignore[method-assign]
    for number, size in enumerate((5_000_000, 20_000, 4_999_999), 2):
        waited.clear()
        assert is_full(total(number, size), number)
        assert len(waited) == 2, size


def large() -> None:
    """80 MB, and not a word."""
    assert is_full(total(1, 20_000_000), 1)


if __name__ == "__main__":
    warnings.simplefilter("error")
    if "at_all" in sys.argv:
        from mpi4py import MPI  # noqa: F401 - which needs memory itself

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        warnings.filterwarnings("ignore", "sums are sent from now on")
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.extended.transport.rank
    globals()[sys.argv[1]]()
    print("came through")
