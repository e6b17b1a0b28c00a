"""Correct training loops, drawn from a seed: what varies is how a right number is computed.

The strategy, the number of rows and whether the last batch is uneven, the loss and how it becomes one number (mean,
sum over the global batch, mean divided by the number of replicas, a weighted mean, sum and count), where it is reduced
(all_reduce, the aggregation of a variable, merge_call, Strategy.reduce), metrics (ON_READ, MEAN, what is returned),
accumulated gradients, clipping, a penalty of the weights, momentum, functions inside functions, and a decaying learning
rate; the dtype, where rows come from (arrays, a generator, shuffled by a seed), how a loop goes over them (`for`,
`enumerate`, `next`, `islice`, the steps of a dataset without an end), for how many epochs, and whether it stops early;
whether variables are made before the loop or in its first step; and whether NumPy computes or PyTorch.  Each also runs
on one replica, so that a loop that is not correct is seen.

    python tests/drawn_loops.py 1000           # draws 0 to 999, with all checks; what is said of one is a fault
    python tests/drawn_loops.py 1000 torch     # the same, of which every third computes with PyTorch
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
from looking_wrong import scaled

import refdist
from refdist.runtime import process

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
ANY_PARTS = ["sum and count", "weighted", "merge_call sum", "gathered"]
EQUAL_PARTS = ["global batch", "mean of means", "scaled mean", "aggregation mean", "merge_call mean"]
# What is wrong, with its code.
MISTAKES = {"sum of means": "RD38", "mean of sums": "RD39", "reduced twice": "RD37", "scaled twice": "RD39"}


class Loop:
    """What a seed draws."""

    def __init__(self, seed: int, mistake: str = "", torch: bool = False) -> None:
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
        self.dtype = draw.choice(["float32", "float64"])
        self.source = draw.choice(["arrays", "arrays", "generator", "shuffled"])
        self.reading = draw.choice(["for", "enumerate", "next", "islice", "forever"])
        self.epochs = draw.choice([1, 2])
        self.stops = draw.random() < 0.3
        self.lazy = draw.random() < 0.3
        self.average = draw.random() < 0.3
        self.torch = torch and seed % 3 == 0
        self.seed = seed

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    def train(self, strategy: Any) -> Any:
        """The weights after the loop, and the metric."""
        rng = np.random.default_rng(self.seed)
        dtype: Any = np.dtype(self.dtype).type
        x = rng.standard_normal((self.rows, 3)).astype(dtype)
        y = np.sign(x @ np.array([1, -2, 0.5], dtype) + 0.1).astype(dtype)
        batches = strategy.experimental_distribute_dataset(self._dataset(x, y))
        made: dict[str, Any] = {}
        with strategy.scope():
            w = refdist.Variable(np.zeros(3, dtype), name="w", aggregation=(
                Aggregation.MEAN if self.reduction == "aggregation mean" else Aggregation.ONLY_FIRST_REPLICA))
            kept = refdist.Variable(np.zeros(3, dtype), name="kept", synchronization=ON_READ,
                                    aggregation=Aggregation.SUM)
            losses, seen = (refdist.Variable(dtype(0), name=name, synchronization=ON_READ, aggregation=Aggregation.SUM)
                            for name in ("losses", "seen"))
            average = refdist.Variable(dtype(0), name="average", synchronization=ON_READ, aggregation=Aggregation.MEAN)

            def momentum() -> Any:
                if "velocity" not in made:
                    made["velocity"] = refdist.Variable(np.zeros(3, dtype), name="v",
                                                        aggregation=Aggregation.ONLY_FIRST_REPLICA)
                return made["velocity"]

            if not self.lazy:
                momentum()

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
                case "gathered":
                    return replica.all_gather(gradient, axis=0).mean(axis=0)
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
            if self.torch:
                import torch
                x, y = torch.as_tensor(x), torch.as_tensor(y)
                distance = x @ torch.as_tensor(w.read_value()) - y
                loss, by_prediction = distance ** 2, 2 * distance
            else:
                loss, by_prediction = LOSSES[self.loss](x @ w, y)
                weight = np.ones(len(y), dtype) if self.reduction == "weighted" else dtype(1)
                loss, by_prediction = loss * weight, by_prediction * weight
            rows = dtype(len(y))
            gradient = reduced(by_prediction[:, None] * x, rows)
            gradient = array(gradient) if self.reduction != "aggregation mean" else gradient
            if self.accumulate:
                kept.assign_add(array((by_prediction[:, None] * x).sum(axis=0)))
            if self.penalty:
                gradient = gradient + 2 * self.penalty * w.read_value()
            if self.clip and self.reduction != "aggregation mean":
                gradient = gradient / np.maximum(1.0, np.sqrt(np.square(gradient).sum()) / self.clip)
            if self.momentum and self.reduction != "aggregation mean":
                velocity = momentum()
                velocity.assign(self.momentum * velocity + gradient)
                gradient = velocity.read_value()
            w.assign_sub(array(rate * gradient))
            total = array(loss.sum())
            if self.metric == "sum and count":
                losses.assign_add(total)
                seen.assign_add(rows)
            elif self.metric == "mean of the reduced":
                average.assign(replica.all_reduce("SUM", total) / np.maximum(replica.all_reduce("SUM", rows), 1))
            elif self.metric == "read inside":
                losses.assign_add(total)
                replica.all_reduce("SUM", losses.read_value())
            mean = refdist.nn.compute_average_loss(loss, global_batch_size=self.batch) if self.average else total
            return total, rows, mean

        def outer(batch: tuple[Any, Any], rate: float) -> Any:
            return (lambda *given: step(*given))(batch, rate)

        seen_losses: list[float] = []

        def take(i: int, batch: Any) -> bool:
            rate = 0.1 / (1 + i) if self.decays else 0.1
            loss, rows, mean = strategy.run(outer if self.nested else step, (batch, rate))
            if self.metric == "returned":
                seen_losses.append(float(strategy.reduce("SUM", loss, axis=None))
                                   / float(strategy.reduce("SUM", rows, axis=None)))
            if self.average:
                seen_losses.append(float(strategy.reduce("SUM", mean, axis=None)))
            return self.stops and i > 1

        steps = -(-self.rows // self.batch)
        if self.reading == "forever":
            self._steps_of(iter(batches), self.epochs * steps, take)
        else:
            for _ in range(self.epochs):
                match self.reading:
                    case "next":
                        self._steps_of(iter(batches), steps, take)
                    case "enumerate":
                        for i, batch in enumerate(batches):
                            take(i, batch)
                    case "islice":
                        for batch in islice(batches, 2):
                            take(0, batch)
                    case _:
                        for batch in batches:
                            if take(len(seen_losses), batch):
                                break
        return [w.numpy(), kept.numpy(), float(losses), float(seen), float(average), *seen_losses]

    def _steps_of(self, iterator: Any, steps: int, step: Callable[[int, Any], bool]) -> None:
        for i in range(steps):
            if step(i, next(iterator)):
                break

    def _dataset(self, x: Any, y: Any) -> Any:
        def rows() -> Iterable[Any]:
            yield from zip(x, y, strict=True)

        if self.source == "generator":
            spec = refdist.TensorSpec((3,), x.dtype), refdist.TensorSpec((), x.dtype)
            dataset = refdist.data.Dataset.from_generator(rows, output_signature=spec)
        else:
            dataset = refdist.data.Dataset.from_tensor_slices((x, y))
        if self.source == "shuffled":
            dataset = dataset.shuffle(self.rows, seed=self.seed)
        dataset = dataset.batch(self.batch)
        return dataset.repeat() if self.reading == "forever" else dataset

    def run(self) -> Any:
        """What the loop computes on its strategy."""
        if self.strategy == "multi worker":
            return refdist.simulate_workers(lambda: self.train(STRATEGIES[self.strategy]()), 2, 2)[0]
        return self.train(STRATEGIES[self.strategy]())

    def alone(self) -> Any:
        """The same on one replica."""
        return self.train(refdist.OneDeviceStrategy("CPU:0"))


def array(value: Any) -> Any:
    """What PyTorch has computed, as an array; an array as it is."""
    return value if isinstance(value, (np.ndarray, np.generic)) else value.numpy()


def remarks(loop: Loop) -> list[str]:
    """What all checks together say of a loop.

    Raises:
        AssertionError: the loop is not correct: on one replica it computes other numbers.
    """
    with process.fresh(), refdist.config.checks(types=True, watch=True), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        result = loop.run()
    with process.fresh():
        alone = loop.alone()
    for value, wanted in zip(result, alone, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5, err_msg=repr(loop))
    return [str(warning.message) for warning in given if issubclass(warning.category, refdist.errors.DifferenceWarning)]


def main() -> None:
    """Draws as many loops as are asked for, and prints what is said of them."""
    count, faults = int(sys.argv[1]), 0
    for seed in range(count):
        loop = Loop(seed, torch="torch" in sys.argv)
        for text in remarks(loop):
            faults += 1
            print(f"{text}\n  {loop!r}", flush=True)
    print(f"{faults} remarks on {count} correct loops")


if __name__ == "__main__":
    main()
