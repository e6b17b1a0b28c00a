"""What TensorFlow keeps under `tf.data.experimental`."""

from refdist.core.rules.options import AutoShardPolicy
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from refdist.data.options import DistributeOptions

__all__ = ["INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "AutoShardPolicy", "DistributeOptions"]
