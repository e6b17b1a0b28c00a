"""Workers on several hosts: network namespaces of this machine, with a bridge between them.

Needs root and `ip`; elsewhere the tests are skipped, and say so.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_workers import HERE, NAMES, PROGRAMS, ROOT, equal

import refdist

pytestmark = pytest.mark.slow

# Namespaces are the machine's, and the tests may run more than once at a time.
HOSTS = [f"rfd{os.getpid()}{letter}" for letter in "abc"]
HEAD = f"rfd{os.getpid()}h"
# With its other transport, UCX, MPICH itself can crash a survivor that sends to a process that is gone.
OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def remove() -> None:
    for name in (*HOSTS, HEAD):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


def build() -> None:
    table = f"127.0.0.1 localhost\n10.77.0.254 {HEAD}\n" + "".join(
        f"10.77.0.{i} {host}\n" for i, host in enumerate(HOSTS, 1))
    for name in (HEAD, *HOSTS):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        Path(f"/etc/netns/{name}").mkdir(parents=True, exist_ok=True)
        Path(f"/etc/netns/{name}/hosts").write_text(table)
    ip("-n", HEAD, "link", "add", "br0", "type", "bridge")
    ip("-n", HEAD, "addr", "add", "10.77.0.254/24", "dev", "br0")
    ip("-n", HEAD, "link", "set", "br0", "up")
    for i, host in enumerate(HOSTS, 1):
        ip("-n", HEAD, "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("-n", HEAD, "link", "set", f"v{host}", "master", "br0", "up")
        ip("-n", host, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: Any) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces need root, `ip` and `unshare`")
    remove()
    try:
        build()
    except (subprocess.CalledProcessError, OSError) as error:
        remove()
        pytest.skip(f"this machine gives no network namespaces: {getattr(error, 'stderr', error)}")
    folder = tmp_path_factory.mktemp("hosts")
    # What the launcher calls instead of ssh: options, the host, then a quoted command.
    enter = folder / "enter"
    enter.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                     'exec ip netns exec $host unshare --uts --ipc sh -c "hostname $host; exec $*"\n')
    enter.chmod(0o755)
    yield folder
    remove()


def on_hosts(folder: Path, workers: int, per_host: int, *arguments: str, **environment: str) -> Any:
    launcher = Path(sysconfig.get_path("scripts")) / "mpiexec"
    inner = (f"hostname {HEAD}; exec {launcher} -launcher ssh -launcher-exec {folder / 'enter'} -hosts "
             f"{','.join(HOSTS[:workers // per_host])} -iface br0 -n {workers} -ppn {per_host} "
             f"{sys.executable} {' '.join(arguments)}")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0",
           "REFDIST_TIMEOUT": "60", **environment}
    return subprocess.run(["ip", "netns", "exec", HEAD, "unshare", "--uts", "sh", "-c", inner], env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("workers", "per_host"), [(3, 1), (4, 2)])
def test_hosts_give_the_bits_of_simulated_workers(hosts: Path, tmp_path: Path, workers: int, per_host: int) -> None:
    done = on_hosts(hosts, workers, per_host, str(HERE / "under_mpi.py"), str(tmp_path), *NAMES)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        simulated = refdist.simulate_workers(getattr(PROGRAMS, name), workers)
        real = [pickle.loads((tmp_path / f"{name}.{rank}").read_bytes()) for rank in range(workers)]
        assert equal(simulated, real), name


def test_a_worker_that_is_killed_on_another_host_is_named(hosts: Path) -> None:
    done = on_hosts(hosts, 3, 1, str(HERE / "faults.py"), "kill", "1", SECONDS="3", **OFI)
    assert done.returncode != 0
    # Of two survivors one may be stuck in the MPI library, which then is ended by the other.
    line = rf"\[worker [02]\]   worker 1 on {HOSTS[1]} \(process \d+\) does not answer"
    assert re.search(line, done.stderr), done.stderr


def test_a_link_that_is_cut_is_seen_from_both_ends(hosts: Path) -> None:
    cut = hosts / "cut.py"
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
        done = on_hosts(hosts, 3, 1, str(cut))
        text = done.stderr
    except subprocess.TimeoutExpired as late:
        # The launcher itself waits for the host that it cannot reach; the others have spoken.
        text = (late.stderr or b"").decode()
    finally:
        ip("-n", HOSTS[1], "link", "set", "eth0", "up")
    for survivor in (0, 2):
        assert re.search(rf"\[worker {survivor}\]   worker 1 on {HOSTS[1]} \(process \d+\) does not answer", text), text
