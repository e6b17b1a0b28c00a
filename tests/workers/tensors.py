"""Tensors between workers: prints of each case the bits of its results, and what their memory is.

    python -m refdist run --workers 2 tests/workers/tensors.py
    python -m refdist launch -n 2 tests/workers/tensors.py
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import torch

import refdist
from refdist.workers import transport

SIZES = (3, 5000, 300_000)  # in the header, through slots, in shared memory
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int64)

strategy = refdist.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id


def brought(dtype: Any, size: int) -> Any:
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    return (drawn * 10.0 ** (torch.arange(size) % 5)).to(dtype)


def addresses(columns: Any) -> list[int]:
    return [part.__array_interface__["data"][0] for column in columns for part in column]


def summed(tensor: Any) -> Any:
    return strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", tensor))


def copies() -> tuple[int, int]:
    """How many of the tensors are copied on their way to MPI, and how many results on their way back."""
    from refdist.backends.mpi.transport import MPITransport

    sent, received = [], []
    exchange: Any = MPITransport.all_reduce

    def watched(self: transport.Transport, call: Any, columns: Any, ordered: bool = True) -> Any:
        results = exchange(self, call, columns, ordered)
        sent.extend(addresses(columns))
        received.extend(addresses([results]))
        return results

    watching: Any = MPITransport
    watching.all_reduce = watched
    tensors = [brought(dtype, size) for dtype in DTYPES for size in SIZES]
    results = [summed(tensor) for tensor in tensors]
    watching.all_reduce = exchange
    return (sum(tensor.data_ptr() not in sent for tensor in tensors),
            sum(result.data_ptr() not in received for result in results))


for dtype in DTYPES:
    for size in SIZES:
        tensor = brought(dtype, size)
        before = tensor.clone()
        total = summed(tensor)
        digest = hashlib.sha256(total.view(torch.uint8).numpy().tobytes()).hexdigest()[:12]
        assert total.dtype == dtype and torch.equal(tensor, before)
        # Nobody else sees a write: neither what this worker brought, nor the other worker, nor a later sum.
        if rank == 0:
            total.zero_()
        again = summed(tensor)
        assert torch.equal(tensor, before)
        assert hashlib.sha256(again.view(torch.uint8).numpy().tobytes()).hexdigest()[:12] == digest
        assert rank == 0 or hashlib.sha256(total.view(torch.uint8).numpy().tobytes()).hexdigest()[:12] == digest
        print(f"{str(dtype)[6:]} {size}: {digest}")
if "refdist.backends.mpi.transport" in sys.modules:
    print("copies:", *copies())
