"""A program that is run at another number of replicas than it was written for, as `refdist.compare` does.

It names its devices, and makes its batch from the number of its replicas.  So what a strategy is given is replaced by
as many devices of the same type as are asked for; and where the global batch is held, the number of replicas is an int
whose product with a whole number is that batch.

Two experiments tell why a program trains otherwise: its rows are dealt to the replicas in another way, and its replicas
read totals where they have parts.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from refdist.runtime import Field


class Deal(Enum):
    """Another way to deal the rows of a step to the same replicas; `input.dealing` carries it out."""

    TO_THE_NEXT_REPLICA = "to the next replica"
    IN_OTHER_PARTS = "in other parts"
    ALL_TO_THE_LAST_REPLICA = "all to the last replica"


class Scale(NamedTuple):
    """What `refdist.compare` changes about a run.

    Attributes:
        replicas: how many replicas this process has.
        global_batch: what a whole number times the number of replicas is; None for their product.
        deal: how rows are dealt otherwise; None where they are not.
        totals: whether a variable that is synchronized on reading has in replicas the value that it has outside.
    """

    replicas: int
    global_batch: int | None = None
    deal: Deal | None = None
    totals: bool = False


scale: Field[Scale | None] = Field("at how many replicas the program is run; None for as many as it says", lambda: None)


class Replicas(int):
    """A number of replicas that multiplied by any int of at least 2 gives the global batch that is held fixed."""

    def __mul__(self, other: int) -> int:
        held = None if scale.value is None else scale.value.global_batch
        return held if type(other) is int and other > 1 and held is not None else int(self) * other

    __rmul__ = __mul__


def totals() -> bool:
    """Whether replicas read a variable that is synchronized on reading as its total, not as their own part."""
    return scale.value is not None and scale.value.totals


def counted(replicas: int) -> int:
    """`replicas`, as `num_replicas_in_sync` returns it: a `Replicas` if the global batch is held fixed."""
    return replicas if scale.value is None or scale.value.global_batch is None else Replicas(replicas)
