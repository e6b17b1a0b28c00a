"""refdist on simulated devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from refdist.conformance.adapter import Adapter

import refdist


class Simulated(Adapter):
    """refdist's reference world."""

    name = "refdist (simulated)"
    capabilities = frozenset({"central", "sync_on_read", "update", "datasets", "scatter", "all dtypes", "names",
                              "resolvers"})

    def strategy(self, kind: str, replicas: int) -> Any:
        devices = [f"GPU:{i}" for i in range(replicas)]
        if kind == "default":
            return refdist.get_strategy()
        if kind == "one_device":
            return refdist.OneDeviceStrategy("GPU:0")
        if kind == "central":
            return refdist.experimental.CentralStorageStrategy(devices, "CPU:0")
        return refdist.MirroredStrategy(devices)

    def scope(self, strategy: Any) -> Any:
        return strategy.scope()

    def run(self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return strategy.run(fn, args=args)

    def replica_id(self) -> int:
        context = refdist.get_replica_context()
        if context is None:
            raise RuntimeError("not in a replica")
        return context.replica_id_in_sync_group

    def num_replicas(self, strategy: Any) -> int:
        return int(strategy.num_replicas_in_sync)

    def where(self) -> str:
        if refdist.in_cross_replica_context():
            return "cross"
        return "replica" if refdist.has_strategy() else "default"

    def all_reduce(self, reduce_op: Any, value: Any) -> Any:
        return self._context().all_reduce(reduce_op, value)

    def all_gather(self, value: Any, axis: Any) -> Any:
        return self._context().all_gather(value, axis)

    def merge_call(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._context().merge_call(fn, args)

    def _context(self) -> Any:
        context = refdist.get_replica_context()
        if context is None:
            raise RuntimeError("not in a replica")
        return context

    def reduce(self, strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        return strategy.reduce(reduce_op, value, axis=axis)

    def gather(self, strategy: Any, value: Any, axis: Any) -> Any:
        return strategy.gather(value, axis=axis)

    def local_results(self, strategy: Any, value: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = strategy.experimental_local_results(value)
        return found

    def is_distributed(self, value: Any) -> bool:
        return isinstance(value, refdist.DistributedValues) and not isinstance(value, refdist.Mirrored)

    def values_from_function(self, strategy: Any, fn: Callable[[Any], Any]) -> Any:
        return strategy.experimental_distribute_values_from_function(fn)

    def variable(self, initial: Any, synchronization: str, aggregation: str) -> Any:
        return refdist.Variable(initial, synchronization=refdist.VariableSynchronization[synchronization],
                                aggregation=refdist.VariableAggregation[aggregation])

    def read(self, variable: Any) -> Any:
        return variable.read_value()

    def write(self, variable: Any, method: str, *values: Any) -> None:
        getattr(variable, method)(*values)

    def array(self, value: Any, dtype: str | None) -> Any:
        return refdist.constant(value) if dtype is None else np.array(value, dtype)

    def to_numpy(self, value: Any) -> Any:
        return np.asarray(value.numpy() if isinstance(value, refdist.Variable) else value)

    def update(self, strategy: Any, variable: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        strategy.extended.update(variable, fn, args=args)

    def created_in_scope(self, strategy: Any, variable: Any) -> bool:
        return bool(strategy.extended.variable_created_in_scope(variable))

    def lookup(self, name: str) -> Any:
        found: Any = refdist
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def resolver(self) -> Any:
        return refdist.cluster_resolver.TFConfigClusterResolver()

    def slices(self, values: Any, indices: Any) -> Any:
        return refdist.IndexedSlices(values, indices)

    def _dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Any:
        options = refdist.data.Options()
        options.experimental_distribute.auto_shard_policy = refdist.data.AutoShardPolicy[policy]
        return refdist.data.Dataset.range(rows).batch(batch, drop).repeat(repeat).with_options(options)

    def distribute(self, strategy: Any, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Iterable[Any]:
        found: Iterable[Any] = strategy.experimental_distribute_dataset(
            self._dataset(rows, batch, drop, policy, repeat))
        return found

    def distribute_from_function(self, strategy: Any, rows: int, batch: int, drop: bool) -> Iterable[Any]:
        found: Iterable[Any] = strategy.distribute_datasets_from_function(
            lambda context: self._dataset(rows, batch, drop, "AUTO", 1))
        return found
