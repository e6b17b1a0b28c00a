"""`TensorSpec` and `DatasetSpec`: what is known of the elements of a dataset before they are read.

The spec of an element has the structure of the element; the spec of a component that is None is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.array.convert import dtype_of, is_array, is_text
from refdist.missing import OF_SPECS, lacks


@lacks(OF_SPECS)
class TensorSpec:
    """Shape and dtype; None in a shape is an unknown length, None instead of a shape an unknown rank.

    Attributes:
        name: without effect; specs that differ in it alone are equal.

    >>> TensorSpec([None, 3], np.float32)
    TensorSpec(shape=(None, 3), dtype=float32)

    Raises:
        RD25: a shape that is not a sequence of ints and None.

    Source: tf.TensorSpec.
    """

    __slots__ = ("_dtype", "_shape", "name")

    def __init__(self, shape: Iterable[int | None] | None, dtype: npt.DTypeLike = np.float32,
                 name: str | None = None) -> None:
        try:
            self._shape = None if shape is None else tuple(None if n is None else int(n) for n in shape)
        except (TypeError, ValueError) as error:
            raise errors.error("RD25", "TensorSpec", f"shape is {shape!r}",
                               "Pass a list of ints and None.") from error
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.name = name

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """A tuple of ints and None; None for an unknown rank."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return self._dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype})"

    @classmethod
    def from_tensor(cls, tensor: object, name: str | None = None) -> TensorSpec:
        """The spec of an array.

        Args:
            tensor: the array.
            name: without effect.

        Source: tf.TensorSpec.from_tensor.
        """
        spec = spec_of(tensor)
        return cls(spec.shape, spec.dtype, name)

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> TensorSpec:
        """The same spec, of another name.

        Args:
            spec: what has a shape and a dtype.
            name: without effect; None for that of the spec.

        Source: tf.TensorSpec.from_spec.
        """
        return cls(spec.shape, spec.dtype, name or spec.name)

    def with_rows(self, rows: int | None) -> TensorSpec:
        """The same with another number of rows.

        Args:
            rows: the length of the first dimension; None for one that is not known.
        """
        return self if not self.shape else TensorSpec((rows, *self.shape[1:]), self.dtype)

    def is_compatible_with(self, array: object) -> bool:
        """Whether an array, or another spec, has this dtype and a shape that this one allows.

        The dtype object is for text and for rows of different lengths; it allows any dtype, and further dimensions.

        Args:
            array: an array of any shape and dtype, or a TensorSpec.

        Source: tf.TensorSpec.is_compatible_with.
        """
        spec = array if isinstance(array, TensorSpec) else spec_of(array)
        if not isinstance(spec, TensorSpec) or (self.dtype != object and not same_dtype(self.dtype, spec.dtype)):
            return False
        if self.shape is None or spec.shape is None:
            return self.shape is None
        shape = spec.shape[:len(self.shape)] if self.dtype == object else spec.shape
        return len(self.shape) == len(shape) and all(
            allowed in (None, length) for allowed, length in zip(self.shape, shape, strict=True))


class HasSpec(Protocol):
    """A dataset, distributed or not, as specs and iterators see it."""

    @property
    def element_spec(self) -> object: ...


@lacks({**OF_SPECS, "from_value": "Write `dataset.element_spec`."})
class DatasetSpec:
    """The spec of a dataset that is itself an element: it holds the spec of that dataset's elements.

    Args:
        element_spec: a nest of TensorSpecs, like an element.

    >>> from refdist.data import Dataset
    >>> Dataset.range(5).window(2).element_spec
    DatasetSpec(TensorSpec(shape=(), dtype=int64))

    Source: tf.data.DatasetSpec.
    """

    __slots__ = ("element_spec",)

    def __init__(self, element_spec: object) -> None:
        self.element_spec = element_spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and bool(self.element_spec == other.element_spec)

    def __hash__(self) -> int:
        return hash((DatasetSpec, *nest.flatten(self.element_spec)))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec})"

    def is_compatible_with(self, spec_or_value: object) -> bool:
        """Whether the argument is a dataset, or the spec of one, whose elements have this spec or a narrower one.

        Args:
            spec_or_value: a DatasetSpec or a Dataset.

        Source: tf.data.DatasetSpec.is_compatible_with.
        """
        if not (isinstance(spec_or_value, DatasetSpec) or is_dataset(spec_or_value)):
            return False
        try:
            return bool(common([self.element_spec, spec_or_value.element_spec]) == self.element_spec)
        except errors.RefdistError:
            return False


LeafSpec = TensorSpec | DatasetSpec | None


def is_dataset(leaf: object) -> TypeGuard[HasSpec]:
    """Whether a leaf of an element is a dataset."""
    return hasattr(type(leaf), "as_numpy_iterator")


def same_dtype(dtype: np.dtype[np.generic], other: np.dtype[np.generic]) -> bool:
    """Whether two dtypes are equal; text is equal to text of any length."""
    return dtype is other or dtype == other or (dtype.kind in "USO" and other.kind in "USO")


def spec_of(element: object) -> Any:
    """A nest of specs for a nest of arrays; text has dtype object, as its length varies.

    >>> spec_of({"x": np.zeros(2), "name": b"a"})
    {'x': TensorSpec(shape=(2,), dtype=float64), 'name': TensorSpec(shape=(), dtype=object)}
    """
    return nest.map_structure(_spec_of_leaf, element)


def _spec_of_leaf(leaf: Any) -> LeafSpec:
    if leaf is None:
        return None
    if is_dataset(leaf):
        return DatasetSpec(leaf.element_spec)
    if is_text(leaf):
        return TensorSpec((), object)
    array = leaf if is_array(leaf) else np.asarray(leaf)
    return TensorSpec(array.shape, dtype_of(array))


def batched(spec: object, size: int | None) -> Any:
    """The spec of a batch of `size` elements, None for an unknown number."""
    def batch_of(row: TensorSpec) -> TensorSpec:
        return TensorSpec(None if row.shape is None else (size, *row.shape), row.dtype)

    return _each(batch_of, spec)


def unbatched(spec: object) -> Any:
    """The spec of one row of an element."""
    return _each(lambda component: TensorSpec(component.shape and component.shape[1:], component.dtype), spec)


def padded(spec: object, shapes: list[tuple[int | None, ...]] | None, size: int | None) -> Any:
    """The spec of a batch of `size` elements, each component padded to its shape."""
    flat = nest.flatten(batched(spec, size))
    if shapes is not None and len(shapes) == len(flat):
        flat = [TensorSpec((size, *shape), component.dtype) if isinstance(component, TensorSpec) else component
                for shape, component in zip(shapes, flat, strict=True)]
    return nest.pack_sequence_as(spec, flat)


def rows_in(spec: object, attempted: str) -> list[int | None]:
    """The number of rows of each component, None if unknown.

    Raises:
        RD15: a scalar.  RD26: components with different numbers of rows.
    """
    # A scalar of dtype object may be a row of another length than the next.
    shapes = [(None,) if component.dtype == object and component.shape == () else component.shape
              for component in nest.flatten(spec) if isinstance(component, TensorSpec)]
    if () in shapes:
        raise errors.error("RD15", attempted, "a scalar has no rows", "Batch the dataset first.")
    rows = [shape[0] if shape else None for shape in shapes]
    known = {number for number in rows if number is not None}
    if len(known) > 1:
        raise errors.error("RD26", attempted, f"the components have {' and '.join(map(str, sorted(known)))} rows",
                           "Give all components the same number of rows.")
    return rows


def rebatched(spec: object, size: int | None, drop_remainder: bool) -> Any:
    """The spec of batches after `rebatch` to `size` rows; None for several sizes."""
    rows = rows_in(spec, "Dataset.rebatch")
    full = size is not None and (drop_remainder or all(number is not None and number % size == 0 for number in rows))
    return with_rows(spec, size if full else None)


def with_rows(spec: object, rows: int | None) -> Any:
    """The spec with another number of rows in every component."""
    return _each(lambda component: component.with_rows(rows), spec)


def made(spec: object, ranked: bool) -> Any:
    """The spec of all results of a function, from that of one: its dtypes, its ranks if `ranked`, and any lengths."""
    def of_leaf(leaf: LeafSpec) -> LeafSpec:
        if leaf is None:
            return None
        if isinstance(leaf, DatasetSpec):
            return DatasetSpec(made(leaf.element_spec, ranked))
        return TensorSpec((None,) * len(leaf.shape) if ranked and leaf.shape is not None else None,
                          object if leaf.dtype.kind in "US" else leaf.dtype)

    return nest.map_structure(of_leaf, spec)


def is_ranked(spec: object) -> bool:
    """Whether the rank of every array is known."""
    return all(is_ranked(leaf.element_spec) if isinstance(leaf, DatasetSpec) else leaf is None or leaf.shape is not None
               for leaf in nest.flatten(spec))


def common(specs: Sequence[object]) -> Any:
    """The narrowest spec that allows the elements of all given specs.

    >>> common([TensorSpec([4, 2]), TensorSpec([3, 2])])
    TensorSpec(shape=(None, 2), dtype=float32)

    Raises:
        RD26: their structures or dtypes differ.
    """
    difference = nest.compare(specs)
    if difference is not None:
        raise _different(specs[0], specs[difference.number])
    return nest.map_structure(lambda *ones: reduce(_general, ones), *specs)


def _general(first: LeafSpec, second: LeafSpec) -> LeafSpec:
    if first == second:
        return first
    if isinstance(first, DatasetSpec) and isinstance(second, DatasetSpec):
        return DatasetSpec(common([first.element_spec, second.element_spec]))
    if not (isinstance(first, TensorSpec) and isinstance(second, TensorSpec) and same_dtype(first.dtype, second.dtype)):
        raise _different(first, second)
    shape: Any = None
    if first.shape is not None and second.shape is not None and len(first.shape) == len(second.shape):
        shape = [length if length == other else None for length, other in zip(first.shape, second.shape, strict=True)]
    return TensorSpec(shape, first.dtype if first.dtype == second.dtype else object)


def _different(first: object, second: object) -> errors.RefdistError:
    return errors.error("RD26", "combining datasets", f"one has elements of {first}, the other of {second}",
                        "Give all datasets elements of one structure and dtype.", kind=errors.InvalidTypeError)


def _each(change: Callable[[TensorSpec], TensorSpec], spec: object) -> Any:
    def changed(leaf: LeafSpec) -> LeafSpec:
        if isinstance(leaf, DatasetSpec):
            return leaf
        return None if leaf is None else change(leaf)

    return nest.map_structure(changed, spec)
