"""Why can I not update my metric outside `run`?"""

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    total = refdist.Variable(0.0, name="total", synchronization=refdist.VariableSynchronization.ON_READ,
                             aggregation=refdist.VariableAggregation.SUM)
total.assign_add(1.0)
