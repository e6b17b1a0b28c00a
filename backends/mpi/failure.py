"""Lost workers: processes that died, stopped, or are elsewhere; and how a failed job ends.

Nothing here is sent through MPI, which cannot be relied on when a process is gone: in MPICH no call reports it, and a
message to a dead process can crash its sender.  Instead

* processes of one host are looked up in /proc, which shows a death at the next poll (50 ms);
* the others are asked over UDP.  A thread answers whatever the program is doing, so a worker that computes for too long
  is told from one that is gone.  A question says which rendezvous the asker has given up, and those asked give it up
  too, so that all report the same failure at the same time.  Questions and answers begin with a random token of the
  worker that is asked, which the workers have exchanged; any other datagram is ignored.

The first worker to die must not take the reports of the others with it.  MPICH's launcher kills all processes within
35 ms when one of its own dies by a signal.  So a worker forks before it starts MPI and goes on in the child
(`supervise`); the parent, which the launcher watches, outlives it by ten seconds.  OpenMPI's launcher leaves survivors
alone when it is given `--with-ft ulfm`, and needs no supervisor.  A fork keeps no threads but its own: what has started
a pool of threads before (OpenMP in PyTorch) can hang in the child.

MPI's own start waits for all processes without a limit, inside of MPI, and holds the interpreter's lock meanwhile.  So
its limit is kept by another process (`limited_start`).

An exception that is not caught is printed in one write, with the worker's number on each line, and ends the job.  There
are two waits on that way: for the launcher, which drops output that it has not forwarded when a job is aborted, and,
where all workers have the same error, for the others to print it too.

Not noticed: a process that ends by `os._exit`, after which MPICH's launcher kills the others at once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple

from refdist.core import tracebacks
from refdist.core.launcher import launched

HOLD_SECONDS = 10.0  # how long a supervisor outlives a worker that was killed
ANSWER_SECONDS = 1.0
FORWARD_SECONDS = 0.3


def supervise() -> None:
    """Continues in a child process; the parent waits for it, and ends later than a child that was killed.

    MPICH's launcher watches the parent, and kills all workers when a process of its own dies by a signal.
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


class Endpoint(NamedTuple):
    """Where a worker answers.

    Attributes:
        host, port: its address.
        process: the id of its process.
        token: what questions to this worker and its answers begin with; other datagrams are not of this job.
    """

    host: str
    port: int
    process: int
    token: str


class Watch:
    """Answers questions about this process, and asks the others.

    Attributes:
        rank: this worker.
        count: the number of the last rendezvous that it has entered; 0 is joining the others.
        given_up: the last rendezvous that another worker has given up; -1 for none.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.count = 0
        self.given_up = -1
        self._call: object = None
        self._peers: list[Endpoint] = []
        self._token = secrets.token_hex(8)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        threading.Thread(target=self._answer, daemon=True, name="refdist watch").start()

    def entered(self, count: int, call: object) -> None:
        """Notes that this worker has entered rendezvous number `count`, with this call."""
        self.count, self._call = count, call

    def status(self) -> str:
        """The last call with which this worker entered a rendezvous, and its line."""
        return "starting" if self._call is None else str(self._call)

    def endpoint(self) -> Endpoint:
        """Where this worker answers, for the others."""
        return Endpoint(socket.gethostname(), self._socket.getsockname()[1], os.getpid(), self._token)

    def set_peers(self, endpoints: list[Endpoint]) -> None:
        """Takes the endpoints of all workers, in worker order."""
        self._peers = endpoints

    def _answer(self) -> None:
        while True:
            try:
                question, sender = self._socket.recvfrom(64)
                token, _, count = question.partition(b" ")
                if token == self._token.encode() and count.isdigit():
                    # The worker that asks has given up this rendezvous, so it can no longer complete.
                    self.given_up = max(self.given_up, int(count))
                    answer = f"{self._token} {self.count} {self.status()[:9000]}".encode()
                    self._socket.sendto(answer, sender)
            except OSError:
                return

    def dead(self) -> list[int]:
        """Workers of this host whose process is gone."""
        here = socket.gethostname()
        return [rank for rank, peer in enumerate(self._peers)
                if rank != self.rank and peer.host == here and _state(peer.process) in ("gone", "Z", "X")]

    def report(self) -> str:
        """What every worker is doing, one line each."""
        answers = self._ask(self.dead())
        here = socket.gethostname()
        lines = []
        for rank, (host, _, pid, _) in enumerate(self._peers):
            if rank == self.rank:
                text = f"waits in call {self.count}: {self.status()}"
            elif rank in answers:
                count, status = answers[rank]
                where = "is elsewhere in the program; its last call was" if count < self.count else "is in call"
                text = f"{where} {count}: {status}"
            else:
                state = _state(pid) if host == here else "?"
                text = {"gone": "is dead", "Z": "is dead", "X": "is dead", "T": "is stopped"}.get(
                    state, "does not answer")
            lines.append(f"  worker {rank} on {host} (process {pid}) {text}")
        return "\n".join(lines)

    def _ask(self, gone: list[int]) -> dict[int, tuple[int, str]]:
        # What the others say, without waiting for those that are known to be gone.
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        here = socket.gethostname()
        asked = {peer.token.encode(): rank for rank, peer in enumerate(self._peers)
                 if rank != self.rank and rank not in gone}
        for token, rank in asked.items():
            host, port, *_ = self._peers[rank]
            with contextlib.suppress(OSError):
                asking.sendto(b"%b %d" % (token, self.count), ("127.0.0.1" if host == here else host, port))
        answers: dict[int, tuple[int, str]] = {}
        until = time.monotonic() + ANSWER_SECONDS
        while len(answers) < len(asked) and (left := until - time.monotonic()) > 0:
            asking.settimeout(left)
            with contextlib.suppress(OSError):
                token, _, answer = asking.recv(65536).partition(b" ")
                if token in asked:
                    count, _, status = answer.decode(errors="replace").partition(" ")
                    answers[asked[token]] = (int(count), status)
        asking.close()
        return answers


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone" if os.path.isdir("/proc/self") else "?"


def end_job_on_exceptions(rank: int, abort: Callable[[int], object]) -> None:
    """Makes an uncaught exception end all workers, after it was printed with this worker's number."""
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(tracebacks.cut(error)))
        shown = "".join(f"[worker {rank}] {line}\n" for line in text.splitlines())
        sys.stdout.flush()
        os.write(2, shown.encode(errors="replace"))
        # A launcher drops what it has not forwarded when a job is aborted.
        time.sleep(FORWARD_SECONDS)
        if getattr(error, "on_every_worker", False):
            let_others_speak()
        abort(70)

    sys.excepthook = hook


def let_others_speak() -> None:
    """Waits before the job is ended, so that the others can report the same error."""
    time.sleep(2 * ANSWER_SECONDS)


@contextlib.contextmanager
def limited_start(seconds: float) -> Iterator[None]:
    """Ends this process when the `with` block takes longer than `seconds`.

    Another process does it: MPI holds the interpreter's lock while it starts, so no thread of this one would run.
    """
    reading, writing = os.pipe()
    worker, watcher = os.getpid(), os.fork()
    if watcher == 0:
        os.close(writing)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if not select.select([reading], [], [], seconds)[0]:  # nor is it closed, because the process has ended
            os.write(2, f"[worker {_launcher_rank()}] [RD01] starting: not all workers arrived within {seconds:.0f} s. "
                        "Look at why the others did not start.\n".encode())
            os.kill(worker, signal.SIGKILL)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(watcher, 0)
