"""Whether a call on a strategy is allowed where the code runs: `rules.CALLS`, and the error for its codes."""

from __future__ import annotations

from refdist import errors
from refdist.core import context_stack, rules
from refdist.core.interfaces import Strategy
from refdist.runtime import Late

# The strategy outside any scope.
default_strategy: Late[Strategy] = Late()


def rule(strategy: Strategy, call: str) -> str:
    """The cell of `rules.CALLS`: "ok" or the code of the error."""
    top = context_stack.state.top
    if top.strategy is strategy:
        return rules.CALLS[call][top.kind]
    if top.kind == context_stack.OUTSIDE:
        return rules.CALLS[call][rules.DEFAULT if strategy is default_strategy.value else context_stack.OUTSIDE]
    return rules.CALLS[call][context_stack.situation(strategy)]


def require(strategy: Strategy, call: str) -> None:
    """Raises unless the call is allowed.

    Raises:
        RD09, RD10: as the table says.
    """
    code = rule(strategy, call)
    if code == "ok":
        return
    found = f"it was called {context_stack.describe()}"
    if code == "RD10":
        same = type(context_stack.frame().strategy) is type(strategy)
        found += f", on another {type(strategy).__name__}" if same else f", on {errors.type_of(strategy)}"
    raise errors.error(code, call, found, rules.INSTEAD.get(call, "") if code == "RD09" else "")
