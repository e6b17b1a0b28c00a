"""What the simulator costs, beside TensorFlow in the same run.

    python benchmarks/simulator.py [--tensorflow-python PYTHON]

PYTHON is an interpreter that has TensorFlow (`pip install tensorflow-cpu` in an environment of its own);
without one, its columns say "not measured".  Every figure is the median of several rounds; refdist and its
peer take turns where they share a process.  Ratios within one run count, not the microseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

IMPORT = """
import resource, sys, time
sys.path.insert(0, {root!r})
start = time.perf_counter()
import {module}
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

TENSORFLOW = """
import json, os, statistics, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8)
strategy = tf.distribute.MirroredStrategy(["CPU:%d" % i for i in range(8)])
def median(call, rounds):
    call(); call(); times = []
    for _ in range(rounds):
        start = time.perf_counter(); call(); times.append(time.perf_counter() - start)
    return statistics.median(times)
def reduce():
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(tf.constant(1.0)))
in_function = tf.function(lambda: strategy.run(reduce))
big = tf.ones([1 << 20])
def reduce_big():
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(big))
big_in_function = tf.function(lambda: strategy.run(reduce_big))
print(json.dumps({
    "noop": median(lambda: strategy.run(lambda: None), 30),
    "reduce": median(in_function, 100),
    "big": median(big_in_function, 20)}))
"""


class Row(NamedTuple):
    what: str
    ours: str
    peer: str
    ratio: str
    budget: str
    kept: str


def median(call: Callable[[], Any], rounds: int, inner: int = 1,
           clock: Callable[[], float] = time.perf_counter) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = clock()
        for _ in range(inner):
            call()
        times.append((clock() - start) / inner)
    return statistics.median(times)


def in_process(python: str, program: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.strip().splitlines()[-1]


def import_cost(python: str, module: str) -> tuple[float, float]:
    runs = [tuple(map(float, in_process(python, IMPORT.format(root=str(ROOT), module=module)).split()))
            for _ in range(5)]
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def verdict(kept: bool) -> str:
    return "kept" if kept else "MISSED"


def rows(tensorflow_python: str | None) -> list[Row]:
    import numpy as np

    import refdist

    theirs: dict[str, float] = {}
    table = []
    seconds, megabytes = import_cost(sys.executable, "refdist")
    peer = ratio = "not measured"
    if tensorflow_python:
        theirs = json.loads(in_process(tensorflow_python, TENSORFLOW))
        tf_seconds, tf_megabytes = import_cost(tensorflow_python, "tensorflow")
        peer, ratio = f"{tf_seconds:.2f} s, {tf_megabytes:.0f} MB", f"{tf_seconds / seconds:.0f} x"
    table.append(Row("import", f"{seconds:.2f} s, {megabytes:.0f} MB", peer, ratio,
                     "0.2 s, 60 MB", verdict(seconds <= 0.2 and megabytes <= 60)))

    def against(name: str, took: float) -> tuple[str, str, float]:
        if name not in theirs:
            return "not measured", "not measured", float("inf")
        return f"{theirs[name] * 1e6:,.0f} us", f"{theirs[name] / took:.0f} x", theirs[name] / took

    def reduce_one() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        return context.all_reduce("SUM", 1.0)

    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])
    noop = median(lambda: strategy.run(lambda: None), 50, 100)
    shown, ratio, times = against("noop", noop)
    table.append(Row("run(no-op), 8 replicas; TensorFlow eager", f"{noop * 1e6:.1f} us", shown, ratio, "25 us, 100 x",
                     verdict(noop <= 25e-6 and times >= 100)))
    reduction = median(lambda: strategy.run(reduce_one), 50, 100)
    shown, ratio, times = against("reduce", reduction)
    table.append(Row("run with a scalar all_reduce, 8 replicas; in tf.function", f"{reduction * 1e6:.1f} us", shown,
                     ratio, "40 us, 20 x", verdict(reduction <= 40e-6 and times >= 20)))
    for count, budget in ((1024, 5), (16384, 10)):
        many = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
        # There is no peer in another process to compare with, so what else the machine does need not count.
        each = median(lambda many=many: many.run(reduce_one), 7,  # type: ignore[misc]
                      clock=time.process_time) / count
        table.append(Row(f"the same, {count:,} replicas, CPU time per replica", f"{each * 1e6:.2f} us", "-", "-",
                         f"{budget} us", verdict(each * 1e6 <= budget)))

    parts: list[Any] = []

    def plain() -> Any:
        total = parts[0] + parts[1]
        for part in parts[2:]:
            np.add(total, part, out=total)
        return total

    def reduce_big() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        return context.all_reduce("SUM", parts[context.replica_id_in_sync_group])

    sums: dict[int, float] = {}
    for numbers, budget in ((1 << 20, 1.2), (1 << 22, 0.65)):
        parts[:] = [np.full(numbers, float(i), np.float32) for i in range(8)]
        ours, peers = [], []
        for _ in range(30):
            ours.append(median(lambda: strategy.run(reduce_big), 1))
            peers.append(median(plain, 1))
        sums[numbers], floor = statistics.median(ours), statistics.median(peers)
        table.append(Row(f"all_reduce of {numbers >> 18} MiB, 8 replicas; the NumPy sum",
                         f"{sums[numbers] * 1e3:.2f} ms", f"{floor * 1e3:.2f} ms",
                         f"{sums[numbers] / floor:.2f} of it", f"{budget} of it",
                         verdict(sums[numbers] <= budget * floor)))
    big = sums[1 << 20]
    shown, ratio, _ = against("big", big)
    table.append(Row("all_reduce of 4 MiB; in tf.function", f"{big * 1e3:.2f} ms", shown, ratio, "-", "-"))

    table += recording_rows()

    many = refdist.MirroredStrategy([f"GPU:{i}" for i in range(1024)])
    tracemalloc.start()
    with many.scope():
        v = refdist.Variable(np.zeros(1 << 20, np.float32))
    v.assign_add(np.ones(1 << 20, np.float32))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    table.append(Row("1,024 equal mirrored copies of 4 MiB", f"{used / 2**20:.1f} MiB", "4,096 MiB if copied",
                     f"{4096 * 2**20 / used:.0f} x", "one array", verdict(used < 2 * 4 * 2**20)))
    return table


def training_step(variables: Sequence[Any], x: Any) -> Any:
    """A step of a network with one hidden layer, and gradients by hand."""
    import numpy as np

    import refdist

    context = refdist.get_replica_context()
    assert context is not None
    inner, bias, outer = [variable.value() for variable in variables]
    hidden = np.tanh(x @ inner + bias)
    exponents = np.exp(np.tanh(hidden @ outer))
    by_logits = exponents / exponents.sum(axis=1, keepdims=True)
    by_hidden = (by_logits @ outer.T) * (1 - hidden * hidden)
    gradients = [x.T @ by_hidden, by_hidden.sum(axis=0), hidden.T @ by_logits]
    for variable, gradient in zip(variables, context.all_reduce("SUM", gradients), strict=True):
        variable.assign_sub(0.01 * gradient)
    return by_logits.max()


def recording_rows() -> list[Row]:
    """The same work with and without a recording, in turns."""
    import numpy as np

    import refdist

    def reduce(value: Any) -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        return context.all_reduce("SUM", value)

    eight = refdist.MirroredStrategy([f"GPU:{i}" for i in range(8)])
    four = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
    draw = np.random.default_rng(0)
    with four.scope():
        variables = [refdist.Variable(draw.standard_normal(shape).astype(np.float32),
                                      aggregation=refdist.VariableAggregation.MEAN)
                     for shape in ((64, 64), (64,), (64, 10))]
    x = draw.standard_normal((32, 64)).astype(np.float32)
    large = refdist.PerReplica([np.full(1 << 20, float(i), np.float32) for i in range(8)])
    table = []
    for what, call, inner in (
            ("a training step, 4 replicas", lambda: four.run(training_step, (variables, x)), 20),
            ("a scalar all_reduce, 8 replicas", lambda: eight.run(reduce, (1.0,)), 50),
            ("an all_reduce of 4 MiB each, 8 replicas", lambda: eight.run(reduce, (large,)), 2)):
        plain, kept, written = [], [], []
        for _ in range(15):
            plain.append(median(call, 1, inner, time.process_time))
            with refdist.record():
                kept.append(median(call, 1, inner, time.process_time))
            with tempfile.TemporaryDirectory() as folder, refdist.insight.record_to(f"{folder}/recording"):
                written.append(median(call, 1, inner, time.process_time))
        base = statistics.median(plain)
        for how, times in (("recorded", kept), ("recorded to a file", written)):
            cost = statistics.median(times)
            table.append(Row(f"{what}, {how}; not recorded", f"{cost * 1e6:,.0f} us", f"{base * 1e6:,.0f} us",
                             f"{cost / base:.1f} x of it", "2 x of it" if how == "recorded" else "-",
                             verdict(cost <= 2 * base) if how == "recorded" else "-"))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow-python", help="an interpreter that has TensorFlow")
    table = [Row("what", "refdist", "peer", "ratio", "budget", ""), *rows(parser.parse_args().tensorflow_python)]
    widths = [max(len(row[i]) for row in table) for i in range(len(Row._fields))]
    for i, row in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


if __name__ == "__main__":
    main()
