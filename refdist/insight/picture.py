"""A recording as a picture: a lane for each replica, a column for each rendezvous.

A dot is a replica that arrives, with the line it is at where not all are at the same one; a column whose call was not
carried out is red.  Columns are in the order in which they were begun, and as wide as each other: what counts is who
meets whom, and not how long it took.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

from refdist import notebook
from refdist.insight.events import Event, tasks_of

_COLUMN, _LANE, _LABEL, _TOP = 64, 34, 150, 150  # pixels
_MOST = 400
_RED, _BLUE, _GREY = "#c62828", "#1565c0", "#9e9e9e"


class Column(NamedTuple):
    """One rendezvous of replicas, or of workers.

    Attributes:
        arrived: the event of each lane that came to it.
        carried_out: whether the call was carried out.
    """

    arrived: dict[tuple[int, int | None], Event]
    carried_out: bool


def columns_of(events: Sequence[Event]) -> list[Column]:
    """The rendezvous, in the order in which they began."""
    arrivals: dict[tuple[object, ...], dict[tuple[int, int | None], Event]] = {}
    done = {("meet", event.worker, event["rendezvous"]) for event in events if event.kind == "combine"}
    returned = {event["of"] for event in events if event.kind == "end" and event["how"] == "returned"}
    for event in events:
        if event.kind == "meet":
            arrivals.setdefault(("meet", event.worker, event["rendezvous"]), {})[event.worker, event.replica] = event
        elif event.kind == "exchange":
            arrivals.setdefault(("exchange", event["exchange"]), {})[event.worker, None] = event
    return [Column(arrived, key in done if key[0] == "meet" else any(
        event.id in returned for event in arrived.values())) for key, arrived in arrivals.items()]


def picture_of(events: Sequence[Event]) -> str:
    """The picture as SVG; of a long recording the last columns."""
    everything = columns_of(events)
    columns = everything[-_MOST:]
    lanes = sorted({lane for column in everything for lane in column.arrived}
                   | {(event.worker, event.replica) for event in events if event.kind == "replica"},
                   key=lambda lane: (lane[0], -1 if lane[1] is None else lane[1]))
    tasks, workers = tasks_of(events), len({worker for worker, _ in lanes})
    at = {lane: _TOP + _LANE * i + _LANE // 2 for i, lane in enumerate(lanes)}
    width, height = _LABEL + _COLUMN * len(columns) + 60, _TOP + _LANE * len(lanes) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="12" role="img"><title>{len(everything)} rendezvous of {len(lanes)} lanes</title>',
             '<rect width="100%" height="100%" fill="white"/>']
    for (worker, replica), y in at.items():
        name = str(tasks[worker]) if replica is None else f"replica {replica}"
        parts.append(_text(8, y + 4, f"{name} of {tasks[worker]}" if workers > 1 and replica is not None else name))
        parts.append(f'<line x1="{_LABEL}" y1="{y}" x2="{width - 10}" y2="{y}" stroke="{_GREY}" stroke-width="0.5"/>')
    for i, column in enumerate(columns):
        parts += _drawn(column, _LABEL + _COLUMN * i + _COLUMN // 2, at)
    return "\n".join([*parts, "</svg>"])


def _drawn(column: Column, x: int, at: dict[tuple[int, int | None], int]) -> list[str]:
    colour = _BLUE if column.carried_out else _RED
    arrived = list(column.arrived.items())
    heights = [at[lane] for lane, _ in arrived]
    first = arrived[0][1]
    places = {_line(event) for _, event in arrived}
    line = _line(first) if len(places) == 1 else ""
    label, short = f"{first['call']} {line}".strip(), f"{first['call'].partition(' of ')[0]} {line}".strip()
    parts = [f'<g><title>{html.escape(label)}, run {first.run}, {first["bytes"]} bytes each</title>',
             f'<line x1="{x}" y1="{min(heights)}" x2="{x}" y2="{max(heights)}" stroke="{colour}" stroke-width="2"/>',
             f'<text x="{x}" y="{_TOP - 8}" transform="rotate(-45 {x} {_TOP - 8})" fill="{colour}">'
             f'{html.escape(short if len(short) <= 30 else short[:29] + "…")}</text>']
    for lane, event in arrived:
        parts.append(f'<circle cx="{x}" cy="{at[lane]}" r="5" fill="{colour}"/>')
        if len(places) > 1:
            parts.append(_text(x + 8, at[lane] - 4, str(notebook.parts(_line(event))[1]), colour))
    return [*parts, "</g>"]


def _line(event: Event) -> str:
    place: str = event["site"][0] if event["site"] else ""
    return place.replace("\\", "/").rpartition("/")[2]


def _text(x: int, y: int, text: str, colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{html.escape(text)}</text>'
