"""A loop of refdist, as in TensorFlow's tutorials, for the testees with NumPy and with JAX."""

import numpy as np
from refdist_step import Step, Trained, values
from trainer_jobs import answer, jobs

import refdist


def batches(job, rows, strategy):
    """The batches of rows, distributed: numbers of rows, x, y, mask."""
    x, y = (np.array(rows[name], np.float32) for name in "xy")
    mask = np.ones_like(y) if rows["mask"] is None else np.array(rows["mask"], np.float32)
    data = refdist.data.Dataset.from_tensor_slices((np.arange(len(y)), x, y, mask))
    if job["shuffle"] is not None:
        data = data.shuffle(len(y), seed=job["shuffle"])
    return strategy.experimental_distribute_dataset(data.batch(job["batch"]))


def train(job, *derivatives):
    """Does a job, and prints the answer.

    Args:
        job: the job.
        derivatives: what `Trained` is made of, beside it.
    """
    strategy = refdist.MirroredStrategy([f"GPU:{number}" for number in range(job["replicas"])])
    with strategy.scope():
        trained = Trained(job, *derivatives)
    local, data = strategy.experimental_local_results, batches(job, job["rows"], strategy)
    checkpoint, steps, result, stop = job["checkpoint"] or {}, [], {}, False
    if "restore" in checkpoint:
        trained.checkpoint.restore(checkpoint["restore"]).assert_consumed()
    for _ in range(job["epochs"]):
        remaining, first = list(data), len(steps)
        while remaining and not stop:
            group, remaining = remaining[:job["accumulate"]], remaining[job["accumulate"]:]
            steps.append(Step(*map(local, strategy.run(trained.step, args=(group, len(steps) + 1)))))
            stop = steps[-1].stop[0] > 0
        absolute, count = (sum(getattr(step, part)[0] for step in steps[first:]) for part in ("absolute", "count"))
        result["metrics"] = {"mean_absolute_error": float(absolute / count)}
    if job["evaluate"]:
        parts = (strategy.run(lambda batch: trained.sums([batch], 0)[0], args=(batch,))
                 for batch in batches(job, job["evaluate"], strategy))
        squares, count, _ = sum(strategy.reduce("SUM", part, axis=None) for part in parts)
        result["eval_loss"] = float(squares / count + trained.penalty(job, values(trained.weights))[0])
    if "save" in checkpoint:
        trained.checkpoint.write(checkpoint["save"])
    variables = trained.weights | trained.statistics
    for replica in range(job["replicas"]):
        copies = {name: local(weight)[replica].numpy().tolist() for name, weight in variables.items()}
        answer(job, replica=replica, weights=copies, steps=len(steps),
               rows=[step.rows[replica].tolist() for step in steps])
    answer(job, **result, losses=[float(step.loss[0]) for step in steps], scale=float(trained.scale.numpy()),
           weights={name: weight.numpy().tolist() for name, weight in variables.items()}, done=True)


def main(*derivatives):
    """Does the jobs; see `train`."""
    for job in jobs():
        train(job, *derivatives)
