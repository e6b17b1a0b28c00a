"""What happens at each moment at which Python may call a signal handler, one after another."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from types import FrameType


def interrupted(number: int, call: Callable[[], object], handler: Callable[[], object],
                counts: Callable[[FrameType], bool] = lambda frame: True) -> bool:
    """Makes a call, in the middle of which `handler` is called: at the moment with this number.

    A moment is where a function begins, or where a call of C has returned.

    Args:
        counts: whether moments in a frame count.

    Returns:
        Whether there were so many moments.
    """
    moments = itertools.count()

    def look(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return") and counts(frame) and next(moments) == number:
            sys.setprofile(None)
            handler()

    gc.disable()  # what it calls has its own moments, and swallows exceptions
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return next(moments) > number


def interrupt() -> None:
    """What Python's handler of Ctrl-C does."""
    raise KeyboardInterrupt


def time_is_up() -> None:
    """What a program's own handler of SIGALRM may do."""
    raise TimeoutError
