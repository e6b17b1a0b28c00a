"""`tf.compat.v2`: the names of TensorFlow 2, which are those of `refdist.tf`."""

import sys
from typing import Any

from refdist.tf import *  # noqa: F403
from refdist.tf import __all__ as __all__
from refdist.tf import names as _names


def __getattr__(name: str) -> Any:
    return _names.later(sys.modules[__name__], name)
