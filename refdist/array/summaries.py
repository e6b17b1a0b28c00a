"""Summaries of arrays, in two halves: what is taken when an event happens, and what is made of it when it is read.

A program may write to an array right after it was contributed, so what is recorded of it is taken at once: of a small
array a copy, which takes a third of a microsecond; of a large one the numbers of the summary, in three passes, because
copies of all that a program sums would fill the memory.  The text and the lists are made later, or never.

The norm decides whether an array is looked at once more: only where it is not finite can there be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refdist import nest
from refdist.array.convert import array_types, to_numpy
from refdist.array.indexed_slices import IndexedSlices

WHOLE = 16  # items of an array that is shown as a whole
FIRST = 4
_DIGITS = 6
_COPIED = 1024  # bytes of an array that is copied, which is faster than to measure it


class _Numbers(NamedTuple):
    """What is kept of a large array: what a summary says, as NumPy gives it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    low: Any
    high: Any
    norm: Any
    nans: int
    items: NDArray[Any]


Taken = list[Any]
Known = dict[int, tuple[object, Any]]


def taken(value: object, known: Known | None = None) -> Taken:
    """What is kept now of all arrays in a value, for `of`; with `known`, of each array once."""
    if type(value) is np.ndarray:
        if value.nbytes <= _COPIED:
            return [value.copy()]
        return [_measured(value)] if known is None else [_once(value, known)]
    return [_numbers(to_numpy(leaf)) if known is None else _once(leaf, known) for leaf in _leaves(value)]


def taken_each(arrays: Iterable[object], known: Known) -> Taken:
    """What is kept now of each array, of each once."""
    return [_once(array, known) for array in arrays]


def of(kept: Taken) -> list[dict[str, Any]]:
    """The summaries of what was kept."""
    return [summary(one) if isinstance(one, np.ndarray) else _told(one) for one in kept]


def _once(array: Any, known: Known) -> Any:
    found = known.get(id(array))
    if found is None:
        found = known[id(array)] = array, _numbers(to_numpy(array))
    return found[1]


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
    return _told(_measured(array))


def _told(kept: _Numbers) -> dict[str, Any]:
    found = {"shape": list(kept.shape), "dtype": str(kept.dtype), "bytes": kept.nbytes, "min": _plain(kept.low),
             "max": _plain(kept.high), "norm": kept.norm if kept.norm is None else _rounded(float(kept.norm)),
             "nans": kept.nans}
    return {**found, "first" if math.prod(kept.shape) > WHOLE else "items": _plain(kept.items)}


def _numbers(array: NDArray[Any]) -> Any:
    return array.copy() if array.nbytes <= _COPIED else _measured(array)


def _measured(array: NDArray[Any]) -> _Numbers:
    flat = array.reshape(-1)
    items = array if array.size <= WHOLE else flat[:FIRST].copy()
    low = high = norm = None
    nans = 0
    kind = array.dtype.kind
    if kind in "biufc":
        exact = flat if array.dtype.char in "fdFD" else flat.astype(np.float64)
        norm = math.sqrt(np.vdot(exact, exact).real)  # which warns of nothing
        if not math.isfinite(norm):
            # NaN, infinity, or the squares are too large.
            nans = int(np.count_nonzero(np.isnan(exact)))
            with np.errstate(all="ignore"):
                norm = math.sqrt(np.sum(np.abs(exact.astype(np.complex128 if kind == "c" else np.float64)) ** 2))
        if kind != "c" and nans < array.size:
            low = np.fmin.reduce(flat) if nans else _LOW(flat)
            high = np.fmax.reduce(flat) if nans else _HIGH(flat)
    return _Numbers(array.shape, array.dtype, array.nbytes, low, high, norm, nans, items)


_LOW, _HIGH = np.minimum.reduce, np.maximum.reduce


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
