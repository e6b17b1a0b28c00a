"""A training job that saves all that it has, for tests that start it again: restarted.py FOLDER [STEP ...].

A softmax model with momentum, dropout and noise is trained for EPOCHS epochs; a checkpoint holds its variables, the
momentum, the generator, the step, the iterator, and how often each row was read.  The noise is drawn from NumPy's and
Python's own generators.  At each of these steps worker 1 does to itself, once, what
FAULT says: KILL or another signal, EXIT, RAISE, or PREEMPT, which has a handler of preemption save.  At the end each
worker writes its values into FOLDER.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import refdist

ROWS, FEATURES, CLASSES, BATCH, EPOCHS, EVERY = 36, 5, 3, 6, 5, 4
STEPS = EPOCHS * ROWS // BATCH


def train(folder: Path, at: set[int], fault: str = "KILL", pause: float = 0.0) -> list[Any]:
    """Trains, from the last checkpoint in the folder on; the values at the end."""
    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    np.random.seed(rank)
    random.seed(rank)
    source = np.random.default_rng(0)
    x = source.normal(size=(ROWS, FEATURES)).astype(np.float32)
    labels = source.integers(CLASSES, size=ROWS)
    with strategy.scope():
        mean = refdist.VariableAggregation.MEAN
        weights = refdist.Variable(np.zeros((FEATURES, CLASSES), np.float32), aggregation=mean)
        momentum = refdist.Variable(np.zeros((FEATURES, CLASSES), np.float32), aggregation=mean, trainable=False)
        read = refdist.Variable(np.zeros(ROWS, np.int64), synchronization=refdist.VariableSynchronization.ON_READ,
                                aggregation=refdist.VariableAggregation.SUM, trainable=False)
        generator = refdist.random.Generator.from_seed(7)
    step = refdist.Variable(np.int64(0), trainable=False)
    rows = refdist.data.Dataset.from_tensor_slices((x, labels, np.arange(ROWS)))
    batches = iter(strategy.experimental_distribute_dataset(rows.shuffle(ROWS, seed=3).batch(BATCH).repeat(EPOCHS)))
    checkpoint = refdist.train.Checkpoint(model=[weights], optimizer=[momentum], generator=generator, step=step,
                                          iterator=batches, read=read)
    manager = refdist.train.CheckpointManager(checkpoint, folder / "checkpoints", max_to_keep=2)
    handler = None
    if fault == "PREEMPT":
        handler = refdist.experimental.PreemptionCheckpointHandler(strategy.cluster_resolver, manager)
    else:
        manager.restore_or_initialize()
    def training_step(x: Any, labels: Any, numbers: Any) -> None:
        keep = np.asarray(generator.uniform(x.shape)) < 0.8
        x = np.where(keep, x + 0.1 * np.random.normal(size=x.shape) + 0.1 * random.gauss(0, 1), 0).astype(np.float32)
        scores = np.exp(x @ np.asarray(weights))
        gradient = x.T @ (scores / scores.sum(1, keepdims=True) - np.eye(CLASSES, dtype=np.float32)[labels])
        total = refdist.get_replica_context().all_reduce("SUM", gradient.astype(np.float32)) / np.float32(BATCH)
        momentum.assign(np.float32(0.9) * np.asarray(momentum) + total)
        weights.assign_sub(np.float32(0.1) * np.asarray(momentum))
        read.assign_add(np.bincount(numbers, minlength=ROWS))

    for batch in batches:
        strategy.run(training_step, args=batch)
        step.assign_add(np.int64(1))
        if int(step) % EVERY == 0:
            manager.save()
        (folder / f"step {rank}").write_text(str(int(step)))
        time.sleep(pause)
        once = folder / f"fault {int(step)}"
        if rank == 1 and int(step) in at and not once.exists():
            once.touch()
            if fault == "RAISE":
                raise KeyError("the rows of May are missing")
            if fault == "EXIT":
                os._exit(4)
            os.kill(os.getpid(), signal.SIGTERM if handler else signal.Signals[f"SIG{fault}"])
        if handler:
            handler.save_checkpoint_if_preempted()
    next_numbers = np.array([*np.asarray(generator.uniform((4,))), np.random.uniform(), random.random()])
    return [np.asarray(weights), np.asarray(momentum), read.numpy(), int(step), next_numbers]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    values = train(target, set(map(int, sys.argv[2:])), os.environ.get("FAULT", "KILL"),
                   float(os.environ.get("PAUSE", "0")))
    number = refdist.cluster_resolver.launched().rank  # type: ignore[union-attr]
    np.savez(target / f"values {number}.npz", *values)
