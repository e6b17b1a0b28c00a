"""The order in which replicas have their turns before a rendezvous, as choices of `refdist.explore`.

The turns of a run of replicas before one rendezvous, or before its end, are a *segment*.  In each, who is next is a
choice.  Two turns commute where neither replica changes anything that they share (`shared`) in any order that was
tried, so a segment in which nothing was changed has one order.  Where another order of a segment leaves all as it was,
at its end, other segments need not be tried in combination with it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import CodeType, FrameType
from typing import Protocol

from greenlet import getcurrent

from refdist.core import call_site
from refdist.core.agreement import CollectiveCall
from refdist.insight.names import of_the_program
from refdist.insight.shared import Look, Numbers, Picture, changed
from refdist.variables.served import here
from refdist.variables.variable import ResourceVariable


class Choices(Protocol):
    """What makes the choices of a run: see `Run` in `schedules`."""

    cut: str
    taken: list[int]
    copies: list[ResourceVariable]
    opened: dict[str, None]
    thread: int

    def pick(self, count: int) -> int: ...
    def disturbed(self, why: str) -> None: ...


class Segment:
    """The turns of replicas until they meet or end.

    Attributes:
        at: the number of its first choice.
        count: how many replicas there are.
        order: those that had their turns, in this order.
        changes: for each of them, the names of what it has changed of what they share.
        codes: the code of the replicas.
        call: the call in which they meet, with its line; "the end of" what they run, if they do not.
        state: equal for two ends of it after which a program goes on in the same way; None where nothing was changed.
    """

    __slots__ = ("at", "call", "changes", "codes", "count", "order", "state")

    def __init__(self, at: int, count: int, call: str) -> None:
        self.at = at
        self.count = count
        self.order: list[int] = []
        self.changes: dict[int, set[str]] = {}
        self.codes: dict[CodeType, None] = {}
        self.call = call
        self.state: object = None

    def changing(self) -> set[int]:
        """The replicas that have changed something."""
        return {replica for replica, names in self.changes.items() if names}

    def others(self, changing: Set[int]) -> Iterator[list[int]]:
        """The other orders that may come to something else.

        Args:
            changing: the replicas that change something in some order; where it grows meanwhile, orders come again.
        """
        known: set[int] = set()
        while known < changing:
            known = set(changing)
            for order in _orders([], list(range(self.count)), known):
                if order != self.order:
                    yield order
                if known < changing:
                    break

    def overtaking(self) -> tuple[int, int, set[str]] | None:
        """A replica, one of a smaller number that had its turn later, and what they have changed; None without one."""
        order = [*self.order, *(replica for replica in range(self.count) if replica not in self.order)]
        changes = [self.changes.get(replica, set()) for replica in range(self.count)]
        seen = [(first, second, changes[first] & changes[second] or changes[first] | changes[second])
                for i, first in enumerate(order) for second in order[i + 1:] if second < first]
        return next((pair for pair in seen if pair[2]), seen[0] if seen else None)


def _orders(begun: list[int], left: list[int], changing: Set[int]) -> Iterator[list[int]]:
    if not left:
        yield begun
    for replica in left:
        # Of two that commute, the one with the smaller number comes first.
        if not begun or replica > begun[-1] or changing & {replica, begun[-1]}:
            yield from _orders([*begun, replica], [other for other in left if other != replica], changing)


def choices_of(order: Sequence[int]) -> list[int]:
    """The choices of an order: the place of each replica among those that are left, but for the last one."""
    left = sorted(order)
    choices = []
    for replica in order[:-1]:
        choices.append(left.index(replica))
        left.remove(replica)
    return choices


class Orders:
    """Makes choices of the turns of all replicas in a run; see `core.chooser.Chooser`.

    Args:
        run: whose choices.

    Attributes:
        segments: what has happened.
        unseen: what could not be looked into.
        objects: numbers of objects that are not looked into.
        computed: where a replica asks for a name that it computes, by which it may reach what was not followed.
    """

    def __init__(self, run: Choices) -> None:
        self.segments: list[Segment] = []
        self.unseen: dict[str, bool] = {}
        self.computed: dict[str, None] = {}
        self.objects: Numbers = {}
        self._run = run
        self._results: list[Picture] = []
        self._turn: Callable[[], None] | None = None  # ends the turn that a replica has

    def order(self, count: int, fn: Callable[..., object], args: Sequence[object],
              kwargs: Mapping[str, object]) -> Iterable[int]:
        """The order of so many replicas, which run `fn`."""
        return _Turns(self, count, fn, args, kwargs)

    def meet(self, calls: Sequence[CollectiveCall], frames: Sequence[FrameType | None]) -> None:
        """They have come to a rendezvous."""
        if not self._applies():
            return
        segment = self.segments[-1]
        segment.call = str(calls[0])
        if not any(segment.changes.values()):
            return  # it has no other order, and its end is compared with no other
        look = Look(numbers=self.objects)
        for i, (call, frame) in enumerate(zip(calls, frames, strict=True)):
            look.at(f"replica {i}'s contribution", call.contribution)
            self._look_at_frames(look, frame, f"replica {i}")
        self._end(segment, look)

    def ended(self, results: Sequence[object]) -> None:
        """Their run has ended."""
        if not self._applies():
            return
        look = Look(numbers=self.objects)
        look.at("results", list(results))
        self._results.append(look.picture)
        if any(self.segments[-1].changes.values()):
            self._end(self.segments[-1], Look(numbers=self.objects))

    def end_turn(self) -> None:
        """Notes what the replica has changed that had its turn last, if it has one."""
        if self._turn is not None:
            self._turn()
            self._turn = None

    def _applies(self) -> bool:
        if self._run.cut:
            return False
        if getcurrent().parent is not None:
            self._run.disturbed("simulated workers have their turns in the order of their numbers")
        if here.worker is None and threading.get_ident() == self._run.thread:
            return True
        self._run.disturbed("replicas in functions, and in threads of the program's own, run in the order of their "
                            "numbers")
        return False

    def _end(self, segment: Segment, look: Look) -> None:
        self._look_at_frames(look, sys._getframe(1), "the program")
        look.states()
        look.at("variables", [copy._array for copy in self._run.copies])
        self.unseen |= look.unseen
        if getcurrent().parent is not None:
            segment.state = object()  # what the others are at is not seen
            return
        segment.state = hash((str(sorted(look.picture.items())), str(self._results)))

    def _look_at_frames(self, look: Look, frame: FrameType | None, whose: str) -> None:
        depth = 0
        while frame is not None and frame.f_globals.get("__name__") != self._run.__module__:
            spec = frame.f_globals.get("__spec__")
            ours = spec is not None and call_site.is_ours(spec.name)  # the command, which is "__main__", too
            if of_the_program(frame.f_globals.get("__name__", "")) and not ours:
                look.picture[f"{whose} at {depth}"] = frame.f_code.co_qualname, frame.f_lasti
                look.at(f"{whose}, {depth}", {name: value for name, value in frame.f_locals.items()
                                              if not name.startswith("__")})
                look.code(frame.f_code, frame.f_globals)
            frame, depth = frame.f_back, depth + 1


class _Turns:
    """The order of the replicas of one run."""

    def __init__(self, orders: Orders, count: int, fn: Callable[..., object], args: Sequence[object],
                 kwargs: Mapping[str, object]) -> None:
        self._orders = orders
        self._count = count
        self._fn = fn
        self._arguments = [*enumerate(args), *kwargs.items()]
        self._before: Picture = {}
        self._name = getattr(fn, "__name__", type(fn).__name__)

    def __iter__(self) -> Iterator[int]:
        if not self._orders._applies():
            yield from range(self._count)
            return
        run = self._orders._run
        segment = Segment(len(run.taken), self._count, f"the end of {self._name}")
        self._orders.segments.append(segment)
        left = list(range(self._count))
        self._before = self._looked(segment)
        while left:
            replica = left.pop(run.pick(len(left)))
            segment.order.append(replica)
            run.opened.clear()
            self._orders._turn = functools.partial(self._end, segment, replica)
            yield replica
            self._orders.end_turn()

    def _end(self, segment: Segment, replica: int) -> None:
        after = self._looked(segment)
        opened = {f"the file {path}" for path in self._orders._run.opened}
        segment.changes[replica] = changed(self._before, after) | opened
        self._before = after

    def _looked(self, segment: Segment) -> Picture:
        look = Look(numbers=self._orders.objects)
        look.at(self._name, self._fn)
        for name, argument in self._arguments:
            look.at(f"argument {name}", argument)
        look.states()
        self._orders.unseen |= look.unseen
        self._orders.computed |= look.computed
        segment.codes |= look.codes
        return look.picture
