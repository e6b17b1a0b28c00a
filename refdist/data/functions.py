"""Pipelines that call a function of the program for every element.

What Python code returns is only known once it has been called.  So the first result decides: all results must have its
structure and dtypes, and its ranks if the ranks of the arguments are known.  Nothing follows for the lengths.  A later
result that differs is an error that names the element.

Each function is the method of `Dataset` that its docstring names, where its arguments and errors are documented.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, takewhile
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.array.convert import to_numpy
from refdist.data import elements, iterators, threads
from refdist.data.elements import check_function
from refdist.data.facts import PEEK, UNKNOWN_CARDINALITY, Facts, Reading
from refdist.data.pipeline import MakesDataset, Pipeline
from refdist.data.spec import DatasetSpec, LeafSpec, is_ranked, made, spec_of

_T = TypeVar("_T")


def mapped(pipeline: Pipeline, map_func: Callable[..., object], num_parallel_calls: int | None,
           dataset: MakesDataset) -> Pipeline:
    """`Dataset.map`."""
    check_function("map", map_func)
    calls = threads.count_of_calls("map", num_parallel_calls)
    make = partial(iterators.made, map_func)

    def read(reading: Reading) -> Iterator[object]:
        stream = pipeline.read(reading)
        results = (iterators.call("map", make, stream) if calls is None
                   else threads.map_in_threads(make, stream, calls))
        return alike(pipeline, "map", results)
    known = pipeline.facts
    return pipeline.then(
        read, known._replace(spec=lambda: spec_made(pipeline, "map", make, dataset), certain=known.static,
                             mapped=known.arrays or known.mapped),
        pipeline.origin if pipeline.origin and pipeline.origin.single else None)  # rows move in a batch


def filtered(pipeline: Pipeline, predicate: Callable[..., object]) -> Pipeline:
    """`Dataset.filter`."""
    check_function("filter", predicate)

    def follow(numbers: Callable[[Reading], Iterable[_T]], reading: Reading) -> Iterator[_T]:
        judged = zip(_judged(pipeline.read(reading), "filter", predicate), numbers(reading), strict=True)
        return (number for (_, kept), number in judged if kept)
    return pipeline.then(
        lambda reading: (element for element, kept in _judged(pipeline.read(reading), "filter", predicate) if kept),
        pipeline.same_facts()._replace(cardinality=UNKNOWN_CARDINALITY),
        pipeline.origin and pipeline.origin.changed(follow)._replace(calls=True))


def take_while(pipeline: Pipeline, predicate: Callable[..., object]) -> Pipeline:
    """`Dataset.take_while`."""
    check_function("take_while", predicate)

    def read(reading: Reading) -> Iterator[object]:
        judged = _judged(pipeline.read(reading), "take_while", predicate)
        return (element for element, _ in takewhile(itemgetter(1), judged))
    return pipeline.then(read, pipeline.same_facts()._replace(cardinality=UNKNOWN_CARDINALITY))


def scan(pipeline: Pipeline, initial_state: object, scan_func: Callable[[Any, Any], object],
         dataset: MakesDataset) -> Pipeline:
    """`Dataset.scan`."""
    check_function("scan", scan_func)
    state = elements.arrays(initial_state)

    def first(element: object) -> object:
        return next(iterators.scan(state, scan_func, [element]))

    return pipeline.then(
        lambda reading: alike(pipeline, "scan", iterators.scan(state, scan_func, pipeline.read(reading))),
        pipeline.facts._replace(batch_size=None, static=False,
                                spec=lambda: spec_made(pipeline, "scan", first, dataset)))


def interleaved(pipeline: Pipeline, method: str, inner: Callable[[object], Pipeline], cycle: int, block: int,
                dataset: MakesDataset) -> Pipeline:
    """`Dataset.interleave` and `Dataset.flat_map`.

    Args:
        pipeline: the elements.
        method: the name of the method.
        inner: from an element to the pipeline that is read for it.
        cycle: how many of them are read in turn.
        block: how many elements are taken from each in turn.
        dataset: makes a dataset of a pipeline.
    """
    def read(reading: Reading) -> Iterator[object]:
        # Workers divide the files of the outer dataset, or else its elements, for each of which a file is opened.
        outer = pipeline.read(reading) if reading.num_shards == 1 or pipeline.facts.file_count else iterators.part(
            pipeline.read(reading.whole), reading.shard, None, reading.num_shards)
        streams = (_noted(reading, opened).read(reading.whole) for opened in iterators.call(method, inner, outer))
        return alike(pipeline, method, iterators.interleave(streams, cycle, block))

    def files() -> int:
        first = None if pipeline.facts.file_count else next(iterators.call(method, inner, pipeline.read(PEEK)), None)
        if first is None or not first.facts.file_count:
            return pipeline.facts.file_count
        count = pipeline.facts.cardinality
        return count if count >= 0 else sys.maxsize

    def element_spec() -> object:
        return spec_made(pipeline, method, lambda element: dataset(inner(element)), dataset).element_spec
    return pipeline.then(read, Facts(spec=element_spec, files=pipeline.facts.files or files))


def grouped(pipeline: Pipeline, method: str, key_func: Callable[..., object], inner: Callable[[object], Pipeline],
            size_of: Callable[[np.int64], int], dataset: MakesDataset) -> Pipeline:
    """`Dataset.group_by_window` and `Dataset.bucket_by_sequence_length`.

    Args:
        pipeline: the elements.
        method: the name of the method.
        key_func: from an element to its key.
        inner: from a key and a dataset of elements with that key to the pipeline that is read for them.
        size_of: how many elements with a key are read together.
        dataset: makes a dataset of a pipeline.
    """
    key_of = partial(iterators.integer_of, method, "key_func", key_func)

    def of_group(pair: tuple[np.int64, list[object]]) -> Pipeline:
        key, group = pair
        return inner((key, dataset(pipeline.then(lambda _: map(elements.handed, group), Facts(
            len(group), pipeline.spec_after(lambda spec: spec))))))

    def read(reading: Reading) -> Iterator[object]:
        groups = iterators.group(zip_keys(pipeline.read(reading)), size_of)
        streams = (_noted(reading, opened).read(reading.whole) for opened in map(of_group, groups))
        return alike(pipeline, method, chain.from_iterable(streams))

    def zip_keys(stream: Iterable[object]) -> Iterator[tuple[np.int64, object]]:
        return iterators.call(method, lambda element: (key_of(element), element), stream)

    def element_spec() -> object:
        return spec_made(pipeline, method, lambda element: dataset(of_group((key_of(element), [element]))),
                          dataset).element_spec
    return pipeline.then(read, Facts(spec=element_spec))


# What is known, and what is true.


def _judged(stream: Iterable[object], method: str, predicate: Callable[..., object]) -> Iterator[tuple[object, bool]]:
    for i, element in enumerate(stream):
        try:
            returned = iterators.apply(predicate, element)
            # A list is never one bool, and may be no array, either.
            kept = None if isinstance(returned, (list, tuple)) else to_numpy(returned)
            if kept is None or kept.dtype != np.bool_ or kept.ndim:
                described = errors.type_of(returned) if kept is None else _short(kept)
                raise errors.error("RD34", f"Dataset.{method}", f"the function returned {described}",
                                   "Return one bool, for example `x > 0` or `np.all(x > 0)`.")
        except Exception as error:
            raise iterators.noted(error, method, i) from None
        yield element, bool(kept)


def alike(pipeline: Pipeline, method: str, results: Iterable[object]) -> Iterator[object]:
    """What a function returned for the elements of a pipeline, while all of it has one structure and its dtypes.

    Raises:
        RD26: another structure or dtype, or another rank where ranks are known.
    """
    return iterators.alike(method, results, lambda: is_ranked(pipeline.element_spec))


def spec_made(pipeline: Pipeline, method: str, make: Callable[[Any], object], dataset: MakesDataset) -> Any:
    """The spec of what `make` returns: for the first element, or for zeros if the dataset is empty.

    Raises:
        RD29: it is empty, and `make` does not take zeros.
    """
    for returned in iterators.call(method, make, pipeline.read(PEEK)):
        return made(spec_of(returned), is_ranked(pipeline.element_spec))
    zeros = nest.map_structure(partial(_zeros, dataset), pipeline.element_spec)
    try:
        returned = make(zeros)
    except Exception as error:
        raise errors.error("RD29", "Dataset.element_spec", f"the dataset is empty, and called with zeros the "
                           f"function of {method} raises {type(error).__name__}",
                           "Do not ask an empty dataset for its spec.") from error
    return made(spec_of(returned), is_ranked(pipeline.element_spec))


def _zeros(dataset: MakesDataset, leaf: LeafSpec) -> object:
    if leaf is None:
        return None
    if isinstance(leaf, DatasetSpec):
        return dataset(Pipeline(lambda _: iter(()), Facts(0, leaf.element_spec)))
    if leaf.dtype == object:
        return np.full([n or 1 for n in leaf.shape or ()], b"", object)[()]
    return np.zeros([1 if n is None else n for n in leaf.shape or ()], leaf.dtype)


def _noted(reading: Reading, inner: Pipeline) -> Pipeline:
    # Notes what in a dataset that a function returned keeps the iterator's position from being saved.
    if reading.tape is not None:
        reading.tape.obstruct(inner.sources)
    return inner


def _short(array: npt.NDArray[np.generic]) -> str:
    return f"an array of shape {tuple(array.shape)} and dtype {array.dtype}" if array.ndim else repr(array[()])
