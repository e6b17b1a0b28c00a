"""The names of `tf.distribute`, which are those of the package: all of refdist but what launches it."""

from refdist import (
    cluster_resolver,
    compat,
    config,
    coordinator,
    data,
    errors,
    experimental,
    insight,
    nest,
    nn,
    random,
    tpu,
    train,
)
from refdist.array.backend import constant, set_backend
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.replica_checks import replica_type
from refdist.backends.simulated.workers import simulate_workers
from refdist.cluster_resolver.server import Server
from refdist.config import device
from refdist.core.rules.options import (
    InputReplicationMode,
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
)
from refdist.data.spec import TensorSpec
from refdist.input.distributed import DistributedDataset, DistributedIterator
from refdist.input.options import InputContext, InputOptions
from refdist.strategies.base import RunOptions, Strategy
from refdist.strategies.central_storage import CentralStorageStrategy
from refdist.strategies.cross_device_ops import CrossDeviceOps
from refdist.strategies.default import array_module, experimental_set_strategy
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.mirrored import MirroredStrategy
from refdist.strategies.multi_worker import MultiWorkerMirroredStrategy
from refdist.strategies.one_device import OneDeviceStrategy
from refdist.strategies.parameter_server import ParameterServerStrategy
from refdist.strategies.plans import HierarchicalCopyAllReduce, NcclAllReduce, ReductionToOneDevice
from refdist.strategies.replica_context import (
    ReplicaContext,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from refdist.strategies.tpu import TPUStrategy
from refdist.variables.creation import variable_creator_scope
from refdist.variables.distributed import AggregatingVariable, DistributedVariable, MirroredVariable, SyncOnReadVariable
from refdist.variables.values import DistributedValues, Mirrored, PerReplica
from refdist.variables.variable import Variable

__all__: list[str] = [
    "AggregatingVariable", "CentralStorageStrategy", "CrossDeviceOps", "DistributedDataset", "DistributedIterator",
    "DistributedValues", "DistributedVariable", "HierarchicalCopyAllReduce", "IndexedSlices", "InputContext",
    "InputOptions", "InputReplicationMode", "Mirrored", "MirroredStrategy", "MirroredVariable",
    "MultiWorkerMirroredStrategy", "NcclAllReduce", "OneDeviceStrategy", "ParameterServerStrategy", "PerReplica",
    "ReduceOp", "ReductionToOneDevice", "ReplicaContext", "RunOptions", "Server", "Strategy", "StrategyExtended",
    "SyncOnReadVariable", "TPUStrategy", "TensorSpec", "Variable", "VariableAggregation", "VariableSynchronization",
    "array_module", "cluster_resolver", "compat", "config", "constant", "coordinator", "data", "device", "errors",
    "experimental", "experimental_set_strategy", "get_replica_context", "get_strategy", "has_strategy",
    "in_cross_replica_context", "insight", "nest", "nn", "random", "replica_type", "set_backend", "simulate_workers",
    "tpu", "train", "variable_creator_scope",
]
