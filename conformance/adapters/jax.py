"""JAX's collectives on CPU devices of one process.

all_reduce SUM is `jax.lax.psum`, MEAN `jax.lax.pmean`, and all_gather `jax.lax.all_gather` with `tiled=True`, each in a
`jax.shard_map` over an array that is made of what the replicas contribute, one device for each.  One program runs on
all devices: replicas that ask for different collectives, or of which some ask for none, cannot be written in JAX, and
are `unsupported`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeGuard

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=16"

import jax
import jax.numpy as jnp
import numpy as np

from refdist.conformance import results
from refdist.conformance.adapters.collectives import LIMIT, Collectives, ReplicaContext
from refdist.conformance.results import Result

jax.config.update("jax_enable_x64", True)


class _Group:
    """Where replicas meet: the last one that comes carries out what all of them asked for."""

    def __init__(self, count: int) -> None:
        self._asked: list[Any] = [None] * count
        self._received: Any = None
        self._barrier = threading.Barrier(count, self._carry_out, LIMIT)
        self._mesh = jax.make_mesh((count,), ("replicas",), devices=jax.devices()[:count])
        self.abort = self._barrier.abort

    def meet(self, rank: int, name: str, collective: Callable[[jax.Array], jax.Array], tensor: jax.Array) -> Any:
        self._asked[rank] = name, collective, tensor
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise NotImplementedError("collectives that some replicas do not call") from None
        if isinstance(self._received, Exception):
            raise self._received
        return self._received[rank]

    def _carry_out(self) -> None:
        if len({name for name, _, _ in self._asked}) > 1:
            self._received = NotImplementedError("replicas that ask for different collectives")
            return
        try:
            spec = jax.sharding.PartitionSpec("replicas")
            devices = self._mesh.devices.flat
            shards = [jax.device_put(tensor[None], device)
                      for (_, _, tensor), device in zip(self._asked, devices, strict=True)]
            whole = jax.make_array_from_single_device_arrays(
                (len(shards), *shards[0].shape[1:]), jax.sharding.NamedSharding(self._mesh, spec), shards)
            collective = self._asked[0][1]
            done = jax.shard_map(lambda part: collective(part[0])[None], mesh=self._mesh, in_specs=spec, out_specs=spec)
            self._received = np.asarray(jax.jit(done)(whole))
        except Exception as error:
            self._received = error


class Jax(Collectives[jax.Array]):
    """jax.lax."""

    name = "jax.lax (CPU)"
    version = jax.__version__

    def tensor(self, value: object, dtype: str) -> jax.Array:
        return jnp.asarray(value, dtype)

    def is_tensor(self, value: object) -> TypeGuard[jax.Array]:
        return isinstance(value, (jax.Array, np.ndarray, np.generic))

    def data(self, tensor: jax.Array) -> Result:
        array = np.asarray(tensor)
        return results.array(str(array.dtype), array.shape, array.ravel().tolist())

    def group(self, count: int) -> _Group:
        return _Group(count)

    def abandon(self, group: object) -> None:
        assert isinstance(group, _Group)
        group.abort()

    def all_reduce(self, context: ReplicaContext, op: str, tensor: jax.Array) -> jax.Array:
        collective = {"SUM": jax.lax.psum, "MEAN": jax.lax.pmean}[op]
        return self._meet(context, op, lambda part: collective(part, "replicas"), tensor)

    def all_gather(self, context: ReplicaContext, tensor: jax.Array, axis: int) -> jax.Array:
        return self._meet(context, f"all_gather along axis {axis}",
                          lambda part: jax.lax.all_gather(part, "replicas", axis=axis, tiled=True), tensor)

    def _meet(self, context: ReplicaContext, name: str, collective: Callable[[jax.Array], jax.Array],
              tensor: jax.Array) -> jax.Array:
        return jnp.asarray(context.strategy.group.meet(context.replica_id_in_sync_group, name, collective, tensor))
