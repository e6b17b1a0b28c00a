"""Keras's optimizers: in a replica, gradients are summed over all replicas, and the step is taken once.

A step computes the same numbers for every copy of a mirrored variable.  So the replicas meet, and Keras's own `apply`
runs once, across replicas: everything that it does (clipping, weight decay, averages of weights, accumulated gradients,
loss scaling, constraints, the count of iterations) is done to the sum, as Keras's documents say of *the* gradient.

TensorFlow 2.21 clips the gradient of each replica before the sum.  Where that is another number, a warning says which.

In a stateless scope (`stateless_apply`) the variables that are written are each replica's own values, and so each
replica takes the step, to the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras.src import ops
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from refdist import errors
from refdist.core import call_site, context_stack
from refdist.core.rules.options import ReduceOp
from refdist.strategies.replica_context import has_strategy
from refdist.tf.keras.engine import library
from refdist.tf.keras.seams import replace
from refdist.tf.keras.variables import HeldVariable, StrategyVariable, of_strategy
from refdist.variables.variable import Variable

_reduces_for = "optimizer"  # see array/replica_checks

_CLIPPING = "clipnorm", "global_clipnorm", "clipvalue"


def _held(optimizer: Any, variables: Any) -> list[Any]:
    # A variable of refdist as Keras knows variables, the same object each time.
    held: dict[int, Any] = vars(optimizer).setdefault("_held_by_refdist", {})
    variables = list(variables)
    for variable in variables:
        if isinstance(variable, Variable) and id(variable) not in held:
            held[id(variable)] = HeldVariable(variable)
    return [held.get(id(variable), variable) for variable in variables]


def _build(original: Callable[..., Any]) -> Callable[..., Any]:
    def build(self: Any, variables: Any) -> None:
        original(self, _held(self, variables))
    return build


def _key(original: Callable[..., Any]) -> Callable[..., Any]:
    def key(self: Any, variable: Any) -> Any:
        return original(self, vars(self).get("_held_by_refdist", {}).get(id(variable), variable))
    return key


def _changed(original: Callable[..., Any]) -> Callable[..., Any]:
    # The variable's own method returns the value, a copy for whoever reads it, which no optimizer looks at.
    def change(self: Any, variable: Any, value: Any) -> None:
        if isinstance(variable, StrategyVariable):
            variable.change(original.__name__, value)
        else:
            original(self, variable, value)
    return change


def _apply(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if trainable_variables is not None:
            trainable_variables = _held(getattr(self, "inner_optimizer", self), trainable_variables)
        replica: Any = context_stack.frame().replica
        if replica is None or not has_strategy():
            with library.unrecorded():  # it reads variables of which gradients are recorded
                library.compare_parts(self, trainable_variables)
                return original(self, grads, trainable_variables)
        grads, variables = list(grads), None if trainable_variables is None else list(trainable_variables)
        _check(self, replica.strategy, grads, variables)
        # By position, so that replicas without a gradient for one variable do not add those of different ones.
        present = {str(i): library.detached(grad) for i, grad in enumerate(grads) if grad is not None}
        clipped = _clipped_alone(self, replica, present)

        def step(strategy: Any, total: Mapping[str, Any]) -> None:
            if clipped:
                _compare(self, list(total.values()), clipped)
            with library.step(self):
                library.compare_parts(self, variables)
                original(self, [total.get(str(i)) for i in range(len(grads))], variables)

        if in_stateless_scope():
            step(replica.strategy, replica.all_reduce(ReduceOp.SUM, present) if present else {})
            return None
        if present:
            replica._reduce_then(ReduceOp.SUM, present, step)
        else:
            replica.merge_call(step, args=({},))
        return None
    return apply


def _check(optimizer: Any, strategy: Any, grads: list[Any], variables: list[Any] | None) -> None:
    attempted = f"{type(optimizer).__name__}.apply {context_stack.describe()}"
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for variable in (inner._iterations, *(variables or ())):
        if of_strategy(variable) is not strategy:
            what = "the optimizer" if variable is inner._iterations else f"Keras variable {variable.path!r}"
            raise errors.error("RD11", attempted, f"{what} was made outside the scope of the strategy",
                               "Make the model and the optimizer inside `with strategy.scope():`.")
    for grad, variable in zip(grads, variables or (), strict=False):
        if grad is not None and tuple(grad.shape) != tuple(variable.shape):
            raise errors.error("RD04", attempted, f"the gradient of {variable.path!r} has shape {tuple(grad.shape)}, "
                               f"the variable {tuple(variable.shape)}", "Pass one gradient for each variable.")


def _clipped_alone(optimizer: Any, replica: Any, grads: Mapping[str, Any]) -> Sequence[Any]:
    # The sum of what TensorFlow would clip on each replica; asked once, to say so.
    if replica.num_replicas_in_sync == 1 or getattr(optimizer, "_compared_by_refdist", False) or not grads or all(
            getattr(optimizer, name, None) is None for name in _CLIPPING):
        return ()
    if optimizer.gradient_accumulation_steps:  # an error under TensorFlow
        return ()
    with library.unrecorded():
        clipped = list(optimizer._clip_gradients(list(grads.values())))
    return list(replica.all_reduce(ReduceOp.SUM, clipped))


def _compare(optimizer: Any, total: list[Any], tensorflow_s: Sequence[Any]) -> None:
    optimizer._compared_by_refdist = True
    with library.unrecorded():
        ours = list(optimizer._clip_gradients(total))
    if all(library.alike(clipped, expected) for clipped, expected in zip(ours, tensorflow_s, strict=True)):
        return
    name = next(name for name in _CLIPPING if getattr(optimizer, name, None) is not None)
    call_site.warn(str(errors.error(
        "RD35", f"{type(optimizer).__name__}({name}={getattr(optimizer, name)}).apply",
        f"the gradient of all replicas is clipped, to a norm of {_norm(ours):.6g}; TensorFlow 2.21 clips the gradient "
        f"of each replica before the sum, which has the norm {_norm(tensorflow_s):.6g}",
        "Nothing is wrong here: the number of replicas does not change the step.")), errors.DifferenceWarning)


def _norm(grads: Sequence[Any]) -> float:
    return float(ops.sqrt(sum(ops.sum(ops.square(grad)) for grad in grads)))


def connect() -> None:
    """From now on optimizers that are made in a scope reduce once."""
    library.connect_optimizers()
    replace(BaseOptimizer, "build", _build)
    replace(BaseOptimizer, "assign_add", _changed)
    replace(BaseOptimizer, "assign_sub", _changed)
    replace(BaseOptimizer, "_var_key", _key)
    replace(BaseOptimizer, "apply", _apply)
    replace(LossScaleOptimizer, "apply", _apply)
