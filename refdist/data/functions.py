"""The methods of `Dataset` that call a function of the user for every element.

What Python code returns is only known once it has been called.  So the first result decides: all results must have its
structure and dtypes, and its ranks if the ranks of the arguments are known.  Nothing follows for the lengths.  A later
result that differs is an error that names the element.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.array.convert import to_numpy
from refdist.data import elements, iterators, threads
from refdist.data.elements import check_function, count_of
from refdist.data.facts import PEEK, UNKNOWN_CARDINALITY, Facts, Reading
from refdist.data.spec import DatasetSpec, LeafSpec, is_ranked, made, spec_of
from refdist.data.transformations import AUTOTUNE, Transformations

if TYPE_CHECKING:
    from refdist.data.dataset import Dataset

_T = TypeVar("_T")
_AT_ONCE = 16  # datasets, where AUTOTUNE leaves the number to us


class Functions(Transformations):
    """The transformations that call a function of the user."""

    def map(self, map_func: Callable[..., object], num_parallel_calls: int | None = None,
            deterministic: bool | None = None, name: str | None = None) -> Dataset:
        """Applies a function to every element, in order; the parts of a tuple are its arguments.

        Python numbers and lists that it returns become arrays; an outermost list becomes a tuple.

        Args:
            map_func: the function.
            num_parallel_calls: how many threads call it at once; AUTOTUNE for one per core; None for no thread.
            deterministic: without effect: the order is always kept.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> list(Dataset.range(2).map(lambda n: (n, [1, 2])))
        [(np.int64(0), array([1, 2], dtype=int32)), (np.int64(1), array([1, 2], dtype=int32))]

        Raises:
            RD25, RD34: bad arguments.  RD26: results of different structures, dtypes or ranks.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.map.
        """
        check_function("map", map_func)
        calls = _calls("map", num_parallel_calls)
        make = partial(iterators.made, map_func)

        def read(reading: Reading) -> Iterator[object]:
            stream = self._read(reading)
            results = (iterators.call("map", make, stream) if calls is None
                       else threads.map_in_threads(make, stream, calls))
            return self._alike("map", results)
        return self._then(read, self._facts._replace(spec=lambda: self._made("map", make), certain=self._facts.static),
                          self._origin if self._origin and self._origin.single else None)  # rows move in a batch

    def filter(self, predicate: Callable[..., object], name: str | None = None) -> Dataset:
        """Keeps the elements for which the function returns True.

        Args:
            predicate: takes an element, a tuple as several arguments, and returns one bool, or a scalar array of dtype
                bool.
            name: without effect.

        Raises:
            RD25, RD34: not a function, or one that does not return one bool.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.filter.
        """
        check_function("filter", predicate)

        def follow(numbers: Callable[[Reading], Iterable[_T]], reading: Reading) -> Iterator[_T]:
            judged = zip(self._judged("filter", predicate, reading), numbers(reading), strict=True)
            return (number for (_, kept), number in judged if kept)
        return self._then(
            lambda reading: (element for element, kept in self._judged("filter", predicate, reading) if kept),
            self._same()._replace(cardinality=UNKNOWN_CARDINALITY),
            self._origin and self._origin.changed(follow)._replace(calls=True))

    def take_while(self, predicate: Callable[..., object], name: str | None = None) -> Dataset:
        """The elements before the first one for which the function returns False.

        Args:
            predicate: takes an element, a tuple as several arguments, and returns one bool, or a scalar array of dtype
                bool.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> list(map(int, Dataset.range(9).take_while(lambda n: n < 3)))
        [0, 1, 2]

        Raises:
            RD25, RD34: not a function, or one that does not return one bool.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.take_while.
        """
        check_function("take_while", predicate)

        def read(reading: Reading) -> Iterator[object]:
            for element, kept in self._judged("take_while", predicate, reading):
                if not kept:
                    return
                yield element
        return self._then(read, self._same()._replace(cardinality=UNKNOWN_CARDINALITY))

    def scan(self, initial_state: object, scan_func: Callable[[Any, Any], object], name: str | None = None) -> Dataset:
        """Maps elements with a state: `scan_func(state, element)` returns the next state and the new element.

        Args:
            initial_state: a nest of arrays, or of what can be made arrays, of any shapes and dtypes.
            scan_func: takes a state and an element, and returns the next state, whose structure and dtypes are those of
                `initial_state`, and the new element, a nest of arrays.
            name: without effect.

        >>> import numpy as np
        >>> from refdist.data import Dataset
        >>> list(map(int, Dataset.range(5).scan(np.int64(0), lambda total, n: (total + n, total + n))))
        [0, 1, 3, 6, 10]

        Raises:
            RD25, RD34: not a function, or one that does not return a pair.
            RD26: the structure or dtype of the state changes; results differ in structure, dtypes or ranks.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.scan.
        """
        check_function("scan", scan_func)
        state = elements.arrays(initial_state)

        def first(element: object) -> object:
            return next(iterators.scan(state, scan_func, [element]))

        return self._then(
            lambda reading: self._alike("scan", iterators.scan(state, scan_func, self._read(reading))),
            self._facts._replace(batch_size=None, static=False, spec=lambda: self._made("scan", first)))

    def interleave(self, map_func: Callable[..., object], cycle_length: int | None = None,
                   block_length: int | None = None, num_parallel_calls: int | None = None,
                   deterministic: bool | None = None, name: str | None = None) -> Dataset:
        """Elements of the datasets that `map_func` returns: `block_length` from each of `cycle_length` in turn.

        The order is always the same.

        Args:
            map_func: from an element to a dataset.
            cycle_length: how many datasets are read in turn; None and AUTOTUNE mean 16.
            block_length: how many elements are taken from each in turn; None means 1.
            num_parallel_calls, deterministic: without effect.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> rows = Dataset.range(1, 4).interleave(lambda n: Dataset.from_tensors(n).repeat(2), cycle_length=2)
        >>> list(map(int, rows))
        [1, 2, 1, 2, 3, 3]

        Raises:
            RD25, RD34: bad arguments, or a function that does not return a dataset.
            RD26: datasets whose elements differ in structure, dtypes or ranks.

        Source: tf.data.Dataset.interleave.
        """
        check_function("interleave", map_func)
        cycle = _AT_ONCE if cycle_length in (None, AUTOTUNE) else count_of(
            "interleave", "cycle_length", cycle_length, 1)
        block = 1 if block_length is None else count_of("interleave", "block_length", block_length, 1)
        _calls("interleave", num_parallel_calls)
        return self._interleaved("interleave", map_func, cycle, block)

    def flat_map(self, map_func: Callable[..., object], name: str | None = None) -> Dataset:
        """The elements of the datasets that `map_func` returns, one dataset after another.

        Args:
            map_func: takes an element, a tuple as several arguments, and returns a dataset.
            name: without effect.

        Raises:
            RD25, RD34: bad arguments, or a function that does not return a dataset.
            RD26: datasets whose elements differ in structure, dtypes or ranks.

        Source: tf.data.Dataset.flat_map.
        """
        check_function("flat_map", map_func)
        return self._interleaved("flat_map", map_func, 1, 1)

    def _interleaved(self, method: str, map_func: Callable[..., object], cycle: int, block: int) -> Dataset:
        def dataset(element: object) -> Any:
            return _dataset(method, iterators.apply(map_func, element))

        def read(reading: Reading) -> Iterator[object]:
            # Workers divide the files of the outer dataset, or else its elements, for each of which a file is opened.
            outer = self._read(reading) if reading.num_shards == 1 or self._facts.file_count else iterators.part(
                self._read(reading.whole), reading.shard, None, reading.num_shards)
            streams = (inner._read(reading.whole) for inner in map(
                partial(_noted, reading), iterators.call(method, dataset, outer)))
            return self._alike(method, iterators.interleave(streams, cycle, block))

        def files() -> int:
            first = None if self._facts.file_count else next(iterators.call(method, dataset, self._read(PEEK)), None)
            if first is None or not first._facts.file_count:
                return self._facts.file_count
            count = self._facts.cardinality
            return count if count >= 0 else sys.maxsize
        return self._then(read, Facts(spec=lambda: self._made(method, dataset).element_spec,
                                      files=self._facts.files or files))

    def apply(self, transformation_func: Callable[[Any], object]) -> Dataset:
        """The dataset that a function returns for this one.

        Args:
            transformation_func: takes this dataset and returns one.

        >>> from refdist.data import Dataset
        >>> [batch.tolist() for batch in Dataset.range(3).apply(lambda dataset: dataset.batch(2))]
        [[0, 1], [2]]

        Raises:
            RD25: not a function, or one that returns something other than a dataset.

        Source: tf.data.Dataset.apply.
        """
        check_function("apply", transformation_func)
        transformed: Dataset = _dataset("apply", transformation_func(self))
        return transformed

    # What is known, and what is true.

    def _judged(self, method: str, predicate: Callable[..., object], reading: Reading) -> Iterator[tuple[object, bool]]:
        for i, element in enumerate(self._read(reading)):
            try:
                kept = to_numpy(iterators.apply(predicate, element))
                if kept.dtype != np.bool_ or kept.ndim:
                    raise errors.error("RD34", f"Dataset.{method}", f"the function returned {_short(kept)}",
                                       "Return one bool, for example `x > 0` or `np.all(x > 0)`.")
            except Exception as error:
                raise iterators.noted(error, method, i) from None
            yield element, bool(kept)

    def _alike(self, method: str, results: Iterable[object]) -> Iterator[object]:
        return iterators.alike(method, results, lambda: is_ranked(self.element_spec))

    def _made(self, method: str, make: Callable[[Any], object]) -> Any:
        # The spec of what a function returns: for the first element, or for zeros if the dataset is empty.
        for returned in iterators.call(method, make, self._read(PEEK)):
            return made(spec_of(returned), is_ranked(self.element_spec))
        zeros = nest.map_structure(self._zeros, self.element_spec)
        try:
            returned = make(zeros)
        except Exception as error:
            raise errors.error("RD29", "Dataset.element_spec", f"the dataset is empty, and called with zeros the "
                               f"function of {method} raises {type(error).__name__}",
                               "Do not ask an empty dataset for its spec.") from error
        return made(spec_of(returned), is_ranked(self.element_spec))

    def _zeros(self, leaf: LeafSpec) -> object:
        if leaf is None:
            return None
        if isinstance(leaf, DatasetSpec):
            return self._then(lambda _: iter(()), Facts(0, leaf.element_spec))
        if leaf.dtype == object:
            return np.full([n or 1 for n in leaf.shape or ()], b"", object)[()]
        return np.zeros([1 if n is None else n for n in leaf.shape or ()], leaf.dtype)


def _noted(reading: Reading, inner: Any) -> Any:
    # Notes what in a dataset that a function returned keeps the iterator's position from being saved.
    if reading.tape is not None:
        reading.tape.obstruct(inner._sources)
    return inner


def _dataset(method: str, returned: object) -> Any:
    # Returns what a function returned, if that is a dataset.
    if isinstance(returned, Transformations):
        return returned
    raise errors.error("RD25", f"Dataset.{method}", f"the function returned {errors.type_of(returned)}",
                       "Return a Dataset.")


def _short(array: npt.NDArray[np.generic]) -> str:
    return f"an array of shape {array.shape} and dtype {array.dtype}" if array.ndim else repr(array[()])


def _calls(method: str, num_parallel_calls: int | None) -> int | None:
    if num_parallel_calls is None:
        return None
    if num_parallel_calls == AUTOTUNE:
        return os.cpu_count() or 1
    return count_of(method, "num_parallel_calls", num_parallel_calls, 1)
