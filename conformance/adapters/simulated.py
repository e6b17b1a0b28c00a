"""refdist on simulated devices."""

from __future__ import annotations

from typing import Any

import numpy as np

import refdist
from refdist.array.convert import to_numpy
from refdist.conformance.adapters.library import Library


class Simulated(Library):
    """refdist's reference world."""

    name = "refdist (simulated)"
    api = refdist
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

    def variable(self, initial: Any, synchronization: str, aggregation: str) -> Any:
        return refdist.Variable(initial, synchronization=refdist.VariableSynchronization[synchronization],
                                aggregation=refdist.VariableAggregation[aggregation])

    def array(self, value: Any, dtype: str | None) -> Any:
        return refdist.constant(value) if dtype is None else np.array(value, dtype)

    def to_numpy(self, value: Any) -> Any:
        return to_numpy(value.numpy() if isinstance(value, refdist.Variable) else value)

    def slices(self, values: Any, indices: Any) -> Any:
        return refdist.IndexedSlices(values, indices)

    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Any:
        options = refdist.data.Options()
        options.experimental_distribute.auto_shard_policy = refdist.data.AutoShardPolicy[policy]
        return refdist.data.Dataset.range(rows).batch(batch, drop).repeat(repeat).with_options(options)
