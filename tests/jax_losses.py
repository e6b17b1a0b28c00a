"""Losses of JAX's, each with what it is to the other replicas, and a program that trains by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from silent_mistakes import ROWS, Aggregation, four

import refdist
from refdist.core.rules.replica_types import Of

jax: Any = pytest.importorskip("jax", reason="JAX is not installed", exc_type=ImportError)
jnp = jax.numpy


def each(step: Callable[[Any], Any], rows: int = 8, batch: int = 8, strategy: Any = None) -> list[Any]:
    """What the replicas return of each batch of arrays of JAX."""
    strategy = strategy or four()
    dataset = refdist.data.Dataset.from_tensor_slices(jnp.asarray(ROWS[:rows])).batch(batch)
    return [strategy.run(step, (part,)) for part in strategy.experimental_distribute_dataset(dataset)]


def gradient(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, w: jax.grad(lambda w: loss(x, w))(w)


def mean_of_squares(x: Any, w: Any) -> Any:
    return jnp.mean((x @ w) ** 2)


def own_sum(x: Any, w: Any) -> Any:
    return jnp.sum((x @ w) ** 2)


def by_length(x: Any, w: Any) -> Any:
    return jnp.sum((x @ w) ** 2) / len(x)


def of_each_row(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.mean(jnp.tanh(x * w), axis=-1))


def with_a_penalty(x: Any, w: Any) -> Any:
    return jnp.mean((x @ w) ** 2) + 0.1 * jnp.sum(w ** 2)


def classes(x: Any, w: Any) -> Any:
    labels = jax.nn.one_hot(x[:, 0].astype(int) % 3, 3)
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(x * w), axis=-1))


def two_layers(x: Any, w: Any) -> Any:
    hidden = jax.nn.relu(x @ (w[:, None] * jnp.ones((3, 4))))
    return jnp.mean(jnp.square(hidden @ jnp.full(4, 0.5) - x[:, 0]))


def indexed(x: Any, w: Any) -> Any:
    labels = x[:, :1].astype(int) % 3
    return -jnp.take_along_axis(jax.nn.log_softmax(x * w), labels, axis=-1).mean()


def indexed_at_once(x: Any, w: Any) -> Any:
    labels = x[:, 0].astype(int) % 3
    return -jax.nn.log_softmax(x * w)[jnp.arange(len(x)), labels].mean()


def summed_at_once(x: Any, w: Any) -> Any:
    labels = x[:, 0].astype(int) % 3
    return -(jax.nn.log_softmax(x * w)[jnp.arange(len(x)), labels] * x[:, 1]).sum()


def embedded(x: Any, w: Any) -> Any:
    words = jnp.take(jnp.ones((5, 1)) * w, x[:, 0].astype(int) % 5, axis=0)
    return jnp.mean(jnp.sum(words * x, axis=1) ** 2)


def of_each_example(x: Any, w: Any) -> Any:
    return jax.vmap(lambda row: (row @ w) ** 2)(x).mean()


LOSSES: list[tuple[Callable[[Any, Any], Any], Of]] = [
    (mean_of_squares, Of.MEAN), (own_sum, Of.SUM), (by_length, Of.MEAN), (of_each_row, Of.SUM),
    (with_a_penalty, Of.MEAN), (classes, Of.MEAN), (two_layers, Of.MEAN), (indexed, Of.MEAN), (embedded, Of.MEAN),
    (indexed_at_once, Of.MEAN), (summed_at_once, Of.SUM),
    (of_each_example, Of.MEAN)]


def train(step: Callable[[Any, Any], Any], rows: int = 8, batch: int = 8) -> Callable[[], Any]:
    """A program that trains a weight, where `step` computes what it changes by."""
    def program() -> None:
        strategy = four()
        with strategy.scope():
            weight = refdist.Variable(jnp.zeros(3), aggregation=Aggregation.ONLY_FIRST_REPLICA)
        each(lambda x: weight.assign_sub(0.1 * step(x, weight.read_value())), rows, batch, strategy)
    return program
