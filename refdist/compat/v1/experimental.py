"""What TensorFlow keeps under `tf.compat.v1.distribute.experimental`."""

from typing import TYPE_CHECKING, Any

from refdist.compat.v1.strategies import (
    CentralStorageStrategy,
    MultiWorkerMirroredStrategy,
    ParameterServerStrategy,
    TPUStrategy,
)
from refdist.missing import no_such_name
from refdist.strategies.communication import (
    CollectiveCommunication,
    CollectiveHints,
    CommunicationImplementation,
    CommunicationOptions,
)

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "TPUStrategy",
]


if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        raise no_such_name(__name__, name)
