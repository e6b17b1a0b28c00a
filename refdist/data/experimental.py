"""What TensorFlow keeps under `tf.data.experimental`."""

from typing import Any

from refdist.core.rules.options import AutoShardPolicy
from refdist.data.dataset import Dataset
from refdist.data.facts import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from refdist.data.options import DistributeOptions
from refdist.data.transformations import AUTOTUNE

__all__ = ["AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "AutoShardPolicy", "DistributeOptions",
           "cardinality"]


def cardinality(dataset: Dataset) -> Any:
    """The number of elements of a dataset, or INFINITE_CARDINALITY (-1) or UNKNOWN_CARDINALITY (-2).

    >>> import refdist
    >>> refdist.data.experimental.cardinality(refdist.data.Dataset.range(3))
    np.int64(3)

    Source: tf.data.experimental.cardinality.
    """
    return dataset.cardinality()
