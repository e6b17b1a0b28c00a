"""Why does logging a dictionary hang?  Rank 1 has another key."""

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def step():
    replica = refdist.get_replica_context()
    name = "loss" if replica.replica_id_in_sync_group == 0 else "val_loss"
    return replica.all_reduce("SUM", {name: 1.0})


strategy.run(step)
