"""The page: one self-contained HTML file that shows a recording.

`page.html` is the page.  Its script is `page.js`, which reads the events, `page_draw.js`, which draws the lanes, and
`page_panels.js` for all that is beside them.  What a program printed, or called its variables, is text to the page: it
stands there compressed, in letters in which no tag can begin, the script makes text of it and nothing else, and the
policy in the page's head allows no other script and no address.  Nothing is left out of a long recording: compressed,
a hundred thousand events are about a megabyte.

The data is in columns, as a recording has many events that are alike.  What all events have is a list of differences
from one event to the next.  Each kind has its own fields: a column of whole numbers is a list of differences, too, and
any other one has indices into `values`, where each value stands once; so do summaries of arrays, which are equal for
all replicas that get one answer.  What is true at an event is found from these columns by bisection, at any event
equally fast.
"""

from __future__ import annotations

import base64
import html
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refdist.insight import findings, summaries
from refdist.insight.curves import curves_of
from refdist.insight.events import ARRAYS, KINDS, Event, tasks_of, workers_of
from refdist.insight.layout import in_order, lane_of_each, lanes_of, names_of, slots_of

_HERE = Path(__file__).parent
_SCRIPTS = ("page.js", "page_draw.js", "page_panels.js")
_HEIGHT = 760  # pixels of a page inside another


def write(path: str | os.PathLike[str], events: Sequence[Event], sources: Mapping[str, str]) -> None:
    """Writes the page of a recording."""
    Path(path).write_text(render(events, sources), encoding="utf-8")


def render(events: Sequence[Event], sources: Mapping[str, str]) -> str:
    """The page of a recording."""
    page = (_HERE / "page.html").read_text(encoding="utf-8")
    script = "".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    text = json.dumps(data(events, sources), separators=(",", ":")).encode()
    packed = base64.b64encode(zlib.compress(text, 6)).decode("ascii")
    return page.replace("__SCRIPT__", script).replace("__DATA__", packed)


def framed(events: Sequence[Event], sources: Mapping[str, str]) -> str:
    """The page in a sandboxed frame of another page."""
    return (f'<iframe title="Recording of {len(events)} events" sandbox="allow-scripts" width="100%" '
            f'height="{_HEIGHT}" style="border: 0" srcdoc="{html.escape(render(events, sources))}"></iframe>')


def data(events: Sequence[Event], sources: Mapping[str, str]) -> dict[str, Any]:
    """The data that the page's script reads."""
    slots = slots_of(events)
    shown = in_order(events, slots)
    position = {event.id: i for i, event in enumerate(shown)}
    each = lane_of_each(events)
    lanes = lanes_of(each)
    number = {lane: i for i, lane in enumerate(lanes)}
    devices = {each[event.id]: event.device for event in reversed(shown) if event.kind == "replica"}
    values, kinds = _Once(), list(KINDS)
    start = shown[0].time if shown else 0
    columns = {
        "id": [event.id for event in shown],
        "kind": [kinds.index(event.kind) for event in shown],
        "lane": [number[each[event.id]] for event in shown],
        "slot": [slots[event.id] for event in shown],
        "time": [(event.time - start) // 1000 for event in shown],
        "run": [event.run for event in shown],
        "step": [event.step for event in shown],
        "parent": [-1 if event.parent is None else position[event.parent] for event in shown],
    }
    fields, arrays = _fields(shown, values, position)
    tasks = tasks_of(events)
    bad = findings.not_carried_out(events)
    return {
        "kinds": kinds, "lanes": [(lane.worker, lane.replica, devices.get(lane, ""), name, *tasks[lane.worker])
                                  for lane, name in zip(lanes, names_of(lanes, events), strict=True)],
        "columns": {name: _differences(column) for name, column in columns.items()},
        "workers": workers_of(events),
        "fields": fields, "values": values.found, "summaries": arrays,
        "bad": sorted(position[i] for i in bad),
        "curves": [(curve.name, _differences([position[i] for i in curve.events]), curve.numbers)
                   for curve in curves_of(events)],
        "findings": [(position[finding.event], finding.wrong, finding.text) for finding in findings.findings(events)],
        "sources": dict(sources)}


class _Once:
    """A list without duplicates."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._known: dict[str, int] = {}

    def index(self, value: object) -> int:
        """The index of a value, which is added if it is new."""
        key = repr(value)  # of lists, dicts, texts and numbers, which a hash would not tell apart by type
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.found)
            self.found.append(value)
        return known


def _fields(events: Iterable[Event], values: _Once, position: Mapping[int, int]) -> tuple[Any, list[Any]]:
    """A column for each field of each kind of event, and a row of text for each summary that they refer to."""
    arrays = _Once()
    columns: dict[str, dict[str, list[Any]]] = {kind: {name: [] for name in KINDS[kind][1]} for kind in KINDS}
    for event in events:
        for name, column in columns[event.kind].items():
            value = event[name]
            if name == "of":
                value = position[value]
            elif name in ARRAYS:
                value = [arrays.index(summary) for summary in value]
            column.append(value)
    packed: dict[str, Any] = defaultdict(dict)
    for kind, named in columns.items():
        for name, column in named.items():
            if all(type(value) is int for value in column):
                packed[kind][name] = {"numbers": _differences(column)}
            else:
                packed[kind][name] = {"values": _differences([values.index(value) for value in column])}
    return packed, [_row(summary, values) for summary in arrays.found]


def _row(summary: summaries.Summary, types: _Once) -> list[Any]:
    return [types.index(summaries.type_text(summary)), summaries.text(summary), summary["nans"],
            summaries.nan_text(summary)]


def _differences(column: Sequence[int]) -> list[int]:
    return [number - before for number, before in zip(column, [0, *column], strict=False)]
