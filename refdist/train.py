"""What TensorFlow keeps under `tf.train`, as far as it concerns distribution."""

from refdist.checkpoint import Checkpoint
from refdist.checkpoint_manager import CheckpointManager
from refdist.checkpoint_reader import checkpoints_iterator, latest_checkpoint, list_variables, load_checkpoint
from refdist.cluster import ClusterSpec

__all__ = ["Checkpoint", "CheckpointManager", "ClusterSpec", "checkpoints_iterator", "latest_checkpoint",
           "list_variables", "load_checkpoint"]
