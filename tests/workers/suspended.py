"""Adds until it is told to end: suspended.py FOLDER LIMIT, in several processes.

Each sum is a byte more in the file `steps`; a file `end` ends the program.  Each number follows from the one before,
and every bit of it matters, so that what is printed shows whether all sums were right.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import refdist

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.extended.transport.rank
    strategy.extended.transport.timeout = float(sys.argv[2])  # from here on; starting may take its time
    number, count, ended = 0.3, 0, False
    with open(folder / "steps", "ab", buffering=0) as steps:
        while not ended:
            for _ in range(20 if rank == 2 else 0):
                time.sleep(0.01)  # for most of the time, and again when the job goes on, the others wait for this one
            contribution = np.array([number * (1 - number) * (1.1 + 0.1 * rank), (folder / "end").exists()])
            total = strategy.run(lambda x=contribution: refdist.get_replica_context().all_reduce("SUM", x))
            number, ended, count = float(total[0]), bool(total[1]), count + 1
            if rank == 0:
                steps.write(b".")
    sys.stdout.write(f"{count} sums: {number.hex()}\n")
