"""A testee to begin with: dense layers without an activation, and replicas that are parts of an array."""

import numpy as np
from trainer_jobs import answer, beyond, jobs


def mean(parts, counts):
    """The mean over all rows, from the means of replicas."""
    return sum(part * count for part, count in zip(parts, counts, strict=True)) / sum(counts)


def train(job):
    [layer] = job["model"]
    x, y, kernel = (np.array(values) for values in (job["rows"]["x"], job["rows"]["y"], layer["kernel"]))
    losses, rate = [], job["optimizer"]["learning_rate"]
    for _ in range(job["epochs"]):
        for start in range(0, len(x), job["batch"]):
            batch = np.arange(start, min(start + job["batch"], len(x)))
            parts = [rows for rows in np.array_split(batch, job["replicas"]) if len(rows)]
            errors = [x[rows] @ kernel - y[rows] for rows in parts]
            counts = [len(rows) for rows in parts]
            losses.append(mean([(error ** 2).mean() for error in errors], counts))
            gradients = [2 * x[rows].T @ error / error.size for rows, error in zip(parts, errors, strict=True)]
            kernel = kernel - rate * mean(gradients, counts)
    answer(job, losses=losses, weights={f"{layer['name']}/kernel": kernel.tolist()}, done=True)


if __name__ == "__main__":
    for job in jobs(beyond):
        train(job)
