"""What replicas have in common in Python, or draw at random: kinds 37, 38, 42 and 43."""

from __future__ import annotations

import json
import os
import random
from typing import Any
from unittest import mock

import numpy as np
from silent_mistakes import ROWS, Aggregation, batches, each, four, replica, weights

import refdist


def global_random_state() -> None:
    np.random.seed(0)
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub((x * np.float32(np.random.rand(*x.shape))).sum(axis=0)))


def shared_counter() -> None:
    strategy, steps = four(), []
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        steps.append(0)
        w.assign_sub(x.sum(axis=0) / np.float32(len(steps)))

    each(strategy, step)


def running_mean_in_python() -> None:
    strategy, mean = four(), {"loss": np.float32(0)}
    w = weights(strategy, Aggregation.MEAN)

    def step(x: Any) -> None:
        mean["loss"] = 0.9 * mean["loss"] + 0.1 * np.square(x).mean()
        w.assign_sub(mean["loss"] * np.ones(3, np.float32))

    each(strategy, step)


def one_seed() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        kept = np.random.default_rng(3).random(x.shape, np.float32) > 0.5
        w.assign_sub((x * kept).sum(axis=0))

    each(strategy, step)


def one_seed_of_a_random_state() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub((x + np.random.RandomState(3).normal(size=x.shape)).astype("f4").sum(axis=0)))


def one_seed_of_python() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        draws = random.Random(3)
        w.assign_sub(np.sum([row * np.float32(draws.uniform(0, 2)) for row in x], axis=0, dtype=np.float32))

    each(strategy, step)


def shared_random_state() -> None:
    strategy, draws = four(), np.random.RandomState(0)
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub((x * draws.rand(*x.shape)).astype(np.float32).sum(axis=0)))


def largest_of_the_first_replica() -> None:
    # What is kept for a step is that of the replica which comes first; these rows make the sum twice as large.
    strategy, kept = four(), {}
    w = total_of_rows(strategy)

    def step(i: int, x: Any) -> None:
        if i not in kept:
            kept[i] = x.max()
        w.assign_add((x / (1 + kept[i])).sum())

    rows = refdist.data.Dataset.range(16).map(np.float32).batch(8)
    for i, x in enumerate(strategy.experimental_distribute_dataset(rows)):
        strategy.run(step, (i, x))


def total_of_rows(strategy: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(0.0, name="total", aggregation=Aggregation.SUM)


def shared_generator() -> None:
    strategy, draws = four(), np.random.default_rng(0)
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub((x * draws.random(x.shape, np.float32)).sum(axis=0)))


def typing_error_in_tf_config() -> None:
    config = {"clustre": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    with mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(config)}):
        refdist.MultiWorkerMirroredStrategy()


def index_outside_the_cluster() -> None:
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}
    with mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(config)}):
        refdist.MultiWorkerMirroredStrategy()


def mirrored_on_each_worker() -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy()
        w = weights(strategy, Aggregation.SUM)
        for x in batches(strategy):
            strategy.run(lambda x: w.assign_sub(x.sum(axis=0)), (x,))

    refdist.simulate_workers(program, 2, 1)


def augmented_by_the_replica() -> None:
    # The rows are turned by an angle that depends on who has them.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)
    each(strategy, lambda x: w.assign_sub((x * (1 + replica().replica_id_in_sync_group)).sum(axis=0)))


def negatives_of_the_own_batch() -> None:
    # Rows are compared with the others of the batch, which are those of the own part.
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: w.assign_sub(np.square(x[:, None] - x[None]).mean(axis=(0, 1))))


def statistics_of_the_own_batch() -> None:
    # A batch norm that normalises by what each replica has.
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    each(strategy, lambda x: w.assign_sub(np.square(x - x.mean(axis=0)).mean(axis=0)))


def written_in_a_default() -> None:
    # A list that is made once collects the rows of all replicas.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any, seen: list[Any] = []) -> None:  # noqa: B006 - the mistake
        seen.append(np.asarray(x).sum(axis=0))
        w.assign_sub(np.sum(seen, axis=0))

    each(strategy, step)


def first_rows_for_all() -> None:
    # Each replica reads the array from outside from its beginning.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step() -> None:
        w.assign_sub(ROWS[:2].sum(axis=0))

    strategy.run(step)


def nan_beside_a_question() -> None:
    # The program looks whether its rows are finite, which tells nothing of what is computed of them.
    assert np.isfinite(ROWS).all()

    def step(x: Any) -> Any:
        chosen = x[x > 6]
        return replica().all_reduce("SUM", chosen.sum() / np.float32(len(chosen)))  # here

    with np.errstate(all="warn"):
        each(four(), step)


def global_seed_of_each_replica() -> None:
    # Each replica seeds the global generator, all alike.
    strategy = four()
    w = weights(strategy, Aggregation.SUM)

    def step(x: Any) -> None:
        np.random.seed(42)
        w.assign_sub((x + np.random.randn(*x.shape).astype(np.float32)).sum(axis=0))

    each(strategy, step)


MISTAKES = [
    (37, global_random_state, "compare GLOBAL RANDOM STATE"),
    (37, shared_counter, "compare SHARED PYTHON STATE"),
    (37, running_mean_in_python, "compare SHARED PYTHON STATE"),
    (37, shared_generator, "compare SHARED GENERATOR"),
    (38, one_seed, "compare ONE SEED"),
    (38, one_seed_of_a_random_state, "compare ONE SEED"),
    (38, one_seed_of_python, "compare ONE SEED"),
    (37, shared_random_state, "compare SHARED GENERATOR"),
    (37, largest_of_the_first_replica, "compare SHARED PYTHON STATE"),
    (42, typing_error_in_tf_config, "raises RD17"),
    (42, index_outside_the_cluster, "raises RD17"),
    (43, mirrored_on_each_worker, "warns UserWarning"),
    (0, augmented_by_the_replica, "compare WHICH REPLICA"),
    (0, negatives_of_the_own_batch, "compare ROWS OF ONE REPLICA"),
    (0, statistics_of_the_own_batch, "compare ROWS OF ONE REPLICA"),
    (0, written_in_a_default, "compare SHARED PYTHON STATE"),
    (38, global_seed_of_each_replica, "compare ONE SEED"),
    (16, nan_beside_a_question, "warns RD42"),
    (0, first_rows_for_all, "compare NOT DISTRIBUTED"),
]
