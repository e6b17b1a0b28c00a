"""`Explanation`: who gets which rows, as text and as a picture."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_CELL, _LABEL, _LINE, _WIDTH = 110, 150, 26, 640  # pixels
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
        return "\n".join([*self._head(), "", *lines, *(f"warning: {text}" for text in self.warnings)])

    def _head(self) -> list[str]:
        return [self.title, self.policy, *([] if self.numbers == _ROWS else [f"numbers are {self.numbers}"])]

    def svg(self) -> str:
        """A picture: a line for each replica, a box for each step, as wide as it has rows."""
        steps = max((len(rows) for _, rows in self.shares), default=0)
        most = max((np.size(part) for _, rows in self.shares for part in rows), default=0) or 1
        width = max(_LABEL + _CELL * steps + 10, _WIDTH)
        texts = [line for text in [*self._head(), *(f"warning: {text}" for text in self.warnings)]
                 for line in textwrap.wrap(text, width // 8)]
        top = _LINE * (len(texts) + 1)
        height = top + _LINE * len(self.shares) + 10
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                 'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="white"/>']
        parts += [_text(8, _LINE * (i + 1) - 8, text) for i, text in enumerate(texts)]
        parts += [_text(_LABEL + _CELL * i, top - 8, f"step {i}") for i in range(steps)]
        for i, (label, rows) in enumerate(self.shares):
            y = top + _LINE * i
            parts.append(_text(8, y + 17, label))
            for step, part in enumerate(rows):
                x, wide = _LABEL + _CELL * step, (_CELL - 8) * np.size(part) / most
                if np.size(part):
                    parts.append(f'<rect x="{x}" y="{y + 2}" width="{wide:.1f}" height="{_LINE - 6}" rx="3" '
                                 f'fill="{_COLOURS[i % len(_COLOURS)]}" fill-opacity="0.35"/>')
                parts.append(_text(x + 4, y + 17, spans(part)))
        return "\n".join([*parts, "</svg>"])

    def _repr_svg_(self) -> str:
        return self.svg()


def spans(numbers: NDArray[np.int64]) -> str:
    """Row numbers in short: "0-3, 8", or "none".

    >>> spans(np.array([0, 1, 2, 5])), spans(np.array([]))
    ('0-2, 5', 'none')
    """
    found = pairs(numbers)
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in found[:4]]
    return ", ".join(shown + ["..."] * (len(found) > 4)) or "none"


def pairs(numbers: NDArray[np.int64]) -> list[list[int]]:
    """Row numbers as [first, last] of those that follow each other.

    >>> pairs(np.array([0, 1, 2, 5]))
    [[0, 2], [5, 5]]
    """
    rows: Sequence[int] = np.ravel(numbers).tolist()
    found: list[list[int]] = []
    for row in rows:
        if found and row == found[-1][1] + 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return found


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}">{html.escape(text)}</text>'
