"""Channels between the tasks of a job with parameter servers: sockets, which MPI only introduces to each other.

MPI starts the processes, and tells each the addresses of the others; then it is ended.  Messages do not go through it,
because such a job outlives its workers and MPI does not: in MPICH no call reports a process that is dead, a message to
one can crash its sender, and all processes are ended when one leaves without a word.  The kernel closes the sockets of
a process that dies, however it dies, and its peers see that at once.  Nor does MPI leave shared memory behind.

All of it happens within the limit for the start of a job, which a supervisor counts.  Parameter servers accept;
workers connect to them, then accept; the coordinator connects to all: there is no circle in which tasks could wait for
each other.  On one host the sockets are Unix's, without a file; between hosts they are TCP's.  Both sides prove that
they have the job's key, 32 random bytes that travel through MPI, before anything that they send is read.

A worker that its supervisor starts again has no MPI.  The one before it has left with the supervisor what it takes to
come back: the addresses at which the coordinator and the parameter servers still listen, and the key.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, Pipe, answer_challenge, deliver_challenge
from typing import Any

from refdist import errors
from refdist.backends.mpi import failure, greeting, processes, supervised
from refdist.backends.mpi.start import joins, limit, started
from refdist.workers.channels import LINES, Channel, Gone
from refdist.workers.launcher import CHIEF, WORKER, Task
from refdist.workers.transport import on_every_worker

_BROKEN = (EOFError, OSError)
_CHIEF = Task(CHIEF, 0)
_LONGEST = 2e6  # seconds, 23 days; Linux counts milliseconds in 32 bits
_HELLO_SECONDS = 30  # in which who connects says who it is
_AGAIN_SECONDS = 1.0
_LENGTH = struct.Struct("!Q")
_SHORT, _LONG = 1 << 14, 1 << 18  # how many bytes are read at once


class SocketChannel:
    """One end of a connection.

    Before each message goes its length.  What is there is read at once, a short message with its length: who expects
    several messages in a row calls `receive` again, and does not ask the file whether there is another one.

    An interrupt comes where a function begins, and where a call, of C too, has returned: what the call has returned is
    then lost.  So what is sent and received is noted by the same call of C that does it.  What a signal handler raises
    is such an interrupt, whatever it is.
    """

    def __init__(self, connection: Connection, seconds: float) -> None:
        seconds = min(seconds, _LONGEST)
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._socket.settimeout(None)  # a program may have set another default
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        whole = int(seconds)
        self._limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._limit)
        self._limited = False
        self._sending: bytes | None = None  # the last message, until all of it is sent
        self._unsent: list[bytes] = []
        self._sent: list[int] = []  # how many bytes of the first of these were sent each time
        self._received: list[bytes] = []  # the next message, as far as it is there; one part may reach beyond it

    def send(self, message: bytes) -> None:
        """See `Channel`."""
        unsent, sent = self._unsent, self._sent
        if message is not self._sending:
            length = _LENGTH.pack(len(message))
            unsent += [length + message] if len(message) <= _SHORT else [length, message]
            self._sending = message
        try:
            while unsent:
                if rest := memoryview(unsent[0])[sum(sent):]:
                    sent.extend(map(self._socket.send, (rest,)))
                else:
                    del unsent[0], sent[:]
        except _BROKEN as error:
            _raise_a_handler_s(error)
            raise self._gone(error) from error
        self._sending = None

    def receive(self) -> bytes:
        """See `Channel`."""
        parts = self._received
        try:
            while not parts or len(parts[0]) < _LENGTH.size:
                self._take(_SHORT)
                parts[:] = [b"".join(parts)]
            end = _LENGTH.size + _LENGTH.unpack_from(parts[0])[0]
            missing = end - sum(map(len, parts))
            while missing > 0:
                self._take(min(missing, _LONG))
                missing -= len(parts[-1])
        except _BROKEN as error:
            _raise_a_handler_s(error)
            raise self._gone(error) from error
        first = parts[0]
        message = first[_LENGTH.size:end] if len(parts) == 1 else b"".join([first[_LENGTH.size:], *parts[1:]])
        parts[:] = [first[end:]] if len(first) > end else []
        return message

    def _take(self, most: int) -> None:
        self._received.extend(map(self._socket.recv, (most,)))
        if not self._received[-1]:
            raise EOFError

    def answer(self) -> bytes:
        """See `Channel`."""
        if not self._limited:
            self._limited = True
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._limit)
            except OSError as error:  # another thread has closed it
                _raise_a_handler_s(error)
                raise self._gone(error) from error
        return self.receive()

    def _gone(self, error: Exception) -> Gone:
        self.close()  # what comes later would be taken for the answer to something else
        return Gone("it did not answer in time" if isinstance(error, BlockingIOError) else "its process is gone")

    def fileno(self) -> int:
        """See `Channel`."""
        return self._socket.fileno()

    def close(self) -> None:
        """See `Channel`."""
        self._socket.close()


def _raise_a_handler_s(error: BaseException) -> None:
    # A signal handler that interrupts a wait for a socket may raise an OSError, too, such as TimeoutError.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_globals is not globals():
        raise error


class MPIPeers:
    """The channels of a process that a launcher has started together with the other tasks."""

    def __init__(self, task: Task, cluster: Mapping[str, Sequence[int]]) -> None:
        """Meets the others.

        Args:
            task: which one this process is.
            cluster: the numbers of the tasks of each type, without the coordinator's where the cluster does not
                name it; the same in all processes.

        Raises:
            RD01: a task is gone, or its host has no address.  RD17: the processes are not the tasks of one cluster,
            or two hosts have one name.  RD27: mpi4py cannot be used.
            SystemExit: this worker was started again, and the coordinator has ended meanwhile.
        """
        self._task = task
        self.channels: dict[Task, list[SocketChannel]] = {}
        self.seconds = limit(None)
        self.returns = 0
        self._listener: Listener | None = None  # where workers that were started again connect
        self._key = b""
        self._lock = threading.Lock()
        # By worker, and how often that was started again.
        self._half_there: dict[tuple[Task, int], dict[int, SocketChannel]] = {}
        self._chief = 0  # the process of the coordinator, if that is on this host
        self._left_behind: dict[str, Any] = {}  # what it takes to come back
        if left_behind := supervised.left_behind():
            self._come_back(left_behind)
        else:
            self._meet(cluster)
        failure.end_job_on_exceptions(str(task), os._exit)

    def _meet(self, cluster: Mapping[str, Sequence[int]]) -> None:
        task, seconds = self._task, self.seconds
        with started(seconds) as (mpi, ends_here):
            failure.end_job_on_exceptions(str(task), mpi.COMM_WORLD.Abort)
            supervised.tell("task", task=task)
            world = mpi.COMM_WORLD
            greeting.compare(world.allgather(greeting.own()), world.Get_rank())
            place = processes.place()
            everyone = world.allgather((task, socket.gethostname(), place, os.getpid(), secrets.token_bytes(32),
                                        supervised.restarts()))
            key = self._key = everyone[0][4]
            self.returns = min(restarts for (other, *_, restarts) in everyone if other.type == WORKER)
            networks = {(host, where.network) for _, host, where, *_ in everyone}
            _check_names([host for host, _ in sorted(networks)])
            one_host = len(networks) == 1
            self._chief = next((process for other, _, where, process, *_ in everyone
                                if other == _CHIEF and where.processes == place.processes), 0)
            listener = _listener(one_host, len(everyone))
            # Elsewhere a listener has a port, and the name of its host.
            address = os.fsdecode(listener.address) if one_host else (socket.gethostname(), listener.address[1])
            tasks_of_all = world.allgather((task, {job: list(tasks) for job, tasks in cluster.items()}, address))
            _check(tasks_of_all)
            address_of = {Task(*pair): address for pair, _, address in tasks_of_all}
            if ends_here:
                mpi.Finalize()
            # No worker waits for a worker: those that are connected to come first.
            for (opens, listens), count in LINES.items():
                if task.type == opens:
                    for other in sorted(address_of):
                        for index in range(count if other.type == listens else 0):
                            self._add(other, _connected(other, address_of[other], key, (*task, 0, index)))
                elif task.type == listens:
                    for _ in range(count * sum(other.type == opens for other in address_of)):
                        self._add(*_accepted(listener, key))
            if self.returns and task.type != WORKER:
                self._listener = listener
            else:
                listener.close()
            if self.returns and task.type == WORKER:
                self._left_behind = {"key": key.hex(), "addresses": [
                    [*other, address] for other, address in sorted(address_of.items()) if other.type != WORKER]}

    def _come_back(self, left_behind: dict[str, Any]) -> None:
        joins(str(self._task))
        supervised.tell("task", task=self._task)
        key = bytes.fromhex(left_behind["key"])
        for *other, address in left_behind["addresses"]:
            to = Task(*other)
            for index in range(_lines(self._task, to)):
                where = address if isinstance(address, str) else tuple(address)
                hello = (*self._task, left_behind["start"], index)
                try:
                    self._add(to, _connected(to, where, key, hello))
                except errors.RefdistError:
                    if to == _CHIEF:
                        self.finish()
                        sys.exit()
                    self._add(to, _gone())  # the variables of this parameter server are lost, and no others
        supervised.tell("joined")

    def _add(self, other: Task, connection: Connection) -> None:
        self.channels.setdefault(other, []).append(SocketChannel(connection, self.seconds))

    def listen(self, returned: Callable[[Task, Sequence[Channel]], object]) -> None:
        """See `Peers`."""
        if self._listener is not None:
            threading.Thread(target=self._listen, args=(self._listener, returned), name="refdist returns",
                             daemon=True).start()

    def _listen(self, listener: Listener, returned: Callable[[Task, Sequence[Channel]], object]) -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:  # too many files are open
                time.sleep(_AGAIN_SECONDS)
                continue
            # A stranger that connects and says nothing keeps nobody waiting.
            threading.Thread(target=self._greet, args=(connection, returned), name="refdist return",
                             daemon=True).start()

    def _greet(self, connection: Connection, returned: Callable[[Task, Sequence[Channel]], object]) -> None:
        hello = _hello(connection, self._key)
        if hello is None:
            return
        task, start, index = hello
        with self._lock:
            channels = self._half_there.setdefault((task, start), {})
            channels[index] = SocketChannel(connection, self.seconds)
            if len(channels) < _lines(task, self._task):
                return
            del self._half_there[task, start]
        returned(task, [channels[number] for number in sorted(channels)])

    def spare(self) -> None:
        """See `Peers`."""
        supervised.tell("spared", chief=self._chief, left_behind=self._left_behind)

    def finish(self) -> None:
        """See `Peers`."""
        supervised.tell("finished")


def _lines(task: Task, other: Task) -> int:
    return LINES.get((task.type, other.type)) or LINES[other.type, task.type]


def _listener(one_host: bool, tasks: int) -> Listener:
    address = f"\0refdist.{secrets.token_hex(16)}" if one_host else ("", 0)
    return Listener(address, "AF_UNIX" if one_host else "AF_INET", 2 * tasks)


def _connected(other: Task, address: Any, key: bytes, hello: tuple[str, int, int, int]) -> Connection:
    try:
        connection: Connection = Client(address, authkey=key)
        connection.send_bytes(json.dumps(hello).encode())
        return connection
    except socket.gaierror as error:
        raise errors.error("RD01", "starting", f"{other} is on the host {address[0]}, and {socket.gethostname()} knows "
                           f"no address of that: {error.strerror}", "Write the name of each host, with its address, "
                           "into /etc/hosts of all of them.") from error
    except (AuthenticationError, *_BROKEN) as error:
        raise errors.error("RD01", "starting", f"{other} is gone: {error}") from error


def _gone() -> Connection:
    # A connection whose other end is gone.
    here, there = Pipe()
    there.close()
    return here


def _accepted(listener: Listener, key: bytes) -> tuple[Task, Connection]:
    while True:
        with contextlib.suppress(OSError):  # a task that is gone, and will be missed
            connection = listener.accept()
            if hello := _hello(connection, key):
                return hello[0], connection


def _hello(connection: Connection, key: bytes) -> tuple[Task, int, int] | None:
    # Who has connected: the task, how often that was started again, and the number of the channel.  None for strangers,
    # and for a task that is gone meanwhile.
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as source:
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HELLO_SECONDS, 0))
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            kind, number, start, index = json.loads(connection.recv_bytes(1000))
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
            return Task(kind, number), start, index
    except (AuthenticationError, *_BROKEN):
        connection.close()
        return None


def _check_names(hosts: Sequence[str]) -> None:
    # Tasks reach each other by the names of their hosts.  All see the same, and raise the same.
    for host in hosts:
        if hosts.count(host) > 1:
            raise on_every_worker(errors.error("RD17", "starting", f"{hosts.count(host)} hosts have the name {host}",
                                               "Give each host a name of its own, which the others know."))


def _check(tasks_of_all: Sequence[tuple[Task, Mapping[str, Sequence[int]], object]]) -> None:
    # All see the same, and raise the same.
    attempted = "a job with parameter servers"
    fix = ("Give every process the same cluster and a task of its own, such as with `python -m refdist launch "
           "--workers 4 --ps 2 script.py`.")
    clusters = [cluster for _, cluster, _ in tasks_of_all]
    for task, cluster, _ in tasks_of_all:
        if cluster != clusters[0]:
            differ = f"{Task(*tasks_of_all[0][0])} has the cluster {clusters[0]}, {Task(*task)} has {cluster}"
            raise on_every_worker(errors.error("RD17", attempted, differ, fix))
    tasks = sorted(str(Task(*task)) for task, _, _ in tasks_of_all)
    wanted = sorted(str(Task(job, index)) for job, indices in {CHIEF: [0], **clusters[0]}.items() for index in indices)
    if tasks != wanted:
        raise on_every_worker(errors.error("RD17", attempted, f"the processes are {', '.join(tasks)}; the cluster has "
                                           f"{', '.join(wanted)}", fix))
