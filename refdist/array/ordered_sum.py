"""The sum of several arrays from left to right, as every backend and transport computes it.

Floating-point addition is not associative, so the order is part of the result.  refdist's is the plainest one, over the
replica ids, ((a0 + a1) + a2) + ..., element by element and in the arrays' own dtype.  A backend that keeps to it has
the same bits on any number of devices and workers.  NumPy's version is here; the GPU's is `backends/gpu/kernels.py`.

Each element is a sum of its own, so the arrays may be cut into blocks.  That pays where they are larger than a cache: a
block of the running sum stays there while all arrays are added to it.  Measured with eight float32 arrays, blocks of
2 MiB take 0.85 of the time of whole arrays of 4 MiB and 0.7 of those of 64 MiB; blocks of 64 KiB are slower than none.
Scalars are added as NumPy scalars, which is several times faster than as arrays without dimensions, and many numbers of
16 bits in 32 (`half_sum`).

A sum has the byte order of the machine, as NumPy's additions have, also where it is of one array or of large ones.

Where two NaNs meet, the first one is kept.  Which one an addition keeps depends on how its loop was compiled: for
float32 NumPy's takes the first in whole vectors and the second in what is left at the end of an array, so the bits
would depend on where a transport cuts it.  So the end of a sum is looked at for NaNs, and all of it where vectors take
the second, too, or where arrays are not contiguous.  To look at all of every sum would cost 10 % of it.

A sum that is too large is infinite, as on a GPU and in TensorFlow.  What NumPy says about that is for the callers to
note (`float_errors`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist.array import half_sum

_BLOCK = 1 << 21  # bytes
_VECTORS = 64  # a multiple of the vector length of any processor
_LARGE = 1 << 24  # bytes; below, blocks are not worth it where memory for the sum is allocated too


def ordered_sum(arrays: Sequence[npt.NDArray[np.generic]],
                out: npt.NDArray[np.generic] | None = None) -> npt.NDArray[np.generic]:
    """The sum of arrays of one shape and dtype, left to right.

    Args:
        arrays: at least one.
        out: where the sum is written; None for a new array, which is read-only.

    >>> ordered_sum([np.float32([1e8, 1]), np.float32([1, 2]), np.float32([-1e8, 3])])
    array([0., 6.], dtype=float32)
    """
    first = arrays[0]
    if first.ndim == 0 and first.dtype.kind == "f" and out is None:
        scalar: Any = first[()]
        for array in arrays[1:]:
            scalar = scalar + array[()]
        total: npt.NDArray[np.generic] = np.asarray(scalar)
        if scalar != scalar:
            _keep_first_nan(arrays, total)
    elif first.nbytes > (_LARGE if out is None else _BLOCK) and all(array.flags.c_contiguous for array in arrays):
        total = _like(first) if out is None else out
        flat, parts = total.reshape(-1), [array.reshape(-1) for array in arrays]
        step = _BLOCK // first.itemsize
        for start in range(0, flat.size, step):
            ordered_sum([part[start:start + step] for part in parts], flat[start:start + step])
    elif len(arrays) == 1:
        total = _like(first) if out is None else out
        total[...] = first
    elif first.itemsize == 2 and half_sum.is_for(arrays) and (out is None or out.flags.c_contiguous):
        total = _like(first) if out is None else out
        flat, parts = total.reshape(-1), [array.reshape(-1) for array in arrays]
        for left in half_sum.left(parts, flat):
            _add([part[left] for part in parts], flat[left])
    else:
        total = _add(arrays, out)
    if out is None:
        total.flags.writeable = False
    return total


def _add(arrays: Sequence[npt.NDArray[np.generic]],
         out: npt.NDArray[np.generic] | None) -> npt.NDArray[np.generic]:
    total = np.asarray(np.add(arrays[0], arrays[1], out=out))
    for array in arrays[2:]:
        np.add(total, array, out=total)
    if total.dtype.kind in "fcV":
        _look_for_nan(arrays, total)
    return total


def _like(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.empty_like(array, array.dtype.newbyteorder("="))


def _look_for_nan(arrays: Sequence[npt.NDArray[np.generic]], total: npt.NDArray[np.generic]) -> None:
    if total.size < _VECTORS and total.dtype.kind == "f":
        numbers: Any = total
        square = np.vdot(numbers, numbers)  # says nothing of overflow, as `dot` does; of numbers it is never NaN
        if square == square:
            return
    if _keeps_first(total.dtype):
        for array in (total, *arrays):
            if not array.flags.c_contiguous:
                break
        else:
            start = total.size - total.size % _VECTORS
            if start == total.size:
                return
            if start:
                arrays, total = [array.reshape(-1)[start:] for array in arrays], total.reshape(-1)[start:]
    if np.logical_or.reduce(np.isnan(total), axis=None):
        _keep_first_nan(arrays, total)


@functools.cache
def _keeps_first(dtype: np.dtype[np.generic]) -> bool:
    """Whether NumPy's addition of whole vectors keeps the first of two NaNs, also where it is written to."""
    if dtype.kind not in "fc":
        return False
    first = np.full(4 * _VECTORS, np.nan, dtype)
    bits, second = first.tobytes(), -first
    return np.add(first, second).tobytes() == np.add(first, second, out=first).tobytes() == bits


def _reals(array: npt.NDArray[np.generic]) -> Any:
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def _keep_first_nan(arrays: Sequence[npt.NDArray[np.generic]], total: npt.NDArray[np.generic]) -> None:
    where = np.isnan(total)
    parts = [_reals(array[where].astype(total.dtype)) for array in arrays]
    kept = parts[0]
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            kept = np.where(np.isnan(kept), kept, np.where(np.isnan(part), part, kept + part))
        # An addition marks a NaN as quiet; that of -0.0 changes nothing else.
        total[where] = (kept + kept.dtype.type(-0.0)).view(total.dtype)
