"""Results that a worker still has to compute, and objects of which each worker has its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refdist import errors, nest
from refdist.array.convert import is_array, to_array, to_numpy
from refdist.coordinator.choices import disturbed
from refdist.coordinator.closures import Closure, snapshot
from refdist.coordinator.functions import Functions
from refdist.input.distributed import DistributedDataset
from refdist.variables.creation import variable_creator_scope
from refdist.variables.served import here


class RemoteValue:
    """The result of a scheduled function, which may not have run yet.

    Source: tf.distribute.coordinator.RemoteValue.
    """

    __slots__ = ("_closure", "_cluster")

    def __init__(self, closure: Closure, cluster: Functions) -> None:
        self._closure = closure
        self._cluster = cluster

    def fetch(self) -> Any:
        """Waits for the function and returns its result, with NumPy's arrays and numbers.

        Raises:
            Whatever the function has raised, as often as it is asked for.
            RD32: the function was cancelled.  RD33: no worker is left.  RD09: called in a scheduled function, or in
            a signal handler that has interrupted a call of the coordinator.
            RD34: an array of the result is more than NumPy's, a masked one for example; `get` returns it.

        Source: tf.distribute.coordinator.RemoteValue.fetch.
        """
        return nest.map_structure(_as_numpy, self._wait("RemoteValue.fetch"))

    def get(self) -> Any:
        """Waits for the function and returns its result.

        Raises:
            As `fetch`.

        Source: tf.distribute.coordinator.RemoteValue.get.
        """
        return self._wait("RemoteValue.get")

    def _wait(self, attempted: str) -> Any:
        closure = self._closure
        if not closure.done:
            not_on_a_worker(attempted)
            self._cluster.wait(lambda: closure.done, attempted)
        if closure.error is not None:
            raise closure.error
        return closure.value

    def __repr__(self) -> str:
        return f"<RemoteValue of {self._closure.name}>"


def kept(leaf: object) -> Any:
    """An argument of a scheduled function as it is at this moment: a writeable array is copied.

    Raises:
        RD34: a RemoteValue.
    """
    if isinstance(leaf, RemoteValue):
        raise errors.error("RD34", "ClusterCoordinator.schedule", f"an argument is {leaf!r}",
                           "Pass the result, `value.fetch()`, or keep it in a variable.")
    return snapshot(leaf)


def _as_numpy(leaf: object) -> Any:
    return to_numpy(to_array(leaf, None, "the result", "RemoteValue.fetch"))[()] if is_array(leaf) else leaf


def not_on_a_worker(attempted: str) -> None:
    """Raises if the code runs in a scheduled function.

    Raises:
        RD09: it does.
    """
    if here.worker is not None:
        raise errors.error("RD09", attempted, f"it was called in a scheduled function, on worker {here.worker}",
                           "Call it in the program that schedules the functions.")


def experimental_get_current_worker_index() -> np.int64:
    """The number of the worker, in a scheduled function or in the function of a per-worker dataset.

    Raises:
        RD09: called anywhere else.

    Source: tf.distribute.coordinator.experimental_get_current_worker_index.
    """
    if here.worker is None:
        raise errors.error("RD09", "experimental_get_current_worker_index", "it was called on the coordinator",
                           "Call it in a scheduled function, or in the function given to create_per_worker_dataset.")
    disturbed("a function asks which worker it runs on")
    return np.int64(here.worker)


class PerWorkerValue:
    """An object of which each worker has its own; a scheduled function that gets it as an argument gets the worker's.

    Args:
        values: a RemoteValue for each worker.

    Raises:
        RD25: something else.

    Source: tf.distribute.coordinator.PerWorkerValue.
    """

    def __init__(self, values: Sequence[RemoteValue]) -> None:
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, RemoteValue) for value in values):
            raise errors.error("RD25", "PerWorkerValue", f"values is {values!r}", "Pass a list of RemoteValues.")
        self._values = tuple(values)

    def _of(self, worker: int) -> Any:
        if worker >= len(self._values) or not self._values[worker]._closure.done:
            raise errors.error("RD25", "PerWorkerValue", f"it has no value for worker {worker} yet",
                               "Pass one RemoteValue for each worker, and join before it is used.")
        return self._values[worker].get()


class PerWorkerDataset(PerWorkerValue):
    """A dataset of which each worker reads its own copy, whole.

    Source: tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
    """

    def __init__(self, datasets: Sequence[Any], lives: Sequence[int]) -> None:
        self._datasets = datasets
        self._lives = lives

    @property
    def element_spec(self) -> Any:
        """The spec of the elements that a worker reads."""
        return self._datasets[0].element_spec

    def __iter__(self) -> PerWorkerIterator:
        not_on_a_worker("iterating over a per-worker dataset")
        return PerWorkerIterator(self._datasets, self._lives)

    def build(self) -> PerWorkerDataset:
        """What a scheduled function takes as an argument in TensorFlow: here the same."""
        return self

    def _of(self, worker: int) -> Any:
        return self._datasets[worker]


class PerWorkerIterator(PerWorkerValue):
    """An iterator of which each worker has its own; one of a worker that was lost begins again.

    Source: tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
    """

    __iter__ = None  # the coordinator has nothing to iterate over

    def __init__(self, datasets: Sequence[Any], lives: Sequence[int]) -> None:
        self._datasets = datasets
        self._lives = lives
        # Worker -> (how often it had been lost when its iterator was made, the iterator or the error).
        self._made: dict[int, tuple[int, Any]] = {}

    def _of(self, worker: int) -> Any:
        life, iterator = self._made.get(worker, (-1, None))
        if life != self._lives[worker]:
            try:
                iterator = iter(self._datasets[worker])
            except Exception as error:
                error.add_note(f"raised when the iterator of worker {worker} was made")
                iterator = error
            self._made[worker] = self._lives[worker], iterator
        if isinstance(iterator, Exception):
            raise iterator
        return iterator

    def __next__(self) -> Any:
        raise self._not_here("next")

    def get_next(self) -> Any:
        """Raises: only a worker can read the iterator.

        Raises:
            RD20: always.
        """
        raise self._not_here("get_next")

    def _not_here(self, attempted: str) -> errors.RefdistError:
        return errors.error("RD20", f"{attempted} of a per-worker iterator", "the elements are those of a worker",
                            "Pass the iterator to a scheduled function as an argument.")


def per_worker_datasets(given: object, workers: int) -> list[Any]:
    """The dataset of each worker: `given` itself, or what it returns for the worker.

    Raises:
        RD25: neither a dataset nor a function that returns one.
        Whatever the function raises.
    """
    attempted = "create_per_worker_dataset"
    if not callable(given):
        return [checked_dataset(given, attempted)] * workers
    return [checked_dataset(on_worker(i, given), f"the dataset_fn of {attempted}") for i in range(workers)]


def on_worker(worker: int, dataset_fn: Callable[[], object]) -> object:
    """Calls `dataset_fn`; in it, `experimental_get_current_worker_index` returns the number of this worker.

    Raises:
        RD34: it makes a variable.
    """
    before, here.worker = here.worker, worker
    try:
        with variable_creator_scope(_no_variable):
            return dataset_fn()
    finally:
        here.worker = before


def _no_variable(next_creator: Callable[..., object], **kwargs: object) -> Any:
    raise errors.error("RD34", "the dataset_fn of create_per_worker_dataset", "it makes a variable, and it may be "
                       "called on any worker at any time", "Make variables in the program that schedules the "
                       "functions.")


def checked_dataset(returned: object, attempted: str) -> Any:
    """Returns `returned` if it is a dataset.

    Args:
        returned: what the program passed, or what its function returned.
        attempted: the call, for the message.

    Raises:
        RD34: it is not a dataset.
    """
    if isinstance(returned, DistributedDataset) or (
            hasattr(returned, "element_spec") and hasattr(returned, "__iter__")
            and not hasattr(returned, "__next__") and not isinstance(returned, PerWorkerDataset)):
        return returned
    raise errors.error("RD34", attempted, f"got {errors.type_of(returned)}",
                       "Pass a refdist.data.Dataset, a distributed dataset, or a function without arguments that "
                       "returns one.")
