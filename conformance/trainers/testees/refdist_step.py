"""Weights as variables of refdist, and a step of theirs, for the testees with NumPy and with JAX."""

from collections import namedtuple

import numpy as np
from trainer_jobs import fail, frozen, seed_of, wants_to_stop

import refdist

MEAN, ON_READ = refdist.VariableAggregation.MEAN, refdist.VariableSynchronization.ON_READ
Step = namedtuple("Step", "loss count absolute stop rows")  # what a replica says of a step


def values(variables):
    """What is read of variables."""
    return {name: variable.read_value() for name, variable in variables.items()}


class Trained:
    """What is trained in a job; it is made in the scope of a strategy.

    Args:
        job: the job.
        initial: makes of a job its weights, and the statistics of its batch normalizations, by name.
        derive: makes of a job a function of weights, statistics, x, y, the mask of y and a seed to ((the sum of the
            squared errors, (the sum of the absolute ones, the statistics after it)), the gradient of the first).
        penalty: of a job and weights, the regularizers and their gradient.
    """

    def __init__(self, job, initial, derive, penalty):
        self.job, self.derive, self.penalty = job, derive(job), penalty
        weights, statistics = initial(job)
        self.weights, self.velocity = ({name: refdist.Variable(times * value, aggregation=MEAN)
                                        for name, value in weights.items()} for times in (1, 0))
        self.statistics = {name: refdist.Variable(value, aggregation=MEAN, synchronization=ON_READ)
                           for name, value in statistics.items()}
        self.rate, self.scale = (refdist.Variable(value, dtype="float32", aggregation=MEAN)
                                 for value in (job["optimizer"]["learning_rate"], job["loss_scale"] or 1.0))
        self.checkpoint = refdist.train.Checkpoint(rate=self.rate, weights=self.weights, velocity=self.velocity,
                                                   statistics=self.statistics)

    def sums(self, batches, seed):
        """Of a replica's rows: [squares, how many count, absolute errors], the gradient, the statistics after them."""
        weights, after = values(self.weights), values(self.statistics)
        sums, gradient = np.zeros(3), {name: 0 * weight for name, weight in weights.items()}
        for place, (numbers, x, y, mask) in enumerate(batches):
            if len(numbers):
                (squares, (absolute, after)), part = self.derive(weights, after, x, y, mask, seed + 100 * place)
                sums += [squares, mask.sum(), absolute]
                gradient = {name: total + part[name] for name, total in gradient.items()}
        return sums, gradient, after

    def step(self, batches, number):
        """A step of one replica."""
        replica, scale = refdist.get_replica_context(), self.scale.read_value()
        rank = replica.replica_id_in_sync_group
        fail(self.job, rank, number)
        local, gradient, after = self.sums(batches, 1000 * (seed_of(self.job) + number) + rank)
        for name, variable in self.statistics.items():
            variable.assign(after[name])
        local = np.array([*local, wants_to_stop(self.job, rank, number)])
        sums, gradient = replica.all_reduce("SUM", (local, gradient))
        loss, of_penalty = self.penalty(self.job, values(self.weights))
        gradient = {name: scale * (part / float(sums[1]) + of_penalty[name]) for name, part in gradient.items()}
        if all(np.isfinite(part).all() for part in gradient.values()):
            self.apply({name: part / scale for name, part in gradient.items()
                        if name.partition("/")[0] not in frozen(self.job, number)})
        else:
            self.scale.assign(scale / 2)
        return Step(sums[0] / sums[1] + float(loss), *sums[1:], np.concatenate([numbers for numbers, *_ in batches]))

    def apply(self, gradient):
        """Moves weights by the clipped gradient and the momentum."""
        clip, chosen = self.job["clip"] or {"by": None}, self.job["optimizer"]
        if clip["by"] == "norm":
            norm = float(sum((part ** 2).sum() for part in gradient.values())) ** 0.5
            gradient = {name: part * min(1.0, clip["limit"] / (norm or 1.0)) for name, part in gradient.items()}
        for name, part in gradient.items():
            part = part.clip(-clip["limit"], clip["limit"]) if clip["by"] == "value" else part
            velocity = chosen["momentum"] * self.velocity[name].read_value() - self.rate.read_value() * part
            self.velocity[name].assign(velocity)
            self.weights[name].assign_add(velocity)
        self.rate.assign(self.rate.read_value() * chosen["decay"])
