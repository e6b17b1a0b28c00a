"""The arguments of a strategy's input functions: `InputOptions`, and `InputContext`, which says whose pipeline it is.

Source: tf.distribute.InputOptions, tf.distribute.InputContext.
"""

from __future__ import annotations

from typing import NamedTuple

from refdist import errors
from refdist.core.integers import integer
from refdist.core.rules.options import InputReplicationMode, UnevenEnd
from refdist.core.scaled import counted


class _Fields(NamedTuple):
    experimental_fetch_to_device: bool
    experimental_replication_mode: InputReplicationMode
    experimental_place_dataset_on_device: bool
    experimental_per_replica_buffer_size: int
    uneven_end: UnevenEnd


class InputOptions(_Fields):
    """Options of a distributed dataset.

    Attributes:
        experimental_fetch_to_device: whether arrays are put on the device of their replica; None stands for True.
        experimental_replication_mode: whether an input function is called per worker or per replica.
        experimental_place_dataset_on_device: without effect, as functions of datasets run on the host; for an input
            function only with PER_REPLICA and without experimental_fetch_to_device.
        experimental_per_replica_buffer_size: without effect; `Dataset.prefetch` reads ahead.
        uneven_end: what happens where replicas would get different numbers of rows.

    >>> InputOptions().experimental_fetch_to_device
    True

    Source: tf.distribute.InputOptions; `uneven_end` is refdist's own.
    """

    __slots__ = ()

    def __new__(cls, experimental_fetch_to_device: bool | None = None,
                experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
                experimental_place_dataset_on_device: bool = False, experimental_per_replica_buffer_size: int = 1,
                uneven_end: UnevenEnd = UnevenEnd.EMPTY) -> InputOptions:
        """Makes options; those that are not passed have their defaults."""
        fetch = True if experimental_fetch_to_device is None else experimental_fetch_to_device
        return super().__new__(cls, fetch, experimental_replication_mode, experimental_place_dataset_on_device,
                               experimental_per_replica_buffer_size, uneven_end)


class InputContext:
    """What an input function is told: for which input pipeline it makes a dataset.

    Args:
        num_input_pipelines: how many there are, one for each worker.
        input_pipeline_id: the number of this one, from 0.
        num_replicas_in_sync: how many replicas all workers have together.

    >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(32)
    8

    Source: tf.distribute.InputContext.
    """

    __slots__ = ("_asked", "_id", "_pipelines", "_replicas")

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        self._pipelines = num_input_pipelines
        self._id = input_pipeline_id
        self._replicas = num_replicas_in_sync
        self._asked = False  # for which pipeline the dataset is

    @property
    def num_input_pipelines(self) -> int:
        """How many input pipelines there are, one per worker."""
        return self._pipelines

    @property
    def input_pipeline_id(self) -> int:
        """This pipeline, from 0."""
        self._asked = True
        return self._id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are on all workers."""
        return counted(self._replicas)

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The global batch size divided by the number of replicas.

        Args:
            global_batch_size: the rows of a batch of all replicas together.

        Raises:
            RD34: it is not an int, or not a multiple of the number of replicas.
        """
        size = integer(global_batch_size, "global_batch_size", "get_per_replica_batch_size")
        if size % self._replicas:
            raise errors.error("RD34", "get_per_replica_batch_size", f"global_batch_size is {size} and "
                               f"there are {self._replicas} replicas", "Pass a multiple of the number of replicas.")
        return size // self._replicas

    def __str__(self) -> str:
        return f"tf.distribute.InputContext(input pipeline id {self._id}, total: {self._pipelines})"
