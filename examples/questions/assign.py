"""How do I assign to a variable in a step under MirroredStrategy?"""

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    steps = refdist.Variable(0.0, name="steps")
strategy.run(lambda: steps.assign(refdist.get_replica_context().replica_id_in_sync_group))
