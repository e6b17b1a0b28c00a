"""refdist: the semantics of tf.distribute, executable in NumPy.

A call goes strategy -> context -> variables and values -> collectives -> backend, and imports go the same
way, never back:

    insight/           recordings of what happens, and what is made of them
    nn                 losses of programs with replicas
    coordinator/       functions on the workers of parameter servers
    strategies/        what users call: one file per strategy, the replica context, how values are reduced
    input/             which replica gets which rows of a dataset
    checkpoints/       variables in files
    random/            random numbers, a stream per replica
    variables/         distributed values and variables
    data/              the part of tf.data that distribution needs
    cluster_resolver/  who the workers are
    workers/           what connects processes: launchers, transports, channels
    array/             the contract with what holds arrays (backends/), conversion, collectives
    config             the devices of a machine
    core/              the semantics, without operations on arrays: the stack of contexts, rules, lock step
    nest, journal, missing, plugins, runtime, errors, interrupts

Names are those of tf.distribute: `refdist.X` is `tf.distribute.X`, `refdist.experimental.X` the same there.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# In a checkout, backends/ and conformance/ lie beside this folder; installed, they lie inside it.
_checkout = Path(__file__).parents[1]
if (_checkout / "setup.cfg").exists():
    __path__.append(str(_checkout))

from refdist import interrupts  # noqa: E402

if interrupts.is_command():
    interrupts.end()

from refdist import (  # noqa: E402
    cluster_resolver,
    compat,
    config,
    coordinator,
    data,
    errors,
    experimental,
    insight,
    missing,
    nest,
    nn,
    random,
    tpu,
    train,
)
from refdist.array.backend import constant, set_backend  # noqa: E402
from refdist.array.indexed_slices import IndexedSlices  # noqa: E402
from refdist.array.replica_checks import replica_type  # noqa: E402
from refdist.backends.simulated.workers import simulate_workers  # noqa: E402
from refdist.cluster_resolver.server import Server  # noqa: E402
from refdist.config import device  # noqa: E402
from refdist.core import tracebacks  # noqa: E402
from refdist.core.rules.options import (  # noqa: E402
    InputReplicationMode,
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
)
from refdist.data.spec import TensorSpec  # noqa: E402
from refdist.input.distributed import DistributedDataset, DistributedIterator  # noqa: E402
from refdist.input.options import InputContext, InputOptions  # noqa: E402
from refdist.strategies.base import RunOptions, Strategy  # noqa: E402
from refdist.strategies.central_storage import CentralStorageStrategy  # noqa: E402
from refdist.strategies.cross_device_ops import CrossDeviceOps  # noqa: E402
from refdist.strategies.default import array_module, experimental_set_strategy  # noqa: E402
from refdist.strategies.extended import StrategyExtended  # noqa: E402
from refdist.strategies.mirrored import MirroredStrategy  # noqa: E402
from refdist.strategies.multi_worker import MultiWorkerMirroredStrategy  # noqa: E402
from refdist.strategies.one_device import OneDeviceStrategy  # noqa: E402
from refdist.strategies.parameter_server import ParameterServerStrategy  # noqa: E402
from refdist.strategies.plans import HierarchicalCopyAllReduce, NcclAllReduce, ReductionToOneDevice  # noqa: E402
from refdist.strategies.replica_context import (  # noqa: E402
    ReplicaContext,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from refdist.strategies.tpu import TPUStrategy  # noqa: E402
from refdist.variables.creation import variable_creator_scope  # noqa: E402
from refdist.variables.distributed import AggregatingVariable, DistributedVariable, MirroredVariable, SyncOnReadVariable  # noqa: E402
from refdist.variables.values import DistributedValues, Mirrored, PerReplica  # noqa: E402
from refdist.variables.variable import Variable  # noqa: E402

if TYPE_CHECKING:
    from refdist.insight import breakpoint, compare, explore, record
else:
    def __getattr__(name: str) -> object:
        # Imported when a program first asks for one of them.
        if name in ("breakpoint", "compare", "explore", "record"):
            return getattr(insight, name)
        return missing.refuse(sys.modules[__name__], name)

__version__ = "0.1.0"

__all__ = [
    "AggregatingVariable", "CentralStorageStrategy", "CrossDeviceOps", "DistributedDataset", "DistributedIterator",
    "DistributedValues", "DistributedVariable", "HierarchicalCopyAllReduce", "IndexedSlices", "InputContext",
    "InputOptions", "InputReplicationMode", "Mirrored", "MirroredStrategy", "MirroredVariable",
    "MultiWorkerMirroredStrategy", "NcclAllReduce", "OneDeviceStrategy", "ParameterServerStrategy", "PerReplica",
    "ReduceOp", "ReductionToOneDevice", "ReplicaContext", "RunOptions", "Server", "Strategy", "StrategyExtended",
    "SyncOnReadVariable", "TPUStrategy", "TensorSpec", "Variable", "VariableAggregation", "VariableSynchronization",
    "array_module", "breakpoint", "cluster_resolver", "compare", "compat", "config", "constant", "coordinator", "data",
    "device", "errors", "experimental", "explore", "experimental_set_strategy", "get_replica_context", "get_strategy",
    "has_strategy", "in_cross_replica_context", "insight", "nest", "nn", "random", "record", "replica_type",
    "set_backend", "simulate_workers", "tpu", "train", "variable_creator_scope",
]

cluster_resolver.launcher.set_tf_config()
tracebacks.install()
missing.explain(sys.modules)
if os.environ.get(insight.VARIABLE):
    insight.start()
if interrupts.is_command():
    interrupts.are_raised()
