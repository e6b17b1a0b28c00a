"""A worker and its supervisor, as the worker sees them.

Three ways to be supervised.  `python -m refdist launch` starts supervisors, which start the script: nothing has been
imported by then.  Under plain mpiexec of MPICH a process with one thread forks when it makes its strategy, and goes on
in the child.  A process with more threads does not fork, because threads do not survive it and what waits for them
hangs (OpenMP in PyTorch); it warns that it is not watched.  OpenMPI's launcher does not kill the survivors of a
worker when it is told so, and needs no supervisor for that.

The threads of OpenBLAS, which NumPy starts when it is imported, do not count: OpenBLAS ends them before a fork by
itself, and starts them again when it needs them.  Its function that ends them cannot be called instead: the OpenBLAS of
NumPy 2.5 does not export it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from refdist.backends.mpi import alone, last_words, processes
from refdist.backends.mpi.datagrams import Notice
from refdist.backends.mpi.printing import flush
from refdist.backends.mpi.reports import EVERYONE_SECONDS, claimed, desk_of
from refdist.backends.mpi.supervisor import FAILED, Started, Supervisor
from refdist.core import call_site
from refdist.workers.launcher import RESTARTS_VARIABLE, SUPERVISED_VARIABLE, launched, prefixed, task_of

_ANSWER_SECONDS = 15.0
_UCX_VARIABLE = "UCX_POSIX_DIR"  # where UCX makes files
_UCX_SIGNAL_VARIABLE = "UCX_DEBUG_SIGNO"  # at which it begins to print all that it does, and nothing ends: SIGHUP
_supervisor: socket.socket | None = None
_several_hosts = False
_launched = False  # whether the supervisor has started this program
_MOST = 100_000  # bytes of a text in a message; Linux takes messages of twice as many


def attach() -> bool:
    """Whether a supervisor has started this program, which then is its supervisor."""
    global _supervisor, _launched
    parent, number, *own = map(int, os.environ.get(SUPERVISED_VARIABLE, "0 0").split())
    if not _launched and parent == os.getppid():
        _supervisor = socket.socket(fileno=number)
        _supervisor.set_inheritable(False)
        if own:
            flush()
            last_words.give_back(own[0])
        _launched = True
    return _launched


def start() -> None:
    """Finds the supervisor of this process, or forks so that it gets one.

    Under MPICH the launcher watches the parent, and kills all workers when a process of its own dies by a signal.
    """
    global _supervisor
    if attach():
        return
    started_by = launched()
    if started_by is None or started_by.launcher != "Hydra" or "mpi4py.MPI" in sys.modules:
        for launcher, _ in processes.launchers()[:1]:
            # OpenMPI's does not always end the workers that it has when it ends, and cannot when it is killed.
            processes.die_with(launcher, signal.SIGKILL)
        return
    threads = _threads()
    if threads > 1:
        if not claimed(f"{desk_of(os.getppid())}.warned"):
            return
        call_site.warn(
            f"this process has {threads} threads, which do not survive a fork, so it is not supervised: when a worker "
            "is killed or ends too early, all end at once, and none says why; start the program with `python -m "
            "refdist launch -n N script.py`, or make the strategy before anything starts threads", RuntimeWarning)
        return
    flush()
    supervisor = Supervisor()
    child = supervisor.fork()
    if child:
        try:
            supervisor.watch(Started(child))
        finally:  # whatever happens there, this process does not go on with the program
            os._exit(FAILED)
    _supervisor = supervisor.worker()


def tell(kind: str, **more: object) -> None:
    """Tells the supervisor how far this worker is; nothing where there is none."""
    if _supervisor is not None:
        with contextlib.suppress(OSError):
            _supervisor.send(json.dumps({"kind": kind, **more}).encode())


def warn(text: str) -> None:
    """Has a warning printed, together with those of the other workers that give the same one."""
    if _supervisor is None:
        launch = launched()
        who = "worker ?" if launch is None else str(task_of(launch.rank, launch.size))
        sys.stderr.write(prefixed(who, text))
    else:
        tell("warning", text=_end(text))


def saved(path: str, step: int | None) -> None:
    """Tells the supervisor which checkpoint is complete."""
    tell("saved", path=path, step=step)


def hand_over(notice: Notice) -> None:
    """Gives the supervisor what it sends to the workers of other hosts, too, when this one is lost."""
    global _several_hosts
    _several_hosts = True
    tell("notice", **notice._asdict())


def restarts() -> int:
    """How often the supervisor starts this program again when it is lost and the job goes on; 0 where it does not."""
    text = os.environ.get(RESTARTS_VARIABLE, "")
    return int(text) if _launched and text.isdecimal() else 0


def left_behind() -> dict[str, Any]:
    """What a process has left (`spared`) in whose place this one was started; empty where there was none."""
    return _asked("left behind") if attach() else {}


def lost(status: int) -> None:
    """Tells the supervisor that a worker is dead, perhaps on another host, and with which status the job ends."""
    tell("lost", status=status)


def report(text: str, wait: float, everyone: bool, ends: bool) -> bool:
    """Has a text printed as that of this worker; False where there is no supervisor that does it.

    A worker that does not end by itself stays here until its supervisor ends the job.

    Args:
        text: what is printed.
        wait: how many seconds it may wait for the same text of other workers.
        everyone: whether it is the same failure that all workers have, and not of this one.
        ends: whether this process ends by itself then, with an exit status of its own.
    """
    if _supervisor is None:
        return False
    tell("report", text=_end(text), wait=wait, everyone=everyone, ends=ends)
    printed = _answer(wait + _ANSWER_SECONDS) is not None
    if printed and everyone and _several_hosts:
        # Workers of other hosts, who see the same at the same time, still ask this one, and report elsewhere.
        time.sleep(EVERYONE_SECONDS)
    return printed


def _end(text: str) -> str:
    # As much of it as a message has room for; JSON writes other letters than ASCII's in six or twelve bytes.
    text = text[-_MOST:]
    while (size := len(json.dumps(text))) > _MOST:
        text = text[-(len(text) * _MOST // size):]
    return text


def _forget() -> None:
    # Called in what a worker has forked, which is no worker.
    global _supervisor
    _supervisor = None


os.register_at_fork(after_in_child=_forget)


def _answer(seconds: float) -> dict[str, Any] | None:
    # None where the supervisor says nothing.
    assert _supervisor is not None
    answer = _supervisor.recv(1 << 18) if select.select([_supervisor], [], [], seconds)[0] else b""
    fields: dict[str, Any] | None = json.loads(answer) if answer else None
    return fields


def _asked(kind: str, **more: object) -> dict[str, Any]:
    # Empty where the supervisor says nothing.
    tell(kind, **more)
    answer = _answer(_ANSWER_SECONDS)
    while answer is None and _is_stopped(os.getppid()):  # it may have asked the launcher what MPI would hear then
        answer = _answer(_ANSWER_SECONDS)
    return answer or {}


def _is_stopped(pid: int) -> bool:
    process = processes.facts(pid)
    return process is not None and process.state == "T"


def ignores_interrupts() -> bool:
    """Whether this process ignores SIGINT only because its supervisor has started it so."""
    return _launched and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def interrupted() -> None:
    """Ends this process as SIGINT ends others; the supervisor says it, once for all workers."""
    if _supervisor is not None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def limited_start(seconds: float) -> Iterator[None]:
    """Ends this process when the `with` block takes longer than `seconds`.

    Another process does it: MPI holds the interpreter's lock while it starts, so no thread of this one would run.
    """
    os.environ.setdefault(_UCX_SIGNAL_VARIABLE, "0")  # none: a terminal that is closed ends programs
    if _supervisor is not None:
        answer = _asked("starting", limit=seconds)
        if answer.get("ucx"):
            os.environ.setdefault(_UCX_VARIABLE, answer["ucx"])
        yield
        tell("joined")
        return
    launch = launched()
    guard = subprocess.Popen([sys.executable, "-I", "-S", alone.__file__, "limit", str(os.getpid()), str(seconds),
                              "worker ?" if launch is None else str(task_of(launch.rank, launch.size))])
    try:
        yield
    finally:
        guard.kill()
        guard.wait()


def _threads() -> int:
    # Some libraries end their threads before a fork; those threads are gone after this one.
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if not child:
        os._exit(0)
    processes.wait_for(child)
    # Linux may still list a thread for a moment after it was joined.
    threads = map(processes.facts, map(int, os.listdir("/proc/self/task")))
    return sum(not thread.ends for thread in threads if thread is not None)
