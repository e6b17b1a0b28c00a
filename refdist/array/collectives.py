"""Collectives as pure functions of a list of arrays indexed by replica.

Everything is checked before anything is computed.  How the replicas arrived at the call, and how its results are
wrapped, is the business of the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.array import convert
from refdist.array.backend import Backend, current_backend
from refdist.array.convert import as_array, dtype_of, kind_of, numpy_dtype, on_device_of, xp_of
from refdist.array.float_errors import Reported
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core.integers import integer
from refdist.core.rules.advice import ONE_LIBRARY
from refdist.core.rules.calls import MISMATCH, Combining, Difference
from refdist.core.rules.options import ReduceOp
from refdist.core.rules.table import Permission, Refusal
from refdist.core.rules.values import DTYPES, MEAN_DTYPE, Use, of_kind

Part = Array | IndexedSlices


_SUMMED = DTYPES[Use.SUMMED]


def reducible(part: Part, attempted: str) -> None:
    """Raises unless the dtype of `part` can be summed.

    Raises:
        RD23: booleans, strings, objects.
    """
    dtype = part.dtype
    if isinstance(dtype, np.dtype) and type(_SUMMED.get(dtype.kind)) is Permission:  # nearly always
        return
    reducible_dtype(numpy_dtype(dtype), attempted)


def reducible_dtype(dtype: np.dtype[np.generic], attempted: str) -> None:
    """Raises unless arrays of this dtype can be summed.

    Raises:
        RD23: booleans, strings, objects.
    """
    if type(_SUMMED.get(dtype.kind)) is Permission:
        return
    cell = of_kind(Use.SUMMED, kind_of(dtype))
    if isinstance(cell, Refusal):
        raise errors.error(cell.code, attempted, f"the value has dtype {dtype}")


def check_same_signature(parts: Sequence[Part], attempted: str, axis: int | None = None) -> None:
    """Raises unless all parts fit together, naming the first replica whose part does not.

    Args:
        parts: what each replica contributes: an array of any shape and dtype, or IndexedSlices.
        attempted: the call, for the message.
        axis: the dimension along which they are gathered, which may differ; None for a reduction.

    Raises:
        RD04 / RD07: shape.  RD05: dtype.  RD21: rows of an array on one replica, an array on another.
    """
    first = parts[0]
    sparse = isinstance(first, IndexedSlices)
    column = Combining.OTHER_CALLS if axis is None else Combining.GATHERS
    for i, part in enumerate(parts):
        if isinstance(part, IndexedSlices) != sparse:
            raise errors.error(MISMATCH[Difference.STRUCTURE][column].code, attempted, "replica 0 contributes "
                               f"{type(first).__name__}, replica {i} {type(part).__name__}",
                               "Contribute the same kind of value on every replica.")
        if _library(part) != _library(first):
            raise errors.error(MISMATCH[Difference.LIBRARY][column].code, attempted, "replica 0 contributes an array "
                               f"of {_library(first)}, replica {i} one of {_library(part)}", ONE_LIBRARY)
        if _compared(part.dtype, axis) != _compared(first.dtype, axis):
            raise errors.error(MISMATCH[Difference.DTYPE][column].code, attempted, "replica 0 contributes dtype "
                               f"{first.dtype}, replica {i} {part.dtype}")
        if sparse and part.shape != first.shape:
            raise errors.error(MISMATCH[Difference.SHAPE][column].code, attempted, "replica 0 contributes slices of "
                               f"shape {first.shape}, replica {i} of {part.shape}")
        if _rigid(part, axis) != _rigid(first, axis):
            what = "shape" if axis is None else f"shape (gathered along axis {axis})"
            raise errors.error(MISMATCH[Difference.SHAPE][column].code, attempted, f"replica 0 contributes {what} "
                               f"{_shape(first)}, replica {i} {_shape(part)}")


def signature(part: Part, axis: int | None = None, lengths_may_differ: bool = True) -> tuple[Any, Any, Any]:
    """(library, NumPy's dtype, shape) of a part as compared between replicas; free dimensions are None.

    Args:
        part: an array of any shape and dtype, or IndexedSlices.
        axis: as for `check_same_signature`.
        lengths_may_differ: whether the dimension along which they are gathered may.
    """
    library, dtype = NUMPY, part.dtype
    if type(part) is not np.ndarray:
        library, dtype = _library(part), numpy_dtype(dtype)
    if axis is None and not isinstance(part, IndexedSlices):
        return library, dtype, tuple(part.shape)  # PyTorch's is a class of its own
    return library, _compared(dtype, axis), _rigid(part, axis if lengths_may_differ else None)


# Also stands for the backend in use, whose arrays may be mixed with NumPy's.
NUMPY = "NumPy"


def _library(part: Part) -> str:
    library = convert.library_of(part.values if isinstance(part, IndexedSlices) else part)
    return NUMPY if library is None or library is current_backend() else library.name


def _compared(dtype: Any, axis: int | None) -> Any:
    # NumPy's text dtypes have the length of the longest text, which does not matter for a gather.
    return np.dtype(dtype.char) if axis is not None and getattr(dtype, "kind", "") in ("U", "S") else dtype


def _shape(part: Part) -> tuple[int, ...]:
    return tuple(part.values.shape if isinstance(part, IndexedSlices) else part.shape)


def _rigid(part: Part, axis: int | None) -> Any:
    shape = _shape(part)
    if isinstance(part, IndexedSlices):
        whole = f" of an array of shape {part.shape}" if part.shape is not None else ""
        return f"{shape[1:]} in each row of IndexedSlices{whole}"
    if axis is None or not shape:
        return shape
    axis %= len(shape)
    return (*shape[:axis], None, *shape[axis + 1:])


def reduce(backend: Backend, op: ReduceOp, parts: Sequence[Part]) -> Any:
    """One value from one part per replica, summed left to right; MEAN divides by the number of parts.

    IndexedSlices are put one after another, without adding up equal indices.

    >>> import numpy as np
    >>> from refdist.backends.simulated import Simulated
    >>> reduce(Simulated(), ReduceOp.MEAN, [np.int32([1]), np.int32([2])])
    array([1.5])
    """
    if not isinstance(parts[0], IndexedSlices):
        arrays: Any = parts
        total = backend.sum(arrays)
        return total if op is ReduceOp.SUM else divide(backend, total, len(parts))
    values, indices = [backend.concatenate(arrays, 0) for arrays in zip(*map(leaves, parts), strict=True)]
    return with_leaves(parts[0], (values if op is ReduceOp.SUM else divide(backend, values, len(parts)), indices))


def put_all(backend: Backend, parts: Sequence[Part], devices: Sequence[str]) -> Sequence[Any]:
    """Puts each part on the device at the same index.

    Args:
        backend: which puts them there.
        parts: all arrays, or all IndexedSlices, of any shapes and dtypes; at least one.
        devices: names, as many as parts.
    """
    if not isinstance(parts[0], IndexedSlices):
        arrays: Any = parts
        return backend.put_all(arrays, devices)
    columns = [backend.put_all(arrays, devices) for arrays in zip(*map(leaves, parts), strict=True)]
    return [with_leaves(part, arrays) for part, *arrays in zip(parts, *columns, strict=True)]


def put(backend: Backend, part: Part, device: str) -> Any:
    """Puts a part on a device."""
    return put_all(backend, [part], [device])[0]


def broadcast(backend: Backend, part: Part, devices: Sequence[str]) -> list[Any]:
    """Copies a part to every device."""
    if not isinstance(part, IndexedSlices):
        return backend.broadcast(part, devices)
    columns = [backend.broadcast(array, devices) for array in leaves(part)]
    return [with_leaves(part, arrays) for arrays in zip(*columns, strict=True)]


def nbytes(part: Part) -> int:
    """The bytes of a part's elements."""
    return sum(map(convert.nbytes, leaves(part)))


def bounds(indices: Array) -> tuple[int, int]:
    """The smallest and the largest index; (0, -1) where there is none.

    >>> import numpy as np
    >>> bounds(np.array([3, 1, 2]))
    (1, 3)
    """
    if 0 in indices.shape:
        return 0, -1
    xp = xp_of(indices)
    with on_device_of(indices):
        return int(xp.min(indices)), int(xp.max(indices))


def leaves(part: Part) -> tuple[Any, ...]:
    """The arrays of a part: itself, or the values and the indices of IndexedSlices."""
    return (part.values, part.indices) if isinstance(part, IndexedSlices) else (part,)


def with_leaves(part: Part, arrays: Sequence[Array]) -> Part:
    """A part like `part`, made of other leaves."""
    if not isinstance(part, IndexedSlices):
        return arrays[0]
    values, indices = arrays
    return IndexedSlices(values, indices, part.dense_shape)


def divide(backend: Backend, total: Array, count: int) -> Any:
    """True division; integers become the float that TensorFlow gives, floats keep their dtype.

    Args:
        backend: which divides.
        total: an array of any shape, of numbers.
        count: by what it is divided.
    """
    return backend.divide(total, count, MEAN_DTYPE.get(dtype_of(total).name))


def check_gather(part: Part, axis: int, attempted: str) -> None:
    """Raises unless `part` has a dimension `axis`.

    Raises:
        RD08: a scalar, or an axis outside [-rank, rank).  RD20: IndexedSlices.
    """
    if isinstance(part, IndexedSlices):
        raise errors.error("RD20", attempted, "IndexedSlices cannot be gathered",
                           "Gather `.values` and `.indices` one by one.")
    rank = part.ndim
    if not -rank <= axis < rank:
        raise errors.error("RD08", attempted, f"axis is {axis} and the value has rank {rank}",
                           "" if rank == 0 else f"The axis lies in [{-rank}, {rank}).",
                           kind=errors.InvalidArgumentError)


def dense(backend: Backend, part: Part, attempted: str) -> Any:
    """IndexedSlices as the whole array, slices for one row added up; arrays as they are.

    Args:
        backend: which adds.
        part: an array, or IndexedSlices of a shape [rows, ...] and any dtype of numbers; the whole array has both.
        attempted: what the program did, for messages.

    Raises:
        RD34: slices without a dense shape, or with one that they do not fit.
    """
    if not isinstance(part, IndexedSlices):
        return part
    shape, indices = part.shape, part.indices
    if shape is None:
        raise errors.error("RD34", attempted, "IndexedSlices have no dense_shape",
                           "Pass one: `IndexedSlices(values, indices, dense_shape)`.")
    lowest, highest = bounds(indices)
    if not shape or part.values.shape[1:] != shape[1:] or lowest < 0 or highest >= shape[0]:
        raise errors.error("RD34", attempted, f"slices of shape {part.values.shape[1:]} at {indices} do not fit "
                           f"into dense_shape {shape}", "Pass the shape of the whole array.")
    return backend.scatter("add", backend.zeros(shape, part.values), part.indices, part.values)


def reduction_axes(axis: object, attempted: str) -> tuple[int, ...]:
    """The axis argument of `Strategy.reduce` as a tuple of ints.

    Raises:
        RD25: neither an int nor a sequence of ints.
    """
    if isinstance(axis, (list, tuple)):
        return tuple(integer(item, "axis", attempted) for item in axis)
    return (integer(axis, "axis", attempted),)


def reduce_axes(part: Array, axes: tuple[int, ...], attempted: str) -> tuple[Any, int]:
    """The sum of one replica's array over `axes` in its own dtype, and how many elements each sum has.

    Raises:
        RD08: an axis the array does not have, or the same one twice.
    """
    rank = part.ndim
    for axis in axes:
        if not -rank <= axis < rank:
            raise errors.error("RD08", attempted, f"axis is {axis} and the value has rank {rank}",
                               f"The axis lies in [{-rank}, {rank})." if rank else
                               "Use `axis=None` for values without a batch dimension.")
    positive = {axis % rank for axis in axes}
    if len(positive) != len(axes):
        raise errors.error("RD08", attempted, f"axes {axes} name a dimension twice")
    count = 1
    for axis in positive:
        count *= part.shape[axis]
    if not positive:
        return part, count
    dtype = part.dtype
    if isinstance(dtype, np.dtype):
        dtype = dtype.newbyteorder("=")  # NumPy takes no other
    with on_device_of(part), Reported("add"):
        return as_array(xp_of(part).sum(part, axis=tuple(positive), dtype=dtype)), count
