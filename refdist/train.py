"""What TensorFlow keeps under `tf.train`, as far as it concerns distribution."""

from refdist.checkpoint import Checkpoint, CheckpointManager, latest_checkpoint, list_variables
from refdist.cluster import ClusterSpec

__all__ = ["Checkpoint", "CheckpointManager", "ClusterSpec", "latest_checkpoint", "list_variables"]
