"""A recording in the Trace Event Format, which Perfetto and chrome://tracing show.

A worker is a process of it, and each replica a thread, beside one for what concerns all replicas of the worker.  What
begins and ends is a complete event ("X"), which nests by its times; a replica that waits is one too.  Arrows go from
each replica that arrives to where the call is carried out, and from there to each replica that goes on.

Three things are as Perfetto reads them, where the format leaves them open.  Process 0 and thread 0 are the kernel's
idle task there, and a thread is found by its number alone, so all numbers are from 1 and different, and a process has
that of its first thread.  Times are microseconds, made whole nanoseconds by cutting off, so each is the smallest
number that is not cut to the nanosecond before; else slices would overlap by one.  And an arrow binds to the slice
that was read last on its thread, so arrows come after all slices, and what goes on is an event of its own.

Sources: Google's "Trace Event Format", sections "Complete Events", "Instant Events", "Flow Events" and "Metadata
Events"; Perfetto's "Visualizing external trace formats", section "Chrome JSON format", its reader
(`importers/json/json_trace_parser_impl.cc`, `json_trace_utils.cc`), and its issues 394 and 560.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from refdist.insight.events import BEGINNINGS, Event, tasks_of
from refdist.insight.layout import Lane, lane_of_each, lanes_of

_INSTANTS = ("process", "receive", "return", "transfer", "variable", "write", "read", "schedule", "step", "print",
             "warning", "error")
_ARROW = "rendezvous"


def trace_of(events: Sequence[Event]) -> dict[str, Any]:
    """The object that a trace file holds."""
    start = min((event.time for event in events), default=0)
    stop = max((event.time for event in events), default=0)
    ends: dict[int | None, int] = {event["of"]: event.time for event in events if event.kind in ("end", "receive")}
    each = lane_of_each(events)
    numbers = {lane: i for i, lane in enumerate(lanes_of(each), 1)}

    def at(event: Event) -> dict[str, Any]:
        return {"pid": numbers[Lane(event.worker)], "tid": numbers[each[event.id]], "ts": _micro(event.time - start)}

    slices, arrows = _names(events, each, numbers), []
    combined = {(event.worker, event["rendezvous"]): event for event in events if event.kind == "combine"}
    for event in events:
        named = {"name": _name(event), "cat": event.kind, "args": _args(event)}
        if event.kind in BEGINNINGS or event.kind == "meet":
            # An event without an end lasts as long as the event that it is part of.
            end = ends[event.id] = ends.get(event.id, ends.get(event.parent, stop))
            slices.append({**named, "ph": "X", **at(event), "dur": _micro(end - event.time)})
        elif event.kind in _INSTANTS:
            slices.append({**named, "ph": "i", **at(event), "s": "t"})
        if event.kind in ("meet", "receive"):
            other = combined.get((event.worker, event["rendezvous"]))
            if other is not None:
                both = (event, other) if event.kind == "meet" else (other, event)
                arrows += _arrow(event.id, *map(at, both))
    return {"traceEvents": slices + arrows, "displayTimeUnit": "ns", "otherData": {"events": len(events)}}


def _micro(nanoseconds: int) -> float:
    microseconds = nanoseconds / 1000
    return microseconds if int(microseconds * 1000) == nanoseconds else math.nextafter(microseconds, math.inf)


def _names(events: Sequence[Event], each: Sequence[Lane], numbers: dict[Lane, int]) -> list[dict[str, Any]]:
    devices = {each[event.id]: event.device for event in reversed(events)}
    tasks, names = tasks_of(events), []
    for lane, number in numbers.items():
        here = {"ph": "M", "pid": numbers[Lane(lane.worker)], "tid": number}
        if lane == Lane(lane.worker):
            names.append({"name": "process_name", **here, "args": {"name": str(tasks[lane.worker])}})
        name = (f"replica {lane.replica} on {devices[lane]}" if lane.replica is not None
                else f"functions of worker {lane.task}" if lane.task >= 0 else "all replicas")
        names.append({"name": "thread_name", **here, "args": {"name": name}})
        names.append({"name": "thread_sort_index", **here, "args": {"sort_index": number}})
    return names


def _arrow(number: int, begin: Mapping[str, object], end: Mapping[str, object]) -> list[dict[str, Any]]:
    # "bp": "e" binds the arrow's end to the slice that is open there, not to the next one.
    return [{"name": _ARROW, "cat": _ARROW, "ph": "s", "id": number, **begin},
            {"name": _ARROW, "cat": _ARROW, "ph": "f", "bp": "e", "id": number, **end}]


def _name(event: Event) -> str:
    fields = event.fields
    if event.kind == "transfer":
        return f"{fields['source']} to {fields['destination']}"
    named = next((fields[name] for name in ("call", "function", "variable", "text") if fields.get(name)), "")
    return str(named) if event.kind in ("meet", "combine", "exchange", "replica") else f"{event.kind} {named}".strip()


def _args(event: Event) -> dict[str, Any]:
    return {"id": event.id, "run": event.run, "step": event.step, **event.fields}
