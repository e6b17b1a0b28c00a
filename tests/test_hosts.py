"""Workers on several hosts, which are network namespaces of this machine.

Needs root and `ip`; elsewhere the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from namespaces import OFI, UCX, Namespaces, ip
from test_workers import HERE, NAMES, PROGRAMS, ROOT, equal

import refdist

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: Any) -> Iterator[Namespaces]:
    found = Namespaces(3, tmp_path_factory.mktemp("hosts"))
    why = found.why_not()
    if why is not None:
        pytest.skip(why)
    yield found
    found.remove()


def on_hosts(hosts: Namespaces, ranks: str, *arguments: str, **environment: str) -> Any:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **UCX, **environment}
    return subprocess.run(hosts.command(ranks, f"{sys.executable} {' '.join(arguments)}"), env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("ranks", ["1,1,1", "2,2"])
def test_hosts_give_the_bits_of_simulated_workers(hosts: Namespaces, tmp_path: Path, ranks: str) -> None:
    done = on_hosts(hosts, ranks, str(HERE / "under_mpi.py"), str(tmp_path), *NAMES)
    assert done.returncode == 0, done.stderr
    workers = sum(map(int, ranks.split(",")))
    for name in NAMES:
        simulated = refdist.simulate_workers(getattr(PROGRAMS, name), workers)
        real = [pickle.loads((tmp_path / f"{name}.{rank}").read_bytes()) for rank in range(workers)]
        assert equal(simulated, real), name


def test_a_worker_that_is_killed_on_another_host_is_named(hosts: Namespaces) -> None:
    done = on_hosts(hosts, "1,1,1", str(HERE / "faults.py"), "kill", "1", SECONDS="3", **OFI)
    assert done.returncode != 0
    # Of two survivors one may be stuck in the MPI library, which then is ended by the other.
    line = rf"\[worker [02]\]   worker 1 on {hosts.names[1]} \(process \d+\) does not answer"
    assert re.search(line, done.stderr), done.stderr


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
    try:
        done = on_hosts(hosts, "1,1,1", str(cut))
        text = done.stderr
    except subprocess.TimeoutExpired as late:
        # The launcher itself waits for the host that it cannot reach; the others have spoken.
        text = (late.stderr or b"").decode()
    finally:
        ip("-n", hosts.names[1], "link", "set", "eth0", "up")
    for survivor in (0, 2):
        said = rf"\[worker {survivor}\]   worker 1 on {hosts.names[1]} \(process \d+\) does not answer"
        assert re.search(said, text), text
