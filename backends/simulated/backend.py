"""NumPy arrays on simulated devices: real results, nothing to install, and every run is the same.

A device is only a name here, so putting an array on one costs nothing, and equal copies are one array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from refdist.array.backend import Backend
from refdist.array.convert import dtype_of, frozen, kind_of, library_of, read_only, to_numpy
from refdist.array.float_errors import Reported, reporting
from refdist.array.ordered_sum import ordered_sum
from refdist.array.types import Array

T = TypeVar("T", bound=Callable[..., Any])

_AT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum}
_sum = reporting("add", ordered_sum)
_difference = reporting("subtract", Backend.difference)


def on_host(method: T) -> T:
    """A method of a backend that also takes a guest's arrays: NumPy computes with views of them.

    Its first argument, but for a text, is an array or a list of arrays; the result is an array beside it, or None.
    """
    @functools.wraps(method)
    def either(self: Simulated, *arguments: Any) -> Any:
        sample = arguments[1] if type(arguments[0]) is str else arguments[0]
        if type(sample) in (list, tuple):
            sample = sample[0]
        guest: Any = None if type(sample) is np.ndarray else library_of(sample)
        if guest is None:
            return method(self, *arguments)
        result = method(self, *map(_viewed, arguments))
        return result if result is None else guest.made(result, sample)
    return cast(T, either)


def _viewed(value: Any) -> Any:
    return list(map(to_numpy, value)) if type(value) in (list, tuple) else (
        to_numpy(value) if library_of(value) is not None else value)


class Simulated(Backend):
    """The reference backend; it also computes with the arrays of guests, which lie in the host's memory, too.

    >>> import numpy as np
    >>> Simulated().sum([np.float32([1, 2]), np.float32([3, 4])])
    array([4., 6.], dtype=float32)
    """

    name = "simulated"
    takes_guests = True

    def xp(self, device: str = "") -> ModuleType:
        return np

    def put(self, array: Array, device: str) -> Any:
        return array

    def put_all(self, arrays: Sequence[Array], devices: Sequence[str]) -> Sequence[Any]:
        return arrays

    def to_numpy(self, array: Array) -> Any:
        return array

    def freeze(self, array: Array) -> Any:
        return read_only(array)

    def default_result_device(self, device: str) -> str:
        return device.partition("/device:")[0] + "/device:CPU:0"

    def sum(self, arrays: Sequence[Array]) -> Any:
        guest: Any = None if type(arrays[0]) is np.ndarray else library_of(arrays[0])
        return _sum(arrays) if guest is None else guest.made(_sum(list(map(to_numpy, arrays))), arrays[0])

    def broadcast(self, array: Array, devices: Sequence[str]) -> list[Any]:
        guest = None if type(array) is np.ndarray else library_of(array)
        return [array] * len(devices) if guest is None else [array, *[guest.lend(array) for _ in devices[1:]]]

    @on_host
    def concatenate(self, arrays: Sequence[Array], axis: int) -> Any:
        return super().concatenate(arrays, axis)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Any:
        guest: Any = library_of(like)
        return super().zeros(shape, like) if guest is None else guest.made(np.zeros(shape, dtype_of(like)), like)

    @on_host
    def scatter(self, operation: str, array: Array, indices: Array, values: Array) -> Any:
        target: Any = array
        # Beside an array of text, which is NumPy's, they may be a library's.
        rows, new = to_numpy(indices), to_numpy(values)
        changed = target.copy()
        with Reported(f"scatter_{operation}"):
            if operation == "update":
                changed[rows] = new
            elif operation == "div" and kind_of(target.dtype) in "iu":
                _divide_integers(changed, rows, new)
            else:
                _AT[operation].at(changed, rows, new)
        return frozen(changed)

    @on_host
    def difference(self, array: Array, other: Array) -> Any:
        return _difference(self, array, other)

    @on_host
    @np.errstate(all="ignore")
    def divide(self, total: Array, count: float, dtype: str | None = None) -> Any:
        return super().divide(total, count, dtype)

    @on_host
    def expect_equal(self, first: Array, other: Array, complain: Callable[[], Exception]) -> None:
        super().expect_equal(first, other, complain)


def _divide_integers(array: NDArray[np.integer], indices: NDArray[np.integer], divisors: NDArray[np.integer]) -> None:
    # Towards zero, as TensorFlow does; NumPy rounds down.
    for i, divisor in zip(indices, divisors, strict=True):
        row = array[i]
        array[i] = np.sign(row) * np.sign(divisor) * (abs(row) // abs(divisor))
