"""Mistakes of training loops with JAX, by compiled functions and by gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from silent_mistakes import Aggregation, batches, each, four, replica, weights

jax = pytest.importorskip("jax", reason="`make interop` installs it")


@functools.cache
def gradient(mean: bool) -> Any:
    """Of the squares of what a weight predicts, summed over the rows or their mean."""
    def loss(weight: Any, x: Any) -> Any:
        squares = jax.numpy.square(x @ weight - x[:, 0])
        return squares.mean() if mean else squares.sum()

    return jax.jit(jax.grad(loss))


def of(w: Any, x: Any, mean: bool) -> Any:
    return gradient(mean)(np.asarray(w), np.asarray(x))


def gradients_of_means_summed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(0.01 * np.asarray(of(w, x, True))))


def mean_of_gradients_of_sums() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: w.assign_sub(0.01 * np.asarray(of(w, x, False)) / 8))


def gradients_of_uneven_means() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: w.assign_sub(0.01 * np.asarray(of(w, x, True))), rows=7)


def update_reduced_twice() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        g = replica().all_reduce("SUM", of(w, x, False) / 8)
        w.assign_sub(0.01 * np.asarray(g))

    each(strategy, step)


def own_rows_updated() -> None:
    strategy = four()
    w = weights(strategy)
    each(strategy, lambda x: w.assign_sub(0.01 * np.asarray(of(w, x, False))))


def dropout_of_one_key() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        kept = jax.random.bernoulli(jax.random.key(3), 0.5, x.shape)
        w.assign_sub(0.01 * np.asarray((x * kept).sum(axis=0)))

    each(strategy, step)


def dropout_of_a_key_from_outside() -> None:
    strategy, key = four(), jax.random.key(3)
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        w.assign_sub(0.01 * np.asarray((x * kept).sum(axis=0)))

    each(strategy, step)


def dropout_of_a_key_in_compiled_code() -> None:
    # A key for each step, but not for each replica.
    strategy, key = four(), jax.random.PRNGKey(3)
    w = weights(strategy, Aggregation.SUM)
    dropped = jax.jit(lambda x, key: (x * jax.random.bernoulli(key, 0.5, x.shape)).sum(axis=0))
    for x in batches(strategy, batch=4):
        key, now = jax.random.split(key)
        strategy.run(lambda x, key: w.assign_sub(0.01 * np.asarray(dropped(np.asarray(x), key))), (x, now))


def norm_beside_weights_of_one_key() -> None:
    # What replicas draw is the same on purpose, and not the mistake.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        scale = jax.random.normal(jax.random.key(1), (3,))
        w.assign_sub(np.asarray((x * scale / np.linalg.norm(x)).sum(axis=0)))

    each(strategy, step)


def dropout_of_own_keys() -> None:
    # No mistake, and it is said that it is none.
    strategy, key = four(), jax.random.key(3)
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        own = jax.random.fold_in(key, replica().replica_id_in_sync_group)
        w.assign_sub(0.01 * np.asarray((x * jax.random.bernoulli(own, 0.5, x.shape)).sum(axis=0)))

    each(strategy, step)


def collective_under_grad() -> None:
    strategy = four()
    w = weights(strategy)

    def loss(weight: Any, x: Any) -> Any:
        return replica().all_reduce("SUM", jax.numpy.square(x @ weight).sum())

    each(strategy, lambda x: jax.grad(loss)(np.asarray(w), np.asarray(x)))


def nan_of_an_empty_part() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(np.asarray(jax.numpy.square(np.asarray(x)).mean(axis=0))), rows=5)  # here


def order_of_keys() -> None:
    # Each replica goes over the names of its gradients in an order of its own.
    strategy = four()

    def step(x: Any) -> Any:
        parts = {"kernel": np.asarray(of(np.ones(3, np.float32), x, False))[0], "bias": np.float32(1)}
        names = sorted(parts, reverse=replica().replica_id_in_sync_group % 2 == 1)
        return [replica().all_reduce("SUM", parts[name]) for name in names]  # here

    each(strategy, step)


def mean_of_labels_loss_summed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def loss(weight: Any, x: Any, labels: Any) -> Any:
        chances = jax.nn.log_softmax(x * weight)
        return -jax.numpy.take_along_axis(chances, labels, axis=-1).mean()

    def step(x: Any) -> None:
        labels = x[:, :1].astype(np.int32) % 3
        w.assign_sub(np.asarray(jax.jit(jax.grad(loss))(w.read_value(), x, labels)))  # here

    each(strategy, step)


def mean_under_checkpoint_summed() -> None:
    strategy = four()
    predict = jax.checkpoint(lambda weight, x: jax.numpy.tanh(x @ weight))
    own = jax.jit(jax.grad(lambda weight, x: (predict(weight, x) ** 2).mean()))
    each(strategy, lambda x: replica().all_reduce("SUM", own(np.full(3, 0.1, np.float32), np.asarray(x))))  # here


def mean_of_gradients_of_rows_summed() -> None:
    of_each = jax.vmap(jax.grad(lambda weight, row: (row @ weight - 1) ** 2), (None, 0))
    each(four(), lambda x: replica().all_reduce("SUM", of_each(np.ones(3, np.float32), np.asarray(x)).mean(0)))  # here


def float_of_a_mean_summed() -> None:
    each(four(), lambda x: replica().all_reduce("SUM", float(jax.numpy.mean(np.asarray(x)))))  # here


def penalty_summed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: replica().all_reduce("SUM", jax.numpy.sum(w.read_value() ** 2)))  # here


def penalty_in_the_gradient() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jax.numpy.square(x @ w - x[:, 0]).sum() / 8 + 0.01 * jax.numpy.sum(w ** 2)

    of_loss = jax.jit(jax.grad(loss))
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(0.01 * np.asarray(of_loss(w.read_value(), np.asarray(x)))))  # here


def penalties_in_a_gradient_that_is_not_compiled() -> None:
    strategy = four()
    w = weights(strategy)

    def loss(w: Any, x: Any) -> Any:
        total = jax.numpy.square(x @ w - x[:, 0]).sum() / 8
        for penalty in (jax.numpy.sum(w ** 2), jax.numpy.abs(w).sum()):
            total += 0.01 * penalty
        return total

    def step(x: Any) -> Any:
        _, of_loss = jax.value_and_grad(loss)(w.read_value(), np.asarray(x))
        return replica().all_reduce("SUM", of_loss)  # here

    each(strategy, step)


def whole_batch_in_each_replica() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    rows = jax.numpy.asarray(np.arange(24, dtype=np.float32).reshape(8, 3))
    strategy.run(lambda x: w.assign_sub(np.asarray(gradient(False)(w.read_value(), x)) / 8), (rows,))  # here


def trees_of_each_replica() -> None:
    strategy = four()
    trees = [{"kernel": jax.numpy.zeros(3)} for _ in range(4)]

    @jax.jit
    def train(tree: Any, x: Any) -> Any:
        gradients = jax.grad(lambda tree: ((x @ tree["kernel"] - 1) ** 2).mean())(tree)
        return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, tree, gradients)

    def step(x: Any) -> None:
        number = replica().replica_id_in_sync_group
        trees[number] = train(trees[number], np.asarray(x))

    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))


MISTAKES = [
    (27, mean_of_labels_loss_summed, "warns RD38"),
    (27, mean_under_checkpoint_summed, "warns RD38"),
    (27, mean_of_gradients_of_rows_summed, "warns RD38"),
    (27, float_of_a_mean_summed, "warns RD38"),
    (0, penalty_summed, "warns RD37"),
    (0, penalty_in_the_gradient, "warns RD37"),
    (0, penalties_in_a_gradient_that_is_not_compiled, "warns RD37"),
    (30, whole_batch_in_each_replica, "warns RD37"),
    (21, trees_of_each_replica, "warns RD52"),
    (27, gradients_of_means_summed, "warns RD38"),
    (0, mean_of_gradients_of_sums, "warns RD39"),
    (28, gradients_of_uneven_means, "warns RD40"),
    (26, update_reduced_twice, "warns RD37"),
    (21, own_rows_updated, "raises RD12"),
    (38, dropout_of_one_key, "compare ONE SEED"),
    (38, dropout_of_a_key_from_outside, "compare ONE SEED"),
    (38, dropout_of_a_key_in_compiled_code, "compare ONE SEED"),
    (0, norm_beside_weights_of_one_key, "compare ROWS OF ONE REPLICA"),
    (0, dropout_of_own_keys, "compare RANDOM NUMBERS OF EACH REPLICA"),
    (0, collective_under_grad, "raises RD25"),
    (16, nan_of_an_empty_part, "warns RD42"),
    (3, order_of_keys, "warns RD48"),
]
