"""Programs that raise nothing and compute the wrong number, and what the check of types says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refdist

Aggregation = refdist.VariableAggregation
ROWS = np.arange(1.0, 25.0, dtype=np.float32).reshape(8, 3)
CONSTANT = np.float32([2.0, 3.0])


def replica() -> Any:
    """The context of this replica."""
    return refdist.get_replica_context()


def four() -> Any:
    """A strategy with four replicas."""
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])


def weights(strategy: Any, aggregation: Aggregation = Aggregation.NONE) -> Any:
    """Three weights that are 1."""
    with strategy.scope():
        return refdist.Variable(np.ones(3, np.float32), name="w", aggregation=aggregation)


def total(strategy: Any, aggregation: Aggregation = Aggregation.SUM) -> Any:
    """A metric, of which every replica has a part."""
    with strategy.scope():
        return refdist.Variable(0.0, name="total", aggregation=aggregation,
                                synchronization=refdist.VariableSynchronization.ON_READ)


def batches(strategy: Any, rows: int = 8, batch: int = 8) -> Any:
    """Batches of at most eight rows, or of so many."""
    return strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(ROWS[:rows]).batch(batch))


def each(strategy: Any, step: Callable[[Any], Any], rows: int = 8) -> Any:
    """What the replicas return of each batch."""
    return [strategy.run(step, (batch,)) for batch in batches(strategy, rows)]


# --- Wrong -----------------------------------------------------------------------------------------------------


def captured_constant() -> None:
    """Kind 11: an array from outside the replicas, summed."""
    four().run(lambda: replica().all_reduce("SUM", CONSTANT))


def part_read_as_the_total() -> None:
    """Kind 23: rows are divided by what the replica alone has counted."""
    strategy = four()
    seen, w = total(strategy), weights(strategy, Aggregation.MEAN)

    def step(x: Any) -> None:
        seen.assign_add(np.float32(len(x)))
        w.assign_sub(x.sum(axis=0) / seen)

    each(strategy, step)


def part_copied_to_another_variable() -> None:
    """Kind 23: a metric is copied in a replica."""
    strategy = four()
    seen = total(strategy)
    with strategy.scope():
        copy = refdist.Variable(0.0, name="copy", aggregation=Aggregation.ONLY_FIRST_REPLICA)

    def step(x: Any) -> None:
        seen.assign_add(x.sum())
        copy.assign(seen.read_value())

    each(strategy, step)


def mean_of_parts() -> None:
    """Kind 23: the parts of a metric are averaged."""
    strategy = four()
    seen = total(strategy)

    def step(x: Any) -> Any:
        seen.assign_add(x.sum())
        return replica().all_reduce("MEAN", seen.read_value())

    each(strategy, step)


def normalised_by_a_replica() -> None:
    """Kind 25: a mean over the batch, of which two replicas have nothing."""
    each(four(), lambda x: replica().all_reduce("MEAN", (x - 1).sum(axis=0) / x.shape[0]), rows=2)


def reduced_twice() -> None:
    """Kind 26: SUM as the aggregation, after an all_reduce."""
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        gradient = replica().all_reduce("SUM", x.sum(axis=0))
        w.assign_sub(0.1 * gradient)

    each(strategy, step)


def metric_of_what_is_reduced() -> None:
    """Kind 26: every replica adds the total to its part of a metric."""
    strategy = four()
    seen = total(strategy)
    each(strategy, lambda x: seen.assign_add(replica().all_reduce("SUM", x.sum())))


def sum_of_means() -> None:
    """Kind 27: the mean over the replica's rows, and then SUM."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        gradient = 0.1 * ((x @ w)[:, None] * x).mean(axis=0)
        w.assign_sub(replica().all_reduce("SUM", gradient))

    each(strategy, step)


def sum_of_losses() -> None:
    """Kind 27: the loss is a mean on each replica, and reported as their sum."""
    strategy = four()
    [loss] = each(strategy, lambda x: np.mean(np.square(x - 1)))
    strategy.reduce("SUM", loss, axis=None)


def sum_of_means_by_hand() -> None:
    """Kind 27: the mean is written as a sum over a length."""
    each(four(), lambda x: replica().all_reduce("SUM", np.square(x).sum(axis=0) / len(x)))


def mean_of_means() -> None:
    """Kind 28: the last batch has rows for two and a half replicas."""
    strategy = four()
    [loss] = each(strategy, lambda x: np.square(x).mean(), rows=5)
    strategy.reduce("MEAN", loss, axis=None)


def not_distributed() -> None:
    """Kind 30: every replica gets the whole batch."""
    strategy = four()

    def step(x: Any) -> Any:
        return replica().all_reduce("SUM", np.square(x).sum(axis=0))

    for batch in refdist.data.Dataset.from_tensor_slices(ROWS).batch(8):
        strategy.run(step, (batch,))


def scaled_twice() -> None:
    """Loss 1/N on N: divided by the rows of the batch, and then the mean over the replicas."""
    each(four(), lambda x: replica().all_reduce("MEAN", np.square(x).sum(axis=0) / 8))


def mean_of_sums() -> None:
    """The mean over the replicas of sums over rows."""
    each(four(), lambda x: replica().all_reduce("MEAN", np.square(x).sum(axis=0)))


def regularised() -> None:
    """The penalty of weights, which are the same everywhere, is summed."""
    strategy = four()
    w = weights(strategy)
    strategy.run(lambda: replica().all_reduce("SUM", np.square(w).sum()))


def penalty_on_each_replica() -> None:
    """Each replica adds the whole penalty of the weights to its part of the loss."""
    strategy = four()
    w = weights(strategy)
    [loss] = each(strategy, lambda x: np.square(x @ w).sum() / 8 + np.float32(0.01) * np.square(w).sum())
    strategy.reduce("SUM", loss, axis=None)


def decay_on_each_replica() -> None:
    """The decay of the weights is in the gradient of each replica before they are summed."""
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(0.1 * (x.sum(axis=0) / 8 + 0.01 * w)))


def first_part_only() -> None:
    """Replica 0's sum is stored as the total."""
    strategy = four()
    with strategy.scope():
        v = refdist.Variable(0.0, name="v", aggregation=Aggregation.ONLY_FIRST_REPLICA)
    each(strategy, lambda x: v.assign(x.sum()))


class Mistake(NamedTuple):
    """A program, the code of its finding, and what the finding says."""

    program: Callable[[], None]
    code: str
    text: str
    line: str


def own_weights() -> None:
    """Each replica trains weights of its own, and no gradient is reduced."""
    own = [np.zeros(3, np.float32) for _ in range(4)]

    def step(x: Any) -> Any:
        number = replica().replica_id_in_sync_group
        own[number] -= 0.1 * (x.T @ (x @ own[number] - 1)) / np.float32(len(x))
        return x.mean()

    strategy = four()
    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))


MISTAKES = [
    Mistake(captured_constant, "RD37", "counted 4 times", "CONSTANT)"),

    Mistake(part_copied_to_another_variable, "RD41", "one of 4 parts", "copy.assign"),
    Mistake(mean_of_parts, "RD39", "1/4 of the sum", '"MEAN", seen'),
    Mistake(normalised_by_a_replica, "RD40", "(1, 1, 0, 0)", "x.shape[0]), rows=2"),
    Mistake(reduced_twice, "RD37", "4 times as much", "0.1 * gradient"),
    Mistake(metric_of_what_is_reduced, "RD37", "4 times as much", "seen.assign_add(replica()"),
    Mistake(sum_of_means, "RD38", "4 times the mean", '"SUM", gradient'),
    Mistake(sum_of_losses, "RD38", "4 times the mean", 'reduce("SUM", loss'),
    Mistake(sum_of_means_by_hand, "RD38", "4 times the mean", "len(x))"),
    Mistake(mean_of_means, "RD40", "(2, 2, 1, 0)", 'reduce("MEAN", loss'),
    Mistake(not_distributed, "RD37", "4 times as much", 'np.square(x).sum(axis=0))'),
    Mistake(scaled_twice, "RD39", "1/4 of the sum", "/ 8)"),
    Mistake(mean_of_sums, "RD39", "1/4 of the sum", "np.square(x).sum(axis=0)))"),
    Mistake(regularised, "RD37", "4 times as much", "np.square(w)"),
    Mistake(penalty_on_each_replica, "RD37", "it counts 4 times", 'reduce("SUM", loss'),
    Mistake(decay_on_each_replica, "RD37", "it counts 4 times", "0.01 * w"),
    Mistake(own_weights, "RD52", "each of 4 replicas changes weights of its own, by a sum", "own[number] -="),
    Mistake(first_part_only, "RD41", "only replica 0's part", "v.assign(x.sum())"),
]
