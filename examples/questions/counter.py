"""Why does the counter of my parameter servers miss steps now and then?"""

import refdist

spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
coordinator = refdist.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    steps = refdist.Variable(0, name="steps")
for _ in range(2):
    coordinator.schedule(lambda: steps.assign(steps + 1))
coordinator.join()
print(int(steps))
