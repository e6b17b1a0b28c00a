"""refdist on simulated devices."""

from __future__ import annotations

from typing import Any

import numpy as np

import refdist
from refdist.array.convert import to_numpy
from refdist.conformance.old.adapters.library import Library, Strategy, Variable


class Simulated(Library):
    """refdist's reference world."""

    name = "refdist (simulated)"
    api = refdist
    capabilities = frozenset({"central", "sync_on_read", "update", "datasets", "scatter", "all dtypes", "names",
                              "resolvers"})

    def strategy(self, kind: str, replicas: int) -> Strategy:
        devices = [f"GPU:{i}" for i in range(replicas)]
        if kind == "default":
            current: Strategy = refdist.get_strategy()
            return current
        if kind == "one_device":
            return refdist.OneDeviceStrategy("GPU:0")
        if kind == "central":
            return refdist.experimental.CentralStorageStrategy(devices, "CPU:0")
        return refdist.MirroredStrategy(devices)

    def variable(self, initial: object, synchronization: str, aggregation: str) -> Variable:
        return refdist.Variable(initial, synchronization=refdist.VariableSynchronization[synchronization],
                                aggregation=refdist.VariableAggregation[aggregation])

    def array(self, value: object, dtype: str | None) -> object:
        return refdist.constant(value) if dtype is None else np.array(value, dtype)

    def to_numpy(self, value: object) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = to_numpy(value.numpy() if isinstance(value, refdist.Variable) else value)
        return found

    def slices(self, values: object, indices: object) -> object:
        return refdist.IndexedSlices(values, indices)

    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> object:
        options = refdist.data.Options()
        options.experimental_distribute.auto_shard_policy = refdist.data.AutoShardPolicy[policy]
        return refdist.data.Dataset.range(rows).batch(batch, drop).repeat(repeat).with_options(options)
