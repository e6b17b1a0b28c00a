"""Where a run is not as if its functions had run whole, one after the other.

Of two accesses that do not commute, the earlier one's function comes before the later one's; the coordinator, which
schedules and waits, comes in pieces of one step.  If that orders all functions, the run comes to what they come to in
this order.  If it goes in a circle, no order of whole functions has the same accesses in the same order, and the circle
says what went wrong: it is a row of KINDS.

Source: K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger, "The notions of consistency and predicate locks in a
database system", CACM 1976 (the graph); H. Berenson and others, "A critique of ANSI SQL isolation levels", SIGMOD 1995
(the names of the anomalies).

A function whose worker is lost runs again from its start.  What it wrote before stays, so that a run can come to what
no order of whole functions comes to; where the worker is lost before the function returns, that is all that it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from refdist.insight.commuting import Effect, Touch, commute
from refdist.insight.schedules import PROGRAM, RETURN, Process, Step, independent

_Piece = tuple[Process, int]  # a function, or a step of the coordinator


class Kind(NamedTuple):
    """What can go wrong between two functions.

    Attributes:
        title: what it is called.
        advice: what to write instead.
    """

    title: str
    advice: str


LOST_UPDATE = Kind("LOST UPDATE", "`{name}.assign_add(...)`, which is one access, or let one function alone write the "
                   "variable")
TORN_READ = Kind("TORN READ", "keep in one variable, on one server, what has to be read together")
TORN_WRITE = Kind("TORN WRITE", "keep in one variable, on one server, what has to be written together")
STALE_READ = Kind("STALE READ", "one access that reads and writes, because a value that was read can change before it "
                  "is used; or a `check` that accepts it")
NOT_RESTART_SAFE = Kind("NOT RESTART-SAFE", "all writes of the function in one access, its last one; or record in that "
                        "access that the work is done, and look for the record first")
RUN_TWICE = Kind("NOT RESTART-SAFE", "a value that does not depend on the one before it, by `assign` or "
                 "`scatter_update`; or record in the same access that the work is done, and look for the record first")
INTERRUPTED = Kind("NOT RESTART-SAFE", "save in one Checkpoint all that the program goes on from, while no function "
                   "runs; restore it first of all, and do only what is left to do")
TOO_STALE = Kind("TOO STALE", "`join` before so many functions read `{name}` at once, have fewer workers, or allow a "
                 "larger `max_staleness`")
SHARED = Kind("SHARED OBJECT", "a variable in its place, or what functions return; workers on other machines share no "
              "objects")
OTHER = Kind("NOT ONE AFTER THE OTHER", "let one function do it, or `join` between them")


class Anomaly(NamedTuple):
    """A cycle of dependencies of functions; a function that was lost after it wrote something; or a stale read.

    Attributes:
        kind: what it is.
        marked: the steps that make it, by their numbers; the last one shows which variable is wrong.
    """

    kind: Kind
    marked: tuple[int, ...]

    def moved(self, by: int) -> Anomaly:
        """The same anomaly after `by` further steps have been put before it."""
        return Anomaly(self.kind, tuple(i + by for i in self.marked))

    def subject(self, steps: Sequence[Step]) -> Step:
        """The step that shows the anomaly: the last one of the function that was overtaken or lost."""
        return steps[self.marked[-1]]


def anomaly(steps: Sequence[Step]) -> Anomaly | None:
    """The anomaly of a run, which no serial order has: a function lost half-way, or else a cycle of dependencies."""
    lost = next((i for i, step in enumerate(steps) if step.lost), None)
    if lost is not None:
        written = [i for i in range(lost) if steps[i].process == steps[lost].process
                   and (access := steps[i].touch) and access.writes]
        return Anomaly(RUN_TWICE if steps[lost].access is RETURN else NOT_RESTART_SAFE, (lost, *written))
    pieces = _pieces(steps)
    edges: dict[_Piece, dict[_Piece, tuple[int, int]]] = {}

    def add(i: int, j: int) -> None:
        if pieces[i] != pieces[j]:
            edges.setdefault(pieces[i], {}).setdefault(pieces[j], (i, j))

    own = -1  # the coordinator's last step
    for j, step in enumerate(steps):
        if step.starts >= 0:
            add(step.starts, j)
        if step.process == PROGRAM:
            if own >= 0:
                add(own, j)
            own = j
        for i in range(j):
            if (step.after and steps[i].process != PROGRAM) or not independent(steps[i], step):
                add(i, j)
    circle = _circle(edges)
    if circle is None:
        return None
    pairs = [edges[a][b] for a, b in zip(circle, circle[1:] + circle[:1], strict=True)]
    marked = tuple(sorted({i for pair in pairs for i in pair}))
    # The coordinator is one, where no circle of functions alone explains it.
    whole = [(step.process, 0) for step in steps]
    changing = [i for i in marked if steps[i].changes]
    return (_classified(steps, pieces) or _classified(steps, whole)
            or (Anomaly(SHARED, (*marked, changing[-1])) if changing else Anomaly(OTHER, marked)))


def too_stale(steps: Sequence[Step], bound: int) -> tuple[Anomaly, int] | None:
    """The first write computed from a read that is more than `bound` updates by others old, and how many there were.

    That is the oldest read of the variable since the function's own last write of it: a gradient is made from it,
    whatever is read later on.  A function that begins again is another process, and reads again.

    Returns:
        The read, the updates and the write, and the number of updates.
    """
    read: dict[Process, dict[int, int]] = {}  # function -> cell -> the step that read it
    for i, step in enumerate(steps):
        touch, own = step.touch, read.setdefault(step.process, {})
        if touch is None or step.process == PROGRAM:
            continue
        if not touch.writes:
            own.setdefault(touch.cell, i)
        elif touch.cell in own:
            since = own.pop(touch.cell)
            updates = [k for k in range(since, i) if steps[k].process != step.process
                       and (other := steps[k].touch) and other.writes and other.cell == touch.cell]
            if len(updates) > bound:
                return Anomaly(TOO_STALE, (since, *updates, i)), len(updates)
    return None


def _pieces(steps: Sequence[Step]) -> list[_Piece]:
    return [(step.process, i if step.process == PROGRAM else 0) for i, step in enumerate(steps)]


def _circle(edges: dict[_Piece, dict[_Piece, tuple[int, int]]]) -> list[_Piece] | None:
    done: set[_Piece] = set()
    for root in edges:
        if root in done:
            continue
        path = [root]
        stack = [(root, iter(edges[root]))]
        while stack:
            following = stack[-1][1]
            other = next(following, None)
            if other is None:
                stack.pop()
                done.add(path.pop())
            elif other in path:
                return path[path.index(other):]
            elif other not in done:
                path.append(other)
                stack.append((other, iter(edges.get(other, ()))))
    return None


def _classified(steps: Sequence[Step], pieces: Sequence[_Piece]) -> Anomaly | None:
    """Classifies a cycle of two: a and d are accesses of one function, b and c of another, a before b and c before d.
    """
    conflicts = [(i, j) for j in range(len(steps)) for i in range(j)
                 if pieces[i] != pieces[j] and not commute(steps[i].touch, steps[j].touch)]
    between: dict[tuple[_Piece, _Piece], list[tuple[int, int]]] = {}
    for i, j in conflicts:
        between.setdefault((pieces[i], pieces[j]), []).append((i, j))
    simplest: tuple[int, Anomaly | None] = (len(_KINDS), None)
    for a, b in conflicts:
        for c, d in between.get((pieces[b], pieces[a]), ()):
            if a < d:
                kind = _kind(*(steps[i].touch for i in (a, b, c, d)))  # type: ignore[arg-type]
                if _KINDS.index(kind) < simplest[0]:
                    simplest = _KINDS.index(kind), Anomaly(kind, tuple(sorted({a, b, c, d})))
    return simplest[1]


_KINDS = (LOST_UPDATE, TORN_READ, TORN_WRITE, STALE_READ, OTHER)  # the simplest first


def _kind(a: Touch, b: Touch, c: Touch, d: Touch) -> Kind:
    reads = Effect.READ
    if a.cell == d.cell and a.effect is reads and d.effect is Effect.ASSIGN:
        return LOST_UPDATE
    if a.cell != d.cell and (a.effect is reads is d.effect or b.effect is reads is c.effect):
        return TORN_READ
    if a.cell == d.cell and a.effect is reads is d.effect:
        return TORN_READ
    if a.writes and b.writes and c.writes and d.writes:
        return TORN_WRITE
    if reads in (a.effect, b.effect, c.effect, d.effect):
        return STALE_READ
    return OTHER
