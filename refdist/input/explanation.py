"""`Explanation`: who gets which rows, as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refdist import notebook

_ROWS = "rows of the source"


class Explanation(NamedTuple):
    """What `DistributedDataset.explain` returns; `print` shows it as text, a notebook as a picture.

    Attributes:
        title: the strategy, its replicas and workers.
        policy: how the rows are shared out, and why so.
        shares: for every replica a label and, for each of the first steps, the numbers of its rows.
        warnings: rows that are lost, seen twice, or missing on a replica.
        numbers: what is numbered, rows of the source or positions in a stream.
    """

    title: str
    policy: str
    shares: list[tuple[str, list[NDArray[np.int64]]]]
    warnings: list[str]
    numbers: str = _ROWS

    def __str__(self) -> str:
        steps = max((len(rows) for _, rows in self.shares), default=0)
        table = [["", *(f"step {i}" for i in range(steps))]]
        table += [[label, *map(spans, rows)] for label, rows in self.shares]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([*self.head(), "", *lines, *(f"warning: {text}" for text in self.warnings)])

    def head(self) -> list[str]:
        """The lines above the rows."""
        return [self.title, self.policy, *([] if self.numbers == _ROWS else [f"numbers are {self.numbers}"])]

    def svg(self) -> str:
        """A picture: a line for each replica, a box for each step, as wide as it has rows."""
        return notebook.drawing(self)

    def _repr_svg_(self) -> str:
        return self.svg()


def spans(numbers: NDArray[np.int64]) -> str:
    """Row numbers as text: "0-3, 8", or "none".

    >>> spans(np.array([0, 1, 2, 5])), spans(np.array([]))
    ('0-2, 5', 'none')
    """
    spans_of_rows = pairs(numbers)
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in spans_of_rows[:4]]
    return ", ".join(shown + ["..."] * (len(spans_of_rows) > 4)) or "none"


def pairs(numbers: NDArray[np.int64]) -> list[list[int]]:
    """Runs of consecutive row numbers, each as [first, last].

    >>> pairs(np.array([0, 1, 2, 5]))
    [[0, 2], [5, 5]]
    """
    rows: Sequence[int] = np.ravel(numbers).tolist()
    spans_of_rows: list[list[int]] = []
    for row in rows:
        if spans_of_rows and row == spans_of_rows[-1][1] + 1:
            spans_of_rows[-1][1] = row
        else:
            spans_of_rows.append([row, row])
    return spans_of_rows
