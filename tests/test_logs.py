"""What workers print, with labels and in files: `refdist launch --label --log-dir FOLDER`."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limits import HANG

from refdist import __main__ as command
from refdist.backends.mpi import logs
from refdist.workers.launcher import Task

ROOT = Path(__file__).parents[1]
WORKER = Task("worker", 1)


def printed(folder: str, label: bool, out: bytes, err: bytes, capfd: Any) -> tuple[str, str]:
    """What a worker that prints this shows."""
    passing = logs.Printed(WORKER, folder, label)
    child = os.fork()
    if child == 0:
        passing.become()
        os.write(1, out)
        os.write(2, err)
        os._exit(0)
    sources = passing.sources()
    open_ones = dict(sources)
    while open_ones:
        for source in select.select(open_ones, [], [])[0]:
            if open_ones[source]() == b"":
                del open_ones[source]
    os.waitpid(child, 0)
    passing.drain()
    for source in sources:
        os.close(source)
    shown = capfd.readouterr()
    return shown.out, shown.err


@pytest.mark.parametrize(("out", "shown"), [
    (b"one\ntwo\n", "[worker 1] one\n[worker 1] two\n"), (b"", ""), (b"no end", "[worker 1] no end\n"),
    (b"\n", "[worker 1] \n"), (b"\xff\n", "[worker 1] \ufffd\n"), (b"x" * 70000, None)])
def test_each_line_gets_a_label(out: bytes, shown: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    passed, errors = printed("", True, out, b"late\n", capfd)
    assert errors == "[worker 1] late\n"
    assert passed == shown if shown is not None else passed.count("x") == len(out)


def test_files_have_what_was_printed_and_what_was_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert printed(str(tmp_path), False, b"one\nno end", b"two\n", capfd) == ("one\nno end", "two\n")
    assert (tmp_path / "worker-1" / "stdout.log").read_bytes() == b"one\nno end"
    logs.Printed(WORKER, str(tmp_path), False).keep("was killed by SIGKILL")
    assert (tmp_path / "worker-1" / "stderr.log").read_text() == "two\n[worker 1] was killed by SIGKILL\n"


def test_without_the_options_nobody_stands_between() -> None:
    assert logs.printed(WORKER, {}) is None


def test_each_start_has_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "attempt_7x").touch()
    names = [os.path.basename(logs.attempt(str(tmp_path / "new"))) for _ in range(3)]
    assert names == ["attempt_0", "attempt_1", "attempt_2"]
    assert logs.attempt(str(tmp_path)).endswith("attempt_0")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_time_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["launch", f"--timeout={seconds}", __file__])
    assert "write a number of seconds above 0" in capsys.readouterr().err


PROGRAM = """
import os, sys, refdist
from pathlib import Path
print("begins, and waits", os.environ["REFDIST_TIMEOUT"])
strategy = refdist.MultiWorkerMirroredStrategy()
rank, again = strategy.cluster_resolver.task_id, Path(sys.argv[1]) / "lost"
strategy.reduce("SUM", strategy.run(lambda: refdist.constant(1.0)), axis=None)
if rank == 1 and not again.exists():
    again.touch()
    print("is about to be lost")
    os._exit(4)
strategy.reduce("SUM", strategy.run(lambda: refdist.constant(1.0)), axis=None)
print("ends", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_job_that_is_started_again_has_files_of_both_starts(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TF_CONFIG", None)
    done = subprocess.run(
        [sys.executable, "-m", "refdist", "launch", "-l", "--log-dir", "logs", "--timeout", "60", "--max-restarts", "1",
         "-n", "2", "program.py", str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=HANG)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("[worker 0] begins, and waits 60") == lines.count("[worker 1] begins, and waits 60") == 2
    assert "[worker 0] ends\n" in done.stderr and "[worker 1] ends\n" in done.stderr

    def text(start: int, worker: int, stream: str) -> str:
        return (tmp_path / "logs" / f"attempt_{start}" / f"worker-{worker}" / f"{stream}.log").read_text()
    # What a worker has not flushed is lost with it, unless it has a strategy.
    assert text(0, 1, "stdout") == "begins, and waits 60\nis about to be lost\n"
    assert "[worker 1] ended with exit status 4 before the end of its program" in text(0, 1, "stderr")
    assert "ends" not in text(0, 0, "stderr").splitlines()
    for worker in range(2):
        assert (text(1, worker, "stdout"), text(1, worker, "stderr")) == ("begins, and waits 60\n", "ends\n")


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run([sys.executable, "-m", "refdist", "launch", "--log-dir", str(tmp_path / "file"), __file__],
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 70 and f"[launcher] {tmp_path / 'file'} cannot be made: File exists\n" in done.stderr
