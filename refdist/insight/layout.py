"""The layout of a picture of a recording: a row for each lane, and slots from left to right.

Time is not drawn to scale: replicas take turns, and workers that wait for each other may have recorded on different
clocks.  A slot says what comes after what instead.  All that arrive at one rendezvous, or exchange, share a slot with
the call that is carried out; what is moved for one call shares one, too, and an end has that of what came last before.
Apart from that an event stands right of the one before it in its lane, of what it is part of, and, when it goes on
with an answer, of the call that made the answer; an error stands right of all that its worker has done.

So a slot is the length of the longest way through a graph.  A recording that was written by a program that was killed
half way has no cycle in it; one that was put together wrongly might, and there the event that was recorded first wins.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from refdist.insight.events import Event, tasks_of
from refdist.workers.launcher import CHIEF


class Lane(NamedTuple):
    """A row of the picture.

    Attributes:
        worker: the number of the worker.
        task: of a coordinator's worker, its number, and -1 for anything else.
        strategy: which of the worker's strategies the replica belongs to, in the order of their first runs.
        replica: its number; None for what concerns all replicas of the worker.
    """

    worker: int
    task: int = -1
    strategy: int = 0
    replica: int | None = None


def lane_of_each(events: Sequence[Event]) -> list[Lane]:
    """The lane of each event; `events[i].id` is i."""
    tasks, strategies = [-1] * len(events), [0] * len(events)
    known: dict[tuple[int, int], dict[tuple[object, ...], int]] = defaultdict(dict)
    named = {event.worker for event in events if event.kind == "process"}  # each has a lane for its task
    lanes = []
    for event in events:
        i, parent = event.id, event.parent
        if parent is not None:
            tasks[i], strategies[i] = tasks[parent], strategies[parent]
        if event.kind == "function" and event.worker not in named:
            tasks[i] = event["task"]
        elif event.kind == "run":
            here = known[event.worker, tasks[i]]
            strategies[i] = here.setdefault((event["strategy"], *event["devices"]), len(here))
        elif event.kind == "end":
            # Of what it ends; the first replica of another strategy is another one.
            tasks[i], strategies[i] = tasks[event["of"]], strategies[event["of"]]
        lanes.append(Lane(event.worker, tasks[i], 0 if event.replica is None else strategies[i], event.replica))
    return lanes


def lanes_of(each: Iterable[Lane]) -> list[Lane]:
    """All lanes from top to bottom: of each worker its own, and then those of its replicas."""
    lanes = {*each}
    lanes |= {Lane(lane.worker, lane.task) for lane in lanes} | {Lane(lane.worker) for lane in lanes}
    return sorted(lanes, key=lambda lane: (*lane[:3], -1 if lane.replica is None else lane.replica))


def names_of(lanes: Sequence[Lane], events: Sequence[Event]) -> list[str]:
    """The label of each lane."""
    tasks = tasks_of(events)
    coordinators = {event.worker for event in events if event.kind == "schedule"}
    names = []
    for lane in lanes:
        if lane.replica is not None:
            names.append(f"replica {lane.replica}")
        elif lane.task >= 0:
            names.append(f"worker {lane.task}")
        elif lane.worker in coordinators and tasks[lane.worker].type != CHIEF:
            names.append("coordinator")
        else:
            names.append(str(tasks[lane.worker]) if len(tasks) > 1 else "program")
    return names


def place_of(event: Event) -> tuple[object, ...]:
    """A key that is equal for events that share a slot; consecutive transfers share one, too."""
    if event.kind in ("meet", "combine"):
        return "rendezvous", event.worker, event["rendezvous"]
    if event.kind == "exchange":
        return "exchange", event["exchange"]
    return "event", event.id


def slots_of(events: Sequence[Event]) -> list[int]:
    """The slot of each event, from 0; `events[i].id` is i."""
    number: dict[tuple[object, ...], int] = {}
    before: dict[Lane, Event] = {}
    nodes: list[int] = []
    lanes = lane_of_each(events)
    for event in events:
        last = before.get(lanes[event.id])
        if last is not None and last.kind == event.kind == "transfer" and last.parent == event.parent:
            nodes.append(nodes[last.id])
        else:
            nodes.append(number.setdefault(place_of(event), len(number)))
        before[lanes[event.id]] = event
    after = _edges(events, nodes, lanes)
    waiting = [0] * len(number)
    for edges in after.values():
        for node, _ in edges:
            waiting[node] += 1
    slots, done = [0] * len(number), [False] * len(number)
    ready = [node for node, count in enumerate(waiting) if not count]
    # Nodes are numbered by their first event, so this is the order in which a cycle is broken.
    for node in range(len(number)):
        ready.append(node)
        while ready:
            current = ready.pop()
            if done[current] or (waiting[current] > 0 and current != node):
                continue
            done[current] = True
            for target, distance in after.get(current, ()):
                if not done[target]:
                    slots[target] = max(slots[target], slots[current] + distance)
                    waiting[target] -= 1
                    if not waiting[target]:
                        ready.append(target)
    return [slots[node] for node in nodes]


def in_order(events: Sequence[Event], slots: Sequence[int]) -> list[Event]:
    """The events in the order in which they happened.

    A recording of several processes has them one after another.  There the order is that of the slots, in which what
    causes something comes before it.
    """
    if all(event.time <= other.time for event, other in itertools.pairwise(events)):
        return list(events)
    return sorted(events, key=lambda event: (slots[event.id], event.id))


def _edges(events: Sequence[Event], nodes: Sequence[int], lanes: Sequence[Lane]) -> dict[int, list[tuple[int, int]]]:
    """Node -> the nodes that come after it, each with the least number of slots between them."""
    after: dict[int, list[tuple[int, int]]] = defaultdict(list)
    last: dict[Lane, int] = {}
    ends = {event["of"]: event.id for event in events if event.kind == "end"}
    carried_out = {place_of(event): event.id for event in events if event.kind == "combine"}

    def follow(first: int | None, second: int, distance: int) -> None:
        if first is not None and nodes[first] != nodes[second]:
            after[nodes[first]].append((nodes[second], distance))

    for event in events:
        here, distance = lanes[event.id], int(event.kind != "end")
        follow(last.get(here), event.id, distance)
        if event.kind == "error":
            for lane, before in last.items():
                if lane.worker == event.worker:
                    follow(before, event.id, 1)
        last[here] = event.id
        follow(event.parent, event.id, distance)
        if event.kind == "end":
            follow(event["of"], event.id, 0)
        elif event.kind == "receive":
            combine = carried_out.get(("rendezvous", event.worker, event["rendezvous"]))
            follow(ends.get(combine, combine) if combine is not None else None, event.id, 1)
        if event.parent in ends:
            follow(event.id, ends[event.parent], 0)
    return after
