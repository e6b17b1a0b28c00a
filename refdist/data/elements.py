"""Elements of datasets: nests of arrays, taken apart into rows and stacked into batches; argument checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.array.convert import frozen, is_array, is_text, read_only, to_array
from refdist.data.spec import TensorSpec, is_dataset, made, same_dtype, spec_of


class Rows:
    """Rows of arrays that can be given one at a time or several at once."""

    def __init__(self, structure: Any) -> None:
        self._structure = structure
        self.count = count_rows(nest.flatten(structure), "Dataset.from_tensor_slices")

    def one(self, index: int) -> Any:
        """A row."""
        return nest.map_structure(lambda array: rows_of(array, index), self._structure)

    def many(self, indices: range | list[int]) -> Any:
        """Several rows as one element: a view where they lie side by side."""
        if isinstance(indices, range) and indices.step == 1:
            part = slice(indices.start, indices.stop)
            return nest.map_structure(lambda array: rows_of(array, part), self._structure)
        chosen = np.asarray(indices, np.intp)
        return nest.map_structure(lambda array: read_only(rows_of(array, chosen)), self._structure)


class Numbers:
    """The numbers of a `range`, as `Rows` that are never stored."""

    def __init__(self, numbers: range, dtype: np.dtype[Any]) -> None:
        self._numbers = numbers
        self._dtype = dtype
        self.count = len(numbers)

    def one(self, index: int) -> Any:
        """A row."""
        number = np.int64(self._numbers[index])
        return number if self._dtype == np.int64 else number.astype(self._dtype)

    def many(self, indices: range | list[int]) -> Any:
        """Several rows as one element."""
        if isinstance(indices, range):
            part = self._numbers[indices.start:indices.stop:indices.step]
            rows = np.arange(part.start, part.stop, part.step, dtype=np.int64)
        else:
            rows = np.asarray(indices, np.int64) * self._numbers.step + self._numbers.start
        return frozen(rows.astype(self._dtype, copy=False))


def arrays(structure: Any, convert: Callable[[Any], Any] = lambda leaf: read_only(to_array(leaf))) -> Any:
    """The structure with read-only arrays as leaves; as in tf.data, a list is an array and not a structure."""
    if type(structure) is np.ndarray:
        return convert(structure)
    if nest.is_nested(structure) and (
            isinstance(structure, (tuple, Mapping)) or not isinstance(structure, Collection)):
        return nest.map_items(lambda item: arrays(item, convert), structure)
    # Text is kept as Python objects: NumPy's own text arrays would drop trailing zero bytes.
    kept = structure is None or isinstance(structure, np.generic) or is_text(structure) or is_dataset(structure)
    return structure if kept else convert(structure)


def made_by_function(structure: Any) -> Any:
    """The same of what a function or a generator made, which may use one array for all elements."""
    return arrays(structure, taken)


def taken(value: Any, dtype: Any = None) -> Any:
    """A read-only array: a copy of what somebody can still write to.

    >>> buffer = np.zeros(2)
    >>> mine = taken(buffer)
    >>> buffer[:] = 7
    >>> mine
    array([0., 0.])
    """
    array = to_array(value, dtype)
    if isinstance(array, np.ndarray) and array.flags.writeable and (array is value or not array.flags.owndata):
        array = array.copy()
    return frozen(array)


def handed(element: Any) -> Any:
    """The element with read-only views for its arrays: they belong to others, and can be handed out again."""
    return nest.map_structure(read_only, element)


def result(found: Any) -> Any:
    """What a function of elements returned, as an element; as in tf.data, an outermost list is a tuple.

    >>> result([1.5, [1, 2]])
    (array(1.5, dtype=float32), array([1, 2], dtype=int32))
    """
    return made_by_function(tuple(found) if isinstance(found, list) else found)


def unlike(first: Any, other: Any, ranked: Callable[[], bool]) -> str | None:
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
    for mine, theirs in zip(nest.flatten(first), nest.flatten(other), strict=True):
        one, two = (made(spec_of(leaf), True) for leaf in (mine, theirs))
        if one == two:
            continue
        if not (isinstance(one, TensorSpec) and isinstance(two, TensorSpec)):
            return f"the first has {one}, this one {two}"
        if not same_dtype(one.dtype, two.dtype):
            return f"the first has dtype {one.dtype}, this one {two.dtype}"
        if np.ndim(mine) != np.ndim(theirs) and ranked():
            return f"the first has rank {np.ndim(mine)}, this one {np.ndim(theirs)}"
    return None


def _same(first: Any, other: Any) -> bool:
    # The quick way to find that nothing is wrong; false where it takes more to tell.
    if type(first) is not type(other):
        return False
    if type(first) is tuple:
        return len(first) == len(other) and all(map(_same, first, other))
    if type(first) is dict:
        return first.keys() == other.keys() and all(_same(item, other[key]) for key, item in first.items())
    return isinstance(first, (np.ndarray, np.generic)) and first.dtype == other.dtype and first.ndim == other.ndim


def count_rows(leaves: Sequence[Any], attempted: str) -> int:
    """How many rows all arrays have.

    Raises:
        RD15: a scalar.  RD25: no array.  RD26: different numbers of rows.
    """
    leaves = [leaf for leaf in leaves if leaf is not None]
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
        stacked.append(read_only(_stacked(column)))
    return nest.pack_sequence_as(elements[0], stacked)


def _stacked(column: tuple[Any, ...]) -> Any:
    if is_dataset(column[0]):
        raise errors.error("RD25", "Dataset.batch", "the elements are datasets", "Make one dataset of them first, with "
                           "`flat_map`.")
    if all(one is None for one in column):
        return None
    return np.array(column, object) if is_text(column[0]) else np.stack(column)


def rows_of(leaf: Any, which: Any) -> Any:
    """A row, or several, of a component; None has no rows and stays as it is."""
    return None if leaf is None else leaf[which]


def pad_and_stack(elements: Sequence[Any], start: int, shapes: Any, padding: Any) -> Any:
    """As `stack`, with rows brought to one shape.

    Args:
        elements: the rows.
        start: the number of the first row, for messages.
        shapes: one tuple per component, None in it for the longest length found; or None for all.
        padding: one value per component, or None for zeros and empty text.

    Raises:
        RD05: padding of another kind of number.
        RD26: rows of different structure, dtype or rank, or longer than the shape wanted.
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
                raise errors.error("RD26", attempted, f"row {start + i} has rank {np.ndim(array)}, wanted is rank "
                                   f"{len(target)}", "Give all rows one rank.")
            for d, length in enumerate(np.shape(array)):
                if fixed[d] and length > target[d]:
                    raise errors.error("RD26", attempted, f"row {start + i} has shape {np.shape(array)}, longer than "
                                       f"{tuple(target)}", "Pad to a longer shape, or cut the row.")
                target[d] = max(target[d], length)
        dtype = np.result_type(*map(dtype_of, column))  # the longest text's
        empty = b"" if dtype.hasobject else np.zeros((), dtype)[()]
        fill = empty if padding is None else padding[c] if dtype.hasobject else to_array(padding[c], dtype)
        batch = np.full((len(column), *target), fill, dtype)
        for i, array in enumerate(column):
            corner: tuple[int | slice, ...] = (i, *(slice(length) for length in np.shape(array)))
            batch[corner] = array
        stacked.append(read_only(batch))
    return nest.pack_sequence_as(elements[0], stacked)


def check_count(method: str, name: str, value: Any, least: int | None = None) -> None:
    """Raises unless `value` is an int, of at least `least`.

    Raises:
        RD25: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise errors.error("RD25", f"Dataset.{method}", f"{name} is {value!r}", "Pass an int.")
    if least is not None and value < least:
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
        joined.append(None if column[0] is None else read_only(np.concatenate(column)))
    return nest.pack_sequence_as(parts[0], joined)


def check_function(method: str, function: Any) -> None:
    """Raises unless `function` can be called.

    Raises:
        RD25: it cannot.
    """
    if not callable(function):
        raise errors.error("RD25", f"Dataset.{method}", f"got {function!r}", "Pass a function.")
