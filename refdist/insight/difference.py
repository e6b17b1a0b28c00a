"""Where two recordings begin to differ.

Recordings of one program are compared lane by lane: what each replica of a worker did, one thing after another, and
what each worker did for all of its replicas.  So the order in which replicas take turns is no difference.  What only
says where and when something happened is none either: times, lines of the program, folders, devices, and the bytes that
a plan moves between them; nor are the seeds that workers draw and agree upon.

A program on another number of replicas does other things on each of them.  There only what is equal on all replicas is
compared, one value after another: what reductions give, and what variables are written.  Sums of floats may then differ
by the order of their terms.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from refdist.insight.events import ARRAYS, COMMON, Event, tasks_of
from refdist.notebook import drawing
from refdist.workers.launcher import Task

# Fields that say where something happened, not what.  Rendezvous and exchanges are compared by their place in the lane.
_LEFT_OUT = {*COMMON, "site", "device", "devices", "of", "first", "rendezvous", "exchange", "number", "scheduled"}
_NOT_COMPARED = {"program", "process", "transfer", "combine"}
_SEED = "agreeing on a seed"
_PLACES = re.compile(r"[^\s'\"(]*?([\w.-]+\.(?:py|ipynb|md)):\d+|Cell In\[\d+\], line \d+")
_ROUNDING = 1e-4  # relative to the largest item, for sums with other numbers of terms


class Difference(NamedTuple):
    """The first event at which two recordings differ; `print` shows both sides.

    Attributes:
        number: its position in this recording, or in the other where this one has ended.
        mine, theirs: the event in each; None where a recording has ended.
        fields: the names of what differs.
        tasks: which task of the cluster each worker is.
        causes: the event that each belongs to, as an answer to its call; None for none.
    """

    number: int
    mine: Event | None
    theirs: Event | None
    fields: tuple[str, ...]
    tasks: Mapping[int, Task] = MappingProxyType({})
    causes: tuple[Event | None, Event | None] = (None, None)

    def __str__(self) -> str:
        heads, *rows = self._sides()
        if len(heads) == 1:
            return f"{self._head()}: {rows[0][0]}"
        lines = [self._head()]
        for i, name in enumerate(heads[1:], 1):
            lines.append(f"  {name}: {rows[0][i]}")
            lines += [f"    {row[0]}: {row[i]}" for row in rows[1:]]
        return "\n".join(lines)

    def _head(self) -> str:
        """What differs, in a sentence."""
        if self.mine is None or self.theirs is None:
            return f"only {'the other' if self.theirs is not None else 'this'} recording has event {self.number}"
        return f"event {self.number} differs in {', '.join(self.fields)}"

    def _sides(self) -> list[tuple[str, ...]]:
        """Both sides as the rows of a table, below their names; one side where a recording has ended."""
        if self.mine is None or self.theirs is None:
            return [("event",), (self._shown(self.mine or self.theirs, self.causes[self.mine is None]),)]
        both = self.mine, self.theirs
        fields = [field for field in self.fields if field != "kind"]
        return [("", "this", "other"), ("event", *map(self._shown, both, self.causes)),
                *((field, *(_shown_value(event.fields.get(field, "")) for event in both)) for field in fields)]

    def _repr_html_(self) -> str:
        return drawing(self)

    def _shown(self, event: Event | None, cause: Event | None) -> str:
        assert event is not None
        where = str(self.tasks[event.worker]) + ("" if event.replica is None else f", replica {event.replica}")
        of = event if cause is None else cause
        what = next(filter(None, map(of.fields.get, ("call", "variable", "text", "function"))), "")
        what = f"of {what}" if cause is not None and what else what
        line = (of.fields.get("site") or [""])[0]
        return " ".join(part for part in (event.kind, what, f"({line})" if line else "", f"on {where}, run {event.run}")
                        if part)


def difference(this: Sequence[Event], other: Sequence[Event]) -> Difference | None:
    """The first difference; None where there is none."""
    here, there = _replicas(this), _replicas(other)
    if here and there and here != there:
        first = _first_value(this, other)
    else:
        lanes, other_lanes = _lanes(this), _lanes(other)
        differences = [_first(lanes.get(lane, []), other_lanes.get(lane, [])) for lane in {**lanes, **other_lanes}]
        first = min(filter(None, differences), default=None,
                    key=lambda difference: (difference.mine or difference.theirs).id)  # type: ignore[union-attr]
    return first and first._replace(tasks=tasks_of([*this, *other]),
                                    causes=(_cause(first.mine, this), _cause(first.theirs, other)))


def _cause(event: Event | None, events: Sequence[Event]) -> Event | None:
    # The event of the call that this event answers, or of what has ended or returned.
    if event is None or event.kind not in ("receive", "return", "end"):
        return None
    number = event.parent if event.kind == "return" else event["of"]
    return None if number is None else events[number]


def _replicas(events: Sequence[Event]) -> dict[int, int]:
    # Worker -> the most replicas of a run; not how many have begun, because a run may be stopped before all have.
    most: dict[int, int] = {}
    for event in events:
        if event.kind == "run":
            most[event.worker] = max(event["replicas"], most.get(event.worker, 0))
    return most


def _lanes(events: Sequence[Event]) -> dict[tuple[int, int | None], list[Event]]:
    lanes: dict[tuple[int, int | None], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind not in _NOT_COMPARED and not (
                event.kind == "end" and events[event["of"]].kind in _NOT_COMPARED):
            lanes[event.worker, event.replica].append(event)
    return lanes


def _first(this: Sequence[Event], other: Sequence[Event]) -> Difference | None:
    for event, counterpart in zip_longest(this, other):
        if event is None or counterpart is None:
            return Difference((event or counterpart).id, event, counterpart, ())
        here, there = _compared(event), _compared(counterpart)
        fields = tuple(name for name in {**here, **there} if here.get(name) != there.get(name))
        if fields:
            return Difference(event.id, event, counterpart, ("kind",) if "kind" in fields else fields)
    return None


def _compared(event: Event) -> dict[str, Any]:
    fields = {name: value for name, value in event.fields.items() if name not in _LEFT_OUT}
    if fields.get("call") == _SEED:
        del fields["contributed"]
    if "text" in fields:
        fields["text"] = _PLACES.sub(lambda place: place[1] or "a cell", fields["text"])
    return {"kind": event.kind, **fields}


def _first_value(this: Sequence[Event], other: Sequence[Event]) -> Difference | None:
    for here, there in zip_longest(_values(this), _values(other)):
        if here is None or there is None:
            return Difference((here or there)[0].id, here and here[0], there and there[0], ())
        (event, name, value), (counterpart, its_name, its_value) = here, there
        if name != its_name:
            return Difference(event.id, event, counterpart, ("kind",))
        if not _near(value, its_value):
            [field] = [field for field in ARRAYS if field in event.fields]
            return Difference(event.id, event, counterpart, (field,))
    return None


def _values(events: Sequence[Event]) -> Iterator[tuple[Event, str, list[Any]]]:
    """Yields the values that are equal on all replicas, in order: the event, its name, and the summaries."""
    first = min((event.replica for event in events if event.replica is not None), default=None)
    for event in events:
        if event.worker:
            continue
        if event.kind == "write" and event["copy"] is None:
            yield event, f"variable {event['variable']}", event["copies"][:1]
        elif event.kind == "receive" and event.replica == first and events[event["of"]]["op"]:
            yield event, str(events[event["of"]]["call"]), event["received"]
        elif event.kind == "return" and event.parent is not None and events[event.parent].kind == "reduce":
            yield event, str(events[event.parent]["call"]), event["returned"]


def _near(value: Any, other: Any) -> bool:
    if isinstance(value, dict) and isinstance(other, dict):
        if (value["dtype"], value["shape"]) != (other["dtype"], other["shape"]):
            return False
        largest = max((abs(limit) for summary in (value, other) for limit in (summary["min"], summary["max"])
                       if isinstance(limit, (int, float))), default=0.0)
        return all(_close(value.get(name), other.get(name), largest)
                   for name in ("min", "max", "norm", "items", "first"))
    return len(value) == len(other) and all(map(_near, value, other))


def _close(value: Any, other: Any, largest: float) -> bool:
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(_close(a, b, largest) for a, b in zip(value, other, strict=True))
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING * largest)
    return bool(value == other)


def _shown_value(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(summary, dict) for summary in value):
        return ", ".join(f"{summary['dtype']} {summary['shape']} {summary.get('items', summary.get('first'))}"
                         for summary in value)
    return str(value)
