"""What counts as an array for the type checker is what the libraries' arrays have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

import refdist
from refdist import IndexedSlices, MirroredStrategy, Variable
from refdist.array.types import Array
from refdist.data import Dataset


@pytest.mark.parametrize("array", [np.zeros(2), np.array("text"), array_api_strict.zeros(2)])
def test_arrays_of_every_library_have_what_the_protocol_says(array: Array) -> None:
    assert isinstance(array, Array)


def test_what_holds_arrays_is_not_one() -> None:
    values = MirroredStrategy(["GPU:0", "GPU:1"]).experimental_distribute_values_from_function(lambda context: 1.0)
    assert not isinstance(IndexedSlices([1.0], [0]), Array)
    assert not isinstance(Variable([1.0]), Array)
    assert not isinstance(values, Array)
    assert not isinstance([1.0], Array)


class Metres(np.ndarray[Any, Any]):
    """A program's own class."""


TWO = MirroredStrategy(["GPU:0", "GPU:1"])
MORE_THAN_ARRAYS = [np.ma.array([1.0, 100.0], mask=[False, True]), np.matrix([[1.0, 2.0]]),
                    np.rec.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i4")]), np.array([1.0, 2.0]).view(Metres)]
BECOMES_AN_ARRAY: dict[str, Callable[[Any], Any]] = {
    "constant": refdist.constant,
    "with a dtype": lambda x: refdist.constant(x, np.float32),
    "in a list": lambda x: refdist.constant([np.zeros(np.shape(x)), x]),
    "variable": Variable,
    "assign": lambda x: Variable(np.zeros(np.shape(x))).assign(x),
    "all_reduce": lambda x: TWO.run(lambda: refdist.get_replica_context().all_reduce("SUM", {"x": x})),
    "all_gather": lambda x: TWO.run(lambda: refdist.get_replica_context().all_gather(x, 0)),
    "reduce": lambda x: TWO.reduce("MEAN", x, axis=None),
    "reduce of parts": lambda x: TWO.reduce("SUM", refdist.PerReplica([x, x]), axis=0),
    "gather": lambda x: TWO.gather(x, axis=0),
    "slices": lambda x: IndexedSlices(x, np.arange(len(x))),
    "dataset": Dataset.from_tensors,
    "rows": Dataset.from_tensor_slices,
    "map": lambda x: list(Dataset.range(1).map(lambda _: x)),
    "batches": lambda x: list(TWO.experimental_distribute_dataset([x])),
}


@pytest.mark.parametrize("value", MORE_THAN_ARRAYS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("way", BECOMES_AN_ARRAY)
def test_what_is_more_than_an_array_does_not_become_one(way: str, value: Any) -> None:
    with pytest.raises(refdist.errors.InvalidTypeError,
                       match=r"RD25.* is a \w+, and what it has beside its numbers would be lost. .*np.asarray\(x\)"):
        BECOMES_AN_ARRAY[way](value)


@pytest.mark.parametrize("value", MORE_THAN_ARRAYS, ids=lambda value: type(value).__name__)
def test_what_is_more_than_an_array_passes_through_replicas(value: Any) -> None:
    for result in (*TWO.run(lambda x: x, args=(value,)).values, refdist.OneDeviceStrategy("CPU:0").run(lambda: value)):
        assert type(result) is type(value) and repr(result) == repr(value)


def test_a_masked_element_is_refused_too() -> None:
    with pytest.raises(refdist.errors.InvalidTypeError, match=r"RD25\] constant: value is a MaskedConstant"):
        refdist.constant([1.0, np.ma.masked])


def test_an_array_in_a_file_is_an_array(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.arange(4.0))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert TWO.reduce("SUM", rows, axis=0) == 12.0
    assert [type(batch) for batch in Dataset.from_tensor_slices(rows).batch(4)] == [np.ndarray]


def test_a_result_is_fetched_as_an_array_only_if_it_is_one() -> None:
    cluster = refdist.train.ClusterSpec({"worker": ["w:1"], "ps": ["p:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(cluster))
    result = refdist.coordinator.ClusterCoordinator(strategy).schedule(lambda: MORE_THAN_ARRAYS[0])
    with pytest.raises(refdist.errors.InvalidTypeError, match=r"RD25\] RemoteValue.fetch: the result is a MaskedArray"):
        result.fetch()
    assert repr(result.get()) == repr(MORE_THAN_ARRAYS[0])
