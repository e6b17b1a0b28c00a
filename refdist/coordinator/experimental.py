"""`tf.distribute.experimental.coordinator`: the older names of some of `tf.distribute.coordinator`."""

from refdist.coordinator.cluster_coordinator import ClusterCoordinator
from refdist.coordinator.values import PerWorkerValue as PerWorkerValues
from refdist.coordinator.values import RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]
