"""Lines to and from a process that cannot be trusted.

The suite never waits without a limit, never reads without one, and never writes without reading.  One loop (`_move`)
moves the three pipes, so that a process that does not read while it prints, or prints where it should read, runs out
of time instead of blocking the suite.

The process leads a session of the operating system: the keys of the terminal do not reach it, and all that it starts
can be killed with it (where the system tells of which session a process is), also what has a process group of its own,
and what has a session of its own, as the processes of torchrun have, and is known by a variable of its environment.
It is killed in two steps, because launchers (mpiexec) have processes elsewhere to end, and `child.py` tells where it
hangs.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .notation import cut, on_one_line, printable

GRACE = 2.0  # seconds between being asked to end and being killed
ENDING = 5.0  # seconds in which a process ends whose output has ended, on a busy machine
LARGEST = 8 << 20  # bytes of a line
KEPT = 4000  # bytes of what is printed that are kept
PIECE = 1 << 16
MARK = "REFDIST_STARTED_BY"  # a variable of the environment, by which a process knows who started it
TICK = 0.1  # seconds between two looks at whether the process has ended


class Broken(Exception):
    """The conversation is broken: what the process will say next would be an answer to an unknown question."""


class Process:
    """A process that is sent messages and answers with messages, JSON objects on a line each.

    Args:
        command: what starts it.
        kept: how many bytes of what it prints are kept.
        environment: variables that it has besides those of this process.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], kept: int = KEPT, environment: Mapping[str, str] | None = None) -> None:
        self._limit = kept
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
                                         env={**os.environ, **(environment or {}), MARK: self._mark})
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._selector = selectors.DefaultSelector()
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        for pipe in (self._stdout, self._stderr):
            self._selector.register(pipe, selectors.EVENT_READ)
        self._unsent, self._unread = b"", bytearray()
        self._kept, self._count, self._errors = b"", 0, b""
        self._deaf, self._over = False, False

    def listens(self) -> bool:
        """Whether it has not ended, and can be sent something."""
        poll = select.poll()
        poll.register(self._stdin, 0)
        return self._alive() and not poll.poll(0)

    def send(self, message: Mapping[str, object]) -> None:
        """Takes a message, which is written while the answer is waited for."""
        if not self._unsent:
            self._selector.register(self._stdin, selectors.EVENT_WRITE)
        self._unsent += json.dumps(message).encode() + b"\n"

    def receive(self, deadline: float, late: str) -> dict[str, Any]:
        """The next message; lines that are none are kept as printed.

        Args:
            deadline: until when to wait, on the monotonic clock.
            late: what to say when it has passed.

        Raises:
            Broken: there is no message, or a line that should be one and is not.
        """
        while True:
            line = self.line(deadline, late).strip()
            if b"\0" in line:
                raise Broken(f"a line that is not UTF-8: {cut(line)}")
            if not line.startswith(b"{"):
                self.keep(line)
                continue
            try:
                message = json.loads(line.decode(), parse_constant=_refused)
            except UnicodeDecodeError:
                raise Broken(f"a line that is not UTF-8: {cut(line)}") from None
            except (ValueError, RecursionError) as error:
                raise Broken(f"a line that is not JSON ({on_one_line(str(error))}): {cut(line)}") from None
            assert isinstance(message, dict)
            return message

    def line(self, deadline: float, late: str) -> bytes:
        """The next line of its standard output, whatever it is, without its end and the mark of its encoding.

        Raises:
            Broken: there is none before the deadline, or none will come.
        """
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = len(self._unread)
            if seen > LARGEST:
                raise Broken(f"a line of more than {LARGEST:,} bytes: {cut(bytes(self._unread[:PIECE]))}")
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise Broken(late)
            moved = self._move(min(remaining, TICK))
            if self._deaf:
                raise Broken(self._how_it_ended("it has closed its standard input"))
            # What it wrote last may have arrived between the two looks.
            ended = not moved and not self._alive() and not self._move(0)
            if ended or self._stdout not in self._selector.get_map():
                raise Broken(self._how_it_ended("it has closed its standard output"))
        line = bytes(self._unread[:end]).removeprefix(codecs.BOM_UTF8)
        del self._unread[:end + 1]
        return line

    def keep(self, line: bytes) -> None:
        """Keeps a line that is not an answer, as printed."""
        if line:
            self._print(line + b"\n")

    def printed(self) -> str:
        """What was printed since this was last called, the last part of it where it is long."""
        if not self._over:
            self._move(0)
        tail, count, self._kept, self._count = self._kept, self._count, b"", 0
        text = printable(tail.decode(errors="replace")).strip("\n")
        return text if count <= self._limit else f"({count:,} bytes; the last {self._limit:,}:)\n{text}"

    def errors(self) -> str:
        """The end of what it has printed to its standard error, whoever was told of it before."""
        return printable(self._errors.decode(errors="replace")).strip("\n")

    def end(self, now: bool) -> None:
        """Ends the process and all that it has started; it may end by itself first, unless `now`."""
        # What it still says answers nothing.
        self._over = True
        self._print(bytes(self._unread))
        if self._unsent:
            self._selector.unregister(self._stdin)
        self._stdin.close()
        if not now:
            self._wait(GRACE)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal_all(self._process.pid, self._mark, number)
            self._wait(GRACE)
        # A process that has left the session may hold the pipes, and write for ever.
        deadline = time.monotonic() + GRACE
        while self._move(0) and time.monotonic() < deadline:
            pass
        self._selector.close()
        self._stdout.close()
        self._stderr.close()

    def status(self) -> int | None:
        """The exit status, negative where a signal ended it; None while it has not ended."""
        return self._process.poll()

    def left_over(self) -> int:
        """How many processes that it has started are running, without itself."""
        return sum(number != self._process.pid for number, _ in members(self._process.pid, self._mark))

    def _alive(self) -> bool:
        return self._process.poll() is None

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._alive() and time.monotonic() < deadline:
            self._move(TICK / 2)

    def _move(self, timeout: float) -> bool:
        """Moves what can be moved within a time; whether anything could be."""
        ready = self._selector.select(timeout)
        for key, _ in ready:
            if key.fileobj is self._stdin:
                self._write()
                continue
            piece = os.read(key.fd, PIECE)
            if not piece:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._stdout and not self._over:
                self._unread += piece
            else:
                self._print(piece)
                if key.fileobj is self._stderr:
                    self._errors = (self._errors + piece)[-self._limit:]
        return bool(ready)

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent[:PIECE]):]
        except BrokenPipeError:
            self._unsent, self._deaf = b"", True
        if not self._unsent:
            self._selector.unregister(self._stdin)

    def _print(self, piece: bytes) -> None:
        self._kept = (self._kept + piece)[-self._limit:]
        self._count += len(piece)

    def _how_it_ended(self, otherwise: str) -> str:
        self._wait(ENDING)
        status = self._process.returncode
        if status is None:
            return otherwise
        if status >= 0:
            return f"it ended with exit status {status} before it had answered"
        names = {number.value: number.name for number in signal.Signals}
        return f"it was ended by {names.get(-status, f'signal {-status}')}"


def _refused(word: str) -> None:
    raise ValueError(f"JSON has no {word}; it is the text \"{word.replace('Infinity', 'inf').replace('NaN', 'nan')}\"")


def members(leader: int, mark: str) -> Iterator[tuple[int, int]]:
    """The processes of a session, and those that have its mark, each with its group, where the system tells."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, group, session = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            if state not in "XZ" and (int(session) == leader or
                                      f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name), int(group)


def signal_all(leader: int, mark: str, number: int) -> None:
    """Sends a signal to the processes of a session and to those that have its mark, to the group of its leader last."""
    for process, group in members(leader, mark):
        if group != leader:
            with contextlib.suppress(OSError):
                os.kill(process, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
