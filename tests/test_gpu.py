"""The GPU backend on a stand-in for CuPy: where arrays are, and that results are the simulator's.

No GPU code runs here; see `gpu_world`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worlds
from gpu_world import SUM, device_of, host, mirrored, number, program, replica, same_bits, stand_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refdist
from refdist.array.backend import current_backend
from refdist.backends.gpu import nccl
from refdist.core.devices import canonical

pytestmark = pytest.mark.slow

FEW = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


# --- Where arrays are ----------------------------------------------------------------------------------------

def test_everything_a_replica_gets_lies_on_its_device(cupy: Any) -> None:
    gpus = cupy.cuda.runtime.getDeviceCount()
    strategy = mirrored()
    with strategy.scope():
        variable = refdist.Variable(np.ones(2, np.float32), aggregation=SUM)
    dataset = strategy.experimental_distribute_dataset([np.arange(8, dtype=np.float32)])

    def step(batch: Any, plain: Any) -> None:
        device = number() % gpus
        gathered = replica().all_gather(batch, 0)
        reduced, rows = replica().all_reduce("SUM", [refdist.constant(1.0), batch])
        variable.assign_add(batch)
        for array in (batch, plain, gathered, reduced, rows, refdist.constant(1), variable.read_value()):
            assert isinstance(array, cupy.ndarray)
            assert device_of(array) == device
        assert cupy.cuda.runtime.getDevice() == device
        assert refdist.array_module() is cupy

    strategy.run(step, args=(next(iter(dataset)), np.zeros(3)))
    assert [device_of(copy.read_value()) for copy in variable.values] == [i % gpus for i in range(4)]
    assert variable.numpy().tolist() == [13, 17]


def test_memory_is_not_used_again_before_another_device_has_copied_it(two: Any) -> None:
    strategy = mirrored(2)

    def step() -> Any:
        contribution = two.ones(1000, "float32") * (number() + 1)
        everybody = replica().merge_call(
            lambda s, x: current_backend().put(x.values[0], canonical("GPU:1")), args=(contribution,))
        if number() == 0:
            del contribution, everybody
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


def test_simulated_workers_begin_and_end_on_the_current_device(two: Any) -> None:
    began = []

    def program() -> None:
        began.append(two.cuda.runtime.getDevice())
        strategy = refdist.MultiWorkerMirroredStrategy()
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", two.zeros(2)))

    refdist.simulate_workers(program, 2, 2)
    assert began == [0, 0] and two.cuda.runtime.getDevice() == 0


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

    result = strategy.run(step)
    assert [device_of(part) for part in result.values] == [i % cupy.cuda.runtime.getDeviceCount() for i in range(2)]
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
        array = cupy.ones(2, "float32")
        assert refdist.constant(Tensor(array)) is array
        return replica().all_reduce("SUM", Tensor(array))

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
    result = strategy.run(lambda: refdist.array_module().exp(variable) + np.exp(variable))
    assert host(result.values[1]) == pytest.approx([2, 2 * np.e])


# --- The same results ----------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(0, 5), st.integers(1, 3))
dtypes = st.sampled_from(["float32", "float64", "float16", "int32", "int64", "uint8", "int16", "complex64"])


def collectives(arrays: list[list[Any]]) -> Any:
    """What four replicas make of several arrays each, all of them in one call and one by one."""
    def step() -> Any:
        # Every second one not contiguous.
        own = [refdist.constant(array) if i % 2 else refdist.constant(array.T.copy()).T
               for i, array in enumerate(arrays[number()])]
        gathered = [replica().all_gather(array, 1) for array in own]
        return [*replica().all_reduce("SUM", own), *replica().all_reduce("MEAN", own), *gathered]

    return [host(part) for leaf in mirrored().run(step) for part in leaf.values]


@pytest.mark.parametrize(("gpus", "way"), [(1, "ordered"), *((n, way) for n in (2, 3) for way in nccl.WAYS)])
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
        results = collectives(arrays)
    assert all(same_bits(result, other) for result, other in zip(results, expected, strict=True))
    assert len(results) == len(expected)


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
            gathered = [host(part) for leaf in refdist.nest.flatten(mirrored().run(step)) for part in leaf.values]
        assert len(gathered) == 20
        assert all(np.array_equal(array, other) and array.dtype == other.dtype
                   for array, other in zip(gathered, expected, strict=True))


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


@pytest.mark.worlds
@pytest.mark.parametrize(("gpus", "file"), [(1, "gpu.txt"), (2, "gpus.txt")])
def test_the_conformance_suite(gpus: int, file: str) -> None:
    done = program(sys.executable, "-m", "refdist.conformance", "--adapter", "refdist.conformance.adapters.gpu:GPU",
                   "--expected-failures", f"tests/expected/{file}", *worlds.OPTIONS, gpus=gpus)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    # TPUs are simulated ones, whose cores are not GPUs.
    count = worlds.counts(done.stdout)
    assert count["passed"] > 15 * max(count["skipped"], count["xfailed"]) and count["passed"] > 500, done.stdout
    assert f"\n{count['skipped']} skipped, which need TPUs (" in done.stdout


def test_the_example_has_the_simulator_s_bits(tmp_path: Path) -> None:
    command = (sys.executable, "examples/digits.py", "--replicas", "4", "--epochs", "1", "--no-progress", "--out",
               str(tmp_path))
    expected = [line for line in program(*command).stdout.splitlines() if "weights" in line]
    for gpus in (1, 2):
        done = program(*command, gpus=gpus, REFDIST_DEVICES="GPU:4")
        assert [line for line in done.stdout.splitlines() if "weights" in line] == expected, done.stderr[-2000:]
    assert len(expected) == 2
