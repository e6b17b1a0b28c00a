"""Variables that replicas make in every step.

A variable keeps its value from one run to the next only where it is made once.  Whoever makes one at the same line in
each of several runs, one after another, and keeps none of them, begins again in every step.  A model for each run that
is kept, as in an ensemble, is no such habit, and neither is one that is trained in the run in which it is made.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any, NamedTuple

from refdist.core import call_site, loops, remarks

# So many runs one after another that make a variable at one line are a habit.
_RUNS = 3


class _Made(NamedTuple):
    """Of a place and a name: the last run that made a variable, those of the runs right before it, and its own."""

    run: int
    before: list[weakref.ref[Any]]
    last: weakref.ref[Any]


class Habits:
    """Which variables the replicas of one strategy have made, in which of its runs."""

    def __init__(self) -> None:
        self._made: dict[tuple[call_site.Site, str], _Made] = {}
        self._collected = 0  # the run in which it was last looked for what nobody keeps

    def look(self, variable: Any, site: call_site.Site, run: int) -> None:
        """Remarks on a variable that is the third of its kind.

        Args:
            variable: a replica has made it.
            site: where.
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
        # A variable and its copies refer to each other, so one that nobody keeps goes with a collection.
        if self._collected < run:
            self._collected = run
            gc.collect()
        return all(variable() is None for variable in variables)
