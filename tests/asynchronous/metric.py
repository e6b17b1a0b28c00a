"""A running mean of the loss that is shown while steps go on.

The mistake: the sum and the number of the losses are two variables, and somebody reads them between two writes.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
batches = [np.full(4, 3.0, np.float32), np.full(4, 3.0, np.float32)]

strategy = make_strategy()
with strategy.scope():
    if CORRECTED:
        loss = refdist.Variable([0.0, 0.0], name="loss")
    else:
        total = refdist.Variable(0.0, name="total")
        count = refdist.Variable(0.0, name="count")


def step(batch):
    value = np.mean(batch)
    if CORRECTED:
        loss.assign_add([value, 1.0])
    else:
        total.assign_add(value)
        count.assign_add(1.0)


def mean():
    if CORRECTED:
        sums, number = np.array(loss)
    else:
        sums, number = float(total), float(count)
    return sums / number if number else 0.0


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for batch in batches:
    coordinator.schedule(step, args=(batch,))
shown = mean()
coordinator.join()
assert shown in (0.0, 3.0), f"every loss is 3.0, and the mean was shown as {shown}"
print(f"mean loss {mean():.3f}")
