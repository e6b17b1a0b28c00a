"""TensorFlow on logical CPUs.

A collective that fails in TensorFlow breaks all later ones of its process, and so does a strategy of another size. So
every case has processes of its own, one for each worker: forks of one that has imported TensorFlow and not used it yet.
A case then costs a tenth of a second, and a third with two workers, which start servers. To use a process for several
cases would not be much faster: resetting TensorFlow's context takes twice as long as a fork, and keeping the context
keeps what earlier cases have done to it.

One case with other values, as a property has them twenty times, goes on in the process of the values before, unless it
has workers: the strategy has the same size there, and nothing has failed. What fails there in an error or a crash is
run again in a process of its own.

What is left are cases in which TensorFlow hangs, as many of those do in which replicas disagree. Workers end at about
the same time or not at all: one that has crashed or raised an error leaves others waiting at the next collective. So
they have little time once the first one has ended.

A process that has servers, a whole cluster in one process, crashes now and then, and not when the same program is run
again. So such a program is run a second time after a crash.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import pickle
import random
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from refdist.conformance import results
from refdist.conformance.adapter import Adapter, Unusable
from refdist.conformance.examples import BEFORE, Answer, Code, Program, ended, raised
from refdist.conformance.programs import size
from refdist.conformance.results import Result

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Servers that are in one process wait for each other in its threads, of which there would be one per core.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "8")
# The kernels of oneDNN are not what is tested, and to look for them takes a fifth of the time of a case.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
DEVICES = 8
# The kinds that are not another author's, where a strategy of that author is tested.
OTHERS = {"Default", "OneDevice", "Central", "workers", "replicas on workers"}
CRASHED = "the process has crashed"
SERVER = "create_local_server"  # in the source of a program that has servers in its process
LIMIT = 20.0  # seconds that a case may take
GIVEN = re.compile(r"^(\w+ =) [-\d\"'\[({].*", re.MULTILINE)  # a line that gives a name its value
APART = 8.0  # seconds between the end of the first worker and that of the last one
# Not those that the system lends to connections, where a port that is free now is soon somebody's. Processes begin with
# different ones.
_PORTS = itertools.cycle(random.sample(range(20_000, 32_000), 12_000))


class TensorFlow(Adapter):
    """tf.distribute, eagerly; each worker is a process."""

    name = "TensorFlow"
    lacks = frozenset({"replicas on workers", "TPUs"})  # A worker without GPUs has one replica.

    _make: Callable[[list[str]], Any] | None = None
    _kept: tuple[Program, _Child] | None = None  # the program that was run last, without its values, and its process
    _has_devices = False  # whether the CPU of this process is divided

    def __init__(self) -> None:
        import tensorflow

        self.tf = tensorflow
        self.version = tensorflow.__version__
        # What is in use now need not be looked at, and so not be copied, in every fork.
        gc.freeze()

    def strategy(self, kind: str) -> Any:
        tf = self.tf
        name, _, count = kind.partition(" ")
        devices = [f"CPU:{i}" for i in range(int(count) if count.isdigit() else 0)]
        if name == "Default":
            return tf.distribute.get_strategy()
        if name == "OneDevice":
            return tf.distribute.OneDeviceStrategy("CPU:0")
        if name == "Central":
            return tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")
        if name == "Mirrored" and self._make:
            strategy = self._make(devices)
            if not isinstance(strategy, tf.distribute.Strategy):
                raise TypeError(f"{type(strategy).__name__} is not a tf.distribute.Strategy")
            return strategy
        if name == "Mirrored":
            return tf.distribute.MirroredStrategy(devices)
        return tf.distribute.MultiWorkerMirroredStrategy()

    def devices(self, strategy: str) -> int:
        """How many logical CPUs a process has, for a strategy."""
        return 1 if strategy.startswith("MultiWorker") else DEVICES

    def use(self, name: str, make: Callable[[list[str]], Any]) -> None:
        self.name, self.lacks, self._make = f"{name} in {self.name}", self.lacks | OTHERS, make
        # In a fork, as the cases are: one whose module has used TensorFlow while it was imported has no devices there.
        [answer] = self.run(Program("Mirrored 2", name, None, Code("strategy", 1), (0,)))
        for result in answer.values():
            if isinstance(result, dict) and "error" in result:
                raise Unusable(f"{name}, called with two devices: {result['message']}")

    def observe(self, value: object) -> Result:
        tf = self.tf
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)) and type(value).__module__ == "builtins":
            return results.number(value)
        if isinstance(value, tf.Variable):
            return self.observe(value.read_value())
        if isinstance(value, tf.distribute.DistributedValues):
            return {"per_replica": [self.observe(part) for part in value.values]}
        if isinstance(value, tf.IndexedSlices):
            return {"slices": {"values": self.observe(value.values), "indices": self.observe(value.indices),
                               "dense_shape": self.observe(value.dense_shape)}}
        if isinstance(value, tf.TensorSpec) and value.shape.rank is not None:
            return results.spec(value.dtype.name, value.shape.as_list())
        if isinstance(value, tf.TypeSpec) and hasattr(value, "_value_specs"):  # PerReplicaSpec is not public
            return {"per_replica": [self.observe(part) for part in value._value_specs]}
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            array: Any = value.numpy() if hasattr(value, "numpy") else value
            if isinstance(array, bytes):
                return results.array("string", (), [array])
            dtype = "string" if array.dtype.kind in "OSU" else str(array.dtype)
            return results.array(dtype, array.shape, array.ravel().tolist())
        if isinstance(value, dict):
            return {"dict": {str(key): self.observe(item) for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            return {"list" if isinstance(value, list) else "tuple": [self.observe(item) for item in value]}
        return {"object": str(value)}

    def kind_of(self, error: BaseException) -> str:
        errors = self.tf.errors
        kinds = {errors.InvalidArgumentError: "value",
                 errors.UnimplementedError: "unsupported", errors.OutOfRangeError: "end",
                 errors.NotFoundError: "lookup", errors.FailedPreconditionError: "context"}
        return next((kind for known, kind in kinds.items() if isinstance(error, known)), None) or super().kind_of(error)

    def run(self, program: Program) -> list[Answer]:
        without_values = replace(program, example=_without_values(program.example))
        again = self._kept is not None and self._kept[0] == without_values
        if self._kept and not again:
            self._kept[1].end()
            self._kept = None
        answers, crashed, failed = self._once(program, without_values)
        servers = any(code and SERVER in code.source for code in (program.preamble, program.example))
        if (crashed and servers) or (failed and again):
            answers, *_ = self._once(program, without_values)
        return answers

    def _once(self, program: Program, without_values: Program) -> tuple[list[Answer], bool, bool]:
        """The answers of the workers, whether the process of one has crashed, and whether anything has failed."""
        multi = program.strategy.startswith("MultiWorker")
        if self._kept:
            children = [self._kept[1]]
        else:
            ports = [_free_port() for _ in range(size(program.strategy)[0])]
            config = [json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
                                  "task": {"type": "worker", "index": i}}) for i in range(len(ports))]
            children = [_Child(self._here, config[i] if multi else None) for i in range(len(ports))]
        for child in children:
            child.ask(program)
        _wait(children)
        failed = any(child.crash or any(isinstance(result, dict) and "error" in result
                                        for result in child.answer.values()) for child in children)
        self._kept = None if multi or failed else (without_values, children[0])
        answers = []
        for child in children:
            if not self._kept:
                child.end()
            if child.crash:
                ended(program, child.answer, {"error": "crash", "message": child.crash})
            answers.append(child.answer)
        return answers, any(child.crash == CRASHED for child in children), failed

    def _here(self, program: Program) -> Answer:
        tf = self.tf
        if not self._has_devices:
            cpu = tf.config.list_physical_devices("CPU")[0]
            logical = [tf.config.LogicalDeviceConfiguration()] * self.devices(program.strategy)
            try:
                tf.config.set_logical_device_configuration(cpu, logical)
            except RuntimeError as error:
                return {BEFORE: raised(self, error)}
            self._has_devices = True
        return self.execute(program, {})


class _Child:
    """A fork that runs programs and sends back what they return.

    Attributes:
        answer: what it sent last.
        crash: how it ended if not by that.
    """

    def __init__(self, run: Callable[[Program], Answer], config: str | None) -> None:
        self.answer: Answer = {}
        self.crash = ""
        self._socket, theirs = socket.socketpair()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._socket.close()
                if config is not None:
                    os.environ["TF_CONFIG"] = config
                # Until it is killed: other workers may not have received all that this one sent.
                with theirs.makefile("rwb") as stream:
                    while True:
                        answer = run(pickle.load(stream))
                        stream.write(json.dumps(list(answer.items())).encode() + b"\n")
                        stream.flush()
            finally:
                os._exit(0)
        # Here and not there, so that it has a group to be killed with, however early.
        os.setpgid(self._pid, self._pid)
        theirs.close()
        self._stream = self._socket.makefile("rb")

    def ask(self, program: Program) -> None:
        """Sends a program."""
        self.answer, self.crash = {}, "hangs"
        with contextlib.suppress(OSError):
            self._socket.sendall(pickle.dumps(program))

    def fileno(self) -> int:
        """The file descriptor that becomes readable when an answer has come."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Takes the answer, or notes that the process has ended without one."""
        try:
            line = self._stream.readline()
        except OSError:
            line = b""
        if line.endswith(b"\n"):
            self.answer, self.crash = dict(json.loads(line)), ""
        else:
            self.crash = CRASHED

    def end(self) -> None:
        self._stream.close()
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _without_values(code: Code) -> Code:
    """Code with no values for its names: what programs of one property have in common."""
    return replace(code, source=GIVEN.sub(r"\1", code.source))


def _wait(children: Sequence[_Child]) -> None:
    """Until all have answered or ended, or those that have not will not."""
    running = list(children)
    deadline = time.monotonic() + LIMIT
    while running:
        ready, _, _ = select.select(running, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return
        for child in ready:
            child.receive()
            running.remove(child)
            deadline = min(deadline, time.monotonic() + APART)


def _free_port() -> int:
    for port in _PORTS:
        with socket.socket() as bound, contextlib.suppress(OSError):
            bound.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports are a cycle")
