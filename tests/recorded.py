"""A program in which much happens, for tests of recordings: two workers with two replicas each, and a mismatch.

`tests/expected/recording.jsonl` is its recording; `python tests/recorded.py` writes it.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np

import refdist
from refdist.insight import files

PATH = Path(__file__).parent / "expected" / "recording.jsonl"


def replica() -> Any:
    """The context of this replica."""
    return refdist.get_replica_context()


def training_step(weights: Any, rows: Any) -> Any:
    """One step; the mean of the rows is subtracted from the weights."""
    total = replica().all_reduce("SUM", np.asarray(rows, np.float32).sum(axis=0))
    weights.assign_sub(total / 8)
    return total


def report(strategy: Any, value: Any) -> None:
    """Called once for all replicas."""
    print("merged on this worker")


def program() -> None:
    """What each worker does."""
    random.seed(0)  # workers agree on a seed for their datasets
    strategy = refdist.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = refdist.Variable(np.zeros(3, np.float32), name="weights",
                                   aggregation=refdist.VariableAggregation.MEAN)
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    dataset = refdist.data.Dataset.from_tensor_slices(rows).shuffle(8, seed=1).batch(4)
    for batch in strategy.experimental_distribute_dataset(dataset):
        strategy.run(training_step, (weights, batch))
    strategy.run(lambda: replica().merge_call(report, (1.0,)))

    def diverged() -> Any:
        return replica().all_reduce("SUM", np.full(20, np.nan if replica().replica_id_in_sync_group == 2 else 1.0))

    strategy.run(diverged)

    def mismatch() -> None:
        if replica().replica_id_in_sync_group % 2:
            replica().all_reduce("SUM", np.ones(2))
        else:
            replica().all_reduce("SUM", np.ones(3))

    strategy.run(mismatch)


def recorded() -> refdist.insight.Recording:
    """The recording of the program, up to its error."""
    with refdist.record() as recording, contextlib.suppress(refdist.errors.RefdistError):
        refdist.simulate_workers(program, 2, 2)
    return recording


if __name__ == "__main__":
    recorded().save(PATH)
    fields = [line.rpartition(b',"crc":')[0] + b"}" for line in PATH.read_bytes().splitlines()]
    here = f"{Path(__file__).parents[1]}/".encode()
    PATH.write_bytes(b"".join(files.sealed(line.replace(here, b"")) + b"\n" for line in fields))
