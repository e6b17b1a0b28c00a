"""Workers on several hosts, which are network namespaces of this machine.

Needs root and `ip`; elsewhere the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from limits import HANG
from namespaces import OFI, UCX, Namespaces, ip, openmpi
from test_workers import HERE, NAMES, PROGRAMS, ROOT, equal

import refdist

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("machine")]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: Any) -> Iterator[Namespaces]:
    namespaces = Namespaces(3, tmp_path_factory.mktemp("hosts"))
    why = namespaces.why_not()
    if why is not None:
        pytest.skip(why)
    yield namespaces
    namespaces.remove()


def variables(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **UCX, **more}


def on_hosts(hosts: Namespaces, ranks: str, *arguments: str, **environment: str) -> Any:
    return subprocess.run(hosts.command(ranks, f"{sys.executable} {' '.join(arguments)}"), env=variables(**environment),
                          cwd=ROOT, capture_output=True, text=True, timeout=HANG)


SUMS = ["sums", "large_sums", "many_large_sums", "mixed_nest"]


@pytest.mark.parametrize(("ranks", "names"), [("1,1,1", NAMES), ("2,2", NAMES), ("1,3,2", SUMS), ("4,1", SUMS)])
def test_hosts_give_the_bits_of_simulated_workers(hosts: Namespaces, tmp_path: Path, ranks: str,
                                                  names: list[str]) -> None:
    done = on_hosts(hosts, ranks, str(HERE / "under_mpi.py"), str(tmp_path), *names)
    assert done.returncode == 0, done.stderr
    workers = sum(map(int, ranks.split(",")))
    for name in names:
        simulated = refdist.simulate_workers(getattr(PROGRAMS, name), workers)
        real = [pickle.loads((tmp_path / f"{name}.{rank}").read_bytes()) for rank in range(workers)]
        assert equal(simulated, real), name


LONG = "600"  # seconds; more than HANG, so that a test fails where nothing but a limit ends a wait
# What goes wrong with worker 1: how long the others wait for it, the exit status of the job, what is said of it, and
# what the others say.
MISSED = r"\[worker {n}\] .*\[RD01\] all_reduce \(.*\): {why}:"
LINE = r"\[worker {n}\]   worker 1 on {host} \(process \d+\) {state}"
ROWS = {
    "kill": (LONG, 137, r"\[worker 1\] was killed by SIGKILL", "worker 1 died", "is dead"),
    "segv": (LONG, 139, r"\[worker 1\] was killed by SIGSEGV", "worker 1 died", "is dead"),
    "os._exit": (LONG, 4, r"\[worker 1\] ended with exit status 4 before the end", "worker 1 died", "is dead"),
    "stuck": (LONG, 137, r"\[worker 1\] was killed by SIGKILL", "worker 1 died", "is dead"),
    "stop": ("3", 70, "", "not all workers arrived within 3 s", "does not answer"),
    "linger": ("3", 70, "", "not all workers arrived within 3 s", r"is elsewhere .* was 1: all_reduce \(.*\)"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_the_other_hosts_say_what_has_become_of_a_worker(hosts: Namespaces, kind: str) -> None:
    seconds, status, once, why, state = ROWS[kind]
    if openmpi():  # which needs no supervisor
        once = ""
    # A death is told long before the limit, which is longer than this test waits.
    done = on_hosts(hosts, "1,1,1", str(HERE / "faults.py"), kind, "1", SECONDS=seconds, **OFI)
    if not openmpi():  # which may return 0 when it tolerates faults
        assert done.returncode == status, done.stderr
    assert "came through" not in done.stdout
    assert re.search(once, done.stderr), done.stderr
    lines = [[re.search(line.format(n=n, why=why, host=hosts.names[1], state=state), done.stderr)
              for line in (MISSED, LINE)] for n in (0, 2)]
    zero, two = map(all, lines)
    # The first that reports a death may end the other one, unless that is worker 2, which is stuck, and late.
    assert two if kind == "stuck" and not openmpi() else (zero or two if "died" in why else zero and two), done.stderr


def test_hosts_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    if openmpi():
        pytest.skip("OpenMPI's mpiexec takes them for one")
    alike = Namespaces(2, tmp_path, alike=True)
    if (why := alike.why_not()) is not None:
        pytest.skip(why)
    try:
        done = on_hosts(alike, "1,1", str(HERE / "faults.py"), "kill", "1", SECONDS=LONG, **OFI)
    finally:
        alike.remove()
    assert done.returncode == 137, done.stderr
    assert re.search(MISSED.format(n=0, why="worker 1 died"), done.stderr), done.stderr
    assert re.search(LINE.format(n=0, host="copy", state="is dead"), done.stderr), done.stderr


@pytest.mark.parametrize(("kind", "victim", "status"), [("os._exit", 1, 4), ("os._exit 0", 2, 70), ("kill", 0, 137)])
def test_the_status_is_that_of_the_lost_worker_whichever_host_ends_first(hosts: Namespaces, kind: str, victim: int,
                                                                         status: int) -> None:
    if openmpi():
        pytest.skip("OpenMPI's mpiexec may return 0 when it tolerates faults")
    done = on_hosts(hosts, "2,2", str(HERE / "faults.py"), f"'{kind}'", str(victim), SECONDS=LONG, **OFI)
    assert done.returncode == status, done.stderr
    assert re.search(rf"^\[workers? [\d, -]+\] .*\[RD01\] all_reduce .*: worker {victim} died:", done.stderr, re.M)


# What goes wrong with worker 1, and what is said at least once; MPICH ends all at once when a supervisor dies, and may
# do so when it has lost the proxy of a host.
ENDS = {
    "raise": r"\[worker 1\] KeyError: 'the rows of May are missing'",
    "return": r"\[RD02\] .*worker 1 at the end of the program",
    # The first of the two whose limit has passed may end the other one.
    "early absent": r"\[workers? (0|2|0, 2)\] \[RD01\] starting: not all workers arrived within 6 s",
    "supervisor": "",
    "proxy": r"\[launcher\] hydra_pmi_proxy \(process \d+\) died",
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_job_on_several_hosts_ends(hosts: Namespaces, kind: str) -> None:
    if kind in ("supervisor", "proxy") and openmpi():
        pytest.skip(f"there is no {kind} under OpenMPI")
    seconds = "6" if kind == "early absent" else "60"  # where all have to start, they may take their time
    done = on_hosts(hosts, "1,1,1", str(HERE / "faults.py"), f"'{kind}'", "1", REFDIST_TIMEOUT=seconds, **OFI)
    assert done.returncode != 0 or openmpi()  # which may return 0 when it tolerates faults
    assert "came through" not in done.stdout
    assert re.search(ENDS[kind], done.stderr), done.stderr


def test_a_link_that_is_cut_is_seen_from_both_ends(hosts: Namespaces, tmp_path: Path) -> None:
    cut = tmp_path / "cut.py"
    cut.write_text("import subprocess, refdist\n"
                   "s = refdist.MultiWorkerMirroredStrategy()\n"
                   "def total():\n"
                   "    return s.run(lambda: refdist.get_replica_context().all_reduce('SUM', 1.0))\n"
                   "total()\n"
                   "s.extended.transport.timeout = 3.0\n"
                   "if s.extended.transport.rank == 1:\n"
                   "    subprocess.run(['ip', 'link', 'set', 'eth0', 'down'], check=True)\n"
                   "total()\n")
    expected = [rf"\[worker {survivor}\]   worker 1 on {hosts.names[1]} \(process \d+\) does not answer"
                for survivor in (0, 2)]
    text = ""
    # The launcher itself waits for the host that it cannot reach, so nothing but what the others say is waited for.
    job = subprocess.Popen(hosts.command("1,1,1", f"{sys.executable} {cut}"), env=variables(), cwd=ROOT,
                           stderr=subprocess.PIPE, text=True)
    hangs = threading.Timer(HANG, job.kill)
    hangs.start()
    try:
        while not all(re.search(pattern, text) for pattern in expected) and (line := job.stderr.readline()):
            text += line
    finally:
        hangs.cancel()
        job.kill()
        job.wait()
        ip("-n", hosts.names[1], "link", "set", "eth0", "up")
    assert all(re.search(pattern, text) for pattern in expected), text
