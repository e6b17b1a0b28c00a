"""Which accesses to variables commute: either order leaves the same values and returns the same.

Additions count as commuting, although floats are rounded after each; `same` in `outcomes` allows for that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from refdist.array.convert import kind_of, to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.core.rules.variables import OPERATIONS, Computes, Takes
from refdist.variables.served import Access


class Effect(Enum):
    """What an access does to the value of a variable."""

    READ = "read"
    ASSIGN = "assign"
    ADD = "add"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


EFFECTS = {
    Computes.UPDATE: Effect.ASSIGN,
    Computes.ADD: Effect.ADD,
    Computes.SUB: Effect.ADD,
    Computes.MUL: Effect.MULTIPLY,
    Computes.DIV: Effect.DIVIDE,
    Computes.MIN: Effect.MINIMUM,
    Computes.MAX: Effect.MAXIMUM,
}

# These effects commute with themselves and with no other.  All others depend on their order: an assignment
# replaces what was there, and a division of integers is rounded.
COMMUTE_AMONG_THEMSELVES = {Effect.READ, Effect.ADD, Effect.MULTIPLY, Effect.MINIMUM, Effect.MAXIMUM}


class Touch(NamedTuple):
    """An access, as far as its order relative to others matters.

    Attributes:
        cell: the number of what holds the value: of a variable, or of a shard of one.
        effect: what it does to the value.
        observes: whether what it returns, which depends on the value, may be used.
        rows: those that it writes; None for all.
        zeros: of a minimum or maximum, the signs of the zeros in what it takes: whether they are negative.  Of 0.0 and
            -0.0 the later one may stay.
    """

    cell: int
    effect: Effect
    observes: bool
    rows: frozenset[int] | None = None
    zeros: frozenset[bool] = frozenset()

    @property
    def writes(self) -> bool:
        return self.effect is not Effect.READ


# What changes the order of the functions in the queue, which no variable has.
QUEUEING = Touch(-1, Effect.ASSIGN, False)


def touch(access: Access, cell: int, used: bool) -> Touch:
    """The `Touch` of an access to a cell; `used` says whether its result may be used."""
    if access.operation == "read":
        return Touch(cell, Effect.READ, True)
    _, takes, computes = OPERATIONS[access.operation]
    rows, zeros = None, frozenset[bool]()
    if takes is Takes.SLICES and isinstance(access.value, IndexedSlices):
        rows = frozenset(map(int, to_numpy(access.value.indices).reshape(-1)))
        if computes in (Computes.MIN, Computes.MAX):
            values = to_numpy(access.value.values)
            if kind_of(values.dtype) == "f":
                zeros = frozenset(np.signbit(values[values == 0]).tolist())
    return Touch(cell, EFFECTS[computes], access.returned and used, rows, zeros)


def commute(first: Touch | None, second: Touch | None) -> bool:
    """Whether two accesses commute; None is a step without an access, which commutes with all."""
    if first is None or second is None or first.cell != second.cell:
        return True
    if (first.writes and second.observes) or (second.writes and first.observes):
        return False
    if first.effect is second.effect and first.effect in COMMUTE_AMONG_THEMSELVES and len(
            first.zeros | second.zeros) < 2:
        return True
    return first.rows is not None and second.rows is not None and not first.rows & second.rows


Commutes = Callable[[Touch | None, Touch | None], bool]


def keep_ages(first: Touch | None, second: Touch | None) -> bool:
    """Whether two accesses commute where it also matters how many updates lie between a read and a write."""
    return first is None or second is None or first.cell != second.cell or not (first.writes or second.writes)
