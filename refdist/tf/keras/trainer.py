"""`fit`, `evaluate` and `predict` under a strategy: each step runs on the replicas, as on TensorFlow.

A model belongs to the strategy in whose scope it was made, and its methods work in that scope.  What callbacks and the
progress bar are told of a batch are the metrics of all replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from keras import Model
from keras.src import tree
from keras.src.backend.torch import trainer as torch_trainer
from keras.src.losses import loss as keras_losses
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.trainer import Trainer

from refdist import errors
from refdist.core import context_stack
from refdist.core.rules.options import ReduceOp
from refdist.strategies.parameter_server import ParameterServerStrategy
from refdist.strategies.replica_context import get_strategy, has_strategy
from refdist.tf.keras import batches, text
from refdist.tf.keras.losses import Share, share, warn_of_weights
from refdist.tf.keras.seams import replace
from refdist.tf.keras.variables import StrategyVariable
from refdist.variables.values import DistributedValues

_reduces_for = "fit"  # see array/replica_checks

_Trainer: Any = torch_trainer.TorchTrainer
_SHARES = "the rows of a batch are"


def _strategy_of(model: Any) -> Any:
    return vars(model).get("_distribute_strategy")


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any) -> None:
        original(self)
        # Past Keras's own `__setattr__`, which looks for layers in whatever is stored.
        vars(self).update(_distribute_strategy=get_strategy() if has_strategy() else None, _told_by_refdist=set())
    return init


def _in_scope(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy, here = _strategy_of(self), context_stack.frame().strategy
        if isinstance(strategy, ParameterServerStrategy) and original.__name__ != "compile":
            raise errors.error("RD20", f"{type(self).__name__}.{original.__name__}",
                               "the model was made in the scope of a ParameterServerStrategy",
                               "Write the step as a function for "
                               "`ClusterCoordinator.schedule`, or use a MultiWorkerMirroredStrategy.")
        if here is strategy:
            return original(self, *args, **kwargs)
        if here is not None:
            raise errors.error("RD11", f"{type(self).__name__}.{original.__name__} {context_stack.describe()}",
                               "the model was made outside the scope",
                               "Make the model inside `with strategy.scope():`.")
        with strategy.scope():
            return original(self, *args, **kwargs)
    return method


def _train_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def train_step(self: Any, data: Any) -> Any:
        if _strategy_of(self) is None:
            return original(self, data)
        x, y, weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=True) if self._call_has_training_arg else self(x)
        loss = self._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True)
        _track(self, loss, x)
        weights = self.trainable_weights
        if weights:
            leaves = [variable.value for variable in weights]
            gradients = torch.autograd.grad(self.optimizer.scale_loss(loss), leaves, allow_unused=True)
            if not _rows(x):  # the mean of no rows is NaN, and so are gradients that go through it
                gradients = [gradient if gradient is None else torch.zeros_like(gradient) for gradient in gradients]
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return self.compute_metrics(x, y, y_pred, sample_weight=weight)
    return train_step


def _test_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def test_step(self: Any, data: Any) -> Any:
        if _strategy_of(self) is None:
            return original(self, data)
        x, y, weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False) if self._call_has_training_arg else self(x)
        loss = self._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight, training=False)
        _track(self, loss, x)
        return self.compute_metrics(x, y, y_pred, sample_weight=weight)
    return test_step


def _track(model: Any, loss: Any, x: Any) -> None:
    loss = keras_losses.unscale_loss_for_distribution(loss.detach())
    model._loss_tracker.update_state(loss, sample_weight=_rows(x))


def _rows(element: Any) -> int:
    return int(next(leaf for leaf in tree.flatten(element) if leaf is not None).shape[0])


def _additional(original: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(self: Any, loss: Any) -> Any:
        return keras_losses.scale_loss_for_distribution(original(self, loss))
    return aggregate


def _run(model: Any, step: Callable[[Any], Any], element: Any, gradients: bool) -> Any:
    strategy = _strategy_of(model)
    local = [_rows(share_of_batch) for share_of_batch in strategy.experimental_local_results(_first(element))]
    rows, warned = _all_rows(strategy, local), vars(model)["_told_by_refdist"]
    if gradients:
        warn_of_weights(_SHARES, rows, warned)

    def on_replica(part: Any) -> Any:
        token = share.set(Share(_rows(part), sum(rows), warned))
        try:
            with torch.set_grad_enabled(gradients):
                return tree.map_structure(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf,
                                          step(part))
        finally:
            share.reset(token)
    on_replica.__name__ = step.__name__
    return strategy.run(on_replica, args=(element,))


def _first(element: Any) -> Any:
    return next(leaf for leaf in tree.flatten(element) if leaf is not None)


def _all_rows(strategy: Any, local: list[int]) -> list[int]:
    transport = strategy.extended.transport
    return [count for rows in transport.all_gather_object(transport.call("shares of a batch"), local) for count in rows]


def _maker(name: str, gradients: bool) -> Callable[..., Any]:
    # What makes `train_function` or `test_function`, which is given the batches of one execution.
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_function(self: Any, force: bool = False) -> Any:
            strategy = _strategy_of(self)
            if strategy is None:
                return _without_strategy(self, name, original, force)

            def function(data: Any) -> Any:
                for element in batches.Shared.of(strategy, data):
                    logs = _run(self, getattr(self, f"{name}_step"), element, gradients)
                logs = tree.map_structure(lambda leaf: _mean(strategy, leaf), logs)
                return self._get_metrics_result_or_logs(logs)
            setattr(self, f"{name}_function", function)
            return function
        return make_function
    return make


def _without_strategy(model: Any, name: str, make: Callable[..., Any], force: bool) -> Any:
    # Keras on PyTorch makes a function of one step, and refuses several in one execution.
    steps = model.steps_per_execution
    if steps == 1 or (getattr(model, f"{name}_function") is not None and not force):
        return make(model, force)
    model.steps_per_execution = 1
    try:
        make(model, True)
    finally:
        model.steps_per_execution = steps
    step = getattr(model, f"{name}_function")

    def function(data: Any) -> Any:
        results = [step([element]) for element in data]
        return tree.map_structure(lambda *parts: text.joined(parts), *results) if name == "predict" else results[-1]
    setattr(model, f"{name}_function", function)
    return function


def _mean(strategy: Any, leaf: Any) -> Any:
    # One replica, of several workers, returns the tensor itself.
    is_reduced = isinstance(leaf, (DistributedValues, torch.Tensor))
    return strategy.reduce(ReduceOp.MEAN, leaf, axis=None) if is_reduced else leaf


def _make_predict(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_function(self: Any, force: bool = False) -> Any:
        strategy = _strategy_of(self)
        if strategy is None:
            return _without_strategy(self, "predict", original, force)

        def function(data: Any) -> Any:
            outputs = [tree.map_structure(lambda leaf: strategy.gather(leaf, axis=0),
                                          _run(self, self.predict_step, element, False))
                       for element in batches.Shared.of(strategy, data)]
            return tree.map_structure(lambda *parts: text.joined(parts), *outputs)
        self.predict_function = function
        return function
    return make_function


def _build(original: Callable[..., Any]) -> Callable[..., Any]:
    # Keras infers shapes from a batch: the first replica's share will do.  A model without `call`, whose own steps call
    # its parts, as an autoencoder's or a GAN's, is built by these steps.
    def symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = _strategy_of(self)
        if type(self).call is Model.call:
            return None
        if strategy is None or iterator is None:
            seen = iterator.peeked() if isinstance(iterator, batches.EpochIterator) else iterator
            return original(self, iterator=seen, data_batch=data_batch)
        for _, _, data in iterator:
            data_batch = tree.map_structure(
                lambda leaf: None if leaf is None else strategy.experimental_local_results(leaf)[0], data[0])
            break
        return original(self, data_batch=data_batch)
    return symbolic_build


def connect() -> None:
    """From now on models that are made in a scope train on its replicas."""
    batches.connect()
    text.connect()
    replace(_Trainer, "__init__", _init)
    # Keras takes a model whose `compile` is not this one's for a program's own, and does not call it on loading.
    replace(Trainer, "compile", _in_scope)
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        replace(_Trainer, name, _in_scope)
    replace(_Trainer, "train_step", _train_step)
    replace(_Trainer, "test_step", _test_step)
    replace(_Trainer, "make_train_function", _maker("train", True))
    replace(_Trainer, "make_test_function", _maker("test", False))
    replace(_Trainer, "make_predict_function", _make_predict)
    replace(_Trainer, "_symbolic_build", _build)
    replace(_Trainer, "_aggregate_additional_loss", _additional)
    StrategyVariable.dropped = staticmethod(_has_no_rows)


def _has_no_rows() -> bool:
    part = share.get()
    return part is not None and not part.rows
