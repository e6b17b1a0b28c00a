"""What counts as an array, and how anything else becomes one.

An array is NumPy's or of a type that a backend has declared.  Everything else that a program passes becomes NumPy's
here: Python numbers and lists as `tf.constant` would make them, float32, int32 or complex128, because they have no
width of their own; NumPy scalars, arrays of other libraries and objects with `__array__` in their own dtype.  `put`
makes them arrays of the backend later, where a device is known.  Nothing here knows replicas, devices or strategies.
A subclass of NumPy's array means more than its numbers, such as a mask, a unit or another product, and is refused.

dtypes are compared, named and looked up in tables as NumPy's.  The standard promises of a dtype only that it equals
itself; `dtype_of` finds NumPy's dtype of the same name.  Extension dtypes (bfloat16, int4) are NumPy's too, but NumPy
takes them for opaque bytes; `kind_of` says what numbers they hold.

A cast keeps the kind of a value: an int may become a float, a float never an int, and an integer has to be in range.

An array of PyTorch or JAX stays what it is, also where the backend has other arrays: it is a guest (`GUESTS`).

Who may write to an array decides whether it is copied.  `frozen` is for arrays that were just made, and makes NumPy's
read-only in place; `read_only` is for those of a program, which may go on writing to its own.  `aliases` tells the
two apart: a list was copied into the array, while `np.asarray` of an array or a buffer shares its memory.

The functions on arrays ask by type, and NumPy's first: they are on the path of every collective.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from refdist import errors, nest
from refdist.array import replica_types
from refdist.array.types import Array
from refdist.runtime import Field, Late


class HoldsArray:
    """Base of objects that can be used as an array: a variable, a value that all replicas hold."""

    __slots__ = ()

    def _read(self) -> Any:
        """The array that this object stands for where the code runs."""
        raise errors.InternalError(f"{type(self).__name__} does not say how it is read")


class Library(Protocol):
    """The methods that conversion needs of a backend whose arrays are not NumPy's; `Backend` describes them."""

    name: str
    array_types: tuple[type, ...]

    def xp(self, device: str = "") -> ModuleType: ...
    def functions(self) -> ModuleType: ...
    def device(self, where: str | Array) -> AbstractContextManager[object]: ...
    def freeze(self, array: Array) -> Array: ...
    def lend(self, array: Array) -> Array: ...
    def item(self, array: Array, key: Any) -> Any: ...
    def is_immutable(self, array: Array) -> bool: ...
    def to_numpy(self, array: Array) -> NDArray[np.generic]: ...
    def astype(self, array: Array, dtype: np.dtype[np.generic]) -> Array: ...
    def put(self, array: Array, device: str) -> Array: ...
    def take(self, array: NDArray[np.generic], device: str) -> Array: ...
    def adopt(self, value: object) -> Array | None: ...
    def refusal(self, value: object) -> str: ...


class Guest(Library, Protocol):
    """The methods it needs of a library whose arrays other backends accept, too; `Hosted` describes them."""

    def made(self, array: NDArray[np.generic], like: Any = None) -> Any: ...
    def contribution(self, array: Array, attempted: str) -> Any: ...
    def is_on_host(self, array: Array) -> bool: ...


array_types: Field[dict[type, Library | None]] = Field(
    "the types of arrays, and the backend that has declared them; None for NumPy's, which every backend takes",
    lambda: {np.ndarray: None})
_NARROW: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}
_INT32 = np.iinfo(np.int32)
_NUMBERS = frozenset((bool, int, float, complex))
_KINDS = "buifc"
_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
# The standard's dtypes have NumPy's names, but do not say them.
_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz")


# Package that defines the types of arrays -> the backend for them, whose arrays are taken beside those in use.
GUESTS = {"jax": "jax", "jaxlib": "jax", "torch": "torch"}
# The backend of this name, if the one in use takes guests.
guest_named: Late[Callable[[str], Guest | None]] = Late()


def declare(library: Library) -> None:
    """Registers the arrays of a backend, so that conversion knows them."""
    array_types.value.update(dict.fromkeys(library.array_types, library))


def forget_guests() -> None:
    """Forgets which libraries are guests, because another backend is used from now on."""
    known = array_types.value
    for kind in [kind for kind in known if _name_of_guest(kind)]:
        del known[kind]


def is_recorded(value: object) -> bool:
    """Whether gradients of a tensor are recorded, so that a copy of it would have none."""
    return library_of(value) is not None and bool(getattr(value, "requires_grad", False))


def library_of(value: object) -> Library | None:
    """The backend whose array `value` is; None for NumPy arrays and for other objects.

    The types of a guest are declared when the first value of its package comes by: a program that has one has
    imported the package, and nobody else pays for it.
    """
    kind, known = type(value), array_types.value
    if kind in known:
        return known[kind]
    library = _guest(kind)
    if library is None or kind not in library.array_types:
        return None
    declare(library)
    return library


def guest_of(value: object) -> Guest | None:
    """The guest library whose package defines the type of `value`, also if it is no array, such as JAX's tracers."""
    return _guest(type(value))


def for_guest(library: Library | None, array: Array) -> Any:
    """Converts a NumPy array for an operation with a guest's arrays; without a guest it is returned as it is."""
    return array if library is None or type(array) is not np.ndarray else library.put(array, "")


def _guest(kind: type) -> Guest | None:
    name = _name_of_guest(kind)
    return guest_named.value(name) if name else None


@functools.lru_cache(maxsize=1024)
def _name_of_guest(kind: type) -> str:
    # A subclass of its arrays is of the library, too.
    names = [GUESTS.get(base.__module__.partition(".")[0], "") for base in kind.__mro__]
    return next(filter(None, names), "")


def dtype_of(array: Array) -> np.dtype[Any]:
    """The dtype of an array, as a NumPy dtype.

    >>> dtype_of(np.zeros(1, np.int8)).name
    'int8'
    """
    return numpy_dtype(array.dtype)


def numpy_dtype(dtype: object) -> np.dtype[Any]:
    """Converts a dtype of any library, or what NumPy accepts as one, to a NumPy dtype.

    Raises:
        TypeError, ValueError, SyntaxError: it is not a dtype.
    """
    if isinstance(dtype, np.dtype):
        return dtype
    known = _of_libraries.get(id(dtype))
    if known is not None and known[0] is dtype:
        return known[1]
    try:
        return np.dtype(dtype)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        for library in array_types.value.values():
            name = None if library is None else _standard_name(dtype, library.xp())
            if name is not None:
                _of_libraries[id(dtype)] = dtype, np.dtype(name)
                return np.dtype(name)
        raise


# id of another library's dtype -> (the dtype, NumPy's); a cache, as NumPy is slow to refuse a dtype.
_of_libraries: dict[int, tuple[object, np.dtype[Any]]] = {}


@functools.cache
def _standard_name(dtype: object, xp: ModuleType) -> str | None:
    return next((name for name in _NAMES if dtype == getattr(xp, name, None)), None)


def native(dtype: np.dtype[np.generic], array: Array) -> object:
    """Converts a NumPy dtype to one of the array's library."""
    library = library_of(array)
    return dtype if library is None or isinstance(array.dtype, np.dtype) else getattr(library.xp(), dtype.name)


def xp_of(array: Array) -> ModuleType:
    """The module with the functions for this array; only functions of the array API standard are used."""
    library = library_of(array)
    return np if library is None else library.functions()


def ignores_ufuncs(value: object) -> bool:
    """Whether a value is an array of a library that NumPy's functions do not ask to compute."""
    return not hasattr(value, "__array_ufunc__") and (library_of(value) or _guest(type(value))) is not None


def nbytes(array: Array) -> int:
    """The bytes of an array's elements.

    >>> nbytes(np.zeros((2, 3), np.int16))
    12
    """
    return math.prod(array.shape) * dtype_of(array).itemsize


@functools.cache
def kind_of(dtype: np.dtype[np.generic]) -> str:
    """The kind of a dtype, as NumPy's `dtype.kind`; of an extension dtype (bfloat16, int4) that of its numbers.

    >>> kind_of(np.dtype("int8"))
    'i'
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.type is np.void:
        return dtype.kind
    return "u" if dtype.name.startswith("uint") else "i" if dtype.name.startswith("int") else "f"


def is_array(value: object) -> bool:
    """True for arrays and NumPy scalars; false for a tensor without numbers in memory, such as a sparse one."""
    if isinstance(value, (np.ndarray, np.generic)):
        return True
    library = library_of(value)
    return library is not None and not library.refusal(value)


def is_text(value: object) -> bool:
    """Whether `value` is Python text or bytes, which NumPy's text arrays would cut at trailing zero bytes."""
    return type(value) is bytes or type(value) is str


def has_dtype(value: object) -> bool:
    """True for values that have a dtype of their own; Python numbers and lists of them do not."""
    return type(value) not in _NUMBERS and (hasattr(value, "__array__") or library_of(value) is not None)


def to_array(value: object, dtype: object = None, argument: str = "value",
             attempted: str = "conversion to an array") -> Any:
    """`value` as an array; arrays are returned as they are.

    Args:
        value: a number, string, nested list, array, or an object with `__array__`.
        dtype: the dtype wanted, or None to keep an array's own and narrow Python numbers.
        argument: what messages call it.
        attempted: what the array is wanted for, in words for an error message.

    Raises:
        RD05: a value that does not become that dtype.
        RD25, RD34: a value that is not an array, or more than one, a ragged list, one of numbers and text,
            an int that int64 cannot hold, or a tensor without numbers in memory.
    """
    if dtype is None:
        if type(value) is np.ndarray:
            return value
    if type(value) is float and (dtype is None or dtype == _FLOAT32):
        return np.array(value, _FLOAT32)
    if type(value) is int and dtype is None and _INT32.min <= value <= _INT32.max:
        return np.array(value, np.int32)
    if isinstance(value, HoldsArray):
        return to_array(value._read(), dtype, argument, attempted)
    if isinstance(value, replica_types.Typed):
        return to_array(replica_types.plain(value), dtype, argument, attempted)
    if isinstance(value, np.generic) and dtype is None:
        return np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        number = np.asarray(value)
        if dtype is None:
            return _narrow(number, value, attempted)
        if number.dtype != object:
            return _cast_weak(number, _dtype(dtype, attempted), attempted, value)
    if value is None or isinstance(value, (dict, set)) or callable(value):
        raise _not_an_array(value, argument, attempted)
    library = library_of(value)
    if library is not None:
        _check_numbers(library, value, argument, attempted)
        array: Any = value
        return array if dtype is None else cast(array, dtype, attempted)
    guest = _guest(type(value))
    if guest is not None:
        raise _not_an_array(value, argument, attempted, guest.refusal(value))
    if len(array_types.value) > 1 and hasattr(value, "__dlpack_device__"):
        for library in dict.fromkeys(filter(None, array_types.value.values())):
            array = library.adopt(value)
            if array is not None:
                return array if dtype is None else cast(array, dtype, attempted)
    weak = isinstance(value, range) or (isinstance(value, (list, tuple)) and not _has_array(value))
    if not weak and not isinstance(value, np.generic):
        for leaf in nest.flatten(value):
            _check_class(leaf, argument, attempted)
    try:
        array = np.asarray(value)
    except errors.RefdistError:
        raise
    except Exception as error:
        # PyTorch does not convert tensors whose gradients are recorded.
        fix = "Pass `x.detach()`; nothing here records gradients." if "requires grad" in str(error) else ""
        raise _not_an_array(value, argument, attempted, fix) from error
    if array.dtype == object:
        raise _not_an_array(value, argument, attempted)
    if array.dtype.kind in "US" and _has_number(value):
        raise errors.error("RD34", attempted, f"{argument} is {short(value)}, which has numbers beside text",
                           "Pass a list of numbers or a list of texts.")
    if dtype is not None:
        wanted = _dtype(dtype, attempted)
        return _cast_weak(array, wanted, attempted, value) if weak else cast(array, wanted, attempted)
    if weak:
        return _narrow(array, value, attempted)
    return _beside_arrays(array, value, attempted) if isinstance(value, (list, tuple)) else array


def cast(array: Array, dtype: object, attempted: str, name: str = "") -> Any:
    """`array` in another dtype, if no value loses its kind: int to float is fine, float to int is not.

    `name` is what an error calls what has `astype`, where the program's own value does not.

    Raises:
        RD05: a float would become an int, a complex a real, a number text, and the like.  RD25: not a dtype.
    """
    dtype, own = _dtype(dtype, attempted), dtype_of(array)
    if own == dtype:
        return array
    text = dtype.kind in "US"
    if text and own.kind == dtype.kind:
        return array  # a longer string must not be cut
    fits = _in_range(array, dtype)
    if not text and fits and _same_kind(own, dtype):
        return astype(array, dtype)
    misfit = f"the value has dtype {array.dtype}, not {dtype}" if fits else f"{short(array)} does not fit into {dtype}"
    if own.kind in "US" and not text:
        fix = "Pass numbers; text is not read as a number."
    elif own.kind == "c" and not text:
        fix = f"Choose a part of it: `{name}.real.astype({str(dtype)!r})`."  # a cast alone would drop the other part
    else:
        fix = f"Cast explicitly: `{name}.astype({dtype.kind if text else str(dtype)!r})`."
    raise errors.error("RD05", attempted, misfit, fix, kind=errors.InvalidArgumentError)


def converted(array: Array, dtype: object, attempted: str) -> Any:
    """Converts `array` to a dtype that the program asked for: as `cast`, but numbers are converted in any way.

    A float becomes an int without its fraction, a number False where it is 0, and a complex number without imaginary
    part a real one.

    Raises:
        RD05: a number that the dtype does not have, such as NaN for an int.  RD25: not a dtype.
    """
    wanted, own = _dtype(dtype, attempted), dtype_of(array)
    kinds = kind_of(own) + kind_of(wanted)
    if not set(kinds) <= set(_KINDS) or _same_kind(own, wanted):
        return cast(array, wanted, attempted)
    xp = xp_of(array)
    with on_device_of(array):
        real: Any = array
        fits = True
        if kinds[1] == "b":
            return astype(xp.asarray(real != 0), wanted)
        if kinds[0] == "c":
            real, fits = xp.real(array), bool(xp.all(xp.imag(array) == 0))
        if kinds[1] in "iu" and kind_of(dtype_of(real)) == "f":
            whole = xp.trunc(astype(real, np.dtype(np.float64)))
            bits = np.iinfo(wanted.name).bits if wanted.kind != "V" else int(wanted.name.lstrip("uint"))
            low, high = (-2.0 ** (bits - 1), 2.0 ** (bits - 1)) if kinds[1] == "i" else (0.0, 2.0 ** bits)
            fits = fits and bool(xp.all((whole >= low) & (whole < high)))
        if not fits:
            raise errors.error("RD05", attempted, f"{short(array)} does not fit into {wanted}",
                               "Choose a dtype that has these numbers, or correct them before.",
                               kind=errors.InvalidArgumentError)
        return cast(real, wanted, attempted) if kinds[1] not in "iu" else astype(real, wanted)


def astype(array: Array, dtype: np.dtype[np.generic]) -> Any:
    """A new array with the values in another dtype, however they change; in the array's own dtype it is a copy."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype)
    library = library_of(array)
    assert library is not None
    return library.astype(array, dtype)


def copied(array: Array) -> Any:
    """A new array with the same values, which may be written to."""
    return astype(array, dtype_of(array))


def _dtype(dtype: object, attempted: str) -> np.dtype[Any]:
    try:
        return numpy_dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise errors.error("RD25", attempted, f"dtype is {dtype!r}", "Pass a NumPy dtype or its name.") from error


def _cast_weak(array: NDArray[np.generic], dtype: np.dtype[np.generic], attempted: str, value: object) -> Any:
    # Python numbers have no width of their own: they go straight into the dtype wanted, if it can hold them.  An empty
    # list has no numbers, and float64 is only what NumPy makes of it.
    if not array.size:
        return array.astype(dtype)
    if array.dtype.kind == "i" and kind_of(dtype) in "iu":
        if not _in_range(array, dtype):
            raise errors.error("RD05", attempted, f"{short(value)} does not fit into {dtype}",
                               "Pass numbers that it can hold, or choose a wider dtype.",
                               kind=errors.InvalidArgumentError)
        return array.astype(dtype)
    return cast(array, dtype, attempted, "np.asarray(x)")


def _same_kind(source: np.dtype[np.generic], dtype: np.dtype[np.generic]) -> bool:
    # NumPy's rule would allow any cast from or to an extension dtype.
    kinds = kind_of(source), kind_of(dtype)
    if "V" not in (source.kind, dtype.kind) or not set(kinds) <= set(_KINDS):
        return np.can_cast(source, dtype, "same_kind")
    return _KINDS.index(kinds[0]) <= _KINDS.index(kinds[1])


def _in_range(array: Array, dtype: np.dtype[np.generic]) -> bool:
    own = dtype_of(array)
    if kind_of(dtype) not in "iu" or kind_of(own) not in "iu" or 0 in array.shape:
        return True
    xp = xp_of(array)
    with on_device_of(array):
        if "V" in (dtype.kind, own.kind):
            # NumPy does not know their limits.
            return bool(xp.all(astype(astype(array, dtype), _INT64) == astype(array, _INT64)))
        lowest, highest = _limits(dtype)
        if array.ndim == 0:
            return lowest <= int(array) <= highest
        return int(xp.min(array)) >= lowest and int(xp.max(array)) <= highest


@functools.cache
def _limits(dtype: np.dtype[np.generic]) -> tuple[int, int]:
    # Of an integer dtype.
    limits = np.iinfo(dtype.name)
    return int(limits.min), int(limits.max)


def _narrow(array: NDArray[np.generic], value: object, attempted: str) -> NDArray[np.generic]:
    dtype = _NARROW.get(array.dtype)
    if array.dtype.kind in "uO":
        raise errors.error("RD34", attempted, f"{short(value)} does not fit into int64",
                           "Pass np.uint64(...), or a float.")
    if dtype is None or (dtype.kind == "i" and array.size and (
            array.max() > _INT32.max or array.min() < _INT32.min)):
        return array
    return array.astype(dtype)


def _beside_arrays(array: NDArray[np.generic], value: object, attempted: str) -> NDArray[np.generic]:
    # Python numbers in a list with arrays take the width of the arrays' dtype, as they do in arithmetic.
    leaves = nest.flatten(value)
    numbers = [leaf for leaf in leaves if not _has_array(leaf)]
    if not numbers or kind_of(array.dtype) not in _KINDS:
        return array
    kept = np.result_type(*[np.asarray(leaf).dtype for leaf in leaves if _has_array(leaf)])
    alone = _narrow(np.asarray(numbers), numbers, attempted).dtype
    if _KINDS.index(kind_of(alone)) > _KINDS.index(kind_of(kept)):
        return array.astype(alone)
    return array.astype(kept if _in_range(array, kept) else np.result_type(kept, alone))


def _has_array(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_array(item) for item in value)
    return has_dtype(value)


def _has_number(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_number, value))
    return isinstance(value, (int, float, complex)) or (has_dtype(value) and np.asarray(value).dtype.kind not in "US")


def _check_class(value: object, argument: str, attempted: str) -> None:
    # Of a memmap nothing is lost: it is an array that lies in a file.
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        raise errors.error("RD25", attempted, f"{argument} is {errors.type_of(value)}, and what it has beside its "
                           "numbers would be lost", "Pass an array: `np.asarray(x)`, or of a masked one "
                           "`x.filled(number)`.")


def _check_numbers(library: Library, value: object, argument: str, attempted: str) -> None:
    refusal = library.refusal(value)
    if refusal:
        raise errors.error("RD34", attempted, f"{argument} is {errors.type_of(value)} whose numbers do not lie in "
                           "memory as those of an array", refusal)


def _not_an_array(value: object, argument: str, attempted: str, fix: str = "") -> errors.RefdistError:
    if hasattr(value, "__array_namespace__"):
        fix = fix or ("Choose the backend that has such arrays with refdist.set_backend; a backend lists their type in "
                      "array_types.")
    return errors.error("RD25", attempted, f"{argument} is {short(value)}, {errors.type_of(value)}",
                        fix or "Pass a number, an array, or a list of equally long lists.")


def short(value: object) -> str:
    """A value for messages, cut to 60 characters."""
    text = " ".join(repr(value).splitlines())
    return text if len(text) <= 60 else text[:57] + "..."


def frozen(array: Array) -> Any:
    """An array or a scalar of NumPy's as a read-only array; NumPy's own array is made read-only itself."""
    if type(array) is np.ndarray:
        array.flags.writeable = False
        return array
    library = library_of(array)
    if library is not None:
        return library.freeze(array)
    return frozen(np.asarray(array)) if isinstance(array, np.generic) else array


def read_only(value: object) -> Any:
    """A read-only view of an array, or a copy where a library has none; other values are returned unchanged.

    The array itself stays as it is.

    >>> mine = np.zeros(2)
    >>> read_only(mine).flags.writeable, mine.flags.writeable
    (False, True)
    """
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value = value.view()
            value.setflags(write=False)
        return value
    library = library_of(value)
    if library is None:
        return value
    array: Any = value
    kind = replica_types.type_of(array)
    lent = library.lend(array)
    return lent if kind is replica_types.UNKNOWN else replica_types.typed(lent, kind)


def aliases(array: Array, value: object) -> bool:
    """Whether `array`, which was made of `value`, may share its memory.

    >>> mine = np.zeros(2, np.float64)
    >>> aliases(to_array(mine), mine), aliases(to_array(mine, np.float32), mine), aliases(to_array([0.0]), [0.0])
    (True, False, False)
    """
    if isinstance(value, (bool, int, float, complex, str, bytes, list, tuple)):
        return False
    return array is value or not isinstance(value, np.ndarray) or bool(np.may_share_memory(array, value))


def is_immutable(array: Array) -> bool:
    """Whether the array can no longer be written to, so that it may be stored without a copy."""
    if type(array) is np.ndarray:
        return not array.flags.writeable and array.flags.owndata
    library = library_of(array)
    return frozen(array) is array if library is None else library.is_immutable(array)


def contributed(part: Any, attempted: str) -> Any:
    """Converts an array that a replica contributes to a collective.

    Raises:
        RD34: gradients of it are recorded, which the collective would lose.
    """
    guest = None if type(part) is np.ndarray else guest_of(part)
    return part if guest is None else guest.contribution(part, attempted)


def kept(array: Array) -> Any:
    """The array if it can no longer be written to, else a read-only copy."""
    return array if is_immutable(array) else frozen(copied(array))


def on_device_of(array: Array) -> AbstractContextManager[object]:
    """A `with` block in which new arrays are made on the device of this one."""
    library = library_of(array)
    return nullcontext() if library is None else library.device(array)


def as_array(value: object) -> Any:
    """Converts a NumPy scalar to an array; returns anything else as it is."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def to_numpy(array: object) -> Any:
    """The array as a numpy.ndarray; a copy where it lies on a device."""
    library = library_of(array)
    foreign: Any = array
    return np.asarray(foreign) if library is None else library.to_numpy(foreign)


def on_host(array: object) -> NDArray[np.generic] | None:
    """A guest's array as a NumPy array, if it is in host memory; None for any other value."""
    if isinstance(array, np.ndarray):
        return array
    guest = guest_of(array)
    foreign: Any = array
    if guest is None or not isinstance(array, guest.array_types) or not guest.is_on_host(foreign):
        return None
    return guest.to_numpy(foreign)
