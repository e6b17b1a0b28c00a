"""`Dataset`: a sequence of elements that can be read again and again; where its elements come from.

Elements are nests of arrays.  How datasets are read is described in `pipeline.py`.  Combining several datasets is in
`mixing.py`, reading files in `files.py`.  Nothing in this folder knows replicas: `refdist/input` splits batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.core.integers import integer
from refdist.data import files, mixing
from refdist.data.elements import Numbers, Rows, arrays, handed
from refdist.data.facts import Facts, Reading
from refdist.data.functions import Functions
from refdist.data.generator import generated, signature, spec_of_first
from refdist.data.origin import Origin, Read
from refdist.data.pipeline import Numbered
from refdist.data.position import Seeds, Source, together
from refdist.data.spec import TensorSpec, spec_of, unbatched
from refdist.data.transformations import AUTOTUNE


class Dataset(Functions):
    """Elements that are read in order.

    >>> import refdist
    >>> for batch in refdist.data.Dataset.range(5).batch(2):
    ...     print(batch)
    [0 1]
    [2 3]
    [4]

    Source: tf.data.Dataset.
    """

    def _of(self, read: Read, known: Facts, numbered: Numbered | None, origin: Origin | None) -> Dataset:
        return Dataset(read, known, self._options, numbered, origin, self._sources)

    def __repr__(self) -> str:
        # `repr` never calls a function of the program.
        spec = "what a function of the program makes" if callable(self._facts.spec) else self._facts.spec
        return f"<{type(self).__name__} of {spec}>"

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
        return _of_rows(Numbers(numbers, dtype), TensorSpec((), dtype))

    @staticmethod
    def from_tensors(tensors: object, name: str | None = None) -> Dataset:
        """A dataset of one element, the whole nest.

        Args:
            tensors: an array of any shape and dtype, or a nest of arrays.
            name: without effect.

        Source: tf.data.Dataset.from_tensors.
        """
        element = arrays(tensors)
        return Dataset(lambda _: iter([handed(element)]), Facts(1, spec_of(element)))

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
        return _of_rows(Rows(structure), unbatched(spec_of(structure)))

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
        given = () if args is None else tuple(args)
        return Dataset(lambda _: generated(generator, given, wanted),
                       Facts(spec=(lambda: spec_of_first(generator, given)) if wanted is None else wanted),
                       sources=["Dataset.from_generator, whose position only its generator knows"])

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
        dataset = Dataset(lambda reading: iter(names[reading.shard::reading.num_shards]),
                          Facts(len(names), TensorSpec((), object), files=len(names)))
        return dataset if shuffle is False else dataset.shuffle(len(names), seed)

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
        return _combined(mixing.side_by_side(structure, datasets), datasets)

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
        return _combined(mixing.one_after_another(datasets), datasets)

    @staticmethod
    def sample_from_datasets(datasets: Sequence[Dataset], weights: npt.ArrayLike | None = None, seed: int | None = None,
                             stop_on_empty_dataset: bool = False,
                             rerandomize_each_iteration: bool | None = None) -> Dataset:
        """Takes each element from one of several datasets, which is drawn at random.

        Args:
            datasets: a list of datasets.
            weights: the relative frequency of each, floats; None for equal ones.  Weight 0 is never drawn.
            seed: makes the order the same in every run; it is not the order that TensorFlow draws.
            stop_on_empty_dataset: whether to end when any of the datasets ends.
            rerandomize_each_iteration: whether each iteration draws another order; None means if `seed` is None.

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
        given = _datasets(datasets, "sample_from_datasets")
        first = None if seed is None else integer(seed, "seed", "Dataset.sample_from_datasets")
        seed_of = Seeds(first, seed is None if rerandomize_each_iteration is None else rerandomize_each_iteration)
        return _combined(mixing.sampled(given, weights, seed_of, stop_on_empty_dataset), given, seed_of)

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
        given = _datasets(datasets, "choose_from_datasets")
        return _combined(mixing.chosen(given, choices, stop_on_empty_dataset), [*given, choices])


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
        super().__init__(*_of_files("TextLineDataset", filenames, files.lines, compression_type, num_parallel_reads),
                         sources=_of_names(filenames))


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
        super().__init__(*_of_files("TFRecordDataset", filenames, files.records, compression_type, num_parallel_reads),
                         sources=_of_names(filenames))


def _of_files(kind: str, filenames: object, read: Callable[[str, str | None], Iterable[bytes]],
              compression: str | None, num_parallel_reads: int | None) -> tuple[Read, Facts]:
    names = files.names(filenames, kind)
    files.check_compression(compression, kind)
    at_once = 1 if num_parallel_reads in (None, AUTOTUNE) else integer(num_parallel_reads, "num_parallel_reads", kind)
    if at_once < 1:
        raise errors.error("RD34", kind, f"num_parallel_reads is {at_once}", "Pass 1 or more, or AUTOTUNE.")
    return (lambda reading: files.read_each(names, reading, read, compression, at_once),
            Facts(spec=TensorSpec((), object), files=len(names)))


def _of_names(filenames: object) -> list[Source]:
    # Names are read at once, so their order is that of this process.
    sources = filenames._sources if isinstance(filenames, Dataset) else ()
    return [source if isinstance(source, str) else "a shuffle of file names without a seed" for source in sources
            if isinstance(source, str) or not source.chosen]


def _combined(made: mixing.Made, datasets: list[Dataset], *own: Seeds) -> Dataset:
    return Dataset(*made, sources=together([*(dataset._sources for dataset in datasets), own]))


def _of_rows(rows: Rows | Numbers, spec: object) -> Dataset:
    def numbers(_: Reading) -> range:
        return range(rows.count)

    numbered = Numbered(rows, numbers)
    return Dataset(numbered.read, Facts(rows.count, spec), numbered=numbered, origin=Origin(numbers))


def _datasets(value: object, method: str) -> list[Dataset]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given:
        raise errors.error("RD34", f"Dataset.{method}", "no dataset was given", "Pass at least one.")
    datasets = []
    for dataset in given:
        if not isinstance(dataset, Dataset):
            raise errors.error("RD25", f"Dataset.{method}", f"got {dataset!r}", "Pass datasets.")
        datasets.append(dataset)
    return datasets
