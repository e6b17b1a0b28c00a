"""Kills a random process of a job at a random moment, many times: kills.py [--count 200] [--seed 0].

The job is three workers under `refdist launch`; killed is a worker, a supervisor, the launcher's proxy, mpiexec or the
launch command itself.  Every time the job ends within its limit, names what was lost, and leaves no process and no
shared memory.  As root it has a /dev/shm of its own, so that what other programs leave there does not count.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from refdist.backends.mpi import processes

ROOT = Path(__file__).parents[2]
LIMIT = 60.0  # seconds for a run, most of which are for a busy machine
MOMENTS = 6.0  # seconds after the start within which something is killed
SHARED = "/dev/shm"
JOB = """
import numpy as np
import refdist
strategy = refdist.MultiWorkerMirroredStrategy()
while True:
    strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones({size})))
"""
# What is said of it; that of the launch command, only if mpiexec has started somebody who can say it.
SAYS = {"worker": r"\[worker {rank}\] was killed by SIGKILL",
        "supervisor": r"\[launcher\] the supervisor of (worker {rank} \(process {pid}\) was|.* when it started)|"
                      r"mpiexec ended .* before .* had started",
        "proxy": r"\[launcher\] (\S+ \(process {pid}\) died|what mpiexec .* has started died at once|"
                 r"mpiexec ended .* before .* had started|mpiexec .* was killed by SIGPIPE)",
        "mpiexec": r"\[launcher\] \S+ \(process {pid}\) (was killed by SIGKILL|died)",
        "launcher": r"\[launcher\] python -m refdist launch \(process {pid}\) died"}


class Outcome(NamedTuple):
    """What came of a run: the kind and the moment of the kill, the seconds to the end, and what was wrong."""

    kind: str
    moment: float
    took: float
    wrong: list[str]


def tree(launcher: int) -> dict[str, list[int]]:
    """The processes of the job, by their kind."""
    found = {"launcher": [launcher]}
    for kind, above, program in (("mpiexec", "launcher", "mpiexec"), ("proxy", "mpiexec", "hydra_pmi_proxy"),
                                 ("supervisor", "proxy", os.path.basename(sys.executable))):
        # A process that has not yet begun its program is still that of its parent.
        found[kind] = [pid for one in found[above] for pid in processes.children(one) if runs(pid, program)]
    found["worker"] = [pid for one in found["supervisor"] for pid in processes.children(one)]
    return found


def runs(pid: int, program: str) -> bool:
    """Whether a process is this program, and not only asks for its version."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False
    return os.path.basename(words[0]) == program and "--version" not in words


def variable(pid: int, name: str) -> str:
    """A variable in the environment with which a process was started."""
    found = re.search(rf"(?:^|\0){name}=([^\0]*)", Path(f"/proc/{pid}/environ").read_text(errors="replace"))
    return found[1] if found else ""


def left_of(run: str) -> list[str]:
    """The processes of a run that are there some time after its end."""
    until = time.monotonic() + 10
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if variable(int(path.name), "REFDIST_TEST_RUN") == run:
                    found.append((path / "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass  # it has ended, or is another user's
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def killed(source: random.Random, job: str) -> Outcome:
    """One run."""
    run, before = uuid.uuid4().hex, set(os.listdir(SHARED))
    kind, moment = source.choice(sorted(SAYS)), source.uniform(0, MOMENTS)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "10", "REFDIST_TEST_RUN": run}
    started = time.monotonic()
    done = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "-n", "3", job], env=env,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    time.sleep(moment)
    rank, pid = "", 0
    while not pid:
        choice = tree(done.pid)[kind]
        try:
            pid = source.choice(choice) if choice else 0
            rank = variable(pid, "PMI_RANK") if pid else ""
        except OSError:
            pid = 0
    somebody = bool(tree(done.pid)["worker"])
    os.kill(pid, signal.SIGKILL)
    at = time.monotonic()
    wrong = []
    try:
        _, text = done.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        done.kill()
        _, text = done.communicate()
        wrong.append("it did not end")
    took = time.monotonic() - at
    if left := left_of(run):
        wrong.append(f"left: {left}")
    if memory := set(os.listdir(SHARED)) - before:
        wrong.append(f"memory left: {memory}")
    if done.returncode not in (-9, 137, 255):  # mpiexec's own, where it was starting
        wrong.append(f"exit status {done.returncode}")
    if not re.search(SAYS[kind].format(rank=rank, pid=pid), text) and (kind != "launcher" or somebody):
        wrong.append(f"killed {kind} {rank} (process {pid}) after {at - started:.2f} s; nothing names it in:\n{text}")
    return Outcome(kind, moment, took, wrong)


def own_shared_memory(program: str, arguments: list[str]) -> None:
    """Starts the program again with a /dev/shm of its own, where this user may have one."""
    if os.geteuid() == 0 and "REFDIST_OWN_SHM" not in os.environ:
        os.environ["REFDIST_OWN_SHM"] = "1"
        own = f"mount -t tmpfs tmpfs {SHARED} 2>/dev/null; exec \"$@\""
        os.execvp("unshare", ["unshare", "--mount", "sh", "-c", own, "sh", sys.executable, program, *arguments])


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    own_shared_memory(__file__, arguments)
    source = random.Random(options.seed)
    job = Path(f"/tmp/refdist_kills_{os.getpid()}.py")
    job.write_text(JOB.format(size=100))
    outcomes = []
    try:
        for number in range(options.count):
            outcomes.append(found := killed(source, str(job)))
            for wrong in found.wrong:
                print(f"run {number}: {wrong}", flush=True)
    finally:
        job.unlink()
    by_kind = collections.defaultdict(list)
    for one in outcomes:
        by_kind[one.kind].append(one)
    for kind, runs in sorted(by_kind.items()):
        took = sorted(one.took for one in runs)
        print(f"{kind:10} {len(runs):4} runs, wrong {sum(bool(one.wrong) for one in runs):3}; ended after "
              f"{took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)")
    return int(any(one.wrong for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
