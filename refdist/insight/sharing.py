"""What scheduled functions share beside variables, and which steps of a run change it.

What a function can reach (`shared`) is looked at between any two steps.  A step that has changed something has changed
it for all functions that reach it, and for the coordinator, which may reach everything.  Functions that were called
with the same objects reach the same, and are one *scope*.  Large arrays and the states of random numbers take long to
look at: if the first run changes none of them, others are looked at only when functions begin and have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from refdist import nest
from refdist.core.call_site import Place
from refdist.insight.names import place_of
from refdist.insight.shared import LOCKS, RANDOM, Look, Numbers, Picture, can_be_shared, changed

ENDED, FAILED = "functions are stopped", "a function fails"


class Server(NamedTuple):
    """What the loss of a parameter server changes: all of its variables.

    Attributes:
        cluster, number: which one.
    """

    cluster: int
    number: int


Cell = int | str | Server
"""What a step changes beside a variable: a scope, a state of the process, a server, or that functions go on at all."""


class Change(NamedTuple):
    """Something that a step has changed.

    Attributes:
        name: of the object.
        place: where a function names it; None for what is no name in a function.
    """

    name: str
    place: Place | None

    def __str__(self) -> str:
        return self.name if self.place is None else f"{self.name} ({self.place})"


class _Scope:
    """What a function reaches."""

    def __init__(self, fn: Callable[..., object], leaves: Sequence[tuple[str, object]]) -> None:
        self.fn = fn
        self.leaves = leaves
        self.picture: Picture = {}
        self.codes: dict[CodeType, None] = {}


class Sharing:
    """Finds what the functions of a run change of what they share.

    Args:
        whole: whether large arrays and the states of random numbers are looked at after each step.

    Attributes:
        unseen: what could not be looked into.
        computed: where a function asks for a name that it computes, by which it may reach what was not followed.
        held: locks that somebody had at the last look.
    """

    def __init__(self, whole: bool) -> None:
        self.unseen: dict[str, None] = {}
        self.computed: dict[str, None] = {}
        self.held: dict[str, None] = {}
        self._whole = whole
        self._scopes: list[_Scope] = []
        self._numbers: dict[object, int] = {}
        self._first = 0  # the first scope whose functions may still run
        self._states: Picture = {}
        self._objects: Numbers = {}
        self._wholes: dict[int, Picture] = {}  # pictures with large arrays, where those of each step are without

    def add(self, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> int:
        """Adds a function that was scheduled with these arguments; returns the number of its scope."""
        leaves = [(f"argument {i}", leaf) for i, leaf in enumerate(nest.flatten([args, kwargs]))
                  if can_be_shared(leaf)]
        key = *_identity(fn), *(id(leaf) for _, leaf in leaves)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._scopes)
            self._scopes.append(_Scope(fn, leaves))
            if number == self._first:
                self._states = self._look_at_states()
            if self._look_at(self._scopes[number], self._whole):
                self._wholes[number] = self._whole_picture(self._scopes[number])
        return number

    def forget(self) -> bool:
        """All functions have ended, before anything that comes; whether something was changed that was not looked at.
        """
        if self._first == len(self._scopes):
            return False
        changed_unseen = self._states != self._look_at_states() or any(
            picture != self._whole_picture(self._scopes[number]) for number, picture in self._wholes.items()
            if number >= self._first)
        self._first = len(self._scopes)
        self._numbers.clear()
        self._wholes.clear()
        return changed_unseen and not self._whole

    def changes(self) -> tuple[frozenset[Cell], tuple[Change, ...]]:
        """What was changed since this was asked last: for whom, and what."""
        self.held.clear()
        cells: dict[Cell, None] = {}
        seen: dict[Change, None] = {}
        if self._first == len(self._scopes):
            return frozenset(), ()
        for number in range(self._first, len(self._scopes)):
            scope = self._scopes[number]
            before = scope.picture
            self._look_at(scope, self._whole)
            if scope.picture != before:
                cells[number] = None
                for name in sorted(changed(before, scope.picture)):
                    seen[Change(name, place_of(name.partition(".")[0], scope.codes))] = None
        if self._whole:
            before, self._states = self._states, self._look_at_states()
            for name in self._states:
                if before[name] != self._states[name]:
                    cells[name] = None
                    seen[Change(name, None)] = None
        return frozenset(cells), tuple(seen)

    def _whole_picture(self, scope: _Scope) -> Picture:
        before, codes = scope.picture, scope.codes
        self._look_at(scope, whole=True)
        whole, scope.picture, scope.codes = scope.picture, before, codes
        return whole

    def _look_at(self, scope: _Scope, whole: bool) -> bool:
        """Looks at what a scope reaches; whether large arrays were left out."""
        look = Look(whole, self._objects)
        look.at(getattr(scope.fn, "__name__", type(scope.fn).__name__), scope.fn)
        for name, leaf in scope.leaves:
            look.at(name, leaf)
        scope.picture, scope.codes = look.picture, look.codes
        self.unseen |= {name: None for name, of_a_library in look.unseen.items()
                        if not of_a_library and name not in LOCKS}
        self.computed |= look.computed
        self.held |= look.held
        return look.left_out

    def _look_at_states(self) -> Picture:
        look = Look()
        look.states()
        return look.picture


def _identity(fn: Any) -> tuple[object, ...]:
    """Equal for functions that reach the same."""
    if isinstance(fn, MethodType):
        return id(fn.__self__), *_identity(fn.__func__)
    if not isinstance(fn, FunctionType):
        return (id(fn),)
    return fn.__code__, *map(id, fn.__closure__ or ()), id(fn.__defaults__), id(fn.__kwdefaults__), str(vars(fn))


def is_read(cell: Cell, scope: int | None, of_the_program: bool, server: Server | None) -> bool:
    """Whether a step reads what a cell stands for.

    Args:
        cell: what another step changes.
        scope: that of the step's function.
        of_the_program: whether the step is the coordinator's.
        server: the one whose variable the step accesses.
    """
    if isinstance(cell, Server):
        return cell == server
    if isinstance(cell, int):
        return of_the_program or cell == scope
    if cell == FAILED:
        return of_the_program
    return cell not in RANDOM  # who draws changes the state
