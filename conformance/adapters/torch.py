"""torch.distributed with its Gloo backend, on CPUs.

all_reduce SUM is `allreduce` with ReduceOp.SUM, MEAN with ReduceOp.AVG, and all_gather is `allgather` into tensors of
the caller's own shape, concatenated: what a user of torch.distributed writes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeGuard

import torch
import torch.distributed as dist

from refdist.conformance import results
from refdist.conformance.adapters.collectives import LIMIT, Collectives, ReplicaContext
from refdist.conformance.results import Result


class Torch(Collectives[torch.Tensor]):
    """torch.distributed."""

    name = "torch.distributed (Gloo)"
    version = torch.__version__

    def tensor(self, value: object, dtype: str) -> torch.Tensor:
        return torch.tensor(value, dtype=getattr(torch, dtype))

    def is_tensor(self, value: object) -> TypeGuard[torch.Tensor]:
        return isinstance(value, torch.Tensor)

    def data(self, tensor: torch.Tensor) -> Result:
        return results.array(str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.flatten().tolist())

    def group(self, count: int) -> list[Any]:
        """One process group for each replica, which find each other in a store of this process."""
        store, limit = dist.HashStore(), timedelta(seconds=LIMIT)
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda rank: dist.ProcessGroupGloo(store, rank, count, limit), range(count)))

    def abandon(self, group: object) -> None:
        """Gloo waits until its time-out."""

    def all_reduce(self, context: ReplicaContext, op: str, tensor: torch.Tensor) -> torch.Tensor:
        options = dist.AllreduceOptions()
        options.reduceOp = {"SUM": dist.ReduceOp.SUM, "MEAN": dist.ReduceOp.AVG}[op]
        received = tensor.clone()
        context.strategy.group[context.replica_id_in_sync_group].allreduce([received], options).wait()
        return received

    def all_gather(self, context: ReplicaContext, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        received = [torch.empty_like(tensor) for _ in range(context.num_replicas_in_sync)]
        context.strategy.group[context.replica_id_in_sync_group].allgather([received], [tensor]).wait()
        return torch.cat(received, axis)
