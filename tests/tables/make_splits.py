"""Writes splits.json: how TensorFlow 2.21 splits datasets over replicas and workers.

Run by hand in an environment with `tensorflow-cpu`; every entry comes from a strategy that ran: MirroredStrategy
on logical CPUs, and MultiWorkerMirroredStrategy in one process per worker.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

CASES = 160
WORKER_CASES = 60


def cases(count: int, replicas: list[int], seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    drawn = []
    for _ in range(count):
        drawn.append({"rows": draw.randint(0, 40), "batch": draw.randint(1, 12), "replicas": draw.choice(replicas),
                      "drop_remainder": draw.random() < 0.3, "policy": draw.choice(["AUTO", "DATA", "OFF"]),
                      "repeat": draw.choice([1, 1, 1, 2])})
    return drawn


def dataset_of(tf: Any, case: dict[str, Any]) -> Any:
    options = tf.data.Options()
    policy = getattr(tf.data.experimental.AutoShardPolicy, case["policy"])
    options.experimental_distribute.auto_shard_policy = policy
    dataset = tf.data.Dataset.range(case["rows"]).batch(case["batch"], drop_remainder=case["drop_remainder"])
    return dataset.repeat(case["repeat"]).with_options(options)


def steps_of(strategy: Any, dataset: Any) -> list[list[list[int]]]:
    return [[part.numpy().tolist() for part in strategy.experimental_local_results(element)]
            for element in strategy.experimental_distribute_dataset(dataset)]


def one_process() -> list[dict[str, Any]]:
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 8)
    drawn = cases(CASES, list(range(1, 9)), 1)
    strategies = {n: tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in range(1, 9)}
    for case in drawn:
        case["workers"] = 1
        case["steps"] = [steps_of(strategies[case["replicas"]], dataset_of(tf, case))]
    return drawn


def worker() -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    drawn = cases(WORKER_CASES, [strategy.num_replicas_in_sync], strategy.num_replicas_in_sync)
    for case in drawn:
        case["workers"] = case["replicas"]
        case["steps"] = steps_of(strategy, dataset_of(tf, case))
    print("RESULT" + json.dumps(drawn))


def many_processes(workers: int) -> list[dict[str, Any]]:
    ports = []
    for _ in range(workers):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    processes = [subprocess.Popen(
        [sys.executable, __file__, "worker"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})})
        for i in range(workers)]
    outputs = [process.communicate()[0] for process in processes]
    results = [json.loads(output.split("RESULT", 1)[1]) for output in outputs]
    merged = results[0]
    for i, case in enumerate(merged):
        case["steps"] = [result[i]["steps"] for result in results]
    return merged


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        worker()
    else:
        rows = one_process() + many_processes(2) + many_processes(3)
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        Path(__file__).with_name("splits.json").write_text(f"[\n{lines}\n]\n")
