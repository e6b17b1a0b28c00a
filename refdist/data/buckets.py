"""`Dataset.bucket_by_sequence_length`: which bucket an element is in, and to which lengths it is padded there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.data import iterators
from refdist.data.facts import PEEK
from refdist.data.pipeline import Pipeline
from refdist.data.spec import TensorSpec

_METHOD = "bucket_by_sequence_length"


def number_of(element_length_func: Callable[..., object], ends: Sequence[int], *element: Any) -> int:
    """The bucket of an element: the first that begins at its length or before, and ends after it.

    Raises:
        RD25, RD34: the function does not return an integer.
    """
    length = iterators.as_integer(_METHOD, "element_length_func", element_length_func(*element))
    return next(number for number, (begin, end) in enumerate(pairwise([-math.inf, *ends, math.inf]))
                if begin <= length < end)


def filled(padded_shapes: Any, rows: Pipeline, ends: Sequence[int], bucket: int) -> Any:
    """The shapes to which elements of a bucket are padded, each open length the largest of the bucket.

    Raises:
        RD34: the last bucket, which has no largest, or several open lengths without `padded_shapes`.
    """
    if bucket == len(ends):
        raise errors.error("RD34", f"Dataset.{_METHOD}", "with pad_to_bucket_boundary an element is in the last "
                           "bucket, which has no boundary", "Add a boundary above all lengths.",
                           kind=errors.InvalidArgumentError)
    longest = ends[bucket] - 1
    if padded_shapes is not None:
        return _filled(padded_shapes, longest)
    shapes = [spec.shape if isinstance(spec, TensorSpec) and spec.shape is not None and spec.dtype != object
              else (None,) * np.ndim(leaf)
              for spec, leaf in zip(nest.flatten(rows.element_spec), nest.flatten(_first(rows)), strict=True)]
    if sum(shape.count(None) for shape in shapes) > 1:
        raise errors.error("RD34", f"Dataset.{_METHOD}", f"with pad_to_bucket_boundary the elements have the shapes "
                           f"{shapes}, of which several lengths are open", "Pass padded_shapes.")
    return [list(_filled(shape, longest)) for shape in shapes]


def _first(rows: Pipeline) -> object:
    return next(iter(rows.read(PEEK)))


def _filled(shapes: Any, longest: int) -> Any:
    if shapes is None or (isinstance(shapes, (int, np.integer)) and shapes == -1):
        return longest
    if isinstance(shapes, dict):
        return {key: _filled(shape, longest) for key, shape in shapes.items()}
    return tuple(_filled(shape, longest) for shape in shapes) if isinstance(shapes, Sequence) else shapes
