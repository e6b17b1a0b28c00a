"""Operators and NumPy functions for objects that can be used as an array: variables, and values that all replicas hold.

Such an object only says, by `_read()`, which array is meant.  The operation is then that of the array's own library.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refdist import errors, nest
from refdist.array.convert import HoldsArray, for_guest, guest_named, guest_of, ignores_ufuncs, library_of, to_numpy
from refdist.array.types import Array

# The functions of NumPy that are operators, for arrays whose library does not know NumPy's functions.
OPERATORS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.matmul: operator.matmul,
    np.true_divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.power: operator.pow, np.left_shift: operator.lshift, np.right_shift: operator.rshift,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.less: operator.lt, np.less_equal: operator.le, np.equal: operator.eq, np.not_equal: operator.ne,
    np.greater: operator.gt, np.greater_equal: operator.ge, np.negative: operator.neg, np.positive: operator.pos,
    np.absolute: operator.abs, np.invert: operator.invert}

# Errors that a library raises for operands that do not fit; PyTorch raises RuntimeError for most.
_COMPLAINTS = (TypeError, ValueError, LookupError, OverflowError, RuntimeError)

# The argument of BINARY_OP that means `x[...]`, since Python 3.14.
_NB_SUBSCR = 26

# What to write instead of an operation that an array of this shape does not have.
_ONE = "Choose one element, as in `v[0]`, or reduce the array, as with `np.sum(v)`, `np.any(v)` or `np.all(v)`."
_SCALAR = "A scalar has no rows: use it as the number that it is."
_FIXES = {"an item": "Use an index that the array has.", "the rows": _SCALAR, "the length": _SCALAR,
          "float": _ONE, "int": _ONE, "complex": _ONE, "bool": _ONE, "index": f"{_ONE} An index is an integer."}


def _length(array: Array) -> int:
    if not array.ndim:
        raise TypeError("len() of unsized object")
    return array.shape[0]


def item(array: Any, key: object) -> Any:
    """What an index chooses of an array; in it objects that are used as an array stand for theirs.

    Args:
        array: of any library.
        key: whatever the array takes between brackets.
    """
    library = library_of(array)

    def read(place: object) -> object:
        return for_guest(library, place._read()) if isinstance(place, HoldsArray) else place

    chosen = tuple(map(read, key)) if isinstance(key, tuple) else read(key)
    return array[chosen] if library is None else library.item(array, chosen)


def _is_at_brackets(frame: FrameType) -> bool:
    # Whether a frame carries out `x[...]` or `x[...] = ...`.
    code = frame.f_code.co_code
    name, argument = dis.opname[code[frame.f_lasti]], code[frame.f_lasti + 1]
    return name in ("BINARY_SUBSCR", "STORE_SUBSCR") or (name == "BINARY_OP" and argument == _NB_SUBSCR)


def _complaint(attempted: str, array: object, error: Exception, fix: str) -> errors.RefdistError:
    library = library_of(array)
    name = "NumPy" if library is None else library.name
    return errors.error("RD25" if isinstance(error, TypeError) else "RD34", attempted,
                        f"{name} says: {str(error).rstrip('. ')}", fix,
                        errors.OutOfRangeError if isinstance(error, IndexError) else None)


class ArrayOperators(HoldsArray, np.lib.mixins.NDArrayOperatorsMixin):
    """Operators and NumPy functions for objects that can be used as one array, which `_read()` returns."""

    __slots__ = ()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self._read(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: Any) -> Any:
        if any(isinstance(out, ArrayOperators) for out in kwargs.get("out", ())):
            raise errors.error("RD20", f"numpy.{ufunc.__name__}(..., out={type(self).__name__})",
                               "a variable is not written by NumPy", "Use `assign`, `assign_add` ...",
                               kind=errors.InvalidTypeError)
        guest = next(filter(None, map(guest_of, inputs)), None)
        arrays = [for_guest(guest, item._read()) if isinstance(item, ArrayOperators) else item for item in inputs]
        call = getattr(ufunc, method)
        if method == "__call__" and not kwargs and any(map(ignores_ufuncs, arrays)):
            call = OPERATORS.get(ufunc, call)
        try:
            return call(*arrays, **kwargs)
        except errors.RefdistError:
            raise
        except _COMPLAINTS as error:
            raise _complaint(f"numpy.{ufunc.__name__} of {errors.type_of(self)}", self._read(), error,
                             "Pass operands whose shapes and dtypes fit together.") from error

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], types: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        """Calls PyTorch functions with the array."""
        torch = guest_named.value("torch")

        def read(leaf: object) -> Any:
            return for_guest(torch, leaf._read()) if isinstance(leaf, ArrayOperators) else leaf

        return function(*nest.map_structure(read, args), **nest.map_structure(read, kwargs or {}))

    def _asked(self, what: str, call: Callable[..., object], *args: object) -> Any:
        array = self._read()
        try:
            return call(array, *args)
        except errors.RefdistError:
            raise
        except _COMPLAINTS as error:
            shape = tuple(getattr(array, "shape", ()))
            raise _complaint(f"{what} of {errors.type_of(self)} of shape {shape}", array, error,
                             _FIXES[what]) from error

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def __imul__(self, other: Any) -> Any:
        return self * other

    def __itruediv__(self, other: Any) -> Any:
        return self / other

    def __getitem__(self, key: object) -> Any:
        return self._asked("an item", item, key)

    def __iter__(self) -> Any:
        # PyTorch takes `x[v]` for `x[tuple(v)]`; of an index that tuple has one item, the array.
        if _is_at_brackets(sys._getframe(1)):
            return iter((self._read(),))
        return self._asked("the rows", iter)

    def __len__(self) -> int:
        length: int = self._asked("the length", _length)
        return length

    def __float__(self) -> float:
        number: float = self._asked("float", float)
        return number

    def __int__(self) -> int:
        number: int = self._asked("int", int)
        return number

    def __complex__(self) -> complex:
        number: complex = self._asked("complex", complex)
        return number

    def __bool__(self) -> bool:
        return bool(self._asked("bool", bool))

    def __index__(self) -> int:
        return int(self._asked("index", operator.index))

    def numpy(self) -> Any:
        """The value as a read-only numpy.ndarray."""
        return to_numpy(self._read())

    def __cupy_get_ndarray__(self) -> Any:
        """The array, for CuPy's functions."""
        return self._read()
