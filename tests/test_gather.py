"""Workers that nobody has started together find each other by TF_CONFIG, and are one job of MPI."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from limits import HANG
from namespaces import OFI, Namespaces
from test_faults import is_openmpi, left_of
from test_workers import mpiexec

import refdist
from refdist.backends.mpi import gather, pmi, supervisor
from refdist.workers.launcher import Task

ROOT = Path(__file__).parents[1]
NAMES = ["worker 0", "worker 1", "worker 2"]


@pytest.fixture
def cluster() -> dict[str, str]:
    """Three workers on this host, whose socket nobody else has."""
    return {name: f"{uuid.uuid4().hex}:1" for name in NAMES}


@pytest.fixture
def server(cluster: dict[str, str]) -> Iterator[list[Any]]:
    """The address at which workers of a test meet; after the test nothing listens there."""
    address = [f"refdist.test.{uuid.uuid4().hex}"]
    gather._serve(address, "", cluster, "here")
    yield address
    with contextlib.suppress(OSError):  # where it has ended with the last of them
        connected(address, cluster, 0).socket.close()  # it ends when the first worker comes and goes
    until = time.monotonic() + HANG
    while listens(address):
        assert time.monotonic() < until
        time.sleep(0.02)


def listens(address: list[Any]) -> bool:
    with socket.socket(socket.AF_UNIX) as source:
        return source.connect_ex("\0" + address[0]) == 0


def connected(address: list[Any], cluster: Mapping[str, str], rank: int, token: str = "") -> pmi.Line:
    return gather._connected(address, token, hello(cluster, rank), "here")


def hello(cluster: Mapping[str, str], rank: int) -> dict[str, Any]:
    return {"rank": rank, "task": NAMES[rank], "cluster": dict(cluster), "host": "here", "place": "here",
            "process": 100 + rank}


def join(address: list[Any], cluster: Mapping[str, str], rank: int, seconds: float = HANG, token: str = "") -> Any:
    """The connection of a worker that waits for the others, or the text of its error."""
    try:
        return gather._joined(address, token, hello(cluster, rank), "here", seconds)
    except refdist.errors.RefdistError as error:
        return str(error)


def together(address: list[Any], cluster: Mapping[str, str], ranks: tuple[int, ...] = (0, 1, 2)) -> list[Any]:
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda rank=rank: results.update({rank: join(address, cluster, rank)}))
               for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in ranks]


def test_they_meet_and_ask_what_mpi_asks(server: list[Any], cluster: dict[str, str]) -> None:
    lines = [pmi.Line(text) for text in together(server, cluster)]

    def ask(rank: int, question: str) -> str:
        lines[rank].send(question)
        return lines[rank].receive()

    assert ask(0, "cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init")
    # As supervisors ask it, who remove the files in shared memory that have its hash in their names.
    name = supervisor._asked(lines[0].socket.fileno(), "get_my_kvsname", "kvsname")
    assert re.fullmatch(r"refdist_\w+", name)
    assert ask(1, "cmd=get_my_kvsname") == ask(2, "cmd=get_my_kvsname") == f"cmd=my_kvsname rc=0 kvsname={name}"
    assert ask(2, f"cmd=put kvsname={name} key=P2-card value=a b=c") == "cmd=put_result rc=0 msg=success"
    assert ask(1, f"cmd=get kvsname={name} key=P2-card") == "cmd=get_result rc=0 msg=success value=a b=c"
    assert ask(1, f"cmd=get kvsname={name} key=PMI_hwloc_xmlfile") == "cmd=get_result rc=-1 msg=key_not_found"
    assert ask(0, f"cmd=get kvsname={name} key=PMI_process_mapping").endswith("value=(vector,(0,1,3))")
    for line in lines:
        line.send("cmd=barrier_in")
    assert [line.receive() for line in lines] == ["cmd=barrier_out rc=0"] * 3
    assert [ask(rank, "cmd=finalize") for rank in range(3)] == ["cmd=finalize_ack rc=0"] * 3
    for line in lines:
        line.socket.close()


def test_one_that_leaves_before_all_have_started_mpi_ends_the_others(
        server: list[Any], cluster: dict[str, str]) -> None:
    lines = [pmi.Line(text) for text in together(server, cluster)]
    lines[0].send("cmd=barrier_in")
    lines[1].socket.close()
    assert [lines[0].receive(), lines[2].receive()] == ["", ""]
    lines[0].socket.close()
    lines[2].socket.close()


def test_a_worker_may_wait_longer_for_the_others_than_for_an_answer(
        cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    server, (here, there) = pmi.Server(socket.socket(), "", cluster), socket.socketpair()
    here.settimeout(0.01)  # as for what it says when it connects
    looks = iter([False, False, False, True])
    monkeypatch.setattr(server._changed, "wait_for", lambda ready, seconds: next(looks))
    server._wait(1, pmi.Line(here))
    assert not list(looks)
    there.close()
    looks = iter([False])
    with pytest.raises(ConnectionError):
        server._wait(1, pmi.Line(here))
    here.close()


def test_processes_of_several_hosts_are_mapped_in_runs(cluster: dict[str, str]) -> None:
    made = pmi.Server(socket.socket(), "", cluster)
    made._places = {0: "one", 1: "two", 2: "two"}
    assert made._mapping() == "(vector,(0,1,1),(1,1,2))"
    made._places = {0: "one", 1: "two", 2: "one"}
    assert made._mapping() == "(vector,(0,1,1),(1,1,1),(0,1,1))"


def test_workers_with_different_clusters_are_told_both(server: list[Any], cluster: dict[str, str]) -> None:
    other = dict(list(cluster.items())[:2])
    says = join(server, other, 1)
    assert says.startswith("[RD17] starting with TF_CONFIG: worker 0 has the cluster ") and json.dumps(other) in says


def test_a_task_is_there_once_but_may_come_again(server: list[Any], cluster: dict[str, str]) -> None:
    waits = connected(server, cluster, 1)
    assert json.loads(waits.receive()) == {"missing": ["worker 0", "worker 2"]}
    assert "worker 1 is there already: process 101 on here" in join(server, cluster, 1)
    with pytest.raises(refdist.errors.RefdistError, match=r"RD17.* this is worker 0, and it cannot listen at here: "
                       r"Address already in use.* a task of its own"):
        gather._serve(server, "", cluster, "here")
    waits.socket.close()
    until = time.monotonic() + HANG
    while isinstance(again := join(server, cluster, 1, 0.2), str) and "is there already" in again:
        assert time.monotonic() < until
    assert "worker 1 has waited for worker 0, worker 2 at here" in again


def test_one_that_is_gone_does_not_keep_others_out(server: list[Any], cluster: dict[str, str]) -> None:
    for _ in range(20):
        connected(server, cluster, 1).socket.close()
    until = time.monotonic() + HANG
    while isinstance(waits := join(server, cluster, 2, 0.2), str) and "waited for worker 0, worker 1 at" not in waits:
        assert time.monotonic() < until


def test_nothing_stays_when_the_first_worker_ends_before_it_has_come(cluster: dict[str, str]) -> None:
    address = [f"refdist.test.{uuid.uuid4().hex}"]
    code = ("import sys; from refdist.backends.mpi import gather; "
            f"gather._serve({address!r}, '', {cluster!r}, 'here'); print('there', flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdin is not None and first.stdout.readline() == "there\n"
        assert listens(address)
        first.kill()
    until = time.monotonic() + HANG
    while listens(address):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_those_who_do_not_come_are_named(server: list[Any], cluster: dict[str, str]) -> None:
    says = join(server, cluster, 2, 0.3)
    assert re.match(r"\[RD01\] starting with TF_CONFIG: not all workers arrived within 0\.3 s; worker 2 has waited for "
                    r"worker 0, worker 1 at here\. .*REFDIST_TIMEOUT", says)
    nowhere = join([f"refdist.test.{uuid.uuid4().hex}"], cluster, 2, 0.3)
    assert "worker 2 has waited for worker 0 at here: Connection refused" in nowhere


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_strangers_are_neither_believed_nor_waited_for(cluster: dict[str, str]) -> None:
    address = ["127.0.0.1", free_port()]
    gather._serve(address, "secret", cluster, "here")
    silent = socket.create_connection(("127.0.0.1", address[1]))
    noise = socket.create_connection(("127.0.0.1", address[1]))
    noise.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"x" * 5000 + b"\n")
    says = join(address, cluster, 1, token="guessed")
    assert "[RD17]" in says and "does not know the token of this worker" in says
    results: list[Any] = []
    threads = [threading.Thread(target=lambda rank=rank: results.append(join(address, cluster, rank, token="secret")))
               for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(result, socket.socket) for result in results), results
    for connection in (*results, silent, noise):
        connection.close()


TWO = {Task("worker", 0): "one:2222", Task("worker", 1): "two:2222"}


@pytest.mark.skipif(is_openmpi(), reason="it says something else first")
@pytest.mark.parametrize(("tasks", "token", "says"), [
    (TWO, "", r"workers are on several hosts, and REFDIST_TOKEN is not set.*`openssl rand -hex 16`"),
    ({Task("worker", 0): "one", Task("worker", 1): "two:1"}, "x", "address is 'one', at which nothing can listen"),
    ({Task("worker", 0): "one:0", Task("worker", 1): "two:1"}, "x", "address is 'one:0', at which nothing can listen"),
    (TWO, "x", "this is worker 0, and it cannot listen at one:2222: "),
])
def test_what_cannot_start(tasks: dict[Task, str], token: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFDIST_TOKEN", token)
    with pytest.raises(refdist.errors.RefdistError, match=rf"RD17\] starting with TF_CONFIG: .*{says}"):
        gather.gather(0, tasks, 5.0)


@pytest.mark.skipif(is_openmpi(), reason="it says something else first")
def test_a_first_worker_without_an_address_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REFDIST_TOKEN", "x")
    monkeypatch.setattr(gather, "_SPEAK", 0.0)
    tasks = {Task("worker", 0): "nowhere.invalid:2222", Task("worker", 1): "two:2222"}
    with pytest.raises(refdist.errors.RefdistError, match=r"RD01.*waited for worker 0 at nowhere\.invalid:2222: \w+"):
        gather.gather(1, tasks, 1.0)
    assert re.fullmatch(r"\[worker 1\] waits for worker 0 at nowhere\.invalid:2222: \w+.*\n", capsys.readouterr().err)


def test_openmpi_is_started_by_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "is_openmpi", lambda _: True)
    monkeypatch.setattr(gather, "mpiexec", lambda: "/opt/bin/mpiexec")
    monkeypatch.setattr(sys, "argv", ["train.py", "--run", "May 1"])
    with pytest.raises(refdist.errors.RefdistError, match=r"RD27.*OpenMPI.*`mpiexec --with-ft ulfm -n 2 --host "
                       r"one:1,two:1 python train\.py --run 'May 1'` once, without TF_CONFIG"):
        gather.gather(1, TWO, 5.0)
    assert gather.command("mpiexec", ["localhost:1"] * 2) == "mpiexec --with-ft ulfm -n 2 python train.py --run 'May 1'"


# In processes: the start of TensorFlow's tutorial.

PROGRAM = """
import json, os, sys
import numpy as np
import refdist
strategy = refdist.MultiWorkerMirroredStrategy()
config = json.loads(os.environ["TF_CONFIG"])
def step():
    return refdist.get_replica_context().all_reduce("SUM", np.ones(100_000))[0]
total = strategy.run(step)
if "--kill" in sys.argv and config["task"] == {"type": "worker", "index": 1}:
    os.kill(os.getpid(), 9)
strategy.run(step)
print(config["task"]["type"], config["task"]["index"], total, strategy.num_replicas_in_sync)
"""


def shell(script: Path, cluster: dict[str, list[str]], job: str, index: int, *words: str,
          before: Sequence[str] = (), command: Sequence[str] = (), **environment: str) -> Any:
    config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", "TF_CONFIG": config, **environment}
    return subprocess.Popen([*before, sys.executable, *command, str(script), *words], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "main.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.slow
@pytest.mark.skipif(is_openmpi(), reason="its processes cannot be started so")
@pytest.mark.parametrize(("cluster", "command"), [
    ({"worker": 2}, ()), ({"chief": 1, "worker": 2}, ()), ({"worker": 2}, ("-m", "refdist", "run"))])
def test_n_shells_are_one_job(cluster: dict[str, int], command: Sequence[str], script: Path) -> None:
    run = uuid.uuid4().hex
    ports = itertools.count(20000 + int(run[:4], 16) % 30000)
    addresses = {job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in cluster.items()}
    jobs = [(job, i) for job, count in cluster.items() for i in range(count)]
    # The first one comes last.
    shells = [shell(script, addresses, job, i, command=command, REFDIST_TEST_RUN=run) for job, i in reversed(jobs)]
    printed = [process.communicate(timeout=HANG) for process in shells]
    assert [process.returncode for process in shells] == [0] * len(jobs), printed
    assert printed == [(f"{job} {i} {len(jobs):.1f} {len(jobs)}\n", "") for job, i in reversed(jobs)]
    assert left_of(run) == []


@pytest.mark.parametrize(("words", "environment", "says"), [
    ((), {"TF_CONFIG": "{"}, r"RD17\] environment variable TF_CONFIG, line 1"),
    (("--record", "a.jsonl"), {}, r"TF_CONFIG says that this is one of several processes; write REFDIST_RECORD=FILE"),
])
def test_run_reads_tf_config(words: Sequence[str], environment: dict[str, str], says: str, script: Path) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    process = shell(script, cluster, "worker", 1, command=("-m", "refdist", "run", *words), **environment)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode in (1, 2), out) == (True, ""), err
    assert re.search(says, err), err


def test_a_number_of_workers_is_simulated_whatever_tf_config_has(script: Path) -> None:
    process = shell(script, {"worker": ["localhost:1", "localhost:2"]}, "worker", 1,
                    command=("-m", "refdist", "run", "--workers", "3"))
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out, err) == (0, "".join(f"worker {i} 3.0 3\n" for i in range(3)), "")


@pytest.mark.slow
def test_run_under_mpiexec_is_one_job(script: Path) -> None:
    done = mpiexec(2, "-m", "refdist", "run", str(script))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["worker 0 2.0 2", "worker 1 2.0 2"]


@pytest.mark.slow
@pytest.mark.skipif(is_openmpi(), reason="its processes cannot be started so")
def test_a_lost_worker_is_named_in_each_shell(script: Path) -> None:
    run = uuid.uuid4().hex
    cluster = {"worker": [f"localhost:{20000 + int(run[:4], 16) % 30000}", "localhost:1"]}
    shells = [shell(script, cluster, "worker", i, "--kill", REFDIST_TEST_RUN=run) for i in range(2)]
    printed = [process.communicate(timeout=HANG)[1] for process in shells]
    assert [process.returncode for process in shells] == [70, 137], printed
    assert "worker 1 died" in printed[0] and printed[1] == "[worker 1] was killed by SIGKILL\n"
    assert left_of(run) == []


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
@pytest.mark.skipif(is_openmpi(), reason="its processes cannot be started so")
def test_shells_on_several_hosts_are_one_job(script: Path, tmp_path: Path) -> None:
    hosts = Namespaces(2, tmp_path)
    if (why := hosts.why_not()) is not None:
        pytest.skip(why)
    try:
        cluster = {"worker": [f"{name}:12345" for name in hosts.names]}
        shells = [shell(script, cluster, "worker", i, before=hosts.inside(name), REFDIST_TOKEN="secret", **OFI)
                  for i, name in enumerate(hosts.names)]
        printed = [process.communicate(timeout=HANG) for process in shells]
        assert [process.returncode for process in shells] == [0, 0], printed
        assert [out for out, _ in printed] == [f"worker {i} 2.0 2\n" for i in range(2)]
    finally:
        hosts.remove()
