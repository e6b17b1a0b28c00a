"""NumPy arrays on pretend devices: real results, nothing to install, every run the same.

A device is only a name here, so putting an array on one costs nothing, and equal copies are one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist.array.backend import Backend
from refdist.array.convert import frozen, kind_of, read_only
from refdist.array.float_errors import Reported
from refdist.array.ordered_sum import ordered_sum
from refdist.array.types import Array

_AT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum}


class Simulated(Backend):
    """The reference backend.

    >>> import numpy as np
    >>> Simulated().sum([np.float32([1, 2]), np.float32([3, 4])])
    array([4., 6.], dtype=float32)
    """

    name = "simulated"

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
        mine: Any = arrays
        with Reported("add"):
            return ordered_sum(mine)

    def broadcast(self, array: Array, devices: Sequence[str]) -> list[Any]:
        return [array] * len(devices)

    def scatter(self, operation: str, array: Array, indices: Array, values: Array) -> Any:
        mine: Any = array
        rows: Any = indices
        new: Any = values
        changed = mine.copy()
        with Reported(f"scatter_{operation}"):
            if operation == "update":
                changed[rows] = new
            elif operation == "div" and kind_of(mine.dtype) in "iu":
                _divide_integers(changed, rows, new)
            else:
                _AT[operation].at(changed, rows, new)
        return frozen(changed)

    def difference(self, array: Array, other: Array) -> Any:
        with Reported("subtract"):
            return super().difference(array, other)

    @np.errstate(all="ignore")
    def divide(self, total: Array, count: float, dtype: str | None = None) -> Any:
        return super().divide(total, count, dtype)


def _divide_integers(array: NDArray[np.integer], indices: NDArray[np.integer], divisors: NDArray[np.integer]) -> None:
    # Towards zero, as TensorFlow does; NumPy rounds down.
    for i, divisor in zip(indices, divisors, strict=True):
        row = array[i]
        array[i] = np.sign(row) * np.sign(divisor) * (abs(row) // abs(divisor))
