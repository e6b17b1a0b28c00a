"""What TensorFlow keeps under `tf.train`, as far as it concerns distribution."""

from refdist.checkpoints.checkpoint import Checkpoint
from refdist.checkpoints.manager import CheckpointManager
from refdist.checkpoints.reader import checkpoints_iterator, latest_checkpoint, list_variables, load_checkpoint
from refdist.cluster_resolver.cluster_spec import ClusterSpec

__all__ = ["Checkpoint", "CheckpointManager", "ClusterSpec", "checkpoints_iterator", "latest_checkpoint",
           "list_variables", "load_checkpoint"]
