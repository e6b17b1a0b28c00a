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
    names = ["results", "variables", "datasets", "failures", "strategies", "threads", "schedules_meanwhile", "handlers",
             "handlers_at_each_moment", "fails_at_each_moment", "accesses_of_handlers", "interrupts",
             "interrupted_answers"]
    done = launch(2, 2, PROGRAMS, *names, FOLDER=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
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
        r"1 function waits for one; the last one was worker \d \(its process is gone\), in die \(scheduled at"]),
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


AGAIN = "[worker {}] was killed by SIGKILL; it is started again in {} s\n"
# What the program does, with --max-restarts=3, and what is printed.
RETURNS = {
    "returns": [AGAIN.format(0, 1)],
    "worker": [AGAIN.format(0, 1)],  # and the coordinator ends before it is started again
    "poison": [AGAIN.format(number, seconds) for number in (0, 1) for seconds in (1, 2)],
}


@pytest.mark.parametrize("name", RETURNS)
def test_a_lost_worker_comes_back(name: str, tmp_path: Path) -> None:
    run = uuid.uuid4().hex
    done = launch(2, 2, "--max-restarts", "3", PROGRAMS, name, REFDIST_TEST_RUN=run, PIDS=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"{name} came through\n"), done.stderr
    assert sorted(done.stderr.splitlines(keepends=True)) == sorted(RETURNS[name])
    assert left_of(run) == []


def test_a_lost_parameter_server_is_made_again_from_a_checkpoint(tmp_path: Path) -> None:
    done = launch(2, 2, "--max-restarts", "3", PROGRAMS, "restored", PIDS=str(tmp_path), FOLDER=str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "from step 0\nfrom step 5\nrestored came through\n"
    assert re.search(r"^\[launcher\] restart 1 of 3 in 1 s, from .*/ckpt-1 \(step 5\)$", done.stderr, re.MULTILINE)
    assert re.search(r"with .*/ckpt-1 \(step 5\): \[chief\] refdist.errors.UnavailableError: \[RD33\]", done.stderr)


@pytest.mark.parametrize(("second", "timeout", "says"), [
    ("raises", "60", r"\[worker 0\] Traceback (?:.*\n)+\[worker 0\] KeyError: 'the second start'\n"
                     r"\[worker 0\] ended with exit status 1"),
    ("hangs", "20", r"\[worker 0\] was not back after 20 s, and then killed"),
])
def test_a_worker_that_fails_as_it_comes_back_is_started_again(second: str, timeout: str, says: str,
                                                               tmp_path: Path) -> None:
    done = launch(2, 1, "--max-restarts", "3", PROGRAMS, "returns_late", PIDS=str(tmp_path), SECOND=second,
                  REFDIST_TIMEOUT=timeout)
    assert (done.returncode, done.stdout) == (0, "returns_late came through\n"), done.stderr
    pattern = re.escape(AGAIN.format(0, 1)) + says + r"; it is started again in 2 s\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr


def test_a_job_is_told_to_end_while_a_worker_is_to_be_started_again(tmp_path: Path) -> None:
    run = uuid.uuid4().hex
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run, "AT": str(tmp_path / "at")}
    job = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "--max-restarts", "9", "--workers", "1", "--ps",
                            "1", PROGRAMS, "workers"], env=env, cwd=ROOT, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    for line in job.stderr:
        if " 4 s" in line:  # in which the worker is not there yet
            break
    job.terminate()
    out, err = job.communicate(timeout=HANG)
    assert (job.returncode, out) == (143, "workers was here\n"), err
    # The worker is not there; its supervisor is named unless it hears first that the coordinator has ended.
    assert re.search(r"^\[chief(, worker 0)?, ps 0\] ended by SIGTERM, which the launcher passed on$", err,
                     re.MULTILINE), err
    assert left_of(run) == []


@pytest.mark.skipif(is_openmpi(), reason="OpenMPI has no supervisors under plain mpiexec")
def test_where_workers_do_not_come_back_the_job_goes_on_without_them() -> None:
    done = mpiexec(4, PROGRAMS, "worker", REFDIST_PS="1", REFDIST_MAX_RESTARTS="3")
    assert (done.returncode, done.stdout) == (0, "worker came through\n"), done.stderr
    assert re.search(KILLED.format("worker 0"), done.stderr, re.MULTILINE), done.stderr


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
@pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="its jobs have a /tmp of their own, without this checkout")
def test_a_random_task_is_killed_at_random_moments() -> None:
    done = subprocess.run([sys.executable, str(Path(PROGRAMS).with_name("served_kills.py")), "--count", "4", "--seed",
                           "1"], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
