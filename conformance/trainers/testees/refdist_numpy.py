"""refdist's MirroredStrategy with NumPy: `python conformance/trainers/testees/refdist_numpy.py JOBS`.

A loop as in TensorFlow's tutorials: scope, Variable, experimental_distribute_dataset, run, all_reduce, Checkpoint.
"""

import json
import os
import sys
from collections import namedtuple

import numpy as np
from numpy_model import forward, gradient, initial, penalty

import refdist

MEAN, ON_READ = refdist.VariableAggregation.MEAN, refdist.VariableSynchronization.ON_READ
AUTO = refdist.VariableSynchronization.AUTO
Step = namedtuple("Step", "loss count absolute stop rows")  # what a replica says of a step


class Trainer:
    """Does one job."""

    def __init__(self, job):
        self.job, self.model = job, job["model"]
        self.strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(job["replicas"])])
        with self.strategy.scope():
            self.weights = {name: refdist.Variable(value, aggregation=MEAN,
                                                   synchronization=ON_READ if "/moving_" in name else AUTO)
                            for name, value in initial(self.model).items()}
            self.velocity = {name: refdist.Variable(np.zeros(weight.shape, np.float32), aggregation=MEAN)
                             for name, weight in self.weights.items() if "/moving_" not in name}
            self.rate = refdist.Variable(job["optimizer"]["learning_rate"], dtype="float32", aggregation=MEAN)
            self.scale = refdist.Variable(job["loss_scale"] or 1.0, dtype="float32", aggregation=MEAN)
        self.checkpoint = refdist.train.Checkpoint(rate=self.rate, weights=list(self.weights.values()),
                                                   velocity=list(self.velocity.values()))

    def rows(self, rows):
        """The batches of rows, distributed: numbers of rows, x, y, mask."""
        y = np.array(rows["y"], np.float32)
        mask = np.ones_like(y) if rows["mask"] is None else np.array(rows["mask"], np.float32)
        data = refdist.data.Dataset.from_tensor_slices((np.arange(len(y)), np.array(rows["x"], np.float32), y, mask))
        if self.job["shuffle"] is not None:
            data = data.shuffle(len(y), seed=self.job["shuffle"])
        return self.strategy.experimental_distribute_dataset(data.batch(self.job["batch"]))

    def errors(self, weights, batches, replica):
        """The errors that the mask lets pass in a replica's parts of some batches, and the moving statistics."""
        parts = [(*forward(self.model, weights, x, replica), y, mask) for _, x, y, mask in batches if len(x)]
        return ([mask * (outputs - y) for outputs, _, y, mask in parts],
                {name: value for _, moved, _, _ in parts for name, value in moved.items()})

    def step(self, batches, number):
        """A step of one replica."""
        job, replica = self.job, refdist.get_replica_context()
        rank, weights = replica.replica_id_in_sync_group, {name: self.weights[name].value() for name in self.weights}
        if job["fail"] and (job["fail"]["replica"], job["fail"]["at_step"]) == (rank, number):
            if job["fail"]["how"] == "death":
                os._exit(9)
            raise RuntimeError(job["fail"]["message"])

        def squares(weights):
            return sum((error ** 2).sum() for error in self.errors(weights, batches, rank)[0])
        errors, moved = self.errors(weights, batches, rank)
        for name, value in moved.items():
            self.weights[name].assign(value)
        local = [squares(weights), sum(mask.sum() for *_, mask in batches), sum(abs(error).sum() for error in errors),
                 job["stop"] == {"replica": rank, "after_step": number}]
        sums, gradients = replica.all_reduce("SUM", (np.array(local, np.float64), gradient(squares, weights)))
        of_penalty, scale = gradient(lambda weights: penalty(self.model, weights), weights), self.scale.value()
        gradients = {name: np.float32(scale * (total / sums[1] + of_penalty[name])) / scale
                     for name, total in gradients.items()}
        if all(np.isfinite(part).all() for part in gradients.values()):
            self.apply(gradients, number)
        else:
            self.scale.assign(scale / 2)
        return Step(sums[0] / sums[1] + penalty(self.model, weights), *sums[1:],
                    np.concatenate([numbers for numbers, *_ in batches]))

    def apply(self, gradients, number):
        """Moves what is not frozen by the clipped gradient and the momentum."""
        job, clip = self.job, self.job["clip"] or {"by": None}
        frozen = {layer["name"] for layer in self.model if layer.get("frozen")}
        if job["unfreeze"] and number > job["unfreeze"]["after_step"]:
            frozen.remove(job["unfreeze"]["layer"])
        gradients = {name: part for name, part in gradients.items() if name.partition("/")[0] not in frozen}
        if clip["by"] == "norm":
            norm = np.sqrt(sum((part ** 2).sum() for part in gradients.values()))
            gradients = {name: part * min(1.0, clip["limit"] / norm) for name, part in gradients.items()}
        elif clip["by"] == "value":
            gradients = {name: np.clip(part, -clip["limit"], clip["limit"]) for name, part in gradients.items()}
        for name, part in gradients.items():
            self.velocity[name].assign(self.velocity[name].value() * np.float32(job["optimizer"]["momentum"])
                                       - self.rate.value() * np.float32(part))
            self.weights[name].assign_add(self.velocity[name].value())
        self.rate.assign(self.rate.value() * np.float32(job["optimizer"]["decay"]))

    def validation(self, batch):
        """The sum of the squared errors of a replica's part of a batch, and how many there are."""
        errors, _ = self.errors({name: weight.value() for name, weight in self.weights.items()}, [batch], None)
        return np.array([sum((error ** 2).sum() for error in errors), batch[3].sum()], np.float64)

    def train(self):
        """Does the job, and prints the answer."""
        job, local, data = self.job, self.strategy.experimental_local_results, self.rows(self.job["rows"])
        place, steps, whole, stop = job["checkpoint"] or {}, [], {"id": job["id"]}, False
        if "restore" in place:
            self.checkpoint.restore(place["restore"]).assert_consumed()
        for _ in range(job["epochs"]):
            batches, first = list(data), len(steps)
            while batches and not stop:
                group, batches = batches[:job["accumulate"]], batches[job["accumulate"]:]
                steps.append(Step(*map(local, self.strategy.run(self.step, args=(group, len(steps) + 1)))))
                stop = steps[-1].stop[0] > 0
            absolute, count = (sum(getattr(step, part)[0] for step in steps[first:]) for part in ("absolute", "count"))
            whole["metrics"] = {"mean_absolute_error": float(absolute / count)}
        weights = {name: weight.numpy() for name, weight in self.weights.items()}
        if job["evaluate"]:
            sums = sum(self.strategy.reduce("SUM", self.strategy.run(self.validation, args=(batch,)), axis=None)
                       for batch in self.rows(job["evaluate"]))
            whole["eval_loss"] = float(sums[0] / sums[1] + penalty(self.model, weights))
        if "save" in place:
            self.checkpoint.write(place["save"])
        for replica in range(job["replicas"]):
            copies = {name: local(weight)[replica].numpy().tolist() for name, weight in self.weights.items()}
            print(json.dumps({"id": job["id"], "replica": replica, "weights": copies, "steps": len(steps),
                              "rows": [step.rows[replica].tolist() for step in steps]}), flush=True)
        whole |= {"losses": [float(step.loss[0]) for step in steps], "scale": float(self.scale.numpy()),
                  "weights": {name: weight.tolist() for name, weight in weights.items()}}
        print(json.dumps({**whole, "done": True}), flush=True)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as jobs:
        for line in jobs:
            Trainer(json.loads(line)).train()
