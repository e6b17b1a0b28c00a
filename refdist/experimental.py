"""What TensorFlow keeps under `tf.distribute.experimental`."""

from refdist.checkpoints.preemption import PreemptionCheckpointHandler, PreemptionWatcher, TerminationConfig
from refdist.coordinator import experimental as coordinator
from refdist.coordinator import rpc
from refdist.data.iterator import Optional
from refdist.strategies.base import ValueContext
from refdist.strategies.central_storage import CentralStorageStrategy
from refdist.strategies.communication import (
    CollectiveCommunication,
    CollectiveHints,
    CommunicationImplementation,
    CommunicationOptions,
)
from refdist.strategies.multi_worker import ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from refdist.strategies.parameter_server import ParameterServerStrategy
from refdist.strategies.tpu import ExperimentalTPUStrategy as TPUStrategy
from refdist.variables import partitioners

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "Optional",
    "ParameterServerStrategy",
    "PreemptionCheckpointHandler",
    "PreemptionWatcher",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
    "coordinator",
    "partitioners",
    "rpc",
]
