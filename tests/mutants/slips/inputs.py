"""Slips in datasets, in the functions that make them, in iterators, and between workers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import nest
from refdist.data import AutoShardPolicy, Dataset

_PER_REPLICA = refdist.InputReplicationMode.PER_REPLICA
_OF_DATASET, _OF_FUNCTION = "experimental_distribute_dataset", "distribute_datasets_from_function"
# The policies under which batches are divided one by one.
_BY_BATCH = (AutoShardPolicy.AUTO, AutoShardPolicy.DATA)


class _Reading(NamedTuple):
    """An iteration over a distributed dataset: what was distributed, and what a slip remembers of earlier steps."""

    strategy: Any
    source: Any
    options: Any
    memory: dict[str, Any]


def _workers(strategy: Any) -> int:
    alone = strategy.cluster_resolver is None
    return 1 if alone else strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)


def _in_replica() -> bool:
    return refdist.has_strategy() and refdist.get_replica_context() is not None


def _across_replicas() -> bool:
    return not refdist.has_strategy() or refdist.in_cross_replica_context()


def _mode(options: Any) -> Any:
    return options.experimental_replication_mode if isinstance(options, refdist.InputOptions) else None


def _policy(dataset: Any) -> AutoShardPolicy:
    if not isinstance(dataset, Dataset):
        return AutoShardPolicy.AUTO
    policy: AutoShardPolicy = dataset.options().experimental_distribute.auto_shard_policy
    return policy


def _under(policy: AutoShardPolicy, dataset: Any) -> Any:
    options = refdist.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _numbers_of_rows(dataset: Any) -> list[int | None]:
    # Of each component, None where the spec does not tell.
    specs = nest.flatten(dataset.element_spec) if isinstance(dataset, Dataset) else []
    return [spec.shape[0] if spec.shape else None for spec in specs if isinstance(spec, refdist.TensorSpec)]


def _has_scalars(dataset: Any) -> bool:
    return isinstance(dataset, Dataset) and any(
        isinstance(spec, refdist.TensorSpec) and spec.shape == () for spec in nest.flatten(dataset.element_spec))


def _with_parts(change: Callable[[list[Any]], Sequence[Any]], element: Any) -> Any:
    # The element with other parts in each of its leaves; a worker's only part is not in a PerReplica.
    return nest.map_structure(
        lambda leaf: refdist.PerReplica(change([*leaf.values])) if isinstance(leaf, refdist.PerReplica)
        else change([leaf])[0], element)


def _counts(element: Any) -> list[int]:
    # The numbers of rows of the parts of an element.
    leaf = nest.flatten(element)[0]
    parts = leaf.values if isinstance(leaf, refdist.PerReplica) else [leaf]
    return [len(part) if np.ndim(part) else 1 for part in parts]


def _pieces(array: Any, size: int, count: int) -> list[Any]:
    return [array[i * size:(i + 1) * size] for i in range(count)]


def _noted(call: str) -> WeakKeyDictionary[Any, _Reading]:
    """What this method of a strategy returns from now on, with what it was called with."""
    distributed: WeakKeyDictionary[Any, _Reading] = WeakKeyDictionary()

    @instead(refdist.Strategy, call)
    def distribute(right: Any, self: Any, source: Any, options: Any = None) -> Any:
        result = right(self, source, options)
        distributed[result] = _Reading(self, source, options, {})
        return result

    return distributed


def _steps(call: str, change: Callable[[_Reading, Callable[[], Any]], Any]) -> None:
    """An element of what this method of a strategy returns is `change(reading, take)`; `take()` is the right one."""
    distributed = _noted(call)
    readings: WeakKeyDictionary[Any, _Reading] = WeakKeyDictionary()

    @instead(refdist.DistributedDataset, "__iter__")
    def start(right: Any, self: Any) -> Any:
        iterator = right(self)
        if self in distributed:
            strategy, source, options, _ = distributed[self]
            readings[iterator] = _Reading(strategy, source, options, {})
        return iterator

    @instead(refdist.DistributedIterator, "__next__")
    def step(right: Any, self: Any) -> Any:
        return change(readings[self], lambda: right(self)) if self in readings else right(self)


def _cut(policies: Sequence[AutoShardPolicy], cut: Callable[[_Reading, list[Any], int], list[list[Any]]]) -> None:
    """Under these policies, on one worker, the components of a step are divided as `cut` does.

    It is passed each component in one piece, and the number of replicas, and returns the parts of each component.
    """
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        leaves = nest.flatten(element)
        if (_policy(reading.source) not in policies or _workers(reading.strategy) > 1
                or not all(isinstance(leaf, refdist.PerReplica) for leaf in leaves)):
            return element
        wholes = [np.concatenate(leaf.values) for leaf in leaves]
        columns = cut(reading, wholes, reading.strategy.num_replicas_in_sync)
        return nest.pack_sequence_as(element, [refdist.PerReplica(parts) for parts in columns])

    _steps(_OF_DATASET, change)


def _cut_batches(cut: Callable[[Any, int], list[Any]]) -> None:
    """Where batches are divided one by one, `cut` makes a part for each replica of an array."""
    _cut(_BY_BATCH, lambda reading, arrays, count: [cut(array, count) for array in arrays])


def _policy_instead(policy: AutoShardPolicy, when: Callable[[Any, Any], bool]) -> None:
    """A dataset is divided as under another policy, where `when(strategy, dataset)`."""
    @instead(refdist.Strategy, _OF_DATASET)
    def distribute(right: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        other = isinstance(dataset, Dataset) and when(self, dataset)
        return right(self, _under(policy, dataset) if other else dataset, options)


def _before_distributing(call: str, change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
    """The arguments of this method of a strategy are `change(strategy, source, options)`."""
    @instead(refdist.Strategy, call)
    def distribute(right: Any, self: Any, source: Any, options: Any = None) -> Any:
        return right(self, *change(self, source, options))


def _calls(change: Callable[[Any, Any, Any, Any], Any]) -> None:
    """Instead of a dataset_fn, `change(strategy, dataset_fn, context, options)` is called."""
    _before_distributing(_OF_FUNCTION, lambda strategy, dataset_fn, options: (
        (lambda context: change(strategy, dataset_fn, context, options)) if callable(dataset_fn) else dataset_fn,
        options))


def _parts_of_all_workers(strategy: Any, leaf: Any) -> list[Any]:
    # Of one component, in the order of the replicas.  Every worker calls this.
    counts = strategy.gather(_with_parts(lambda parts: [np.array([len(part)]) for part in parts], leaf), axis=0)
    return np.split(strategy.gather(leaf, axis=0), np.cumsum(counts)[:-1])


def _first_replica(strategy: Any) -> int:
    # The number of this worker's first replica.
    return int(strategy.cluster_resolver.task_id) * len(strategy.extended.worker_devices)


# Datasets.

@slip("every replica gets the whole batch", "datasets.parts-go-to-their-replicas")
def _() -> None:
    _cut_batches(lambda array, count: [array] * count)


@slip("the replicas take the rows of a batch in turn", "datasets.a-batch-is-divided")
def _() -> None:
    _cut_batches(lambda array, count: [array[i::count] for i in range(count)])


@slip("batches are divided on one replica, too", "datasets.one-replica-gets-every-batch-whole")
def _() -> None:
    @instead(refdist.Strategy, _OF_DATASET)
    def distribute(right: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        if _has_scalars(dataset):
            raise ValueError("a scalar cannot be divided")
        return right(self, dataset, options)


@slip("a remainder is dealt out row by row", "datasets.pieces-have-the-rounded-up-size")
def _() -> None:
    _cut_batches(np.array_split)


@slip("rows that cannot be divided evenly are lost", "datasets.a-short-batch-is-cut-by-its-own-size")
def _() -> None:
    _cut_batches(lambda array, count: _pieces(array, len(array) // count, count))


@slip("a step in which a replica has no rows is left out", "datasets.a-replica-without-rows-gets-an-empty-array")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        while _workers(reading.strategy) == 1 and 0 in _counts(element):
            element = take()
        return element

    _steps(_OF_DATASET, change)


@slip("a short batch is cut by the size of the first one", "datasets.batches-are-not-joined")
def _() -> None:
    def cut(reading: _Reading, arrays: list[Any], count: int) -> list[list[Any]]:
        size = reading.memory.setdefault("size", -(-len(arrays[0]) // count))
        return [_pieces(array, size, count) for array in arrays]

    _cut(_BY_BATCH, cut)


@slip("all components are cut as the first one is", "datasets.components-are-cut-by-their-own-number-of-rows")
def _() -> None:
    _cut(_BY_BATCH, lambda reading, arrays, count: [
        _pieces(array, -(-len(arrays[0]) // count), count) for array in arrays])


@slip("a scalar is a wrong type", "datasets.scalars-cannot-be-divided")
def _() -> None:
    @instead(refdist.Strategy, _OF_DATASET)
    def distribute(right: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        if self.num_replicas_in_sync > 1 and _has_scalars(dataset):
            raise TypeError("a scalar is not a batch")
        return right(self, dataset, options)


@slip("a distributed dataset is distributed once more", "datasets.what-is-not-a-dataset-is-refused")
def _() -> None:
    _before_distributing(_OF_DATASET, lambda strategy, dataset, options: (
        [part for element in dataset for part in strategy.experimental_local_results(element)]
        if isinstance(dataset, refdist.DistributedDataset) else dataset, options))


@slip("a dataset may be read in the mode PER_REPLICA", "datasets.per-replica-mode-is-for-functions")
def _() -> None:
    _before_distributing(_OF_DATASET, lambda strategy, dataset, options: (
        dataset, refdist.InputOptions(options.experimental_fetch_to_device)
        if _mode(options) is _PER_REPLICA else options))


@slip("the cardinality counts the parts of all replicas", "datasets.cardinality")
def _() -> None:
    distributed = _noted(_OF_DATASET)

    @instead(refdist.DistributedDataset, "cardinality")
    def cardinality(right: Any, self: Any) -> Any:
        number = right(self)
        if number < 0 or self not in distributed:
            return number
        return number * distributed[self].strategy.num_replicas_in_sync


@slip("reduce leaves the first element out", "datasets.reduce-over-the-elements")
def _() -> None:
    @instead(refdist.DistributedDataset, "reduce")
    def reduce(right: Any, self: Any, initial_state: Any, reduce_func: Any) -> Any:
        state, elements = initial_state, iter(self)
        next(elements, None)
        for element in elements:
            state = reduce_func(state, element)
        return state


@slip("AUTO cuts the stream of rows", "datasets.data-is-auto-without-files")
def _() -> None:
    _policy_instead(AutoShardPolicy.OFF, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.AUTO and _workers(strategy) == 1))


@slip("the last replicas have the longer parts", "datasets.off-deals-out-the-remainder")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        counts = _counts(element)
        # A last step that is not full is left as it is.
        full = reading.memory.setdefault("counts", counts) == counts and 0 not in counts
        if _policy(reading.source) is not AutoShardPolicy.OFF or _workers(reading.strategy) > 1 or not full:
            return element
        return _with_parts(lambda parts: np.split(np.concatenate(parts), np.cumsum(counts[::-1])[:-1]), element)

    _steps(_OF_DATASET, change)


@slip("under OFF every batch is cut for itself", "datasets.off-joins-batches")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.OFF and _workers(strategy) == 1))


@slip("a number is an int of Python or NumPy", "datasets.sizes-may-be-arrays")
def _() -> None:
    for method in ("batch", "padded_batch", "repeat", "shuffle", "skip", "take"):
        @instead(Dataset, method)
        def transformed(right: Any, self: Any, number: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(number, np.ndarray):
                raise TypeError("not an int")
            return right(self, *args, **kwargs) if number is None else right(self, number, *args, **kwargs)


@slip("under OFF rows that do not fill a part are lost", "datasets.off-keeps-the-rows-of-a-last-step")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        counts = _counts(element)
        short = reading.memory.setdefault("counts", counts) != counts and 0 in counts
        if _policy(reading.source) is AutoShardPolicy.OFF and _workers(reading.strategy) == 1 and short:
            raise StopIteration
        return element

    _steps(_OF_DATASET, change)


@slip("each worker takes the next pieces for all its replicas", "datasets.workers-take-pieces-in-turn")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element, strategy = take(), reading.strategy
        workers = _workers(strategy)
        if workers == 1 or _policy(reading.source) not in _BY_BATCH:
            return element
        local = len(strategy.extended.worker_devices)

        def of_worker(leaf: Any) -> Any:
            parts = _parts_of_all_workers(strategy, leaf)
            # The pieces in the order of their rows: the first one of each worker, then the second ones.
            pieces = [parts[worker * local + i] for i in range(local) for worker in range(workers)]
            first = _first_replica(strategy)
            return _with_parts(lambda _: pieces[first:first + local], leaf)

        return nest.map_structure(of_worker, element)

    _steps(_OF_DATASET, change)


@slip("under OFF the workers share the rows", "datasets.off-every-worker-reads-all-rows")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.OFF and _workers(strategy) > 1))


@slip("every worker begins with the longest part", "datasets.off-a-worker-begins-with-its-own-part")
def _() -> None:
    # All workers read the same rows, so that with the sizes of the first worker they have its parts.
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element, strategy = take(), reading.strategy
        if _workers(strategy) == 1 or _policy(reading.source) is not AutoShardPolicy.OFF:
            return element
        return nest.map_structure(
            lambda leaf: _with_parts(lambda parts: _parts_of_all_workers(strategy, leaf)[:len(parts)], leaf), element)

    _steps(_OF_DATASET, change)


@slip("without a hint a dataset is shared out as under AUTO", "datasets.hint-without-a-hint-is-off")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.HINT and _workers(strategy) > 1))


@slip("with too few files FILE shares rows", "datasets.file-needs-a-file-for-each-worker")
def _() -> None:
    @instead(refdist.Strategy, _OF_DATASET)
    def distribute(right: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        try:
            return right(self, dataset, options)
        except ValueError:
            if _policy(dataset) is not AutoShardPolicy.FILE:
                raise
            return right(self, _under(AutoShardPolicy.DATA, dataset), options)


@slip("under AUTO every worker reads all files by rows", "datasets.files-are-dealt-to-workers")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.AUTO and _workers(strategy) > 1))


@slip("each worker shuffles for itself", "datasets.every-row-of-a-shuffled-dataset-is-used-once")
def _() -> None:
    @instead(Dataset, "shuffle")
    def shuffle(right: Any, self: Any, buffer_size: Any, seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return right(self, buffer_size, random.getrandbits(31) if seed is None else seed, *args, **kwargs)


@slip("only a spec makes the size of batches certain", "datasets.off-joins-batches")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.OFF and _workers(strategy) == 1 and None in _numbers_of_rows(dataset)))


@slip("the size that was asked for is that of what a function returns", "datasets.batches-of-unknown-size")
def _() -> None:
    sizes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @instead(Dataset, "batch")
    def batch(right: Any, self: Any, batch_size: Any, *args: Any, **kwargs: Any) -> Any:
        batches = right(self, batch_size, *args, **kwargs)
        sizes[batches] = batch_size
        return batches

    for method in ("map", "with_options"):
        @instead(Dataset, method)
        def transformed(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            batches = right(self, *args, **kwargs)
            if self in sizes:
                sizes[batches] = sizes[self]
            return batches

    _before_distributing(_OF_DATASET, lambda strategy, dataset, options: (
        dataset.unbatch().batch(sizes[dataset])
        if _policy(dataset) is AutoShardPolicy.OFF and dataset in sizes else dataset, options))


@slip("under OFF a batch whose size only the spec tells is cut for itself",
      "datasets.off-cuts-batches-of-certain-size")
def _() -> None:
    _policy_instead(AutoShardPolicy.DATA, lambda strategy, dataset: (
        _policy(dataset) is AutoShardPolicy.OFF and _workers(strategy) == 1 and None not in _numbers_of_rows(dataset)))


@slip("components of unequal length are an error under OFF",
      "datasets.components-are-cut-by-their-own-number-of-rows")
def _() -> None:
    @instead(refdist.Strategy, _OF_DATASET)
    def distribute(right: Any, self: Any, dataset: Any, options: Any = None) -> Any:
        if _policy(dataset) is AutoShardPolicy.OFF and len({*_numbers_of_rows(dataset)}) > 1:
            raise ValueError("the components have different numbers of rows")
        return right(self, dataset, options)


# Functions that make datasets.

@slip("all replicas of a worker get the same element", "dataset_functions.each-replica-takes-the-next-element")
def _() -> None:
    _steps(_OF_FUNCTION, lambda reading, take: _with_parts(lambda parts: parts[:1] * len(parts), take()))


@slip("the function is called for each replica", "dataset_functions.called-once-for-each-worker")
def _() -> None:
    _before_distributing(_OF_FUNCTION, lambda strategy, dataset_fn, options: (
        dataset_fn, refdist.InputOptions(None, _PER_REPLICA)
        if options is None and _workers(strategy) == 1 else options))


@slip("a pipeline's number is that of its first replica", "dataset_functions.a-context-shares-out-the-rows")
def _() -> None:
    _calls(lambda strategy, dataset_fn, context, options: dataset_fn(refdist.InputContext(
        context.num_input_pipelines,
        _first_replica(strategy) if _workers(strategy) > 1 else context.input_pipeline_id,
        context.num_replicas_in_sync)))


@slip("a pipeline tells the replicas of its own worker", "dataset_functions.batch-size-of-a-replica")
def _() -> None:
    _calls(lambda strategy, dataset_fn, context, options: dataset_fn(refdist.InputContext(
        context.num_input_pipelines, context.input_pipeline_id,
        context.num_replicas_in_sync // _workers(strategy))))


@slip("an InputContext is by default the second pipeline", "dataset_functions.input-context")
def _() -> None:
    @instead(refdist.InputContext, "__init__")
    def init(right: Any, self: Any, num_input_pipelines: Any = 1, input_pipeline_id: Any = 1,
             num_replicas_in_sync: Any = 1) -> None:
        right(self, num_input_pipelines, input_pipeline_id, num_replicas_in_sync)


@slip("the batch size of a replica is rounded down", "dataset_functions.batch-size-must-be-divisible")
def _() -> None:
    @instead(refdist.InputContext, "get_per_replica_batch_size")
    def get_per_replica_batch_size(right: Any, self: Any, global_batch_size: Any) -> Any:
        if isinstance(global_batch_size, int):
            global_batch_size -= global_batch_size % self.num_replicas_in_sync
        return right(self, global_batch_size)


@slip("a step with too few elements is left out", "dataset_functions.replicas-without-an-element-get-empty-batches")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        if _workers(reading.strategy) == 1 and 0 in _counts(element):
            raise StopIteration
        return element

    _steps(_OF_FUNCTION, change)


@slip("full batches are padded at the end", "dataset_functions.full-batches-are-not-padded")
def _() -> None:
    def of_any_size(strategy: Any, dataset_fn: Any, context: Any, options: Any) -> Any:
        batches = dataset_fn(context)
        if not isinstance(batches, Dataset) or None in _numbers_of_rows(batches):
            return batches
        spec = nest.map_structure(lambda leaf: leaf.with_rows(None), batches.element_spec)
        return Dataset.from_generator(lambda: batches, output_signature=spec)

    _calls(of_any_size)


@slip("a number that is missing is zero", "dataset_functions.elements-without-rows-cannot-be-made-up")
def _() -> None:
    def completed(strategy: Any, dataset_fn: Any, context: Any, options: Any) -> Any:
        numbers = dataset_fn(context)
        spec = numbers.element_spec if isinstance(numbers, Dataset) else None
        if not isinstance(spec, refdist.TensorSpec) or spec.shape != () or options is not None:
            return numbers
        missing = -int(numbers.cardinality()) % (strategy.num_replicas_in_sync // _workers(strategy))
        zeros = Dataset.from_tensors(np.zeros((), spec.dtype)).repeat(missing)
        return numbers if numbers.cardinality() < 0 else numbers.concatenate(zeros)

    _calls(completed)


@slip("the function is called in the scope of the strategy", "dataset_functions.called-where-the-strategy-is-called")
def _() -> None:
    def in_scope(strategy: Any, dataset_fn: Any, context: Any, options: Any) -> Any:
        with strategy.scope():
            return dataset_fn(context)

    _calls(in_scope)


@slip("in the mode PER_REPLICA there is one pipeline for each worker", "dataset_functions.per-replica-mode")
def _() -> None:
    _calls(lambda strategy, dataset_fn, context, options: dataset_fn(
        refdist.InputContext(_workers(strategy), context.input_pipeline_id, context.num_replicas_in_sync)
        if _mode(options) is _PER_REPLICA else context))


@slip("in the mode PER_REPLICA the first dataset to end ends all", "dataset_functions.per-replica-mode-uneven-ends")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        if _mode(reading.options) is _PER_REPLICA and 0 in _counts(element):
            raise StopIteration
        return element

    _steps(_OF_FUNCTION, change)


@slip("elements are fetched to devices where the dataset is", "dataset_functions.datasets-on-devices")
def _() -> None:
    _before_distributing(_OF_FUNCTION, lambda strategy, dataset_fn, options: (
        dataset_fn, refdist.InputOptions(options.experimental_fetch_to_device, _PER_REPLICA)
        if _mode(options) is _PER_REPLICA else options))


@slip("a worker that has ended repeats its last element", "dataset_functions.workers-end-together")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        if _workers(reading.strategy) > 1 and not any(_counts(element)):
            return reading.memory.get("last", element)
        reading.memory["last"] = element
        return element

    _steps(_OF_FUNCTION, change)


@slip("what a worker without an element gets has no lengths", "dataset_functions.workers-without-an-element")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        if _workers(reading.strategy) == 1 or any(_counts(element)):
            return element
        return _with_parts(lambda parts: [np.zeros([0] * part.ndim, part.dtype) for part in parts], element)

    _steps(_OF_FUNCTION, change)


@slip("the mode PER_REPLICA is possible on several workers", "dataset_functions.per-replica-mode-on-several-workers")
def _() -> None:
    _before_distributing(_OF_FUNCTION, lambda strategy, dataset_fn, options: (
        dataset_fn, refdist.InputOptions(options.experimental_fetch_to_device)
        if _mode(options) is _PER_REPLICA and _workers(strategy) > 1 else options))


@slip("the policy of its options shares out what a function made",
      "dataset_functions.each-worker-reads-its-own-dataset")
def _() -> None:
    def shared_out(strategy: Any, dataset_fn: Any, context: Any, options: Any) -> Any:
        dataset = dataset_fn(context)
        if _policy(dataset) is not AutoShardPolicy.DATA:
            return dataset
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)

    _calls(shared_out)


# Iterators.

@slip("get_next_as_optional ends as next does", "iterators.get-next-as-optional")
def _() -> None:
    @instead(refdist.data.Iterator, "get_next_as_optional")
    def get_next_as_optional(right: Any, self: Any) -> Any:
        optional = right(self)
        if not optional.has_value():
            raise StopIteration
        return optional


@slip("an Optional without a value has None", "iterators.an-optional-without-a-value")
def _() -> None:
    @instead(refdist.experimental.Optional, "get_value")
    def get_value(right: Any, self: Any, name: Any = None) -> Any:
        return right(self, name) if self.has_value() else None


@slip("get_next ends as next does", "iterators.end-of-get-next")
def _() -> None:
    @instead(refdist.data.Iterator, "get_next")
    def get_next(right: Any, self: Any) -> Any:
        return next(self)


@slip("all iterators of a dataset are one", "iterators.iterators-are-independent")
def _() -> None:
    iterators: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @instead(refdist.DistributedDataset, "__iter__")
    def start(right: Any, self: Any) -> Any:
        if self not in iterators:
            iterators[self] = right(self)
        return iterators[self]


@slip("a loop over an iterator begins again", "iterators.an-iterator-is-its-own-iterator")
def _() -> None:
    datasets: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @instead(refdist.DistributedDataset, "__iter__")
    def start(right: Any, self: Any) -> Any:
        iterator = right(self)
        datasets[iterator] = self
        return iterator

    @instead(refdist.DistributedIterator, "__iter__")
    def restart(right: Any, self: Any) -> Any:
        return iter(datasets[self]) if self in datasets else right(self)


@slip("the spec of an element is that of one replica", "iterators.element-spec")
def _() -> None:
    @instead(refdist.DistributedDataset, "element_spec")
    def element_spec(right: Any, self: Any) -> Any:
        return nest.map_structure(
            lambda leaf: leaf.values[0] if isinstance(leaf, refdist.PerReplica) else leaf, right(self))


def _rows_in_specs(rows: Callable[[Any, Any], int | None]) -> None:
    """The specs of parts of a distributed dataset of batches have `rows(strategy, spec of the batch)` rows."""
    distributed = _noted(_OF_DATASET)

    @instead(refdist.DistributedDataset, "element_spec")
    def element_spec(right: Any, self: Any) -> Any:
        spec = right(self)
        if self not in distributed or not isinstance(distributed[self].source, Dataset):
            return spec
        strategy, source, *_ = distributed[self]
        return nest.map_structure(
            lambda parts, batch: _with_parts(
                lambda specs: [part.with_rows(rows(strategy, batch)) for part in specs], parts),
            spec, source.element_spec)


@slip("the spec tells the rows of the whole batch", "iterators.element-spec-of-full-batches")
def _() -> None:
    _rows_in_specs(lambda strategy, batch: batch.shape[0] if batch.shape and _workers(strategy) == 1 else None)


@slip("the spec of full batches is certain on workers, too", "iterators.element-spec-on-workers")
def _() -> None:
    def rows(strategy: Any, batch: Any) -> int | None:
        size, count = batch.shape[0] if batch.shape else None, strategy.num_replicas_in_sync
        return None if size is None or size % count else size // count

    _rows_in_specs(rows)


@slip("a replica takes the next element of all", "iterators.elements-are-taken-outside-of-replicas")
def _() -> None:
    @instead(refdist.DistributedIterator, "__next__")
    def step(right: Any, self: Any) -> Any:
        context = refdist.get_replica_context() if _in_replica() else None
        return right(self) if context is None else context.merge_call(lambda strategy: right(self))


@slip("a worker ends when its own rows have ended", "iterators.workers-end-together")
def _() -> None:
    def change(reading: _Reading, take: Callable[[], Any]) -> Any:
        element = take()
        if _workers(reading.strategy) > 1 and not any(_counts(element)):
            raise StopIteration
        return element

    _steps(_OF_FUNCTION, change)


@slip("an iterator begins again at its end", "iterators.end-of-next")
def _() -> None:
    datasets: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    following: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @instead(refdist.DistributedDataset, "__iter__")
    def start(right: Any, self: Any) -> Any:
        iterator = right(self)
        datasets[iterator] = self
        return iterator

    @instead(refdist.DistributedIterator, "__next__")
    def step(right: Any, self: Any) -> Any:
        try:
            return right(following.get(self, self))
        except StopIteration:
            following[self] = iter(datasets[self])
            raise


@slip("an Optional without a value has no spec", "iterators.an-optional-without-a-value-knows-its-spec")
def _() -> None:
    @instead(refdist.experimental.Optional, "element_spec")
    def element_spec(right: Any, self: Any) -> Any:
        return right(self) if self.has_value() else None


@slip("asking for the spec reads the first element", "iterators.elements-fit-their-spec")
def _() -> None:
    @instead(refdist.DistributedIterator, "element_spec")
    def element_spec(right: Any, self: Any) -> Any:
        next(self, None)
        return right(self)


@slip("a generator of batches is read before it is asked", "iterators.an-error-of-the-dataset-comes-in-its-place")
def _() -> None:
    @instead(refdist.DistributedDataset, "__iter__")
    def start(right: Any, self: Any) -> Any:
        if self.cardinality == refdist.data.UNKNOWN_CARDINALITY:
            deque(right(self), 0)
        return right(self)


# Between workers.

@slip("ONLY_FIRST_REPLICA is the first replica of each worker", "workers.only-first-replica-is-of-the-first-worker")
def _() -> None:
    @instead(refdist.MirroredVariable, "assign")
    def assign(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        first = self.aggregation is refdist.VariableAggregation.ONLY_FIRST_REPLICA
        if not first or not _in_replica() or _workers(self.distribute_strategy) == 1:
            return right(self, value, *args, **kwargs)

        def merge(strategy: Any, values: Any) -> None:
            own = strategy.experimental_local_results(values)[0]
            strategy.extended.update(self, lambda copy, new: copy.assign(new), args=(own,))

        refdist.get_replica_context().merge_call(merge, args=(value,))
        return self.read_value()


def _is_a_sum(variable: Any) -> bool:
    # Whether this is outside of replicas, where the sum over the copies of several workers is the variable's value.
    return (_across_replicas() and variable.aggregation is refdist.VariableAggregation.SUM
            and _workers(variable.distribute_strategy) > 1)


@slip("each worker reads the sum of its own copies", "workers.on-read-variables-are-read-over-all-workers")
def _() -> None:
    @instead(refdist.SyncOnReadVariable, "read_value")
    def read_value(right: Any, self: Any) -> Any:
        return sum(copy.read_value() for copy in self.values) if _is_a_sum(self) else right(self)


@slip("each worker divides a value among its own copies", "workers.on-read-variables-are-assigned-over-all-workers")
def _() -> None:
    @instead(refdist.SyncOnReadVariable, "assign")
    def assign(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        result = right(self, value, *args, **kwargs)
        for copy in self.values if _is_a_sum(self) else ():
            copy.assign(copy.read_value() * _workers(self.distribute_strategy))
        return result


@slip("workers write different values to one variable", "workers.writes-outside-of-replicas-must-agree")
def _() -> None:
    @instead(refdist.MirroredVariable, "assign")
    def assign(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if refdist.has_strategy() or _workers(strategy) == 1:
            return right(self, value, *args, **kwargs)
        with strategy.scope():
            strategy.extended.update(self, lambda copy, new: copy.assign(new), args=(value,))
        return self.read_value()


@slip("a worker's value from a function begins at replica 0", "workers.values-of-a-function-are-local")
def _() -> None:
    @instead(refdist.Strategy, "experimental_distribute_values_from_function")
    def distribute(right: Any, self: Any, value_fn: Any) -> Any:
        if not callable(value_fn) or _workers(self) == 1:
            return right(self, value_fn)
        return right(self, lambda context: value_fn(refdist.experimental.ValueContext(
            context.replica_id_in_sync_group - _first_replica(self), context.num_replicas_in_sync)))


@slip("between workers the mean is divided by the workers", "workers.reduce-is-of-all-replicas")
def _() -> None:
    @instead(refdist.Strategy, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        result, workers = right(self, reduce_op, value, axis), _workers(self)
        if workers == 1 or axis is not None or getattr(reduce_op, "name", str(reduce_op)).upper() != "MEAN":
            return result
        return nest.map_structure(lambda mean: mean * (self.num_replicas_in_sync // workers), result)


@slip("the replicas of each worker are counted from 0", "workers.replicas-are-counted-over-all-workers")
def _() -> None:
    @instead(refdist.ReplicaContext, "replica_id_in_sync_group")
    def replica_id_in_sync_group(right: Any, self: Any) -> Any:
        return right(self) % (self.num_replicas_in_sync // _workers(self.strategy))
