"""A transport of a package: processes of one host, connected by sockets that their launcher made.

The smallest one that there can be: of the verbs it has `all_gather_object`, and the others are defined by it.  Every
object goes to worker 0 and back to all.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from refdist import errors
from refdist.core.agreement import CollectiveCall
from refdist.workers.connection import ConnectableTransport, Group
from refdist.workers.transport import compare, header_of


class Toy(ConnectableTransport):
    """Worker 0 holds a socket to each of the others, and they hold one to it."""

    timeout = 30.0  # seconds for which a worker waits for the others; none does where all is well

    def __init__(self, rank: int, size: int, peers: Sequence[Connection]) -> None:
        self.rank = rank
        self.size = size
        self._peers = peers

    @classmethod
    def group(cls) -> Group | None:
        if "TOY_RANK" not in os.environ:
            return None
        return Group(int(os.environ["TOY_RANK"]), int(os.environ["TOY_SIZE"]), "toy processes")

    @classmethod
    def connect(cls, timeout: float | None) -> Toy:
        group = cls.group()
        assert group is not None
        toy = cls(group.rank, group.size, [Connection(int(fd)) for fd in os.environ["TOY_SOCKETS"].split()])
        toy.timeout = timeout or cls.timeout
        return toy

    def all_gather_object(self, call: CollectiveCall, value: Any) -> list[Any]:
        received = self._exchange((header_of(call), value), call)
        compare([header for header, _ in received])
        return [content for _, content in received]

    def _exchange(self, own: Any, call: CollectiveCall) -> list[Any]:
        try:
            if self.rank:
                self._peers[0].send(own)
                return self._receive(self._peers[0])
            everything = [own, *map(self._receive, self._peers)]
            for peer in self._peers:
                peer.send(everything)
            return everything
        except (EOFError, OSError) as error:
            raise errors.error("RD01", str(call), f"a worker has ended, or did not come: {error!r}") from error

    def _receive(self, peer: Connection) -> Any:
        if not peer.poll(self.timeout):
            raise TimeoutError(f"nothing came within {self.timeout:.0f} s")
        return peer.recv()


def launch(count: int, *arguments: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs a Python program on `count` workers that this transport connects; what each has printed."""
    pairs = [socket.socketpair() for _ in range(count - 1)]
    sockets = [[left.fileno() for left, _ in pairs], *([right.fileno()] for _, right in pairs)]
    running = [subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=sockets[rank],
        env={**os.environ, **environment, "REFDIST_TRANSPORT": "toy", "TOY_RANK": str(rank), "TOY_SIZE": str(count),
             "TOY_SOCKETS": " ".join(map(str, sockets[rank])), "TF_CONFIG": json.dumps(
                 {"cluster": {"worker": [f"toy{i}:2222" for i in range(count)]},
                  "task": {"type": "worker", "index": rank}})}) for rank in range(count)]
    for pair in pairs:
        for end in pair:
            end.close()
    finished = []
    for process in running:
        out, err = process.communicate(timeout=300)  # as limits.HANG; workers have this file alone
        finished.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return finished
