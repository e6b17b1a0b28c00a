"""What follows from a launch by mpiexec or srun: a TF_CONFIG, and a resolver that asks the launcher directly."""

from __future__ import annotations

import json
import os

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.core.launcher import launched


def set_tf_config() -> None:
    """Gives a process that a launcher started a TF_CONFIG, as simulated workers have one, where it has none.

    Programs count their workers in it before they make a strategy.
    """
    found = launched()
    if found is not None and "TF_CONFIG" not in os.environ:
        cluster = {"worker": [f"worker{i}.launched:2222" for i in range(found.size)]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": found.rank}})


class MPIClusterResolver(ClusterResolver):
    """The processes that mpiexec or srun started, all of type "worker".

    Addresses are not known before the processes meet, and not needed: they are called rank0, rank1 and so on.

    Raises:
        RD17: nobody started this process together with others.

    Source: refdist's own; `tf.distribute.cluster_resolver` has nothing for MPI.
    """

    def __init__(self, rpc_layer: str | None = "mpi") -> None:
        found = launched()
        if found is None:
            raise errors.error("RD17", "MPIClusterResolver", "this process was not started by mpiexec or srun",
                               "Start the program with `mpiexec -n N python ...`.", kind=errors.InvalidContextError)
        self._task_type, self._task_id = "worker", found.rank
        self._rpc_layer = rpc_layer
        self._size = found.size

    def cluster_spec(self) -> ClusterSpec:
        """One job with a task for each process."""
        return ClusterSpec({"worker": [f"rank{i}" for i in range(self._size)]})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The name of a process, of this one if none is named.

        Raises:
            RD17: no such task.
        """
        return self._own_address(task_type, task_id, rpc_layer)
