"""Checkpoints of Keras's models, layers, metrics and optimizers.

Their variables are saved in the order in which Keras has them, as `model/variables/0`: names of layers are counted
through a whole program, so that a second model of the same code has others.  They have the names of attributes, too,
as `model/head/bias`, by which a program restores a part of a model, and finds what Keras does not count as a weight: a
`tf.Variable` of a layer.  A model that is not built yet has no variables; values that were restored before are taken
when it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from refdist.checkpoints.checkpoint import take_up
from refdist.checkpoints.objects import Saved, names_its_items
from refdist.variables.variable import Variable


class Held(Variable):
    """A variable of Keras that belongs to no strategy, as a checkpoint sees it."""

    __slots__ = ("_held",)

    def __init__(self, variable: Any) -> None:
        self._held = variable

    def _read(self) -> Any:
        return np.array(self._held.numpy())

    def numpy(self) -> Any:
        """The value."""
        return self._read()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        own: np.dtype[Any] = self._read().dtype
        return own

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return tuple(self._held.shape)

    @property
    def _strategy(self) -> None:
        return None

    def assign(self, value: Any, *args: object, **kwargs: object) -> None:
        """Replaces the value."""
        self._held.assign(value)


def connect(keras: Any) -> None:
    """From now on a checkpoint finds the variables of what Keras makes."""
    for kind in (keras.Layer, keras.Metric, keras.Optimizer):
        kind._checkpoint_items = _items
    keras.Layer._post_build = _then_take_up(keras.Layer._post_build)
    # Most optimizers make their slots after what all have in common.
    optimizers = [keras.Optimizer]
    for kind in optimizers:
        optimizers += kind.__subclasses__()
        _wrap_build(kind)
    keras.Optimizer.__init_subclass__ = classmethod(_wrap_build)


def _items(self: Any) -> dict[str, object]:
    import keras

    if not getattr(self, "built", True):
        return {}
    items: dict[str, object] = {"variables": [*map(_saved, self.variables)]}
    for name, value in {**vars(self), **getattr(self, "_modules", {})}.items():  # where PyTorch keeps layers of layers
        if isinstance(value, keras.Variable):  # the kernel of a layer is `_kernel`, as TensorFlow's key has it
            items[name] = _saved(value)
        elif not name.startswith("_") and not isinstance(value, keras.Metric) and (
                isinstance(value, (Saved, dict, list, tuple)) or names_its_items(value)):
            items[name] = value
    if isinstance(self, keras.Model):
        items["layers"] = self.layers
    if getattr(self, "optimizer", None) is not None:
        items["optimizer"] = self.optimizer
    return items


def _saved(variable: Any) -> Variable:
    if isinstance(variable._value, Variable):
        return variable._value
    held: Variable = vars(variable).setdefault("_held", Held(variable))  # the same object under each of its names
    return held


def _wrap_build(kind: Any, /, **options: Any) -> None:
    if "build" in vars(kind):
        kind.build = _then_take_up(kind.build)


def _then_take_up(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        take_up()
    return built
