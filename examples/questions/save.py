"""Why must all workers save, and not only the chief?"""

import tempfile

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
with strategy.scope():
    w = refdist.Variable(0.0, name="w")
if strategy.cluster_resolver.task_id == 0:
    with tempfile.TemporaryDirectory() as folder:
        refdist.train.Checkpoint(w=w).save(f"{folder}/model")
strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
