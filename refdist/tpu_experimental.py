"""What TensorFlow keeps under `tf.tpu.experimental`, as far as it concerns distribution."""

from refdist.cluster_resolver.cloud import TPUSystemMetadata
from refdist.cluster_resolver.device_assignment import DeviceAssignment, DeviceOrderMode
from refdist.cluster_resolver.topology import Topology
from refdist.cluster_resolver.tpu_system import initialize_tpu_system, shutdown_tpu_system

__all__ = ["DeviceAssignment", "DeviceOrderMode", "TPUSystemMetadata", "Topology", "initialize_tpu_system",
           "shutdown_tpu_system"]
