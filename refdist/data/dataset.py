"""`Dataset`: a sequence of elements that can be read again and again; its methods, and where elements come from.

Elements are nests of arrays.  A dataset is a pipeline with options, and its methods only document and pass on: how
datasets are read is described in `pipeline.py`, the transformations are in `transformations.py`, `functions.py` and
`mixing.py`, reading files is in `files.py`.  Nothing in this folder knows replicas: `refdist/input` splits batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.array.backend import current_backend, scalar
from refdist.core import checks
from refdist.core.integers import integer
from refdist.data import apart, buckets, files, functions, iterators, mixing, resampling, threads, transformations
from refdist.data.elements import (
    Numbers,
    Rows,
    arrays,
    as_numpy_s,
    as_the_backend_s,
    check_function,
    count_of,
    handed,
)
from refdist.data.facts import INFINITE_CARDINALITY, WHOLE, Facts
from refdist.data.generator import generated, signature, spec_of_first
from refdist.data.iterator import Iterator as Reader
from refdist.data.options import Options, kept, merged
from refdist.data.pipeline import Pipeline, of_rows
from refdist.data.position import Seeds, Source, Tape
from refdist.data.spec import TensorSpec, spec_of, unbatched
from refdist.data.threads import AUTOTUNE
from refdist.missing import Missing

_AT_ONCE = 16  # datasets that `interleave` reads in turn, where AUTOTUNE leaves the number to us
_FILES = "Write the elements with `TFRecordWriter`, or as arrays with `np.savez`."
_PADDED = "Write `padded_batch`, which makes the rows as long as the longest."


class Dataset:
    """Elements that are read in order.

    >>> import refdist
    >>> for batch in refdist.data.Dataset.range(5).batch(2):
    ...     print(batch)
    [0 1]
    [2 3]
    [4]

    A `name`, which every method takes, is a node's in TensorFlow's graphs; it has no effect.

    Source: tf.data.Dataset.
    """

    counter = Missing("Write `Dataset.range(start, 2**62, step)`.")
    fingerprint = Missing("Leave it out: datasets are compared by their elements.")
    ignore_errors = Missing("Catch the error in the function that `map` calls, and `filter` what it returns then.")
    load, save, snapshot = (Missing(_FILES) for _ in range(3))
    ragged_batch, sparse_batch = (Missing(_PADDED) for _ in range(2))

    def __init__(self, pipeline: Pipeline, options: Options | None = None) -> None:
        self._pipeline = pipeline
        self._options = options or Options()

    def _after(self, pipeline: Pipeline) -> Dataset:
        # What a transformation returns, which has the options of this dataset.
        return Dataset(pipeline, self._options)

    # Sources.

    @staticmethod
    def range(*args: int, output_type: npt.DTypeLike = np.int64, name: str | None = None) -> Dataset:
        """The scalars of `range(*args)`.

        Args:
            args: start, stop and step, as of `range`.
            output_type: the dtype of the scalars.
            name: without effect.

        Raises:
            RD25, RD34: arguments that `range` does not take, or a dtype that is not of ints or floats.

        Source: tf.data.Dataset.range.
        """
        attempted = f"Dataset.range({', '.join(map(repr, args))})"
        try:
            numbers = range(*args)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", attempted, str(error), "Pass one to three ints.") from error
        try:
            dtype = np.dtype(output_type)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "iuf":
            raise errors.error("RD25", attempted, f"output_type is {output_type!r}",
                               "Pass an integer or float dtype.")
        return Dataset(of_rows(Numbers(numbers, dtype), TensorSpec((), dtype)))

    @staticmethod
    def from_tensors(tensors: object, name: str | None = None) -> Dataset:
        """A dataset of one element, the whole nest.

        Args:
            tensors: an array of any shape and dtype, or a nest of arrays.
            name: without effect.

        Source: tf.data.Dataset.from_tensors.
        """
        element = arrays(tensors)
        return Dataset(Pipeline(lambda _: iter([handed(element)]), Facts(1, spec_of(element))))

    @staticmethod
    def from_tensor_slices(tensors: object, name: str | None = None) -> Dataset:
        """A dataset of the rows of all arrays of a nest; arrays are not copied, so memory maps stay lazy.

        Rows of different lengths are passed as an array of dtype object that holds an array per row.

        Args:
            tensors: an array of shape [n, ...] and any dtype, or a nest of them with the same n.
            name: without effect.

        Raises:
            RD15: a scalar has no rows.  RD26: arrays with different numbers of rows.

        Source: tf.data.Dataset.from_tensor_slices.
        """
        structure = arrays(tensors)
        spec = unbatched(spec_of(structure))
        if checks.watch.value:
            apart.look_at_slices([leaf for leaf in nest.flatten(spec) if isinstance(leaf, TensorSpec)])
        return Dataset(of_rows(Rows(structure), spec))

    @staticmethod
    def from_generator(generator: Callable[..., Iterable[object]], output_types: object = None,
                       output_shapes: object = None, args: Iterable[object] | None = None,
                       output_signature: object = None,
                       name: str | None = None) -> Dataset:
        """A dataset of what `generator(*args)` yields; the generator is called again for every iteration.

        Args:
            generator: a function that returns an iterable of elements.
            output_types: a nest of dtypes; `output_signature` is preferred.
            output_shapes: a nest of shapes for `output_types`; None for any shape.
            args: the arguments of the generator.
            output_signature: a nest of TensorSpecs that every element must fit, and to whose dtypes numbers of the same
                or of a narrower kind are converted; without it, structure and dtypes of the first element.
            name: without effect.

        Raises:
            RD25, RD34: not a function, or a bad signature.  RD26: an element that does not fit, with its number.
            What the generator raises, with a note that names the element.

        Source: tf.data.Dataset.from_generator.
        """
        if not callable(generator):
            raise errors.error("RD25", "Dataset.from_generator", f"got {generator!r}",
                               "Pass a function that returns an iterable.")
        wanted = signature(output_types, output_shapes, output_signature)
        arguments = () if args is None else tuple(args)
        return Dataset(Pipeline(
            lambda _: generated(generator, arguments, wanted),
            Facts(spec=(lambda: spec_of_first(generator, arguments)) if wanted is None else wanted),
            sources=["Dataset.from_generator, whose position only its generator knows"]))

    @staticmethod
    def list_files(file_pattern: object, shuffle: bool | None = None, seed: int | None = None,
                   name: str | None = None) -> Dataset:
        """The names of the files that match one pattern or several: sorted if `shuffle` is False, else shuffled.

        Args:
            file_pattern: a pattern such as `"logs/*.txt"`, or a list of them.
            shuffle: whether the names are shuffled; None for yes.
            seed: as in `shuffle`.
            name: without effect.

        Raises:
            RD30: no file matches.  RD25: a pattern is not a str, bytes or path.

        Source: tf.data.Dataset.list_files.
        """
        names = files.match(file_pattern)
        dataset = Dataset(Pipeline(lambda reading: iter(names[reading.shard::reading.num_shards]),
                                   Facts(len(names), TensorSpec((), object), files=len(names))))
        return dataset if shuffle is False else dataset.shuffle(len(names), seed)

    @staticmethod
    def random(seed: int | None = None, rerandomize_each_iteration: bool | None = None,
               name: str | None = None) -> Dataset:
        """Random numbers without end: int64 scalars from 0 to below 2**32.

        Args:
            seed: makes the numbers the same in every run, and those that TensorFlow draws.
            rerandomize_each_iteration: whether each iteration draws others.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> [int(number) for number in Dataset.random(seed=4).take(2)]
        [3128586565, 2023892699]

        Raises:
            RD25: a seed that is not an integer.

        Source: tf.data.Dataset.random.
        """
        first = None if seed is None else integer(seed, "seed", "Dataset.random")
        seed_of = Seeds(first, bool(rerandomize_each_iteration))
        return Dataset(Pipeline(lambda reading: map(np.int64, iterators.words(seed_of(reading))),
                                Facts(INFINITE_CARDINALITY, TensorSpec((), np.int64)), sources=[seed_of]))

    # Several datasets.

    @staticmethod
    def zip(*args: object, datasets: object = None, name: str | None = None) -> Dataset:
        """Combines the elements of several datasets into one, until the shortest dataset ends.

        Args:
            args: datasets, or one nest of datasets, in tuples and dicts.
            datasets: the nest, if `args` is empty.
            name: without effect.

        >>> import refdist
        >>> pairs = refdist.data.Dataset.zip(refdist.data.Dataset.range(2), refdist.data.Dataset.range(5, 9))
        >>> [(int(a), int(b)) for a, b in pairs]
        [(0, 5), (1, 6)]

        Raises:
            RD25, RD34: something that is not a dataset, a list of them, or both `args` and `datasets`.

        Source: tf.data.Dataset.zip.
        """
        if args and datasets is not None:
            raise errors.error("RD25", "Dataset.zip", "both args and datasets were passed", "Pass one of the two.")
        structure = datasets if not args else args[0] if len(args) == 1 else args
        if isinstance(structure, list):  # in an element, a list is an array
            raise errors.error("RD25", "Dataset.zip", "got a list", "Pass a tuple, or the datasets themselves.")
        datasets = _datasets(nest.flatten(structure), "zip")
        if checks.watch.value:
            apart.look_at_zip(_pipelines(datasets))
        return _combined(mixing.side_by_side(structure, _pipelines(datasets)), datasets)

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """The elements of this dataset and then those of another.

        Args:
            dataset: its elements are nests of arrays with the structure and dtypes of this one's, of any shapes.
            name: without effect.

        Raises:
            RD25: not a dataset.  RD26: elements of another structure or dtype, where that is known.

        Source: tf.data.Dataset.concatenate.
        """
        datasets = _datasets([self, dataset], "concatenate")
        return _combined(mixing.one_after_another(_pipelines(datasets)), datasets)

    @staticmethod
    def sample_from_datasets(datasets: Sequence[Dataset], weights: npt.ArrayLike | None = None, seed: int | None = None,
                             stop_on_empty_dataset: bool = False,
                             rerandomize_each_iteration: bool | None = None) -> Dataset:
        """Takes each element from one of several datasets, which is drawn at random.

        Args:
            datasets: a list of datasets.
            weights: the relative frequency of each, floats; None for equal ones.  Weight 0 is never drawn.
            seed: makes the order the same in every run, and the one that TensorFlow draws.
            stop_on_empty_dataset: whether to end when any of the datasets ends.
            rerandomize_each_iteration: whether each iteration draws another order; None means if there is no seed,
                neither this one nor that of `tf.random.set_seed`.

        >>> import refdist
        >>> low, high = refdist.data.Dataset.range(3), refdist.data.Dataset.range(10, 13)
        >>> mixed = refdist.data.Dataset.sample_from_datasets([low, high], weights=[0.5, 0.5], seed=1)
        >>> sorted(map(int, mixed))
        [0, 1, 2, 10, 11, 12]

        Raises:
            RD25, RD34: something that is not a dataset, or bad weights.  RD26: elements of different structures or
                dtypes.

        Source: tf.data.Dataset.sample_from_datasets.
        """
        sources = _datasets(datasets, "sample_from_datasets")
        first = None if seed is None else integer(seed, "seed", "Dataset.sample_from_datasets")
        seed_of = Seeds(first, rerandomize_each_iteration)
        return _combined(mixing.sampled(_pipelines(sources), weights, seed_of, stop_on_empty_dataset), sources)

    @staticmethod
    def choose_from_datasets(datasets: Sequence[Dataset], choice_dataset: Dataset,
                             stop_on_empty_dataset: bool = True) -> Dataset:
        """Takes each element from one of several datasets, which another dataset chooses.

        Args:
            datasets: a list of datasets.
            choice_dataset: a dataset of indices into `datasets`, int64 scalars.
            stop_on_empty_dataset: whether to end when a dataset is chosen that has ended; else it is skipped.

        >>> import refdist
        >>> low, high = refdist.data.Dataset.range(3), refdist.data.Dataset.range(10, 13)
        >>> turns = refdist.data.Dataset.range(2).repeat()
        >>> list(map(int, refdist.data.Dataset.choose_from_datasets([low, high], turns)))
        [0, 10, 1, 11, 2, 12]

        Raises:
            RD25, RD34: something that is not a dataset, or choices that are not int64 scalars, or out of range.
            RD26: elements of different structures or dtypes.

        Source: tf.data.Dataset.choose_from_datasets.
        """
        [choices] = _datasets([choice_dataset], "choose_from_datasets")
        sources = _datasets(datasets, "choose_from_datasets")
        return _combined(mixing.chosen(_pipelines(sources), choices._pipeline, stop_on_empty_dataset), sources)

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
        return self._after(transformations.batch(self._pipeline, batch_size, drop_remainder))

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
        return self._after(transformations.padded_batch(self._pipeline, batch_size, padded_shapes, padding_values,
                                                        drop_remainder))

    def unbatch(self, name: str | None = None) -> Dataset:
        """The rows of every element: where that is a nest of arrays of shapes [rows, ...], nests of arrays [...].

        Args:
            name: without effect.

        Raises:
            RD15: a scalar.  RD26: components with different numbers of rows.

        Source: tf.data.Dataset.unbatch.
        """
        return self._after(transformations.unbatch(self._pipeline))

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
        return self._after(transformations.rebatch(self._pipeline, batch_size, drop_remainder))

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
        return self._after(transformations.window(self._pipeline, size, shift, stride, drop_remainder, self._after))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Pairs of a number, int64, and an element.

        Args:
            start: the number of the first element, which may be negative.
            name: without effect.

        Raises:
            RD25, RD34: `start` is no integer, or less than -2**63.

        Source: tf.data.Dataset.enumerate.
        """
        return self._after(transformations.numbered(self._pipeline, start))

    # Order and choice.

    def shuffle(self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool | None = True,
                name: str | None = None) -> Dataset:
        """Draws each element at random from a buffer of `buffer_size`; UNKNOWN_CARDINALITY buffers all elements.

        With a seed, the first iteration is the same in every run, and so is each later one; the order is TensorFlow's.
        None for `reshuffle_each_iteration` means True.

        Args:
            buffer_size: how many elements are kept to draw from.
            seed: an int, from which the order follows.  None takes one that follows from that of `tf.random.set_seed`;
                without that, each run has another order, which all workers of a distributed dataset have alike.
            reshuffle_each_iteration: whether each iteration has another order.
            name: without effect.

        Raises:
            RD25, RD34: a size or seed that is no integer, or a size below 1.

        Source: tf.data.Dataset.shuffle; the order was observed on TensorFlow 2.21.
        """
        return self._after(transformations.shuffle(self._pipeline, buffer_size, seed, reshuffle_each_iteration))

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """The elements `count` times over; None and negative numbers mean without end.

        Args:
            count: how many times.
            name: without effect.

        Raises:
            RD25: `count` is neither an integer nor None.

        Source: tf.data.Dataset.repeat.
        """
        return self._after(transformations.repeat(self._pipeline, count))

    def take(self, count: int, name: str | None = None) -> Dataset:
        """The first `count` elements; a negative number means all.

        Args:
            count: how many.
            name: without effect.

        Raises:
            RD25: `count` is no integer.

        Source: tf.data.Dataset.take.
        """
        return self._after(transformations.take(self._pipeline, count))

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """All but the first `count` elements; a negative number skips all.

        Args:
            count: how many.
            name: without effect.

        Raises:
            RD25: `count` is no integer.

        Source: tf.data.Dataset.skip.
        """
        return self._after(transformations.skip(self._pipeline, count))

    def unique(self, name: str | None = None) -> Dataset:
        """The elements that have not come before.

        Args:
            name: without effect.

        >>> from refdist.data import Dataset
        >>> list(map(int, Dataset.from_tensor_slices([1, 37, 2, 37, 1]).unique()))
        [1, 37, 2]

        Raises:
            RD25: elements of several arrays, or of another dtype than int32, int64 and text.

        Source: tf.data.Dataset.unique.
        """
        return self._after(transformations.unique(self._pipeline))

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
        return self._after(transformations.shard(self._pipeline, num_shards, index))

    # Functions of the program.

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
        return self._after(functions.mapped(self._pipeline, map_func, num_parallel_calls, self._after))

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
        return self._after(functions.filtered(self._pipeline, predicate))

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
        return self._after(functions.take_while(self._pipeline, predicate))

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
        return self._after(functions.scan(self._pipeline, initial_state, scan_func, self._after))

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
        threads.count_of_calls("interleave", num_parallel_calls)
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
        def inner(element: object) -> Pipeline:
            return _dataset(method, iterators.apply(map_func, element))._pipeline
        return self._after(functions.interleaved(self._pipeline, method, inner, cycle, block, self._after))

    def group_by_window(self, key_func: Callable[..., object], reduce_func: Callable[[Any, Any], object],
                        window_size: int | None = None, window_size_func: Callable[[Any], object] | None = None,
                        name: str | None = None) -> Dataset:
        """The elements of the datasets that `reduce_func` returns for elements with the same key.

        Args:
            key_func: takes an element, a tuple as several arguments, and returns an integer, its key.
            reduce_func: takes a key, int64, and a dataset of elements that have it, and returns a dataset.
            window_size: how many elements with a key are given together; at the end fewer.
            window_size_func: takes a key and returns that number; instead of `window_size`.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> groups = Dataset.range(7).group_by_window(lambda n: n % 2, lambda key, rows: rows.batch(3), window_size=3)
        >>> [batch.tolist() for batch in groups]
        [[0, 2, 4], [1, 3, 5], [6]]

        Raises:
            RD25, RD34: bad arguments, or functions that do not return an integer, or a dataset.
            RD26: datasets whose elements differ in structure, dtypes or ranks.

        Source: tf.data.Dataset.group_by_window.
        """
        method = "group_by_window"
        if (window_size is None) == (window_size_func is None):
            passed = "neither was passed" if window_size is None else "both were passed"
            raise errors.error("RD34", f"Dataset.{method}", f"of window_size and window_size_func, {passed}",
                               "Pass one of the two.")
        for function in (key_func, reduce_func, *(() if window_size_func is None else (window_size_func,))):
            check_function(method, function)
        size = None if window_size is None else count_of(method, "window_size", window_size, 1)

        def size_of(key: np.int64) -> int:
            if size is not None or window_size_func is None:
                return size or 1
            number = iterators.integer_of(method, "window_size_func", window_size_func, key)
            return count_of(method, "what window_size_func returned", number, 1)

        def inner(element: object) -> Pipeline:
            return _dataset(method, iterators.apply(reduce_func, element))._pipeline
        return self._after(functions.grouped(self._pipeline, method, key_func, inner, size_of, self._after))

    def bucket_by_sequence_length(self, element_length_func: Callable[..., object], bucket_boundaries: Sequence[int],
                                  bucket_batch_sizes: Sequence[int], padded_shapes: object = None,
                                  padding_values: object = None, pad_to_bucket_boundary: bool = False,
                                  no_padding: bool = False, drop_remainder: bool = False,
                                  name: str | None = None) -> Dataset:
        """Batches of elements of similar length, each padded as by `padded_batch`.

        Args:
            element_length_func: takes an element, a tuple as several arguments, and returns its length, an integer.
            bucket_boundaries: the lengths at which one bucket ends and the next begins, n ints.
            bucket_batch_sizes: how many elements a batch of each bucket has, n + 1 ints.
            padded_shapes, padding_values: as in `padded_batch`.
            pad_to_bucket_boundary: whether the lengths that `padded_shapes` leaves open become the largest of the
                bucket; without these shapes, the only length that the elements leave open.
            no_padding: whether rows of one batch have one shape as they are.
            drop_remainder: whether batches that are shorter at the end are dropped.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> words = Dataset.from_generator(lambda: iter([[1], [2, 3, 4], [5], [6, 7]]))
        >>> batches = words.bucket_by_sequence_length(len, [2], [2, 2])
        >>> [batch.tolist() for batch in batches]
        [[[1], [5]], [[2, 3, 4], [6, 7, 0]]]

        Raises:
            RD25, RD34: bad arguments, or a function that does not return an integer; with `pad_to_bucket_boundary`
                elements of the last bucket, or several open lengths without `padded_shapes`.
            What `padded_batch` raises.

        Source: tf.data.Dataset.bucket_by_sequence_length.
        """
        method = "bucket_by_sequence_length"
        check_function(method, element_length_func)
        ends = [count_of(method, "a number in bucket_boundaries", end) for end in bucket_boundaries]
        sizes = [count_of(method, "a number in bucket_batch_sizes", size, 1) for size in bucket_batch_sizes]
        if len(sizes) != len(ends) + 1:
            raise errors.error("RD34", f"Dataset.{method}", f"there are {len(ends)} boundaries and {len(sizes)} sizes "
                               "of batches", "Pass a size for each bucket, one more than boundaries.")

        def inner(element: Any) -> Pipeline:
            bucket, rows = int(element[0]), element[1]._pipeline
            if no_padding:
                return transformations.batch(rows, sizes[bucket], drop_remainder)
            shapes = (buckets.filled(padded_shapes, rows, ends, bucket) if pad_to_bucket_boundary else padded_shapes)
            return transformations.padded_batch(rows, sizes[bucket], shapes, padding_values, drop_remainder)
        return self._after(functions.grouped(
            self._pipeline, method, partial(buckets.number_of, element_length_func, ends), inner,
            lambda bucket: sizes[int(bucket)], self._after))

    def rejection_resample(self, class_func: Callable[..., object], target_dist: npt.ArrayLike,
                           initial_dist: npt.ArrayLike | None = None, seed: int | None = None,
                           name: str | None = None) -> Dataset:
        """Pairs of a class and an element, which are left out or repeated so that classes have another distribution.

        Args:
            class_func: takes an element, a tuple as several arguments, and returns its class, an int from 0.
            target_dist: how frequent each class is to be, numbers of shape [n].
            initial_dist: how frequent each class is, of shape [n]; None for counting them.
            seed: makes the choices the same in every run, and those that TensorFlow makes.
            name: without effect.

        >>> from refdist.data import Dataset
        >>> numbers = Dataset.range(8).rejection_resample(lambda n: n % 2, [0.0, 1.0], [0.5, 0.5])
        >>> [(int(kind), int(number)) for kind, number in numbers]
        [(1, 1), (1, 3), (1, 5), (1, 7)]

        Raises:
            RD25, RD34: distributions that are not, or of different lengths; a function that does not return a class.

        Source: tf.data.Dataset.rejection_resample.
        """
        first = None if seed is None else integer(seed, "seed", "Dataset.rejection_resample")
        return self._after(resampling.resampled(
            self._pipeline, class_func, target_dist, initial_dist, Seeds(first, None), self._after))

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
        return _dataset("apply", transformation_func(self))

    def reduce(self, initial_state: object, reduce_func: Callable[[Any, Any], object], name: str | None = None) -> Any:
        """Calls `state = reduce_func(state, element)` for all elements, and returns the last state, which is an array.

        Args:
            initial_state: a nest of arrays, or of what can be made arrays, of any shapes and dtypes.
            reduce_func: takes a state and an element, and returns the next state, whose structure and dtypes are those
                of `initial_state`.
            name: without effect.

        Raises:
            RD25: not a function.  RD26: the structure or dtype of the state changes.
            What the function raises, with a note that names the element.

        Source: tf.data.Dataset.reduce.
        """
        check_function("reduce", reduce_func)
        return iterators.reduce(arrays(initial_state), reduce_func, self)

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
        return self._after(transformations.cache(self._pipeline, filename))

    def prefetch(self, buffer_size: int | None, name: str | None = None) -> Dataset:
        """Reads up to `buffer_size` elements ahead in another thread; AUTOTUNE and None mean 2.

        Args:
            buffer_size: how many elements; 0 for none, without a thread.
            name: without effect.

        Raises:
            RD25, RD34: no integer, or one below -1, which is AUTOTUNE.

        Source: tf.data.Dataset.prefetch.
        """
        return self._after(transformations.prefetch(self._pipeline, buffer_size))

    # Reading.

    def __iter__(self) -> Iterator[Any]:
        convert = as_the_backend_s if current_backend().makes_all else None
        return Reader(self, partial(self._opened, convert), [Tape(self._pipeline.sources)])

    def _opened(self, convert: Callable[[Any], object] | None, tapes: Sequence[Tape]) -> Iterator[Any]:
        stream = self._pipeline.read(WHOLE._replace(tape=tapes[0]))
        return iter(stream) if convert is None else map(convert, stream)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator over the elements, as NumPy arrays.

        Source: tf.data.Dataset.as_numpy_iterator.
        """
        return Reader(self, partial(self._opened, as_numpy_s), [Tape(self._pipeline.sources)])

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element.

        Args:
            name: without effect.

        >>> import refdist
        >>> refdist.data.Dataset.from_tensors([1, 2]).get_single_element()
        array([1, 2], dtype=int32)

        Raises:
            RD29: the dataset is empty, or has more than one element.

        Source: tf.data.Dataset.get_single_element.
        """
        first = list(itertools.islice(self, 2))
        if len(first) != 1:
            raise errors.error("RD29", "Dataset.get_single_element",
                               "the dataset has more than one element" if first else "the dataset is empty",
                               "Use it for datasets of one element, such as one whole batch.",
                               kind=errors.InvalidArgumentError)
        return first[0]

    # What is known.

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of elements.

        Raises:
            RD25: the number is infinite or unknown.

        Source: tf.data.Dataset.__len__.
        """
        count = self._pipeline.facts.cardinality
        if count < 0:
            which, fix = (("infinite", "Limit it first: `dataset.take(n)`.") if count == INFINITE_CARDINALITY else
                          ("not known before all are read", "Use `cardinality()`, or count while reading."))
            raise errors.error("RD25", "len(dataset)", f"the number of elements is {which}", fix)
        return count

    def cardinality(self) -> Any:
        """The number of elements, or INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2).

        Source: tf.data.Dataset.cardinality.
        """
        return scalar(np.int64(self._pipeline.facts.cardinality))

    @property
    def element_spec(self) -> Any:
        """A nest of TensorSpecs like an element, which holds for all elements.

        If a function or a generator without a signature makes the elements, the first one is read: all others must have
        its structure and dtypes, after a function also its ranks.  Lengths are then unknown.

        >>> import refdist
        >>> refdist.data.Dataset.range(5).batch(2).element_spec
        TensorSpec(shape=(None,), dtype=int64)

        Raises:
            RD29: the spec takes reading, and the dataset is empty.

        Source: tf.data.Dataset.element_spec.
        """
        return self._pipeline.element_spec

    def options(self) -> Options:
        """The options of this dataset, which cannot be set any more.

        Source: tf.data.Dataset.options.
        """
        return kept(self._options)

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """The same elements with these options; options that they do not set keep their values.

        Setting the Options afterwards has no effect on the dataset.

        Args:
            options: those to be set.
            name: without effect.

        Raises:
            RD25: `options` is not an Options.

        Source: tf.data.Dataset.with_options.
        """
        if not isinstance(options, Options):
            raise errors.error("RD25", "Dataset.with_options", f"got {options!r}", "Pass a refdist.data.Options.")
        return Dataset(self._pipeline, merged([self._options, options]))

    def __repr__(self) -> str:
        # `repr` never calls a function of the program.
        spec = self._pipeline.facts.spec
        return f"<{type(self).__name__} of {'what a function of the program makes' if callable(spec) else spec}>"


class TextLineDataset(Dataset):
    """The lines of text files as bytes, without their line ends.

    Args:
        filenames: one name, several, or a dataset of names.
        compression_type: None, "", or "GZIP".
        buffer_size: without effect.
        num_parallel_reads: how many files are read in turn, a line of each; None and AUTOTUNE mean one after another.
        name: without effect.

    Raises:
        RD30: a file does not exist, or is not compressed.
        RD25, RD34: something is not a file name, the compression is unknown, or a number is below 1.

    Source: tf.data.TextLineDataset.
    """

    def __init__(self, filenames: object, compression_type: str | None = None, buffer_size: int | None = None,
                 num_parallel_reads: int | None = None, name: str | None = None) -> None:
        super().__init__(_of_files("TextLineDataset", filenames, files.lines, compression_type, num_parallel_reads))


class TFRecordDataset(Dataset):
    """The records of files in TensorFlow's record format, as bytes; every checksum is verified.

    Args:
        filenames: one name, several, or a dataset of names.
        compression_type: None, "", or "GZIP".
        buffer_size: without effect.
        num_parallel_reads: how many files are read in turn, a record of each; None and AUTOTUNE mean one after another.
        name: without effect.

    >>> import refdist
    >>> list(refdist.data.TFRecordDataset([]))
    []

    Raises:
        RD30: a file does not exist, or a record is truncated or damaged; the message has its number.
        RD25, RD34: something is not a file name, the compression is unknown, or a number is below 1.
        RD27: the package `google-crc32c` is not installed.

    Source: tf.data.TFRecordDataset.
    """

    def __init__(self, filenames: object, compression_type: str | None = None, buffer_size: int | None = None,
                 num_parallel_reads: int | None = None, name: str | None = None) -> None:
        super().__init__(_of_files("TFRecordDataset", filenames, files.records, compression_type, num_parallel_reads))


def _of_files(kind: str, filenames: object, read: Callable[[str, str | None], Iterable[bytes]],
              compression: str | None, num_parallel_reads: int | None) -> Pipeline:
    names = files.names(filenames, kind)
    files.check_compression(compression, kind)
    at_once = 1 if num_parallel_reads in (None, AUTOTUNE) else integer(num_parallel_reads, "num_parallel_reads", kind)
    if at_once < 1:
        raise errors.error("RD34", kind, f"num_parallel_reads is {at_once}", "Pass 1 or more, or AUTOTUNE.")
    return Pipeline(lambda reading: files.read_each(names, reading, read, compression, at_once),
                    Facts(spec=TensorSpec((), object), files=len(names)), sources=_of_names(filenames))


def _of_names(filenames: object) -> list[Source]:
    # Names are read at once, so their order is that of this process.
    sources = filenames._pipeline.sources if isinstance(filenames, Dataset) else ()
    return [source if isinstance(source, str) else "a shuffle of file names without a seed" for source in sources
            if isinstance(source, str) or not source.chosen]


def _combined(pipeline: Pipeline, datasets: list[Dataset]) -> Dataset:
    return Dataset(pipeline, merged(dataset._options for dataset in datasets))


def _pipelines(datasets: list[Dataset]) -> list[Pipeline]:
    return [dataset._pipeline for dataset in datasets]


def _dataset(method: str, returned: object) -> Dataset:
    # Returns what a function of the program returned, if that is a dataset.
    if isinstance(returned, Dataset):
        return returned
    raise errors.error("RD25", f"Dataset.{method}", f"the function returned {errors.type_of(returned)}",
                       "Return a Dataset.")


def _datasets(value: object, method: str) -> list[Dataset]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise errors.error("RD34", f"Dataset.{method}", "no dataset was given", "Pass at least one.")
    datasets = []
    for dataset in values:
        if not isinstance(dataset, Dataset):
            raise errors.error("RD25", f"Dataset.{method}", f"got {dataset!r}", "Pass datasets.")
        datasets.append(dataset)
    return datasets
