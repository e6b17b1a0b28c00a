"""What the input functions of a strategy are given and give: options, the context of a pipeline, optionals.

Source: tf.distribute.InputOptions, tf.distribute.InputContext, tf.experimental.Optional.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from refdist import errors
from refdist.data.elements import arrays
from refdist.data.options import UnevenEnd
from refdist.data.spec import spec_of


class InputReplicationMode(Enum):
    """For whom an input function is called.

    Source: tf.distribute.InputReplicationMode.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


class InputOptions(NamedTuple):
    """Options of a distributed dataset.

    Attributes:
        experimental_fetch_to_device: whether arrays are put on the device of their replica.
        experimental_replication_mode: for whom an input function is called.
        experimental_place_dataset_on_device: without effect; functions of datasets run on the host.
        experimental_per_replica_buffer_size: without effect; `Dataset.prefetch` reads ahead.
        uneven_end: what happens where replicas would get different numbers of rows.

    Source: tf.distribute.InputOptions; `uneven_end` is refdist's own.
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1
    uneven_end: UnevenEnd = UnevenEnd.EMPTY


class InputContext:
    """What an input function is told: for which input pipeline it makes a dataset.

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

    >>> import numpy as np
    >>> from refdist import TensorSpec
    >>> some, none = Optional.from_value([1, 2]), Optional.empty(TensorSpec((2,), np.int32))
    >>> some.has_value(), none.has_value(), some.element_spec == none.element_spec
    (True, False, True)

    Source: tf.experimental.Optional.
    """

    __slots__ = ("_spec", "_values")

    def __init__(self, values: tuple[Any, ...], spec: Callable[[], Any]) -> None:
        self._values = values
        self._spec = spec

    @staticmethod
    def from_value(value: Any) -> Optional:
        """An Optional with an element; numbers and lists become arrays.

        Source: tf.experimental.Optional.from_value.
        """
        element = arrays(value)
        return Optional((element,), lambda: spec_of(element))

    @staticmethod
    def empty(element_spec: Any) -> Optional:
        """An Optional without an element, which would have this spec.

        Source: tf.experimental.Optional.empty.
        """
        return Optional((), lambda: element_spec)

    @property
    def element_spec(self) -> Any:
        """The spec of the element, which need not be there; of a distributed dataset's, its `element_spec`.

        Raises:
            RD29: it takes reading, and there is no element.

        Source: tf.experimental.Optional.element_spec.
        """
        return self._spec()

    def has_value(self, name: str | None = None) -> bool:
        """Whether there is an element.

        Source: tf.experimental.Optional.has_value.
        """
        return bool(self._values)

    def get_value(self, name: str | None = None) -> Any:
        """The element.

        Raises:
            RD29: there is none.

        Source: tf.experimental.Optional.get_value.
        """
        if not self._values:
            raise errors.error("RD29", "Optional.get_value", "there is no element", "Ask `has_value()` first.",
                               kind=errors.InvalidArgumentError)
        return self._values[0]
