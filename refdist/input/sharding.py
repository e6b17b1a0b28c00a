"""How the rows of a dataset are shared out between workers and replicas: the policy, and what follows from it.

The arithmetic of a split is in `data.split`; nothing here knows PerReplica values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refdist import errors, nest
from refdist.array.convert import is_text, to_array
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, WHOLE, Facts, Reading
from refdist.data.options import AutoShardPolicy, UnevenEnd
from refdist.data.spec import TensorSpec, with_rows
from refdist.input.split import even_out, piece_sizes, split_batch, split_stream


class Split(NamedTuple):
    """How the pipelines of a worker become steps.

    Attributes:
        pipelines: what is read; one for each worker, or one for each replica.
        steps: (pipelines, worker) to the steps of that worker: lists with the element of each of its replicas.
        reading: which part of the files is read, and the seed that the workers agreed upon.
        policy: in words, and why it was chosen.
        spec: the spec of one replica's element from the spec of a pipeline's.
        warnings: what is lost or seen twice.
        cuts: whether elements are cut into pieces, or go to replicas whole.
        others: whether the steps of other workers can be told from this worker's pipelines.
    """

    pipelines: list[Any]
    steps: Callable[[list[Iterable[Any]], int], Iterator[list[Any]]]
    reading: Reading
    policy: str
    spec: Callable[[Any], Any]
    warnings: list[str]
    cuts: bool = False
    others: bool = True

    def open(self, *, peek: bool = False) -> list[Iterable[Any]]:
        """The pipelines from their beginning."""
        reading = self.reading._replace(peek=peek)
        return [pipeline._read(reading) if isinstance(pipeline, Dataset) else pipeline for pipeline in self.pipelines]


def of_dataset(extended: Any, dataset: Any, uneven: UnevenEnd) -> Split:
    """The split of one dataset of global batches.

    Raises:
        RD15: scalars.  RD18: the files, or the rows of a batch, cannot be shared out.
    """
    workers, local = extended.layout.workers, extended.layout.count
    count = workers * local
    known = dataset._facts if isinstance(dataset, Dataset) else Facts()
    policy = AutoShardPolicy.AUTO
    if isinstance(dataset, Dataset):
        policy = dataset.options().experimental_distribute.auto_shard_policy
    if count > 1:
        _check_rows(known, count)
    size, certain = _batch_size(known)
    by_file, why = _by_file(policy, known.files, workers)
    unshared = policy in (AutoShardPolicy.OFF, AutoShardPolicy.HINT)
    own = by_file or unshared  # every worker cuts what it reads for itself alone
    stream = count > 1 and certain and own
    reading = WHOLE
    if workers > 1:
        reading = Reading(workers, extended.layout.worker) if by_file else Reading(seed=extended.agreed_seed())
    whole = uneven is not UnevenEnd.DROP
    sizes = None if size is None else piece_sizes(size if whole else size - size % count, count)
    problems = []
    if size is not None and sizes is not None and count > 1:
        if not stream and whole:
            each = -(-size // count)
            sizes = [min(each, max(size - i * each, 0)) for i in range(count)]
        if not any(sizes):
            raise errors.error("RD18", "experimental_distribute_dataset", f"a batch of {size} rows gives none of "
                               f"{count} replicas a row when the uneven end is dropped",
                               "Take larger batches.", kind=errors.InvalidValueError)
        problems += _empty_shares(sizes, size)
    if workers > 1 and unshared:
        problems.append(f"with {policy.name} each of the {workers} workers reads all rows, so every row is seen "
                        f"{workers} times; use DATA, or shard the dataset")
    elif workers > 1 and known.shards == workers:
        problems.append(f"the dataset is one of {workers} shards already and is shared out between the workers once "
                        "more, so rows are lost; leave out `shard`, or use AutoShardPolicy.OFF")
    if known.cardinality == 0 and known.static:
        problems.append(f"there is no step: no batch has all of its {size} rows, and the remainder is dropped")
    padded = max(sizes) if sizes and uneven is UnevenEnd.PAD else None
    full = workers == 1 or known.cardinality == INFINITE_CARDINALITY  # no worker waits for others with empty elements

    def steps(pipelines: list[Iterable[Any]], worker: int) -> Iterator[list[Any]]:
        for number, step in enumerate(pieces(pipelines[0], worker)):
            even = even_out(step, uneven, padded, number)
            if even is not None:
                yield even if own else even[worker::workers]

    def pieces(batches: Iterable[Any], worker: int) -> Iterator[list[Any]]:
        if stream:
            turned = (sizes or [])[worker * local:] + (sizes or [])[:worker * local]
            return split_stream(batches, turned, local)
        cut = (split_batch(batch, count, i, whole) for i, batch in enumerate(batches))
        return cut if not own else _chunks(itertools.chain.from_iterable(cut), local)

    def spec(of_batch: Any) -> Any:
        if uneven is UnevenEnd.PAD:
            return with_rows(of_batch, padded), TensorSpec((padded,), np.bool_)
        if count == 1:
            return of_batch

        def of_piece(one: TensorSpec) -> TensorSpec:
            rows = one.shape[0] if one.shape and full and (not stream or one.shape[0] == size) else None
            return one.with_rows(rows // count if rows is not None and rows % count == 0 else None)
        return nest.map_structure(of_piece, of_batch)

    how = ("the stream of rows is cut into pieces that differ by at most one row" if stream
           else "every batch is cut into pieces of the same rounded-up size")
    if count == 1:
        how = "the one replica gets every batch whole"
    return Split([dataset], steps, reading, f"{policy.name}: {how}, {why}", spec, problems, count > 1, not by_file)


def _batch_size(known: Facts) -> tuple[int | None, bool]:
    # The rows of a full batch, and whether they are certain before reading: by the spec, as in TensorFlow, or by the
    # last batch, as long as nothing since can have changed it.
    rows = {one.shape[0] if one.shape else None for one in known.arrays} or {None}
    if None in rows:
        return known.batch_size, known.batch_size is not None and known.certain
    return (rows.pop(), True) if len(rows) == 1 else (None, False)


def _check_rows(known: Facts, count: int) -> None:
    if any(one.shape == () and one.dtype != object for one in known.arrays):
        raise errors.error("RD15", "experimental_distribute_dataset", "the elements have a scalar component, which "
                           f"cannot be split over {count} replicas")


def _by_file(policy: AutoShardPolicy, files: tuple[str, ...], workers: int) -> tuple[bool, str]:
    if policy is AutoShardPolicy.FILE:
        if workers > 1 and len(files) < workers:
            found = f"{counted(workers, 'worker')} and {counted(len(files), 'file')}"
            raise errors.error("RD18", "AutoShardPolicy.FILE", f"there are {found}, so a worker would have no rows",
                               "Use AutoShardPolicy.DATA, or write at least one file for each worker.")
        return True, "as the options say"
    if policy is AutoShardPolicy.AUTO:
        if not files:
            return False, "as no files are read"
        if len(files) >= workers:
            return True, f"as files are read and there are enough for {counted(workers, 'worker')}"
        return False, f"as there are fewer files ({len(files)}) than workers ({workers})"
    return False, "as the options say"


def _empty_shares(sizes: list[int], size: int) -> list[str]:
    empty = [i for i, rows in enumerate(sizes) if not rows]
    if not empty:
        return []
    which = f"replica {empty[0]} gets" if len(empty) == 1 else f"replicas {', '.join(map(str, empty))} get"
    evenly = ", or AutoShardPolicy.OFF for pieces that differ by at most one" if size >= len(sizes) else ""
    return [f"{which} no row of a full batch: {counted(size, 'row')} on {len(sizes)} replicas make pieces of {sizes}; "
            f"take a multiple of {len(sizes)}{evenly}"]


def of_pipelines(extended: Any, datasets: list[Any], per_replica_mode: bool, uneven: UnevenEnd) -> Split:
    """The split of datasets that a function made: one for this worker, or one for each of its replicas."""
    local, alone = extended.layout.count, extended.layout.workers == 1
    first = datasets[0]._facts if isinstance(datasets[0], Dataset) else Facts()
    if uneven is UnevenEnd.EMPTY and first.static and alone:
        uneven = UnevenEnd.DROP  # who drops the remainder of a batch loses the one of a step, as in TensorFlow
    # Where the first dimension of an element is known, an empty array is not such an element.
    fixed = alone and any(one.shape and one.shape[0] for one in first.arrays)

    def steps(pipelines: list[Iterable[Any]], worker: int) -> Iterator[list[Any]]:
        taken = _side_by_side(pipelines) if per_replica_mode else _in_turn(pipelines[0], local)
        for number, step in enumerate(taken):
            if uneven is UnevenEnd.DROP and any(element is _NOTHING for element in step):
                return
            present = [element for element in step if element is not _NOTHING]
            full = [_empty(present[0], i, number, fixed) if element is _NOTHING else element
                    for i, element in enumerate(step)]
            even = even_out(full, uneven, first.batch_size, number)
            if even is not None:
                yield even

    def spec(of_element: Any) -> Any:
        if uneven is UnevenEnd.PAD:
            return with_rows(of_element, first.batch_size), TensorSpec((first.batch_size,), np.bool_)
        return of_element if alone or first.cardinality == INFINITE_CARDINALITY else with_rows(of_element, None)

    how = "every replica reads its own dataset" if per_replica_mode else "replicas take the next element in turn"
    return Split(datasets, steps, WHOLE, f"{how}, as a function made it", spec, [], others=False)


def _in_turn(dataset: Iterable[Any], count: int) -> Iterator[list[Any]]:
    elements = iter(dataset)
    while taken := list(itertools.islice(elements, count)):
        yield taken + [_NOTHING] * (count - len(taken))


def _side_by_side(datasets: list[Iterable[Any]]) -> Iterator[list[Any]]:
    return map(list, itertools.zip_longest(*datasets, fillvalue=_NOTHING))


def _chunks(pieces: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(pieces, size)):
        yield chunk


_NOTHING = object()


def _empty(like: Any, replica: int, step: int, fixed: bool) -> Any:
    def none_of(leaf: Any) -> Any:
        array = leaf if is_text(leaf) else to_array(leaf)
        if fixed or not np.ndim(array):
            what = "a scalar" if not np.ndim(array) else f"an element of shape {array.shape}, which all have"
            raise errors.error("RD15", "reading a distributed dataset", f"replica {replica} has no element left in "
                               f"step {step}, and no empty array can stand for {what}",
                               "Batch the dataset, make its length a multiple of the number of replicas, or choose "
                               "`InputOptions(uneven_end=UnevenEnd.DROP)`.")
        return array[:0]

    return nest.map_structure(none_of, like)


def empty_of(spec: Any) -> Any:
    """An element without rows, for a replica that has none left; a distributed spec stands for its first part.

    Raises:
        RD15: scalars, for which no empty array can stand.
    """
    def none_of(one: Any) -> Any:
        one = one.values[0] if hasattr(one, "values") else one
        if not one.shape:
            raise errors.error("RD15", "reading a distributed dataset", "this worker has no element left, and no "
                               "empty array can stand for a scalar", "Batch the dataset.")
        return np.empty((0, *(n or 0 for n in one.shape[1:])), one.dtype)

    return nest.map_structure(none_of, spec)


def counted(number: int, noun: str) -> str:
    """For messages: "1 file", "2 files"."""
    return f"{number} {noun}" + "s" * (number != 1)
