"""What TensorFlow keeps under `tf.data.experimental`."""

from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from refdist.data.options import AutoShardPolicy, DistributeOptions

__all__ = ["INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "AutoShardPolicy", "DistributeOptions"]
