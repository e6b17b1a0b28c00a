"""Checkpoints of Keras's models, layers, metrics and optimizers.

Their variables have the names of the attributes that lead to them, as on TensorFlow: `model/head/_kernel`.  The layers
of a Sequential or functional model that are in no attribute are counted, without its inputs: `model/layers/0/_kernel`.
A slot has the name of its weight, `optimizer/_momentums/model/head/_kernel`: in their order, as on TensorFlow, a model
with another layer would be given slots of other weights.  What no attribute leads to, such as weights in a set, is
counted.

What is not built yet has no variables; values that were restored before are taken when it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from refdist.checkpoints.checkpoint import take_up
from refdist.checkpoints.objects import AWAITED_BY, SEEDS, Saved, is_stand_in, names_its_items
from refdist.variables.variable import Variable

# Attributes in which Keras keeps again what others have, and nodes of graphs; and what a checkpoint leaves (`read`).
_BOOKKEEPING = frozenset((
    "_trainable_variables", "_non_trainable_variables", "_variables", "_layers", "_metrics", "_seed_generators",
    "_functional", "_modules", "_inbound_nodes", "_outbound_nodes", "_nodes", "_nodes_by_depth", "_operations",
    "_operations_by_depth", "_inputs", "_inputs_struct", "_outputs", "_outputs_struct", AWAITED_BY))


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
    keras.Variable._checkpoint_variable = _saved
    keras.random.SeedGenerator._checkpoint_items = lambda self: {SEEDS: self.state}
    keras.Metric._checkpoint_items = _attributes
    keras.Layer._checkpoint_items = _of_layer
    keras.Layer._checkpoint_rest = _unnamed
    for kind in (keras.Sequential, import_module("keras.src.models.functional").Functional):
        kind._checkpoint_items = _with_layers
    keras.Optimizer._checkpoint_items = _of_optimizer
    keras.Optimizer._checkpoint_slots = _of_weights
    keras.Layer._post_build = _then_take_up(keras.Layer._post_build)
    if keras.backend.backend() == "jax":
        # Keras builds models in a StatelessScope there, whose variables get values where it ends.
        common: Any = import_module("keras.src.backend.common.variables")
        common.initialize_all_variables = _then_take_up(common.initialize_all_variables)
    # Most optimizers make their slots after what all have in common.
    optimizers = [keras.Optimizer]
    for kind in optimizers:
        optimizers += kind.__subclasses__()
        _wrap_build(kind)
    keras.Optimizer.__init_subclass__ = classmethod(_wrap_build)


def _saved(self: Any) -> Variable | None:
    if self._value is None:  # not made yet
        return None
    if isinstance(self._value, Variable):
        return self._value
    held: Variable = vars(self).setdefault("_held", Held(self))  # the same object under each of its names
    return held


def _attributes(self: Any) -> dict[str, object]:
    # PyTorch keeps layers of layers apart.
    attributes = {**vars(self), **getattr(self, "_modules", {})}
    return {name: value for name, value in attributes.items() if name not in _BOOKKEEPING and (
        isinstance(value, (Saved, dict, list, tuple)) or is_stand_in(value) or names_its_items(value))}


def _of_layer(self: Any) -> dict[str, object]:
    import keras

    return {name: value for name, value in _attributes(self).items() if not isinstance(value, keras.Metric)}


def _with_layers(self: Any) -> dict[str, object]:
    import keras

    items = _of_layer(self)
    named = {id(leaf) for leaf in _leaves(items)}
    layers = (layer for layer in self.layers if not isinstance(layer, keras.layers.InputLayer))
    return {**items, "layers": {i: layer for i, layer in enumerate(layers) if id(layer) not in named}}


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _unnamed(self: Any, names: Mapping[int, list[str]]) -> Iterator[tuple[str, Saved]]:
    # Their number stands in the names, so that another number of them is never restored in the wrong order.
    saved = [variable for variable in map(_saved, self.variables)
             if variable is not None and id(variable) not in names]
    for i, variable in enumerate(saved):
        yield f"variables/{i} of {len(saved)}", variable


def _of_optimizer(self: Any) -> dict[str, object]:
    return {name: value for name, value in _attributes(self).items() if not isinstance(value, (dict, list, tuple))}


def _of_weights(self: Any, names: Mapping[int, list[str]]) -> Iterator[tuple[str, Saved]]:
    # The slots, which an optimizer has in lists as long as that of the weights, and weights that only it leads to.
    import keras

    weights = [_saved(weight) for weight in getattr(self, "_trainable_variables", [])]
    counted = [f"{i} of {len(weights)}" for i in range(len(weights))]
    for attribute, slots in vars(self).items():
        if attribute in _BOOKKEEPING or not isinstance(slots, list) or len(slots) != len(weights):
            continue
        for weight, count, slot in zip(weights, counted, slots, strict=True):
            variable = _saved(slot) if isinstance(slot, keras.Variable) else None
            if variable is not None and id(variable) not in names:
                for name in names.get(id(weight), [count]):
                    yield f"{attribute}/{name}", variable
    for weight, count in zip(weights, counted, strict=True):
        if weight is not None and id(weight) not in names:
            yield f"_trainable_variables/{count}", weight
    yield from _unnamed(self, names)


def _wrap_build(kind: Any, /, **options: Any) -> None:
    if "build" in vars(kind):
        kind.build = _then_take_up(kind.build)


def _then_take_up(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def built(*args: Any, **kwargs: Any) -> None:
        build(*args, **kwargs)
        take_up()
    return built
