"""The 64 bits by which TensorFlow tells texts apart: FarmHash's Fingerprint64.

Source: G. Pike, FarmHash (github.com/google/farmhash);
compared with `tf.strings.to_hash_bucket_fast` of TensorFlow 2.21.
"""

from __future__ import annotations

_ALL = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _word(text: bytes, place: int, size: int = 8) -> int:
    return int.from_bytes(text[place:place + size], "little")


def _rotated(word: int, by: int) -> int:
    word &= _ALL
    return (word >> by | word << 64 - by) & _ALL


def _mixed(word: int) -> int:
    word &= _ALL
    return word ^ word >> 47


def _pair(first: int, second: int, factor: int) -> int:
    middle = _mixed((first ^ second) * factor)
    return _mixed((second & _ALL ^ middle) * factor) * factor & _ALL


def _short(text: bytes) -> int:
    size = len(text)
    factor = _K2 + size * 2
    if size >= 8:
        first, last = _word(text, 0) + _K2, _word(text, size - 8)
        return _pair((_rotated(last, 37) * factor + first) & _ALL, (_rotated(first, 25) + last) * factor & _ALL, factor)
    if size >= 4:
        return _pair(size + (_word(text, 0, 4) << 3), _word(text, size - 4, 4), factor)
    if size:
        head, tail = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
        return _mixed(head * _K2 ^ tail * _K0) * _K2 & _ALL
    return _K2


def _medium(text: bytes) -> tuple[int, int, int, int]:
    # Two words of the first and the last 16 bytes, the product with which they were made, and the first factor.
    size = len(text)
    factor = _K2 + size * 2
    first = _word(text, 0) * (_K1 if size <= 32 else _K2) & _ALL
    second, third = _word(text, 8), _word(text, size - 8) * factor
    sum_ = _rotated(first + second, 43) + _rotated(third, 30) + _word(text, size - 16) * _K2 & _ALL
    return sum_, first + _rotated(second + _K2, 18) + third & _ALL, first, factor


def _long(text: bytes) -> int:
    sum_, other, first, factor = _medium(text)
    other = _pair(sum_, other, factor)
    fifth, sixth = _word(text, 16) * factor & _ALL, _word(text, 24)
    seventh = (sum_ + _word(text, len(text) - 32)) * factor & _ALL
    eighth = (other + _word(text, len(text) - 24)) * factor & _ALL
    return _pair(_rotated(fifth + sixth, 43) + _rotated(seventh, 30) + eighth & _ALL,
                 fifth + _rotated(sixth + first, 18) + seventh & _ALL, factor)


def _part(text: bytes, place: int, low: int, high: int) -> tuple[int, int]:
    words = [_word(text, place + 8 * number) for number in range(4)]
    low += words[0]
    high = _rotated(high + low + words[3], 21)
    inner = low + words[1] + words[2]
    return inner + words[3] & _ALL, high + _rotated(inner, 44) + low & _ALL


def _parts(text: bytes) -> int:
    size = len(text)
    x, y = 81, 81 * _K1 + 113 & _ALL
    z = _mixed(y * _K2 + 113) * _K2 & _ALL
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(text, 0) & _ALL

    def round_(place: int, factor: int, weight: int) -> None:
        nonlocal x, y, z, v, w
        x = _rotated(x + y + v[0] + _word(text, place + 8), 37) * factor
        y = _rotated(y + v[1] + _word(text, place + 48), 42) * factor
        x = (x ^ w[1] * weight) & _ALL
        y = y + v[0] * weight + _word(text, place + 40) & _ALL
        z = _rotated(z + w[0], 33) * factor & _ALL
        v = _part(text, place, v[1] * factor, x + w[0])
        w = _part(text, place + 32, z + w[1], y + _word(text, place + 16))
        x, z = z, x

    end = (size - 1) // 64 * 64
    for place in range(0, end, 64):
        round_(place, _K1, 1)
    factor = _K1 + ((z & 255) << 1)
    first = w[0] + (size - 1 & 63)
    v = v[0] + first, v[1]
    w = first + v[0], w[1]
    round_(end + (size - 1 & 63) - 63, factor, 9)
    return _pair(_pair(v[0], w[0], factor) + _mixed(y) * _K0 + z & _ALL, _pair(v[1], w[1], factor) + x & _ALL, factor)


def fingerprint(text: bytes) -> int:
    """The 64 bits of a text.

    >>> fingerprint(b"a") % 10
    9
    """
    if len(text) <= 16:
        return _short(text)
    if len(text) <= 32:
        sum_, other, _, factor = _medium(text)
        return _pair(sum_, other, factor)
    return _long(text) if len(text) <= 64 else _parts(text)
