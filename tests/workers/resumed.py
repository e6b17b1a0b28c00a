"""Trains for 8 steps and saves after each: resumed.py FOLDER KILL_AT; killed by itself in step KILL_AT, at the
moment KILL_WHERE of the save (before, written, promised)."""

from __future__ import annotations

import os
import signal
import sys
import zlib

import numpy as np

import refdist
from refdist.checkpoints import files

if __name__ == "__main__":
    folder, kill_at, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    strategy = refdist.MultiWorkerMirroredStrategy()
    with strategy.scope():
        w = refdist.Variable(np.linspace(0, 1, 5, dtype=np.float32), aggregation=refdist.VariableAggregation.MEAN)
        seen = refdist.Variable(np.int64(0), synchronization=refdist.VariableSynchronization.ON_READ,
                                aggregation=refdist.VariableAggregation.SUM)
        step = refdist.Variable(np.int64(0))
    manager = refdist.train.CheckpointManager(refdist.train.Checkpoint(w=w, seen=seen, step=step), folder, 2)
    manager.restore_or_initialize()
    replace = os.replace

    def dying(source: str, target: str, **folders: int) -> None:
        named = "promised" if os.path.basename(target) == files.INDEX else "written"
        if int(step.numpy()) == kill_at and where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target, **folders)
        if int(step.numpy()) == kill_at and where == named:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill_at and strategy.extended.should_checkpoint:
        os.replace = dying  # type: ignore[assignment]

    def train(number: int) -> None:
        i = refdist.get_replica_context().replica_id_in_sync_group
        w.assign_add(np.sin(w.numpy() * (i + 1) + number).astype(np.float32))
        seen.assign_add(np.int64(i + number))

    while int(step.numpy()) < 8:
        strategy.run(train, args=(int(step.numpy()),))
        step.assign_add(np.int64(1))
        manager.save()
    # In one piece: the lines of two workers would mix.
    sys.stdout.write(f"weights {zlib.crc32(w.numpy().tobytes())} {int(seen.read_value())} {len(manager.checkpoints)}\n")
