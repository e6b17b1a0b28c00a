"""How a job ends when a worker fails.

The rule: who has something to say says it, and then all end, within seconds, whatever has died.  Nothing of it is sent
through MPI, which cannot be relied on when a process is gone: in MPICH no call reports it, and a message to a dead
process can crash its sender.  Instead

* every worker has a parent that outlives it, its supervisor (`supervisor`, `supervised`), and above those of a host is
  either `python -m refdist launch` (`launch`) or mpiexec alone;
* workers look at each other (`watch`): in /proc for those of the same host, over UDP for the rest;
* what several workers of a host have to say alike is printed once (`reports`).

An exception that is not caught ends the job when it was printed.  One that all workers have, because they saw the same
difference or lost the same worker, waits until all of them have printed it.  A program that returns too early ends with
its own exit status, which is that of the job.

Supervisors have a reason besides the launchers that kill everything at the first death: MPI's own start waits for all
processes without a limit, inside of MPI, and only another process can count the seconds.

Who watches whom, who tidies, and what no process can say is in docs/supervision.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from refdist import journal
from refdist.backends.mpi import processes, supervised
from refdist.backends.mpi.printing import flush
from refdist.backends.mpi.reports import EVERYONE_SECONDS, MERGE_SECONDS
from refdist.backends.mpi.supervisor import FAILED, FORWARD_SECONDS, write
from refdist.core import tracebacks
from refdist.workers.launcher import prefixed

AGAIN_SECONDS = 1.0  # in which a second SIGINT is the first one again

Abort = Callable[[int], object]


def end_job_on_exceptions(who: str, abort: Abort) -> None:
    """Makes an uncaught exception end all workers, after it was printed with the name of this one."""
    process, before = os.getpid(), sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != process:  # it is no worker what a worker has forked
            before(kind, error, trace)
            return
        if issubclass(kind, KeyboardInterrupt):
            interrupted(abort)
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(Exception):  # the disk is full, on which it is recorded
            journal.tell(error)
        text = "".join(traceback.format_exception(tracebacks.cut(error)))
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            text += processes.too_many_open_files()
        flush()
        if _report(who, text, getattr(error, "on_every_worker", False)):
            os._exit(FAILED)
        abort(FAILED)

    sys.excepthook = hook
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler or supervised.ignores_interrupts():
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, Interrupt())


class Interrupt:
    """The handler of SIGINT: one Ctrl-C reaches a worker with its process group, and again through its supervisor."""

    def __init__(self) -> None:
        self._last = -AGAIN_SECONDS

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        again, self._last = now < self._last + AGAIN_SECONDS, now
        if not again:
            signal.default_int_handler(number, frame)


def end_too_early(who: str, error: BaseException, abort: Abort) -> None:
    """Reports that this worker's program has ended while the others go on.

    Under a supervisor the process then ends with the exit status of the program, else with the job.
    """
    if not _report(who, str(error), True, ends=True):
        abort(FAILED)


def interrupted(abort: Abort) -> None:
    """Ends this process, which SIGINT has interrupted, and with it the job."""
    supervised.interrupted()
    abort(128 + signal.SIGINT)


def _report(who: str, text: str, everyone: bool, ends: bool = False) -> bool:
    # Whether it was printed by another process, together with those of the other workers.
    if supervised.report(text, EVERYONE_SECONDS if everyone else MERGE_SECONDS, everyone, ends):
        return True
    write(prefixed(who, text))
    # The others have something to say too, and a launcher drops what it has not forwarded when a job is aborted.
    time.sleep(EVERYONE_SECONDS if everyone else FORWARD_SECONDS)
    return False
