"""A model of one dense layer in NumPy, for the testee that combines gradients by hand."""

import numpy as np


def beginning(job, kernel):
    """Weights, velocities, learning rate and scale, before the first step."""
    [layer] = job["model"]
    kernel = np.array(kernel, float)
    bias = np.array(layer["bias"] or np.zeros(layer["shape"][1]), float)
    return {"weights": [kernel, bias], "velocity": [0 * kernel, 0 * bias], "scale": job["loss_scale"],
            "rate": job["optimizer"]["learning_rate"]}


def sums(rows, numbers, kernel, bias):
    """Of some rows of a job: [squares, how many count, absolute errors, how many there are], and the two gradients."""
    x, y = (np.array(rows[name], float)[numbers] for name in "xy")
    mask = np.array(rows["mask"], float)[numbers] if rows["mask"] else np.ones_like(y)
    error = x @ kernel + bias - y
    with np.errstate(over="ignore", invalid="ignore"):
        parts = np.array([(mask * error ** 2).sum(), mask.sum(), abs(error).sum(), error.size])
        return parts, 2 * x.T @ (mask * error), 2 * (mask * error).sum(0)


def clipped(clip, parts):
    """Gradients, clipped as a job says."""
    if not clip:
        return parts
    if clip["by"] == "value":
        return [part.clip(-clip["limit"], clip["limit"]) for part in parts]
    norm = np.sqrt(sum((part ** 2).sum() for part in parts))
    return [part * min(1.0, clip["limit"] / norm) for part in parts]
