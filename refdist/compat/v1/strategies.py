"""The strategies of `tf.compat.v1.distribute`: those of refdist, but `reduce` may leave the axis out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cloud import TPUClusterResolver
from refdist.cluster_resolver.device_assignment import DeviceAssignment
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.core.rules.options import ReduceOp
from refdist.strategies import base, central_storage, mirrored, multi_worker, one_device, tpu
from refdist.strategies.extended import StrategyExtended


class Strategy(base.Strategy):
    """What the strategies of the first version have in common.

    Source: tf.compat.v1.distribute.Strategy.
    """

    def reduce(self, reduce_op: ReduceOp | str, value: object, axis: int | Sequence[int] | None = None) -> Any:
        """One value from the values of all replicas; see `refdist.Strategy.reduce`.

        Args:
            reduce_op: how they are combined, a ReduceOp or its name, as "SUM".
            value: what `run` has returned: a nest of values of each replica, arrays of numbers of the same shape and
                dtype.
            axis: dimensions that are reduced, too, an int or several; None for none.

        Source: tf.compat.v1.distribute.Strategy.reduce.
        """
        return super().reduce(reduce_op, value, axis)


class MirroredStrategy(mirrored.MirroredStrategy, Strategy):
    """refdist.MirroredStrategy with the API of TensorFlow 1.

    Source: tf.compat.v1.distribute.MirroredStrategy.
    """


class OneDeviceStrategy(one_device.OneDeviceStrategy, Strategy):
    """refdist.OneDeviceStrategy, in the first version.

    Source: tf.compat.v1.distribute.OneDeviceStrategy.
    """


class CentralStorageStrategy(central_storage.CentralStorageStrategy, Strategy):
    """refdist.experimental.CentralStorageStrategy, in the first version.

    Source: tf.compat.v1.distribute.experimental.CentralStorageStrategy.
    """


class MultiWorkerMirroredStrategy(multi_worker.ExperimentalMultiWorkerMirroredStrategy, Strategy):
    """refdist.experimental.MultiWorkerMirroredStrategy, in the first version.

    Source: tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy.
    """


class TPUStrategy(tpu.OnTPU, Strategy):
    """refdist.TPUStrategy without logical devices, in the first version.

    Args:
        tpu_cluster_resolver: a TPUClusterResolver; None for this machine's TPU.
        steps_per_run: without effect; None for 1.
        device_assignment: the cores of every replica, a DeviceAssignment; None makes every core a replica.

    Source: tf.compat.v1.distribute.experimental.TPUStrategy.
    """

    def __init__(self, tpu_cluster_resolver: TPUClusterResolver | None = None, steps_per_run: int | None = None,
                 device_assignment: DeviceAssignment | None = None) -> None:
        super().__init__(tpu_cluster_resolver, device_assignment, steps_per_run=steps_per_run or 1)

    @property
    def steps_per_run(self) -> int:
        """What the strategy was given; without effect."""
        return self.extended.steps_per_run


class ParameterServerStrategy(Strategy):
    """Parameter servers without a coordinator: each worker runs the program.  It was made for graphs.

    It can be made and asked where variables would be; to train, use `refdist.ParameterServerStrategy`.

    Args:
        cluster_resolver: says which worker this is, and where the parameter servers are; None asks TF_CONFIG.

    Raises:
        RD17: the cluster has no parameter server, or does not say which task this is.

    Source: tf.compat.v1.distribute.experimental.ParameterServerStrategy.
    """

    def __init__(self, cluster_resolver: ClusterResolver | None = None) -> None:
        resolver = cluster_resolver or TFConfigClusterResolver()
        spec, job, task = resolver.cluster_spec(), resolver.task_type, resolver.task_id
        devices, servers = "", ["CPU:0"]
        if spec:
            if "ps" not in spec.jobs or not spec.num_tasks("ps") or job is None or task is None:
                raise errors.error("RD17", "ParameterServerStrategy", f"the cluster is {spec}, the task {job} {task}",
                                   "Give the cluster a ps, and say which task this is.")
            devices, servers = f"/job:{job}/task:{task}/", [f"/job:ps/task:{i}" for i in spec.task_indices("ps")]
        gpus = resolver.num_accelerators().get("GPU", 0)
        local = [f"{devices}GPU:{i}" for i in range(gpus)] or [f"{devices}CPU:0"]
        super().__init__(ParameterServerExtended(self, worker_devices=local, parameter_devices=servers))

    def scope(self) -> base.Scope:
        """Not supported.

        Raises:
            RD20: always.
        """
        raise _of_graphs("scope")

    def run(self, *args: object, **kwargs: object) -> Any:
        """Not supported.

        Args:
            args, kwargs: not used.

        Raises:
            RD20: always.
        """
        raise _of_graphs("run")

    def experimental_distribute_dataset(self, *args: object, **kwargs: object) -> Any:
        """Not supported.

        Args:
            args, kwargs: not used.

        Raises:
            RD20: always.
        """
        raise _of_graphs("experimental_distribute_dataset")

    def distribute_datasets_from_function(self, *args: object, **kwargs: object) -> Any:
        """Not supported.

        Args:
            args, kwargs: not used.

        Raises:
            RD20: always.
        """
        raise _of_graphs("distribute_datasets_from_function")


class ParameterServerExtended(StrategyExtended):
    """The methods of the first version's ParameterServerStrategy."""

    @property
    def experimental_between_graph(self) -> bool:
        """Whether every worker runs the program itself: yes."""
        return True

    @property
    def experimental_should_init(self) -> bool:
        """Whether this worker initializes variables: the chief does, which trains nothing."""
        return False

    @property
    def should_checkpoint(self) -> bool:
        """Whether this worker writes checkpoints: no."""
        return False

    @property
    def should_save_summary(self) -> bool:
        """Whether this worker writes summaries: no."""
        return False


def _of_graphs(call: str) -> errors.RefdistError:
    return errors.error("RD20", f"ParameterServerStrategy.{call}", "the API of TensorFlow 1 is for graphs, and "
                        "refdist has none",
                        "Use refdist.ParameterServerStrategy and refdist.coordinator.ClusterCoordinator.")
