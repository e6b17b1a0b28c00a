"""Datasets, and which replica gets which rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist
from refdist.data import Dataset
from refdist.data.split import split_batch


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
    """Observed on TensorFlow 2.21 (G3, G32, G7)."""
    pieces = split_batch({"x": np.ones((size, 2), np.float16)}, replicas, 0)
    assert [piece["x"].shape for piece in pieces] == [(length, 2) for length in lengths]


def test_what_cannot_be_split_is_refused_and_one_replica_needs_no_split() -> None:
    two = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with pytest.raises(ValueError, match=r"RD15.*element 0 has a scalar"):
        next(iter(two.experimental_distribute_dataset(Dataset.range(3))))
    with pytest.raises(ValueError, match=r"RD26.*2 and 3 rows"):
        next(iter(two.experimental_distribute_dataset([(np.ones(2), np.ones(3))])))
    assert rows(refdist.OneDeviceStrategy("GPU:0").experimental_distribute_dataset(Dataset.range(3))) == [0, 1, 2]
    for bad in (5, "rows", iter([np.ones(2)]), None):
        with pytest.raises(TypeError, match="RD25"):
            two.experimental_distribute_dataset(bad)


def test_get_next_says_when_it_is_over() -> None:
    iterator = iter(refdist.OneDeviceStrategy("GPU:0").experimental_distribute_dataset([np.ones(1)]))
    assert iterator.get_next().tolist() == [1.0]
    with pytest.raises(refdist.errors.OutOfRangeError):
        iterator.get_next()
