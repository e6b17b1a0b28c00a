"""How one global batch is split over replicas.  Pure functions; the pieces are views, never copies."""

from __future__ import annotations

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
    each = -(-(rows or 0) // num_replicas)
    pieces = []
    for i in range(num_replicas):
        part = slice(i * each, (i + 1) * each)
        pieces.append(nest.pack_sequence_as(batch, [leaf[part] for leaf in leaves]))
    return pieces
