"""The new array that assign, assign_add and scatter_* compute from the old one and a value, the parts of one that are
read, and the checks that these need.

These are pure functions: they store nothing, and know nothing of replicas and copies.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from sys import modules
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np

from refdist import errors
from refdist.array import collectives
from refdist.array.backend import beside, current_backend
from refdist.array.convert import (
    aliases,
    astype,
    cast,
    dtype_of,
    frozen,
    has_dtype,
    is_recorded,
    kept,
    kind_of,
    on_device_of,
    to_array,
    xp_of,
)
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core import jax
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Use, of_kind
from refdist.core.rules.variables import OPERATIONS, Computes, Takes

# Members that every read or write compares with: a constant is found faster than a member of an Enum (`Word`).
_VALUE: Final = Takes.VALUE
_UPDATE: Final = Computes.UPDATE
_ADD: Final = Computes.ADD

if TYPE_CHECKING:
    from refdist.variables.variable import ResourceVariable


def prepare(variable: ResourceVariable, operation: str, value: Any, attempted: str) -> Any:
    """Checks and converts `value` to what `update` takes for this variable.

    Raises:
        RD04: wrong shape.  RD05: wrong dtype.  RD23: arithmetic on a variable that is not a number.
        RD09: in a function that JAX compiles.
        RD25, RD34: not an array; for scatter_*, not IndexedSlices; slices without a dense_shape where the whole array
            is needed; an index out of range.
    """
    if "jax" in modules:
        jax.refuse_in_compiled(attempted)
    _, takes, computes = OPERATIONS[operation]
    if takes is not _VALUE:
        match takes:
            case Takes.PARTS:
                return _prepare_parts(variable._array, computes, attempted, *value)
            case Takes.SLICES:
                return _prepare_slices(variable._array, computes, attempted, value)
            case _:
                assert_never(takes)
    if isinstance(value, IndexedSlices):
        value = collectives.dense(current_backend(), value, attempted)
    current = variable._array
    dtype = current.dtype
    array = value
    if not (type(value) is type(current) is np.ndarray and value.dtype == dtype):
        array = to_array(value, None if has_dtype(value) else dtype, attempted=attempted)
        if type(array) is not type(current) or array.dtype != dtype:
            array = beside(cast(array, dtype, attempted), current)
    shape = variable._shape
    if array.shape != shape and not fits(array.shape, shape):
        raise errors.error("RD04", attempted, f"the value has shape {tuple(array.shape)}, the variable {shape}",
                           "Reshape the value to the variable's shape; nothing is broadcast.")
    if computes is not _UPDATE:
        collectives.reducible(array, attempted)
        if array.shape != current.shape:
            raise errors.error("RD04", attempted, f"the value has shape {tuple(array.shape)}, the variable holds "
                               f"{tuple(current.shape)}", "Reshape the value to that shape.")
        return array
    return kept(array) if aliases(array, value) else frozen(array)


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether an array of `shape` may be stored where `wanted` is declared; None means any size."""
    return len(shape) == len(wanted) and all(n is None or n == m for m, n in zip(shape, wanted, strict=True))


def declared_shape(shape: Iterable[int | None], initial: tuple[int, ...], attempted: str) -> tuple[int | None, ...]:
    """`shape` as a tuple of ints and None, into which an initial value of shape `initial` fits.

    Raises:
        RD04: it does not fit.  RD25: not a shape.
    """
    try:
        declared = tuple([n if n is None else operator.index(n) for n in shape])
    except TypeError as error:
        raise errors.error("RD25", attempted, f"shape is {shape!r}", "Pass a tuple of ints and None.") from error
    if not fits(initial, declared):
        raise errors.error("RD04", attempted, f"the initial value has shape {initial}, declared is {declared}",
                           "Declare the shape of the initial value, or None for sizes that may change.")
    return declared


def _prepare_slices(array: Array, computes: Computes, attempted: str, value: object) -> IndexedSlices:
    if not isinstance(value, IndexedSlices):
        raise errors.error("RD25", attempted, f"sparse_delta is {errors.type_of(value)}",
                           "Pass a refdist.IndexedSlices.")
    values = beside(cast(value.values, array.dtype, attempted), array)
    _expect_rows(array, values, attempted)
    if computes is not Computes.UPDATE:
        collectives.reducible(values, attempted)
    if computes in (Computes.MIN, Computes.MAX):
        cell = of_kind(Use.ORDERED, kind_of(dtype_of(values)))
        if isinstance(cell, Refusal):
            raise errors.error(cell.code, attempted, f"the variable has dtype {values.dtype}, which has no order",
                               "Use real numbers.")
    if computes is Computes.DIV and not xp_of(values).all(values):
        raise errors.error("RD34", attempted, "rows would be divided by zero", "Pass divisors other than 0.",
                           kind=errors.InvalidArgumentError)
    _expect_indices(array, value.indices, attempted)
    return IndexedSlices(values, beside(value.indices, array), value.dense_shape)


def _expect_rows(array: Array, values: Array, attempted: str) -> None:
    if array.ndim == 0 or values.shape[1:] != array.shape[1:]:
        raise errors.error("RD04", attempted, f"each slice has shape {values.shape[1:]}, each row of the variable "
                           f"{array.shape[1:]}", "Pass slices in the shape of the variable's rows.")


def _expect_indices(array: Array, indices: Array, attempted: str) -> None:
    lowest, highest = collectives.bounds(indices)
    if lowest < 0 or highest >= array.shape[0]:
        raise errors.error("RD34", attempted, f"indices run from {lowest} to {highest}, rows from 0 "
                           f"to {array.shape[0] - 1}", "Pass indices of existing rows.",
                           kind=errors.InvalidArgumentError)


def gathered(array: Array, indices: Array, device: str, attempted: str) -> Any:
    """The parts of an array at `indices`, whose last dimension indexes the array's first dimensions.

    Raises:
        RD25, RD34: indices that are not integers, or of parts that do not exist.
    """
    depth = _depth(array, indices, attempted)
    indices = current_backend().put(indices, device)
    xp, inner = xp_of(array), array.shape[depth:]
    with on_device_of(array):
        places = _places(array, indices)
        if is_recorded(array):  # a copy would have no gradient
            recorded: Any = array
            return recorded.reshape((-1, *inner))[places]
        parts = xp.take(xp.reshape(array, (-1, *inner)), xp.reshape(places, (-1,)), axis=0)
        return frozen(xp.reshape(parts, (*places.shape, *inner)))


def _depth(array: Array, indices: Array, attempted: str) -> int:
    # How many of the array's dimensions the last one of `indices` counts through, if all these parts exist.
    depth = indices.shape[-1] if indices.ndim else array.ndim + 1
    exist = kind_of(dtype_of(indices)) in "iu" and depth <= array.ndim
    for i in range(depth if exist else 0):
        lowest, highest = collectives.bounds(indices[..., i])
        exist = exist and lowest >= 0 and highest < array.shape[i]
    if not exist:
        raise errors.error("RD34", attempted, f"indices are {indices} and the variable has shape {tuple(array.shape)}",
                           "Pass integer indices of what exists.", kind=errors.InvalidArgumentError)
    return depth


def _places(array: Array, indices: Array) -> Any:
    # The number of each part among all parts of its kind, in their order.
    xp = xp_of(indices)
    places = xp.sum(indices[..., :0], axis=-1, dtype=xp.int64)
    for i in range(indices.shape[-1]):
        places = places * array.shape[i] + indices[..., i]
    return places


def _prepare_parts(array: Array, computes: Computes, attempted: str, indices: object, updates: object) -> IndexedSlices:
    # The parts as rows of an array that has as many rows as the variable has such parts; the dense shape is still that
    # of the variable.
    numbers = to_array(indices, argument="indices", attempted=attempted)
    depth = _depth(array, numbers, attempted)
    values = cast(to_array(updates, None if has_dtype(updates) else array.dtype, "updates", attempted), array.dtype,
                  attempted)
    _expect_parts(values, (*numbers.shape[:-1], *array.shape[depth:]), attempted)
    if computes is not Computes.UPDATE:
        collectives.reducible(values, attempted)
    length = math.prod(numbers.shape[:-1])
    with on_device_of(numbers):
        rows = xp_of(numbers).reshape(_places(array, numbers), (length,))
    with on_device_of(values):
        return IndexedSlices(xp_of(values).reshape(values, (length, *array.shape[depth:])), rows, tuple(array.shape))


def _rows_now(array: Array, parts: IndexedSlices, attempted: str) -> Any:
    # The rows of parts in an array that may have got another shape since they were prepared.
    shape, rows = parts.shape, parts.indices
    if shape is None or shape == array.shape:
        return rows
    xp, columns = xp_of(rows), list[Any]()
    with on_device_of(rows):
        for n in reversed(shape[:len(shape) - parts.values.ndim + 1]):
            columns.insert(0, rows[:, None] % n)
            rows = rows // n
        numbers = xp.concat([rows[:, None][:, :0], *columns], axis=1)
        depth = _depth(array, numbers, attempted)
        _expect_parts(parts.values, (parts.values.shape[0], *array.shape[depth:]), attempted)
        return _places(array, numbers)


def _expect_parts(values: Array, wanted: tuple[int, ...], attempted: str) -> None:
    if values.shape != wanted:
        raise errors.error("RD04", attempted, f"updates have shape {tuple(values.shape)}, the parts {wanted}",
                           "Pass one update, in the shape of its part, for each entry of indices.")


def update(operation: str, old: Array, new: Array | IndexedSlices, device: str, fixed: bool) -> Any:
    """The new array of an operation, on `device`; `old`, which is there, and `new` are not changed.

    Args:
        operation: its name.
        old: the array.
        new: what `prepare` returned.
        device: where `old` is, and where `new` is put.
        fixed: whether `old` has the shape that `prepare` has seen.

    Raises:
        RD04, RD25: as `prepare`, for an array that has got another shape since then.
    """
    _, takes, computes = OPERATIONS[operation]
    backend = current_backend()
    if takes is _VALUE:
        value: Any = new
        there = backend.put_all((value,), (device,))[0]  # raises errors of comparisons on GPUs that have ended by now
        if computes is _UPDATE:
            return frozen(there)
        if there.shape != old.shape:  # the variable was written since `prepare` compared the shapes
            raise errors.error("RD04", operation, f"the value has shape {tuple(there.shape)}, the variable holds "
                               f"{tuple(old.shape)}",
                               "Reshape the value to that shape.")
        if computes is _ADD:
            return backend.sum((old, there))
        if computes is Computes.SUB:
            return backend.difference(old, there)
        raise errors.InternalError(f"{operation} of a value")
    there = collectives.put(backend, new, device)
    if dtype_of(old).kind in "US":
        old = astype(old, np.result_type(dtype_of(old), dtype_of(there.values)))  # a longer string must not be cut
    kind, rows, values = computes.value, there.indices, there.values
    if takes is Takes.SLICES:
        if not fixed:
            _expect_rows(old, values, operation)
            _expect_indices(old, rows, operation)
        return backend.scatter(kind, old, rows, values)
    if not fixed:
        rows = _rows_now(old, there, operation)
    inner = values.shape[1:]
    with on_device_of(old):
        xp = xp_of(old)
        parts = xp.reshape(old, (math.prod(old.shape[:old.ndim - len(inner)]), *inner))
        return frozen(xp.reshape(backend.scatter(kind, parts, rows, values), old.shape))
