"""The methods of `Dataset` that make one dataset from another.

Each checks its arguments, names the generator that does the work, and says what is known of the result.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from refdist import errors, nest
from refdist.data import elements, facts, iterators, threads
from refdist.data.elements import check_count, check_function
from refdist.data.facts import UNKNOWN_CARDINALITY, Facts, Reading
from refdist.data.spec import batched, open_lengths, unbatched, with_rows

if TYPE_CHECKING:
    from refdist.data.dataset import Dataset

AUTOTUNE = -1
_READ_AHEAD = 2  # elements, where AUTOTUNE leaves the number to us
Read = Callable[[Reading], Iterable[Any]]


class Transformations:
    """What `Dataset` inherits; documented there."""

    _facts: Facts
    _rows: Any
    _indices: Read
    _read: Read

    def _then(self, read: Read, known: Facts) -> Dataset:
        raise NotImplementedError

    def _select(self, change: Callable[[Read, Reading], Iterable[Any]], cardinality: int) -> Dataset:
        raise NotImplementedError

    # Batches.

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Stacks `batch_size` elements; the last batch can be shorter unless it is dropped.

        Batches of rows that lie side by side in an array are views of it.

        Raises:
            RD25: a size below 1.  RD26: elements of different shapes or structures, with the row's number.

        Source: tf.data.Dataset.batch.
        """
        check_count("batch", "batch_size", batch_size, 1)
        known = self._facts
        known = known._replace(
            cardinality=facts.batches(known.cardinality, batch_size, drop_remainder), batch_size=batch_size,
            static=drop_remainder, certain=True,
            spec=None if known.spec is None else batched(known.spec, batch_size if drop_remainder else None))
        if self._rows is not None:
            rows, indices = self._rows, self._indices
            return self._then(
                lambda reading: iterators.batch_rows(rows, indices(reading), batch_size, drop_remainder), known)
        return self._then(
            lambda reading: iterators.batch(self._read(reading), batch_size, drop_remainder, elements.stack), known)

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None,
                     drop_remainder: bool = False) -> Dataset:
        """As `batch`, for elements of different lengths: each is padded at the end of every dimension.

        Args:
            batch_size: rows of a batch.
            padded_shapes: a nest like an element, of shapes; None in a shape, or for the whole argument, stands
                for the longest length in the batch.
            padding_values: a nest like an element, or None for zeros.
            drop_remainder: whether a last, shorter batch is dropped.

        >>> from refdist.data import Dataset
        >>> ragged = Dataset.from_generator(lambda: iter([[1], [2, 3]]))
        >>> next(iter(ragged.padded_batch(2))).tolist()
        [[1, 0], [2, 3]]

        Raises:
            RD25: a size below 1.  RD26: rows of different structure, dtype or rank, or longer than the shape.

        Source: tf.data.Dataset.padded_batch.
        """
        check_count("padded_batch", "batch_size", batch_size, 1)
        shapes = None if padded_shapes is None else _shapes(padded_shapes)
        padding = None if padding_values is None else nest.flatten(padding_values)
        known = self._facts
        known = known._replace(cardinality=facts.batches(known.cardinality, batch_size, drop_remainder),
                               batch_size=batch_size, static=False, certain=True, spec=None,
                               ragged=shapes is None or any(None in shape for shape in shapes))

        def stack(chunk: list[Any], start: int) -> Any:
            components = len(nest.flatten(chunk[0]))
            for name, given in (("padded_shapes", shapes), ("padding_values", padding)):
                if given is not None and len(given) != components:
                    raise errors.error("RD25", "Dataset.padded_batch", f"{name} has {len(given)} parts, an element has "
                                       f"{components}", "Give one for every component.")
            return elements.pad_and_stack(chunk, start, shapes, padding)

        return self._then(
            lambda reading: iterators.batch(self._read(reading), batch_size, drop_remainder, stack), known)

    def unbatch(self) -> Dataset:
        """The rows of every element.

        Raises:
            RD15: a scalar.  RD26: components with different numbers of rows.

        Source: tf.data.Dataset.unbatch.
        """
        known = self._facts
        count = known.cardinality
        if count > 0:
            first = nest.flatten(known.spec)[0] if known.spec is not None else None
            rows = first.shape[0] if first is not None and first.shape else None
            count = UNKNOWN_CARDINALITY if rows is None else count * rows
        spec = None if known.spec is None else unbatched(known.spec)
        return self._then(lambda reading: iterators.unbatch(self._read(reading)),
                          Facts(cardinality=count, spec=spec, ragged=known.ragged, files=known.files))

    def rebatch(self, batch_size: Any, drop_remainder: bool = False) -> Dataset:
        """Cuts batches of any size into batches of `batch_size` rows, or of several sizes in turn.

        Raises:
            RD15: a scalar.  RD25: a size below 1.  RD26: batches that do not fit together.

        Source: tf.data.Dataset.rebatch.
        """
        sizes = list(batch_size) if isinstance(batch_size, (list, tuple, np.ndarray)) else [batch_size]
        if not sizes:
            raise errors.error("RD25", "Dataset.rebatch", "there is no size", "Pass at least one.",
                               kind=errors.InvalidValueError)
        for size in sizes:
            check_count("rebatch", "batch_size", size, 1)
        one = sizes[0] if len(set(sizes)) == 1 else None
        static = drop_remainder and one is not None
        spec = None if self._facts.spec is None else with_rows(self._facts.spec, one if static else None)
        known = Facts(spec=spec, batch_size=one, static=static, certain=static, ragged=self._facts.ragged,
                      files=self._facts.files)
        return self._then(lambda reading: iterators.rebatch(self._read(reading), sizes, drop_remainder), known)

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Elements that are datasets of `size` elements each, beginning every `shift` (by default `size`) elements.

        Of a nested element each component becomes a dataset.

        >>> from refdist.data import Dataset
        >>> [list(map(int, one)) for one in Dataset.range(5).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4], [4]]

        Raises:
            RD25: a number below 1.

        Source: tf.data.Dataset.window.
        """
        shift = size if shift is None else shift
        for name, value in (("size", size), ("shift", shift), ("stride", stride)):
            check_count("window", name, value, 1)
        count = facts.windows(self._facts.cardinality, size, shift, stride, drop_remainder)
        return self._then(
            lambda reading: map(self._of_window,
                                iterators.windows(self._read(reading), size, shift, stride, drop_remainder)),
            Facts(cardinality=count, files=self._facts.files))

    def _of_window(self, chunk: list[Any]) -> Any:
        def of_column(column: tuple[Any, ...]) -> Dataset:
            return self._then(lambda _: iter(column), Facts(cardinality=len(column)))

        datasets = list(map(of_column, zip(*map(nest.flatten, chunk), strict=True)))
        return nest.pack_sequence_as(chunk[0], datasets)

    # Functions of elements.

    def map(self, map_func: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """Applies a function to every element, in order; the parts of a tuple are its arguments.

        Args:
            map_func: the function.
            num_parallel_calls: how many threads call it at once; AUTOTUNE for one per core; None for no thread.

        Raises:
            RD25: bad arguments.
            What the function raises, with a note that says which element it was.

        Source: tf.data.Dataset.map.
        """
        check_function("map", map_func)
        known = self._facts
        known = known._replace(spec=None, certain=known.static,
                               ragged=known.ragged or open_lengths(known.spec, known.batch_size is not None))
        if num_parallel_calls is None:
            return self._then(lambda reading: iterators.call("map", map_func, self._read(reading)), known)
        if num_parallel_calls == AUTOTUNE:
            num_parallel_calls = os.cpu_count() or 1
        check_count("map", "num_parallel_calls", num_parallel_calls, 1)
        number = num_parallel_calls
        return self._then(lambda reading: threads.map_in_threads(map_func, self._read(reading), number), known)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keeps the elements for which the function is true.

        Raises:
            RD25: no function.
            What the function raises, with a note that says which element it was.

        Source: tf.data.Dataset.filter.
        """
        check_function("filter", predicate)

        def read(reading: Reading) -> Iterator[Any]:
            for i, element in enumerate(self._read(reading)):
                try:
                    kept = bool(iterators.apply(predicate, element))
                except Exception as error:
                    raise iterators.noted(error, "filter", i) from None
                if kept:
                    yield element
        return self._then(read, self._facts.elements_only(UNKNOWN_CARDINALITY))

    def interleave(self, map_func: Callable[..., Any], cycle_length: int = 16, block_length: int = 1) -> Dataset:
        """Elements of the datasets that `map_func` returns: `block_length` from each of `cycle_length` in turn.

        The order is always the same.

        >>> from refdist.data import Dataset
        >>> rows = Dataset.range(1, 4).interleave(lambda n: Dataset.from_tensors(n).repeat(2), cycle_length=2)
        >>> list(map(int, rows))
        [1, 2, 1, 2, 3, 3]

        Raises:
            RD25: bad arguments, or a function that returns no dataset.

        Source: tf.data.Dataset.interleave.
        """
        check_function("interleave", map_func)
        check_count("interleave", "cycle_length", cycle_length, 1)
        check_count("interleave", "block_length", block_length, 1)

        def read(reading: Reading) -> Iterator[Any]:
            streams = iterators.call("interleave", map_func, self._read(reading))
            return iterators.interleave(map(_dataset, streams), cycle_length, block_length)
        return self._then(read, Facts(files=self._facts.files))

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """The elements of the datasets that `map_func` returns, one dataset after another.

        Source: tf.data.Dataset.flat_map.
        """
        return self.interleave(map_func, cycle_length=1)

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs of a number and an element.

        Source: tf.data.Dataset.enumerate.
        """
        check_count("enumerate", "start", start, -(1 << 63))
        return self._then(
            lambda reading: ((np.int64(i), element) for i, element in enumerate(self._read(reading), start)),
            Facts(cardinality=self._facts.cardinality, files=self._facts.files))

    # Order and choice.

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True) -> Dataset:
        """Draws the next element at random from a buffer of `buffer_size`.

        With a seed, the first iteration is the same in every run, and so is the second.  The order is not the
        one that TensorFlow draws.

        Source: tf.data.Dataset.shuffle.
        """
        check_count("shuffle", "buffer_size", buffer_size, 1)
        sources: dict[int | None, random.Random] = {}
        fixed = random.Random(seed).randrange(1 << 62)

        def change(read: Read, reading: Reading) -> Iterator[Any]:
            # Workers that agreed upon a seed draw one order, so that each row is read by one of them.
            agreed = seed if seed is not None else reading.seed
            source = sources.setdefault(agreed, random.Random(agreed))
            if reading.peek:
                source = copy(source)
            drawn = source.randrange(1 << 62)
            if not reshuffle_each_iteration:
                drawn = fixed if agreed == seed else agreed or 0
            return iterators.shuffle(read(reading), buffer_size, drawn)
        return self._select(change, self._facts.cardinality)

    def repeat(self, count: int | None = None) -> Dataset:
        """The elements `count` times over; None and -1 mean for ever.

        Source: tf.data.Dataset.repeat.
        """
        times = None if count == -1 else count
        if times is not None:
            check_count("repeat", "count", times, 0)
        return self._select(lambda read, reading: iterators.repeat(partial(read, reading), times),
                            facts.repeated(self._facts.cardinality, times))

    def take(self, count: int) -> Dataset:
        """The first `count` elements; -1 means all.

        Source: tf.data.Dataset.take.
        """
        check_count("take", "count", count, -1)
        return self._select(lambda read, reading: iterators.part(read(reading), 0, None if count == -1 else count),
                            facts.taken(self._facts.cardinality, count))

    def skip(self, count: int) -> Dataset:
        """All but the first `count` elements.

        Source: tf.data.Dataset.skip.
        """
        check_count("skip", "count", count, 0)
        return self._select(lambda read, reading: iterators.part(read(reading), count, None),
                            facts.skipped(self._facts.cardinality, count))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        Raises:
            RD25: an index outside [0, num_shards).

        Source: tf.data.Dataset.shard.
        """
        check_count("shard", "num_shards", num_shards, 1)
        check_count("shard", "index", index, 0)
        if index >= num_shards:
            raise errors.error("RD25", "Dataset.shard", f"index is {index} of {num_shards} shards",
                               "Pass an index below num_shards.", kind=errors.InvalidValueError)
        return self._select(lambda read, reading: iterators.part(read(reading), index, None, num_shards),
                            facts.sharded(self._facts.cardinality, num_shards, index))

    # Keeping and reading ahead.

    def cache(self) -> Dataset:
        """Keeps the elements in memory once they have all been read.

        Source: tf.data.Dataset.cache.
        """
        kept: dict[Reading, list[Any]] = {}

        def read(reading: Reading) -> Iterator[Any]:
            if reading in kept:
                yield from kept[reading]
                return
            mine = []
            for element in self._read(reading):
                mine.append(element)
                yield element
            kept[reading] = mine
        return self._then(read, self._facts)

    def prefetch(self, buffer_size: int) -> Dataset:
        """Reads up to `buffer_size` elements in another thread before they are asked for; AUTOTUNE means 2.

        Source: tf.data.Dataset.prefetch.
        """
        check_count("prefetch", "buffer_size", buffer_size, AUTOTUNE)
        if buffer_size == 0:
            return self._then(self._read, self._facts)
        count = _READ_AHEAD if buffer_size == AUTOTUNE else buffer_size
        return self._then(lambda reading: threads.ReadAhead(partial(self._read, reading), count), self._facts)


def _dataset(found: Any) -> Any:
    if not isinstance(found, Transformations):
        raise errors.error("RD25", "Dataset.interleave", f"the function returned a {type(found).__name__}",
                           "Return a Dataset.")
    return found


def _shapes(padded_shapes: Any) -> list[tuple[int | None, ...]]:
    # A list or tuple of ints and None is one shape, not a structure.
    if isinstance(padded_shapes, (list, tuple)) and all(n is None or isinstance(n, int) for n in padded_shapes):
        return [tuple(None if n == -1 else n for n in padded_shapes)]
    if isinstance(padded_shapes, dict):
        return [shape for key in sorted(padded_shapes) for shape in _shapes(padded_shapes[key])]
    if isinstance(padded_shapes, (list, tuple)):
        return [shape for item in padded_shapes for shape in _shapes(item)]
    raise errors.error("RD25", "Dataset.padded_batch", f"padded_shapes is {padded_shapes!r}",
                       "Pass a nest of shapes like an element, or None.")
