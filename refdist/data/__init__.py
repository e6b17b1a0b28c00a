"""`refdist.data`: the part of `tf.data` that distribution needs."""

from refdist.core.rules.options import AutoShardPolicy, UnevenEnd
from refdist.data import experimental
from refdist.data.dataset import Dataset, TextLineDataset, TFRecordDataset
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from refdist.data.files import TFRecordWriter
from refdist.data.iterator import Iterator
from refdist.data.options import DistributeOptions, Options
from refdist.data.spec import DatasetSpec
from refdist.data.threads import AUTOTUNE

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "Dataset",
    "DatasetSpec",
    "DistributeOptions",
    "Iterator",
    "Options",
    "TFRecordDataset",
    "TFRecordWriter",
    "TextLineDataset",
    "UnevenEnd",
    "experimental",
]
