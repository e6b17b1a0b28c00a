"""Shapes as TensorFlow has them."""

from __future__ import annotations

from typing import Any

import numpy as np


class TensorShape(tuple[int | None, ...]):
    """A shape: a tuple that also has TensorFlow's methods.

    >>> import refdist.tf as tf
    >>> shape = tf.TensorShape([None, 3])
    >>> shape.rank, shape.as_list(), shape.is_compatible_with([2, 3]), shape == (None, 3)
    (2, [None, 3], True, True)

    Source: tf.TensorShape.
    """

    __slots__ = ()

    @property
    def rank(self) -> int:
        """The number of dimensions.

        Source: tf.TensorShape.rank.
        """
        return len(self)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """The lengths as a list.

        Source: tf.TensorShape.as_list.
        """
        return list(self)

    def num_elements(self) -> int | None:
        """How many elements it has; None where a length is unknown.

        Source: tf.TensorShape.num_elements.
        """
        known = [length for length in self if length is not None]
        return int(np.prod(known)) if len(known) == len(self) else None

    def is_fully_defined(self) -> bool:
        """Whether all lengths are known.

        Source: tf.TensorShape.is_fully_defined.
        """
        return None not in self

    def is_compatible_with(self, other: Any) -> bool:
        """Whether the other shape has as many dimensions, each as long, or unknown in one of the two.

        Args:
            other: a TensorShape, or a sequence of ints and None.

        Source: tf.TensorShape.is_compatible_with.
        """
        return len(self) == len(other) and all(
            None in (mine, theirs) or mine == theirs for mine, theirs in zip(self, other, strict=True))
