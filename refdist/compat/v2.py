"""`tf.compat.v2`: the names of TensorFlow 2, which are those of `refdist.tf`."""

from refdist.tf import *  # noqa: F403
from refdist.tf import __all__ as __all__
