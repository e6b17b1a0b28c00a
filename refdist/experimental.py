"""What TensorFlow keeps under `tf.distribute.experimental`."""

from refdist.communication import (
    CollectiveCommunication,
    CollectiveHints,
    CommunicationImplementation,
    CommunicationOptions,
)
from refdist.preemption import PreemptionCheckpointHandler, PreemptionWatcher, TerminationConfig
from refdist.strategies.base import ValueContext
from refdist.strategies.central_storage import CentralStorageStrategy
from refdist.strategies.multi_worker import ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "PreemptionCheckpointHandler",
    "PreemptionWatcher",
    "TerminationConfig",
    "ValueContext",
]
