"""Goes wrong on one worker: faults.py KIND VICTIM, under mpiexec; SECONDS is how long the others wait for it."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import refdist
from refdist.cluster_resolver import launched

if __name__ == "__main__":
    kind, victim = sys.argv[1], int(sys.argv[2])
    if kind == "absent" and launched().rank == victim:
        signal.pause()
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.extended.transport.rank

    def total() -> float:
        part = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(3)))
        return float(part[0])

    assert total() == strategy.num_replicas_in_sync
    # From here on; starting may take its time.
    strategy.extended.transport.timeout = float(os.environ.get("SECONDS", "60"))
    if rank == victim:
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "raise":
            raise KeyError("the rows of May are missing")
        elif kind == "return":
            sys.exit(0)
        elif kind == "linger":
            signal.pause()
    total()
    print("came through")
