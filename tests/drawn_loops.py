"""Correct training loops, drawn from a seed: what varies is how a right number is computed.

The strategy, the number of rows and whether the last batch is uneven, the loss and how it becomes one number (mean,
sum over the global batch, mean divided by the number of replicas, a weighted mean, sum and count), where it is reduced
(all_reduce, the aggregation of a variable, merge_call, Strategy.reduce), metrics (ON_READ, MEAN, what is returned),
accumulated gradients, clipping, a penalty of the weights, momentum, functions inside functions, and a decaying learning
rate.  Each also runs on one replica, so that a loop that is not correct is seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from looking_wrong import scaled

import refdist

Aggregation = refdist.VariableAggregation
ON_READ = refdist.VariableSynchronization.ON_READ

STRATEGIES: dict[str, Callable[[], Any]] = {
    "mirrored 2": lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1"]),
    "mirrored 3": lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1", "GPU:2"]),
    "mirrored 4": lambda: refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)]),
    "multi worker": refdist.MultiWorkerMirroredStrategy,
    "central storage": lambda: refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0"),
}
# Of predictions and labels: the loss of each row, and its gradient by the prediction.
LOSSES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "squares": lambda p, y: (np.square(p - y), 2 * (p - y)),
    "half squares": lambda p, y: (0.5 * (p - y) ** 2, p - y),
    "log cosh": lambda p, y: (np.log(np.cosh(p - y)), np.tanh(p - y)),
    "absolute": lambda p, y: (np.abs(p - y), np.sign(p - y)),
    "hinge": lambda p, y: (np.maximum(0, 1 - p * y), np.where(p * y < 1, -y, 0)),
    "logistic": lambda p, y: (np.log1p(np.exp(-p * y)), -y / (1 + np.exp(p * y))),
}
# How the parts become the mean over the batch: whatever parts there are, or of equal parts.
ANY_PARTS = ["sum and count", "weighted", "merge_call sum"]
EQUAL_PARTS = ["global batch", "mean of means", "scaled mean", "aggregation mean", "merge_call mean"]
# What is wrong, with its code.
MISTAKES = {"sum of means": "RD38", "mean of sums": "RD39", "reduced twice": "RD37", "scaled twice": "RD39"}


class Loop:
    """What a seed draws."""

    def __init__(self, seed: int, mistake: str = "") -> None:
        draw = random.Random(seed)
        # With two replicas a 2 in this file may be their number, and a worker does not know the rows of the others:
        # nothing is said of a mistake.
        self.strategy = draw.choice(["mirrored 3", "mirrored 4"] if mistake else [*STRATEGIES])
        self.loss = draw.choice([*LOSSES])
        self.uneven = draw.random() < 0.5
        self.reduction = mistake or draw.choice(ANY_PARTS if self.uneven else ANY_PARTS + EQUAL_PARTS)
        self.batch = draw.choice([12, 24])
        self.rows = 2 * self.batch + (draw.randrange(1, self.batch) if self.uneven else 0)
        self.penalty = draw.choice([0.0, 0.0, 0.01])
        self.clip = draw.choice([0.0, 0.0, 1.0])
        self.momentum = draw.choice([0.0, 0.9])
        self.decays = draw.random() < 0.3
        self.accumulate = draw.random() < 0.3
        self.nested = draw.random() < 0.5
        metrics = ["none", "sum and count", "mean of the reduced", "returned", "read inside"]
        # Central storage has one copy of a metric, which is the total already.
        self.metric = draw.choice(metrics[:-1] if self.strategy == "central storage" else metrics)
        self.seed = seed

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    def train(self, strategy: Any) -> Any:
        """The weights after the loop, and the metric."""
        rng = np.random.default_rng(self.seed)
        x = rng.standard_normal((self.rows, 3)).astype(np.float32)
        y = np.sign(x @ np.float32([1, -2, 0.5]) + 0.1).astype(np.float32)
        dataset = refdist.data.Dataset.from_tensor_slices((x, y)).batch(self.batch)
        batches = strategy.experimental_distribute_dataset(dataset)
        with strategy.scope():
            w = refdist.Variable(np.zeros(3, np.float32), name="w", aggregation=(
                Aggregation.MEAN if self.reduction == "aggregation mean" else Aggregation.ONLY_FIRST_REPLICA))
            velocity = refdist.Variable(np.zeros(3, np.float32), name="v", aggregation=Aggregation.ONLY_FIRST_REPLICA)
            kept = refdist.Variable(np.zeros(3, np.float32), name="kept", synchronization=ON_READ,
                                    aggregation=Aggregation.SUM)
            losses, seen = (refdist.Variable(0.0, name=name, synchronization=ON_READ, aggregation=Aggregation.SUM)
                            for name in ("losses", "seen"))
            average = refdist.Variable(0.0, name="average", synchronization=ON_READ, aggregation=Aggregation.MEAN)

        def reduced(gradient: Any, rows: Any) -> Any:
            replica = refdist.get_replica_context()
            match self.reduction:
                case "sum and count" | "weighted":
                    total, count = replica.all_reduce("SUM", [gradient.sum(axis=0), rows])
                    return total / count
                case "merge_call sum":
                    total, count = replica.merge_call(
                        lambda s, *parts: [s.reduce("SUM", part, axis=None) for part in parts],
                        (gradient.sum(axis=0), rows))
                    return total / count
                case "global batch":
                    return replica.all_reduce("SUM", gradient.sum(axis=0) / self.batch)
                case "mean of means":
                    return replica.all_reduce("MEAN", gradient.mean(axis=0))
                case "scaled mean":
                    return replica.all_reduce("SUM", scaled(gradient.mean(axis=0)))
                case "merge_call mean":
                    return replica.merge_call(
                        lambda s, value: s.reduce("MEAN", value, axis=None), (gradient.mean(axis=0),))
                case "sum of means":
                    return replica.all_reduce("SUM", gradient.mean(axis=0))
                case "mean of sums":
                    return replica.all_reduce("MEAN", gradient.sum(axis=0))
                case "reduced twice":
                    return replica.all_reduce("SUM", replica.all_reduce("SUM", gradient.sum(axis=0)))
                case "scaled twice":
                    return replica.all_reduce("MEAN", gradient.sum(axis=0) / self.batch)
                case _:  # by the aggregation of the variable
                    return gradient.mean(axis=0)

        def step(batch: tuple[Any, Any], rate: float) -> Any:
            x, y = batch
            replica = refdist.get_replica_context()
            loss, by_prediction = LOSSES[self.loss](x @ w, y)
            weight = np.ones(len(y), np.float32) if self.reduction == "weighted" else np.float32(1)
            loss, by_prediction = loss * weight, by_prediction * weight
            rows = np.float32(len(y))
            gradient = reduced(by_prediction[:, None] * x, rows)
            if self.accumulate:
                kept.assign_add((by_prediction[:, None] * x).sum(axis=0))
            if self.penalty:
                gradient = gradient + 2 * self.penalty * w.read_value()
            if self.clip and self.reduction != "aggregation mean":
                gradient = gradient / np.maximum(1.0, np.sqrt(np.square(gradient).sum()) / self.clip)
            if self.momentum and self.reduction != "aggregation mean":
                velocity.assign(self.momentum * velocity + gradient)
                gradient = velocity.read_value()
            w.assign_sub(rate * gradient)
            total = loss.sum()
            if self.metric == "sum and count":
                losses.assign_add(total)
                seen.assign_add(rows)
            elif self.metric == "mean of the reduced":
                average.assign(replica.all_reduce("SUM", total) / np.maximum(replica.all_reduce("SUM", rows), 1))
            elif self.metric == "read inside":
                losses.assign_add(total)
                replica.all_reduce("SUM", losses.read_value())
            return total, rows

        def outer(batch: tuple[Any, Any], rate: float) -> Any:
            return (lambda *given: step(*given))(batch, rate)

        seen_losses = []
        for i, batch in enumerate(batches):
            rate = 0.1 / (1 + i) if self.decays else 0.1
            loss, rows = strategy.run(outer if self.nested else step, (batch, rate))
            if self.metric == "returned":
                seen_losses.append(float(strategy.reduce("SUM", loss, axis=None))
                                   / float(strategy.reduce("SUM", rows, axis=None)))
        return [w.numpy(), kept.numpy(), float(losses), float(seen), float(average), *seen_losses]

    def run(self) -> Any:
        """What the loop computes on its strategy."""
        if self.strategy == "multi worker":
            return refdist.simulate_workers(lambda: self.train(STRATEGIES[self.strategy]()), 2, 2)[0]
        return self.train(STRATEGIES[self.strategy]())

    def alone(self) -> Any:
        """The same on one replica."""
        return self.train(refdist.OneDeviceStrategy("CPU:0"))
