"""CuPy's arrays made known to refdist: which types there are, read-only ones, arrays of other libraries.

Which device an array should be on is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refdist import arrays, errors

CUDA = 2  # the device type of DLPack
_WRITERS = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
            "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "fill", "put", "set", "sort", "partition",
            "scatter_add", "scatter_max", "scatter_min")


def read_only(cupy: Any) -> type:
    """A subclass of cupy.ndarray whose instances cannot be written to.

    CuPy's arrays cannot say that they are read-only, and several replicas share one, so that writing to it in place
    would change it for all of them.  Views of it are read-only too; copies and results of arithmetic are not.
    """

    def refuse(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            raise errors.error("RD20", f"{name} of an array that replicas share", f"it is read-only ({self.shape})",
                               "Write to a copy (`x = x.copy()`), or compute a new array (`x = x + 1`).",
                               kind=errors.InvalidValueError)
        return method

    methods = {name: refuse(name) for name in _WRITERS}
    return type("ReadOnlyArray", (cupy.ndarray,), {
        "__doc__": "A cupy.ndarray that cannot be written to.", "__module__": __name__, **methods})


def register(cupy: Any, to_numpy: Callable[[Any], Any], beside: Callable[[Any], Any]) -> type:
    """Makes CuPy's arrays known; gives the read-only type."""
    known = [kind for kind in arrays.ARRAY_TYPES if issubclass(kind, cupy.ndarray) and kind is not cupy.ndarray]
    kind: type = known[0] if known else read_only(cupy)
    arrays.ARRAY_TYPES[cupy.ndarray] = arrays.Foreign(lambda array: array.view(kind), to_numpy, beside)
    arrays.ARRAY_TYPES[kind] = arrays.Foreign(lambda array: array, to_numpy, beside)

    def take(value: Any) -> Any:
        # Arrays of PyTorch, JAX ... on a GPU, without a copy.
        return cupy.from_dlpack(value) if value.__dlpack_device__()[0] == CUDA else None

    arrays.IMPORTERS[:] = [take]
    return kind
