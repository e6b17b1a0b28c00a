"""`refdist.data`: the part of `tf.data` that distribution needs."""

from refdist.data.dataset import Dataset

__all__ = ["Dataset"]
