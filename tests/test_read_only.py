"""Whoever is handed an array that belongs to somebody else cannot write to it: replicas, merge and update functions,
functions of datasets, readers of elements."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import nest
from refdist.array.convert import read_only
from refdist.data import Dataset
from refdist.input.options import InputOptions, InputReplicationMode

NOTE = "write to a copy: `x = x.copy()`"
COUNTS = pytest.mark.parametrize("count", [1, 2])


def strategy_of(count: int) -> Any:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def arrays_of(value: Any) -> list[np.ndarray]:
    """Every array in a nest, also inside distributed values and IndexedSlices."""
    arrays = []
    for leaf in nest.flatten(value):
        if isinstance(leaf, refdist.DistributedValues):
            arrays += [array for part in leaf.values for array in arrays_of(part)]
        elif isinstance(leaf, refdist.IndexedSlices):
            arrays += [part for part in (leaf.values, leaf.indices, leaf.dense_shape) if part is not None]
        elif isinstance(leaf, np.ndarray):
            arrays.append(leaf)
    return arrays


def locked(value: Any, original: np.ndarray | None = None) -> None:
    """Asserts that no array can be written to and, where the user's array is given, that none is a copy."""
    arrays = arrays_of(value)
    assert arrays
    for array in arrays:
        assert not array.flags.writeable
        assert original is None or np.shares_memory(array, original)
    assert original is None or original.flags.writeable


def memory_map(data: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "rows"
        data.tofile(name)
        return np.memmap(name, data.dtype, "r+", shape=data.shape)


SUBCLASSES = {
    "ndarray": lambda: np.arange(6.0).reshape(3, 2), "memmap": lambda: memory_map(np.arange(6.0).reshape(3, 2)),
    "matrix": lambda: np.asmatrix(np.ones((3, 2))), "masked": lambda: np.ma.masked_array(np.ones(3), [0, 1, 0]),
    "records": lambda: np.rec.array([(1, 2.0)] * 3, dtype=[("a", int), ("b", float)]),
    "text": lambda: np.array(["a", "bc", "d"]), "objects": lambda: np.array([b"a\0", "b", None], object),
    "scalar array": lambda: np.array(1.0), "empty": lambda: np.zeros((0, 2)),
    "strided": lambda: np.ones((6, 4))[::2, 1:3],
    "reversed": lambda: np.arange(3.0)[::-1], "broadcast": lambda: np.broadcast_to(np.ones(2), (3, 2)),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_read_only_view_is_of_the_same_type_and_never_a_copy(name: str) -> None:
    original = SUBCLASSES[name]()
    before = original.flags.writeable
    view = read_only(original)
    assert type(view) is type(original) and view.dtype == original.dtype and view.shape == original.shape
    assert not view.size or np.shares_memory(view, original)
    assert not view.flags.writeable and original.flags.writeable is before
    assert read_only(view) is view


@COUNTS
@pytest.mark.parametrize("shape", ["plain", "keyword", "list", "dict", "PerReplica", "in a PerReplica", "Mirrored",
                                   "slices", "PerReplica of slices", "values"])
def test_no_argument_of_run_can_be_written_to(shape: str, count: int) -> None:
    strategy, original = strategy_of(count), np.ones((2, 2))
    slices = refdist.IndexedSlices(original, [0, 1], [4, 2])
    args: tuple[Any, ...] = {
        "plain": (original,), "keyword": (), "list": ([original],), "dict": ({"a": (original,)},),
        "PerReplica": (refdist.PerReplica([original] * count),), "slices": (slices,),
        "in a PerReplica": (refdist.PerReplica([{"a": [original]}] * count),),
        "Mirrored": (refdist.Mirrored([original] * count),),
        "PerReplica of slices": (refdist.PerReplica([slices] * count),),
        "values": (strategy.experimental_distribute_values_from_function(lambda context: original),)}[shape]
    seen: list[Any] = []
    strategy.run(lambda *a, **k: seen.append((a, k)), args=args,
                 kwargs={"x": [original]} if shape == "keyword" else None)
    assert len(seen) == count
    for value in seen:
        locked(value)
        assert any(np.shares_memory(array, original) for array in arrays_of(value))
    assert original.flags.writeable and slices.values.flags.writeable


@COUNTS
def test_the_next_replica_and_the_next_epoch_get_what_the_user_gave(count: int) -> None:
    strategy, original = strategy_of(count), np.arange(4.0)

    def step(x: Any) -> None:
        x -= x.mean()

    def sort(x: Any) -> None:
        x.sort()

    def store(x: Any) -> None:
        x[0] = 7.0

    def into(x: Any) -> None:
        np.add(x, 1, out=x)

    def shuffle(x: Any) -> None:
        np.random.default_rng(0).shuffle(x)

    for write in (step, sort, store, into, shuffle):
        for value in (original, refdist.PerReplica([original] * count)):
            with pytest.raises(ValueError, match="read-only") as caught:
                strategy.run(write, args=(value,))
            assert type(caught.value) is ValueError
            assert sum(NOTE in note for note in caught.value.__notes__) == 1
    assert original.tolist() == [0.0, 1.0, 2.0, 3.0]
    strategy.run(lambda x: step(x.copy()), args=(original,))


@COUNTS
def test_a_distributed_value_that_a_replica_finds_in_its_closure_is_read_only(count: int) -> None:
    strategy, original = strategy_of(count), np.ones(2)
    mirrored = strategy.extended.broadcast_to(original, strategy.run(lambda: np.ones(1)))
    for value in (refdist.PerReplica([original] * count), refdist.Mirrored([original] * count), mirrored):
        strategy.run(lambda value=value: locked(np.asarray(value)))
        assert strategy.run(lambda value=value: np.array(value).flags.writeable) is True
    locked(mirrored)
    locked(strategy.extended.broadcast_to(original, "CPU:0"))
    assert original.flags.writeable


@COUNTS
def test_a_merge_function_cannot_write_to_what_replicas_contributed_nor_they_to_its_result(count: int) -> None:
    strategy = strategy_of(count)
    result = np.zeros(2)

    def merge(strategy: Any, x: Any, inside: Any) -> Any:
        locked([x, inside])
        return [result, {"a": result}, refdist.PerReplica([result] * count)]

    def step() -> None:
        original = np.ones(2)
        replica = refdist.get_replica_context()
        inside = [original, refdist.IndexedSlices(original, [0, 1])]
        locked(replica.merge_call(merge, args=(original,), kwargs={"inside": inside}), result)
        locked(replica.merge_call(lambda strategy: result), result)
        original += 1

    strategy.run(step)
    with pytest.raises(ValueError, match="read-only") as caught:
        strategy.run(lambda: refdist.get_replica_context().merge_call(lambda s: np.ones(2)).sort())
    assert any(NOTE in note for note in caught.value.__notes__)


@COUNTS
def test_an_update_cannot_write_to_its_arguments(count: int) -> None:
    strategy, original = strategy_of(count), np.ones(2)
    with strategy.scope():
        v = refdist.Variable([1.0, 2.0])

    def update(copy: Any, x: Any) -> None:
        locked(x, original)
        x += 1

    for call in (lambda: strategy.extended.update(v, update, args=(original,)),
                 lambda: strategy.extended.update_non_slot(["CPU:0"], lambda x: update(None, x), args=(original,)),
                 lambda: strategy.run(lambda x: strategy.extended.update(v, update, args=(x,)), args=(original,))):
        with strategy.scope(), pytest.raises(ValueError, match="read-only") as caught:
            call()
        assert sum(NOTE in note for note in caught.value.__notes__) == 1
    assert original.tolist() == [1.0, 1.0]


class Batches:
    """An iterable of one's own."""

    def __init__(self, *batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


SOURCES: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda x: [x, x], "list of nests": lambda x: [{"a": x, "b": (x, x)}], "iterable": lambda x: Batches(x),
    "from_tensors": lambda x: Dataset.from_tensors(x).repeat(2),
    "from_tensor_slices": lambda x: Dataset.from_tensor_slices(x).batch(2),
    "nest of slices": lambda x: Dataset.from_tensor_slices({"a": x, "b": (x, x)}).batch(2),
    "shuffled": lambda x: Dataset.from_tensor_slices(x).shuffle(4).batch(2),
    "from_generator": lambda x: Dataset.from_generator(lambda: iter([x, x])),
    "generator with a signature": lambda x: Dataset.from_generator(
        lambda: iter([x, x.tolist()]), output_signature=refdist.TensorSpec((4, 2), np.float64)),
    "stacked": lambda x: Dataset.from_generator(lambda: iter([x, x])).batch(2),
    "padded": lambda x: Dataset.from_tensor_slices(x).padded_batch(3, [3]),
    "rebatched": lambda x: Dataset.from_tensor_slices(x).batch(3).rebatch(2),
    "unbatched": lambda x: Dataset.from_tensors(x).unbatch().batch(2),
    "mapped to the user's": lambda x: Dataset.range(2).map(lambda n: (x, x)),
    "mapped in threads": lambda x: Dataset.range(2).map(lambda n: (x, x), num_parallel_calls=2),
    "cached": lambda x: Dataset.range(2).map(lambda n: x).cache(), "range": lambda x: Dataset.range(8).batch(4),
    "shuffled range": lambda x: Dataset.range(8).shuffle(4).batch(4),
    "prefetched": lambda x: Dataset.from_tensors(x).repeat(2).prefetch(1),
    "zipped": lambda x: Dataset.zip(Dataset.from_tensors(x), Dataset.from_tensors(x)).repeat(2),
    "memory map": lambda x: Dataset.from_tensor_slices(memory_map(x)).batch(2),
    "shuffled memory map": lambda x: Dataset.from_tensor_slices(memory_map(x)).shuffle(4).batch(2),
    "text": lambda x: Dataset.from_tensor_slices(np.array(["a", "b"])).batch(2),
}


@pytest.mark.parametrize("source", [name for name in SOURCES if not name.startswith(("list", "iterable"))])
def test_no_element_of_a_dataset_can_be_written_to(source: str) -> None:
    original = np.arange(8.0).reshape(4, 2)
    dataset = SOURCES[source](original)
    dataset = dataset.map(lambda *element: [locked(element), element if len(element) > 1 else element[0]][1]) \
        .filter(lambda *element: [locked(element), True][1])
    for _ in range(2):
        for element in dataset.as_numpy_iterator():
            locked(element)
    assert original.flags.writeable and original.tolist() == np.arange(8.0).reshape(4, 2).tolist()


@COUNTS
@pytest.mark.parametrize("fetch", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_no_element_of_a_distributed_dataset_can_be_written_to(source: str, fetch: bool, count: int) -> None:
    original = np.arange(8.0).reshape(4, 2)
    strategy = strategy_of(count)
    options = InputOptions(experimental_fetch_to_device=fetch)
    per_replica = options._replace(experimental_replication_mode=InputReplicationMode.PER_REPLICA)
    for dataset in (strategy.experimental_distribute_dataset(SOURCES[source](original), options),
                    strategy.distribute_datasets_from_function(
                        lambda context: [context.input_pipeline_id, SOURCES[source](original)][1], options),
                    strategy.distribute_datasets_from_function(
                        lambda context: [context.input_pipeline_id, SOURCES[source](original)][1], per_replica)):
        for element in dataset:
            locked(element)
    assert original.flags.writeable


@pytest.mark.parametrize("rows", [Dataset.from_tensor_slices, lambda x: Dataset.from_generator(lambda: iter(x))])
def test_a_function_of_a_dataset_that_writes_is_told_what_to_do(rows: Any) -> None:
    original = np.ones((3, 2))

    def center(x: Any) -> Any:
        x -= x.mean()
        return x

    for dataset, method in ((rows(original).map(center), "map"),
                            (rows(original).map(center, num_parallel_calls=2), "map"),
                            (rows(original).filter(center), "filter"), (rows(original).flat_map(center), "flat_map")):
        with pytest.raises(ValueError, match="read-only") as caught:
            list(dataset)
        assert type(caught.value) is ValueError
        assert caught.value.__notes__[0] == f"raised in Dataset.{method} at element 0"
        assert NOTE in caught.value.__notes__[1]
    assert original.tolist() == np.ones((3, 2)).tolist()
    assert [x.tolist() for x in rows(original).map(lambda x: x * 2)] == [[2.0, 2.0]] * 3


@COUNTS
def test_other_errors_of_a_replica_get_no_note_about_writing(count: int) -> None:
    def step() -> None:
        raise ValueError("not about arrays", 1)

    with pytest.raises(ValueError, match="not about arrays") as caught:
        strategy_of(count).run(step)
    assert not any(NOTE in note for note in getattr(caught.value, "__notes__", ()))


@COUNTS
def test_a_variable_keeps_what_it_was_assigned_when_the_user_goes_on_writing(count: int) -> None:
    strategy, original = strategy_of(count), np.ones(2, np.float32)
    with strategy.scope():
        v = refdist.Variable([0.0, 0.0], aggregation=refdist.VariableAggregation.ONLY_FIRST_REPLICA)
    strategy.run(lambda x: v.assign(x), args=(original,))
    original[0] = 5.0
    assert v.numpy().tolist() == [1.0, 1.0]


def test_gpu_inputs_are_read_only(two: Any) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    original = two.ones(2)

    def write(x: Any) -> None:
        x += 1

    for value in (original, np.ones(2), strategy.run(lambda: two.ones(2))):
        with pytest.raises(ValueError, match="read-only"):
            strategy.run(write, args=(value,))
    for element in strategy.experimental_distribute_dataset([np.ones(4)]):
        with pytest.raises(ValueError, match="read-only"):
            element.values[1].fill(1)
    original += 1
    assert two.asnumpy(original).tolist() == [2.0, 2.0]
