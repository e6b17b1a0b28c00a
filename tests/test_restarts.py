"""A job that has lost a worker starts again from its last checkpoint and ends with the bits of a run without loss."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kills
import numpy as np
import pytest
from limits import HANG
from workers import restarted

import refdist
from refdist.backends.mpi import backoff, processes, restarts
from refdist.backends.mpi.restarts import Ended, Saved
from refdist.core import saved

ROOT = Path(__file__).parents[1]
PROGRAM = str(ROOT / "tests" / "workers" / "restarted.py")
KILLED = "[worker 1] was killed by SIGKILL"


class Starts:
    """Pretended starts of a job, which end as they are listed."""

    def __init__(self, *ends: Ended) -> None:
        self.left = list(ends)

    def __call__(self, again: bool) -> Ended:
        return self.left.pop(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.0)


def lost(step: int | None, path: str = "ckpt", status: int = 137, by_user: bool = False, workers: int = 2) -> Ended:
    return Ended(status, KILLED, by_user, None if step is None else Saved(path, step), workers)


WELL = Ended(0, "", False, Saved("ckpt-9", 90), 2)
# How the starts end, how often it is started again at most, the exit status, the restarts, and why it ends.
ENDS: dict[str, tuple[list[Ended], int, int, int, str]] = {
    "well at once": ([WELL], 3, 0, 0, ""),
    "well in the end": ([lost(10), lost(20), WELL], 3, 0, 2, "after 0.0 s and 2 restarts the job came to its end"),
    "lost before anything was saved": ([lost(None), lost(10), WELL], 3, 0, 2, "came to its end"),
    "twice at one step": ([lost(10), lost(None)], 3, 137, 1, "failed again before it had saved a checkpoint"),
    "saved again what it had restored": ([lost(10), lost(10)], 3, 137, 1, "failed again before it had saved"),
    "never saved anything": ([lost(None), lost(None)], 3, 137, 1, "failed again before it had saved a checkpoint"),
    "too often": ([lost(10), lost(20), lost(30)], 2, 137, 2, "as often as --max-restarts=2 allows"),
    "told to end": ([lost(10), lost(20, status=143, by_user=True)], 3, 143, 1, "the job was told to end"),
    "again, with fewer workers": ([lost(10), lost(None, workers=1), WELL], 3, 0, 2, "came to its end;"),
    "twice with fewer workers": ([lost(10), lost(None, workers=1), lost(None, workers=1)], 3, 137, 2, "failed again"),
    "no host for a while": ([lost(10), lost(None, workers=0), lost(20), WELL], 3, 0, 3, "came to its end;"),
    "no host before the same again": ([lost(10), lost(None, workers=0), lost(None)], 3, 137, 2, "failed again before"),
    "no host": ([lost(10), lost(None, workers=0), lost(None, workers=0, status=70)], 2, 70, 2,
                "could not be started again, as often as --max-restarts=2 allows"),
    "fewer at the end": ([lost(10), WELL._replace(workers=1)], 3, 0, 1, "to its end, with 1 of 2 workers; last"),
    "without restarts": ([lost(10)], 0, 137, 0, ""),
}


@pytest.mark.parametrize("name", ENDS)
def test_when_a_job_is_started_again(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    ends, most, status, count, why = ENDS[name]
    starts, woken = Starts(*ends), processes.woken_by()
    assert restarts.run(most, starts, woken) == status
    assert starts.left == []
    text = capfd.readouterr().err
    assert len(re.findall(r"^\[launcher\] restart \d of \d in 0 s, from ", text, re.MULTILINE)) == count
    assert why in text and bool(text) == bool(why), text
    assert text.count(f": {KILLED}\n") == (sum(bool(end.status) for end in ends) if why else 0)


def test_a_checkpoint_without_a_step_counts() -> None:
    assert restarts.is_beyond(Saved("best", None), Saved("best", None))
    assert not restarts.is_beyond(None, Saved("best", None))


def test_a_signal_ends_a_job_that_waits_to_be_started_again(
        monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", HANG)
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", HANG)
    here, there = socket.socketpair()
    there.send(bytes([signal.SIGCHLD, signal.SIGTERM]))
    assert restarts.run(3, Starts(lost(10)), here) == 143
    assert "the job was ended by SIGTERM before it was started again; last checkpoint: ckpt (step 10)" in \
        capfd.readouterr().err
    here.close()
    there.close()


def test_workers_say_which_checkpoints_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[tuple[str, int | None, bool]] = []

    def take(path: str, step: int | None) -> None:
        announced.append((os.path.basename(path), step, refdist.train.latest_checkpoint(tmp_path) == path))

    monkeypatch.setattr(saved, "_take", None)
    saved.hand_over(take)
    step = refdist.Variable(np.int64(7))
    checkpoint = refdist.train.Checkpoint(step=step)
    checkpoint.write(tmp_path / "rows")
    refdist.train.CheckpointManager(checkpoint, tmp_path, 2).save()
    step.assign(8)
    checkpoint.save(tmp_path / "ckpt")
    refdist.train.Checkpoint(other=step).write(tmp_path / "other")
    refdist.train.Checkpoint(step=refdist.Variable([1, 2])).write(tmp_path / "steps")
    # Only when the index names it, since a program that starts asks that.
    assert announced == [("rows", 7, False), ("ckpt-1", 7, True), ("ckpt-2", 8, True), ("other", None, False),
                         ("steps", None, False)]


def test_a_checkpoint_is_announced_before_anything_else_is_done(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[list[str]] = []
    monkeypatch.setattr(saved, "_take", lambda path, step: there.append(sorted(os.listdir(tmp_path))))
    manager = refdist.train.CheckpointManager(refdist.train.Checkpoint(step=refdist.Variable(1)), tmp_path, 1)
    manager.save()
    manager.save()
    # The old one is deleted later: a worker that is lost meanwhile has saved the new one.
    assert [name.split(".")[0] for name in there[1]] == ["checkpoint", "ckpt-1", "ckpt-2"], there
    manager.checkpoint.save(tmp_path / "ckpt")
    assert len(there) == 3


# In processes.

def launch(*arguments: object, most: int = 3, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program of `restarted`, which may be started again."""
    return subprocess.run(command(most, *arguments), env=surroundings(**environment), capture_output=True, text=True,
                          timeout=HANG)


def command(most: int, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "refdist", "launch", "--max-restarts", str(most), "-n", "2", PROGRAM,
            *map(str, arguments)]


def surroundings(**environment: str) -> dict[str, str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **environment}
    variables.pop("TF_CONFIG", None)
    return variables


def values(folder: Path) -> list[list[Any]]:
    """What each of the two workers had at the end."""
    return [list(np.load(folder / f"values {rank}.npz").values()) for rank in range(2)]


def straight(folder: Path) -> list[list[Any]]:
    """The same of a simulated run in which nothing is lost."""
    folder.mkdir()
    return refdist.simulate_workers(lambda: restarted.train(folder, set()), 2)


def becomes(has_come: Callable[[], object]) -> None:
    until = time.monotonic() + HANG
    while not has_come():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_job_that_loses_workers_ends_with_the_bits_of_one_that_does_not(tmp_path: Path) -> None:
    done = launch(tmp_path, 9, 18)
    assert done.returncode == 0, done.stderr
    assert "Look at what the workers that died printed last.\n" in done.stderr
    assert "--max-restarts" not in done.stderr, "it is started again already"
    for real, simulated in zip(values(tmp_path), straight(tmp_path / "straight"), strict=True):
        for value, other in zip(real, simulated, strict=True):
            np.testing.assert_array_equal(value, other, strict=True)
    _, _, read, step, _ = values(tmp_path)[0]
    assert read.tolist() == [restarted.EPOCHS] * restarted.ROWS and step == restarted.STEPS
    lines = [line for line in done.stderr.splitlines() if line.startswith("[launcher] ")]
    folder = re.escape(str(tmp_path / "checkpoints"))
    for line, pattern in zip(lines, [
            rf"restart 1 of 3 in 1 s, from {folder}/ckpt-2 \(step 8\)",
            rf"restart 2 of 3 in 2 s, from {folder}/ckpt-4 \(step 16\)",
            rf"after [\d.]+ s and 2 restarts the job came to its end; last checkpoint: {folder}/ckpt-7 \(step 28\)",
            rf"lost after [\d.]+ s, at \d\d:\d\d:\d\d, with {folder}/ckpt-2 \(step 8\): {re.escape(KILLED)}",
            rf"lost after [\d.]+ s, at \d\d:\d\d:\d\d, with {folder}/ckpt-4 \(step 16\): {re.escape(KILLED)}",
    ], strict=True):
        assert re.fullmatch(rf"\[launcher\] {pattern}", line), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "status", "line"), [
    ("RAISE", 70, "[worker 1] KeyError: 'the rows of May are missing'"),
    ("EXIT", 4, "[worker 1] ended with exit status 4 before the end of its program, as by os._exit or exit() in C"),
])
def test_a_fault_that_repeats_at_the_same_step_stops_the_job(
        fault: str, status: int, line: str, tmp_path: Path) -> None:
    # The steps 9 and 10 come after the same checkpoint, of step 8.
    done = launch(tmp_path, 9, 10, FAULT=fault)
    assert done.returncode == status, done.stderr
    assert "the job failed again before it had saved a checkpoint, and is not started any more" in done.stderr
    assert done.stderr.count(f"ckpt-2 (step 8): {line}\n") == 2, done.stderr


@pytest.mark.slow
def test_a_job_that_is_told_to_end_is_not_started_again(tmp_path: Path) -> None:
    with subprocess.Popen(command(3, tmp_path), env=surroundings(PAUSE="0.5"), stderr=subprocess.PIPE,
                          text=True) as job:
        becomes(lambda: all((tmp_path / f"step {rank}").exists() for rank in range(2)))
        job.send_signal(signal.SIGTERM)
        text = job.communicate(timeout=HANG)[1]
    assert job.returncode == 143 and " restart " not in text.replace("restarts", ""), text
    assert "the job was told to end; last checkpoint: none" in text


@pytest.mark.slow
def test_a_worker_that_is_preempted_loses_no_step(tmp_path: Path) -> None:
    done = launch(tmp_path, 9, FAULT="PREEMPT")
    assert done.returncode == 0, done.stderr
    assert f"restart 1 of 3 in 1 s, from {tmp_path / 'checkpoints' / 'ckpt-3'} (step 9)" in done.stderr
    assert ": [worker 0] ended with exit status 42\n" in done.stderr or \
        ": [worker 1] ended with exit status 42\n" in done.stderr, done.stderr
    for value, other in zip(values(tmp_path)[1], straight(tmp_path / "straight")[1], strict=True):
        np.testing.assert_array_equal(value, other, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mpiexec", "proxy", "supervisor"])
def test_a_process_above_the_workers_may_be_lost(kind: str, tmp_path: Path) -> None:
    with subprocess.Popen(command(3, tmp_path), env=surroundings(PAUSE="0.1"), stderr=subprocess.PIPE,
                          text=True) as job:
        becomes(lambda: refdist.train.latest_checkpoint(tmp_path / "checkpoints"))
        processes.kill(kills.tree(job.pid)[kind][0])
        text = job.communicate(timeout=HANG)[1]
    assert job.returncode == 0, text
    assert re.search(r"1 restart the job came to its end.*\n\[launcher\] lost after .*: \[launcher\] .* "
                     r"\(process \d+\)", text), text
    for value, other in zip(values(tmp_path)[0], straight(tmp_path / "straight")[0], strict=True):
        np.testing.assert_array_equal(value, other, strict=True)


@pytest.mark.slow
def test_random_processes_are_killed_at_random_moments() -> None:
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("restart_kills.py")), "--runs", "2", "--seed",
                           "2"], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
