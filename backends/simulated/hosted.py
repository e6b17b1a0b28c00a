"""Backends over libraries whose arrays lie in the memory of the host: NumPy computes with views of them.

What refdist promises of a sum are bits: left to right, subnormal numbers kept, the first of two NaNs.  Each library
has an arithmetic of its own (XLA flushes subnormal numbers and divides by multiplying, PyTorch has no sum of unsigned
integers), so refdist asks none of them to add.  It looks at their arrays as NumPy's, which copies nothing, computes
what it would compute anyway, and hands the result back as an array of the library.  That is also less to write than a
backend of the library's own operations: a subclass says how an array is looked at and how one is made.

`xp_of` of such an array is therefore not the library's module but NumPy's functions with this conversion around them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist.array.convert import numpy_dtype
from refdist.array.types import Array
from refdist.backends.simulated.backend import Simulated


class Hosted(Simulated):
    """Base of the backends for PyTorch and JAX.

    A subclass defines `array_types`, `xp`, `view`, `made`, `read_only` and, where its arrays can be written to,
    `freeze`.  Arithmetic is that of `Simulated`.
    """

    makes_all = True

    def __init__(self) -> None:
        self._functions = _Functions(self)

    @abstractmethod
    def view(self, array: Any) -> NDArray[np.generic]:
        """The numbers of an array of the library as a NumPy array; in the same memory where that is the host's."""

    @abstractmethod
    def made(self, array: NDArray[np.generic], like: Any = None) -> Any:
        """A new array of the library.

        Args:
            array: an array that nobody else holds, whose memory may be taken over.
            like: an array of the library, beside which the new one lies; None for the library's usual place.

        Returns:
            NumPy's own array where the library has none for its dtype: text, objects.
        """

    def contribution(self, array: Array, attempted: str) -> Any:
        """Converts what a replica contributes to a collective.

        Raises:
            RD34: it may not, because gradients are recorded of it.
        """
        return array

    def is_on_host(self, array: Any) -> bool:
        """Whether an array of the library lies in the memory of the host, so that a view is no copy."""
        return True

    def put(self, array: Array, device: str) -> Any:
        return array if isinstance(array, self.array_types) else self.made(np.array(array))

    def take(self, array: NDArray[np.generic], device: str) -> Any:
        return self.made(array)

    def put_all(self, arrays: Sequence[Array], devices: Sequence[str]) -> Sequence[Any]:
        return [self.put(array, device) for array, device in zip(arrays, devices, strict=True)]

    def to_numpy(self, array: Array) -> Any:
        return self.view(array) if isinstance(array, self.array_types) else array

    def astype(self, array: Array, dtype: np.dtype[np.generic]) -> Any:
        return self.made(self.view(array).astype(dtype), array)

    def functions(self) -> Any:
        return self._functions


class _Functions:
    # NumPy's functions, for arrays of a library.

    def __init__(self, library: Hosted) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function, library = getattr(np, name), self._library
        if isinstance(function, type):  # a dtype
            return function

        def call(*args: Any, dtype: object = None, **options: Any) -> Any:
            if dtype is not None:
                options["dtype"] = numpy_dtype(dtype)
            like: list[Any] = []
            result = function(*[_viewed(library, argument, like) for argument in args], **options)
            # What shares memory with an argument is copied, because `made` takes it over.
            return library.made(np.array(result), like[0]) if like else result

        setattr(self, name, call)
        return call


def _viewed(library: Hosted, argument: Any, like: list[Any]) -> Any:
    if isinstance(argument, (list, tuple)):
        return [_viewed(library, item, like) for item in argument] if any(
            isinstance(item, library.array_types) for item in argument) else argument
    if isinstance(argument, library.array_types):
        like.append(argument)
        return library.view(argument)
    return argument
