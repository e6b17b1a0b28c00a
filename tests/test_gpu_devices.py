"""The GPU backend on a stand-in for CuPy: what waits, what cannot be written to, logical devices.

No GPU code runs here; see `gpu_world`.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from gpu_world import (
    OF_INSTANCES,
    STAND_IN,
    SUM,
    attributes,
    changed,
    host,
    imported_anew,
    mirrored,
    names_declared,
    names_missing,
    number,
    replica,
    skip_without_compiler,
    stand_in,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refdist
from refdist import errors
from refdist.array.backend import current_backend
from refdist.backends.gpu import devices
from refdist.core.devices import canonical
from refdist.runtime import process

pytestmark = pytest.mark.slow

FEW = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


# --- What waits ----------------------------------------------------------------------------------------------

def test_a_training_step_waits_for_nothing(cupy: Any) -> None:
    strategy = mirrored()
    with strategy.scope():
        weights = refdist.Variable(np.ones((3, 2), np.float32), aggregation=refdist.VariableAggregation.MEAN)
        seen = refdist.Variable(np.int64(0), synchronization=refdist.VariableSynchronization.ON_READ, aggregation=SUM)
    rows = strategy.run(lambda: refdist.constant(np.ones((4, 3), np.float32)))
    four = strategy.run(lambda: refdist.constant(np.int64(4)))

    def step(x: Any, count: Any) -> Any:
        error = x @ weights.value()
        [gradient] = replica().all_reduce("SUM", [x.T @ error])
        weights.assign_sub(gradient * 1e-3)
        seen.assign_add(count)
        return replica().all_gather(error.sum(axis=0, keepdims=True), 0)

    strategy.run(step, args=(rows, four))
    cupy.cuda.log.clear()
    out = strategy.run(step, args=(rows, four))
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


def test_replicas_may_use_streams_between_meetings(cupy: Any) -> None:
    current = cupy.cuda.get_current_stream

    def step() -> Any:
        outer, inner = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        with outer:
            contribution = cupy.ones(3, "float32") * (number() + 1)
            with inner:
                assert current() is inner
            assert current() is outer
        current().wait_event(outer.record())
        total = replica().all_reduce("SUM", contribution)
        outer.wait_event(current().record())
        with outer:
            double = total * 2
        current().wait_event(outer.record())
        return replica().all_reduce("SUM", double)

    assert host(mirrored().run(step).values[3]).tolist() == [80, 80, 80]
    assert current().ptr == 0


@pytest.mark.parametrize("how", ["block", "use"])
def test_a_meeting_in_another_stream_is_refused(cupy: Any, how: str) -> None:
    def step(where: int) -> Any:
        replica().all_reduce("SUM", 1.0)
        stream = cupy.cuda.Stream()
        if number() == where:
            if how == "use":
                stream.use()
                return replica().all_reduce("SUM", 1.0)
            with stream:
                return replica().all_reduce("SUM", 1.0)
        return replica().all_reduce("SUM", 1.0)

    strategy = mirrored()
    for where in range(4):
        with pytest.raises(RuntimeError, match=rf"\[RD09\] all_reduce \(.*test_gpu_devices\.py:\d+\): a stream other "
                           rf"than.* in replica {where} of 4 of MirroredStrategy.*Close the `with stream:` block"):
            strategy.run(step, args=(where,))
        assert cupy.cuda.get_current_stream().ptr == 0
    assert host(strategy.run(step, args=(4,)).values[3]) == 4


def test_whoever_runs_the_replicas_may_be_in_a_stream(cupy: Any) -> None:
    strategy = mirrored()
    outer = cupy.cuda.Stream(non_blocking=True)
    current = cupy.cuda.get_current_stream

    def step(x: Any) -> Any:
        assert current().ptr == 0
        with cupy.cuda.Stream(non_blocking=True) as stream:
            pass
        current().wait_event(stream.record())
        assert current().ptr == 0
        return replica().merge_call(lambda s, y: s.run(lambda z: replica().all_reduce("SUM", z), args=(y,)), args=(x,))

    with outer:
        x = cupy.ones(3, "float32")
        result = strategy.run(step, args=(x,))
        assert current() is outer
        assert host(result.values[0] + x).tolist() == [5, 5, 5]
        with pytest.raises(KeyError):
            strategy.run(lambda: {}["nothing"])
        assert current() is outer
    assert current().ptr == 0
    outer.use()
    strategy.run(step, args=(x,))
    assert current() is outer
    cupy.cuda.Stream.null.use()


def test_a_single_replica_gives_the_stream_back_to_the_code_around_it(cupy: Any) -> None:
    strategy, current = mirrored(1), cupy.cuda.get_current_stream

    def step() -> None:
        assert current().ptr == 0
        cupy.cuda.Stream(non_blocking=True).use()

    with cupy.cuda.Stream(non_blocking=True) as outer:
        for _ in range(2):
            strategy.run(step)
            assert current() is outer
    assert current().ptr == 0


def test_nothing_of_cupy_is_replaced(monkeypatch: Any) -> None:
    skip_without_compiler()
    with process.fresh(STAND_IN_GPUS="2"), imported_anew("cupy"):
        monkeypatch.syspath_prepend(STAND_IN)
        cupy = importlib.import_module("cupy")
        importlib.import_module("cupy.cuda.nccl")
        before = attributes("cupy")
        assert {"cupy.cuda.Stream.use", "cupy.ndarray.__setitem__", "cupy.cuda.set_allocator"} <= before.keys()
        refdist.set_backend("gpu")
        assert refdist.array_module() is cupy
        limit = refdist.config.LogicalDeviceConfiguration(memory_limit=64)
        refdist.config.set_logical_device_configuration("GPU:0", [limit, limit])
        refdist.config.set_logical_device_configuration("GPU:1", [limit, limit])
        strategy = mirrored()
        with strategy.scope():
            rows = refdist.Variable(np.zeros((4, 2), np.float32), aggregation=SUM)

        def step(inside: bool) -> Any:
            contribution = refdist.constant(np.float32([1, 2])) + number()
            with cupy.cuda.Stream():
                if inside:
                    replica().all_reduce("SUM", contribution)
            rows.scatter_add(refdist.IndexedSlices(replica().all_gather(contribution[None], 0), np.arange(4)))
            return replica().all_reduce("MEAN", contribution)

        shared = strategy.run(step, args=(False,)).values[0]
        with pytest.raises(RuntimeError, match="RD09"):
            strategy.run(step, args=(True,))
        with pytest.raises(ValueError, match="RD20"):
            shared[0] = 1
        current_backend().synchronize()
        assert changed(before, "cupy") == []
        refdist.config.reset_simulated_devices()
        refdist.set_backend("simulated")
        assert changed(before, "cupy") == []


def test_the_stand_in_has_every_name_that_is_used(cupy: Any) -> None:
    assert {"cupy.cuda.runtime.getDeviceCount", "cupy.argsort", "cupy.cuda.nccl.groupStart"} <= names_declared()
    assert set(names_missing(cupy)) == OF_INSTANCES


def test_a_stream_that_a_replica_leaves_current_is_nobody_else_s(cupy: Any) -> None:
    def step() -> Any:
        assert cupy.cuda.get_current_stream().ptr == 0
        cupy.cuda.Stream(non_blocking=True).use()
        return cupy.ones(2, "float32") * (number() + 1)

    strategy = mirrored()
    result = strategy.run(step)
    if cupy.cuda.runtime.getDeviceCount() == 1:
        assert cupy.cuda.get_current_stream().ptr == 0
        assert host(strategy.reduce("SUM", result, axis=None)).tolist() == [10, 10]


def test_a_difference_between_copies_is_said_when_it_is_known(cupy: Any) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32))

    def differ() -> None:
        variable.assign(refdist.constant([1.0, float(number())]))

    cupy.cuda.held.append("busy")
    strategy.run(differ)
    with pytest.raises(ValueError, match=r"\[RD12\].*replica 0 has \[1\. 0\.\].*replica 1 has \[1\. 1\.\]") as info:
        cupy.cuda.held.clear()
        strategy.run(lambda: replica().all_reduce("SUM", 1.0))
    assert any("found after the call" in note for note in info.value.__notes__)
    strategy.run(lambda: variable.assign(refdist.constant([2.0, float("nan")])))
    current_backend().synchronize()
    assert variable.numpy().tolist()[0] == 2


# --- What cannot be written to -----------------------------------------------------------------------------

@pytest.mark.parametrize("write", [
    "x += 1", "x *= 2", "x[0] = 1", "x.fill(0)", "x[1:] -= 1", "x.reshape(-1)[0] = 1", "x.T[0] = 1", "x.real = 1",
    "x.real[0] = 1", "x.real[1:].fill(0)", "x.imag = 1", "x.imag[...] = 1", "x.imag.T[0] = 1", "x.byteswap(True)",
    "x.byteswap(inplace=True)", "x.__dlpack__()"])
def test_shared_arrays_cannot_be_written_to(cupy: Any, write: str) -> None:
    def step() -> None:
        x = replica().all_reduce("SUM", refdist.constant(np.complex64([1, 2])))
        exec(write, {}, {"x": x})

    with pytest.raises(ValueError, match=r"\[RD20\].*read-only.*x = x\.copy\(\)"):
        mirrored(2).run(step)


def test_shared_arrays_are_read_and_handed_out_as_read_only(cupy: Any) -> None:
    def step() -> None:
        original = refdist.constant(np.complex64([1 + 2j]))
        x = replica().all_reduce("SUM", original)
        assert host(x.real).tolist() == [2]
        assert host(x.imag).tolist() == [4]
        assert host(x.byteswap().byteswap()).tolist() == [2 + 4j]
        assert [array.__cuda_array_interface__["data"] for array in (x, original, x.copy())] == [
            (x.data.ptr, True), (original.data.ptr, False), (x.copy().data.ptr, False)]
        assert x.__dlpack__(copy=True) is not None
        y = x + 1
        y.imag = 0
        y.real[0] = 5
        assert host(y).tolist() == [5]

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
        doubled = variable.read_value() * 2
        variable.assign(doubled)
        doubled += 1  # one's own still

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
        assert [current_backend().memory_space(canonical(f"GPU:{i}")) for i in range(6)] == [0, 1, 0, 1, 0, 1]


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
    assert devices.share(visible, environment) == expected


@FEW
@given(st.integers(1, 16), st.integers(1, 16))
def test_every_gpu_has_one_process_or_every_process_one_gpu(visible: int, processes: int) -> None:
    shares = [devices.share(visible, {"MPI_LOCALRANKID": str(i), "MPI_LOCALNRANKS": str(processes)})
              for i in range(processes)]
    taken = [gpu for part in shares for gpu in part]
    if processes <= visible:
        assert taken == list(range(visible))
    else:
        assert set(taken) == set(range(visible))
        assert all(len(part) == 1 for part in shares)
