"""What right programs reduce of what JAX has computed, though it looks like a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax_losses import gradient, mean_of_squares, of_each_row, own_sum, with_a_penalty
from silent_mistakes import replica


def compiled(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    compute: Callable[[Any, Any], Any] = jax.jit(gradient(loss))
    return compute


def mean_of_means(x: Any, w: Any) -> Any:
    return replica().all_reduce("MEAN", compiled(mean_of_squares)(x, w))


def sum_divided_afterwards(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", compiled(own_sum)(x, w)) / 8


def sum_divided_before(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", gradient(own_sum)(x, w) / 8)


def divided_in_the_loss(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", compiled(lambda x, w: own_sum(x, w) / 8)(x, w))


def means_of_features_summed(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", gradient(of_each_row)(x, w) + compiled(of_each_row)(x, w))


def mean_times_the_rows(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", compiled(lambda x, w: mean_of_squares(x, w) * len(x))(x, w))


def weighted_mean(x: Any, w: Any) -> Any:
    total, rows = replica().all_reduce("SUM", [gradient(mean_of_squares)(x, w) * len(x), 1.0 * len(x)])
    return total / rows


def penalized_mean(x: Any, w: Any) -> Any:
    return replica().all_reduce("MEAN", compiled(with_a_penalty)(x, w))


def accumulated(x: Any, w: Any) -> Any:
    def add(total: Any, rows: Any) -> tuple[Any, None]:
        return total + gradient(own_sum)(rows, w), None

    accumulate = jax.jit(lambda x: jax.lax.scan(add, jnp.zeros_like(w), x.reshape(2, -1, 3))[0])
    return replica().all_reduce("SUM", accumulate(x)) / 8


def masked(x: Any, w: Any) -> Any:
    mask = x[:, 0] > 4
    total = jax.grad(lambda w: jnp.sum(jnp.where(mask, (x @ w) ** 2, 0.0)))(w)
    rows = replica().all_reduce("SUM", mask.sum().astype(jnp.float32))
    return replica().all_reduce("SUM", total) / jnp.maximum(rows, 1)


def clipped_for_each_row(x: Any, w: Any) -> Any:
    own = jax.vmap(jax.grad(lambda w, row: (row @ w - 1) ** 2), (None, 0))(w, x)
    norms = jnp.linalg.norm(own, axis=1, keepdims=True)
    return replica().all_reduce("SUM", (own * jnp.minimum(1.0, 1.0 / (norms + 1e-6))).sum(axis=0)) / 8


def normalized(x: Any, w: Any) -> Any:
    total, squares, rows = replica().all_reduce("SUM", [x.sum(0), (x ** 2).sum(0), 1.0 * len(x)])
    mean = total / rows
    return replica().all_reduce("SUM", ((x - mean) / jnp.sqrt(squares / rows - mean ** 2 + 1e-5)).sum(axis=0)) / 8


def contrasted(x: Any, w: Any) -> Any:
    others = replica().all_gather(x, axis=0)
    labels = replica().replica_id_in_sync_group * len(x) + jnp.arange(len(x))
    losses = -jax.nn.log_softmax((x * w) @ others.T)[jnp.arange(len(x)), labels]
    return replica().all_reduce("SUM", losses.sum()) / 8 * w


def of_the_first(x: Any, w: Any) -> Any:
    return replica().all_reduce("SUM", jnp.where(replica().replica_id_in_sync_group == 0, w, 0.0))


def scaled_loss(x: Any, w: Any) -> Any:
    scale = jnp.float32(1024)
    return replica().all_reduce("MEAN", gradient(lambda x, w: mean_of_squares(x, w) * scale)(x, w)) / scale


def huber(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        error = jnp.abs(x @ w - 1)
        near = jnp.minimum(error, 1.0)
        return jnp.mean(0.5 * near ** 2 + (error - near))
    return replica().all_reduce("MEAN", jax.grad(loss)(w))


def penalty_by_its_share(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        return own_sum(x, w) / 8 + len(x) / 8 * 0.01 * jnp.sum(w ** 2)
    return replica().all_reduce("SUM", compiled(loss)(x, w))


def penalty_that_is_reported_alone(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        data, penalty = own_sum(x, w) / 8, 0.01 * jnp.sum(w ** 2)
        return data + penalty * (x.shape[0] / 8), data + penalty
    return replica().all_reduce("SUM", jax.grad(loss, has_aux=True)(w)[0])


def penalty_taken_away(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        penalized = own_sum(x, w) / 8 + 0.01 * jnp.sum(w ** 2)
        return penalized - 0.01 * jnp.sum(w ** 2)
    return replica().all_reduce("SUM", gradient(loss)(x, w) + compiled(loss)(x, w))


RIGHT = [penalty_by_its_share, penalty_that_is_reported_alone, penalty_taken_away, huber, accumulated, masked,
         clipped_for_each_row, normalized, contrasted, of_the_first, scaled_loss, mean_of_means,
         sum_divided_afterwards, sum_divided_before, divided_in_the_loss, means_of_features_summed,
         mean_times_the_rows, weighted_mean, penalized_mean]
