"""What the page of a recording is made of: what stands out, what comes after what, and in which order it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import broken
import numpy as np
import pytest
from recorded import recorded
from recordings import of_a_lost_worker, of_digits, of_uneven_workers, of_workers

import refdist
from refdist.insight import Event, Recording, layout, page
from refdist.insight.findings import findings


@pytest.mark.parametrize("program", broken.PROGRAMS, ids=lambda program: program.__name__)
def test_what_stands_out_names_the_mistake(program: Callable[[], None]) -> None:
    texts = findings(broken.recorded(program).events)
    assert len(texts) == len(broken.PROGRAMS[program])
    for finding, begin in zip(texts, broken.PROGRAMS[program], strict=True):
        assert finding.text.startswith(begin)


def test_the_first_nan_has_a_place_in_its_array_and_the_rows_of_its_replica() -> None:
    large = np.ones((30, 3), np.float32)
    large[19, 1:] = np.nan
    dataset = refdist.data.Dataset.range(8).batch(8)
    with refdist.record() as recording:
        for batch in broken.mirrored(2).experimental_distribute_dataset(dataset):
            broken.mirrored(2).run(lambda rows: broken.replica().all_reduce("SUM", rows), (batch,))
        broken.mirrored(3).run(lambda: broken.replica().all_reduce(
            "SUM", large if broken.replica().replica_id_in_sync_group else np.ones_like(large)))
    [nan] = [finding.text for finding in findings(recording.events)]
    assert nan.startswith("The first NaN: 4 in what replicas 1, 2 contributed to all_reduce at ")
    assert nan.endswith(", the first at [19, 1] of replica 1's array; the last rows of a dataset that replica 1 got: "
                        "4-7; the other replica contributes none")
    unknown = [replace(event, fields={**event.fields, "rows": None}) if event.kind == "step" else event
               for event in recording.events]
    assert "rows" not in findings(unknown)[0].text
    others = [replace(event, replica=2) if event.kind == "meet" and event.replica == 1 else event
              for event in recording.events]
    assert "the last rows of a dataset that replica 2 got: none" in findings(others)[0].text


def test_a_nan_that_is_written_to_all_copies_counts_once() -> None:
    w = broken.weights(broken.mirrored(3))
    with refdist.record() as recording:
        w.assign(np.float32([1, np.nan, np.nan]))
    [nan] = [finding.text for finding in findings(recording.events)]
    line = test_a_nan_that_is_written_to_all_copies_counts_once.__code__.co_firstlineno + 3
    place = f"{Path(__file__).name}:{line}"
    assert nan == f"The first NaN: 2 in what worker 0 wrote to variable w:0 at {place}, the first at [1]"


def test_an_error_has_the_lines_that_led_to_it() -> None:
    def helper() -> None:
        broken.mirrored(2).run(lambda: broken.replica().all_reduce(
            "SUM", np.ones(1 + broken.replica().replica_id_in_sync_group)))

    with refdist.record() as recording, pytest.raises(ValueError, match="RD04"):
        helper()
    [error] = [event for event in recording.events if event.kind == "error"]
    line = helper.__code__.co_firstlineno
    assert error["site"][:2] == [f"{__file__}:{line + 1}", f"{__file__}:{line + 5}"]


def test_nothing_stands_out_where_nothing_is_wrong() -> None:
    assert findings(of_digits().events) == findings([]) == []


def test_what_stands_out_of_a_lost_worker() -> None:
    texts = [finding.text for finding in findings(of_a_lost_worker().events)]
    assert "Worker 1 ends here, in the middle of all_reduce: its process ended, or what recorded it" in texts


@pytest.mark.parametrize("program", [recorded, of_workers, of_uneven_workers])
def test_slots_say_what_comes_after_what(program: Callable[[], Recording]) -> None:
    events = program().events
    lanes = layout.lane_of_each(events)
    slots = layout.slots_of(events)
    ends = {event["of"]: event.id for event in events if event.kind == "end"}
    places: dict[Any, set[int]] = {}
    last: dict[Any, int] = {}
    for event, slot in zip(events, slots, strict=True):
        if event.kind in ("meet", "combine", "exchange"):
            number = event["exchange"] if event.kind == "exchange" else (event.worker, event["rendezvous"])
            places.setdefault(number, set()).add(slot)
        lane = lanes[event.id]
        assert last.get(lane, -1) <= slot - (event.kind not in ("end", "transfer", "combine"))
        last[lane] = slot
        if event.parent is not None and event.kind != "end":
            assert slots[event.parent] < slot
        if event.parent in ends:
            assert slot <= slots[ends[event.parent]], "nothing is right of the end of what it is part of"
        if "of" in event.fields:
            assert slots[event["of"]] <= slot
        if event.kind == "receive":
            combine = next(event_of for event_of in events if event_of.kind == "combine"
                           and (event_of.worker, event_of["rendezvous"]) == (event.worker, event["rendezvous"]))
            assert slots[combine.id] < slot
    assert all(len(some) == 1 for some in places.values())
    assert max(Counter(slots).values()) > 4, "what happens at once stands at one place"
    assert max(slots) < len(events) / 2


def test_a_recording_that_goes_in_a_circle_has_slots() -> None:
    with refdist.record() as recording:
        broken.mirrored(2).run(lambda: [broken.replica().all_reduce("SUM", 1.0) for _ in range(2)])
    swapped = [replace(event, fields={**event.fields, "rendezvous": 3 - event["rendezvous"]})
               if event.kind == "meet" and event.replica else event for event in recording.events]
    slots = layout.slots_of(swapped)
    assert len(slots) == len(swapped) and min(slots) == 0


def test_processes_that_are_recorded_one_after_another_are_shown_together() -> None:
    whole = recorded()
    parted = sorted(whole.events, key=lambda event: event.worker)
    number = {event.id: i for i, event in enumerate(parted)}
    events = [Event.of_json({**event.as_json(), "id": number[event.id],
                             "parent": None if event.parent is None else number[event.parent],
                             **({"of": number[event["of"]]} if "of" in event.fields else {})}) for event in parted]
    shown = page.data(events, {})
    order = np.cumsum(shown["columns"]["id"])
    assert sorted(order) == list(range(len(events))) and list(order) != sorted(order)
    position = {k: i for i, k in enumerate(order)}
    lanes = layout.lane_of_each(events)
    for event in events:
        for cause in (event.parent, event.fields.get("of")):
            assert cause is None or position[cause] < position[event.id]
    lane = [event.id for event in events if lanes[event.id] == layout.Lane(1, replica=2)]
    assert [k for k in order if k in set(lane)] == lane
