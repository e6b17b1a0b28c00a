"""Who is lost: processes that died, stopped, or are elsewhere; and how a failed job ends.

Nothing here is sent through MPI, which cannot be relied on when a process is gone: processes of one host are
looked up in /proc, the others are asked over UDP by a thread that answers whatever the program is doing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from refdist.core import tracebacks
from refdist.core.launcher import launched

HOLD_SECONDS = 10.0  # how long a supervisor keeps its place after its worker was killed
ANSWER_SECONDS = 1.0
FORWARD_SECONDS = 0.3


def supervise() -> None:
    """Continues in a child process and leaves a parent behind that outlives it.

    MPICH's launcher kills all processes as soon as one of its own dies by a signal, before the others can say a
    word.  The parent keeps the launcher's process alive until they have.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, lambda received, _: _forward(child, received))
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except InterruptedError:
            continue
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        name = signal.Signals(-code).name
        os.write(2, f"[worker {_launcher_rank()}] was killed by {name}\n".encode())
        time.sleep(HOLD_SECONDS)
        code = 128 - code
    os._exit(code)


def _forward(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _launcher_rank() -> str:
    found = launched()
    return "?" if found is None else str(found.rank)


class Watch:
    """Answers questions about this process, and asks the others.

    Attributes:
        given_up: the last meeting that another worker has given up waiting for; -1 for none, because 0 is starting.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.count = 0
        self.given_up = -1
        self._call: object = None
        self._peers: list[tuple[str, int, int]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        threading.Thread(target=self._answer, daemon=True, name="refdist watch").start()

    def entered(self, count: int, call: object) -> None:
        """Notes the meeting that this worker has come to."""
        self.count, self._call = count, call

    def status(self) -> str:
        """The last meeting that this worker came to, and its line."""
        return "starting" if self._call is None else str(self._call)

    def endpoint(self) -> tuple[str, int, int]:
        """(host, port, process id), to be told to the others."""
        return socket.gethostname(), self._socket.getsockname()[1], os.getpid()

    def set_peers(self, cards: list[tuple[str, int, int]]) -> None:
        """Takes the cards of all workers, in worker order."""
        self._peers = cards

    def _answer(self) -> None:
        while True:
            try:
                question, sender = self._socket.recvfrom(64)
                word, _, count = question.partition(b" ")
                if word == b"refdist" and count.isdigit():
                    # Who asks has given up a meeting, which cannot come about any more.
                    self.given_up = max(self.given_up, int(count))
                    answer = json.dumps([self.rank, self.count, self.status()]).encode()
                    self._socket.sendto(answer[:60000], sender)
            except OSError:
                return

    def dead(self) -> list[int]:
        """Workers of this host whose process is gone."""
        here = socket.gethostname()
        return [rank for rank, (host, _, pid) in enumerate(self._peers)
                if rank != self.rank and host == here and _state(pid) in ("gone", "Z", "X")]

    def report(self) -> str:
        """Where every worker is, one line each."""
        answers = self._ask()
        here = socket.gethostname()
        lines = []
        for rank, (host, _, pid) in enumerate(self._peers):
            if rank == self.rank:
                text = f"waits in meeting {self.count}: {self.status()}"
            elif rank in answers:
                count, doing = answers[rank]
                where = "is still on its way; its last meeting was" if count < self.count else "is in meeting"
                text = f"{where} {count}: {doing}"
            else:
                state = _state(pid) if host == here else "?"
                text = {"gone": "is dead", "Z": "is dead", "X": "is dead", "T": "is stopped"}.get(
                    state, "does not answer")
            lines.append(f"  worker {rank} on {host} (process {pid}) {text}")
        return "\n".join(lines)

    def _ask(self) -> dict[int, tuple[int, str]]:
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        here = socket.gethostname()
        for rank, (host, port, _) in enumerate(self._peers):
            if rank != self.rank:
                try:
                    asking.sendto(b"refdist %d" % self.count, ("127.0.0.1" if host == here else host, port))
                except OSError:
                    continue
        answers: dict[int, tuple[int, str]] = {}
        until = time.monotonic() + ANSWER_SECONDS
        while len(answers) < len(self._peers) - 1 and (left := until - time.monotonic()) > 0:
            asking.settimeout(left)
            try:
                rank, count, doing = json.loads(asking.recv(65536))
                answers[rank] = (count, doing)
            except (OSError, ValueError):
                continue
        asking.close()
        return answers


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone" if os.path.isdir("/proc/self") else "?"


def end_job_on_exceptions(rank: int, abort: Callable[[int], object]) -> None:
    """From now on an exception that nobody catches is printed with this worker's number and ends all workers."""
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(tracebacks.cut(error)))
        shown = "".join(f"[worker {rank}] {line}\n" for line in text.splitlines())
        sys.stdout.flush()
        os.write(2, shown.encode(errors="replace"))
        # The launcher drops what it has not yet passed on when a job is aborted.
        time.sleep(FORWARD_SECONDS)
        if getattr(error, "on_every_worker", False):
            let_others_speak()
        abort(70)

    sys.excepthook = hook


def let_others_speak() -> None:
    """Waits a little before the job is ended, because the others have the same error and want to say so too."""
    time.sleep(2 * ANSWER_SECONDS)


def limit_start(seconds: float) -> threading.Timer:
    """Ends this process when the others have not come within `seconds`; to be cancelled when they have."""
    def give_up() -> None:
        os.write(2, f"[worker {_launcher_rank()}] [RD01] starting: not all workers came within {seconds:.0f} s. "
                    "Look at why the others did not start.\n".encode())
        os._exit(70)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    return timer
