"""Strategies for TensorFlow as another author might write them, with cross-device ops of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class InOrder(tf.distribute.CrossDeviceOps):
    """Sums what the replicas have from left to right, one by one, and copies the result to where it is wanted."""

    def reduce_implementation(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any) -> Any:
        parts = per_replica_value.values
        if isinstance(parts[0], tf.IndexedSlices):
            return tf.distribute.ReductionToOneDevice().reduce(reduce_op, per_replica_value, destinations, options)
        total = self.total(parts)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            total = self.mean(total, len(parts))
        return self.broadcast(total, destinations)

    def batch_reduce_implementation(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        return [self.reduce_implementation(reduce_op, value, destinations, options)
                for value, destinations in value_destination_pairs]

    def total(self, parts: Sequence[Any]) -> Any:
        """The sum of what the replicas have."""
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def mean(self, total: Any, replicas: int) -> Any:
        """The mean, from the sum."""
        return total / replicas


class Faulty(InOrder):
    """Two faults."""

    def total(self, parts: Sequence[Any]) -> Any:
        """The first contribution stands in for the third."""
        return super().total([*parts[:2], *(parts[0] for _ in parts[2:3]), *parts[3:]])

    def mean(self, total: Any, replicas: int) -> Any:
        """The mean of ints is an int."""
        return total // replicas if total.dtype.is_integer else total / replicas


def right(devices: list[str]) -> Any:
    """A strategy without a fault of its own."""
    return tf.distribute.MirroredStrategy(devices, InOrder())


class Wrong(tf.distribute.MirroredStrategy):
    """Three faults: those of its cross-device ops, and replicas that are numbered from one."""

    def __init__(self, devices: list[str]) -> None:
        super().__init__(devices, Faulty())

    def experimental_distribute_values_from_function(self, value_fn: Callable[[Any], Any]) -> Any:
        """Numbers replicas from one."""
        replicas = self.num_replicas_in_sync
        values = tf.distribute.experimental.ValueContext
        return super().experimental_distribute_values_from_function(
            lambda context: value_fn(values(context.replica_id_in_sync_group + 1, replicas)))
