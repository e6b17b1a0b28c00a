"""The strategies of `tf.compat.v1.distribute`: those of refdist, but `reduce` may leave the axis out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refdist.core.rules import ReduceOp
from refdist.strategies import base, central_storage, mirrored, multi_worker, one_device


class Strategy(base.Strategy):
    """What the strategies of the first version have in common.

    Source: tf.compat.v1.distribute.Strategy.
    """

    def reduce(self, reduce_op: ReduceOp | str, value: object, axis: int | Sequence[int] | None = None) -> Any:
        """One value from the values of all replicas; see `refdist.Strategy.reduce`.

        Source: tf.compat.v1.distribute.Strategy.reduce.
        """
        return super().reduce(reduce_op, value, axis)


class MirroredStrategy(mirrored.MirroredStrategy, Strategy):
    """refdist.MirroredStrategy, in the first version.

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
