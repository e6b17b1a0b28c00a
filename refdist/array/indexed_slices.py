"""`IndexedSlices`: some rows of a larger array, as sparse gradients come."""

from __future__ import annotations

from typing import Any

from refdist import errors
from refdist.array.convert import dtype_of, kind_of, nbytes, on_device_of, to_array, to_numpy
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Use, of_kind
from refdist.missing import NO_GRAPHS, lacks


@lacks({"consumers graph name op": NO_GRAPHS, "device": "Write `slices.values`, which may have a device."})
class IndexedSlices:
    """The slices `values[i]` of an array, each belonging at `indices[i]` of its first dimension.

    Args:
        values: array of shape [n, ...].
        indices: integer array of shape [n]; an index may occur more than once.
        dense_shape: shape of the whole array as a 1-D integer array, or None when it is not known.

    >>> import refdist
    >>> refdist.IndexedSlices([[1.0, 2.0]], [3], [5, 2])
    IndexedSlices(values=[[1. 2.]], indices=[3], dense_shape=[5 2])

    Raises:
        RD25, RD34: indices that are not a vector of integers, or of another length than values.

    Source: tf.IndexedSlices (TensorFlow 2.21), constructor.
    """

    __slots__ = ("_dense_shape", "_indices", "_values")

    def __init__(self, values: object, indices: object, dense_shape: object = None) -> None:
        self._values = to_array(values, argument="values")
        self._indices = to_array(indices, argument="indices")
        self._dense_shape = None if dense_shape is None else to_array(dense_shape, argument="dense_shape")
        shape = self._indices.shape
        if len(shape) != 1 or dtype_of(self._indices).kind not in "iu":
            raise errors.error("RD34", "IndexedSlices", f"indices have dtype {self._indices.dtype} and shape "
                               f"{shape}", "Pass a vector of integers.")
        if self._values.ndim < 1 or self._values.shape[0] != shape[0]:
            raise errors.error("RD34", "IndexedSlices", f"{shape[0]} indices and values of shape "
                               f"{self._values.shape}", "Pass one index for each row of values.")

    @property
    def values(self) -> Any:
        """The rows, shape [n, ...]."""
        return self._values

    @property
    def indices(self) -> Any:
        """Where each row belongs, shape [n]."""
        return self._indices

    @property
    def dense_shape(self) -> Any:
        """Shape of the whole array, or None."""
        return self._dense_shape

    @property
    def dtype(self) -> Any:
        """Dtype of the values."""
        return self._values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the indices."""
        return nbytes(self._values) + nbytes(self._indices)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dense shape as a tuple, or None."""
        return None if self._dense_shape is None else tuple(map(int, to_numpy(self._dense_shape)))

    def _components(self) -> list[Any]:
        # For `nest` with `expand_composites`.
        return [self._values, self._indices, *([] if self._dense_shape is None else [self._dense_shape])]

    def _with_components(self, components: list[Any]) -> IndexedSlices:
        return IndexedSlices(*components)

    def __neg__(self) -> IndexedSlices:
        """The slices with the opposite sign, as `scatter_add` takes them to undo what they have added.

        Raises:
            RD23: booleans, strings, objects.

        Source: tf.IndexedSlices.
        """
        cell = of_kind(Use.SUMMED, kind_of(dtype_of(self._values)))
        if isinstance(cell, Refusal):
            raise errors.error(cell.code, "-IndexedSlices", f"the values have dtype {self._values.dtype}")
        with on_device_of(self._values):
            return IndexedSlices(-self._values, self._indices, self._dense_shape)

    def __repr__(self) -> str:
        return (f"IndexedSlices(values={self._values}, indices={self._indices}, "
                f"dense_shape={self._dense_shape})")
