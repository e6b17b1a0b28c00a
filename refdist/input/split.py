"""How global batches are split over replicas.  Pure functions; the pieces are views, never copies.

A step of a distributed dataset is a list with one element per replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist import errors, nest
from refdist.array.convert import is_text, to_array
from refdist.core.rules.input import Step
from refdist.core.rules.table import Refusal
from refdist.data import elements


def split_batch(batch: object, num_replicas: int, position: int, whole: bool = True) -> list[Any]:
    """The pieces of a global batch, one per replica, in order.

    Every piece has ceil(rows / num_replicas) rows as long as rows are left; then come a shorter one and empty
    ones of the same shape and dtype.  Components with different numbers of rows are cut each by its own.  With
    one replica the batch is returned as it is.

    Args:
        batch: a nest of arrays.
        num_replicas: on all workers.
        position: the number of the batch in the dataset, for messages.
        whole: False for floor(rows / num_replicas) rows on every replica, without the rest.

    >>> import numpy as np
    >>> split_batch(np.arange(6), 4, 0)
    [array([0, 1]), array([2, 3]), array([4, 5]), array([], dtype=int64)]

    Raises:
        RD15: a component without a batch dimension.

    Source: observed, TensorFlow 2.21, MirroredStrategy.experimental_distribute_dataset.
    """
    leaves = [leaf if is_text(leaf) else to_array(leaf) for leaf in nest.flatten(batch)]
    if num_replicas == 1:
        return [nest.pack_sequence_as(batch, leaves)]
    _check_rank(leaves, num_replicas, position)
    steps = [-(-len(leaf) // num_replicas) if whole else len(leaf) // num_replicas for leaf in leaves]
    return [nest.pack_sequence_as(batch, [leaf[i * each:(i + 1) * each]
                                          for leaf, each in zip(leaves, steps, strict=True)])
            for i in range(num_replicas)]


def piece_sizes(batch_size: int, num_replicas: int, first: int = 0) -> list[int]:
    """The sizes of the pieces of a stream, for the worker whose first replica is `first`.

    >>> piece_sizes(7, 4), piece_sizes(7, 4, first=2)
    ([2, 2, 2, 1], [2, 1, 2, 2])

    Source: observed, TensorFlow 2.21, batch_sizes_for_worker.
    """
    sizes = [batch_size // num_replicas + (i < batch_size % num_replicas) for i in range(num_replicas)]
    return sizes[first:] + sizes[:first]


def split_stream(batches: Iterable[object], sizes: Sequence[int], per_step: int) -> Iterator[list[Any]]:
    """The pieces of a stream of batches whose boundaries are ignored, `per_step` of them in each step.

    The pieces have the sizes given, in turn; only the last one is shorter, and pieces that are missing in the
    last step are empty.

    >>> import numpy as np
    >>> steps = split_stream([np.arange(6), np.arange(6, 9)], [2, 2, 1, 1], 4)
    >>> [[piece.tolist() for piece in step] for step in steps]
    [[[0, 1], [2, 3], [4], [5]], [[6, 7], [8], [], []]]

    Raises:
        RD15: a component without a batch dimension.  RD26: components with different numbers of rows.

    Source: observed, TensorFlow 2.21, AutoShardPolicy.OFF.
    """
    step: list[Any] = []
    rest: list[Any] | None = None
    structure: Any = None
    turn = 0
    for position, batch in enumerate(batches):
        leaves = [leaf if is_text(leaf) else to_array(leaf) for leaf in nest.flatten(batch)]
        _check_rank(leaves, len(sizes), position)
        _check_rows(leaves, position)
        structure = batch
        rest = leaves if rest is None or not len(rest[0]) else [
            np.concatenate(pair) for pair in zip(rest, leaves, strict=True)]
        while len(rest[0]) >= sizes[turn]:
            size = sizes[turn]
            step.append(nest.pack_sequence_as(structure, [leaf[:size] for leaf in rest]))
            rest = [leaf[size:] for leaf in rest]
            turn = (turn + 1) % len(sizes)
            if len(step) == per_step:
                yield step
                step = []
                if not len(rest[0]):
                    break
    if rest is None or not (step or len(rest[0])):
        return
    while len(step) < per_step:
        step.append(nest.pack_sequence_as(structure, rest))
        rest = [leaf[:0] for leaf in rest]
    yield step


def even_out(step: list[object], cell: Step | Refusal, rows: int | None, number: int) -> list[Any] | None:
    """A step as a cell of UNEVEN wants it, None when it is to be dropped.

    Args:
        step: one element per replica.
        cell: what to do where replicas have different numbers of rows.
        rows: the number of rows that PAD fills each element up to; None for the longest of the step.
        number: of the step, for messages.

    Raises:
        RD15: PAD of scalars.  RD18: the numbers of rows differ, and that is an error.
    """
    if cell is Step.KEEP:
        return step
    if cell is Step.PAD:
        counts = [elements.count_rows(nest.flatten(element), f"padding step {number}") for element in step]
        most = max(rows or 0, *counts)
        fillers = [_filler(column) for column in zip(*map(nest.flatten, step), strict=True)]
        return [_pad(element, most, count, fillers) for element, count in zip(step, counts, strict=True)]
    sizes = [[len(leaf) if np.ndim(leaf) else 1 for leaf in nest.flatten(element)] for element in step]
    if all(size == sizes[0] for size in sizes):
        return step
    if cell is Step.DROP:
        return None
    rows_of = [size if len(set(size)) > 1 else size[0] for size in sizes]
    raise errors.error(cell.code, "reading a distributed dataset", f"the replicas have {rows_of} rows in step {number}",
                       "Take batches that the number of replicas divides and drop the remainder, or choose another "
                       "`uneven_end`.", kind=errors.InvalidValueError)


def _filler(column: Sequence[NDArray[np.generic]]) -> Any:
    # What fills a missing row: zero, or an empty item where items have lengths of their own, as text has.
    if not column[0].dtype.hasobject:
        return 0
    item = next((leaf.flat[0] for leaf in column if leaf.size), b"")
    return item[:0] if hasattr(item, "__getitem__") else 0


def _pad(element: object, rows: int, count: int, fillers: list[object]) -> Any:
    def longer(leaf: NDArray[np.generic], filler: object) -> Any:
        tail = np.zeros((rows - count, *leaf.shape[1:]), leaf.dtype)
        if leaf.dtype.hasobject:
            tail.fill(filler)
        return np.concatenate([leaf, tail])

    leaves = nest.flatten(element)
    padded = leaves if count == rows else list(map(longer, leaves, fillers))
    return nest.pack_sequence_as(element, padded), np.arange(rows) < count


def _check_rank(leaves: Sequence[NDArray[np.generic]], num_replicas: int, position: int) -> None:
    if not all(map(np.ndim, leaves)):
        raise errors.error("RD15", "distributing a dataset", f"element {position} has a scalar component, which "
                           f"cannot be split over {num_replicas} replicas")


def _check_rows(leaves: Sequence[NDArray[np.generic]], position: int) -> None:
    for leaf in leaves:
        if len(leaf) != len(leaves[0]):
            raise errors.error("RD26", "distributing a dataset", f"element {position} has components with "
                               f"{len(leaves[0])} and {len(leaf)} rows", "Give all components the same batch size.")
