"""`refdist.compare`: programs that do not train the same on two replicas as on one, and why; and programs that do."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.core.scaled import Deal, Scale, scale
from refdist.input import dealing
from refdist.insight import Comparison, Difference

ROOT = Path(__file__).parents[1]
Rows = Any
Program = Callable[[], object]
SUM = refdist.VariableAggregation.SUM


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def update(w: Any, gradient: Any, rate: float = 0.1) -> None:
    refdist.get_replica_context().merge_call(
        lambda s, g: s.extended.update(w, lambda v, g: v.assign_sub(rate * g), (g,)), (gradient,))


def reduced(value: Any, op: str = "SUM") -> Any:
    return refdist.get_replica_context().all_reduce(op, value)


def replica() -> int:
    return int(refdist.get_replica_context().replica_id_in_sync_group)


def training(step: Callable[[Any, Rows], object], count: int = 16, batch: int = 8, strategy: Any = None,
             **made: Any) -> None:
    """Calls a step function in each replica, with a variable and the rows that the replica gets of each batch."""
    strategy = strategy or refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(1.0, name="w", **made)
    rows = refdist.data.Dataset.range(count).map(lambda x: np.float32(x) / count).batch(batch)
    for part in strategy.experimental_distribute_dataset(rows):
        strategy.run(step, (w, part))


def means_summed() -> None:
    def step(w: Any, rows: Rows) -> None:
        gradient = reduced((w.value() * rows).mean())
        update(w, gradient)  # here

    training(step)


def reduced_twice() -> None:
    def step(w: Any, rows: Rows) -> None:
        gradient = reduced(rows.sum() / np.float32(8))
        w.assign_sub(gradient)  # here

    training(step, aggregation=SUM)


def not_distributed() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(1.0, name="w")

    def step(rows: Rows) -> None:
        update(w, reduced(rows.sum() / np.float32(8)))  # here

    for _ in range(2):
        strategy.run(step, (np.arange(8, dtype=np.float32),))


def not_distributed_and_reduced_outside() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(1.0, name="w")
    rows = np.arange(8, dtype=np.float32)
    for _ in range(2):
        parts = strategy.run(lambda x: x.mean(), (rows,))
        w.assign_sub(0.1 * strategy.reduce("SUM", parts, axis=None))  # here


def constant_summed() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.sum() / np.float32(8)) + reduced(np.float32(0.25)))  # here

    training(step)


def penalty_summed() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.sum() / np.float32(8) + 0.01 * np.square(w.value())))  # here

    training(step)


def divided_twice() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.sum() / np.float32(8), "MEAN"))  # here

    training(step)


def divided_after_the_mean() -> None:
    def step(w: Any, rows: Rows) -> None:
        gradient = reduced(np.stack([rows, rows**2]).mean(axis=1), "MEAN")
        w.assign_sub(gradient / refdist.get_strategy().num_replicas_in_sync)  # here

    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(np.ones(2, np.float32), name="w")
    for part in strategy.experimental_distribute_dataset(
            refdist.data.Dataset.range(16).map(lambda x: np.float32(x) / 16).batch(8)):
        strategy.run(step, (w, part))


def mean_of_means() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.mean(), "MEAN"))  # here

    training(step, count=11)


def first_replica_only() -> None:
    def step(w: Any, rows: Rows) -> None:
        w.assign_sub(rows.mean())  # here

    training(step, aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)


def mean_of_no_rows() -> None:
    def step(w: Any, rows: Rows) -> None:
        with np.errstate(all="ignore"):
            w.assign_sub(rows.sum() / np.float32(len(rows)))  # here

    training(step, count=9, aggregation=refdist.VariableAggregation.MEAN)


def rate_multiplied() -> None:
    def step(w: Any, rows: Rows) -> None:
        rate = 0.1 * refdist.get_strategy().num_replicas_in_sync
        update(w, reduced(rows.sum() / np.float32(8)), rate)  # here

    training(step)


def global_state() -> None:
    np.random.seed(0)

    def step(w: Any, rows: Rows) -> None:
        noise = np.float32(np.random.normal(size=len(rows)))  # draws
        update(w, reduced((rows * noise).sum() / np.float32(8)))  # here

    training(step)


def global_state_of_python() -> None:
    random.seed(0)

    def step(w: Any, rows: Rows) -> None:
        noise = np.float32(random.random())  # draws
        update(w, reduced((rows + noise).sum() / np.float32(8)))  # here

    training(step)


def shared_generator() -> None:
    generator = np.random.default_rng(0)

    def step(w: Any, rows: Rows) -> None:
        noise = np.float32(generator.normal())  # draws
        update(w, reduced((rows + noise).sum() / np.float32(8)))  # here

    training(step)


def one_seed() -> None:
    def step(w: Any, rows: Rows) -> None:
        noise = np.float32(np.random.default_rng(7).normal(size=len(rows)))  # draws
        update(w, reduced((rows + noise).sum() / np.float32(8)))  # here

    training(step)


def own_seeds() -> None:
    def step(w: Any, rows: Rows) -> None:
        noise = np.float32(np.random.default_rng([7, replica()]).normal(size=len(rows)))  # draws
        update(w, reduced((rows + noise).sum() / np.float32(8)))  # here

    training(step)


def counter() -> None:
    calls = []

    def step(w: Any, rows: Rows) -> None:
        calls.append(replica())
        update(w, reduced((rows * np.float32(len(calls))).sum() / np.float32(8)))  # here

    training(step)


def statistic() -> None:
    def step(w: Any, rows: Rows) -> None:
        scaled = (rows - rows.mean()) ** 2
        update(w, reduced(scaled.sum() / np.float32(8)))  # here

    training(step)


def by_the_replica() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.sum() * np.float32(1 + replica())))  # here

    training(step)


def batch_of_replicas() -> None:
    strategy = refdist.MirroredStrategy()
    batch = 4 * strategy.num_replicas_in_sync

    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(rows.sum() / np.float32(batch)))  # here

    training(step, batch=batch, strategy=strategy)


def rows_of_workers() -> None:
    strategy = refdist.MultiWorkerMirroredStrategy()
    with strategy.scope():
        w = refdist.Variable(0.0, name="w", aggregation=SUM)

    def rows(context: Any) -> Any:
        return refdist.data.Dataset.range(8).map(np.float32).shard(
            context.num_input_pipelines, context.input_pipeline_id).batch(context.get_per_replica_batch_size(4))

    for part in strategy.distribute_datasets_from_function(rows):
        strategy.run(lambda x: w.assign_add(x.sum()), (part,))


def reducing(op: str, part: Callable[[Rows], object], count: int = 16, by_hand: bool = False) -> None:
    """Trains by what it reduces outside replicas."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(0.0, name="w")
    rows = refdist.data.Dataset.range(count).map(np.float32).batch(8)
    for batch in strategy.experimental_distribute_dataset(rows):
        parts = strategy.run(part, (batch,))
        if by_hand:
            total = sum(strategy.experimental_local_results(parts))
        else:
            total = strategy.reduce(op, parts, axis=None)  # reduces
        w.assign_sub(total)  # writes


def means_summed_outside() -> None:
    reducing("SUM", lambda rows: rows.mean())


def divided_twice_outside() -> None:
    reducing("MEAN", lambda rows: rows.sum() / np.float32(8))


def mean_of_means_outside() -> None:
    reducing("MEAN", lambda rows: rows.mean(), count=11)


def reduced_twice_outside() -> None:
    reducing("SUM", lambda rows: reduced(rows.sum() / np.float32(8)))


def statistic_outside() -> None:
    reducing("MEAN", lambda rows: rows.std())


def nothing_reduced() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    own = [np.zeros(1, np.float32) for _ in range(8)]

    def step(rows: Any) -> Any:
        number = refdist.get_replica_context().replica_id_in_sync_group
        error = rows.mean() * own[number] - 1
        own[number] -= np.float32(0.01) * error * rows.mean()
        return np.square(error).mean()

    dataset = refdist.data.Dataset.range(16).map(np.float32).batch(8)
    for rows in strategy.experimental_distribute_dataset(dataset):
        print(float(strategy.reduce("MEAN", strategy.run(step, (rows,)), axis=None)))


OUTSIDE = [(means_summed_outside, "MEANS SUMMED"), (divided_twice_outside, "DIVIDED TWICE"),
           (mean_of_means_outside, "MEAN OF MEANS"), (reduced_twice_outside, "REDUCED TWICE"),
           (statistic_outside, "ROWS OF ONE REPLICA")]
CAUSES = [
    (means_summed, "MEANS SUMMED"), (reduced_twice, "REDUCED TWICE"), (not_distributed, "NOT DISTRIBUTED"),
    (not_distributed_and_reduced_outside, "NOT DISTRIBUTED"), (constant_summed, "THE SAME SUMMED"),
    (penalty_summed, "THE SAME SUMMED"),
    (divided_twice, "DIVIDED TWICE"), (mean_of_means, "MEAN OF MEANS"),
    (first_replica_only, "ONLY THE FIRST REPLICA"), (mean_of_no_rows, "NOT FINITE"),
    (rate_multiplied, "MULTIPLIED AFTER REDUCING"), (divided_after_the_mean, "MULTIPLIED AFTER REDUCING"),
    (global_state, "GLOBAL RANDOM STATE"), (global_state_of_python, "GLOBAL RANDOM STATE"),
    (shared_generator, "SHARED GENERATOR"), (one_seed, "ONE SEED"), (own_seeds, "RANDOM NUMBERS OF EACH REPLICA"),
    (counter, "SHARED PYTHON STATE"), (statistic, "ROWS OF ONE REPLICA"), (by_the_replica, "WHICH REPLICA"),
    (batch_of_replicas, "GLOBAL BATCH"),
]


def test_models_of_which_each_replica_has_its_own_are_told_of() -> None:
    difference = first(refdist.compare(nothing_reduced, replicas=(1, 2), orders=0))
    assert (difference.cause, difference.step) == ("NOTHING REDUCED", 2)
    assert "no replica has met another" in str(difference)


def marked(program: Program, mark: str) -> str:
    """The last part of the place that a program marks."""
    code = program.__code__
    lines = Path(code.co_filename).read_text().splitlines()[code.co_firstlineno - 1:]
    number = next(i for i, line in enumerate(lines) if line.endswith(f"# {mark}"))
    return f"{Path(code.co_filename).name}:{code.co_firstlineno + number}"


def first(report: Comparison) -> Difference:
    assert report.differences, str(report)
    return report.differences[0]


@pytest.mark.parametrize(("program", "cause"), CAUSES, ids=[program.__name__ for program, _ in CAUSES])
def test_the_cause_and_the_line_are_named(program: Program, cause: str) -> None:
    report = refdist.compare(program, replicas=(1, 2))
    difference = first(report)
    assert difference.cause == cause, str(report)
    helper = "test_compare.py:" + str(update.__code__.co_firstlineno + 2)
    assert difference.line.endswith((marked(program, "here"), helper))
    assert report.status == 1 and not report.same and not report.failures
    if cause in ("GLOBAL RANDOM STATE", "SHARED GENERATOR", "ONE SEED", "RANDOM NUMBERS OF EACH REPLICA"):
        assert marked(program, "draws") in difference.why


@pytest.mark.parametrize(("program", "cause"), OUTSIDE, ids=[program.__name__ for program, _ in OUTSIDE])
def test_what_is_reduced_outside_replicas_explains_it_too(program: Program, cause: str) -> None:
    report = refdist.compare(program, replicas=(1, 2), orders=0)
    difference = first(report)
    assert difference.cause == cause, str(report)
    assert difference.line.endswith(marked(reducing, "writes"))
    assert f"Strategy.reduce at {marked(reducing, 'reduces')} " in difference.why.replace(",", " ")
    assert str(report).startswith("it does not train the same: 1 run of 3 differs\n")


def test_a_mean_over_other_numbers_of_rows_is_named_only_where_it_fits() -> None:
    """The mean of roots is not the root of the sum, also where each is weighted by its number of rows."""
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(np.sqrt(np.square(rows).sum()), "MEAN"))

    report = refdist.compare(lambda: training(step, count=7), replicas=(1, 2), orders=0)
    assert first(report).cause == "ROWS OF ONE REPLICA"


def test_what_is_not_divided_is_not_said_to_be_divided_twice() -> None:
    """All replicas assign the same, half of what one does, and only the first counts."""
    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            w = refdist.Variable(0.0, name="w", aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
        ones = refdist.data.Dataset.from_tensor_slices(np.ones(8, np.float32)).batch(8)
        for part in strategy.experimental_distribute_dataset(ones):
            strategy.run(lambda x: w.assign_add(x.sum()), (part,))

    assert first(refdist.compare(program, replicas=(1, 2), orders=0)).cause == "SCALED BY THE NUMBER OF REPLICAS"


def test_what_is_only_returned_is_explained_by_a_call_of_a_later_step() -> None:
    def program() -> float:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            refdist.Variable(0.0, name="w")
        rows = refdist.data.Dataset.range(8).map(np.float32).batch(8)
        [loss] = [strategy.run(lambda x: reduced(x.mean()), (part,))
                  for part in strategy.experimental_distribute_dataset(rows)]
        return float(strategy.experimental_local_results(loss)[0])

    assert first(refdist.compare(program, replicas=(1, 2), orders=0)).cause == "MEANS SUMMED"


def test_what_a_replica_contributes_stays_together_in_the_reason() -> None:
    def step(w: Any, rows: Rows) -> None:
        loss, gradient = reduced([rows.mean(), 2 * rows.mean()])
        update(w, loss + gradient)

    difference = first(refdist.compare(lambda: training(step), replicas=(1, 2), orders=0))
    assert difference.cause == "MEANS SUMMED"
    assert "its own rows, [0.09375, 0.1875] and [0.34375, 0.6875], and" in difference.why


def test_a_number_that_is_only_printed_is_explained_by_what_was_reduced() -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        rows = refdist.data.Dataset.range(8).map(np.float32).batch(8)
        for batch in strategy.experimental_distribute_dataset(rows):
            print("loss", float(strategy.reduce("SUM", strategy.run(lambda rows: rows.mean(), (batch,)), axis=None)))

    difference = first(refdist.compare(program, replicas=(1, 2), orders=0))
    assert (difference.cause, difference.name, difference.values) == (
        "MEANS SUMMED", "printed", ("'loss 3.5'", "'loss 7.0'"))


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_printed_number_that_is_none_is_another(word: str) -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        rows = refdist.data.Dataset.range(3).map(np.float32).batch(2)
        for batch in strategy.experimental_distribute_dataset(rows):
            losses = strategy.run(lambda rows: rows.sum() if len(rows) else np.float32(word), (batch,))
            with np.errstate(all="ignore"):
                print("loss", float(strategy.reduce("SUM", losses, axis=None)))

    difference = first(refdist.compare(program, replicas=(1, 2), orders=0))
    assert (difference.cause, difference.name) == ("NOT FINITE", "printed")
    assert difference.values == ("'loss 2.0'", f"'loss {word}'")


def test_of_what_a_program_reduces_itself_the_parts_are_said() -> None:
    difference = first(refdist.compare(lambda: reducing("", lambda rows: rows.std() / 4, by_hand=True),
                                       replicas=(1, 2), orders=0))
    assert difference.cause == "ROWS OF ONE REPLICA"
    assert re.search(r"; run at test_compare.py:\d+ returns 0.572\d+ on 1 and 0.279\d+ and 0.279\d+ on 2\. With",
                     difference.why), difference.why


def test_the_step_and_both_values_are_said() -> None:
    difference = first(refdist.compare(mean_of_means, replicas=(1, 2), orders=0))
    assert difference.step == 2  # the last batch, which has three rows
    assert difference.values[0] != difference.values[1] and "2, 1 rows" in difference.why
    assert f"step 2, w at {difference.line}" in str(difference)


def test_what_is_clipped_before_the_sum_is_told_to_be_clipped_after_it() -> None:
    def step(w: Any, rows: Rows) -> None:
        update(w, reduced(np.clip(rows.sum(), -0.125, 0.125)))

    difference = first(refdist.compare(lambda: training(step), replicas=(1, 2), orders=0))
    assert difference.cause == "THE SAME SUMMED"
    assert "what was clipped to its limit" in difference.why and "clip after the reduction" in difference.advice


def test_a_whole_number_times_the_replicas_can_be_held() -> None:
    report = refdist.compare(batch_of_replicas, replicas=(1, 2), global_batch=8)
    assert report.same and not report.notes, str(report)


def test_a_batch_that_cannot_be_held_is_said() -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0"])
        training(lambda w, rows: None, batch=4, strategy=strategy)

    report = refdist.compare(program, replicas=(1, 2), global_batch=8, orders=0)
    assert "the global batch is 4 on 1 replica, not the 8 asked for" in str(report)


def test_workers_share_the_replicas() -> None:
    report = refdist.compare(rows_of_workers, replicas=(1, 2), workers=2)
    assert report.same and "2 replicas of 2 workers" in report.runs, str(report)


@pytest.mark.parametrize(("pipelines", "cause"), [(1, "ROWS SEEN TWICE"), (4, "ROWS NEVER SEEN")])
def test_rows_are_counted_over_all_workers(pipelines: int, cause: str) -> None:
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        with strategy.scope():
            w = refdist.Variable(0.0, name="w", aggregation=SUM)

        def rows(context: Any) -> Any:
            dataset = refdist.data.Dataset.range(8).map(np.float32)
            if pipelines == 4 and context.num_input_pipelines == 2:
                dataset = dataset.shard(4, context.input_pipeline_id)
            return dataset.batch(2)

        for part in strategy.distribute_datasets_from_function(rows):
            strategy.run(lambda x: w.assign_add(x.sum()), (part,))

    report = refdist.compare(program, replicas=(2, 4), workers=2, orders=0)
    of_workers = [difference for difference in report.differences if "workers" in difference.second]
    assert of_workers and of_workers[0].cause == cause, str(report)


@pytest.mark.parametrize("reduced", [False, True])
def test_a_loop_that_one_replica_ends_is_told_from_rows_that_are_lost(reduced: bool) -> None:
    def program() -> float:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        rows = refdist.data.Dataset.range(4).map(np.float32).batch(4).repeat(3)
        for seen, batch in enumerate(strategy.experimental_distribute_dataset(rows)):
            losses = strategy.run(lambda x: x.sum() / 4, (batch,))
            if reduced:
                losses = strategy.reduce("SUM", losses, axis=None)
            if strategy.experimental_local_results(losses)[0] < 1:
                return seen
        return 3.0

    report = refdist.compare(program, replicas=(1, 2), orders=0)
    assert report.same is reduced, str(report)
    if not reduced:
        [difference] = report.differences
        assert "12 rows are taken on 1 replica and 4 on 2 replicas: 3 steps and 1 step, which begin with as many " in (
            difference.why)
        assert difference.advice.startswith("Where the program leaves the loop, let a value decide that is the same")


def test_an_exception_of_more_replicas_is_a_difference() -> None:
    def program() -> None:
        def step(w: Any, rows: Rows) -> None:
            if len(rows) < 8:
                raise ValueError("too few rows")
            update(w, reduced(rows.sum()))

        training(step)

    report = refdist.compare(program, replicas=(1, 2))
    assert first(report).cause == "AN EXCEPTION" and "too few rows" in first(report).why
    assert report.status == 1


def test_a_program_that_needs_several_replicas_is_compared_on_these() -> None:
    def program() -> None:
        results = refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(lambda: reduced(np.float32([2.0, 3.0])))
        print(results.values[0])  # one replica returns the array itself

    report = refdist.compare(program, replicas=(1, 2, 4), orders=0)
    [difference] = report.differences
    assert (difference.first, difference.second, difference.cause) == ("2 replicas", "4 replicas", "NOT DISTRIBUTED")
    assert "gets 2 times what it is on 2" in difference.why
    assert "experimental_local_results" in report.notes[0]
    assert [run for run, _ in report.failures] == ["1 replica"]


def test_a_program_that_fails_on_each_number_is_said_once() -> None:
    def program() -> None:
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(lambda: {}["loss"])

    report = refdist.compare(program, replicas=(1, 2, 4))
    assert report.status == 3
    assert [run for run, _ in report.failures] == ["1 replica"]


def test_a_program_without_a_seed_differs_from_itself() -> None:
    def program() -> float:
        return float(np.random.default_rng().normal())

    report = refdist.compare(program)
    assert first(report).cause == "NO SEED" and len(report.runs) == 2


def test_what_is_not_compared_is_not_a_difference() -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy()
        with strategy.scope():
            seen = refdist.Variable(0.0, name="seen", aggregation=SUM,
                                    synchronization=refdist.VariableSynchronization.ON_READ)
            w = refdist.Variable(1.0, name="w")

        def step(rows: Rows) -> Any:
            seen.assign_add(rows.sum())
            print("of a replica", rows.sum())
            count = reduced(np.float32(1.0))  # the number of replicas, which is another
            update(w, reduced(rows.mean()) / count)
            return rows.mean()

        print(f"Number of devices: {strategy.num_replicas_in_sync}")
        for i in range(strategy.num_replicas_in_sync):
            print(f"device {i}")
        print("time", time.perf_counter_ns() % 1_000_003)  # no two runs are near each other
        rows = refdist.data.Dataset.range(8).map(np.float32).batch(8)
        for part in strategy.experimental_distribute_dataset(rows):
            print(strategy.run(step, (part,)))
        print("total", float(seen))

    report = refdist.compare(program, replicas=(1, 2, 4))
    assert report.same, str(report)
    assert "'time #'" in str(report)


def test_generators_draw_what_they_draw_without_comparison() -> None:
    def program() -> list[float]:
        mirrored_state, python = np.random.RandomState(3), random.Random(3)
        return [python.randrange(1000), python.random(), float(mirrored_state.randint(1000)), mirrored_state.rand()]

    wanted = program()

    def checked() -> None:
        assert program() == wanted
        print(1.0)
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(lambda: None)

    refdist.compare(checked, replicas=(1, 2), orders=0).assert_same()


def test_a_printed_number_is_compared() -> None:
    def program() -> None:
        strategy = refdist.MirroredStrategy()
        parts = strategy.run(lambda: np.float32(2.5))
        print("loss", float(strategy.reduce("SUM", parts, axis=None)))

    difference = first(refdist.compare(program, replicas=(1, 2)))
    assert difference.name == "printed" and difference.values == ("'loss 2.5'", "'loss 5.0'")


def test_a_returned_number_is_compared() -> None:
    report = refdist.compare(lambda: refdist.MirroredStrategy().num_replicas_in_sync, replicas=(1, 2))
    assert first(report).name == "returned" and first(report).values == ("1", "2")


def test_the_devices_that_a_program_names_are_scaled() -> None:
    def program() -> int:
        refdist.config.set_simulated_devices(gpu=2)
        assert refdist.experimental.CentralStorageStrategy(["GPU:0"]).num_replicas_in_sync in (1, 4)
        return refdist.MirroredStrategy(["GPU:0", "GPU:1"]).num_replicas_in_sync

    assert first(refdist.compare(program, replicas=(1, 4), orders=0)).values == ("1", "4")


def test_a_strategy_that_has_one_replica_cannot_be_compared() -> None:
    def program() -> None:
        refdist.OneDeviceStrategy("GPU:0").run(lambda: 1.0)

    report = refdist.compare(program, replicas=(1, 2))
    assert report.status == 3 and "runs on 1 replica all the same" in str(report)


def test_a_program_that_shows_nothing_cannot_be_compared() -> None:
    report = refdist.compare(lambda: None, replicas=(1, 2))
    assert report.status == 3 and "no variable" in str(report)


def test_rounding_is_no_difference() -> None:
    def program() -> None:
        values = np.random.default_rng(0).normal(size=64).astype(np.float32) * np.float32(1000)
        strategy = refdist.MirroredStrategy()
        with strategy.scope():
            w = refdist.Variable(0.0, name="w")
        rows = refdist.data.Dataset.from_tensor_slices(values).batch(64)
        for part in strategy.experimental_distribute_dataset(rows):
            strategy.run(lambda x: update(w, reduced(x.sum())), (part,))

    report = refdist.compare(program)
    assert report.same, str(report)


def test_a_small_difference_that_is_no_rounding_is_one() -> None:
    def program() -> None:
        def step(w: Any, rows: Rows) -> None:
            update(w, reduced(rows.sum()) * np.float32(1 + 1e-3 * (refdist.get_strategy().num_replicas_in_sync > 1)))

        training(step)

    assert first(refdist.compare(program, replicas=(1, 2))).name == "w"


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match=r"RD25.*program is 3"):
        refdist.compare(3)  # type: ignore[arg-type]
    for wrong in ({"replicas": (1,)}, {"replicas": (1, 1)}, {"replicas": (0, 1)}, {"workers": 3}, {"orders": -1},
                  {"global_batch": 0}, {"limit": 0}):
        with pytest.raises(ValueError, match="RD34"):
            refdist.compare(means_summed, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no file"):
        refdist.compare("nowhere.py")


def test_a_notebook_shows_where_and_why() -> None:
    shown = refdist.compare(means_summed, replicas=(1, 2), orders=0)._repr_html_()
    assert "MEANS SUMMED" in shown and "all_reduce at test_compare.py" in shown


def test_assert_same_has_the_report() -> None:
    with pytest.raises(AssertionError, match="MEANS SUMMED"):
        refdist.compare(means_summed, replicas=(1, 2), orders=0).assert_same()


# Scripts.

def command(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    return subprocess.run([sys.executable, "-m", "refdist", "compare", "--replicas", "1,2", *arguments, "train.py"],
                          cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)


def test_a_script_has_its_data_and_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.txt").write_text("1 2 3")
    done = command(tmp_path, """
from pathlib import Path
rows = Path("data/rows.txt")
print("sum", sum(map(int, rows.read_text().split())))
rows.write_text("7")
assert not Path("done").exists()
Path("done").write_text("")
""", "--orders", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "data" / "rows.txt").read_text() == "1 2 3" and not (tmp_path / "done").exists()


def test_the_order_of_a_set_is_found_by_another_hash_seed(tmp_path: Path) -> None:
    done = command(tmp_path, """
for i, name in enumerate({"weight", "bias", "scale", "shift", "mean", "deviation"}):
    if name == "weight":
        print("place", i)
import refdist
v = refdist.Variable(float(list({"weight", "bias", "scale", "shift", "mean", "deviation"}).index("weight")))
w = refdist.Variable(float(hash("weight") % 1000))
""", "--orders", "0")
    assert done.returncode == 1 and "HASH ORDER" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("text", "why"), [
    ("input()", "it asks for input (train.py:1)"), ("while True: pass", "it was stopped after 2 s"),
    ("import sys; sys.exit(4)", "SystemExit: 4"), ("import os; os.abort()", "its process ended with -6"),
    ("1 / 0", "ZeroDivisionError: division by zero (train.py:1)")])
def test_a_program_that_cannot_be_run_is_said(tmp_path: Path, text: str, why: str) -> None:
    done = command(tmp_path, text, "--limit", "2" if "while" in text else "60", "--orders", "0")
    assert done.returncode == 3 and why in done.stdout, done.stdout + done.stderr


def test_what_follows_two_dashes_is_the_script_s(tmp_path: Path) -> None:
    done = command(tmp_path, "print('arguments', 3)\nimport sys\nassert sys.argv[1:] == ['--epochs', '2']",
                   "--orders", "0")
    assert done.returncode == 3
    again = [sys.executable, "-m", "refdist", "compare", "train.py", "--orders", "0", "--", "--epochs", "2"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_arguments_have_a_status_of_their_own(tmp_path: Path) -> None:
    assert command(tmp_path, "", "--orders", "-1").returncode == 2
    assert command(tmp_path, "", "--replicas", "1,x").returncode == 2


LOOP = """
import numpy as np
import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2", "GPU:3"])
with strategy.scope():
    w = refdist.Variable(np.zeros(20, np.float32), name="w")
draws = np.random.default_rng(0)
x = draws.normal(size=(96, 20)).astype(np.float32)
y = (x @ draws.normal(size=20)).astype(np.float32)


def step(x, y):
    error = ERROR
    gradient = refdist.get_replica_context().all_reduce("SUM", error @ x / np.float32(32))
    refdist.get_replica_context().merge_call(
        lambda s, g: s.extended.update(w, lambda v, g: v.assign_sub(np.float32(RATE) * g), (g,)), (gradient,))


for _ in range(4):
    for batch in strategy.experimental_distribute_dataset(
            refdist.data.Dataset.from_tensor_slices((x, y)).batch(32)):
        strategy.run(step, batch)
"""


def test_a_rounding_that_grows_is_told_by_float64(tmp_path: Path) -> None:
    """This step is chaotic, and makes a rounding larger in each step."""
    text = LOOP.replace("RATE", "4.0").replace("ERROR", "np.sin(9 * (x @ w.value())) - y")
    done = command(tmp_path, text, "--orders", "0")
    assert done.returncode == 0 and "is a rounding: in float64" in done.stdout, done.stdout


def test_a_right_loop_is_the_same_in_each_order(tmp_path: Path) -> None:
    done = command(tmp_path, LOOP.replace("RATE", "0.1").replace("ERROR", "x @ w.value() - y"), "--orders", "1")
    assert done.returncode == 0 and "it trains the same in 4 runs" in done.stdout, done.stdout + done.stderr


def test_a_statistic_that_is_the_same_in_all_parts_is_told_by_one_replica_with_all_rows() -> None:
    """Two rows that are normalized are -1 and 1, whichever two these are."""
    def program() -> None:
        def step(w: Any, rows: Rows) -> None:
            if len(rows):
                rows = np.sort((rows - rows.mean()) / rows.std())
            update(w, reduced((rows * np.maximum(rows, 0) ** 2).sum() / np.float32(4)))

        training(step, batch=4)

    difference = first(refdist.compare(program, replicas=(1, 2), orders=0))
    assert difference.cause == "ROWS OF ONE REPLICA"
    assert "With all rows on the last replica, and none on the others, w is what it is on 1" in difference.why


def metered(step: Callable[[Any, Any, Rows], None], aggregation: refdist.VariableAggregation = SUM) -> Program:
    """A program whose step has a variable, a meter of which each replica has a part, and rows."""
    def program() -> None:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            meter = refdist.Variable(0.0, name="meter", synchronization=refdist.VariableSynchronization.ON_READ,
                                     aggregation=aggregation)
        training(lambda w, rows: step(w, meter, rows), strategy=strategy)

    return program


@pytest.mark.parametrize("aggregation", [SUM, refdist.VariableAggregation.MEAN], ids=lambda value: value.name)
def test_a_part_that_is_read_as_the_total_is_told_by_reading_the_total(aggregation: Any) -> None:
    def step(w: Any, meter: Any, rows: Rows) -> None:
        meter.assign_add(rows.sum())
        update(w, reduced(rows.mean() / (1 + meter.read_value()), "MEAN"))

    difference = first(refdist.compare(metered(step, aggregation), replicas=(1, 2), orders=0))
    if aggregation is SUM:
        assert difference.cause == "PART READ AS THE TOTAL"
        line = step.__code__.co_firstlineno + 2
        assert f"a replica reads meter at test_compare.py:{line}, of which" in difference.why
    else:  # their mean is not what one replica has
        assert difference.cause != "PART READ AS THE TOTAL"


def test_a_meter_that_is_read_beside_another_mistake_is_not_the_cause() -> None:
    def step(w: Any, meter: Any, rows: Rows) -> None:
        meter.assign_add(rows.sum())
        update(w, reduced(np.sqrt(np.square(rows).sum()) + 0 * meter.read_value()))

    assert first(refdist.compare(metered(step), replicas=(1, 2), orders=0)).cause == "ROWS OF ONE REPLICA"


def test_a_meter_that_one_replica_reads_alone_does_not_end_the_comparison() -> None:
    def step(w: Any, meter: Any, rows: Rows) -> None:
        meter.assign_add(rows.sum())
        seen = meter.read_value() if replica() == 0 else 0
        update(w, reduced(np.float32(rows.sum() * (1 + seen))))

    assert first(refdist.compare(metered(step), replicas=(1, 2), orders=0)).cause == "WHICH REPLICA"


def test_the_cause_is_the_same_where_the_check_of_types_is_on() -> None:
    with refdist.config.checks(types=True), refdist.record() as recording:
        means_summed()
    assert all(event["received"] for event in recording.events
               if event.kind == "receive" and event.replica is not None and recording.events[event["of"]]["op"])
    os.environ["REFDIST_CHECKS"] = "types"
    try:
        assert first(refdist.compare(means_summed, replicas=(1, 2), orders=0)).cause == "MEANS SUMMED"
    finally:
        del os.environ["REFDIST_CHECKS"]


def test_what_the_order_decides_is_not_said_of_the_first_replica_alone() -> None:
    """Each replica lowers a rate that all have in common, and the first writes it."""
    def program() -> None:
        rate = [0.1]

        def step(w: Any, rows: Rows) -> None:
            rate[0] *= 0.9
            w.assign(rate[0])

        training(step, aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)

    causes = [difference.cause for difference in refdist.compare(program, replicas=(1, 2)).differences]
    assert causes == ["SHARED PYTHON STATE", "SHARED PYTHON STATE"]


@pytest.mark.parametrize(("deal", "parts"), [(Deal.TO_THE_NEXT_REPLICA, [[6], [0, 1, 2], [3, 4, 5]]),
                                             (Deal.IN_OTHER_PARTS, [[1, 2, 3], [4, 5, 6], [0]]),
                                             (Deal.ALL_TO_THE_LAST_REPLICA, [[], [], [0, 1, 2, 3, 4, 5, 6]])])
def test_rows_are_dealt_otherwise_and_none_is_lost(deal: Deal, parts: list[list[int]]) -> None:
    scale.value = Scale(3, deal=deal)
    try:
        steps = dealing.dealt(iter([[{"x": np.arange(3)}, {"x": np.arange(3, 6)}, {"x": np.arange(6, 7)}]]))
        assert [[part["x"].tolist() for part in step] for step in steps] == [parts]
    finally:
        scale.value = None
