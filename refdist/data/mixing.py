"""Pipelines made of several others: side by side, one after another, drawn at random, or chosen one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.data import facts, iterators
from refdist.data.facts import Facts, Reading
from refdist.data.pipeline import Pipeline
from refdist.data.position import Seeds, Source, together
from refdist.data.spec import TensorSpec, common


def side_by_side(structure: object, pipelines: list[Pipeline]) -> Pipeline:
    """Elements of all datasets in one structure, until the shortest ends."""
    sizes = {pipeline.facts.batch_size for pipeline in pipelines}
    known = Facts(facts.zipped([pipeline.facts.cardinality for pipeline in pipelines]),
                  _spec(pipelines, lambda specs: nest.pack_sequence_as(structure, specs)),
                  sizes.pop() if len(sizes) == 1 else None, all(pipeline.facts.static for pipeline in pipelines),
                  all(pipeline.facts.certain for pipeline in pipelines), _files(pipelines, paired=True))

    def read(reading: Reading) -> Iterator[object]:
        return (nest.pack_sequence_as(structure, list(parts))
                for parts in zip(*(pipeline.read(reading) for pipeline in pipelines), strict=False))
    return Pipeline(read, known, sources=_sources(pipelines))


def one_after_another(pipelines: list[Pipeline]) -> Pipeline:
    """The elements of the first dataset, then those of the next.

    Raises:
        RD26: elements of another structure or dtype, where that is known.
    """
    sizes = {pipeline.facts.batch_size for pipeline in pipelines}
    size = sizes.pop() if len(sizes) == 1 else None
    known = Facts(facts.concatenated(*(pipeline.facts.cardinality for pipeline in pipelines)),
                  _spec(pipelines, common), size,
                  size is not None and all(pipeline.facts.static for pipeline in pipelines),
                  all(pipeline.facts.certain for pipeline in pipelines), _files(pipelines))

    def read(reading: Reading) -> Iterator[object]:
        first, *following = pipelines
        return chain(first.read(reading), chain.from_iterable(pipeline.read(reading) for pipeline in following))
    return Pipeline(read, known, sources=_sources(pipelines))


def sampled(pipelines: list[Pipeline], weights: npt.ArrayLike | None, seed_of: Seeds,
            stop: bool) -> Pipeline:
    """Each element is the next one of a dataset drawn at random.

    Raises:
        RD25: bad weights.  RD26: elements of another structure or dtype, where that is known.
    """
    shares = np.ones(len(pipelines)) if weights is None else np.asarray(weights)
    are_floats = shares.shape == (len(pipelines),) and shares.dtype.kind == "f"
    with np.errstate(over="ignore", under="ignore"):
        shares = shares.astype(np.float32) if are_floats else shares  # as TensorFlow draws from them
    if not are_floats or not np.isfinite(shares).all():
        raise errors.error("RD34", "Dataset.sample_from_datasets", f"weights is {weights!r}",
                           f"Pass one float for each dataset ({len(pipelines)} in all), or None.")
    drawn = [(pipeline, float(share)) for pipeline, share in zip(pipelines, shares, strict=True) if share > 0]

    def choices(reading: Reading) -> Iterator[int]:
        return iterators.draw([share for _, share in drawn], seed_of(reading)) if drawn else iter(())
    mixed = _mixed([pipeline for pipeline, _ in drawn], pipelines, choices, stop)
    if len(drawn) < 2:  # there is nothing to draw
        mixed.facts = mixed.facts._replace(cardinality=sum(pipeline.facts.cardinality for pipeline, _ in drawn))
    mixed.sources = together([mixed.sources, [seed_of]])
    return mixed


def chosen(pipelines: list[Pipeline], indices: Pipeline, stop: bool) -> Pipeline:
    """Each element is the next one of the dataset whose index `indices` yields.

    Raises:
        RD25, RD34: choices that are not int64 scalars.  RD26: elements of another structure or dtype, where that is
            known.
    """
    wanted = TensorSpec((), np.int64)
    if indices.element_spec != wanted:
        raise errors.error("RD25", "Dataset.choose_from_datasets", f"the choices are {indices.element_spec}",
                           f"Pass a dataset of {wanted}.")
    mixed = _mixed(pipelines, pipelines, indices.read, stop)
    mixed.sources = together([mixed.sources, indices.sources])
    return mixed


def _mixed(pipelines: list[Pipeline], all_of_them: list[Pipeline], choices: Callable[[Reading], Iterable[object]],
           stop: bool) -> Pipeline:
    counts = [pipeline.facts.cardinality for pipeline in pipelines]
    known = Facts(facts.mixed(counts), _spec(all_of_them, common), files=_files(all_of_them))

    def read(reading: Reading) -> Iterator[object]:
        return iterators.chosen([iter(pipeline.read(reading)) for pipeline in pipelines], choices(reading), stop)
    return Pipeline(read, known, sources=_sources(all_of_them))


def _spec(pipelines: list[Pipeline], change: Callable[[list[object]], object]) -> object:
    # Now if the specs of all are known, else a function that is called when the spec is needed.
    if any(callable(pipeline.facts.spec) for pipeline in pipelines):
        return lambda: change([pipeline.element_spec for pipeline in pipelines])
    return change([pipeline.facts.spec for pipeline in pipelines])


def _files(pipelines: list[Pipeline], paired: bool = False) -> int | Callable[[], int]:
    # 0 if one of the datasets does not read files: workers that divide the files would each read all of its rows.  Rows
    # that are paired keep their partners only if all datasets have the same number of files.
    def count() -> int:
        counts = [pipeline.facts.file_count for pipeline in pipelines]
        return 0 if not all(counts) or (paired and len(set(counts)) > 1) else sum(counts)
    return count if any(callable(pipeline.facts.files) for pipeline in pipelines) else count()


def _sources(pipelines: list[Pipeline]) -> tuple[Source, ...]:
    return together(pipeline.sources for pipeline in pipelines)
