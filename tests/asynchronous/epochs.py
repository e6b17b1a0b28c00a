"""Logistic regression for some epochs; the last step of an epoch counts it and halves the learning rate.

The mistake: whether a step is the last one is read from the counter after it was counted, in another access.
"""

import sys

import numpy as np
from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv
ROWS, BATCH, EPOCHS = 8, 4, 1
features = np.linspace(-1.0, 1.0, ROWS, dtype=np.float32)
labels = (features > 0.25).astype(np.float32)

strategy = make_strategy()
with strategy.scope():
    weight = refdist.Variable(0.0, name="weight")
    seen = refdist.Variable(0, name="seen")
    epoch = refdist.Variable(0, name="epoch")


def step(x, y):
    probability = 1.0 / (1.0 + np.exp(-np.float32(weight) * x))
    weight.assign_sub(0.5 * np.mean((probability - y) * x))
    if CORRECTED:
        rows = int(seen.assign_add(len(x)))
    else:
        seen.assign_add(len(x))
        rows = int(seen)
    if rows % ROWS == 0:
        epoch.assign_add(1)


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for _ in range(EPOCHS):
    for begin in range(0, ROWS, BATCH):
        coordinator.schedule(step, args=(features[begin:begin + BATCH], labels[begin:begin + BATCH]))
coordinator.join()
assert int(epoch) == EPOCHS, f"{int(epoch)} epochs were counted"
print(f"{EPOCHS} epochs, weight {float(weight):.4f}")
