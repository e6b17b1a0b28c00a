"""Keras on JAX under refdist's strategies; `make interop` installs both.

Keras has one backend for each process, so these tests need a process of their own: the file is run alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="`make interop` installs it")
if sys.modules.get("keras") is None:
    os.environ["KERAS_BACKEND"] = "jax"
keras: Any = pytest.importorskip("keras", reason="`make interop` installs it")
if keras.backend.backend() != "jax":
    pytest.skip("Keras runs on another backend in this process", allow_module_level=True)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from test_tensorflow_face import CALLS, NAMES, alike  # noqa: E402
from test_tensorflow_misfits import CALLS as CANNOT_BE  # noqa: E402
from test_tensorflow_misfits import asserts_what_is_said  # noqa: E402

import refdist  # noqa: E402
import refdist.tf as tf  # noqa: E402
from refdist import VariableAggregation, VariableSynchronization, errors  # noqa: E402
from refdist.runtime import process  # noqa: E402
from refdist.tf.keras import connect  # noqa: E402

tf.keras  # noqa: B018
# Keras itself draws JAX's random numbers here.
OF_TENSORFLOW = [(call, expected) for call, expected in CALLS if not call.startswith(
    ("tf.keras.", "(tf.keras.utils.set_random_seed(3), tf.keras.random"))]
MISFITS = [(call, kind) for call, kind in CANNOT_BE if "floordiv" not in call]  # JAX divides integers by 0
ROOT = Path(__file__).parents[1]
X = np.arange(32, dtype=np.float32).reshape(16, 2) / 32
Y = X[:, :1] - X[:, 1:]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings(), process.fresh():
        warnings.simplefilter("error", errors.DifferenceWarning)
        refdist.set_backend("jax")
        yield


def mirrored(replicas: int) -> Any:
    return refdist.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def dense(units: int, seed: int) -> Any:
    return keras.layers.Dense(units, activation="tanh", kernel_initializer=keras.initializers.RandomNormal(seed=seed))


class Trained:
    """A model after some steps of a loop of the program's own.

    Attributes:
        losses: of each step, of the global batch.
    """

    def __init__(self, replicas: int, optimizer: Callable[[], Any], layers: Callable[[], list[Any]] = list,
                 stateless: bool = False) -> None:
        strategy = mirrored(replicas)
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), dense(4, 1), *layers(), dense(1, 2)])
            optimizer = optimizer()
            optimizer.build(model.trainable_variables)
            loss = keras.losses.MeanSquaredError()
            self.mean = keras.metrics.Mean()

        def of(weights: Any, others: Any, x: Any, y: Any) -> Any:
            predicted, others = model.stateless_call(weights, others, x, training=True)
            return optimizer.scale_loss(loss(y, predicted)), others

        def step(x: Any, y: Any) -> Any:
            weights, others = [[variable.value for variable in variables] for variables in (
                model.trainable_variables, model.non_trainable_variables)]
            (value, others), gradients = jax.value_and_grad(of, has_aux=True)(weights, others, x, y)
            for variable, other in zip(model.non_trainable_variables, others, strict=True):
                variable.assign(other)
            self.mean.update_state(value)
            if not stateless:
                optimizer.apply(gradients, model.trainable_variables)
                return value, ()
            weights, slots = optimizer.stateless_apply([slot.value for slot in optimizer.variables], gradients, weights)
            return value, [*weights, *slots]

        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat(2)
        self.losses = []
        for batch in strategy.experimental_distribute_dataset(data):
            value, state = strategy.run(step, args=batch)
            self.losses.append(float(strategy.reduce("SUM", value, axis=None)))
            for variable, new in zip([*model.trainable_variables, *optimizer.variables], state, strict=False):
                copies = strategy.experimental_local_results(new)
                assert all(np.array_equal(copy, copies[0]) for copy in copies)
                variable.assign(copies[0])
        self.model, self.optimizer, self.strategy = model, optimizer, strategy

    @property
    def weights(self) -> Any:
        """All weights, one after another."""
        return np.concatenate([weight.ravel() for weight in self.model.get_weights()])


OPTIMIZERS = {
    "Adam": lambda: keras.optimizers.Adam(0.05),
    "AdamW": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1),
    "averages": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "accumulated": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_on_any_number_of_replicas(name: str) -> None:
    alone, *others = [Trained(replicas, OPTIMIZERS[name]) for replicas in (1, 2, 4)]
    for other in others:
        assert other.losses == pytest.approx(alone.losses, rel=1e-3)
        assert other.weights == pytest.approx(alone.weights, rel=1e-4, abs=1e-6)
        assert int(other.optimizer.iterations) == int(alone.optimizer.iterations)
    assert min(alone.losses) < alone.losses[0]


def test_a_stateless_step_is_the_step_of_the_sum_on_each_replica() -> None:
    wanted, stateless = [Trained(2, OPTIMIZERS["Adam"], stateless=way) for way in (False, True)]
    assert stateless.losses == wanted.losses
    assert stateless.weights.tolist() == wanted.weights.tolist()


def test_a_stateless_step_that_scales_the_loss_is_refused() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*stateless_apply.*mixed_bfloat16"):
        Trained(2, OPTIMIZERS["scaled"], stateless=True)


def test_variables_are_the_strategy_s() -> None:
    trained = Trained(2, OPTIMIZERS["Adam"], lambda: [keras.layers.BatchNormalization()])
    kernel, statistic = trained.model.weights[0]._value, trained.model.non_trainable_variables[0]._value
    assert kernel.synchronization is VariableSynchronization.ON_WRITE and len(kernel.values) == 2
    assert (statistic.synchronization, statistic.aggregation) == (
        VariableSynchronization.ON_READ, VariableAggregation.ONLY_FIRST_REPLICA)
    assert isinstance(trained.model.weights[0].value, jax.Array)
    first, second = trained.strategy.experimental_local_results(statistic)
    assert np.asarray(first).tolist() != np.asarray(second).tolist()
    assert float(trained.mean.result()) == pytest.approx(np.mean(trained.losses) / 2)


def test_what_tensorflow_does_otherwise_is_said() -> None:
    with pytest.warns(errors.DifferenceWarning, match=r"RD35.*clipnorm"):
        Trained(2, lambda: keras.optimizers.SGD(0.1, clipnorm=1e-3))
    with pytest.warns(errors.DifferenceWarning, match=r"RD36.*the same numbers"):
        Trained(2, OPTIMIZERS["Adam"], lambda: [keras.layers.Dropout(0.5, seed=3)])


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch",
                                    "predict_on_batch"])
def test_training_by_keras_is_refused_under_a_strategy_and_says_what_to_write(method: str) -> None:
    arguments = (X,) if "predict" in method else (X, Y)
    with mirrored(2).scope():
        model = keras.Sequential([keras.Input((2,)), dense(1, 1)])
        model.compile("sgd", "mse")
    with pytest.raises(errors.UnsupportedError, match=rf"RD20.*{method}.*stateless_call.*KERAS_BACKEND=torch"):
        getattr(model, method)(*arguments)
    alone = keras.Sequential([keras.Input((2,)), dense(1, 1)])
    alone.compile("sgd", "mse")
    getattr(alone, method)(*arguments)
    with mirrored(2).scope(), pytest.raises(errors.UnsupportedError, match="RD20"):
        getattr(alone, method)(*arguments)


@pytest.mark.parametrize(("data", "text"), [
    ((tf.constant(["a"] * 16), Y), "text, which JAX has not.*StringLookup"),
    ((np.array(["a"] * 16), Y), "text, which JAX has not"), ((["a"] * 16, Y), "text, which JAX has not"),
    (({"words": np.array(["a"] * 16, object)}, Y), "text, which JAX has not"),
    ((refdist.data.Dataset.from_tensor_slices((X, Y)).batch(4),), "a dataset.*for x, y in dataset")])
def test_data_that_the_trainer_does_not_take_are_refused_and_say_what_to_write(data: Any, text: str) -> None:
    model = keras.Sequential([dense(1, 1)])
    model.compile("sgd", "mse")
    for method in (model.fit, model.evaluate):
        with pytest.raises(errors.UnsupportedError, match=rf"RD20\] Sequential.\w+: got {text}.*KERAS_BACKEND=torch"):
            method(*data)
    with pytest.raises(errors.UnsupportedError, match="RD20"):
        model.fit(X, Y, validation_data=data if len(data) == 2 else data[0])
    with pytest.raises(errors.UnsupportedError, match="RD20"):
        model.predict(x=data[0])


def test_a_tape_is_refused_and_says_what_to_write() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"RD20.*GradientTape.*value_and_grad.*KERAS_BACKEND=torch"):
        tf.GradientTape()


@pytest.mark.parametrize(("call", "kind"), MISFITS)
def test_a_call_that_cannot_be_raises_what_tensorflow_raises_and_names_the_operation(call: str, kind: str) -> None:
    asserts_what_is_said(tf, call, kind)


def test_an_operation_that_needs_numbers_says_so_in_a_compiled_function() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"RD34\] tf.unique\(x=int32\[2\]\): .*outside `jax.jit`"):
        jax.jit(lambda x: tf.unique(x).y)(jnp.array([1, 2]))


def test_an_optimizer_in_a_compiled_function_is_an_error() -> None:
    trained = Trained(2, OPTIMIZERS["Adam"])
    weights = [variable.value for variable in trained.model.trainable_variables]
    with pytest.raises(errors.InvalidTypeError, match=r"RD25.*outside `jax.jit`"):
        trained.strategy.run(jax.jit(lambda gradients: trained.optimizer.apply(gradients)), args=(weights,))


def test_a_layer_that_is_built_in_replicas_is_built_once_and_quietly() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([dense(3, 1), keras.layers.BatchNormalization(), dense(1, 2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strategy.run(lambda: model(jnp.ones((4, 2)), training=True))
    assert len(model.variables) == 8


def test_checkpoints_and_files_of_keras_bring_the_weights_back(tmp_path: Path) -> None:
    trained = Trained(2, OPTIMIZERS["Adam"])
    before = trained.weights
    checkpoint = tf.train.Checkpoint(model=trained.model, optimizer=trained.optimizer)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    trained.model.save(tmp_path / "model.keras")
    trained.model.set_weights([weight * 0 for weight in trained.model.get_weights()])
    checkpoint.restore(path)
    assert np.array_equal(trained.weights, before)
    with mirrored(2).scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert all(map(np.array_equal, loaded.get_weights(), trained.model.get_weights()))


@pytest.mark.parametrize("call", ["fit", "predict", "evaluate"])
def test_a_model_that_keras_builds_in_a_call_has_what_was_restored_before(tmp_path: Path, call: str) -> None:
    def compiled() -> Any:
        model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
        return model

    trained = compiled()
    trained.fit(X, Y, verbose=0)
    path = tf.train.Checkpoint(model=trained).save(str(tmp_path / "checkpoint"))
    restored = compiled()
    status = tf.train.Checkpoint(model=restored).restore(path)
    result = getattr(restored, call)(X, **({} if call == "predict" else {"y": Y}), verbose=0)
    if call == "predict":
        assert np.array_equal(result, trained.predict(X, verbose=0))
    assert all(map(np.array_equal, restored.get_weights(), trained.get_weights()))
    assert int(restored.optimizer.iterations) == 1 + (call == "fit")
    status.assert_consumed()


def test_steps_are_scheduled_on_parameter_servers() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]})
    servers = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    with servers.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build(model.trainable_variables)

    def on_replica() -> None:
        weights = [variable.value for variable in model.trainable_variables]
        optimizer.apply(jax.grad(lambda weights: model.stateless_call(weights, [], X[:4])[0].sum())(weights))

    coordinator = refdist.coordinator.ClusterCoordinator(servers)
    for _ in range(3):
        coordinator.schedule(lambda: servers.run(on_replica))
    coordinator.join()
    assert int(optimizer.iterations) == 3
    assert model.get_weights()[1].tolist() == [-6.0]


@pytest.mark.parametrize(("call", "expected"), OF_TENSORFLOW, ids=[call for call, _ in OF_TENSORFLOW])
def test_an_operation_computes_what_numpy_computes(call: str, expected: str) -> None:
    with jax.enable_x64(True):  # dtypes of 64 bits
        alike(eval(call, {"tf": tf, **NAMES}), eval(expected, NAMES))


@pytest.mark.parametrize("kind", ["sum", "mean", "sqrt_n", "max", "min", "prod"])
def test_segments_are_reduced_where_jax_compiles_the_step(kind: str) -> None:
    def reduced(data: Any, ids: Any) -> Any:
        return getattr(tf.math, f"unsorted_segment_{kind}")(data, ids, 4)

    data, ids = jnp.asarray(X[:6]), jnp.asarray([0, 2, -1, 2, 0, 1])
    np.testing.assert_allclose(jax.jit(reduced)(data, ids), reduced(data, ids), rtol=1e-6)


def test_random_numbers_begin_again_with_the_seed() -> None:
    def drawn() -> list[Any]:
        tf.random.set_seed(5)
        return [tf.random.normal([2]), tf.random.normal([2]), tf.random.uniform([2], seed=1),
                tf.random.uniform([2], 0, 9, tf.int32), tf.random.truncated_normal([2]), tf.random.shuffle(tf.range(9))]

    first = drawn()
    assert all(map(np.array_equal, first, drawn()))
    assert first[0].tolist() != first[1].tolist() and sorted(first[-1].tolist()) == list(range(9))


def test_tensors_have_numbers_and_a_class() -> None:
    tensor = tf.constant([1.0, 2.0])
    assert isinstance(tensor, tf.Tensor) and type(tensor.numpy()) is np.ndarray
    tensor.numpy()[0] = 5.0
    assert tensor.numpy().tolist() == [1.0, 2.0]
    assert tf.add(tensor, [1, 2]).tolist() == [2.0, 4.0]
    with pytest.raises(errors.InvalidTypeError, match="RD05"):
        tf.add(tf.constant([1, 2]), [0.5, 1])
    assert tf.keras.layers.StringLookup(vocabulary=["a"])(["a", "b"]).tolist() == [1, 0]


@pytest.mark.parametrize("backend", ["tensorflow", "numpy", "openvino"])
def test_other_backends_are_refused_before_keras_is_imported(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.delitem(sys.modules, "keras.src.backend.config")
    monkeypatch.setenv("KERAS_BACKEND", backend)
    with pytest.raises(errors.UnsupportedError, match=rf"RD20.*'{backend}'.*KERAS_BACKEND=torch"):
        connect()


PROGRAM = """
import jax
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = tf.keras.optimizers.SGD(0.1)

@tf.function
def step(x):
    def loss(weights):
        return tf.reduce_sum(model.stateless_call(weights, [], x)[0]) / 8
    value, gradients = jax.value_and_grad(loss)([weight.value for weight in model.trainable_variables])
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return value

for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(tf.ones([16, 2])).batch(8)):
    print(strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None).numpy().round(4))
"""


@pytest.mark.slow
def test_a_program_for_tensorflow_runs_with_gradients_of_jax(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "refdist", "run", "--tensorflow", str(tmp_path / "program.py")],
                          cwd=ROOT, env={**os.environ, "KERAS_BACKEND": "jax"}, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["2.0", "1.7"], "")
