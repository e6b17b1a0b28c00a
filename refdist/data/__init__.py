"""`refdist.data`: the part of `tf.data` that distribution needs."""

from refdist.data.dataset import Dataset
from refdist.data.options import AutoShardPolicy, DistributeOptions, Options

__all__ = ["AutoShardPolicy", "Dataset", "DistributeOptions", "Options"]
