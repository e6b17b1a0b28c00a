"""`Iterator` reads a dataset once, one element at a time; `Optional` holds an element, or none at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Iterator as PythonIterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.backend import scalar
from refdist.data.elements import arrays
from refdist.data.position import Tape, go_on, played_from
from refdist.data.spec import HasSpec, spec_of
from refdist.missing import lacks

BUSY = "generator already executing"  # what Python says of a second reader
# How often this process was forked from the first one; a lock belongs to one process.
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

    def has_value(self, name: str | None = None) -> Any:
        """Whether there is an element, as a scalar array.

        Args:
            name: without effect.

        Source: tf.experimental.Optional.has_value.
        """
        return scalar(np.bool_(self._values != ()))

    def get_value(self, name: str | None = None) -> Any:
        """The element.

        Args:
            name: without effect.

        Raises:
            RD29: it is empty.

        Source: tf.experimental.Optional.get_value.
        """
        if not self._values:
            raise errors.error("RD29", "Optional.get_value", "it is empty", "Check `has_value()` first.",
                               kind=errors.InvalidArgumentError)
        return self._values[0]


@lacks({"output_classes output_shapes output_types": "Write `iterator.element_spec`."})
class Iterator:
    """Reads a dataset once, from its beginning.

    A checkpoint saves its position (`position`), and restores it.

    Args:
        dataset: the dataset.
        opened: reads the elements from the first one on, with a tape for each reading.
        tapes: those of the first reading.

    >>> import refdist
    >>> iterator = iter(refdist.data.Dataset.range(2))
    >>> iterator.get_next(), next(iterator), iterator.get_next_as_optional().has_value()
    (np.int64(0), np.int64(1), np.False_)

    Source: tf.data.Iterator.
    """

    _strategy: Any = None  # whose replicas it reads for

    def __init__(self, dataset: HasSpec, opened: Callable[[Sequence[Tape]], PythonIterator[Any]],
                 tapes: Sequence[Tape]) -> None:
        self._dataset = dataset
        self._opened = opened
        self._tapes = tapes
        self._elements = opened(tapes)
        self._count = 0  # elements that were read
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
                element = next(self._elements)
            except ValueError as error:
                if str(error) != BUSY:
                    raise
                raise self._busy() from error
            self._count += 1
            return element

    def _obstacle(self) -> str:
        """Why the position cannot be saved; "" if it can."""
        for tape in self._tapes:
            if tape.obstacles:
                return f"it reads {tape.obstacles[0]}"
            if tape.stray:
                return "a function of flat_map or interleave returns a dataset that is shuffled by chance, or again"
        return ""

    def _position(self) -> dict[str, Any]:
        """The iterator's position, in values that JSON can hold."""
        with self._turn:
            return {"read": self._count, "readings": [tape.state() for tape in self._tapes]}

    def _place(self) -> dict[str, Any]:
        """The place that a checkpoint saves: the positions of all iterators that are read together."""
        return {"workers": [self._position()]}

    def _go_to(self, place: Any) -> Callable[[], None]:
        """Moves the iterator to a saved place; returns a function that moves it back.

        Raises:
            RD31: the dataset has no such place, or it is none; then nothing has changed.
        """
        with self._turn:
            try:
                return self._read_again(self._here(place["workers"]))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
                raise errors.error("RD31", "Checkpoint.read", f"the position of {errors.type_of(self)} does not fit: "
                                   f"{why}", "Restore an iterator of the same dataset, made by the same calls.",
                                   kind=errors.InvalidValueError) from error

    def _here(self, positions: Sequence[Any]) -> Any:
        """The position in `positions` that is this iterator's.

        Raises:
            ValueError: None of them is.
        """
        if len(positions) != 1:
            raise ValueError(f"{len(positions)} workers have read together")
        return positions[0]

    def _read_again(self, position: Any) -> Callable[[], None]:
        count, states = position["read"], position["readings"]
        if len(states) != len(self._tapes):
            raise ValueError(f"{len(states)} pipelines were read, and here are {len(self._tapes)}")
        sources = [tape.sources for tape in self._tapes]
        tapes = list(map(played_from, states, sources))
        for tape, before in zip(tapes, self._tapes, strict=True):
            tape.obstacles = before.obstacles
        back = partial(self._back, self._elements, self._tapes, self._count, [tape.state() for tape in self._tapes])
        try:
            for tape in self._tapes:
                tape.leave()
            for state, own in zip(states, sources, strict=True):
                go_on(state, own)
            stream = self._opened(tapes)
            passed = sum(1 for _ in islice(stream, count))
            if passed < count:
                raise ValueError(f"{count} elements were read, and the dataset has {passed}")
            if any(tape.stray for tape in tapes):
                raise ValueError("a function returns a dataset that is shuffled again")
        except BaseException:
            for tape in tapes:
                tape.leave()
            back()
            raise
        self._elements, self._tapes, self._count = stream, tapes, count
        return back

    def _back(self, stream: PythonIterator[Any], tapes: Sequence[Tape], count: int,
              states: Sequence[Mapping[str, Any]]) -> None:
        self._elements, self._tapes, self._count = stream, tapes, count
        for state, tape in zip(states, tapes, strict=True):
            tape.leave(False)
            go_on(state, tape.sources)

    def _busy(self) -> errors.RefdistError:
        return errors.error("RD09", f"next of {type(self).__name__}", "its next element is being produced: by code "
                            "that made or was interrupted by this call, or by a thread of the process that was forked",
                            "Give a signal handler, a function of the dataset or a forked process an iterator of its "
                            "own.")

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
