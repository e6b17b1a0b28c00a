"""The situation that a write is looked up by in the tables, and the errors for cells that refuse.

READS, WRITES and FOREIGN_WRITES (`core/rules/variables.py`) decide; nothing here does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from refdist import errors
from refdist.core import context_stack
from refdist.core.callers import default_strategy
from refdist.core.context_stack import Situation
from refdist.core.interfaces import Strategy
from refdist.core.rules.advice import ADVICE
from refdist.core.rules.variables import OperationClass

if TYPE_CHECKING:
    from refdist.variables.variable import Variable


def write_situation(strategy: Strategy | None) -> Situation:
    """The situation of a write: one of the columns of WRITES or FOREIGN_WRITES."""
    top = context_stack.frame()
    if top.strategy is strategy:  # nearly always
        return top.kind
    situation = context_stack.situation(strategy)
    if situation in (context_stack.OTHER_REPLICA, context_stack.OTHER_CROSS):
        other = top.strategy
        if other is default_strategy.value and top.kind != context_stack.UPDATE:
            return context_stack.OUTSIDE  # outside any scope the default strategy is current
        if situation == context_stack.OTHER_REPLICA and other is not None and other.num_replicas_in_sync == 1:
            return context_stack.LONE_REPLICA
    return situation


def refused(code: str, attempted: str, variable: Variable,
            operation: OperationClass | None = None) -> errors.RefdistError:
    """The error for a cell of the tables that refuses a read, or a write of a class of operations."""
    if code in ("RD10", "RD11"):
        return foreign(attempted, variable, code)
    circumstances = (f"the variable has {variable.synchronization} and {variable.aggregation} "
             f"and the code runs {context_stack.describe()}")
    return errors.error(code, attempted, circumstances, ADVICE.get((code, operation), "")
                        or ADVICE.get((code, context_stack.frame().kind), ""))


def foreign(attempted: str, variable: Variable, code: str = "RD11") -> errors.RefdistError:
    """The error for a variable of another strategy; it says where the variable was made, and by which strategy."""
    strategy, place = variable._strategy, variable._primary._made
    if strategy is None:
        whose, fix = "was made outside any scope" + (f" at {place}" if place else ""), ""
    else:
        whose = f"belongs to {errors.type_of(strategy)} of {errors.counted(strategy.num_replicas_in_sync, 'replica')}"
        whose += f" (made at {place})" if place else ""
        fix = "" if code == "RD10" else "Use one strategy object, for the scope that creates variables and for `run`."
    return errors.error(code, attempted, f"the variable {whose} and the code runs {context_stack.describe()}", fix)


def different(attempted: str, variables: Iterable[Variable]) -> errors.RefdistError:
    """The error for replicas that do not write the same variable; names do not tell, because several may share one."""
    def described(variable: Variable) -> str:
        place = variable._primary._made
        return variable.name + (f" (made at {place})" if place else "")

    passed = ", ".join(f"replica {i} {described(variable)}" for i, variable in enumerate(variables))
    return errors.error("RD02", attempted, f"the replicas write different variables: {passed}",
                        "Write the same variable on every replica.")
