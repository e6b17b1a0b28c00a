"""Why is the loss of my retrieval model smaller on more GPUs?  Each pair has the other rows as its negatives."""

import numpy as np

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
rows = refdist.data.Dataset.range(8).map(lambda x: np.float32([x % 3, x % 5])).batch(8)


def step(x):
    scores = x @ x.T
    losses = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    return refdist.get_replica_context().all_reduce("SUM", losses.sum() / np.float32(8))


for batch in strategy.experimental_distribute_dataset(rows):
    print("loss", strategy.experimental_local_results(strategy.run(step, (batch,)))[0])
