"""`fit`, `evaluate` and `predict` where Keras computes with JAX: refused under a strategy, of text and of datasets.

Keras's trainer for JAX compiles the whole step, with the update of the variables in it; what replicas add up happens
between compiled functions (`docs/jax.md`).  The step is the program's own there.  Outside any scope the trainer is
Keras's, which takes arrays of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src import tree
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from refdist import errors
from refdist.core import context_stack
from refdist.data.dataset import Dataset
from refdist.strategies.replica_context import has_strategy
from refdist.tf.keras.seams import replace
from refdist.tf.keras.variables import of_strategy
from refdist.tf.texts import is_text

_METHODS = "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"
_STEP = ("Write the step for `strategy.run`: `jax.value_and_grad` of a function that calls `model.stateless_call`, "
         "then `optimizer.apply(gradients, model.trainable_variables)`; or set KERAS_BACKEND=torch, with which `fit` "
         "runs.")
# What Keras's trainer for JAX does not take, and what to write instead.
_DATA = (
    (is_text, "text, which JAX has not",
     "Make numbers of it first, `numbers = layer(texts)` with the `TextVectorization` or `StringLookup`, and let the "
     "model begin after that layer; or set KERAS_BACKEND=torch, with which `fit` takes text."),
    (lambda leaf: isinstance(leaf, Dataset), "a dataset, which Keras's trainer for JAX does not read",
     "Write `for x, y in dataset: model.train_on_batch(x, y)`, and `test_on_batch` and `predict_on_batch` in the same "
     "way; or set KERAS_BACKEND=torch, with which `fit` takes datasets."),
)


def _check_data(attempted: str, data: object) -> None:
    for leaf in tree.flatten(data):
        for is_refused, description, advice in _DATA:
            if is_refused(leaf):
                raise errors.error("RD20", attempted, f"got {description}", advice)


def _training(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempted = f"{type(self).__name__}.{original.__name__}"
        if has_strategy() or any(of_strategy(variable) is not None for variable in self.variables):
            raise errors.error("RD20", f"{attempted} {context_stack.describe()}".rstrip(), "Keras computes with JAX, "
                               "and its trainer compiles the step with the update of the variables in it", _STEP)
        _check_data(attempted, (args[:2], [kwargs.get(name) for name in ("x", "y", "validation_data")]))
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
