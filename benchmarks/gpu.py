"""What the GPU backend costs, beside bare CuPy in the same run.

    python benchmarks/gpu.py

Needs a GPU, or several.  Every figure is the median of several rounds in which refdist and its peer take turns;
a round issues many calls and then waits once.  Ratios within one run count.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import refdist
from refdist.array.backend import current_backend
from refdist.backends.gpu.kernels import Job

MIB = 1 << 20
ROUNDS = 7


def seconds(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median time of one call of each kind, in seconds; the kinds take turns."""
    wait = current_backend().synchronize
    times_of: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(ROUNDS + 1):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            wait()
            if round_:  # the first round compiles
                times_of[name].append((time.perf_counter() - start) / repeats)
    return {name: statistics.median(times) for name, times in times_of.items()}


def sums(cupy: Any, size: int) -> None:
    """The sum of k arrays on one GPU, as a share of the bandwidth of a copy."""
    backend: Any = current_backend()
    for k in (2, 4, 8):
        arrays = [cupy.ones(size // 4, np.float32) for _ in range(k)]
        target = cupy.empty_like(arrays[0])
        job = Job(target.data.ptr, target.size, [array.data.ptr for array in arrays])
        times = seconds({"copy": lambda target=target, source=arrays[0]: cupy.copyto(target, source),
                         "sum": lambda job=job: backend.combine("float32", [job]),
                         "CuPy": lambda arrays=arrays: sum(arrays[1:], arrays[0])}, 50)
        copied, summed = 2 * size / times["copy"], (k + 1) * size / times["sum"]
        print(f"sum of {k} x {size // MIB} MiB: {summed / 1e9:.0f} GB/s, {summed / copied:.2f} of a copy "
              f"({copied / 1e9:.0f} GB/s); CuPy's own additions take {times['CuPy'] / times['sum']:.1f} x as long")


def overhead(cupy: Any) -> None:
    """What a small all_reduce costs the host above the bare kernel."""
    backend: Any = current_backend()
    for replicas in (2, 4, 8):
        strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
        parts = strategy.run(lambda: cupy.ones(1024, cupy.float32))
        arrays = list(parts.values)
        target = cupy.empty_like(arrays[0])
        job = Job(target.data.ptr, target.size, [array.data.ptr for array in arrays])

        def reduce(x: Any) -> Any:
            replica = refdist.get_replica_context()
            assert replica is not None
            return replica.all_reduce("SUM", x)

        times = seconds({"run": lambda s=strategy, p=parts: s.run(lambda x: x, args=(p,)),
                         "all_reduce": lambda s=strategy, p=parts: s.run(reduce, args=(p,)),
                         "kernel": lambda job=job: backend.combine("float32", [job])}, 300)
        above = times["all_reduce"] - times["run"] - times["kernel"]
        print(f"all_reduce of 4 KiB on {replicas} replicas: {above * 1e6:.1f} us above run and the bare kernel "
              f"({times['kernel'] * 1e6:.1f} us)")


def step(cupy: Any) -> None:
    """A training step of two layers on one replica, beside the same step in bare CuPy."""
    random = np.random.default_rng(0)
    x = cupy.asarray(random.standard_normal((4096, 1024)).astype(np.float32))
    first = random.standard_normal((1024, 1024)).astype(np.float32) / 32
    second = random.standard_normal((1024, 10)).astype(np.float32) / 32

    def gradients(first: Any, second: Any, x: Any) -> tuple[Any, Any]:
        hidden = cupy.tanh(x @ first)
        error = hidden @ second
        return x.T @ ((error @ second.T) * (1 - hidden * hidden)), hidden.T @ error

    strategy = refdist.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        variables = refdist.Variable(first), refdist.Variable(second)

    def replica_step(x: Any) -> None:
        replica = refdist.get_replica_context()
        assert replica is not None
        reduced = replica.all_reduce("SUM", list(gradients(variables[0].value(), variables[1].value(), x)))
        for variable, gradient in zip(variables, reduced, strict=True):
            variable.assign_sub(gradient * np.float32(1e-6))

    bare = [cupy.asarray(first), cupy.asarray(second)]

    def bare_step() -> None:
        for array, gradient in zip(bare, gradients(*bare, x), strict=True):
            array -= gradient * np.float32(1e-6)

    times = seconds({"refdist": lambda: strategy.run(replica_step, args=(x,)), "CuPy": bare_step}, 30)
    print(f"training step: {times['refdist'] / times['CuPy']:.3f} of the step in bare CuPy "
          f"({times['CuPy'] * 1e3:.2f} ms)")


def tensors() -> None:
    """The sum of PyTorch's tensors on the GPU by each backend: the simulator's goes through the memory of the host."""
    try:
        import torch
    except ImportError:
        print("PyTorch's tensors: not measured, because it is not installed")
        return
    if not torch.cuda.is_available():
        print("PyTorch's tensors: not measured, because this PyTorch sees no GPU")
        return
    parts = [torch.ones(MIB * 4, device="cuda") for _ in range(2)]

    def reduce() -> Any:
        replica = refdist.get_replica_context()
        assert replica is not None
        return replica.all_reduce("SUM", parts[replica.replica_id_in_sync_group])

    times = {}
    for name in ("simulated", "gpu"):
        refdist.set_backend(name)
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        torch.cuda.synchronize()
        times[name] = seconds({name: lambda strategy=strategy: strategy.run(reduce)}, 10)[name]
    print(f"all_reduce of PyTorch's tensors of 16 MiB on 2 replicas: {times['gpu'] * 1e3:.2f} ms with the backend gpu, "
          f"{times['simulated'] / times['gpu']:.0f} x as long through the host")


def main() -> None:
    refdist.set_backend("gpu")
    refdist.config.set_simulated_devices(gpu=8)
    cupy = refdist.array_module()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}")
    sums(cupy, 64 * MIB)
    overhead(cupy)
    step(cupy)
    tensors()


if __name__ == "__main__":
    main()
