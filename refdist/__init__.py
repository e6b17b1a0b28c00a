"""refdist: the semantics of tf.distribute, executable in NumPy.

A call goes strategy -> context -> variables and values -> collectives -> backend, and imports go the same
way, never back:

    strategies/            what users call; one file per strategy
    datasets, sharding     which replica gets which rows
    nn, random, train      losses, random numbers and checkpoints of programs with replicas
    context                ReplicaContext, merge_call, who am I
    workers, transport     collectives between the workers of a cluster
    plans, cross_device_ops
                           which way values travel between devices
    checkpoint             variables in files
    distributed_variables, variables, values
    collectives            sums and gathers over one array per replica
    backend                the contract with what holds the arrays (backends/)
    lockstep               replicas run one at a time and meet; what they bring is compared
    rules                  the tables that all of the above look up
    cluster_resolver, cluster, inputs, data, config, journal, creators, nest, devices, current, arrays,
    indexed_slices, communication, missing, tracebacks, call_site, errors

Names are those of tf.distribute: `refdist.X` is `tf.distribute.X`, `refdist.experimental.X` the same there.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout, backends/ and conformance/ lie beside this folder; installed, they lie inside it.
_checkout = Path(__file__).parents[1]
if (_checkout / "setup.cfg").exists():
    __path__.append(str(_checkout))

from refdist import (  # noqa: E402
    cluster_resolver,
    compat,
    config,
    data,
    errors,
    experimental,
    journal,
    nest,
    nn,
    random,
    tracebacks,
    train,
)
from refdist.backend import constant, set_backend  # noqa: E402
from refdist.backends.simulated_workers import simulate_workers  # noqa: E402
from refdist.config import device  # noqa: E402
from refdist.context import (  # noqa: E402
    ReplicaContext,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from refdist.creators import variable_creator_scope  # noqa: E402
from refdist.cross_device_ops import CrossDeviceOps  # noqa: E402
from refdist.data.spec import TensorSpec  # noqa: E402
from refdist.datasets import DistributedDataset, DistributedIterator  # noqa: E402
from refdist.distributed_variables import (  # noqa: E402
    AggregatingVariable,
    DistributedVariable,
    MirroredVariable,
    SyncOnReadVariable,
)
from refdist.indexed_slices import IndexedSlices  # noqa: E402
from refdist.inputs import InputContext, InputOptions, InputReplicationMode  # noqa: E402
from refdist.missing import no_such_name  # noqa: E402
from refdist.plans import HierarchicalCopyAllReduce, NcclAllReduce, ReductionToOneDevice  # noqa: E402
from refdist.rules import ReduceOp, VariableAggregation, VariableSynchronization  # noqa: E402
from refdist.strategies.base import RunOptions, Strategy  # noqa: E402
from refdist.strategies.central_storage import CentralStorageStrategy  # noqa: E402
from refdist.strategies.default import array_module, experimental_set_strategy  # noqa: E402
from refdist.strategies.extended import StrategyExtended  # noqa: E402
from refdist.strategies.mirrored import MirroredStrategy  # noqa: E402
from refdist.strategies.multi_worker import MultiWorkerMirroredStrategy  # noqa: E402
from refdist.strategies.one_device import OneDeviceStrategy  # noqa: E402
from refdist.values import DistributedValues, Mirrored, PerReplica  # noqa: E402
from refdist.variables import Variable  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "AggregatingVariable", "CentralStorageStrategy", "CrossDeviceOps", "DistributedDataset", "DistributedIterator",
    "DistributedValues", "DistributedVariable", "HierarchicalCopyAllReduce", "IndexedSlices", "InputContext",
    "InputOptions", "InputReplicationMode", "Mirrored", "MirroredStrategy", "MirroredVariable",
    "MultiWorkerMirroredStrategy", "NcclAllReduce", "OneDeviceStrategy", "PerReplica", "ReduceOp",
    "ReductionToOneDevice", "ReplicaContext", "RunOptions", "Strategy", "StrategyExtended", "SyncOnReadVariable",
    "TensorSpec", "Variable", "VariableAggregation", "VariableSynchronization", "array_module", "cluster_resolver",
    "compat", "config", "constant", "data", "device", "errors", "experimental", "experimental_set_strategy",
    "get_replica_context", "get_strategy", "has_strategy", "in_cross_replica_context", "journal", "nest", "nn",
    "random", "set_backend", "simulate_workers", "train", "variable_creator_scope",
]

cluster_resolver.launcher.set_tf_config()
tracebacks.install()


if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        raise no_such_name(__name__, name)
