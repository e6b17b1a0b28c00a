"""The sum of several arrays is taken left to right, however large they are, and there is one definition of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from refdist.array import ordered_sum as sums
from refdist.array import transport
from refdist.array.transport import summed
from refdist.backends.mpi import reduce as mpi_reduce
from refdist.backends.mpi import transport as mpi_transport
from refdist.backends.simulated import Simulated
from refdist.backends.simulated import backend as simulated

DTYPES = ("float16", "float32", "float64", "complex64", "int8", "uint16", "int64", ml_dtypes.bfloat16)


def numbers(dtype: Any, shape: tuple[int, ...], count: int) -> list[Any]:
    draw = np.random.default_rng(0)
    scale = 10.0 ** draw.integers(-2, 4, count)
    return [np.asarray(draw.standard_normal(shape) * one).astype(dtype) for one in scale]


def by_element(arrays: list[Any]) -> bytes:
    """The definition, a number at a time."""
    out = np.empty_like(arrays[0], order="C")
    for place in np.ndindex(out.shape):
        total = arrays[0][place]
        for array in arrays[1:]:
            total = np.add(total, array[place], dtype=out.dtype)
        out[place] = total
    return out.tobytes()


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
        for found in (sums.ordered_sum(arrays), Simulated().sum(arrays), summed([[arrays[:1]], [arrays[1:]]])[0]):
            assert type(found) is np.ndarray and found.dtype == arrays[0].dtype and found.shape == shape
            assert found.tobytes() == by_element(arrays)
            assert not found.flags.writeable and not any(np.shares_memory(found, array) for array in arrays)
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("shape", [(), (2,)])
def test_the_order_shows_in_the_result(shape: tuple[int, ...]) -> None:
    one, large = np.ones(shape, np.float32), np.full(shape, 1e8, np.float32)
    assert np.all(sums.ordered_sum([large, one, -large]) == 0)
    assert np.all(sums.ordered_sum([large, -large, one]) == 1)
    assert np.all(sums.ordered_sum([large, -large, one, -large, large]) == 0)


def test_arrays_of_another_layout_have_the_same_sum(monkeypatch: Any) -> None:
    monkeypatch.setattr(sums, "_LARGE", 16)
    monkeypatch.setattr(sums, "_BLOCK", 16)
    arrays = numbers("float32", (6, 5), 3)
    for turned in ([np.asfortranarray(array) for array in arrays], [arrays[0], np.asfortranarray(arrays[1]), arrays[2]],
                   [np.repeat(array, 2, 1)[:, ::2] for array in arrays]):
        assert sums.ordered_sum(turned).tobytes() == by_element(arrays)


def test_all_who_sum_with_numpy_use_the_one_definition(monkeypatch: Any) -> None:
    users = (simulated, transport, mpi_transport, mpi_reduce)
    assert {user.ordered_sum for user in users} == {sums.ordered_sum}
    for user in users:
        monkeypatch.setattr(user, "ordered_sum", lambda arrays: "asked")
    assert Simulated().sum([]) == "asked" and summed([[[]]]) == ["asked"]
    for user in users:
        assert not re.search(r"np\.add\(", Path(str(user.__file__)).read_text()), "another loop that adds"
