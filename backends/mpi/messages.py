"""Channels between the tasks of a job with parameter servers: sockets, which MPI only introduces to each other.

MPI starts the processes, and tells each the addresses of the others; then it is ended.  Messages do not go through it,
because such a job outlives its workers and MPI does not: in MPICH no call reports a process that is dead, a message to
one can crash its sender, and all processes are ended when one leaves without a word.  The kernel closes the sockets of
a process that dies, however it dies, and its peers see that at once.  Nor does MPI leave shared memory behind.

All of it happens within the limit for the start of a job, which a supervisor counts.  Parameter servers accept;
workers connect to them, then accept; the coordinator connects to all: there is no circle in which tasks could wait for
each other.  On one host the sockets are Unix's, without a file; between hosts they are TCP's.  Both sides prove that
they have the job's key, 32 random bytes that travel through MPI, before anything that they send is read.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from refdist import errors
from refdist.backends.mpi import failure, greeting, processes, supervised
from refdist.backends.mpi.start import limit, started
from refdist.workers.channels import LINES, Gone
from refdist.workers.launcher import CHIEF, Task
from refdist.workers.transport import on_every_worker

_BROKEN = (EOFError, OSError)
_CHIEF = Task(CHIEF, 0)
_LONGEST = 2e6  # seconds, 23 days; Linux counts milliseconds in 32 bits


class SocketChannel:
    """One end of a connection."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        seconds = min(seconds, _LONGEST)
        self._connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        whole = int(seconds)
        self._limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._limit)
        self._limited = False

    def send(self, message: bytes) -> None:
        """See `Channel`."""
        try:
            self._connection.send_bytes(message)
        except _BROKEN as error:
            raise self._gone(error) from error

    def receive(self) -> bytes:
        """See `Channel`."""
        try:
            return self._connection.recv_bytes()
        except _BROKEN as error:
            raise self._gone(error) from error

    def answer(self) -> bytes:
        """See `Channel`."""
        if not self._limited:
            self._limited = True
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._limit)
        return self.receive()

    def _gone(self, error: Exception) -> Gone:
        self.close()  # what comes later would be taken for the answer to something else
        return Gone("it did not answer in time" if isinstance(error, BlockingIOError) else "its process is gone")

    def fileno(self) -> int:
        """See `Channel`."""
        return self._socket.fileno()

    def close(self) -> None:
        """See `Channel`."""
        self._connection.close()
        self._socket.close()


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
        """
        self._task = task
        self.channels: dict[Task, list[SocketChannel]] = {}
        seconds = limit(None)
        with started(seconds) as (mpi, ends_here):
            failure.end_job_on_exceptions(str(task), mpi.COMM_WORLD.Abort)
            supervised.tell("task", task=task)
            world = mpi.COMM_WORLD
            greeting.compare(world.allgather(greeting.own()), world.Get_rank())
            place = processes.place()
            everyone = world.allgather((task, socket.gethostname(), place, os.getpid(), secrets.token_bytes(32)))
            key = everyone[0][-1]
            networks = {(host, where.network) for _, host, where, *_ in everyone}
            _check_names([host for host, _ in sorted(networks)])
            one_host = len(networks) == 1
            self._chief = next((process for other, _, where, process, _ in everyone
                                if other == _CHIEF and where.processes == place.processes), 0)
            listener = _listener(one_host, key, len(everyone))
            # Elsewhere a listener has a port, and the name of its host.
            address = listener.address if one_host else (socket.gethostname(), listener.address[1])
            found = world.allgather((task, {job: list(tasks) for job, tasks in cluster.items()}, address))
            _check(found)
            address_of = {Task(*one): address for one, _, address in found}
            if ends_here:
                mpi.Finalize()
            # No worker waits for a worker: those that are connected to come first.
            for (opens, listens), count in LINES.items():
                if task.type == opens:
                    for other in sorted(address_of):
                        for _ in range(count if other.type == listens else 0):
                            self._add(other, _connected(other, address_of[other], key, task), seconds)
                elif task.type == listens:
                    for _ in range(count * sum(other.type == opens for other in address_of)):
                        self._add(*_accepted(listener), seconds)
            listener.close()
        failure.end_job_on_exceptions(str(task), os._exit)

    def _add(self, other: Task, connection: Connection, seconds: float) -> None:
        self.channels.setdefault(other, []).append(SocketChannel(connection, seconds))

    def spare(self) -> None:
        """See `Peers`."""
        supervised.tell("spared", chief=self._chief)

    def finish(self) -> None:
        """See `Peers`."""
        supervised.tell("finished")


def _listener(one_host: bool, key: bytes, tasks: int) -> Listener:
    address = f"\0refdist.{secrets.token_hex(16)}" if one_host else ("", 0)
    return Listener(address, "AF_UNIX" if one_host else "AF_INET", 2 * tasks, key)


def _connected(other: Task, address: Any, key: bytes, task: Task) -> Connection:
    try:
        connection: Connection = Client(address, authkey=key)
        connection.send_bytes(json.dumps(task).encode())
        return connection
    except socket.gaierror as error:
        raise errors.error("RD01", "starting", f"{other} is on the host {address[0]}, and {socket.gethostname()} knows "
                           f"no address of that: {error.strerror}", "Write the name of each host, with its address, "
                           "into /etc/hosts of all of them.") from error
    except _BROKEN as error:
        raise errors.error("RD01", "starting", f"{other} is gone: {error}") from error


def _accepted(listener: Listener) -> tuple[Task, Connection]:
    while True:
        try:
            connection = listener.accept()
            return Task(*json.loads(connection.recv_bytes(1000))), connection
        except (AuthenticationError, *_BROKEN):
            pass  # a stranger, or a task that is gone and will be missed


def _check_names(hosts: Sequence[str]) -> None:
    # Tasks reach each other by the names of their hosts.  All see the same, and raise the same.
    for host in hosts:
        if hosts.count(host) > 1:
            raise on_every_worker(errors.error("RD17", "starting", f"{hosts.count(host)} hosts have the name {host}",
                                               "Give each host a name of its own, which the others know."))


def _check(found: Sequence[tuple[Task, Mapping[str, Sequence[int]], object]]) -> None:
    # All see the same, and raise the same.
    attempted = "a job with parameter servers"
    fix = ("Give every process the same cluster and a task of its own, such as with `python -m refdist launch "
           "--workers 4 --ps 2 script.py`.")
    clusters = [cluster for _, cluster, _ in found]
    for task, cluster, _ in found:
        if cluster != clusters[0]:
            differ = f"{Task(*found[0][0])} has the cluster {clusters[0]}, {Task(*task)} has {cluster}"
            raise on_every_worker(errors.error("RD17", attempted, differ, fix))
    tasks = sorted(str(Task(*task)) for task, _, _ in found)
    wanted = sorted(str(Task(job, index)) for job, indices in {CHIEF: [0], **clusters[0]}.items() for index in indices)
    if tasks != wanted:
        raise on_every_worker(errors.error("RD17", attempted, f"the processes are {', '.join(tasks)}; the cluster has "
                                           f"{', '.join(wanted)}", fix))
