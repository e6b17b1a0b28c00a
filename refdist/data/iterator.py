"""`Iterator` reads a dataset once, one element at a time; `Optional` holds an element, or none at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from collections.abc import Iterator as PythonIterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from refdist import errors
from refdist.data.elements import arrays
from refdist.data.spec import HasSpec, spec_of

BUSY = "generator already executing"  # what Python says of a second reader
# How many forks lie between the first process and this one: a lock is of one process.
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Optional:
    """An element, or nothing: what is left when an iterator has ended.

    >>> import numpy as np
    >>> from refdist import TensorSpec
    >>> some, none = Optional.from_value([1, 2]), Optional.empty(TensorSpec((2,), np.int32))
    >>> some.has_value(), none.has_value(), some.element_spec == none.element_spec
    (np.True_, np.False_, True)

    Source: tf.experimental.Optional.
    """

    __slots__ = ("_spec", "_values")

    def __init__(self, values: tuple[object, ...], spec: Callable[[], object]) -> None:
        self._values = values
        self._spec = spec

    @staticmethod
    def from_value(value: object) -> Optional:
        """An Optional with an element; numbers and lists become arrays.

        Args:
            value: the element, a nest of arrays.

        Source: tf.experimental.Optional.from_value.
        """
        element = arrays(value)
        return Optional((element,), lambda: spec_of(element))

    @staticmethod
    def empty(element_spec: object) -> Optional:
        """An Optional without an element, which would have this spec.

        Args:
            element_spec: a nest of TensorSpecs.

        Source: tf.experimental.Optional.empty.
        """
        return Optional((), lambda: element_spec)

    @property
    def element_spec(self) -> Any:
        """The spec of the element, also if there is none; that of a distributed dataset's iterator is its dataset's.

        Raises:
            RD29: the spec takes reading, and the dataset is empty.

        Source: tf.experimental.Optional.element_spec.
        """
        return self._spec()

    def has_value(self, name: str | None = None) -> np.bool_:
        """Whether there is an element, as a scalar array.

        Source: tf.experimental.Optional.has_value.
        """
        return np.bool_(self._values != ())

    def get_value(self, name: str | None = None) -> Any:
        """The element.

        Raises:
            RD29: it is empty.

        Source: tf.experimental.Optional.get_value.
        """
        if not self._values:
            raise errors.error("RD29", "Optional.get_value", "it is empty", "Check `has_value()` first.",
                               kind=errors.InvalidArgumentError)
        return self._values[0]


class Iterator:
    """Reads a dataset once, from its beginning.

    Args:
        dataset: the dataset.
        elements: its elements, in order.

    >>> import refdist
    >>> iterator = iter(refdist.data.Dataset.range(2))
    >>> iterator.get_next(), next(iterator), iterator.get_next_as_optional().has_value()
    (np.int64(0), np.int64(1), np.False_)

    Source: tf.data.Iterator.
    """

    def __init__(self, dataset: HasSpec, elements: PythonIterator[object]) -> None:
        self._dataset = dataset
        self._elements = elements
        # Of several threads each gets elements of its own, one after another.  In a forked process nobody ends the turn
        # that a thread had there, so each process has its own lock.  The thread that reads may enter again: a signal
        # handler does, or the dataset's own function, and gets an error.
        self._turns = {_forks: threading.RLock()}

    def __iter__(self) -> PythonIterator[Any]:
        return self

    @property
    def _turn(self) -> AbstractContextManager[bool]:
        return self._turns.get(_forks) or self._turns.setdefault(_forks, threading.RLock())

    def __next__(self) -> Any:
        with self._turn:
            try:
                return next(self._elements)
            except ValueError as error:
                if str(error) != BUSY:
                    raise
                raise self._busy() from error

    def _busy(self) -> errors.RefdistError:
        return errors.error("RD09", f"next of {type(self).__name__}", "its next element is being made: by the code "
                            "that this call is part of or has interrupted, or by a thread that the fork of this "
                            "process has left behind", "Give a signal handler, a function of the dataset or a forked "
                            "process an iterator of its own.")

    def next(self) -> Any:
        """The next element, as `next(iterator)`.

        Raises:
            StopIteration: there are no more.  RD09, RD10: wrong context, for a distributed dataset.

        Source: observed, TensorFlow 2.21.
        """
        return next(self)

    @property
    def element_spec(self) -> Any:
        """The `element_spec` of the dataset.

        Source: tf.data.Iterator.element_spec.
        """
        return self._dataset.element_spec

    def get_next(self) -> Any:
        """The next element.

        Raises:
            RD09, RD10: wrong context, for a distributed dataset.  RD29: there are no more elements.

        Source: tf.data.Iterator.get_next.
        """
        try:
            return next(self)
        except StopIteration:
            raise errors.error("RD29", f"{type(self).__name__}.get_next", "there are no more elements") from None

    def get_next_as_optional(self) -> Optional:
        """The next element, or an Optional without one.

        >>> import numpy as np, refdist
        >>> iterator = iter(refdist.OneDeviceStrategy("CPU:0").experimental_distribute_dataset([np.ones(2)]))
        >>> [iterator.get_next_as_optional().has_value() for _ in range(2)]
        [np.True_, np.False_]

        Raises:
            RD09, RD10: wrong context, for a distributed dataset.

        Source: tf.data.Iterator.get_next_as_optional.
        """
        for element in self:
            return Optional((element,), lambda: self.element_spec)
        return Optional((), lambda: self.element_spec)
