"""A PyTorch DataLoader as the source of a distributed dataset; runs where PyTorch is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from limits import HANG

import refdist

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed; `make interop` installs it")


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return torch.full((3,), float(i)), i


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader_are_split_and_every_epoch_is_another_reading(workers: int) -> None:
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=workers)
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    distributed = strategy.experimental_distribute_dataset(loader)
    for _ in range(2):
        seen = []
        for images, labels in distributed:
            assert all(type(part) is torch.Tensor for part in images.values)
            sums = strategy.run(lambda x, y: x.sum() - 3 * y.sum(), args=(images, labels))
            assert [float(total) for total in sums.values] == [0.0, 0.0]
            seen += [part.tolist() for part in labels.values]
        assert seen == [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9]]
    assert distributed.cardinality == 3
    assert distributed.element_spec[0].values[0] == refdist.TensorSpec((None, 3), np.float32)


def test_a_tensor_that_is_written_afterwards_does_not_change_the_shares() -> None:
    tensor = torch.arange(8)
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    [element] = strategy.experimental_distribute_dataset([tensor])
    tensor[5] = 100
    assert [part.tolist() for part in element.values] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_replica_functions_may_return_tensors() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    loader = torch.utils.data.DataLoader(Rows(), batch_size=6)

    def total(x: Any, labels: Any) -> Any:
        return torch.as_tensor(x).sum().numpy()

    totals = [float(strategy.reduce("SUM", strategy.run(total, args=batch), axis=None))
              for batch in strategy.experimental_distribute_dataset(loader)]
    assert totals == [45.0, 90.0]


def test_a_program_that_leaves_a_dataset_in_pytorch_s_code_ends_without_a_fault() -> None:
    # A thread that returned from PyTorch's code while the interpreter was taken down ended the process with SIGABRT.
    program = """
import torch
from refdist.data import Dataset

def compute(x):
    square = torch.ones(64, 64) * int(x)
    return torch.relu(square @ square + 1).sum()

print(next(iter(Dataset.range(100000).map(compute).prefetch(100))).item())
"""
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=HANG)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4096.0\n", "")
