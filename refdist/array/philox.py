"""Philox4x32-10, and how TensorFlow converts its bits to numbers.

A block of four 32-bit words is a function of a 64-bit key and a 128-bit counter, so any part of a stream can be
computed without what comes before it.  NumPy's Philox is a different generator, with words of 64 bits.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
How words become numbers was observed on TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refdist.array import libm

_U64 = np.uint64
_WORD, _LOW = _U64(32), _U64(0xFFFFFFFF)
# Constants of the paper: two multipliers, and the increments of the halves of the key per round.
_MULTIPLIERS = _U64(0xD2511F53), _U64(0xCD9E8D57)
_GROWTH = _U64(0x9E3779B9), _U64(0xBB67AE85)
_ROUNDS = 10
# The key with which two seeds are mixed.
_MIXING = 0x02461E293EC8F720
# Counters reserved for each number; a distribution that rejects values needs several.
RESERVED = 256

# Blocks that are computed together: what the rounds hold fits into the caches of a core.
_AT_ONCE = 16384

# Random bits fill the mantissa of a float in [1, 2): unsigned dtype, bits of the mantissa, biased exponent of 1.0.
_FLOATS = {np.dtype(np.float16): (np.uint16, 10, 15), np.dtype(np.float32): (np.uint32, 23, 127),
           np.dtype(np.float64): (np.uint64, 52, 1023)}


def blocks(key: int, counter: int, count: int, every: int = 1) -> Any:
    """The words of `count` blocks.

    Args:
        key: 64 bits.
        counter: that of the first block, 128 bits.
        count: how many blocks.
        every: the distance between the counters of two blocks.

    Returns:
        uint32, shape [count, 4].
    """
    words = np.empty((count, 4), np.uint32)
    for start in range(0, count, _AT_ONCE):
        part = words[start:start + _AT_ONCE]
        _fill(part, key, counter + start * every, every)
    return words


def _fill(blocks: NDArray[np.uint32], key: int, counter: int, every: int) -> None:
    steps = np.arange(len(blocks), dtype=_U64) * _U64(every)
    low = _U64(counter & 2**64 - 1) + steps
    high = _U64(counter >> 64 & 2**64 - 1) + (low < steps)
    words = [low & _LOW, low >> _WORD, high & _LOW, high >> _WORD]
    first, second = _U64(key & 2**32 - 1), _U64(key >> 32)
    for _ in range(_ROUNDS):
        left, right = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [right >> _WORD ^ words[1] ^ first, right & _LOW, left >> _WORD ^ words[3] ^ second, left & _LOW]
        first, second = first + _GROWTH[0] & _LOW, second + _GROWTH[1] & _LOW
    for column, word in enumerate(words):
        blocks[:, column] = word


def mixed(first: int, second: int) -> tuple[int, int]:
    """The key and the counter of the stream of which TensorFlow's stateless functions take numbers.

    Args:
        first, second: the seed, 64 bits each.
    """
    words = blocks(_MIXING, first | second << 64, 1)[0].tolist()
    return words[0] | words[1] << 32, words[2] << 64 | words[3] << 96


def words(key: int, counter: int) -> Iterator[int]:
    """The words of a stream, one at a time: ints below 2**32.

    Args:
        key, counter: the stream, and the position in it.
    """
    count = 1
    while True:
        yield from blocks(key, counter, count).reshape(-1).tolist()
        counter += count
        count = min(2 * count, _AT_ONCE)


def bits(key: int, counter: int, count: int, size: int) -> Any:
    """Random bits.

    Args:
        key, counter: the stream, and the position in it.
        count: how many numbers.
        size: bytes of a number, 4 or 8.

    Returns:
        uint32 or uint64, shape [count].
    """
    words = blocks(key, counter, -(-count * size // 16))
    if size == 4:
        return words.reshape(-1)[:count]
    pairs = words.reshape(-1, 2).astype(_U64)
    return (pairs[:, 0] | pairs[:, 1] << _WORD)[:count]


def uniform(key: int, counter: int, count: int, dtype: np.dtype[np.generic]) -> Any:
    """Floats in [0, 1) of a dtype, shape [count]."""
    if dtype.itemsize < 8:
        return _floats(bits(key, counter, count, 4), dtype)
    words = bits(key, counter, count, 8)
    return _floats(words << _WORD | words >> _WORD, dtype)


def normal(key: int, counter: int, count: int, dtype: np.dtype[np.generic]) -> Any:
    """Floats of the standard normal distribution, shape [count]; float16 is rounded from float32."""
    wide = _wide(dtype)
    words = blocks(key, counter, -(-count * wide.itemsize // 16))
    return _box_muller(words, wide).reshape(-1)[:count].astype(dtype)


def truncated_normal(key: int, counter: int, count: int, dtype: np.dtype[np.generic]) -> Any:
    """Floats of the standard normal distribution between -2 and 2, shape [count].

    The numbers are drawn in groups as large as a block.  Each group has its own counters, and takes the first values of
    their blocks that lie within the bounds.
    """
    wide = _wide(dtype)
    group = 16 // wide.itemsize
    rows = -(-count // group)
    taken = np.zeros((rows, group), wide)
    accepted = np.zeros(rows, np.int64)
    every = group * RESERVED // 4
    step = 0
    while (accepted < group).any():
        drawn = _box_muller(blocks(key, counter + step, rows, every), wide)
        for column in drawn.T:
            fits = (np.abs(column) < 2) & (accepted < group)
            taken[fits, accepted[fits]] = column[fits]
            accepted += fits
        step += 1
    return taken.reshape(-1)[:count].astype(dtype)


def _wide(dtype: np.dtype[np.generic]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


def _floats(words: NDArray[np.unsignedinteger], dtype: np.dtype[np.generic]) -> Any:
    unsigned, mantissa, exponent = _FLOATS[dtype]
    filled = words.astype(unsigned)
    filled &= unsigned((1 << mantissa) - 1)
    filled |= unsigned(exponent << mantissa)
    numbers = filled.view(dtype)
    numbers -= dtype.type(1)
    return numbers


def _box_muller(words: NDArray[np.unsignedinteger], dtype: np.dtype[np.generic]) -> Any:
    # [n, 4] words to [n, 4] floats, or [n, 2] doubles.
    values = np.empty((len(words), 16 // dtype.itemsize), dtype)
    for start in range(0, len(words), _AT_ONCE):
        _fill_normal(values[start:start + _AT_ONCE], words[start:start + _AT_ONCE])
    return values


def _fill_normal(values: NDArray[Any], words: NDArray[np.unsignedinteger]) -> None:
    dtype = values.dtype
    if dtype.itemsize == 4:
        numbers = _floats(words, dtype)
    else:
        pairs = words.astype(_U64)
        numbers = _floats(pairs[:, ::2] << _WORD | pairs[:, 1::2], dtype)
    radius, angle = np.maximum(numbers[:, ::2], dtype.type(1e-7)), numbers[:, 1::2]
    angle = (2.0 * np.pi * angle.astype(np.float64)).astype(dtype)
    if dtype.itemsize == 4:
        logarithm, (sine, cosine) = libm.log(radius), libm.sincos(angle)
    else:
        logarithm, sine, cosine = np.log(radius), np.sin(angle), np.cos(angle)
    length = np.sqrt(dtype.type(-2) * logarithm)
    np.multiply(sine, length, out=values[:, ::2])
    np.multiply(cosine, length, out=values[:, 1::2])
