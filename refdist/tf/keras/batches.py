"""What `fit`, `evaluate` and `predict` read: batches, each shared out to the replicas.

Keras makes batches of whatever it is given (`data_adapter`).  Under a strategy they are a distributed dataset; a
dataset of refdist's, or one that a program has distributed itself, is taken as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from keras.src import tree
from keras.src.backend.torch import trainer as torch_trainer
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import (
    class_weight_to_sample_weights,
    pack_x_y_sample_weight,
    unpack_x_y_sample_weight,
)

from refdist import errors
from refdist.core import context_stack
from refdist.data.dataset import Dataset
from refdist.data.elements import as_the_backend_s
from refdist.data.facts import PEEK
from refdist.input.distributed import DistributedDataset
from refdist.input.options import InputContext
from refdist.tf.keras.text import Batches, RowsOfText, as_rows


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


class _Shares:
    # The shares of the replicas that one pipeline feeds, batch after batch: each batch is cut into as many pieces of
    # the same rounded-up size as there are replicas.  It begins anew each time that it is read.

    def __init__(self, strategy: Any, make: Callable[[], Iterable[Any]], context: InputContext) -> None:
        self._strategy = strategy
        self._make = make
        self._replicas = context.num_replicas_in_sync
        fed = self._replicas // context.num_input_pipelines
        self._fed = range(context.input_pipeline_id * fed, (context.input_pipeline_id + 1) * fed)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches():
            rows = len(next(leaf for leaf in tree.flatten(batch) if leaf is not None))
            size = -(-rows // self._replicas)
            for i in self._fed:
                yield tree.map_structure(lambda leaf: None if leaf is None else leaf[size * i:size * (i + 1)],  # noqa: B023
                                         tuple(batch) if isinstance(batch, list) else batch)

    def _batches(self) -> Iterator[Any]:
        # Every worker reads all batches, in one order: each goes on with the first worker's random numbers.
        extended = self._strategy.extended
        if extended.layout.workers > 1:
            call = extended.transport.call("order of the rows for Keras")
            torch.set_rng_state(extended.transport.all_gather_object(call, torch.get_rng_state())[0])
        yield from self._make()


class Shared(list[Any]):
    """Batches, or what replicas have of them where a scope is open."""

    @classmethod
    def of(cls, strategy: Any, batches: Sequence[Any]) -> Shared:
        """Batches that a program hands to `train_on_batch`, shared out."""
        if isinstance(batches, cls):
            return batches
        packed = [pack_x_y_sample_weight(*unpack_x_y_sample_weight(batch)) for batch in batches]
        return cls(_shared_out(strategy, lambda: packed))


def _shared_out(strategy: Any, make: Callable[[], Iterable[Any]]) -> Any:
    return strategy.distribute_datasets_from_function(lambda context: _Shares(strategy, make, context))


def _weighing(weights: Mapping[int, float]) -> Callable[..., Any]:
    # What gives each row of a batch the weight of its class.
    def weigh(*data: Any) -> Any:
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        if sample_weight is not None or tree.is_nested(y):
            raise errors.error("RD34", "data for Keras", "class_weight stands beside the sample weights of a dataset" if
                               sample_weight is not None else "class_weight stands beside several targets",
                               "Let the elements of the dataset be tuples (x, y), with one y.")
        return x, y, class_weight_to_sample_weights(y, weights)
    return weigh


_KerasIterator: Any = torch_trainer.TorchEpochIterator


class EpochIterator(_KerasIterator):  # type: ignore[misc]
    """Keras's reader of batches, whose batches are shared out where a scope is open."""

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(x, (Dataset, DistributedDataset)):
            weights = kwargs.pop("class_weight", None)
            if isinstance(x, Dataset) and weights is not None:
                x, weights = x.map(_weighing(weights)), None
            if y is not None or sample_weight is not None or weights is not None:
                raise errors.error("RD34", "data for Keras", "x is a dataset, with targets or weights beside it",
                                   "Let the elements of the dataset be tuples (x, y) or (x, y, sample_weight).")
            x, kwargs["shuffle"] = DatasetAdapter(x), False
        x, y = as_rows(x), as_rows(y)
        super().__init__(x, y, sample_weight, *args, **kwargs)
        strategy: Any = context_stack.frame().strategy
        source: Any = self.data_adapter.get_torch_dataloader
        self._batches: Any = None
        if any(isinstance(leaf, RowsOfText) for leaf in tree.flatten((x, y))):
            self._batches = Batches(source, self.data_adapter._inputs)
            source = functools.partial(Batches, source, self.data_adapter._inputs)
        if isinstance(self.data_adapter, DatasetAdapter):
            self._batches = self.data_adapter.dataset
            if strategy is not None and not isinstance(self._batches, DistributedDataset):
                self._batches = strategy.experimental_distribute_dataset(self._batches)
        elif strategy is not None:
            self._batches = _shared_out(strategy, source)

    def peeked(self) -> Iterator[Any]:
        """The first batch, without drawing an order of a dataset's shuffles, as on TensorFlow; or all of them."""
        if not isinstance(self._batches, Dataset):
            return iter(self)
        return ((0, 0, [as_the_backend_s(batch)]) for batch in self._batches._pipeline.read(PEEK))

    def __next__(self) -> Any:
        first, last, batches = super().__next__()
        return first, last, Shared(batches)

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self._batches is None else self._batches


def connect() -> None:
    """From now on Keras's trainer reads by this."""
    torch_trainer.TorchEpochIterator = EpochIterator
