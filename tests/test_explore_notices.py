"""`refdist.explore` tells a program to end wherever its PreemptionCheckpointHandler asks, and lets it begin again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from limits import HANG

import refdist
from refdist.checkpoints import preemption
from refdist.coordinator import ClusterCoordinator
from refdist.experimental import PreemptionCheckpointHandler, TerminationConfig
from refdist.insight import explorer

NOTICES = "any preemption notice, once"
Program = Callable[[], object]


def replicated(folder: Path, resumes: bool = True, **options: Any) -> Program:
    """Three steps on two replicas; a program that begins again goes on with the step that it has restored, or not."""

    def run() -> float:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            weight = refdist.Variable(0.0)
        handler = PreemptionCheckpointHandler(
            None, refdist.train.Checkpoint(weight=weight), folder, TerminationConfig(**options))
        for _ in range(int(handler.total_run_calls) if resumes else 0, 3):
            handler.run(lambda: strategy.run(lambda: weight.assign_add(1.0)))
        return float(weight.numpy())

    return run


def scheduled(folder: Path, step: Callable[[Any], object], after_restart: Callable[[Any], object] | None = None
              ) -> Program:
    """Two epochs of two functions, which can be others after a restart."""
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)

    def run() -> float:
        strategy = refdist.ParameterServerStrategy(resolver)
        with strategy.scope():
            v = refdist.Variable(0.0, name="v")
        handler = PreemptionCheckpointHandler(resolver, refdist.train.Checkpoint(v=v), folder)
        coordinator = ClusterCoordinator(strategy)
        begun = int(handler.total_run_calls)

        def epoch() -> None:
            for _ in range(2):
                coordinator.schedule(after_restart if begun and after_restart else step, args=(v,))
            coordinator.join()

        for _ in range(begun, 2):
            handler.run(epoch)
        return float(v)

    return run


@pytest.fixture(autouse=True)
def nobody_asks_afterwards() -> Iterator[None]:
    ends = signal.getsignal(signal.SIGTERM)
    yield
    assert preemption.asked.value is None
    assert signal.getsignal(signal.SIGTERM) is ends


def test_a_program_that_goes_on_where_it_was_is_proved(tmp_path: Path) -> None:
    report = refdist.explore(replicated(tmp_path), faults=NOTICES)
    assert report.proved and report.notices == 3 and not report.kills
    assert "wherever it is told to end: 1 class" in str(report)
    assert "and told to end, each time that a PreemptionCheckpointHandler asks, in 3 runs" in str(report)
    assert not list(tmp_path.iterdir())


def test_a_program_that_begins_at_its_first_step_again_is_found_and_replayed(tmp_path: Path) -> None:
    wrong = replicated(tmp_path, resumes=False)
    report = refdist.explore(wrong, faults=NOTICES)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and str(finding).startswith("NOT RESTART-SAFE, 1 notice\n")
    assert finding.why == "the result is 4.0; without the notice, it is 3.0" and finding.choices == [1]
    right, shown = explorer.replay(wrong, finding.choices, faults=NOTICES)
    lines = [line.split("  ")[1].strip() if "  " in line else line for line in shown.splitlines()]
    assert not right and shown.endswith("result: 4.0")
    assert lines[1:6] == ["is told to end", "saves ckpt-1.safetensors", "saves the index", "exits",
                          "restores ckpt-1.safetensors"]
    assert str(report) == str(refdist.explore(wrong, faults=NOTICES))
    assert not list(tmp_path.iterdir())


def test_all_workers_save_and_end_wherever_one_is_told(tmp_path: Path) -> None:
    def worker() -> float:
        strategy = refdist.MultiWorkerMirroredStrategy()
        with strategy.scope():
            weight = refdist.Variable(0.0)
        handler = PreemptionCheckpointHandler(
            strategy.cluster_resolver, refdist.train.Checkpoint(weight=weight), tmp_path)
        for _ in range(int(handler.total_run_calls), 2):
            handler.run(lambda: strategy.run(lambda: weight.assign_add(1.0)))
        return float(weight.numpy())

    report = refdist.explore(lambda: refdist.simulate_workers(worker, 2), faults=NOTICES)
    assert report.proved and report.results == [("[2.0, 2.0]", 1)]


def test_after_it_has_begun_again_all_schedules_are_run(tmp_path: Path) -> None:
    def add(v: Any) -> None:
        v.assign_add(1.0)

    def increment(v: Any) -> None:
        v.assign(v + 1.0)

    right = refdist.explore(scheduled(tmp_path, add), faults=NOTICES)
    assert right.proved and right.notices == 2
    wrong = scheduled(tmp_path, add, after_restart=increment)
    [finding] = refdist.explore(wrong, faults=NOTICES).findings
    assert finding.title == "LOST UPDATE" and ", 1 notice, 1 switch\n" in str(finding)
    assert not explorer.replay(wrong, finding.choices, faults=NOTICES)[0]


def test_a_program_that_does_not_exit_is_asked_for_its_result(tmp_path: Path) -> None:
    assert refdist.explore(replicated(tmp_path, exit_fn=lambda: None), faults=NOTICES).proved  # it goes on to its end

    def ends() -> None:
        raise RuntimeError("the end")

    [finding] = refdist.explore(replicated(tmp_path, exit_fn=ends), faults=NOTICES).findings
    assert finding.title == "RAISED" and "the end" in finding.why
    assert refdist.explore(replicated(tmp_path, exit_fn=lambda: sys.exit(0)), faults=NOTICES).proved


def test_without_a_handler_and_with_a_grace_period_nothing_is_called_proved(tmp_path: Path) -> None:
    report = refdist.explore(replicated(tmp_path, grace_period=30), faults=NOTICES)
    assert not report.findings and report.reasons == ["a grace period was taken to be over at once"]
    assert "no PreemptionCheckpointHandler asked whether the program is to end" in refdist.explore(
        lambda: 1.0, faults=NOTICES).reasons


def test_the_command_replays_it_and_proves_a_script_whose_variables_are_compared(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"""
import refdist
weight = refdist.Variable(0.0)
handler = refdist.experimental.PreemptionCheckpointHandler(
    None, refdist.train.Checkpoint(weight=weight), {str(tmp_path / "saved")!r})
for _ in range(2):
    handler.run(lambda: weight.assign_add(1.0))
assert float(weight) == 2.0, float(weight)
""")
    command = [sys.executable, "-m", "refdist", "explore", str(script), "--faults", NOTICES]
    for arguments in ([], ["--choices", "1"]):
        ended = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=HANG)
        assert ended.returncode == 1 and "AssertionError: 3.0" in ended.stdout, ended
    script.write_text(script.read_text().replace("range(2)", "range(int(handler.total_run_calls), 2)"))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ended.returncode == 0 and "1 result: weight = 2.0" in ended.stdout.replace("Variable", "weight"), ended
    script.write_text(script.read_text().replace("weight=weight", "").replace("weight = refdist.Variable(0.0)", "")
                      .replace("weight.assign_add(1.0)", "None").partition("assert")[0])
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ended.returncode == 3 and "nothing is compared: the program made no variables, and" in ended.stdout
