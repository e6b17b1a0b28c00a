"""The iterators that older versions of tf.distribute made of datasets; `Strategy` has the methods that make them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator as PythonIterator
from typing import Any

from refdist.data.iterator import Iterator, Optional
from refdist.input.distributed import DistributedDataset, DistributedIterator


class InputIterator:
    """Reads a distributed dataset from its beginning after every `initialize()`.

    Source: tf.compat.v1.distribute.Strategy.make_dataset_iterator (TensorFlow 1.14).
    """

    def __init__(self, distributed: DistributedDataset) -> None:
        self._distributed = distributed
        self._iterator: Iterator = _begin(distributed)

    def initialize(self) -> None:
        """Starts again from the first element."""
        self._iterator = _begin(self._distributed)

    @property
    def initializer(self) -> None:
        """The same as `initialize()`."""
        self.initialize()

    def get_next(self) -> Any:
        """The next element.

        Raises:
            RD29: there is none.
        """
        return self._iterator.get_next()

    def get_next_as_optional(self) -> Optional:
        """The next element, or an Optional without one."""
        return self._iterator.get_next_as_optional()

    def __iter__(self) -> InputIterator:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


def _begin(distributed: DistributedDataset) -> Iterator:
    # Also where a coordinator does not iterate over the dataset; the default strategy returns the dataset as it was.
    return DistributedIterator(distributed) if isinstance(distributed, DistributedDataset) else iter(distributed)


class Calls:
    """An endless iterable whose elements are the results of calling a function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __iter__(self) -> PythonIterator[Any]:
        while True:
            yield self._function()
