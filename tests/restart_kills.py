"""Kills random processes of jobs that are started again: restart_kills.py [--runs 200] [--seed 0].

A job is two workers of `workers/restarted.py` under `refdist launch --max-restarts`.  In each run one, two or three
signals each hit one process, a worker, a supervisor, the launcher's proxy or mpiexec, some time after something has
happened: the start of a process of some kind, a step, a checkpoint.  After the first one each waits until there is a
checkpoint that was not there before, since two losses without one end a job.  Every time

* the exit status is 0, and the launch command has counted as many losses as there were;
* the values of both workers are those of a simulated run without losses, bit for bit: weights, momentum, the state of
  the generator, and how often each row was read, once in each epoch;
* no process is left.
"""

from __future__ import annotations

import argparse
import collections
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
from typing import Any, NamedTuple

import kills
import numpy as np

import refdist
from refdist.backends.mpi import processes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "workers"))

import restarted  # noqa: E402

WORKERS, MOST, PAUSE, LIMIT = 2, 8, 0.03, 300.0
SIGNALS = ("KILL", "KILL", "SEGV", "ABRT")
VICTIMS = ("worker", "worker", "supervisor", "proxy", "mpiexec")
DELAY = 0.4


class Outcome(NamedTuple):
    """What came of a run.

    Attributes:
        hits: each signal, with the process that it hit and the last step before.
        restarts: how often the job was started again.
        took: seconds for all of it.
        wrong: what was wrong.
    """

    hits: list[str]
    restarts: int
    took: float
    wrong: list[str]


def steps(folder: Path) -> int:
    """The last step that a worker has taken."""
    texts = [path.read_text() for path in folder.glob("step *")]
    return max([int(text) for text in texts if text], default=0)


def saved(folder: Path) -> int:
    """The number of the newest checkpoint, 0 for none."""
    path = refdist.train.latest_checkpoint(folder / "checkpoints")
    return int(path.rpartition("-")[2]) if path else 0


def hit(source: random.Random, expected: list[list[Any]]) -> Outcome:
    """One run."""
    folder, run = Path(tempfile.mkdtemp(prefix="refdist_restarts_")), uuid.uuid4().hex
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", "REFDIST_TEST_RUN": run, "PAUSE": str(PAUSE)}
    began = time.monotonic()
    with open(folder / "output", "wb") as output:
        job = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "--max-restarts", str(MOST), "-n",
                                str(WORKERS), str(Path(restarted.__file__)), str(folder)],
                               env=env, stdout=output, stderr=output)
    hits, wrong, before = list[str](), list[str](), -1

    def text() -> str:
        return (folder / "output").read_text(errors="replace")

    def comes(event: Callable[[], object]) -> None:
        kills.becomes(lambda: event() or job.poll() is not None, LIMIT)

    for _ in range(source.choice((1, 1, 2, 3))):
        victim, name, delay = source.choice(VICTIMS), source.choice(SIGNALS), source.uniform(0, DELAY)
        number, moment = source.randrange(WORKERS), source.choice((0, source.randrange(restarted.STEPS)))
        last = before
        comes(lambda: saved(folder) > last)  # noqa: B023
        comes(lambda: steps(folder) >= moment and kills.tree(job.pid)[victim])  # noqa: B023
        time.sleep(delay)
        choice = kills.tree(job.pid)[victim] if job.poll() is None else []
        if not choice:
            continue
        processes.kill(choice[number % len(choice)], signal.Signals[f"SIG{name}"])
        hits.append(f"{name} to {victim} after step {steps(folder)}")
        comes(lambda: text().count("[launcher] restart ") >= len(hits))
        before = saved(folder)  # of all that was started before
    if not kills.becomes(lambda: job.poll() is not None, LIMIT):
        wrong.append("it did not end")
        job.kill()
    status = job.wait()
    losses = len(re.findall(r"^\[launcher\] lost after", text(), re.MULTILINE))
    if status:
        wrong.append(f"exit status {status}")
    if losses > len(hits):
        wrong.append(f"{losses} losses are named for {len(hits)} signals")
    for rank in range(WORKERS):
        path = folder / f"values {rank}.npz"
        values = list(np.load(path).values()) if path.exists() else []
        if len(values) != len(expected[rank]) or any(map(differs, values, expected[rank])):
            wrong.append(f"the values of worker {rank} are others")
    if left := kills.left_of(run):
        wrong.append(f"left: {left}")
        for pid in kills.processes_of(run):
            processes.kill(pid)
    if wrong:
        wrong.append(f"after {hits}:\n{text()}")
    shutil.rmtree(folder)
    return Outcome(hits, losses, time.monotonic() - began, wrong)


def differs(value: Any, other: Any) -> bool:
    """Whether two arrays differ in a bit, or in their dtype or shape."""
    first, second = np.asarray(value), np.asarray(other)
    return (first.dtype, first.shape, first.tobytes()) != (second.dtype, second.shape, second.tobytes())


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="from which all that is random is drawn (default 0)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        expected = refdist.simulate_workers(lambda: restarted.train(Path(folder), set()), WORKERS)
    counts: collections.Counter[str] = collections.Counter()
    failed = 0
    for run in range(options.runs):
        outcome = hit(random.Random(f"{options.seed} {run}"), expected)
        counts.update(" ".join(hit.split()[:3]) for hit in outcome.hits)
        counts["signals"] += len(outcome.hits)
        counts["restarts"] += outcome.restarts
        failed += bool(outcome.wrong)
        print(f"run {run}: {', '.join(outcome.hits)}; {outcome.restarts} restarts, {outcome.took:.1f} s"
              + "".join(f"\n  WRONG: {text}" for text in outcome.wrong), flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:5} {name}")
    print(f"{options.runs} runs, {failed} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
