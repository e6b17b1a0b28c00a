"""Text where everything that a program reads is a tensor; elsewhere it is bytes, str and NumPy's arrays.

No library of tensors has any.  `refdist.tf` makes them, and lends its class here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refdist.array.backend import current_backend
from refdist.runtime import Field

make: Field[Callable[[Any], Any] | None] = Field(
    "what makes a tensor of text, and with it elements for functions of datasets; None for what has no tensors",
    lambda: None)


def are_tensors() -> bool:
    """Whether text is tensors, both where a program reads it and where its functions of datasets are given it."""
    return make.value is not None and current_backend().makes_all


def is_text(value: object) -> bool:
    """Whether it is text: bytes, a str, or an array of them; an empty array of objects is one, too.

    >>> is_text(b"a"), is_text(np.array(["a"])), is_text(np.array([b"a"], object)), is_text(np.zeros(1))
    (True, True, True, False)
    """
    if isinstance(value, (bytes, str)):
        return True
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "USO":
        return False
    return value.dtype.kind != "O" or not value.size or isinstance(value.flat[0], (bytes, str))


def read(value: Any) -> Any:
    """Text as the program reads it; anything else is returned as it is."""
    return make.value(value) if make.value is not None and is_text(value) and are_tensors() else value
