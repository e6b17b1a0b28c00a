"""What refdist costs a step of Keras on PyTorch, beside the same step with Keras alone, in the same run.

    python benchmarks/keras_step.py [--rounds 100]

A step computes the gradients of each replica's share of a batch by autograd, adds them up and applies them once.  Keras
alone does so for one share after another in a plain loop, with the optimizer of refdist's scope, Keras's general one,
and with its own for PyTorch, which writes all weights at once.  The ways take turns step by step, and the median of the
CPU time counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import refdist
from refdist.tf.keras import connect

keras: Any = connect()

import torch  # noqa: E402
from keras.src.optimizers.base_optimizer import BaseOptimizer  # noqa: E402

REPLICAS = 1, 2, 4
SIZES = {"1,761 weights": 32, "1.02 million weights": 1000}
ROWS = 8


def made(width: int) -> tuple[Any, Any]:
    """A model of two layers, and its optimizer."""
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(width, "relu"),
                              keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def gradients(model: Any) -> Any:
    """Of the loss of one share."""
    loss = keras.ops.mean(keras.ops.square(model(torch.ones((ROWS, 20)), training=True)))
    return torch.autograd.grad(loss, [weight.value for weight in model.trainable_variables])


def measured(width: int, replicas: int, rounds: int) -> list[float]:
    """CPU seconds of a step: with refdist, with Keras and its general optimizer, with Keras and that for PyTorch."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
    with strategy.scope():
        model, optimizer = made(width)
    own, own_optimizer = made(width)

    def on_replica() -> None:
        optimizer.apply_gradients(zip(gradients(model), model.trainable_variables, strict=True))

    def alone() -> None:
        shares = [gradients(own) for _ in range(replicas)]
        total = [sum(parts[1:], parts[0]) for parts in zip(*shares, strict=True)]
        own_optimizer.apply_gradients(zip(total, own.trainable_variables, strict=True))

    def generally() -> None:
        kind = type(own_optimizer)
        kind._backend_update_step, of_torch = BaseOptimizer._backend_update_step, kind._backend_update_step
        try:
            alone()
        finally:
            kind._backend_update_step = of_torch

    times: dict[Callable[[], Any], list[float]] = {lambda: strategy.run(on_replica): [], generally: [], alone: []}
    for turn in range(rounds + 5):
        for way, took in times.items():
            start = time.process_time()
            way()
            if turn > 4:
                took.append(time.process_time() - start)
    return [statistics.median(took) for took in times.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | replicas | Keras alone | with refdist | ratio | added per replica | of it by the optimizer |")
    print("|---|---|---|---|---|---|---|")
    for size, width in SIZES.items():
        for replicas in REPLICAS:
            own, general, alone = measured(width, replicas, options.rounds)
            print(f"| {size} | {replicas} | {alone * 1e3:.2f} ms | {own * 1e3:.2f} ms | {own / alone:.2f} "
                  f"| {(own - alone) / replicas * 1e3:.2f} ms | {(general - alone) / replicas * 1e3:.2f} ms |",
                  flush=True)


if __name__ == "__main__":
    main()
