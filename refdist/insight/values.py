"""Summaries of arrays, in two halves: what is taken when an event happens, and what is made of it when it is read.

A program may write to an array right after it was contributed, so what is recorded of it is taken at once: of a small
array a copy, which takes a third of a microsecond; of a large one the numbers of the summary, in three passes, because
copies of all that a program sums would fill the memory.  The text and the lists are made later, or never.

The norm decides whether an array is looked at once more: only where it is not finite can there be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist import nest
from refdist.array.convert import array_types, to_numpy
from refdist.array.indexed_slices import IndexedSlices

WHOLE = 16  # items of an array that is shown as a whole
FIRST = 4
_DIGITS = 6
Taken = list[Any]


def taken(value: object) -> Taken:
    """What is kept now of all arrays in a value, for `summaries`."""
    if type(value) is np.ndarray:
        return [_taken(value)]
    known: dict[int, Any] = {}
    return [_of(leaf, known) for leaf in _leaves(value)]


def taken_each(arrays: Iterable[object]) -> Taken:
    """What is kept now of each array; of those that are one object only once."""
    known: dict[int, Any] = {}
    return [_of(array, known) for array in arrays]


def summaries(kept: Taken) -> list[dict[str, Any]]:
    """The summaries of what was kept."""
    return [summary(one) if isinstance(one, np.ndarray) else one for one in kept]


def _of(leaf: Any, known: dict[int, Any]) -> Any:
    found = known.get(id(leaf))
    if found is None:
        found = known[id(leaf)] = _taken(to_numpy(leaf))
    return found


def _taken(array: NDArray[Any]) -> Any:
    return array.copy() if array.size <= WHOLE else summary(array)


def _leaves(value: object) -> list[Any]:
    found: list[Any] = []
    for leaf in nest.flatten(value):
        if isinstance(leaf, IndexedSlices):
            found += [leaf.values, leaf.indices]
        elif type(leaf) in array_types.value:
            found.append(leaf)
        elif isinstance(leaf, (bool, int, float, complex, np.generic)):
            found.append(np.asarray(leaf))
    return found


def summary(array: NDArray[Any]) -> dict[str, Any]:
    """The fields of `events.SUMMARY`, as plain values for JSON."""
    low, high, norm, nans = _numbers(array)
    found = {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": array.nbytes,
             "min": low, "max": high, "norm": norm, "nans": nans}
    if array.size <= WHOLE:
        return {**found, "items": _plain(array)}
    return {**found, "first": _plain(array.reshape(-1)[:FIRST])}


def _numbers(array: NDArray[Any]) -> tuple[Any, Any, Any, int]:
    # min, max, norm, and how many NaN.
    kind = array.dtype.kind
    if kind not in "biufc" or not array.size:
        return None, None, None if kind not in "biufc" else 0.0, 0
    with np.errstate(all="ignore"):
        flat = array.reshape(-1)
        exact = flat if flat.dtype.char in "fdFD" else flat.astype(np.float64)
        norm = math.sqrt(float(np.vdot(exact, exact).real))
        nans = 0
        if not math.isfinite(norm):
            nans = int(np.count_nonzero(np.isnan(exact)))
            norm = math.sqrt(float(np.sum(np.abs(exact.astype(np.complex128 if kind == "c" else np.float64)) ** 2)))
        if kind == "c":
            return None, None, _rounded(norm), nans
        if nans:
            low, high = np.fmin.reduce(flat), np.fmax.reduce(flat)
        else:
            low, high = flat.min(), flat.max()
    if nans == flat.size:
        low = high = None
    return _plain(low), _plain(high), _rounded(norm), nans


def _rounded(value: float) -> Any:
    return _plain(float(f"{value:.{_DIGITS}g}"))


def _plain(value: Any) -> Any:
    """Items as JSON has them; a float by its shortest digits, what is not a number in JSON as text."""
    array = np.asarray(value)
    return _nested(array) if array.ndim else _item(array[()])


def _nested(array: NDArray[Any]) -> Any:
    return [_nested(part) if array.ndim > 1 else _item(part) for part in array]


def _item(item: Any) -> Any:
    if item is None:
        return None
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, (float, np.floating)):
        if math.isfinite(item):
            return float(str(item))
        return "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return str(item)
