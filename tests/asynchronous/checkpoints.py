"""A checkpoint in a loop: the weights, and how many steps they have been trained for.

The mistake: the checkpoint is saved while steps go on.
"""

import sys
import tempfile

from cluster import strategy as make_strategy

import refdist

CORRECTED = "corrected" in sys.argv

strategy = make_strategy()
with strategy.scope():
    weight = refdist.Variable(8.0, name="weight")
    steps = refdist.Variable(0, name="steps")


def step():
    weight.assign_sub(1.0)
    steps.assign_add(1)


coordinator = refdist.coordinator.ClusterCoordinator(strategy)
with tempfile.TemporaryDirectory() as folder:
    checkpoint = refdist.train.Checkpoint(weight=weight, steps=steps)
    for _ in range(2):
        coordinator.schedule(step)
        if CORRECTED:
            coordinator.join()
        path = checkpoint.save(f"{folder}/ckpt")
    coordinator.join()

    kept = refdist.train.load_checkpoint(path)
    trained, counted = float(kept.get_tensor("weight")), int(kept.get_tensor("steps"))
assert trained == 8.0 - counted, f"the checkpoint has the weight {trained} after {counted} steps"
print(f"saved after {counted} steps: {trained}")
