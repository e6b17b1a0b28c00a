"""On which hosts the launch command starts a job, and what it does when one of them is gone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG
from namespaces import Namespaces, openmpi
from workers import restarted

from refdist import __main__ as command
from refdist.backends.mpi import hosts
from refdist.backends.mpi.hosts import Host

ROOT = Path(__file__).parents[1]
PROGRAM = str(ROOT / "tests" / "workers" / "restarted.py")
SERVED = str(ROOT / "tests" / "workers" / "served.py")


@pytest.mark.parametrize(("nodes", "tasks", "expected"), [
    ("tux[1-3]", "2(x3)", ["tux1:2", "tux2:2", "tux3:2"]),
    ("tux[08-10,12]", "1(x4)", ["tux08:1", "tux09:1", "tux10:1", "tux12:1"]),
    ("a,b[1-2],c", "2,1(x2),4", ["a:2", "b1:1", "b2:1", "c:4"]),
    ("rack[0-1]n[07-08]", "1(x4)", ["rack0n07:1", "rack0n08:1", "rack1n07:1", "rack1n08:1"]),
    ("one,two", None, ["one:1", "two:1"]),
    ("one", "4", []),  # which mpiexec finds by itself
    (None, None, []),
])
def test_slurms_lists_are_read(nodes: str | None, tasks: str | None, expected: list[str]) -> None:
    pairs = {"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks}
    parsed = hosts.of_slurm({name: value for name, value in pairs.items() if value is not None})
    assert list(map(str, parsed)) == expected


@pytest.mark.parametrize(("nodes", "tasks", "says"), [
    ("tux[1-3", "2(x3)", "tux"), ("tux[x-y],b", "1(x2)", r"tux\[x-y\]"), ("one,two", "1(y2)", r"1\(y2\)"),
    ("one,two", "1(x3)", "2 hosts, and SLURM_TASKS_PER_NODE numbers for 3"),
])
def test_what_is_no_list_of_slurm_is_named(nodes: str, tasks: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        hosts.of_slurm({"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks})


@pytest.mark.parametrize("text", ["", "one:0", "one,one", "one:two", "one two"])
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        hosts.of_list(text)


def test_the_first_hosts_are_filled_first() -> None:
    listed = [Host("one", 2), Host("two", 2), Host("three", 2)]
    assert hosts.placed(listed, 5) == [Host("one", 2), Host("two", 2), Host("three", 1)]
    assert hosts.placed(listed, 9) == listed


# The words after `launch`, and what is started; or what is said of them.
WORDS: dict[str, tuple[list[str], Any]] = {
    "nothing": ([], {"size": 2, "fewest": 2, "listed": [], "restarts_at_most": 0}),
    "mpiexec's other word": (["-np", "3"], {"size": 3}),
    "as many as there is room": (["--hosts", "one:2,two:1"], {"size": 3, "fewest": 3, "restarts_at_most": 0}),
    "a host to spare": (["--hosts", "one:2,two:2", "-n", "2", "--max-restarts", "3", "--min-workers", "1"],
                        {"size": 2, "fewest": 1, "restarts_at_most": 3}),
    "no room": (["--hosts", "one:2", "-n", "3"], "the hosts one:2 have room for 2 processes, and 3 are wanted"),
    "no workers": (["-n", "0"], "-n is 0; write how many workers are started, 1 or more"),
    "fewer than none": (["-n", "-1"], "-n is -1; write"),
    "no workers on a host": (["--hosts", "one:2", "-n", "0"], "-n is 0; write"),
    "servers alone": (["--ps", "1", "--workers", "0"], "--workers is 0; write how many workers are started"),
    "no hosts": (["--min-workers", "1", "--max-restarts", "1"], "--min-workers needs --max-restarts and several hosts"),
    "no restarts": (["--hosts", "one,two", "--min-workers", "1"], "--min-workers needs --max-restarts"),
    "more than all": (["--hosts", "one,two", "--max-restarts", "1", "--min-workers", "3"], "write 1 to 2"),
    "servers": (["--hosts", "one:9", "--ps", "1", "--min-workers", "1", "--max-restarts", "1"], "for workers alone"),
    "two lists": (["--hosts", "one", "--hostfile", "hosts"], "write --hosts or --hostfile"),
    "no file": (["--hostfile", "/nowhere/hosts"], "/nowhere/hosts"),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_is_asked_for(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = WORDS[name]
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_: None)
    started: list[str] = []

    def execute(_: str, given: list[str]) -> None:
        started.extend(given)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    with pytest.raises(SystemExit):
        command.main(["launch", *words, PROGRAM])
    if isinstance(expected, str):
        assert expected in capsys.readouterr().err and not started
        return
    wanted = json.loads(started[started.index("launch") + 1])
    assert {name: wanted[name] for name in expected} == expected


@pytest.mark.parametrize("words", [["run", "--workers", "0"], ["run", "--replicas-per-worker", "-1"],
                                   ["compare", "--workers", "0"]], ids=" ".join)
def test_no_workers_are_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([*words, PROGRAM])
    assert f"error: {words[1]} is {words[2]}; write 1 or more" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("ssh_waits", [False, True])
def test_a_host_without_an_address_is_named(tmp_path: Path, ssh_waits: bool) -> None:
    # The worker of this host may have begun by then, and waits for the other one.
    if ssh_waits and openmpi():
        pytest.skip("OpenMPI starts nothing before it has reached all hosts")
    ssh, program, begun = tmp_path / "ssh", tmp_path / "waits.py", tmp_path / "begun"
    ssh.write_text("#!/bin/sh\n" + ssh_waits * f"until [ -e {begun} ]; do sleep 0.01; done\n" + 'exec ssh "$@"\n')
    ssh.chmod(0o755)
    program.write_text(f"open({str(begun)!r}, 'w').close()\nimport refdist\nrefdist.MultiWorkerMirroredStrategy()\n")
    done = subprocess.run(
        [sys.executable, "-m", "refdist", "launch", "--hosts", "nowhere.invalid:1,localhost:1", program], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(ssh)},
        capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 255, done.stdout
    lines = re.findall(r"^\[launcher\] .*", done.stderr, re.MULTILINE)
    assert len(lines) == 1, done.stderr
    assert re.search(r": no address is known of the host nowhere\.invalid \(.+\)\. Write names or a", lines[0]), lines


# In processes, on hosts that are network namespaces.

@pytest.fixture(scope="module")
def namespaces(tmp_path_factory: Any) -> Iterator[Namespaces]:
    hosts = Namespaces(2, tmp_path_factory.mktemp("hosts"))
    why = "OpenMPI has no options in the environment for this" if openmpi() else hosts.why_not()
    if why is not None:
        pytest.skip(why)
    yield hosts
    hosts.remove()


def launch(namespaces: Namespaces, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs the launch command on the first host."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", "HYDRA_LAUNCHER": "ssh",
           "HYDRA_LAUNCHER_EXEC": str(namespaces.enter), "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp",
           "FI_TCP_IFACE": "eth0"}
    env.pop("TF_CONFIG", None)
    return subprocess.run([*namespaces.inside(namespaces.names[0]), sys.executable, "-m", "refdist", "launch",
                           *map(str, words)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=HANG)


def read_once_each_epoch(folder: Path) -> bool:
    _, _, read, step, _ = np.load(folder / "values 0.npz").values()
    return read.tolist() == [restarted.EPOCHS] * restarted.ROWS and step == restarted.STEPS


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
def test_a_job_whose_host_is_gone_goes_on_with_fewer_workers(namespaces: Namespaces, tmp_path: Path) -> None:
    first, second = namespaces.names
    namespaces.gone(second, when=tmp_path / "fault 9")
    done = launch(namespaces, "--hosts", f"{first}:1,{second}:1", "--max-restarts", 3, "--min-workers", 1, PROGRAM,
                  tmp_path, 9)
    assert done.returncode == 0, done.stderr
    assert f"[launcher] {second} does not answer; 1 worker of 2 start on {first}:1\n" in done.stderr
    assert re.search(r"1 restart the job came to its end, with 1 of 2 workers; .*\(step 28\)", done.stderr), done.stderr
    assert read_once_each_epoch(tmp_path)


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
def test_a_lost_worker_of_a_coordinator_on_another_host_comes_back(namespaces: Namespaces) -> None:
    first, second = namespaces.names  # the coordinator is on the first one, workers and parameter server on the other
    done = launch(namespaces, "--hosts", f"{first}:1,{second}:3", "--ps", 1, "--max-restarts", 1, SERVED, "returns")
    assert (done.returncode, done.stdout) == (0, "returns came through\n"), done.stderr
    assert done.stderr == "[worker 0] was killed by SIGKILL; it is started again in 1 s\n"


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
def test_a_job_without_room_for_enough_workers_ends(namespaces: Namespaces, tmp_path: Path) -> None:
    first, second = namespaces.names
    namespaces.gone(second, when=tmp_path / "fault 9")
    done = launch(namespaces, "--hosts", f"{first}:1,{second}:1", "--max-restarts", 1, PROGRAM, tmp_path, 9)
    assert done.returncode == 70, done.stderr
    assert (f"[launcher] {second} does not answer; there is room for 1 worker, and at least 2 are needed\n"
            in done.stderr)
    assert "the job could not be started again, as often as --max-restarts=1 allows" in done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
@pytest.mark.parametrize("status", [70, 255])
def test_of_workers_that_are_all_elsewhere_their_host_alone_speaks(namespaces: Namespaces, tmp_path: Path,
                                                                   status: int) -> None:
    program = tmp_path / "fails.py"
    program.write_text(f"import sys, refdist\nrefdist.MultiWorkerMirroredStrategy()\nsys.exit({status})\n")
    done = launch(namespaces, "--hosts", f"{namespaces.names[1]}:2", program)
    assert done.returncode == status, done.stderr
    assert "workers 0-1] ended with exit status" in done.stderr
    assert "[launcher]" not in done.stderr
