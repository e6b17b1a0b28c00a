"""The library with which Keras computes: `library.name` and what it has in its own way (`on_torch`, `on_jax`).

PyTorch records gradients in its tensors, so a tensor that was read is the one of which a gradient is asked, and what
only writes values must not be recorded.  JAX differentiates functions: its arrays record nothing and do not change.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import keras

name: str = keras.backend.backend()
library: Any = import_module(f"refdist.tf.keras.on_{name}")
