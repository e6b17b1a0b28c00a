"""The seed of the process, and the two seeds with which TensorFlow begins a stream of random numbers.

An operation has the seed of the process and one of its own; without a seed of its own it draws one by Python's
generator, which begins at the seed of the process.

Source: `tf.random.set_seed`, and observed on TensorFlow 2.21.
"""

from __future__ import annotations

import random

from refdist.runtime import Field

# Seeds are remainders of the largest int32; where a program sets none, all begin at TensorFlow's for operations alone.
_MODULUS = 2**31 - 1
UNSET = 87654321


class Seed:
    """The seed of the process, and the state of what is drawn from it, which begins anew when a program sets the seed.

    Args:
        number: the seed; None where the program has set none.

    Attributes:
        number: the seed.
        calls: draws the seeds of operations that have none of their own.
        used: how many counters each stream has used.
    """

    __slots__ = ("calls", "number", "used")

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.calls = random.Random(UNSET if number is None else number)
        self.used: dict[tuple[object, ...], int] = {}


of_the_process: Field[Seed] = Field("the seed of `tf.random.set_seed`, and the streams that begin at it", Seed,
                                    per_worker=True)


def of_operation(own: int | None) -> tuple[int, int]:
    """The seed of the process and that of an operation, at least one of them not 0.

    Args:
        own: the seed that the program gives the operation; None draws one.
    """
    seed = of_the_process.value
    if own is None:
        own = seed.calls.randint(0, _MODULUS)
    first, second = (UNSET if seed.number is None else seed.number) % _MODULUS, int(own) % _MODULUS
    return first, second or (0 if first else _MODULUS)


def stream(own: int | None) -> int | None:
    """The stream of Philox that these seeds begin: the first one is the key, the other the upper half of the counter.

    Args:
        own: as for `of_operation`.

    Returns:
        The key, and the other seed above its 64 bits; None where neither the program nor the operation has a seed.
    """
    if own is None and of_the_process.value.number is None:
        return None
    key, second = of_operation(own)
    return key | second << 64
