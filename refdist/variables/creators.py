"""`variable_creator_scope`: functions that see every variable as it is made.

They stand on the stack in `current`; `variables` asks them, innermost first, and a strategy's scope is one
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from refdist import errors
from refdist.core import context_stack


class variable_creator_scope:  # noqa: N801 - TensorFlow's name
    """Calls `variable_creator` for every variable made inside the `with` block.

    Args:
        variable_creator: called as `variable_creator(next_creator, **kwargs)`; it returns the variable,
            usually `next_creator(**kwargs)` with changed arguments.

    Entered inside a strategy's scope it sees one call and gets the distributed variable; entered outside it
    sees one call for each copy.  There it can change the copies, for example their names, but no longer what
    replicas do with them: the kind of variable and its aggregation are settled by then.

    >>> import refdist
    >>> def named(next_creator, **kwargs):
    ...     return next_creator(**{**kwargs, "name": "mine"})
    >>> with refdist.variable_creator_scope(named):
    ...     refdist.Variable(1.0).name
    'mine:0'

    Source: tf.variable_creator_scope.
    """

    def __init__(self, variable_creator: Callable[..., Any]) -> None:
        if not callable(variable_creator):
            raise errors.error("RD25", "variable_creator_scope", f"variable_creator is {variable_creator!r}",
                               "Pass a function of next_creator and keyword arguments.")
        self._creator = variable_creator
        self._entered: list[context_stack.Frame] = []

    def __enter__(self) -> None:
        frame = context_stack.frame().with_creator(self._creator)
        self._entered.append(frame)
        context_stack.state.top = frame

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        context_stack.leave(self._entered, "variable_creator_scope")
