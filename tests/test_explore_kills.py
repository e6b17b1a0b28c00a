"""`refdist.explore` kills a program at each step in which refdist writes a file, and lets it begin again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from limits import HANG
from schedules import all_schedules, seen_by_others

import refdist
from refdist import disk
from refdist.coordinator import ClusterCoordinator
from refdist.errors import RefdistError
from refdist.insight import explorer
from refdist.insight.schedules import Run

KILLS = "any checkpoint, once"
STEPS = ["write", "fsync", "rename", "fsync of the folder"]
Program = Callable[[], object]


def resolver(workers: int = 2) -> refdist.cluster_resolver.SimpleClusterResolver:
    spec = refdist.train.ClusterSpec({"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1"]})
    return refdist.cluster_resolver.SimpleClusterResolver(spec)


def replicated(folder: Path, resumes: bool = True) -> Program:
    """Three steps on two replicas, each of which is saved; it goes on from the step that it has restored, or not."""

    def run() -> float:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            weight, step = refdist.Variable(0.0), refdist.Variable(0)
        manager = refdist.train.CheckpointManager(
            refdist.train.Checkpoint(weight=weight, step=step), folder, max_to_keep=1)
        manager.restore_or_initialize()
        for _ in range(int(step.numpy()) if resumes else 0, 3):
            strategy.run(lambda: weight.assign_add(1.0))
            step.assign_add(1)
            manager.save()
        return float(weight.numpy())

    return run


def scheduled(folder: Path, after_restart: Callable[[Any], object] | None = None) -> Program:
    """Two epochs of two functions, saved after each; after a restart, the functions can be others."""

    def add(v: Any) -> None:
        v.assign_add(1.0)

    def run() -> float:
        strategy = refdist.ParameterServerStrategy(resolver())
        with strategy.scope():
            v, epochs = refdist.Variable(0.0, name="v"), refdist.Variable(0, name="epochs")
        checkpoint, path = refdist.train.Checkpoint(v=v, epochs=epochs), f"{folder}/training"
        restored = os.path.exists(f"{path}.safetensors")
        if restored:
            checkpoint.read(path)
        coordinator = ClusterCoordinator(strategy)
        while int(epochs) < 2:
            for _ in range(2):
                coordinator.schedule(after_restart if restored and after_restart else add, args=(v,))
            coordinator.join()
            epochs.assign_add(1)
            checkpoint.write(path)
        return float(v)

    return run


def test_a_program_that_trains_on_after_it_was_done_is_found_and_replayed(tmp_path: Path) -> None:
    wrong = replicated(tmp_path, resumes=False)
    report = refdist.explore(wrong, faults=KILLS)
    [finding] = report.findings
    assert finding.title == "NOT RESTART-SAFE" and ", 1 kill\n" in str(finding)
    assert "the result is 4.0; without the kill, it is 3.0" in finding.why
    assert f'--faults "{KILLS}" --choices' in str(finding) and "interleaving" not in str(finding)
    right, shown = explorer.replay(wrong, finding.choices, faults=KILLS)
    assert not right and shown.endswith("result: 4.0")
    assert "is killed before fsync of the folder of the index" in shown and "<- the program begins again" in shown
    assert "restores ckpt-1.safetensors" in shown
    assert str(report) == str(refdist.explore(wrong, faults=KILLS))
    assert not list(tmp_path.iterdir())


def test_a_program_that_goes_on_where_it_was_is_proved(tmp_path: Path) -> None:
    report = refdist.explore(replicated(tmp_path), faults=KILLS)
    assert report.proved, report
    # Three checkpoints and three indexes of four steps each; from the second on, the one before is removed.
    assert report.kills == 3 * 2 * len(STEPS) + 2
    assert f"killed before each step of a file that it saves, in {report.kills} runs" in str(report)
    assert "of kills before each step of refdist's files; not of others" in str(report)
    assert "wherever it is killed while it saves" in report._repr_html_() + str(report)
    assert not list(tmp_path.iterdir())


def in_place(path: str, data: bytes) -> None:
    disk.tell(disk.WRITE, path)
    with open(path, "wb") as file:
        file.write(data[:9])
        file.flush()
        disk.tell(disk.WRITE, path)
        file.write(data[9:])


def never_flushed(path: str, data: bytes) -> None:
    temporary = f"{os.path.dirname(path)}/.refdist-{os.urandom(16).hex()}"
    with open(temporary, "wb") as file:
        disk.tell(disk.WRITE, path, file.fileno())
        file.write(data)
    disk.tell(disk.RENAME, path)
    os.replace(temporary, path)
    disk.tell(disk.FLUSH_FOLDER, path)


@pytest.mark.parametrize("replace", [in_place, never_flushed])
def test_files_that_are_not_written_as_a_whole_are_found(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: Callable[[str, bytes], None]) -> None:
    monkeypatch.setattr(disk, "replace", replace)
    [finding] = refdist.explore(replicated(tmp_path), faults=KILLS).findings
    assert finding.title == "RAISED" and "RD31" in finding.why and "is damaged" in finding.why
    assert not list(tmp_path.iterdir())


def test_what_handlers_do_to_files_is_undone_as_a_killed_program_has_none(tmp_path: Path) -> None:
    def run() -> float:
        v = refdist.Variable(0.0)
        checkpoint = refdist.train.Checkpoint(v=v)
        checkpoint.restore(refdist.train.latest_checkpoint(tmp_path))
        try:
            while float(v.numpy()) < 2.0:
                v.assign_add(1.0)
                checkpoint.save(tmp_path / "ckpt")
        finally:
            if float(v.numpy()) < 2.0:
                v.assign(9.0)
                checkpoint.save(tmp_path / "ckpt")
                checkpoint.write(tmp_path / "other")
        return float(v.numpy())

    assert refdist.explore(run, faults=KILLS).proved
    assert not list(tmp_path.iterdir())


def test_a_folder_that_the_program_removes_on_its_way_out_is_there_again(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    restored = []

    def run() -> float:
        v = refdist.Variable(0.0)
        checkpoint = refdist.train.Checkpoint(v=v)
        restored.append(refdist.train.latest_checkpoint(folder))
        checkpoint.restore(restored[-1])
        try:
            while float(v.numpy()) < 2.0:
                v.assign_add(1.0)
                checkpoint.save(folder / "ckpt")
        finally:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        return float(v.numpy())

    assert refdist.explore(run, faults=KILLS).proved
    assert any(restored) and not list(tmp_path.iterdir())


def test_checkpoints_that_were_there_before_are_an_error_and_stay(tmp_path: Path) -> None:
    refdist.train.Checkpoint(weight=refdist.Variable(1.0)).save(tmp_path / "other")
    (tmp_path / "notes").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RefdistError, match=r"RD34.*checkpoint, which was there before.*folder without checkpoints"):
        refdist.explore(replicated(tmp_path), faults=KILLS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert disk.watch.value is None


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / (".refdist-" + "0" * 32)).write_text("of a process that was killed")
    assert refdist.explore(scheduled(tmp_path), faults=KILLS).findings == []
    assert (tmp_path / "notes").read_text() == "mine" and not (tmp_path / "training.safetensors").exists()


def test_after_a_kill_all_schedules_are_run(tmp_path: Path) -> None:
    right = refdist.explore(scheduled(tmp_path), faults=KILLS)
    assert right.proved and right.kills == 2 * len(STEPS), right
    wrong = scheduled(tmp_path, after_restart=lambda v: v.assign(v + 1.0))
    assert refdist.explore(wrong).findings[0].title == "NOT REPEATABLE"  # of the checkpoint in the folder
    (tmp_path / "training.safetensors").unlink()
    [finding] = refdist.explore(wrong, faults=KILLS).findings
    assert finding.title == "LOST UPDATE" and ", 1 kill, 1 switch\n" in str(finding)
    assert "<- made from version 0, overwrites version 1" in str(finding)
    assert not explorer.replay(wrong, finding.choices, faults=KILLS)[0]


def all_results(program: Program) -> set[str]:
    """What a program comes to in all schedules, killed at every step or not at all."""

    def options(run: Run, processes: Any) -> list[int]:
        may_be_killed = list(processes.values()) == [0] and run.several == 2
        return [0, 1] if may_be_killed else seen_by_others(run, processes)

    return {str(trial.came) for trial in all_schedules(program, options, KILLS)}


def saved_meanwhile(folder: Path) -> Program:
    """What is saved has what a function adds, or has it not; a program that begins again has two others."""

    def run() -> float:
        strategy = refdist.ParameterServerStrategy(resolver())
        with strategy.scope():
            v = refdist.Variable(0.0, name="v")
        checkpoint, path = refdist.train.Checkpoint(v=v), folder / "v"
        restored = path.with_suffix(".safetensors").exists()
        if restored:
            checkpoint.read(path)
        coordinator = ClusterCoordinator(strategy)
        for _ in range(2 if restored else 1):
            coordinator.schedule(lambda: v.assign(v + 1.0))
        checkpoint.write(path)
        coordinator.join()
        return float(v)

    return run


def test_no_result_of_all_kills_and_schedules_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = all_results(saved_meanwhile(tmp_path))
    assert expected == {"1.0", "2.0", "3.0"}
    explored = explorer._Explorer(saved_meanwhile(tmp_path), lambda result: True, "10min", KILLS)
    results = set()
    note = explored._note
    monkeypatch.setattr(explored, "_note", lambda trial: (results.add(str(trial.came)), note(trial)))
    assert explored.explore().proved
    assert results - {"None"} == expected


def test_what_is_saved_while_functions_run_is_found(tmp_path: Path) -> None:
    [finding, *_] = refdist.explore(saved_meanwhile(tmp_path), faults=KILLS).findings
    assert finding.title == "NOT RESTART-SAFE" and "<- the program begins again" in str(finding)


def test_a_program_that_saves_nothing_and_functions_that_save_are_not_called_proved(tmp_path: Path) -> None:
    def in_a_function() -> float:
        strategy = refdist.ParameterServerStrategy(resolver(1))
        with strategy.scope():
            v = refdist.Variable(0.0)
        coordinator = ClusterCoordinator(strategy)
        coordinator.schedule(lambda: refdist.train.Checkpoint(v=v).write(tmp_path / "v"))
        coordinator.join()
        return float(v)

    reasons = refdist.explore(in_a_function, faults=KILLS).reasons
    assert "a function, or a thread of the program's own, saves or restores" in reasons
    assert not list(tmp_path.iterdir())
    assert "the program saved no checkpoint" in refdist.explore(lambda: 1.0, faults=KILLS).reasons


def test_reads_before_a_kill_do_not_make_gradients_after_it_old(tmp_path: Path) -> None:
    def train(v: Any) -> None:
        v.assign_sub(0.5 * v.read_value())

    assert refdist.explore(scheduled(tmp_path), faults=KILLS, max_staleness=0).proved
    [finding] = refdist.explore(scheduled(tmp_path, train), faults=KILLS, max_staleness=0).findings
    assert finding.title == "TOO STALE" and ", 1 kill, 1 switch\n" in str(finding)
    assert str(finding).count("<-") == 4  # the kill, the read, the update, the write
    assert refdist.explore(scheduled(tmp_path, train), faults=KILLS, max_staleness=1).proved


def test_variables_of_replicas_in_a_script_are_compared(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"""
import os, refdist
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    weight = refdist.Variable(8.0, name="weight")
    epochs = refdist.Variable(0, name="epochs")
folder = {str(tmp_path)!r}
weights, progress = refdist.train.Checkpoint(weight=weight), refdist.train.Checkpoint(epochs=epochs)
for name, checkpoint in (("weights", weights), ("progress", progress)):
    if os.path.exists(f"{{folder}}/{{name}}.safetensors"):
        checkpoint.read(f"{{folder}}/{{name}}")
while int(epochs) < 2:
    strategy.run(lambda: weight.assign_sub(1.0))
    epochs.assign_add(1)
    weights.write(f"{{folder}}/weights")
    progress.write(f"{{folder}}/progress")
""")
    command = [sys.executable, "-m", "refdist", "explore", str(script), "--faults", KILLS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ended.returncode == 1, ended
    assert "the result is weight = 5.0, epochs = 2; without the kill, it is weight = 6.0, epochs = 2" in ended.stdout
    script.write_text(script.read_text().replace('weights.write(f"{folder}/weights")', "")
                      .replace("(epochs=", "(weight=weight, epochs="))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert ended.returncode == 0 and "1 result: weight = 6.0, epochs = 2  1 class" in ended.stdout, ended
