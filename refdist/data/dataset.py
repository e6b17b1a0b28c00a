"""`Dataset`: a sequence of elements that can be read again and again.

Every method returns a new dataset; nothing is read before the iteration.  Elements are nests of arrays.
How a batch is split over replicas is in `split`; nothing here knows replicas.  Its transformations are in
`transformations.py`, datasets of files in `files.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.data import facts, files
from refdist.data.elements import Numbers, Rows, arrays
from refdist.data.facts import INFINITE_CARDINALITY, PEEK, WHOLE, Facts, Reading
from refdist.data.generator import generated
from refdist.data.options import Options
from refdist.data.spec import TensorSpec, common, free, spec_of, unbatched, with_rows
from refdist.data.transformations import Read, Transformations


class Dataset(Transformations):
    """Elements that are read in order.

    >>> import refdist
    >>> for batch in refdist.data.Dataset.range(5).batch(2):
    ...     print(batch)
    [0 1]
    [2 3]
    [4]

    Source: tf.data.Dataset.
    """

    def __init__(self, read: Read, known: Facts, options: Options | None = None, rows: Any = None) -> None:
        # Where elements are rows of arrays, `read` gives their numbers: choosing and shuffling move only these.
        self._rows = rows
        self._indices = read
        self._read = read if rows is None else lambda reading: map(rows.one, read(reading))
        self._facts = known
        self._spec = known.spec
        self._options = options or Options()

    def _then(self, read: Read, known: Facts) -> Dataset:
        return Dataset(read, known, self._options)

    def _select(self, change: Callable[[Read, Reading], Iterable[Any]], cardinality: int) -> Dataset:
        read = self._indices
        return Dataset(lambda reading: change(read, reading), self._facts.elements_only(cardinality), self._options,
                       self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read(WHOLE))

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of elements.

        Raises:
            RD25: it is infinite or unknown.

        Source: tf.data.Dataset.__len__.
        """
        count = self._facts.cardinality
        if count < 0:
            which = "infinite" if count == INFINITE_CARDINALITY else "not known before it is read"
            raise errors.error("RD25", "len(dataset)", f"the number of elements is {which}",
                               "Ask `cardinality()`, or count while reading.")
        return count

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator over the elements; they are NumPy arrays already.

        Source: tf.data.Dataset.as_numpy_iterator.
        """
        return iter(self)

    def cardinality(self) -> np.int64:
        """The number of elements, or INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2).

        Source: tf.data.Dataset.cardinality.
        """
        return np.int64(self._facts.cardinality)

    @property
    def element_spec(self) -> Any:
        """A nest of TensorSpecs like an element.

        Where a function or a generator without a signature makes the elements, the first one is read for it; of a
        generator's elements and of padded batches it tells ranks and dtypes, as lengths may differ.

        >>> import refdist
        >>> refdist.data.Dataset.range(5).batch(2).element_spec
        TensorSpec(shape=(None,), dtype=int64)

        Raises:
            RD29: it takes reading, and there is no element.

        Source: tf.data.Dataset.element_spec.
        """
        if self._spec is None:
            for element in self._read(PEEK):
                spec = spec_of(element)
                if self._facts.ragged:
                    spec = free(spec)
                elif self._facts.batch_size is not None and not self._facts.static:
                    spec = with_rows(spec, None)
                self._spec = spec
                return self._spec
            raise errors.error("RD29", "Dataset.element_spec", "there is no element to tell it from",
                               "Give the generator an `output_signature`.")
        return self._spec

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """`reduce_func(state, element)` over all elements, beginning with `initial_state`.

        Source: tf.data.Dataset.reduce.
        """
        state = initial_state
        for element in self:
            state = reduce_func(state, element)
        return state

    def options(self) -> Options:
        """The options that `with_options` set, or the defaults.

        Source: tf.data.Dataset.options.
        """
        return self._options

    def with_options(self, options: Options) -> Dataset:
        """The same elements with other options.

        Raises:
            RD25: not an Options.

        Source: tf.data.Dataset.with_options.
        """
        if not isinstance(options, Options):
            raise errors.error("RD25", "Dataset.with_options", f"got {options!r}", "Pass a refdist.data.Options.")
        return Dataset(self._indices, self._facts, options, self._rows)

    # Sources.

    @staticmethod
    def range(*args: int) -> Dataset:
        """The int64 scalars of `range(*args)`.

        Raises:
            RD25: arguments that `range` does not take.

        Source: tf.data.Dataset.range.
        """
        try:
            numbers = range(*args)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", f"Dataset.range{args}", str(error), "Pass one to three ints.") from error
        return _of_rows(Numbers(numbers), TensorSpec((), np.int64))

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element: the whole nest.

        Source: tf.data.Dataset.from_tensors.
        """
        element = arrays(tensors)
        return Dataset(lambda _: iter([element]), Facts(1, spec_of(element)))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of every array of a nest; arrays are not copied, so memory maps stay lazy.

        Raises:
            RD15: a scalar has no rows.  RD26: arrays with different numbers of rows.

        Source: tf.data.Dataset.from_tensor_slices.
        """
        structure = arrays(tensors)
        return _of_rows(Rows(structure), unbatched(spec_of(structure)))

    @staticmethod
    def from_generator(generator: Callable[..., Iterable[Any]], args: tuple[Any, ...] = (), *,
                       output_signature: Any = None) -> Dataset:
        """What `generator(*args)` yields, called anew for every iteration.

        Args:
            generator: a function that returns an iterable of elements.
            args: its arguments.
            output_signature: a nest of TensorSpecs that every element must fit; without it, structure and dtypes
                of the first element.

        Raises:
            RD25: not a function.  RD26: an element that does not fit, with its number.
            What the generator raises, with a note that says at which element.

        Source: tf.data.Dataset.from_generator.
        """
        if not callable(generator):
            raise errors.error("RD25", "Dataset.from_generator", f"got {generator!r}",
                               "Pass a function that returns an iterable.")
        for spec in nest.flatten(output_signature):
            if output_signature is not None and not isinstance(spec, TensorSpec):
                raise errors.error("RD25", "Dataset.from_generator", f"output_signature has {spec!r}",
                                   "Pass a nest of refdist.TensorSpec.")
        return Dataset(lambda _: generated(generator, args, output_signature),
                       Facts(spec=output_signature, ragged=output_signature is None))

    @staticmethod
    def list_files(file_pattern: Any, shuffle: bool | None = None, seed: int | None = None) -> Dataset:
        """The names of the files that match one pattern or several, sorted, and then shuffled unless told not to.

        Raises:
            RD30: no file matches.  RD25: a pattern that is no text.

        Source: tf.data.Dataset.list_files.
        """
        names = files.match(file_pattern)
        dataset = Dataset(lambda reading: iter(names[reading.shard::reading.num_shards]),
                          Facts(len(names), TensorSpec((), object), files=tuple(names)))
        return dataset if shuffle is False else dataset.shuffle(len(names), seed)

    @staticmethod
    def zip(*args: Any) -> Dataset:
        """Elements side by side, until the shortest dataset ends.

        Args:
            args: datasets, or one nest of datasets.

        >>> import refdist
        >>> pairs = refdist.data.Dataset.zip(refdist.data.Dataset.range(2), refdist.data.Dataset.range(5, 9))
        >>> [(int(a), int(b)) for a, b in pairs]
        [(0, 5), (1, 6)]

        Raises:
            RD25: something that is no dataset.

        Source: tf.data.Dataset.zip.
        """
        structure = args[0] if len(args) == 1 else args
        datasets = nest.flatten(structure)
        for dataset in datasets or [None]:
            if not isinstance(dataset, Dataset):
                raise errors.error("RD25", "Dataset.zip", f"got {dataset!r}", "Pass datasets.")
        sizes = {dataset._facts.batch_size for dataset in datasets}
        specs = [dataset._facts.spec for dataset in datasets]
        known = Facts(facts.zipped([dataset._facts.cardinality for dataset in datasets]),
                      None if None in specs else nest.pack_sequence_as(structure, specs),
                      sizes.pop() if len(sizes) == 1 else None, all(dataset._facts.static for dataset in datasets),
                      all(dataset._facts.certain for dataset in datasets),
                      any(dataset._facts.ragged for dataset in datasets),
                      tuple(name for dataset in datasets for name in dataset._facts.files))

        def read(reading: Reading) -> Iterator[Any]:
            for parts in zip(*(dataset._read(reading) for dataset in datasets), strict=False):
                yield nest.pack_sequence_as(structure, list(parts))
        return Dataset(read, known)

    def concatenate(self, dataset: Dataset) -> Dataset:
        """The elements of this dataset and then those of another.

        Raises:
            RD25: no dataset.  RD26: elements of another structure or dtype, where that is known.

        Source: tf.data.Dataset.concatenate.
        """
        if not isinstance(dataset, Dataset):
            raise errors.error("RD25", "Dataset.concatenate", f"got {dataset!r}", "Pass a dataset.")
        mine, other = self._facts, dataset._facts
        spec = mine.spec
        if mine.spec is not None and other.spec is not None and mine.spec != other.spec:
            if nest.compare([mine.spec, other.spec]) is not None or any(
                    a.dtype != b.dtype for a, b in zip(nest.flatten(mine.spec), nest.flatten(other.spec), strict=True)):
                raise errors.error("RD26", "Dataset.concatenate", f"one has elements of {mine.spec}, the other of "
                                   f"{other.spec}", "Give both one structure and dtype.", kind=errors.InvalidTypeError)
            spec = common([mine.spec, other.spec])
        size = mine.batch_size if mine.batch_size == other.batch_size else None
        known = Facts(facts.concatenated(mine.cardinality, other.cardinality), spec, size,
                      mine.static and other.static and size is not None, mine.certain and other.certain,
                      mine.ragged or other.ragged or mine.spec != other.spec, mine.files + other.files)

        def read(reading: Reading) -> Iterator[Any]:
            yield from self._read(reading)
            yield from dataset._read(reading)
        return self._then(read, known)


class TextLineDataset(Dataset):
    """The lines of text files as bytes, without their line ends.

    Args:
        filenames: one name, several, or a dataset of names.

    Raises:
        RD30: no such file.  RD25: no file name.

    Source: tf.data.TextLineDataset.
    """

    def __init__(self, filenames: Any) -> None:
        names = files.names(filenames, "TextLineDataset")
        super().__init__(lambda reading: files.read_each(names, reading, files.lines),
                         Facts(spec=TensorSpec((), object), files=tuple(names)))


class TFRecordDataset(Dataset):
    """The records of files in TensorFlow's record format, as bytes; every checksum is compared.

    Args:
        filenames: one name, several, or a dataset of names.
        compression_type: None, "", or "GZIP".

    >>> import refdist
    >>> list(refdist.data.TFRecordDataset([]))
    []

    Raises:
        RD30: no such file, or a record that is truncated or damaged, with its number.
        RD25: no file name, or another compression.  RD27: the package `google-crc32c` is not installed.

    Source: tf.data.TFRecordDataset.
    """

    def __init__(self, filenames: Any, compression_type: str | None = None) -> None:
        names = files.names(filenames, "TFRecordDataset")
        files.check_compression(compression_type, "TFRecordDataset")
        super().__init__(
            lambda reading: files.read_each(names, reading, partial(files.records, compression=compression_type)),
            Facts(spec=TensorSpec((), object), files=tuple(names)))


def _of_rows(rows: Rows | Numbers, spec: Any) -> Dataset:
    return Dataset(lambda _: range(rows.count), Facts(rows.count, spec), rows=rows)
