"""What TensorFlow keeps under `tf.train`, as far as it concerns distribution."""

from refdist.cluster import ClusterSpec

__all__ = ["ClusterSpec"]
