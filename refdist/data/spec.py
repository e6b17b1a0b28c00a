"""`TensorSpec`: what is known of an array before it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.arrays import is_array, is_text


class TensorSpec:
    """Shape and dtype; None in a shape stands for a length that is not known, None as shape for any shape.

    >>> TensorSpec([None, 3], np.float32)
    TensorSpec(shape=(None, 3), dtype=float32)

    Raises:
        RD25: a shape that is no sequence of ints and None.

    Source: tf.TensorSpec.
    """

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, shape: Any, dtype: Any = np.float32, name: str | None = None) -> None:
        try:
            self.shape = None if shape is None else tuple(None if n is None else int(n) for n in shape)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", "TensorSpec", f"shape is {shape!r}",
                               "Pass a list of ints and None.") from error
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype})"

    def with_rows(self, rows: int | None) -> TensorSpec:
        """The same with another number of rows."""
        return self if not self.shape else TensorSpec((rows, *self.shape[1:]), self.dtype)

    def is_compatible_with(self, array: Any) -> bool:
        """Whether the array has this dtype and a shape that fits.

        Source: tf.TensorSpec.is_compatible_with.
        """
        found = spec_of(array)
        return bool(found.dtype == self.dtype and (self.shape is None or (
            len(self.shape) == len(found.shape)
            and all(mine in (None, theirs) for mine, theirs in zip(self.shape, found.shape, strict=True)))))


def spec_of(element: Any) -> Any:
    """A nest of TensorSpecs for a nest of arrays; text has dtype object, as its length varies.

    >>> spec_of({"x": np.zeros(2), "name": b"a"})
    {'x': TensorSpec(shape=(2,), dtype=float64), 'name': TensorSpec(shape=(), dtype=object)}
    """
    return nest.map_structure(
        lambda leaf: TensorSpec((), object) if is_text(leaf)
        else TensorSpec(np.shape(leaf), leaf.dtype if is_array(leaf) else np.asarray(leaf).dtype), element)


def batched(spec: Any, size: int | None) -> Any:
    """The spec of `size` stacked elements, None when the number is not known."""
    return nest.map_structure(
        lambda one: TensorSpec(None if one.shape is None else (size, *one.shape), one.dtype), spec)


def unbatched(spec: Any) -> Any:
    """The spec of one row."""
    return nest.map_structure(lambda one: TensorSpec(one.shape and one.shape[1:], one.dtype), spec)


def with_rows(spec: Any, rows: int | None) -> Any:
    """The spec with another number of rows in every component."""
    return nest.map_structure(lambda one: one.with_rows(rows), spec)


def free(spec: Any) -> Any:
    """The spec with no length known in any component, only ranks and dtypes."""
    return nest.map_structure(
        lambda one: one if one.shape is None else TensorSpec((None,) * len(one.shape), one.dtype), spec)


def open_lengths(spec: Any, batches: bool) -> bool:
    """Whether some length in a spec is open, the number of rows of batches aside."""
    return spec is not None and any(one.shape is None or None in one.shape[batches:] for one in nest.flatten(spec))


def common(specs: Sequence[Any]) -> Any:
    """The spec of elements that can be of each of several specs: None for lengths that differ, for ranks that do.

    >>> common([TensorSpec([4, 2]), TensorSpec([3, 2])])
    TensorSpec(shape=(None, 2), dtype=float32)
    """
    def of(*ones: TensorSpec) -> TensorSpec:
        shapes = [one.shape for one in ones if one.shape is not None]
        if len(shapes) < len(ones) or len(set(map(len, shapes))) > 1:
            return TensorSpec(None, ones[0].dtype)
        return TensorSpec([n[0] if len(set(n)) == 1 else None for n in zip(*shapes, strict=True)], ones[0].dtype)

    return nest.map_structure(of, *specs)
