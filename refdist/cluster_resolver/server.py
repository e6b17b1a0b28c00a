"""`Server`: a task of a cluster, as the program of a worker or of a parameter server starts it.

Tasks are simulated in the process of the coordinator and need not be started.  A program in which all roles are in one
process may make Servers as it does for TensorFlow; one that starts a process for each role has nothing to do in any but
the coordinator's, and is told so by `join` instead of waiting for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from refdist import errors
from refdist.cluster_resolver.cluster_spec import ClusterSpec


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
        RD17: the cluster does not have this task, or it is not said which one is meant.  RD25: bad arguments.

    Source: tf.distribute.Server.
    """

    def __init__(self, server_or_cluster_def: object, job_name: str | None = None, task_index: int | None = None,
                 protocol: str | None = None, config: object = None, start: bool = True) -> None:
        given = server_or_cluster_def
        if isinstance(given, ServerDef):
            job_name = given.job_name if job_name is None else job_name
            task_index = given.task_index if task_index is None else task_index
            protocol, given = protocol or given.protocol, given.cluster
        spec = ClusterSpec(given)
        if protocol not in (None, "grpc"):
            raise errors.error("RD25", "Server", f"protocol is {protocol!r}", 'Pass "grpc" or None.',
                               kind=errors.InvalidValueError)
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
        spec.task_address(job_name, task_index)
        self._def = ServerDef(spec, job_name, task_index, "grpc")

    @staticmethod
    def create_local_server(config: object = None, start: bool = True) -> Server:
        """A server that is a cluster of its own.

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
        """Waits for ever in TensorFlow, and is an error here.

        Raises:
            RD20: always, because the coordinator does not connect to other processes.

        Source: tf.distribute.Server.join.
        """
        raise errors.error("RD20", "Server.join", f"{self._def.job_name} {self._def.task_index} would wait for a "
                           "coordinator, which simulates all tasks in its own process",
                           "Start only the program of the coordinator, without the ones of workers and parameter "
                           "servers.")
