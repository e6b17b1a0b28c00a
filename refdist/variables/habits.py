"""A check for variables that a program creates in every step.

A variable keeps its value from one run to the next only if it is created once.  A line that creates one in each of
several consecutive runs, of which none is kept, begins again in every step.  Models that are kept, as in an ensemble,
are fine, and so is a model that is trained in the run that creates it.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any, NamedTuple

from refdist.core import call_site, loops, remarks

# A variable that one line creates in this many consecutive runs is warned of.
_RUNS = 3


class _Made(NamedTuple):
    """The variables that one line has created with one name.

    Attributes:
        run: the last run in which it has.
        before: those of the runs right before that one.
        last: that of the run.
    """

    run: int
    before: list[weakref.ref[Any]]
    last: weakref.ref[Any]


class Habits:
    """The variables that replicas of one strategy have created, by run."""

    def __init__(self) -> None:
        self._made: dict[tuple[call_site.Site, str], _Made] = {}
        self._collected = 0  # the run in which garbage was last collected

    def look(self, variable: Any, site: call_site.Site, run: int) -> None:
        """Warns of a variable that is the third one created by the same line, with the same name, in consecutive runs.

        Args:
            variable: the variable that a replica has created.
            site: the line that created it.
            run: the number of this run of the strategy.
        """
        known, before = self._made.get((site, variable.name)), []
        if known is not None and known.run in (run, run - 1):
            before = known.before if known.run == run else [*known.before, known.last][-_RUNS:]
        self._made[site, variable.name] = _Made(run, before, weakref.ref(variable))
        if (len(before) == _RUNS - 1 and remarks.is_due("RD44", site) and not any(map(loops.uses_in_a_loop, site))
                and self._are_gone(before, run)):
            remarks.make("RD44", site, f"Variable(name={variable.name!r})", f"each of the last {_RUNS} runs has made "
                         "one at this line, which begins with its initial value")

    def _are_gone(self, variables: list[weakref.ref[Any]], run: int) -> bool:
        # A variable and its copies refer to each other, so an unused one is only freed by the garbage collector.
        if self._collected < run:
            self._collected = run
            gc.collect()
        return all(variable() is None for variable in variables)
