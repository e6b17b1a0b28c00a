"""Which rows does each worker get?"""

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
rows = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(10).batch(4))
if strategy.cluster_resolver.task_id == 0:
    print(rows.explain())
