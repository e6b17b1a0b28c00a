"""TensorFlow's dtypes: names with a few facts, which NumPy, Keras and refdist read as dtypes of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors
from refdist.missing import NO_PROTOS, OF_SPECS, lacks

_NAMES = ("bool", "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "complex64", "complex128", "string")
_OTHER_NAMES = {"half": "float16", "float": "float32", "double": "float64", "str": "string"}
_REAL = {"complex64": "float32", "complex128": "float64"}


@lacks({
    **OF_SPECS,
    "as_datatype_enum experimental_as_proto": NO_PROTOS,
    "is_numeric": "Write `dtype.is_floating or dtype.is_integer or dtype.is_complex`.",
    "is_quantized": "Leave it out: no dtype is.",
})
class DType:
    """A dtype of tensors.

    Attributes:
        name: such as "float32".

    >>> import refdist.tf as tf
    >>> tf.float32, tf.float32.name, tf.float32.size, tf.int8.max, tf.float32 == "float32"
    (tf.float32, 'float32', 4, 127, True)

    Source: tf.dtypes.DType.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype, by which NumPy reads this one; text is `str` there."""
        if self.name == "string":
            return np.dtype(str)
        if self.name == "bfloat16":
            import ml_dtypes

            numpy_s: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return numpy_s
        return np.dtype(self.name)

    @property
    def as_numpy_dtype(self) -> type:
        """The class of NumPy's scalars; `object` for text.

        Source: tf.dtypes.DType.as_numpy_dtype.
        """
        return object if self.name == "string" else self.dtype.type

    @property
    def base_dtype(self) -> DType:
        """The dtype itself.

        Source: tf.dtypes.DType.base_dtype.
        """
        return self

    @property
    def real_dtype(self) -> DType:
        """The dtype of the real part.

        Source: tf.dtypes.DType.real_dtype.
        """
        return DTYPES[_REAL.get(self.name, self.name)]

    @property
    def is_floating(self) -> bool:
        """Whether it is a real number with a fraction.

        Source: tf.dtypes.DType.is_floating.
        """
        return "float" in self.name

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer, and no bool.

        Source: tf.dtypes.DType.is_integer.
        """
        return "int" in self.name

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer.

        Source: tf.dtypes.DType.is_unsigned.
        """
        return "uint" in self.name

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex number.

        Source: tf.dtypes.DType.is_complex.
        """
        return "complex" in self.name

    @property
    def is_bool(self) -> bool:
        """Whether it is the dtype of True and False.

        Source: tf.dtypes.DType.is_bool.
        """
        return self.name == "bool"

    @property
    def is_numpy_compatible(self) -> bool:
        """True, for code that asks.

        Source: tf.dtypes.DType.is_numpy_compatible.
        """
        return True

    @property
    def size(self) -> int:
        """How many bytes a number has; 1 for text.

        Source: tf.dtypes.DType.size.
        """
        return 1 if self.name == "string" else self.dtype.itemsize

    @property
    def min(self) -> Any:
        """The smallest value of this dtype.

        Raises:
            RD25: it has none.

        Source: tf.dtypes.DType.min.
        """
        return self._limit("min")

    @property
    def max(self) -> Any:
        """The largest value of this dtype.

        Raises:
            RD25: it has none.

        Source: tf.dtypes.DType.max.
        """
        return self._limit("max")

    @property
    def limits(self) -> tuple[int, int]:
        """The range of its values as colours: 0 to the largest integer, or 0 to 1.

        Source: tf.dtypes.DType.limits.
        """
        return (0, 1) if self.is_floating else (0, self.max)

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        if not (self.is_floating or self.is_integer):
            raise errors.error("RD25", f"{self!r}.{which}", "it has no smallest and no largest value",
                               "Ask a dtype of numbers.")
        if self.name == "bfloat16":
            import ml_dtypes

            return getattr(ml_dtypes.finfo(self.dtype), which)
        return getattr((np.finfo if self.is_floating else np.iinfo)(self.dtype), which)

    def is_compatible_with(self, other: object) -> bool:
        """Whether the other is the same.

        Args:
            other: a dtype, or the name of one.

        Source: tf.dtypes.DType.is_compatible_with.
        """
        return self == other

    def __eq__(self, other: object) -> bool:
        try:
            return self.name == as_dtype(other).name
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


DTYPES = {name: DType(name) for name in _NAMES}


def as_dtype(type_value: Any) -> DType:
    """The dtype of a name, or of a dtype of NumPy, PyTorch or Python.

    Args:
        type_value: a dtype, or its name.

    Raises:
        RD25: it is none.

    Source: tf.dtypes.as_dtype.
    """
    if isinstance(type_value, DType):
        return type_value
    if isinstance(type_value, str):
        name = type_value
    elif type(type_value).__module__ == "torch":
        name = str(type_value).removeprefix("torch.")
    else:
        name = _numpys(type_value)
    dtype = DTYPES.get(_OTHER_NAMES.get(name, name))
    if dtype is None:
        raise errors.error("RD25", "tf.as_dtype", f"got {type_value!r}",
                           "Pass a dtype of `tf`, such as `tf.float32`, or its name.")
    return dtype


def _numpys(value: Any) -> str:
    if value is float:
        return "float32"
    if value is int:
        return "int32"
    try:
        dtype = np.dtype(value)
    except TypeError:
        return ""
    return "string" if value is not None and dtype.kind in "USO" else "" if value is None else dtype.name
