"""Writing to a stream that others read, perhaps slowly, perhaps not at all: a report, or what a worker has printed.

A pipe that is full takes what fits, and what others write comes in between; so a text waits until the pipe has room for
all of it.  Where whoever made the pipe has set it so, a full one refuses (O_NONBLOCK), and a text is offered again.

Who watches a job must not be kept for ever by a reader that does not read, as `less` does until somebody presses a key.
It waits for one like any program; but when it is told to end, it ends soon, and what was not read by then is lost.

Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections.abc import Callable, Iterator

MOST = 1 << 16  # bytes that a launcher reads at once, and that an empty pipe takes
LAST_SECONDS = 1.0  # how long what is still to be written may take, when a process was told to end
_PAGE = 4096  # a pipe has room for so many of these, and begins a new one for what does not fit into the last
_AGAIN_SECONDS = 1e-3


def put(number: int, data: bytes, is_to_end: Callable[[], bool]) -> None:
    """Writes all of it.

    Args:
        number: of the file.
        data: what is written.
        told: whether this process was told to end.

    Raises:
        OSError: that is not possible, or nobody reads and this process was told to end.
    """
    until = 0.0

    def patient() -> bool:
        nonlocal until
        if is_to_end():
            until = until or time.monotonic() + LAST_SECONDS
            return time.monotonic() < until
        return True

    for part in parts(data):
        while part:
            if not has_room(number, len(part)):
                if not patient():
                    raise BlockingIOError("nobody reads")
                time.sleep(_AGAIN_SECONDS)
                continue
            try:
                part = part[os.write(number, part):]
            except BlockingIOError:
                if not patient():
                    raise
                time.sleep(_AGAIN_SECONDS)


def parts(data: bytes) -> Iterator[bytes]:
    """What is written at once: all of it, or parts that a pipe takes, and that end with lines."""
    while len(data) > MOST:
        end = data.rfind(b"\n", 0, MOST) + 1 or MOST
        yield data[:end]
        data = data[end:]
    yield data


def has_room(number: int, size: int) -> bool:
    """Whether so many bytes fit into a pipe that is not full; what is no pipe takes everything."""
    try:
        capacity = fcntl.fcntl(number, fcntl.F_GETPIPE_SZ)
    except OSError:
        return True
    waits: int = struct.unpack("i", fcntl.ioctl(number, termios.FIONREAD, b"\0\0\0\0"))[0]
    # Of two pages one after the other, at least one is filled.
    return not waits or waits + size <= capacity // 2 - _PAGE
