"""How a process starts MPI: with a supervisor that counts the seconds, and errors that end the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from refdist import errors
from refdist.backends.mpi import failure, mpi_types, supervised
from refdist.backends.mpi.printing import print_whole_texts
from refdist.backends.mpi.supervisor import DEFAULT_TIMEOUT, TIMEOUT_VARIABLE
from refdist.core import saved, warned
from refdist.workers.launcher import launched, task_of


@contextmanager
def started(seconds: float) -> Iterator[tuple[mpi_types.MPI, bool]]:
    """MPI, and whether it has to be ended by the caller; the `with` block is limited to these seconds.

    Raises:
        RD20: MPI has ended in this process.  RD27: mpi4py cannot be used.
    """
    _hand_over()
    supervised.start()
    launch = launched()
    if launch is not None:
        failure.end_job_on_exceptions(str(task_of(launch.rank, launch.size)), os._exit)  # until there is MPI
    with supervised.limited_start(seconds):
        try:
            import mpi4py

            # Else MPI ends with the interpreter, and after a failure waits for the others for ever.
            ends_here = "mpi4py.MPI" not in sys.modules
            mpi4py.rc.finalize = not ends_here
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise errors.error("RD27", "workers under MPI", f"mpi4py cannot be used: {error}",
                               "Run `pip install mpi4py mpich`, which installs an MPI library and its mpiexec."
                               ) from error
        if MPI.Is_finalized():
            raise errors.error("RD20", "workers under MPI", "MPI has ended in this process, which is a task of a job "
                               "with parameter servers", "Use ParameterServerStrategy alone in such a job.")
        supervised.tell("initialized")
        print_whole_texts()
        loaded: Any = MPI
        world = MPI.COMM_WORLD
        failure.end_job_on_exceptions(str(task_of(world.Get_rank(), world.Get_size())), world.Abort)
        yield loaded, ends_here


def joins(who: str) -> None:
    """What `started` does besides, in a process without MPI, in which errors end it and not the job.

    Args:
        who: the name of its task.
    """
    _hand_over()
    print_whole_texts()
    failure.end_job_on_exceptions(who, os._exit)


def _hand_over() -> None:
    warned.hand_over(supervised.warn)
    saved.hand_over(supervised.saved)


def limit(wanted: float | None) -> float:
    """The seconds that a process waits for the others: those wanted, or of the environment, or the default.

    Raises:
        RD34: the environment has something else.
    """
    text = os.environ.get(TIMEOUT_VARIABLE)
    if wanted is not None or not text:
        return DEFAULT_TIMEOUT if wanted is None else wanted
    attempted = f"environment variable {TIMEOUT_VARIABLE}={text!r}"
    try:
        seconds = float(text)
    except ValueError as error:
        raise errors.error("RD34", attempted, "it is not a number", f"Write {TIMEOUT_VARIABLE}=60.") from error
    if not seconds > 0:  # nor is it NaN, which no time exceeds
        raise errors.error("RD34", attempted, "it is not a number above 0", f"Write {TIMEOUT_VARIABLE}=60.")
    return seconds
