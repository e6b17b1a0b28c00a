"""What refdist costs a step of PyTorch or JAX, beside the same step with the library alone, in the same run.

    python benchmarks/guests.py [--rounds 200] [--load 0]

Each replica computes the gradient of a small network and adds it up; the library alone does the same for one replica
after another in a plain loop, and adds with its own operator.  The two ways take turns step by step, and the median of
the CPU time counts.  `--load N` runs N processes beside them that keep a core busy.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import refdist

REPLICAS = 1, 4, 16
SHAPES = {"scalar": [()], "1,034 numbers": [(16, 64), (10,)], "1.05 million numbers": [(1024, 1024), (1024,)]}
Gradient = Callable[[int], Sequence[Any]]


def of_torch(shapes: Sequence[tuple[int, ...]]) -> Gradient:
    """The gradients of a sum of squares, by autograd."""
    import torch

    torch.set_num_threads(1)
    weights = [torch.ones(shape, requires_grad=True) for shape in shapes]

    def gradient(number: int) -> Sequence[Any]:
        loss = sum((weight * (number + 1.0)).square().sum() for weight in weights)
        return list(torch.autograd.grad(loss, weights))

    return gradient


def of_jax(shapes: Sequence[tuple[int, ...]]) -> Gradient:
    """The same by `jax.grad`, compiled."""
    import jax
    import jax.numpy as jnp

    weights = [jnp.ones(shape) for shape in shapes]
    compiled = jax.jit(jax.grad(lambda weights, x: sum(((weight * x) ** 2).sum() for weight in weights)))

    def gradient(number: int) -> Sequence[Any]:
        return [array.block_until_ready() for array in compiled(weights, number + 1.0)]

    return gradient


def measured(gradient: Gradient, replicas: int, rounds: int) -> tuple[float, float]:
    """CPU seconds of a step: with refdist, with the library alone."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])

    def step() -> Any:
        replica: Any = refdist.get_replica_context()
        return replica.all_reduce("SUM", gradient(replica.replica_id_in_sync_group))

    def alone() -> Any:
        columns = zip(*[gradient(number) for number in range(replicas)], strict=True)
        return [reduce(lambda total, part: total + part, column) for column in columns]

    times: dict[Callable[[], Any], list[float]] = {lambda: strategy.run(step): [], alone: []}
    for turn in range(rounds + 3):
        for way, took in times.items():
            start = time.process_time()
            way()
            if turn > 2:
                took.append(time.process_time() - start)
    with_refdist, with_library = map(statistics.median, times.values())
    return with_refdist, with_library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--load", type=int, default=0)
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    np.seterr(all="ignore")
    try:
        print("| library | gradients | replicas | library alone | with refdist | ratio | added per replica |")
        print("|---|---|---|---|---|---|---|")
        # PyTorch is measured first: once a library is loaded, its modes are saved at every rendezvous.
        for name, make in (("PyTorch", of_torch), ("JAX", of_jax)):
            for size, shapes in SHAPES.items():
                for replicas in REPLICAS:
                    own, library = measured(make(shapes), replicas, options.rounds)
                    print(f"| {name} | {size} | {replicas} | {library * 1e6:,.0f} us | {own * 1e6:,.0f} us "
                          f"| {own / library:.2f} | {(own - library) / replicas * 1e6:,.0f} us |", flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
