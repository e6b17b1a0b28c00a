"""Schedules a minute that `refdist.explore` runs in one process.

    python benchmarks/explore.py

Four functions of `v.assign(v + 1.0)` on three workers: 276 classes, until each has been run ten times.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import refdist
from refdist.coordinator import ClusterCoordinator

RESOLVER = refdist.cluster_resolver.SimpleClusterResolver(
    refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1", "w2:1"], "ps": ["p0:1"]}))


def program() -> float:
    strategy = refdist.ParameterServerStrategy(RESOLVER)
    with strategy.scope():
        v = refdist.Variable(0.0, name="v")
    coordinator = ClusterCoordinator(strategy)
    for _ in range(4):
        coordinator.schedule(lambda: v.assign(v + 1.0))
    coordinator.join()
    return float(v)


def main() -> None:
    before, used = time.perf_counter(), time.process_time()
    runs = sum(refdist.explore(program, lambda result: True, budget="10min").runs for _ in range(10))
    minutes, busy = (time.perf_counter() - before) / 60, (time.process_time() - used) / 60
    print(f"{runs} schedules, {runs / minutes:,.0f} a minute, {runs / busy:,.0f} a minute of CPU time")


if __name__ == "__main__":
    main()
