"""The context variables of what a program starts: replicas, workers, functions in threads.

NumPy's `errstate`, `decimal` and variables of a program's own are kept in a `contextvars.Context`.  Whatever is started
has a copy of the context that the code had which started it.  What was set there holds, as it would in a call; what is
set in the copy is seen by nothing else, and ends with it.

A copy has the same values, as between the tasks of asyncio.  Of `decimal` programs change the value itself
(`getcontext().prec = 50`), so each copy has one of its own.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import Context, copy_context


def contexts() -> Callable[[], Context]:
    """What makes contexts, each a copy of the one that the running code has now.

    >>> import contextvars
    >>> color = contextvars.ContextVar("color", default="red")
    >>> make = contexts()
    >>> make().run(color.set, "blue") is not None, color.get()
    (True, 'red')
    """
    context = copy_context()
    changed = [variable for variable, value in context.items() if type(value) is decimal.Context]
    if not changed:
        return context.copy

    def make() -> Context:
        made = context.copy()
        for variable in changed:
            made.run(variable.set, context[variable].copy())
        return made

    return make
