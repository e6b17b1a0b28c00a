"""Variables that are made, read and written where they should not be: kinds 19 to 24, 44 and 45."""

from __future__ import annotations

from typing import Any

import numpy as np
import silent_mistakes as silent
from silent_mistakes import Aggregation, each, four, replica, total, weights

import refdist


def made_outside_the_scope() -> None:
    strategy = four()
    w = refdist.Variable(np.ones(3, np.float32), name="w")
    each(strategy, lambda x: w.assign_sub(replica().all_reduce("SUM", x.sum(axis=0))))


def made_in_every_step() -> None:
    strategy = four()

    def step() -> Any:
        w = refdist.Variable(1.0, name="w", aggregation=Aggregation.MEAN)  # here
        return w.assign_sub(0.1)

    for _ in range(4):
        strategy.run(step)


def velocity_made_in_every_step() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)

    def momentum(gradient: Any) -> Any:
        velocity = refdist.Variable(np.zeros(3, np.float32), name="velocity")  # here
        return velocity.assign(0.9 * velocity + gradient)

    for _ in range(4):
        each(strategy, lambda x: w.assign_sub(momentum(replica().all_reduce("MEAN", x.mean(axis=0)))))


def forgot_all_reduce() -> None:
    strategy = four()
    w = weights(strategy)
    each(strategy, lambda x: w.assign_sub(x.sum(axis=0)))


def assigned_per_replica_outside() -> None:
    strategy = four()
    w = weights(strategy)
    for gradient in each(strategy, lambda x: x.sum(axis=0)):
        w.assign(gradient)


def assigned_per_replica_outside_with_an_aggregation() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    for gradient in each(strategy, lambda x: x.sum(axis=0)):
        w.assign(gradient)


def metric_added_to_outside() -> None:
    strategy = four()
    seen = total(strategy)
    for rows in each(strategy, lambda x: np.float32(len(x))):
        seen.assign_add(strategy.reduce("SUM", rows, axis=None))


def restored_with_another_name(folder: str = ".") -> None:
    strategy = four()
    refdist.train.Checkpoint(weight=weights(strategy)).write("weights")
    status = refdist.train.Checkpoint(kernel=weights(strategy)).read("weights")
    del status  # the program ends without having asked


def of_another_strategy() -> None:
    first, other = four(), refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
    w = weights(first)
    each(other, lambda x: w.assign_sub(replica().all_reduce("SUM", x.sum(axis=0))))


def read_of_parts_as_a_rate() -> None:
    # The rate falls with the number of rows that were seen, of which each replica knows its own.
    strategy = four()
    seen, w = total(strategy), weights(strategy, Aggregation.MEAN)

    def step(x: Any) -> None:
        seen.assign_add(np.float32(len(x)))
        w.assign_sub(x.mean(axis=0) / (1 + seen.read_value()))

    each(strategy, step)


def steps_counted_by_each_replica() -> None:
    # The rate falls with a counter of steps to which each replica adds one.
    strategy = four()
    w = weights(strategy, Aggregation.MEAN)
    with strategy.scope():
        steps = refdist.Variable(0, name="steps", aggregation=Aggregation.SUM)

    def step(x: Any) -> None:
        steps.assign_add(1)
        w.assign_sub(x.mean(axis=0) / np.float32(steps.read_value()))

    each(strategy, step)


def first_replica_of_a_gradient() -> None:
    strategy = four()
    w = weights(strategy, Aggregation.ONLY_FIRST_REPLICA)
    each(strategy, lambda x: w.assign_sub(0.1 * x.mean(axis=0)))  # here


MISTAKES = [
    (19, made_outside_the_scope, "raises RD11"),
    (20, made_in_every_step, "warns RD44"),
    (20, velocity_made_in_every_step, "warns RD44"),
    (21, forgot_all_reduce, "raises RD12"),
    (22, assigned_per_replica_outside, "raises RD12"),
    (22, assigned_per_replica_outside_with_an_aggregation, "raises RD12"),
    (23, silent.part_copied_to_another_variable, "warns RD41"),
    (23, silent.mean_of_parts, "warns RD39"),
    (23, read_of_parts_as_a_rate, "compare PART READ AS THE TOTAL"),
    (24, metric_added_to_outside, "raises RD14"),
    (44, restored_with_another_name, "warns UserWarning"),
    (45, of_another_strategy, "raises RD11"),
    (0, silent.first_part_only, "warns RD41"),
    (0, steps_counted_by_each_replica, "compare THE SAME SUMMED"),
    (0, first_replica_of_a_gradient, "compare ONLY THE FIRST REPLICA"),
]
