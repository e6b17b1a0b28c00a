"""What MPICH's processes ask their launcher, for processes that were started one by one: `alone.py serve ...`.

MPICH needs a launcher for one thing: while it starts, its processes tell each other their addresses through it, in
lines of text over a socket (PMI-1, pmi/simple of MPICH).  This program is that part of a launcher.  The first worker of
a TF_CONFIG starts it; all workers, also the first, connect, prove that they know the token, and say who they are
(`gather`).  When all are there, each uses its connection for PMI, as if it had inherited it from mpiexec.

It starts and watches nothing: each worker has a supervisor of its own.  It ends with the last connection, or with that
of the first worker as long as not all are there.  A worker that leaves before all have started MPI ends the others,
which would wait for it: their connections are closed.

Standard library only.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from itertools import groupby
from typing import Any, NoReturn

from refdist.backends.mpi import processes

HANDSHAKE_SECONDS = 10.0  # in which a connection says who it is
_LOOK = 0.1  # seconds between two looks at whether one that waits is still there
_LONGEST = 1 << 16
_SAYS = {"init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
         "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
         "get_appnum": "cmd=appnum appnum=0 rc=0", "put": "cmd=put_result rc=0 msg=success"}


class Line:
    """A socket that carries lines of text."""

    def __init__(self, source: socket.socket) -> None:
        self.socket = source

    def send(self, text: str) -> None:
        """Sends a line."""
        self.socket.sendall(text.encode() + b"\n")

    def receive(self) -> str:
        """The next line; "" at the end.

        Raises:
            OSError: it does not come in time.
        """
        # Byte by byte: what follows may be for MPI, in the same process, and must stay in the socket.
        line = b""
        while not line.endswith(b"\n") and len(line) < _LONGEST:
            byte = self.socket.recv(1)
            if not byte:
                return ""
            line += byte
        return line.decode(errors="replace").rstrip("\n")


def proof(token: str, *said: str) -> str:
    """The HMAC of these texts with the token as key, which shows that the sender knows the token."""
    return hmac.new(token.encode(), "\n".join(said).encode(), "sha256").hexdigest()


def bound(address: list[Any]) -> socket.socket:
    """Listens: at a name, of a Unix socket, for processes of this user, or at a host and port.

    Raises:
        OSError: somebody does already, or the host is not this one.
    """
    if isinstance(address[0], str) and len(address) == 1:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + address[0])
    else:
        host, port = address
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            # The name of a service leads to this host, though none of its addresses is that.
            if error.errno != 99:  # EADDRNOTAVAIL
                raise
            listener.bind(("", port))
    listener.listen(128)
    return listener


def same_user(source: socket.socket) -> bool:
    """Whether a process of this user is at the other end of a Unix socket."""
    _, user, _ = struct.unpack("3i", source.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


class Server:
    """Gathers the processes of a job, and answers what MPI asks."""

    def __init__(self, listener: socket.socket, token: str, cluster: dict[str, str]) -> None:
        self._listener = listener
        self._token = token
        self._cluster = cluster
        self._tasks = list(cluster)  # their names, by rank
        self._changed = threading.Condition()
        self._lines: dict[int, Line] = {}
        self._places: dict[int, str] = {}
        self._who: dict[int, str] = {}
        self._all = False  # whether all have come, and been told so
        self._values: dict[str, str] = {}  # what MPI's processes tell each other
        self._name = f"refdist_{secrets.token_hex(8)}"  # of the job; MPICH's files in shared memory have a hash of it
        self._waiting = self._barriers = 0

    def serve(self, first: int) -> NoReturn:
        """Takes connections until the job is over, or until the process of the first worker ends before it begins."""
        threading.Thread(target=self._watch, args=(first,), daemon=True).start()
        while True:
            try:
                source, _ = self._listener.accept()
            except OSError:  # strangers have all the files that this process may open, for as long as a handshake takes
                time.sleep(_LOOK)
                continue
            threading.Thread(target=self._take, args=(source,), daemon=True).start()

    def _watch(self, first: int) -> None:
        if (descriptor := processes.opened(first)) is not None:
            select.select([descriptor], [], [])
        with self._changed:
            if not self._all:
                os._exit(0)

    def _take(self, source: socket.socket) -> None:
        source.settimeout(HANDSHAKE_SECONDS)
        line = Line(source)
        rank = -1
        try:
            rank = self._greet(line)
            if rank >= 0:
                self._wait(rank, line)
                self._answer(rank, line)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a stranger, or a worker that is gone
        finally:
            self._left(rank, line)

    def _greet(self, line: Line) -> int:
        if line.socket.family == socket.AF_UNIX and not same_user(line.socket):
            return -1
        challenge = secrets.token_hex(16)
        line.send(challenge)
        theirs, greeting, proved = line.receive(), line.receive(), line.receive()
        if not hmac.compare_digest(proved, proof(self._token, "worker", challenge, theirs, greeting)):
            line.send("")
            return -1
        line.send(proof(self._token, "server", challenge, theirs))
        hello = json.loads(greeting)
        rank, who = int(hello["rank"]), f"process {int(hello['process'])} on {hello['host']}"
        with self._changed:
            wrong = ""
            if hello["cluster"] != self._cluster:
                wrong = (f"{self._tasks[0]} has the cluster {json.dumps(self._cluster)}, and {hello['task']} has "
                         f"{json.dumps(hello['cluster'])}")
            elif rank in self._lines or self._all:
                wrong = f"{self._tasks[rank]} is there already: {self._who.get(rank, 'it has ended')}"
            if wrong:
                line.send(json.dumps({"wrong": wrong}))
                return -1
            self._lines[rank], self._places[rank], self._who[rank] = line, str(hello["place"]), who
            missing = [task for number, task in enumerate(self._tasks) if number not in self._lines]
            self._all = not missing
            for each in self._lines.values():
                with suppress(OSError):  # of one that is gone, which its own thread notices
                    each.send(json.dumps({"missing": missing} if missing else {"go": True}))
            self._changed.notify_all()
        return rank

    def _wait(self, rank: int, line: Line) -> None:
        # Until all are there; raises if this one goes.
        line.socket.settimeout(None)  # a socket with a limit would wait for that at each look, and then raise
        while True:
            with self._changed:
                if self._all or self._changed.wait_for(lambda: self._all, _LOOK):
                    return
            with suppress(BlockingIOError):
                if not line.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    raise ConnectionError

    def _answer(self, rank: int, line: Line) -> None:
        while text := line.receive():
            words = dict(word.split("=", 1) for word in text.split() if "=" in word)
            command = words.get("cmd", "")
            if command == "put":
                self._values[words["key"]] = text.split(" value=", 1)[1]
            if command in _SAYS:
                line.send(_SAYS[command])
            elif command == "get_my_kvsname":
                line.send(f"cmd=my_kvsname rc=0 kvsname={self._name}")
            elif command == "get_universe_size":
                line.send(f"cmd=universe_size size={len(self._tasks)} rc=0")
            elif command == "get":
                value = self._mapping() if words["key"] == "PMI_process_mapping" else self._values.get(words["key"])
                line.send("cmd=get_result rc=-1 msg=key_not_found" if value is None else
                          f"cmd=get_result rc=0 msg=success value={value}")
            elif command == "barrier_in":
                self._meet(line)
            elif command == "finalize":
                line.send("cmd=finalize_ack rc=0")

    def _meet(self, line: Line) -> None:
        with self._changed:
            self._waiting += 1
            if self._waiting == len(self._tasks):
                self._waiting = 0
                self._barriers += 1
                for each in self._lines.values():
                    with suppress(OSError):
                        each.send("cmd=barrier_out rc=0")

    def _mapping(self) -> str:
        # Which processes share a host, as runs of neighbours: (number of the host, 1, how many processes).
        numbers: dict[str, int] = {}
        hosts = [numbers.setdefault(self._places[rank], len(numbers)) for rank in range(len(self._tasks))]
        return "(vector," + ",".join(f"({host},1,{len(list(run))})" for host, run in groupby(hosts)) + ")"

    def _left(self, rank: int, line: Line) -> None:
        with self._changed:
            if rank >= 0 and self._lines.get(rank) is line:
                del self._lines[rank]
                if self._all and not self._barriers:
                    for each in self._lines.values():
                        with suppress(OSError):
                            each.socket.shutdown(socket.SHUT_RDWR)
                if (not self._all and rank == 0) or (self._all and not self._lines):
                    os._exit(0)
            with suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
            line.socket.close()


def serve(described: str) -> NoReturn:
    """Listens, and goes on in a process of its own, nobody's child; the one that was called ends when it listens.

    Args:
        described: JSON with the "address" and the "cluster": the address of each task by its name, in the order of
            ranks.  The token is the first line of the standard input, because everybody sees the words of a command.
    """
    job, first = json.loads(described), os.getppid()
    token = sys.stdin.readline().rstrip("\n")
    try:
        listener = bound(job["address"])
    except OSError as error:
        print(error.strerror or error)
        sys.exit(1)
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    Server(listener, token, job["cluster"]).serve(first)
