"""Deals the same rows to the same replicas in another way: an experiment of `refdist.compare`.

Where another replica has a part, or other rows are together in a part, and the result is another, that is why.  Where
one replica has all rows, and the result is that of one replica alone, the parts are why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from refdist import nest
from refdist.array.convert import is_array, xp_of
from refdist.core.scaled import Deal, scale


def dealt(steps: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """The steps of a dataset, each one element per replica, as the experiment of this process deals them."""
    deal = None if scale.value is None else scale.value.deal
    if deal is None:
        return steps
    return map(_DEALS[deal], steps)


def _to_the_next_replica(step: list[Any]) -> list[Any]:
    return step[-1:] + step[:-1]


def _in_other_parts(step: list[Any]) -> list[Any]:
    # Each row moves up by one, from part to part, and the first row of all becomes the last.
    def moved(column: Sequence[Any]) -> list[Any]:
        rows = _joined(column)
        rows = _joined([rows[1:], rows[:1]])
        ends = [0, *accumulate(map(len, column))]
        return [rows[start:end] for start, end in pairwise(ends)]

    return _of_columns(step, moved)


def _all_to_the_last(step: list[Any]) -> list[Any]:
    return _of_columns(step, lambda column: [*(part[:0] for part in column[:-1]), _joined(column)])


def _joined(parts: Sequence[Any]) -> Any:
    return xp_of(parts[0]).concat(list(parts))


def _of_columns(step: list[Any], dealt_anew: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    # A column is one component, of the elements of all replicas.
    columns = list(zip(*(nest.flatten(element) for element in step), strict=False))
    if any(not is_array(part) or not part.shape for column in columns for part in column):
        return step
    moved = [dealt_anew(column) for column in columns]
    return [nest.pack_sequence_as(element, [column[i] for column in moved]) for i, element in enumerate(step)]


_DEALS = {Deal.TO_THE_NEXT_REPLICA: _to_the_next_replica, Deal.IN_OTHER_PARTS: _in_other_parts,
          Deal.ALL_TO_THE_LAST_REPLICA: _all_to_the_last}
