"""Numbers that a program reduces or returns again and again: the loss, the norm of a gradient, an accuracy.

A curve is what one line of the program gives, call after call: a `reduce` outside replicas, a collective call in them,
or what `run` returned.  Only single numbers have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from refdist.insight.events import Event, tasks_of
from refdist.insight.summaries import Summary
from refdist.workers.launcher import Task

_LEAST = 3  # the fewest calls that make a curve


class Curve(NamedTuple):
    """The numbers that one line of the program gives, call after call.

    Attributes:
        name: what was called and where.
        events: the `id` of the event that has each number.
        numbers: what came of each call; a float that is none in JSON is text.
    """

    name: str
    events: list[int]
    numbers: list[float | str]


def curves_of(events: Sequence[Event]) -> list[Curve]:
    """The curves of a recording, reductions outside replicas first.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with refdist.record() as recording:
    ...     for loss in (3.0, 2.0, 1.0):
    ...         _ = strategy.reduce("MEAN", strategy.run(lambda: loss), axis=None)
    >>> [(curve.name.split()[0], curve.numbers) for curve in curves_of(recording.events)]
    [('Strategy.reduce', [3.0, 2.0, 1.0]), ('<lambda>', [3.0, 2.0, 1.0]), ('<lambda>', [3.0, 2.0, 1.0])]
    """
    by_id, tasks = {event.id: event for event in events}, tasks_of(events)
    curves: dict[tuple[int, str], Curve] = {}
    for event in events:
        for rank, name, arrays in _given(event, by_id, tasks):
            for i, summary in enumerate(arrays):
                if _is_number(summary):
                    named = name + (f", array {i}" if len(arrays) > 1 else "")
                    curve = curves.setdefault((rank, named), Curve(named, [], []))
                    curve.events.append(event.id)
                    curve.numbers.append(summary["items"])
    kept = [(rank, curve) for (rank, _), curve in curves.items() if len(curve.numbers) >= _LEAST]
    return [curve for _, curve in sorted(kept, key=lambda of_key: of_key[0])]


def _given(event: Event, by_id: dict[int, Event], tasks: Mapping[int, Task]
           ) -> Iterable[tuple[int, str, list[Summary]]]:
    # (rank of the kind of call, name of the curve, results) for the call that an event ends.
    on = f" on {tasks[event.worker]}" if event.worker else ""
    if event.kind == "return" and event.parent is not None:
        of = by_id[event.parent]
        if of.kind == "reduce":
            yield 0, f"{of['call']} {of['op'] or ''} at {_line(of)}{on}", event["returned"]
        elif of.kind == "replica" and of.parent is not None:
            where = _line(by_id[of.parent])
            yield 2, f"{of['function']} at {where} on replica {event.replica}", event["returned"]
    elif event.kind == "receive":
        of = by_id[event["of"]]
        # All replicas get the same.
        if of["op"] and event.replica == _first(of, by_id):
            yield 1, f"{of['call']} {of['op']} at {_line(of)}{on}", event["received"]


def _first(event: Event, by_id: dict[int, Event]) -> int:
    # The first replica of the run that an event of a replica belongs to.
    while event.parent is not None:
        event = by_id[event.parent]
        if event.kind == "run":
            return int(event["first"])
    return 0


def _line(event: Event) -> str:
    site = event.fields.get("site") or ["an unknown line"]
    return str(site[0]).replace("\\", "/").rpartition("/")[2]


def _is_number(summary: Summary) -> bool:
    return summary["shape"] == [] and isinstance(summary.get("items"), (int, float, str)) and (
        summary["dtype"].startswith(("float", "int", "uint", "bfloat")))
