"""Rows per second through a distributed dataset, beside TensorFlow in the same run.

    python benchmarks/datasets.py [--tensorflow-python PYTHON]

The rows lie in an array and are read in order, in batches of 1,024 small or 64 large rows, by 1 and 8 replicas;
and the small ones shuffled too.  PYTHON is an interpreter that has TensorFlow; without one its column says "not
measured".  refdist's figures are taken before and after TensorFlow's, and the slower one counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import refdist
from refdist.data import Dataset

SIZES = {64: (262_144, 1024), 65536: (2048, 64)}  # bytes of a row: number of rows, rows of a batch
CASES = [(size, replicas, shuffled) for size in SIZES for replicas in (1, 8) for shuffled in (False, True)
         if size == 64 or not shuffled]

TENSORFLOW = """
import json, os, statistics, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 8)
strategies = {n: tf.distribute.MirroredStrategy(["CPU:%d" % i for i in range(n)]) for n in (1, 8)}
result = []
for size, replicas, shuffled, rows, batch in json.loads(sys.argv[1]):
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((rows, size // 4), np.float32))
    if shuffled:
        dataset = dataset.shuffle(4096, seed=1)
    dataset = dataset.batch(batch).prefetch(tf.data.AUTOTUNE)
    distributed = strategies[replicas].experimental_distribute_dataset(dataset)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        for element in distributed:
            pass
        times.append(time.perf_counter() - start)
    result.append(rows / statistics.median(times[1:]))
print("RESULT" + json.dumps(result))
"""


def dataset_of(size: int, shuffled: bool) -> Dataset:
    rows, batch = SIZES[size]
    dataset = Dataset.from_tensor_slices(np.zeros((rows, size // 4), np.float32))
    return (dataset.shuffle(4096, seed=1) if shuffled else dataset).batch(batch)


def measure(size: int, replicas: int, shuffled: bool) -> float:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
    distributed = strategy.experimental_distribute_dataset(dataset_of(size, shuffled))
    times = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in distributed:
            pass
        times.append(time.perf_counter() - start)
    return SIZES[size][0] / statistics.median(times[1:])


def allocated(call: Callable[[], Any]) -> float:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow-python", help="an interpreter that has TensorFlow")
    python = parser.parse_args().tensorflow_python
    first = [measure(*case) for case in CASES]
    peer: list[float | None] = [None] * len(CASES)
    if python:
        cases = json.dumps([(*case, *SIZES[case[0]]) for case in CASES])
        output = subprocess.run([python, "-c", TENSORFLOW, cases], capture_output=True, text=True, check=True).stdout
        peer = json.loads(output.split("RESULT")[1])
    second = [measure(*case) for case in CASES]
    print(f"| {'rows':28} | {'rows/s':>12} | {'TensorFlow':>12} | {'ratio':>6} |")
    print("|---|---|---|---|")
    for (size, replicas, shuffled), *ours, theirs in zip(CASES, first, second, peer, strict=True):
        slower = min(ours)
        label = f"{size} B, {replicas} replicas" + ", shuffled" * shuffled
        other, ratio = ("not measured", "") if theirs is None else (f"{theirs:,.0f}", f"{slower / theirs:.1f}")
        print(f"| {label:28} | {slower:12,.0f} | {other:>12} | {ratio:>6} |")
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])
    distributed = strategy.experimental_distribute_dataset(dataset_of(65536, shuffled=False))
    peak = allocated(lambda: [len(element.values) for element in distributed])
    print(f"\nmemory allocated while 128 MiB in rows of 64 KiB go to 8 replicas: {peak:.3f} MiB")


if __name__ == "__main__":
    main()
