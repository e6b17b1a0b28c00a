"""Datasets made of several others: side by side, one after another, drawn at random, or chosen one by one.

Each function returns the arguments of the new `Dataset`: how it is read, its facts, and its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.data import facts, iterators
from refdist.data.facts import Facts, Reading
from refdist.data.options import Options, merged
from refdist.data.spec import TensorSpec, common

if TYPE_CHECKING:
    from refdist.data.dataset import Dataset

Made = tuple[Callable[[Reading], Iterable[object]], Facts, Options]


def side_by_side(structure: object, datasets: list[Dataset]) -> Made:
    """Elements of all datasets in one structure, until the shortest ends."""
    sizes = {dataset._facts.batch_size for dataset in datasets}
    known = Facts(facts.zipped([dataset._facts.cardinality for dataset in datasets]),
                  _spec(datasets, lambda specs: nest.pack_sequence_as(structure, specs)),
                  sizes.pop() if len(sizes) == 1 else None, all(dataset._facts.static for dataset in datasets),
                  all(dataset._facts.certain for dataset in datasets), _files(datasets, paired=True))

    def read(reading: Reading) -> Iterator[object]:
        for parts in zip(*(dataset._read(reading) for dataset in datasets), strict=False):
            yield nest.pack_sequence_as(structure, list(parts))
    return read, known, _options(datasets)


def one_after_another(datasets: list[Dataset]) -> Made:
    """The elements of the first dataset, then those of the next.

    Raises:
        RD26: elements of another structure or dtype, where that is known.
    """
    sizes = {dataset._facts.batch_size for dataset in datasets}
    size = sizes.pop() if len(sizes) == 1 else None
    known = Facts(facts.concatenated(*(dataset._facts.cardinality for dataset in datasets)),
                  _spec(datasets, common), size,
                  size is not None and all(dataset._facts.static for dataset in datasets),
                  all(dataset._facts.certain for dataset in datasets), _files(datasets))

    def read(reading: Reading) -> Iterator[object]:
        for dataset in datasets:
            yield from dataset._read(reading)
    return read, known, _options(datasets)


def sampled(datasets: list[Dataset], weights: npt.ArrayLike | None, seed_of: Callable[[Reading], int],
            stop: bool) -> Made:
    """Each element is the next one of a dataset drawn at random.

    Raises:
        RD25: bad weights.  RD26: elements of another structure or dtype, where that is known.
    """
    shares = np.ones(len(datasets)) if weights is None else np.asarray(weights)
    if shares.shape != (len(datasets),) or shares.dtype.kind != "f":
        raise errors.error("RD34", "Dataset.sample_from_datasets", f"weights is {weights!r}",
                           f"Pass one float for each dataset ({len(datasets)} in all), or None.")
    drawn = [(dataset, float(share)) for dataset, share in zip(datasets, shares, strict=True) if share > 0]

    def choices(reading: Reading) -> Iterator[int]:
        return iterators.draw([share for _, share in drawn], seed_of(reading)) if drawn else iter(())
    read, known, options = _mixed([dataset for dataset, _ in drawn], datasets, choices, stop)
    if len(drawn) < 2:  # there is nothing to draw
        known = known._replace(cardinality=sum(dataset._facts.cardinality for dataset, _ in drawn))
    return read, known, options


def chosen(datasets: list[Dataset], choice_dataset: Dataset, stop: bool) -> Made:
    """Each element is the next one of the dataset whose index `choice_dataset` yields.

    Raises:
        RD25, RD34: choices that are not int64 scalars.  RD26: elements of another structure or dtype, where that is
            known.
    """
    wanted = TensorSpec((), np.int64)
    if choice_dataset.element_spec != wanted:
        raise errors.error("RD25", "Dataset.choose_from_datasets", f"the choices are {choice_dataset.element_spec}",
                           f"Pass a dataset of {wanted}.")
    return _mixed(datasets, datasets, choice_dataset._read, stop)


def _mixed(datasets: list[Dataset], all_of_them: list[Dataset], choices: Callable[[Reading], Iterable[object]],
           stop: bool) -> Made:
    counts = [dataset._facts.cardinality for dataset in datasets]
    known = Facts(facts.mixed(counts), _spec(all_of_them, common),
                  files=_files(all_of_them))

    def read(reading: Reading) -> Iterator[object]:
        return iterators.chosen([iter(dataset._read(reading)) for dataset in datasets], choices(reading), stop)
    return read, known, _options(all_of_them)


def _spec(datasets: list[Dataset], change: Callable[[list[object]], object]) -> object:
    # Now if the specs of all are known, else a function that is called when the spec is needed.
    if any(callable(dataset._facts.spec) for dataset in datasets):
        return lambda: change([dataset.element_spec for dataset in datasets])
    return change([dataset._facts.spec for dataset in datasets])


def _files(datasets: list[Dataset], paired: bool = False) -> int | Callable[[], int]:
    # 0 if one of the datasets does not read files: workers that divide the files would each read all of its rows.  Rows
    # that are paired keep their partners only if all datasets have the same number of files.
    def count() -> int:
        counts = [dataset._facts.file_count for dataset in datasets]
        return 0 if not all(counts) or (paired and len(set(counts)) > 1) else sum(counts)
    return count if any(callable(dataset._facts.files) for dataset in datasets) else count()


def _options(datasets: list[Dataset]) -> Options:
    return merged(dataset.options() for dataset in datasets)
