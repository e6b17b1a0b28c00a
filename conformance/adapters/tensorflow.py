"""TensorFlow 2.21 on logical CPUs.

A collective that failed spoils all later ones of its process, and strategies of different sizes spoil each other's,
so cases run in child processes: one per size, and a new one after each spoilt one.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np

from refdist.conformance.adapters.library import Library
from refdist.conformance.case import Case, Verdict, judge
from refdist.conformance.language import Interpreter, const, op, run

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DEVICES = 6


LIMIT = 60.0  # seconds that a case may take


class TensorFlow:
    """tf.distribute, eagerly, in child processes."""

    name = "TensorFlow"

    def __init__(self) -> None:
        self._children: dict[tuple[str, int], Any] = {}

    def judge(self, case: Case) -> Verdict:
        """Runs a case in the child for its strategy."""
        connection = self._children.get(case.strategy) or self._start(case.strategy)
        connection.send(case)
        if not connection.poll(LIMIT):
            self._children.pop(case.strategy)
            return Verdict(case, "failed", f"hangs for more than {LIMIT:.0f} s")
        try:
            outcome, message, expected, found, spoilt = connection.recv()
        except EOFError:
            self._children.pop(case.strategy)
            return Verdict(case, "failed", "the process has crashed")
        if spoilt:
            self._children.pop(case.strategy).close()
        return Verdict(case, outcome, message, expected, found)

    def _start(self, strategy: tuple[str, int]) -> Any:
        here, there = multiprocessing.get_context("spawn").Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
        child.start()
        there.close()
        self._children[strategy] = here
        return here


def _serve(connection: Any) -> None:
    adapter = Eager()
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        verdict = judge(case, adapter)
        connection.send((verdict.outcome, verdict.message, verdict.expected, verdict.found,
                         _spoilt(case, adapter)))


def _spoilt(case: Case, adapter: Any) -> bool:
    # Whether a collective that is fine fails after this case.
    if case.strategy[0] != "mirrored" or case.strategy[1] == 1 or not case.fails:
        return False
    try:
        Interpreter(adapter, case.strategy).value(run(op("all_reduce", "SUM", const(1.0))))
        Interpreter(adapter, case.strategy).value(op("gather", run(const([1.0])), 0))
    except Exception:
        return True
    return False


class Eager(Library):
    """tf.distribute in this process."""

    name = "TensorFlow"
    capabilities = frozenset({"central", "sync_on_read", "update", "datasets", "scatter", "names", "resolvers"})

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf, self.api = tf, tf.distribute
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
        self.name = f"TensorFlow {tf.__version__}"
        self._made: dict[Any, Any] = {}

    def strategy(self, kind: str, replicas: int) -> Any:
        tf = self._tf
        devices = [f"CPU:{i}" for i in range(replicas)]
        make = {"default": tf.distribute.get_strategy, "one_device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
                "central": lambda: tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0"),
                "mirrored": lambda: tf.distribute.MirroredStrategy(devices)}[kind]
        # Strategies of one process share the keys of their collectives, so each is made once.
        return self._made.setdefault((kind, replicas), None) or self._keep((kind, replicas), make())

    def _keep(self, key: Any, made: Any) -> Any:
        self._made[key] = made
        return made

    def variable(self, initial: Any, synchronization: str, aggregation: str) -> Any:
        return self._tf.Variable(initial, synchronization=self._tf.VariableSynchronization[synchronization],
                                 aggregation=self._tf.VariableAggregation[aggregation])

    def array(self, value: Any, dtype: str | None) -> Any:
        # A tensor that replicas share counts once; each call makes one of its own.
        return self._tf.identity(self._tf.constant(value, dtype))

    def to_numpy(self, value: Any) -> Any:
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)

    def slices(self, values: Any, indices: Any) -> Any:
        return self._tf.IndexedSlices(values, indices)

    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Any:
        options = self._tf.data.Options()
        options.experimental_distribute.auto_shard_policy = self._tf.data.experimental.AutoShardPolicy[policy]
        return self._tf.data.Dataset.range(rows).batch(batch, drop).repeat(repeat).with_options(options)

    def kind_of(self, error: BaseException) -> str:
        errors = self._tf.errors
        if isinstance(error, errors.InvalidArgumentError):
            return "value"
        if isinstance(error, errors.UnimplementedError):
            return "unsupported"
        return super().kind_of(error)
