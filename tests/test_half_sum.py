"""Sums of float16 and bfloat16 that are taken in 32 bits have the bits, and the errors, of NumPy's additions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from refdist.array import half_sum
from refdist.array.float_errors import Noted
from refdist.array.ordered_sum import ordered_sum

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
EVERY = np.arange(1 << 16, dtype=np.uint16)
DTYPES = (np.float16, ml_dtypes.bfloat16)


def by_numpy(arrays: list[Any]) -> tuple[bytes, int]:
    """What NumPy's own additions give, and the errors that it notes."""
    with Noted() as noted:
        total = arrays[0] + arrays[1]
        for array in arrays[2:]:
            total = total + array
    return total.tobytes(), noted.bits


def summed_here(arrays: list[Any]) -> tuple[bytes, int]:
    with Noted() as noted:
        total = ordered_sum(arrays)
    return total.tobytes(), noted.bits


def numbers(dtype: Any, which: str, draw: np.random.Generator) -> Any:
    every = EVERY.view(dtype)
    every = every[np.isfinite(every)]
    if which == "small":
        every = every[np.abs(every.astype(np.float32)) < (1e-3 if dtype is np.float16 else 1e-30)]
    elif which == "any":
        every = every[np.abs(every.astype(np.float32)) < float(ml_dtypes.finfo(dtype).max) / 4]
    return draw.choice(every.view(np.uint16), 1 << 16).view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("which", ["any", "small", "large"])
def test_every_number_is_added_as_numpy_adds_it(dtype: Any, count: int, which: str) -> None:
    draw = np.random.default_rng(count)
    for _ in range(4):
        arrays = [numbers(dtype, which, draw) for _ in range(count)]
        if which != "large" and dtype is np.float16:
            assert list(half_sum.left(arrays, np.empty_like(arrays[0]))) == []
        assert summed_here(arrays) == by_numpy(arrays)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_and_opposite_numbers_and_ties_and_zeros(dtype: Any) -> None:
    finite = EVERY.view(dtype)[np.isfinite(EVERY.view(dtype))]
    around = np.roll(finite, 1)
    for arrays in ([finite, -finite], [finite, around], [-around, finite, -around], [finite * 0, -finite * 0]):
        assert summed_here(arrays) == by_numpy(arrays)
    ulp = np.spacing(np.abs(finite.astype(np.float32))) if dtype is not np.float16 else np.spacing(np.abs(finite))
    assert summed_here([finite, (ulp / 2).astype(dtype)]) == by_numpy([finite, (ulp / 2).astype(dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, "max"])
def test_one_special_number_among_many_is_seen(dtype: Any, special: Any) -> None:
    value = float(ml_dtypes.finfo(dtype).max) if special == "max" else special
    for place in (0, half_sum._BLOCK - 1, half_sum._BLOCK, 3 * half_sum._BLOCK + 4):
        for holder in range(3):
            arrays = [np.ones(3 * half_sum._BLOCK + 5, dtype) for _ in range(3)]
            arrays[holder][place] = value
            arrays[(holder + 1) % 3][place] = value if special == "max" else -1000
            assert summed_here(arrays) == by_numpy(arrays)


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_two_nans_the_first_is_kept(dtype: Any) -> None:
    size = 2 * half_sum._BLOCK + 5
    first, second = np.ones((2, size), dtype)
    first[-3:], second[-3:] = -np.float32(np.nan), np.float32(np.nan)
    for arrays in ([first, second], [second, first]):
        assert [block.start for block in half_sum.left(arrays, np.empty_like(first))] == [2 * half_sum._BLOCK]
        assert ordered_sum(arrays)[-3:].tobytes() == ordered_sum([array[-3:] for array in arrays]).tobytes()


def test_numbers_that_the_processor_takes_for_0_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_sum, "_SMALL", np.int32([0]))
    small = np.full(half_sum.FEWEST, 6e-8, np.float16)
    assert list(half_sum.left([small, small], np.empty_like(small))) == [slice(0, half_sum.FEWEST)]
    assert summed_here([small, small]) == by_numpy([small, small])


def test_what_it_is_not_for() -> None:
    many = np.ones(half_sum.FEWEST, np.float16)
    assert half_sum.is_for([many, many])
    for other in (many[1:], many.astype(">f2"), many.view(np.int16), many.astype(np.float32), np.repeat(many, 2)[::2]):
        assert not half_sum.is_for([other, many[:other.size]])
        assert np.all(ordered_sum([other, other]) == other + other)
