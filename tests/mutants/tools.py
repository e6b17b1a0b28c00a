"""What several slips are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import refdist
from mutants.slips import instead


def replicas_sum(compute: Callable[[str, list[Any]], Any]) -> None:
    """all_reduce of an array in a replica is what `compute` makes of the op's name and of all replicas' arrays.

    Nests and IndexedSlices are reduced as they should be; so is what is refused.
    """
    @instead(refdist.ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        if not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
            return result
        gathered = self.all_gather(refdist.tf.constant(value)[np.newaxis], axis=0)
        return compute(getattr(reduce_op, "name", str(reduce_op)).upper(), [*gathered])
