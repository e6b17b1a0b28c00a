"""What counts as an array, and how anything else becomes one.

Python numbers and lists become float32, int32 or complex128 as `tf.constant` would make them; arrays and
NumPy scalars keep their dtype.  Nothing here knows replicas, devices or strategies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from refdist import errors


class ArrayType(NamedTuple):
    """What has to be known of arrays that are not NumPy's."""

    frozen: Callable[[Any], Any]
    to_numpy: Callable[[Any], Any]
    on_device_of: Callable[[Any], AbstractContextManager[Any]]


# The types of arrays; backends whose arrays are not NumPy's add theirs.
ARRAY_TYPES: dict[type, ArrayType | None] = {np.ndarray: None}
# Asked first for values with `__dlpack__`: whether it takes the value, and the array it makes of it.
IMPORTERS: list[Callable[[Any], Any]] = []

_NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}
_INT32 = np.iinfo(np.int32)
_KINDS = "buifc"
_FLOAT32 = np.dtype(np.float32)


@functools.cache
def kind_of(dtype: np.dtype[Any]) -> str:
    """The kind of a dtype, as NumPy's `dtype.kind`; of an extension dtype (bfloat16, int4) that of its numbers.

    >>> kind_of(np.dtype("int8"))
    'i'
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.type is np.void:
        return dtype.kind
    return "u" if dtype.name.startswith("uint") else "i" if dtype.name.startswith("int") else "f"


def is_array(value: Any) -> bool:
    """True for arrays and NumPy scalars."""
    return type(value) in ARRAY_TYPES or isinstance(value, (np.ndarray, np.generic))


def is_text(value: Any) -> bool:
    """True for Python's own text and bytes; NumPy's text arrays would cut trailing zero bytes."""
    return type(value) is bytes or type(value) is str


def has_dtype(value: Any) -> bool:
    """True for values that bring a dtype of their own; Python numbers and lists of them do not."""
    return is_array(value) or hasattr(value, "__array__")


def to_array(value: Any, dtype: Any = None, argument: str = "value", attempted: str = "constant") -> Any:
    """`value` as an array; arrays are returned as they are.

    Args:
        value: a number, string, nested list, array, or an object with `__array__`.
        dtype: the dtype wanted, or None to keep an array's own and narrow Python numbers.
        argument: what messages call it.
        attempted: what the dtype is wanted for, in words for an error message.

    Raises:
        RD05: a value that does not become that dtype.
        RD25: a value that is no array, a ragged list, or an int that int32 cannot hold.
    """
    if dtype is None:
        if type(value) in ARRAY_TYPES:
            return value
        if type(value) is float:
            return np.array(value, _FLOAT32)
    if isinstance(value, np.generic) and dtype is None:
        return np.asarray(value)
    if dtype is None and isinstance(value, (bool, int, float, complex)):
        return _narrow(np.asarray(value), value)
    if value is None or isinstance(value, (dict, set)) or callable(value):
        raise _not_an_array(value, argument)
    if type(value) in ARRAY_TYPES:
        return cast(value, dtype, attempted)
    if IMPORTERS and hasattr(value, "__dlpack_device__"):
        for take in IMPORTERS:
            array = take(value)
            if array is not None:
                return array if dtype is None else cast(array, dtype, attempted)
    try:
        array = np.asarray(value)
    except errors.RefdistError:
        raise
    except Exception as error:
        # PyTorch does not hand out what gradients are recorded of.
        fix = "Pass `x.detach()`; nothing here records gradients." if "requires grad" in str(error) else ""
        raise _not_an_array(value, argument, fix) from error
    if array.dtype == object:
        raise _not_an_array(value, argument)
    weak = isinstance(value, (bool, int, float, complex)) or (
        isinstance(value, (list, tuple)) and not _has_array(value))
    if dtype is not None:
        return (_cast_weak if weak else cast)(array, _dtype(dtype, attempted), attempted)
    return _narrow(array, value) if weak else array


def cast(array: Any, dtype: Any, attempted: str) -> Any:
    """`array` in another dtype, if no value loses its kind: int to float is fine, float to int is not.

    Raises:
        RD05: a float would become an int, a complex a real, a number text, and the like.  RD25: not a dtype.
    """
    dtype = _dtype(dtype, attempted)
    if array.dtype == dtype:
        return array
    text = dtype.kind in "US"
    if text and array.dtype.kind == dtype.kind:
        return array  # a longer string must not be cut
    if not text and _same_kind(array.dtype, dtype) and _in_range(array, dtype):
        with on_device_of(array):
            return array.astype(dtype)
    raise errors.error("RD05", attempted, f"the value has dtype {array.dtype}, wanted is {dtype}",
                       f"Cast explicitly: `.astype({dtype.kind if text else str(dtype)!r})`.",
                       kind=errors.InvalidArgumentError)


def _dtype(dtype: Any, attempted: str) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise errors.error("RD25", attempted, f"dtype is {dtype!r}", "Pass a NumPy dtype or its name.") from error
    return found


def _cast_weak(array: np.ndarray[Any, Any], dtype: np.dtype[Any], attempted: str) -> Any:
    # Python numbers have no width of their own: they go straight into the dtype wanted, if it can hold them.
    if array.dtype.kind == "i" and kind_of(dtype) == "u" and _in_range(array, dtype):
        return array.astype(dtype)
    return cast(array, dtype, attempted)


def _same_kind(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    # NumPy's rule, which lets extension dtypes become anything and anything become them.
    kinds = kind_of(source), kind_of(dtype)
    if "V" not in (source.kind, dtype.kind) or not set(kinds) <= set(_KINDS):
        return np.can_cast(source, dtype, "same_kind")
    return _KINDS.index(kinds[0]) <= _KINDS.index(kinds[1])


def _in_range(array: Any, dtype: np.dtype[Any]) -> bool:
    if kind_of(dtype) not in "iu" or kind_of(array.dtype) not in "iu" or not array.size:
        return True
    if "V" in (dtype.kind, array.dtype.kind):
        # NumPy does not know their limits.
        return bool((array.astype(dtype).astype(np.int64) == array.astype(np.int64)).all())
    limits = np.iinfo(dtype)
    return bool(array.min() >= limits.min and array.max() <= limits.max)


def _narrow(array: np.ndarray[Any, Any], value: Any) -> np.ndarray[Any, Any]:
    dtype = _NARROW.get(array.dtype)
    if dtype is None:
        return array
    if dtype.kind == "i" and array.size and (array.max() > _INT32.max or array.min() < _INT32.min):
        raise errors.error("RD25", "conversion to an array", f"{value!r} does not fit into int32",
                           "Pass np.int64(...) to keep 64 bits.", kind=errors.InvalidValueError)
    return array.astype(dtype)


def _has_array(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_array(item) for item in value)
    return is_array(value) or hasattr(value, "__array__")


def _not_an_array(value: Any, argument: str, fix: str = "") -> errors.RefdistError:
    return errors.error("RD25", "conversion to an array", f"{argument} is {short(value)}, a {type(value).__name__}",
                        fix or "Pass a number, an array, or a list of equally long lists.",
                        kind=errors.InvalidTypeError)


def short(value: Any) -> str:
    """A value for messages, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def frozen(array: Any) -> Any:
    """The same array, read-only where its type can say so."""
    if type(array) is np.ndarray:
        array.flags.writeable = False
        return array
    foreign = ARRAY_TYPES.get(type(array))
    return array if foreign is None else foreign.frozen(array)


def read_only(value: Any) -> Any:
    """A read-only view of an array; the array itself stays as it is.  Other values are returned unchanged.

    >>> mine = np.zeros(2)
    >>> read_only(mine).flags.writeable, mine.flags.writeable
    (False, True)
    """
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value = value.view()
            value.setflags(write=False)
        return value
    foreign = ARRAY_TYPES.get(type(value))
    return value if foreign is None else foreign.frozen(value)


def is_immutable(array: Any) -> bool:
    """Whether nobody can write to the array any more, so that it may be stored without a copy."""
    if type(array) is np.ndarray:
        return not array.flags.writeable and array.flags.owndata
    return frozen(array) is array


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """A `with` block in which new arrays are made on the device of this one."""
    foreign = ARRAY_TYPES.get(type(array))
    return nullcontext() if foreign is None else foreign.on_device_of(array)


def as_array(value: Any) -> Any:
    """NumPy's scalars as arrays; anything else as it is."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def to_numpy(array: Any) -> Any:
    """The array as a numpy.ndarray; a copy where it lies on a device."""
    foreign = ARRAY_TYPES.get(type(array))
    return np.asarray(array) if foreign is None else foreign.to_numpy(array)
