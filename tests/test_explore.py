"""`refdist.explore`: which schedules are run, what is found in them, and what is said of it."""

from __future__ import annotations

import itertools
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from schedules import all_schedules, seen_by_others

import refdist
from refdist.coordinator import ClusterCoordinator, experimental_get_current_worker_index, interleaving, stop_task
from refdist.errors import RefdistError
from refdist.insight import explorer, outcomes, sampling
from refdist.insight.reduction import ASLEEP, Reduction, signature
from refdist.insight.schedules import Run

Step = Callable[[Any, int], object]


def program(step: Step, workers: int = 2, functions: int = 2, values: Any = (0.0,),
            end: Callable[[Any], object] | None = None, partitioner: Any = None) -> Callable[[], object]:
    """A program that schedules `step` with its variables and the number of the function, and returns their values."""
    spec = refdist.train.ClusterSpec({"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1", "p1:1"]})
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)

    def run() -> object:
        strategy = refdist.ParameterServerStrategy(resolver, partitioner)
        with strategy.scope():
            variables = [refdist.Variable(value, name=f"v{i}") for i, value in enumerate(values)]
        coordinator = ClusterCoordinator(strategy)
        for k in range(functions):
            coordinator.schedule(step, args=(variables, k))
        coordinator.join()
        return [np.asarray(v).tolist() for v in variables] if end is None else end(variables)

    return run


def increment(v: Any, k: int) -> None:
    v[0].assign(v[0] + 1.0)


def add(v: Any, k: int) -> None:
    v[0].assign_add(1.0)


def add_and_read(v: Any, k: int) -> None:
    v[0].assign_add(1.0)
    float(v[0])


def add_and_return(v: Any, k: int) -> Any:
    return v[0].assign_add(1.0)


def own(v: Any, k: int) -> None:
    v[k].assign(v[k] + 1.0)


def read_first(v: Any, k: int) -> None:
    x = float(v[0])
    v[1 + k % 2].assign(v[1 + k % 2] + x)
    v[0].assign_add(1.0)


def branching(v: Any, k: int) -> None:
    if float(v[0]) == 0.0:
        v[0].assign(1.0 + k)
    else:
        v[1].assign_add(1.0)


def rows(v: Any, k: int) -> None:
    v[0].scatter_update(refdist.IndexedSlices(np.float32([k + 1.0]), np.int32([k % 3])))


def scatter_and_assign(v: Any, k: int) -> None:
    if k:
        v[0].scatter_add(refdist.IndexedSlices(np.float32([1.0]), np.int32([0])))
    else:
        v[0].assign([5.0, 5.0])


def smallest(v: Any, k: int) -> None:
    v[0].scatter_min(refdist.IndexedSlices(np.float32([[0.0, 3.0], [-0.0, 2.0], [0.0, 1.0]][k]), np.int32([0, 1])))


def opposite(v: Any, k: int) -> None:
    v[k % 2].assign(float(k))
    v[1 - k % 2].assign(float(k))


def fetched_before() -> object:
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})))
    with strategy.scope():
        v = refdist.Variable(0.0)
    coordinator = ClusterCoordinator(strategy)
    first, _ = [coordinator.schedule(increment, args=([v], k)) for k in range(2)]
    first.fetch()
    v.assign_add(10.0)
    coordinator.join()
    return float(v)


def joined_between() -> object:
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})))
    with strategy.scope():
        v = refdist.Variable(0.0)
    coordinator = ClusterCoordinator(strategy)
    for k in range(4):
        coordinator.schedule(increment, args=([v], k))
        if k == 1:
            coordinator.join()
            v.assign_add(10.0)
    coordinator.join()
    return float(v)


def read_meanwhile() -> object:
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})))
    with strategy.scope():
        v = refdist.Variable(0.0)
    coordinator = ClusterCoordinator(strategy)
    coordinator.schedule(increment, args=([v], 0))
    seen = float(v)
    coordinator.schedule(increment, args=([v], 1))
    coordinator.join()
    return seen, float(v)


PROGRAMS = {
    "increments": program(increment),
    "three increments": program(increment, 3, 3),
    "more increments than workers": program(increment, 2, 3),
    "additions": program(add, 3, 3),
    "additions and reads": program(add_and_read, 3, 3),
    "additions returned": program(add_and_return, 3, 3),
    "each its own": program(own, 3, 3, (0.0,) * 3),
    "reads of one, writes of others": program(read_first, 2, 2, (0.0,) * 3),
    "branches": program(branching, 3, 3, (0.0,) * 2),
    "rows": program(rows, 3, 3, (np.zeros(3, np.float32),)),
    "scatter and assign": program(scatter_and_assign, 3, 3, (np.zeros(2, np.float32),)),
    "minima, of zeros too": program(smallest, 3, 3, (np.ones(2, np.float32),)),
    "opposite orders": program(opposite, 2, 3, (0.0,) * 2),
    "one is fetched": fetched_before,
    "a join between": joined_between,
    "read meanwhile": read_meanwhile,
}


def class_of(steps: Any) -> Any:
    """The class of a run, and in which step of which function the worker is lost."""
    lost = [(step.process, sum(other.process == step.process for other in steps[:i]))
            for i, step in enumerate(steps) if step.lost]
    return signature(steps), tuple(lost)


def classes_of_all(run_of: Callable[[], object], faults: str | None = None) -> tuple[set[Any], set[str]]:
    """The classes and results of all schedules, every one of which is run; in each, workers may be lost."""

    def options(run: Run, processes: Any) -> list[int]:
        could = seen_by_others(run, processes)
        losses = sum(step.lost for step in run.steps)
        return could + [i for i in map(run.losing_of, could) if i is not None] * (losses < 1 + (faults == TWO))

    trials = list(all_schedules(run_of, options, faults))
    return {class_of(trial.run.steps) for trial in trials}, {str(trial.came) for trial in trials}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reduction_runs_each_class_of_all_schedules(name: str) -> None:
    classes, results = classes_of_all(PROGRAMS[name])
    explored = explorer._Explorer(PROGRAMS[name], None, "60s")
    reduction, runs = Reduction(), 0
    signatures, came = set(), set()
    while not reduction.finished:
        trial = explored.attempt(reduction.decide)
        reduction.learn(trial.run)
        runs += 1
        if trial.run.cut != ASLEEP:
            signatures.add(class_of(trial.run.steps))
            came.add(str(trial.came))
    assert signatures == classes
    assert came == results
    assert runs <= 2 * len(classes)


def ordered(workers: int) -> Callable[[], object]:
    """One function adds and another one doubles; a lost one may return to the queue before the other is scheduled."""
    spec = refdist.train.ClusterSpec({"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1"]})

    def run() -> object:
        strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
        with strategy.scope():
            v = refdist.Variable(1.0)
        coordinator = ClusterCoordinator(strategy)
        coordinator.schedule(lambda: v.assign_add(1.0, read_value=False))
        seen = float(v)
        coordinator.schedule(lambda: v.assign(v * 2.0))
        coordinator.join()
        return seen, float(v)

    return run


def counts_once(v: Any, k: int) -> None:
    if not np.asarray(v[1])[k]:
        v[1].assign_add(np.float32([k == 0, k == 1]))


LOSSES, RETURNS, TWO = "any worker, once", "any return, once", "any two workers, once each"
LOSING = {
    "increments on one worker": program(increment, 1),
    "additions": program(add),
    "additions returned on one worker": program(add_and_return, 1),
    "another is scheduled after a loss": ordered(1),
    "the same on two workers": ordered(2),
    "one is fetched": fetched_before,
    "looks first": program(counts_once, 1, values=(0.0, [0.0, 0.0])),
    "branches": program(branching, 1, values=(0.0, 0.0)),
}


@pytest.mark.parametrize(("name", "faults"), [
    (name, faults) for faults in (LOSSES, RETURNS, TWO) for name in LOSING
    if (name, faults) != ("one is fetched", TWO)])  # which has ten thousand schedules
def test_with_a_loss_anywhere_each_class_of_all_schedules_is_run(name: str, faults: str,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    classes, results = classes_of_all(LOSING[name], faults)
    explored = explorer._Explorer(LOSING[name], lambda result: True, "10min", faults)
    signatures, came = [], set()
    attempt = explored.attempt

    def noted(*args: Any, **kwargs: Any) -> Any:
        trial = attempt(*args, **kwargs)
        if not trial.run.cut:
            signatures.append(class_of(trial.run.steps))
            came.add(str(trial.came))
        return trial

    monkeypatch.setattr(explored, "attempt", noted)
    assert explored.explore().proved
    assert set(signatures) == classes
    assert came == results
    assert len(signatures) <= 2 * len(classes) + 2  # the quiet schedule is run twice before


# Mistakes of asynchronous training, each with a form without it.


def slices(value: Any, row: int) -> Any:
    return refdist.IndexedSlices(np.float32([value]), np.int32([row]))


def count_and_sum(v: Any, k: int) -> None:
    v[0].assign_add(1.0)
    v[1].assign_add(4.0)


def mean_of_parts(v: Any, k: int) -> Any:
    if k == 0:
        return count_and_sum(v, k)
    return float(v[1]) / float(v[0])


def epoch(v: Any, k: int) -> None:
    done = float(v[0]) + 1.0
    v[0].assign(done % 2.0)
    if done == 2.0:
        v[1].assign_add(1.0)


def best_so_far(v: Any, k: int) -> None:
    if float(v[0][0]) < k + 1.0:
        v[0].assign([k + 1.0])


def whole_table(v: Any, k: int) -> None:
    table = np.array(v[0])
    table[k] += 1.0
    v[0].assign(table)


def momentum(v: Any, k: int) -> None:
    v[0].assign(0.5 * v[0] + 1.0)
    v[1].assign_sub(v[0].read_value())


def prepared_late(v: Any, k: int) -> None:
    if float(v[0]) == 0.0:
        v[1].assign(10.0)
        v[0].assign(1.0)
    v[1].assign_add(1.0)


def replaced_or_read(v: Any, k: int) -> Any:
    if k == 0:
        v[0].assign([1.0, 1.0])
        return None
    return float(np.asarray(v[0]).sum())


def moved(v: Any, k: int) -> None:
    v[0].assign(v[0] - 1.0)
    v[1].assign(v[1] + 1.0)


def moved_by_additions(v: Any, k: int) -> None:
    v[0].assign_sub(1.0)
    v[1].assign_add(1.0)


def claimed(v: Any, k: int) -> None:
    row = int(v[0].read_value())
    v[0].assign_add(1.0)
    v[1].scatter_add(slices(1.0, row))


def only_one_goes(v: Any, k: int) -> None:
    if float(v[1 - k]) == 0.0:
        v[k].assign(1.0)


def tied(v: Any, k: int) -> None:
    v[k].assign(float(k + 1))
    v[1 - k].assign(float(k + 1))


def decayed(v: Any, k: int) -> None:
    rate = float(v[0])
    v[0].assign(rate * 0.5)
    v[1].assign_sub(rate)


def returned(step: Step, **options: Any) -> Callable[[], object]:
    """A program that returns what its functions have returned, too."""
    kept: list[Any] = []

    def noted(v: Any, k: int) -> None:
        kept.append((k, step(v, k)))

    def end(v: Any) -> object:
        results = [result for _, result in sorted(kept)]
        kept.clear()
        return results

    return program(noted, end=end, **options)


halves = refdist.experimental.partitioners.FixedShardsPartitioner(2)
ZERO, TWO_ZEROS = np.zeros(1, np.float32), np.zeros(2, np.float32)

MISTAKES: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
    "a counter is read and assigned": (
        "LOST UPDATE", program(increment), program(add)),
    "a metric is read between its two updates": (
        "TORN READ", returned(mean_of_parts, values=(1.0, 2.0)),
        program(lambda v, k: v[0].assign_add([1.0, 2.0], read_value=False), values=(TWO_ZEROS,))),
    "an epoch is counted by whoever comes last": (
        "LOST UPDATE", program(epoch, values=(0.0, 0.0)),
        program(lambda v, k: v[1].assign_add(float(v[0].assign_add(1.0) == 2.0)), values=(0.0, 0.0))),
    "the best value is compared, then assigned": (
        "LOST UPDATE", program(best_so_far, values=(ZERO,)),
        program(lambda v, k: v[0].scatter_max(slices(k + 1.0, 0)), values=(ZERO,))),
    "a table of embeddings is assigned for one row": (
        "LOST UPDATE", program(whole_table, values=(TWO_ZEROS,)),
        program(lambda v, k: v[0].scatter_add(slices(1.0, k)), values=(TWO_ZEROS,))),
    "momentum is a variable of its own": (
        "LOST UPDATE", program(momentum, values=(0.0, 0.0)), program(momentum, 1, values=(0.0, 0.0))),
    "what is missing is made by whoever comes first": (
        "LOST UPDATE", program(prepared_late, values=(0.0, 0.0)),
        program(lambda v, k: v[1].assign_add(1.0), values=(1.0, 10.0))),
    "a variable of two shards is read while it is assigned": (
        "TORN READ", returned(replaced_or_read, values=(TWO_ZEROS,), partitioner=halves),
        returned(replaced_or_read, values=(TWO_ZEROS,))),
    "something is moved from one variable to another": (
        "LOST UPDATE", program(moved, values=(5.0, 0.0)),
        program(moved_by_additions, values=(5.0, 0.0))),
    "a number is read, then claimed": (
        "STALE READ", program(claimed, values=(0.0, TWO_ZEROS)),
        program(lambda v, k: v[1].scatter_add(slices(1.0, int(v[0].assign_add(1.0)) - 1)), values=(0.0, TWO_ZEROS))),
    "each looks whether the other has begun": (
        "STALE READ", program(only_one_goes, values=(0.0, 0.0)), program(only_one_goes, 1, values=(0.0, 0.0))),
    "two variables that belong together are assigned": (
        "TORN WRITE", program(tied, values=(0.0, 0.0)),
        program(lambda v, k: v[0].assign([k + 1.0, k + 1.0]), values=(TWO_ZEROS,))),
    "a learning rate decays in the functions": (
        "LOST UPDATE", program(decayed, values=(1.0, 0.0)), program(decayed, 1, values=(1.0, 0.0))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_shortened_and_replayed(name: str) -> None:
    title, wrong, _ = MISTAKES[name]
    report = refdist.explore(wrong)
    assert not report.proved
    assert title in [finding.title for finding in report.findings]
    for finding in report.findings:
        right, shown = explorer.replay(wrong, finding.choices)
        assert not right and finding.switches >= 1
        assert shown.startswith(finding.title)
        with interleaving(finding.choices):  # the list means the same there
            assert shown.endswith(f"result: {outcomes.text(wrong())}")
    assert str(report) == str(refdist.explore(wrong))


@pytest.mark.parametrize("name", MISTAKES)
def test_the_form_without_the_mistake_is_proved(name: str) -> None:
    report = refdist.explore(MISTAKES[name][2])
    assert report.proved, report
    report.assert_ok()
    assert "proved that it is as if the functions ran whole" in str(report)


EXAMPLES = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "beside_frontrun.py"))["VARIABLES"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_tool_for_threads_are_found_or_proved(name: str) -> None:
    run, check = EXAMPLES[name]
    checked, unchecked = refdist.explore(run, check, budget="10min"), refdist.explore(run, budget="10min")
    assert checked.proved == unchecked.proved == name.endswith("corrected")
    if not checked.proved:
        assert checked.findings[0].title == "CHECK" and checked.first is not None and checked.first <= 10
        assert "LOST UPDATE" in [finding.title for finding in unchecked.findings]


def test_a_variable_that_is_written_to_another_one_is_read_before() -> None:
    def step(v: Any, k: int) -> None:
        if k == 0:
            v[0].assign_sub(v[1])
            v[0].scatter_nd_add([[0]], [v[1][0]])
            v[0].assign([v[1][0]])
        else:
            v[0].assign([5.0])
            v[1].assign([7.0])

    wrong = program(step, values=([1.0], [2.0]))
    assert classes_of_all(wrong)[1] == {"[[2.0], [7.0]]", "[[5.0], [7.0]]", "[[7.0], [7.0]]"}
    shown = explorer.replay(wrong, [])[1]
    accesses = re.findall(r"worker 0  function 1  (\w+ v\d) = (\S+)", shown)
    assert accesses == [("read v1", "[2.]"), ("assign_sub v0", "[-1.]"), ("read v1", "[2.]"),
                        ("scatter_nd_add v0", "[1.]"), ("read v1", "[2.]"), ("assign v0", "[2.]")]


def test_the_report_shows_who_overwrote_what_and_what_to_write() -> None:
    report = refdist.explore(program(increment))
    line = increment.__code__.co_firstlineno + 1
    text = str(report)
    assert f"LOST UPDATE of v0 ({__file__}:{line}), 1 switch and no schedule has it with fewer" in text
    assert "<- made from version 0, overwrites version 1" in text
    assert "write: `v0.assign_add(...)`" in text and "--choices 0,0,0,0,1" in text
    with pytest.raises(AssertionError, match="LOST UPDATE"):
        report.assert_ok()


def test_a_lost_update_of_many_functions_is_found_within_a_small_budget() -> None:
    report = refdist.explore(program(increment, 6, 6), check=lambda out: out == [6.0], budget=0.5)
    assert report.findings[0].title == "CHECK" and report.findings[0].switches == 1
    assert "with a LOST UPDATE of v0" in str(report) and "the budget was used up" in str(report)


def test_a_fault_of_many_functions_has_one_switch_and_leaves_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(explorer, "time", SimpleNamespace(monotonic=lambda: len(runs)))
    plain = program(increment, 4, 30)

    def counted() -> object:
        runs.append(None)
        return plain()

    report = refdist.explore(counted, budget=120)
    [finding] = report.findings
    assert finding.title == "LOST UPDATE" and finding.switches == 1
    assert report.classes > 10  # the orders of whole functions have not taken all the time


def test_of_too_many_schedules_some_are_drawn_and_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def report_of(budget: int) -> refdist.insight.report.Report:
        ticks = itertools.count()
        monkeypatch.setattr(explorer, "time", SimpleNamespace(monotonic=ticks.__next__))  # one for each look at it
        return refdist.explore(program(increment, 4, 6), check=lambda out: True, budget=budget)

    report = report_of(600)
    assert not report.proved and "the budget was used up" in report.reasons
    assert re.search(r"then every run with one switch, \d+ of random priorities, and \d+ drawn by lot", str(report))
    assert "with probability" in str(report) and str(report) == str(report_of(600))
    assert re.search(r"then \d+ of \d+ runs with one switch", str(report_of(30)))
    monkeypatch.undo()
    assert not refdist.explore(program(increment)).sampled


def test_random_priorities_find_an_overtaking_as_often_as_is_stated() -> None:
    wrong = program(increment, 3, 3)
    explored = explorer._Explorer(wrong, lambda out: out == [3.0], "60s")
    quiet = explored.attempt(lambda run, processes: 0)
    steps, processes = len(quiet.run.steps), len({step.process for step in quiet.run.steps})
    trials = [explored.attempt(sampling.by_priorities(seed, steps)) for seed in range(300)]
    wrongs = sum(explored.fault(trial) is not None for trial in trials)
    assert wrongs / 300 >= 1 / (processes * steps)
    assert wrongs < 300  # and whole functions are drawn as well
    again = explored.attempt(sampling.by_priorities(7, steps))
    assert again.run.taken == trials[7].run.taken
    assert sampling.probability(4, 25, 0) == 0.0 and 0.63 < sampling.probability(4, 25, 100) < 0.64


def test_checks_and_assertions_of_the_program_are_what_is_asked() -> None:
    def asserts(v: Any) -> None:
        assert float(v[0]) == 2.0, "one is missing"

    assert refdist.explore(program(increment), check=lambda out: True).proved
    assert refdist.explore(program(increment, end=asserts)).findings[0].title == "RAISED"
    assert "one is missing" in str(refdist.explore(program(increment, end=asserts)))

    def check(out: Any) -> None:
        assert out == [2.0]

    assert refdist.explore(program(increment), check=check).findings[0].title == "CHECK"
    assert refdist.explore(program(add), check=check).proved


def test_a_program_that_differs_from_itself_is_named_and_nothing_else() -> None:
    runs = itertools.count()

    def counted(v: Any, k: int) -> None:
        v[0].assign(v[0] + float(next(runs)))

    [finding] = refdist.explore(program(counted)).findings
    assert finding.title == "NOT REPEATABLE" and "two runs of one schedule differ" in str(finding)


def test_a_function_that_asks_for_its_worker_is_not_called_proved() -> None:
    report = refdist.explore(program(lambda v, k: v[0].assign_add(float(experimental_get_current_worker_index()))),
                             budget=2)
    assert not report.proved and any("which worker" in text for text in report.reasons)


def test_a_function_that_spins_is_bounded_and_nothing_is_proved() -> None:
    def spins(v: Any, k: int) -> None:
        while not v[0]:
            pass

    report = refdist.explore(program(spins), budget=0.5)
    assert not report.proved and any("more than" in text for text in report.reasons)


def test_a_task_that_is_lost_and_no_function_at_all_are_not_called_proved() -> None:
    def lost() -> None:
        strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
            refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})))
        stop_task(ClusterCoordinator(strategy), "worker", 0, after=1)

    assert "a task is lost" in refdist.explore(lost).reasons
    assert not refdist.explore(lambda: 1).proved


def gradient(v: Any, k: int) -> None:
    v[0].assign_sub(0.5 * v[0].read_value())


@pytest.mark.parametrize(("step", "workers", "count"), [
    (gradient, 3, 2), (increment, 3, 2), (lambda v, k: (gradient(v, k), add(v, k)), 2, 2)])
def test_a_bound_on_staleness_is_proved_or_broken_with_the_shortest_schedule(
        step: Step, workers: int, count: int) -> None:
    wrong = program(step, workers, workers, values=(8.0,))
    [finding] = refdist.explore(wrong, max_staleness=count - 1).findings
    assert finding.title == "TOO STALE" and f"v0 is written {count} updates after it was read" in finding.why
    assert "no schedule has it with fewer" in str(finding)
    assert f"explore SCRIPT --max-staleness {count - 1} --choices" in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, max_staleness=count - 1)
    assert not right and shown.count("<-") == count + 2  # the read, the updates, the write
    report = refdist.explore(wrong, max_staleness=count)
    assert report.proved and f"written more than {count} updates after it was read" in str(report)


def test_updates_that_commute_are_counted_in_every_order() -> None:
    def late(v: Any, k: int) -> None:  # the one reads only where it adds last, which the quiet schedule does not do
        if k == 0 and float(v[1]) == 1.0:
            float(v[0])
        elif k == 1:
            v[1].assign(1.0)
        v[0].assign_add(1.0)

    assert refdist.explore(program(late, values=(0.0, 0.0)), max_staleness=1).proved
    [finding] = refdist.explore(program(late, values=(0.0, 0.0)), max_staleness=0).findings
    assert finding.title == "TOO STALE"


def test_a_second_read_does_not_make_a_gradient_younger_and_a_loss_forgets_the_first() -> None:
    def read_twice(v: Any, k: int) -> None:
        slope = 0.5 * float(v[0])
        float(v[0])
        v[0].assign_sub(slope)

    wrong = program(read_twice, values=(8.0,))
    [finding] = refdist.explore(wrong, max_staleness=0).findings
    assert finding.switches == 1
    assert not refdist.explore(program(read_twice, 1, values=(8.0,)), max_staleness=0, faults=LOSSES).findings


def test_an_old_gradient_of_many_functions_is_predicted_before_all_schedules_are_tried() -> None:
    [finding] = refdist.explore(program(gradient, 6, 6, values=(8.0,)), max_staleness=4, budget=0.001).findings
    assert finding.title == "TOO STALE"


def test_with_a_bound_on_staleness_a_check_is_asked_too() -> None:
    wrong = program(gradient, values=(8.0,))
    report = refdist.explore(wrong, check=lambda result: result == [2.0], max_staleness=1)
    assert [finding.title for finding in report.findings] == ["CHECK"]
    titles = [finding.title for finding in refdist.explore(wrong, lambda result: result == [2.0],
                                                           max_staleness=0).findings]
    assert titles == ["TOO STALE"]
    assert "proved the check and that nothing is written more than 1 update" in str(
        refdist.explore(wrong, lambda result: True, max_staleness=1))


def counts_then_marks(v: Any, k: int) -> None:
    v[0].assign_add(1.0)
    v[1].assign_add(np.float32([k == 0, k == 1]))


def marks_then_counts(v: Any, k: int) -> None:
    if not np.asarray(v[1])[k]:
        v[1].assign_add(np.float32([k == 0, k == 1]))
        v[0].assign_add(1.0)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("step", "result", "written"), [
    (counts_then_marks, [3.0, [1.0, 1.0]], "v0"), (marks_then_counts, [1.0, [1.0, 1.0]], "v1")])
def test_a_function_that_is_lost_half_way_is_found_and_replayed(
        step: Step, result: object, written: str, workers: int) -> None:
    wrong = program(step, workers, values=(0.0, [0.0, 0.0]))
    report = refdist.explore(wrong, faults=LOSSES)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and finding.switches == 1
    assert f"NOT RESTART-SAFE of {written}" in str(finding) and ", 1 loss\n" in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, faults=LOSSES)
    assert not right and shown.endswith(f"result: {result}")
    assert "is lost before assign_add of" in shown
    assert not refdist.explore(wrong).findings  # nothing is wrong with the schedules


def test_a_function_that_may_be_lost_anywhere_is_proved() -> None:
    report = refdist.explore(program(counts_once, values=(0.0, [0.0, 0.0])), faults=LOSSES)
    assert report.proved and "wherever a worker is lost before an access: 3 classes" in str(report)
    assert f"each before an access of its function, in {report.losses} runs" in str(report)
    report = refdist.explore(program(counts_once, values=(0.0, [0.0, 0.0])), faults=TWO)
    assert report.proved and "wherever two workers are lost before an access: 3 classes" in str(report)


def test_what_goes_wrong_only_in_another_order_after_a_loss_is_found() -> None:
    def step(v: Any, k: int) -> None:  # only what begins again can be overtaken
        if float(v[1 + k].assign_add(1.0)) == 1.0:
            v[0].assign_add(1.0)
        else:
            v[0].assign(v[0] + 1.0)

    wrong = program(step, values=(0.0, 0.0, 0.0))

    def check(result: Any) -> bool:
        return bool(result[0] == 2.0)

    [finding] = refdist.explore(wrong, check, faults=LOSSES).findings
    assert finding.title == "CHECK" and ", 1 loss, 2 switches\n" in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, check, faults=LOSSES)
    assert not right and "result: [1.0, " in shown


def test_the_budget_ends_the_losses_and_nothing_is_proved() -> None:
    report = refdist.explore(program(counts_once, 2, 2, values=(0.0, [0.0, 0.0])), faults=LOSSES, budget=1e-9)
    assert not report.proved and "the budget was used up" in report.reasons


def test_a_loss_is_looked_for_in_other_schedules_than_the_quiet_one() -> None:
    def second_only(v: Any, k: int) -> None:  # the second function writes twice where the first has not written yet
        if k == 1 and float(v[0]) == 0.0:
            v[1].assign_add(1.0)
            v[2].assign_add(1.0)
        v[0].assign_add(1.0)

    wrong = program(second_only, values=(0.0, 0.0, 0.0))
    report = refdist.explore(wrong, faults=LOSSES)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and ", 1 loss, " in str(finding)
    assert not explorer.replay(wrong, finding.choices, faults=LOSSES)[0]


def test_what_one_loss_does_not_break_is_broken_by_two() -> None:
    def tries(v: Any, k: int) -> None:  # the fourth try is one too many
        count = float(v[1].assign_add(1.0))
        v[0].assign_add(float(count == 4.0))

    wrong, two = program(tries, values=(0.0, 0.0)), TWO

    def check(result: Any) -> bool:
        return bool(result[0] == 0.0)

    assert not refdist.explore(wrong, check, faults=LOSSES).findings
    [finding] = refdist.explore(wrong, check, faults=two).findings
    assert ", 2 losses\n" in str(finding) and f'--faults "{two}" --choices' in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, check, faults=two)
    assert not right and "worker 0" in shown and "worker 1" in shown and shown.count("is lost before") == 2
    [finding] = refdist.explore(program(counts_then_marks, values=(0.0, [0.0, 0.0])), faults=two).findings
    assert ", 1 loss\n" in str(finding)  # one is enough there


def marks_what_it_adds(v: Any, k: int) -> None:
    if not np.asarray(v[0])[1 + k]:
        v[0].assign_add(np.float32([1.0, k == 0, k == 1]))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_that_has_written_all_and_not_returned_runs_twice(workers: int) -> None:
    wrong = program(add, workers)
    report = refdist.explore(wrong, faults=RETURNS)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and finding.switches == 1
    assert "NOT RESTART-SAFE of v0" in str(finding) and ", 1 loss\n" in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, faults=RETURNS)
    assert not right and shown.endswith("result: [3.0]")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[2] == "worker 0 function 1 is lost before it returns <- its function begins again"
    assert not refdist.explore(wrong, faults=LOSSES).findings  # before its only access, a loss changes nothing


@pytest.mark.parametrize(("step", "values"), [
    (lambda v, k: v[0].scatter_update(slices(k + 1.0, k)), (np.zeros(2, np.float32),)),
    (marks_what_it_adds, (np.zeros(3, np.float32),))])
def test_what_is_written_once_however_often_it_runs_is_right(step: Step, values: Any) -> None:
    report = refdist.explore(program(step, values=values), faults=RETURNS)
    assert report.proved and "whichever function loses its worker before it returns" in str(report)
    assert f"each before its function returns, in {report.losses} runs" in str(report)


def test_a_check_and_an_exception_are_asked_of_losses_too() -> None:
    report = refdist.explore(program(counts_then_marks, values=(0.0, [0.0, 0.0])), lambda result: result[0] < 3.0,
                             faults=LOSSES)
    assert [finding.title for finding in report.findings] == ["CHECK"]
    assert "CHECK, with a NOT RESTART-SAFE of v0" in str(report)


@pytest.mark.parametrize(("options", "code"), [
    ({"program": 1}, "RD25"), ({"check": 1}, "RD25"), ({"budget": "7x"}, "RD34"), ({"budget": 0}, "RD34"),
    ({"budget": True}, "RD34"), ({"budget": "9" * 400 + "s"}, "RD34"), ({"budget": np.float32("nan")}, "RD34"),
    ({"budget": 10**400}, "RD34"), ({"faults": np.zeros(2)}, "RD34"),
    ({"faults": "ps 0"}, "RD34"), ({"faults": True}, "RD34"), ({"faults": []}, "RD34"),
    ({"max_staleness": -1}, "RD25"), ({"max_staleness": 1.5}, "RD25"), ({"max_staleness": True}, "RD25")])
def test_bad_arguments_are_named_before_anything_runs(options: dict[str, Any], code: str) -> None:
    with pytest.raises(RefdistError, match=f"{code}.*" + next(iter(options))):
        refdist.explore(**{"program": pytest.fail, **options})


@pytest.mark.parametrize("choices", [None, 3, [-1], [True], [1.0], "0,1"])
def test_choices_that_are_no_numbers_from_0_are_named_before_anything_runs(choices: Any) -> None:
    with pytest.raises(RefdistError, match=r"RD25.*choices"):
        explorer.replay(pytest.fail, choices)


def test_choices_that_do_not_fit_while_a_fault_is_shortened_are_no_reason() -> None:
    def train(v: Any, k: int) -> None:
        v[0].assign_sub(0.1 * v[0])
        v[1].assign_add(1.0)

    report = refdist.explore(program(train, values=(1.0, 0.0)), faults=LOSSES, max_staleness=1)
    assert [finding.title for finding in report.findings] == ["TOO STALE"] and report.reasons == []


def test_a_check_that_fails_on_a_result_is_a_fault_of_its_schedule() -> None:
    def check(result: Any) -> object:
        return {2.0: True}[result[0]]

    [finding] = refdist.explore(program(increment), check).findings
    assert finding.title == "CHECK" and "KeyError: 1.0" in finding.why and finding.choices == [0, 0, 0, 0, 1]
    [finding] = refdist.explore(program(add), lambda result: np.ones(2) == 1.0, budget=np.int64(2)).findings
    assert "ValueError: The truth value of an array" in finding.why


DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def eps(dtype: Any) -> Any:
    return np.asarray(ml_dtypes.finfo(dtype).eps, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sums", [False, True])
def test_a_small_update_that_is_lost_is_no_rounding(dtype: Any, sums: bool) -> None:
    def step(v: Any, k: int) -> None:
        v[0].assign(v[0] + 16 * eps(dtype))
        if sums:
            v[1].assign_add(np.ones((), dtype))

    run = program(step, values=(np.ones((), dtype), np.zeros((), dtype)))
    assert [finding.title for finding in refdist.explore(run).findings] == ["LOST UPDATE"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_in_another_order_is_no_fault(dtype: Any) -> None:
    def step(v: Any, k: int) -> None:
        v[0].assign_add(np.asarray([0.1, 0.4][k], dtype))
        float(v[1])
        v[1].assign(np.ones((), dtype))  # by which the functions are not one after the other
        v[0].assign_add(np.asarray(0.2, dtype))  # the sum depends on the order of all four

    run = program(step, values=(np.zeros((), dtype), np.zeros((), dtype)))
    report = refdist.explore(run)
    assert report.proved and "2 results" in str(report), report


def sums_of_four(v: Any, k: int) -> None:
    v[0].assign_add(np.asarray([0.1, 0.4][k], v[0].dtype))
    float(v[1])
    v[1].assign(1.0)  # by which the functions are not one after the other
    v[0].assign_add(np.asarray(0.2, v[0].dtype))


def kept(v: Any) -> None:
    v[1].assign(np.asarray(v[0]) - np.float32(0.85))


@pytest.mark.parametrize("end", [
    lambda v: np.asarray(v[0]) - np.float32(0.85), lambda v: float(v[0]) - 0.85, lambda v: 1 / (float(v[0]) - 0.85),
    lambda v: float(v[0]) ** 9, kept])
def test_what_is_computed_with_a_sum_has_its_rounding_made_larger(end: Callable[[Any], object]) -> None:
    report = refdist.explore(program(sums_of_four, values=(np.float32(0.0), np.float32(0.0)), end=end))
    assert report.proved and "2 results" in str(report), report


def test_a_sum_of_python_s_in_another_order_is_no_fault() -> None:
    def run() -> object:
        total = [0.0]

        def step(v: Any, k: int) -> None:
            total[0] += [0.1, 0.4][k]
            float(v[0])
            v[0].assign(1.0)
            total[0] += 0.2

        return program(step, end=lambda v: total[0])()

    report = refdist.explore(run, budget="10min")
    assert report.proved and "2 results" in str(report), report


def test_two_runs_of_one_schedule_come_to_the_same_bits() -> None:
    runs = itertools.count(1)
    run = program(increment, end=lambda v: 1.0 + next(runs) * 2.0**-52)
    assert refdist.explore(run).findings[0].title == "NOT REPEATABLE"


def test_an_interrupt_ends_it_with_what_is_known() -> None:
    runs = itertools.count()
    plain = program(increment, 3, 3)

    def interrupted() -> object:
        if next(runs) == 20:
            raise KeyboardInterrupt
        return plain()

    report = refdist.explore(interrupted)
    assert report.interrupted and "it was interrupted" in report.reasons
    assert report.findings[0].title == "LOST UPDATE"


SCRIPT = """
import refdist
spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
with strategy.scope():
    v = refdist.Variable(0.0, name="v")
coordinator = refdist.coordinator.ClusterCoordinator(strategy)
def step():
    STEP
for _ in range(2):
    coordinator.schedule(step)
coordinator.join()
print("printed")
"""


TWICE = "v.assign_add(1.0); v.assign_add(1.0)"


@pytest.mark.parametrize("step, arguments, status, text", [
    ("v.assign(v + 1.0)", [], 1, "LOST UPDATE of v"),
    ("v.assign_add(1.0)", [], 0, "proved that"),
    ("refdist.coordinator.experimental_get_current_worker_index()", [], 3, "nothing is proved"),
    ("v.assign(v + 1.0)", ["--choices", "0,0,0,0,1"], 1, "result: v = 1.0"),
    ("v.assign(v + 1.0)", ["--choices", "0"], 0, "result: v = 2.0"),
    ("v.assign(v + 1.0)", ["--choices", "0,9"], 2, "RD34"),
    ("v.assign(v + 1.0)", ["--choices=-1"], 2, "explore: --choices is '-1'; write numbers from 0"),
    ("v.assign(v + 1.0)", ["--max-staleness", "-1"], 2, "explore: [RD25] explore: max_staleness is -1"),
    ("v.assign(v + len(__import__('sys').argv))", ["--choices", "0", "--", "--epochs", "2"], 0, "result: v = 6.0"),
    ("v.assign_sub(0.5 * v)", ["--max-staleness", "0"], 1, "explore SCRIPT --max-staleness 0 --choices 0,0,0,0,1"),
    ("v.assign_sub(0.5 * v)", ["--max-staleness", "0", "--choices", "0,0,0,0,1"], 1, "TOO STALE"),
    ("v.assign_sub(0.5 * v)", ["--max-staleness", "1"], 0, "proved that"),
    (TWICE, ["--faults", LOSSES], 1, '--faults "any worker, once" --choices 0,0,0,0,0,0,2'),
    (TWICE, ["--faults", LOSSES, "--choices", "0,0,0,0,0,0,2"], 1, "result: v = 5.0"),
    ("v.assign_add(1.0)", ["--faults", LOSSES], 0, "wherever a worker is lost before an access"),
])
def test_the_command_says_it_with_its_status(tmp_path: Path, step: str, arguments: list[str], status: int,
                                             text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("STEP", step))
    ended = subprocess.run([sys.executable, "-m", "refdist", "explore", str(script), *arguments],
                           capture_output=True, text=True, check=False)
    assert (ended.returncode, text in ended.stdout + ended.stderr) == (status, True), ended
    assert ("printed" in ended.stdout) == bool("--choices" in arguments and status < 2)


def swallows_its_end(v: Any, k: int) -> None:
    while True:
        with suppress(BaseException):
            v[0].assign_add(1.0)


def swallows_a_while(v: Any, k: int) -> None:
    for _ in range(2):
        with suppress(BaseException):
            v[0].assign_add(1.0)


def only_the_second(v: Any, k: int) -> None:
    while k:
        try:
            if v[0].assign_add(1.0) > 5.0:
                break
        except BaseException:
            pass


@pytest.mark.parametrize(("step", "faults"), [(swallows_its_end, None), (swallows_its_end, LOSSES),
                                              (only_the_second, LOSSES), (only_the_second, TWO)])
def test_a_function_that_swallows_its_end_is_named_and_nothing_hangs(step: Step, faults: str | None) -> None:
    report = refdist.explore(program(step), faults=faults)
    [finding] = report.findings
    assert finding.title == "CANNOT BE STOPPED" and not report.proved
    line = step.__code__.co_firstlineno + 3
    assert f"RD22] function {step.__name__} (scheduled at" in finding.why
    assert f"last at {__file__}:{line};" in finding.why
    right, shown = explorer.replay(program(step), finding.choices, faults=faults)
    assert not right and shown.startswith("CANNOT BE STOPPED: [RD22] function")
    assert refdist.explore(program(add)).proved  # the thread that is left disturbs no other run


def test_a_function_that_swallows_its_end_and_then_ends_is_explored() -> None:
    assert refdist.explore(program(swallows_a_while)).proved
    [finding] = refdist.explore(program(swallows_a_while), faults=LOSSES).findings
    assert finding.title == "NOT RESTART-SAFE"


def saved_while_steps_go_on() -> object:
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1"], "ps": ["p0:1"]})))
    with strategy.scope():
        total, rows, saved = (refdist.Variable(0.0, name=name) for name in ("total", "rows", "saved"))

    def step() -> None:
        total.assign_add(1.0)
        rows.assign_add(1.0)

    coordinator = ClusterCoordinator(strategy)
    coordinator.schedule(step)
    seen = float(total), float(rows)
    coordinator.join()
    saved.assign(seen[0] - seen[1])
    return True


def test_what_the_coordinator_reads_half_way_is_torn_and_the_variable_is_shown() -> None:
    [finding] = refdist.explore(saved_while_steps_go_on, budget="10min").findings
    assert finding.title == "TORN READ", finding
    assert finding.why == ("the result is True with total = 1.0, rows = 1.0, saved = 1.0; of whole functions, in all "
                           "orders, it is True with total = 1.0, rows = 1.0, saved = -1.0 or "
                           "True with total = 1.0, rows = 1.0, saved = 0.0")


def test_functions_of_a_second_coordinator_are_called_so() -> None:
    def run() -> object:
        values = []
        for name in ("v", "u"):
            strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(
                refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})))
            with strategy.scope():
                v = refdist.Variable(0.0, name=name)
            coordinator = ClusterCoordinator(strategy)
            for k in range(2):
                coordinator.schedule(increment if name == "u" else add, args=([v], k))
            values.append((coordinator, v))
        for coordinator, _ in values:
            coordinator.join()
        return [float(v) for _, v in values]

    [finding] = refdist.explore(run, budget="10min").findings
    assert finding.title == "LOST UPDATE" and re.search(r"worker \d  function 1 of coordinator 2  read u", str(finding))
