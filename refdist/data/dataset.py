"""`Dataset`: a sequence of elements that can be read again and again.

Every method returns a new dataset; nothing is read before the iteration.  Elements are nests of arrays.
How a batch is split over replicas is in `split`; nothing here knows replicas.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.arrays import to_array
from refdist.data.options import Options


class Dataset:
    """Elements that are read in order.

    >>> import refdist
    >>> for batch in refdist.data.Dataset.range(5).batch(2):
    ...     print(batch)
    [0 1]
    [2 3]
    [4]

    Source: tf.data.Dataset.
    """

    def __init__(self, iterate: Callable[[], Iterator[Any]], batch_size: int | None = None,
                 options: Options | None = None) -> None:
        self._iterate = iterate
        self._batch_size = batch_size  # rows of a full batch, where it is known before reading
        self._options = options or Options()

    def _then(self, iterate: Callable[[], Iterator[Any]], batch_size: int | None = None) -> Dataset:
        return Dataset(iterate, batch_size, self._options)

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator over the elements; they are NumPy arrays already."""
        return iter(self)

    # Sources.

    @staticmethod
    def range(*args: int) -> Dataset:
        """The int64 scalars of `range(*args)`.

        Raises:
            RD25: arguments that `range` does not take.
        """
        try:
            numbers = range(*args)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", f"Dataset.range{args}", str(error), "Pass one to three ints.") from error
        return Dataset(lambda: map(np.int64, numbers))

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element: the whole nest."""
        element = _arrays(tensors)
        return Dataset(lambda: iter([element]))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of every array of a nest; arrays are not copied, so memory maps stay lazy.

        Raises:
            RD15: a scalar has no rows.  RD26: arrays with different numbers of rows.
        """
        structure = _arrays(tensors)
        return Dataset(_Rows(structure, _rows(nest.flatten(structure), "Dataset.from_tensor_slices")))

    @staticmethod
    def from_generator(generator: Callable[[], Iterable[Any]]) -> Dataset:
        """What `generator()` yields, called anew for every iteration.

        Raises:
            RD25: not a function.
        """
        if not callable(generator):
            raise errors.error("RD25", "Dataset.from_generator", f"got {generator!r}",
                               "Pass a function without arguments that returns an iterable.")
        return Dataset(lambda: map(_arrays, generator()))

    # Transformations.

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stacks `batch_size` elements; the last batch can be shorter unless it is dropped.

        Raises:
            RD25: a size below 1.  RD26: elements of different shapes or structures, with the row's number.
        """
        _check_count("batch", "batch_size", batch_size, 1)
        if isinstance(self._iterate, _Rows):
            # Rows that lie side by side are a slice, not a copy.
            rows = self._iterate
            stop = rows.count - rows.count % batch_size if drop_remainder else rows.count
            return self._then(
                lambda: (rows.slice(i, min(i + batch_size, stop)) for i in range(0, stop, batch_size)), batch_size)

        def iterate() -> Iterator[Any]:
            elements = iter(self)
            start = 0
            while chunk := list(itertools.islice(elements, batch_size)):
                if len(chunk) == batch_size or not drop_remainder:
                    yield _stack(chunk, start)
                start += len(chunk)
        return self._then(iterate, batch_size)

    def map(self, map_func: Callable[..., Any]) -> Dataset:
        """Applies a function to every element; the parts of a tuple are passed as arguments."""
        _check_function("map", map_func)

        def iterate() -> Iterator[Any]:
            for element in self:
                yield map_func(*element) if type(element) is tuple else map_func(element)
        return self._then(iterate, self._batch_size)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keeps the elements for which the function is true."""
        _check_function("filter", predicate)

        def iterate() -> Iterator[Any]:
            for element in self:
                if predicate(*element) if type(element) is tuple else predicate(element):
                    yield element
        return self._then(iterate)

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True) -> Dataset:
        """Draws the next element at random from a buffer of `buffer_size`.

        With a seed, the first iteration is the same in every run, and so is the second.
        """
        _check_count("shuffle", "buffer_size", buffer_size, 1)
        source = random.Random(seed)
        fixed = source.randrange(1 << 62)

        def iterate() -> Iterator[Any]:
            draw = random.Random(source.randrange(1 << 62) if reshuffle_each_iteration else fixed)
            buffer: list[Any] = []
            for element in self:
                buffer.append(element)
                if len(buffer) >= buffer_size:
                    i = draw.randrange(len(buffer))
                    buffer[i], buffer[-1] = buffer[-1], buffer[i]
                    yield buffer.pop()
            draw.shuffle(buffer)
            yield from buffer
        return self._then(iterate, self._batch_size)

    def repeat(self, count: int | None = None) -> Dataset:
        """The elements `count` times over; None and -1 mean for ever."""
        endless = count is None or count == -1
        if not endless:
            _check_count("repeat", "count", count, 0)

        def iterate() -> Iterator[Any]:
            for _ in itertools.count() if endless else range(count or 0):
                empty = True
                for element in self:
                    empty = False
                    yield element
                if empty:
                    return
        return self._then(iterate, self._batch_size)

    def take(self, count: int) -> Dataset:
        """The first `count` elements; -1 means all."""
        _check_count("take", "count", count, -1)
        return self._then(lambda: itertools.islice(iter(self), None if count == -1 else count), self._batch_size)

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements."""
        _check_count("skip", "count", count, 0)
        return self._then(lambda: itertools.islice(iter(self), count, None), self._batch_size)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        Raises:
            RD25: an index outside [0, num_shards).
        """
        _check_count("shard", "num_shards", num_shards, 1)
        _check_count("shard", "index", index, 0)
        if index >= num_shards:
            raise errors.error("RD25", "Dataset.shard", f"index is {index} of {num_shards} shards",
                               "Pass an index below num_shards.", kind=errors.InvalidValueError)
        return self._then(lambda: itertools.islice(iter(self), index, None, num_shards), self._batch_size)

    def options(self) -> Options:
        """The options that `with_options` set, or the defaults."""
        return self._options

    def with_options(self, options: Options) -> Dataset:
        """The same elements with other options.

        Raises:
            RD25: not an Options.
        """
        if not isinstance(options, Options):
            raise errors.error("RD25", "Dataset.with_options", f"got {options!r}", "Pass a refdist.data.Options.")
        return Dataset(self._iterate, self._batch_size, options)


class _Rows:
    """Iterates over rows of arrays, and can give several at once."""

    def __init__(self, structure: Any, count: int) -> None:
        self._structure = structure
        self.count = count

    def __call__(self) -> Iterator[Any]:
        return (nest.map_structure(lambda array, i=i: array[i], self._structure) for i in range(self.count))

    def slice(self, start: int, stop: int) -> Any:
        return nest.map_structure(lambda array: array[start:stop], self._structure)


def _arrays(structure: Any) -> Any:
    # As in tf.data, a list is an array and not a structure.
    if isinstance(structure, list):
        return to_array(structure)
    if isinstance(structure, dict):
        return type(structure)((key, _arrays(item)) for key, item in structure.items())
    if isinstance(structure, tuple):
        items = map(_arrays, structure)
        return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)
    return to_array(structure)


def _rows(arrays: list[Any], attempted: str) -> int:
    if not arrays:
        raise errors.error("RD25", attempted, "there is no array", "Pass at least one.",
                           kind=errors.InvalidValueError)
    for array in arrays:
        if array.ndim == 0:
            raise errors.error("RD15", attempted, "a scalar has no rows", "Pass arrays of rank 1 or more.")
    counts = {array.shape[0] for array in arrays}
    if len(counts) > 1:
        raise errors.error("RD26", attempted, f"the arrays have {sorted(counts)} rows",
                           "Give all arrays the same number of rows.")
    return int(counts.pop())


def _stack(elements: list[Any], start: int) -> Any:
    difference = nest.compare(elements)
    if difference is not None:
        i, path, mine, theirs = difference
        raise errors.error("RD26", "Dataset.batch", f"row {start} is {mine}, row {start + i} is {theirs} {path}")
    columns = zip(*map(nest.flatten, elements), strict=True)
    stacked = []
    for column in columns:
        first = column[0]
        for i, array in enumerate(column):
            if np.shape(array) != np.shape(first):
                raise errors.error("RD26", "Dataset.batch", f"row {start} has shape {np.shape(first)}, row "
                                   f"{start + i} has shape {np.shape(array)}", "Bring all rows into one shape.")
        stacked.append(np.stack(column))
    return nest.pack_sequence_as(elements[0], stacked)


def _check_count(method: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise errors.error("RD25", f"Dataset.{method}", f"{name} is {value!r}", "Pass an int.")
    if value < least:
        raise errors.error("RD25", f"Dataset.{method}", f"{name} is {value}", f"Pass {least} or more.",
                           kind=errors.InvalidValueError)


def _check_function(method: str, function: Any) -> None:
    if not callable(function):
        raise errors.error("RD25", f"Dataset.{method}", f"got {function!r}", "Pass a function.")
