"""What Keras's seeds mean where several replicas draw.

A generator of seeds has one state, which is the same on all replicas: all draw the same numbers, and a Dropout layer
has the same mask on each, as on TensorFlow.  A warning says so, once for each generator.

Without a seed Keras on PyTorch leaves Dropout to PyTorch's own generator, whose numbers depend on which replicas share
a process.  Under a strategy the layer's own generator, which begins at a seed that Python draws, is asked instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from refdist import errors
from refdist.core import call_site, context_stack
from refdist.tf.keras.engine import name
from refdist.tf.keras.seams import replace
from refdist.tf.keras.variables import StrategyVariable


def _next(original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        replica: Any = context_stack.frame().replica
        if (replica is not None and replica.num_replicas_in_sync > 1 and isinstance(self.state, StrategyVariable)
                and not getattr(self, "_warned_by_refdist", False)):
            self._warned_by_refdist = True
            call_site.warn(str(errors.error(
                "RD36", f"{self.state.path.rpartition('/')[0]} {context_stack.describe()}",
                f"all {replica.num_replicas_in_sync} replicas draw the same numbers, as under TensorFlow 2.21")),
                errors.DifferenceWarning)
        return original(self, *args, **kwargs)
    return draw


def _dropout(original: Callable[..., Any]) -> Callable[..., Any]:
    def dropout(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
        if noise_shape is None and isinstance(getattr(seed, "state", None), StrategyVariable):
            noise_shape = tuple(inputs.shape)  # with a shape, Keras asks the generator
        return original(inputs, rate, noise_shape=noise_shape, seed=seed)
    return dropout


def connect() -> None:
    """From now on seeds mean the same on every strategy."""
    replace(keras.random.SeedGenerator, "next", _next)
    if name == "torch":
        from keras.src.backend.torch import random as torch_random

        replace(torch_random, "dropout", _dropout)
