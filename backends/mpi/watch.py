"""What every worker is doing: a thread answers over UDP whatever the program is doing, and /proc shows the dead.

Nothing here goes through MPI (`failure`).  A worker asks all others when it gives up a rendezvous, and they give it up
too, so that all report the same failure at the same time.  It learns that another one is dead

* on its own host from /proc, at its next look; which host that is Linux says and not its name (`processes.Place`),
  which copies of a container have in common;
* on another host from the supervisor there, which is the parent of the dead one and knows at once.  A worker that has
  joined the others hands its supervisor what that has to send (`datagrams.Notice`);
* from OpenMPI itself, where that notices.

What none of them can say, because a host is gone or cannot be reached, shows at the limit, when there is no answer.

Between hosts MPICH may never return from a call, once a process is dead with which it was about to connect: it tries
that again without a limit.  A worker to which this happens knows as much as the others, and a thread reports in place
of the one that is stuck, when that does not look for some seconds.

Between hosts the port is open to all interfaces, since no name says which one the others use, and what is sent goes to
each address that a worker says its host has: the names of hosts may have none, or that of another one.  A job on one
host listens to that host only.  What comes from elsewhere is not believed and not answered (`datagrams`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from refdist.backends.mpi import datagrams, processes
from refdist.backends.mpi.datagrams import ANSWER, ASK, LOST, Address, Key, Message, Notice

ANSWER_SECONDS = 1.0
_AGAIN_SECONDS = 0.25  # after which a question is asked again
_STUCK_SECONDS = 2.0  # a worker that waits in MPI and has not looked for so long is stuck
_ADDRESSES = 1000  # of one notice, so that it fits into what a socket takes at once


class Endpoint(NamedTuple):
    """Where a worker answers.

    Attributes:
        host: what its host is called.
        port: of its address there.
        process: the id of its process.
        place: where that is.
        addresses: of the host, for workers on other ones.
    """

    host: str
    port: int
    process: int
    place: processes.Place
    addresses: tuple[str, ...]


class Watch:
    """Answers questions about this process, and asks the others.

    Attributes:
        rank: this worker.
        count: the number of the last rendezvous that it has entered; 0 is joining the others.
        given_up: the last rendezvous that another worker has given up; -1 for none.
        waits: whether the program waits in MPI.
        looks: how often it has begun to, or has looked in between.
        absent: workers that, as they said when they were last asked, are not in this worker's call, or that said
            nothing.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.count = 0
        self.given_up = -1
        self.waits = False
        self.looks = 0
        self.absent: list[int] = []
        self._stand_in: Callable[[], object] | None = None
        self._lost: Callable[[int], object] = lambda _: None
        self._stands_in = False
        self._call: object = None
        self._place = processes.place()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._key = datagrams.new_key()
        self._peers: list[Endpoint] = []
        self._addresses: list[list[Address]] = []
        self._told: set[int] = set()  # workers that are dead, as others say
        self._turn = 0  # of this worker's questions
        self._answers: dict[int, tuple[int, str]] = {}  # in this turn
        self._heard = threading.Condition()

    def entered(self, count: int, call: object) -> None:
        """Notes that this worker has entered rendezvous number `count`, with this call."""
        self.count, self._call = count, call

    def status(self) -> str:
        """The last call with which this worker entered a rendezvous, and its line."""
        return "starting" if self._call is None else str(self._call)

    def listen(self, one_host: bool) -> tuple[Endpoint, Key]:
        """Opens the port, which on one host is closed to others; where this worker answers, and a key."""
        self._socket.bind(("127.0.0.1" if one_host else "", 0))
        return Endpoint(socket.gethostname(), self._socket.getsockname()[1], os.getpid(), self._place,
                        tuple(processes.addresses())), self._key

    def join(self, everyone: list[tuple[Endpoint, Key]], hand_over: Callable[[Notice], object],
             stand_in: Callable[[], object] | None = None, lost: Callable[[int], object] = lambda _: None) -> None:
        """Begins to answer.

        Args:
            found: what `listen` returned on all workers; the job's key is worker 0's.
            hand_over: called with what the supervisor of this worker is to send when it is lost.
            stand_in: called in another thread when the program has to give up and is stuck in MPI.
            lost: called with the exit status of the job when a supervisor says that another worker is dead.
        """
        self._stand_in, self._lost = stand_in, lost
        self._peers = [endpoint for endpoint, _ in everyone]
        self._addresses = [[(address, peer.port) for address in self._reached_at(peer)] for peer in self._peers]
        self._key = everyone[0][1]
        threading.Thread(target=self._run, args=(hand_over,), daemon=True, name="refdist watch").start()

    def _reached_at(self, peer: Endpoint) -> Sequence[str]:
        return ["127.0.0.1"] if peer.place.network == self._place.network else peer.addresses

    def _is_here(self, peer: Endpoint) -> bool:
        return peer.place.processes == self._place.processes

    def _run(self, hand_over: Callable[[Notice], object]) -> None:
        key = self._key.job.hex(), self._key.secret.hex()
        others = [address for rank, addresses in enumerate(self._addresses) if rank != self.rank
                  for address in addresses]
        for start in range(0, len(others), _ADDRESSES):
            hand_over(Notice(self.rank, key, others[start:start + _ADDRESSES]))
        while True:
            try:
                datagram = self._socket.recv(datagrams.MOST + 1)
            except OSError:
                return
            self.take(datagram)

    def take(self, datagram: bytes) -> None:
        """Does what a datagram says, if it is one of this job."""
        message = datagrams.opened(datagram, self._key)
        if message is None or message.rank == self.rank or message.rank >= len(self._peers):
            return
        if message.kind == ASK:
            # The worker that asks has given up this rendezvous, so it can no longer complete.
            self.given_up = max(self.given_up, message.number)
            self._send(message.rank, Message(ANSWER, self.rank, self.count, message.turn, self.status()))
            self._mind()
        elif message.kind == LOST:
            if message.rank not in self._told:
                self._lost(message.number)
            self.told([message.rank])
            self._mind()
        else:
            with self._heard:
                if message.turn == self._turn:
                    self._answers[message.rank] = message.number, message.text
                    self._heard.notify()

    def _mind(self) -> None:
        if self._stand_in is not None:
            threading.Thread(target=self._when_stuck, args=(self._stand_in,), daemon=True, name="refdist stuck").start()
            self._stand_in = None

    def _when_stuck(self, stand_in: Callable[[], object]) -> None:
        while True:
            before = self.looks
            time.sleep(_STUCK_SECONDS)
            if self.is_stuck(before):
                self._stands_in = True  # and then looks once more; the other thread does the same (`speaks`)
                if self.is_stuck(before):
                    stand_in()
                self._stands_in = False

    def is_stuck(self, looks: int) -> bool:
        """Whether the program has to give up, waits in MPI, and has looked only so many times."""
        return self.waits and self.looks == looks and self.is_in_vain()

    def is_in_vain(self) -> bool:
        """Whether the rendezvous that this worker has entered cannot complete any more."""
        return self.given_up >= self.count or bool(self.dead())

    def speaks(self) -> None:
        """Called when the program gives up by itself: from now on no other thread does it.

        It does not return where another one has begun, which ends the process.
        """
        self.waits = False
        while self._stands_in:
            time.sleep(_STUCK_SECONDS)

    def _send(self, rank: int, message: Message) -> None:
        for address in self._addresses[rank]:
            with contextlib.suppress(OSError):
                self._socket.sendto(datagrams.sealed(message, self._key), address)

    def told(self, dead: Iterable[int]) -> None:
        """Notes that these workers are dead."""
        self._told.update(dead)

    def dead(self) -> list[int]:
        """Workers whose process on this host is gone, and those of which others say so."""
        return [rank for rank, peer in enumerate(self._peers) if rank != self.rank and (
            rank in self._told or (self._is_here(peer) and _state(peer.process) in ("gone", "Z", "X")))]

    def report(self) -> str:
        """What every worker is doing, one line each."""
        answers = self._ask()
        dead = self.dead()
        lines = []
        self.absent = [rank for rank in range(len(self._peers))
                       if rank != self.rank and rank not in dead and answers.get(rank, (-1,))[0] < self.count]
        for rank, peer in enumerate(self._peers):
            if rank == self.rank:
                text = f"is in call {self.count}: {self.status()}"
            elif rank in dead:
                text = "is dead"
            elif rank in answers:
                count, status = answers[rank]
                where = "is elsewhere in the program; its last call was" if rank in self.absent else "is in call"
                text = f"{where} {count}: {status}"
            else:
                text = "is stopped" if self._is_here(peer) and _state(peer.process) == "T" else "does not answer"
            lines.append(f"  worker {rank} on {peer.host} (process {peer.process}) {text}")
        return "\n".join(lines)

    def _ask(self) -> dict[int, tuple[int, str]]:
        # What the others say, without waiting for those that are known to be gone.
        until = time.monotonic() + ANSWER_SECONDS
        with self._heard:
            self._turn += 1
            self._answers = {}
            while (left := until - time.monotonic()) > 0:
                silent = set(range(len(self._peers))) - {self.rank, *self._answers, *self.dead()}
                if not silent:
                    break
                for rank in silent:
                    self._send(rank, Message(ASK, self.rank, self.count, self._turn))
                self._heard.wait_for(partial(silent.issubset, self._answers), min(left, _AGAIN_SECONDS))
            return dict(self._answers)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone" if os.path.isdir("/proc/self") else "?"
