"""Functions a second where every task is a process, beside TensorFlow's in the same run.

    python benchmarks/parameter_servers.py [--tensorflow-python PYTHON] [--workers 1,2,4] [--repeat 3]

With each number of workers and one parameter server: empty functions and `v.assign_add(1.0)`, scheduled and joined; and
the time from `schedule` to the result of `fetch`, one function at a time.  refdist and TensorFlow take turns, so that
both meet the same load of the machine; shown are the medians.  PYTHON is an interpreter that has TensorFlow; without
one its columns say "not measured".
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import subprocess
import sys
from pathlib import Path

from coordinator import measure, row

ROOT = Path(__file__).parents[1]

TENSORFLOW = """
from __future__ import annotations
import json, os, socket, statistics, subprocess, sys, time
from typing import Any
from collections.abc import Callable
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
workers, source = int(sys.argv[1]), sys.argv[2]
sockets = [socket.socket() for _ in range(workers + 1)]
for listener in sockets:
    listener.bind(("127.0.0.1", 0))
ports = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
for listener in sockets:
    listener.close()
cluster = {"worker": ports[1:], "ps": ports[:1]}
task = '''
import json, os, sys
import tensorflow as tf
tf.distribute.Server(tf.train.ClusterSpec(json.loads(sys.argv[1])), sys.argv[2], int(sys.argv[3]), "grpc")
print("up", flush=True)
sys.stdin.read()
os._exit(0)
'''
tasks = [subprocess.Popen([sys.executable, "-c", task, json.dumps(cluster), job, str(i)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
         for job in cluster for i in range(len(cluster[job]))]
import tensorflow as tf
for process in tasks:
    process.stdout.readline()
exec("from __future__ import annotations\\n" + source)
spec = tf.train.ClusterSpec(cluster)
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc"))
print("RESULT" + json.dumps(measure(tf, strategy, tf.function, 500)), flush=True)
for process in tasks:
    process.kill()
os._exit(0)
"""


def measured(command: list[str]) -> dict[str, float]:
    """What a process, or a job, prints of its measure."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    measures: dict[str, float] = json.loads(done.stdout.partition("RESULT")[2])
    return measures


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """Of several runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tensorflow-python", help="an interpreter that has TensorFlow")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers (default 1,2,4)")
    parser.add_argument("--repeat", type=int, default=3, help="how many runs of each (default 3)")
    parser.add_argument("--job", action="store_true", help="be one of the processes that are measured")
    options = parser.parse_args()
    if options.job:
        import refdist.tf

        strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.TFConfigClusterResolver())
        print("RESULT" + json.dumps(measure(refdist.tf, strategy, lambda fn: fn, 2000)))
        return
    print("| measure | workers | refdist | TensorFlow | ratio |\n|---|---|---|---|---|")
    for workers in options.workers.split(","):
        of_refdist, of_tensorflow = [], []
        for _ in range(options.repeat):
            of_refdist.append(measured([sys.executable, "-m", "refdist", "launch", "--workers", workers, "--ps", "1",
                                        __file__, "--job"]))
            if options.tensorflow_python:
                of_tensorflow.append(measured([options.tensorflow_python, "-c", TENSORFLOW, workers,
                                               inspect.getsource(measure)]))
        other = median(of_tensorflow) if of_tensorflow else None
        for name, value in median(of_refdist).items():
            print(row(name, workers, value, None if other is None else other[name]), flush=True)


if __name__ == "__main__":
    main()
