"""CuPy itself where there is no GPU: messages, read-only arrays, kernels compiled by NVRTC, and that the stand-in
has no names that CuPy lacks.  `make cupy` installs it and runs this file."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gpu_world import STAND_IN, attributes, changed, names_missing, why_no_gpu

import refdist
from refdist.backends.gpu import kernels, nccl, readonly
from refdist.backends.gpu.backend import translated
from refdist.runtime import process

pytestmark = pytest.mark.slow

cupy: Any = pytest.importorskip("cupy", reason="CuPy is not installed")
no_gpu = pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")


@pytest.fixture(scope="module")
def array() -> Any:
    # Memory of the host stands for a device's: shapes and types can be seen, nothing can be computed.
    memory = np.arange(12, dtype=np.float32)
    owned = cupy.cuda.memory.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, 0)
    return cupy.ndarray((3, 4), np.float32, memptr=cupy.cuda.memory.MemoryPointer(owned, 0))


@no_gpu
def test_what_is_missing_is_named() -> None:
    with pytest.raises(LookupError, match=r"\[RD27\] backend 'gpu': (there is no NVIDIA driver|CUDA does not start)"):
        refdist.set_backend("gpu")
    assert refdist.array_module() is np


def test_read_only_arrays_and_their_views_refuse_to_be_written_to(array: Any) -> None:
    kind = readonly.read_only(cupy)
    frozen = array.view(kind)
    assert not frozen._read_only
    frozen[1:].view()._read_only = True
    assert not frozen._read_only
    frozen._read_only = True
    for view in (frozen, frozen[1], frozen.T, frozen.reshape(-1), frozen[:, 1:]):
        assert type(view) is kind
        with pytest.raises(ValueError, match=r"\[RD20\].*read-only"):
            view[...] = 1
        with pytest.raises(ValueError, match=r"\[RD20\]"):
            view += 1
    assert frozen.data.ptr == array.data.ptr
    assert type(frozen.view(cupy.ndarray)) is cupy.ndarray


def test_an_array_of_its_own_made_like_a_read_only_one_can_be_written_to(array: Any) -> None:
    # CuPy makes results of arithmetic so: an array without a base, of the type of an input, which is its template.
    kind = readonly.read_only(cupy)
    frozen = array.view(kind)
    frozen._read_only = True
    result = kind((3, 4), np.float32, memptr=array.data)
    result.__array_finalize__(frozen)
    assert result.base is None
    assert not result._read_only
    assert not result[1:]._read_only
    with pytest.raises(Exception, match="cudaErrorInsufficientDriver") if why_no_gpu() else nullcontext():
        result[1:] += 1


def test_parts_of_a_read_only_array_are_read_only_and_it_is_handed_out_as_such(array: Any) -> None:
    kind = readonly.read_only(cupy)
    pairs = array.view(np.complex64)
    frozen = pairs.view(kind)
    frozen._read_only = True
    for name in ("real", "imag"):
        part = getattr(frozen, name)
        assert (part.data.ptr, part.strides) == (getattr(pairs, name).data.ptr, getattr(pairs, name).strides)
        for write in (lambda part=part: part.fill(0), lambda part=part: part[1:].fill(0),
                      lambda name=name: setattr(frozen, name, 1)):
            with pytest.raises(ValueError, match=r"\[RD20\].*read-only"):
                write()
        assert not getattr(pairs.view(kind), name)._read_only
    for export in (lambda: frozen.byteswap(inplace=True), frozen.__dlpack__):
        with pytest.raises(ValueError, match=r"\[RD20\]"):
            export()
    if not why_no_gpu():  # it names a stream
        assert frozen.__cuda_array_interface__["data"] == (array.data.ptr, True)
        assert pairs.view(kind).__cuda_array_interface__ == pairs.__cuda_array_interface__


def test_every_method_that_writes_is_refused() -> None:
    kind = readonly.read_only(cupy)
    inplace = {name for name in dir(cupy.ndarray) if re.fullmatch(r"__i(?!nit|ter|nt_|ndex|nv)\w+__", name)}
    written = {name for name in vars(kind) if not name.startswith("__") or name in inplace | {"__setitem__"}}
    assert inplace - {"__idiv__"} <= written
    assert {"fill", "put", "set", "sort", "partition", "scatter_add", "scatter_max", "scatter_min"} <= written
    # What else an array has is known, so that a new method of CuPy's is looked at.
    properties = {name for name in dir(cupy.ndarray) if inspect.isgetsetdescriptor(getattr(cupy.ndarray, name))}
    assert properties - {"real", "imag"} == {
        "T", "__cuda_array_interface__", "_c_contiguous", "_f_contiguous", "_index_32_bits", "_shape", "_strides",
        "base", "cstruct", "data", "device", "dtype", "flags", "flat", "itemsize", "mT", "nbytes", "ndim", "shape",
        "size", "strides"}


@pytest.mark.parametrize("dtype", kernels.TYPES)
def test_nvrtc_compiles_the_kernels(dtype: str) -> None:
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(kernels.source(dtype), "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-arch=compute_70", "-fmad=false", "--std=c++17", "-ftz=true"))
    except Exception as error:
        pytest.fail(f"{error}: {nvrtc.getProgramLog(program)}")
    ptx = nvrtc.getPTX(program)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert not re.findall(r"(?:add|sub|mul|div)(?:\.rn)?\.ftz\.f32", ptx)


def test_cupy_takes_the_kernels_as_they_are_given() -> None:
    module = cupy.RawModule(code=kernels.source("float32"), options=("-fmad=false", "--std=c++17"))
    assert callable(module.get_function)


@no_gpu
def test_cupy_passes_the_kernels_arguments(array: Any) -> None:
    # Arguments are looked at before the device is; a function that was never loaded shows what they are taken for.
    function = cupy.cuda.function.Function.__new__(cupy.cuda.function.Function)
    frozen = array.view(readonly.read_only(cupy))
    table = np.zeros(1, kernels._TABLE)
    for arguments in ((table, np.int32(2), np.int32(0), np.int32(1)),
                      (array, frozen, np.int64(12), np.float64(2), np.int32(0))):
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
            function((1, 1), (1,), arguments, stream=cupy.cuda.Stream.null)
    with pytest.raises(TypeError):
        function((1, 1), (1,), (np.zeros(2),), stream=cupy.cuda.Stream.null)


def test_nothing_of_cupy_is_replaced(array: Any) -> None:
    importlib.import_module("cupy.cuda.nccl")
    before = attributes("cupy")
    assert {"cupy.exp", "cupy.cuda.stream._BaseStream.use", "cupy._core.core.ndarray.__array_finalize__"} <= set(before)
    with process.fresh():
        with pytest.raises(LookupError, match="RD27") if why_no_gpu() else nullcontext():
            refdist.set_backend("gpu")
        frozen = readonly.freeze(array, readonly.read_only(cupy))
        with pytest.raises(ValueError, match="RD20"):
            frozen.fill(0)
        kernels.Programs(cupy)
        if not why_no_gpu():
            refdist.MirroredStrategy().run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
        refdist.set_backend("simulated")
    assert changed(before, "cupy") == []


def test_every_name_of_cupy_that_is_used_exists() -> None:
    assert names_missing(cupy) == []


def test_nccl_has_the_types_and_calls_that_are_used() -> None:
    library = nccl.library()
    if library is None:
        pytest.skip("NCCL is not installed")
    assert all(isinstance(getattr(library, f"NCCL_{name}"), int) for name in nccl.NCCL_TYPES.values())
    assert len(library.get_unique_id()) == 128
    for name in ("send", "recv", "allReduce", "allGather", "check_async_error", "abort", "initAll"):
        assert hasattr(library.NcclCommunicator, name)
    library.groupStart()
    library.groupEnd()


@no_gpu
def test_what_cuda_and_nccl_say_becomes_an_error_with_a_code() -> None:
    if nccl.library() is None:
        pytest.skip("NCCL is not installed")
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting GPUs \[0, 1\]: NCCL says NCCL_ERROR"):
        nccl.alone(cupy, [0, 1])
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting 2 GPUs as rank 0: it failed with cudaError"):
        nccl.among(cupy, [(0, 0)], 2, nccl.library().get_unique_id(), 30)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as raised:
        cupy.zeros(3)
    assert "[RD28] zeros: CUDA says cudaError" in str(translated(cupy, raised.value, "zeros"))


def test_the_stand_in_offers_nothing_that_cupy_lacks() -> None:
    tree = ast.parse((STAND_IN / "cupy" / "__init__.py").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    assert functions
    assert [name for name in functions if not hasattr(cupy, name)] == []
    [kind] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ndarray"]
    methods = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    own = {"_of", "_view_data", "_item", "as_cupy", "__array_finalize__", "__index__", "__len__", "__iter__"}
    assert [name for name in methods - own if not hasattr(cupy.ndarray, name)] == []


def test_arguments_are_named_as_the_stand_in_names_them() -> None:
    wanted = inspect.signature(cupy.ndarray.view).parameters if hasattr(cupy.ndarray.view, "__text_signature__") else {}
    assert set(wanted) <= {"self", "dtype", "array_class"}
    communicator = cupy.cuda.nccl.NcclCommunicator if cupy.cuda.nccl.available else None
    if communicator is not None:
        with pytest.raises(TypeError):
            communicator(1, (0,) * 128, 0)
        with pytest.raises(ValueError, match="128"):
            communicator(1, b"short", 0)
