"""The interface through which variables, datasets, generators and checkpoints use their strategy.

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
        """As `onto`, with the result on the current device."""


class Extended(Protocol):
    """The methods of a `StrategyExtended` that lower layers call."""

    @property
    def layout(self) -> Layout:
        """Which replicas run where."""

    @property
    def backend(self) -> Backend:
        """The backend that holds the arrays."""

    @property
    def transport(self) -> Transport:
        """The transport between the workers."""

    @property
    def reduction(self) -> Reduction:
        """How the values of all replicas become one."""

    @property
    def kinds(self) -> Mapping[Kind, Any]:
        """The class for each kind of variable that the strategy creates."""

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
        """Raises if distributed datasets cannot be read where the code runs."""

    def update(self, var: object, fn: Callable[..., object], args: tuple[object, ...] = ()) -> Any:
        """Calls `fn` for every copy of a variable, with these arguments after it."""


class Strategy(interfaces.Strategy, Protocol):
    """The methods of a strategy that lower layers call."""

    @property
    def extended(self) -> Extended:
        """Its less common methods."""
