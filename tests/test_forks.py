"""`refdist.compare` of a function in a process in which another library has computed."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import queue
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist

ROOT = Path(__file__).parents[1]
# What each library has to have computed before, for a copy of the process to wait for its threads.
COMPUTES = {
    "jax": "import jax; compute = jax.jit(lambda rows: (rows @ rows.T).sum())",
    "tensorflow": "import tensorflow as tf\n"
                  "ones = tf.ones((500, 500)); compute = lambda rows: tf.reduce_sum(ones @ ones).numpy() * rows.sum()",
    "torch": "import torch; torch.set_num_threads(2)\n"
             "compute = lambda rows: torch.as_tensor(rows).expand(len(rows), 200_000).exp().sum().numpy() / 200_000",
}
PROGRAM = """
import numpy as np
import refdist
{computes}


def program():
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        w = refdist.Variable(0.0, name="w", aggregation=refdist.VariableAggregation.SUM)
    rows = refdist.data.Dataset.from_tensor_slices(np.ones((8, 1), np.float32)).batch(8)
    for batch in strategy.experimental_distribute_dataset(rows):
        strategy.run(lambda rows: w.assign_add(np.float32(compute(np.array(rows)))), (batch,))


program()
try:
    print(refdist.compare(program, replicas=(1, 2), orders=0, limit=30))
except refdist.errors.RefdistError as error:
    print(error)
"""


def compared_after(library: str, folder: Path) -> str:
    """What `compare` says where the library has computed in the same process."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(computes=COMPUTES[library])], capture_output=True,
                          text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), [("jax", "JAX"), ("tensorflow", "TensorFlow")])
def test_a_library_whose_threads_a_copy_lacks_is_an_error_at_once(library: str, name: str, tmp_path: Path) -> None:
    printed = compared_after(library, tmp_path)
    assert printed.startswith("[RD20] compare: ") and f"; {name} has computed in this process before" in printed
    assert "`python -m refdist compare FILE`" in printed


@pytest.mark.slow
def test_pytorch_goes_on_in_a_copy(tmp_path: Path) -> None:
    printed = compared_after("torch", tmp_path)
    assert printed.startswith("it trains the same in 3 runs"), printed


class Waiting:
    """A program that waits for a thread which its process has started, and a copy has not.

    Args:
        computes: whether the program uses that thread.
    """

    def __init__(self, computes: bool) -> None:
        self.asked, self.answered, self.computes = queue.SimpleQueue[object](), queue.SimpleQueue[object](), computes
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while self.asked.get() is not None:
            self.answered.put(2.5)

    def __call__(self) -> object:
        if self.computes:
            self.asked.put("work")
            return self.answered.get()
        return 2.5


@pytest.mark.parametrize("computes", [False, True])
def test_only_what_waits_for_such_a_thread_is_an_error(monkeypatch: pytest.MonkeyPatch, computes: bool) -> None:
    bridge: Any = types.ModuleType("jax._src.xla_bridge")
    bridge.backends_are_initialized = lambda: True
    monkeypatch.setitem(sys.modules, bridge.__name__, bridge)
    program = Waiting(computes)
    assert program() == 2.5
    if computes:
        with pytest.raises(NotImplementedError, match=r"RD20\] compare: .*; JAX has computed in this process before"):
            refdist.compare(program, replicas=(1, 2), orders=0)
    else:
        assert refdist.compare(program, replicas=(1, 2), orders=0).same
    program.asked.put(None)


class Driver:
    """A driver of CUDA; `initialized` says whether it has been asked for anything."""

    def __init__(self, initialized: bool) -> None:
        self.initialized = initialized

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        return 0 if self.initialized else 3


@pytest.mark.parametrize(("driver", "asked"), [(None, False), (Driver(False), False), (Driver(True), True)],
                         ids=["not loaded", "loaded", "asked for"])
def test_the_failure_of_cuda_in_a_copy_is_explained(monkeypatch: pytest.MonkeyPatch, driver: Driver | None,
                                                    asked: bool) -> None:
    def load(name: str, mode: int) -> Driver:
        assert mode & os.RTLD_NOLOAD, "asking must not load the driver"
        if driver is None:
            raise OSError(name)
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)

    def program() -> None:
        raise RuntimeError("cudaErrorInitializationError")

    if asked:
        with pytest.raises(NotImplementedError, match=r"RD20\] compare: .*; CUDA was initialized in this"):
            refdist.compare(program, replicas=(1, 2), orders=0)
    else:
        [(_, why)] = refdist.compare(program, replicas=(1, 2), orders=0).failures
        assert why.startswith("RuntimeError: cudaErrorInitializationError (")
    assert refdist.compare(lambda: 2.5, replicas=(1, 2), orders=0).same


def test_one_that_waits_and_one_that_computes_are_told_apart() -> None:
    def waits() -> None:
        strategy = refdist.MirroredStrategy()
        strategy.run(lambda: np.float32(os.read(os.pipe()[0], 1)))  # nobody writes

    report = refdist.compare(waits, replicas=(2, 4), orders=0, limit=1)
    assert "it was stopped after 1 s, of which it computed for 0." in report.failures[0][1]
    assert "all the same" not in str(report)
