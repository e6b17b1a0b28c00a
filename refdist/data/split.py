"""How one global batch is split over replicas.  Pure functions; the pieces are views, never copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.arrays import to_array


def split_batch(batch: Any, num_replicas: int, position: int) -> list[Any]:
    """The pieces of a global batch, one per replica, in order.

    Every piece has ceil(rows / num_replicas) rows as long as rows are left; then come a shorter one and empty
    ones of the same shape and dtype.  With one replica the batch is returned as it is.

    Args:
        batch: a nest of arrays with the same number of rows.
        position: the number of the batch in the dataset, for messages.

    >>> import numpy as np
    >>> split_batch(np.arange(6), 4, 0)
    [array([0, 1]), array([2, 3]), array([4, 5]), array([], dtype=int64)]

    Raises:
        RD15: a component without a batch dimension.  RD26: components with different numbers of rows.

    Source: observed, TensorFlow 2.21, MirroredStrategy.experimental_distribute_dataset.
    """
    leaves = [to_array(leaf) for leaf in nest.flatten(batch)]
    if num_replicas == 1:
        return [nest.pack_sequence_as(batch, leaves)]
    each = -(-_rows(leaves, num_replicas, position) // num_replicas)
    pieces = []
    for i in range(num_replicas):
        part = slice(i * each, (i + 1) * each)
        pieces.append(nest.pack_sequence_as(batch, [leaf[part] for leaf in leaves]))
    return pieces


def split_stream(batches: Iterable[Any], batch_size: int, num_replicas: int) -> Iterator[list[Any]]:
    """The pieces of a stream of batches whose boundaries are ignored, one list per step.

    The pieces of a step have batch_size // num_replicas rows, the first batch_size % num_replicas of them one
    more; only the last piece is shorter, and pieces that are missing in the last step are empty.

    >>> import numpy as np
    >>> [[piece.tolist() for piece in step] for step in split_stream([np.arange(6), np.arange(6, 9)], 6, 4)]
    [[[0, 1], [2, 3], [4], [5]], [[6, 7], [8], [], []]]

    Raises:
        RD15: a component without a batch dimension.  RD26: components with different numbers of rows.

    Source: observed, TensorFlow 2.21, AutoShardPolicy.OFF.
    """
    sizes = [batch_size // num_replicas + (i < batch_size % num_replicas) for i in range(num_replicas)]
    step: list[Any] = []
    rest: list[Any] | None = None
    structure: Any = None
    for position, batch in enumerate(batches):
        leaves = [to_array(leaf) for leaf in nest.flatten(batch)]
        _rows(leaves, num_replicas, position)
        structure = batch
        rest = leaves if rest is None or not len(rest[0]) else [
            np.concatenate(pair) for pair in zip(rest, leaves, strict=True)]
        while len(rest[0]) >= sizes[len(step)]:
            size = sizes[len(step)]
            step.append(nest.pack_sequence_as(structure, [leaf[:size] for leaf in rest]))
            rest = [leaf[size:] for leaf in rest]
            if len(step) == num_replicas:
                yield step
                step = []
                if not len(rest[0]):
                    break
    if rest is None or not (step or len(rest[0])):
        return
    while len(step) < num_replicas:
        step.append(nest.pack_sequence_as(structure, rest))
        rest = [leaf[:0] for leaf in rest]
    yield step


def _rows(leaves: Sequence[Any], num_replicas: int, position: int) -> int:
    rows = None
    for leaf in leaves:
        if np.ndim(leaf) == 0:
            raise errors.error("RD15", "distributing a dataset", f"element {position} has a scalar component, which "
                               f"cannot be split over {num_replicas} replicas")
        if rows is None:
            rows = leaf.shape[0]
        elif leaf.shape[0] != rows:
            raise errors.error("RD26", "distributing a dataset", f"element {position} has components with {rows} "
                               f"and {leaf.shape[0]} rows", "Give all components the same batch size.")
    return rows or 0
