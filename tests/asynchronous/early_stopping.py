"""Training ends when the loss has not become better for some evaluations.

The mistake: the best loss is read, compared and assigned, so that a worse one can replace it.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
losses = [0.5, 0.25]

strategy = make_strategy()
with strategy.scope():
    best = refdist.Variable([np.inf], name="best")


def evaluate(loss):
    if CORRECTED:
        best.scatter_min(refdist.IndexedSlices(np.float32([loss]), np.int32([0])))
    elif loss < float(best[0]):
        best.assign([loss])


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for loss in losses:
    coordinator.schedule(evaluate, args=(loss,))
coordinator.join()
print(f"best loss {float(best[0])}")
