"""Trains a PyTorch model on handwritten digits, on several workers, which add up their gradients.

    python -m refdist launch -n 4 examples/torch_digits.py
    python -m refdist run --workers 4 examples/torch_digits.py

The first command starts processes under MPI, the second one simulates the workers in one process; the weights have the
same bits.  PyTorch has the model, its gradients and the optimizer.  refdist says which worker reads which rows, and
adds up the gradients, in place of DistributedDataParallel: a worker that is lost, or makes another call than the
others, is an error on all of them.

Each worker has one replica.  The data are scikit-learn's 1,797 images of 8 x 8 pixels:
`pip install torch scikit-learn`.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import numpy as np

import refdist

try:
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError as error:
    raise SystemExit(f"{error}; this example needs `pip install torch scikit-learn`") from error


def training_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """What every worker does with its part of a batch; returns (summed loss, rows) of the whole batch."""
    replica = refdist.get_replica_context()
    assert replica is not None
    x, labels = batch
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), labels, reduction="sum")
    loss.backward()
    parameters = list(model.parameters())
    # The last batch is smaller, and some workers may get no rows at all: divide by the true number.
    own_sums = [loss.detach(), torch.tensor(float(len(labels))), *(parameter.grad for parameter in parameters)]
    total, rows, *gradients = replica.all_reduce("SUM", own_sums)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient / rows
    optimizer.step()
    return total, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    strategy = refdist.MultiWorkerMirroredStrategy()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same weights on every worker
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)

    pixels, classes = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((pixels / 16).astype(np.float32), classes, test_size=0.2, random_state=0)
    rows = torch.from_numpy(x), torch.from_numpy(y)
    dataset = refdist.data.Dataset.from_tensor_slices(rows).shuffle(len(x), seed=0).batch(options.batch)
    distributed = strategy.experimental_distribute_dataset(dataset)
    for epoch in range(options.epochs):
        loss = seen = 0.0
        for batch in distributed:
            total, count = strategy.run(training_step, args=(model, optimizer, batch))
            loss, seen = loss + float(total), seen + float(count)
        if strategy.cluster_resolver.task_id == 0:
            print(f"epoch {epoch + 1}: loss {loss / seen:.4f}")
    with torch.no_grad():
        predicted = model(torch.from_numpy(x_test)).argmax(1).numpy()
    parameters = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    weights = hashlib.sha256(b"".join(parameters)).hexdigest()[:12]
    print(f"worker {strategy.cluster_resolver.task_id}: {np.mean(predicted == y_test):.1%} of the held-out images, "
          f"weights {weights}")


if __name__ == "__main__":
    main()
