"""An uncaught error ends at the user's line; frames of refdist are shown where they are what one needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG

pytestmark = pytest.mark.slow

HEAD = """
import threading
import refdist
strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    v = refdist.Variable(1.0)
def reduce(x):
    return refdist.get_replica_context().all_reduce("SUM", x)
def mine():
    raise KeyError("mine")
"""
# A program's last line, the lines of the script that the traceback goes through, the text that it ends with.
PROGRAMS = {
    "a refusal": ('v.assign("x")', [11], "RD05"),
    "a refusal in a replica": ("strategy.run(lambda: reduce(True))", [11, 11, 8], "RD23"),
    "a mismatch": ("strategy.run(lambda: refdist.get_replica_context().replica_id_in_sync_group or reduce(1.0))",
                   [11, 11, 8], "RD01"),
    "an error of the user's own": ("strategy.run(mine)", [11, 10], "raised in replica 0 of 2 during strategy.run"),
    "an error in a merge_fn": ("strategy.run(lambda: refdist.get_replica_context().merge_call(lambda s: mine()))",
                               [11, 11, 10], "'mine'"),
    "an error in a dataset": ("list(refdist.data.Dataset.range(3).map(lambda x: mine()))", [11, 11, 10],
                              "raised in Dataset.map at element 0"),
    "a chain of errors": ("""try:
    v.assign("x")
except ValueError as error:
    raise RuntimeError("again") from error""", [12, 14], "RuntimeError: again"),
    "a thread": ("""threading.Thread(target=lambda: v.assign("x")).start()""", [11], "RD05"),
    "several workers": ("refdist.simulate_workers(lambda: strategy.run(mine), 2)", [11, 11, 10],
                        "raised in worker 0 of 2 during simulate_workers"),
}


def run(tmp_path: Path, program: str, *command: str, **environment: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(HEAD + program + "\n")
    done = subprocess.run([sys.executable, *command, script], capture_output=True, text=True, timeout=HANG,
                          env={key: value for key, value in os.environ.items() if key != "REFDIST_TRACEBACK"}
                          | environment)
    return done.stderr


def frames(stderr: str) -> list[tuple[str, int]]:
    places = re.findall(r'File "([^"]*)", line (\d+)', stderr)
    return [(os.path.basename(file), int(line)) for file, line in places if not file.endswith("threading.py")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_lines_of_the_program_are_printed(name: str, tmp_path: Path) -> None:
    program, lines, last = PROGRAMS[name]
    stderr = run(tmp_path, program)
    assert frames(stderr) == [("script.py", line) for line in lines], stderr
    assert last in "".join(stderr.strip().splitlines()[-2:]), stderr


def test_an_index_that_is_too_large_is_an_error_of_the_program_with_types_too(tmp_path: Path) -> None:
    stderr = run(tmp_path, """import numpy
strategy.run(lambda x: x[3], (numpy.ones(3),))""", REFDIST_CHECKS="types")
    assert frames(stderr) == [("script.py", 12), ("script.py", 12)], stderr


def test_everything_is_printed_when_it_is_asked_for(tmp_path: Path) -> None:
    stderr = run(tmp_path, 'v.assign("x")', REFDIST_TRACEBACK="full")
    assert {"script.py", "variable.py", "convert.py"} <= {file for file, _ in frames(stderr)}, stderr


def test_an_error_that_refdist_did_not_mean_keeps_its_frames(tmp_path: Path) -> None:
    stderr = run(tmp_path, """import refdist.array.collectives
refdist.array.collectives.signature = lambda *args: 1 / 0
refdist.array.collectives.signature.__globals__["__name__"] = "refdist.array.collectives"
strategy.run(lambda: reduce([1.0]))""")
    assert "replica_context.py" in {file for file, _ in frames(stderr)}, stderr
    internal = run(tmp_path, "raise refdist.errors.InternalError('no') if False else "
                             "refdist.core.agreement._nothing([])")
    assert "agreement.py" in {file for file, _ in frames(internal)}, internal


def test_a_script_that_is_run_as_workers_is_all_that_is_printed(tmp_path: Path) -> None:
    stderr = run(tmp_path, "mine()", "-m", "refdist", "run", "--workers", "2",
                 "--replicas-per-worker", "2")
    assert frames(stderr) == [("script.py", 11), ("script.py", 10)], stderr


def test_a_worker_that_waits_for_another_is_where_the_traceback_ends(tmp_path: Path) -> None:
    for launched in (("-m", "refdist", "run"), ()):
        called = ("program()" if launched else "refdist.simulate_workers(program, 2)")
        stderr = run(tmp_path, f"""def program():
    workers = refdist.MultiWorkerMirroredStrategy()
    if workers.cluster_resolver.task_id == 0:
        workers.run(lambda: reduce(1.0))
{called}""", *launched)
        lines = [line for _, line in frames(stderr)]
        assert lines == [15, 14, 14, 8], stderr
        assert "[RD01] simulate_workers: worker 0 at all_reduce" in stderr and f"{tmp_path}/script.py:8)" in stderr


def test_places_under_the_command_are_whole_paths_as_without_it(tmp_path: Path) -> None:
    """Python names the file of a script by its whole path, however it is called."""
    script = tmp_path / "script.py"
    script.write_text(HEAD + 'print(__file__)\nv.assign(strategy.run(lambda: reduce(None)))\n')
    runs = [subprocess.run([sys.executable, *command, "script.py"], capture_output=True, text=True, timeout=HANG,
                           cwd=tmp_path) for command in ((), ("-m", "refdist", "run", "--workers", "1"))]
    assert runs[0].stdout == runs[1].stdout == f"{script}\n"
    assert [f'File "{script}", line 12' in done.stderr for done in runs] == [True, True], runs


def test_a_caught_error_keeps_its_frames(tmp_path: Path) -> None:
    stderr = run(tmp_path, """import sys, traceback
try:
    v.assign("x")
except ValueError:
    traceback.print_exc()""")
    assert "variable.py" in {file for file, _ in frames(stderr)}


def test_a_hook_of_the_program_s_own_is_still_called(tmp_path: Path) -> None:
    stderr = run(tmp_path, """import sys
sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, file=sys.stderr)
mine()""")
    assert stderr == "hook KeyError\n"


def test_reports_of_pytest_leave_the_same_frames_out(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(HEAD + "def test_it():\n    strategy.run(lambda: reduce(True))\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_one.py"]
    clean = {key: value for key, value in os.environ.items() if key != "REFDIST_TRACEBACK"}
    shown = subprocess.run(command, capture_output=True, text=True, env=clean, cwd=tmp_path).stdout
    full = subprocess.run(command, capture_output=True, text=True, env=clean | {"REFDIST_TRACEBACK": "full"},
                          cwd=tmp_path).stdout
    assert "RD23" in shown and "replica_context.py" not in shown
    assert "replica_context.py" in full
