"""Methods that older versions of tf.distribute had; each works, warns, and names its successor.

Those on the logical devices of a replica are errors where a replica has one device; TPUStrategy overrides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Iterator as PythonIterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from refdist import errors, nest
from refdist.core import call_site
from refdist.core.rules.options import InputReplicationMode
from refdist.data.dataset import Dataset
from refdist.data.iterator import Iterator, Optional
from refdist.input.distributed import DistributedDataset, DistributedIterator
from refdist.input.options import InputContext, InputOptions
from refdist.missing import Missing

if TYPE_CHECKING:
    from refdist.strategies.base import Scope
    from refdist.strategies.extended import StrategyExtended


class InputIterator:
    """Reads a distributed dataset from its beginning after every `initialize()`.

    Source: tf.compat.v1.distribute.Strategy.make_dataset_iterator (TensorFlow 1.14).
    """

    def __init__(self, distributed: DistributedDataset) -> None:
        self._distributed = distributed
        self._iterator: Iterator = _begin(distributed)

    def initialize(self) -> None:
        """Starts again from the first element."""
        self._iterator = _begin(self._distributed)

    @property
    def initializer(self) -> None:
        """The same as `initialize()`."""
        self.initialize()

    def get_next(self) -> Any:
        """The next element.

        Raises:
            RD29: there is none.
        """
        return self._iterator.get_next()

    def get_next_as_optional(self) -> Optional:
        """The next element, or an Optional without one."""
        return self._iterator.get_next_as_optional()

    def __iter__(self) -> InputIterator:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


def _begin(distributed: DistributedDataset) -> Iterator:
    # Also where a coordinator does not iterate over the dataset; the default strategy returns the dataset as it was.
    return DistributedIterator(distributed) if isinstance(distributed, DistributedDataset) else iter(distributed)


class _Calls:
    """What a function returns, called for every element."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __iter__(self) -> PythonIterator[Any]:
        while True:
            yield self._function()


class Deprecated:
    """The part of Strategy that is kept for older programs."""

    @property
    def extended(self) -> StrategyExtended:
        """The StrategyExtended with the less common methods."""
        raise errors.InternalError("abstract")

    run: Callable[..., object]
    scope: Callable[[], Scope]
    experimental_local_results: Callable[[object], tuple[object, ...]]
    experimental_distribute_dataset: Callable[..., Any]
    distribute_datasets_from_function: Callable[..., Any]

    def experimental_run_v2(self, fn: Callable[..., object], args: Sequence[object] = (),
                            kwargs: Mapping[str, object] | None = None) -> Any:
        """`run` under its name of TensorFlow 2.0.

        Source: tf.distribute.experimental.CentralStorageStrategy (TensorFlow 2.0).
        """
        _warn("experimental_run_v2", "run")
        return self.run(fn, args, kwargs)

    def experimental_run(self, fn: Callable[..., object],
                         input_iterator: Iterator | InputIterator | None = None) -> Any:
        """`run` with the next element of an iterator as the only argument, or with none."""
        _warn("experimental_run", "run")
        return self.run(fn) if input_iterator is None else self.run(fn, args=(input_iterator.get_next(),))

    def experimental_distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[object]],
                                                       options: InputOptions | None = None) -> Any:
        """`distribute_datasets_from_function` under its older name."""
        _warn("experimental_distribute_datasets_from_function", "distribute_datasets_from_function")
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: object, session: object = None) -> Dataset:
        """A dataset of the rows of arrays; a list of arrays is stacked.

        Source: tf.distribute.experimental.CentralStorageStrategy (TensorFlow 2.0).
        """
        _warn("experimental_make_numpy_dataset", "refdist.data.Dataset.from_tensor_slices")
        return self.extended.experimental_make_numpy_dataset(numpy_input, session)

    def make_dataset_iterator(self, dataset: Iterable[object]) -> InputIterator:
        """An iterator over a dataset whose batches are split over the replicas."""
        _warn("make_dataset_iterator", "experimental_distribute_dataset")
        return InputIterator(self.experimental_distribute_dataset(dataset))

    # Of the pages for another language.
    make_dataset_iterator_dyn = Missing()
    make_input_fn_iterator_dyn = Missing()

    def make_input_fn_iterator(self, input_fn: Callable[[InputContext], object],
                               replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
                               ) -> InputIterator:
        """An iterator over the dataset that `input_fn(input_context)` returns, called in the strategy's scope.

        Where it returns a function, that is called without arguments for each replica's element.

        Raises:
            RD25, RD34: no function; a replication mode other than PER_WORKER, or a function that returns neither a
                dataset nor a function (both ValueError).
        """
        _warn("make_input_fn_iterator", "distribute_datasets_from_function")
        if replication_mode is not InputReplicationMode.PER_WORKER:
            raise errors.error("RD34", "make_input_fn_iterator", f"replication_mode is {replication_mode!r}",
                               "Use PER_WORKER, or `distribute_datasets_from_function`.")

        if not callable(input_fn):
            raise errors.error("RD25", "make_input_fn_iterator", f"input_fn is {input_fn!r}",
                               "Pass a function of an InputContext.")

        def dataset_fn(context: InputContext) -> Any:
            made = input_fn(context)
            if callable(made):
                return _Calls(made)
            if not hasattr(made, "__iter__"):
                raise errors.error("RD34", "make_input_fn_iterator", f"input_fn returned {made!r}",
                                   "Return a refdist.data.Dataset, or a function.")
            return made

        with self.scope():
            return InputIterator(self.distribute_datasets_from_function(dataset_fn))

    def unwrap(self, value: object) -> tuple[Any, ...]:
        """`experimental_local_results` under its older name."""
        _warn("unwrap", "experimental_local_results")
        return self.experimental_local_results(value)

    def group(self, value: object, name: str | None = None) -> Any:
        """Waits for a value; there is nothing to wait for.

        Returns:
            The only leaf of the local results, where there is one and no name is given; else None.
        """
        _warn("group", "nothing: values are there when they are returned")
        leaves = nest.flatten(self.experimental_local_results(value))
        return leaves[0] if len(leaves) == 1 and name is None else None

    def configure(self, session_config: object = None, cluster_spec: object = None, task_type: str | None = None,
                  task_id: int | None = None) -> None:
        """Configured a session; there are none."""
        _warn("configure", "nothing: there are no sessions")

    def update_config_proto(self, config_proto: object) -> object:
        """Returns its argument."""
        _warn("update_config_proto", "nothing: there are no sessions")
        return config_proto

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[Any]:
        """`extended.colocate_vars_with`."""
        _warn("colocate_vars_with", "extended.colocate_vars_with")
        return self.extended.colocate_vars_with(colocate_with_variable)

    def experimental_assign_to_logical_device(self, tensor: object, logical_device_id: int) -> Any:
        """TPUStrategy's: computes with `tensor` on one of a replica's devices.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_assign_to_logical_device")

    def experimental_split_to_logical_devices(self, tensor: object, partition_dimensions: Sequence[int]) -> Any:
        """TPUStrategy's: splits `tensor` over a replica's devices.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_split_to_logical_devices")

    def experimental_replicate_to_logical_devices(self, tensor: object) -> Any:
        """TPUStrategy's: copies `tensor` to all of a replica's devices.

        Raises:
            RD20: a replica has one device.
        """
        raise self._one_device("experimental_replicate_to_logical_devices")

    def _one_device(self, method: str) -> errors.RefdistError:
        return errors.error("RD20", f"{type(self).__name__}.{method}", "a replica has one device; only TPUStrategy "
                            "gives it several", "Leave the call out, which changes no "
                            "value; to use more devices give the strategy more replicas.")


def _warn(old: str, new: str) -> None:
    call_site.warn(f"Strategy.{old} is deprecated; use {new}", DeprecationWarning)
