"""Kills a random task of a job with parameter servers at a random moment: served_kills.py [--count 200] [--seed 0].

The job is a coordinator, two workers and two parameter servers under `refdist launch`; what happens when a process of
the launcher is killed is in `kills`.  The functions of a worker run elsewhere, and no result and no update is lost:
each is there at least once.  Every other death ends the job within its limit, and is named.  In every second run lost
workers come back, and a job that is lost is started again: all of these come to their end.  Nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import kills

LIMIT = 60.0  # seconds for a run, most of which are for a busy machine
MOMENTS = 6.0  # seconds after the start within which something is killed
SHARED = "/dev/shm"
TASKS = {"chief": 0, "worker": 1, "ps": 3}  # the first rank of each
COUNTS = {"chief": 1, "worker": 2, "ps": 2}
JOB = """
import sys
from pathlib import Path
import refdist
strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.TFConfigClusterResolver())
coordinator = refdist.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    started, ended = refdist.Variable(0), refdist.Variable(0)

def work(number):
    started.assign_add(1)
    ended.assign_add(1)
    return number

count, over = 0, False
while not over:
    over = Path(sys.argv[1]).exists()
    values = [coordinator.schedule(work, args=(count + i,)) for i in range(10)]
    coordinator.join()
    assert [int(value.fetch()) for value in values] == list(range(count, count + 10))
    count += 10
assert count <= int(ended) <= int(started) <= count + 4, (count, int(started), int(ended))
print("all is there")
"""
BEFORE = r"\[{task}\] was killed by SIGKILL( before it joined the others)?$"
SAYS = {
    "chief": r"\[chief\] was killed by SIGKILL",
    "worker": r"\[{task}\] was killed by SIGKILL; (the job goes on without it|it is started again in 1 s)$|" + BEFORE,
    "ps": r"\[RD33\] .* {task}, which had the variable, is gone|\[RD01\] starting: {task} is gone|" + BEFORE}


def killed(source: random.Random, job: str, folder: Path) -> tuple[str, float, list[str]]:
    """One run: what was killed, the seconds from then to the end, and what was wrong."""
    run, before, over = uuid.uuid4().hex, set(os.listdir(SHARED)), folder / uuid.uuid4().hex
    kind, moment, restarts = source.choice(sorted(SAYS)), source.uniform(0, MOMENTS), source.choice((0, 3))
    task = source.randrange(COUNTS[kind])
    env = {**os.environ, "PYTHONPATH": str(kills.ROOT), "REFDIST_TIMEOUT": "20", "REFDIST_TEST_RUN": run}
    done = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "--max-restarts", str(restarts), "--workers",
                             "2", "--ps", "2", job, str(over)],
                            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    time.sleep(moment)
    rank, pid = TASKS[kind] + task, 0
    while not pid:
        with contextlib.suppress(OSError):
            pid = next((worker for worker in kills.tree(done.pid)["worker"]
                        if kills.variable(worker, "PMI_RANK") == str(rank)), 0)
    os.kill(pid, signal.SIGKILL)
    at, wrong = time.monotonic(), []
    over.touch()
    try:
        out, text = done.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        done.kill()
        out, text = done.communicate()
        wrong.append("it did not end")
    took = time.monotonic() - at
    if left := kills.left_of(run):
        wrong.append(f"left: {left}")
    if memory := set(os.listdir(SHARED)) - before:
        wrong.append(f"memory left: {memory}")
    goes_on = kind == "worker" and re.search("the job goes on without it|it is started again", text) is not None
    if (goes_on or restarts) and (done.returncode, out) != (0, "all is there\n"):
        wrong.append(f"exit status {done.returncode}, printed {out!r} and:\n{text}")
    # A parameter server that is killed when the program has ended is not missed.
    missed = out != "all is there\n" or kind == "worker"
    if missed and not re.search(SAYS[kind].format(task=f"{kind} {task}"), text, re.MULTILINE):
        wrong.append(f"nothing names {kind} {task} (rank {rank}, process {pid}), exit status {done.returncode}, in:\n"
                     f"{out}{text}")
    if not goes_on and out != "all is there\n" and done.returncode == 0:
        wrong.append("exit status 0")
    return f"{kind}, {restarts} restarts", took, wrong


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    kills.own_places(__file__, arguments)
    source = random.Random(options.seed)
    folder = Path(f"/tmp/refdist_served_kills_{os.getpid()}")
    folder.mkdir()
    job = folder / "job.py"
    job.write_text(JOB)
    runs_by_kind: dict[str, list[tuple[float, bool]]] = {}
    for number in range(options.count):
        kind, took, wrong = killed(source, str(job), folder)
        runs_by_kind.setdefault(kind, []).append((took, bool(wrong)))
        for text in wrong:
            print(f"run {number}: {text}", flush=True)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for kind, runs in sorted(runs_by_kind.items()):
        took = sorted(seconds for seconds, _ in runs)
        print(f"{kind:18} {len(runs):4} runs, wrong {sum(wrong for _, wrong in runs):3}; ended after "
              f"{took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)")
    return int(any(wrong for runs in runs_by_kind.values() for _, wrong in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
