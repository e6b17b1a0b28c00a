"""The names of `tf.compat.v1.distribute`; older methods of the strategies name their successors.

>>> import numpy as np
>>> strategy = MirroredStrategy(["GPU:0", "GPU:1"])
>>> iterator = strategy.make_dataset_iterator(strategy.experimental_make_numpy_dataset(np.arange(4)).batch(2))
>>> strategy.experimental_run(lambda x: x + 1, iterator).values
(array([1]), array([2]))
>>> strategy.reduce("SUM", strategy.run(lambda: np.float32(1)))
array(2., dtype=float32)

Source: tf.compat.v1.distribute.
"""

from refdist import cluster_resolver
from refdist.cluster_resolver.server import Server
from refdist.compat.v1 import experimental
from refdist.compat.v1.strategies import MirroredStrategy, OneDeviceStrategy, Strategy
from refdist.core.rules.options import InputReplicationMode, ReduceOp
from refdist.input.options import InputContext
from refdist.strategies.base import RunOptions
from refdist.strategies.cross_device_ops import CrossDeviceOps
from refdist.strategies.default import experimental_set_strategy
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.plans import HierarchicalCopyAllReduce, NcclAllReduce, ReductionToOneDevice
from refdist.strategies.replica_context import (
    ReplicaContext,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from refdist.variables.values import DistributedValues

__all__ = [
    "CrossDeviceOps", "DistributedValues", "HierarchicalCopyAllReduce", "InputContext", "InputReplicationMode",
    "MirroredStrategy", "NcclAllReduce", "OneDeviceStrategy", "ReduceOp", "ReductionToOneDevice", "ReplicaContext",
    "RunOptions", "Server", "Strategy", "StrategyExtended", "cluster_resolver", "experimental",
    "experimental_set_strategy", "get_loss_reduction", "get_replica_context", "get_strategy", "has_strategy",
    "in_cross_replica_context",
]


def get_loss_reduction() -> ReduceOp:
    """How losses of replicas become one: they are added.

    Source: tf.compat.v1.distribute.get_loss_reduction.
    """
    return ReduceOp.SUM
