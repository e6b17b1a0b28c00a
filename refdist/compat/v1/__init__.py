"""`tf.compat.v1` as far as it concerns distribution."""

from refdist.compat.v1 import distribute

__all__ = ["distribute"]
