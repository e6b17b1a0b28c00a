"""The traceback of a worker that fails before it has a strategy, kept for its report.

Python prints it, and N workers that run one program print it N times, in pieces and without their names.  So until a
worker makes its strategy, what it writes to its standard error goes through its supervisor.  That passes everything on
at once, but for a traceback, which waits for what comes of it: if the worker ends, it is part of the report of that,
which is printed once for all workers that say the same; if not, it is passed on after HOLD_SECONDS.  With its strategy
the worker gets its own standard error back, and nothing stands between it and the launcher.

Standard library only, as supervisors.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

HOLD_SECONDS = 5.0  # in which a worker that has printed a traceback ends, on a busy machine
_MOST = 1 << 15  # bytes of what is kept; a report has to fit into a message
_AT_ONCE = 1 << 16
_READS = 64  # at the end, since what a worker has started may print without end
# As Python prints an exception, a group of some, and an error of syntax.
_BEGINS = re.compile(rb"\n(?:(?:  \+ Exception Group )?Traceback \(most recent call last\):|  File \")")


class LastWords:
    """What a worker writes to its standard error until it makes its strategy."""

    def __init__(self, pass_on: Callable[[bytes], object]) -> None:
        """Makes the pipe; `pass_on` writes to where the standard error leads."""
        self._pass_on = pass_on
        self._here, self._there = os.pipe()
        self._kept = b""
        self._line_begins = True
        self._until = float("inf")

    def become(self) -> int:
        """From now on the standard error of this process is the pipe; the number of what it was.

        Called in the worker, which gives the number to `give_back`.
        """
        own = os.dup(2)
        os.set_inheritable(own, True)
        os.dup2(self._there, 2)
        return own

    def source(self) -> int:
        """What becomes readable when there is something for `passed`; called in the supervisor."""
        os.close(self._there)
        os.set_blocking(self._here, False)
        return self._here

    def passed(self) -> bytes | None:
        """Passes on what has come, once; b"" when no more will come, None where there is nothing now."""
        try:
            data = os.read(self._here, _AT_ONCE)
        except BlockingIOError:
            return None
        if not data:
            return data
        if not self._kept:
            begin = _BEGINS.search((b"\n" if self._line_begins else b"-") + data)
            start = len(data) if begin is None else begin.start()
            if start:
                self._pass_on(data[:start])
            self._kept = data[start:]
            self._until = time.monotonic() + HOLD_SECONDS
        else:
            self._kept += data
        self._line_begins = data.endswith(b"\n")
        if len(self._kept) > _MOST:
            self.flush()
        return data

    def next(self) -> float:
        """When `flush` is to be called at the latest."""
        return self._until if self._kept else float("inf")

    def flush(self) -> None:
        """Passes on what is kept."""
        data, self._kept = self._kept, b""
        if data:
            self._pass_on(data)

    def drain(self) -> None:
        """Takes all that there is."""
        for _ in range(_READS):
            if not self.passed():
                break

    def taken(self) -> str:
        """The traceback that is kept, and not passed on any more; "" for none."""
        data, self._kept = self._kept, b""
        return data.decode(errors="replace").rstrip("\n") + "\n" * bool(data)


def give_back(own: int) -> None:
    """From now on the standard error of this process is what it was before `become`."""
    os.dup2(own, 2)
    os.close(own)
