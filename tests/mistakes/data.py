"""Rows that are seen twice, never, or by everybody: kinds 29 to 36, 39, 46 and 47."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from greenlet import greenlet
from silent_mistakes import ROWS, Aggregation, batches, each, four, replica, weights

import refdist
from mistakes.endless import train
from refdist.data import AutoShardPolicy, Dataset, Options


def per_replica_as_an_array() -> None:
    [losses] = each(four(), lambda x: x.mean())
    np.mean(losses)


def per_replica_in_an_if() -> None:
    [losses] = each(four(), lambda x: x.mean())
    if losses > 3:
        pass


def iterator_in_every_step() -> None:
    strategy = four()
    w, distributed = weights(strategy, Aggregation.SUM), strategy.experimental_distribute_dataset(
        Dataset.from_tensor_slices(ROWS).batch(8))
    for _ in range(4):
        x = next(iter(distributed))  # here
        strategy.run(lambda x: w.assign_sub(x.sum(axis=0) / np.float32(8)), (x,))


def batch_of_a_replica_given_as_the_global_one() -> None:
    strategy = four()
    for x in strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(ROWS).batch(2)):  # here
        strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))


def everything_dropped() -> None:
    strategy = four()
    for x in strategy.experimental_distribute_dataset(
            Dataset.from_tensor_slices(ROWS).batch(64, drop_remainder=True)):
        strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))


def generator_that_is_used_up() -> None:
    strategy, rows = four(), iter(ROWS)
    distributed = strategy.experimental_distribute_dataset(Dataset.from_generator(
        lambda: rows, output_signature=refdist.TensorSpec((3,), np.float32)).batch(4))
    for _ in range(2):
        for x in distributed:  # here
            strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))


def without_an_end() -> None:
    # No caller of the loop catches anything.
    greenlet(functools.partial(train, four(), Dataset.from_tensor_slices(ROWS).batch(4).repeat())).switch()


def generator_raises() -> None:
    def rows() -> Iterator[Any]:
        for i in range(13):
            if i == 5:
                raise LookupError("row 5")
            yield ROWS[i]

    strategy = four()
    dataset = Dataset.from_generator(rows, output_signature=refdist.TensorSpec((3,), np.float32)).batch(4)
    for x in strategy.experimental_distribute_dataset(dataset):
        strategy.run(lambda x: x.sum(), (x,))


def changed_in_place() -> None:
    def step(x: Any) -> Any:
        x -= x.mean()
        return replica().all_reduce("SUM", x.sum(axis=0))

    each(four(), step)


def same_rows_on_all_workers() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        options = Options()
        options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
        for x in strategy.experimental_distribute_dataset(
                Dataset.from_tensor_slices(ROWS).batch(4).with_options(options)):
            strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))

    refdist.simulate_workers(program, 2, 1)


def function_that_does_not_shard() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for x in strategy.distribute_datasets_from_function(  # here
                lambda context: Dataset.from_tensor_slices(ROWS).batch(4)):
            strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))

    refdist.simulate_workers(program, 2, 1)


def sharded_twice() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        dataset = Dataset.from_tensor_slices(ROWS).shard(2, strategy.cluster_resolver.task_id).batch(4)
        for x in strategy.experimental_distribute_dataset(dataset):  # here
            strategy.run(lambda x: replica().all_reduce("SUM", x.sum(axis=0)), (x,))

    refdist.simulate_workers(program, 2, 1)


def array_as_the_dataset() -> None:
    strategy = four()
    for x in strategy.experimental_distribute_dataset(ROWS):
        strategy.run(lambda x: replica().all_reduce("SUM", x.sum()), (x,))


def shuffled_apart() -> None:
    # Rows and labels are shuffled with different seeds, on one replica as on four, so that no comparison finds it.
    strategy = four()
    rows = Dataset.from_tensor_slices(ROWS).shuffle(8, seed=1)
    labels = Dataset.from_tensor_slices(ROWS[:, 0]).shuffle(8, seed=2)
    w = weights(strategy, Aggregation.SUM)
    for batch in strategy.experimental_distribute_dataset(Dataset.zip((rows, labels)).batch(8)):  # here
        strategy.run(lambda batch: w.assign_sub(0.01 * (batch[0] * batch[1][:, None]).sum(axis=0)), (batch,))


def remainder_is_lost() -> None:
    # 11 rows of a batch of 16 in an epoch: an uneven end that is dropped where four replicas share it.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    options = refdist.InputOptions(uneven_end=refdist.data.UnevenEnd.DROP)
    rows = np.arange(33, dtype=np.float32).reshape(11, 3)
    for x in strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(rows).batch(8), options):
        strategy.run(lambda x: w.assign_sub(x.sum(axis=0)), (x,))


def batch_counted_twice() -> None:
    # The dataset is batched for each replica, and the loss divided by the rows of all.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    for x in batches(strategy):
        strategy.run(lambda x: w.assign_sub(0.1 * x.sum(axis=0) / len(x)), (x,))  # here


MISTAKES = [
    (29, per_replica_as_an_array, "raises RD19"),
    (29, per_replica_in_an_if, "raises RD19"),
    (31, iterator_in_every_step, "warns RD49"),
    (32, batch_of_a_replica_given_as_the_global_one, "warns RD46"),
    (33, everything_dropped, "warns RD45"),
    (33, generator_that_is_used_up, "warns RD45"),
    (34, without_an_end, "warns RD47"),
    (35, generator_raises, "raises LookupError"),
    (36, changed_in_place, "raises ValueError"),
    (39, same_rows_on_all_workers, "warns RD50"),
    (39, function_that_does_not_shard, "warns RD50"),
    (46, sharded_twice, "warns RD50"),
    (47, array_as_the_dataset, "raises RD25"),
    (0, shuffled_apart, "warns RD53"),
    (0, remainder_is_lost, "compare ROWS NEVER SEEN"),
    (0, batch_counted_twice, "warns RD38"),
]
