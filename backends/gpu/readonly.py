"""CuPy's arrays as arrays that can be read-only.

This module does not choose devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from refdist import errors
from refdist.backends.gpu.cupy_types import Cupy, DeviceArray

CUDA = 2  # the device type of DLPack
_WRITERS = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
            "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "fill", "put", "set", "sort", "partition",
            "scatter_add", "scatter_max", "scatter_min")


class ReadOnlyArray(DeviceArray, Protocol):
    """What `read_only` makes."""

    _read_only: bool


def freeze(array: DeviceArray, kind: type[ReadOnlyArray]) -> ReadOnlyArray:
    """A read-only view of an array; itself where it is one already."""
    if isinstance(array, kind) and array._read_only:
        return array
    view = array.view(kind)
    view._read_only = True
    return view


def read_only(cupy: Cupy) -> type[ReadOnlyArray]:
    """A subclass of cupy.ndarray whose instances can be made read-only.

    CuPy's arrays cannot say that they are read-only, and several replicas share one, so that writing to it in place
    would change it for all of them.  Views of a read-only array are read-only too.  Copies are ordinary arrays.
    Results of arithmetic are of this type, because CuPy keeps it, but can be written to.

    What the array itself is asked to do can be refused.  What CuPy's functions and kernels write to (`out=`, copyto)
    cannot: they take the pointer without asking.
    """

    def refuse(array: ReadOnlyArray, name: str) -> None:
        if array._read_only:
            raise errors.error("RD20", f"{name} of an array that replicas share", f"it is read-only ({array.shape})",
                               "Write to a copy (`x = x.copy()`), or compute a new array (`x = x + 1`).",
                               kind=errors.InvalidValueError)

    def guarded(name: str) -> Callable[..., object]:
        write: Callable[..., object] = getattr(cupy.ndarray, name)

        def method(self: ReadOnlyArray, *args: object, **kwargs: object) -> object:
            refuse(self, name)
            return write(self, *args, **kwargs)
        return method

    def part(name: str) -> property:
        # CuPy makes the real and the imaginary part without saying of what they are views.
        own = getattr(cupy.ndarray, name)

        def take(self: ReadOnlyArray) -> DeviceArray:
            attribute: DeviceArray = own.__get__(self)
            return freeze(attribute, type(self)) if self._read_only and attribute is not self else attribute

        def write(self: ReadOnlyArray, value: object) -> None:
            refuse(self, f"{name} =")
            own.__set__(self, value)
        return property(take, write)

    def byteswap(self: ReadOnlyArray, inplace: bool = False) -> DeviceArray:
        if inplace:
            refuse(self, "byteswap")
        return cupy.ndarray.byteswap(self, inplace)

    def interface(self: ReadOnlyArray) -> dict[str, object]:
        fields: dict[str, Any] = cupy.ndarray.__cuda_array_interface__.__get__(self)
        return {**fields, "data": (fields["data"][0], self._read_only)}

    def dlpack(self: ReadOnlyArray, **options: object) -> object:
        if not options.get("copy"):
            refuse(self, "__dlpack__")
        return cupy.ndarray.__dlpack__(self, **options)

    def finalize(self: ReadOnlyArray, template: object) -> None:
        # Views have a base, new arrays have not.
        self._read_only = self.base is not None and getattr(template, "_read_only", False)

    array_class = type("ReadOnlyArray", (cupy.ndarray,), {
        "__doc__": "A cupy.ndarray that may be read-only.", "__module__": __name__, "_read_only": False,
        "__array_finalize__": finalize, "real": part("real"), "imag": part("imag"), "byteswap": byteswap,
        "__cuda_array_interface__": property(interface), "__dlpack__": dlpack,
        **{name: guarded(name) for name in _WRITERS if hasattr(cupy.ndarray, name)}})
    return cast("type[ReadOnlyArray]", array_class)
