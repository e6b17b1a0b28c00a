"""What a variable is as an object: its text, devices, classes and copies; NumPy's functions of it; shared arrays."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation as Agg
from refdist import VariableSynchronization as Sync

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
FOUR = refdist.MirroredStrategy([f"CPU:{i}" for i in range(4)])
PLACE = refdist.OneDeviceStrategy("CPU:1")
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")


def made(strategy: Any, initial_value: Any, **options: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(initial_value, **options)


def test_the_text_of_a_variable_shows_every_copy() -> None:
    v = made(TWO, 1.0, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
    assert repr(v).splitlines()[1] == "  0..1 CPU:0 .. CPU:1: float32 scalar 1."


def test_copies_are_on_the_devices_of_the_strategy() -> None:
    v = made(TWO, 1.0)
    assert [copy.device[-5:] for copy in v.values] == ["CPU:0", "CPU:1"] and v.device[-5:] == "CPU:0"
    assert [part[-5:] for part in TWO.run(lambda: v.device).values] == ["CPU:0", "CPU:1"]
    assert made(PLACE, 1.0).device[-5:] == "CPU:1"
    placed: list[str] = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        created = next_creator(**kwargs)
        placed.append(created.device[-5:])
        return created

    with refdist.variable_creator_scope(creator):
        made(TWO, 1.0)
    assert placed == ["CPU:0", "CPU:1"]


def test_a_creator_outside_a_scope_is_told_whose_copy_it_makes() -> None:
    seen: list[tuple[bool, bool, bool]] = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        seen.append((kwargs["use_resource"], kwargs["distribute_strategy"] is TWO, callable(kwargs["initial_value"])))
        return next_creator(**kwargs)

    with refdist.variable_creator_scope(creator):
        made(TWO, 1.0)
    assert seen == [(True, True, False), (True, True, True)]


def test_a_creator_inside_a_scope_gets_every_argument() -> None:
    seen: list[list[str]] = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        seen.append(sorted(kwargs))
        return next_creator(**kwargs)

    with TWO.scope(), refdist.variable_creator_scope(creator):
        refdist.Variable(1.0)
    assert seen == [["aggregation", "caching_device", "constraint", "dtype", "experimental_enable_variable_lifting",
                     "import_scope", "initial_value", "name", "shape", "synchronization", "trainable",
                     "validate_shape", "variable_def"]]


def test_which_strategy_a_variable_is_of() -> None:
    assert made(PLACE, 1.0).distribute_strategy is PLACE
    assert refdist.Variable(1.0).distribute_strategy is None


def test_the_classes_of_a_variable() -> None:
    mirrored, central = made(TWO, 1.0), made(CENTRAL, 1.0)
    assert isinstance(mirrored, refdist.Variable) and isinstance(mirrored, refdist.DistributedValues)
    assert isinstance(central, refdist.Variable) and not isinstance(central, refdist.DistributedValues)
    assert not isinstance(mirrored, np.ndarray)


@pytest.mark.parametrize(("strategy", "options"), [
    (TWO, {}), (TWO, {"synchronization": Sync.ON_READ, "aggregation": Agg.SUM}), (CENTRAL, {}), (PLACE, {})])
def test_a_deep_copy_is_a_variable_of_the_same_strategy(strategy: Any, options: Any) -> None:
    v = made(strategy, 1.0, **options)
    twin = copy.deepcopy(v)
    before = float(v)
    twin.assign(8.0)
    assert type(twin) is type(v) and twin.distribute_strategy is strategy
    assert strategy.extended.variable_created_in_scope(twin)
    assert (float(v), float(twin)) == (before, 8.0)


def test_numpy_s_functions_read_a_variable() -> None:
    v, w = made(TWO, [1.0, 2.0, 3.0]), made(TWO, 2.0)
    assert float(np.float32([1, 2, 3]) @ v) == 14.0
    assert np.exp(w * 0.0) == 1.0
    assert np.add(np.float32([1]), w).tolist() == [3.0]
    assert v.assign_add([1.0, 1.0, 1.0]).numpy().tolist() == [2.0, 3.0, 4.0]


def test_a_variable_does_not_share_the_array_it_was_given_or_returns() -> None:
    array = np.float32([1, 2])
    v = made(TWO, array)
    array[0] = 9
    assert v.numpy().tolist() == [1.0, 2.0]
    v.assign(array)
    array[1] = 9
    assert v.numpy().tolist() == [9.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        v.numpy()[0] = 3.0


def test_a_value_of_another_dtype_is_converted_where_its_kind_is_kept() -> None:
    v = made(TWO, 1.0)
    v.assign(np.float64(1.5))
    assert v.numpy() == np.float32(1.5) and v.dtype == np.float32
    v.assign(np.int64(2))
    assert v.numpy() == np.float32(2.0) and v.dtype == np.float32


def test_equal_copies_share_one_array() -> None:
    v = made(FOUR, np.zeros(1000, np.float32), aggregation=Agg.MEAN)
    v.assign_add(np.ones(1000, np.float32))
    FOUR.run(lambda: v.assign_sub(np.ones(1000, np.float32) * _replica_id()))
    FOUR.extended.update(v, lambda x: x.assign(x * 2.0))
    assert len({id(part.read_value()) for part in v.values}) == 1


def _replica_id() -> int:
    number: int = refdist.get_replica_context().replica_id_in_sync_group
    return number
