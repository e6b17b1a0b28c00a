"""refdist's MirroredStrategy with NumPy: python conformance/trainers/testees/refdist_numpy.py JOBS

The derivatives are written by hand, a closure for each layer, because NumPy has none; the rest is a loop as in
TensorFlow's tutorials: scope, Variable, experimental_distribute_dataset, run, all_reduce.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import refdist

MEAN = refdist.VariableAggregation.MEAN
AUTO, ON_READ = refdist.VariableSynchronization.AUTO, refdist.VariableSynchronization.ON_READ
Applied = tuple[Any, Callable[[Any], Any]]  # outputs; from the gradient by them to that by the inputs
STATISTICS = ("gamma", 1.0), ("beta", 0.0), ("moving_mean", 0.0), ("moving_variance", 1.0)


def variables(model: list[dict[str, Any]]) -> dict[str, Any]:
    """A variable for every weight."""
    values: dict[str, Any] = {}
    for layer in model:
        for part in ("kernel", "bias", "table"):
            if layer.get(part) is not None:
                values[f"{layer['name']}/{part}"] = layer[part]
        if layer["kind"] == "dense" and layer["kernel"] is None and layer["tied"] is None:
            values[f"{layer['name']}/kernel"] = np.random.standard_normal(layer["shape"])
        values |= {f"{layer['name']}/{i}/kernel": kernel for i, kernel in enumerate(layer.get("kernels", ()))}
        values |= {f"{layer['name']}/{part}": np.full(layer["features"], value) for part, value in STATISTICS
                   if layer["kind"] == "batch_norm"}
    return {name: refdist.Variable(np.asarray(value, np.float32), aggregation=MEAN,
                                   synchronization=ON_READ if "/moving_" in name else AUTO)
            for name, value in values.items()}


def context() -> Any:
    """The context of the replica that runs."""
    return refdist.get_replica_context()


def dense(layer: Any, v: Any, x: Any, gradients: Any, training: bool) -> Applied:
    """activation(x @ kernel + bias)."""
    kernel, bias = f"{layer['tied'] or layer['name']}/kernel", f"{layer['name']}/bias"
    y = x @ v[kernel].value() + (v[bias].value() if bias in v else np.float32(0))
    on = (y > 0).astype(np.float32) if layer["activation"] else np.ones_like(y)

    def back(g: Any) -> Any:
        gradients[kernel] += x.T @ (g * on)
        if bias in v:
            gradients[bias] += (g * on).sum(0)
        return (g * on) @ v[kernel].value().T
    return y * on, back


def batch_norm(layer: Any, v: Any, x: Any, gradients: Any, training: bool) -> Applied:
    """Batch normalization by the statistics of the replica's rows; the moving ones are the mean over the replicas."""
    gamma, beta, mean, variance = (v[f"{layer['name']}/{part}"] for part, _ in STATISTICS)
    training = training and len(x) > 0
    now, spread = (x.mean(0), x.var(0)) if training else (mean.value(), variance.value())
    for moving, new in ((mean, now), (variance, spread)) if training else ():
        moving.assign(moving.value() * np.float32(layer["momentum"]) + new * np.float32(1 - layer["momentum"]))
    scale = 1 / np.sqrt(spread + np.float32(layer["epsilon"]))
    normal = (x - now) * scale

    def back(g: Any) -> Any:
        gradients[f"{layer['name']}/gamma"] += (g * normal).sum(0)
        gradients[f"{layer['name']}/beta"] += g.sum(0)
        return scale * gamma.value() * (g - g.mean(0) - normal * (g * normal).mean(0)) if training else g
    return gamma.value() * normal + beta.value(), back


def dropout(layer: Any, v: Any, x: Any, gradients: Any, training: bool) -> Applied:
    """Some numbers are 0, others on every replica."""
    if not training:
        return x, lambda g: g
    draw = np.random.default_rng((layer["seed"], context().replica_id_in_sync_group))
    kept = ((draw.random(x.shape) >= layer["rate"]) / (1 - layer["rate"])).astype(np.float32)
    return x * kept, lambda g: g * kept


def embedding(layer: Any, v: Any, x: Any, gradients: Any, training: bool) -> Applied:
    """table[x]."""
    table, tokens = f"{layer['name']}/table", x[:, 0].astype(int)
    return v[table].value()[tokens], lambda g: np.add.at(gradients[table], tokens, g)


def experts(layer: Any, v: Any, x: Any, gradients: Any, training: bool) -> Applied:
    """Each row times the kernel that its first column names."""
    kernels = [f"{layer['name']}/{int(row[0])}/kernel" for row in x]

    def back(g: Any) -> None:
        for kernel, row, by_row in zip(kernels, x, g, strict=True):
            gradients[kernel] += np.outer(row[1:], by_row)
    columns = len(layer["kernels"][0][0])
    outputs = [row[1:] @ v[kernel].value() for kernel, row in zip(kernels, x, strict=True)]
    return np.array(outputs, np.float32).reshape(len(x), columns), back


LAYERS = {layer.__name__: layer for layer in (dense, batch_norm, dropout, embedding, experts)}


class Trainer:
    """What one job needs."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.steps, self.rate = job, 0, refdist.Variable(job["optimizer"]["learning_rate"], dtype="float32")
        self.strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(job["replicas"])])
        with self.strategy.scope():
            self.weights = variables(job["model"])
            self.velocity = {name: refdist.Variable(np.zeros(weight.shape, np.float32), aggregation=MEAN)
                             for name, weight in self.weights.items() if "/moving_" not in name}
            self.scale = refdist.Variable(job["loss_scale"] or 1.0, dtype="float32", aggregation=MEAN)
        self.checkpoint = refdist.train.Checkpoint(weights=list(self.weights.values()), rate=self.rate,
                                                   velocity=list(self.velocity.values()))

    def rows(self, rows: Any) -> Any:
        """The batches of some rows, distributed: numbers of rows, x, y, mask."""
        y = np.asarray(rows["y"], np.float32)
        mask = np.ones_like(y) if rows["mask"] is None else np.asarray(rows["mask"], np.float32)
        data = refdist.data.Dataset.from_tensor_slices((np.arange(len(y)), np.asarray(rows["x"], np.float32), y, mask))
        if self.job["shuffle"] is not None:
            data = data.shuffle(len(y), seed=self.job["shuffle"])
        return self.strategy.experimental_distribute_dataset(data.batch(self.job["batch"]))

    def penalty(self, gradients: Any) -> Any:
        """The regularizers; adds their gradient to the mean over the rows."""
        total = np.float32(0)
        for layer in self.job["model"]:
            if layer.get("l2"):
                kernel = self.weights[f"{layer['tied'] or layer['name']}/kernel"].value()
                gradients[f"{layer['tied'] or layer['name']}/kernel"] += np.float32(2 * layer["l2"]) * kernel
                total += np.float32(layer["l2"]) * (kernel ** 2).sum()
        return total

    def part(self, batch: Any, gradients: Any, training: bool) -> Any:
        """[sum of the squared errors, how many count, sum of the errors, how many there are] of a part of a batch."""
        _, x, y, mask = batch
        backs = []
        for layer in self.job["model"]:
            x, back = LAYERS[layer["kind"]](layer, self.weights, x, gradients, training)
            backs.append(back)
        error = (x - y) * mask
        by_output = 2 * error * self.scale.value()
        for back in reversed(backs if training else ()):
            by_output = back(by_output)
        return np.array([(error ** 2).sum(), mask.sum(), abs(error).sum(), error.size], np.float32)

    def step(self, batches: Any, number: int, rate: Any) -> Any:
        """A step of one replica on its parts of some batches: loss, sum and number of the errors, whether to stop."""
        job, replica = self.job, context()
        rank, fail, stop = replica.replica_id_in_sync_group, job["fail"], job["stop"]
        if fail and (fail["replica"], fail["at_step"]) == (rank, number):
            os._exit(9) if fail["how"] == "death" else self.raise_(fail["message"])
        gradients = {name: np.zeros_like(moved.value()) for name, moved in self.velocity.items()}
        sums = sum(self.part(batch, gradients, training=True) for batch in batches)
        stopping = np.float32(bool(stop) and (stop["replica"], stop["after_step"]) == (rank, number))
        sums, stopping, gradients = replica.all_reduce("SUM", (sums, stopping, gradients))
        gradients = {name: total / (sums[1] * self.scale.value()) for name, total in gradients.items()}
        loss = sums[0] / sums[1] + self.penalty(gradients)
        if not all(np.isfinite(gradient).all() for gradient in gradients.values()):
            self.scale.assign(self.scale.value() / 2)
            return loss, sums[2], sums[3], stopping
        clip = job["clip"]
        if clip and clip["by"] == "norm":
            norm = np.sqrt(sum((gradient ** 2).sum() for gradient in gradients.values()))
            share = np.minimum(1, np.float32(clip["limit"]) / norm)
            gradients = {name: gradient * share for name, gradient in gradients.items()}
        frozen = {layer["name"] for layer in job["model"] if layer.get("frozen")}
        if job["unfreeze"] and number > job["unfreeze"]["after_step"]:
            frozen -= {job["unfreeze"]["layer"]}
        for name, gradient in gradients.items():
            if name.partition("/")[0] not in frozen:
                if clip and clip["by"] == "value":
                    gradient = np.clip(gradient, -clip["limit"], clip["limit"])
                moved = self.velocity[name].value() * np.float32(job["optimizer"]["momentum"]) - rate * gradient
                self.velocity[name].assign(moved)
                self.weights[name].assign_add(moved)
        return loss, sums[2], sums[3], stopping

    def raise_(self, message: str) -> None:
        """Fails."""
        raise RuntimeError(message)

    def train(self) -> None:
        """Does the job, and prints the answer."""
        job, strategy = self.job, self.strategy
        if job["checkpoint"] and "restore" in job["checkpoint"]:
            self.checkpoint.restore(job["checkpoint"]["restore"]).assert_consumed()
        losses, metrics, stopping, data = [], {}, 0.0, self.rows(job["rows"])
        each: list[Any] = [{"rows": [], "steps": 0} for _ in range(job["replicas"])]
        for _ in range(job["epochs"]):
            errors, batches = np.zeros(2), list(data)
            while batches and not stopping:
                group, batches = batches[:job["accumulate"]], batches[job["accumulate"]:]
                self.steps += 1
                for rank, replica in enumerate(each):
                    numbers = [strategy.experimental_local_results(batch[0])[rank].tolist() for batch in group]
                    replica["rows"].append([number for part in numbers for number in part])
                    replica["steps"] += 1
                result = strategy.run(self.step, args=(group, self.steps, self.rate.value()))
                loss, wrong, count, stop = (float(strategy.experimental_local_results(value)[0]) for value in result)
                losses.append(loss)
                errors += wrong, count
                stopping = stop
                self.rate.assign(self.rate.value() * np.float32(job["optimizer"]["decay"]))
            metrics = {"mean_absolute_error": errors[0] / errors[1]} if job["metrics"] and errors[1] else {}
        answer = {"id": job["id"], "losses": losses, "metrics": metrics, "scale": float(self.scale.numpy()),
                  "weights": {name: weight.numpy().tolist() for name, weight in self.weights.items()}}
        if job["evaluate"]:
            parts = [strategy.run(self.part, args=(batch, {}, False)) for batch in self.rows(job["evaluate"])]
            total: Any = sum(np.asarray(strategy.reduce("SUM", part, axis=None)) for part in parts)
            answer["eval_loss"] = float(total[0] / total[1])
        if job["checkpoint"] and "save" in job["checkpoint"]:
            self.checkpoint.write(job["checkpoint"]["save"])
        for rank, replica in enumerate(each):
            weights = {name: strategy.experimental_local_results(value)[rank].numpy().tolist()
                       for name, value in self.weights.items()}
            print(json.dumps({"id": job["id"], "replica": rank, "weights": weights, **replica}), flush=True)
        print(json.dumps({**answer, "done": True}), flush=True)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            Trainer(json.loads(line)).train()
