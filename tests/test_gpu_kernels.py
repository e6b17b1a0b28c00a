"""The CUDA kernels give NumPy's bits: compiled for the CPU and run, and compiled for GPUs and read."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_world import real, same_bits, stand_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from refdist.array.backend import current_backend
from refdist.backends.gpu.kernels import PAIRS, TYPES, WORDS, Job, launches, source
from refdist.backends.simulated.backend import Simulated
from refdist.core.devices import canonical

pytestmark = pytest.mark.slow

DTYPES = [name for name in (*TYPES, *PAIRS) if name != "bfloat16"]
GPU = canonical("GPU:0")
COMMON = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["on the CPU", pytest.param("on a GPU", marks=pytest.mark.gpu)])
def backend(request: Any) -> Iterator[Any]:
    with stand_in() if request.param == "on the CPU" else real():
        yield current_backend()


def elements(dtype: str) -> Any:
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return None
    real = PAIRS.get(dtype, dtype)
    width = np.dtype(real).itemsize * 8
    floats = st.one_of(st.floats(width=width), st.sampled_from([0.0, -0.0, float(np.finfo(real).smallest_subnormal),
                                                                float(np.finfo(real).max)]))
    return floats if kind == "f" else st.builds(complex, floats, floats)


@st.composite
def columns(draw: Any, least: int = 1, most: int = 12) -> list[Any]:
    dtype = draw(st.sampled_from(DTYPES))
    length = draw(st.sampled_from([0, 1, 3, 16, 33, 257]))
    count = draw(st.integers(least, most))
    strategy = arrays_of.arrays(dtype, length, elements=elements(dtype), fill=st.nothing() if length < 40 else None)
    return [draw(strategy) for _ in range(count)]


def on_gpu(backend: Any, arrays: Any) -> list[Any]:
    return [backend.put(array, GPU) for array in arrays]


@COMMON
@given(columns())
def test_a_sum_has_numpy_s_bits(backend: Any, column: list[Any]) -> None:
    with np.errstate(all="ignore"):
        expected = Simulated().sum(column)
    assert same_bits(backend.to_numpy(backend.sum(on_gpu(backend, column))), expected)


@COMMON
@given(columns(2, 2))
def test_a_difference_has_numpy_s_bits(backend: Any, pair: list[Any]) -> None:
    with np.errstate(all="ignore"):
        expected = Simulated().difference(*pair)
    assert same_bits(backend.to_numpy(backend.difference(*on_gpu(backend, pair))), expected)


@COMMON
@given(columns(1, 1), st.integers(1, 1000))
def test_a_mean_has_numpy_s_bits(backend: Any, column: list[Any], count: int) -> None:
    [total] = column
    to = {"i": "float32", "u": "float64"}.get(total.dtype.kind)
    if total.dtype.kind == "c":  # NumPy multiplies by zeros on the way, which makes NaN of infinity
        total = np.where(np.isfinite(total.real) & np.isfinite(total.imag), total, 0).astype(total.dtype)
    with np.errstate(all="ignore"):
        expected = Simulated().divide(total, count, to)
    mean = backend.to_numpy(backend.divide(*on_gpu(backend, [total]), count, to))
    assert np.array_equal(mean, expected, equal_nan=True) if total.dtype.kind == "c" else same_bits(mean, expected)


@COMMON
@given(st.data(), st.sampled_from([name for name in DTYPES if name not in PAIRS]),
       st.sampled_from(["add", "sub", "mul", "div", "min", "max", "update"]))
def test_changed_rows_have_numpy_s_bits(backend: Any, data: Any, dtype: str, operation: str) -> None:
    rows, count, width = 5, data.draw(st.integers(0, 9)), data.draw(st.integers(1, 3))
    drawn = elements(dtype)
    array = data.draw(arrays_of.arrays(dtype, (rows, width), elements=drawn))
    values = data.draw(arrays_of.arrays(dtype, (count, width), elements=drawn))
    if operation == "div" and np.dtype(dtype).kind in "iu":
        # By nothing but 1 to 9, because NumPy's rule for the smallest number by -1 is not C's.
        values = (values % 9 + 1).astype(dtype)
        array = (array // 2).astype(dtype)
    if operation in ("min", "max"):  # NumPy may give either zero
        array, values = array + np.dtype(dtype).type(0), values + np.dtype(dtype).type(0)
    indices = data.draw(arrays_of.arrays(np.int32, count, elements=st.integers(0, rows - 1)))
    with np.errstate(all="ignore"):
        expected = Simulated().scatter(operation, array, indices, values)
    changed = backend.to_numpy(backend.scatter(operation, *on_gpu(backend, [array, indices, values])))
    assert same_bits(changed, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_nan_wins_whichever_side_it_is_on(backend: Any, operation: str, dtype: str) -> None:
    numbers = np.array([1, np.nan, -np.inf, np.inf, -np.nan], dtype)
    array, values = np.repeat(numbers, 5)[:, None], np.tile(numbers, 5)[:, None]
    indices = np.arange(25)
    expected = Simulated().scatter(operation, array, indices, values)
    changed = backend.to_numpy(backend.scatter(operation, *on_gpu(backend, [array, indices, values])))
    assert same_bits(changed, expected)
    assert np.isnan(expected).sum() == 16


def test_complex_rows_are_added(backend: Any) -> None:
    array, values = np.array([[1 + 2j], [3j]], "complex64"), np.array([[1j], [2 + 0j]], "complex64")
    parts = on_gpu(backend, [array, np.array([1, 1]), values])
    assert backend.to_numpy(backend.scatter("add", *parts)).tolist() == [[1 + 2j], [2 + 4j]]
    with pytest.raises(NotImplementedError, match=r"\[RD20\] scatter_mul: the dtype is complex64"):
        backend.scatter("mul", *parts)


def test_bfloat16_is_rounded_after_every_addition(backend: Any) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own").bfloat16
    random = np.random.default_rng(0)
    column = [random.standard_normal(257).astype(bfloat16) * bfloat16(10.0 ** i) for i in range(-3, 4)]
    total = backend.to_numpy(backend.sum(on_gpu(backend, column)))
    assert total.tobytes() == Simulated().sum(column).tobytes()


# --- Launches ----------------------------------------------------------------------------------------------

def carried_out(jobs: list[Job], memory: dict[int, str]) -> None:
    # Arrays are texts here and a sum puts them one after another, so that order and repetition show.
    for launch in launches(jobs):
        step = launch.arrays + 2
        assert len(launch.table) == step * launch.grid[1] <= WORDS
        for start in range(0, len(launch.table), step):
            _, result, *sources = launch.table[start:start + step]
            memory[result] = "".join(memory[source] for source in sources)


@settings(max_examples=60)
@given(st.integers(1, 40), st.sampled_from([1, 2, 8, 477, 478, 479, 1000, 1434]))
def test_every_array_is_added_once_and_in_order(count: int, arrays: int) -> None:
    memory: dict[int, str] = {}
    jobs = []
    for j in range(count):
        pointers = [(j * 2000 + i + 1) * 16 for i in range(arrays)]
        memory |= {pointer: chr(33 + (i * 7 + j) % 900) for i, pointer in enumerate(pointers)}
        jobs.append(Job(10**9 + j * 16, 5, pointers))
    wanted = ["".join(memory[pointer] for pointer in job.arrays) for job in jobs]
    carried_out(jobs, memory)
    assert [memory[job.result] for job in jobs] == wanted


def test_few_launches_for_many_small_arrays() -> None:
    jobs = [Job(16 * i, 100, [10**6 + 16 * i, 10**7 + 16 * i]) for i in range(161)]
    assert len(list(launches(jobs))) == 2


def test_unaligned_arrays_are_not_read_in_lanes() -> None:
    assert [launch.aligned for launch in launches([Job(16, 4, [32, 48])])] == [True]
    assert [launch.aligned for launch in launches([Job(16, 4, [32, 52])])] == [False]


def test_nothing_is_launched_for_empty_arrays() -> None:
    assert list(launches([Job(16, 0, [32, 48])])) == []


# --- Compiled for GPUs -------------------------------------------------------------------------------------

@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc compiles the kernels for GPUs")
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_compiled_for_a_gpu_no_subnormal_number_is_flushed(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(source(dtype))
    # The options CuPy compiles with.
    done = subprocess.run(["nvcc", "-arch=sm_90", "-ptx", "-ftz=true", "-fmad=false", "-std=c++17", "kernel.cu"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ptx = (tmp_path / "kernel.ptx").read_text()
    assert not re.findall(r"(?:add|sub|mul|div|min|max|setp\.\w+)(?:\.rn)?\.ftz\.f32", ptx)
    assert not re.findall(r"\bfma\.", ptx)
    assert "ld.global.v4" in ptx or "ld.global.v2" in ptx, "arrays are read 16 bytes at a time"
    assert ".local" not in ptx, "the table is read where it is, not copied by every thread"


def test_the_source_names_no_file() -> None:
    # CUDA's headers are not in CuPy's wheel.
    assert "#include" not in source("float32")
