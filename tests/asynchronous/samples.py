"""How many rows a model has been trained on, counted in the step; a worker may be preempted at any time.

The mistake: a step whose worker is lost runs again from its start, and counts rows twice.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
BATCHES = 2

strategy = make_strategy()
with strategy.scope():
    rows = refdist.Variable(np.zeros(BATCHES, np.int32), name="rows")
    weight = refdist.Variable(np.zeros(BATCHES, np.float32), name="weight")


def step(number):
    if CORRECTED:  # what a second run writes is what the first one has written
        here = refdist.IndexedSlices(np.int32([4]), np.int32([number]))
        rows.scatter_update(here)
        weight.scatter_update(refdist.IndexedSlices(np.float32([1.0]), np.int32([number])))
    else:
        rows.assign_add(np.int32([4, 0] if number == 0 else [0, 4]))
        weight.scatter_update(refdist.IndexedSlices(np.float32([1.0]), np.int32([number])))


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for number in range(BATCHES):
    coordinator.schedule(step, args=(number,))
coordinator.join()
print(f"trained on {int(np.sum(np.array(rows)))} rows")
