"""Runs repeat exactly, and the order in which replicas run changes nothing but the recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist


def program(count: int, rows: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Every kind of meeting: creation, all_reduce, all_gather, merge_call, updates, nested runs."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
    with strategy.scope():
        total = refdist.Variable(np.zeros(3, np.float32), aggregation=refdist.VariableAggregation.SUM)
        seen = refdist.Variable(0.0, synchronization=refdist.VariableSynchronization.ON_READ,
                                aggregation=refdist.VariableAggregation.SUM)

    def step(part: Any) -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        local = part.sum(axis=0)
        mean = context.all_reduce("MEAN", local)
        total.assign_add(local * (1 + context.replica_id_in_sync_group))
        seen.assign_add(float(part.shape[0]))
        gathered = context.all_gather(part, axis=0)
        merged = context.merge_call(lambda s, x: s.reduce("SUM", x, axis=None), args=(local,))
        made = refdist.Variable(lambda: local, name="made")
        return mean, gathered, merged, made.read_value()

    results = []
    for batch in strategy.experimental_distribute_dataset(
            refdist.data.Dataset.from_tensor_slices(rows).batch(2 * count)):
        results.append(strategy.run(step, args=(batch,)))
    values = [np.asarray(value).tobytes() for result in results for leaf in result
              for value in strategy.experimental_local_results(leaf)]
    return (*values, total.numpy().tobytes(), seen.numpy().tobytes())


ROWS = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)


def test_ten_runs_give_one_recording() -> None:
    recordings = []
    for _ in range(10):
        with refdist.record() as recording:
            program(4, ROWS)
        recordings.append(recording.events)
    assert len(recordings[0]) > 100
    assert all(events == recordings[0] for events in recordings)


@pytest.mark.parametrize("seed", range(8))
def test_every_order_of_the_replicas_gives_the_same_bits(seed: int) -> None:
    plain = program(4, ROWS)
    with refdist.config.replica_order(seed):
        assert program(4, ROWS) == plain


def test_a_seed_gives_another_order_and_always_the_same_one() -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(6)])

    def orders(seed: int) -> list[int]:
        seen: list[int] = []
        with refdist.config.replica_order(seed):
            for _ in range(3):
                strategy.run(lambda: seen.append(refdist.get_replica_context().replica_id_in_sync_group))
        return seen

    assert orders(1) == orders(1) != orders(2)
    assert sorted(orders(1)) == sorted(list(range(6)) * 3)
    assert orders(1)[:6] != list(range(6))


def test_a_program_that_depends_on_the_order_is_found_out() -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(6)])
    outside: list[int] = []

    def racing() -> int:
        outside.append(refdist.get_replica_context().replica_id_in_sync_group)
        return len(outside)

    plain = strategy.run(racing).values
    outside.clear()
    with refdist.config.replica_order(1):
        assert strategy.run(racing).values != plain


FLOATS = st.floats(-1e3, 1e3, width=32)


@given(st.integers(1, 6), st.lists(st.lists(FLOATS, min_size=2, max_size=2), min_size=1, max_size=13))
def test_gather_then_slice_is_the_identity(count: int, rows: list[list[float]]) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
    array = np.asarray(rows, np.float32)
    [parts] = strategy.experimental_distribute_dataset([array])
    gathered = strategy.gather(parts, axis=0)
    assert gathered.tobytes() == array.tobytes()
    start = 0
    for part in strategy.experimental_local_results(parts):
        assert np.array_equal(gathered[start:start + len(part)], part)
        start += len(part)
    assert start == len(array)


@given(st.integers(1, 6), st.lists(st.integers(-1000, 1000), min_size=1, max_size=20))
def test_n_replicas_equal_one_device(count: int, numbers: list[int]) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
    alone = refdist.OneDeviceStrategy("GPU:0")
    array = np.asarray(numbers, np.int64)
    [parts] = strategy.experimental_distribute_dataset([array])
    for op in ("SUM", "MEAN"):
        assert strategy.reduce(op, parts, axis=0) == alone.reduce(op, array, axis=0)


@given(st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=2, max_size=9))
def test_sums_are_taken_from_left_to_right(rows: list[list[float]]) -> None:
    array = np.asarray(rows, np.float32)
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(len(rows))])
    expected = array[0]
    for row in array[1:]:
        expected = expected + row
    result = strategy.run(lambda: refdist.get_replica_context().all_reduce(
        "SUM", array[refdist.get_replica_context().replica_id_in_sync_group]))
    assert all(value.tobytes() == expected.tobytes() for value in result.values)
    assert strategy.reduce("SUM", refdist.PerReplica(array), axis=None).tobytes() == expected.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 100_000, pytest.param((1 << 22) + 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "complex64"])
def test_large_sums_are_taken_in_the_same_order(size: int, dtype: str) -> None:
    draw = np.random.default_rng(1)
    parts = [draw.standard_normal(size).astype(dtype) * 10 for _ in range(5)]
    expected = parts[0]
    for part in parts[1:]:
        expected = expected + part
    backend = refdist.MirroredStrategy(["GPU:0"]).extended.backend
    assert backend.sum(parts).tobytes() == expected.tobytes()
    strided = [np.repeat(part, 2)[::2] for part in parts]
    assert backend.sum(strided).tobytes() == expected.tobytes()


def test_the_gradient_of_an_all_reduce_is_an_all_reduce_of_the_gradients() -> None:
    # y = sum over replicas of x^2, then times (id + 1); by hand, dy/dx = 2 x (1 + 2).
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def step() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        x = np.float32(2.0)
        weight = np.float32(context.replica_id_in_sync_group + 1)
        y = context.all_reduce("SUM", x * x) * weight
        by_sum = context.all_reduce("SUM", weight)
        return y, by_sum * 2 * x

    y, gradient = strategy.run(step)
    assert [float(value) for value in y.values] == [8.0, 16.0]
    assert [float(value) for value in gradient.values] == [12.0, 12.0]


def test_the_gradient_of_an_all_gather_is_the_slice_of_the_summed_gradients() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def step() -> Any:
        context = refdist.get_replica_context()
        assert context is not None
        i = context.replica_id_in_sync_group
        x = np.asarray([1.0, 2.0], np.float32)
        context.all_gather(x, axis=0)
        by_gathered = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32)
        return context.all_reduce("SUM", by_gathered)[2 * i:2 * i + 2]

    assert [value.tolist() for value in strategy.run(step).values] == [[2.0, 4.0], [6.0, 8.0]]


def test_replicas_may_meet_inside_map_structure() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def step() -> Any:
        replica = refdist.get_replica_context()
        return refdist.nest.map_structure(lambda leaf: replica.all_reduce("SUM", leaf), {"a": 1.0, "b": [2.0, (3.0,)]})

    results = strategy.run(step)
    assert [float(leaf.values[1]) for leaf in refdist.nest.flatten(results)] == [2.0, 4.0, 6.0]
