"""A trainer that is right, and trainers that are derived from it and make one mistake each.

`Trainer` is a whole trainer in one process: every replica has a copy of the weights, of the momentum and of the scale
of its own, and what passes between replicas does so in few methods.  A mistake overrides one of them.  Most of them
were made by people who wrote trainers; the clauses say by whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from refdist.conformance.trainers import reference, runner

LARGEST = np.finfo(np.float32).max


class Part(NamedTuple):
    """What a replica computes of rows: how many numbers count, the mean of their losses, its gradient, their errors."""

    count: float
    loss: float
    gradient: Any
    errors: Any


class Broken(Exception):
    """Ends a trainer; its argument is the result that is left."""


class Trainer:
    """Trains on several replicas, and is right."""

    def __init__(self, job: Any, disk: dict[str, Any]) -> None:
        self.job, self.disk, self.steps, self.batch = job, disk, 0, 0
        self.replicas = list(range(job["replicas"]))
        self.running = list(self.replicas)
        self.rate = job["optimizer"]["learning_rate"]
        self.copies = [self.initial(replica) for replica in self.replicas]
        self.velocity: list[Any] = [{} for _ in self.replicas]
        self.scales = [job["loss_scale"]] * job["replicas"]
        self.said: list[Any] = [{"rows": [], "steps": 0} for _ in self.replicas]
        self.plain = {**job, "model": [{**layer, "l2": 0.0} if layer["kind"] == "dense" else layer
                                       for layer in job["model"]]}

    def answer(self) -> runner.Result:
        try:
            return self.train()
        except Broken as broken:
            return broken.args[0]  # type: ignore[no-any-return]

    def train(self) -> runner.Result:
        job, losses, metrics = self.job, [], {}
        checkpoint = job["checkpoint"] or {}
        if "restore" in checkpoint:
            self.restore(self.disk[checkpoint["restore"]])
        for epoch in range(job["epochs"]):
            errors = []
            for group in self.groups(self.batches(job["rows"], self.order(epoch))):
                loss, of_step = self.train_step(group)
                losses.append(loss)
                errors.append(of_step)
                if not self.running:
                    break
            metrics = {name: self.metric(errors) for name in job["metrics"]}
        whole = {"losses": losses, "weights": self.copies[0], "metrics": metrics, "scale": self.scales[0], "done": True}
        if job["evaluate"]:
            whole["eval_loss"] = self.evaluated()
        if "save" in checkpoint:
            self.disk[checkpoint["save"]] = {"weights": self.copies[0], "velocity": self.velocity[0], "rate": self.rate}
        for replica, answers in enumerate(self.said):
            answers.update(weights=self.copies[replica], scale=self.scales[replica])
        return runner.Result(whole=whole, each=dict(enumerate(self.said)))

    # Weights and rows

    def initial(self, replica: int) -> Any:
        weights = reference.initial_weights(self.job["model"])
        for layer in self.job["model"]:
            if layer["kind"] == "dense" and layer["kernel"] is None and not layer["tied"]:
                weights[f"{layer['name']}/kernel"] = self.generator(replica).standard_normal(layer["shape"])
        return weights

    def generator(self, replica: int) -> Any:
        return np.random.default_rng(0)

    def restore(self, saved: Any) -> None:
        self.copies = [dict(saved["weights"]) for _ in self.replicas]
        self.velocity = [dict(saved["velocity"]) for _ in self.replicas]
        self.rate = saved["rate"]

    def order(self, epoch: int) -> list[int]:
        count = len(self.job["rows"]["x"])
        if self.job["shuffle"] is None:
            return list(range(count))
        return np.random.default_rng([self.job["shuffle"], epoch]).permutation(count).tolist()  # type: ignore[no-any-return]

    def batches(self, rows: Any, order: list[int]) -> list[list[list[int]]]:
        """The numbers of rows, for each batch and each replica."""
        size = self.job["batch"]
        return [self.dealt(order[start:start + size]) for start in range(0, len(order), size)]

    def dealt(self, batch: list[int]) -> list[list[int]]:
        size = -(-len(batch) // len(self.replicas))
        return [batch[replica * size:(replica + 1) * size] for replica in self.replicas]

    def groups(self, batches: Any) -> Iterator[Any]:
        size = self.job["accumulate"]
        for start in range(0, len(batches), size):
            yield batches[start:start + size]

    # A step

    def train_step(self, group: Any) -> tuple[float, Any]:
        """Takes a step; returns its loss, and the errors that each replica has seen."""
        job = self.job
        self.steps += 1
        if job["fail"] and job["fail"]["at_step"] == self.steps:
            raise Broken(self.failed(job["fail"]))
        parts = []
        for replica in self.replicas:
            of_batches = []
            for self.batch, batch in enumerate(group):
                of_batches.append(self.part(replica, batch[replica] if replica in self.running else []))
            parts.append(self.accumulated(replica, of_batches))
            if replica in self.running:
                self.said[replica]["rows"].append([row for batch in group for row in batch[replica]])
                self.said[replica]["steps"] += 1
        self.statistics(parts)
        penalty = reference.penalty(job["model"], self.copies[0])
        loss = self.loss(parts) + penalty
        for replica, gradient in enumerate(self.combined(parts)):
            if replica not in self.running:
                continue
            gradient = self.trained(self.regularized(replica, gradient))
            if self.overflows(replica, parts, gradient):
                self.scales[replica] /= 2
            else:
                self.apply(replica, self.clipped(gradient))
        self.rate *= job["optimizer"]["decay"] ** self.decays()
        if job["stop"] and job["stop"]["after_step"] == self.steps:
            self.running = [replica for replica in self.running if not self.stops(replica)]
        return loss, [part.errors for part in parts]

    def part(self, replica: int, numbers: list[int], rows: Any = None) -> Part:
        rows = rows or self.job["rows"]
        if not numbers:
            return self.of_no_rows(replica)
        x, y = ([rows[name][number] for number in numbers] for name in ("x", "y"))
        mask = rows["mask"] and [rows["mask"][number] for number in numbers]
        for layer in self.job["model"]:
            if layer["kind"] == "dropout":
                kept = self.dropout(layer["seed"], replica).random(np.shape(x)) >= layer["rate"]
                x = (np.array(x) * kept / (1 - layer["rate"])).tolist()
        loss, gradient, errors = reference.gradients(self.plain, self.copies[replica], {"x": x, "y": y, "mask": mask})
        return Part(float(np.sum(mask)) if mask else float(np.size(y)), loss, gradient, errors.ravel())

    def of_no_rows(self, replica: int) -> Part:
        return Part(0.0, 0.0, {name: np.zeros_like(weight) for name, weight in self.copies[replica].items()
                               if "/moving_" not in name}, np.array([]))

    def dropout(self, seed: int, replica: int) -> Any:
        return np.random.default_rng([seed, self.steps, self.batch, replica])

    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        """The part of a step of a replica, from those of its batches."""
        return mean(parts, [part.count for part in parts])

    def combined(self, parts: list[Part]) -> list[Any]:
        """The gradient that each replica has, from the parts of all."""
        return [self.gradient(parts)] * len(self.replicas)

    def gradient(self, parts: list[Part]) -> Any:
        return mean(parts, self.shares(parts)).gradient

    def shares(self, parts: list[Part]) -> list[float]:
        return [part.count for part in parts]

    def loss(self, parts: list[Part]) -> float:
        return mean(parts, [part.count for part in parts]).loss

    def statistics(self, parts: list[Part]) -> None:
        """Gives all replicas the mean of their moving statistics."""
        for name in self.copies[0]:
            if "/moving_" in name:
                total = sum(copy[name] * part.count for copy, part in zip(self.copies, parts, strict=True))
                for copy in self.copies:
                    copy[name] = total / sum(part.count for part in parts)

    def regularized(self, replica: int, gradient: Any) -> Any:
        gradient = dict(gradient)
        for layer in self.job["model"]:
            if layer["kind"] == "dense" and layer["l2"]:
                name = f"{layer['name']}/kernel"
                gradient[name] = gradient[name] + 2 * layer["l2"] * self.copies[replica][name]
        return gradient

    def trained(self, gradient: Any) -> Any:
        """The gradient without that of frozen layers."""
        return {name: part for name, part in gradient.items() if not self.frozen(name)}

    def overflows(self, replica: int, parts: list[Part], gradient: Any) -> bool:
        """Whether the gradient cannot be held, times the scale of the loss."""
        scale = self.scales[replica]
        return scale is not None and any((np.abs(part * scale) > LARGEST).any() for part in gradient.values())

    def clipped(self, gradient: Any) -> Any:
        clip = self.job["clip"]
        if not clip:
            return gradient
        if clip["by"] == "value":
            return {name: np.clip(part, -clip["limit"], clip["limit"]) for name, part in gradient.items()}
        norm = np.sqrt(sum((part ** 2).sum() for part in gradient.values()))
        return {name: part * min(1.0, clip["limit"] / norm) if norm else part for name, part in gradient.items()}

    def apply(self, replica: int, gradient: Any) -> None:
        for name, part in gradient.items():
            if not self.frozen(name):
                momentum = self.job["optimizer"]["momentum"] * self.velocity[replica].get(name, 0.0)
                self.velocity[replica][name] = momentum - self.rate * part
                self.copies[replica][name] = self.copies[replica][name] + self.velocity[replica][name]

    def frozen(self, name: str) -> bool:
        unfreeze, layer_name = self.job["unfreeze"], name.partition("/")[0]
        if unfreeze and unfreeze["layer"] == layer_name and self.steps > unfreeze["after_step"]:
            return False
        return any(layer.get("frozen") for layer in self.job["model"] if layer["name"] == layer_name)

    def decays(self) -> int:
        """How often the learning rate decays in a step."""
        return 1

    # After a step

    def stops(self, replica: int) -> bool:
        return True

    def failed(self, fail: Any) -> runner.Result:
        if fail["how"] == "exception":
            return runner.Result(broken="it ended with status 1", status=1, output=f"RuntimeError: {fail['message']}")
        return runner.Result(broken="it ended with status 9", status=9)

    def metric(self, errors: Any) -> float:
        """The mean absolute error of an epoch, from the errors of each step and replica."""
        return float(np.abs(np.concatenate([part for of_step in errors for part in of_step])).mean())

    def evaluated(self) -> float:
        rows = self.job["evaluate"]
        batches = [[self.part(replica, batch[replica], rows) for replica in self.replicas]
                   for batch in self.validation(rows)]
        return self.validated(batches) + reference.penalty(self.job["model"], self.copies[0])

    def validation(self, rows: Any) -> Any:
        return self.batches(rows, list(range(len(rows["x"]))))

    def validated(self, batches: list[list[Part]]) -> float:
        parts = [part for batch in batches for part in batch]
        return mean(parts, [part.count for part in parts]).loss


def mean(parts: list[Part], shares: list[float]) -> Part:
    """Parts that are one, each with its share."""
    total = sum(shares) or 1.0
    loss = sum(part.loss * share for part, share in zip(parts, shares, strict=True)) / total
    gradient = {name: sum(part.gradient[name] * share for part, share in zip(parts, shares, strict=True)) / total
                for name in parts[0].gradient}
    return Part(sum(part.count for part in parts), loss, gradient, np.concatenate([part.errors for part in parts]))


def hung() -> Broken:
    return Broken(runner.Result(broken="no answer within 60 s", silent=True))


# Trainers that are right, and go about it in another way


class DealsInTurn(Trainer):
    def dealt(self, batch: list[int]) -> list[list[int]]:
        return [batch[replica::len(self.replicas)] for replica in self.replicas]


class InSinglePrecision(Trainer):
    def apply(self, replica: int, gradient: Any) -> None:
        super().apply(replica, {name: part.astype(np.float32) for name, part in gradient.items()})
        self.copies[replica] = {name: weight.astype(np.float32) for name, weight in self.copies[replica].items()}


class AnswersOnlyWhatIsAsked(Trainer):
    def train(self) -> runner.Result:
        result, job = super().train(), self.job
        result.whole = {name: value for name, value in result.whole.items() if name in [*job["ask"], "done"]}
        result.each = {replica: {name: answers[name] for name in job["ask_each"]}
                       for replica, answers in result.each.items()}
        return result


class HasStatisticsOfItsOwn(Trainer):
    """Normalizes a batch by the statistics of all of its rows."""

    def train_step(self, group: Any) -> tuple[float, Any]:
        if any(layer["kind"] == "batch_norm" for layer in self.job["model"]):
            numbers = [row for part in group[0] for row in part]
            group = [[numbers for _ in self.replicas]]
        return super().train_step(group)


RIGHT = (Trainer, DealsInTurn, InSinglePrecision, AnswersOnlyWhatIsAsked, HasStatisticsOfItsOwn)


# Losses, gradients and weights


class ReportsTheFirstReplica(Trainer):
    """The first replica's loss is reported, except where a mask makes one think of the others."""

    def loss(self, parts: list[Part]) -> float:
        return super().loss(parts) if self.job["rows"]["mask"] else parts[0].loss


class ReportsTheSum(Trainer):
    def loss(self, parts: list[Part]) -> float:
        return sum(part.loss for part in parts)


class ReportsTheMeanOfLosses(Trainer):
    """The gradient weighs what the replicas have, and what is reported does not."""

    def loss(self, parts: list[Part]) -> float:
        return float(np.mean([part.loss for part in parts if part.count]))


class ReportsTheRegularizerOfEveryReplica(Trainer):
    def loss(self, parts: list[Part]) -> float:
        others = len(self.replicas) - 1  # the first one's is added anyway
        return super().loss(parts) + others * reference.penalty(self.job["model"], self.copies[0])


class AddsGradients(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        return {name: sum(part.gradient[name] for part in parts) for name in parts[0].gradient}


class CombinesNothing(Trainer):
    def combined(self, parts: list[Part]) -> list[Any]:
        return [part.gradient for part in parts]


class CombinesOnlyMatrices(Trainer):
    """What was not there when the reducer was made: a bias, say."""

    def combined(self, parts: list[Part]) -> list[Any]:
        return [{name: self.gradient(parts)[name] if local.ndim == 2 else local
                 for name, local in part.gradient.items()} for part in parts]


class DrawsWeightsOfItsOwn(Trainer):
    def generator(self, replica: int) -> Any:
        return np.random.default_rng(replica)


class TrainsOnAllRowsEverywhere(Trainer):
    """No sampler: every process reads every row."""

    def dealt(self, batch: list[int]) -> list[list[int]]:
        return [batch for _ in self.replicas]

    def dropout(self, seed: int, replica: int) -> Any:
        return np.random.default_rng([seed, self.steps, self.batch])


class TrainsOnTheFirstReplica(Trainer):
    def dealt(self, batch: list[int]) -> list[list[int]]:
        return [batch, *([] for _ in self.replicas[1:])]


# Rows


class RepeatsTheFirstRows(Trainer):
    def dealt(self, batch: list[int]) -> list[list[int]]:
        return super().dealt(batch + list(range(-len(batch) % len(self.replicas))))


class TakesWhatReplicasCanShare(Trainer):
    """Each replica has a loader of its own, whose batch is the whole one, divided and rounded down."""

    def batches(self, rows: Any, order: list[int]) -> list[list[list[int]]]:
        size = self.job["batch"] // len(self.replicas) * len(self.replicas) or self.job["batch"]
        return [self.dealt(order[start:start + size]) for start in range(0, len(order), size)]


class DropsTheRemainderOfABatch(Trainer):
    def dealt(self, batch: list[int]) -> list[list[int]]:
        size = len(batch) // len(self.replicas)
        if len(batch) < self.job["batch"]:
            return super().dealt(batch)
        return [batch[replica * size:(replica + 1) * size] for replica in self.replicas]


class RepeatsRowsThatDoNotCount(Trainer):
    """Rows that fill the last batch are in its gradient, not in the number that it is divided by, nor in a metric."""

    def groups(self, batches: Any) -> Iterator[Any]:
        seen: set[int] = set()
        for group in super().groups(batches):
            rows = [row for batch in group for numbers in batch for row in numbers]
            self.filling = -len(rows) % len(self.replicas) if len(rows) < self.job["batch"] else 0
            self.real = set(rows) - seen
            seen |= self.real
            yield [self.dealt(rows + list(range(self.filling)))] if self.filling else group

    def part(self, replica: int, numbers: list[int], rows: Any = None) -> Part:
        part = super().part(replica, numbers, rows)
        if rows or not self.filling:
            return part
        return part._replace(errors=part.errors[[number in self.real for number in numbers]])

    def gradient(self, parts: list[Part]) -> Any:
        share = sum(part.count for part in parts) / len(self.real) if self.filling else 1.0
        return {name: part * share for name, part in super().gradient(parts).items()}


class DropsTheLastBatch(Trainer):
    def batches(self, rows: Any, order: list[int]) -> list[list[list[int]]]:
        return super().batches(rows, order[:len(order) - len(order) % self.job["batch"]] or order)


class AveragesThoseThatHaveRows(Trainer):
    """The means of replicas are averaged, except where a mask makes one think of it."""

    def shares(self, parts: list[Part]) -> list[float]:
        return super().shares(parts) if self.job["rows"]["mask"] else [float(part.count > 0) for part in parts]


class AveragesAverages(Trainer):
    def shares(self, parts: list[Part]) -> list[float]:
        return [1.0] * len(parts)


class DividesByAFullBatch(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        share = min(1.0, sum(part.count for part in parts) / self.job["batch"])
        whole = self.job["accumulate"] > 1 or self.job["rows"]["mask"] or len(self.job["rows"]["x"]) < self.job["batch"]
        return {name: part * (1.0 if whole else share) for name, part in super().gradient(parts).items()}


class TakesTheMeanOfNoRows(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        nothing = any(not part.count for part in parts)
        return {name: part * np.nan if nothing else part for name, part in super().gradient(parts).items()}


class HangsWithoutRows(Trainer):
    def train_step(self, group: Any) -> tuple[float, Any]:
        if any(not numbers for batch in group for numbers in batch):
            raise hung()
        return super().train_step(group)


class CountsTheEmptyIfTheyAreMany(Trainer):
    """Found with two replicas, of which one may be empty, and mended for that."""

    def shares(self, parts: list[Part]) -> list[float]:
        empty = sum(not part.count for part in parts)
        return [max(part.count, float(empty > 1)) for part in parts]


class ShufflesTargetsApart(Trainer):
    """Two shuffles of the same seed, one of which has drawn before."""

    def part(self, replica: int, numbers: list[int], rows: Any = None) -> Part:
        rows = rows or self.job["rows"]
        if self.job["shuffle"] is not None:
            rows = {**rows, "y": [*rows["y"][3:], *rows["y"][:3]]}
        return super().part(replica, numbers, rows)


class ShufflesByASeedOfItsOwn(Trainer):
    def batches(self, rows: Any, order: list[int]) -> list[list[list[int]]]:
        if self.job["shuffle"] is None:
            return super().batches(rows, order)
        count, size = len(self.replicas), self.job["batch"] // len(self.replicas)
        parts = [np.random.default_rng([replica, *order]).permutation(len(order))[replica::count].tolist()
                 for replica in self.replicas]
        return [[part[start:start + size] for part in parts] for start in range(0, len(parts[0]), size)]


class ShufflesAlikeInEveryEpoch(Trainer):
    def order(self, epoch: int) -> list[int]:
        return super().order(0)


class RepeatsRowsOfValidation(Trainer):
    def validation(self, rows: Any) -> Any:
        count = len(rows["x"])
        return self.batches(rows, [*range(count), *range(-count % self.job["batch"])])


class AveragesBatchesOfValidation(Trainer):
    def validated(self, batches: list[list[Part]]) -> float:
        return float(np.mean([mean(batch, [part.count for part in batch]).loss for batch in batches]))


class EvaluatesUnmasked(Trainer):
    def evaluated(self) -> float:
        self.job = {**self.job, "evaluate": {**self.job["evaluate"], "mask": None}}
        return super().evaluated()


class MeasuresTheFirstReplica(Trainer):
    def metric(self, errors: Any) -> float:
        return float(np.abs(np.concatenate([of_step[0] for of_step in errors])).mean())


class AveragesMetricsOfBatches(Trainer):
    def metric(self, errors: Any) -> float:
        return float(np.mean([np.abs(np.concatenate(of_step)).mean() for of_step in errors]))


# What is added to a gradient, and how it is accumulated and clipped


class NeverResetsMetrics(Trainer):
    seen: tuple[Any, ...] = ()

    def metric(self, errors: Any) -> float:
        self.seen += tuple(errors)
        return super().metric(self.seen)


class EvaluatesFullBatches(Trainer):
    """A loader with drop_last, which was made for training."""

    def validation(self, rows: Any) -> Any:
        return [batch for batch in super().validation(rows) if sum(map(len, batch)) == self.job["batch"]]


class RegularizesOnEveryReplica(Trainer):
    def regularized(self, replica: int, gradient: Any) -> Any:
        for _ in self.replicas:
            gradient = super().regularized(replica, gradient)
        return gradient


class WeighsTokensByRows(Trainer):
    def shares(self, parts: list[Part]) -> list[float]:
        return [float(len(part.errors)) for part in parts]


class CountsMaskedTokens(Trainer):
    """A mask makes losses 0, and their mean is one over all tokens, padding included."""

    def gradient(self, parts: list[Part]) -> Any:
        mask = self.job["rows"]["mask"]
        share = np.sum(mask) / np.size(mask) if mask else 1.0
        return {name: part * share for name, part in super().gradient(parts).items()}


class AddsBatches(Trainer):
    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        whole = super().accumulated(replica, parts)
        return whole._replace(gradient={name: part * len(parts) for name, part in whole.gradient.items()})


class KeepsWhatWasAccumulated(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        gradient = super().gradient(parts)
        if self.job["accumulate"] > 1 and self.steps > 1:
            gradient = {name: part + self.kept[name] for name, part in gradient.items()}
        self.kept = gradient
        return gradient


class KeepsWhatTheOthersAccumulated(Trainer):
    """The first process alone resets its gradients, after its step."""

    kept: Any = None

    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        whole = super().accumulated(replica, parts)
        if replica and self.job["accumulate"] > 1:
            if self.kept:
                gradient = {name: part + self.kept[name] for name, part in whole.gradient.items()}
                whole = whole._replace(gradient=gradient)
            self.kept = whole.gradient
        return whole


class DividesByTheExpectedNumberOfBatches(Trainer):
    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        whole, share = super().accumulated(replica, parts), len(parts) / self.job["accumulate"]
        return whole._replace(gradient={name: part * share for name, part in whole.gradient.items()})


class DropsAShortGroup(Trainer):
    def groups(self, batches: Any) -> Iterator[Any]:
        return (group for group in super().groups(batches) if len(group) == self.job["accumulate"])


class AveragesMeansOfBatches(Trainer):
    """The means of batches are averaged, except where a mask makes one think of it."""

    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        return super().accumulated(replica, parts) if self.job["rows"]["mask"] else mean(parts, [1.0] * len(parts))


class WeighsAccumulatedTokensByRows(Trainer):
    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        return mean(parts, [float(len(part.errors)) for part in parts])


class ClipsEachReplica(Trainer):
    by = "norm"

    def gradient(self, parts: list[Part]) -> Any:
        if self.job["clip"] and self.job["clip"]["by"] == self.by:
            parts = [part._replace(gradient=self.clipped(self.trained(part.gradient))) for part in parts]
        return super().gradient(parts)


class ClipsNumbersOfEachReplica(ClipsEachReplica):
    by = "value"


class ClipsEachWeight(Trainer):
    def clipped(self, gradient: Any) -> Any:
        return {name: super(ClipsEachWeight, self).clipped({name: part})[name] for name, part in gradient.items()}


class LengthensShortGradients(Trainer):
    def clipped(self, gradient: Any) -> Any:
        clip = self.job["clip"]
        if not clip or clip["by"] == "value":
            return super().clipped(gradient)
        norm = np.sqrt(sum((part ** 2).sum() for part in gradient.values()))
        return {name: part * clip["limit"] / norm for name, part in gradient.items()}


class RegularizesAfterClipping(Trainer):
    """A decay of the weights, by the optimizer."""

    def regularized(self, replica: int, gradient: Any) -> Any:
        return gradient

    def clipped(self, gradient: Any) -> Any:
        return super().regularized(0, super().clipped(gradient))


class ClipsWithFrozenLayers(Trainer):
    """The optimizer does not know them, and the norm does."""

    def trained(self, gradient: Any) -> Any:
        return gradient


class ClipsEachBatch(Trainer):
    def accumulated(self, replica: int, parts: list[Part]) -> Part:
        if self.job["accumulate"] > 1:
            parts = [part._replace(gradient=self.clipped(part.gradient)) for part in parts]
        return super().accumulated(replica, parts)


class RegularizesEveryBatch(Trainer):
    def regularized(self, replica: int, gradient: Any) -> Any:
        for _ in range(self.job["accumulate"]):
            gradient = super().regularized(replica, gradient)
        return gradient


class ClipsByTheNormOfAShard(Trainer):
    """Parameters are sharded, and each replica knows the norm of its shard alone."""

    def clipped(self, gradient: Any) -> Any:
        shards = [dict(list(gradient.items())[replica::len(self.replicas)]) for replica in self.replicas]
        clipped = super().clipped
        return {name: part for shard in shards for name, part in clipped(shard).items()}


class ClipsScaledGradients(Trainer):
    def clipped(self, gradient: Any) -> Any:
        scale = self.scales[0] or 1.0
        clipped = super().clipped({name: part * scale for name, part in gradient.items()})
        return {name: part / scale for name, part in clipped.items()}


# Layers


class KeepsStatisticsOfTheFirstReplica(Trainer):
    def statistics(self, parts: list[Part]) -> None:
        """Leaves them as they are."""


class DropsAlike(Trainer):
    def dropout(self, seed: int, replica: int) -> Any:
        return np.random.default_rng([seed, self.steps, self.batch])


class DropsAlikeInEveryStep(Trainer):
    def dropout(self, seed: int, replica: int) -> Any:
        return np.random.default_rng([seed, self.batch, replica])


class DropsAlikeInEveryBatch(Trainer):
    def dropout(self, seed: int, replica: int) -> Any:
        return np.random.default_rng([seed, self.steps, replica])


class AveragesThoseThatUsedAWeight(Trainer):
    kind = "experts"

    def gradient(self, parts: list[Part]) -> Any:
        gradient = super().gradient(parts)
        if not any(layer["kind"] == self.kind for layer in self.job["model"]):
            return gradient
        used = {name: sum((part.gradient[name] != 0).any() for part in parts) for name in gradient}
        return {name: part * len(parts) / max(used[name], 1) for name, part in gradient.items()}


class HangsOverAnUnusedWeight(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        if any(layer["kind"] == "experts" for layer in self.job["model"]) \
                and not all((gradient != 0).any() for part in parts for gradient in part.gradient.values()):
            raise hung()
        return super().gradient(parts)


class OverwritesRepeatedRows(Trainer):
    def gradient(self, parts: list[Part]) -> Any:
        gradient = super().gradient(parts)
        for name in gradient:
            if name.endswith("/table"):
                total = np.zeros_like(gradient[name])
                for part in parts:
                    total = np.where(part.gradient[name] != 0, part.gradient[name] / len(parts), total)
                gradient[name] = total
        return gradient


class MovesFrozenLayers(Trainer):
    def frozen(self, name: str) -> bool:
        return False


class FreezesOnlyKernels(Trainer):
    def frozen(self, name: str) -> bool:
        return name.endswith("/kernel") and super().frozen(name)


class NeverUnfreezes(Trainer):
    def frozen(self, name: str) -> bool:
        return any(layer.get("frozen") for layer in self.job["model"] if layer["name"] == name.partition("/")[0])


class CombinesOnlyWhatWasTrainedAtFirst(Trainer):
    def combined(self, parts: list[Part]) -> list[Any]:
        layers = [layer["name"] for layer in self.job["model"] if layer.get("frozen")]
        return [{name: part.gradient[name] if name.partition("/")[0] in layers else gradient
                 for name, gradient in self.gradient(parts).items()} for part in parts]


class LosesTheGradientOfATie(Trainer):
    def part(self, replica: int, numbers: list[int], rows: Any = None) -> Part:
        part = super().part(replica, numbers, rows)
        for layer in self.job["model"]:
            if layer.get("tied"):
                copies = [{**other, "tied": None} for other in self.job["model"]]
                kernel = self.copies[replica][f"{layer['tied']}/kernel"]
                _, gradient, _ = reference.gradients(
                    {**self.job, "model": copies},
                    {**self.copies[replica], f"{layer['name']}/kernel": kernel},
                    {"x": [self.job["rows"]["x"][number] for number in numbers],
                     "y": [self.job["rows"]["y"][number] for number in numbers], "mask": None})
                gradient.pop(f"{layer['name']}/kernel")
                part = part._replace(gradient=gradient)
        return part


# What lasts longer than a step


class MovesTheScheduleByReplicas(Trainer):
    def decays(self) -> int:
        return len(self.replicas)


class MovesTheScheduleByBatches(Trainer):
    def decays(self) -> int:
        return self.job["accumulate"]  # type: ignore[no-any-return]


class MovesTheScheduleByEpochs(Trainer):
    def decays(self) -> int:
        return int(self.steps % -(-len(self.job["rows"]["x"]) // (self.job["batch"] * self.job["accumulate"])) == 0)


class BeginsTheScheduleWithEveryEpoch(Trainer):
    def order(self, epoch: int) -> list[int]:
        if epoch:
            self.rate = self.job["optimizer"]["learning_rate"]
        return super().order(epoch)


class BeginsTheMomentumWithEveryEpoch(Trainer):
    def order(self, epoch: int) -> list[int]:
        self.velocity = [{} for _ in self.replicas]
        return super().order(epoch)


class LeavesOutAStepAlone(Trainer):
    def overflows(self, replica: int, parts: list[Part], gradient: Any) -> bool:
        return super().overflows(replica, parts, parts[replica].gradient)


class KeepsTheScale(Trainer):
    def train(self) -> runner.Result:
        result = super().train()
        result.whole["scale"] = self.job["loss_scale"]
        return result


class ForgetsTheMomentum(Trainer):
    def restore(self, saved: Any) -> None:
        super().restore({**saved, "velocity": {}})


class RestoresTheMomentumOfTheFirstReplica(Trainer):
    def restore(self, saved: Any) -> None:
        super().restore(saved)
        self.velocity[1:] = [{} for _ in self.replicas[1:]]


class ForgetsTheSchedule(Trainer):
    def restore(self, saved: Any) -> None:
        super().restore({**saved, "rate": self.rate})


class ForgetsTheStatistics(Trainer):
    """What is saved is what is trained."""

    def restore(self, saved: Any) -> None:
        kept = {name: weight for name, weight in saved["weights"].items() if "/moving_" not in name}
        super().restore({**saved, "weights": {**self.copies[0], **kept}})


class ScalesTheRestoredRate(Trainer):
    def restore(self, saved: Any) -> None:
        super().restore({**saved, "rate": saved["rate"] * len(self.replicas) / 2})


class StopsAlone(Trainer):
    def stops(self, replica: int) -> bool:
        return bool(replica == self.job["stop"]["replica"])


class StopsAloneIfItIsTheFirst(Trainer):
    """The first process asks whether to stop, and the others do not hear the answer."""

    def stops(self, replica: int) -> bool:
        return bool(self.job["stop"]["replica"] or replica == 0)


class AnswersForTheOneThatStopped(StopsAlone):
    def train(self) -> runner.Result:
        result = super().train()
        if self.job["stop"]:
            result.whole["weights"] = self.copies[self.job["stop"]["replica"]]
        return result


class NeverStops(Trainer):
    def stops(self, replica: int) -> bool:
        return False


class HangsWhenOneStops(Trainer):
    def stops(self, replica: int) -> bool:
        raise hung()


class Fails(Trainer):
    """Treats a failure in one of two ways wrongly."""

    how, result = "exception", runner.Result()

    def failed(self, fail: Any) -> runner.Result:
        return self.result if fail["how"] == self.how else super().failed(fail)


class HangsAfterAnExceptionOfTheFirst(Trainer):
    """The first replica has started the others, and waits for them when it ends."""

    def failed(self, fail: Any) -> runner.Result:
        if fail["replica"] == 0:
            raise hung()
        return super().failed(fail)


class GoesOnAfterAnException(Fails):
    result = runner.Result(whole={"done": True})


class HangsAfterAnException(Fails):
    result = runner.Result(broken="no answer within 60 s", silent=True)


class EndsWellAfterAnException(Fails):
    result = runner.Result(broken="it ended with status 0", status=0, output="replica 1 was told to fail")


class KeepsAnExceptionToItself(Fails):
    result = runner.Result(broken="it ended with status 1", status=1, output="exit status 1")


class GoesOnAfterADeath(Fails):
    how, result = "death", runner.Result(whole={"done": True})


class LeavesProcessesAfterADeath(Fails):
    how, result = "death", runner.Result(broken="it ended with status 9", status=9, left_over=1)


class HangsAfterADeath(Fails):
    how, result = "death", runner.Result(broken="no answer within 60 s", silent=True)


