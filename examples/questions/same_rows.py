"""Do my workers train on the same rows?"""

import numpy as np

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
with strategy.scope():
    w = refdist.Variable(0.0, name="w", aggregation=refdist.VariableAggregation.SUM)


def rows(context):
    return refdist.data.Dataset.range(8).map(np.float32).batch(context.get_per_replica_batch_size(4))


for batch in strategy.distribute_datasets_from_function(rows):
    strategy.run(lambda x: w.assign_add(x.sum()), (batch,))
