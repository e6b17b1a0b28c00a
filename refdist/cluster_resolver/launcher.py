"""Processes started by mpiexec or srun: their TF_CONFIG, and a cluster resolver that reads the launcher's variables.

They are all workers, unless REFDIST_PS says how many of them are parameter servers: then process 0 is the chief, which
coordinates, the last ones are the parameter servers, and those between them the workers.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import NamedTuple

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.core.launcher import launched

SERVERS_VARIABLE = "REFDIST_PS"


class _Role(NamedTuple):
    jobs: dict[str, int]  # how many tasks each has
    task_type: str
    task_id: int


def _role(rank: int, size: int) -> _Role:
    text = os.environ.get(SERVERS_VARIABLE, "0")
    servers = int(text) if text.isdecimal() else -1
    if servers == 0:
        return _Role({"worker": size}, "worker", rank)
    workers = size - 1 - servers
    if servers < 0 or workers < 1:
        raise errors.error("RD17", f"environment variable {SERVERS_VARIABLE}={text!r}", f"there are {size} processes",
                           "Write the number of parameter servers, and start one process more for the chief, and at "
                           "least one for a worker.")
    jobs = {"chief": 1, "worker": workers, "ps": servers}
    for job, count in jobs.items():
        if rank < count:
            return _Role(jobs, job, rank)
        rank -= count
    raise errors.InternalError("a process without a role")


def set_tf_config() -> None:
    """Sets TF_CONFIG in a process that a launcher started, unless it is set; simulated workers have one too.

    Programs read their number of workers from it before they create a strategy.
    """
    found = launched()
    if found is not None and "TF_CONFIG" not in os.environ:
        role = _role(found.rank, found.size)
        cluster = {job: [f"{job}{i}.launched:2222" for i in range(count)] for job, count in role.jobs.items()}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster,
                                              "task": {"type": role.task_type, "index": role.task_id}})


class MPIClusterResolver(ClusterResolver):
    """The processes that mpiexec or srun started: workers, and where REFDIST_PS is set, a chief and parameter servers.

    MPI needs no addresses, and they are not known before MPI has started: the tasks are called rank0, rank1 and so on.

    Raises:
        RD17: this process was not started by mpiexec or srun, or there are not enough for REFDIST_PS.

    Source: refdist's own; TensorFlow does not have a resolver for MPI.
    """

    def __init__(self, rpc_layer: str | None = "mpi") -> None:
        found = launched()
        if found is None:
            raise errors.error("RD17", "MPIClusterResolver", "this process was not started by mpiexec or srun",
                               "Start the program with `mpiexec -n N python ...`.", kind=errors.InvalidContextError)
        self._jobs, self.task_type, self.task_id = _role(found.rank, found.size)
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """A task for each process."""
        ranks = itertools.count()
        return ClusterSpec({job: [f"rank{next(ranks)}" for _ in range(count)] for job, count in self._jobs.items()})
