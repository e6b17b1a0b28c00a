"""What a worker prints in one call comes out at once and whole, beside what the others print.

Several things cut a text in two, and another worker's text comes in between.  To a pipe, Python writes when 8 KiB have
come together.  With line buffering, a `print` of two lines writes these and the end of the second one apart.  And a
pipe that is full takes what fits; the launcher reads that, and forwards it before the rest.

So a text is kept until its line ends, and is then written in one call, when the pipe has room for all of it.  The
launchers read 64 KiB at once; what is longer is written in parts that end with lines.  What C programs print has the
buffer of the C library, which keeps lines together too when it is told to.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
import time

from greenlet import getcurrent

from refdist.backends.mpi import pipes

_ROOM_SECONDS = 10.0  # how long a text waits for room; where nobody reads, a full pipe stops the writer in any case
_FULLY_BUFFERED, _LINE_BUFFERED = 0, 1  # _IOFBF and _IOLBF of stdio.h


def print_whole_texts() -> None:
    """From now on `sys.stdout` and `sys.stderr`, also where they are recorded, and those of C, print so."""
    # Where the program is recorded, `sys.stdout` is a stream that writes to another one.
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper) and not isinstance(getattr(stream.write, "__self__", None), _Whole):
            # In place, because other modules, such as logging, keep the stream itself.
            stream.flush()
            whole = _Whole(stream)
            vars(stream).update(write=whole.write, flush=whole.flush)
    with contextlib.suppress(AttributeError, ValueError):  # a C library that has other names
        library = ctypes.CDLL(None)
        stdout, purge = ctypes.c_void_p.in_dll(library, "stdout"), library["__fpurge"]
        library.malloc.restype = ctypes.c_void_p
        # Never freed: at the end of the process C writes what is in it, when Python has freed all of its own.
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(pipes.MOST)))
        library.fflush(stdout)
        # glibc keeps the lines of one call together only in a buffer of ours that has been written to.
        library.setvbuf(stdout, buffer, _FULLY_BUFFERED, pipes.MOST)
        library.putchar(ord(" "))
        purge(stdout)
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, pipes.MOST)


def flush() -> None:
    """Writes what the program has printed and not written yet, as far as that is possible."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed it or replaced it, and disks are full
            stream.flush()


class _Whole:
    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream
        self._write, self._flush = stream.write, stream.flush
        # By who has begun it: threads, and replicas, which take turns in the middle of a `print`.
        self._begun: dict[object, str] = {}

    def write(self, text: str) -> int:
        if not isinstance(text, str) or self._stream.closed:
            return self._write(text)  # which raises
        who = getcurrent()
        begun = self._begun.pop(who, "") + text
        # A carriage return shows at once, as with line buffering: it is how programs say how far they are.
        if begun.endswith("\n") or "\r" in text:
            self._print(begun)
            begun = ""
        elif len(begun) > pipes.MOST:
            end = begun.rfind("\n") + 1 or len(begun)
            self._print(begun[:end])
            begun = begun[end:]
        if begun:
            self._begun[who] = begun
        return len(text)

    def flush(self) -> None:
        while self._begun and not self._stream.closed:
            self._print(self._begun.pop(next(iter(self._begun))))
        self._flush()

    def _print(self, text: str) -> None:
        self._flush()  # what was written to its `buffer`
        number = self._stream.fileno()
        for part in pipes.parts(text.encode(self._stream.encoding, self._stream.errors or "strict")):
            _wait_for_room(number, len(part))
            while part:
                part = part[os.write(number, part):]


def _wait_for_room(number: int, size: int) -> None:
    until = time.monotonic() + _ROOM_SECONDS
    while not pipes.has_room(number, size) and time.monotonic() < until:
        time.sleep(1e-4)
