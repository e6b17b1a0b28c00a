"""What variables, datasets, generators and checkpoints see of the strategy that they belong to.

Strategies use all of these, and are in a higher layer.  The part that knows no arrays is in `core/interfaces.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from refdist.array.backend import Backend
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core import interfaces
from refdist.core.agreement import CollectiveCall
from refdist.core.interfaces import Layout
from refdist.core.rules.options import ReduceOp
from refdist.core.rules.variables import Kind
from refdist.variables.habits import Habits
from refdist.workers.transport import Transport


class Reduction(Protocol):
    """How the values of all replicas become one."""

    def onto(self, op: ReduceOp, contributions: Sequence[Array | IndexedSlices], devices: Sequence[str],
             call: CollectiveCall) -> list[Any]:
        """The reduction of one contribution per replica of this worker, on each of `devices`."""

    def onto_current(self, op: ReduceOp, contributions: Sequence[Array | IndexedSlices], call: CollectiveCall) -> Any:
        """The same where the code runs."""


class Extended(Protocol):
    """What is asked of a `StrategyExtended`."""

    @property
    def layout(self) -> Layout:
        """Which replicas run where."""

    @property
    def backend(self) -> Backend:
        """What holds the arrays."""

    @property
    def transport(self) -> Transport:
        """What carries arrays between the workers."""

    @property
    def reduction(self) -> Reduction:
        """How the values of all replicas become one."""

    @property
    def kinds(self) -> Mapping[Kind, Any]:
        """The class of each of its kinds of variables."""

    @property
    def runs(self) -> int:
        """How many times `run` was called."""

    @property
    def habits(self) -> Habits:
        """Which variables replicas have made."""

    def value_container(self, value: object) -> Any:
        """The variable that a copy belongs to; anything else is returned as it is."""

    def agreed_seed(self) -> int:
        """A random number, the same on all workers."""

    def check_reader(self, attempted: str) -> None:
        """Raises where the code that runs does not read distributed datasets."""

    def update(self, var: object, fn: Callable[..., object], args: tuple[object, ...] = ()) -> Any:
        """`fn` called for every copy of a variable, with these arguments after it."""


class Strategy(interfaces.Strategy, Protocol):
    """What is asked of a strategy."""

    @property
    def extended(self) -> Extended:
        """Its less common methods."""
