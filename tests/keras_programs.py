"""Programs with Keras, for refdist and TensorFlow: `python tests/keras_programs.py WORLD PROGRAM REPLICAS [float64]`.

Each prints JSON: names of numbers, and lists of them.  Initial weights and batches come from NumPy, so that both worlds
have the same.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, BATCH, WIDTH, CLASSES = 50, 16, 6, 3


class World:
    """What a program needs of either library.

    Attributes:
        keras: the module.
        distribute: tf.distribute, or refdist.
        float: the dtype of weights.
    """

    def __init__(self, name: str, replicas: int, dtype: str) -> None:
        self.float = dtype
        if name == "tensorflow":
            os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
            import tensorflow as tf
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
            import keras
            self.keras, self.distribute, self.tf = keras, tf.distribute, tf
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            import refdist
            from refdist.tf.keras import connect
            self.keras, self.distribute, self.tf = connect(), refdist, None
            import torch
            torch.set_num_threads(1)
            self.torch = torch
        self.keras.config.set_floatx(dtype)
        self.keras.config.set_dtype_policy(dtype)
        self.devices = [f"CPU:{i}" for i in range(replicas)]
        self.random = np.random.default_rng(0)

    @functools.cached_property
    def strategy(self) -> Any:
        """With the replicas asked for."""
        return self.distribute.MirroredStrategy(self.devices)

    def use_servers(self) -> None:
        """From now on the strategy is that of one worker and two parameter servers."""
        places = iter([f"localhost:{port}" for port in unused_ports(3)] if self.tf else ["a:1", "b:1", "c:1"])
        spec = (self.tf or self.distribute).train.ClusterSpec(
            {"worker": [next(places)], "ps": [next(places), next(places)]})
        for job, task in [("worker", 0), ("ps", 0), ("ps", 1)] if self.tf else []:
            self.tf.distribute.Server(spec, job_name=job, task_index=task, protocol="grpc")
        options = {"rpc_layer": "grpc"} if self.tf else {}
        self.strategy = self.distribute.ParameterServerStrategy(
            self.distribute.cluster_resolver.SimpleClusterResolver(spec, **options))

    def rows(self, *shape: int) -> Any:
        # Numbers that float32 holds, so that no library rounds them on the way.
        return (self.random.integers(-64, 65, shape) / 32).astype(self.float)

    def initialize(self, variables: Any) -> None:
        """Gives each weight a value that is the same in both worlds."""
        for variable in variables:
            shape = tuple(variable.shape)
            variable.assign(self.rows(*shape) / 4 if len(shape) > 1
                            else np.full(shape, 1.0 if "gamma" in variable.path else 0.0, self.float))

    def array(self, value: Any) -> Any:
        return np.asarray(value.detach() if hasattr(value, "detach") else value, dtype="float64")

    def gradients(self, loss: Callable[[], Any], weights: Any) -> tuple[Any, Any]:
        """The loss, and its gradients."""
        if self.tf:
            with self.tf.GradientTape() as tape:
                value = loss()
            return value, tape.gradient(value, weights)
        value = loss()
        return value.detach(), self.torch.autograd.grad(value, [weight.value for weight in weights])

    def share(self, rows: Any) -> Any:
        """A batch, divided."""
        size = -(-len(rows) // self.strategy.num_replicas_in_sync)
        constant = self.tf.constant if self.tf else self.torch.as_tensor
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: constant(rows[context.replica_id_in_sync_group * size:][:size]))


def unused_ports(count: int) -> list[int]:
    """Ports that were free just now, all different."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def dense(world: World) -> list[Any]:
    return [world.keras.layers.Dense(8, activation="relu"), world.keras.layers.Dense(CLASSES)]


def batchnorm(world: World) -> list[Any]:
    layers = world.keras.layers
    # Numbers that float32 holds: TensorFlow rounds a Python number to float32 first.
    return [layers.Dense(8, activation="relu"), layers.BatchNormalization(momentum=0.875, epsilon=2.0 ** -10),
            layers.Dense(CLASSES)]


def embedding(world: World) -> list[Any]:
    layers = world.keras.layers
    return [layers.Embedding(7, 4), layers.Flatten(), layers.Dense(CLASSES)]


def loop(world: World, make: Callable[[World], list[Any]], optimizer: str) -> dict[str, Any]:
    """A training loop of the program's own."""
    keras, strategy = world.keras, world.strategy
    with strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), *make(world)])
        sgd = keras.optimizers.SGD(0.125, momentum=0.875) if optimizer == "sgd" else keras.optimizers.Adam(
            2.0 ** -6, beta_1=0.875, beta_2=0.96875, epsilon=2.0 ** -20)
        sgd.build(model.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        world.initialize(model.trainable_variables)
    per_row = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(x: Any, y: Any) -> Any:
        def loss() -> Any:
            nonlocal logits
            logits = model(x, training=True)
            return keras.ops.sum(per_row(y, logits)) / BATCH
        logits = None
        value, gradients = world.gradients(loss, model.trainable_variables)
        sgd.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(y, logits)
        return value

    losses = []
    # Statistics of few rows carry a difference in the last bit far: on 4 replicas one unit in the last place of the
    # initial gammas becomes 2e-4 in the weights in 50 steps, with refdist alone.
    for _ in range({2: 20, 4: 10}.get(strategy.num_replicas_in_sync, STEPS) if make is batchnorm else STEPS):
        x = world.random.integers(0, 7, (BATCH, WIDTH)) if make is embedding else world.rows(BATCH, WIDTH)
        y = world.random.integers(0, CLASSES, BATCH).astype("int32")
        parts = strategy.run(step, args=(world.share(x), world.share(y)))
        losses.append(float(world.array(strategy.reduce("SUM", parts, axis=None))))
    return {"losses": losses, "accuracy": [float(world.array(accuracy.result()))],
            **state(world, model, sgd)}


def scheduled(world: World, make: Callable[[World], list[Any]]) -> dict[str, Any]:
    """A training loop whose steps a coordinator schedules, one after another, so that their order is fixed."""
    world.use_servers()
    keras, strategy = world.keras, world.strategy
    tape = world.tf.GradientTape if world.tf else importlib.import_module("refdist.tf").GradientTape
    with strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), *make(world)])
        sgd, mean = keras.optimizers.SGD(0.125, momentum=0.875), keras.metrics.Mean()
        sgd.build(model.trainable_variables)
        world.initialize(model.trainable_variables)
    per_row = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    coordinator = world.distribute.coordinator.ClusterCoordinator(strategy)

    def on_replica(x: Any, y: Any) -> Any:
        with tape() as recorded:
            loss = keras.ops.sum(per_row(y, model(x, training=True))) / BATCH
        weights = model.trainable_variables
        sgd.apply_gradients(zip(recorded.gradient(loss, weights), weights, strict=True))
        mean.update_state(loss)
        return loss

    def step(x: Any, y: Any) -> Any:
        return strategy.run(on_replica, args=(x, y))

    constant = world.tf.constant if world.tf else world.torch.as_tensor
    step = world.tf.function(step) if world.tf else step
    losses = []
    for _ in range(STEPS):
        x, y = world.rows(BATCH, WIDTH), world.random.integers(0, CLASSES, BATCH).astype("int32")
        losses.append(coordinator.schedule(step, args=(constant(x), constant(y))))
        coordinator.join()
    return {"losses": [float(world.array(loss.fetch())) for loss in losses], "mean": [float(world.array(
        mean.result()))], **state(world, model, sgd)}


def state(world: World, model: Any, optimizer: Any) -> dict[str, Any]:
    variables = [*model.variables, *(slot for slot in optimizer.variables)]
    return {f"{i} {variable.name}": world.array(variable.value if not world.tf else variable).ravel().tolist()
            for i, variable in enumerate(variables) if "seed" not in variable.path}


def fitted(world: World, make: Callable[[World], list[Any]], rows: int, **options: Any) -> dict[str, Any]:
    """`fit`, `evaluate` and `predict`."""
    keras = world.keras
    with world.strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), *make(world)])
        model.compile(keras.optimizers.SGD(0.125, momentum=0.875),
                      keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        world.initialize(model.trainable_variables)
    x, y = world.rows(rows, WIDTH), world.random.integers(0, CLASSES, rows).astype("int32")
    if make is embedding:
        x = np.abs(x).astype("int32")
    weights = None if not options.pop("weighted", False) else np.abs(world.rows(rows))
    history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0, sample_weight=weights,
                        validation_data=(x[:rows // 2], y[:rows // 2]), **options).history
    return {**{name: list(map(float, values)) for name, values in history.items()},
            "evaluate": list(map(float, model.evaluate(x, y, batch_size=BATCH, verbose=0))),
            "predict": world.array(model.predict(x, batch_size=BATCH, verbose=0)).ravel().tolist(),
            **state(world, model, model.optimizer)}


PROGRAMS: dict[str, Callable[[World], dict[str, Any]]] = {
    "dense": lambda world: loop(world, dense, "sgd"),
    "adam": lambda world: loop(world, dense, "adam"),
    "batchnorm": lambda world: loop(world, batchnorm, "sgd"),
    "embedding": lambda world: loop(world, embedding, "sgd"),
    "servers": lambda world: scheduled(world, dense),
    "servers-batchnorm": lambda world: scheduled(world, batchnorm),
    "fit": lambda world: fitted(world, dense, 3 * BATCH),
    "fit-batchnorm": lambda world: fitted(world, batchnorm, 3 * BATCH),
    "fit-embedding": lambda world: fitted(world, embedding, 2 * BATCH),
    "fit-weighted": lambda world: fitted(world, dense, 2 * BATCH, weighted=True),
}


if __name__ == "__main__":
    which, program, count = sys.argv[1:4]
    print(json.dumps(PROGRAMS[program](World(which, int(count), (sys.argv[4:] or ["float32"])[0]))), flush=True)
    os._exit(0)  # TensorFlow's servers do not end
