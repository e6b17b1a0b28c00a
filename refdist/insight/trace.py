"""A recording in the Trace Event Format, which Perfetto and chrome://tracing show.

A worker is a process of it, and each replica a thread, beside one for what concerns all replicas of the worker.  What
begins and ends is a complete event ("X"), which nests by its times; a replica that waits is one too.  Arrows go from
each replica that arrives to where the call is carried out, and from there to each replica that goes on.

Source: Google's "Trace Event Format", sections "Complete Events", "Instant Events", "Flow Events" and "Metadata
Events"; times are microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refdist.insight.events import BEGINNINGS, Event

_INSTANTS = ("transfer", "variable", "write", "step", "print", "warning", "error")
_ARROW = "rendezvous"


def trace_of(events: Sequence[Event]) -> dict[str, Any]:
    """The object that a trace file holds."""
    start = min((event.time for event in events), default=0)
    stop = max((event.time for event in events), default=0)
    ends: dict[int | None, int] = {event["of"]: event.time for event in events if event.kind in ("end", "receive")}
    found = _names(events)
    combined = {(event.worker, event["rendezvous"]): event for event in events if event.kind == "combine"}
    for event in events:
        here = {"pid": event.worker, "tid": _thread(event), "ts": (event.time - start) / 1000}
        if event.kind in BEGINNINGS or event.kind == "meet":
            # What does not go on, or was killed, lasts as long as what it is part of.
            end = ends[event.id] = ends.get(event.id, ends.get(event.parent, stop))
            found.append({"name": _name(event), "cat": event.kind, "ph": "X", **here,
                          "dur": (end - event.time) / 1000, "args": _args(event)})
        elif event.kind in _INSTANTS:
            found.append({"name": _name(event), "cat": event.kind, "ph": "i", **here, "s": "t", "args": _args(event)})
        if event.kind in ("meet", "receive"):
            other = combined.get((event.worker, event["rendezvous"]))
            if other is not None:
                there = {"pid": other.worker, "tid": _thread(other), "ts": (other.time - start) / 1000}
                found += _arrow(event.id, here, there) if event.kind == "meet" else _arrow(event.id, there, here)
    return {"traceEvents": found, "displayTimeUnit": "ns", "otherData": {"events": len(events)}}


def _names(events: Sequence[Event]) -> list[dict[str, Any]]:
    threads: dict[tuple[int, int], str] = {}
    for event in events:
        threads.setdefault((event.worker, 0), "all replicas")
        if event.replica is not None:
            threads.setdefault((event.worker, _thread(event)), f"replica {event.replica} on {event.device}")
    found = [{"name": "process_name", "ph": "M", "pid": worker, "tid": 0, "args": {"name": f"worker {worker}"}}
             for worker in sorted({worker for worker, _ in threads})]
    for (worker, thread), name in sorted(threads.items()):
        found.append({"name": "thread_name", "ph": "M", "pid": worker, "tid": thread, "args": {"name": name}})
        found.append({"name": "thread_sort_index", "ph": "M", "pid": worker, "tid": thread,
                      "args": {"sort_index": thread}})
    return found


def _arrow(number: int, begin: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    # The end binds to the slice that is open there, not to the next one.
    return [{"name": _ARROW, "cat": _ARROW, "ph": "s", "id": number, **begin},
            {"name": _ARROW, "cat": _ARROW, "ph": "f", "bp": "e", "id": number, **end}]


def _thread(event: Event) -> int:
    return 0 if event.replica is None else event.replica + 1


def _name(event: Event) -> str:
    fields = event.fields
    if event.kind == "transfer":
        return f"{fields['source']} to {fields['destination']}"
    named = next((fields[name] for name in ("call", "function", "variable", "text") if fields.get(name)), "")
    return str(named) if event.kind in ("meet", "combine", "exchange", "replica") else f"{event.kind} {named}".strip()


def _args(event: Event) -> dict[str, Any]:
    return {"id": event.id, "run": event.run, "step": event.step, **event.fields}
