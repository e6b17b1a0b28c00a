"""What right programs reduce of what JAX has computed, though it looks like a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
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


RIGHT = [mean_of_means, sum_divided_afterwards, sum_divided_before, divided_in_the_loss, means_of_features_summed,
         mean_times_the_rows, weighted_mean, penalized_mean]
