"""`tf.random.stateless_*`: numbers that a shape and a seed decide, TensorFlow's own.

Two integers are mixed to the key and the counter of a stream of Philox, from which all numbers are taken.  The
algorithm is the one of TensorFlow's CPU and GPU; a TPU has another.

Source: observed on TensorFlow 2.21; its documents promise only that a seed gives the same numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.array import philox
from refdist.tf.conversion import tensor


def stream(seed: Any, attempted: str) -> tuple[int, int]:
    """The key and the counter that belong to a seed of two integers.

    Raises:
        RD34: the seed is none.
    """
    pair = np.asarray(seed)
    if pair.shape != (2,) or pair.dtype.kind not in "iu":
        raise errors.error("RD34", attempted, f"seed is {seed!r}", "Pass two integers: seed=[1, 2].",
                           kind=errors.InvalidArgumentError)
    first, second = (int(part) % 2**64 for part in pair)
    return philox.mixed(first, second)


def _drawn(draw: Callable[..., Any], shape: Any, seed: Any, dtype: str, attempted: str) -> Any:
    if dtype not in ("float16", "float32", "float64", "bfloat16"):
        raise errors.error("RD25", attempted, f"dtype is {dtype}", "Pass a dtype of floats.")
    count, place = math.prod(shape), stream(seed, attempted)
    if dtype == "bfloat16" and draw is philox.uniform:
        # Bits fill a mantissa of 7.
        return ((philox.bits(*place, count, 4) & 127) / np.float32(128)).reshape(shape)
    return draw(*place, count, np.dtype("float32" if dtype == "bfloat16" else dtype)).reshape(shape)


def fractions(shape: Sequence[int], seed: Any, dtype: str) -> Any:
    """Numbers from 0, and below 1."""
    return tensor(_drawn(philox.uniform, shape, seed, dtype, "tf.random.stateless_uniform"), dtype)


def normal(shape: Sequence[int], seed: Any, mean: Any, stddev: Any, dtype: str) -> Any:
    """Numbers of a normal distribution."""
    drawn = _drawn(philox.normal, shape, seed, dtype, "tf.random.stateless_normal")
    return tensor(drawn, dtype) * tensor(stddev, dtype) + tensor(mean, dtype)


def truncated_normal(shape: Sequence[int], seed: Any, mean: Any, stddev: Any, dtype: str) -> Any:
    """Numbers of a normal distribution that are at most two standard deviations from the mean."""
    drawn = _drawn(philox.truncated_normal, shape, seed, dtype, "tf.random.stateless_truncated_normal")
    return tensor(drawn, dtype) * tensor(stddev, dtype) + tensor(mean, dtype)


def uniform(shape: Sequence[int], seed: Any, low: Any, high: Any, dtype: str) -> Any:
    """Numbers from low, and below high.

    Raises:
        RD34: integers without a bound above, or with one that is not above low.
    """
    attempted = "tf.random.stateless_uniform"
    if "int" not in dtype:
        low, high = tensor(low, dtype), tensor(1 if high is None else high, dtype)
        return tensor(_drawn(philox.uniform, shape, seed, dtype, attempted), dtype) * (high - low) + low
    words = philox.bits(*stream(seed, attempted), math.prod(shape), np.dtype(dtype).itemsize)
    if low is None and high is None:
        return tensor(words.view(dtype).reshape(shape), dtype)
    require_bounds(low, high, dtype, attempted)
    return tensor(between(words, low, high).view(dtype).reshape(shape), dtype)


def require_bounds(low: Any, high: Any, dtype: str, attempted: str) -> None:
    """Requires that there are integers from low, and below high.

    Raises:
        RD34: there are none.
    """
    if None in (low, high) or not int(low) < int(high):
        raise errors.error("RD34", attempted, f"minval is {low} and maxval {high}, for {dtype}",
                           "Pass a minval below maxval.", kind=errors.InvalidArgumentError)


def between(words: Any, low: Any, high: Any) -> Any:
    """Random bits as integers from low, and below high, of as many bits."""
    kind = words.dtype.type
    return words % kind(int(high) - int(low)) + kind(int(low) % 2**(8 * words.dtype.itemsize))


def categorical(logits: Any, count: int, seed: Any, dtype: str) -> Any:
    """For each row of logits so many classes."""
    drawn = chosen(logits, count, *stream(seed, "tf.random.stateless_categorical"))
    return tensor(np.asarray(drawn), dtype)


def chosen(logits: Any, count: int, key: int, counter: int) -> Any:
    """For each row of logits so many classes, drawn from a stream."""
    numbers = np.asarray(logits, np.float64)
    sums = np.cumsum(np.exp(numbers - numbers.max(-1, keepdims=True)), -1)
    drawn = philox.uniform(key, counter, len(numbers) * count, np.dtype("float64")).reshape(-1, count) * sums[:, -1:]
    return tensor(np.stack([np.searchsorted(*pair, "right") for pair in zip(sums, drawn, strict=True)]), "int64")


def split(seed: Any, count: int) -> Any:
    """New seeds, a row for each, in the dtype of the seed."""
    return uniform((count, 2), seed, None, None, _whole(seed))


def fold_in(seed: Any, data: Any) -> Any:
    """A new seed of a seed and an integer, in the dtype of that."""
    first = uniform((), seed, None, None, _whole(data))
    return tensor([int(first), int(data)], _whole(data))


def _whole(value: Any) -> str:
    return "int64" if str(tensor(value).dtype).endswith("int64") else "int32"
