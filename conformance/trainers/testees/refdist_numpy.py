"""refdist's MirroredStrategy with NumPy: `python refdist_numpy.py`."""

import numpy as np
from numpy_model import forward, gradient, initial, penalty
from refdist_loop import main


def derive(job):
    def sums(weights, statistics, x, y, mask, seed):
        outputs, after = forward(job, weights, statistics, x, np.random.default_rng(seed))
        error = mask * (outputs - y)
        return (error ** 2).sum(), (abs(error).sum(), after)

    def derived(weights, *rows):
        return sums(weights, *rows), gradient(lambda weights: sums(weights, *rows)[0], weights)
    return derived


def penalties(job, weights):
    return penalty(job, weights), gradient(lambda weights: penalty(job, weights), weights)


if __name__ == "__main__":
    main(initial, derive, penalties)
