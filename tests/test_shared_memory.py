"""Results in memory that processes share: nobody writes into another's, and there may be many, or too little memory."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG
from test_workers import HERE, ROOT, mpiexec, options

from refdist.backends.mpi import processes, shared_memory

SHARED = str(HERE / "shared.py")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["writes"], ["a_few_bytes"], ["forks"], ["many"], ["waits"], ["gathers"],
                                       ["of_any_size"], ["too_little"], ["too_little", "later"],
                                       ["too_little", "at_all"], ["of_any_size", "at_all"]], ids=" ".join)
def test_what_workers_do_with_results(arguments: list[str]) -> None:
    done = mpiexec(2, SHARED, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("came through") == 2


@pytest.mark.slow
def test_arrays_of_different_shapes_are_gathered_by_nobody_where_no_calls_are_compared() -> None:
    done = mpiexec(2, SHARED, "differ", REFDIST_CHECKS="off")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("came through") == 2


LAUNCHER = Path(sys.executable).with_name("mpiexec")
LAUNCH = [sys.executable, "-m", "refdist", "launch", "-n", "2"]


def with_shared_memory(before: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in which /dev/shm is as what the shell does before has made it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a /dev/shm of its own needs root and `unshare`")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60"}
    options(LAUNCHER, env)
    done = subprocess.run(["unshare", "-m", "sh", "-c", f"{{ {before}; }} || exit 77; exec \"$@\"", "sh", *command],
                          env=env, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    if done.returncode == 77:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    return done


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
def test_the_size_of_dev_shm_does_not_matter() -> None:
    done = with_shared_memory("mount -t tmpfs -o size=8m none /dev/shm", LAUNCHER, *options(LAUNCHER, {}), "-n", "2",
                              sys.executable, SHARED, "large")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("came through") == 2


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
@pytest.mark.skipif(bool(options(LAUNCHER, {})), reason="OpenMPI looks itself how much there is")
@pytest.mark.parametrize("before", [
    "mount -t tmpfs -o size=1m none /dev/shm",
    "mount -t tmpfs -o size=30m none /dev/shm && head -c 30M /dev/zero > /dev/shm/full"], ids=["tiny", "full"])
@pytest.mark.parametrize("command", [LAUNCH, [LAUNCHER, "-n", "2", sys.executable]], ids=["launch", "mpiexec"])
def test_no_room_in_dev_shm_is_said(before: str, command: list[str | Path]) -> None:
    done = with_shared_memory(before, *command, SHARED, "writes")
    assert done.returncode == 135, done.stderr
    line = (r"^\[(worker [01]\] was killed by SIGBUS before it|workers 0-1\] were killed by SIGBUS before they) joined "
            r"the others: /dev/shm, in which MPI keeps what the processes of a host share, has (1|31) MB, and less "
            r"than 64 of them are free\. Remove what fills it")
    assert re.search(line, done.stderr, re.MULTILINE), done.stderr


NO_SHARED_MEMORY = """mkdir -p {0} && mount --rbind /dev {0} && mount -t tmpfs none /dev &&
for name in null zero urandom random; do touch /dev/$name; mount --bind {0}/$name /dev/$name; done"""


@pytest.mark.slow
@pytest.mark.xdist_group("machine")
@pytest.mark.skipif(bool(options(LAUNCHER, {})), reason="OpenMPI keeps it elsewhere then")
@pytest.mark.parametrize(("before", "advice"), [
    ("mount -t tmpfs -o ro none /dev/shm", "is read-only. Write `mount -o remount,rw /dev/shm`"),
    (NO_SHARED_MEMORY, "is missing. Make it: `mkdir -p /dev/shm")], ids=["read-only", "missing"])
def test_a_dev_shm_that_cannot_be_used_is_said(tmp_path: Path, before: str, advice: str) -> None:
    done = with_shared_memory(before.format(tmp_path), *LAUNCH, SHARED, "writes")
    assert done.returncode, done.stdout
    assert re.search(r"^\[workers? [01].* joined the others: /dev/shm of \S+, in which MPI keeps what the processes of "
                     rf"a host share, {re.escape(advice)}", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("files", [8, 16, 32, 41])
def test_a_job_that_cannot_start_with_so_few_files_says_so_and_nothing_else(files: int) -> None:
    done = with_files(files, *LAUNCH, SHARED, "writes")
    assert (done.returncode, done.stdout, done.stderr) == (
        70, "", f"[launcher] each process of {socket.gethostname()} may have {files} files and sockets open (`ulimit "
        "-n`), and to start 2 workers takes 42. Write `ulimit -n 1024` before the command\n")


@pytest.mark.slow
@pytest.mark.skipif(bool(options(LAUNCHER, {})), reason="the numbers are those of MPICH")
def test_a_job_starts_with_as_many_files_as_it_says() -> None:
    done = with_files(42, *LAUNCH, SHARED, "writes")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


OPENS = """
import os, sys, refdist
if sys.argv[1] == "later":
    refdist.MultiWorkerMirroredStrategy()
kept = []
while True:
    kept.append(os.open(os.devnull, os.O_RDONLY))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["first", "later"])
def test_a_worker_that_opens_too_many_files_says_how_many_it_may(when: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OPENS)
    done = with_files(100, *LAUNCH, str(script), when)
    says = (r"^\[workers? [01-]+\] .*each process of \S+ may have 100 files and sockets open \(`ulimit -n`\)\. Write "
            r"`ulimit -n 1024` before the command$")
    assert done.returncode and re.search(says, done.stderr, re.MULTILINE), done.stderr


def with_files(files: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command whose processes may have so many files open."""
    return subprocess.run(["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command], cwd=ROOT, timeout=HANG,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


def test_what_else_kills_a_process_is_not_blamed_on_its_memory() -> None:
    assert processes.lack_of_memory(signal.SIGSEGV) == ""


def test_an_early_end_is_not_blamed_on_a_host_that_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (80, 4096))
    assert processes.lack_of_files(2) == "" and "may have 80 files" in processes.lack_of_files(32)
    assert processes.too_few_files(2) == "" and "`ulimit -n 1024`" in processes.too_few_files(32)
    assert "`ulimit -n 4096`" in processes.too_few_files(300)
    assert processes.too_few_files(0) == "", "all of them are on other hosts"
    monkeypatch.setattr("resource.getrlimit", lambda _: (36, 4096))
    assert "to start 1 worker takes 37." in processes.too_few_files(1)


def alone(value: Any) -> list[Any]:
    return [value]


def test_memory_that_is_not_there_is_an_error_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(shared_memory.NoSharedMemory, match="too few pages on another host"):
        shared_memory.allocate(100, 0, 2, lambda value: [value, "too few pages on another host"])

    def full(*_: int) -> None:
        raise OSError("no pages are left")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(shared_memory.NoSharedMemory, match="no pages are left"):
        shared_memory.allocate(100, 0, 1, alone)
    assert os.listdir("/proc/self/fd") == before


def test_what_is_left_in_a_slot_stays_until_the_rendezvous_after_the_next() -> None:
    slots = shared_memory.Slots(0, 1, alone)
    slots.own(1)[:3] = np.frombuffer(b"abc", np.uint8)
    first = slots.found(1, 0, 3)
    slots.own(2)[:] = np.frombuffer(b"de" * (slots.nbytes // 2), np.uint8)
    assert (bytes(first), bytes(slots.found(2, 0, slots.nbytes))) == (b"abc", b"de" * (slots.nbytes // 2))
    slots.own(3)[:1] = ord("f")
    assert bytes(first) == b"fbc"


def test_a_file_of_the_same_number_in_another_process_is_not_taken_for_the_memory() -> None:
    with open(os.devnull, "rb") as other:
        mapped = iter([[(f"/proc/{os.getpid()}/fd/{other.fileno()}", "refdist 123", "")]])
        with pytest.raises(shared_memory.NoSharedMemory, match="is not refdist 123"):
            shared_memory.allocate(100, 1, 2, lambda value: next(mapped, [value]))


def test_what_is_written_to_ones_own_pages_is_dropped_when_the_memory_is_used_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    for pages in ("as the kernel tells", "not told"):
        if pages == "not told":
            monkeypatch.setattr(shared_memory.Block, "_written", lambda self, pages: True)
        block = shared_memory.allocate(5 * mmap.PAGESIZE + 1, 0, 1, alone)
        assert block.shared.size == block.own.size == 6 * mmap.PAGESIZE and not block.own.any()
        block.shared[:] = 7
        assert np.all(block.own == 7) and block._written(6) == (pages == "not told")
        block.own[-1] = 8
        assert block._written(6) and block.shared[-1] == 7
        assert block._written(5) == (pages == "not told")
        block.shared[:] = 9
        assert block.own[0] == 9 and block.own[-1] == 8 and block.own[-2] == 7
        block.renew(5 * mmap.PAGESIZE + 1)
        assert np.all(block.own == 9)
        block.keep()
        block.shared[:] = 1
        assert np.all(block.own == 9)
