"""A coordinator, workers and parameter servers that are processes: what they do, and what one takes with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from limits import HANG
from test_faults import is_openmpi, left_of
from test_workers import mpiexec

from refdist.insight import layout, load

pytest.importorskip("cloudpickle", reason="functions are sent by cloudpickle")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROGRAMS = str(ROOT / "tests" / "workers" / "served.py")
KILLED = r"^\[{}\] was killed by SIGKILL; the job goes on without it$"


def launch(workers: int, servers: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the launch command."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **environment}
    env.pop("TF_CONFIG", None)
    return subprocess.run(
        [sys.executable, "-m", "refdist", "launch", "--workers", str(workers), "--ps", str(servers), *arguments],
        env=env, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=HANG)


def test_functions_run_on_processes(tmp_path: Path) -> None:
    names = ["results", "variables", "datasets", "failures"]
    done = launch(2, 2, PROGRAMS, *names, FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{name} came through\n" for name in names)


def test_mpiexec_alone_starts_a_job_too(tmp_path: Path) -> None:
    done = mpiexec(4, PROGRAMS, "results", "joins", REFDIST_PS="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "results came through\njoins came through\n"


@pytest.mark.parametrize("start", ["launch", "mpiexec"])
def test_a_recording_has_the_functions_of_each_worker(start: str, tmp_path: Path) -> None:
    record = {"REFDIST_RECORD": str(tmp_path / "a")}
    done = launch(2, 1, PROGRAMS, "adds_and_raises", **record) if start == "launch" else mpiexec(
        4, PROGRAMS, "adds_and_raises", REFDIST_PS="1", **record)
    assert (done.returncode, done.stdout) == (0, "adds_and_raises came through\n"), done.stderr
    recording = load(tmp_path / "a")
    events = recording.events
    tasks = {event.worker: f"{event['job']} {event['task']}" for event in events if event.kind == "process"}
    scheduled = {event["scheduled"]: event["function"] for event in events if event.kind == "schedule"}
    functions = [event for event in events if event.kind == "function"]
    assert {event["scheduled"]: event["function"] for event in functions} == scheduled
    assert sorted(scheduled.values()) == ["adds"] * 4 + ["raises"]
    assert [tasks[event.worker] for event in functions] == [f"worker {event['task']}" for event in functions]
    inside = {kind: [event.parent for event in events if event.kind == kind] for kind in ("return", "error")}
    assert inside == {"return": [event.id for event in functions if event["function"] == "adds"],
                      "error": [event.id for event in functions if event["function"] == "raises"]}
    lanes = layout.lanes_of(layout.lane_of_each(events))
    assert layout.names_of(lanes, events) == ["chief", "worker 0", "worker 1"]


# What the program does, the exit status of the job, and what is printed.
FAULTS = {
    "worker": (0, [KILLED.format("worker 0")]),
    "server": (0, [KILLED.format("ps 1")]),
    "workers": (70, [
        r"^\[chief\] refdist.errors.UnavailableError: \[RD33\] ClusterCoordinator.join: no worker is left of 2, and "
        r"1 functions wait for one; the last one was worker \d \(its process is gone\), in die \(scheduled at"]),
    "chief": (137, [r"^\[chief\] was killed by SIGKILL$"]),
    "exits": (3, [r"^\[chief\] ended with exit status 3$"]),
    "stops": (0, []),
    "leaves": (0, [r"^\[workers? [01-]+\] ended with exit status 5; the job goes on without (it|them)$"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_task_is_lost(name: str, tmp_path: Path) -> None:
    status, says = FAULTS[name]
    run = uuid.uuid4().hex
    done = launch(2, 2, PROGRAMS, name, REFDIST_TEST_RUN=run, PIDS=str(tmp_path))
    assert done.returncode == status, done.stderr
    for pattern in says:
        assert len(re.findall(pattern, done.stderr, re.MULTILINE)) == 1, f"{pattern} in\n{done.stderr}"
    if not says:
        assert done.stderr == ""
    assert done.stdout == f"{name} {'came through' if status == 0 else 'was here'}\n"
    assert left_of(run) == []


@pytest.mark.parametrize(("options", "status", "says"), [
    (["-n", "3", "--ps", "1"], 2, "write -n for workers alone, or --workers and --ps"),
    (["--workers", "3"], 2, "write -n for workers alone, or --workers and --ps"),
    (["--workers", "1", "--ps", "-1"], 2, "write -n for workers alone, or --workers and --ps"),
])
def test_the_launch_command_wants_one_kind_of_job(options: list[str], status: int, says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "refdist", "launch", *options, PROGRAMS], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=HANG)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr


@pytest.mark.skipif(is_openmpi(), reason="OpenMPI ends a job at its first error")
def test_the_processes_are_the_tasks_of_the_cluster() -> None:
    done = launch(1, 1, PROGRAMS, "--other-cluster")
    assert done.returncode == 70
    assert done.stderr.count("[RD17]") == 1, done.stderr
    assert re.search(r"the processes are chief, ps 0, worker 0; the cluster has chief, ps 0, worker 0, worker 1",
                     done.stderr)
    done = mpiexec(2, PROGRAMS, "results", REFDIST_PS="2")
    assert done.returncode != 0 and "REFDIST_PS='2': the number of processes is 2" in done.stderr


@pytest.mark.skipif(is_openmpi(), reason="OpenMPI has no proxy on its own host")
def test_a_random_task_is_killed_at_random_moments() -> None:
    done = subprocess.run([sys.executable, str(Path(PROGRAMS).with_name("served_kills.py")), "--count", "4", "--seed",
                           "1"], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
