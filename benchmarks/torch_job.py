"""A training job of PyTorch under MPI: refdist's sums in place of DistributedDataParallel, in the same run.

    python benchmarks/torch_job.py [--workers 2] [--rounds 60]

PyTorch has the weights and computes the gradients; what differs is who adds these up over the workers.  The ways take
turns step by step, each on a copy of the model, and the median counts.  Two models: one of 8.5 million numbers, where
the sum takes as long as the computation, and a convolutional one of 0.3 million, where it does not.  At the end the
weights of all ways are compared: with two workers they are equal to the bit.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

DDP = "DistributedDataParallel with gloo"
REFDIST = "refdist, MEAN of the gradients"
ALONE = "no sums"


def models() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """For each name a model and the shape of a worker's batch."""
    from torch import nn

    def convolutions(width: int) -> list[Any]:
        layers: list[Any] = []
        before = 3
        for stage in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(before, stage, 3, padding=1), nn.ReLU(), nn.Conv2d(stage, stage, 3, padding=1),
                       nn.ReLU(), nn.MaxPool2d(2)]
            before = stage
        return layers

    wide = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1024),
                         nn.ReLU(), nn.Linear(1024, 10))
    deep = nn.Sequential(*convolutions(32), nn.Flatten(), nn.Linear(128 * 16, 10))
    return {"dense": (wide, (32, 1024)), "convolutional": (deep, (32, 3, 32, 32))}


def worker(rounds: int) -> None:
    """Trains every model in every way, and prints the times."""
    import refdist

    strategy = refdist.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    dist.init_process_group("gloo", rank=rank, world_size=MPI.COMM_WORLD.Get_size())
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {}
    for name, (model, shape) in models().items():
        torch.manual_seed(0)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        torch.manual_seed(rank + 1)
        x, y = torch.randn(shape), torch.randint(10, shape[:1])
        steps = {DDP: by_ddp(copy.deepcopy(model), x, y), REFDIST: by_refdist(strategy, copy.deepcopy(model), x, y),
                 ALONE: alone(copy.deepcopy(model), x, y)}
        times: dict[str, list[float]] = {way: [] for way in steps}
        for turn in range(rounds):
            for way, (step, _) in steps.items():
                MPI.COMM_WORLD.Barrier()
                start = time.perf_counter()
                step()
                if turn > 2:
                    times[way].append(time.perf_counter() - start)
        weights = [torch.cat([parameter.detach().reshape(-1) for parameter in steps[way][1].parameters()])
                   for way in (DDP, REFDIST)]
        differ = float((weights[0] - weights[1]).abs().max())
        results[name] = {"parameters": weights[0].numel(), "difference": differ,
                         **{way: statistics.median(took) for way, took in times.items()}}
    if rank == 0:
        print("RESULT" + json.dumps(results))
    dist.destroy_process_group()


def trained(model: Any, x: Any, y: Any, reduce: Callable[[list[Any]], None]) -> Callable[[], None]:
    """A step of training; `reduce` is given the parameters, whose gradients it may replace."""
    import torch

    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        reduce(parameters)
        optimizer.step()
    return step


def by_ddp(model: Any, x: Any, y: Any) -> tuple[Callable[[], None], Any]:
    from torch.nn.parallel import DistributedDataParallel

    return trained(DistributedDataParallel(model), x, y, lambda _: None), model


def by_refdist(strategy: Any, model: Any, x: Any, y: Any) -> tuple[Callable[[], None], Any]:
    import torch

    import refdist

    def reduce(parameters: list[Any]) -> None:
        means = strategy.run(lambda: refdist.get_replica_context().all_reduce(
            "MEAN", [parameter.grad.numpy() for parameter in parameters]))
        for parameter, mean in zip(parameters, means, strict=True):
            parameter.grad = torch.from_numpy(mean)
    return trained(model, x, y, reduce), model


def alone(model: Any, x: Any, y: Any) -> tuple[Callable[[], None], Any]:
    return trained(model, x, y, lambda _: None), model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.rounds)
        return
    launcher = Path(sysconfig.get_path("scripts")) / "mpiexec"
    command = [str(launcher), "-n", str(options.workers), sys.executable, "-W", "ignore:The given NumPy array",
               __file__, "--worker", "--rounds", str(options.rounds)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    print(f"{options.workers} workers on {os.cpu_count()} cores")
    print("| model | way | time of a step | speed relative to DDP |\n|---|---|---|---|")
    for name, result in json.loads(output.split("RESULT")[1]).items():
        for way in (DDP, REFDIST, ALONE):
            print(f"| {name}, {result['parameters'] / 1e6:.2f} M | {way} | {result[way] * 1e3:.2f} ms "
                  f"| {result[DDP] / result[way]:.2f} x |")
        print(f"Largest difference of a weight: {result['difference']}", file=sys.stderr)


if __name__ == "__main__":
    main()
