"""The GPU backend for tests: on a stand-in for CuPy, and on the machine's GPUs.

On the stand-in no GPU code runs: neither the bits of a GPU's kernels nor its streams, speed or NCCL are seen.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG

import refdist
from refdist.array import convert as arrays
from refdist.backends.gpu import cupy_types, devices
from refdist.runtime import process

ROOT = Path(__file__).parents[1]
STAND_IN = ROOT / "tests" / "stand_in"
SUM = refdist.VariableAggregation.SUM


def replica() -> Any:
    """The context of the replica that asks."""
    return refdist.get_replica_context()


def number() -> int:
    """Its number."""
    return int(replica().replica_id_in_sync_group)


def mirrored(count: int = 4) -> Any:
    """A MirroredStrategy over so many logical GPUs."""
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def device_of(array: Any) -> int:
    """The GPU that a CuPy array is on."""
    return int(array.data.device_id)


@contextmanager
def stand_in(gpus: int = 1, **environment: str) -> Iterator[Any]:
    """The stand-in as `cupy`, with so many GPUs, and the GPU backend in use; gives the module."""
    skip_without_compiler()
    with (process.fresh(STAND_IN_GPUS=str(gpus), **environment), imported_anew("cupy"),
          pytest.MonkeyPatch.context() as patch):
        patch.syspath_prepend(STAND_IN)
        refdist.set_backend("gpu")
        yield sys.modules["cupy"]


@contextmanager
def imported_anew(package: str) -> Iterator[None]:
    """Imports inside the `with` block find another package of this name; outside it is the one of before."""
    kept = {name: sys.modules.pop(name) for name in modules_of(package)}
    try:
        yield
    finally:
        for name in modules_of(package):
            del sys.modules[name]
        sys.modules.update(kept)


def modules_of(package: str) -> list[str]:
    """The modules of a package that were imported."""
    return [name for name in sys.modules if name.partition(".")[0] == package]


def attributes(package: str) -> dict[str, object]:
    """Functions, classes and modules of a package that was imported, and whatever its classes have, by their names.

    Without what its modules keep for themselves, which changes when they are used.
    """
    names: dict[str, object] = {}
    for name in modules_of(package):
        for key, value in vars(sys.modules[name]).items():
            if callable(value) and key[0] != "_":
                names[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__.partition(".")[0] == package:
                names |= {f"{name}.{key}.{own}": member for own, member in vars(value).items()
                          if not isinstance(member, (int, str))}
    return names


def changed(before: dict[str, object], package: str) -> list[str]:
    """What is not the same object as before, or was not there in a module that was."""
    after = attributes(package)
    modules = {name.rpartition(".")[0] for name in before}
    return sorted(name for name in before.keys() | after.keys() if name.rpartition(".")[0] in modules
                  and before.get(name) is not after.get(name))


# What of CuPy each protocol of `cupy_types` describes: modules, classes, and the class whose instances it means.
DESCRIBED = {
    "Cupy": "cupy", "Cuda": "cupy.cuda", "Runtime": "cupy.cuda.runtime", "Driver": "cupy.cuda.driver",
    "MemoryModule": "cupy.cuda.memory", "DeviceArray": "cupy.ndarray", "CompiledModule": "cupy.RawModule",
    "MemoryPointer": "cupy.cuda.memory.MemoryPointer", "Pool": "cupy.cuda.MemoryPool", "Event": "cupy.cuda.Event",
    "Streams": "cupy.cuda.Stream", "DeviceStream": "cupy.cuda.Stream.null", "CudaDevice": "cupy.cuda.Device",
    "Nccl": "cupy.cuda.nccl", "NcclCommunicators": "cupy.cuda.nccl.NcclCommunicator",
    "NcclCommunicator": "cupy.cuda.nccl.NcclCommunicator"}
# Set in `__init__`, so that the class does not have them.
OF_INSTANCES = {"cupy.cuda.memory.MemoryPointer.ptr", "cupy.cuda.memory.MemoryPointer.device_id", "cupy.ndarray.data",
                "cupy.ndarray.base"}


def names_declared() -> set[str]:
    """Everything of CuPy that the GPU backend declares that it uses, as "cupy.cuda.Device.use"."""
    names = set()
    for kind in ast.parse(Path(cupy_types.__file__).read_text()).body:
        if isinstance(kind, ast.ClassDef):
            own = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)} | {
                node.target.id for node in kind.body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
            assert kind.name in DESCRIBED or own <= {"__call__", "__dlpack_device__"}, kind.name
            names |= {f"{DESCRIBED.get(kind.name)}.{name}" for name in own - {"__call__", "__dlpack_device__"}}
    return names


def names_missing(cupy: Any) -> list[str]:
    """Those of them that this CuPy, or the stand-in for it, does not have."""
    importlib.import_module("cupy.cuda.nccl")

    def has(name: str) -> bool:
        value = cupy
        for part in name.split(".")[1:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return sorted(name for name in names_declared() if not has(name))


def why_no_gpu() -> str:
    """Why the GPU backend cannot be used here; empty where it can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        devices.library()
    except refdist.errors.RefdistError as error:
        return str(error)
    return ""


def skip_without_compiler() -> None:
    """The stand-in runs the kernels as g++ compiles them."""
    if shutil.which("g++") is None:
        pytest.skip("g++ compiles the kernels for the CPU")


def skip_without_gpu() -> None:
    """Skips a test where there is no GPU; fails instead where REFDIST_EXPECT_GPU says that there is one."""
    reason = why_no_gpu()
    if reason:
        (pytest.fail if os.environ.get("REFDIST_EXPECT_GPU") else pytest.skip)(reason)


@contextmanager
def real() -> Iterator[Any]:
    """The machine's own GPUs; skips where there are none."""
    skip_without_gpu()
    with process.fresh():
        refdist.set_backend("gpu")
        yield sys.modules["cupy"]


def host(value: Any) -> Any:
    """An array of either world as NumPy's."""
    return arrays.to_numpy(refdist.constant(value))


def same_bits(array: Any, other: Any) -> bool:
    """Equal to the bit, but for which NaN it is."""
    array, other = np.asarray(array), np.asarray(other)
    if array.dtype != other.dtype or array.shape != other.shape:
        return False
    nan = array != array
    equal = bool(np.array_equal(nan, other != other)) if array.dtype.kind in "fc" else True
    keep = ~nan if array.dtype.kind in "fc" else slice(None)
    return equal and np.ascontiguousarray(array[keep]).tobytes() == np.ascontiguousarray(other[keep]).tobytes()


def program(*command: str, gpus: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with this interpreter's packages; with `gpus`, on the stand-in."""
    variables = {**os.environ, **environment}
    if gpus:
        skip_without_compiler()
        path = os.pathsep.join(map(str, (STAND_IN, ROOT / "tests")))
        variables |= {"PYTHONPATH": path, "STAND_IN_GPUS": str(gpus), "REFDIST_BACKEND": "gpu"}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=HANG, check=False)
