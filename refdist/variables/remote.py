"""Variables on parameter servers that are processes.

What the program holds is a handle: the value is in the memory of the server, and every access is one message to it and
one back.  The server carries out the messages one after another, so an access is whole, as in the simulation; between
two accesses anything may happen.  Checks are made here, before anything is sent, with an array of the variable's dtype
and shape.  There are several handles of a variable, one in each process that uses it, with the same number.

What is computed here, such as all that `extended.update` has written, replaces a value on the server only if nobody has
replaced it meanwhile, and is computed again otherwise (`core/cell`).  The server counts the versions for that.

An answer says to which request it is, because an interrupt, such as Ctrl-C's, may have kept an earlier one from being
taken.  A server that is gone, or silent for longer than the limit, takes its variables with it: each access is RD33.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refdist import errors
from refdist.array import pickles
from refdist.array.convert import dtype_of, frozen, to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core import context_stack, devices
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.variables import served
from refdist.variables.interfaces import Strategy
from refdist.variables.operations import update
from refdist.variables.served import ServedVariable
from refdist.variables.variable import ResourceVariable
from refdist.workers.channels import Channel, Gone


class Link:
    """A connection from this process to one parameter server."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._broken_off = False  # whether an interrupt may have kept an answer from being taken

    def ask(self, device: str, what: str, *request: object) -> Any:
        """Sends a request and returns the server's answer.

        Args:
            device: its name, and what is attempted, for messages.
            request: the name of a method of `Store`, and its arguments.

        Raises:
            RD09: a signal handler asks, which interrupts another request.  RD33: the server is gone.  Whatever the
            method raises.
        """
        number = next(self._numbers)
        message = pickles.dumps((number, *request))
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise errors.error("RD09", what, f"another access to a variable on ps {devices.parse(device).task}, in the "
                               "same thread, has not ended: a signal handler makes this one, which interrupts that one",
                               "Let the handler set a variable of Python, and look at it after each access.")
        with self._lock:
            try:
                if self._broken_off:
                    # A server that sends a long answer takes no long request before that is read, but a short one.
                    short = next(self._numbers)
                    self._answer(short, pickles.dumps((short, "nothing")))
                self._broken_off = True
                good, outcome = self._answer(number, message)
                self._broken_off = False
            except Gone as gone:
                raise served.lost(device, what) from gone
        if not good:
            raise outcome
        return outcome

    def _answer(self, number: int, message: bytes) -> tuple[bool, Any]:
        self._channel.send(message)
        answered = 0
        while answered != number:  # before it come the answers to requests that were interrupted
            answered, good, outcome = pickle.loads(self._channel.answer())
        return good, outcome


class Facts(NamedTuple):
    """What another process needs to make a handle of a variable."""

    number: int
    dtype: np.dtype[np.generic]
    name: str
    shape: tuple[int | None, ...]
    device: str
    trainable: bool
    synchronization: VariableSynchronization
    aggregation: VariableAggregation
    constraint: Callable[..., object] | None


class _Cell:
    """The counterpart of `core.cell.Cell` for a value on a server; a version is its number there."""

    __slots__ = ("_ask", "drafted")

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self.drafted = False

    def newest(self) -> tuple[int, tuple[Any, ...]]:
        version, array = self._ask("read", "newest")
        return version, (frozen(array),)

    def replace(self, seen: int, value: tuple[Any, ...]) -> bool:
        replaced: bool = self._ask("assign", "replace", seen, to_numpy(value[0]))
        return replaced


class RemoteVariable(ServedVariable):
    """A handle of a variable on a parameter server that is another process.

    Creating it makes the variable; `handle` is for the other processes.
    """

    __slots__ = ("_link", "_number", "_stand_in")

    def __init__(self, array: Array, name: str, shape: tuple[int | None, ...], device: str, strategy: Strategy,
                 trainable: bool, synchronization: VariableSynchronization, aggregation: VariableAggregation,
                 constraint: Callable[..., object] | None) -> None:
        servers: Any = strategy.extended
        self._take(strategy, Facts(servers.job.new_number(), dtype_of(array), name, shape, device, trainable,
                                   synchronization, aggregation, constraint))
        self._array = array

    def _take(self, strategy: Strategy, facts: Facts) -> None:
        servers: Any = strategy.extended
        self._number = facts.number
        self._link: Link = servers.job.links[devices.parse(facts.device).task]
        # Values are checked against a variable of this process with an array of the same dtype and shape.
        like = np.broadcast_to(np.zeros((), facts.dtype), [0 if n is None else n for n in facts.shape])
        self._stand_in = ResourceVariable(like, facts.name, facts.shape, facts.device, strategy, *facts[5:])
        self._cell = _Cell(self._ask)  # type: ignore[assignment] # has what drafts use of a cell
        for name in ("_name", "_shape", "_device", "_created_by", "_trainable", "_synchronization", "_aggregation",
                     "_constraint", "_owner", "_index", "_made"):
            setattr(self, name, getattr(self._stand_in, name))

    def facts(self) -> Facts:
        """What another process needs for a handle of its own."""
        return Facts(self._number, self.dtype, self._name, self._shape, self._device, self._trainable,
                     self._synchronization, self._aggregation, self._constraint)

    @property
    def _array(self) -> Any:
        drafts = context_stack.frame().drafts
        draft = None if drafts is None else drafts.of(self._cell)
        return frozen(self._ask("read", "get")) if draft is None else draft.arrays[0]

    @_array.setter
    def _array(self, array: Array) -> None:
        self._ask("assign", "put", to_numpy(array))

    def _ask(self, operation: str, method: str, *arguments: object) -> Any:
        return self._link.ask(self._device, f"{operation} of variable {self.name}", method, self._number, *arguments)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the value; it never changes."""
        return self._stand_in.dtype

    def _prepared(self, operation: str, value: object, attempted: str) -> Any:
        if None in self._shape:
            self._stand_in._array = self._array
        return self._stand_in._prepared(operation, value, attempted)

    def _update(self, operation: str, value: object, attempted: str, read_value: bool) -> Any:
        prepared = self._prepared(operation, value, attempted)
        if context_stack.frame().drafts is None:
            updated = frozen(self._ask(operation, "update", operation, prepared, read_value))
        else:
            updated = self._change(lambda old: update(operation, old, prepared, devices.CPU, False))
        return updated if read_value else None

    def _change(self, function: Callable[[Any], Any], at_once: bool = False) -> Any:
        drafts = None if at_once else context_stack.frame().drafts
        if drafts is not None:
            return drafts.open(self._cell, self).change(0, function)
        while True:
            seen, [old] = self._cell.newest()
            new = function(old)
            if self._cell.replace(seen, (new,)):
                return new

    def _put_back(self, arrays: tuple[Any, ...]) -> None:
        """Called after a failed update, of which nothing was sent to the server."""

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        raise errors.error("RD20", f"copy.deepcopy of variable {self.name}", "its value is on a parameter server",
                           "Create another variable with its value, in the strategy's scope.")

    def __reduce_ex__(self, protocol: object) -> Any:
        raise errors.error("RD20", f"pickling variable {self.name}", "its value is on a parameter server",
                           "Pickle its value, `variable.numpy()`.", kind=errors.InvalidTypeError)


def handle(strategy: Strategy, facts: Facts) -> RemoteVariable:
    """A handle of a variable that another process has made."""
    remote: RemoteVariable = RemoteVariable.__new__(RemoteVariable)
    remote._take(strategy, facts)
    return remote


class Store:
    """The variables of a parameter server, by their numbers."""

    def __init__(self) -> None:
        # Number of a variable -> (how often it was replaced, its value).
        self._versions: dict[int, tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def nothing(self) -> None:
        """For a request whose answer says that all before were answered."""

    def get(self, number: int) -> Any:
        """The value of a variable."""
        return self._versions[number][1]

    def newest(self, number: int) -> tuple[int, Any]:
        """The current version's number, and the value."""
        return self._versions[number]

    def put(self, number: int, array: Array) -> None:
        """Replaces the value of a variable; creates the variable if there is none of this number."""
        with self._lock:
            self._put(number, array)

    def replace(self, number: int, version: int, array: Array) -> bool:
        """Replaces the value if its version is still `version`; returns whether it did."""
        with self._lock:
            is_newest = self._versions[number][0] == version
            if is_newest:
                self._put(number, array)
            return is_newest

    def _put(self, number: int, array: Array) -> None:
        version = self._versions[number][0] + 1 if number in self._versions else 0
        self._versions[number] = version, frozen(array)

    def update(self, number: int, operation: str, prepared: Array | IndexedSlices, read_value: bool
               ) -> Any:
        """Carries out an operation with a checked and converted value; returns the new value.

        Raises:
            RD04, RD25: the variable has got another shape since then.
        """
        with self._lock:
            new = update(operation, self._versions[number][1], prepared, devices.CPU, False)
            self._put(number, new)
        return new if read_value else None

    def serve(self, channel: Channel) -> None:
        """Answers the requests that come through a channel, until its other end is gone."""
        while True:
            try:
                number, method, *arguments = pickle.loads(channel.receive())
                answer: tuple[int, bool, object]
                try:
                    answer = number, True, getattr(self, method)(*arguments)
                except Exception as error:
                    answer = number, False, error
                channel.send(pickles.dumps(answer))
            except Gone:
                return
