"""`refdist.explore` loses a parameter server before each access to its variables."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from schedules import all_schedules

import refdist
from refdist.coordinator import ClusterCoordinator
from refdist.errors import UnavailableError
from refdist.insight import explorer
from refdist.insight.schedules import PROGRAM, Run

SERVERS = "any parameter server, once"


def training(folder: Path, restores: bool, handles: bool) -> Callable[[], object]:
    """Two epochs of two functions, saved after each; the error of a loss is handled by beginning again, or not."""
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]})
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)

    def train(epochs_left: list[int]) -> float:
        strategy = refdist.ParameterServerStrategy(resolver)
        with strategy.scope():
            weight, epochs = refdist.Variable(8.0, name="weight"), refdist.Variable(0, name="epochs")
        checkpoint = refdist.train.Checkpoint(weight=weight, epochs=epochs)
        if restores:
            checkpoint.restore(refdist.train.latest_checkpoint(folder))
            epochs_left[:] = [2 - int(epochs)]
        coordinator = ClusterCoordinator(strategy)

        def step() -> None:
            weight.assign_sub(1.0)

        while epochs_left[0]:
            for _ in range(2):
                coordinator.schedule(step)
            coordinator.join()
            epochs.assign_add(1)
            epochs_left[0] -= 1
            checkpoint.save(folder / "ckpt")
        return float(weight)

    def run() -> float:
        epochs_left = [2]
        while handles:
            try:
                return train(epochs_left)
            except UnavailableError:
                pass
        return train(epochs_left)

    return run


def test_a_program_that_goes_on_with_new_variables_and_does_not_restore_them_is_found(tmp_path: Path) -> None:
    wrong = training(tmp_path, restores=False, handles=True)
    report = refdist.explore(wrong, faults=SERVERS)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and str(finding).startswith("NOT RESTART-SAFE, 1 loss\n")
    assert "the result is 6.0; without the loss, and of whole functions, in all orders, it is 4.0" in finding.why
    right, shown = explorer.replay(wrong, finding.choices, faults=SERVERS)
    assert not right and shown.endswith("result: 6.0")
    assert re.search(r"^ps 0 +is lost$", shown, re.M) and "function 1 of coordinator 2  assign" in shown
    assert "fails at read of weight" in shown
    assert str(report) == str(refdist.explore(wrong, faults=SERVERS))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("restores", "handles"), [(True, True), (True, False), (False, False)])
def test_a_program_that_restores_or_begins_anew_is_right(tmp_path: Path, restores: bool, handles: bool) -> None:
    report = refdist.explore(training(tmp_path, restores, handles), faults=SERVERS)
    assert report.proved, report
    # Each epoch: two functions, one addition and two variables that are saved; and in the end the result.
    assert report.losses >= 2 * (2 + 1 + 2) + 1
    assert "wherever a parameter server is lost before an access to a variable of it: 1 class" in str(report)
    assert f"a parameter server lost, before each access to a variable of it, in {report.losses} runs" in str(report)
    assert not list(tmp_path.iterdir())


def test_a_program_that_ends_with_the_error_begins_again_in_the_same_run(tmp_path: Path) -> None:
    right, shown = explorer.replay(training(tmp_path, restores=True, handles=False), [0] * 9 + [1], faults=SERVERS)
    assert right and "raises UnavailableError" in shown and "<- the program begins again" in shown
    assert shown.count("is lost") == 1 and shown.endswith("result: 4.0")


def test_each_server_is_lost_where_its_own_variables_are_accessed(tmp_path: Path) -> None:
    whole = training(tmp_path, restores=False, handles=False)
    gone = []

    def noted() -> object:
        try:
            return whole()
        except UnavailableError as error:
            gone.append(re.findall(r"ps \d", str(error)))
            raise

    assert refdist.explore(noted, faults=SERVERS).proved
    # The weight, and the epochs: in the first run, and in all orders.
    assert gone.count(["ps 0"]) >= 2 * 3 + 1 and gone.count(["ps 1"]) >= 2 * 2


def test_a_program_that_hides_the_error_is_asked_for_its_result(tmp_path: Path) -> None:
    whole = training(tmp_path, restores=False, handles=False)

    def hides() -> object:
        try:
            return whole()
        except UnavailableError:
            return None

    [finding] = refdist.explore(hides, faults=SERVERS).findings
    assert finding.title == "NOT RESTART-SAFE" and "the result is None; without" in finding.why


def test_an_error_of_another_kind_after_a_loss_is_found(tmp_path: Path) -> None:
    whole = training(tmp_path, restores=False, handles=False)

    def renames() -> object:
        try:
            return whole()
        except UnavailableError as error:
            raise RuntimeError("training failed") from error

    [finding] = refdist.explore(renames, faults=SERVERS).findings
    assert finding.title == "RAISED" and "training failed" in finding.why


def losing_anywhere(step: Callable[[Any, Any], object]) -> Callable[[], object]:
    """Two functions with two variables on two servers; a loss is noted in what the program returns."""
    resolver = refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]}))

    def run() -> object:
        strategy = refdist.ParameterServerStrategy(resolver)
        with strategy.scope():
            v, u = refdist.Variable(0.0, name="v"), refdist.Variable(0.0, name="u")
        coordinator = ClusterCoordinator(strategy)
        for _ in range(2):
            coordinator.schedule(step, args=(v, u))
        try:
            coordinator.join()
        except UnavailableError:
            return "lost", strategy.extended.lost == {1} and float(v)
        return float(v), float(u)

    return run


def add_to_both(v: Any, u: Any) -> None:
    v.assign_add(1.0)
    u.assign_add(1.0)


def go_on_without_one(v: Any, u: Any) -> None:
    try:
        u.assign_add(1.0)
    except UnavailableError:
        v.assign(v + 10.0)
    else:
        v.assign_add(1.0)


@pytest.mark.parametrize("step", [add_to_both, go_on_without_one])
def test_after_the_loss_of_a_server_all_orders_are_run(step: Callable[[Any, Any], object],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    program = losing_anywhere(step)
    explored = explorer._Explorer(program, lambda result: True, "10min", SERVERS)
    results, note = set(), explored._note
    monkeypatch.setattr(explored, "_note", lambda trial: (results.add(str(trial.came)), note(trial)))
    assert explored.explore().proved
    assert results - {"None"} == all_results(program)


def all_results(program: Callable[[], object]) -> set[str]:
    """What a program comes to in all schedules, with a server lost before any access, or none."""

    def options(run: Run, processes: Any) -> list[int]:
        could = list(processes.values())
        if PROGRAM in processes and run.touch_of(PROGRAM) is None and not any(step.failed for step in run.steps):
            return [processes[PROGRAM]]  # it schedules and waits, and there is no error that it could raise
        is_lost = any(step.server is not None for step in run.steps)
        return could if is_lost else could + [i for i in map(run.losing_of, could) if i is not None]

    return {str(trial.came) for trial in all_schedules(program, options, SERVERS)}
