"""What the programs beside this file have in common: a simulated cluster of two workers and two parameter servers."""

from __future__ import annotations

import refdist


def strategy(shards: int = 1) -> refdist.ParameterServerStrategy:
    """Of a new cluster; variables are split into so many parts where they can be."""
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]})
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)
    partitioner = refdist.experimental.partitioners.FixedShardsPartitioner(shards) if shards > 1 else None
    return refdist.ParameterServerStrategy(resolver, partitioner)
