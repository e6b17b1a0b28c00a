"""Datasets, and which replica gets which rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist
from refdist.data import AutoShardPolicy, Dataset, Options, UnevenEnd
from refdist.input.split import piece_sizes, split_batch, split_stream

pytestmark = pytest.mark.filterwarnings("ignore:.*no row of a full batch")


def rows(dataset: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in dataset]


def test_transformations_do_what_their_names_say() -> None:
    numbers = Dataset.range(7)
    assert rows(numbers.batch(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert rows(numbers.batch(3, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    assert rows(numbers.map(lambda x: x * 2).filter(lambda x: x > 6)) == [8, 10, 12]
    assert rows(numbers.skip(2).take(3)) == [2, 3, 4]
    assert rows(numbers.shard(3, 1)) == [1, 4]
    assert rows(Dataset.range(2).repeat(3)) == [0, 1] * 3
    assert rows(Dataset.range(2).repeat().take(5)) == [0, 1, 0, 1, 0]
    assert rows(
        Dataset.from_generator(lambda: iter(([0.5], [1.5])))) == [[0.5], [1.5]]
    assert rows(Dataset.from_tensors([1, 2])) == [[1, 2]]
    pairs = Dataset.from_tensor_slices((np.arange(3), np.arange(3) * 10)).map(lambda a, b: a + b)
    assert rows(pairs) == [0, 11, 22]
    assert rows(numbers) == rows(numbers)


def test_an_empty_dataset_repeated_for_ever_ends() -> None:
    assert rows(Dataset.range(0).repeat()) == []


def test_a_seed_fixes_the_order_and_each_iteration_gets_another() -> None:
    def orders(**options: Any) -> list[list[int]]:
        dataset = Dataset.range(20).shuffle(20, seed=1, **options)
        return [rows(dataset), rows(dataset)]

    assert orders() == orders()
    assert orders()[0] != orders()[1]
    assert orders(reshuffle_each_iteration=None) == orders()
    assert sorted(orders()[0]) == list(range(20))
    again = orders(reshuffle_each_iteration=False)
    assert again[0] == again[1] != list(range(20))
    assert sorted(rows(Dataset.range(20).shuffle(3, seed=2))) == list(range(20))


def test_batches_of_array_rows_are_views() -> None:
    array = np.arange(12.0).reshape(6, 2)
    batches = list(Dataset.from_tensor_slices(array).batch(4))
    assert all(np.shares_memory(batch, array) for batch in batches)
    pieces = split_batch(batches[0], 3, 0)
    assert all(np.shares_memory(piece, array) for piece in pieces[:2])


def test_bad_rows_are_named() -> None:
    ragged = Dataset.from_generator(lambda: iter([np.ones(1), np.ones(1), np.ones(2)]))
    with pytest.raises(ValueError, match=r"RD26.*row 0 has shape \(1,\), row 2 has shape \(2,\)"):
        list(ragged.batch(3))
    with pytest.raises(ValueError, match="RD26"):
        Dataset.from_tensor_slices((np.ones(2), np.ones(3)))
    with pytest.raises(ValueError, match="RD15"):
        Dataset.from_tensor_slices(np.float32(1))


@given(st.integers(0, 40), st.integers(1, 12), st.integers(1, 8))
def test_replicas_see_every_row_once_and_in_order(count: int, batch: int, replicas: int) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
    distributed = strategy.experimental_distribute_dataset(Dataset.range(count).batch(batch))
    for _ in range(2):
        seen = [part for element in distributed for part in strategy.experimental_local_results(element)]
        assert np.concatenate([np.empty(0, np.int64), *seen]).tolist() == list(range(count))
        assert all(part.dtype == np.int64 for part in seen)


@pytest.mark.parametrize(("size", "replicas", "lengths"), [
    (6, 4, [2, 2, 2, 0]), (10, 4, [3, 3, 3, 1]), (8, 2, [4, 4]), (1, 3, [1, 0, 0]), (0, 2, [0, 0])])
def test_a_batch_is_cut_into_pieces_of_the_rounded_up_size(size: int, replicas: int, lengths: list[int]) -> None:
    """Observed on TensorFlow 2.21."""
    pieces = split_batch({"x": np.ones((size, 2), np.float16)}, replicas, 0)
    assert [piece["x"].shape for piece in pieces] == [(length, 2) for length in lengths]


def test_what_cannot_be_split_is_refused_and_one_replica_needs_no_split() -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for scalars in (Dataset.range(3), Dataset.range(4).batch(2).enumerate().map(lambda n, x: (n, x)).unbatch()):
        with pytest.raises(ValueError, match=r"RD15"):
            next(iter(two.experimental_distribute_dataset(scalars)))
    with pytest.raises(ValueError, match=r"RD15.*element 0 has a scalar"):
        next(iter(two.experimental_distribute_dataset([(np.ones(2), 1.0)])))
    with pytest.raises(ValueError, match=r"RD15.*the elements have a scalar component"):
        two.experimental_distribute_dataset(Dataset.from_tensors((np.arange(4), 7)))
    assert rows(refdist.OneDeviceStrategy("GPU:0").experimental_distribute_dataset(Dataset.range(3))) == [0, 1, 2]
    for bad in (5, "rows", iter([np.ones(2)]), None):
        with pytest.raises(TypeError, match="RD25"):
            two.experimental_distribute_dataset(bad)


def test_get_next_says_when_it_is_over() -> None:
    iterator = iter(refdist.OneDeviceStrategy("GPU:0").experimental_distribute_dataset([np.ones(1)]))
    assert iterator.get_next().tolist() == [1.0]
    with pytest.raises(refdist.errors.OutOfRangeError):
        iterator.get_next()


def shown(distributed: Any) -> list[Any]:
    return [[part.tolist() for part in element.values] for element in distributed]


TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def test_a_function_makes_batches_that_replicas_take_in_turn() -> None:
    """Observed on TensorFlow 2.21."""
    contexts: list[Any] = []

    def dataset_fn(context: refdist.InputContext) -> Any:
        contexts.append(context)
        return Dataset.range(6).batch(2)

    distributed = TWO.distribute_datasets_from_function(dataset_fn)
    assert shown(distributed) == shown(distributed) == [[[0, 1], [2, 3]], [[4, 5], []]]
    [context] = contexts
    assert (context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync) == (1, 0, 2)
    assert shown(TWO.distribute_datasets_from_function(lambda _: Dataset.range(4))) == [[0, 1], [2, 3]]
    distributed = refdist.OneDeviceStrategy("GPU:0").distribute_datasets_from_function(lambda _: Dataset.range(2))
    assert rows(distributed) == [0, 1]


def test_a_function_is_called_for_each_replica_when_asked() -> None:
    """Observed on TensorFlow 2.21, without its lasting change of the strategy."""
    options = refdist.InputOptions(experimental_replication_mode=refdist.InputReplicationMode.PER_REPLICA)

    def dataset_fn(context: refdist.InputContext) -> Any:
        assert context.num_input_pipelines == 2
        first = context.input_pipeline_id * 10
        return Dataset.range(first, first + 3 - context.input_pipeline_id).batch(1)

    assert shown(TWO.distribute_datasets_from_function(dataset_fn, options)) == [[[0], [10]], [[1], [11]], [[2], []]]
    seen: list[int] = []
    TWO.distribute_datasets_from_function(lambda context: [seen.append(context.num_input_pipelines)])
    assert seen == [1]


def test_a_scalar_that_is_missing_at_the_end_is_an_error_and_not_dropped() -> None:
    elements = iter(TWO.distribute_datasets_from_function(lambda _: Dataset.range(3)))
    next(elements)
    with pytest.raises(ValueError, match=r"RD15.*replica 1 has no element left in step 1"):
        next(elements)


def test_bad_input_functions_are_refused() -> None:
    for bad in (5, None, "rows"):
        with pytest.raises(TypeError, match="RD25"):
            TWO.distribute_datasets_from_function(bad)
        with pytest.raises(TypeError, match="RD25"):
            TWO.distribute_datasets_from_function(lambda _, bad=bad: bad)
    with pytest.raises(TypeError, match="RD25"):
        TWO.distribute_datasets_from_function(lambda _: Dataset.range(1), options=3)


def test_the_batch_size_of_a_replica() -> None:
    context = refdist.InputContext(num_replicas_in_sync=4)
    assert context.get_per_replica_batch_size(8) == 2
    assert str(context) == "tf.distribute.InputContext(input pipeline id 0, total: 1)"
    with pytest.raises(ValueError, match=r"RD34.*6 and there are 4"):
        context.get_per_replica_batch_size(6)
    with pytest.raises(TypeError, match="RD25"):
        context.get_per_replica_batch_size(2.0)  # type: ignore[arg-type]


def test_optionals_and_reductions_over_a_distributed_dataset() -> None:
    """Observed on TensorFlow 2.21."""
    distributed = TWO.experimental_distribute_dataset(Dataset.range(6).batch(2))
    assert distributed.reduce(0, lambda state, x: state + int(TWO.reduce("SUM", x, axis=0))) == 15
    iterator = iter(TWO.experimental_distribute_dataset(Dataset.range(2).batch(2)))
    first, second = iterator.get_next_as_optional(), iterator.get_next_as_optional()
    assert first.has_value() and [part.tolist() for part in first.get_value().values] == [[0], [1]]
    assert not second.has_value()
    with pytest.raises(ValueError, match="RD29"):
        second.get_value()
    for optional in (first, second):
        assert optional.element_spec.values == iterator.element_spec.values


def test_optionals_are_made_from_values_and_specs() -> None:
    """Observed on TensorFlow 2.21."""
    some = refdist.experimental.Optional.from_value((42, [1.5, 2]))
    assert some.has_value() is np.True_
    assert some.element_spec == (refdist.TensorSpec((), np.int32), refdist.TensorSpec((2,), np.float32))
    assert [part.tolist() for part in some.get_value()] == [42, [1.5, 2.0]]
    none = refdist.experimental.Optional.empty(some.element_spec)
    assert none.has_value() is np.False_
    assert none.element_spec == some.element_spec
    with pytest.raises(ValueError, match="RD29"):
        none.get_value()


def with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


OFF = AutoShardPolicy.OFF
FOUR = refdist.MirroredStrategy([f"GPU:{i}" for i in range(4)])


@pytest.mark.parametrize(("strategy", "rows_and_batch", "expected"), [
    (FOUR, (12, 6), [[[0, 1], [2, 3], [4], [5]], [[6, 7], [8, 9], [10], [11]]]),
    (FOUR, (9, 6), [[[0, 1], [2, 3], [4], [5]], [[6, 7], [8], [], []]]),
    (TWO, (6, 4), [[[0, 1], [2, 3]], [[4, 5], []]]),
    (TWO, (5, 4), [[[0, 1], [2, 3]], [[4], []]]),
    (FOUR, (4, 2), [[[0], [1], [], []], [[2], [3], [], []]]),
    (TWO, (10, 5), [[[0, 1, 2], [3, 4]], [[5, 6, 7], [8, 9]]]),
])
def test_off_cuts_the_stream_with_the_sizes_of_a_full_batch(strategy: Any, rows_and_batch: tuple[int, int],
                                                            expected: list[Any]) -> None:
    """Observed on TensorFlow 2.21."""
    count, batch = rows_and_batch
    dataset = Dataset.range(count).batch(batch)
    for policy in (AutoShardPolicy.OFF, AutoShardPolicy.FILE, AutoShardPolicy.HINT):
        assert shown(strategy.experimental_distribute_dataset(with_policy(dataset, policy))) == expected


def test_data_and_auto_cut_every_batch_by_its_own_size() -> None:
    """Observed on TensorFlow 2.21."""
    dataset = Dataset.range(9).batch(6)
    for policy in (AutoShardPolicy.AUTO, AutoShardPolicy.DATA):
        assert shown(FOUR.experimental_distribute_dataset(with_policy(dataset, policy))) == [
            [[0, 1], [2, 3], [4, 5], []], [[6], [7], [8], []]]


def same(x: Any) -> Any:
    return x


def test_batches_whose_size_is_not_certain_are_cut_one_by_one_under_every_policy() -> None:
    """Observed on TensorFlow 2.21: compute_batch_size looks through a filter, not through a map."""
    def first(dataset: Dataset, policy: AutoShardPolicy = OFF) -> Any:
        return shown(FOUR.experimental_distribute_dataset(with_policy(dataset, policy)))[0]

    rows = Dataset.range(12)
    stream, batches = [[0, 1], [2, 3], [4], [5]], [[0, 1], [2, 3], [4, 5], []]
    for certain in (rows.batch(6).filter(lambda x: True), rows.padded_batch(6), rows.batch(6, True).map(same),
                    rows.batch(6).shard(2, 0), rows.batch(4).rebatch(6, drop_remainder=True),
                    Dataset.from_tensors(np.arange(6)), Dataset.from_tensor_slices(np.arange(12).reshape(2, 6))):
        assert first(certain) == stream
        assert first(certain, AutoShardPolicy.AUTO) == batches
    for uncertain in (rows.batch(6).map(same), rows.batch(4).rebatch(6), rows.batch(6).concatenate(rows.batch(4)),
                      rows.batch(6).unbatch().map(same).batch(6).map(same)):
        assert first(uncertain) == batches


def test_components_are_cut_each_by_its_own_number_of_rows() -> None:
    """Observed on TensorFlow 2.21, under OFF too."""
    for x, y, parts in ((8, 4, ([4, 4], [2, 2])), (5, 1, ([3, 2], [1, 0])), (0, 4, ([0, 0], [2, 2]))):
        for policy in AutoShardPolicy:
            both = with_policy(Dataset.from_tensors({"x": np.arange(x), "y": np.arange(y)}), policy)
            distributed = TWO.experimental_distribute_dataset(both)
            [element] = distributed
            assert ([len(part) for part in element["x"].values], [len(part) for part in element["y"].values]) == parts
            assert np.concatenate(element["x"].values).tolist() == [*range(x)]
            for name in ("x", "y"):
                for spec, part in zip(distributed.element_spec[name].values, element[name].values, strict=True):
                    assert spec.is_compatible_with(part)
    zipped = Dataset.zip(Dataset.range(12).batch(6), Dataset.range(12).batch(4))
    assert [shown([part]) for part in next(iter(TWO.experimental_distribute_dataset(with_policy(zipped, OFF))))] == [
        [[[0, 1, 2], [3, 4, 5]]], [[[0, 1], [2, 3]]]]
    refused = with_policy(Dataset.from_tensors((np.arange(6), np.arange(4))), OFF)
    for uneven in (UnevenEnd.PAD, UnevenEnd.ERROR):
        with pytest.raises(ValueError, match=r"RD26|RD18"):
            list(FOUR.experimental_distribute_dataset(refused, refdist.InputOptions(uneven_end=uneven)))


@given(st.integers(0, 40), st.integers(1, 12), st.integers(2, 8))
def test_the_stream_loses_and_repeats_no_row(count: int, batch: int, replicas: int) -> None:
    batches = [np.arange(start, min(start + batch, count)) for start in range(0, count, batch)]
    steps = list(split_stream(batches, piece_sizes(batch, replicas), replicas))
    assert all(len(step) == replicas for step in steps)
    assert [int(row) for step in steps for piece in step for row in piece] == list(range(count))
    sizes = [batch // replicas + (i < batch % replicas) for i in range(replicas)]
    assert all([len(piece) for piece in step] == sizes for step in steps[:-1])


def test_options_are_checked_and_kept_by_transformations() -> None:
    dataset = with_policy(Dataset.range(4).batch(2), OFF).map(lambda x: x).take(1).repeat(2).shuffle(2, seed=0)
    assert dataset.options().experimental_distribute.auto_shard_policy is OFF
    with pytest.raises(TypeError, match="RD25"):
        dataset.with_options("OFF")  # type: ignore[arg-type]
