"""Processes started by mpiexec or srun: their TF_CONFIG, and a cluster resolver that reads the launcher's variables."""

from __future__ import annotations

import itertools
import json
import os

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.workers.launcher import SERVERS_VARIABLE, SUPERVISED_VARIABLE, jobs_of, launched, task_of


def _jobs(size: int) -> dict[str, int]:
    jobs = jobs_of(size)
    if jobs is None:
        raise errors.error("RD17", f"environment variable {SERVERS_VARIABLE}={os.environ[SERVERS_VARIABLE]!r}",
                           f"the number of processes is {size}", "Write the number of parameter servers, and start one "
                           "process more for the chief, and at least one for a worker.")
    return jobs


def label() -> str:
    """The name of this process's task, where nothing else writes it before the lines that the process prints."""
    launch = None if SUPERVISED_VARIABLE in os.environ else launched()
    return "" if launch is None or launch.size == 1 else str(task_of(launch.rank, launch.size))


def set_tf_config() -> None:
    """Sets TF_CONFIG in a process that a launcher started, unless it is set; simulated workers have one too.

    Programs read their number of workers from it before they create a strategy.
    """
    process = launched()
    if process is not None and "TF_CONFIG" not in os.environ:
        cluster = {job: [f"{job}{i}.launched:2222" for i in range(count)] for job, count in _jobs(process.size).items()}
        task = task_of(process.rank, process.size)
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": task.type, "index": task.number}})


class MPIClusterResolver(ClusterResolver):
    """The processes that mpiexec or srun started: workers, and where REFDIST_PS is set, a chief and parameter servers.

    MPI needs no addresses, and they are not known before MPI has started: the tasks are called rank0, rank1 and so on.

    Args:
        rpc_layer: the protocol in front of addresses.

    Raises:
        RD17: this process was not started by mpiexec or srun, or there are not enough for REFDIST_PS.

    Source: refdist's own; TensorFlow does not have a resolver for MPI.
    """

    def __init__(self, rpc_layer: str | None = "mpi") -> None:
        process = launched()
        if process is None:
            raise errors.error("RD17", "MPIClusterResolver", "this process was not started by mpiexec or srun",
                               "Start the program with `mpiexec -n N python ...`.", kind=errors.InvalidContextError)
        self._jobs = _jobs(process.size)
        self.task_type, self.task_id = task_of(process.rank, process.size)
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """A task for each process."""
        ranks = itertools.count()
        return ClusterSpec({job: [f"rank{next(ranks)}" for _ in range(count)] for job, count in self._jobs.items()})
