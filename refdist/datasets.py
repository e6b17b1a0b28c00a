"""Distributed datasets: which replica gets which rows of every batch.

The split itself is a pure function in `data.split`; elements become PerReplica values here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from refdist import errors
from refdist.data.split import split_batch
from refdist.values import PerReplica, regroup


class InputReplicationMode(Enum):
    """For whom an input function is called.

    Source: tf.distribute.InputReplicationMode.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions(NamedTuple):
    """Options of a distributed dataset; memory is shared here, so placement has no effect.

    Source: tf.distribute.InputOptions.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1


class DistributedIterator:
    """Reads a distributed dataset once, from its beginning.

    Source: tf.distribute.DistributedIterator.
    """

    def __init__(self, dataset: DistributedDataset) -> None:
        self._dataset = dataset
        self._elements = enumerate(dataset._dataset)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        position, batch = next(self._elements)
        extended = self._dataset._strategy.extended
        return regroup(split_batch(batch, extended._count, position), extended._worker_devices, "dataset element")

    def get_next(self) -> Any:
        """The next element.

        Raises:
            RD29: there is none.
        """
        try:
            return next(self)
        except StopIteration:
            raise errors.error("RD29", "DistributedIterator.get_next", "there are no more elements") from None


class DistributedDataset:
    """Global batches split over the replicas of a strategy; can be read again and again.

    Source: tf.distribute.DistributedDataset.
    """

    def __init__(self, strategy: Any, dataset: Any) -> None:
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self) -> DistributedIterator:
        return DistributedIterator(self)


def distribute(strategy: Any, dataset: Any, options: Any) -> DistributedDataset:
    """What `Strategy.experimental_distribute_dataset` returns.

    Raises:
        RD25: a dataset that cannot be iterated again, or bad options.
    """
    if options is not None and not isinstance(options, InputOptions):
        raise errors.error("RD25", "experimental_distribute_dataset", f"options is {options!r}",
                           "Pass InputOptions or None.")
    if options is not None and options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise errors.error("RD20", "experimental_distribute_dataset", "the replication mode is PER_REPLICA",
                           "PER_WORKER is the only mode for a dataset.")
    if isinstance(dataset, (str, bytes, PerReplica)) or not hasattr(dataset, "__iter__") \
            or hasattr(dataset, "__next__"):
        raise errors.error("RD25", "experimental_distribute_dataset", f"got a {type(dataset).__name__}",
                           "Pass a refdist.data.Dataset, or a list of batches; an iterator can be read only once.")
    return DistributedDataset(strategy, dataset)
