"""Mistakes with Keras under a strategy, in `fit` and in training loops of a program's own, as users have reported them.

Each program names the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from silent_mistakes import ROWS, four

import refdist
import refdist.tf as tf

pytest.importorskip("torch", reason="`make interop` installs it")
keras: Any = tf.keras

X = ROWS / 24
Y = X[:, :1] - X[:, 1:2]


def made(*layers: Any, optimizer: Any = None, **options: Any) -> Any:
    """A compiled model of one dense layer whose weights are 0.5, after other layers."""
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(
        1, kernel_initializer=keras.initializers.Constant(0.5))])
    model.compile(optimizer or keras.optimizers.SGD(0.1), "mse", **options)
    return model


def fitted(model: Any, rows: int = 8, **options: Any) -> None:
    model.fit(X[:rows], Y[:rows], batch_size=8, shuffle=False, verbose=0, **options)


def loop(loss: Callable[[Any, Any], Any], change: Callable[[Any], Any] = lambda gradients: gradients,
         distributed: bool = True, rate: float = 0.1, metric: Any = None) -> None:
    """A training loop of its own, with that loss of the labels and predictions of a replica."""
    refdist.set_backend("torch")
    strategy = four()
    with strategy.scope():
        model = made()
        optimizer = keras.optimizers.SGD(rate)

    def step(batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(change(gradients), model.trainable_variables, strict=True))
        if metric is not None:
            metric.update_state(value)
        return value

    dataset = refdist.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    for batch in strategy.experimental_distribute_dataset(dataset) if distributed else dataset:
        strategy.run(step, args=(batch,))


def squares(y: Any, predicted: Any) -> Any:
    return tf.reduce_sum(tf.square(y - predicted), axis=1)


def average(y: Any, predicted: Any) -> Any:
    return tf.nn.compute_average_loss(squares(y, predicted), global_batch_size=8)


def model_made_outside_the_scope() -> None:
    # github.com/tensorflow/hub/issues/469
    strategy, model = four(), made()
    with strategy.scope():
        fitted(model)


def optimizer_made_outside_the_scope() -> None:
    # github.com/tensorflow/tensorflow/issues/55713
    strategy, optimizer = four(), keras.optimizers.SGD(0.1)
    with strategy.scope():
        model = made(optimizer=optimizer)
    fitted(model)


def optimizer_made_in_each_step() -> None:
    # github.com/tensorflow/tensorflow/issues/41768: its slots are made where a step runs, and begin at zero each time.
    # That is so on one replica, too; what the comparison sees are the names, which Keras counts through a program.
    strategy = four()
    with strategy.scope():
        model = made()

    def step(x: Any) -> None:
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
        change = keras.ops.sum(keras.ops.convert_to_tensor(x)) / 8
        optimizer.apply_gradients([(tf.ones_like(w.value) * change, w) for w in model.trainable_variables])

    for batch in strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(X).batch(8)):
        strategy.run(step, args=(batch,))


def metric_outside_the_scope() -> None:
    # github.com/tensorflow/tensorflow/issues/33651
    loop(average, metric=keras.metrics.Mean())


def clipped_by_the_optimizer() -> None:
    # github.com/tensorflow/tensorflow/issues/33929
    with four().scope():
        model = made(optimizer=keras.optimizers.SGD(0.1, global_clipnorm=0.01))
    fitted(model)


def clipped_in_each_replica() -> None:
    # github.com/tensorflow/tensorflow/issues/35333
    loop(average, lambda gradients: tf.clip_by_global_norm(gradients, 0.01)[0])


def loss_divided_twice() -> None:
    # github.com/keras-team/keras/issues/16285: the loss of Keras has been divided by the replicas before.
    mean = keras.losses.MeanSquaredError()
    loop(lambda y, predicted: mean(y, predicted) / refdist.get_strategy().num_replicas_in_sync)


def mean_of_each_share() -> None:
    # github.com/tensorflow/tensorflow/issues/28956: the sum of the gradients of means.
    loop(lambda y, predicted: tf.reduce_mean(squares(y, predicted)))


def dataset_not_distributed() -> None:
    # github.com/tensorflow/tensorflow/issues/33651: each replica gets the whole batch.
    loop(average, distributed=False)


def rate_times_the_replicas() -> None:
    # github.com/keras-team/keras-io/issues/1507: the rate is scaled although the batch is not.
    loop(average, rate=0.1 * four().num_replicas_in_sync)


def statistics_of_two_rows() -> None:
    # github.com/tensorflow/tensorflow/issues/7439: each replica normalizes by its own share.
    with four().scope():
        model = made(keras.layers.BatchNormalization())
    fitted(model)


def noise_of_one_seed() -> None:
    loop(lambda y, predicted: average(y, predicted + tf.random.stateless_normal(tf.shape(y), seed=[1, 2])))


def noise_of_own_seeds() -> None:
    # No mistake, and it is said that it is none.
    def loss(y: Any, predicted: Any) -> Any:
        seed = tf.random.fold_in([1, 2], tf.distribute.get_replica_context().replica_id_in_sync_group)
        return average(y, predicted + tf.random.stateless_normal(tf.shape(y), seed=seed))
    loop(loss)


def data_that_ends() -> None:
    # github.com/tensorflow/tensorflow/issues/25254: more `steps_per_epoch` than the dataset has, without `repeat`.
    with four().scope():
        model = made()
    model.fit(refdist.data.Dataset.from_tensor_slices((X, Y)).batch(8), epochs=2, steps_per_epoch=4, verbose=0)


MISTAKES = [
    (0, model_made_outside_the_scope, "raises RD11"),
    (0, optimizer_made_outside_the_scope, "raises RD11"),
    (0, optimizer_made_in_each_step, "compare SHARED PYTHON STATE"),
    (0, metric_outside_the_scope, "raises RD11"),
    (0, clipped_by_the_optimizer, "warns DifferenceWarning"),
    (0, clipped_in_each_replica, "compare ROWS OF ONE REPLICA"),
    (0, loss_divided_twice, "compare DIVIDED TWICE"),
    (0, mean_of_each_share, "compare MEANS SUMMED"),
    (0, dataset_not_distributed, "compare NOT DISTRIBUTED"),
    (0, rate_times_the_replicas, "compare MULTIPLIED AFTER REDUCING"),
    (0, statistics_of_two_rows, "compare ROWS OF ONE REPLICA"),
    (0, noise_of_one_seed, "compare ONE SEED"),
    (0, noise_of_own_seeds, "compare RANDOM NUMBERS OF EACH REPLICA"),
    (0, data_that_ends, "warns UserWarning"),
]
