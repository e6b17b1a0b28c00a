"""Why is my loss half as large on two GPUs?"""

import numpy as np

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
rows = refdist.data.Dataset.range(8).map(np.float32).batch(8)
for batch in strategy.experimental_distribute_dataset(rows):
    losses = strategy.run(lambda x: x.sum() / np.float32(8), (batch,))
    print("loss", strategy.reduce("MEAN", losses, axis=None))
