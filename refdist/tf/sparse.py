"""Tensors that name the elements which are there: what parsers of rows return for lists of any length."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from refdist import errors
from refdist.array.convert import HoldsArray, short
from refdist.missing import lacks
from refdist.tf import conversion
from refdist.tf.dtypes import as_dtype
from refdist.tf.operands import numbers
from refdist.tf.shapes import TensorShape, sizes
from refdist.tf.texts import TextTensor, array_of, is_text


@lacks({
    "consumers graph op": "Leave it out: there are no graphs.",
    "eval from_value": "Write `tf.sparse.to_dense(x)`.",
    "with_values": "Write `tf.sparse.SparseTensor(x.indices, values, x.dense_shape)`.",
})
class SparseTensor:
    """A tensor of which some elements are there; not for datasets, which take whole tensors.

    Args:
        indices: where they are, of shape [n, rank].
        values: the elements, of shape [n].
        dense_shape: the shape of the whole.

    Raises:
        RD34: these do not fit together.

    >>> import refdist.tf as tf
    >>> x = tf.sparse.SparseTensor([[0, 1]], [5.0], [2, 2])                                         # doctest: +SKIP
    >>> tf.sparse.to_dense(x).numpy().tolist()                                                      # doctest: +SKIP
    [[0.0, 5.0], [0.0, 0.0]]

    Source: tf.sparse.SparseTensor.
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        places, lengths = np.asarray(_read(indices), np.int64), sizes(_read(dense_shape))
        self.values = TextTensor(values) if is_text(values) else conversion.tensor(values)
        if places.shape != (*self.values.shape, len(lengths)) or places.ndim != 2:
            raise errors.error("RD34", "tf.sparse.SparseTensor", f"indices have shape {places.shape}, values "
                               f"{tuple(self.values.shape)}, dense_shape is {lengths}",
                               "Pass an index of all dimensions for each value.", kind=errors.MisfitError)
        self.indices = conversion.tensor(places, "int64")
        self.dense_shape = conversion.tensor(np.array(lengths, np.int64), "int64")

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return as_dtype(self.values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return TensorShape(np.asarray(self.dense_shape).tolist())

    def get_shape(self) -> TensorShape:
        """The shape of the whole."""
        return self.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise errors.error("RD20", "an array or a dataset of sparse tensors", f"got {self!r}",
                           "Write `tf.sparse.to_dense(x)`, in the function that parses a row.",
                           kind=errors.InvalidTypeError)

    def __repr__(self) -> str:
        return (f"SparseTensor(indices={short(np.asarray(self.indices).tolist())}, "
                f"values={short(np.asarray(self.values).tolist())}, dense_shape={list(self.shape)})")


def to_dense(sp_input: SparseTensor, default_value: Any = None, validate_indices: bool = True,
             name: str | None = None) -> Any:
    """The tensor with all its elements.

    Args:
        sp_input: a SparseTensor.
        default_value: what stands where there is none; by default 0, False or "".
        validate_indices, name: without effect.

    Raises:
        RD05: the default would not keep its kind.  RD25: something else.  RD34: an index beyond the shape, one twice,
            or one after a larger one.

    Source: tf.sparse.to_dense.
    """
    attempted = "tf.sparse.to_dense"
    if not isinstance(sp_input, SparseTensor):
        raise errors.error("RD25", attempted, f"got {errors.type_of(sp_input)}",
                           "Pass a SparseTensor, as parsers of `tf.io.VarLenFeature` return.",
                           kind=errors.InvalidTypeError)
    places, shape = np.asarray(sp_input.indices), np.asarray(sp_input.dense_shape).tolist()
    rows = places.tolist()
    if not all(0 <= index < length for row in rows for index, length in zip(row, shape, strict=True)) or any(
            second <= first for first, second in itertools.pairwise(rows)):
        raise errors.error("RD34", attempted, f"indices are {short(rows)}, dense_shape is {shape}",
                           "Pass each index once, in ascending order, below the shape.",
                           kind=errors.InvalidArgumentError)
    if isinstance(sp_input.values, TextTensor):
        texts: Any = np.full(shape, array_of(b"" if default_value is None else default_value)[()], dtype="O")
        texts[tuple(places.T)] = array_of(sp_input.values)
        return TextTensor(texts)
    import keras

    dtype = sp_input.dtype.name
    whole = keras.ops.full(shape, 0 if default_value is None else numbers(default_value, dtype), dtype=dtype)
    return keras.ops.scatter_update(whole, sp_input.indices, sp_input.values) if rows else whole


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of a tensor that are not 0, False or "".

    Args:
        tensor: a tensor, or a list.
        name: without effect.

    Source: tf.sparse.from_dense.
    """
    whole: Any = array_of(tensor) if is_text(tensor) else np.asarray(conversion.tensor(tensor))
    places = np.argwhere(whole != (b"" if is_text(tensor) else 0))
    return SparseTensor(places, whole[tuple(places.T)], whole.shape)


def _read(value: Any) -> Any:
    return value._read() if isinstance(value, HoldsArray) else value
