"""Why is the result of `gather` an array with one GPU, and what is it with two?"""

import numpy as np

import refdist

for gpus in (["GPU:0"], ["GPU:0", "GPU:1"]):
    strategy = refdist.MirroredStrategy(gpus)
    ranks = strategy.run(lambda: np.array([refdist.get_replica_context().replica_id_in_sync_group]))
    print(len(gpus), "replicas:", strategy.gather(ranks, axis=0))
