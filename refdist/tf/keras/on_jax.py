"""Variables and optimizers where Keras computes with JAX.

Arrays do not change and record nothing, so that the value of a variable is simply read.  Gradients are those of
functions: `jax.value_and_grad` of one that calls `model.stateless_call`, whose weights are its arguments.

The steps of optimizers that look at numbers (averages of weights, accumulated gradients, loss scaling) write variables
in the branches of a `jax.lax.cond`, which JAX would trace.  Nothing is compiled here, and so the branch is called.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.jax import core
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer


class Reads:
    """How a variable of a strategy is read."""

    _value: Any
    _dtype: Any
    _shape: Any

    def _begin(self) -> None:
        pass

    def _symbolic(self) -> Any:
        # What stands for the value while Keras infers shapes; None where it does not.
        return jnp.zeros(self._shape, self._dtype) if in_symbolic_scope() else None

    def _current(self) -> Any:
        return core.convert_to_tensor(self._value._read(), dtype=self._dtype)


def is_foreign(value: Any) -> bool:
    """Whether a value is somebody else's variable, which JAX does not have."""
    return False


def is_of(value: Any, dtype: Any) -> bool:
    """Whether a value is an array of that dtype."""
    return isinstance(value, jax.Array) and value.dtype == dtype


def detached(tensor: Any) -> Any:
    """The array as it is: arrays of JAX record no gradients."""
    return tensor


def stretched(tensor: Any, shape: Any) -> Any:
    """A single number as often as a shape says."""
    return jnp.broadcast_to(tensor, shape)


def alike(tensor: Any, other: Any) -> bool:
    """Whether two arrays are the same, but for rounding."""
    return bool(jnp.allclose(tensor, other, rtol=1e-4))


def unrecorded() -> AbstractContextManager[object]:
    """A block like any other."""
    return nullcontext()


def compare_parts(optimizer: Any, variables: Any) -> None:
    """Nothing: the parts of a gradient are inside the function that JAX differentiates."""


def step(optimizer: Any) -> AbstractContextManager[object]:
    """A block in which an optimizer takes its step, for all copies of its variables."""
    chooses = isinstance(optimizer, LossScaleOptimizer) or optimizer.use_ema or optimizer.gradient_accumulation_steps
    return jax.disable_jit() if chooses else nullcontext()


def connect_variables() -> None:
    """Nothing: layers leave variables to Keras."""


def connect_optimizers() -> None:
    """Nothing: optimizers are those for all backends."""
