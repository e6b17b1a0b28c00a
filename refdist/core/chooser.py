"""Who decides the order in which replicas have their turns, where it is neither that of their numbers nor of a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Protocol

from refdist.core.agreement import CollectiveCall
from refdist.runtime import Field


class Chooser(Protocol):
    """Decides which replica has the next turn, before each rendezvous of each run."""

    def order(self, count: int, fn: Callable[..., object], args: Sequence[object],
              kwargs: Mapping[str, object]) -> Iterable[int]:
        """The order of so many replicas, which run `fn`; it is iterated anew after each rendezvous."""

    def meet(self, calls: Sequence[CollectiveCall], frames: Sequence[FrameType | None]) -> None:
        """Called when all replicas have come to a rendezvous, with the call and the innermost frame of each."""

    def ended(self, results: Sequence[object]) -> None:
        """Called when the run has ended, with the result of each replica."""


chooser: Field[Chooser | None] = Field("who decides the order of replicas; None for that of `config`", lambda: None)
