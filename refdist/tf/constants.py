"""`tf.constant`: a tensor of a value, with a shape that a program may state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refdist import errors
from refdist.array import backend, texts
from refdist.tf.dtypes import as_dtype
from refdist.tf.shapes import sizes
from refdist.tf.texts import TextTensor, is_text


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
        RD25: the shape is none.  RD05, RD25, RD34: as `refdist.constant`.

    Source: tf.constant.
    """
    if dtype is not None and isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        kind = as_dtype(dtype)
        value = value if kind.name == "string" else np.asarray(value).astype(kind.dtype)
    wanted = None if shape is None else sizes(shape)
    if texts.are_tensors() and is_text(value) and (dtype is None or as_dtype(dtype).name == "string"):
        array: Any = TextTensor(value)
        return array if wanted is None else TextTensor(_arranged(array._read(), wanted))
    array = backend.constant(value, dtype)
    return array if wanted is None else backend.constant(_arranged(array, wanted))


def _arranged(array: Any, wanted: tuple[int, ...]) -> Any:
    count, room = math.prod(array.shape), math.prod(wanted)
    if count == 1:
        return np.broadcast_to(np.asarray(array).reshape(()), wanted).copy()
    if count != room:
        raise errors.error("RD04", "tf.constant", f"the value has {count} numbers, and the shape {wanted} {room}",
                           "Pass as many, or a single one.", kind=errors.InvalidTypeError)
    return array.reshape(wanted)
