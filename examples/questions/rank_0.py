"""Why does it hang when rank 0 does something else?"""

import numpy as np

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def step():
    replica = refdist.get_replica_context()
    if replica.replica_id_in_sync_group == 0:
        replica.all_gather(np.ones(1), axis=0)
    return replica.all_reduce("SUM", 1.0)


strategy.run(step)
