"""Measures what is said of each fault, how soon, and what is left: fault_table.py [--only WORD] [--jobs 2] [--write].

Every row is a program in which something goes wrong on worker 1 of three, under `refdist launch` and under plain
mpiexec, as root with a /dev/shm and a /tmp of its own.  It prints a table, of the MPI that is installed; with --write
its rows go into docs/supervision.md in place of those that are there.  Numbers of processes and folders are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from kills import PRIVATE, left_of, privately, processes_of
from limits import HANG
from test_faults import MPIEXEC, SENDS, is_openmpi
from test_workers import ROOT, options

from refdist.backends.mpi import processes

WAYS = ("launch", "mpiexec")
HANGS = 999  # in place of an exit status
PAGE = ROOT / "docs" / "supervision.md"
FAULTS = ROOT / "tests" / "workers" / "faults.py"
SERVED = ROOT / "tests" / "workers" / "served.py"
BEGIN, END = "<!-- {}: make fault-table -->\n", "<!-- end of {} -->\n"
# In all of the short programs below.
HEAD = """
import json, os, resource, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {folder!r})
from refdist.cluster_resolver import launched
from faults import above, note_the_time
import refdist
rank = launched().rank
def now():
    note_the_time()
def total(rows=3):
    return strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(rows)))
"""
JOINED = HEAD + "strategy = refdist.MultiWorkerMirroredStrategy()\ntotal()\n"
TOP = "above().get('launcher') or above()['mpiexec']"


class Fault(NamedTuple):
    """A row.

    Attributes:
        what: happens.
        words: of the program: a kind of workers/faults.py, or the text of one.
        workers: how many there are.
        limit: for how many seconds processes wait for each other.
        late: for how many, once all have started; 0 for `limit`.
        ways: of starting it.
        shell: what is done before, in the places that only this row has.
        servers: how many parameter servers there are; the program is then one of workers/served.py.
    """

    what: str
    words: str
    workers: int = 3
    limit: int = 60
    late: float = 0
    ways: tuple[str, ...] = WAYS
    shell: str = ""
    servers: int = 0


LAUNCH = ("launch",)
TABLE = [
    *(Fault(f"SIGKILL of worker 1 of {count}, in a sum of 16 MB", JOINED + (
        "if rank == 1:\n    now()\n    os.kill(os.getpid(), signal.SIGKILL)\ntotal(2_000_000)\n"), count)
      for count in (2, 3, 4)),
    *(Fault(f"SIG{name} of the worker", (
        f"{JOINED}if rank == 1:\n    now()\n    os.kill(os.getpid(), signal.SIG{name})\ntotal()\n"))
      for name in ("SEGV", "TERM", "ABRT", "BUS", "INT")),
    Fault("SIGKILL of two workers at once", JOINED + (
        "if rank:\n    now()\n    os.kill(os.getpid(), signal.SIGKILL)\ntotal()\n")),
    Fault("SIGSTOP of the worker; limit 4 s", "stop", late=4),
    Fault("busy elsewhere; limit 4 s", "linger", late=4),
    Fault("raises", "raise"),
    Fault("`sys.exit(3)`", "sys.exit"),
    Fault("returns early", "return"),
    Fault("`os._exit(4)`", "os._exit"),
    Fault("`os._exit(0)`", "os._exit 0"),
    Fault("`exit(5)` in C", "exit in C"),
    Fault("`MPI.COMM_WORLD.Abort(3)`", "abort"),
    Fault("another shape on one worker", "shape"),
    Fault("no memory: RLIMIT_AS of 1 GiB", JOINED + (
        "if rank == 1:\n    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n    now()\n"
        "    np.ones(1 << 28)\ntotal()\n")),
    Fault("no memory for a sum of 120 MB", JOINED + (
        "if rank == 1:\n    size = int(open('/proc/self/statm').read().split()[0]) * 4096 + (150 << 20)\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (size, size))\n    now()\ntotal(15_000_000)\n")),
    Fault("before its strategy: SIGKILL; limit 15 s", "early kill", limit=15),
    Fault("before its strategy: raises; limit 15 s", "early raise", limit=15),
    Fault("before its strategy: `os._exit(4)`; limit 15 s", "early os._exit", limit=15),
    Fault("before its strategy: returns; limit 15 s", "early return", limit=15),
    Fault("never makes its strategy; limit 15 s", "early absent", limit=15),
    Fault("stopped while it starts MPI; limit 15 s", "early stop in MPI", limit=15),
    Fault("after its last line: SIGKILL", "ending kill"),
    Fault("after its last line: SIGSEGV", "ending segv"),
    Fault("after its last line: `os._exit(4)`", "ending os._exit"),
    Fault("after its last line: SIGSTOP; limit 15 s", "ending stop", limit=15),
    Fault("all workers stopped; limit 15 s", "stop everybody", limit=15),
    Fault("all workers stopped, then SIGTERM to the command", JOINED + (
        f"if rank == 1:\n    subprocess.Popen(['sh', '-c', 'sleep 1; touch $AT; kill -TERM $0', str({TOP})])\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n")),
    Fault("supervisor: SIGKILL", "supervisor"),
    Fault("supervisor: SIGABRT", "abrt-supervisor"),
    Fault("supervisor: SIGSEGV", "segv-supervisor"),
    Fault("supervisor: SIGTERM", "term-supervisor"),
    Fault("supervisor: SIGSTOP; limit 15 s", "stop-supervisor", limit=15, ways=LAUNCH),
    Fault("proxy: SIGKILL", "proxy"),
    Fault("proxy: SIGSTOP; limit 15 s", "stop-proxy", limit=15, ways=LAUNCH),
    Fault("mpiexec: SIGKILL", "mpiexec"),
    Fault("mpiexec: SIGSTOP; limit 15 s", "stop-mpiexec", limit=15, ways=LAUNCH),
    Fault("mpiexec: SIGTERM", "term-mpiexec"),
    Fault("mpiexec: SIGINT", "int-mpiexec"),
    Fault("launch command: SIGKILL", "launcher", ways=LAUNCH),
    Fault("launch command: SIGTERM", "term-launcher", ways=LAUNCH),
    Fault("launch command: SIGINT", "int-launcher", ways=LAUNCH),
    Fault("launch command: SIGHUP", "hup-launcher", ways=LAUNCH),
    Fault("process group of the command: SIGTERM", JOINED + (
        f"if rank == 1:\n    now()\n    os.killpg(os.getpgid({TOP}), signal.SIGTERM)\ntime.sleep(1000)\n")),
    *(Fault(f"{name} to the command while scripts import", HEAD + (
        f"if rank == 1:\n    now()\n    os.kill({TOP}, signal.{name})\ntime.sleep(1000)\n"))
      for name in ("SIGINT", "SIGTERM")),
    Fault("TF_CONFIG of three workers, of which there are two", HEAD + (
        "now()\nos.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': ['a:1', 'b:1', 'c:1']}, "
        "'task': {'type': 'worker', 'index': rank}})\nrefdist.MultiWorkerMirroredStrategy()\n"), 2),
    Fault("TF_CONFIG with the index of another worker", HEAD + (
        "now()\nos.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': ['a:1', 'b:1']}, "
        "'task': {'type': 'worker', 'index': 1 - rank}})\nrefdist.MultiWorkerMirroredStrategy()\n"), 2),
    Fault("TF_CONFIG is no JSON on one worker; limit 15 s", HEAD + (
        "now()\nif rank == 1:\n    os.environ['TF_CONFIG'] = '{'\nrefdist.MultiWorkerMirroredStrategy()\n"), limit=15),
    Fault("/dev/shm of 1 MB", HEAD + "now()\nrefdist.MultiWorkerMirroredStrategy()\n",
          shell="mount -o remount,size=1M /dev/shm"),
    Fault("/tmp is full", JOINED + "print('came through')\n",
          shell="mount -o remount,size=1M /tmp; head -c 2M /dev/zero > /tmp/full 2>/dev/null || true"),
    Fault("the disk is full in a save", JOINED + (
        "with strategy.scope():\n    v = refdist.Variable(np.ones(1_000_000))\n"
        "now()\nrefdist.train.Checkpoint(v=v).save('/tmp/checkpoints/at')\n"),
          shell="mount -o remount,size=1M /tmp; mkdir /tmp/checkpoints"),
    Fault("datagrams of the same user", SENDS, 2, ways=LAUNCH),
    Fault("packets of anybody at all ports of the job", "", 2),
    Fault("job with parameter servers: a worker is killed", "worker", 2, servers=2),
    Fault("a worker ends by `os._exit(5)`", "leaves", 2, servers=2),
    Fault("all its workers are killed", "workers", 2, servers=2),
    # By a thread that it has, so under plain mpiexec nothing would supervise it.
    Fault("a parameter server is killed", "server", 2, servers=2, ways=LAUNCH),
    Fault("the coordinator is killed", "chief", 2, servers=2),
    Fault("the coordinator ends by `sys.exit(3)`", "exits", 2, servers=2),
    Fault("the coordinator ends while a worker is stopped", "stops", 2, servers=2),
    Fault("the supervisor of a worker is killed", "supervisor", 2, servers=2),
]
# To all ports that processes of the job have open, and to no other.
STRANGERS = JOINED + """
import contextlib, socket
files = set()
for path in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError):
        if f"REFDIST_TEST_RUN={os.environ['REFDIST_TEST_RUN']}".encode() in (path / "environ").read_bytes():
            files |= {os.readlink(file) for file in (path / "fd").iterdir()}
ports = {(kind, int(words[1].rpartition(":")[2], 16)) for kind in ("udp", "tcp", "tcp6")
         for words in map(str.split, list(open(f"/proc/net/{kind}"))[1:])
         if (kind == "udp" or words[3] == "0A") and f"socket:[{words[9]}]" in files}
assert ports
now()
for kind, port in ports if rank == 0 else ():
    for data in (b"", b"\\xff" * 64, b"[" * 5000, b"{}", b"cmd=abort exitcode=3\\n"):
        try:
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
            sender.settimeout(0.2)
            sender.connect(("127.0.0.1", port))
            sender.send(data)
            sender.close()
        except OSError:
            pass
total()
"""


class Measured(NamedTuple):
    """What came of a row, one way.

    Attributes:
        message: the line that says what happened.
        first: seconds from the fault to the first line of it; None where there is none.
        ended: seconds from the fault to the end; None where the fault's time is not known.
        status: the exit status, or HANGS.
        left: what is left.
    """

    message: str
    first: float | None
    ended: float | None
    status: int
    left: list[str]


def measured(fault: Fault, way: str) -> Measured:
    """Runs a row in this process's /dev/shm and /tmp."""
    folder, run = Path(tempfile.mkdtemp(prefix="refdist_faults_", dir="/var/tmp")), uuid.uuid4().hex
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run, "AT": str(folder / "at"),
           "PIDS": str(folder), "REFDIST_TIMEOUT": str(fault.limit), "SECONDS": str(fault.late or fault.limit)}
    more = options(MPIEXEC, env)
    kind = fault.words
    if fault.servers:
        program = [str(SERVED), kind]
    elif "\n" in kind or not kind:
        (folder / "program.py").write_text((kind or STRANGERS).replace("{folder!r}", repr(str(FAULTS.parent))))
        program = [str(folder / "program.py")]
    else:
        program = [str(FAULTS), kind, "1"]
        if kind.startswith("early "):
            env["READY"] = str(folder / "ready")
    if way == "mpiexec":
        count = fault.workers + (fault.servers and fault.servers + 1)
        start = [str(MPIEXEC), *more, "-n", str(count), sys.executable]
        env |= {"REFDIST_PS": str(fault.servers)} if fault.servers else {}
    else:
        start = [sys.executable, "-m", "refdist", "launch"]
        start += (["--workers", str(fault.workers), "--ps", str(fault.servers)] if fault.servers else
                  ["-n", str(fault.workers)])
    if os.geteuid() == 0 and fault.shell:
        subprocess.run(fault.shell, shell=True, check=True)
    before = files()
    job = subprocess.Popen([*start, *program], env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    lines: list[tuple[float, str]] = []

    def read() -> None:
        assert job.stderr is not None
        lines.extend((time.time(), line.decode(errors="replace").rstrip()) for line in job.stderr)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        status = job.wait(HANG / 3)
        end = time.time()
    except subprocess.TimeoutExpired:
        status, end = HANGS, time.time()
        for pid in processes_of(run):
            processes.kill(pid)
        job.wait()
    left = [f"process {words[:60]}" for words in left_of(run)] + sorted(files() - before)
    for pid in processes_of(run):
        processes.kill(pid)
    reader.join(5)
    at = (folder / "at").stat().st_mtime if (folder / "at").exists() else None
    shutil.rmtree(folder)
    first = next((when for when, line in lines if tells(line)), None)
    message = next((line for which in (names, tells) for _, line in lines if which(line)), "")
    return Measured(plain(message), None if first is None or at is None else first - at,
                    None if at is None else end - at, status, [plain(word) for word in left])


def files() -> set[str]:
    """What lies in the places of which a row has its own."""
    return {str(path) for place in PRIVATE for path in Path(place).rglob("*")} if os.geteuid() == 0 else set()


def tells(line: str) -> bool:
    """Whether a line says what happened, and is not part of a traceback or the launcher's own."""
    return bool(re.match(r"\[(workers?|launcher|chief|ps)\b", line)) and not re.match(
        r"\[.*?\] (Traceback|  |mpi4py\.MPI\.Exception|The above|\S*Warning|.*Warning: )", line)


def names(line: str) -> bool:
    """Whether a line says it of the worker, and is not that of one that misses it."""
    return tells(line) and "[RD01] all_reduce" not in line


def plain(line: str) -> str:
    """A line without numbers of processes, and folders."""
    line = re.sub(r"\((process|\S+, process) \d+\)", "(process N)", line)
    line = re.sub(r"'?/\S*/(\w+\.py)", r"\1", line)
    line = re.sub(r"(hydra_hwloc_xmlfile_|ompi|sm_segment)\S+", r"\1...", line)
    return re.sub(r"[0-9a-f]{8,}", "...", line)


def cell(measured: Measured | None) -> str:
    """How it went one way."""
    if measured is None:
        return "-"
    times = ", ".join("-" if seconds is None else f"{seconds:.{1 if seconds > 1 else 2}f}"
                      for seconds in (measured.first, measured.ended))
    if measured.status == HANGS:
        return f"{times.partition(',')[0]}; it does not end"
    return f"{times}, {measured.status}" + "".join(f"; left: {process}" for process in sorted(set(measured.left)))


def lines_of(results: list[tuple[Fault, dict[str, Measured]]]) -> Iterator[str]:
    """The table."""
    yield "| what happens | what is said | launch | mpiexec |"
    yield "| --- | --- | --- | --- |"
    for fault, by_way in results:
        messages = (run.message for way in WAYS if (run := by_way.get(way)))
        message = next(filter(None, messages), "")
        if len(message) > 110:
            message = message[:110].rpartition(" ")[0] + " ..."
        cells = [fault.what, message.replace("|", "/"), *(cell(by_way.get(way)) for way in WAYS)]
        yield "| " + " | ".join(cells) + " |"


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows with this word")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--write", action="store_true", help="into docs/supervision.md")
    parser.add_argument("--row", help=argparse.SUPPRESS)  # of one of them, which prints what came of it
    chosen = parser.parse_args(arguments)
    if chosen.row:
        number, way = chosen.row.split()
        print(json.dumps(measured(TABLE[int(number)], way)))
        return 0
    openmpi = is_openmpi()
    todo = [(number, way) for number, fault in enumerate(TABLE) for way in fault.ways if chosen.only in fault.what
            and not (openmpi and fault.words.endswith("proxy"))
            and not (openmpi and way == "mpiexec" and fault.words.endswith("supervisor"))]

    def row(which: tuple[int, str]) -> Measured:
        words = privately(__file__, ["--row", f"{which[0]} {which[1]}"])
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        outcome = Measured(*json.loads(done.stdout.splitlines()[-1]))
        print(f"{TABLE[which[0]].what} | {which[1]} | {cell(outcome)} | {outcome.message[:150]}", flush=True)
        return outcome

    with ThreadPoolExecutor(chosen.jobs) as pool:
        came = dict(zip(todo, pool.map(row, todo), strict=True))
    results = [(fault, {way: came[number, way] for way in WAYS if (number, way) in came})
               for number, fault in enumerate(TABLE) if any(number == key[0] for key in came)]
    text = "\n".join(lines_of(results)) + "\n"
    print("\n" + text)
    if chosen.write:
        name = "OpenMPI" if openmpi else "MPICH"
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = PAGE.read_text().partition(begin)
        assert end in rest, f"{PAGE} has no {begin}"
        old, _, after = rest.partition(end)
        rows = {line.split(" | ")[0]: line for line in (old + text).splitlines()}
        order = [*text.splitlines()[:2], *(rows[row] for fault in TABLE if (row := f"| {fault.what}") in rows)]
        PAGE.write_text(before + begin + "\n".join(order) + "\n" + end + after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
