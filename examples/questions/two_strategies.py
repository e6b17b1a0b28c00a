"""Which two strategies are mixed?"""

import refdist

first, second = (refdist.MirroredStrategy(["GPU:0", "GPU:1"]) for _ in range(2))
with first.scope():
    w = refdist.Variable(0.0, name="w", aggregation=refdist.VariableAggregation.MEAN)
second.run(lambda: w.assign_add(1.0))
