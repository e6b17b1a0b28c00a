"""`tf.distribute.experimental.partitioners`: into how many shards a variable is split.

A partitioner is a function of a variable's shape and dtype that returns a number for each axis.  It is asked once for
each variable of rank 1 or more, and only the first number may differ from 1.  `row_counts` makes the shards of it.

The initial value of a large variable need not exist as a whole: a function that takes `partition_shape` and
`partition_offset` is asked for the rows of one shard at a time (`initial_parts`).  Its parameters decide, not whether a
call fails: an error of the function itself comes out.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from numpy.typing import DTypeLike

from refdist import errors
from refdist.array.convert import numpy_dtype, to_array
from refdist.core.integers import as_integer, integer

__all__ = ["FixedShardsPartitioner", "MaxSizePartitioner", "MinSizePartitioner", "Partitioner"]


class Partitioner:
    """Base class of partitioners; any function with these arguments is one too.

    Source: tf.distribute.experimental.partitioners.Partitioner.
    """

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """The number of parts on every axis.

        Args:
            shape, dtype: of the variable.
            axis: the axis that is split.

        Raises:
            RD25, RD34: a shape that is not fully known, or an axis that it does not have.
        """
        raise NotImplementedError("a Partitioner defines __call__(shape, dtype, axis)")


class FixedShardsPartitioner(Partitioner):
    """So many shards, but never more than there are rows.

    Args:
        num_shards: how many, 1 or more.

    >>> FixedShardsPartitioner(2)((10, 3), "float32")
    [2, 1]

    Raises:
        RD25, RD34: `num_shards` is not an int of 1 or more.

    Source: tf.distribute.experimental.partitioners.FixedShardsPartitioner.
    """

    def __init__(self, num_shards: int) -> None:
        self._count = _positive("FixedShardsPartitioner", "num_shards", num_shards)

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """`num_shards`, or the length of the axis if that is less."""
        sizes, i = _checked("FixedShardsPartitioner", shape, axis)
        return _parts(sizes, i, self._count)


class MinSizePartitioner(Partitioner):
    """As many shards as there are times `min_shard_bytes` in the variable, rounded up, but at most `max_shards`.

    Because the number is rounded up, a shard may be smaller: 4000 bytes and a minimum of 1001 make 4 shards of 1000.

    >>> MinSizePartitioner(min_shard_bytes=4, max_shards=2)((6, 1), "float32")
    [2, 1]

    Args:
        min_shard_bytes, max_shards: ints of 1 or more.
        bytes_per_string: what an element of text counts for.

    Raises:
        RD25, RD34: an argument that is not an int of 1 or more.

    Source: tf.distribute.experimental.partitioners.MinSizePartitioner.
    """

    def __init__(self, min_shard_bytes: int = 256 << 10, max_shards: int = 1, bytes_per_string: int = 16) -> None:
        name = "MinSizePartitioner"
        self._least = _positive(name, "min_shard_bytes", min_shard_bytes)
        self._most = _positive(name, "max_shards", max_shards)
        self._text = _positive(name, "bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """The number of shards for this many bytes."""
        sizes, i = _checked("MinSizePartitioner", shape, axis)
        total = math.prod(sizes) * _itemsize(dtype, self._text)
        return _parts(sizes, i, min(-(-total // self._least), self._most))


class MaxSizePartitioner(Partitioner):
    """As few shards as possible of at most `max_shard_bytes`; a row is never split.

    >>> MaxSizePartitioner(max_shard_bytes=4)((6, 1), "float32")
    [6, 1]

    Args:
        max_shard_bytes: an int of 1 or more.
        max_shards: the largest number of shards, whatever their size; None or 0 for any number.
        bytes_per_string: what an element of text counts for.

    Raises:
        RD25, RD34: an argument that is not an int of 1 or more.

    Source: tf.distribute.experimental.partitioners.MaxSizePartitioner.
    """

    def __init__(self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16) -> None:
        name = "MaxSizePartitioner"
        self._size = _positive(name, "max_shard_bytes", max_shard_bytes)
        self._most = _positive(name, "max_shards", max_shards) if max_shards else None
        self._text = _positive(name, "bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """The number of shards for rows of this many bytes."""
        sizes, i = _checked("MaxSizePartitioner", shape, axis)
        row = math.prod(sizes[:i] + sizes[i + 1:]) * _itemsize(dtype, self._text)
        rows = max(1, self._size // row) if row else max(1, sizes[i])
        count = -(-sizes[i] // rows)
        return _parts(sizes, i, count if self._most is None else min(count, self._most))


def row_counts(partitions: object, rows: int, attempted: str) -> list[int]:
    """How many rows each shard has: the first ones have one more where they cannot be equal.

    Args:
        partitions: what a partitioner returned.
        rows: how many rows the variable has.
        attempted: the call, for the message.

    >>> row_counts([5, 1], 13, "")
    [3, 3, 3, 2, 2]

    Raises:
        RD25: not a list of ints that are 1 on every axis but the first.
    """
    numbers = [as_integer(n) or 0 for n in partitions] if isinstance(partitions, (list, tuple)) else []
    if not numbers or numbers[0] < 1 or any(n != 1 for n in numbers[1:]):
        raise errors.error("RD34", attempted, f"variable_partitioner returned {partitions!r}",
                           "Return one int for each axis: the number of shards, 1 or more, for the first axis and 1 "
                           "for all others.")
    count = max(1, min(numbers[0], rows))
    least, more = divmod(rows, count)
    return [least + (i < more) for i in range(count)]


def makes_parts(initial_value: object) -> bool:
    """Whether `initial_value` is a function that takes the shape and offset of one shard."""
    if not callable(initial_value):
        return False
    try:
        inspect.signature(initial_value).bind(partition_shape=(), partition_offset=())
    except (TypeError, ValueError):  # other parameters, or none that Python knows of
        return False
    return True


def initial_parts(function: Callable[..., object], shape: tuple[int, ...], dtype: DTypeLike, counts: Sequence[int],
                  attempted: str) -> list[Any]:
    """The initial value of each shard: the rows that `function` returns for it, or its part of all rows.

    A function may ignore `partition_shape`, and return the whole array each time.

    Args:
        function: called with `partition_shape`, the shape of a shard, and `partition_offset`, where it begins.
        shape, dtype: of the variable.
        counts: how many rows each shard has.
        attempted: the call, for the message.

    Returns:
        An array for each shard, of shape (rows of the shard, *shape[1:]).

    Raises:
        RD04: an array of neither the shape of the shard nor that of the variable.  RD05, RD25: as `to_array`.
    """
    parts = []
    for begin, end in pairwise(accumulate(counts, initial=0)):
        part = (end - begin, *shape[1:])
        value = function(partition_shape=part, partition_offset=(begin, *[0] * len(shape[1:])))
        array = to_array(value, dtype, "initial_value", attempted)
        if array.shape not in (part, shape):
            raise errors.error("RD04", attempted, f"the function for the initial value returned an array of shape "
                               f"{array.shape} for rows {begin} to {end - 1} of shape {shape}",
                               f"Return an array of the shape that it is asked for: partition_shape is {part}.")
        parts.append(array if array.shape == part else array[begin:end])
    return parts


def _parts(sizes: Sequence[int], axis: int, count: int) -> list[int]:
    # A variable without rows is one shard.
    parts = [1] * len(sizes)
    parts[axis] = max(1, min(count, sizes[axis]))
    return parts


def _itemsize(dtype: DTypeLike, of_text: int) -> int:
    dtype_of_elements = numpy_dtype(dtype)
    return of_text if dtype_of_elements.kind in "SUO" else dtype_of_elements.itemsize


def _positive(attempted: str, name: str, value: object) -> int:
    number = integer(value, name, attempted)
    if number < 1:
        raise errors.error("RD34", attempted, f"{name} is {number}", "Pass 1 or more.")
    return number


def _checked(attempted: str, shape: Sequence[int], axis: int) -> tuple[list[int], int]:
    # The shape as a list, and the axis counted from the front.
    stated = [as_integer(n) for n in shape] if isinstance(shape, (list, tuple)) else [None]
    sizes = [n for n in stated if n is not None]
    if len(sizes) < len(stated):
        raise errors.error("RD34", attempted, f"the shape is {shape!r}", "Pass a tuple of ints: a variable whose "
                           "shape is not known cannot be split.")
    axis = integer(axis, "axis", attempted)
    if not -len(sizes) <= axis < len(sizes):
        raise errors.error("RD34", attempted, f"the axis is {axis} and the shape {tuple(sizes)}",
                           "Pass an axis that the shape has; a scalar cannot be split.")
    return sizes, axis % len(sizes)
