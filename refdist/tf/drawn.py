"""`tf.random`'s numbers that come of one seed for the process, TensorFlow's own where it calls functions eagerly.

The seed of the process and that of the call (`core/seeds.py`) decide the stream of Philox from which a call takes its
numbers.  Calls with the same seed, operation and dtype go on in one stream, which begins again with `set_seed`.

Source: observed on TensorFlow 2.21.  In a `tf.function` it numbers the operations of the graph instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refdist import errors
from refdist.array import philox
from refdist.core import seeds
from refdist.tf import stateless
from refdist.tf.conversion import tensor


def set_seed(seed: object) -> None:
    """Begins the random numbers of Keras and of `tf.random` again; NumPy's go on.

    Keras draws the seeds of layers from Python's own generator, which begins again, too.

    Raises:
        RD25: not an int.
    """
    if not isinstance(seed, int):
        raise errors.error("RD25", "tf.random.set_seed", f"got {errors.type_of(seed)}", "Pass an int.")
    import keras

    before = np.random.get_state()
    keras.utils.set_random_seed(seed)
    np.random.set_state(before)


def begin_again(seed: int) -> None:
    """Begins the numbers of `tf.random` again, and those of Keras not."""
    seeds.of_the_process.value = seeds.Seed(seed)


def _stream(operation: str, counters: int, seed: Any, dtype: str) -> tuple[int, int]:
    # The key and the counter for a call, which reserves so many counters.
    key, own = seeds.of_operation(seed)
    used = seeds.of_the_process.value.used
    name = operation, own, dtype
    before = used.get(name, 0)
    used[name] = before + counters
    return key, before + (own << 64)


def _floats(shape: Sequence[int], seed: Any, dtype: str, draw: Any) -> Any:
    count = math.prod(shape)
    wide = np.dtype("float32" if dtype == "bfloat16" else dtype)
    place = _stream(draw.__name__, count * philox.RESERVED, seed, dtype)
    return tensor(draw(*place, count, wide).reshape(shape), dtype)


def uniform(shape: Sequence[int], low: Any, high: Any, dtype: Any, seed: Any) -> Any:
    """Numbers from low, and below high.

    Raises:
        RD34: integers without a bound above, or with one that is not above low.
    """
    if not dtype.startswith("int"):
        return _floats(shape, seed, dtype, philox.uniform) * ((1 if high is None else high) - low) + low
    stateless.require_bounds(low, high, dtype, "tf.random.uniform")
    count = math.prod(shape)
    place = _stream("integers", count * philox.RESERVED, seed, dtype)
    words = philox.bits(*place, count, np.dtype(dtype).itemsize)
    return tensor(stateless.between(words, low, high).view(dtype).reshape(shape), dtype)


def normal(shape: Sequence[int], mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution."""
    return _floats(shape, seed, dtype, philox.normal) * stddev + mean


def truncated_normal(shape: Sequence[int], mean: Any, stddev: Any, dtype: Any, seed: Any) -> Any:
    """Numbers of a normal distribution that are at most two standard deviations from the mean."""
    return _floats(shape, seed, dtype, philox.truncated_normal) * stddev + mean


def shuffle(value: Any, seed: Any) -> Any:
    """The rows in another order."""
    count = len(value)
    words = philox.bits(*_stream("shuffle", -(-count // 4), seed, ""), count, 4)
    order = list(range(count))
    for place in range(count - 1):
        other = place + int(words[place]) % (count - place)
        order[place], order[other] = order[other], order[place]
    return value[np.array(order)]


def categorical(logits: Any, count: int, seed: Any) -> Any:
    """For each row of logits so many classes."""
    # A row takes numbers of two words in groups of four.
    counters = 8 * len(logits) * -(-count // 4) * philox.RESERVED
    return stateless.chosen(logits, count, *_stream("categorical", counters, seed, ""))
