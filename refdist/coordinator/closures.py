"""What a coordinator keeps track of: scheduled functions, workers, and faults that it will simulate."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from refdist import errors, journal, nest
from refdist.array.convert import HoldsArray, copied, is_array, to_array
from refdist.coordinator.strands import Turn
from refdist.core.call_site import Place
from refdist.variables.values import is_splittable

CANCELLED, LOST = "cancelled", "lost"


class Stopped(BaseException):
    """Unwinds a function that was stopped; not an Exception, so that it is not swallowed."""


class Closure:
    """A function that was scheduled.

    Attributes:
        call: the function with its arguments, called with the number of the worker; for a worker that is a process,
            what it is sent.
        name: of the function, for messages.
        made: the line that scheduled it.
        number: among those of the coordinator, from 1.
        done, value, error: what came of it.
        worker: the simulated one that carries it out, while it does.
        returns: whether it has made its last access.
        fate: why it was stopped: CANCELLED, LOST, or "".
        losses: how many workers were lost that carried it out.
        refusals: at how many accesses it was ended since it was stopped.
        thread: the one that carries it out; 0 before one does.
        turn: what it waits for when another strand has the turn.
        asker: who goes on when it has been stopped; None where it goes on to the next choice.
    """

    __slots__ = ("asker", "call", "done", "error", "fate", "losses", "made", "name", "number", "refusals", "returns",
                 "thread", "turn", "value", "worker")

    def __init__(self, call: Callable[[int], object] | bytes, name: str, made: Place | None) -> None:
        self.call: Callable[[int], object] | bytes | None = call
        self.name = name
        self.made = made
        self.number = 0
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.worker: Worker | None = None
        self.returns = False
        self.fate = ""
        self.losses = 0
        self.refusals = 0
        self.thread = 0
        self.turn = Turn()
        self.asker: Turn | None = None

    def finish(self, value: object, error: BaseException | None) -> None:
        """Stores the result, or the error, and drops the arguments."""
        self.value, self.error, self.done = value, error, True
        self.call = None

    def cancel(self, why: str) -> None:
        """Marks the function as cancelled: its result is an error with the reason `why`."""
        self.finish(None, errors.error("RD32", f"function {self.name}", why))

    def __str__(self) -> str:
        return f"{self.name} (scheduled at {self.made})" if self.made else self.name


class Worker:
    """A simulated worker."""

    __slots__ = ("alive", "closure", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True
        self.closure: Closure | None = None


class Fault:
    """A task that will be lost.

    Attributes:
        task: "worker" or "ps", and the number.
        left: after how many accesses; None for whenever the choices say so.
        returns: whether it is started again at once.
        done: whether the choices are asked where a function has made its last access, and only there.
        times: how often it will be.
    """

    __slots__ = ("done", "left", "returns", "task", "times")

    def __init__(self, task: tuple[str, int], left: int | None, returns: bool, done: bool = False,
                 times: int = 1) -> None:
        self.task = task
        self.left = left
        self.returns = returns
        self.done = done
        self.times = times

    def __str__(self) -> str:
        return "{} {}".format(*self.task)


def name_of(fn: Callable[..., object]) -> str:
    """The name of a function, for messages and recordings."""
    name: str = getattr(fn, "__name__", type(fn).__name__)
    return name


def carried_out(call: Callable[[], object], name: str, number: int, task: int) -> Any:
    """Calls a scheduled function on a worker and returns its result as `settled` makes it; recorded as one event.

    Args:
        call: calls the function, without arguments.
        name, number: the function's name, and its number among those that the coordinator has scheduled.
        task: the worker's number.

    Raises:
        What the function raises.
    """
    with journal.span("function", function=name, scheduled=number, task=task):
        value = settled(call())
        if journal.recording.value is not None:
            journal.recording.value.write("return", returned=value)
    return value


def settled(result: object) -> Any:
    """The result of a scheduled function as it is stored: variables are read, and Python numbers become arrays."""
    return nest.map_structure(_settled_leaf, result) if nest.is_nested(result) else _settled_leaf(result)


def _settled_leaf(leaf: object) -> Any:
    if isinstance(leaf, HoldsArray) and not is_splittable(leaf):
        return leaf._read()
    return to_array(leaf) if type(leaf) in (bool, int, float, complex) else snapshot(leaf)


def snapshot(leaf: Any) -> Any:
    """A copy of `leaf` if it is a writeable array; otherwise `leaf` itself."""
    return copied(leaf) if is_array(leaf) and getattr(leaf, "flags", _READ_ONLY).writeable else leaf


_READ_ONLY = SimpleNamespace(writeable=False)  # stands for the flags of an array without `flags`
