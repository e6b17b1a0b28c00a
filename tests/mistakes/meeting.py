"""Replicas or workers that do not meet in the same calls: kinds 1 to 15, and 40 and 41."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from silent_mistakes import CONSTANT, each, four, replica, weights

import refdist


def rank() -> int:
    return int(replica().replica_id_in_sync_group)


def add(value: Any) -> Any:
    return replica().all_reduce("SUM", value)


def workers(program: Any) -> None:
    refdist.simulate_workers(program, 2, 1)


def swapped_with_other_shapes() -> None:
    def step() -> Any:
        loss, gradient = np.float32(1), np.ones(3, np.float32)
        if rank() % 2:
            return add(gradient), add(loss)
        return add(loss), add(gradient)

    four().run(step)


def swapped_on_two_lines() -> None:
    def step() -> Any:
        loss, accuracy = np.float32(rank()), np.float32(100)
        if rank() % 2:
            a = add(accuracy)
            return a, add(loss)
        b = add(loss)
        return b, add(accuracy)

    four().run(step)


def swapped_on_one_line() -> None:
    def step() -> Any:
        parts = {"loss": np.float32(1), "accuracy": np.float32(10)}
        names = ["loss", "accuracy"]
        return [replica().all_reduce("SUM", parts[name])  # here
                for name in (names if rank() % 2 else reversed(names))]

    four().run(step)


def collective_in_a_branch() -> None:
    def step() -> Any:
        if rank() == 0:
            add(np.float32(1))
        return replica().all_reduce("MEAN", np.float32(2))

    four().run(step)


def collective_of_replica_0() -> None:
    four().run(lambda: add(np.float32(1)) if rank() == 0 else None)


def collective_of_the_chief() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        if strategy.cluster_resolver.task_id == 0:
            strategy.run(lambda: add(np.float32(1)))

    workers(program)


def until_the_local_loss_is_small() -> None:
    def step() -> None:
        loss = np.float32(8 * (rank() + 1))
        while loss > 1:
            loss = loss - add(np.float32(1))

    four().run(step)


def other_shapes() -> None:
    each(four(), lambda x: add(np.square(x)), rows=7)


def other_dtypes() -> None:
    four().run(lambda: add(np.float64(1) if rank() else np.float32(1)))


def gather_of_scalars() -> None:
    four().run(lambda: replica().all_gather(np.float32(1), axis=0))


def gather_of_other_lengths() -> None:
    four().run(lambda: replica().all_gather(np.ones((2, 2 + rank()), np.float32), axis=0))


def sum_of_bools() -> None:
    each(four(), lambda x: add(x[:, 0] > 3))


def reduce_of_the_strategy_in_a_replica() -> None:
    strategy = four()
    each(strategy, lambda x: strategy.reduce("SUM", x.sum(), axis=None))


def context_outside() -> None:
    strategy = four()
    losses = strategy.run(lambda: np.float32(1))
    with strategy.scope():
        replica().all_reduce("SUM", losses)


def error_of_one_replica() -> None:
    four().run(lambda: add(np.float32({0: 1, 1: 2, 3: 4}[rank()])))


def error_of_one_replica_swallowed() -> None:
    def step() -> Any:
        with contextlib.suppress(KeyError):
            return add(np.float32({0: 1, 1: 2, 3: 4}[rank()]))
        return np.float32(0)

    four().run(step)


def worker_ends_early() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for i in range(3):
            if i == 2 and strategy.cluster_resolver.task_id == 1:
                return
            strategy.run(lambda: add(np.float32(1)))

    workers(program)


def only_the_chief_saves() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        checkpoint = refdist.train.Checkpoint(w=weights(strategy))
        if strategy.cluster_resolver.task_id == 0:
            checkpoint.save("weights")

    workers(program)


def captured_constant() -> None:
    four().run(lambda: replica().all_reduce("SUM", CONSTANT))  # here


def gathered_and_summed() -> None:
    # What all_gather gives is the same everywhere.
    def step(x: Any) -> Any:
        everyone = replica().all_gather(x.sum(axis=0)[None], axis=0)
        return replica().all_reduce("SUM", everyone.sum(axis=0))  # here

    each(four(), step)


def one_more_step_for_some() -> None:
    def step(x: Any) -> None:
        for row in x:
            add(row)

    each(four(), step, rows=7)


def early_stop_of_one_worker() -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for _ in range(4):
            loss = strategy.run(lambda: np.float32(strategy.cluster_resolver.task_id))
            if loss > 0:
                break
            strategy.run(lambda: add(np.float32(1)))

    workers(program)


MISTAKES = [
    (1, swapped_with_other_shapes, "raises RD06"),
    (2, swapped_on_two_lines, "raises RD06"),
    (3, swapped_on_one_line, "warns RD48"),
    (4, collective_in_a_branch, "raises RD06"),
    (5, collective_of_replica_0, "raises RD01"),
    (5, collective_of_the_chief, "raises RD01"),
    (6, until_the_local_loss_is_small, "raises RD01"),
    (7, other_shapes, "raises RD04"),
    (8, other_dtypes, "raises RD05"),
    (9, gather_of_scalars, "raises RD08"),
    (9, gather_of_other_lengths, "raises RD07"),
    (10, sum_of_bools, "raises RD23"),
    (11, captured_constant, "warns RD37"),
    (12, reduce_of_the_strategy_in_a_replica, "raises RD09"),
    (13, context_outside, "raises AttributeError"),
    (14, error_of_one_replica, "raises KeyError"),
    (15, error_of_one_replica_swallowed, "raises RD01"),
    (40, worker_ends_early, "raises RD01"),
    (41, only_the_chief_saves, "raises RD01"),
    (0, gathered_and_summed, "warns RD37"),
    (0, one_more_step_for_some, "raises RD01"),
    (0, early_stop_of_one_worker, "raises RD01"),
]
