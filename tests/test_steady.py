"""Which functions are sent to worker processes once, because they cannot change."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from refdist.array.convert import frozen
from refdist.coordinator import steady

ONE = 1
LIST: list[int] = []
CONSTANT = frozen(np.zeros(2))


def uses_list() -> Any:
    return LIST


def writes_global() -> None:
    global ONE
    ONE = 2


def around(value: Any) -> dict[str, Callable[[], Any]]:
    """Functions that refer to a value in all ways."""
    def in_closure() -> Any:
        return value

    def in_default(kept: Any = value) -> Any:
        return kept

    def in_keyword(*, kept: Any = value) -> Any:
        return kept

    def in_function() -> Any:
        return in_closure()

    def deeper() -> Any:
        return [value for _ in range(2)]

    return {function.__name__: function for function in (in_closure, in_default, in_keyword, in_function, deeper)}


WAYS = list(around(1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [1, 2.5, "s", None, True, np.float32(1), np, np.mean, CONSTANT, around, len],
                         ids=lambda value: type(value).__name__)
def test_what_cannot_change_is_steady(way: str, value: Any) -> None:
    fn = around(value)[way]
    parts = steady.parts(fn)
    assert parts is not None and any(part is value for part in parts)
    again = steady.parts(around(value)[way])
    assert again is not None and list(map(id, again)) == list(map(id, parts)), "another object, and the same function"
    other = steady.parts(around("another value")[way])
    assert other is not None and list(map(id, other)) != list(map(id, parts))


class Local:
    """Its attributes may change."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [[], {}, (1, []), np.zeros(2), np.zeros(2)[:], Local(), iter([]),
                                   functools.partial(int)], ids=lambda value: type(value).__name__)
def test_what_may_change_is_not(way: str, value: Any) -> None:
    assert steady.parts(around(value)[way]) is None


def test_functions_that_write_outside_are_sent_each_time() -> None:
    count = 0

    def writes_closure() -> None:
        nonlocal count
        count += 1

    def writes_deeper() -> Any:
        def inner() -> None:
            nonlocal count
            count += 1
        return inner()

    def own_cell() -> Any:
        count = 0

        def inner() -> int:
            nonlocal count
            count += 1
            return count
        return inner()

    def attribute() -> None: ...

    assert steady.parts(own_cell) is not None and steady.parts(attribute) is not None
    attribute.count = 1  # type: ignore[attr-defined]
    # Functions of this module are found by name, so here they are others that only look like them.
    others = [type(fn)(fn.__code__, globals(), "other") for fn in (uses_list, writes_global)]
    for fn in (writes_closure, writes_deeper, attribute, *others):
        assert steady.parts(fn) is None, fn
    assert steady.parts(lambda: later) is None
    later = 1


def test_functions_of_one_code_are_told_apart() -> None:
    def of(*values: int) -> tuple[object, ...]:
        def make(value: int) -> Callable[[], int]:
            return lambda: value

        first, second = map(make, values)
        parts = steady.parts(lambda: first() + second())
        assert parts is not None
        return tuple(map(id, parts))

    assert of(1, 2) == of(1, 2)
    assert len({of(1, 2), of(1, 3), of(2, 1), of(3, 2)}) == 4


def test_a_function_may_refer_to_itself() -> None:
    def fact(n: int) -> int:
        return 1 if n == 0 else n * fact(n - 1)

    assert steady.parts(fact) is not None
