"""Older names work, warn, and say what to use instead.  Numbers are behaviours of TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist
from refdist.data import Dataset

TWO = refdist.MirroredStrategy(["GPU:0", "GPU:1"])


def shown(value: Any) -> list[Any]:
    return [part.tolist() for part in value.values]


def deprecated(new: str) -> Any:
    return pytest.warns(DeprecationWarning, match=f"use {new}")


def test_run_v2_of_the_2_0_page_is_run() -> None:
    """CentralStorageStrategy (TensorFlow 2.0), "For Example"; removed since."""
    strategy = refdist.experimental.CentralStorageStrategy()
    with deprecated("run"):
        results = [strategy.experimental_run_v2(lambda x: x + 1, args=(x,))
                   for x in strategy.experimental_distribute_dataset(Dataset.range(5).batch(2))]
    assert [result.tolist() for result in results] == [[1, 2], [3, 4], [5]]


def test_datasets_from_a_function_of_the_2_0_page() -> None:
    """CentralStorageStrategy.experimental_distribute_datasets_from_function (TensorFlow 2.0)."""
    strategy = refdist.experimental.CentralStorageStrategy(["CPU:0", "GPU:0"], "CPU:0")

    def dataset_fn(context: refdist.InputContext) -> Dataset:
        size = context.get_per_replica_batch_size(4)
        dataset = Dataset.from_tensors([[1.0]]).repeat().batch(size)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)

    with deprecated("distribute_datasets_from_function"):
        batch = next(iter(strategy.experimental_distribute_datasets_from_function(dataset_fn)))
    assert [part.shape for part in batch.values] == [(2, 1, 1), (2, 1, 1)]


def test_numpy_arrays_become_a_dataset() -> None:
    """CentralStorageStrategy.experimental_make_numpy_dataset (TensorFlow 2.0)."""
    with deprecated("refdist.data.Dataset.from_tensor_slices"):
        ones = TWO.experimental_make_numpy_dataset(np.ones([10], np.float32))
    assert [shown(x) for x in TWO.experimental_distribute_dataset(ones.batch(4))][-1] == [[1.0], [1.0]]
    with pytest.warns(DeprecationWarning):
        nested = TWO.experimental_make_numpy_dataset({"a": np.arange(4.0), "b": np.arange(8).reshape(4, 2)})
        listed = TWO.experimental_make_numpy_dataset([np.arange(4.0), np.arange(4.0) + 10])
    assert next(iter(nested.batch(2)))["b"].tolist() == [[0, 1], [2, 3]]
    assert next(iter(listed)).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_iterators_that_are_initialized_and_asked() -> None:
    """`make_dataset_iterator`, `make_input_fn_iterator` and `experimental_run`."""
    with pytest.warns(DeprecationWarning):
        iterator = TWO.make_dataset_iterator(Dataset.range(4).batch(2))
        assert [shown(iterator.get_next()), shown(iterator.get_next())] == [[[0], [1]], [[2], [3]]]
        with pytest.raises(IndexError, match="RD29"):
            iterator.get_next()
        iterator.initialize()
        assert shown(TWO.experimental_run(lambda x: x + 1, iterator)) == [[1], [2]]
        assert TWO.experimental_run(lambda: 3) == 3
        seen: list[bool] = []
        made = TWO.make_input_fn_iterator(lambda context: [seen.append(refdist.has_strategy()),
                                                           Dataset.range(4).batch(1)][1])
        assert shown(made.get_next()) == [[0], [1]]
        assert seen == [True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_input_fn_may_return_a_function_that_makes_the_elements() -> None:
    """Observed on TensorFlow 2.21: it is called for each replica in turn, and `initialize` changes nothing."""
    calls = iter(range(100))
    iterator = TWO.make_input_fn_iterator(lambda context: lambda: {"x": np.asarray(next(calls))})
    assert [shown(iterator.get_next()["x"]) for _ in range(2)] == [[0, 1], [2, 3]]
    iterator.initialize()
    assert shown(iterator.get_next_as_optional().get_value()["x"]) == [4, 5]
    for strategy in (refdist.OneDeviceStrategy("CPU:0"), refdist.get_strategy()):
        assert strategy.make_input_fn_iterator(lambda context: lambda: 7).get_next() == 7
        for wrong in (5, None):
            with pytest.raises(ValueError, match=r"RD34.*input_fn returned"):
                strategy.make_input_fn_iterator(lambda context, wrong=wrong: wrong)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_iterators_of_the_default_strategy_are_read_like_others() -> None:
    strategy = refdist.get_strategy()
    for iterator in (strategy.make_dataset_iterator(Dataset.range(3).batch(2)),
                     strategy.make_input_fn_iterator(lambda context: Dataset.range(3).batch(2))):
        assert [iterator.get_next().tolist(), iterator.get_next().tolist()] == [[0, 1], [2]]
        assert not iterator.get_next_as_optional().has_value()
        iterator.initialize()
        assert [element.tolist() for element in iterator] == [[0, 1], [2]]
        iterator.initialize()
        assert strategy.experimental_run(lambda x: x + 1, iterator).tolist() == [1, 2]


def test_a_replication_mode_that_is_not_supported() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="RD34"):
        TWO.make_input_fn_iterator(lambda context: Dataset.range(1), refdist.InputReplicationMode.PER_REPLICA)
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match=r"RD25.*input_fn is 3"):
        TWO.make_input_fn_iterator(3)  # type: ignore[arg-type]


def test_what_is_left_of_sessions() -> None:
    with TWO.scope():
        v = refdist.Variable(1.0)
    with pytest.warns(DeprecationWarning):
        assert TWO.unwrap(refdist.PerReplica([1, 2])) == (1, 2)
        assert [TWO.group(1), TWO.group(None), TWO.group([None]), TWO.group(1, name="all")] == [1, None, None, None]
        assert TWO.configure() is None  # type: ignore[func-returns-value]
        assert TWO.update_config_proto("config") == "config"
        with TWO.scope(), TWO.colocate_vars_with(v):
            assert isinstance(refdist.Variable(2.0), refdist.MirroredVariable)


def test_the_names_of_the_first_version_are_the_same_objects() -> None:
    """tf.compat.v1.distribute."""
    from refdist.compat.v1 import distribute

    strategies = {"MirroredStrategy", "OneDeviceStrategy", "Strategy", "experimental"}
    assert {name for name in distribute.__all__
            if hasattr(refdist, name) and getattr(distribute, name) is not getattr(refdist, name)} == strategies
    with deprecated("distribute_datasets_from_function"), pytest.raises(ValueError, match="RD34"):
        TWO.make_input_fn_iterator(lambda context: 5)


def test_the_strategies_of_the_first_version_reduce_without_an_axis() -> None:
    """tf.compat.v1.distribute.Strategy.reduce; the default strategy and the others need the argument there too."""
    from refdist.compat.v1 import distribute

    for strategy, base in (
            (distribute.MirroredStrategy(["CPU:0", "CPU:1"]), refdist.MirroredStrategy),
            (distribute.OneDeviceStrategy("CPU:0"), refdist.OneDeviceStrategy),
            (distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]),
             refdist.experimental.CentralStorageStrategy)):
        value = strategy.run(lambda: np.float32([1, 2]))
        n = strategy.num_replicas_in_sync
        assert strategy.reduce("SUM", value).tolist() == [n, 2 * n]
        assert strategy.reduce("MEAN", value, 0) == 1.5
        assert isinstance(strategy, distribute.Strategy) and isinstance(strategy, base)
    with deprecated("MultiWorkerMirroredStrategy"):
        assert distribute.experimental.MultiWorkerMirroredStrategy().reduce("SUM", 2.0) == 2.0
    with pytest.raises(TypeError, match="axis"):
        refdist.MirroredStrategy(["CPU:0"]).reduce("SUM", 1.0)  # type: ignore[call-arg]


def test_an_iterator_is_an_iterator() -> None:
    strategy = refdist.compat.v1.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    iterator = strategy.make_dataset_iterator(refdist.data.Dataset.range(4).batch(2))
    assert iter(iterator) is iterator
    assert [[part.tolist() for part in element.values] for element in iterator] == [[[0], [1]], [[2], [3]]]
    with pytest.raises(StopIteration):
        next(iterator)
    iterator.initialize()
    assert [part.tolist() for part in next(iterator).values] == [[0], [1]]


def test_the_server_of_older_names() -> None:
    assert refdist.compat.v1.distribute.Server is refdist.Server
