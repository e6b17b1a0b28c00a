"""What workers cost under MPI, beside raw mpi4py in the same run.

    python benchmarks/mpi.py [--workers 2 | --hosts 2,2] [--torch]

The gradients of ResNet-50, 161 float32 arrays with 25.6 million numbers, are summed over the workers; and one
scalar; and one array of some other sizes, which is gathered and broadcast, too; and as many numbers of 16 bits.  The
ways take turns.  Of each the quickest call and the median of the rounds' medians are printed, because other programs
may keep the cores busy; how many there are is printed, too.  --torch adds torch.distributed with gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {1 << 16: 200, 1 << 20: 50, 1 << 24: 5}  # bytes of one array, and how often it is summed in a round
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def resnet50() -> list[tuple[int, ...]]:
    """The shapes of the variables that are trained; He et al. 2015, table 1, the 50-layer column."""
    shapes: list[tuple[int, ...]] = [(7, 7, 3, 64), (64,), (64,)]
    before = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for kernel in ((1, 1, before, width), (3, 3, width, width), (1, 1, width, 4 * width)):
                shapes += [kernel, kernel[-1:], kernel[-1:]]
            if block == 0:
                shapes += [(1, 1, before, 4 * width), (4 * width,), (4 * width,)]
            before = 4 * width
    return [*shapes, (2048, 1000), (1000,)]


def worker(rounds: int, with_torch: bool) -> None:
    import numpy as np

    import refdist

    strategy = refdist.MultiWorkerMirroredStrategy()
    fast = refdist.MultiWorkerMirroredStrategy(
        communication_options=refdist.experimental.CommunicationOptions(implementation="RING"))
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    rank = comm.Get_rank()
    gradients = [np.full(shape, rank + 1, np.float32) for shape in resnet50()]
    total = sum(gradient.size for gradient in gradients)
    packed, out = np.ones(total, np.float32), np.empty(total, np.float32)
    number, number_out = np.ones(1, np.float32), np.empty(1, np.float32)
    kept: list[Any] = []

    def through(of: Any) -> Callable[[], Any]:
        def step() -> Any:
            return refdist.get_replica_context().all_reduce("SUM", gradients)

        def call() -> None:
            kept[:] = [of.run(step)]
        return call

    def per_array() -> None:
        for gradient in gradients:
            comm.Allreduce(gradient, out[:gradient.size], MPI.SUM)

    def scalar() -> Any:
        return refdist.get_replica_context().all_reduce("SUM", number)

    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "raw Allreduce, one packed buffer": (lambda: comm.Allreduce(packed, out, MPI.SUM), 1),
        "raw Allreduce per array": (per_array, 1),
        "refdist, order of the sum defined": (through(strategy), 1),
        "refdist, RING (any order)": (through(fast), 1),
        "scalar: raw Allreduce": (lambda: comm.Allreduce(number, number_out, MPI.SUM), 2000),
        "scalar: refdist run + all_reduce": (lambda: strategy.run(scalar), 2000),
        "scalar: refdist run without a collective": (lambda: strategy.run(lambda: number), 2000),
    }
    for size, inner in SIZES.items():
        ways |= of_size(strategy, comm, size, inner)
    if with_torch:
        ways |= torch_ways(gradients, rank, comm)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, (call, inner) in ways.items():
            comm.Barrier()
            took = []
            for _ in range(inner):
                start = time.perf_counter()
                call()
                took.append(time.perf_counter() - start)
            if turn:
                times[name].append((min(took), statistics.median(took)))
    # Of the worker that takes longest.
    of_workers = comm.gather({name: (min(best for best, _ in of_way),
                                     statistics.median(median for _, median in of_way))
                              for name, of_way in times.items()})
    first = kept[0][0]
    assert float(first.flat[0]) == sum(range(1, comm.Get_size() + 1))
    if rank == 0:
        print("RESULT" + json.dumps({
            name: [max(seconds) for seconds in zip(*(of_worker[name] for of_worker in of_workers), strict=True)]
            for name in ways}))


def of_size(strategy: Any, comm: Any, size: int, inner: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """One array of so many bytes, by raw MPI and by refdist; and as many numbers of 16 bits, beside float32."""
    import ml_dtypes
    import numpy as np
    from mpi4py import MPI

    import refdist

    array = np.random.default_rng(comm.Get_rank()).standard_normal(size // 4).astype(np.float32)
    out, received = np.empty_like(array), array.copy()
    everything = np.empty((comm.Get_size(), array.size), np.float32)
    transport, context = strategy.extended.transport, refdist.get_replica_context

    def total(of: Any) -> Callable[[], Any]:
        return lambda: strategy.run(lambda: context().all_reduce("SUM", of))

    ways = {f"{name(size)}: raw Allreduce": lambda: comm.Allreduce(array, out, MPI.SUM),
            f"{name(size)}: refdist run + all_reduce": total(array),
            f"{name(size)} from each: raw Allgather": lambda: comm.Allgather(array, everything),
            f"{name(size)} from each: refdist run + all_gather": lambda: strategy.run(
                lambda: context().all_gather(array, 0)),
            f"{name(size)} from the first: raw Bcast": lambda: comm.Bcast(received),
            f"{name(size)} from the first: refdist broadcast": lambda: transport.broadcast(
                transport.call("broadcasting", like=array), array)}
    if size >= 1 << 20:
        ways |= {f"{size // 4:,} numbers: {np.dtype(dtype).name}": total(array.astype(dtype))
                 for dtype in (np.float32, np.float16, ml_dtypes.bfloat16)}
    return {way: (call, inner) for way, call in ways.items()}


def name(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


def torch_ways(gradients: Any, rank: int, comm: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    dist.init_process_group("gloo", rank=rank, world_size=comm.Get_size())
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(gradient.copy()) for gradient in gradients]
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])

    def per_array() -> None:
        for tensor in tensors:
            dist.all_reduce(tensor)
    return {"torch gloo, one packed buffer": (lambda: dist.all_reduce(flat), 1),
            "torch gloo, per array": (per_array, 1)}


def on_hosts(workers: str, program: list[str]) -> str:
    """What a program prints that runs on several namespaces of this machine."""
    sys.path.insert(0, str(ROOT / "tests"))
    from namespaces import OFI, Namespaces

    with tempfile.TemporaryDirectory() as folder:
        hosts = Namespaces(len(workers.split(",")), Path(folder))
        why = hosts.why_not()
        if why is not None:
            sys.exit(why)
        try:
            return subprocess.run(hosts.command(workers, " ".join(program)), env={**os.environ, **OFI},
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
        finally:
            hosts.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--hosts", help="workers on each of several network namespaces, as 2,2; needs root")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.rounds, options.torch)
        return
    program = [sys.executable, __file__, "--worker", "--rounds", str(options.rounds), *["--torch"] * options.torch]
    if options.hosts:
        print(f"{options.hosts} workers on hosts that are namespaces of a machine with ", end="")
        output = on_hosts(options.hosts, program)
    else:
        print(f"{options.workers} workers on ", end="")
        launcher = Path(sysconfig.get_path("scripts")) / "mpiexec"
        command = [str(launcher), "-n", str(options.workers), *program]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    times = json.loads(output.split("RESULT")[1])
    load = ", ".join(f"{average:.0f}" for average in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}; 161 arrays are 102 MB")
    print("| way | best | median | speed relative to the first way | of medians |\n|---|---|---|---|---|")
    peers: dict[str, list[float]] = {}
    for way, (best, median) in times.items():
        topic, of_its_own, _ = way.partition(": ")
        peer = peers.setdefault(topic if of_its_own else "", [best, median])
        print(f"| {way} | {best * 1e6:,.1f} us | {median * 1e6:,.1f} us | {peer[0] / best:.2f} x | "
              f"{peer[1] / median:.2f} x |")


if __name__ == "__main__":
    main()
