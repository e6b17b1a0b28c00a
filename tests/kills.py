"""Kills and stops random processes of jobs at random moments: kills.py [--runs 300] [--seed 0] [--jobs 2].

A job is three workers, under `refdist launch` or under plain mpiexec.  In each run one signal hits one process, a
worker, a supervisor, the launcher's proxy, mpiexec or the launch command, some time after something has happened: the
start, the first process of some kind, a line of the program, its last one.  Every time

* the job ends: by itself, or if what was hit goes on as if nothing had been, when the program ends;
* what was hit is named, unless nothing is lost: all workers came through, and the exit status is 0;
* no process and no file is left.  As root each run has a /dev/shm and a /tmp of its own, so that what other programs
  leave there does not count.

`UNNAMED` are those that nobody can name, with the reason; they are counted, and must leave nothing, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from refdist.backends.mpi import processes

ROOT = Path(__file__).parents[1]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
WAIT = 20  # REFDIST_TIMEOUT, in which workers also start, on a busy machine
# Seconds after which a job that goes on, in spite of the signal, is ended by its program.
PATIENCE = {**dict.fromkeys(("KILL", "SEGV", "ABRT"), 20.0), "TERM": 5.0, "INT": 5.0, "CONT": 0.3, "STOP": WAIT + 15.0}
LIMIT = 90.0  # seconds for an end that should come at once, on a busy machine
DELAY = 0.3  # seconds at most between an event and the signal
PRIVATE = ("/dev/shm", "/tmp")
WORKERS = 3
JOB = """
import atexit, os, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["PMI_RANK"]

def leaves():
    (folder / f"exit {rank}").touch()
    time.sleep(0.3)

atexit.register(leaves)  # called when refdist's has been
(folder / f"script {rank}").touch()
import numpy as np
import refdist
strategy = refdist.MultiWorkerMirroredStrategy()
(folder / f"strategy {rank}").touch()

def step():
    over = float((folder / "over").exists())
    return refdist.get_replica_context().all_reduce("SUM", [np.ones(100_000), over])

over = 0.0
while not over:
    _, over = strategy.run(step)
    (folder / f"step {rank}").touch()
print("came through", flush=True)
(folder / f"last {rank}").touch()
"""
SIGNALS = ("KILL", "SEGV", "ABRT", "TERM", "INT", "STOP", "CONT")
VICTIMS = ("worker", "supervisor", "proxy", "mpiexec", "launcher")
# What has happened before the signal: how many processes of this kind are there, or how often the program did this.
MOMENTS = ("start", *(f"{kind} {count}" for kind in ("mpiexec", "proxy") for count in (1,)),
           *(f"{kind} {count}" for kind in ("supervisor", "script", "strategy", "step") for count in (1, WORKERS)),
           "last 1", "exit 1", f"exit {WORKERS}")
AT_THE_END = ("last", "exit")  # which come when the program has been told to end
DIED = r"((was|were) (killed|stopped)|ended by|died|ended with|is stopped)"
# What names a victim.
SAYS = {
    "worker": r"\[workers? [\d, -]+\] " + DIED + r"|worker {rank} .*(is dead|is stopped)|worker {rank} ended without",
    "supervisor": r"\[launcher\] (the supervisor of (worker {rank} \(process {pid}\)|.* when it started)|"
                  r"python\S* \(process {pid}\)|mpiexec ended .* before .* had started)|\[worker {rank}\] ended by",
    "proxy": r"\[launcher\] (\S+ \(process {pid}\)|what mpiexec .* has started died|mpiexec ended .* before .* had "
             r"started|mpiexec .* was killed by SIGPIPE)|\[workers? [\d, -]+\] ended by",
    "mpiexec": r"\[launcher\] \S+ \(process {pid}\) |\[workers? [\d, -]+\] ended by|mpiexec ended .* before|"
               r"the supervisor of .* when it started",
    "launcher": r"\[launcher\] (python -m refdist launch \(process {pid}\) died|ended by)|"
                r"\[workers? [\d, -]+\] ended by",
}
# Who cannot be named, and why: by the way, the victim, and whether it was stopped.
UNNAMED = {
    ("mpiexec", "mpiexec", False): "MPICH ends all processes at once, and nothing is above it that could say so",
    ("mpiexec", "proxy", False): "the same, when it was asked to end them",
    ("mpiexec", "supervisor", False): "MPICH ends all processes at once, as at every death of one that it has started",
    ("mpiexec", "mpiexec", True): "nothing is above it, and it goes on when it is told to",
    ("mpiexec", "proxy", True): "the same",
    ("mpiexec", "supervisor", True): "the same",
    ("mpiexec", "worker early", False): "it is not supervised before it makes its strategy; the others miss it",
    ("mpiexec", "worker early", True): "the same",
    ("launch", "launcher early", False): "it has not begun yet to start anything",
    ("launch", "launcher", True): "it is stopped as by Ctrl-Z: the job goes on, and its end is noticed when it does",
    ("launch", "launcher early", True): "the same",
}


class Outcome(NamedTuple):
    """What came of a run.

    Attributes:
        way, victim, signal, moment: what was done.
        took: seconds from the signal to the end.
        unnamed: why nobody could name the victim, if it was not named.
        wrong: what was wrong.
    """

    way: str
    victim: str
    signal: str
    moment: str
    took: float
    unnamed: str
    wrong: list[str]


def tree(launcher: int, way: str = "launch") -> dict[str, list[int]]:
    """The processes of a job, by their kind, in the order of the ranks."""
    groups = {"launcher": [launcher] if way == "launch" else []}
    if way == "launch":
        groups["mpiexec"] = [pid for pid in processes.children(launcher) if runs(pid, "mpiexec")]
    else:
        groups["mpiexec"] = [launcher]
    # A process that has not yet begun its program is still that of its parent.
    groups["proxy"] = [pid for parent in groups["mpiexec"] for pid in processes.children(parent)
                       if runs(pid, "hydra_pmi_proxy")]
    started = [pid for parent in groups["proxy"] for pid in processes.children(parent)
               if runs(pid, os.path.basename(sys.executable))]
    # Under plain mpiexec a process becomes a supervisor when it has forked.
    groups["supervisor"] = [pid for pid in started if way == "launch" or processes.children(pid)]
    groups["worker"] = [pid for parent in groups["supervisor"] for pid in processes.children(parent)[:1]] or [
        pid for pid in started if way != "launch"]
    return groups


def runs(pid: int, program: str) -> bool:
    """Whether a process is this program, and not only asks for its version."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False
    return os.path.basename(words[0]) == program and "--version" not in words


def variable(pid: int, name: str) -> str:
    """A variable in the environment with which a process was started."""
    try:
        match = re.search(rf"(?:^|\0){name}=([^\0]*)", Path(f"/proc/{pid}/environ").read_text(errors="replace"))
    except OSError:
        return ""
    return match[1] if match else ""


def processes_of(run: str) -> list[int]:
    """The processes of a run, of which some may be zombies."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")
            if variable(int(path.name), "REFDIST_TEST_RUN") == run]


def left_of(run: str) -> list[str]:
    """The processes of a run that are there some time after its end."""
    becomes(lambda: not processes_of(run), 10)
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in processes_of(run)]


def becomes(condition: Callable[[], object], seconds: float) -> bool:
    """Whether it comes to be so within some seconds."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(condition())


def hit(source: random.Random) -> Outcome:
    """One run."""
    way = source.choice(("launch", "launch", "mpiexec"))
    victim = source.choice(VICTIMS if way == "launch" else VICTIMS[:-1])
    name, moment = source.choice(SIGNALS), source.choice(MOMENTS)
    delay, number = source.uniform(0, DELAY), source.randrange(WORKERS)
    folder, run = Path(tempfile.mkdtemp(prefix="refdist_kills_", dir="/var/tmp")), uuid.uuid4().hex
    (folder / "job.py").write_text(JOB)
    start = ([sys.executable, "-m", "refdist", "launch", "-n", str(WORKERS)] if way == "launch" else
             [str(MPIEXEC), "-n", str(WORKERS), sys.executable])
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": str(WAIT), "REFDIST_TEST_RUN": run}
    with open(folder / "output", "wb") as output:
        job = subprocess.Popen([*start, str(folder / "job.py"), str(folder)], env=env, stdout=output, stderr=output)
    wrong: list[str] = []

    def has_come() -> bool:
        kind, _, count = moment.partition(" ")
        seen = len(tree(job.pid, way)[kind]) if kind in VICTIMS else len(list(folder.glob(f"{kind} *")))
        return kind == "start" or seen >= int(count) or job.poll() is not None

    if moment.split()[0] in AT_THE_END:
        becomes(lambda: len(list(folder.glob("step *"))) == WORKERS or job.poll() is not None, LIMIT)
        (folder / "over").touch()
    if not becomes(has_come, LIMIT):
        wrong.append(f"{moment} never came")
    time.sleep(delay)
    there = tree(job.pid, way)
    if not there[victim]:  # not yet, or not any more
        victim = next((kind for kind in (*VICTIMS[VICTIMS.index(victim):], *VICTIMS) if there[kind]), "launcher")
    choice = sorted(there[victim], key=lambda pid: variable(pid, "PMI_RANK")) or [job.pid]
    pid = choice[number % len(choice)]
    rank = variable(pid, "PMI_RANK")
    early = {"launcher": not there["mpiexec"], "worker": way == "mpiexec" and not there["supervisor"]}.get(victim)
    processes.kill(pid, signal.Signals[f"SIG{name}"])
    at = time.monotonic()
    if not becomes(lambda: job.poll() is not None, PATIENCE[name]):
        (folder / "over").touch()
    unnamed = UNNAMED.get((way, victim + " early" * bool(early), name == "STOP"), "")
    if not becomes(lambda: job.poll() is not None, LIMIT / (3 if name == "STOP" and unnamed else 1)):
        if not (name == "STOP" and unnamed):
            wrong.append("it did not end by itself")
            job.send_signal(signal.SIGTERM)
        processes.kill(pid, signal.SIGCONT)
        if not becomes(lambda: job.poll() is not None, LIMIT):
            wrong.append("nor when it was told to")
            job.kill()
    took, status = time.monotonic() - at, job.wait()
    if left := left_of(run):
        wrong.append(f"left: {left}")
        for other in processes_of(run):
            processes.kill(other)
    if os.geteuid() == 0:
        for place in PRIVATE:
            for path in Path(place).iterdir():
                wrong.append(f"left: {path}")
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
    text = (folder / "output").read_text(errors="replace")
    lost = status != 0 or text.count("came through") < WORKERS
    says = re.search(SAYS[victim].format(rank=rank, pid=pid), text)
    if lost and not says and not unnamed:
        wrong.append("nothing names it")
    if status == 0 and text.count("came through") < WORKERS:
        wrong.append("exit status 0")
    # Under plain mpiexec, in the exit of a program, and before its first line they are Python's own.
    own = way == "mpiexec" or moment.split()[0] in AT_THE_END or "init_import_site" in text
    if "Traceback" in text and "[RD" not in text and not own:
        wrong.append("a traceback")
    if wrong:
        wrong.append(f"rank {rank}, process {pid}, exit status {status}:\n{text}")
    shutil.rmtree(folder)
    return Outcome(way, victim, name, moment, took, unnamed if lost and not says else "", wrong)


def privately(program: str, arguments: list[str]) -> list[str]:
    """The words that run a program with a /dev/shm and a /tmp of its own, where this user may have them."""
    mounts = "; ".join(f"mount -t tmpfs tmpfs {place}" for place in PRIVATE)
    own = ["unshare", "--mount", "sh", "-c", f"{mounts}; exec \"$@\"", "sh"] if os.geteuid() == 0 else []
    return [*own, sys.executable, program, *arguments]


def own_places(program: str, arguments: list[str]) -> None:
    """Starts this program again with places of its own."""
    if "REFDIST_OWN" not in os.environ:
        os.environ["REFDIST_OWN"] = "1"
        words = privately(program, arguments)
        os.execvp(words[0], words)


def table(outcomes: list[Outcome], column: str) -> str:
    """What was done how often, and how often it went wrong."""
    groups = collections.defaultdict(list)
    for outcome in outcomes:
        groups[getattr(outcome, column)].append(outcome)
    return "\n".join(f"{name:14} {len(runs):4} runs ({100 * len(runs) / len(outcomes):3.0f} %), "
                     f"{sum(bool(outcome.wrong) for outcome in runs):3} wrong, "
                     f"{sum(bool(outcome.unnamed) for outcome in runs):3} unnamed; "
                     f"ended after {sorted(outcome.took for outcome in runs)[len(runs) // 2]:5.1f} s (median), "
                     f"{max(outcome.took for outcome in runs):5.1f} s (longest)"
                     for name, runs in sorted(groups.items()))


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="from which all that is random is drawn (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)  # of one of them, which prints its outcomes
    options = parser.parse_args(arguments)
    if options.share is not None:
        for run in range(options.share, options.runs, options.jobs):
            print(json.dumps([run, *hit(random.Random(f"{options.seed} {run}"))]), flush=True)
        return 0
    shares = [subprocess.Popen(privately(__file__, [*arguments, "--jobs", str(options.jobs), "--share", str(share)]),
                               stdout=subprocess.PIPE, text=True) for share in range(options.jobs)]
    outcomes = []
    for share in shares:
        assert share.stdout is not None
        for line in share.stdout:
            run, *words = json.loads(line)
            outcomes.append(outcome := Outcome(*words))
            if outcome.wrong:
                print(f"run {run}: {outcome.signal} to {outcome.victim} under {outcome.way}, at {outcome.moment!r}, "
                      f"ended after {outcome.took:.1f} s: " + "; ".join(outcome.wrong), flush=True)
    for column in ("way", "victim", "signal", "moment"):
        print(f"\n{table(outcomes, column)}")
    for why, count in collections.Counter(outcome.unnamed for outcome in outcomes if outcome.unnamed).most_common():
        print(f"\n{count} times: {why}")
    return int(any(outcome.wrong for outcome in outcomes) or len(outcomes) < options.runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
