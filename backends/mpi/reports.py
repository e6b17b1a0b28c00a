"""One report of what several workers of a host say alike.

What N workers print by themselves comes N times, in pieces, and the launcher drops what it has not forwarded when it
ends a job.  So reports go to one process of each host, the desk: that of `refdist launch`, else the supervisor that
first has something to say.  It waits a moment for the others to say the same, prints every text once, with the numbers
of the workers that sent it, and answers when that is done.

The desk also knows in which state each worker is: which of them have not arrived when the start takes too long, which
one failed first, and when no worker is left that could still report.

A desk is found by a name in the abstract namespace of Unix sockets, which the kernel gives to one process at a time
and takes back when that dies, so nothing stays behind and the next one takes over.  Everybody on the machine sees the
name.  What other users send is thrown away, and so is what does not come from the job: the name is a hash of the job's
key, messages carry the key itself, and answers come from the address of the desk.

Standard library only: supervisors and the launch command import nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from refdist.backends.mpi import processes
from refdist.workers.launcher import Task, named, prefixed, task_of

MERGE_SECONDS = 0.3  # how long a report waits for the same one of others
WARNING_SECONDS = 2.0  # and a warning, after which nothing ends
EVERYONE_SECONDS = 5.0  # and one that all workers have: for the last of them, on a busy machine
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_SECOND = struct.pack("ll", 1, 0)
_LEFT = b".left"  # ends the name of the socket of `Left`

Message = dict[str, Any]
# The fields, with their types, of every message, of a report, and of a change of a worker's state.
_EACH: dict[str, type] = {"rank": int, "size": int, "of": int, "status": int}
_REPORT: dict[str, type] = {**_EACH, "text": str, "wait": float}
_STATE: dict[str, type] = {**_EACH, "state": str, "process": int, "supervisor": int, "proxy": int, "memory": str,
                           "topology": str, "joined": bool, "stopped": bool}
_claims: list[socket.socket] = []


def task(message: Message) -> Task:
    """Of which task a message of a supervisor is."""
    return Task(*message["task"]) if "task" in message else task_of(message["rank"], message["of"])


def desk_of(launcher: int) -> str:
    """The key of the desk of the processes that this process of a launcher has started on this host."""
    known = processes.facts(launcher)
    return f"refdist.{launcher}.{0 if known is None else known.started}"


def claimed(name: str) -> bool:
    """Whether this process is the first one of this host that claims the name, which it keeps until it ends."""
    try:
        _claims.append(_bound(b"\0" + name.encode()))
    except OSError:
        return False
    return True


class Desk:
    """The reports and states of the workers of a host.

    Attributes:
        states: the last state of each worker.
        cause: the exit status of the worker, or process of the launcher, that failed first and by itself; 0 for none.
        blamed: whether the report of a process of the launcher was printed.
        first: what the worker that failed first has said, or of all that have failed because of others; None for none.
    """

    def __init__(self) -> None:
        self.blamed = False
        self.cause = 0
        self.first: Message | None = None
        self._weak = 0
        self._over = self._failed = self._raised = False
        self._missed: set[int] = set()  # workers of which others say that they are dead
        self._labelled: set[str] = set()  # texts about others, which were printed
        self.states: dict[int, Message] = {}
        self._senders: dict[int, Any] = {}
        self._quiet: set[int] = set()  # workers that have ended, or whose report was printed
        self._ending: set[int] = set()  # workers that end by themselves, when their report was printed
        self._held: list[tuple[Any, Message]] = []  # answers with which others end the job, before those have ended
        self._waiting: list[tuple[float, Message, Any]] = []  # printed at this time at the latest, the report, whose
        self._warnings: dict[str, tuple[float, set[Task]]] = {}  # the same of warnings
        self._last = 0.0  # when the last one came

    def take(self, message: Message, sender: Any, now: float) -> None:
        """Takes a message of a supervisor.

        Args:
            message: has the "rank" and exit "status" of the worker; of how many on this host, "size", and in all, "of";
                its "task", where it has said one; the ranks of those that are "absent" from its call, and of those that
                are "dead", as it has found.  A change of its
                "state" ("running", "starting", "joined", "ended"), or of whether it is "stopped", with its "process",
                and the path and step of the last checkpoint that it has "saved", if any; or a "text" to be printed, and
                for how long it may "wait" for the same from others; "several" is the text where several say it; "label"
                is whom it is about where that is not the worker; with "missing", the workers that have not arrived are
                added; with "if_first", it is printed only if no worker has failed before; what is a "warning" is not
                the last word of its worker, and not answered.  A "weak" status is of a worker that fails because of
                another one, "weak" false of one that has raised by itself; one that "ends" has an exit status of its
                own, for which the others wait.
            sender: to whom the answer goes.
            now: the time.
        """
        rank = message["rank"]
        if message.get("warning"):
            self._warnings.setdefault(message["text"], (now + message["wait"], set()))[1].add(task(message))
            return
        # The launcher ends workers, or others miss one, because of one that has failed before and said why.  A worker
        # that others miss already has not ended because of them.
        has_failed = self._failed or (self._weak and rank not in self._missed)
        no_news = (message.get("if_first") and has_failed) or (message.get("weak") and self._raised)
        if no_news and "text" in message:
            message = {**message, "text": ""}
        if message.get("label") and message.get("text") in self._labelled:
            message = {**message, "text": ""}
        self._failed = self._failed or bool(
            message["status"] and not message.get("if_first") and not message.get("weak"))
        self._raised = self._raised or message.get("weak") is False
        if message.get("weak"):
            self._weak = self._weak or message["status"]
            self.first = self.first or (message if self._weak else None)
            self._missed.update(message.get("dead", ()))
        elif not (message.get("if_first") and has_failed):
            self.first = message if message["status"] and not self.cause else self.first
            self.cause = self.cause or message["status"]
        if "text" in message:
            self._waiting.append((now + message["wait"], message, sender))
            self._last = now
            return
        self.states[rank], self._senders[rank] = message, sender
        if message["state"] == "ended":
            self._quiet.add(rank)

    def has_failed(self) -> None:
        """The launcher has seen what failed first: that processes end because of it is no news."""
        if not self._failed:
            self._failed, self.cause, self.first = True, 0, None
            self._waiting = [(until, {**message, "text": ""} if message.get("if_first") else message, sender)
                             for until, message, sender in self._waiting]

    def is_gone(self, rank: int) -> None:
        """Of a worker whose supervisor has died nothing more will come."""
        self._quiet.add(rank)

    def due(self, now: float) -> tuple[str, list[tuple[Any, Message]]]:
        """What is to be printed now, and the answers to be sent afterwards."""
        text, answers = "", list[tuple[Any, Message]]()
        # With a report that is due come those of others with the same text, and all when nobody is left to report.
        due = {message["text"] for until, message, _ in self._waiting if until <= now}
        together = now >= self._together_at()
        printed = [(message, sender) for _, message, sender in self._waiting if together or message["text"] in due]
        for words, (until, tasks) in list(self._warnings.items()):
            if printed or now >= until or self._is_everyone(tasks):
                del self._warnings[words]
                text += prefixed(named(tasks), words)
        if printed:
            groups: dict[tuple[str, str], set[Task]] = {}
            several: dict[str, str] = {}
            for message, _ in printed:
                words = message["text"] + (self._missing() if message.get("missing") else "")
                groups.setdefault((message.get("label", ""), words), set()).add(task(message))
                several[words] = message.get("several", words)
            for (label, words), tasks in groups.items():
                text += prefixed(label or named(tasks), several[words] if len(tasks) > 1 else words)
            for message, sender in printed:
                if message.get("ends"):
                    self._ending.add(message["rank"])
                (answers if message.get("ends") else self._held).append((sender, {"answer": "printed"}))
            self._labelled |= {words for label, words in groups if label}
            self.blamed = self.blamed or any(label for label, words in groups if words)
            self._waiting = [] if together else [waits for waits in self._waiting if waits[1]["text"] not in due]
            self._quiet |= {message["rank"] for message, _ in printed}
        ended = {rank for rank, facts in self.states.items() if facts["state"] == "ended"}
        if self._ending <= ended:
            answers += self._held
            self._held = []
        if self._is_everyone(ended) and not self._over:
            self._over = True
            answers += [(self._senders[rank], {"answer": "over"}) for rank in ended]
        gone = [rank for rank in ended if not self.states[rank]["joined"] and not self.states[rank]["status"]]
        if gone:
            why = f"{named(task(self.states[rank]) for rank in gone)} ended without joining the others"
            for rank, facts in self.states.items():
                if facts["state"] == "starting":
                    answers.append((self._senders[rank], {"answer": "in vain", "why": why}))
                    facts["state"] = "told"
        if any(message.get("missing") for _, message, _ in self._waiting):
            # Who began to wait a little later has waited for the same ones, and says the same.
            for rank, facts in self.states.items():
                if facts["state"] == "starting" and rank not in {message["rank"] for _, message, _ in self._waiting}:
                    answers.append((self._senders[rank], {"answer": "late"}))
                    facts["state"] = "told"
        return text, [(sender, {**answer, "status": self.status}) for sender, answer in answers]

    @property
    def status(self) -> int:
        """The exit status of the worker that failed first; 0 for none."""
        return self.cause or self._weak

    def next(self) -> float:
        """When `due` has something to do at the latest."""
        return min([self._together_at(), *(until for until, _, _ in self._waiting),
                    *(until for until, _ in self._warnings.values())])

    def _together_at(self) -> float:
        # When all that waits is printed: nobody else will report.
        reporting = {message["rank"] for _, message, _ in self._waiting}
        if not reporting:
            return math.inf
        if self._is_everyone(reporting | self._quiet):
            return -math.inf
        # What is stopped or elsewhere is not waited for, or only as long as what may soon say the same.
        silent = {rank for rank, state in self.states.items() if state["stopped"]}
        silent |= {rank for _, message, _ in self._waiting for rank in message.get("absent", ()) if rank in self.states}
        return self._last + MERGE_SECONDS if self._is_everyone(silent | reporting | self._quiet) else math.inf

    def _is_everyone(self, workers: Collection[object]) -> bool:
        sizes = [state["size"] for state in self.states.values()]
        return bool(sizes) and len(workers) >= max(sizes)

    def _missing(self) -> str:
        lines = []
        size, everywhere = next(((known["size"], known["of"]) for known in self.states.values()), (0, 0))
        for rank in range(everywhere) if size == everywhere else sorted(self.states):
            known = self.states.get(rank)
            if known is None:  # it has no supervisor before it makes its strategy
                lines.append(f"\n{task_of(rank, everywhere)} has not made its strategy, or has ended")
            elif known["stopped"] and known["state"] != "ended":
                lines.append(f"\n{task(known)} (process {known['process']}) is stopped")
            elif known["state"] == "running":
                lines.append(f"\n{task(known)} (process {known['process']}) has not made its strategy")
        return "".join(lines)


class Line:
    """The connection of a process with the desk of its host; it becomes the desk where there is none.

    Attributes:
        desk: the desk, if this process is it.
    """

    def __init__(self, key: str, write: Callable[[str], None]) -> None:
        """Opens the line.

        Args:
            key: the same in all processes of the host that belong to the job, and in no other.
            write: prints a text.
        """
        self.desk: Desk | None = None
        self._key = key
        self._name = _name(key)
        self._write = write
        self._socket = _bound(b"")
        self._desk_socket = self._socket

    def sockets(self) -> list[socket.socket]:
        """The sockets at which something may arrive."""
        return [self._socket] if self.desk is None else [self._socket, self._desk_socket]

    def become_desk(self) -> Desk:
        """The desk, which this process is from now on.

        Raises:
            OSError: another process is.
        """
        if self.desk is None:
            self._desk_socket = _bound(self._name)
            self.desk = Desk()
        return self.desk

    def send(self, message: Message) -> bool:
        """Sends a message to the desk; whether that has it.  If not, the text was printed alone."""
        for _ in range(2):
            try:
                self._socket.sendto(json.dumps({**message, "key": self._key}).encode(), self._name)
                return True
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    self.become_desk()
            except OSError:
                break
        if "text" in message:
            self._write(prefixed(message.get("label") or str(task(message)), message["text"]))
        return False

    def leaves(self, memory: str, topology: str) -> None:
        """Tells `Left`, where there is one, what MPI may leave (`Left.files`)."""
        with contextlib.suppress(OSError):
            message = {"memory": memory, "topology": topology, "key": self._key}
            self._socket.sendto(json.dumps(message).encode(), self._name + _LEFT)

    def next(self) -> float:
        """When `work` has something to do at the latest, though nothing arrives."""
        return math.inf if self.desk is None else self.desk.next()

    def close(self) -> None:
        """Prints what still waits for the same report of others, and leaves the desk to the next one."""
        if self.desk is not None:
            self.work()
            while self.desk.next() < math.inf:
                time.sleep(0.01)
                self.work()
            self._desk_socket.close()

    def work(self) -> list[Message]:
        """Does what the desk has to do, if this is it; the answers that have arrived for this process."""
        if self.desk is not None:
            for message, sender in _received(self._desk_socket):
                if message.get("key") == self._key and _is_for_a_desk(message):
                    self.desk.take(message, sender, time.monotonic())
            text, answers = self.desk.due(time.monotonic())
            if text:
                self._write(text)
            for sender, answer in answers:
                with contextlib.suppress(OSError):
                    self._desk_socket.sendto(json.dumps(answer).encode(), sender)
        return [message for message, sender in _received(self._socket) if sender == self._name]


class Left:
    """What MPI may leave on this host, as the supervisors of a job say before there is any of it.

    Attributes:
        files: patterns of names in shared memory, each with the path of a file or folder of the launcher; "" for none.
    """

    def __init__(self, key: str) -> None:
        """Listens; the key is that of the job's `Line`."""
        self.files: set[tuple[str, str]] = set()
        self._key = key
        self._socket = _bound(_name(key) + _LEFT)

    def fileno(self) -> int:
        """The file that becomes readable when there is something to hear."""
        return self._socket.fileno()

    def hear(self) -> None:
        """Takes what supervisors have said since the last call."""
        for message, _ in _received(self._socket):
            words = message.get("memory"), message.get("topology")
            if message.get("key") == self._key and isinstance(words[0], str) and isinstance(words[1], str):
                self.files.add((words[0], words[1]))

    def remove(self) -> None:
        """Removes all of it that is there."""
        self.hear()
        for memory, topology in self.files:
            processes.remove_shared_memory(memory)
            processes.remove_file(topology)

    def close(self) -> None:
        """Leaves the name to others; another process that was started with this object still listens."""
        self._socket.close()


def _name(key: str) -> bytes:
    return b"\0refdist." + hashlib.blake2b(key.encode(), digest_size=12).hexdigest().encode()


def _is_for_a_desk(message: Message) -> bool:
    wanted = _REPORT if "text" in message else _STATE
    words, saved = message.get("task", ["", 0]), message.get("saved", ["", None])
    ranks = [message.get(name, []) for name in ("absent", "dead")]
    return (all(isinstance(some, list) and all(type(rank) is int for rank in some) for some in ranks)
            and isinstance(words, list) and list(map(type, words)) == [str, int]
            and isinstance(saved, list) and list(map(type, saved)) in ([str, int], [str, type(None)])
            and isinstance(message.get("label", ""), str) and isinstance(message.get("several", ""), str)
            and all(isinstance(message.get(name), (float, int) if kind is float else kind)
                    for name, kind in wanted.items()))


def _bound(name: bytes) -> socket.socket:
    desk = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    desk.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    desk.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SECOND)  # a desk that is stopped does not stop the others
    try:
        desk.bind(name)
    except OSError:
        desk.close()
        raise
    return desk


def _received(source: socket.socket) -> Iterator[tuple[Message, Any]]:
    while True:
        try:
            data, extra, _, sender = source.recvmsg(1 << 18, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        users = [_CREDENTIALS.unpack(found)[1] for level, kind, found in extra
                 if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS]
        if users == [os.getuid()]:
            with contextlib.suppress(ValueError, RecursionError):  # it is none of ours
                message = json.loads(data)
                if isinstance(message, dict):
                    yield message, sender
