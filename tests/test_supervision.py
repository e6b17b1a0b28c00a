"""What the processes that watch a job are given: closed streams, ignored signals, names without words, full pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from limits import HANG

from refdist.backends.mpi import alone, processes, supervised

PYTHON_ALONE = [sys.executable, "-I", "-S", alone.__file__]


def supervise(script: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script in a worker that has a supervisor and nothing above it."""
    return subprocess.run([*PYTHON_ALONE, "supervise", sys.executable, "-I", "-c", script], timeout=HANG,
                          stdout=subprocess.PIPE, text=True, **{"stderr": subprocess.PIPE, **more})


def in_a_child(work: Callable[[], object]) -> int:
    """The exit status of a process in which this is done."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_worker_is_named_that_a_signal_without_a_name_has_killed() -> None:
    done = supervise("import os; os.kill(os.getpid(), 40)")
    assert (done.returncode, done.stderr) == (
        168, "[worker 0] was killed by signal 40 before it joined the others\n")


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_nothing_else_is_opened_in_place_of_a_closed_stream(stream: int) -> None:
    opens = f"import os, socket; assert socket.socket().fileno() > 2; assert os.get_inheritable({stream})"
    done = supervise(opens, preexec_fn=lambda: os.close(stream))
    assert done.returncode == 0, done.stderr


def test_how_a_worker_has_ended_is_known_where_its_end_is_ignored() -> None:
    done = supervise("import os; os._exit(3)",
                     preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stderr) == (3, "[worker 0] ended with exit status 3 before it joined the others\n")


def test_a_program_that_ignores_the_ends_of_its_children_gets_a_supervisor() -> None:
    def start() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        assert supervised._threads() >= 1
        processes.outlived(lambda _: None).send(processes.OVER)

    assert in_a_child(start) == 0
