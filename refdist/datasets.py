"""Distributed datasets: which replica gets which rows of every batch.

The split itself is a pure function in `data.split`; elements become PerReplica values here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from refdist import errors, nest
from refdist.arrays import to_array
from refdist.data.dataset import Dataset
from refdist.data.options import AutoShardPolicy
from refdist.data.split import split_batch, split_stream
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


class InputContext:
    """What an input function is told: for which input pipeline it makes a dataset.

    >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(32)
    8

    Source: tf.distribute.InputContext.
    """

    __slots__ = ("_id", "_pipelines", "_replicas")

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        self._pipelines = num_input_pipelines
        self._id = input_pipeline_id
        self._replicas = num_replicas_in_sync

    @property
    def num_input_pipelines(self) -> int:
        """How many input pipelines there are, one per worker."""
        return self._pipelines

    @property
    def input_pipeline_id(self) -> int:
        """This pipeline, from 0."""
        return self._id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are on all workers."""
        return self._replicas

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The global batch size divided by the number of replicas.

        Raises:
            RD25: it is no int, or the number of replicas does not divide it.
        """
        if isinstance(global_batch_size, bool) or not isinstance(global_batch_size, int):
            raise errors.error("RD25", "get_per_replica_batch_size", f"global_batch_size is {global_batch_size!r}",
                               "Pass an int.")
        if global_batch_size % self._replicas:
            raise errors.error("RD25", "get_per_replica_batch_size", f"global_batch_size is {global_batch_size} and "
                               f"there are {self._replicas} replicas", "Pass a multiple of the number of replicas.",
                               kind=errors.InvalidValueError)
        return global_batch_size // self._replicas

    def __str__(self) -> str:
        return f"tf.distribute.InputContext(input pipeline id {self._id}, total: {self._pipelines})"


class Optional:
    """An element, or the word that there is none.

    Source: tf.experimental.Optional.
    """

    __slots__ = ("_values",)

    def __init__(self, *values: Any) -> None:
        self._values = values

    def has_value(self) -> bool:
        """Whether there is an element."""
        return bool(self._values)

    def get_value(self) -> Any:
        """The element.

        Raises:
            RD29: there is none.
        """
        if not self._values:
            raise errors.error("RD29", "Optional.get_value", "there is no element", "Ask `has_value()` first.",
                               kind=errors.InvalidArgumentError)
        return self._values[0]


class DistributedIterator:
    """Reads a distributed dataset once, from its beginning.

    Source: tf.distribute.DistributedIterator.
    """

    def __init__(self, dataset: DistributedDataset) -> None:
        self._devices = dataset._strategy.extended._worker_devices
        self._steps = dataset._steps()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return regroup(next(self._steps), self._devices, "dataset element")

    def get_next_as_optional(self) -> Optional:
        """The next element, or an Optional without one.

        >>> import numpy as np, refdist
        >>> iterator = iter(refdist.OneDeviceStrategy("CPU:0").experimental_distribute_dataset([np.ones(2)]))
        >>> [iterator.get_next_as_optional().has_value() for _ in range(2)]
        [True, False]
        """
        for element in self:
            return Optional(element)
        return Optional()

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
    """One element per replica and step; can be read again and again.

    Args:
        strategy: whose replicas read it.
        steps: called for every iteration; yields one list per step with the element of each replica.

    Source: tf.distribute.DistributedDataset.
    """

    def __init__(self, strategy: Any, steps: Callable[[], Iterator[list[Any]]]) -> None:
        self._strategy = strategy
        self._steps = steps

    def __iter__(self) -> DistributedIterator:
        return DistributedIterator(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """`reduce_func(state, element)` over all elements, beginning with `initial_state`."""
        state = initial_state
        for element in self:
            state = reduce_func(state, element)
        return state


def distribute(strategy: Any, dataset: Any, options: Any) -> DistributedDataset:
    """What `Strategy.experimental_distribute_dataset` returns.

    Raises:
        RD25: a dataset that cannot be iterated again, or bad options.
    """
    _check_input_options(options, "experimental_distribute_dataset")
    if options is not None and options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise errors.error("RD20", "experimental_distribute_dataset", "the replication mode is PER_REPLICA",
                           "PER_WORKER is the only mode for a dataset.")
    _check_dataset(dataset, "experimental_distribute_dataset")
    count = strategy.num_replicas_in_sync
    if count > 1 and isinstance(dataset, Dataset) and dataset._batch_size is not None:
        policy = dataset.options().experimental_distribute.auto_shard_policy
        if policy not in (AutoShardPolicy.AUTO, AutoShardPolicy.DATA):
            size = dataset._batch_size
            return DistributedDataset(strategy, lambda: split_stream(dataset, size, count))
    return DistributedDataset(
        strategy, lambda: (split_batch(batch, count, position) for position, batch in enumerate(dataset)))


def distribute_from_function(strategy: Any, dataset_fn: Callable[[InputContext], Any],
                             options: Any) -> DistributedDataset:
    """What `Strategy.distribute_datasets_from_function` returns.

    Raises:
        RD25: bad arguments, or a dataset that cannot be iterated again.
    """
    attempted = "distribute_datasets_from_function"
    if not callable(dataset_fn):
        raise errors.error("RD25", attempted, f"dataset_fn is {dataset_fn!r}", "Pass a function of an InputContext.")
    _check_input_options(options, attempted)
    count = strategy.num_replicas_in_sync
    per_replica = options is not None and options.experimental_replication_mode is InputReplicationMode.PER_REPLICA
    pipelines = count if per_replica else 1
    datasets = [dataset_fn(InputContext(pipelines, i, count)) for i in range(pipelines)]
    for dataset in datasets:
        _check_dataset(dataset, f"the dataset_fn of {attempted}")
    if per_replica:
        return DistributedDataset(strategy, lambda: _side_by_side(datasets))
    return DistributedDataset(strategy, lambda: _in_turn(datasets[0], count))


def _in_turn(dataset: Any, count: int) -> Iterator[list[Any]]:
    # Every replica takes the next element; those that get none at the end get empty arrays.
    elements = iter(dataset)
    for step in itertools.count():
        taken = list(itertools.islice(elements, count))
        if not taken:
            return
        yield [*taken, *(_empty(taken[0], i, step) for i in range(len(taken), count))]


def _side_by_side(datasets: list[Any]) -> Iterator[list[Any]]:
    iterators = [iter(dataset) for dataset in datasets]
    for step in itertools.count():
        taken = [next(iterator, _NOTHING) for iterator in iterators]
        present = [element for element in taken if element is not _NOTHING]
        if not present:
            return
        yield [_empty(present[0], i, step) if element is _NOTHING else element for i, element in enumerate(taken)]


_NOTHING = object()


def _empty(like: Any, replica: int, step: int) -> Any:
    def none_of(leaf: Any) -> Any:
        array = to_array(leaf)
        if array.ndim == 0:
            raise errors.error("RD15", "reading a distributed dataset", f"replica {replica} has no element left in "
                               f"step {step}, and no empty array can stand for a scalar",
                               "Batch the dataset, or make its length a multiple of the number of replicas.")
        return array[:0]

    return nest.map_structure(none_of, like)


def _check_dataset(dataset: Any, attempted: str) -> None:
    if isinstance(dataset, (str, bytes, PerReplica)) or not hasattr(dataset, "__iter__") \
            or hasattr(dataset, "__next__"):
        raise errors.error("RD25", attempted, f"got a {type(dataset).__name__}",
                           "Pass a refdist.data.Dataset, or a list of batches; an iterator can be read only once.")


def _check_input_options(options: Any, attempted: str) -> None:
    if options is not None and not isinstance(options, InputOptions):
        raise errors.error("RD25", attempted, f"options is {options!r}", "Pass InputOptions or None.")
