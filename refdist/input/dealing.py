"""The same rows on the same number of replicas, dealt otherwise: an experiment of `refdist.compare`.

Where another replica has a part, or other rows are together in a part, and the result is another, that is why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refdist import nest
from refdist.core.scaled import Deal, scale


def dealt(steps: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """The steps of a dataset, each one element per replica, as the experiment of this process deals them."""
    deal = None if scale.value is None else scale.value.deal
    if deal is None:
        return steps
    return map(_to_the_next_replica if deal is Deal.TO_THE_NEXT_REPLICA else _in_other_parts, steps)


def _to_the_next_replica(step: list[Any]) -> list[Any]:
    return step[-1:] + step[:-1]


def _in_other_parts(step: list[Any]) -> list[Any]:
    # Each row moves up by one, from part to part, and the first row of all becomes the last.
    parts = [nest.flatten(element) for element in step]
    columns = list(zip(*parts, strict=False))
    if any(not isinstance(part, np.ndarray) or part.ndim == 0 for column in columns for part in column):
        return step
    moved = []
    for column in columns:
        ends = np.cumsum([len(part) for part in column])[:-1]
        moved.append(np.split(np.roll(np.concatenate(column), -1, axis=0), ends))
    return [nest.pack_sequence_as(element, [column[i] for column in moved]) for i, element in enumerate(step)]
