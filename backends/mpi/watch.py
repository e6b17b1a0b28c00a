"""What every worker is doing: a thread answers over UDP whatever the program is doing, and /proc shows the dead."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from typing import NamedTuple

ANSWER_SECONDS = 1.0


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
