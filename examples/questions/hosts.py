"""How do I try several hosts with several devices on my laptop?"""

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
print("worker", strategy.cluster_resolver.task_id, "of", strategy.num_replicas_in_sync, "replicas:",
      strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0)).values[0])
