"""`refdist.tf` with Keras on PyTorch, for the tests of what programs of TensorFlow find there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import refdist.tf
from refdist.runtime import process


@contextlib.contextmanager
def on_torch() -> Iterator[Any]:
    """`refdist.tf` with Keras; PyTorch is left as other tests expect it."""
    import torch

    try:
        with process.fresh():
            refdist.set_backend("torch")
            refdist.tf.keras  # noqa: B018
            torch.set_grad_enabled(False)
            yield refdist.tf
    finally:
        torch.set_grad_enabled(True)
