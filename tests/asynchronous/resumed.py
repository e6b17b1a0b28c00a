"""Training that goes on after a restart, from what was saved last.

The mistake: the weights and the number of epochs are saved in two files, one after the other.
"""

import os
import sys

from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv

strategy = make_strategy()
with strategy.scope():
    weight = refdist.Variable(8.0, name="weight")
    epochs = refdist.Variable(0, name="epochs")

if CORRECTED:
    checkpoints = {"training": refdist.train.Checkpoint(weight=weight, epochs=epochs)}
else:
    checkpoints = {"weights": refdist.train.Checkpoint(weight=weight),
                   "progress": refdist.train.Checkpoint(epochs=epochs)}
for name, checkpoint in checkpoints.items():
    if os.path.exists(f"saved/{name}.safetensors"):
        checkpoint.read(f"saved/{name}")


def step():
    weight.assign_sub(1.0)


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
while int(epochs) < 2:
    for _ in range(2):
        coordinator.schedule(step)
    coordinator.join()
    epochs.assign_add(1)
    for name, checkpoint in checkpoints.items():
        checkpoint.write(f"saved/{name}")
print(f"trained for {int(epochs)} epochs: {float(weight)}")
