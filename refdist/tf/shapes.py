"""Shapes as TensorFlow has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.core.integers import as_integer
from refdist.missing import NO_PROTOS, OF_SPECS, lacks


def sizes(shape: Any) -> tuple[int, ...]:
    """The lengths of a shape that is all known; a single int is a shape of one dimension.

    Raises:
        RD25: it is none.
    """
    whole = as_integer(shape)
    listed = [whole] if whole is not None else [*map(as_integer, shape)] if isinstance(shape, Iterable) else [None]
    known = tuple(size for size in listed if size is not None and size >= 0)
    if len(known) != len(listed):
        raise errors.error("RD25", "a shape", f"got {shape!r}", "Pass a tuple of ints of 0 or more.",
                           kind=errors.MisfitError)
    return known


@lacks({**OF_SPECS, "as_proto": NO_PROTOS})
class TensorShape(tuple[int | None, ...]):
    """A shape: a tuple that also has TensorFlow's methods.

    Args:
        dims: the lengths, None for one that is unknown; None for a shape whose rank is unknown.

    >>> import refdist.tf as tf
    >>> shape = tf.TensorShape([None, 3])
    >>> shape.rank, shape.as_list(), shape.is_compatible_with([2, 3]), shape == (None, 3)
    (2, [None, 3], True, True)
    >>> shape, shape[1:], [8] + shape
    (TensorShape([None, 3]), TensorShape([3]), TensorShape([8, None, 3]))

    Raises:
        RD25: something else.

    Source: tf.TensorShape.
    """

    _is_ranked: bool

    def __new__(cls, dims: Any) -> TensorShape:
        """The shape of the lengths."""
        lengths = (dims,) if isinstance(dims, int) else () if dims is None else dims
        try:
            shape = super().__new__(cls, (None if n is None else n.__index__() for n in lengths))
        except (TypeError, AttributeError) as error:
            raise errors.error("RD25", "tf.TensorShape", f"got {dims!r}", "Pass a list of ints and None.") from error
        shape._is_ranked = dims is not None
        return shape

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None where it is unknown.

        Source: tf.TensorShape.rank.
        """
        return len(self) if self._is_ranked else None

    ndims = rank

    @property
    def dims(self) -> list[int | None] | None:
        """The lengths as a list; None where the rank is unknown.

        Source: tf.TensorShape.dims.
        """
        return list(self) if self._is_ranked else None

    def as_list(self) -> list[int | None]:
        """The lengths as a list.

        Raises:
            RD34: the rank is unknown.

        Source: tf.TensorShape.as_list.
        """
        if not self._is_ranked:
            raise errors.error("RD34", "TensorShape.as_list", "the rank is unknown", "Ask `rank` first.")
        return list(self)

    def num_elements(self) -> int | None:
        """How many elements it has; None where a length is unknown.

        Source: tf.TensorShape.num_elements.
        """
        known = [length for length in self if length is not None]
        return int(np.prod(known)) if self.is_fully_defined() else None

    def is_fully_defined(self) -> bool:
        """Whether all lengths are known.

        Source: tf.TensorShape.is_fully_defined.
        """
        return self._is_ranked and None not in self

    def is_compatible_with(self, other: Any) -> bool:
        """Whether the other shape has as many dimensions, each as long, or unknown in one of the two.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Source: tf.TensorShape.is_compatible_with.
        """
        other = _shape(other)
        return not (self._is_ranked and other._is_ranked) or (len(self) == len(other) and all(
            None in (ours, theirs) or ours == theirs for ours, theirs in zip(self, other, strict=True)))

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raises unless the other shape is compatible.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Raises:
            RD04: it is not.

        Source: tf.TensorShape.assert_is_compatible_with.
        """
        self._demand(self.is_compatible_with(other), f"{_shape(other)} is not compatible with {self}")

    def assert_has_rank(self, rank: int) -> None:
        """Raises unless there are as many dimensions, or the rank is unknown.

        Args:
            rank: their number.

        Raises:
            RD04: there are more or fewer.

        Source: tf.TensorShape.assert_has_rank.
        """
        self._demand(self.rank in (None, rank), f"the shape {self} has rank {self.rank}, not {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Raises unless the other shape has as many dimensions, or one of the ranks is unknown.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Raises:
            RD04: it has more or fewer.

        Source: tf.TensorShape.assert_same_rank.
        """
        other = _shape(other)
        self._demand(None in (self.rank, other.rank) or self.rank == other.rank,
                     f"{self} and {other} have different ranks")

    def assert_is_fully_defined(self) -> None:
        """Raises unless all lengths are known.

        Raises:
            RD04: one is not.

        Source: tf.TensorShape.assert_is_fully_defined.
        """
        self._demand(self.is_fully_defined(), f"the shape {self} is not fully defined")

    def merge_with(self, other: Any) -> TensorShape:
        """The shape with the lengths of the other where its own are unknown.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Raises:
            RD04: the two are not compatible.

        Source: tf.TensorShape.merge_with.
        """
        self.assert_is_compatible_with(other)
        other = _shape(other)
        if not (self._is_ranked and other._is_ranked):
            return self if self._is_ranked else other
        return TensorShape([theirs if ours is None else ours for ours, theirs in zip(self, other, strict=True)])

    def concatenate(self, other: Any) -> TensorShape:
        """The dimensions of this shape, followed by those of another.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Source: tf.TensorShape.concatenate.
        """
        other = _shape(other)
        return TensorShape([*self, *other] if self._is_ranked and other._is_ranked else None)

    def with_rank(self, rank: int) -> TensorShape:
        """The shape, if it has as many dimensions; as many that are unknown, where its rank is.

        Args:
            rank: their number.

        Raises:
            RD04: it has more or fewer.

        Source: tf.TensorShape.with_rank.
        """
        self.assert_has_rank(rank)
        return self if self._is_ranked else TensorShape([None] * rank)

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """The shape, if it has as many dimensions or more, or its rank is unknown.

        Args:
            rank: their number.

        Raises:
            RD04: it has fewer.

        Source: tf.TensorShape.with_rank_at_least.
        """
        self._demand(self.rank is None or self.rank >= rank, f"the shape {self} has rank {self.rank}, not {rank} or "
                     "more")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """The shape, if it has as many dimensions or fewer, or its rank is unknown.

        Args:
            rank: their number.

        Raises:
            RD04: it has more.

        Source: tf.TensorShape.with_rank_at_most.
        """
        self._demand(self.rank is None or self.rank <= rank, f"the shape {self} has rank {self.rank}, not {rank} or "
                     "less")
        return self

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The shape with None where the two lengths differ; of unknown rank where the ranks do.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Source: tf.TensorShape.most_specific_compatible_shape.
        """
        other = _shape(other)
        if self.rank is None or self.rank != other.rank:
            return TensorShape(None)
        return TensorShape([ours if ours == theirs else None for ours, theirs in zip(self, other, strict=True)])

    def _demand(self, holds: bool, problem: str) -> None:
        if not holds:
            raise errors.error("RD04", "TensorShape", problem, "Correct the shape, or reshape the tensor.")

    def __getitem__(self, key: Any) -> Any:
        part: Any = super().__getitem__(key)
        return TensorShape(part) if isinstance(key, slice) else part

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return _shape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self._is_ranked == other._is_ranked and tuple(self) == tuple(other)
        return self._is_ranked and isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __bool__(self) -> bool:
        return self._is_ranked

    def __str__(self) -> str:
        return str(tuple(self)) if self._is_ranked else "<unknown>"

    def __repr__(self) -> str:
        return f"TensorShape({list(self) if self._is_ranked else None})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (list(self) if self._is_ranked else None,)


def _shape(value: Any) -> TensorShape:
    return value if isinstance(value, TensorShape) else TensorShape(value)


def set_shape(tensor: Any, shape: Any) -> None:
    """Checks what a program states of the shape of a tensor, of which every length is known here.

    Args:
        tensor: a tensor.
        shape: a TensorShape, or a sequence of ints and None.

    Raises:
        RD04: the tensor has another shape.

    Source: tf.Tensor.set_shape.
    """
    stated = TensorShape(shape)
    if not stated.is_compatible_with(tensor.shape):
        raise errors.error("RD04", "Tensor.set_shape", f"the tensor has shape {tuple(tensor.shape)}, and the program "
                           f"says {stated}", "State the shape that it has, with None for what may vary.")
