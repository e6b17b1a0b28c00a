"""Trains a small network on handwritten digits asynchronously, with parameter servers.

    python examples/async_digits.py --workers 4 --ps 2
    python -m refdist launch --workers 4 --ps 2 examples/async_digits.py

The first line simulates all tasks in one process, and gives the same weights every time; the second one starts a
process for each of them, and its runs differ.  Every worker reads the images in an order of its own.  A step
reads the variables, computes the gradients of one batch, and subtracts them; meanwhile other workers do the same, so a
step may use weights that are not the newest ones.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import numpy as np
from digits import HiddenLayer, accuracy, load

import refdist
from refdist.coordinator import ClusterCoordinator, experimental_get_current_worker_index


def resolver_for(workers: int, servers: int) -> Any:
    """The cluster of the processes that were started, else a simulated one."""
    if "TF_CONFIG" in os.environ:
        return refdist.cluster_resolver.TFConfigClusterResolver()
    spec = refdist.train.ClusterSpec({"worker": [f"worker{i}:1" for i in range(workers)],
                                      "ps": [f"ps{i}:1" for i in range(servers)]})
    return refdist.cluster_resolver.SimpleClusterResolver(spec)


def training_step(model: HiddenLayer, iterator: Any, rate: float) -> Any:
    """One batch on one worker; returns its mean loss."""
    x, labels = next(iterator)
    loss, gradients = model.gradients(np, x, labels)
    for variable, gradient in zip(model.variables, gradients, strict=True):
        variable.assign_sub(rate / len(labels) * gradient, read_value=False)
    return loss / len(labels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="how many simulated workers (default 4)")
    parser.add_argument("--ps", type=int, default=2, help="how many simulated parameter servers (default 2)")
    parser.add_argument("--steps", type=int, default=1500, help="how many batches in all (default 1500)")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch (default 32)")
    options = parser.parse_args()

    # Workers and parameter servers that are processes do their work here, and end.
    strategy = refdist.ParameterServerStrategy(resolver_for(options.workers, options.ps))
    training, held_out = load()
    with strategy.scope():
        model = HiddenLayer(seed=0)

    def dataset() -> Any:
        rows = refdist.data.Dataset.from_tensor_slices(training)
        seed = int(experimental_get_current_worker_index())
        return rows.shuffle(len(training[0]), seed=seed).repeat().batch(options.batch)

    coordinator = ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    steps = [coordinator.schedule(training_step, args=(model, iterator, 0.2)) for _ in range(options.steps)]
    coordinator.join()
    losses = np.array(coordinator.fetch(steps))
    tenth = max(len(losses) // 10, 1)
    right = accuracy(model, held_out)
    print(f"mean loss of the first {tenth} steps {losses[:tenth].mean():.3f}, of the last "
          f"{losses[-tenth:].mean():.3f}; {right:.1%} of the held-out images right")
    if options.steps >= 1500 and right < 0.9:
        print("FAILED: less than 90 % were right", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
