"""The state of a generator: three int64, a counter of 128 bits and a key of 64; how it is made and advanced."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from refdist import errors
from refdist.array import philox
from refdist.array.convert import frozen, is_array, to_numpy
from refdist.array.operators import ArrayOperators
from refdist.array.types import Array
from refdist.core.integers import as_integer

SIZE = 3
_MASK = 2**64 - 1


class Algorithm(Enum):
    """How random bits are generated: PHILOX, which AUTO_SELECT selects; THREEFRY is not supported.

    Source: tf.random.Algorithm.
    """

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def create_rng_state(seed: object, alg: object) -> Any:
    """Computes the state for a seed.

    Args:
        seed: an int, of which the lowest 192 bits are used; or up to three ints of 64 bits, padded with zeros in front.
        alg: "philox", or an Algorithm, or its number.

    Returns:
        int64, shape [3].

    >>> create_rng_state(1234, "philox"), create_rng_state([12, 34], "philox")
    (array([1234,    0,    0]), array([ 0, 12, 34]))

    Raises:
        RD20: the algorithm is ThreeFry.  RD25, RD34: the seed is not integers, or the algorithm is unknown.

    Source: tf.random.create_rng_state.
    """
    attempted = "create_rng_state"
    algorithm(alg, attempted)
    if isinstance(seed, int):
        words = _integers([seed >> 64 * i & _MASK for i in range(SIZE)], attempted)
    else:
        words = _integers(seed, attempted).reshape(-1)[:SIZE]
    return np.concatenate([np.zeros(SIZE - len(words), np.int64), words])


def algorithm(alg: object, attempted: str) -> int:
    """The number of an algorithm, which must be Philox.

    Raises:
        RD20: the algorithm is ThreeFry.  RD34: it is unknown.
    """
    if isinstance(alg, str):
        name = alg.strip().lower().replace("-", "").replace("_", "")
        member = next((member for member in Algorithm if member.name.lower().replace("_", "") == name), None)
    elif isinstance(alg, Algorithm):
        member = alg
    elif (number := as_integer(alg)) is not None:
        member = next((member for member in Algorithm if member.value == number), None)
    else:
        raise errors.error("RD25", attempted, f"alg is {alg!r}", "Pass \"philox\".")
    if member is None:
        raise errors.error("RD34", attempted, f"alg is {alg!r}", "Pass \"philox\".")
    if member is Algorithm.THREEFRY:
        raise errors.error("RD20", attempted, "refdist does not have the algorithm ThreeFry", "Pass \"philox\".")
    stated: int = member.value
    return stated


def _integers(value: object, attempted: str) -> Any:
    # Integers of 64 bits, signed or unsigned, as int64 with the same bits.
    if isinstance(value, ArrayOperators):
        value = value.numpy()
    try:
        array = to_numpy(value) if is_array(value) else np.asarray(value, None if hasattr(value, "dtype") else object)
        fits = array.dtype.kind in "iu" or all(
            isinstance(number, (int, np.integer)) and -2**63 <= number < 2**64 for number in array.reshape(-1))
    except (TypeError, ValueError, RuntimeError, errors.RefdistError):  # RuntimeError: a tensor without numbers
        fits = False
    if not fits:
        raise errors.error("RD25", attempted, f"got {value!r}", "Pass 64-bit ints.")
    if array.dtype == object:
        array = np.array([int(number) & _MASK for number in array.reshape(-1)], np.uint64).reshape(array.shape)
    return array.astype(np.int64)


def state_of(value: object, attempted: str) -> Any:
    """Three integers as a state, int64 of shape [3].

    Raises:
        RD25, RD34: they are not integers, or not three.
    """
    state = _integers(value, attempted)
    check(state.shape, state.dtype, attempted)
    return state


def check(shape: Sequence[int | None], dtype: np.dtype[np.generic], attempted: str) -> None:
    """Raises unless an array of this shape and dtype is a state.

    Raises:
        RD34: it is not.
    """
    if tuple(shape) != (SIZE,) or dtype != np.int64:
        raise errors.error("RD34", attempted, f"the state has shape {tuple(shape)} and dtype {dtype}",
                           f"Pass {SIZE} int64: two for the counter, one for the key.")


def of_key_counter(key: object, counter: object, attempted: str) -> Any:
    """The state with this key and this counter.

    Raises:
        RD25, RD34: they are not integers, or not one and two.
    """
    words, last = _integers(counter, attempted), _integers(key, attempted)
    if words.shape != (SIZE - 1,) or last.ndim:
        raise errors.error("RD34", attempted, f"the counter has shape {words.shape} and the key {last.shape}",
                           "Pass two ints as the counter and one as the key.")
    return np.append(words, last)


def advanced(state: Array, count: int) -> Any:
    """The state after `count` numbers were drawn, int64 of shape [3]."""
    low, high, key = map(int, to_numpy(state).view(np.uint64))
    counter = (low | high << 64) + count * philox.RESERVED
    return frozen(np.array([counter & _MASK, counter >> 64 & _MASK, key], np.uint64).view(np.int64))


