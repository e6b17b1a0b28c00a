"""The GPU backend on a stand-in for CuPy: where arrays are, what waits, what is said when something fails.

No GPU code runs here; see `gpu_world`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_world import host, program, same_bits, stand_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refdist
from refdist import errors
from refdist.backend import current_backend
from refdist.backends import gpu_devices, gpu_rings
from refdist.devices import canonical

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SUM = refdist.VariableAggregation.SUM


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n} GPU{'s' * (n > 1)}")
def cupy(request: Any) -> Iterator[Any]:
    with stand_in(request.param) as module:
        refdist.config.set_simulated_devices(gpu=4)
        yield module


@pytest.fixture
def two() -> Iterator[Any]:
    with stand_in(2) as module:
        yield module


def replica() -> Any:
    return refdist.get_replica_context()


def number() -> int:
    return int(replica().replica_id_in_sync_group)


def mirrored(count: int = 4) -> Any:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def device_of(array: Any) -> int:
    return int(array.data.device_id)


# --- Where arrays are ----------------------------------------------------------------------------------------

def test_everything_a_replica_gets_lies_on_its_device(cupy: Any) -> None:
    gpus = cupy.cuda.runtime.getDeviceCount()
    strategy = mirrored()
    with strategy.scope():
        variable = refdist.Variable(np.ones(2, np.float32), aggregation=SUM)
    dataset = strategy.experimental_distribute_dataset([np.arange(8, dtype=np.float32)])

    def step(batch: Any, plain: Any) -> None:
        mine = number() % gpus
        gathered = replica().all_gather(batch, 0)
        reduced, rows = replica().all_reduce("SUM", [refdist.constant(1.0), batch])
        variable.assign_add(batch)
        for array in (batch, plain, gathered, reduced, rows, refdist.constant(1), variable.read_value()):
            assert isinstance(array, cupy.ndarray)
            assert device_of(array) == mine
        assert cupy.cuda.runtime.getDevice() == mine
        assert refdist.array_module() is cupy

    strategy.run(step, args=(next(iter(dataset)), np.zeros(3)))
    assert [device_of(copy.read_value()) for copy in variable.values] == [i % gpus for i in range(4)]
    assert variable.numpy().tolist() == [13, 17]


def test_memory_is_not_used_again_before_another_device_has_copied_it(two: Any) -> None:
    strategy = mirrored(2)

    def step() -> Any:
        mine = two.ones(1000, "float32") * (number() + 1)
        everybody = replica().merge_call(
            lambda s, x: current_backend().put(x.values[0], canonical("GPU:1")), args=(mine,))
        if number() == 0:
            del mine, everybody
            # In the place of what was copied.
            return two.zeros(1000, "float32")
        return everybody

    assert host(strategy.run(step).values[1])[0] == 1


def test_updates_keep_every_copy_on_its_device(cupy: Any) -> None:
    gpus = cupy.cuda.runtime.getDeviceCount()
    strategy = mirrored()
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32))
    strategy.extended.update(variable, lambda copy: copy.assign_add([1.0, 2.0]))
    for assign in (lambda: None, lambda: variable.assign(np.ones(2, np.float32)),
                   lambda: variable.assign(cupy.full(2, 3.0, "float64"))):
        assign()
        assert [device_of(copy.read_value()) for copy in variable.values] == [i % gpus for i in range(4)]
    far = strategy.run(lambda: refdist.constant(np.full(2, 4.0, np.float64))).values[1]
    variable.assign(far)
    variable.assign_sub(far)
    assert variable.numpy().tolist() == [0, 0]
    assert [device_of(copy.read_value()) for copy in variable.values] == [i % gpus for i in range(4)]


def test_text_and_numbers_stay_on_the_host(cupy: Any) -> None:
    def look(text: Any, count: int) -> Any:
        assert type(text) is np.ndarray
        assert type(count) is int
        return text

    assert mirrored(2).run(look, args=(np.array(["a"]), 3)).values[1].tolist() == ["a"]


def test_a_cpu_strategy_computes_with_numpy(cupy: Any) -> None:
    def look() -> Any:
        assert refdist.array_module() is np
        return replica().all_reduce("SUM", np.ones(2))

    assert type(refdist.OneDeviceStrategy("CPU:0").run(look)) is np.ndarray
    assert refdist.array_module() is cupy


def test_a_variable_on_the_host_is_read_on_the_replica_s_device(cupy: Any) -> None:
    strategy = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0")
    with strategy.scope():
        variable = refdist.Variable(np.float32([1, 2]), aggregation=SUM)
    outside = refdist.Variable(3.0)

    def step() -> Any:
        new = variable.assign_add(refdist.constant([1.0, 1.0]))
        assert device_of(new) == device_of(variable.read_value()) == device_of(outside.value())
        return variable * 2

    found = strategy.run(step)
    assert [device_of(part) for part in found.values] == [i % cupy.cuda.runtime.getDeviceCount() for i in range(2)]
    assert type(variable.read_value()) is np.ndarray
    assert variable.numpy().tolist() == [3, 4]


def test_reduce_leaves_its_result_on_the_device_and_reduce_to_obeys(cupy: Any) -> None:
    strategy = mirrored(2)
    parts = strategy.run(lambda: refdist.constant([1.0, 2.0]))
    cupy.cuda.log.clear()
    total = strategy.reduce("SUM", parts, axis=None)
    assert isinstance(total, cupy.ndarray)
    assert "get" not in cupy.cuda.log
    assert type(strategy.extended.reduce_to("SUM", parts, "CPU:0")) is np.ndarray
    assert device_of(strategy.extended.reduce_to("SUM", parts, "GPU:1")) == 1 % cupy.cuda.runtime.getDeviceCount()


def test_arrays_of_another_library_come_in_without_a_copy(cupy: Any) -> None:
    class Tensor:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def as_cupy(self) -> Any:
            return self.array

    def step() -> Any:
        mine = cupy.ones(2, "float32")
        assert refdist.constant(Tensor(mine)) is mine
        return replica().all_reduce("SUM", Tensor(mine))

    assert host(mirrored(1).run(step)).tolist() == [1, 1]


def test_numpy_does_not_get_device_arrays_by_accident(cupy: Any) -> None:
    with mirrored(2).scope():
        variable = refdist.Variable(np.ones(2))
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(variable)
    assert type(variable.numpy()) is np.ndarray
    assert "[1., 1.]" in repr(variable)


def test_functions_of_the_array_module_take_variables(cupy: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        variable = refdist.Variable(np.float32([0, 1]))
    found = strategy.run(lambda: refdist.array_module().exp(variable) + np.exp(variable))
    assert host(found.values[1]) == pytest.approx([2, 2 * np.e])


# --- The same results ----------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(0, 5), st.integers(1, 3))
dtypes = st.sampled_from(["float32", "float64", "float16", "int32", "int64", "uint8", "int16", "complex64"])


def collectives(arrays: list[list[Any]]) -> Any:
    """What four replicas make of several arrays each, all of them in one call and one by one."""
    def step() -> Any:
        # Every second one not contiguous.
        mine = [refdist.constant(array) if i % 2 else refdist.constant(array.T.copy()).T
                for i, array in enumerate(arrays[number()])]
        gathered = [replica().all_gather(array, 1) for array in mine]
        return [*replica().all_reduce("SUM", mine), *replica().all_reduce("MEAN", mine), *gathered]

    return [host(part) for leaf in mirrored().run(step) for part in leaf.values]


@pytest.mark.parametrize(("gpus", "way"), [(1, "ordered"), *((n, way) for n in (2, 3) for way in gpu_rings.WAYS)])
@settings(FEW, max_examples=12)
@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_collectives_have_the_simulator_s_bits(gpus: int, way: str, kinds: Any, seed: int) -> None:
    random = np.random.default_rng(seed)

    def draw(shape: Any, dtype: str) -> Any:
        array = random.standard_normal(shape) * 1e3
        if way == "fastest":  # any order gives the same sum of small whole numbers
            array = np.round(array / 100)
        return (np.abs(array) if dtype[0] == "u" else array).astype(dtype)

    arrays = [[draw(shape, dtype) for shape, dtype in kinds] for _ in range(4)]
    expected = collectives(arrays)
    with stand_in(gpus, REFDIST_NCCL=way):
        refdist.config.set_simulated_devices(gpu=4)
        found = collectives(arrays)
    assert all(same_bits(one, other) for one, other in zip(found, expected, strict=True))
    assert len(found) == len(expected)


def test_gather_of_unequal_lengths_and_of_every_kind_of_array() -> None:
    def step() -> Any:
        i = number()
        random = np.random.default_rng(i)
        nest = {"flags": random.random((i, 2)) > 0.5, "names": np.array([f"r{i}"]),
                "half": np.full(2 * i, i, np.float16),
                "pairs": (random.random((1, 3)) + 1j * i, np.arange(3 - min(i, 3), dtype=np.int8))}
        return replica().all_gather(refdist.nest.map_structure(refdist.constant, nest), 0)

    expected = [host(part) for leaf in refdist.nest.flatten(mirrored().run(step)) for part in leaf.values]
    for gpus in (1, 2, 3):
        with stand_in(gpus):
            refdist.config.set_simulated_devices(gpu=4)
            found = [host(part) for leaf in refdist.nest.flatten(mirrored().run(step)) for part in leaf.values]
        assert len(found) == 20
        assert all(np.array_equal(one, other) and one.dtype == other.dtype
                   for one, other in zip(found, expected, strict=True))


def test_sparse_gradients_and_scattered_rows(cupy: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        variable = refdist.Variable(np.zeros((4, 2), np.float32))

    def step() -> Any:
        slices = refdist.IndexedSlices(np.ones((2, 2), np.float32) * (number() + 1), np.array([number(), 3]), [4, 2])
        return replica().all_reduce("SUM", slices)

    slices = strategy.run(step)
    variable.scatter_add(strategy.experimental_local_results(slices)[0])
    assert variable.numpy().tolist() == [[1, 1], [2, 2], [0, 0], [3, 3]]
    assert host(variable.sparse_read([3, 0])).tolist() == [[3, 3], [1, 1]]


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_conformance_suite(gpus: int) -> None:
    done = program(sys.executable, "-m", "refdist.conformance", "--adapter",
                   "refdist.conformance.adapters.gpu:GPU", gpus=gpus)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "981 passed" in done.stdout


def test_the_example_has_the_simulator_s_bits(tmp_path: Path) -> None:
    command = (sys.executable, "examples/digits.py", "--replicas", "4", "--epochs", "1", "--no-progress", "--out",
               str(tmp_path))
    expected = [line for line in program(*command).stdout.splitlines() if "weights" in line]
    for gpus in (1, 2):
        done = program(*command, gpus=gpus, REFDIST_DEVICES="GPU:4")
        assert [line for line in done.stdout.splitlines() if "weights" in line] == expected, done.stderr[-2000:]
    assert len(expected) == 2


# --- What waits ----------------------------------------------------------------------------------------------

def test_a_training_step_waits_for_nothing(cupy: Any) -> None:
    strategy = mirrored()
    with strategy.scope():
        weights = refdist.Variable(np.ones((3, 2), np.float32), aggregation=refdist.VariableAggregation.MEAN)
        seen = refdist.Variable(np.int64(0), synchronization=refdist.VariableSynchronization.ON_READ, aggregation=SUM)
    rows = strategy.run(lambda: refdist.constant(np.ones((4, 3), np.float32)))
    one = strategy.run(lambda: refdist.constant(np.int64(4)))

    def step(x: Any, count: Any) -> Any:
        error = x @ weights.value()
        [gradient] = replica().all_reduce("SUM", [x.T @ error])
        weights.assign_sub(gradient * 1e-3)
        seen.assign_add(count)
        return replica().all_gather(error.sum(axis=0, keepdims=True), 0)

    strategy.run(step, args=(rows, one))
    cupy.cuda.log.clear()
    out = strategy.run(step, args=(rows, one))
    loss = strategy.reduce("MEAN", out, axis=None)
    assert cupy.cuda.log == []
    assert loss.shape == (4, 2)
    current_backend().synchronize()
    assert set(cupy.cuda.log) == {"synchronize"}


def test_one_kernel_sums_many_small_arrays(cupy: Any) -> None:
    from cupy import kernels

    arrays = {f"layer {i}": np.full(i, 1, np.float32) for i in range(40)}
    kernels.launched.clear()
    mirrored(2).run(lambda: replica().all_reduce("SUM", arrays))
    assert kernels.launched == ["combine"] * min(2, cupy.cuda.runtime.getDeviceCount())


def test_replicas_keep_their_own_streams(cupy: Any) -> None:
    strategy = mirrored()
    streams = {}

    def step() -> Any:
        streams[number()] = cupy.cuda.Stream(non_blocking=True)
        with streams[number()]:
            mine = cupy.ones(3, "float32") * (number() + 1)
            total = replica().all_reduce("SUM", mine)
            assert cupy.cuda.get_current_stream() is streams[number()]
            double = total * 2
            again = replica().all_reduce("SUM", double)
        cupy.cuda.get_current_stream().wait_event(streams[number()].record())
        return again + 0

    found = strategy.run(step)
    assert host(found.values[3]).tolist() == [80, 80, 80]
    assert cupy.cuda.get_current_stream().ptr == 0


def test_blocks_of_streams_are_each_replica_s_own(cupy: Any) -> None:
    def step() -> Any:
        outer, inner = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        current = cupy.cuda.get_current_stream
        with outer:
            replica().all_reduce("SUM", 1.0)
            with inner:
                replica().all_reduce("SUM", 1.0)
                assert current() is inner
            assert current() is outer
            replica().all_reduce("SUM", 1.0)
            assert current() is outer
        assert current().ptr == 0
        return number()

    def fail() -> None:
        with cupy.cuda.Stream():
            replica().all_reduce("SUM", 1.0)
            if number() == 2:
                raise KeyError("out")
            replica().all_reduce("SUM", 1.0)

    assert mirrored().run(step).values == (0, 1, 2, 3)
    assert cupy.cuda.get_current_stream().ptr == 0
    with pytest.raises(KeyError, match="out"):
        mirrored().run(fail)
    assert cupy.cuda.get_current_stream().ptr == 0


def test_a_stream_that_a_replica_leaves_current_is_nobody_else_s(cupy: Any) -> None:
    def step() -> Any:
        assert cupy.cuda.get_current_stream().ptr == 0
        cupy.cuda.Stream(non_blocking=True).use()
        return cupy.ones(2, "float32") * (number() + 1)

    strategy = mirrored()
    found = strategy.run(step)
    if cupy.cuda.runtime.getDeviceCount() == 1:
        assert cupy.cuda.get_current_stream().ptr == 0
        assert host(strategy.reduce("SUM", found, axis=None)).tolist() == [10, 10]


def test_a_difference_between_copies_is_said_when_it_is_known(cupy: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32))

    def differ() -> None:
        variable.assign(refdist.constant([1.0, float(number())]))

    cupy.cuda.held.append("busy")
    strategy.run(differ)
    with pytest.raises(ValueError, match=r"\[RD12\].*replica 0 gives \[1\. 0\.\].*replica 1 gives \[1\. 1\.\]") as info:
        cupy.cuda.held.clear()
        strategy.run(lambda: replica().all_reduce("SUM", 1.0))
    assert any("found after the call" in note for note in info.value.__notes__)
    strategy.run(lambda: variable.assign(refdist.constant([2.0, float("nan")])))
    current_backend().synchronize()
    assert variable.numpy().tolist()[0] == 2


# --- What cannot be written to -----------------------------------------------------------------------------

@pytest.mark.parametrize("write", ["x += 1", "x *= 2", "x[0] = 1", "x.fill(0)", "x[1:] -= 1", "x.reshape(-1)[0] = 1"])
def test_shared_arrays_cannot_be_written_to(cupy: Any, write: str) -> None:
    def step() -> None:
        x = replica().all_reduce("SUM", refdist.constant([1.0, 2.0]))
        exec(write, {}, {"x": x})

    with pytest.raises(ValueError, match=r"\[RD20\].*read-only.*x = x\.copy\(\)"):
        mirrored(2).run(step)


def test_copies_and_results_of_arithmetic_can_be_written_to(cupy: Any) -> None:
    def step() -> Any:
        x = replica().all_reduce("SUM", refdist.constant([1.0, 2.0]))
        y, z = x.copy(), x + 1
        y += 1
        z[0] = 0
        z[1:] += cupy.exp(x)[:1] * 0
        return y + z

    assert host(mirrored(2).run(step).values[0]).tolist() == [3, 10]


def test_a_result_of_arithmetic_becomes_read_only_where_it_is_stored(cupy: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        variable = refdist.Variable(np.float32([1, 2]), aggregation=SUM)

    def step() -> None:
        mine = variable.read_value() * 2
        variable.assign(mine)
        mine += 1  # one's own still

    strategy.run(step)
    assert variable.numpy().tolist() == [4, 8]
    with pytest.raises(ValueError, match=r"\[RD20\]"):
        variable.read_value()[0] = 1
    with refdist.device("GPU:0"):
        outside = refdist.Variable(variable.read_value() + 1)
    outside.assign(outside.value() * 2)
    with pytest.raises(ValueError, match=r"\[RD20\] fill of an array that replicas share"):
        outside.read_value().fill(0)


# --- Logical devices -----------------------------------------------------------------------------------------

def test_logical_devices_have_a_memory_limit_of_their_own() -> None:
    with stand_in(1):
        limits = [refdist.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in (1, 2)]
        refdist.config.set_logical_device_configuration("GPU:0", limits)
        strategy = refdist.MirroredStrategy()
        assert strategy.num_replicas_in_sync == 2
        with strategy.scope():
            variable = refdist.Variable(np.zeros(3, np.float32), aggregation=SUM)

        def step(size: int) -> Any:
            made = refdist.constant(np.ones(size, np.uint8))
            variable.assign_add(refdist.constant(np.ones(3, np.float32)))
            return made.shape[0]

        def greedy() -> Any:
            return step(3 << 19 if number() else 1)

        strategy.run(greedy)
        with pytest.raises(errors.ResourceExhaustedError, match=r"\[RD28\].*on GPU 0 in replica 0 of 2.*memory_limit"):
            strategy.run(step, args=(3 << 19,))
        assert isinstance(errors.ResourceExhaustedError("", "RD28"), MemoryError)
        strategy.run(step, args=(1,))
        assert variable.numpy().tolist() == [4, 4, 4]


def test_a_gpu_too_many_is_named() -> None:
    with stand_in(2):
        with pytest.raises(LookupError, match=r"\[RD24\] device 'GPU:2'"):
            refdist.MirroredStrategy(["GPU:0", "GPU:2"])
        assert refdist.MirroredStrategy().num_replicas_in_sync == 2
        refdist.config.set_simulated_devices(gpu=6)
        assert [current_backend().place(canonical(f"GPU:{i}")) for i in range(6)] == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(("visible", "environment", "expected"), [
    (4, {}, [0, 1, 2, 3]),
    (4, {"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"}, [0]),
    (4, {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, [2, 3]),
    (3, {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, [1, 2]),
    (2, {"MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"}, [1]),
    (1, {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, [0]),
    (2, {"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURM_GPUS_PER_TASK": "2"}, [0, 1]),
    (8, {"SLURM_LOCALID": "3", "SLURM_NTASKS_PER_NODE": "4"}, [6, 7]),
])
def test_processes_of_one_host_share_its_gpus(visible: int, environment: Any, expected: Any) -> None:
    assert gpu_devices.share(visible, environment) == expected


@FEW
@given(st.integers(1, 16), st.integers(1, 16))
def test_every_gpu_has_one_process_or_every_process_one_gpu(visible: int, processes: int) -> None:
    shares = [gpu_devices.share(visible, {"MPI_LOCALRANKID": str(i), "MPI_LOCALNRANKS": str(processes)})
              for i in range(processes)]
    taken = [gpu for part in shares for gpu in part]
    if processes <= visible:
        assert taken == list(range(visible))
    else:
        assert set(taken) == set(range(visible))
        assert all(len(part) == 1 for part in shares)


# --- What fails ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("environment", "message"), [
    ({"STAND_IN_DRIVER": "0"}, r"there is no NVIDIA driver\. Install one"),
    ({"STAND_IN_GPUS": "0"}, r"there is no GPU\. Look at CUDA_VISIBLE_DEVICES"),
    ({"STAND_IN_BROKEN": "cudaErrorUnknown: no luck"}, r"CUDA does not start: cudaErrorUnknown"),
])
def test_what_is_missing_is_named(two: Any, monkeypatch: Any, environment: Any, message: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LookupError, match=rf"\[RD27\] backend 'gpu': {message}"):
        refdist.set_backend("gpu")
    monkeypatch.undo()
    assert refdist.array_module() is two, "the backend in use stays in use"


def test_without_cupy_the_error_says_how_to_install_it(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for driver, package in ((None, "cupy-cuda12x.*cupy-cuda13x"), (570, "cupy-cuda12x"), (580, "cupy-cuda13x")):
        monkeypatch.setattr(gpu_devices, "_driver", lambda driver=driver: driver)
        with pytest.raises(LookupError, match=rf"\[RD27\].*CuPy cannot be imported.*pip install '{package}"):
            refdist.set_backend("gpu")
    assert refdist.array_module() is np


def test_the_driver_is_read_from_where_linux_says_it(monkeypatch: Any, tmp_path: Any) -> None:
    path = tmp_path / "version"
    monkeypatch.setattr(gpu_devices, "_DRIVER", path)
    assert gpu_devices._driver() is None
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed Jan 22\nGCC version: 13")
    assert gpu_devices._driver() == 570
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build")
    assert gpu_devices._driver() == 580


def test_importing_refdist_does_not_import_cupy() -> None:
    done = program(sys.executable, "-c", "import sys, refdist, refdist.backends.gpu; assert 'cupy' not in sys.modules",
                   PYTHONPATH="tests/stand_in:.")
    assert done.returncode == 0, done.stderr


def test_the_environment_chooses_the_backend() -> None:
    look = "import refdist; print(refdist.array_module().__name__, refdist.MirroredStrategy().num_replicas_in_sync)"
    assert program(sys.executable, "-c", look, gpus=3).stdout.split() == ["cupy", "3"]
    done = program(sys.executable, "-c", look, REFDIST_BACKEND="guess")
    assert "[RD27] backend 'guess'" in done.stderr


@pytest.mark.parametrize("bad", [None, 3, b"gpu"])
def test_set_backend_takes_a_name(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"\[RD25\] set_backend"):
        refdist.set_backend(bad)


def test_set_backend_belongs_outside_every_scope() -> None:
    with mirrored(2).scope(), pytest.raises(RuntimeError, match=r"\[RD09\] set_backend"):
        refdist.set_backend("simulated")


def test_an_error_of_nccl_is_said_and_the_program_goes_on(two: Any) -> None:
    from cupy.cuda import nccl

    strategy = mirrored(2)

    def step() -> Any:
        return replica().all_reduce("SUM", refdist.constant([1.0]))

    nccl.failures.append("NCCL_ERROR_SYSTEM_ERROR: cable")
    with pytest.raises(RuntimeError, match=r"\[RD28\] all_reduce in order over 2 GPUs: NCCL says NCCL_ERROR_SYSTEM"):
        strategy.run(step)
    assert nccl._group["depth"] == 0
    assert host(strategy.run(step).values[1]).tolist() == [2]


def test_without_nccl_gpus_copy_to_each_other() -> None:
    with stand_in(2, STAND_IN_NCCL="missing"):
        found = mirrored(2).run(lambda: replica().all_reduce("SUM", refdist.constant([number() + 1.0])))
        assert [device_of(part) for part in found.values] == [0, 1]
        assert host(found.values[1]).tolist() == [3]


def test_an_unknown_way_of_connecting_is_refused() -> None:
    with stand_in(2), pytest.raises(ValueError, match=r"\[RD25\] environment variable REFDIST_NCCL='quick'"):  # noqa: SIM117
        with stand_in(2, REFDIST_NCCL="quick"):
            pass


def test_connecting_processes_says_what_nccl_says_or_that_somebody_is_missing(two: Any, monkeypatch: Any) -> None:
    from cupy.cuda import nccl

    class Comm:
        def __init__(self, size: int, unique_id: bytes, rank: int) -> None:
            if rank == 3:
                raise nccl.NcclError("NCCL_ERROR_INVALID_USAGE: two ranks on one GPU")
            if rank == 4:
                arrived.wait(30)

    arrived = threading.Event()
    monkeypatch.setattr(nccl, "NcclCommunicator", Comm)
    assert gpu_rings.among(two, [(0, 0), (1, 1)], 4, bytes(128), 30).here == [(0, 0), (1, 1)]
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting 4 GPUs as rank 2: it failed with NCCL_ERROR_INVALID"):
        gpu_rings.among(two, [(2, 0), (3, 1)], 4, bytes(128), 30)
    assert nccl._group["depth"] == 0
    with pytest.raises(RuntimeError, match=r"\[RD28\] connecting 5 GPUs as rank 4: not all came within 0 s"):
        gpu_rings.among(two, [(4, 0)], 5, bytes(128), 0.0)
    arrived.set()


def test_a_wait_with_other_processes_has_a_limit(two: Any) -> None:
    class Comm:
        aborted = False

        def check_async_error(self) -> None:
            raise KeyError(7)  # what CuPy makes of "in progress"

        def abort(self) -> None:
            self.aborted = True

    comm = Comm()
    ring = gpu_rings.Ring(two, [(0, 0)], 2, [comm], limit=0.0)
    two.cuda.held.append("somebody who does not come")
    with pytest.raises(RuntimeError, match=r"\[RD28\] waiting for a collective on GPU 0: it did not end within 0 s"):
        gpu_rings.wait(two, [ring], 0)
    two.cuda.held.clear()
    assert comm.aborted
    assert ring.broken
    with pytest.raises(RuntimeError, match="given up"):
        ring.group(lambda *_: None, "all_reduce")


# --- Workers -------------------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
with strategy.scope():
    v = refdist.Variable(np.float32([1, 2]), aggregation=refdist.VariableAggregation.SUM)
def step():
    context = refdist.get_replica_context()
    i = context.replica_id_in_sync_group
    big = refdist.constant(np.random.default_rng(i).standard_normal(70_001).astype(np.float32))
    total, small = context.all_reduce("SUM", [big, refdist.constant(np.int16([i]))])
    rows = context.all_gather(refdist.constant(np.full((i + 1, 2), i, np.float64)), 0)
    v.assign_add(total[:2])
    mean = context.all_reduce("MEAN", refdist.constant(np.float16([i + 0.5])))
    return total, small, rows, mean
out = strategy.run(step)
import pathlib, sys, zlib
from refdist.arrays import to_numpy
parts = [to_numpy(strategy.experimental_local_results(leaf)[0]) for leaf in out]
# To a file of its own, because what workers print mixes.
pathlib.Path(sys.argv[1], f"{refdist.array_module().__name__} {strategy.cluster_resolver.task_id}").write_text(str([
    [part.dtype.name for part in parts], [zlib.crc32(part.tobytes()) for part in parts], v.numpy().tolist(),
    parts[2].shape]))
"""


@pytest.mark.parametrize(("gpus", "environment"), [
    (1, {}), (1, {"REFDIST_NCCL": "off"}), (1, {"STAND_IN_BUS": "7"}), (2, {}), (4, {}), (4, {"REFDIST_NCCL": "off"})],
    ids=lambda value: str(value))
def test_workers_under_mpi_have_the_simulated_workers_bits(gpus: int, environment: Any, tmp_path: Any) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    # Four GPUs on one host are two for each of two processes.
    each = 2 if gpus == 4 else 1
    simulated = program(sys.executable, "-m", "refdist", "run", "--workers", "2", "--replicas-per-worker", str(each),
                        str(tmp_path / "program.py"), str(tmp_path))
    assert simulated.returncode == 0, simulated.stderr[-2000:]
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    done = program(mpiexec, "-n", "2", sys.executable, str(tmp_path / "program.py"), str(tmp_path), gpus=gpus,
                   **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for task in (0, 1):
        assert (tmp_path / f"cupy {task}").read_text() == (tmp_path / f"numpy {task}").read_text()


@pytest.mark.parametrize("environment", [{}, {"REFDIST_NCCL": "off"}], ids=str)
def test_the_conformance_suite_on_workers_under_mpi(environment: Any) -> None:
    done = program(str(Path(sys.executable).parent / "mpiexec"), "-n", "2", sys.executable, "-m",
                   "refdist.conformance.adapters.workers", "--expected-failures", "conformance/expected/workers.txt",
                   gpus=1, **environment)
    assert "2 processes: 258 passed" in done.stdout, done.stderr[-3000:]


# Tests of the simulator that look at something only NumPy has, or count devices that this machine states otherwise.
NUMPY_S_OWN = [
    "tests/behaviours/test_contexts_and_run.py::test_behaviour[A67]",
    "tests/behaviours/test_contexts_and_run.py::test_behaviour[A75]",
    "tests/test_docs.py::test_the_programs_of_a_page_run_one_after_another[gpus.md]",
    "tests/test_docs.py::test_the_examples_of_docstrings_run[refdist.strategies.multi_worker]",
]


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(("devices", "files"), [
    ("GPU:16,CPU:16", "tests/behaviours tests/test_variable_table.py tests/test_update.py tests/test_contexts.py"),
    ("GPU:16", "tests/test_docs.py")])
def test_the_simulator_s_tests_and_the_documented_programs(gpus: int, devices: str, files: str) -> None:
    done = program(sys.executable, "-m", "pytest", "-q", *files.split(),
                   *(f"--deselect={name}" for name in NUMPY_S_OWN), gpus=gpus, REFDIST_DEVICES=devices)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_importing_refdist_chooses_no_backend() -> None:
    done = program(sys.executable, "-c", "import refdist, sys; assert 'cupy' not in sys.modules; "
                   "assert refdist.has_strategy() is False; assert refdist.OneDeviceStrategy('GPU:0') is not None",
                   gpus=1)
    assert done.returncode == 0, done.stderr


def test_the_backend_may_be_chosen_by_the_first_run() -> None:
    look = ("import refdist; s = refdist.OneDeviceStrategy('CPU:0'); s.run(lambda: 1); "
            "m = refdist.MirroredStrategy(['GPU:0', 'GPU:1']); "
            "print(m.run(lambda: refdist.get_replica_context().all_reduce('SUM', 1.0)).values[1])")
    done = program(sys.executable, "-c", look, gpus=2)
    assert done.stdout.strip() == "2.0", done.stderr
