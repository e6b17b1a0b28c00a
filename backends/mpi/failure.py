"""Lost workers: processes that died, stopped, or are elsewhere; and how a failed job ends.

Nothing here is sent through MPI, which cannot be relied on when a process is gone: in MPICH no call reports it, and a
message to a dead process can crash its sender.  Instead

* processes of one host are looked up in /proc, which shows a death at the next poll (50 ms);
* the others are asked over UDP.  A thread answers whatever the program is doing, so a worker that computes for too long
  is told from one that is gone.  A question says which rendezvous the asker has given up, and those asked give it up
  too, so that all report the same failure at the same time.  Datagrams that are not of this job are ignored
  (`datagrams`).

The first worker to die must not take the reports of the others with it.  MPICH's launcher kills all processes within
35 ms when one of its own dies by a signal.  So a worker forks before it starts MPI and goes on in the child
(`supervise`); the parent, which the launcher watches, outlives it by ten seconds.  OpenMPI's launcher leaves survivors
alone when it is given `--with-ft ulfm`, and needs no supervisor.  A fork keeps no threads but its own: what has started
a pool of threads before (OpenMP in PyTorch) can hang in the child.

MPI's own start waits for all processes without a limit, inside of MPI, and holds the interpreter's lock meanwhile.  So
its limit is kept by another process (`limited_start`).

An exception that is not caught is printed in one write, with the worker's number on each line, and ends the job.  There
are two waits on that way: for the launcher, which drops output that it has not forwarded when a job is aborted, and,
where all workers have the same error, for the others to print it too.

Not noticed: a process that ends by `os._exit`, after which MPICH's launcher kills the others at once.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from refdist.backends.mpi.watch import ANSWER_SECONDS
from refdist.core import tracebacks

FORWARD_SECONDS = 0.3


def end_job_on_exceptions(rank: int, abort: Callable[[int], object]) -> None:
    """Makes an uncaught exception end all workers, after it was printed with this worker's number."""
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(tracebacks.cut(error)))
        shown = "".join(f"[worker {rank}] {line}\n" for line in text.splitlines())
        sys.stdout.flush()
        os.write(2, shown.encode(errors="replace"))
        # A launcher drops what it has not forwarded when a job is aborted.
        time.sleep(FORWARD_SECONDS)
        if getattr(error, "on_every_worker", False):
            let_others_speak()
        abort(70)

    sys.excepthook = hook


def let_others_speak() -> None:
    """Waits before the job is ended, so that the others can report the same error."""
    time.sleep(2 * ANSWER_SECONDS)
