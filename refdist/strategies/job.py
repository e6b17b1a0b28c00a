"""The job that this process is a task of: a coordinator, workers and parameter servers, each a process of its own.

A launcher has started them, and all run the same program.  The first thing that needs the others joins the job: making
a ParameterServerStrategy, or `Server.join`.  Both connect the process with the tasks that it has something to say to
(`workers/channels`); workers and parameter servers then do their work, and end when the coordinator does.

A process that was started alone has no job, and simulates all tasks.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from typing import Any

from refdist import errors
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.cluster_resolver.server import serve
from refdist.core.interfaces import Layout
from refdist.runtime import Field
from refdist.variables.remote import Link
from refdist.workers import connection
from refdist.workers.channels import Peers
from refdist.workers.launcher import CHIEF, SERVER, WORKER, Task


class Job:
    """The job that this process shares with others.

    Attributes:
        task: which one this process is.
        cluster: the cluster.
        peers: the channels to the others.
        links: to the parameter servers.
        strategies: those of this process, by their numbers.
    """

    def __init__(self, task: Task, cluster: ClusterSpec, peers: Peers) -> None:
        self.task = task
        self.cluster = cluster
        self.peers = peers
        self.links = [Link(peers.channels[Task(SERVER, index)][0]) for index in cluster.task_indices(SERVER)
                      if task.type != SERVER]
        self.strategies: list[Any] = []
        self._numbers = itertools.count()

    def new_number(self) -> int:
        """A number that no other object of the job has; only the coordinator makes objects."""
        return next(self._numbers)

    def take(self, strategy: object, cluster: ClusterSpec, layout: Layout) -> None:
        """Lets a strategy use the job, which may have several.

        Raises:
            RD17: the strategy has another cluster.  RD20: workers would have several replicas.
        """
        attempted = "ParameterServerStrategy in a job of several processes"
        if cluster != self.cluster:
            raise errors.error("RD17", attempted, f"the strategy has the cluster {cluster}, and the processes are the "
                               f"tasks of {self.cluster}", "Give all strategies of the program the same cluster.")
        if layout.count > 1:
            raise errors.error("RD20", attempted, f"the resolver's num_accelerators give each worker "
                               f"{layout.count} replicas", "Leave num_accelerators out, and start more workers: each "
                               "process has one replica.")
        self.strategies.append(strategy)


current: Field[Job | None] = Field("the job that this process is a task of; None where tasks are simulated",
                                   lambda: None, kept=True)


_meeting = threading.RLock()  # held while a thread joins the job


def met(task: Task, cluster: ClusterSpec) -> Job | None:
    """The job, which this process joins at the first call; None if tasks are simulated.

    Raises:
        RD17: the processes are not the tasks of the cluster.
    """
    launcher = connection.launcher()
    group = None if launcher is None else launcher.group()
    with _meeting:
        if current.value is not None or launcher is None or group is None or group.size == 1:
            return current.value
        peers = launcher.meet(task, {job: cluster.task_indices(job) for job in (WORKER, SERVER)})
        if peers is not None:
            current.value = Job(task, cluster, peers)
            atexit.register(peers.finish)
        return current.value


def joined(cluster: ClusterSpec, task_type: str, task_id: int) -> Job | None:
    """The job of a process that makes a strategy; None if tasks are simulated.

    Raises:
        SystemExit: this process is a worker or a parameter server, and its coordinator has ended.
        RD17: the processes are not the tasks of the cluster.
    """
    if task_type != CHIEF and current.value is None:
        serve.value(cluster, task_type, task_id)
    return met(Task(task_type, task_id), cluster)
