"""Numbers that are wrong, and by how much: kinds 16 to 18, and 25 to 30."""

from __future__ import annotations

from typing import Any

import numpy as np
import silent_mistakes as silent
from silent_mistakes import ROWS, Aggregation, batches, each, four, replica, total, weights

import refdist


def of_replica_0(results: list[Any]) -> float:
    """What the first replica has returned in the first step."""
    return float(four().experimental_local_results(results[0])[0])


def nan_of_one_replica() -> None:
    def step(x: Any) -> Any:
        chosen = x[x > 6]
        return replica().all_reduce("SUM", chosen.sum() / np.float32(len(chosen)))  # here

    with np.errstate(all="warn"):
        each(four(), step)


def log_of_zero() -> None:
    probabilities = np.float32([0.5, 0.0, 0.25, 0.25])

    def step() -> Any:
        loss = -np.log(probabilities[replica().replica_id_in_sync_group])
        return replica().all_reduce("MEAN", loss)  # here

    four().run(step)


def bytes_summed() -> None:
    strategy = four()
    rows = strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(
        np.full((8, 3), 100, np.uint8)).batch(8))
    for batch in rows:
        strategy.run(lambda x: replica().all_reduce("SUM", x[0]), (batch,))  # here


def count_that_overflows() -> None:
    def step() -> Any:
        return replica().all_reduce("SUM", np.int32(2 ** 30))  # here

    four().run(step)


def float16_mean() -> None:
    four().run(lambda: replica().all_reduce("MEAN", np.full(2, 30000, np.float16)))  # here


def norm_without_rows() -> None:
    # A batch norm: moments of each replica, averaged; two have no rows.
    strategy = four()
    moving = total(strategy, Aggregation.MEAN)

    def step(x: Any) -> None:
        moving.assign(x.mean())

    with np.errstate(all="ignore"):
        each(strategy, step, rows=2)
    float(moving)  # here


def compute_average_loss_without_the_global_batch() -> None:
    def step(x: Any) -> Any:
        return refdist.nn.compute_average_loss(np.square(x).mean(axis=1), global_batch_size=len(x))

    strategy = four()
    losses = each(strategy, step)
    for loss in losses:
        strategy.reduce("SUM", loss, axis=None)  # here


def regularization_not_scaled() -> float:
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        loss = np.square(x @ w).sum() / np.float32(8)
        return replica().all_reduce("SUM", loss + np.square(w.read_value()).sum())  # here

    return of_replica_0(each(strategy, step))


def penalty_in_the_update() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        w.assign_sub(0.1 * (x.sum(axis=0) / np.float32(8) + 0.01 * w.read_value()))  # here

    each(strategy, step)


def rate_times_replicas_of_a_sum() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.ONLY_FIRST_REPLICA)
    rate = 0.1 * strategy.num_replicas_in_sync

    def step(x: Any) -> None:
        gradient = replica().all_reduce("SUM", x.sum(axis=0) / np.float32(8))
        w.assign_sub(rate * gradient)

    each(strategy, step)


def rate_times_replicas_in_a_sum() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    base = 0.1
    rate = base * strategy.num_replicas_in_sync
    each(strategy, lambda x: w.assign_sub(rate * (x.sum(axis=0) / np.float32(8))))


def rate_changed_by_each_replica() -> None:
    # A schedule of the learning rate that is stepped in the replicas: four times in each step.
    strategy, rate = four(), {"rate": 0.1}
    w = weights(strategy, Aggregation.ONLY_FIRST_REPLICA)

    def step(x: Any) -> None:
        w.assign_sub(rate["rate"] * replica().all_reduce("MEAN", x.mean(axis=0)))
        rate["rate"] *= 0.9

    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))


def rows_of_a_table_averaged() -> None:
    # Each replica changes its own rows of a table, divided by the rows of all, and MEAN divides once more.
    strategy = four()
    with strategy.scope():
        table = refdist.Variable(np.ones((5, 3), np.float32), name="table", aggregation=Aggregation.MEAN)

    def step(x: Any) -> None:
        table.scatter_sub(refdist.IndexedSlices(np.asarray(x) / 8, np.asarray(x[:, 0], np.int64) % 5))

    each(strategy, step)


def mean_of_a_ratio() -> float:
    # Precision: the ratio of sums is not the mean of ratios.
    def step(x: Any) -> Any:
        chosen = x[:, 0] > 6
        right = chosen & (x[:, 1] > 12)
        return replica().all_reduce("MEAN", right.sum() / np.maximum(chosen.sum(), 1).astype(np.float32))

    return of_replica_0(each(four(), step))


def root_of_a_part() -> float:
    # The norm of a gradient is not the sum of norms.
    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", np.sqrt(np.square(x).sum()))

    return of_replica_0(each(four(), step))


def clipped_before_the_sum() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        gradient = x.sum(axis=0) / np.float32(8)
        w.assign_sub(gradient * np.minimum(np.float32(1), 1 / np.sqrt(np.square(gradient).sum())))

    each(strategy, step)


def not_distributed_without_a_dataset() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    for start in range(0, 8, 4):
        strategy.run(lambda x: w.assign_sub(0.1 * np.square(x).sum(axis=0)), (ROWS[start:start + 4],))


def accumulated_and_reduced_each_time() -> None:
    # The total that was reduced is added to, and reduced again.
    strategy = four()

    def step(x: Any) -> Any:
        sum_of_all = replica().all_reduce("SUM", x.sum(axis=0))
        return replica().all_reduce("SUM", sum_of_all + 0.0)  # here

    for batch in batches(strategy):
        strategy.run(step, (batch,))


def metric_of_means() -> None:
    # Each replica adds the mean of its rows to its part of a metric, and a read adds the parts.
    strategy = four()
    loss = total(strategy)
    each(strategy, lambda x: loss.assign_add(x.mean()))
    print("loss", float(loss))


def metric_of_uneven_means() -> None:
    # 0.6 and 0.6666667 are printed: each is exact, and no other number with more digits.
    strategy = four()
    share = total(strategy, Aggregation.MEAN)
    rows = refdist.data.Dataset.range(10).map(np.float32).batch(10)
    for x in strategy.experimental_distribute_dataset(rows):
        strategy.run(lambda x: share.assign(np.mean(np.asarray(x) > 3)), (x,))
    print(share.read_value())


def spread_of_the_weights() -> None:
    strategy = four()
    w = weights(strategy)
    strategy.run(lambda: replica().all_reduce("SUM", np.std(w.read_value()) + w.read_value().var()))  # here


def share_of_a_sum() -> None:
    # The derivative of a mean of squares, as many write it.
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        n = x.shape[0]
        error = x @ w.read_value() - x[:, 0]
        gradient = 2.0 / n * np.matmul(x.T, error)
        w.assign_sub(0.1 * replica().all_reduce("SUM", gradient))  # here

    each(strategy, step)


def rate_over_a_length() -> None:
    strategy, rate = four(), 0.1
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(rate / len(x) * x.sum(axis=0)))  # here


def backwards_by_hand() -> None:
    # The division is in what the second layer gets back, many operations before the sum.
    strategy = four()
    first, second = weights(strategy, Aggregation.SUM), weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        hidden = np.maximum(0, x * first.read_value())
        predicted = 1 / (1 + np.exp(-(hidden @ second.read_value())))
        back = (predicted - (x[:, 0] > 6)) / x.shape[0]
        second.assign_sub(0.1 * (hidden.T @ back))  # here

    each(strategy, step)


def weighed_by_own_weights() -> None:
    def step(x: Any) -> Any:
        weight = (x[:, 1] > 2).astype(np.float32)
        return replica().all_reduce("SUM", (x[:, 0] * weight).sum() / weight.sum())  # here

    each(four(), step)


def accumulated_in_an_array() -> None:
    def step(x: Any) -> Any:
        loss = np.zeros(())
        loss += np.square(x).mean()
        loss += 0.1 * np.abs(x).mean()
        return replica().all_reduce("SUM", loss)  # here

    each(four(), step)


def sum_over_a_size() -> None:
    each(four(), lambda x: replica().all_reduce("SUM", np.square(x).sum() / x.size))  # here


def mean_of_items() -> None:
    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", np.square(x.reshape(-1)).mean())  # here

    each(four(), step)


def uneven_means_summed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(0.1 * x.view(np.ndarray).mean(axis=0)), rows=7)


def uneven_means_summed_and_divided() -> None:
    # Right in the first step, where all replicas have as many rows; in the second one has fewer.
    strategy = four()
    w = weights(strategy, Aggregation.ONLY_FIRST_REPLICA)
    rows = refdist.data.Dataset.from_tensor_slices(np.concatenate([ROWS, ROWS[:7]])).batch(8)

    def step(x: Any) -> None:
        total = replica().all_reduce("SUM", x.mean(axis=0))
        w.assign_sub(0.1 * total / strategy.num_replicas_in_sync)

    for x in strategy.experimental_distribute_dataset(rows):
        strategy.run(step, (x,))


def mean_of_the_largest() -> float:
    strategy = four()
    losses = [strategy.run(lambda x: x.max(), (x,)) for x in batches(strategy, batch=4)]
    return max(float(strategy.reduce("MEAN", loss, axis=None)) for loss in losses)


def loss_that_became_a_number() -> None:
    strategy = four()
    losses = [float(strategy.reduce("SUM", strategy.run(lambda x: float(np.square(x).mean()), (x,)), axis=None))  # here
              for x in batches(strategy)]
    print(losses)


def metrics_in_one_array() -> None:
    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", np.array([np.square(x).mean(), (x > 2).mean()]))  # here

    each(four(), step)


def reduced_by_a_decorator() -> None:
    def reduced(function: Any) -> Any:
        def wrapper(x: Any) -> Any:
            return replica().all_reduce("SUM", function(x))  # here
        return wrapper

    @reduced
    def step(x: Any) -> Any:
        return np.square(x).mean()

    each(four(), step)


def means_over_what_is_not_masked() -> None:
    strategy = four()
    for x in batches(strategy):
        losses = strategy.run(lambda x: x[x > 5].sum() / np.float32(max((x > 5).sum(), 1)), (x,))
        print(float(strategy.reduce("MEAN", losses, axis=None)))


MISTAKES = [
    (27, loss_that_became_a_number, "warns RD38"),
    (0, metrics_in_one_array, "warns RD38"),
    (0, reduced_by_a_decorator, "warns RD38"),
    (0, means_over_what_is_not_masked, "warns RD40"),
    (16, nan_of_one_replica, "warns RD42"),
    (16, log_of_zero, "warns RD42"),
    (17, bytes_summed, "warns RD43"),
    (17, count_that_overflows, "warns RD43"),
    (18, float16_mean, "warns RuntimeWarning"),
    (25, silent.normalised_by_a_replica, "warns RD42"),
    (25, norm_without_rows, "warns RD42"),
    (26, silent.reduced_twice, "warns RD37"),
    (26, silent.metric_of_what_is_reduced, "warns RD37"),
    (27, silent.sum_of_means, "warns RD38"),
    (27, silent.sum_of_losses, "warns RD38"),
    (28, silent.mean_of_means, "warns RD40"),
    (30, silent.not_distributed, "warns RD37"),
    (30, not_distributed_without_a_dataset, "warns RD37"),
    (0, silent.scaled_twice, "warns RD39"),
    (0, silent.mean_of_sums, "warns RD39"),
    (0, silent.regularised, "warns RD37"),
    (0, compute_average_loss_without_the_global_batch, "warns RD38"),
    (0, regularization_not_scaled, "warns RD37"),
    (0, penalty_in_the_update, "warns RD37"),
    (0, rate_times_replicas_of_a_sum, "compare MULTIPLIED AFTER REDUCING"),
    (0, rate_times_replicas_in_a_sum, "compare MULTIPLIED BEFORE REDUCING"),
    (0, rate_changed_by_each_replica, "compare MULTIPLIED AFTER REDUCING"),
    (0, rows_of_a_table_averaged, "compare DIVIDED TWICE"),
    (0, mean_of_a_ratio, "compare ROWS OF ONE REPLICA"),
    (0, root_of_a_part, "compare ROWS OF ONE REPLICA"),
    (0, clipped_before_the_sum, "compare ROWS OF ONE REPLICA"),
    (27, metric_of_means, "compare MEANS SUMMED"),
    (28, metric_of_uneven_means, "compare MEAN OF MEANS"),
    (0, spread_of_the_weights, "warns RD37"),
    (27, mean_of_items, "warns RD38"),
    (27, share_of_a_sum, "warns RD38"),
    (27, rate_over_a_length, "warns RD38"),
    (27, weighed_by_own_weights, "warns RD38"),
    (27, accumulated_in_an_array, "warns RD38"),
    (27, sum_over_a_size, "warns RD38"),
    (27, backwards_by_hand, "warns RD38"),
    (27, uneven_means_summed, "compare MEANS SUMMED"),
    (28, uneven_means_summed_and_divided, "compare MEAN OF MEANS"),
    (0, mean_of_the_largest, "compare ROWS OF ONE REPLICA"),
    (0, accumulated_and_reduced_each_time, "warns RD37"),
]
