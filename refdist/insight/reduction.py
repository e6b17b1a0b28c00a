"""All schedules of a program, one of each class: those of a class differ in the order of accesses that commute.

Dynamic partial-order reduction with source sets and sleep sets.  After each run, every pair of accesses of different
processes that do not commute, and that nothing else orders, is a race: one that makes the other order happen is added
to what is tried at the step before the first of the two.  What has been tried at a step sleeps in what is tried there
afterwards, until somebody makes an access that does not commute with its own.

What is waited for counts as order only where it is certain: a function comes after the step that scheduled it, and what
follows `join` comes after all functions.  Where a process could not go on before the race, everything that could is
tried.  So an order that is not known here costs runs, and loses none.

Source: P. A. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, "Optimal dynamic partial order reduction", POPL 2014,
algorithm 1 (source sets); C. Flanagan, P. Godefroid, "Dynamic partial-order reduction for model checking software",
POPL 2005 (what is tried where a process cannot go on).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refdist.insight.commuting import Commutes, Touch, commute
from refdist.insight.schedules import Process, Run, Step, independent
from refdist.insight.sharing import ENDED

Clock = dict[Process, int]
"""How many steps of each process come before a step, its own included."""

ASLEEP = "all that could go on has been tried elsewhere"
DIFFERS = "it is another program than before"


class _Node:
    """A step of the run that is being tried: what could go on there, and what has been tried."""

    __slots__ = ("chosen", "done", "sleep", "touches", "wanted")

    def __init__(self, touches: dict[Process, Touch | None], sleep: dict[Process, Step], chosen: Process) -> None:
        self.touches = touches
        self.sleep = sleep
        self.chosen = chosen
        self.wanted = [chosen]
        self.done: dict[Process, Step | None] = {}  # what they did; None where the run ended before

    def asleep_afterwards(self, step: Step, commutes: Commutes) -> dict[Process, Step]:
        """What sleeps after `step`, which the one that was chosen has made."""
        return {process: tried for process, tried in (self.sleep | self.done).items()
                if process != self.chosen and tried is not None and independent(tried, step, commutes)}


class Reduction:
    """The runs that are still to be tried.

    Args:
        commutes: of which accesses only one order is tried.

    Attributes:
        finished: whether there are none.
    """

    def __init__(self, commutes: Commutes = commute) -> None:
        self.finished = False
        self._commutes = commutes
        self._nodes: list[_Node] = []
        self._fresh = 0  # the first step at which the current run differs from earlier ones

    def decide(self, run: Run, processes: dict[Process, int]) -> int:
        """Chooses the next step of a run; see `Decide`.

        Raises:
            Cut: the run is one that was tried (ASLEEP), or does not repeat what it did before (DIFFERS).
        """
        depth = len(run.steps)
        touches = {process: run.touch_of(process) for process in processes}
        if depth < len(self._nodes):
            node = self._nodes[depth]
            if touches != node.touches:
                raise run.stop(DIFFERS)
            return processes[node.chosen]
        sleep = self._nodes[-1].asleep_afterwards(run.steps[-1], self._commutes) if self._nodes else {}
        chosen = next((process for process in processes if process not in sleep), None)
        if chosen is None:
            raise run.stop(ASLEEP)
        self._nodes.append(_Node(touches, sleep, chosen))
        return processes[chosen]

    def learn(self, run: Run) -> None:
        """Learns from a run which others have to be tried, and goes on to the next of them."""
        if run.cut in ("", ASLEEP):
            self._learn_races(run.steps)
        nodes = self._nodes
        while nodes:
            node = nodes[-1]
            node.done[node.chosen] = run.steps[len(nodes) - 1] if len(run.steps) >= len(nodes) else None
            chosen = next((process for process in node.wanted
                           if process not in node.done and process not in node.sleep), None)
            if chosen is not None:
                node.chosen = chosen
                self._fresh = len(nodes) - 1
                return
            nodes.pop()
        self.finished = True

    def _learn_races(self, steps: Sequence[Step]) -> None:
        clocks = Clocks(self._commutes)
        for last, step in enumerate(steps):
            raced = clocks.add(step)
            if last < self._fresh:
                continue
            for first in raced:
                self._want(steps, clocks, first, last)
            if ENDED in step.wrote:  # what others would have done does not follow
                self._want_all(self._nodes[last])

    def _want(self, steps: Sequence[Step], clocks: Clocks, first: int, last: int) -> None:
        node = self._nodes[first]
        between = [k for k in range(first + 1, last) if not clocks.ordered(first, k)] + [last]
        begun: set[Process] = set()
        could: list[Process] = []
        for place, k in enumerate(between):
            process = steps[k].process
            if process in begun:
                continue
            begun.add(process)
            if process in node.touches and not any(
                    clocks.ordered(earlier, k) for earlier in between[:place]):
                could.append(process)
        if not could:
            self._want_all(node)
        elif not set(could) & set(node.wanted):
            node.wanted.append(steps[last].process if steps[last].process in could else could[0])


    def _want_all(self, node: _Node) -> None:
        node.wanted += [process for process in node.touches if process not in node.wanted]


class Clocks:
    """Vector clocks: which steps of a run come before which others in every schedule of its class."""

    def __init__(self, commutes: Commutes = commute) -> None:
        self._commutes = commutes
        self._steps: list[Step] = []
        self._clocks: list[Clock] = []
        self._numbers: list[int] = []  # the number of each step among those of its process
        self._last: dict[Process, int] = {}
        self._touching: dict[int, list[int]] = {}  # cell -> the steps that touch it
        self._changes = False  # whether a step has changed more than a variable

    def ordered(self, first: int, second: int) -> bool:
        """Whether the step `first` comes before the step `second` in every schedule of the class."""
        return self._clocks[second].get(self._steps[first].process, 0) >= self._numbers[first]

    def add(self, step: Step, races: bool = True) -> list[int]:
        """Adds the next step, and returns the earlier ones that it races with, from the last to the first.

        Args:
            step: a step of a program or of a scheduled function.
            races: whether steps that race with this one are ordered before it; if not, only steps that it waits for.
        """
        process, access = step.process, step.touch
        previous = self._last.get(process)
        clock: Clock = {} if previous is None else dict(self._clocks[previous])
        if step.starts >= 0:
            _merge(clock, self._clocks[step.starts])
        if step.after:
            for other in self._last.values():
                _merge(clock, self._clocks[other])
        raced: list[int] = []
        self._changes = self._changes or bool(step.wrote)
        touching = [] if access is None else self._touching.setdefault(access.cell, [])
        for k in reversed(range(len(self._steps)) if self._changes else touching) if races else ():
            earlier = self._steps[k]
            concurrent = earlier.process != process and clock.get(earlier.process, 0) < self._numbers[k]
            if concurrent and not independent(earlier, step, self._commutes):
                raced.append(k)
                _merge(clock, self._clocks[k])
        touching.append(len(self._steps))
        number = clock[process] = clock.get(process, 0) + 1
        self._last[process] = len(self._steps)
        self._steps.append(step)
        self._numbers.append(number)
        self._clocks.append(clock)
        return raced


def _merge(clock: Clock, other: Clock) -> None:
    for process, number in other.items():
        if clock.get(process, 0) < number:
            clock[process] = number


def signature(steps: Iterable[Step]) -> frozenset[tuple[tuple[Process, int], tuple[Process, int]]]:
    """The class of a run: the order of its steps that do not commute."""
    counts: dict[Process, int] = {}
    named: list[tuple[tuple[Process, int], Step]] = []
    ordered = set()
    for step in steps:
        if step.touch is not None or step.wrote:
            counts[step.process] = number = counts.get(step.process, 0) + 1
            own = (step.process, number)
            ordered |= {(other, own) for other, earlier in named
                        if other[0] != step.process and not independent(earlier, step)}
            named.append((own, step))
    return frozenset(ordered)
