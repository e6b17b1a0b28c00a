"""State of whatever runs that no context variable holds: what a library keeps for a whole thread or process.

Replicas, simulated workers, functions of a coordinator and of datasets each own what they set.  Their context variables
do, each in a `contextvars.Context` of its own (`inherited`).  All else is a row of one of two lists, MODES and PROCESS:
it is saved when what runs begins to wait, and restored when that goes on.  A backend adds a row where devices are
current in a thread (`Backend.thread_state`).

What begins finds what the code has that started it, and that code finds it again afterwards, as with a context.

A row counts from when its library is loaded; nothing is imported here.  A program may import a library in the middle of
a run.  Of what waited meanwhile nothing was saved, and the state restores None.
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from sys import modules
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refdist import errors
from refdist.core import jax, keras, optree, pytorch
from refdist.runtime import process

if TYPE_CHECKING:
    from refdist.core.agreement import CollectiveCall


class State(ABC):
    """A piece of state that belongs to each replica or simulated worker, and is exchanged when they take turns."""

    @abstractmethod
    def save(self, call: CollectiveCall | None) -> Any:
        """Saves the state of a unit that waits: at a rendezvous with this call, or (None) for what it starts.

        Returns:
            The state, for `begin` and `restore`.

        Raises:
            RD09: the unit cannot wait there.
        """

    @abstractmethod
    def restore(self, saved: Any, now: Any) -> None:
        """Restores the state of a unit that goes on.

        Args:
            saved: what `save` returned for the unit; None if the library was not loaded then.
            now: what `save` returned last in this thread, if nothing has run since then; otherwise None.
        """

    def begin(self, saved: Any, now: Any) -> None:
        """Sets up the state of a unit that begins; `saved` is what `save(None)` returned for its starter."""
        self.restore(saved, now)


class Row(NamedTuple):
    """A state, and the library that keeps it: while that is not imported, there is nothing to save."""

    library: str
    state: State


class _Modes(State):
    def save(self, call: CollectiveCall | None) -> pytorch.Mode | None:
        if call is not None and pytorch.is_in_backward():
            raise errors.error(
                "RD09", str(call), "it was called inside PyTorch's `backward`, whose engine keeps what it does for the "
                "thread, in which other replicas run, too", "Call it after `backward`, with the gradients; or run one "
                "replica in a process, `python -m refdist launch -n N`.")
        if call is not None and pytorch.is_in_a_transform():
            raise errors.error(
                "RD09", str(call), "it was called in a function that `torch.func` or `torch.vmap` transforms, which "
                "keep what they do for the thread, in which other replicas run, too", "Call it outside, with the "
                "tensors that the transformed function returns.")
        return pytorch.mode()

    def restore(self, saved: pytorch.Mode | None, now: pytorch.Mode | None) -> None:
        pytorch.set_mode(saved, now)


class _Compiled(State):
    def save(self, call: CollectiveCall | None) -> object:
        return pytorch.compiling()

    def restore(self, saved: object, now: object) -> None:
        pytorch.set_compiling(saved)


class _Streams(State):
    def save(self, call: CollectiveCall | None) -> pytorch.Streams | None:
        current = pytorch.streams()
        pytorch.wait_for_streams(current)
        return current

    def restore(self, saved: pytorch.Streams | None, now: pytorch.Streams | None) -> None:
        pytorch.set_streams(saved)


class _Contexts(State):
    def save(self, call: CollectiveCall | None) -> list[Any] | None:
        if call is not None and jax.is_in_callback():
            raise errors.error(
                "RD09", str(call), "it was called by what JAX has compiled, and other replicas run such code in the "
                "same thread", "Return the array from the compiled function, and make the call with it; or run one "
                "replica in a process, `python -m refdist launch -n N`.")
        return jax.contexts()

    def restore(self, saved: list[Any] | None, now: list[Any] | None) -> None:
        jax.set_contexts(saved, now)


class _Scopes(State):
    def save(self, call: CollectiveCall | None) -> keras.Scopes | None:
        return keras.scopes()

    def restore(self, saved: keras.Scopes | None, now: keras.Scopes | None) -> None:
        keras.set_scopes(saved)


class _Names(State):
    # Each worker counts its layers itself, so that layers have the same names on all workers.
    def save(self, call: CollectiveCall | None) -> dict[str, Any]:
        return keras.names()

    def restore(self, saved: dict[str, Any] | None, now: dict[str, Any] | None) -> None:
        keras.set_names(saved)


class _Generator(State):
    """A generator of random numbers.

    Those that wait at a rendezvous go on where they were.  What begins draws on where other code has stopped, as does
    the code that started it, so that not all draw the same numbers.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self._read = read
        self._write = write

    def save(self, call: CollectiveCall | None) -> Any:
        return None if call is None else self._read()

    def restore(self, saved: Any, now: Any) -> None:
        if saved is not None:
            self._write(saved)


class _Trees(State):
    def save(self, call: CollectiveCall | None) -> None:
        function = None if call is None else optree.calling()
        if function is not None:
            raise errors.error(
                "RD09", str(call), f"it was called by `optree.{function}`, which keeps what it does for the thread, in "
                "which other replicas run, too", "Pass the whole structure to the call, which takes lists, tuples and "
                "dicts of arrays; or make a call for each of `optree.tree_leaves(structure)`, in a loop.")

    def restore(self, saved: None, now: None) -> None:
        pass


class _Variable(State):
    """A variable of the environment."""

    def __init__(self, name: str) -> None:
        self._name = name

    def save(self, call: CollectiveCall | None) -> str | None:
        return os.environ.get(self._name)

    def restore(self, saved: str | None, now: str | None) -> None:
        if saved is None:
            os.environ.pop(self._name, None)
        else:
            os.environ[self._name] = saved


class _Fields(State):
    """The fields of the process of which each worker has its own; a worker begins as a new process does."""

    def save(self, call: CollectiveCall | None) -> list[Callable[[], None]]:
        return [field.saved() for field in process.of_a_worker()]

    def restore(self, saved: list[Callable[[], None]], now: object) -> None:
        for put_back in saved:
            put_back()

    def begin(self, saved: object, now: object) -> None:
        for field in process.of_a_worker():
            field.reset()


MODES = (
    Row("torch", _Modes()),
    Row("torch", _Streams()),
    Row("torch._dynamo", _Compiled()),
    Row("torch", _Generator(pytorch.random_state, pytorch.set_random_state)),
    Row("jax", _Contexts()),
    Row("keras", _Scopes()),
    Row("optree", _Trees()),
)
"""What each replica, simulated worker and function has of its own."""

PROCESS = (
    Row("refdist", _Fields()),
    Row("os", _Variable("TF_CONFIG")),
    Row("random", _Generator(random.getstate, random.setstate)),
    # NumPy imports its generators when they are first asked for.
    Row("numpy", _Generator(lambda: np.random.get_state(), lambda state: np.random.set_state(state))),
    Row("keras", _Names()),
)
"""What each simulated worker has of its own beside that, because it stands in for a process."""

Saved = dict[State, Any]


class States:
    """The rows of some lists, as one state.

    Attributes:
        idle: how many modules were loaded when no row counted, -1 where one does.  While it is `len(sys.modules)` there
            is nothing to do, and code that is in a hurry calls nothing here: a comparison is all that programs pay
            which use none of the libraries.
    """

    __slots__ = ("_rows", "idle")

    def __init__(self, rows: Sequence[Row], own: State | None = None) -> None:
        self._rows = rows if own is None else (*rows, Row("refdist", own))
        self.idle = 0

    def _now(self) -> list[State]:
        loaded = len(modules)
        present = [row.state for row in self._rows if row.library in modules]
        self.idle = -1 if present else loaded
        return present

    def save(self, call: CollectiveCall | None) -> Saved:
        """See `State.save`."""
        return {state: state.save(call) for state in self._now()}

    def begin(self, saved: Saved | None, now: Saved | None) -> None:
        """See `State.begin`."""
        for state in self._now():
            state.begin((saved or {}).get(state), (now or {}).get(state))

    def restore(self, saved: Saved | None, now: Saved | None) -> None:
        """See `State.restore`."""
        for state in self._now():
            state.restore((saved or {}).get(state), (now or {}).get(state))


of_functions = States(MODES)
