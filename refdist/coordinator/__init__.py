"""`tf.distribute.coordinator`: functions on the workers of a ParameterServerStrategy.

Workers are simulated, unless each is a process.  `interleaving`, `stop_task` and `restart_task` belong to the
simulation.

Source: tf.distribute.coordinator.
"""

from refdist.coordinator import tasks  # noqa: F401 - which says what workers and parameter servers do
from refdist.coordinator.choices import interleaving
from refdist.coordinator.cluster_coordinator import ClusterCoordinator, restart_task, stop_task
from refdist.coordinator.values import PerWorkerValue, RemoteValue, experimental_get_current_worker_index

__all__ = [
    "ClusterCoordinator",
    "PerWorkerValue",
    "RemoteValue",
    "experimental_get_current_worker_index",
    "interleaving",
    "restart_task",
    "stop_task",
]
