"""Pipelines that batch, choose and reorder elements, keep them, or read ahead.

Each function is the method of `Dataset` that its docstring names, where its arguments and errors are documented.  It
checks them, names the generator of `iterators.py` that does the work, and computes the facts of its result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from refdist import errors, nest
from refdist.core import call_site, loops
from refdist.core.integers import as_integer
from refdist.data import elements, facts, iterators, threads
from refdist.data.elements import count_of, handed
from refdist.data.facts import UNKNOWN_CARDINALITY, Facts, Reading
from refdist.data.pipeline import MakesDataset, Pipeline
from refdist.data.position import Drawn, Mark, Seeds, Tape
from refdist.data.spec import DatasetSpec, TensorSpec, batched, padded, rebatched, rows_in, unbatched
from refdist.data.threads import AUTOTUNE

_READ_AHEAD = 2  # elements, for AUTOTUNE


def batch(pipeline: Pipeline, batch_size: int, drop_remainder: bool) -> Pipeline:
    """`Dataset.batch`."""
    batch_size = count_of("batch", "batch_size", batch_size, 1)
    known = pipeline.facts
    known = known._replace(
        cardinality=facts.batches(known.cardinality, batch_size, drop_remainder), batch_size=batch_size,
        static=drop_remainder, certain=True, epoch=facts.batches(known.epoch, batch_size, False),
        spec=pipeline.spec_after(lambda spec: batched(spec, batch_size if drop_remainder else None)))
    origin = pipeline.origin and pipeline.origin.batched(batch_size, drop_remainder)
    if pipeline.numbered is not None:
        rows, numbers = pipeline.numbered
        return pipeline.then(
            lambda reading: iterators.batch_rows(rows, numbers(reading), batch_size, drop_remainder), known, origin)
    return pipeline.then(
        lambda reading: iterators.batch(pipeline.read(reading), batch_size, drop_remainder, elements.stack), known,
        origin)


def padded_batch(pipeline: Pipeline, batch_size: int, padded_shapes: object, padding_values: object,
                 drop_remainder: bool) -> Pipeline:
    """`Dataset.padded_batch`."""
    batch_size = count_of("padded_batch", "batch_size", batch_size, 1)
    shapes = None if padded_shapes is None else _shapes(padded_shapes)
    rows = batch_size if drop_remainder else None
    known = pipeline.facts
    known = known._replace(cardinality=facts.batches(known.cardinality, batch_size, drop_remainder),
                           batch_size=batch_size, static=drop_remainder, certain=True,
                           epoch=facts.batches(known.epoch, batch_size, False),
                           spec=pipeline.spec_after(lambda spec: padded(spec, shapes, rows)))

    def stack(chunk: list[object], start: int) -> object:
        components = len(nest.flatten(chunk[0]))
        values = ([padding_values] * components if not nest.is_nested(padding_values)
                  else _of_components(padding_values, chunk[0]))
        for argument, parts in (("padded_shapes", shapes), ("padding_values", values)):
            if parts is not None and len(parts) != components:
                raise errors.error("RD25", "Dataset.padded_batch", f"{argument} has {len(parts)} parts, an element "
                                   f"has {components}", "Give one for every component.")
        return elements.pad_and_stack(chunk, start, shapes, values)

    return pipeline.then(
        lambda reading: iterators.batch(pipeline.read(reading), batch_size, drop_remainder, stack), known,
        pipeline.origin and pipeline.origin.batched(batch_size, drop_remainder))


def unbatch(pipeline: Pipeline) -> Pipeline:
    """`Dataset.unbatch`."""
    known = pipeline.facts
    rows = [] if callable(known.spec) else rows_in(known.spec, "Dataset.unbatch")
    return pipeline.then(lambda reading: iterators.unbatch(pipeline.read(reading)),
                         Facts(facts.unbatched(known.cardinality, rows), pipeline.spec_after(unbatched),
                               files=known.files))


def rebatch(pipeline: Pipeline, batch_size: int | Sequence[int], drop_remainder: bool) -> Pipeline:
    """`Dataset.rebatch`."""
    stated: list[object] = [batch_size]
    if isinstance(batch_size, (list, tuple)) or (isinstance(batch_size, np.ndarray) and batch_size.ndim):
        stated = list(batch_size)
    if not stated:
        raise errors.error("RD34", "Dataset.rebatch", "batch_size is empty", "Pass at least one size.")
    sizes = [count_of("rebatch", "batch_size", size, 1) for size in stated]
    only_size = sizes[0] if len(set(sizes)) == 1 else None
    static = drop_remainder and only_size is not None
    known = Facts(spec=pipeline.spec_after(lambda spec: rebatched(spec, only_size, drop_remainder)),
                  batch_size=only_size, static=static, certain=static, files=pipeline.facts.files)
    return pipeline.then(lambda reading: iterators.rebatch(pipeline.read(reading), sizes, drop_remainder), known)


def window(pipeline: Pipeline, size: int, shift: int | None, stride: int, drop_remainder: bool,
           dataset: MakesDataset) -> Pipeline:
    """`Dataset.window`; `dataset` makes a dataset of the pipeline of each window."""
    size, stride = count_of("window", "size", size, 1), count_of("window", "stride", stride, 1)
    shift = size if shift is None else count_of("window", "shift", shift, 1)
    count = facts.windows(pipeline.facts.cardinality, size, shift, stride, drop_remainder)

    def of_window(chunk: list[object]) -> object:
        def of_column(i: int, column: tuple[object, ...]) -> object:
            return dataset(pipeline.then(lambda _: iter(column), Facts(
                len(column), pipeline.spec_after(lambda spec: nest.flatten(spec)[i]))))

        columns = enumerate(zip(*map(nest.flatten, chunk), strict=True))
        return nest.pack_sequence_as(chunk[0], [of_column(i, column) for i, column in columns])

    return pipeline.then(
        lambda reading: map(of_window,
                            iterators.windows(pipeline.read(reading), size, shift, stride, drop_remainder)),
        Facts(count, pipeline.spec_after(lambda spec: nest.map_structure(DatasetSpec, spec)),
              files=pipeline.facts.files))


def numbered(pipeline: Pipeline, start: int) -> Pipeline:
    """`Dataset.enumerate`."""
    start = count_of("enumerate", "start", start, -(1 << 63))
    return pipeline.then(
        lambda reading: ((np.int64(i), element) for i, element in enumerate(pipeline.read(reading), start)),
        # Not of files any more: workers that divide them would each count from the start.
        pipeline.facts._replace(spec=pipeline.spec_after(lambda spec: (TensorSpec((), np.int64), spec)),
                                batch_size=None, static=False, files=0))


def shuffle(pipeline: Pipeline, buffer_size: int, seed: int | None, reshuffle_each_iteration: bool | None) -> Pipeline:
    """`Dataset.shuffle`."""
    size = sys.maxsize
    if buffer_size != UNKNOWN_CARDINALITY:
        size = count_of("shuffle", "buffer_size", buffer_size, 1)
    own = None if seed is None else count_of("shuffle", "seed", seed)
    seed_of = Seeds(own, reshuffle_each_iteration is None or reshuffle_each_iteration)
    shuffled = pipeline.select(lambda read, reading: iterators.shuffle(read(reading), size, seed_of(reading)))
    shuffled.sources = (*pipeline.sources, seed_of)
    shuffled.shuffles = True
    return shuffled


def repeat(pipeline: Pipeline, count: int | None) -> Pipeline:
    """`Dataset.repeat`."""
    if count is not None:
        count = count_of("repeat", "count", count)
    times = None if count is None or count < 0 else count
    # TensorFlow carries out `shuffle` and a `repeat` right after it as one, which opens no reading after the last.
    once_more = times not in (None, 1) and not pipeline.shuffles
    repeated = pipeline.select(lambda read, reading: iterators.repeat(partial(read, reading), times, once_more),
                               cardinality=facts.repeated(pipeline.facts.cardinality, times))
    if times is None and pipeline.facts.cardinality > 0:
        repeated.facts = repeated.facts._replace(epoch=pipeline.facts.cardinality)
    repeated.origin = None  # row numbers would be drawn in one order, but each repetition has another
    return repeated


def unique(pipeline: Pipeline) -> Pipeline:
    """`Dataset.unique`."""
    if not callable(pipeline.facts.spec):
        iterators.the_only_array(pipeline.facts.spec, pipeline.facts.spec)
    return pipeline.then(lambda reading: iterators.unique(pipeline.read(reading)),
                         pipeline.same_facts()._replace(cardinality=UNKNOWN_CARDINALITY))


def take(pipeline: Pipeline, count: int) -> Pipeline:
    """`Dataset.take`."""
    count = count_of("take", "count", count)
    return pipeline.select(lambda read, reading: iterators.part(read(reading), 0, None if count < 0 else count),
                           cardinality=facts.taken(pipeline.facts.cardinality, count), part=True)


def skip(pipeline: Pipeline, count: int) -> Pipeline:
    """`Dataset.skip`."""
    count = count_of("skip", "count", count)
    start, stop = (count, None) if count >= 0 else (0, 0)
    return pipeline.select(lambda read, reading: iterators.part(read(reading), start, stop),
                           cardinality=facts.skipped(pipeline.facts.cardinality, count), part=True)


def shard(pipeline: Pipeline, num_shards: int, index: int) -> Pipeline:
    """`Dataset.shard`."""
    num_shards, index = count_of("shard", "num_shards", num_shards, 1), count_of("shard", "index", index, 0)
    if index >= num_shards:
        raise errors.error("RD34", "Dataset.shard", f"index is {index} and num_shards is {num_shards}",
                           "Pass an index from 0 to num_shards - 1.")
    site = call_site.that_led_here()
    fixed = bool(site) and loops.passes_a_number(site[0], "shard", 1, "index")
    known = pipeline.facts
    return pipeline.select(lambda read, reading: iterators.part(read(reading), index, None, num_shards),
                           cardinality=facts.sharded(known.cardinality, num_shards, index),
                           shards=num_shards * known.shards, shard=None if fixed else index)


def cache(pipeline: Pipeline, filename: str) -> Pipeline:
    """`Dataset.cache`."""
    if filename:
        raise errors.error("RD20", "Dataset.cache", f"filename is {filename!r}",
                           "Keep the elements in memory, `cache()`, or write them with `np.save` or a "
                           "`TFRecordWriter`.")
    kept: dict[Reading, tuple[list[object], Drawn]] = {}

    def read(reading: Reading) -> Iterator[object]:
        tape, key = reading.tape or Tape(()), reading._replace(tape=None)
        if key in kept and tape.takes(kept[key][1]):
            return map(handed, kept[key][0])
        mark = tape.mark()
        return fill(pipeline.read(reading), reading, tape, key, mark)

    def fill(stream: Iterable[object], reading: Reading, tape: Tape, key: Reading, mark: Mark) -> Iterator[object]:
        elements_read = []
        for element in stream:
            elements_read.append(element)
            yield handed(element)
        kept[key] = elements_read, tape.since(mark, pipeline.sources)
        for source, number in kept[key][1].taken:
            source.cached(reading.seed, number)
    return pipeline.then(read, pipeline.same_facts())


def prefetch(pipeline: Pipeline, buffer_size: int | None) -> Pipeline:
    """`Dataset.prefetch`."""
    buffer_size = AUTOTUNE if buffer_size is None else count_of("prefetch", "buffer_size", buffer_size, AUTOTUNE)
    if buffer_size == 0:
        return pipeline.then(pipeline.read, pipeline.same_facts(), pipeline.origin)
    count = _READ_AHEAD if buffer_size == AUTOTUNE else buffer_size
    return pipeline.then(lambda reading: threads.ReadAhead(partial(pipeline.read, reading), count),
                         pipeline.same_facts(), pipeline.origin)


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
