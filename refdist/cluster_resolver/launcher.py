"""For processes started by mpiexec or srun: a TF_CONFIG, and a resolver that reads the launcher's own variables."""

from __future__ import annotations

import json
import os

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.core.launcher import launched


def set_tf_config() -> None:
    """Sets TF_CONFIG in a process that a launcher started, unless it is set; simulated workers have one too.

    Programs read their number of workers from it before they create a strategy.
    """
    found = launched()
    if found is not None and "TF_CONFIG" not in os.environ:
        cluster = {"worker": [f"worker{i}.launched:2222" for i in range(found.size)]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": found.rank}})


class MPIClusterResolver(ClusterResolver):
    """The processes that mpiexec or srun started, all of type "worker".

    MPI needs no addresses, and they are not known before MPI has started: the tasks are called rank0, rank1 and so on.

    Raises:
        RD17: this process was not started by mpiexec or srun.

    Source: refdist's own; TensorFlow does not have a resolver for MPI.
    """

    def __init__(self, rpc_layer: str | None = "mpi") -> None:
        found = launched()
        if found is None:
            raise errors.error("RD17", "MPIClusterResolver", "this process was not started by mpiexec or srun",
                               "Start the program with `mpiexec -n N python ...`.", kind=errors.InvalidContextError)
        self.task_type, self.task_id = "worker", found.rank
        self.rpc_layer = rpc_layer
        self._size = found.size

    def cluster_spec(self) -> ClusterSpec:
        """One job with a task for each process."""
        return ClusterSpec({"worker": [f"rank{i}" for i in range(self._size)]})
