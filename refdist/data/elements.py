"""Elements of datasets: nests of arrays, split into rows and stacked into batches; checks of arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from refdist import errors, nest
from refdist.array import texts
from refdist.array.backend import current_backend
from refdist.array.convert import (
    HoldsArray,
    frozen,
    guest_of,
    is_array,
    is_text,
    library_of,
    numpy_dtype,
    read_only,
    to_array,
    to_numpy,
    xp_of,
)
from refdist.core.integers import integer
from refdist.data.spec import TensorSpec, is_dataset, made, same_dtype, spec_of


class Rows:
    """The rows of the arrays of a nest, fetched one at a time or several at once."""

    def __init__(self, structure: object) -> None:
        self._structure = structure
        # A row of a guest's array is a copy, because the library may let the program write to it.
        self._handed = handed if any(map(library_of, nest.flatten(structure))) else _itself
        self.count = count_rows(nest.flatten(structure), "Dataset.from_tensor_slices")

    def row(self, index: int) -> Any:
        """The row of this number, a view."""
        return self._handed(nest.map_structure(lambda array: rows_of(array, index), self._structure))

    def batch(self, indices: range | list[int]) -> Any:
        """The rows of these numbers as one batch: a view if they are consecutive, else a copy."""
        if isinstance(indices, range) and indices.step == 1:
            part = slice(indices.start, indices.stop)
            return self._handed(nest.map_structure(lambda array: rows_of(array, part), self._structure))
        chosen = np.asarray(indices, np.intp)
        return nest.map_structure(lambda array: read_only(rows_of(array, chosen)), self._structure)


class Numbers:
    """The numbers of a `range` as rows that are computed when they are fetched."""

    def __init__(self, numbers: range, dtype: np.dtype[np.generic]) -> None:
        self._numbers = numbers
        self._dtype = dtype
        self.count = len(numbers)

    def row(self, index: int) -> Any:
        """The row of this number, a scalar array."""
        number = np.int64(self._numbers[index])
        return number if self._dtype == np.int64 else number.astype(self._dtype)

    def batch(self, indices: range | list[int]) -> Any:
        """The rows of these numbers as one batch, a new array."""
        if isinstance(indices, range):
            part = self._numbers[indices.start:indices.stop:indices.step]
            rows = np.arange(part.start, part.stop, part.step, dtype=np.int64)
        else:
            rows = np.asarray(indices, np.int64) * self._numbers.step + self._numbers.start
        return frozen(rows.astype(self._dtype, copy=False))


def _given(leaf: object) -> Any:
    # The program's own array, which is not copied; rows of what cannot be protected are copied as they are handed out.
    array = to_array(leaf)
    return read_only(array) if type(array) is np.ndarray else array


def as_the_backend_s(element: object) -> Any:
    """Converts an element's arrays to the backend's, for a program that uses no others."""
    return nest.map_structure(_as_the_backend_s, element)


def _as_the_backend_s(leaf: Any) -> Any:
    if texts.is_text(leaf):
        return texts.read(leaf)
    return current_backend().put(np.asarray(leaf), "") if isinstance(leaf, (np.ndarray, np.generic)) else leaf


def for_function(element: object) -> Any:
    """An element as a function of the program is given it: of tensors, where it uses nothing else."""
    return as_the_backend_s(element) if texts.are_tensors() else element


def as_numpy_s(element: object) -> Any:
    """Converts an element's arrays to NumPy's, those without dimensions to its scalars."""
    return nest.map_structure(_as_numpy_s, element)


def _as_numpy_s(leaf: Any) -> Any:
    if texts.is_text(leaf):
        text = texts.read(leaf)  # bytes for a program of tensors, whose text a `str` was
        return np.array(text._read())[()] if isinstance(text, HoldsArray) else text
    if library_of(leaf) is None:
        return leaf
    array = to_numpy(leaf)
    return array if array.ndim else array[()]


def arrays(structure: object, convert: Callable[[object], object] = _given) -> Any:
    """Converts the leaves of a structure to read-only arrays; as in tf.data, a list is an array and not a structure.

    Views where possible: the arrays of the caller are not copied.  None, text and datasets stay what they are.
    """
    if type(structure) is np.ndarray:
        return convert(structure)
    if nest.is_nested(structure) and (
            isinstance(structure, (tuple, Mapping)) or not isinstance(structure, Collection)):
        return nest.map_items(lambda item: arrays(item, convert), structure)
    # Text is kept as Python objects: NumPy's own text arrays would drop trailing zero bytes.
    kept = structure is None or isinstance(structure, np.generic) or is_text(structure) or is_dataset(structure)
    converted: Any = structure if kept else convert(structure)
    is_scalar = isinstance(structure, HoldsArray) and converted.dtype == object and not converted.ndim
    return converted[()] if is_scalar else converted


def made_by_function(structure: object) -> Any:
    """As `arrays`, with copies: a function or generator may write to the same array for every element."""
    return arrays(structure, taken)


def taken(value: object, dtype: object = None) -> Any:
    """A read-only array that cannot change: a copy if the caller could still write to its memory.

    >>> buffer = np.zeros(2)
    >>> array = taken(buffer)
    >>> buffer[:] = 7
    >>> array
    array([0., 0.])
    """
    array = to_array(value, dtype)
    if isinstance(array, np.ndarray) and array.flags.writeable and (array is value or not array.flags.owndata):
        array = array.copy()
    return frozen(array)


def handed(element: object) -> Any:
    """The element with read-only views of its arrays, which the dataset may yield again."""
    return nest.map_structure(read_only, element)


def _itself(element: object) -> Any:
    return element


def result(returned: object) -> Any:
    """What a function of elements returned, as an element; as in tf.data, an outermost list is a tuple.

    >>> result([1.5, [1, 2]])
    (array(1.5, dtype=float32), array([1, 2], dtype=int32))
    """
    return made_by_function(tuple(returned) if isinstance(returned, list) else returned)


def unlike(first: object, other: object, ranked: Callable[[], bool]) -> str | None:
    """How an element differs from the first one in structure, dtype or rank, as a clause; None if it does not.

    Args:
        first, other: elements.
        ranked: whether different ranks count as a difference; called only where ranks differ.
    """
    if _same(first, other):
        return None
    difference = nest.compare([first, other])
    if difference is not None:
        return difference.between("the first", "this one")
    for leaf, other_leaf in zip(nest.flatten(first), nest.flatten(other), strict=True):
        spec, other_spec = (made(spec_of(component), True) for component in (leaf, other_leaf))
        if spec == other_spec:
            continue
        if not (isinstance(spec, TensorSpec) and isinstance(other_spec, TensorSpec)):
            return f"the first has {spec}, this one {other_spec}"
        if not same_dtype(spec.dtype, other_spec.dtype):
            return f"the first has dtype {spec.dtype}, this one {other_spec.dtype}"
        if np.ndim(leaf) != np.ndim(other_leaf) and ranked():
            return f"the first has rank {np.ndim(leaf)}, this one {np.ndim(other_leaf)}"
    return None


def _same(first: object, other: object) -> bool:
    # A fast check for the common case; False means that the elements must be compared in full.
    if type(first) is not type(other):
        return False
    if isinstance(first, tuple) and isinstance(other, tuple):
        return type(first) is tuple and len(first) == len(other) and all(map(_same, first, other))
    if isinstance(first, dict) and isinstance(other, dict):
        return type(first) is dict and first.keys() == other.keys() and all(
            _same(item, other[key]) for key, item in first.items())
    return (isinstance(first, (np.ndarray, np.generic)) and isinstance(other, (np.ndarray, np.generic))
            and first.dtype == other.dtype and first.ndim == other.ndim)


def count_rows(leaves: Sequence[npt.ArrayLike | None], attempted: str) -> int:
    """The number of rows that all arrays have; None is skipped.

    Raises:
        RD15: a scalar.  RD34: there are no arrays.  RD26: the numbers of rows differ.
    """
    arrays = [leaf for leaf in leaves if leaf is not None]
    if not arrays:
        raise errors.error("RD34", attempted, "the element has no arrays", "Pass at least one.")
    for array in arrays:
        if np.ndim(array) == 0:
            raise errors.error("RD15", attempted, "a scalar has no rows", "Pass arrays of rank 1 or more.")
    counts = {np.shape(array)[0] for array in arrays}
    if len(counts) > 1:
        raise errors.error("RD26", attempted, f"the arrays have {' and '.join(map(str, sorted(counts)))} rows",
                           "Give all arrays the same number of rows.")
    return int(counts.pop())


def columns(elements: Sequence[object], start: int, attempted: str) -> Iterator[tuple[Any, ...]]:
    """For each component of several elements, its arrays.

    Raises:
        RD26: structures or dtypes differ; the message has the numbers of the rows.
    """
    difference = nest.compare(elements)
    if difference is not None:
        raise errors.error("RD26", attempted,
                           difference.between(f"row {start}", f"row {start + difference.number}"))
    for column in zip(*map(nest.flatten, elements), strict=True):
        dtypes = [dtype_of(array) for array in column]
        for i, dtype in enumerate(dtypes):
            if dtype is not dtypes[0] and dtype != dtypes[0] and not dtype.kind == dtypes[0].kind in "US":
                raise errors.error("RD26", attempted, f"row {start} has dtype {dtypes[0]}, row {start + i} has dtype "
                                   f"{dtype}", "Give all rows one dtype.")
        yield column


def dtype_of(leaf: Any) -> np.dtype[Any]:
    """The dtype of a leaf; text has dtype object."""
    if is_text(leaf):
        return np.dtype(object)
    return numpy_dtype(leaf.dtype if is_array(leaf) else np.asarray(leaf).dtype)


def stack(elements: Sequence[object], start: int) -> Any:
    """Elements as one batch: every array has a new first dimension.

    Raises:
        RD26: shapes, dtypes or structures differ; the message has the numbers of the rows.
    """
    stacked = []
    for column in columns(elements, start, "Dataset.batch"):
        for i, array in enumerate(column):
            if np.shape(array) != np.shape(column[0]):
                raise errors.error("RD26", "Dataset.batch", f"row {start} has shape {np.shape(column[0])}, row "
                                   f"{start + i} has shape {np.shape(array)}",
                                   "Give all rows one shape, or use `padded_batch`.")
        stacked.append(read_only(_stacked(column)))
    return nest.pack_sequence_as(elements[0], stacked)


def _stacked(column: tuple[Any, ...]) -> Any:
    if is_dataset(column[0]):
        raise errors.error("RD25", "Dataset.batch", "the elements are datasets", "Join them into one dataset "
                           "first, with `flat_map`.")
    if all(item is None for item in column):
        return None
    return np.array(column, object) if is_text(column[0]) else _functions(column).stack(column)


def _functions(column: tuple[Any, ...]) -> Any:
    # The module with the functions for these arrays: NumPy, or the library of a guest's arrays.
    return xp_of(column[0]) if guest_of(column[0]) is not None else np


def rows_of(leaf: npt.NDArray[np.generic] | None, which: int | slice | npt.NDArray[np.intp]) -> Any:
    """One row of a component, or several; None for None."""
    return None if leaf is None else leaf[which]


def pad_and_stack(elements: Sequence[object], start: int, shapes: Sequence[Sequence[int | None]] | None,
                  padding: Sequence[Any]) -> Any:
    """As `stack`, after padding all rows to one shape.

    Args:
        elements: the rows.
        start: the number of the first row, for messages.
        shapes: the shape of each component; None in a shape, or instead of all shapes, means the longest length found.
        padding: the value for each component, where None means zeros and empty text.

    Raises:
        RD05: the padding cannot be converted to the dtype.  RD25: a component is not an array.
        RD26: structures, dtypes or ranks differ, or a row is longer than its shape.
    """
    stacked = []
    attempted = "Dataset.padded_batch"
    for c, column in enumerate(columns(elements, start, attempted)):
        if column[0] is None or is_dataset(column[0]):
            raise errors.error("RD25", attempted, f"component {c} is {column[0]!r}", "Pad arrays only.")
        target = [0] * np.ndim(column[0]) if shapes is None else [n or 0 for n in shapes[c]]
        fixed = [False] * len(target) if shapes is None else [n is not None for n in shapes[c]]
        for i, array in enumerate(column):
            if np.ndim(array) != len(target):
                raise errors.error("RD26", attempted, f"row {start + i} has rank {np.ndim(array)}, expected "
                                   f"{len(target)}", "Give all rows one rank.")
            for d, length in enumerate(np.shape(array)):
                if fixed[d] and length > target[d]:
                    raise errors.error("RD26", attempted, f"row {start + i} has shape {np.shape(array)}, longer than "
                                       f"{tuple(target)}", "Pad to a longer shape, or cut the row.")
                target[d] = max(target[d], length)
        dtype = np.result_type(*map(dtype_of, column))  # the longest text's
        fill = padding[c]
        if fill is None:
            fill = b"" if dtype.hasobject else np.zeros((), dtype)[()]
        elif not dtype.hasobject:
            fill = to_array(fill, dtype, f"the padding value of component {c}", attempted)
        batch = np.full((len(column), *target), fill, dtype)
        for i, array in enumerate(column):
            corner: tuple[int | slice, ...] = (i, *(slice(length) for length in np.shape(array)))
            batch[corner] = array
        stacked.append(read_only(batch))
    return nest.pack_sequence_as(elements[0], stacked)


def count_of(method: str, name: str, value: object, least: int | None = None) -> int:
    """Returns an argument that must be an int of at least `least`.

    Raises:
        RD25, RD34: it is not an integer (TypeError), or it is less (ValueError).
    """
    number = integer(value, name, f"Dataset.{method}")
    if least is not None and number < least:
        raise errors.error("RD34", f"Dataset.{method}", f"{name} is {number}", f"Pass {least} or more.")
    return number


def concatenate(parts: Sequence[object], start: int) -> Any:
    """Batches one after another as one batch; `start` is the number of the first row, for messages.

    Raises:
        RD26: structures, dtypes or shapes of rows differ.
    """
    if len(parts) == 1:
        return parts[0]
    joined = []
    for column in columns(parts, start, "Dataset.rebatch"):
        for part in column:
            if np.shape(part)[1:] != np.shape(column[0])[1:]:
                raise errors.error("RD26", "Dataset.rebatch", f"the rows from {start} on have shapes "
                                   f"{np.shape(column[0])[1:]} and {np.shape(part)[1:]}",
                                   "Give all rows one shape.")
        joined.append(None if column[0] is None else read_only(_functions(column).concat(column)))
    return nest.pack_sequence_as(parts[0], joined)


def check_function(method: str, function: object) -> None:
    """Raises unless `function` can be called.

    Raises:
        RD25: it cannot.
    """
    if not callable(function):
        raise errors.error("RD25", f"Dataset.{method}", f"got {function!r}", "Pass a function.")
