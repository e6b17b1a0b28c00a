"""The methods of `Dataset` that batch, choose and reorder elements, keep them, or read ahead.

Each checks its arguments, names the generator of `iterators.py` that does the work, and computes the facts of its
result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from refdist import errors, nest
from refdist.core import call_site, loops
from refdist.core.integers import as_integer
from refdist.data import elements, facts, iterators, threads
from refdist.data.elements import count_of, handed
from refdist.data.facts import UNKNOWN_CARDINALITY, Facts, Reading
from refdist.data.pipeline import Pipeline
from refdist.data.position import Drawn, Seeds, Tape
from refdist.data.spec import DatasetSpec, TensorSpec, batched, padded, rebatched, rows_in, unbatched

if TYPE_CHECKING:
    from refdist.data.dataset import Dataset

AUTOTUNE = -1
_READ_AHEAD = 2  # elements, for AUTOTUNE


class Transformations(Pipeline):
    """The transformations that every dataset has.

    A `name` is a node's in TensorFlow's graphs; it has no effect.
    """

    # Batches.

    def batch(self, batch_size: int, drop_remainder: bool = False, num_parallel_calls: int | None = None,
              deterministic: bool | None = None, name: str | None = None) -> Dataset:
        """Stacks `batch_size` elements; the last batch can be shorter unless it is dropped.

        Batches of consecutive rows of an array are views of it.

        Args:
            batch_size: the number of elements in a batch.
            drop_remainder: whether to drop a last, shorter batch.
            num_parallel_calls, deterministic: without effect.
            name: without effect.

        Raises:
            RD25, RD34: a size that is no integer, or below 1.
            RD26: shapes, dtypes or structures differ; the message has the numbers of the rows.

        Source: tf.data.Dataset.batch.
        """
        batch_size = count_of("batch", "batch_size", batch_size, 1)
        known = self._facts
        known = known._replace(
            cardinality=facts.batches(known.cardinality, batch_size, drop_remainder), batch_size=batch_size,
            static=drop_remainder, certain=True, epoch=facts.batches(known.epoch, batch_size, False),
            spec=self._spec(lambda spec: batched(spec, batch_size if drop_remainder else None)))
        origin = self._origin and self._origin.batched(batch_size, drop_remainder)
        if self._numbered is not None:
            rows, numbers = self._numbered
            return self._then(
                lambda reading: iterators.batch_rows(rows, numbers(reading), batch_size, drop_remainder), known, origin)
        return self._then(lambda reading: iterators.batch(self._read(reading), batch_size, drop_remainder,
                                                          elements.stack), known, origin)

    def padded_batch(self, batch_size: int, padded_shapes: object = None, padding_values: object = None,
                     drop_remainder: bool = False, name: str | None = None) -> Dataset:
        """As `batch`, for elements of different lengths: each is padded at the end of every dimension.

        Args:
            batch_size: rows of a batch.
            padded_shapes: a nest of shapes like an element; None in a shape, or instead of the nest, means the longest
                length in the batch.
            padding_values: a nest of values like an element, or one value for all components.  None, also in the place
                of a component or of several, means zeros and empty text.
            drop_remainder: whether a last, shorter batch is dropped.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> ragged = Dataset.from_generator(lambda: iter([[1], [2, 3]]))
        >>> next(iter(ragged.padded_batch(2))).tolist()
        [[1, 0], [2, 3]]

        Raises:
            RD05: padding of another kind of number.  RD25, RD34: a size that is no integer, or below 1.
            RD26: rows of different structure, dtype or rank, or longer than the shape.

        Source: tf.data.Dataset.padded_batch.
        """
        batch_size = count_of("padded_batch", "batch_size", batch_size, 1)
        shapes = None if padded_shapes is None else _shapes(padded_shapes)
        rows = batch_size if drop_remainder else None
        known = self._facts
        known = known._replace(cardinality=facts.batches(known.cardinality, batch_size, drop_remainder),
                               batch_size=batch_size, static=drop_remainder, certain=True,
                               epoch=facts.batches(known.epoch, batch_size, False),
                               spec=self._spec(lambda spec: padded(spec, shapes, rows)))

        def stack(chunk: list[object], start: int) -> object:
            components = len(nest.flatten(chunk[0]))
            values = ([padding_values] * components if not nest.is_nested(padding_values)
                      else _of_components(padding_values, chunk[0]))
            for given, parts in (("padded_shapes", shapes), ("padding_values", values)):
                if parts is not None and len(parts) != components:
                    raise errors.error("RD25", "Dataset.padded_batch", f"{given} has {len(parts)} parts, an element "
                                       f"has {components}", "Give one for every component.")
            return elements.pad_and_stack(chunk, start, shapes, values)

        return self._then(
            lambda reading: iterators.batch(self._read(reading), batch_size, drop_remainder, stack), known,
            self._origin and self._origin.batched(batch_size, drop_remainder))

    def unbatch(self, name: str | None = None) -> Dataset:
        """The rows of every element: where that is a nest of arrays of shapes [rows, ...], nests of arrays [...].

        Args:
            name: without effect.

        Raises:
            RD15: a scalar.  RD26: components with different numbers of rows.

        Source: tf.data.Dataset.unbatch.
        """
        known = self._facts
        rows = [] if callable(known.spec) else rows_in(known.spec, "Dataset.unbatch")
        return self._then(lambda reading: iterators.unbatch(self._read(reading)),
                          Facts(facts.unbatched(known.cardinality, rows), self._spec(unbatched), files=known.files))

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False,
                name: str | None = None) -> Dataset:
        """Cuts batches of any size into batches of `batch_size` rows, or of several sizes in turn.

        Elements are nests of arrays of shapes [rows, ...], before and after it, with the same dtypes.

        Args:
            batch_size: the rows of each batch; or a list of ints, or an array of integers of shape [n], for batches of
                several sizes in turn.
            drop_remainder: whether a last, shorter batch is dropped.
            name: without effect.

        Raises:
            RD15: a scalar.  RD25, RD34: a size that is no integer, or below 1.
            RD26: batches that do not fit together.

        Source: tf.data.Dataset.rebatch.
        """
        given: list[object] = [batch_size]
        if isinstance(batch_size, (list, tuple)) or (isinstance(batch_size, np.ndarray) and batch_size.ndim):
            given = list(batch_size)
        if not given:
            raise errors.error("RD34", "Dataset.rebatch", "batch_size is empty", "Pass at least one size.")
        sizes = [count_of("rebatch", "batch_size", size, 1) for size in given]
        only_size = sizes[0] if len(set(sizes)) == 1 else None
        static = drop_remainder and only_size is not None
        known = Facts(spec=self._spec(lambda spec: rebatched(spec, only_size, drop_remainder)), batch_size=only_size,
                      static=static, certain=static, files=self._facts.files)
        return self._then(lambda reading: iterators.rebatch(self._read(reading), sizes, drop_remainder), known)

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False,
               name: str | None = None) -> Dataset:
        """Elements that are datasets of `size` elements each; one begins every `shift` (by default `size`) elements.

        If elements are nests, each component becomes a dataset.

        Args:
            size: how many elements a window has.
            shift: how many elements after the one before a window begins; None for `size`.
            stride: the distance of two elements of a window: 2 takes every second one.
            drop_remainder: whether windows at the end that are shorter are dropped.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> [list(map(int, one)) for one in Dataset.range(5).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4], [4]]

        Raises:
            RD25, RD34: a number that is no integer, or below 1.

        Source: tf.data.Dataset.window.
        """
        size, stride = count_of("window", "size", size, 1), count_of("window", "stride", stride, 1)
        shift = size if shift is None else count_of("window", "shift", shift, 1)
        count = facts.windows(self._facts.cardinality, size, shift, stride, drop_remainder)
        return self._then(
            lambda reading: map(self._of_window,
                                iterators.windows(self._read(reading), size, shift, stride, drop_remainder)),
            Facts(count, self._spec(lambda spec: nest.map_structure(DatasetSpec, spec)), files=self._facts.files))

    def _of_window(self, chunk: list[object]) -> object:
        def of_column(i: int, column: tuple[object, ...]) -> Dataset:
            return self._then(lambda _: iter(column),
                              Facts(len(column), self._spec(lambda spec: nest.flatten(spec)[i])))

        columns = enumerate(zip(*map(nest.flatten, chunk), strict=True))
        return nest.pack_sequence_as(chunk[0], [of_column(i, column) for i, column in columns])

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Pairs of a number, int64, and an element.

        Args:
            start: the number of the first element, which may be negative.
            name: without effect.

        Raises:
            RD25, RD34: `start` is no integer, or less than -2**63.

        Source: tf.data.Dataset.enumerate.
        """
        start = count_of("enumerate", "start", start, -(1 << 63))
        return self._then(
            lambda reading: ((np.int64(i), element) for i, element in enumerate(self._read(reading), start)),
            # Not of files any more: workers that divide them would each count from the start.
            self._facts._replace(spec=self._spec(lambda spec: (TensorSpec((), np.int64), spec)), batch_size=None,
                                 static=False, files=0))

    # Order and choice.

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool | None = True,
                name: str | None = None) -> Dataset:
        """Draws each element at random from a buffer of `buffer_size`; UNKNOWN_CARDINALITY buffers all elements.

        With a seed, the first iteration is the same in every run, and so is each later one.  The order is not that of
        TensorFlow.  None for `reshuffle_each_iteration` means True.

        Args:
            buffer_size: how many elements are kept to draw from.
            seed: an int, from which the order follows; None for another order in every run, which all workers of a
                distributed dataset have alike.
            reshuffle_each_iteration: whether each iteration has another order.
            name: without effect.

        Raises:
            RD25, RD34: a size or seed that is no integer, or a size below 1.

        Source: tf.data.Dataset.shuffle.
        """
        size = sys.maxsize
        if buffer_size != UNKNOWN_CARDINALITY:
            size = count_of("shuffle", "buffer_size", buffer_size, 1)
        drawn = None if seed is None else count_of("shuffle", "seed", seed)
        fresh = reshuffle_each_iteration is None or reshuffle_each_iteration
        seed_of = Seeds(drawn, fresh)
        shuffled = self._select(lambda read, reading: iterators.shuffle(read(reading), size, seed_of(reading)),
                                self._facts.cardinality)
        shuffled._sources = (*self._sources, seed_of)
        return shuffled

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """The elements `count` times over; None and negative numbers mean without end.

        Args:
            count: how many times.
            name: without effect.

        Raises:
            RD25: `count` is neither an integer nor None.

        Source: tf.data.Dataset.repeat.
        """
        if count is not None:
            count = count_of("repeat", "count", count)
        times = None if count is None or count < 0 else count
        repeated = self._select(lambda read, reading: iterators.repeat(partial(read, reading), times),
                                facts.repeated(self._facts.cardinality, times))
        if times is None and self._facts.cardinality > 0:
            repeated._facts = repeated._facts._replace(epoch=self._facts.cardinality)
        repeated._origin = None  # row numbers would be drawn in one order, but each repetition has another
        return repeated

    def take(self, count: int, name: str | None = None) -> Dataset:
        """The first `count` elements; a negative number means all.

        Args:
            count: how many.
            name: without effect.

        Raises:
            RD25: `count` is no integer.

        Source: tf.data.Dataset.take.
        """
        count = count_of("take", "count", count)
        taken = self._select(lambda read, reading: iterators.part(read(reading), 0, None if count < 0 else count),
                             facts.taken(self._facts.cardinality, count))
        taken._facts = taken._facts._replace(part=True)
        return taken

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """All but the first `count` elements; a negative number skips all.

        Args:
            count: how many.
            name: without effect.

        Raises:
            RD25: `count` is no integer.

        Source: tf.data.Dataset.skip.
        """
        count = count_of("skip", "count", count)
        start, stop = (count, None) if count >= 0 else (0, 0)
        rest = self._select(lambda read, reading: iterators.part(read(reading), start, stop),
                            facts.skipped(self._facts.cardinality, count))
        rest._facts = rest._facts._replace(part=True)
        return rest

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        Args:
            num_shards: how many parts there are, 1 or more.
            index: the number of the part, from 0.
            name: without effect.

        Raises:
            RD25, RD34: a number that is no integer, or an index outside [0, num_shards).

        Source: tf.data.Dataset.shard.
        """
        num_shards, index = count_of("shard", "num_shards", num_shards, 1), count_of("shard", "index", index, 0)
        if index >= num_shards:
            raise errors.error("RD34", "Dataset.shard", f"index is {index} and num_shards is {num_shards}",
                               "Pass an index from 0 to num_shards - 1.")
        sharded = self._select(lambda read, reading: iterators.part(read(reading), index, None, num_shards),
                               facts.sharded(self._facts.cardinality, num_shards, index))
        site = call_site.that_led_here()
        fixed = bool(site) and loops.passes_a_number(site[0], "shard", 1, "index")
        sharded._facts = sharded._facts._replace(
            shards=num_shards * sharded._facts.shards, shard=None if fixed else index)
        return sharded

    # Keeping and reading ahead.

    def cache(self, filename: str = "", name: str | None = None) -> Dataset:
        """Keeps the elements in memory once they have all been read.

        Args:
            filename: "" for memory, which is all that there is here.
            name: without effect.

        Raises:
            RD20: a `filename`, where TensorFlow would store them.

        Source: tf.data.Dataset.cache.
        """
        if filename:
            raise errors.error("RD20", "Dataset.cache", f"filename is {filename!r}",
                               "Keep the elements in memory, `cache()`, or write them with `np.save` or a "
                               "`TFRecordWriter`.")
        kept: dict[Reading, tuple[list[object], Drawn]] = {}

        def read(reading: Reading) -> Iterator[object]:
            tape, key = reading.tape or Tape(()), reading._replace(tape=None)
            if key in kept and tape.takes(kept[key][1]):
                yield from map(handed, kept[key][0])
                return
            elements_read, mark = [], tape.mark()
            for element in self._read(reading):
                elements_read.append(element)
                yield handed(element)
            kept[key] = elements_read, tape.since(mark)
            for source, number in kept[key][1].taken:
                source.cached(reading.seed, number)
        return self._then(read, self._same())

    def prefetch(self, buffer_size: int | None, name: str | None = None) -> Dataset:
        """Reads up to `buffer_size` elements ahead in another thread; AUTOTUNE and None mean 2.

        Args:
            buffer_size: how many elements; 0 for none, without a thread.
            name: without effect.

        Raises:
            RD25, RD34: no integer, or one below -1, which is AUTOTUNE.

        Source: tf.data.Dataset.prefetch.
        """
        buffer_size = AUTOTUNE if buffer_size is None else count_of("prefetch", "buffer_size", buffer_size, AUTOTUNE)
        if buffer_size == 0:
            return self._then(self._read, self._same(), self._origin)
        count = _READ_AHEAD if buffer_size == AUTOTUNE else buffer_size
        return self._then(lambda reading: threads.ReadAhead(partial(self._read, reading), count), self._same(),
                          self._origin)


def _of_components(values: object, element: object) -> list[object]:
    # None stands for all components of its place.
    if values is None:
        return [None] * len(nest.flatten(element))
    parts_of_value, parts_of_element = nest.items(values), nest.items(element)
    if not nest.is_nested(values) or not nest.is_nested(element) or len(parts_of_value) != len(parts_of_element):
        return nest.flatten(values)
    return [value for pair in zip(parts_of_value, parts_of_element, strict=True) for value in _of_components(*pair)]


def _shapes(padded_shapes: object) -> list[tuple[int | None, ...]]:
    # A list or tuple of ints and None is one shape, not a structure.
    if isinstance(padded_shapes, (list, tuple)) and all(
            n is None or as_integer(n) is not None for n in padded_shapes):
        sizes = map(as_integer, padded_shapes)
        return [tuple(None if n == -1 else n for n in sizes)]
    if isinstance(padded_shapes, dict):
        return [shape for key in sorted(padded_shapes) for shape in _shapes(padded_shapes[key])]
    if isinstance(padded_shapes, (list, tuple)):
        return [shape for item in padded_shapes for shape in _shapes(item)]
    raise errors.error("RD25", "Dataset.padded_batch", f"padded_shapes is {padded_shapes!r}",
                       "Pass a nest of shapes like an element, or None.")
