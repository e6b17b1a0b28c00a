"""Summaries of arrays, in two halves: what is taken when an event happens, and what is made of it when it is read.

A program may write to an array right after it was contributed, so what is recorded of it is taken at once: of a small
array a copy, which takes a third of a microsecond; of a large one the numbers of the summary, because copies of all
that a program sums would fill the memory.  The text and the lists are made later, or never.

NumPy needs three passes for these numbers, one each for the norm, the smallest and the largest item.  Making them block
by block, so that the later passes find a block in the processor's cache, was tried and was no faster: the arithmetic of
a pass takes as long as the reading.  The norm decides whether an array is looked at once more: only where it is not
finite can there be NaN.

`text` is how pages and notebooks show a summary.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from refdist import nest
from refdist.array.convert import array_types, is_array, to_numpy
from refdist.array.indexed_slices import IndexedSlices

WHOLE = 16  # the most items of an array that is shown whole
FIRST = 4
_DIGITS = 6
_PLAIN = "?bBhHiIlLqQefdFD"  # dtypes that NumPy itself has, and whose items are the same everywhere
_COPIED = 1024  # the most bytes of an array that is copied, which is faster than computing its numbers
# Up to so many bytes the place of the smallest item is found faster than the item; for that, NumPy copies an array that
# is read-only.
_QUICK = 1 << 16
# What is kept of a large array, as NumPy gives it: shape, dtype, bytes, the smallest and the largest item, the norm,
# how many items are NaN and where the first is, and the first items or all.
_Numbers = tuple[tuple[int, ...], np.dtype[np.generic], int, object, object, float | None, int, list[int] | None,
                 NDArray[np.generic]]


class Summary(TypedDict):
    """What `events.SUMMARY` says of an array, as plain values for JSON."""

    shape: list[int]
    dtype: str
    bytes: int
    min: object
    max: object
    norm: object
    nans: int
    nan: list[int] | None
    items: NotRequired[Any]
    first: NotRequired[Any]


# What is kept of all arrays of a value: of each, or the copy of a small array that is the whole value.
_One = NDArray[np.generic] | _Numbers
Taken = tuple[_One, ...] | NDArray[np.generic]
Known = dict[int, tuple[object, _One]]


def taken(value: object, known: Known | None = None) -> Taken:
    """What is kept now of all arrays in a value, for `of`; with `known`, of each array once."""
    if type(value) is np.ndarray:
        if value.nbytes <= _COPIED:
            return value.copy()
        return (_measured(value) if known is None else _once(value, known),)
    return tuple([_numbers(to_numpy(leaf)) if known is None else _once(leaf, known) for leaf in _leaves(value)])


def taken_each(arrays: Iterable[object], known: Known) -> Taken:
    """What is kept now of each array, of each once."""
    return tuple([_once(array, known) for array in arrays])


def of(kept: Taken) -> list[Summary]:
    """The summaries of what was kept."""
    if isinstance(kept, np.ndarray):
        return [summary(kept)]
    return [summary(entry) if isinstance(entry, np.ndarray) else _summary_of(entry) for entry in kept]


def nbytes(kept: Taken) -> int:
    """The size in bytes of the arrays that the summaries in `kept` describe."""
    return kept.nbytes if isinstance(kept, np.ndarray) else sum(
        entry.nbytes if isinstance(entry, np.ndarray) else entry[2] for entry in kept)


def packed(kept: Taken) -> str:
    """What was kept as a list in JSON, an entry for each array, of which `unpacked` makes the summary."""
    return f"[{_packed(kept) if isinstance(kept, np.ndarray) else ','.join(map(_packed, kept))}]"


def _packed(entry: _One) -> str:
    # A small array: its type and its items' bytes in hexadecimal.  A large one: those of its first items, the norm, and
    # the smallest and largest item.  Other dtypes, and arrays with NaN: the summary itself.
    if isinstance(entry, np.ndarray):
        if entry.dtype.char in _PLAIN:
            return f'{_type_of(entry.dtype, entry.shape)}"{entry.tobytes().hex()}"]'
        return json.dumps(summary(entry))
    shape, dtype, _, low, high, norm, nans, _, items = entry
    if dtype.char in "fd" and not nans:
        return f'{_type_of(dtype, shape)}"{items.tobytes().hex()}",{norm!r},{float(low)!r},{float(high)!r}]'  # type: ignore[arg-type]
    return json.dumps(_summary_of(entry))


def unpacked(entry: Any) -> Summary:
    """The summary of an array, from an entry of the list that `packed` made."""
    if isinstance(entry, dict):
        return entry  # type: ignore[return-value]
    name, shape, items, *numbers = entry
    dtype = np.dtype(name)
    array = np.frombuffer(bytes.fromhex(items), dtype)
    if not numbers:
        return summary(array.reshape(shape))
    norm, low, high = numbers
    return _summary_of((tuple(shape), dtype, math.prod(shape) * dtype.itemsize, dtype.type(low), dtype.type(high), norm,
                        0, None, array))


@functools.lru_cache(maxsize=4096)
def _type_of(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> str:
    return f'["{dtype.str}",{list(shape)},'


def _once(array: object, known: Known) -> _One:
    seen = known.get(id(array))
    if seen is None:
        seen = known[id(array)] = array, _numbers(to_numpy(array))
    return seen[1]


def _leaves(value: object) -> list[Any]:
    leaves: list[Any] = []
    for leaf in nest.flatten(value):
        if isinstance(leaf, IndexedSlices):
            leaves += [leaf.values, leaf.indices]
        elif type(leaf) in array_types.value:
            if is_array(leaf):
                leaves.append(leaf)
        elif isinstance(leaf, (bool, int, float, complex, np.generic, np.ndarray)):  # also an array of a subclass
            leaves.append(np.asarray(leaf))
    return leaves


def summary(array: NDArray[np.generic]) -> Summary:
    """The summary of an array."""
    return _summary_of(_measured(array))


def _summary_of(kept: _Numbers) -> Summary:
    shape, dtype, nbytes, low, high, norm, nans, nan, items = kept
    summary: Summary = {
        "shape": list(shape), "dtype": _name(dtype), "bytes": nbytes, "min": _plain(low), "max": _plain(high),
        "norm": norm if norm is None else _rounded(norm), "nans": nans, "nan": nan}
    summary["first" if math.prod(shape) > WHOLE else "items"] = _plain(items)
    return summary


def type_text(summary: Summary) -> str:
    """The dtype and the shape of a summary: "float32 [2, 3]"."""
    return f"{summary['dtype']} [{', '.join(map(str, summary['shape']))}]"


def text(summary: Summary) -> str:
    """The numbers of a summary: the items of a small array, and of a large one what they amount to.

    >>> text(summary(np.float32([0.5, 2]))), text(summary(np.arange(99)))
    ('[0.5, 2]', '0 to 98, norm 564.401, first [0, 1, 2, 3, ...]')
    """
    if "items" in summary:
        return _listed(summary["items"])
    span = "" if summary["min"] is None else f"{_listed(summary['min'])} to {_listed(summary['max'])}, "
    norm = "" if summary["norm"] is None else f"norm {_listed(summary['norm'])}, "
    return f"{span}{norm}first {_listed([*summary['first'], '...'])}"


def nan_text(summary: Summary) -> str:
    """How many NaN there are and where the first is; "" where there is none."""
    some = summary["nans"] < math.prod(summary["shape"])
    where = f", the first at {summary['nan']}" if summary["nan"] and some else ""
    return f"{summary['nans']} NaN{where}" if summary["nans"] else ""


def in_words(array: NDArray[np.generic]) -> str:
    """All that a notebook says of an array."""
    described = summary(array)
    return " ".join(filter(None, (type_text(described), text(described), nan_text(described))))


def _listed(item: object) -> str:
    if isinstance(item, list):
        return f"[{', '.join(map(_listed, item))}]"
    if isinstance(item, float):
        return f"{item:.0f}" if item.is_integer() and abs(item) < 1e15 else f"{item:.7g}"
    return str(item)


def _numbers(array: NDArray[np.generic]) -> _One:
    return array.copy() if array.nbytes <= _COPIED else _measured(array)


def _measured(array: NDArray[Any]) -> _Numbers:
    flat = array.reshape(-1)
    items = array if flat.size <= WHOLE else flat[:FIRST].copy()
    if array.dtype.char in "fd" and flat.size:
        norm = math.sqrt(np.vdot(flat, flat))  # `vdot` gives no warnings
        if math.isfinite(norm):
            low, high = (flat[flat.argmin()], flat[flat.argmax()]) if flat.nbytes <= _QUICK else (
                np.minimum.reduce(flat), np.maximum.reduce(flat))
            return array.shape, array.dtype, array.nbytes, low, high, norm, 0, None, items
    return array.shape, array.dtype, array.nbytes, *_looked_at(flat, array.shape), items


def _looked_at(flat: NDArray[Any],
               shape: tuple[int, ...]) -> tuple[object, object, float | None, int, list[int] | None]:
    # For any dtype: the smallest item, the largest, the norm, how many items are NaN, and the index of the first.
    low = high = norm = None
    nans, nan = 0, None
    kind = flat.dtype.kind
    if kind in "biufc":
        exact = flat if flat.dtype.char in "fdFD" else flat.astype(np.float64)
        norm = math.sqrt(np.vdot(exact, exact).real)
        if not math.isfinite(norm):
            # There is NaN or infinity, or the squares overflow.
            places = np.flatnonzero(np.isnan(exact))
            nans = len(places)
            nan = [int(i) for i in np.unravel_index(places[0], shape)] if nans else None
            with np.errstate(all="ignore"):
                norm = math.sqrt(np.sum(np.abs(exact.astype(np.complex128 if kind == "c" else np.float64)) ** 2))
        if kind != "c" and nans < flat.size:
            low, high = np.fmin.reduce(flat), np.fmax.reduce(flat)
    return low, high, norm, nans, nan


def _rounded(value: float) -> float | str:
    return _real(float(f"{value:.{_DIGITS}g}"))


def _plain(value: object) -> Any:
    """Items as JSON has them; a float by its shortest digits, what is not a number in JSON as text."""
    if value is None:
        return None
    array = np.asarray(value)
    kind = array.dtype.kind
    return array.tolist() if kind in "biu" else _nested(array, _real if kind == "f" else str)


def _nested(array: NDArray[np.generic], item: Callable[[Any], object]) -> object:
    if array.ndim < 2:
        return [item(scalar) for scalar in array] if array.ndim else item(array[()])
    return [_nested(part, item) for part in array]


def _real(item: float) -> float | str:
    if math.isfinite(item):
        return item if type(item) is float else float(str(item))
    return "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"


_name = functools.cache(str)  # the text of a dtype, which NumPy is slow to make
