"""Values as tensors, and names of dtypes, for modules that Keras is connected with; others ask `tensors`."""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.array import texts
from refdist.array.convert import HoldsArray, short


def tensor(value: Any, dtype: object = None) -> Any:
    """The value as a tensor: a number, a list, an array, a variable; what Keras passes through a model stays as it is.

    Raises:
        RD19: a value with a part for each replica.
    """
    import keras

    if isinstance(value, keras.KerasTensor):
        return value if dtype is None else keras.ops.cast(value, dtype_name(dtype))
    if isinstance(value, HoldsArray):
        value = value._read()
    if texts.is_text(value):
        raise errors.error("RD25", "an operation on numbers", f"got text, {short(value)}",
                           "Operations on text are those of `tf.strings`; numbers of it are "
                           "`tf.strings.to_number(x)`.", kind=errors.MisfitError)
    if dtype is None and keras.backend.backend() == "jax" and isinstance(value, (int, float, list, tuple)):
        dtype = _plain(value)
    return keras.ops.convert_to_tensor(value, dtype_name(dtype))


def _plain(value: Any) -> str | None:
    # The dtype of Python's numbers, which JAX makes 64 bits wide once it has such.
    leaves = nest.flatten(value)
    if not all(type(leaf) in (int, float) for leaf in leaves):
        return None
    if any(isinstance(leaf, float) for leaf in leaves):
        return "float32"
    return "int32" if all(-2**31 <= leaf < 2**31 for leaf in leaves) and leaves else None


def dtype_name(dtype: Any) -> str | None:
    """The name by which Keras knows a dtype of NumPy, PyTorch or Python; None stays None.

    Raises:
        RD25: it is none that Keras has.
    """
    import keras

    if dtype is None:
        return None
    try:
        name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.") if type(dtype).__module__ == \
            "torch" else np.dtype(dtype).name
        standard: str = keras.backend.standardize_dtype(name)
    except (TypeError, ValueError) as error:
        raise errors.error("RD25", "a dtype", f"got {dtype!r}",
                           "Pass a dtype of `tf`, such as `tf.float32`.") from error
    return standard
