"""Why does training get worse on more GPUs?  All of them drop the same units."""

import numpy as np

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    w = refdist.Variable(1.0, name="w", aggregation=refdist.VariableAggregation.SUM)


def step(x):
    kept = np.random.default_rng(40).random(len(x)) < 0.5
    return w.assign_sub((x * kept).sum() / np.float32(8))


for batch in strategy.experimental_distribute_dataset(refdist.data.Dataset.range(8).map(np.float32).batch(8)):
    strategy.run(step, (batch,))
