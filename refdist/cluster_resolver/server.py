"""`Server`: a task of a cluster, as the program of a worker or of a parameter server starts it.

Where the processes were started together, `join` does what the task has to do (`serve`), and the process ends with the
coordinator's.  In any other process the tasks are simulated and need not be started: a program in which all roles are
in one process may make Servers as it does for TensorFlow, and `join` is an error instead of waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from refdist import errors
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.runtime import Late

# What a worker or a parameter server of this number does; returns only where tasks are simulated.
serve: Late[Callable[[ClusterSpec, str, int], None]] = Late()


class ServerDef(NamedTuple):
    """Which task of which cluster a server is."""

    cluster: ClusterSpec
    job_name: str
    task_index: int
    protocol: str


class Server:
    """A task of a cluster.

    Args:
        server_or_cluster_def: a ClusterSpec, a dict that is one, or the `server_def` of another server.
        job_name: needed where the cluster has several jobs.
        task_index: needed where the job has several tasks.
        protocol: "grpc", which is the only one.
        config: has no effect.
        start: whether it is started at once.

    >>> server = Server({"worker": ["localhost:2222"]})
    >>> server.target, server.server_def.job_name, server.server_def.task_index
    ('grpc://localhost:2222', 'worker', 0)

    Raises:
        RD17: the cluster does not have this task, its address has no port, or it is not said which task is meant.
        RD25, RD34: bad arguments.

    Source: tf.distribute.Server.
    """

    def __init__(self, server_or_cluster_def: object, job_name: str | None = None, task_index: int | None = None,
                 protocol: str | None = None, config: object = None, start: bool = True) -> None:
        definition = server_or_cluster_def
        if isinstance(definition, ServerDef):
            job_name = definition.job_name if job_name is None else job_name
            task_index = definition.task_index if task_index is None else task_index
            protocol, definition = protocol or definition.protocol, definition.cluster
        spec = ClusterSpec(definition)
        if protocol not in (None, "grpc"):
            raise errors.error("RD34", "Server", f"protocol is {protocol!r}", 'Pass "grpc" or None.')
        if job_name is None and len(spec.jobs) == 1:
            [job_name] = spec.jobs
        if job_name is None:
            raise errors.error("RD17", "Server", f"job_name is None and the jobs are {spec.jobs}", "Pass one of them.")
        indices = spec.task_indices(job_name)
        if task_index is None and len(indices) == 1:
            [task_index] = indices
        if task_index is None:
            raise errors.error("RD17", "Server", f"task_index is None and job {job_name!r} has tasks {indices}",
                               "Pass one of them.")
        address = spec.task_address(job_name, task_index)
        if not address.rpartition(":")[2].isdecimal():
            raise errors.error("RD17", "Server", f"the address of {job_name} {task_index}, {address!r}, has no port",
                               'Write for example "localhost:2222".')
        self._def = ServerDef(spec, job_name, task_index, "grpc")

    @staticmethod
    def create_local_server(config: object = None, start: bool = True) -> Server:
        """A server that is a cluster of its own.

        Args:
            config, start: without effect.

        Source: tf.distribute.Server.create_local_server.
        """
        return Server({"localhost": ["localhost:0"]}, start=start)

    @property
    def server_def(self) -> ServerDef:
        """Which task it is."""
        return self._def

    @property
    def target(self) -> str:
        """Its address."""
        return f"grpc://{self._def.cluster.task_address(self._def.job_name, self._def.task_index)}"

    def start(self) -> None:
        """Does nothing: a simulated task exists as soon as a cluster names it."""

    def join(self) -> None:
        """Does what the task has to do, until the coordinator ends; then the process ends, too.

        Raises:
            SystemExit: the coordinator has ended.
            RD17: the processes are not the tasks of one cluster.
            RD20: this process was not started together with a coordinator.

        Source: tf.distribute.Server.join.
        """
        spec, job, index, _ = self._def
        if job in ("worker", "ps"):
            serve.value(spec, job, index)
        raise errors.error("RD20", "Server.join", f"{job} {index} would wait for a coordinator, which simulates all "
                           "tasks in its own process",
                           "Start only the program of the coordinator, or all of them together: `python -m refdist "
                           "launch --workers 2 --ps 1 script.py`.")
