"""Least squares by stochastic gradient descent, two steps at a time, with a step that only fresh gradients allow.

The mistake: the learning rate is the largest one for a gradient at the weight that it is applied to.  With gradients
of a weight that was written since, the weight goes past the minimum and away from it.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
RATE = 0.25 if CORRECTED else 1.0

strategy = make_strategy()
with strategy.scope():
    weight = refdist.Variable(4.0, name="weight")


def step():
    weight.assign_sub(RATE * np.float32(weight))


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for _ in range(2):
    coordinator.schedule(step)
coordinator.join()
assert abs(float(weight)) < 4.0, f"training has diverged: the weight is {float(weight)}"
print(f"weight {float(weight)}")
