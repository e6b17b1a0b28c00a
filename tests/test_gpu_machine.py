"""On a machine with a GPU: what the stand-in cannot show.  Skipped elsewhere, with the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_world import ROOT, host, program, real, same_bits, skip_without_gpu
from test_gpu import collectives
from test_gpu_workers import PROGRAM

import refdist
from refdist import errors
from refdist.array.backend import current_backend

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SUM = refdist.VariableAggregation.SUM


@pytest.fixture
def cupy() -> Iterator[Any]:
    with real() as module:
        refdist.config.set_simulated_devices(gpu=4)
        yield module


def test_the_conformance_suite_on_the_gpu() -> None:
    skip_without_gpu()
    done = program(sys.executable, "-m", "refdist.conformance", "--adapter", "refdist.conformance.adapters.gpu:GPU",
                   "--expected-failures", "tests/expected/gpu.txt")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


# NCCL refuses two ranks on one GPU of one host.  Where NCCL_HOSTID differs it takes them for ranks on two hosts and
# connects them by sockets, so one GPU is enough to run its calls between workers.
TWO_HOSTS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "VERSION", "REFDIST_BACKEND": "gpu"}


def on_two_workers(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program on two workers that share a GPU and are connected by NCCL."""
    skip_without_gpu()
    python = (sys.executable, "-W", "ignore")
    return program(str(Path(sys.executable).parent / "mpiexec"), "-n", "1", "-env", "NCCL_HOSTID", "first", *python,
                   *command, ":", "-n", "1", "-env", "NCCL_HOSTID", "second", *python, *command,
                   **TWO_HOSTS, **environment)


def test_the_conformance_suite_on_workers_that_nccl_connects() -> None:
    done = on_two_workers("-m", "refdist.conformance.adapters.workers", "--expected-failures",
                          "tests/expected/gpu_workers.txt")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "NCCL version" in done.stdout + done.stderr
    assert "2 processes: 2 expected failure, " in done.stdout


@pytest.mark.parametrize("way", ["ordered", "fastest", "off"])
def test_workers_on_a_gpu_have_the_simulated_workers_bits(way: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    simulated = program(sys.executable, "-m", "refdist", "run", "--workers", "2", "--replicas-per-worker", "1",
                        str(tmp_path / "program.py"), str(tmp_path))
    assert simulated.returncode == 0, simulated.stderr[-2000:]
    done = on_two_workers(str(tmp_path / "program.py"), str(tmp_path), REFDIST_NCCL=way)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ("NCCL version" in done.stdout + done.stderr) == (way != "off")
    for task in (0, 1):  # two numbers have one sum, whoever adds them
        assert (tmp_path / f"cupy {task}").read_text() == (tmp_path / f"numpy {task}").read_text()


@pytest.mark.parametrize("seed", range(5))
def test_collectives_have_the_simulator_s_bits(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = ["float32", "float64", "float16", "int32", "int64", "uint8", "int16", "complex64"]
    arrays = [[(np.abs(random.standard_normal((4, 5))) * 100).astype(kind) for kind in kinds] for _ in range(4)]
    expected = collectives(arrays)
    with real():
        refdist.config.set_simulated_devices(gpu=4)
        results = collectives(arrays)
    assert all(same_bits(result, other) for result, other in zip(results, expected, strict=True))


def test_the_example_learns_the_same(cupy: Any, tmp_path: Path) -> None:
    # Matrix products are cuBLAS's here and another library's in the simulator, so the bits may differ.
    done = program(sys.executable, str(ROOT / "examples" / "digits.py"), "--replicas", "4", "--epochs", "3",
                   "--no-progress", "--out", str(tmp_path), REFDIST_BACKEND="gpu", REFDIST_DEVICES="GPU:4")
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_copy_of_a_process_that_has_used_the_gpu_says_why_it_cannot(cupy: Any) -> None:
    def program() -> float:
        return float(cupy.ones(3).sum())

    assert program() == 3
    assert refdist.compare(lambda: 1.0, replicas=(1, 2), orders=0).same
    with pytest.raises(NotImplementedError, match=r"RD20\] compare: .*; CUDA was initialized in this process before"):
        refdist.compare(program, replicas=(1, 2))


def test_a_training_step_does_not_synchronize(cupy: Any) -> None:
    import cupyx

    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
    with strategy.scope():
        weights = refdist.Variable(np.ones((3, 2), np.float32), aggregation=refdist.VariableAggregation.MEAN)
    rows = strategy.run(lambda: refdist.constant(np.ones((4, 3), np.float32)))

    def step(x: Any) -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        [gradient] = context.all_reduce("SUM", [x.T @ (x @ weights.value())])
        weights.assign_sub(gradient * 1e-3)
        return context.all_gather(gradient, 0)

    strategy.run(step, args=(rows,))
    with cupyx.allow_synchronize(False):
        out = strategy.run(step, args=(rows,))
        strategy.reduce("SUM", out, axis=None)


def test_replicas_may_use_streams_between_meetings(cupy: Any) -> None:
    def step(closed: bool) -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        default, stream = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
        with stream:
            contribution = cupy.full(1 << 22, context.replica_id_in_sync_group + 1, cupy.float32)
            if not closed:
                context.all_reduce("SUM", contribution)
        assert cupy.cuda.get_current_stream().ptr == default.ptr == 0
        default.wait_event(stream.record())
        return context.all_reduce("SUM", contribution) + 0

    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])
    with pytest.raises(RuntimeError, match=r"\[RD09\].*in replica 0 of 4.*Close the `with stream:` block"):
        strategy.run(step, args=(False,))
    assert cupy.cuda.get_current_stream().ptr == 0
    with cupy.cuda.Stream(non_blocking=True) as outer:
        result = strategy.run(step, args=(True,))
        assert cupy.cuda.get_current_stream().ptr == outer.ptr
        assert all((host(part) == 10).all() for part in result.values)


def test_a_difference_between_copies_is_found(cupy: Any) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        variable = refdist.Variable(np.zeros(2, np.float32))

    def differ() -> None:
        context = refdist.get_replica_context()
        assert context is not None
        variable.assign(refdist.constant([1.0, float(context.replica_id_in_sync_group)]))

    with pytest.raises(ValueError, match=r"\[RD12\]"):
        strategy.run(differ)
        current_backend().synchronize()


def test_out_of_memory_is_an_error_and_the_program_goes_on(cupy: Any) -> None:
    refdist.config.set_logical_device_configuration("GPU:0", [refdist.config.LogicalDeviceConfiguration(8)] * 2)
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with pytest.raises(errors.ResourceExhaustedError, match=r"\[RD28\]"):
        strategy.run(lambda x: x, args=(np.ones(32 << 20, np.uint8),))
    assert host(strategy.run(lambda x: x + 1, args=(np.ones(4),)).values[1]).tolist() == [2, 2, 2, 2]
    refdist.config.reset_simulated_devices()
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def test_shared_arrays_cannot_be_written_to(cupy: Any) -> None:
    def step() -> None:
        context = refdist.get_replica_context()
        assert context is not None
        total = context.all_reduce("SUM", refdist.constant([1.0]))
        copy = total.copy()
        copy += 1
        result = total + 1
        result += 1
        total += 1

    with pytest.raises(ValueError, match=r"\[RD20\].*read-only"):
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(step)


def test_pytorch_computes_on_the_same_memory(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")

    def step() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        contribution = torch.full((3,), float(context.replica_id_in_sync_group + 1), device="cuda")
        total = context.all_reduce("SUM", contribution)
        return refdist.constant(torch.from_dlpack(total.copy()) * 2)

    result = refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(step)
    assert host(result.values[1]).tolist() == [6, 6, 6]


def test_replicas_have_pytorch_s_streams_and_random_numbers_of_their_own(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    refdist.set_backend("simulated")

    def drawn(seed: int) -> list[float]:
        generator = torch.Generator("cuda").manual_seed(seed)
        return [float(torch.rand((), device="cuda", generator=generator)) for _ in range(2)]

    def step() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        number = context.replica_id_in_sync_group
        torch.cuda.manual_seed(number)
        before = float(torch.rand((), device="cuda"))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            values = torch.ones(1 << 22, device="cuda")
            for _ in range(200):  # still being computed when the other replica reads it
                values = values * 1.5 / 1.5
            values = values + number
            total = context.all_reduce("SUM", values)
            assert torch.cuda.current_stream() == stream
            assert total.device.type == "cuda"
            right = bool((total == 3).all())
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        return right, [before, float(torch.rand((), device="cuda"))] == drawn(number)

    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    assert strategy.experimental_local_results(strategy.run(step)) == ((True, True), (True, True))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
