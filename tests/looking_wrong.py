"""Programs that are right, though they look like those in `silent_mistakes.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from silent_mistakes import ROWS, Aggregation, batches, each, four, replica, total, weights

import refdist


def divided_by_the_batch() -> None:
    """Sums are divided by the rows of all replicas, and summed."""
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub(0.1 * x.sum(axis=0) / 8))
    each(strategy, lambda x: replica().all_reduce("SUM", np.square(x).sum(axis=0) / 8))


def counted() -> None:
    """Every replica counts as one, or as its rows."""
    strategy = four()
    scalar = np.float32(1.0)
    ones = refdist.constant(1.0)

    def step(x: Any) -> Any:
        together = (replica().all_reduce("SUM", 1.0), replica().all_reduce("SUM", scalar),
                    replica().all_reduce("SUM", ones))
        return together, replica().all_reduce("SUM", [x.sum(axis=0), np.float32(len(x))]), replica().all_reduce(
            "SUM", x.shape[0])

    each(strategy, step, rows=5)


def divided_by_a_count() -> None:
    """A sum of means is divided by the number of replicas, which was counted."""
    def step(x: Any) -> Any:
        mean, count = replica().all_reduce("SUM", x.mean() * 1.0), replica().all_reduce("SUM", 1.0)
        return mean / count

    each(four(), lambda x: step(x.view(np.ndarray)))


def clipped() -> None:
    """Gradients are clipped by the norm over all replicas."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> None:
        gradient = x.sum(axis=0)
        norm = np.sqrt(replica().all_reduce("SUM", np.square(gradient).sum()))
        w.assign_sub(replica().all_reduce("SUM", gradient * np.minimum(np.float32(1.0), np.float32(1.0) / norm)))

    each(strategy, step)


def clipped_after() -> None:
    """Gradients are summed, and clipped by their norm, which is the same everywhere."""
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)

    def step(x: Any) -> None:
        gradient = replica().all_reduce("SUM", x.sum(axis=0))
        norm = np.sqrt(np.square(gradient).sum())
        w.assign_sub(gradient / np.maximum(norm, 1.0))

    each(strategy, step)


def metrics() -> None:
    """Replicas add to metrics, which are read outside; one keeps a running mean of its own."""
    strategy = four()
    right, seen = total(strategy), total(strategy)
    own = total(strategy, Aggregation.MEAN)

    def step(x: Any) -> Any:
        right.assign_add((x > 3).sum().astype(np.float32))
        seen.assign_add(np.float32(len(x)))
        own.assign(0.9 * own + 0.1 * x.sum())
        seen.assign(seen + 0.0)
        return replica().all_reduce("SUM", seen.read_value()), right.read_value() / np.maximum(seen.read_value(), 1)

    each(strategy, step, rows=5)
    _ = float(right) / float(seen)


def uneven_with_weights() -> None:
    """The end is filled up, and what was filled in weighs nothing."""
    strategy = four()
    dataset = refdist.data.Dataset.from_tensor_slices(ROWS[:5]).batch(8)
    options = refdist.InputOptions(uneven_end=refdist.data.UnevenEnd.PAD)

    def step(batch: Any) -> Any:
        x, valid = batch
        weight = valid.astype(np.float32)
        loss, rows = (np.square(x).sum(axis=1) * weight).sum(), weight.sum()
        loss, rows = replica().all_reduce("SUM", [loss, rows])
        return loss / rows

    for batch in strategy.experimental_distribute_dataset(dataset, options):
        strategy.run(step, (batch,))


def means_of_equal_parts() -> None:
    """The mean of the means over equally many rows is the mean over the batch."""
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: w.assign_sub(0.1 * x.mean(axis=0)))
    each(strategy, lambda x: replica().all_reduce("MEAN", x.sum(axis=0) / len(x)))
    [loss] = each(strategy, lambda x: np.square(x).mean())
    strategy.reduce("MEAN", loss, axis=None)


def weighed_means() -> None:
    """Means are multiplied by the rows they are of, or by their share of all rows, and summed."""
    strategy = four()

    def step(x: Any) -> Any:
        share = len(x) / float(replica().all_reduce("SUM", len(x)))
        return replica().all_reduce("SUM", [x.mean() * len(x), x.shape[0] * np.square(x).mean(axis=0),
                                            x.mean(axis=0) * share, x.mean() / (1 / share)])

    each(strategy, step)
    each(strategy, step, rows=7)
    for loss, rows in each(strategy, lambda x: (x.mean() * len(x), len(x)), rows=7):
        _ = strategy.reduce("SUM", loss, axis=None) / strategy.reduce("SUM", rows, axis=None)


def divided_by_the_own_rows_afterwards() -> None:
    """The mean of the replicas' sums over equally many rows is divided by these."""
    strategy = four()

    def step(x: Any) -> Any:
        rows = x.shape[0]
        return replica().all_reduce("MEAN", x.sum(axis=0)) / len(x), replica().all_reduce("MEAN", x.sum()) / rows

    each(strategy, step)


def shared_out_penalty() -> None:
    """Every replica adds its share of a penalty, by its rows."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        penalty = np.square(w).sum()
        return replica().all_reduce("SUM", [penalty * len(x), penalty * (len(x) / 8), penalty * np.float32(0.25)])

    each(strategy, step)
    each(strategy, step, rows=5)


def penalty_that_counts_once() -> None:
    """A penalty is added after the reduction, as a share of it, by one replica alone, or to parts that are averaged."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        loss, penalty = np.square(x @ w).sum() / 8, np.float32(0.01) * np.square(w).sum()
        first = replica().replica_id_in_sync_group == 0
        return [replica().all_reduce("SUM", loss) + penalty, replica().all_reduce("SUM", [
            loss + penalty * 0.25, loss + refdist.nn.scale_regularization_loss(penalty), loss + penalty * (len(x) / 8),
            loss + penalty if first else loss, loss + penalty * first, loss + 0.0 * penalty, loss + penalty / 4]),
                replica().all_reduce("MEAN", 4 * loss + penalty), replica().all_reduce("MEAN", loss * 4)]

    each(strategy, step)
    each(strategy, step, rows=5)


def penalty_by_the_rows() -> None:
    """Each replica's share of a penalty is that of its rows, of which it may have one."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        loss, penalty, rate, rows = np.square(x @ w).sum(), np.square(w).sum(), 0.01, len(x)
        share = rate * rows / 8
        share = share * 1.5
        counted = replica().all_reduce("SUM", float(len(x)))
        return replica().all_reduce("SUM", [
            (loss + len(x) * penalty) / 8, loss / 8 + penalty * (len(x) / 8),
            loss / 8 + rate * x.shape[0] / 8 * penalty, loss / 8 + share * penalty,
            (loss / 8 + penalty) * np.float32(len(x) / 8), loss / counted + penalty * (len(x) / counted),
            penalty * (len(x) / 8)])

    each(strategy, step)
    each(strategy, step, rows=4)


def penalty_taken_away() -> None:
    """What was added is subtracted again, before the parts are summed."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        penalty = np.square(w).sum()
        total, before = x.sum() / 8 + penalty, np.square(x).sum() / 8 + penalty
        return replica().all_reduce("SUM", [total - penalty, total - before, penalty - total])

    each(strategy, step)


def penalty_by_the_number_of_replicas() -> None:
    """A share of a penalty is computed from the number of replicas, which is counted or known."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        loss, penalty = np.square(x @ w).sum() / 8, np.square(w).sum()
        count = replica().all_reduce("SUM", 1.0)
        return replica().all_reduce("SUM", [loss + penalty / count, loss + penalty / strategy.num_replicas_in_sync])

    each(strategy, step)


def own_slices() -> None:
    """Each replica takes its slice of what all hold."""
    strategy = four()
    w = weights(strategy)

    def step(whole: Any) -> Any:
        i = replica().replica_id_in_sync_group
        return replica().all_reduce("SUM", [whole[i], whole[2 * i:2 * i + 2].sum(), w[i % 3], whole.sum() * i])

    strategy.run(step, (ROWS,))


def half_squares() -> None:
    """Half the sum of the squares of two rows is not their mean."""
    each(four(), lambda x: replica().all_reduce("SUM", np.square(x).sum() / 2))


def metric_of_the_mean() -> None:
    """A metric of means, which a read averages."""
    strategy = four()
    mean = total(strategy, Aggregation.MEAN)
    each(strategy, lambda x: mean.assign(replica().all_reduce("MEAN", x.mean())))


def divided_afterwards() -> None:
    """The sum of the replicas' means is divided by their number, outside."""
    strategy = four()
    [loss] = each(strategy, lambda x: x.mean())
    _ = float(strategy.reduce("SUM", loss, axis=None)) / strategy.num_replicas_in_sync


def means_of_tokens() -> None:
    """The items of all rows are added and counted."""
    def step(x: Any) -> Any:
        items = x.reshape(-1)
        total, count = replica().all_reduce("SUM", [np.square(items).sum(), np.float32(items.size)])
        return total / count, replica().all_reduce("SUM", items.mean() * len(x)), replica().all_reduce(
            "SUM", items.sum() / 21)

    each(four(), step, rows=7)


def statistics_of_all_rows() -> None:
    """A variance, and weights of classes, from what all replicas have."""
    def step(x: Any) -> Any:
        rows = replica().all_reduce("SUM", float(len(x)))
        mean = replica().all_reduce("SUM", x.sum(axis=0)) / rows
        share = replica().all_reduce("SUM", (x > 3).sum(axis=0)) / rows
        return replica().all_reduce("SUM", [np.square(x - mean).sum(axis=0), np.where(x > 3, 1 - share, share).sum()])

    each(four(), step, rows=7)


def one_column_each() -> None:
    """Each replica adds the spread of its own item of what all have, and each has another one."""
    strategy = four()
    w = weights(strategy)
    strategy.run(lambda: replica().all_reduce("SUM", np.std(w[replica().replica_id_in_sync_group % 2:])))


def added_up_from_nothing() -> None:
    """Sums that begin with zeros."""
    def step(x: Any) -> Any:
        total, count = np.zeros_like(x[0]), 0
        for row in x:
            total += row
            count += 1
        return replica().all_reduce("SUM", [total, np.zeros_like(total) + 1, np.float32(count), sum(x[:, 0] * 0 + 1)])

    each(four(), step, rows=7)


def shares_of_other_numbers() -> None:
    """Sums over rows are divided by the whole batch, or by how many layers there are, and not by the own rows."""
    batch, layers, rate = 8, ["first", "second"], 0.1
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        w.assign_sub(2 / batch * x.sum(axis=0))
        w.assign_sub(rate / len(layers) * x.sum(axis=0))
        n = len(x)
        w.assign_sub(n / batch * x.sum(axis=0) * (1 / 2))

    each(strategy, step)
    each(strategy, step, rows=7)


def ratios_of_all_rows() -> None:
    """Sums are collected in arrays, reduced, and only then divided by each other."""
    strategy = four()

    def step(x: Any) -> Any:
        sums = np.zeros(2, np.float32)
        sums += np.stack([x[:, 0].sum(), (x[:, 1] > 2).sum()]).astype(np.float32)
        loss = np.zeros(())
        loss += np.average(np.concatenate([x, x], axis=1)) * len(x)
        loss = replica().all_reduce("SUM", loss)
        return loss, replica().all_reduce("SUM", np.hstack([x, x]).sum(axis=0) / 8)

    each(strategy, step)
    each(strategy, step, rows=7)


def scaled(mean: Any) -> Any:
    """The replica's share of a mean of means."""
    return mean / replica().num_replicas_in_sync


def averaged_outside() -> None:
    """Each replica trains weights of its own, which the program averages between the steps."""
    strategy = four()
    own = [np.zeros(3, np.float32) for _ in range(4)]

    def step(x: Any) -> None:
        number = replica().replica_id_in_sync_group
        own[number] -= np.float32(0.1) * x.mean(axis=0)

    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))
        own[:] = [np.mean(own, axis=0)] * 4


def kept_by_each_replica() -> None:
    """Each replica keeps what it has not sent, as in compression, and reduces the rest."""
    rest = [np.zeros(3, np.float32) for _ in range(4)]

    def step(x: Any) -> Any:
        number = replica().replica_id_in_sync_group
        rest[number] += x.sum(axis=0)
        sent = np.round(rest[number])
        rest[number] -= sent
        return replica().all_reduce("SUM", sent)

    strategy = four()
    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))


def forgotten_in_each_step() -> None:
    """Each replica subtracts in an array that is gone after the step."""
    def step(x: Any) -> Any:
        centred = np.array(x)
        centred -= x.mean(axis=0)
        return centred.sum()

    strategy = four()
    for x in batches(strategy, batch=4):
        strategy.run(step, (x,))


def meter_of_the_replicas() -> None:
    """The number of replicas is passed to a meter's constructor, and the meter divides by it."""
    class Meter:
        def __init__(self, parts: int) -> None:
            self.parts = parts
            self.total = 0.0

        def update(self, value: float) -> None:
            self.total += value

        def result(self) -> float:
            return self.total / self.parts

    strategy = four()
    meter = Meter(strategy.num_replicas_in_sync)
    for x in batches(strategy):
        meter.update(float(strategy.reduce("SUM", strategy.run(lambda x: float(x.mean()), (x,)), axis=None)))
    meter.result()


def sent_by_the_first() -> None:
    """Replica 0 contributes what all have, and the others nothing."""
    strategy = four()
    w = weights(strategy)

    def step(x: Any) -> Any:
        first = replica().replica_id_in_sync_group == 0
        return replica().all_reduce("SUM", float(w.read_value()[0]) if first else 0.0)

    each(strategy, step)


def tokens_of_all() -> None:
    """A sum over items and their number go in one array."""
    def step(x: Any) -> Any:
        total, count = replica().all_reduce("SUM", np.array([x[x > 5].sum(), (x > 5).sum()]))
        return total / np.maximum(count, 1)

    each(four(), step)


def averaged_by_a_decorator() -> None:
    """What a step returns is reduced and divided by its decorator."""
    def averaged(function: Any) -> Any:
        def wrapper(x: Any) -> Any:
            return replica().all_reduce("SUM", function(x)) / strategy.num_replicas_in_sync
        return wrapper

    @averaged
    def step(x: Any) -> Any:
        return np.square(x).mean()

    strategy = four()
    each(strategy, step)


RIGHT = [divided_by_the_batch, counted, divided_by_a_count, clipped, clipped_after, metrics, uneven_with_weights,
         means_of_equal_parts, weighed_means, divided_by_the_own_rows_afterwards,
         means_of_tokens, statistics_of_all_rows, one_column_each, added_up_from_nothing,
         shared_out_penalty, shares_of_other_numbers, ratios_of_all_rows, own_slices, half_squares, metric_of_the_mean,
         averaged_outside, kept_by_each_replica, forgotten_in_each_step, sent_by_the_first,
         tokens_of_all, penalty_that_counts_once, penalty_by_the_rows, penalty_taken_away]
# They divide by the number of replicas what they have reduced.
DIVIDING_LATER = [divided_afterwards, meter_of_the_replicas, averaged_by_a_decorator,
                  penalty_by_the_number_of_replicas]
