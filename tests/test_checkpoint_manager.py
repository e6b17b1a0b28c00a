"""Managers of checkpoints: what is kept, what is deleted, and what another manager knows of it later."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_checkpoint import FOUR, TWO, make

import refdist
from refdist.checkpoints import manager as checkpoint_manager
from refdist.checkpoints import reader
from refdist.train import Checkpoint, CheckpointManager, checkpoints_iterator, latest_checkpoint


def files(folder: Path) -> list[str]:
    return sorted(name.removesuffix(".safetensors") for name in os.listdir(folder) if name != "checkpoint")


def test_a_manager_keeps_the_last_ones(tmp_path: Path) -> None:
    """As tf.train.CheckpointManager."""
    v, started = make(TWO, 0.0), []
    manager = CheckpointManager(Checkpoint(v=v), tmp_path / "run", 2, init_fn=lambda: started.append(1))
    assert manager.restore_or_initialize() is None and started == [1]
    for i in range(1, 5):
        v.assign(float(i))
        assert os.path.basename(str(manager.save())) == f"ckpt-{i}"
    assert [os.path.basename(path) for path in manager.checkpoints] == ["ckpt-3", "ckpt-4"]
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint", "ckpt-3.safetensors", "ckpt-4.safetensors"]
    w = make(FOUR, 0.0)
    again = CheckpointManager(Checkpoint(v=w), tmp_path / "run", 2)
    assert again.restore_or_initialize() == manager.latest_checkpoint == latest_checkpoint(tmp_path / "run")
    assert float(w) == 4.0 and os.path.basename(str(again.save())) == "ckpt-5"
    assert os.path.basename(str(again.save(checkpoint_number=70))) == "ckpt-70"
    assert os.path.basename(str(again.save())) == "ckpt-7"
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "run", "other") is None


def test_a_folder_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    manager = CheckpointManager(Checkpoint(v=refdist.Variable(1.0)), tmp_path / "run", 2)
    assert manager.directory == str(tmp_path / "run") and manager.checkpoint_interval is None
    (tmp_path / "run").rmdir()
    assert manager.save() == manager.latest_checkpoint == latest_checkpoint(tmp_path / "run")


def test_another_program_follows_the_checkpoints(tmp_path: Path, monkeypatch: Any) -> None:
    """As tf.train.checkpoints_iterator, on a clock that only sleep advances."""
    clock, due = [0.0], [3, 4, 11, 21]
    asked: list[float] = []
    checkpoint = Checkpoint(v=refdist.Variable(1.0))

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        while due and clock[0] >= due[0]:
            checkpoint.save(tmp_path / f"at-{due.pop(0)}")

    def over() -> bool:
        asked.append(clock[0])
        return clock[0] > 20

    monkeypatch.setattr(reader.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(reader.time, "sleep", sleep)
    seen = [(os.path.basename(path), clock[0]) for path in checkpoints_iterator(
        tmp_path, min_interval_secs=2, timeout=5, timeout_fn=over)]
    assert seen == [("at-3-1", 3.0), ("at-4-2", 5.0), ("at-11-3", 11.0), ("at-21-4", 21.0)]
    assert asked == [18.0, 28.0]
    assert list(checkpoints_iterator(tmp_path / "none", timeout=0)) == []


def test_a_manager_saves_at_an_interval(tmp_path: Path) -> None:
    step = refdist.Variable(np.int64(0))
    manager = CheckpointManager(Checkpoint(step=step), tmp_path, None, step_counter=step, checkpoint_interval=3)
    saved = []
    for i in range(8):
        saved.append(manager.save() is not None)
        step.assign_add(np.int64(1))
        assert i or saved == [True]
    assert saved == [True, False, False, True, False, False, True, False]
    assert manager.save(check_interval=False) is not None and manager.save(check_interval=False) is None
    step, interval = refdist.Variable(np.int64(0)), {"checkpoint_interval": 3}
    for folder, options in ((tmp_path, interval), (tmp_path / "other", {**interval, "last_checkpoint_step": 8})):
        manager = CheckpointManager(Checkpoint(step=step), folder, None, step_counter=step, **options)
        manager.restore_or_initialize()
        saved = [manager.save() is not None for _ in range(5) if step.assign_add(np.int64(1)) is not None]
        assert saved == [False, False, True, False, False], "intervals go on after a restart"
        step.assign(np.int64(8))
    for arguments in ({"max_to_keep": 0}, {"max_to_keep": None, "checkpoint_interval": 3}):
        with pytest.raises(ValueError, match="RD34"):
            CheckpointManager(Checkpoint(), tmp_path, **arguments)
    (tmp_path / "file").touch()
    with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*the folder .*file cannot be created: File exists"):
        CheckpointManager(Checkpoint(), tmp_path / "file", 1)
    with pytest.raises(TypeError, match="RD25"):
        CheckpointManager(5, tmp_path, 1)  # type: ignore[arg-type]


def test_a_manager_deletes_only_what_it_saved(tmp_path: Path) -> None:
    """As TensorFlow 2.21: other managers of the folder, and `Checkpoint.save`, keep theirs."""
    v = refdist.Variable(1.0)
    manager, other = (CheckpointManager(Checkpoint(v=v), tmp_path, 1, checkpoint_name=name) for name in ("a", "b"))
    manager.save()
    other.save()
    Checkpoint(v=v).save(tmp_path / "mine")
    manager.save()
    assert files(tmp_path) == ["a-2", "b-1", "mine-1"]
    assert [os.path.basename(str(manager.latest_checkpoint)) for manager in (manager, other)] == ["a-2", "b-1"]


def test_one_in_so_many_hours_stays_also_over_a_restart(tmp_path: Path, monkeypatch: Any) -> None:
    hours = [0.0]
    monkeypatch.setattr(checkpoint_manager.time, "time", lambda: hours[0] * 3600)
    v = refdist.Variable(1.0)
    for _ in range(4):
        # Each save by a new manager, as in programs that are ended often.
        manager = CheckpointManager(Checkpoint(v=v), tmp_path, 1, keep_checkpoint_every_n_hours=2)
        manager.restore_or_initialize()
        for _ in range(2):
            hours[0] += 0.75
            manager.save()
    assert files(tmp_path) == ["ckpt-3", "ckpt-6", "ckpt-8"]
    hours[0] = -5.0
    assert CheckpointManager(Checkpoint(v=v), tmp_path, 1, 2)._preserved_at == -5.0 * 3600


def test_a_save_that_failed_is_not_taken_for_one(tmp_path: Path, monkeypatch: Any) -> None:
    step = refdist.Variable(np.int64(0))
    manager = CheckpointManager(Checkpoint(step=step), tmp_path, 1, step_counter=step, checkpoint_interval=3)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(refdist.errors.DataLossError, match=r"RD31.*No space left"):
            manager.save()
    assert files(tmp_path) == [] and manager.latest_checkpoint is None
    assert manager.save() is not None


def test_a_manager_that_restores_nothing_begins_no_count(tmp_path: Path) -> None:
    checkpoint = refdist.train.Checkpoint(w=refdist.Variable(2.0))
    assert refdist.train.CheckpointManager(checkpoint, tmp_path / "kept", 3).restore_or_initialize() is None
    path = checkpoint.write(tmp_path / "written")
    assert [name for name, _ in refdist.train.list_variables(path)] == ["w"]
