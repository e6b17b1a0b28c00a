"""Goes wrong on one worker: faults.py KIND VICTIM, in several processes; SECONDS is how long the others wait for it.

With a SHM, every worker appends the names of its shared memory, and of its launcher's folder, to that file.  READY is a
folder in which processes wait for each other before they start.  AT is a file that is made when it goes wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import refdist
from refdist.backends.mpi import processes
from refdist.cluster_resolver import launched

# What dies of which signal, as seen from the victim: itself, or one of those above it.
KILLS = {"kill": ("self", signal.SIGKILL), "segv": ("self", signal.SIGSEGV), "term": ("self", signal.SIGTERM),
         "stop": ("self", signal.SIGSTOP), "stuck": ("self", signal.SIGKILL),
         "supervisor": ("supervisor", signal.SIGKILL), "abrt-supervisor": ("supervisor", signal.SIGABRT),
         "segv-supervisor": ("supervisor", signal.SIGSEGV), "term-supervisor": ("supervisor", signal.SIGTERM),
         "stop-supervisor": ("supervisor", signal.SIGSTOP),
         "stop-proxy": ("hydra_pmi_proxy", signal.SIGSTOP), "stop-mpiexec": ("mpiexec", signal.SIGSTOP),
         "proxy": ("hydra_pmi_proxy", signal.SIGKILL), "mpiexec": ("mpiexec", signal.SIGKILL),
         "launcher": ("launcher", signal.SIGKILL), "term-mpiexec": ("mpiexec", signal.SIGTERM),
         "int-mpiexec": ("mpiexec", signal.SIGINT), "term-launcher": ("launcher", signal.SIGTERM),
         "int-launcher": ("launcher", signal.SIGINT), "hup-launcher": ("launcher", signal.SIGHUP)}


def above() -> dict[str, int]:
    """The processes above this one, by their names."""
    pids = {"self": os.getpid(), "supervisor": os.getppid()}
    pid = os.getpid()
    while (here := processes.facts(pid)) is not None and here.parent > 1:
        pid = here.parent
        name = processes.facts(pid)
        if name is not None:
            pids.setdefault("mpiexec" if name.name.startswith(("mpiexec", "prte")) else name.name, pid)
    if "REFDIST_LAUNCHER" in os.environ:
        pids["launcher"] = int(os.environ["REFDIST_LAUNCHER"].split()[0])
    return pids


def note_the_time() -> None:
    """Makes the file AT, whose time is then that of the first fault."""
    if "AT" in os.environ:
        with contextlib.suppress(FileExistsError):
            Path(os.environ["AT"]).touch(exist_ok=False)


def fault(kind: str) -> None:
    note_the_time()
    if kind in KILLS:
        name, number = KILLS[kind]
        os.kill(above()[name], number)
        if name != "self" and number != signal.SIGSTOP:
            threading.Event().wait()
    elif kind == "raise":
        raise KeyError("the rows of May are missing")
    elif kind in ("return", "sys.exit"):
        sys.exit({"return": 0, "sys.exit": 3}[kind])
    elif kind in ("os._exit", "os._exit 0"):
        os._exit({"os._exit": 4, "os._exit 0": 0}[kind])
    elif kind == "exit in C":
        ctypes.CDLL(None).exit(5)
    elif kind == "abort":
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(3)
    elif kind in ("linger", "absent"):
        signal.pause()


def come(folder: Path) -> None:
    """Waits until all processes are here, so that the limit of the start begins when the slowest can start, too."""
    folder.mkdir(exist_ok=True)
    (folder / str(launched().rank)).touch()
    while len(list(folder.iterdir())) < launched().size:
        time.sleep(0.01)


class Stuck:
    """A request that keeps whoever asks whether it is done."""

    def Test(self) -> bool:  # noqa: N802 - MPI's name
        return threading.Event().wait()


if __name__ == "__main__":
    kind, victim = sys.argv[1], int(sys.argv[2])
    if kind.startswith("early ") and "READY" in os.environ:
        come(Path(os.environ["READY"]))
    if kind == "early stop in MPI" and launched().rank == victim:
        sys.addaudithook(lambda event, names: fault("stop") if (event, names[:1]) == ("import", ("mpi4py",)) else None)
    elif kind.startswith("early ") and launched().rank == victim:
        fault(kind.removeprefix("early "))
    if kind == "threads":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if kind.startswith("ending ") and launched().rank == victim:  # called when refdist's has been
        atexit.register(fault, kind.removeprefix("ending "))
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.extended.transport.rank
    if "SHM" in os.environ:
        with open("/proc/self/maps") as maps, open(os.environ["SHM"], "a") as file:
            names = {*re.findall(r"/dev/shm/\S+", maps.read())}
            if "REFDIST_LAUNCHER" in os.environ and "PMIX_SERVER_TMPDIR" in os.environ:
                names.add(os.environ["PMIX_SERVER_TMPDIR"])  # a folder of OpenMPI's mpiexec
            file.writelines(sorted(name + "\n" for name in names))

    def total() -> float:
        rows = 4 if kind == "shape" and rank == victim else 3
        part = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(rows)))
        return float(part[0])

    if kind != "shape":
        assert total() == strategy.num_replicas_in_sync
    # From here on; starting may take its time.
    strategy.extended.transport.timeout = float(os.environ.get("SECONDS", "60"))
    if rank == victim or kind == "stop everybody":
        fault(kind.removesuffix(" everybody"))
    if kind == "stuck" and rank == victim + 1:
        strategy.extended.transport._wait(Stuck())
    total()
    print("came through")
