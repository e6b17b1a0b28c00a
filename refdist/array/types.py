"""What an array is.

Every array that refdist handles outside a backend is an array of the Python array API standard (2023.12 or later),
and only what the standard has is used of it.  What the standard does not have (moving between memories, read-only
arrays, the order of a sum) a `Backend` declares.  numpy.ndarray, cupy.ndarray and the arrays of array_api_strict are
such arrays; NumPy's have more dtypes (text, extension types), which the standard neither has nor forbids.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Protocol, runtime_checkable

Key = int | slice | EllipsisType | None | tuple[int | slice | EllipsisType | None, ...]


@runtime_checkable
class Array(Protocol):
    """An array of the array API standard.

    Arithmetic is between arrays of one library, memory and dtype, or with a Python number.
    """

    @property
    def dtype(self) -> object:
        """Element type; equal dtypes of one library compare equal, and nothing more is promised."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""

    @property
    def size(self) -> int:
        """How many elements there are."""

    def __getitem__(self, key: Key, /) -> Array: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __neg__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    # The other operand is an array of the same library or a number, which a protocol cannot say.
    def __add__(self, other: Any, /) -> Array: ...
    def __sub__(self, other: Any, /) -> Array: ...
    def __mul__(self, other: Any, /) -> Array: ...
    def __truediv__(self, other: Any, /) -> Array: ...
