"""Elements of datasets: nests of arrays, taken apart into rows and stacked into batches; argument checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.arrays import is_array, is_text, to_array


class Rows:
    """Rows of arrays that can be given one at a time or several at once."""

    def __init__(self, structure: Any) -> None:
        self._structure = structure
        self.count = count_rows(nest.flatten(structure), "Dataset.from_tensor_slices")

    def one(self, index: int) -> Any:
        """A row."""
        return nest.map_structure(lambda array: array[index], self._structure)

    def many(self, indices: range | list[int]) -> Any:
        """Several rows as one element: a view where they lie side by side."""
        if isinstance(indices, range) and indices.step == 1:
            part = slice(indices.start, indices.stop)
            return nest.map_structure(lambda array: array[part], self._structure)
        chosen = np.asarray(indices, np.intp)
        return nest.map_structure(lambda array: array[chosen], self._structure)


class Numbers:
    """The numbers of a `range`, as `Rows` that are never stored."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self.count = len(numbers)

    def one(self, index: int) -> Any:
        """A row."""
        return np.int64(self._numbers[index])

    def many(self, indices: range | list[int]) -> Any:
        """Several rows as one element."""
        if isinstance(indices, range):
            part = self._numbers[indices.start:indices.stop:indices.step]
            return np.arange(part.start, part.stop, part.step, dtype=np.int64)
        return np.asarray(indices, np.int64) * self._numbers.step + self._numbers.start


def arrays(structure: Any) -> Any:
    """The structure with arrays as leaves; as in tf.data, a list is an array and not a structure."""
    if nest.is_nested(structure) and (
            isinstance(structure, (tuple, Mapping)) or not isinstance(structure, Collection)):
        return nest.map_items(arrays, structure)
    # Text is kept as Python objects: NumPy's own text arrays would drop trailing zero bytes.
    return structure if is_text(structure) else to_array(structure)


def count_rows(leaves: Sequence[Any], attempted: str) -> int:
    """How many rows all arrays have.

    Raises:
        RD15: a scalar.  RD25: no array.  RD26: different numbers of rows.
    """
    if not leaves:
        raise errors.error("RD25", attempted, "there is no array", "Pass at least one.",
                           kind=errors.InvalidValueError)
    for array in leaves:
        if np.ndim(array) == 0:
            raise errors.error("RD15", attempted, "a scalar has no rows", "Pass arrays of rank 1 or more.")
    counts = {array.shape[0] for array in leaves}
    if len(counts) > 1:
        raise errors.error("RD26", attempted, f"the arrays have {sorted(counts)} rows",
                           "Give all arrays the same number of rows.")
    return int(counts.pop())


def columns(elements: Sequence[Any], start: int, attempted: str) -> Iterator[tuple[Any, ...]]:
    """The arrays of several elements, one tuple per component.

    Raises:
        RD26: elements of different structure or dtype, with the number of the row.
    """
    difference = nest.compare(elements)
    if difference is not None:
        i, path, mine, theirs = difference
        raise errors.error("RD26", attempted, f"row {start} is {mine}, row {start + i} is {theirs} {path}".rstrip())
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
    found: np.dtype[Any] = leaf.dtype if is_array(leaf) else np.asarray(leaf).dtype
    return found


def stack(elements: Sequence[Any], start: int) -> Any:
    """One element with a new first dimension.

    Raises:
        RD26: rows that do not fit, with their numbers.
    """
    stacked = []
    for column in columns(elements, start, "Dataset.batch"):
        for i, array in enumerate(column):
            if np.shape(array) != np.shape(column[0]):
                raise errors.error("RD26", "Dataset.batch", f"row {start} has shape {np.shape(column[0])}, row "
                                   f"{start + i} has shape {np.shape(array)}",
                                   "Bring all rows into one shape, or use `padded_batch`.")
        stacked.append(np.array(column, object) if is_text(column[0]) else np.stack(column))
    return nest.pack_sequence_as(elements[0], stacked)


def pad_and_stack(elements: Sequence[Any], start: int, shapes: Any, padding: Any) -> Any:
    """As `stack`, with rows brought to one shape.

    Args:
        elements: the rows.
        start: the number of the first row, for messages.
        shapes: one tuple per component, None in it for the longest length found; or None for all.
        padding: one value per component, or None for zeros and empty text.

    Raises:
        RD26: rows of different structure, dtype or rank, or longer than the shape wanted.
    """
    stacked = []
    attempted = "Dataset.padded_batch"
    for c, column in enumerate(columns(elements, start, attempted)):
        target = [0] * np.ndim(column[0]) if shapes is None else [n or 0 for n in shapes[c]]
        fixed = [False] * len(target) if shapes is None else [n is not None for n in shapes[c]]
        for i, array in enumerate(column):
            if np.ndim(array) != len(target):
                raise errors.error("RD26", attempted, f"row {start + i} has rank {np.ndim(array)}, wanted is rank "
                                   f"{len(target)}", "Give all rows one rank.")
            for d, length in enumerate(np.shape(array)):
                if fixed[d] and length > target[d]:
                    raise errors.error("RD26", attempted, f"row {start + i} has shape {np.shape(array)}, longer than "
                                       f"{tuple(target)}", "Pad to a longer shape, or cut the row.")
                target[d] = max(target[d], length)
        dtype = dtype_of(column[0])
        empty = b"" if dtype.hasobject else np.zeros((), dtype)[()]
        fill = empty if padding is None else padding[c]
        batch = np.full((len(column), *target), fill, dtype)
        for i, array in enumerate(column):
            corner: tuple[int | slice, ...] = (i, *(slice(length) for length in np.shape(array)))
            batch[corner] = array
        stacked.append(batch)
    return nest.pack_sequence_as(elements[0], stacked)


def check_count(method: str, name: str, value: Any, least: int) -> None:
    """Raises unless `value` is an int of at least `least`.

    Raises:
        RD25: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise errors.error("RD25", f"Dataset.{method}", f"{name} is {value!r}", "Pass an int.")
    if value < least:
        raise errors.error("RD25", f"Dataset.{method}", f"{name} is {value}", f"Pass {least} or more.",
                           kind=errors.InvalidValueError)


def concatenate(parts: Sequence[Any], start: int) -> Any:
    """Batches put together; `start` is the number of the first row, for messages.

    Raises:
        RD26: parts of different structure, dtype or shape.
    """
    if len(parts) == 1:
        return parts[0]
    joined = []
    for column in columns(parts, start, "Dataset.rebatch"):
        for part in column:
            if np.shape(part)[1:] != np.shape(column[0])[1:]:
                raise errors.error("RD26", "Dataset.rebatch", f"the rows from {start} on have shapes "
                                   f"{np.shape(column[0])[1:]} and {np.shape(part)[1:]}",
                                   "Bring all rows into one shape.")
        joined.append(np.concatenate(column))
    return nest.pack_sequence_as(parts[0], joined)


def check_function(method: str, function: Any) -> None:
    """Raises unless `function` can be called.

    Raises:
        RD25: it cannot.
    """
    if not callable(function):
        raise errors.error("RD25", f"Dataset.{method}", f"got {function!r}", "Pass a function.")
