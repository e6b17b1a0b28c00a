"""`tf.constant`: a tensor of a value, with a shape that a program may state."""

from __future__ import annotations

from typing import Any

import numpy as np

from refdist import errors
from refdist.array import backend
from refdist.tf.dtypes import as_dtype


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    """The value as a tensor.

    Args:
        value: a number, text, nested list or array.  Arrays of NumPy are converted to the dtype as NumPy converts them,
            so that 300 becomes 44 as uint8; of all others no number may lose its kind.
        dtype: the dtype wanted, or None.
        shape: the shape wanted, or None: a single number fills it, others are arranged in it.
        name: without effect.

    >>> import refdist.tf as tf
    >>> tf.constant([1, 2, 3, 4], shape=[2, 2])
    array([[1, 2],
           [3, 4]], dtype=int32)

    Raises:
        RD04: more or fewer numbers than the shape has.
        RD05, RD25, RD34: as `refdist.constant`.

    Source: tf.constant.
    """
    if dtype is not None and isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        kind = as_dtype(dtype)
        value = value if kind.name == "string" else np.asarray(value).astype(kind.dtype)
    made = backend.constant(value, dtype)
    if shape is None:
        return made
    sizes = tuple(map(int, shape))
    count, wanted = int(np.prod(tuple(made.shape))), int(np.prod(sizes))
    if count == 1:
        return backend.constant(np.broadcast_to(np.asarray(made).reshape(()), sizes).copy())
    if count != wanted:
        raise errors.error("RD04", "tf.constant", f"the value has {count} numbers, and the shape {sizes} {wanted}",
                           "Pass as many, or a single one.", kind=errors.InvalidTypeError)
    return made.reshape(sizes)
