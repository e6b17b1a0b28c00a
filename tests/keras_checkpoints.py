"""Checkpoints of models that have changed since, for refdist and TensorFlow: `python tests/keras_checkpoints.py` prints
what TensorFlow restores, as JSON.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import numpy as np

# Case -> which weights the new model is given, by their numbers in the old one, from 1 (0: it keeps its own); whether
# `assert_consumed` and `assert_existing_objects_matched` pass.
Restored = tuple[list[int], bool, bool]
CASES: dict[str, Restored] = {
    "a,b -> a,b": ([1, 2, 3, 4], True, True),
    "a,b -> a,new,b": ([1, 2, 0, 0, 3, 4], False, False),
    "a,b -> b": ([3, 4], False, True),
    "a,b -> b,a": ([3, 4, 1, 2], True, True),
    "a,b -> c,d": ([0, 0, 0, 0], False, False),
    "_a,_b -> _a,_new,_b": ([1, 2, 0, 0, 3, 4], False, False),
    "_a,_b -> _b,_a": ([3, 4, 1, 2], True, True),
    "Sequential 2 -> Sequential 2": ([1, 2, 3, 4], True, True),
    "Sequential 2 -> Sequential 3": ([1, 2, 3, 4, 0, 0], False, False),
    "Sequential 2 -> Sequential 1": ([1, 2], False, True),
    "Sequential 2 -> Input+Sequential 2": ([1, 2, 3, 4], True, True),
    "Input+Sequential 2 -> Sequential 2": ([1, 2, 3, 4], True, True),
    "Sequential 2 -> Sequential dropout": ([1, 2, 0, 0], False, False),
    "Sequential named a,b -> Sequential named b,a": ([1, 2, 3, 4], True, True),
    "functional 2 -> functional 3": ([1, 2, 3, 4, 0, 0], False, False),
    "functional 2 -> functional 1": ([1, 2], False, True),
    "functional dropout -> functional 2": ([1, 2, 0, 0], False, False),
    "weights a,b -> weights b,a": ([2, 1], True, True),
    "weights a,b -> weights a,c,b": ([1, 0, 2], False, False),
    "list 2 -> list 2": ([1, 2, 3, 4, 5, 6], True, True),
    "list 2 -> list 3": ([1, 2, 3, 4, 0, 0, 5, 6], False, False),
    "dict x,y -> dict y,x": ([3, 4, 1, 2, 5, 6], True, True),
    "Input+Sequential 2 -> functional 2": ([1, 2, 3, 4], True, True),
    "listed weights 2 -> listed weights 3": ([1, 2, 0], False, False),
}
# Where TensorFlow restores less: it loses layers and weights in lists and dicts, and says that all was restored.
LESS_ON_TENSORFLOW: dict[str, Restored] = {
    "list 2 -> list 2": ([0, 0, 0, 0, 5, 6], True, True),
    "list 2 -> list 3": ([0, 0, 0, 0, 0, 0, 5, 6], True, True),
    "dict x,y -> dict y,x": ([0, 0, 0, 0, 5, 6], True, True),
    "Input+Sequential 2 -> functional 2": ([0, 0, 0, 0], False, False),
    "listed weights 2 -> listed weights 3": ([0, 0, 0], True, True),
}


def model(tf: Any, description: str) -> Any:
    """A model of Dense layers, not built: the two words before and after an arrow in the names of cases."""
    layers = tf.keras.layers
    kind, _, what = description.rpartition(" ")
    if kind in ("Sequential", "Sequential named", "Input+Sequential", "functional"):
        parts = [layers.Dense(4, name=name) for name in what.split(",")] if kind == "Sequential named" else [
            layers.Dense(4), layers.Dropout(0.5), layers.Dense(4)] if what == "dropout" else [
            layers.Dense(4) for _ in range(int(what))]
        if kind != "functional":
            return tf.keras.Sequential([tf.keras.Input((4,))] * kind.startswith("Input") + parts)
        given = result = tf.keras.Input((4,))
        for layer in parts:
            result = layer(result)
        return tf.keras.Model(given, result)
    if kind.endswith("weights"):
        return tf.keras.Sequential([_weights_of(tf)(kind, what)])

    class Attributes(tf.keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if kind == "list":
                self.parts = [layers.Dense(4) for _ in range(int(what))]
            elif kind == "dict":
                self.parts = {name: layers.Dense(4) for name in what.split(",")}
            self.names = ["head"] if kind else what.split(",")
            for name in self.names:
                setattr(self, name, layers.Dense(4))

        def call(self, x: Any) -> Any:
            parts = getattr(self, "parts", [])
            heads = [getattr(self, name) for name in self.names]
            for layer in [*(parts.values() if kind == "dict" else parts), *heads]:
                x = layer(x)
            return x

    return Attributes()


def _weights_of(tf: Any) -> Any:
    class Weights(tf.keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, kind: str, what: str) -> None:
            super().__init__()
            self.kind, self.what = kind, what

        def build(self, shape: Any) -> None:
            if self.kind == "listed weights":
                self.parts = [self.add_weight(shape=(4,), initializer="zeros") for _ in range(int(self.what))]
            else:
                for name in self.what.split(","):
                    setattr(self, name, self.add_weight(shape=(4,), name=name, initializer="zeros"))

        def call(self, x: Any) -> Any:
            return x * sum(self.weights)

    return Weights


def fill(weights: Any, number: int) -> None:
    """The weights are `number`, and on from there."""
    for i, weight in enumerate(weights, number):
        weight.assign(np.full(tuple(weight.shape), i, "float32"))


def first(variables: Any) -> list[float]:
    """The first number of each."""
    return [float(np.ravel(variable.numpy())[0]) for variable in variables]


def restored(tf: Any, case: str, is_built: bool, folder: str) -> Restored:
    """What a new model is given of the checkpoint of an old one; it is built before `restore`, or afterwards."""
    old, new = (model(tf, description) for description in case.split(" -> "))
    x = tf.ones((1, 4))
    old(x)
    fill(old.weights, 1)
    path = tf.train.Checkpoint(model=old).save(os.path.join(folder, "saved"))
    if is_built:
        new(x)
        fill(new.weights, -100)
    status = tf.train.Checkpoint(model=new).restore(path)
    new(x)

    def passes(assertion: Any) -> bool:
        try:
            assertion()
        except AssertionError:
            return False
        return True

    taken = [int(number) if number >= 1 and number == int(number) else 0 for number in first(new.weights)]
    return taken, passes(status.assert_consumed), passes(status.assert_existing_objects_matched)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    with tempfile.TemporaryDirectory() as place:
        print(json.dumps({case: restored(tensorflow, case, True, place) for case in CASES}), flush=True)
