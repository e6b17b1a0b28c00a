"""What a trainer should answer: one worker that reads the global batch, in NumPy and double precision.

There are no replicas here, and so nothing that could go wrong between them: every batch is one array, its loss one
mean, its gradient one derivative, and a step is taken once.  That is what tf.distribute promises of several replicas,
and what every clause compares with.

A layer is a pair of functions: `forward` remembers what `backward` needs.  Nothing of refdist's is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jobs import Job, Layer, Rows

Array = NDArray[np.float64]
Weights = dict[str, Array]


@dataclass
class State:
    """What a checkpoint has: weights, the optimizer's momentum, its learning rate, and the scale of the loss."""

    weights: Weights
    velocity: Weights
    learning_rate: float
    scale: float | None


@dataclass
class Answer:
    """What is expected of a job.

    Attributes:
        weights: after the last step, by name.
        initial: before the first one.
        losses: of each step, before it, of all rows of the step; with the regularizers.
        metrics: of the last epoch, over its rows, each as it was predicted in its step.
        eval_loss: of the rows of validation, after training.
        steps: how many were taken.
        state: after the last step.
    """

    weights: Weights
    initial: Weights
    losses: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    eval_loss: float | None = None
    steps: int = 0
    scale: float | None = None
    state: State | None = None


def answer(job: Job, before: State | None = None) -> Answer:
    """What should come of a job.

    Args:
        job: the job; dropout is left out, and weights that a trainer draws itself are zeros.
        before: the checkpoint that it begins with.
    """
    initial = initial_weights(job["model"])
    state = before or State(initial, {}, job["optimizer"]["learning_rate"], job["loss_scale"])
    state = State(dict(state.weights), dict(state.velocity), state.learning_rate, state.scale)
    expected = Answer({}, initial=dict(state.weights))
    frozen = {layer["name"] for layer in job["model"] if layer.get("frozen")}
    for _ in range(job["epochs"]):
        errors: list[Array] = []
        for group in groups(job):
            unfrozen = job["unfreeze"] and expected.steps >= job["unfreeze"]["after_step"]
            fixed = frozen - {job["unfreeze"]["layer"]} if job["unfreeze"] and unfrozen else frozen
            loss, gradient, error = gradients(job, state.weights, group)
            expected.losses.append(loss)
            expected.steps += 1
            errors.append(error)
            step(job, state, {name: array for name, array in gradient.items() if name.rpartition("/")[0] not in fixed
                              and name.partition("/")[0] not in fixed})
            if job["stop"] and expected.steps == job["stop"]["after_step"]:
                break
        if errors and "mean_absolute_error" in job["metrics"]:
            expected.metrics["mean_absolute_error"] = float(np.abs(np.concatenate(errors)).mean())
        if job["stop"] and expected.steps == job["stop"]["after_step"]:
            break
    if job["evaluate"]:
        output, _ = forward(job["model"], dict(state.weights), array(job["evaluate"]["x"]), training=False)
        expected.eval_loss, _ = loss_of(output, job["evaluate"])
        expected.eval_loss += penalty(job["model"], state.weights)
    expected.weights, expected.state, expected.scale = state.weights, state, state.scale
    return expected


def initial_weights(model: list[Layer]) -> Weights:
    """The weights of a model, by name, as the job gives them."""
    weights: Weights = {}
    for layer in model:
        name = layer["name"]
        if layer["kind"] == "dense":
            if not layer["tied"]:
                kernel = layer["kernel"]
                weights[f"{name}/kernel"] = np.zeros(layer["shape"]) if kernel is None else array(kernel)
            if layer["bias"] is not None:
                weights[f"{name}/bias"] = array(layer["bias"])
        elif layer["kind"] == "batch_norm":
            for part, value in (("gamma", 1.0), ("beta", 0.0), ("moving_mean", 0.0), ("moving_variance", 1.0)):
                weights[f"{name}/{part}"] = np.full(layer["features"], value)
        elif layer["kind"] == "embedding":
            weights[f"{name}/table"] = array(layer["table"])
        elif layer["kind"] == "experts":
            for number, kernel in enumerate(layer["kernels"]):
                weights[f"{name}/{number}/kernel"] = array(kernel)
    return weights


def groups(job: Job) -> Iterator[Rows]:
    """The rows of each step of an epoch: `accumulate` batches, the last of which may be short, or fewer."""
    size, count = job["batch"] * job["accumulate"], len(job["rows"]["x"])
    for start in range(0, count, size):
        part = slice(start, start + size)
        mask = job["rows"]["mask"]
        yield {"x": job["rows"]["x"][part], "y": job["rows"]["y"][part], "mask": mask[part] if mask else None}


def array(values: object) -> Array:
    """Numbers in double precision."""
    return np.array(values, np.float64)


def gradients(job: Job, weights: Weights, group: Rows) -> tuple[float, Weights, Array]:
    """The loss of rows, its gradient by every weight, and how far each output is from its target."""
    model = job["model"]
    output, memory = forward(model, weights, array(group["x"]), training=True)
    loss, by_output = loss_of(output, group)
    gradient = backward(model, weights, memory, by_output)
    for layer in model:
        if layer["kind"] == "dense" and layer["l2"]:
            name = f"{layer['tied'] or layer['name']}/kernel"
            gradient[name] = gradient[name] + 2 * layer["l2"] * weights[name]
    return loss + penalty(model, weights), gradient, output - array(group["y"])


def penalty(model: list[Layer], weights: Mapping[str, Array]) -> float:
    """The regularizers of a model."""
    return float(sum(layer["l2"] * (weights[f"{layer['tied'] or layer['name']}/kernel"] ** 2).sum()
                     for layer in model if layer["kind"] == "dense" and layer["l2"]))


def loss_of(output: Array, data: Rows) -> tuple[float, Array]:
    """The mean of the squared errors that the mask lets pass, and its gradient by the outputs."""
    error = output - array(data["y"])
    mask = np.ones_like(error) if data["mask"] is None else array(data["mask"])
    return float((mask * error ** 2).sum() / mask.sum()), 2 * mask * error / mask.sum()


def forward(model: list[Layer], weights: Weights, x: Array, training: bool) -> tuple[Array, list[Any]]:
    """The outputs [rows, outputs], and of each layer what its derivative needs; moving statistics are moved."""
    memory: list[Any] = []
    for layer in model:
        name, before = layer["name"], x
        if layer["kind"] == "dense":
            x = x @ weights[f"{layer['tied'] or name}/kernel"]
            if layer["bias"] is not None:
                x = x + weights[f"{name}/bias"]
            positive = x > 0 if layer["activation"] else np.ones_like(x, bool)
            x = np.where(positive, x, 0.0)
            memory.append((before, positive))
        elif layer["kind"] == "batch_norm":
            mean, variance = weights[f"{name}/moving_mean"], weights[f"{name}/moving_variance"]
            if training:
                old_share = layer["momentum"]
                mean, variance, (old_mean, old_variance) = x.mean(0), x.var(0), (mean, variance)
                weights[f"{name}/moving_mean"] = old_share * old_mean + (1 - old_share) * mean
                weights[f"{name}/moving_variance"] = old_share * old_variance + (1 - old_share) * variance
            scale = 1 / np.sqrt(variance + layer["epsilon"])
            normal = (x - mean) * scale
            x = weights[f"{name}/gamma"] * normal + weights[f"{name}/beta"]
            memory.append((normal, scale))
        elif layer["kind"] == "embedding":
            x = weights[f"{name}/table"][x[:, 0].astype(int)]
            memory.append(before)
        elif layer["kind"] == "experts":
            x = np.concatenate([row[1:] @ weights[f"{name}/{int(row[0])}/kernel"] for row in x])
            x = x.reshape(len(before), -1)
            memory.append(before)
        else:
            memory.append(None)
    return x, memory


def backward(model: list[Layer], weights: Mapping[str, Array], memory: list[Any], by_output: Array) -> Weights:
    """The gradient of a loss by every weight, from its gradient by the outputs."""
    gradient = {name: np.zeros_like(weight) for name, weight in weights.items() if "/moving_" not in name}
    for layer, remembered in zip(reversed(model), reversed(memory), strict=True):
        name = layer["name"]
        if layer["kind"] == "dense":
            x, positive = remembered
            by_output = np.where(positive, by_output, 0.0)
            kernel = f"{layer['tied'] or name}/kernel"
            gradient[kernel] = gradient[kernel] + x.T @ by_output
            if layer["bias"] is not None:
                gradient[f"{name}/bias"] = by_output.sum(0)
            by_output = by_output @ weights[kernel].T
        elif layer["kind"] == "batch_norm":
            normal, scale = remembered
            gradient[f"{name}/gamma"], gradient[f"{name}/beta"] = (by_output * normal).sum(0), by_output.sum(0)
            by_normal = by_output * weights[f"{name}/gamma"]
            by_output = scale * (by_normal - by_normal.mean(0) - normal * (by_normal * normal).mean(0))
        elif layer["kind"] == "embedding":
            np.add.at(gradient[f"{name}/table"], remembered[:, 0].astype(int), by_output)
        elif layer["kind"] == "experts":
            for row, by_row in zip(remembered, by_output, strict=True):
                gradient[f"{name}/{int(row[0])}/kernel"] += np.outer(row[1:], by_row)
    return gradient


def step(job: Job, state: State, gradient: Weights) -> None:
    """Moves the weights of a state: the gradient is clipped, the momentum takes it up, the learning rate decays.

    Under a scale of the loss, a gradient that single precision cannot hold halves the scale, and the step is left out.
    """
    largest = np.finfo(np.float32).max
    if state.scale is not None and any((np.abs(part) * state.scale > largest).any() for part in gradient.values()):
        state.scale /= 2
        return
    clip = job["clip"]
    if clip and clip["by"] == "value":
        gradient = {name: np.clip(part, -clip["limit"], clip["limit"]) for name, part in gradient.items()}
    elif clip:
        norm = np.sqrt(sum((part ** 2).sum() for part in gradient.values()))
        gradient = {name: part * min(1.0, clip["limit"] / norm) if norm else part for name, part in gradient.items()}
    for name, part in gradient.items():
        moved = job["optimizer"]["momentum"] * state.velocity.get(name, 0.0) - state.learning_rate * part
        state.velocity[name] = moved
        state.weights[name] = state.weights[name] + moved
    state.learning_rate *= job["optimizer"]["decay"]
