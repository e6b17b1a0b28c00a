"""Keras on PyTorch under refdist's strategies; `make interop` installs both."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="`make interop` installs it")
os.environ["KERAS_BACKEND"] = "torch"
pytest.importorskip("keras", reason="`make interop` installs it")
pytest.importorskip("ml_dtypes", reason="`make interop` installs it")

import refdist
from refdist import VariableAggregation, VariableSynchronization, errors
from refdist.__main__ import main
from refdist.tf.keras import connect

keras: Any = connect()

import torch  # noqa: E402

ROOT = Path(__file__).parents[1]
COUNTS = pytest.mark.parametrize("replicas", [1, 2, 4])
NAMES = {1: ["CPU:0"], 2: ["CPU:0", "CPU:1"], 4: ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.DifferenceWarning)
        yield


def mirrored(replicas: int) -> Any:
    return refdist.MirroredStrategy(NAMES[replicas])


def strategies() -> list[Any]:
    return [refdist.OneDeviceStrategy("CPU:0"), mirrored(1), mirrored(2), mirrored(4),
            refdist.CentralStorageStrategy(["CPU:0", "CPU:1"])]


def regression(layers: list[Any], weights: float = 0.5, optimizer: Any = None, **options: Any) -> Any:
    """A model whose weights are all the same number, for mean squared errors."""
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile(optimizer or keras.optimizers.SGD(0.125), "mse", **options)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, weights, "float32"))
    return model


def rows(count: int) -> tuple[Any, Any]:
    x = (np.arange(2 * count).reshape(count, 2) % 7 - 3).astype("float32") / 4
    return x, (x[:, :1] - x[:, 1:] * 2)


def gradient_step(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        loss = keras.ops.sum(keras.ops.square(model(x, training=True) - y)) / 8
        gradients = torch.autograd.grad(loss, [weight.value for weight in model.trainable_variables])
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss.detach()
    return step


def numbers(variable: Any) -> list[Any]:
    return np.asarray(variable.numpy()).tolist()  # type: ignore[no-any-return]


def test_keras_on_another_device_than_the_replicas_is_refused() -> None:
    with keras.device("meta"), pytest.raises(errors.UnsupportedError, match=r"RD20.*'meta'.*KERAS_TORCH_DEVICE=cpu"):
        connect()
    with keras.device("cpu:0"):
        assert connect() is keras


# --- Statistics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_variance_of_numbers_far_from_zero_is_that_of_their_distances(dtype: str) -> None:
    x = keras.ops.cast(np.arange(8).reshape(4, 2) * 0.5 + (16 if "16" in dtype else 10_000), dtype)
    for keepdims in (False, True):
        for moment in keras.ops.moments(x, axes=[0], keepdims=keepdims):
            assert keras.backend.standardize_dtype(moment.dtype) == dtype
            assert tuple(moment.shape) == ((1, 2) if keepdims else (2,))
        assert moment.reshape(-1).tolist() == [1.25, 1.25]
    layer = keras.layers.BatchNormalization(dtype=dtype)
    normalized = keras.ops.convert_to_numpy(keras.ops.cast(layer(x, training=True), "float32"))
    wanted = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25 + 1e-3)
    assert normalized[:, 0] == pytest.approx(wanted, rel=1e-2 if "16" in dtype else 1e-6)


# --- Variables -----------------------------------------------------------------------------------------------


def test_outside_any_scope_keras_is_keras_s_own() -> None:
    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    assert type(layer.kernel) is keras.Variable and isinstance(layer.kernel.value, torch.nn.Parameter)
    assert type(keras.optimizers.SGD()).__module__.startswith("keras.src.backend.torch")
    x, y = rows(8)
    model = regression([keras.layers.Dense(1)])
    model.fit(x, y, batch_size=4, verbose=0)
    assert len(list(model.parameters())) == 2


def test_weights_are_mirrored_metrics_summed_and_statistics_of_the_first_replica() -> None:
    with mirrored(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.BatchNormalization(),
                                  keras.layers.Dropout(0.5, seed=1)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        mean = keras.metrics.Mean()
    on_read, sync = VariableSynchronization.ON_READ, VariableSynchronization.ON_WRITE
    held = {variable.path: variable._value for variable in [*model.variables, *optimizer.variables, *mean.variables]}
    for path, variable in held.items():
        if "moving" in path or "seed" in path:
            wanted = on_read, VariableAggregation.ONLY_FIRST_REPLICA
        elif "mean/" in path:
            wanted = on_read, VariableAggregation.SUM
        elif path.endswith(("iteration", "learning_rate")):
            wanted = sync, VariableAggregation.ONLY_FIRST_REPLICA
        else:
            wanted = sync, VariableAggregation.NONE
        assert (variable.synchronization, variable.aggregation) == wanted, path


def test_a_creator_can_ask_for_the_mean_of_moving_statistics() -> None:
    def averaged(next_creator: Any, **kwargs: Any) -> Any:
        if "moving" in kwargs["name"]:
            kwargs["aggregation"] = VariableAggregation.MEAN
        return next_creator(**kwargs)

    strategy = mirrored(2)
    with strategy.scope(), refdist.variable_creator_scope(averaged):
        layer = keras.layers.BatchNormalization(momentum=0.0)
        layer.build((None, 1))
    rows = strategy.experimental_distribute_values_from_function(
        lambda context: torch.full((2, 1), 100.0 * context.replica_id_in_sync_group))
    strategy.run(lambda x: layer(x, training=True).detach(), args=(rows,))
    assert numbers(layer.moving_mean) == [50.0]


def test_a_gradient_is_asked_of_the_tensor_that_was_read() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight = keras.Variable([2.0, 3.0])

    def step() -> Any:
        replica: Any = refdist.get_replica_context()
        loss = keras.ops.sum(weight * (replica.replica_id_in_sync_group + 1.0))
        [gradient] = torch.autograd.grad(loss, [weight.value])
        return gradient

    gradients = strategy.experimental_local_results(strategy.run(step))
    assert [gradient.tolist() for gradient in gradients] == [[1.0, 1.0], [2.0, 2.0]]


def test_a_layer_that_is_built_in_replicas_is_built_once() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    results = strategy.run(lambda: model(torch.ones((4, 2)), training=True).detach())
    assert len(model.variables) == 8 and len(model.trainable_variables) == 6
    assert len({tuple(output.ravel().tolist()) for output in strategy.experimental_local_results(results)}) == 1


def test_what_replicas_add_to_a_summed_variable_is_added_once() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        total = keras.Variable(10.0, trainable=False, aggregation="sum")
        per_replica = keras.Variable(0.0, trainable=False, aggregation="sum", synchronization="on_read")

    def step() -> None:
        total.assign_add(1.0)
        per_replica.assign_add(2.0)

    strategy.run(step)
    assert (numbers(total), numbers(per_replica)) == (12.0, 4.0)
    per_replica.assign_add(3.0)
    total.assign_sub(2.0)
    assert (numbers(total), numbers(per_replica)) == (10.0, 7.0)


def test_a_tensor_of_a_variable_that_was_written_in_place_is_an_error() -> None:
    with mirrored(2).scope():
        weight = keras.Variable([1.0, 2.0])
        with torch.no_grad():
            weight.value.add_(1.0)
        with pytest.raises(errors.UnsupportedError, match=r"RD20.*in place.*assign"):
            weight.numpy()
        assert numbers(weight) == [1.0, 2.0]


@pytest.mark.parametrize("writer", [0, 1])
def test_a_replica_that_writes_a_tensor_in_place_is_told_by_the_next_read(writer: int) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight = keras.Variable([1.0, 2.0])

    def step() -> None:
        weight.value.sum()
        if refdist.get_replica_context().replica_id_in_sync_group == writer:
            with torch.no_grad():
                weight.value.add_(1.0)
        weight.value.sum()
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*in place.*assign"):
        strategy.run(step)


def test_a_step_reads_what_code_outside_replicas_may_write_into() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight, adam = keras.Variable([1.0, 2.0]), keras.optimizers.Adam(0.5)
        adam.build([weight])
    strategy.run(lambda: adam.apply([torch.ones(2)], [weight]))
    slot = adam.variables[2]
    before = numbers(slot)
    with strategy.scope(), torch.no_grad():
        slot.value.add_(1.0)
    strategy.run(lambda: adam.apply([torch.zeros(2)], [weight]))
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*in place"):
        numbers(slot)
    assert numbers(slot) == pytest.approx([0.9 * number for number in before])


@pytest.mark.parametrize("count", [1, 2])
def test_code_across_replicas_reads_a_copy_also_after_a_step(count: int) -> None:
    strategy = mirrored(count)
    with strategy.scope():
        weight, sgd = keras.Variable([1.0, 2.0]), keras.optimizers.SGD(0.5)
        sgd.build([weight])

    def write(strategy: object) -> None:
        with torch.no_grad():
            weight.value.add_(1.0)

    def step() -> None:
        sgd.apply([torch.zeros(2)], [weight])
        refdist.get_replica_context().merge_call(write)
    strategy.run(step)
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*in place"):
        numbers(weight)
    assert numbers(weight) == [1.0, 2.0]


def test_what_was_made_outside_the_scope_is_not_written_in_replicas() -> None:
    metric = keras.metrics.Mean()
    strategy = mirrored(2)
    with pytest.raises(errors.InvalidValueError, match=r"RD11.*mean.*outside the scope"):
        strategy.run(lambda: metric.update_state(1.0))
    assert float(metric.result()) == 0.0


def test_copies_of_a_weight_cannot_be_made_to_differ() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight = keras.Variable(0.0)
    with pytest.raises(errors.InvalidValueError, match="RD12"):
        strategy.run(lambda: weight.assign(float(refdist.get_replica_context().replica_id_in_sync_group)))  # type: ignore[union-attr]
    assert numbers(weight) == 0.0


def test_float64_stays_float64() -> None:
    assert keras.backend.result_type("float64", "float64") == "float64"
    assert keras.ops.matmul(np.ones((2, 2)), np.ones((2, 2))).dtype == torch.float64


def test_each_replica_has_keras_s_scopes_of_its_own() -> None:
    from keras.src.backend.common.name_scope import current_path
    from keras.src.backend.common.variables import AutocastScope, get_autocast_scope

    def step() -> tuple[str, str]:
        replica: Any = refdist.get_replica_context()
        number = replica.replica_id_in_sync_group
        with keras.name_scope(f"r{number}"), AutocastScope("float16" if number else "float64"):
            replica.all_reduce("SUM", 1.0)
            return current_path(), get_autocast_scope().dtype

    strategy = mirrored(2)
    with keras.name_scope("outer"):
        scopes: Any = strategy.run(step)
        assert current_path() == "outer"
    assert [strategy.experimental_local_results(per_replica) for per_replica in scopes] == [
        ("outer/r0", "outer/r1"), ("float64", "float16")]
    assert current_path() == "" and get_autocast_scope() is None


# --- Optimizers ----------------------------------------------------------------------------------------------


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.125, momentum=0.5, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.125),
    "AdamW": lambda: keras.optimizers.AdamW(0.125, weight_decay=0.5),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.125),
    "Lion": lambda: keras.optimizers.Lion(0.125),
    "EMA": lambda: keras.optimizers.SGD(0.125, use_ema=True, ema_overwrite_frequency=2),
    "accumulation": lambda: keras.optimizers.SGD(0.125, gradient_accumulation_steps=2),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.125)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_on_any_number_of_replicas_and_without_refdist(name: str) -> None:
    x, y = rows(8)
    values = {}
    for replicas in (0, 1, 2, 4):
        strategy = refdist.get_strategy() if replicas == 0 else mirrored(replicas)
        with strategy.scope():
            model, optimizer = regression([keras.layers.Dense(1)]), OPTIMIZERS[name]()
            optimizer.build(model.trainable_variables)
        for _ in range(4):
            for shares in strategy.experimental_distribute_dataset([(torch.as_tensor(x), torch.as_tensor(y))]):
                strategy.run(gradient_step(model, optimizer), args=shares)
        values[replicas] = [np.asarray(variable.numpy()) for variable in [*model.variables, *optimizer.variables]]
    for replicas in (1, 2, 4):
        for array, other in zip(values[replicas], values[0], strict=True):
            np.testing.assert_allclose(array, other, rtol=2e-6, atol=1e-7)


def test_a_stateless_step_is_the_same_on_every_replica() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight = keras.Variable([1.0, 2.0])
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build([weight])

    def step() -> Any:
        replica: Any = refdist.get_replica_context()
        gradient = torch.tensor([1.0, 2.0]) * (replica.replica_id_in_sync_group + 1)
        slots = [variable.value for variable in optimizer.variables]
        return optimizer.stateless_apply(slots, [gradient], [weight.value])[0][0]

    new = strategy.experimental_local_results(strategy.run(step))
    assert [result.tolist() for result in new] == [[-0.5, -1.0]] * 2
    assert numbers(weight) == [1.0, 2.0] and int(optimizer.iterations) == 0


def test_a_clipped_step_is_that_of_the_sum_and_a_warning_gives_tensorflow_s_number() -> None:
    x, y = np.arange(1, 9, dtype="float32").reshape(8, 1), np.arange(10, 90, 10, dtype="float32").reshape(8, 1)
    moved = {}
    for replicas in (1, 2):
        with mirrored(replicas).scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False,
                                                                          kernel_initializer="zeros")])
            model.compile(keras.optimizers.SGD(1.0, global_clipnorm=1.0), "mse")
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0, epochs=2)
        moved[replicas] = np.asarray(model.get_weights()).item()
        warned = [warning for warning in record if issubclass(warning.category, errors.DifferenceWarning)]
        assert [warning.filename for warning in warned] == [__file__] * (replicas - 1)
        if warned:  # TensorFlow 2.21 moves the weight by 2
            assert "[RD35]" in str(warned[0].message) and "has the norm 2." in str(warned[0].message)
    assert moved == {1: pytest.approx(2.0), 2: pytest.approx(2.0)}


def test_replicas_with_gradients_of_different_variables_are_told_apart() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weights = [keras.Variable(0.0), keras.Variable(0.0)]
        optimizer = keras.optimizers.SGD(1.0)

    def step() -> None:
        number = refdist.get_replica_context().replica_id_in_sync_group  # type: ignore[union-attr]
        gradients = [None, None]
        gradients[number] = torch.tensor(1.0)  # type: ignore[call-overload]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    with pytest.raises(errors.RefdistError, match="RD21"):
        strategy.run(step)
    assert [numbers(weight) for weight in weights] == [0.0, 0.0]


@pytest.mark.parametrize("made", ["model", "optimizer"])
def test_an_optimizer_and_its_variables_are_of_the_strategy(made: str) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weight, optimizer = keras.Variable([0.0]), keras.optimizers.SGD(1.0)
    if made == "model":
        weight = keras.Variable([0.0])
    else:
        optimizer = keras.optimizers.SGD(1.0)
    with pytest.raises(errors.InvalidValueError, match=r"RD11.*outside the scope"):
        strategy.run(lambda: optimizer.apply_gradients([(torch.ones(1), weight)]))
    assert numbers(weight) == [0.0] and numbers(optimizer.iterations) == 0


def test_a_gradient_of_another_shape_changes_nothing() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        weights, optimizer = [keras.Variable([0.0]), keras.Variable([0.0])], keras.optimizers.SGD(1.0)
    with pytest.raises(errors.InvalidArgumentError, match=r"RD04.*shape \(2,\)"):
        strategy.run(lambda: optimizer.apply_gradients(zip([torch.ones(1), torch.ones(2)], weights, strict=True)))
    assert [numbers(weight) for weight in weights] == [[0.0], [0.0]] and numbers(optimizer.iterations) == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("replicas", [0, 2])
def test_an_optimizer_takes_variables_of_refdist_as_keras_s_own(name: str, replicas: int) -> None:
    strategy = mirrored(replicas) if replicas else refdist.get_strategy()
    with strategy.scope():
        weights = [keras.Variable([1.0, 2.0]), refdist.Variable([1.0, 2.0])]
        optimizers = [OPTIMIZERS[name](), OPTIMIZERS[name]()]

    def step(scale: float) -> None:
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.apply_gradients([(torch.tensor([0.5, -1.0]) * scale, weight)])

    for scale in (1.0, 0.5, 2.0, 1.0):
        strategy.run(step, args=(scale,))
    assert numbers(weights[1]) != [1.0, 2.0]
    for value, expected in zip(*([weight, *optimizer.variables] for weight, optimizer in zip(
            weights, optimizers, strict=True)), strict=True):
        np.testing.assert_allclose(numbers(value), numbers(expected), rtol=2e-6)


def test_slots_of_a_variable_of_refdist_are_called_as_on_tensorflow() -> None:
    optimizer = keras.optimizers.Adam()
    optimizer.build([refdist.Variable([1.0, 2.0], name="weight")])
    assert [variable.path.partition("/")[2] for variable in optimizer.variables] == [
        "iteration", "learning_rate", "weight_0_momentum", "weight_0_velocity"]
    optimizer = keras.optimizers.Muon()
    optimizer.build([refdist.Variable([1.0, 2.0])])  # looks its slots up while it makes them


def test_a_variable_of_refdist_that_was_made_outside_the_scope_is_not_updated() -> None:
    strategy, weight = mirrored(2), refdist.Variable([0.0])
    with strategy.scope():
        optimizer = keras.optimizers.SGD(1.0)
    with pytest.raises(errors.InvalidValueError, match=r"RD11.*'Variable_0' was made outside the scope"):
        strategy.run(lambda: optimizer.apply_gradients([(torch.ones(1), weight)]))
    assert numbers(weight) == [0.0]


# --- fit, evaluate, predict ----------------------------------------------------------------------------------


def trained(strategy: Any, count: int, **options: Any) -> dict[str, Any]:
    x, y = rows(count)
    with strategy.scope():
        model = regression([keras.layers.Dense(3, kernel_regularizer="l2"), keras.layers.Dense(1)], metrics=["mae"])
    fit = {name: options.pop(name) for name in ("class_weight", "sample_weight") if name in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DifferenceWarning)
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=(x[:5], y[:5]),
                            **fit, **options).history
    return {**history, "evaluate": model.evaluate(x, y, batch_size=8, verbose=0),
            "predict": model.predict(x, batch_size=8, verbose=0), "weights": np.concatenate(
                [weight.ravel() for weight in model.get_weights()])}


@pytest.mark.parametrize("count", [16, 17, 22, 3])
def test_fit_gives_the_numbers_of_keras_alone_under_every_strategy(count: int) -> None:
    wanted = trained(refdist.get_strategy(), count)
    for strategy in strategies():
        results = trained(strategy, count)
        for name, values in wanted.items():
            np.testing.assert_allclose(results[name], values, rtol=3e-6, atol=1e-7, err_msg=f"{strategy} {name}")


@pytest.mark.parametrize("options", [
    {"sample_weight": np.arange(22, dtype="float32") / 8}, {"steps_per_epoch": 2}, {"validation_steps": 1},
], ids=lambda options: next(iter(options)))
def test_options_of_fit_mean_the_same_under_a_strategy(options: dict[str, Any]) -> None:
    wanted = trained(refdist.get_strategy(), 22, **options)
    results = trained(mirrored(4), 22, **options)
    for name, values in wanted.items():
        np.testing.assert_allclose(results[name], values, rtol=3e-6, atol=1e-7, err_msg=name)


def test_several_steps_are_one_execution() -> None:
    x, y = rows(24)
    seen: list[int] = []
    with mirrored(2).scope():
        model = regression([keras.layers.Dense(1)], steps_per_execution=2)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    assert seen == [1, 3] and numbers(model.optimizer.iterations) == 3
    wanted = regression([keras.layers.Dense(1)])
    wanted.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], wanted.get_weights()[0], rtol=1e-6)
    assert model.predict(x, batch_size=8, verbose=0).shape == (24, 1)


def test_a_batch_without_rows_for_a_replica_spoils_no_statistics() -> None:
    x, y = rows(9)
    with mirrored(4).scope():
        model = regression([keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    with pytest.warns(errors.DifferenceWarning, match=r"RD35.*rows of a batch are 1, 0, 0, 0 .*1/1 .*1/4"):
        history = model.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
    assert all(np.isfinite(weight).all() for weight in model.get_weights()) and np.isfinite(history["loss"]).all()


def test_rows_that_a_mask_leaves_weigh_the_same_on_any_number_of_replicas() -> None:
    # Five tokens with the targets 0, 0, 0, 0, 10: their mean is 2.  TensorFlow 2.21 learns 5 with two replicas.
    ids, y = np.array([[1, 1, 1, 1], [1, 0, 0, 0]]), np.array([[0.0] * 4, [10.0] * 4])[..., None]
    for replicas in (1, 2):
        with mirrored(replicas).scope():
            model = keras.Sequential([keras.layers.Embedding(2, 1, mask_zero=True, embeddings_initializer="zeros")])
            model.compile(keras.optimizers.SGD(0.5), "mse")
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            history = model.fit(ids, y, batch_size=2, shuffle=False, verbose=0).history
        assert numbers(model.layers[0].embeddings)[1] == [pytest.approx(2.0)]
        assert history["loss"] == [pytest.approx(20.0)]
        messages = [str(warning.message) for warning in record
                    if issubclass(warning.category, errors.DifferenceWarning)]
        assert len(messages) == replicas - 1 and all("RD35" in text and "mask" in text for text in messages)


@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_squares_of_the_parts_of_a_gradient_are_warned_of_once(replicas: int) -> None:
    ids, y = np.array([[1, 2], [1, 3], [4, 5], [5, 5]]), np.arange(4.0)
    for optimizer, warned in (("SGD", 0), ("Adam", 1)):
        with mirrored(replicas).scope() if replicas else contextlib.nullcontext():
            layers = [keras.layers.Embedding(6, 1, embeddings_initializer="ones"), keras.layers.Flatten()]
            model = keras.Sequential(layers)
            model.compile(getattr(keras.optimizers, optimizer)(0.1), "mse")
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            model.fit(ids, np.stack([y, y], 1), batch_size=4, epochs=2, shuffle=False, verbose=0)
        told = [str(one.message) for one in record if issubclass(one.category, errors.DifferenceWarning)]
        assert len(told) == warned, told
    # The parts of token 5 are 0.25, 0.5 and 0.5: the loss is a mean over 8 numbers, 1 short of 2 and 2 short of 3.
    assert re.search(r"RD35.*row 5 of .* was looked up 3 times; .* add up to 1\.5625; .* parts, 0\.5625", told[0]), told


def test_datasets_of_refdist_are_read() -> None:
    x, y = rows(16)
    dataset = refdist.data.Dataset.from_tensor_slices((x, y)).batch(8)
    wanted = regression([keras.layers.Dense(1)])
    wanted.fit(x, y, batch_size=8, shuffle=False, verbose=0, epochs=2)
    strategy = mirrored(2)
    for data in (dataset, strategy.experimental_distribute_dataset(dataset)):
        with strategy.scope():
            model = regression([keras.layers.Dense(1)])
        model.fit(data, epochs=2, verbose=0)
        np.testing.assert_allclose(model.get_weights()[0], wanted.get_weights()[0], rtol=1e-6)
        assert model.evaluate(data, verbose=0) == pytest.approx(wanted.evaluate(x, y, batch_size=8, verbose=0))
    with pytest.raises(errors.InvalidValueError, match=r"RD34.*beside it"):
        model.fit(dataset, y)


def test_classes_of_a_dataset_have_the_weights_that_they_have_in_arrays() -> None:
    x, _ = rows(16)
    y = np.arange(16) % 3
    dataset = refdist.data.Dataset.from_tensor_slices((x, y)).batch(8)
    given = {"class_weight": {0: 1.0, 1: 4.0}, "epochs": 2, "verbose": 0}
    wanted = regression([keras.layers.Dense(1)]).fit(x, y, batch_size=8, shuffle=False, **given)
    for scope in (contextlib.nullcontext(), mirrored(2).scope()):
        with scope:
            model = regression([keras.layers.Dense(1)])
        assert model.fit(dataset, **given).history["loss"] == pytest.approx(wanted.history["loss"])
    with pytest.raises(errors.InvalidValueError, match=r"RD34.*class_weight stands beside the sample weights"):
        model.fit(dataset.map(lambda a, b: (a, b, b)), **given)


def test_a_batch_by_itself_is_shared_out() -> None:
    x, y = rows(8)
    wanted = regression([keras.layers.Dense(1)])
    with mirrored(2).scope():
        model = regression([keras.layers.Dense(1)])
    for _ in range(2):
        assert model.train_on_batch(x, y) == pytest.approx(wanted.train_on_batch(x, y))
    assert model.test_on_batch(x, y) == pytest.approx(wanted.test_on_batch(x, y))
    np.testing.assert_allclose(model.predict_on_batch(x), wanted.predict_on_batch(x), rtol=1e-6)


def test_a_model_of_another_scope_is_not_trained() -> None:
    x, y = rows(8)
    model = regression([keras.layers.Dense(1)])
    with mirrored(2).scope(), pytest.raises(errors.InvalidValueError, match=r"RD11.*outside the scope"):
        model.fit(x, y)


# --- Random numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [7, None])
def test_all_replicas_have_one_mask_and_a_warning_says_so_once(seed: int | None) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        layer = keras.layers.Dropout(0.5, seed=seed)
    masks = []
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for _ in range(2):
            parts = strategy.run(lambda: layer(torch.ones(64), training=True))
            first, second = (mask.tolist() for mask in strategy.experimental_local_results(parts))
            assert first == second
            masks.append(first)
    assert masks[0] != masks[1]
    assert ["[RD36]" in str(warning.message) for warning in record] == [True]


# --- Other worlds --------------------------------------------------------------------------------------------


PROGRAM = """
import hashlib, os, sys, tempfile
import numpy as np, refdist
from refdist.tf.keras import connect
keras = connect()
strategy = (refdist.MirroredStrategy(["CPU:0", "CPU:1"]) if "local" in sys.argv
            else refdist.MultiWorkerMirroredStrategy())
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(37, 4)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5),
                              keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
told = []
class Told(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        told.append((batch, logs))
    on_test_batch_end = on_epoch_end = on_train_batch_end
best = os.path.join(tempfile.mkdtemp(), "best.weights.h5")
callbacks = [Told(), keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
             keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=1.0),
             keras.callbacks.ModelCheckpoint(best, save_weights_only=True, save_best_only=True)]
history = model.fit(x, y, batch_size=8, epochs=4, shuffle=True, verbose=0, callbacks=callbacks,
                    validation_data=(x[:11], y[:11])).history
rows = refdist.data.Dataset.from_tensor_slices((x, y)).shuffle(37, seed=3).batch(8)
history = {name: [*map(float, [*values, *more])] for (name, values), more in zip(
    history.items(), model.fit(rows, verbose=0, validation_data=(x[:11], y[:11])).history.values())}
numbers = [history, [(batch, *((name, float(value)) for name, value in logs.items())) for batch, logs in told],
           model.evaluate(x, y, batch_size=8, verbose=0)]
model.load_weights(best)
arrays = [*model.get_weights(), model.predict(x, batch_size=8, verbose=0)]
print(strategy.num_replicas_in_sync, numbers, hashlib.md5(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""


@pytest.mark.slow
def test_replicas_and_workers_simulated_and_under_mpi_have_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore",
                   "OMP_NUM_THREADS": "1"}
    printed = [subprocess.run([sys.executable, *start, str(script), *arguments], capture_output=True, text=True,
                              check=True, env=environment).stdout.splitlines()
               for start, arguments in (([], ["local"]), (["-m", "refdist", "run", "--workers", "2"], []),
                                        (["-m", "refdist", "launch", "-n", "2"], []))]
    assert len(printed[0]) == 1 and printed[0][0].startswith("2 [") and "val_mae" in printed[0][0]
    assert printed[1] == printed[2] == printed[0] * 2


@pytest.mark.slow
@pytest.mark.parametrize("start", [
    [], ["-m", "refdist", "run", "--workers", "2"], ["-m", "refdist", "launch", "-n", "2"]],
    ids=["replicas", "simulated workers", "processes"])
def test_the_example_of_fit_prints_the_same_on_replicas_and_on_workers(start: list[str]) -> None:
    pytest.importorskip("sklearn", reason="the example needs it")
    done = subprocess.run([sys.executable, *start, str(ROOT / "examples" / "keras_fit.py")], capture_output=True,
                          text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    lines = [line for line in done.stdout.splitlines() if not line.endswith("replicas")]
    losses = [f"epoch {i}: loss {loss}" for i, loss in enumerate(("1.4059", "0.4494", "0.2627", "0.2075", "0.1930"), 1)]
    wanted = [*losses, "loss 0.7352, accuracy 0.831 of rows that were not trained on"]
    assert sorted(lines) == sorted(wanted * (2 if start else 1))


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_fit_under_a_parameter_server_strategy_is_told_what_to_write(method: str) -> None:
    spec = refdist.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1", "c:1"]})
    with refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec)).scope():
        model = regression([keras.layers.Dense(1)])
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*schedule"):
        getattr(model, method)(rows(8)[0])


def test_the_face_is_imported_without_keras() -> None:
    code = "import refdist.tf, sys; assert not {'keras', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def served(workers: int) -> Any:
    spec = refdist.train.ClusterSpec({"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1", "p1:1"]})
    return refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))


def test_a_read_of_a_variable_on_a_parameter_server_is_an_access() -> None:
    with served(1).scope():
        variable = keras.Variable(1.0, name="v")
        coordinator = refdist.coordinator.ClusterCoordinator(refdist.get_strategy())
    refdist.coordinator.stop_task(coordinator, "ps", 0)
    with pytest.raises(errors.UnavailableError, match=r"RD33.*read of variable v:0"):
        variable.value  # noqa: B018


ASYNCHRONOUS = Path(__file__).parent / "asynchronous"


def asynchronous(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.syspath_prepend(str(ASYNCHRONOUS))
    script = str(ASYNCHRONOUS / "keras_steps.py")
    monkeypatch.setattr(sys, "argv", [script, *arguments])

    def run() -> None:
        runpy.run_path(script, run_name="__main__")

    return run


def test_statistics_that_steps_overwrite_for_each_other_are_found(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = asynchronous(monkeypatch)
    names = keras.backend.get_uid("probe")
    report = refdist.explore(program, budget="10min")
    assert keras.backend.get_uid("probe") == names + 1  # what Keras counts is as it was before
    [finding] = report.findings
    assert finding.title == "LOST UPDATE"
    assert re.search(r"batch_normalization(_\d+)?/moving_mean", str(finding))  # Keras counts the layers of a process
    assert report.first is not None and report.first <= 10 and finding.switches == 1
    capsys.readouterr()
    choices, recording = ",".join(map(str, finding.choices)), tmp_path / "run.jsonl"
    assert main(["explore", "--choices", choices, "--record", str(recording),
                 str(ASYNCHRONOUS / "keras_steps.py")]) == 1
    assert "overwrites version 1" in capsys.readouterr().out
    events = refdist.insight.load(recording).events
    assert {event["task"] for event in events if event.kind == "function"} == {0, 1}


def test_steps_without_statistics_have_the_stated_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    program = asynchronous(monkeypatch, "corrected")
    report = refdist.explore(program, max_staleness=1, budget="10min")
    assert report.proved, report
    assert str(report) == str(refdist.explore(program, max_staleness=1, budget="10min"))
    assert refdist.explore(program, max_staleness=0, budget="10min").findings[0].title == "TOO STALE"
