"""What counts as a number where a program passes one: a size, a count, an axis, the number of a task; seconds.

Programs compute such numbers.  `n // 2` is an int of Python, `np.prod(shape)` one of NumPy, `tf.constant(8)` an array
without dimensions, and each of them is as good as the others; from here on all are ints of Python.  A bool is not,
although Python calls it an int: where a number is asked for, True is a mistake.  A float is not either, even 2.0.
Seconds may be either, and are not negative.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from refdist import errors


def as_integer(value: object) -> int | None:
    """The integer as a Python int; None for anything else.

    Args:
        value: anything.

    >>> as_integer(2), as_integer(np.int64(2)), as_integer(np.array(2)), as_integer(2.0), as_integer(True)
    (2, 2, 2, None, None)

    Raises:
        RD19: a distributed value.
    """
    number: Any = value
    if isinstance(number, (bool, np.bool_)):
        return None
    try:
        return operator.index(number)
    except errors.RefdistError:
        raise
    except TypeError:
        # CuPy's arrays have no __index__, because it would wait for the GPU unnoticed.
        kind = getattr(getattr(number, "dtype", None), "kind", "")
        return int(number) if kind in ("i", "u") and getattr(number, "shape", None) == () else None


def integer(value: object, argument: str, attempted: str) -> int:
    """The value of an argument as a Python int.

    Args:
        value: anything.
        argument: what the caller calls it, for messages.
        attempted: what the program did, for messages.

    Raises:
        RD25: not an integer.
    """
    number = as_integer(value)
    if number is None:
        raise errors.error("RD25", attempted, f"{argument} is {value!r}, {errors.type_of(value)}", "Pass an int.")
    return number


def check_seconds(value: object, argument: str, attempted: str) -> None:
    """Demands a number of seconds, or None.

    Raises:
        RD34: it is neither, or below 0.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(
            value, (int, float, np.integer, np.floating)) or not value >= 0):
        raise errors.error("RD34", attempted, f"{argument} is {value!r}",
                           "Pass a number of seconds of at least 0, or None.")
