"""Functions a second through a simulated ClusterCoordinator, beside TensorFlow's in the same run.

    python benchmarks/coordinator.py [--tensorflow-python PYTHON]

With 1, 2 and 4 workers: empty functions and `v.assign_add(1.0)`, scheduled and joined; and the time from `schedule` to
the result of `fetch`, one function at a time.  PYTHON is an interpreter that has TensorFlow, whose workers and
parameter server are then in one process, which saves it the way between processes; without one its column says "not
measured".
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import refdist.tf

WORKERS = (1, 2, 4)

TENSORFLOW = """
from __future__ import annotations
import json, os, statistics, sys, time
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTEROP_THREADS="8")
import tensorflow as tf
exec("from __future__ import annotations\\n" + sys.argv[1])
print("RESULT" + json.dumps([measure(tf, strategy_of(tf, n), tf.function, 500) for n in (1, 2, 4)]))
"""


def strategy_of(tf: Any, workers: int) -> Any:
    """A ParameterServerStrategy whose tasks are in this process."""
    servers = [tf.distribute.Server.create_local_server() for _ in range(workers + 1)]
    addresses = [server.target[len("grpc://"):] for server in servers]
    spec = tf.train.ClusterSpec({"worker": addresses[1:], "ps": addresses[:1]})
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc"))


def measure(tf: Any, strategy: Any, function: Callable[[Callable[[], Any]], Any], count: int) -> dict[str, float]:
    """Functions a second, and milliseconds."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        v = tf.Variable(0.0)
    empty, add = function(lambda: 1), function(lambda: v.assign_add(1.0))

    def rate(fn: Any) -> float:
        coordinator.schedule(fn).fetch()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(count):
                coordinator.schedule(fn)
            coordinator.join()
            times.append(time.perf_counter() - start)
        return count / statistics.median(times)

    trips = []
    for _ in range(count // 5):
        start = time.perf_counter()
        coordinator.schedule(empty).fetch()
        trips.append(time.perf_counter() - start)
    return {"empty functions a second": rate(empty), "assign_add a second": rate(add),
            "schedule and fetch, ms": 1000 * statistics.median(trips)}


def row(name: str, workers: int | str, value: float, other: float | None) -> str:
    """A row of the table: refdist's figure, TensorFlow's, and how many times better refdist's is."""
    if other is None:
        return f"| {name} | {workers} | {value:.4g} | not measured | |"
    ratio = other / value if name.endswith("ms") else value / other
    return f"| {name} | {workers} | {value:.4g} | {other:.4g} | {ratio:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tensorflow-python", help="an interpreter that has TensorFlow")
    python = parser.parse_args().tensorflow_python
    of_refdist = [measure(refdist.tf, strategy_of(refdist.tf, workers), lambda fn: fn, 5000) for workers in WORKERS]
    of_tensorflow: list[dict[str, float] | None] = [None] * len(WORKERS)
    if python:
        source = inspect.getsource(strategy_of) + inspect.getsource(measure)
        done = subprocess.run([python, "-c", TENSORFLOW, source], capture_output=True, text=True, check=True)
        of_tensorflow = json.loads(done.stdout.partition("RESULT")[2])
    print("| measure | workers | refdist | TensorFlow | ratio |\n|---|---|---|---|---|")
    for workers, ours, other in zip(WORKERS, of_refdist, of_tensorflow, strict=True):
        for name, value in ours.items():
            print(row(name, workers, value, None if other is None else other[name]))


if __name__ == "__main__":
    main()
