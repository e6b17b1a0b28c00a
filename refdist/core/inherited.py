"""What a program starts has the state of the code that starts it, and keeps to itself what it sets.

NumPy's `errstate`, `decimal`, the context stack and variables of a program's own are kept in a `contextvars.Context`.
Whatever is started, a replica, a worker or a function in a thread, has a copy of the context of the code that started
it.  What was set there holds, as it would in a call; what is set in the copy is seen by nothing else, and ends with it.
The same holds for what is not kept in a context (`states`).

A copy has the same values, as between the tasks of asyncio.  Of `decimal` programs change the value itself
(`getcontext().prec = 50`), so each copy has one of its own.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import Context, copy_context
from sys import modules
from typing import TypeVar

from refdist.core import states

T = TypeVar("T")


def contexts() -> Callable[[], Context]:
    """Returns a function that makes contexts, each a copy of the one that the running code has now.

    >>> import contextvars
    >>> color = contextvars.ContextVar("color", default="red")
    >>> make = contexts()
    >>> make().run(color.set, "blue") is not None, color.get()
    (True, 'red')
    """
    context = copy_context()
    for value in context.values():
        if type(value) is decimal.Context:
            break
    else:  # nearly always
        return context.copy
    changed = [variable for variable, value in context.items() if type(value) is decimal.Context]

    def make() -> Context:
        new = context.copy()
        for variable in changed:
            new.run(variable.set, context[variable].copy())
        return new

    return make


def call(own: states.States, function: Callable[..., T], *args: object) -> T:
    """Calls a function that begins with the state of the code around it; what it sets ends with it.

    Args:
        own: what the function has of its own beside its context.
        function, args: the function and its arguments.
    """
    around = None
    if own.idle != len(modules):
        around = own.save(None)
        own.begin(around, around)
    try:
        return contexts()().run(function, *args)
    finally:
        if own.idle != len(modules):
            own.restore(around, None)


class Snapshot:
    """The state that the running code has now, for functions that are called later, or in another thread."""

    __slots__ = ("_begin", "_context")

    def __init__(self) -> None:
        self._context = contexts()
        self._begin = states.of_functions.save(None)

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Calls a function that begins with this state; what it sets ends with it."""
        own = states.of_functions
        around = own.save(None)
        own.begin(self._begin, around)
        try:
            return self._context().run(function, *args)
        finally:
            own.restore(around, None)
