"""The process that outlives a worker, and the limit of its start."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

from refdist.core.launcher import launched

HOLD_SECONDS = 10.0  # how long a supervisor outlives a worker that was killed


def supervise() -> None:
    """Continues in a child process; the parent waits for it, and ends later than a child that was killed.

    MPICH's launcher watches the parent, and kills all workers when a process of its own dies by a signal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, lambda received, _: _forward(child, received))
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except InterruptedError:
            continue
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        name = signal.Signals(-code).name
        os.write(2, f"[worker {_launcher_rank()}] was killed by {name}\n".encode())
        time.sleep(HOLD_SECONDS)
        code = 128 - code
    os._exit(code)


def _forward(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _launcher_rank() -> str:
    found = launched()
    return "?" if found is None else str(found.rank)


@contextlib.contextmanager
def limited_start(seconds: float) -> Iterator[None]:
    """Ends this process when the `with` block takes longer than `seconds`.

    Another process does it: MPI holds the interpreter's lock while it starts, so no thread of this one would run.
    """
    reading, writing = os.pipe()
    worker, watcher = os.getpid(), os.fork()
    if watcher == 0:
        os.close(writing)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if not select.select([reading], [], [], seconds)[0]:  # nor is it closed, because the process has ended
            os.write(2, f"[worker {_launcher_rank()}] [RD01] starting: not all workers arrived within {seconds:.0f} s. "
                        "Look at why the others did not start.\n".encode())
            os.kill(worker, signal.SIGKILL)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(watcher, 0)
