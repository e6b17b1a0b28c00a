"""bfloat16 and its relatives, which NumPy knows as extension dtypes: floats stay what they are, small ints are ints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refdist

ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own")

FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float6_e2m3fn", "float4_e2m1fn")
INTS = ("int4", "uint4", "int2", "uint2")
SUM, MEAN = refdist.VariableAggregation.SUM, refdist.VariableAggregation.MEAN
ON_READ = refdist.VariableSynchronization.ON_READ
STRATEGIES = {
    "mirrored 2": refdist.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central 2": refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),
    "mirrored 1": refdist.MirroredStrategy(["CPU:0"]),
    "one device": refdist.OneDeviceStrategy("CPU:0"),
}


@pytest.fixture(params=STRATEGIES)
def strategy(request: Any) -> Any:
    return STRATEGIES[request.param]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


def rc() -> Any:
    return refdist.get_replica_context()


def local(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]


@pytest.mark.parametrize("name", FLOATS)
def test_means_of_floats_keep_their_dtype(strategy: Any, name: str) -> None:
    dtype = dtype_of(name)

    def contribution() -> Any:
        return np.array([1, 1.5], dtype)
    value = strategy.run(contribution)
    means = {
        "all_reduce": local(strategy, strategy.run(lambda: rc().all_reduce("MEAN", contribution()))),
        "scalar": local(strategy, strategy.run(lambda: rc().all_reduce("MEAN", contribution()[1]))),
        "reduce": strategy.reduce("MEAN", value, axis=None),
        "plain": strategy.reduce("MEAN", contribution(), axis=None),
        "reduce along": strategy.reduce("MEAN", strategy.run(lambda: contribution()[None]), axis=0),
        "reduce_to": strategy.extended.reduce_to("MEAN", value, "CPU:0"),
    }
    for call, array in means.items():
        assert array.dtype == dtype, call
        assert np.ravel(array)[-1] == 1.5, call
    assert strategy.reduce("SUM", value, axis=None).dtype == dtype
    slices = refdist.IndexedSlices(np.array([[2.0]], dtype), [0])
    assert local(strategy, strategy.run(lambda: rc().all_reduce("MEAN", slices))).values.dtype == dtype


@pytest.mark.parametrize("name", FLOATS)
def test_variables_of_floats_keep_their_dtype(strategy: Any, name: str) -> None:
    dtype = dtype_of(name)
    with strategy.scope():
        v = refdist.Variable(np.zeros(2, dtype), aggregation=MEAN)
        read = refdist.Variable(np.zeros(2, dtype), aggregation=MEAN, synchronization=ON_READ)
    strategy.run(lambda: [w.assign_add(np.array([1, 1.5], dtype)) for w in (v, read)])
    assert v.numpy().tolist() == [1.0, 1.5] and read.numpy().tolist() == [1.0, 1.5]
    assert (v.numpy().dtype, read.numpy().dtype) == (dtype, dtype)


@pytest.mark.parametrize("name", INTS)
def test_means_of_small_ints_are_floats_as_those_of_int8(strategy: Any, name: str) -> None:
    dtype = dtype_of(name)
    value = strategy.run(lambda: np.array([0, 1], dtype))
    # The page of OneDeviceStrategy says that its value is returned.
    returned = dtype if isinstance(strategy, refdist.OneDeviceStrategy) else np.float32
    assert strategy.reduce("MEAN", value, axis=None).dtype == returned
    assert strategy.reduce("MEAN", value, axis=0).dtype == np.float32
    assert strategy.reduce("SUM", value, axis=None).dtype == dtype
    with strategy.scope():
        if strategy.num_replicas_in_sync > 1 and "Mirrored" in type(strategy).__name__:
            with pytest.raises(ValueError, match="RD13"):
                refdist.Variable(np.zeros(2, dtype), aggregation=MEAN)
        v = refdist.Variable(np.zeros(2, dtype), aggregation=SUM, synchronization=ON_READ)
    v.assign(np.array([1, 0], dtype))
    assert v.numpy().dtype == dtype and v.numpy().tolist() == [1, 0]


def test_means_are_rounded_once() -> None:
    """The divisor is exact, although bfloat16 has no 257 and float16 no 2049."""
    means = {}
    for dtype, count in ((dtype_of("bfloat16"), 257), (np.dtype(np.float16), 2049), (np.dtype(np.float16), 70_000)):
        parts = refdist.get_strategy().reduce("MEAN", np.where(np.arange(count) == 0, 1000, 0).astype(dtype), axis=0)
        means[count] = float(parts), float((np.float32(1000) / np.float32(count)).astype(dtype))
    assert all(mean == exact for mean, exact in means.values()), means


def test_casts_lose_no_kind() -> None:
    bfloat16, int4 = dtype_of("bfloat16"), dtype_of("int4")
    assert refdist.constant(np.float32(1.5), bfloat16).dtype == bfloat16
    assert refdist.constant(3, bfloat16) == 3 and refdist.constant(np.int64(3), int4) == 3
    assert refdist.constant([1.5], bfloat16).dtype == bfloat16
    for value, dtype in ((np.float32(1.5), int4), (np.complex64(1j), bfloat16), (np.ones(1, bfloat16), np.int32),
                         (np.ones(1, bfloat16), int4), (np.int64(100), int4), (100, int4), (np.int8(-1), "uint4"),
                         (1.5, int4)):
        with pytest.raises((ValueError, TypeError), match="RD05"):
            refdist.constant(value, np.dtype(getattr(ml_dtypes, dtype)) if isinstance(dtype, str) else dtype)


def test_scatter_div_of_small_ints_is_towards_zero_and_refuses_zero() -> None:
    v = refdist.Variable(np.array([-7, 7], ml_dtypes.int4))
    v.scatter_div(refdist.IndexedSlices(np.array([2, 2], ml_dtypes.int4), [0, 1]))
    assert v.numpy().tolist() == [-3, 3]
    with pytest.raises(ValueError, match="RD34"):
        v.scatter_div(refdist.IndexedSlices(np.array([0], ml_dtypes.int4), [0]))


def test_raw_bytes_and_records_are_not_numbers() -> None:
    for dtype in ("V4", [("a", "f4")]):
        with pytest.raises(TypeError, match="RD23"):
            refdist.get_strategy().reduce("SUM", np.zeros(2, dtype), axis=None)
        v = refdist.Variable(np.zeros(2, dtype))
        with pytest.raises(TypeError, match="RD23"):
            v.assign_add(np.zeros(2, dtype))
