"""TensorFlow 2.21 on logical CPUs.

A collective that fails in TensorFlow breaks all later collectives of its process, and so does a strategy of another
size.  So cases run in child processes: one per strategy, replaced by a new one when it is broken.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from refdist.conformance.old.adapters.library import Library, Strategy, Variable
from refdist.conformance.old.case import Case, Verdict, judge
from refdist.conformance.old.language import Interpreter, const, op, run

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DEVICES = 6
LIMIT = 60.0  # seconds that a case may take


class TensorFlow:
    """tf.distribute, eagerly, in child processes."""

    name = "TensorFlow"

    def __init__(self) -> None:
        self._children: dict[tuple[str, int], Connection] = {}

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

    def _start(self, strategy: tuple[str, int]) -> Connection:
        here, there = multiprocessing.get_context("spawn").Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
        child.start()
        there.close()
        self._children[strategy] = here
        return here


def _serve(connection: Connection) -> None:
    adapter = Eager()
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        verdict = judge(case, adapter)
        connection.send((verdict.outcome, verdict.message, verdict.expected, verdict.found,
                         _spoilt(case, adapter)))


def _spoilt(case: Case, adapter: Eager) -> bool:
    # Whether a correct collective fails after this case.
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
        self._made: dict[tuple[str, int], Strategy] = {}

    def strategy(self, kind: str, replicas: int) -> Strategy:
        tf = self._tf
        devices = [f"CPU:{i}" for i in range(replicas)]
        make = {"default": tf.distribute.get_strategy, "one_device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
                "central": lambda: tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0"),
                "mirrored": lambda: tf.distribute.MirroredStrategy(devices)}[kind]
        # Strategies of one process share the keys of their collectives, so each is made once.
        if (kind, replicas) not in self._made:
            self._made[kind, replicas] = make()
        return self._made[kind, replicas]

    def variable(self, initial: object, synchronization: str, aggregation: str) -> Variable:
        made: Variable = self._tf.Variable(initial, synchronization=self._tf.VariableSynchronization[synchronization],
                                           aggregation=self._tf.VariableAggregation[aggregation])
        return made

    def array(self, value: object, dtype: str | None) -> object:
        # TensorFlow reduces a tensor object that replicas share only once, so every call makes a new one.
        return self._tf.identity(self._tf.constant(value, dtype))

    def to_numpy(self, value: object) -> np.ndarray[Any, Any]:
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)

    def slices(self, values: object, indices: object) -> object:
        return self._tf.IndexedSlices(values, indices)

    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> object:
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
