"""Whether a call on a strategy is allowed where the code runs: the table CALLS, and the error where it refuses."""

from __future__ import annotations

from refdist import errors
from refdist.core import context_stack
from refdist.core.interfaces import Strategy
from refdist.core.rules.advice import INSTEAD
from refdist.core.rules.calls import CALLS, Call
from refdist.core.rules.table import Allowed, Refusal
from refdist.runtime import Late

# The strategy outside any scope.
default_strategy: Late[Strategy] = Late()


def rule(strategy: Strategy, call: Call) -> Allowed:
    """The cell of CALLS."""
    top = context_stack.frame()
    if top.strategy is strategy:
        return CALLS[call][top.kind]
    if top.kind == context_stack.OUTSIDE:
        return CALLS[call][context_stack.DEFAULT if strategy is default_strategy.value else context_stack.OUTSIDE]
    return CALLS[call][context_stack.situation(strategy)]


def require(strategy: Strategy, call: Call) -> None:
    """Raises unless the call is allowed.

    Raises:
        RD09, RD10: as the table says.
    """
    top = context_stack.frame()
    cell = CALLS[call][top.kind] if top.strategy is strategy else rule(strategy, call)
    if not isinstance(cell, Refusal):
        return
    caller = f"it was called {context_stack.describe()}"
    if cell.code == "RD10":
        same = type(context_stack.frame().strategy) is type(strategy)
        caller += f", on another {type(strategy).__name__}" if same else f", on {errors.type_of(strategy)}"
    raise errors.error(cell.code, call.value, caller, INSTEAD.get(call, "") if cell.code == "RD09" else "")
