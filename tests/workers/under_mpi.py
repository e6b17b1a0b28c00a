"""Runs programs as one of the processes that mpiexec started: under_mpi.py FOLDER PROGRAM ...

What each returns is written to FOLDER/PROGRAM.RANK.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import programs

    import refdist

    folder, *names = sys.argv[1:]
    rank = refdist.MultiWorkerMirroredStrategy().extended.transport.rank
    for name in names:
        results = getattr(programs, name)()
        (Path(folder) / f"{name}.{rank}").write_bytes(pickle.dumps(results))
