"""Sums of random arrays by workers of one machine that take groups of them for hosts.

    pretend_hosts.py SEED HOSTS [FULL]

HOSTS has a letter for each worker, the host that it is on.  FULL is a host on which there is no more memory to share
after a few sums.  Each worker prints how many sums it has compared, and what added.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

from refdist.array.ordered_sum import ordered_sum
from refdist.backends.mpi import between_hosts

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "uint16", "bool")
TURNS, GROWING, FULL_FROM = 24, 12, 8


def columns_of(seed: int, turn: int, rank: int, replicas: int) -> list[list[Any]]:
    """What one worker adds: dtypes and shapes are the same for all, numbers are not."""
    draw, own = np.random.default_rng([seed, turn]), np.random.default_rng([seed, turn, rank])
    if turn < GROWING:  # on some hosts, which allocate whole pages, the memory of the sum before is large enough
        size = 17_000 + 60 * turn if turn % 2 else 700 * (turn + 1)
        return [[own.standard_normal(size) for _ in range(replicas)]]
    columns = []
    for _ in range(int(draw.integers(1, 5))):
        dtype = np.dtype(draw.choice(DTYPES))
        shape = (*draw.integers(0, 7, int(draw.integers(0, 3))), int(10.0 ** draw.uniform(0, 4)))
        columns.append([(own.standard_normal(shape) * 10.0 ** own.integers(-3, 4, shape)).astype(dtype)
                        for _ in range(replicas)])
    return columns


def wait(request: Any) -> None:
    until = time.monotonic() + 60  # no message takes as long, and the test is not to hang where one is lost
    while not request.Test():
        assert time.monotonic() < until, "a message did not come"
        time.sleep(0)


def no_memory(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def main() -> None:
    warnings.simplefilter("ignore")
    seed, hosts = int(sys.argv[1]), sys.argv[2]
    comm = MPI.COMM_WORLD.Dup()
    rank, size = comm.Get_rank(), comm.Get_size()
    node = comm.Split(ord(hosts[rank]), rank)
    def agree(bits: int) -> int:
        return comm.allreduce(bits, MPI.BOR)

    reducer: Any = between_hosts.make(MPI, comm, node, comm.allgather, wait, agree, False)
    lanes = min(map(hosts.count, hosts))
    sums = 0
    kept: list[Any] = []
    for turn in range(TURNS):
        draw = np.random.default_rng([seed, turn, 0, 0])
        replicas = int(draw.integers(1, 4))
        # Small, so that there are many; of what grows, of which each sum is large, not as many.
        reducer._chunk = (1024 if turn < GROWING else 64) * lanes * int(draw.integers(1, 40))
        reducer._room = 1 << int(draw.integers(8, 20))
        if turn >= FULL_FROM and sys.argv[3:] == [hosts[rank]]:
            os.posix_fallocate = no_memory
        everyone = [columns_of(seed, turn, other, replicas) for other in range(size)]
        layout = reducer.begin(everyone[rank])
        reducer.set_released(comm.allgather(reducer.released()))
        totals, _ = reducer.sum(layout, True)
        for i, total in enumerate(totals):
            expected = ordered_sum([part for columns in everyone for part in columns[i]])
            assert total.dtype == expected.dtype and total.shape == expected.shape
            assert total.tobytes() == expected.tobytes(), f"sum {turn}, column {i}: {expected.dtype} {expected.shape}"
            sums += 1
        kept = [totals, *kept][:5]
    print(f"{sums} sums by {type(reducer).__name__}, {'shared' if not getattr(reducer, '_gave_up', True) else 'sent'}")


if __name__ == "__main__":
    main()
