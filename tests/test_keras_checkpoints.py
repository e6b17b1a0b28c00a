"""`tf.train.Checkpoint` of Keras's objects finds their variables by the names of attributes, as TensorFlow does.

What TensorFlow restores is in `keras_checkpoints.py`, which `make tensorflow-keras` compares with TensorFlow itself.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras_checkpoints
import numpy as np
import pytest
from face import on_torch
from keras_checkpoints import CASES, fill, first, model

from refdist.errors import InvalidValueError

pytestmark = pytest.mark.skipif(not all(map(importlib.util.find_spec, ("keras", "torch"))),
                                reason="Keras or PyTorch is not installed")


@pytest.fixture
def tf() -> Iterator[Any]:
    with on_torch() as face:
        yield face


def trained(tf: Any, description: str = "a,b", steps: int = 1) -> tuple[Any, Any]:
    """A model and its optimizer, whose slots are 1, 2 and so on."""
    net, optimizer, x = model(tf, description), tf.keras.optimizers.Adam(0.5), tf.ones((1, 4))
    net(x)
    fill(net.weights, 1)
    for _ in range(steps):
        optimizer.apply_gradients([(tf.ones(weight.shape), weight) for weight in net.trainable_variables])
    fill(optimizer.variables[2:], 1)
    return net, optimizer


@pytest.mark.filterwarnings("ignore:Checkpoint.read. .* has no value for any")
@pytest.mark.parametrize("is_built", [True, False], ids=["built", "built later"])
@pytest.mark.parametrize("case", CASES)
def test_a_model_that_has_changed_gets_its_own_weights(tf: Any, tmp_path: Path, case: str, is_built: bool) -> None:
    assert keras_checkpoints.restored(tf, case, is_built, str(tmp_path)) == CASES[case]


@pytest.mark.parametrize("is_built", [True, False], ids=["built", "built later"])
def test_slots_stay_with_their_weights(tf: Any, tmp_path: Path, is_built: bool) -> None:
    checkpoint = tf.train.Checkpoint
    net, optimizer = trained(tf)
    path = checkpoint(model=net, optimizer=optimizer).save(str(tmp_path / "saved"))
    for changed, expected in (("a,new,b", [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8]), ("b,a", [5, 6, 7, 8, 1, 2, 3, 4]),
                              ("b", [5, 6, 7, 8])):
        net, optimizer = model(tf, changed), tf.keras.optimizers.Adam(0.5)
        net(tf.ones((1, 4)))
        if is_built:
            optimizer.build(net.trainable_variables)
        status = checkpoint(model=net, optimizer=optimizer).restore(path)
        if not is_built:
            optimizer.build(net.trainable_variables)
        assert first(optimizer.variables) == [1, 0.5, *expected]
        if changed == "b,a":
            status.assert_consumed()


def test_an_optimizer_alone_has_the_weights_too(tf: Any, tmp_path: Path) -> None:
    net, optimizer = trained(tf)
    expected, path = first(net.weights), tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "saved"))
    other, optimizer = trained(tf, steps=3)
    fill([*other.weights, *optimizer.variables[2:]], 50)
    tf.train.Checkpoint(optimizer=optimizer).restore(path).assert_consumed()
    assert first(other.weights) == expected and first(optimizer.variables) == [1, 0.5, 1, 2, 3, 4, 5, 6, 7, 8]
    longer, optimizer = trained(tf, "a,b,c")
    status = tf.train.Checkpoint(optimizer=optimizer).restore(path)  # its weights have no names to go by
    with pytest.raises(AssertionError, match=r"optimizer/_trainable_variables/0 of 4, .*, which no variable takes"):
        status.assert_consumed()
    assert first(longer.weights) == first(trained(tf, "a,b,c")[0].weights)


def test_what_two_names_lead_to_is_restored_by_either(tf: Any, tmp_path: Path) -> None:
    checkpoint, x = tf.train.Checkpoint, tf.ones((1, 4))

    def compiled(number: int) -> Any:
        net = model(tf, "a,b")
        net.compile("adam", "mse")
        net.fit(x, x, verbose=0)
        fill([*net.weights, *net.optimizer.variables[2:]], number)
        return net

    net, other, encoder = compiled(1), compiled(50), tf.keras.layers.Dense(4)
    both = checkpoint(model=net, optimizer=net.optimizer, encoder=net.a).save(str(tmp_path / "both"))
    alone = checkpoint(model=net).save(str(tmp_path / "alone"))
    encoder(x)
    checkpoint(encoder=encoder).restore(both).assert_existing_objects_matched()
    assert first(encoder.weights) == first(net.a.weights)
    for path, restoring in ((both, {"model": other}), (alone, {"optimizer": other.optimizer, "model": other}),
                            (alone, {"model": other, "optimizer": other.optimizer})):
        fill([*other.weights, *other.optimizer.variables[2:]], 50)
        checkpoint(**restoring).restore(path).assert_existing_objects_matched()
        assert first(other.weights + other.optimizer.variables) == first(net.weights + net.optimizer.variables)


def test_a_layer_in_a_layer_is_filled_when_it_is_built(tf: Any, tmp_path: Path) -> None:
    class Outer(tf.keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = tf.keras.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    net, x = tf.keras.Sequential([Outer(), tf.keras.layers.Dense(4)]), tf.ones((1, 4))
    net(x)
    path = tf.train.Checkpoint(model=net).save(str(tmp_path / "saved"))
    later = tf.keras.Sequential([Outer(), tf.keras.layers.Dense(4)])
    status = tf.train.Checkpoint(model=later).restore(path)
    assert later(x).numpy().tolist() == net(x).numpy().tolist()
    status.assert_consumed()


def test_variables_of_keras_are_saved_where_they_stand(tf: Any, tmp_path: Path) -> None:
    def checkpoint(number: float) -> Any:
        metric = tf.keras.metrics.Mean()
        metric.update_state(number)
        return tf.train.Checkpoint(one=tf.keras.Variable(number), more=[tf.keras.Variable(number)], metric=metric)

    path, restored = checkpoint(2.0).save(str(tmp_path / "saved")), checkpoint(3.0)
    restored.restore(path).assert_consumed()
    assert [name for name, _ in tf.train.list_variables(path)] == [
        "metric/count", "metric/total", "more/0", "one", "save_counter"]
    assert (float(restored.one), float(restored.more[0]), float(restored.metric.result())) == (2.0, 2.0, 2.0)


def test_a_value_that_does_not_fit_is_said_once(tf: Any, tmp_path: Path) -> None:
    path = tf.train.Checkpoint(model=trained(tf)[0]).save(str(tmp_path / "saved"))
    net = model(tf, "a,b")
    checkpoint = tf.train.Checkpoint(model=net)
    checkpoint.restore(path)
    with pytest.raises(InvalidValueError, match=r"\[RD31\] .*model/a/_kernel has shape \(4, 4\) .* in the file"):
        net(tf.ones((1, 3)))
    assert net(tf.ones((1, 3))).shape == (1, 4)


def test_keras_that_is_not_connected_is_told() -> None:
    program = """
import keras, refdist
for made in keras.layers.Dense(2), keras.Variable(1.0), keras.optimizers.Adam(), keras.metrics.Mean():
    try:
        refdist.train.Checkpoint(net=[made])
    except refdist.errors.InvalidValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "KERAS_BACKEND": "torch"},
                          capture_output=True, text=True)
    assert [line.partition(" is a")[0] for line in done.stdout.splitlines()] == ["[RD34] Checkpoint: net/0"] * 4
    assert "Begin with `from refdist.tf.keras import connect`" in done.stdout


@pytest.mark.parametrize("kind", ["model", "root", "optimizer", "later"])
def test_a_file_that_counts_weights_is_refused(tf: Any, tmp_path: Path, kind: str) -> None:
    net, optimizer = trained(tf)
    before, checkpoint = first(net.weights + optimizer.variables), tf.train.Checkpoint
    # As versions before these names wrote it; `a` would fit.
    counted = checkpoint(variables=[tf.Variable(weight.numpy() + 1.0) for weight in net.weights],
                         a=checkpoint(bias=tf.Variable(tf.zeros(4))))
    path = (counted if kind == "root" else checkpoint(**{"model" if kind == "later" else kind: counted})).write(
        str(tmp_path / "counted"))
    place = "variables/0" if kind == "root" else f"{'model' if kind == 'later' else kind}/variables/0"
    with pytest.raises(InvalidValueError, match=rf"\[RD31\] .*the file has {place}: it was written by an earlier"):
        if kind == "later":
            late = checkpoint()
            late.read(path)
            late.model = net
        else:
            restoring = {"model": checkpoint(model=net), "root": checkpoint(net),
                         "optimizer": checkpoint(optimizer=optimizer)}
            restoring[kind].read(path)
    assert first(net.weights + optimizer.variables) == before
    assert np.array_equal(tf.train.load_checkpoint(path).get_tensor(place), net.weights[0].numpy() + 1.0)
