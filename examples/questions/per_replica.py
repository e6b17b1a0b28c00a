"""How do I get a number out of a PerReplica?"""

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
loss = strategy.run(lambda: 1.0 + refdist.get_replica_context().replica_id_in_sync_group)
print(loss.numpy())
