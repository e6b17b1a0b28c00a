"""The sum of several arrays is taken left to right, however large they are, and there is one definition of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refdist
from refdist.array import ordered_sum as sums
from refdist.backends.mpi import reduce as mpi_reduce
from refdist.backends.mpi import transport as mpi_transport
from refdist.backends.simulated import Simulated
from refdist.backends.simulated import backend as simulated
from refdist.workers import transport
from refdist.workers.transport import summed

DTYPES = ("float16", "float32", "float64", "complex64", "int8", "uint16", "int64", ml_dtypes.bfloat16)


def numbers(dtype: Any, shape: tuple[int, ...], count: int) -> list[Any]:
    draw = np.random.default_rng(0)
    scale = 10.0 ** draw.integers(-2, 4, count)
    return [np.asarray(draw.standard_normal(shape) * size).astype(dtype) for size in scale]


def by_element(arrays: list[Any]) -> bytes:
    """The definition, a number at a time."""
    out = np.empty_like(arrays[0], order="C")
    for place in np.ndindex(out.shape):
        total = arrays[0][place]
        for array in arrays[1:]:
            total = np.add(total, array[place], dtype=out.dtype)
        out[place] = total
    return out.tobytes()


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
def test_what_is_too_large_is_infinite() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for large in (np.float32(3e38), np.full(3, 3e38, np.float32), np.full(9_000_000, 6e4, np.float16)):
        value = strategy.experimental_distribute_values_from_function(lambda context, large=large: large)
        for total in (strategy.reduce("SUM", value, axis=None), strategy.reduce("MEAN", value, axis=None)):
            assert np.isinf(total).all()
        if large.ndim:
            assert np.isinf(strategy.reduce("SUM", value, axis=0))
    variable = refdist.Variable(np.full(3, 3e38, np.float32))
    variable.assign_add(variable)
    variable.assign_sub(-np.full(3, 3e38, np.float32))
    variable.scatter_mul(refdist.IndexedSlices(np.float32([3e38]), [0]))
    assert np.isinf(variable.numpy()).all()
    variable.assign_sub(variable)
    assert np.isnan(variable.numpy()).all()
    assert np.isinf(refdist.nn.compute_average_loss(np.full(3, 3e38, np.float32)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (70, 11)])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.filterwarnings("ignore:.*encountered in (add|cast):RuntimeWarning")
def test_it_is_taken_left_to_right(monkeypatch: Any, dtype: Any, shape: tuple[int, ...], count: int) -> None:
    arrays = numbers(dtype, shape, count)
    if count > 2 and np.dtype(dtype).kind == "f" and shape == (70, 11):
        assert by_element(arrays) != by_element(arrays[::-1]), "the order must be seen in the numbers"
    before = [array.tobytes() for array in arrays]
    for large, block in ((sums._LARGE, sums._BLOCK), (64, 64)):
        monkeypatch.setattr(sums, "_LARGE", large)
        monkeypatch.setattr(sums, "_BLOCK", block)
        out = np.empty_like(arrays[0])
        assert sums.ordered_sum(arrays, out) is out and out.flags.writeable and out.tobytes() == by_element(arrays)
        for total in (sums.ordered_sum(arrays), Simulated().sum(arrays), summed([[arrays[:1]], [arrays[1:]]])[0]):
            assert type(total) is np.ndarray and total.dtype == arrays[0].dtype and total.shape == shape
            assert total.tobytes() == by_element(arrays)
            assert not total.flags.writeable and not any(np.shares_memory(total, array) for array in arrays)
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("shape", [(), (2,)])
def test_the_order_shows_in_the_result(shape: tuple[int, ...]) -> None:
    ones, large = np.ones(shape, np.float32), np.full(shape, 1e8, np.float32)
    assert np.all(sums.ordered_sum([large, ones, -large]) == 0)
    assert np.all(sums.ordered_sum([large, -large, ones]) == 1)
    assert np.all(sums.ordered_sum([large, -large, ones, -large, large]) == 0)


def test_arrays_of_another_layout_have_the_same_sum(monkeypatch: Any) -> None:
    monkeypatch.setattr(sums, "_LARGE", 16)
    monkeypatch.setattr(sums, "_BLOCK", 16)
    arrays = numbers("float32", (6, 5), 3)
    for turned in ([np.asfortranarray(array) for array in arrays], [arrays[0], np.asfortranarray(arrays[1]), arrays[2]],
                   [np.repeat(array, 2, 1)[:, ::2] for array in arrays]):
        assert sums.ordered_sum(turned).tobytes() == by_element(arrays)


def with_nans(dtype: Any, size: int) -> list[Any]:
    """Arrays of which any may have a NaN at a place, each with bits of its own; and infinities that cancel out."""
    draw = np.random.default_rng(size)
    kind: Any = np.dtype(dtype)
    real = np.dtype({"F": "f4", "D": "f8"}.get(kind.char, kind))
    bits = np.dtype(f"u{real.itemsize}")
    arrays = []
    for _ in range(4):
        array = draw.standard_normal(size).astype(kind)
        numbers = array.view(real)
        numbers[draw.random(numbers.size) < 0.2] = np.inf
        numbers[draw.random(numbers.size) < 0.2] = -np.inf
        where = draw.random(numbers.size) < 0.4
        numbers[where] = np.nan
        payloads = draw.integers(0, 4, numbers.size).astype(bits) | draw.integers(0, 2, numbers.size).astype(bits) \
            << bits.type(8 * real.itemsize - 1)
        numbers.view(bits)[where] ^= payloads[where]
        arrays.append(array)
    return arrays


def first_nan(arrays: list[Any]) -> Any:
    """The definition, for arrays of real numbers."""
    total = arrays[0]
    for array in arrays[1:]:
        total = np.where(np.isnan(total), total, np.where(np.isnan(array), array, total + array))
    return total


@pytest.mark.parametrize("size", [1, 2, 15, 64, 65, 500, 8199])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16])
@pytest.mark.parametrize("keeps_first", ["as it is", "never"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_of_several_nans_the_first_is_kept_however_arrays_are_cut_and_laid_out(
        monkeypatch: Any, dtype: Any, size: int, keeps_first: str) -> None:
    if keeps_first == "never":  # as where vectors are added in another way
        monkeypatch.setattr(sums, "_keeps_first", lambda dtype: False)
    arrays = with_nans(dtype, size)
    real = [array.view(array.real.dtype) for array in arrays] if np.dtype(dtype).kind == "c" else arrays
    expected = first_nan(real)
    if dtype is ml_dtypes.bfloat16:  # its additions drop what else a NaN says
        expected = np.where(np.isnan(expected), expected + expected, expected)
    whole = sums.ordered_sum(arrays)
    assert whole.tobytes() == expected.tobytes()
    for cut in {0, 1, size // 3, size // 2, size - 1}:
        out = np.empty_like(arrays[0])
        for part in (slice(0, cut), slice(cut, size)):
            sums.ordered_sum([array[part] for array in arrays], out[part])
        assert out.tobytes() == whole.tobytes(), cut
    laid_out = [[np.repeat(array, 2)[::2] for array in arrays], [array[::-1].copy()[::-1] for array in arrays],
                [array.astype(array.dtype.newbyteorder()) for array in arrays]]
    if size % 5 == 0:
        assert sums.ordered_sum([np.asfortranarray(array.reshape(5, -1)) for array in arrays]
                                ).tobytes() == whole.tobytes()
    assert all(sums.ordered_sum(other).tobytes() == whole.tobytes() for other in laid_out)
    for place in range(min(size, 20)):
        assert sums.ordered_sum([array[place].reshape(()) for array in arrays]).tobytes() == whole[place].tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_scalars_that_processes_have_sent_have_the_same_sum(dtype: str) -> None:
    arrays = with_nans(dtype, 500)
    for place in range(500):
        scalars = np.stack([array[place] for array in arrays])
        expected = sums.ordered_sum([array[place].reshape(()) for array in arrays])
        assert mpi_transport._add_scalars(scalars).tobytes() == expected.tobytes()
        assert mpi_transport._add_scalars(scalars[:1]).tobytes() == arrays[0][place].tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sum_has_the_byte_order_of_the_machine(monkeypatch: Any, shape: tuple[int, ...], count: int) -> None:
    for large in (sums._LARGE, 8):
        monkeypatch.setattr(sums, "_LARGE", large)
        for dtype in (">f4", ">i8", "<f8", ">c8"):
            total = sums.ordered_sum([np.ones(shape, dtype)] * count)
            assert total.dtype.isnative and total.dtype == np.dtype(dtype).newbyteorder("=")
            assert np.all(total == count) and total.shape == shape


def test_all_who_sum_with_numpy_use_the_one_definition(monkeypatch: Any) -> None:
    users = (simulated, transport, mpi_transport, mpi_reduce)
    assert {user.ordered_sum for user in users} == {sums.ordered_sum}
    for user in users[1:]:
        monkeypatch.setattr(user, "ordered_sum", lambda arrays: "asked")
    assert summed([[[]]]) == ["asked"]
    asked = []
    monkeypatch.setattr(sums, "_look_for_nan", lambda arrays, total: asked.append(len(arrays)))
    Simulated().sum([np.zeros(1)] * 3)
    assert asked == [3]
