"""Names as older versions of TensorFlow had them: `refdist.compat.v1.distribute`."""

from refdist.compat import v1

__all__ = ["v1"]
