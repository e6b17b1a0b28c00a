"""Names at the paths of TensorFlow's versions: `refdist.compat.v1.distribute`, and `refdist.compat.v2`."""

from refdist.compat import v1, v2

__all__ = ["v1", "v2"]
