"""`fit`, `evaluate` and `predict` where Keras computes with JAX: refused under a strategy.

Keras's trainer for JAX compiles the whole step, with the update of the variables in it; what replicas add up happens
between compiled functions (`docs/jax.md`).  The step is the program's own there.  Outside any scope the trainer is
Keras's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from refdist import errors
from refdist.core import context_stack
from refdist.strategies.replica_context import has_strategy
from refdist.tf.keras.seams import replace
from refdist.tf.keras.variables import of_strategy

_METHODS = "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"
_STEP = ("Write the step for `strategy.run`: `jax.value_and_grad` of a function that calls `model.stateless_call`, "
         "then `optimizer.apply(gradients, model.trainable_variables)`; or set KERAS_BACKEND=torch, with which `fit` "
         "runs.")


def _training(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_strategy() or any(of_strategy(variable) is not None for variable in self.variables):
            raise errors.error("RD20", f"{type(self).__name__}.{original.__name__} {context_stack.describe()}".rstrip(),
                               "Keras computes with JAX, and its trainer compiles the step with the update of the "
                               "variables in it", _STEP)
        return original(self, *args, **kwargs)
    return method


def _scaling(original: Callable[..., Any]) -> Callable[..., Any]:
    def stateless_apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        if context_stack.frame().replica is not None and has_strategy():
            raise errors.error("RD20", f"LossScaleOptimizer.stateless_apply {context_stack.describe()}",
                               "each replica would decide by its own gradients whether they are finite",
                               "Call `optimizer.apply(gradients, variables)`, or use the policy \"mixed_bfloat16\".")
        return original(self, *args, **kwargs)
    return stateless_apply


def connect() -> None:
    """Makes `fit` and what is like it an error for models under a strategy, from now on."""
    for name in _METHODS:
        replace(JAXTrainer, name, _training)
    replace(LossScaleOptimizer, "stateless_apply", _scaling)
