"""What `fit`, `evaluate` and `predict` read: batches, each shared out to the replicas.

Keras makes batches of whatever it is given (`data_adapter`).  Under a strategy they are a distributed dataset; a
dataset of refdist's, or one that a program has distributed itself, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keras.src.backend.torch import trainer as torch_trainer
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from refdist import errors
from refdist.core import context_stack
from refdist.data.dataset import Dataset
from refdist.input.distributed import DistributedDataset


class DatasetAdapter(DataAdapter):  # type: ignore[misc]
    """A dataset of refdist's, as Keras reads data."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def get_torch_dataloader(self) -> Iterable[Any]:
        """The dataset itself."""
        return self.dataset  # type: ignore[no-any-return]

    @property
    def num_batches(self) -> int | None:
        """How many batches there are; None where that is not known, or there is no end."""
        count = int(self.dataset.cardinality() if isinstance(self.dataset, Dataset) else self.dataset.cardinality)
        return count if count >= 0 else None

    @property
    def batch_size(self) -> None:
        """Not known."""
        return None


class _Batches:
    # Keras's batches, which begin anew each time that they are read.

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        for batch in self._make():
            yield tuple(batch) if isinstance(batch, list) else batch


_KerasIterator: Any = torch_trainer.TorchEpochIterator


class EpochIterator(_KerasIterator):  # type: ignore[misc]
    """Keras's reader of batches, whose batches are shared out where a scope is open."""

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(x, (Dataset, DistributedDataset)):
            if y is not None or sample_weight is not None or kwargs.get("class_weight") is not None:
                raise errors.error("RD34", "data for Keras", "x is a dataset, with targets or weights beside it",
                                   "Let the elements of the dataset be tuples (x, y) or (x, y, sample_weight).")
            x, kwargs["shuffle"] = DatasetAdapter(x), False
        super().__init__(x, y, sample_weight, *args, **kwargs)
        strategy: Any = context_stack.frame().strategy
        source = self.data_adapter.get_torch_dataloader
        self._batches: Any = None
        if isinstance(self.data_adapter, DatasetAdapter):
            self._batches = self.data_adapter.dataset
            if strategy is not None and not isinstance(self._batches, DistributedDataset):
                self._batches = strategy.experimental_distribute_dataset(self._batches)
        elif strategy is not None:
            self._batches = strategy.experimental_distribute_dataset(_Batches(source))

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self._batches is None else self._batches


def connect() -> None:
    """From now on Keras's trainer reads by this."""
    torch_trainer.TorchEpochIterator = EpochIterator
