"""What is made of recordings: summaries, differences, traces and pictures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import PATH

import refdist
from refdist.insight import Recording, load
from refdist.insight.summary import Calls
from refdist.insight.trace import _micro


def rc() -> Any:
    return refdist.get_replica_context()


@pytest.fixture(scope="module")
def kept() -> Recording:
    return load(PATH)


def recorded(step: Any, replicas: int = 2) -> Recording:
    """The recording of one run, with or without an error."""
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])
    with refdist.record() as recording:
        try:
            strategy.run(step)
        except (refdist.errors.RefdistError, ZeroDivisionError):
            return recording
    return recording


# --- The summary ---------------------------------------------------------------------------------------------

def test_a_summary_counts_calls_and_bytes() -> None:
    def step() -> None:
        for _ in range(3):
            rc().all_reduce("SUM", np.zeros(4, np.float32))
        rc().all_gather([np.zeros(2, np.int64), np.zeros(1, np.int32)], 0)

    summary = recorded(step, 3).summary()
    line = step.__code__.co_firstlineno
    assert summary.kinds == [Calls("all_reduce", 3, 3 * 3 * 16), Calls("all_gather", 1, 3 * 20)]
    assert [calls.what for calls in summary.lines] == [
        f"{__file__}:{line + 2} all_reduce", f"{__file__}:{line + 3} all_gather"]
    assert summary.counts["runs"] == 1 and summary.counts["replicas"] == 3 and summary.counts["errors"] == 0
    assert [(waiting.who, waiting.rendezvous, waiting.last) for waiting in summary.waiting] == [
        ("replica 0", 4, 0), ("replica 1", 4, 0), ("replica 2", 4, 4)]
    assert summary.waiting[0].seconds > summary.waiting[1].seconds > summary.waiting[2].seconds == 0.0
    assert "all_gather           1     60" in str(summary)


def test_a_summary_says_who_is_waited_for() -> None:
    with refdist.config.replica_order(3):
        summary = recorded(lambda: [rc().all_reduce("SUM", 1.0) for _ in range(2)], 4).summary()
    came_last = [waiting.last for waiting in summary.waiting]
    assert sum(came_last) == 2 and max(came_last) == 2
    [last] = [waiting for waiting in summary.waiting if waiting.last]
    assert last.who != "replica 3" and last.seconds == 0.0


def test_a_summary_of_workers(kept: Recording) -> None:
    summary = kept.summary()
    assert summary.counts == {"workers": 2, "replicas": 4, "runs": 9, "steps": 4, "rows": 8, "variables": 2,
                              "writes": 4, "warnings": 0, "errors": 1}
    assert {waiting.who for waiting in summary.waiting} == {*(f"replica {i}" for i in range(4)), "worker 0", "worker 1"}
    assert str(Recording().summary()).startswith("0 workers")


# --- Differences ---------------------------------------------------------------------------------------------

def test_the_first_difference_has_both_sides() -> None:
    def program(rank: int) -> Recording:
        return recorded(lambda: [rc().all_reduce("SUM", float(i == 2 and rc().replica_id_in_sync_group == rank))
                                 for i in range(4)])

    first, same, second = (program(rank) for rank in (1, 1, 5))
    assert first.diff(same) is None
    difference = first.diff(second)
    assert difference is not None and difference.mine is not None and difference.theirs is not None
    assert (difference.mine["rendezvous"], difference.mine.replica, difference.fields) == (3, 1, ("contributed",))
    assert difference.mine["contributed"][0]["items"] == 1.0 and difference.theirs["contributed"][0]["items"] == 0.0
    assert first.events[:difference.number] == second.events[:difference.number]
    text = str(difference)
    assert text.startswith(f"event {difference.number} differs in contributed\n  this: meet all_reduce (")
    assert "on worker 0, replica 1, run 1" in text


def test_a_recording_that_goes_on_differs_where_the_other_ends() -> None:
    short = recorded(lambda: None)
    again = replace(short.events[0], id=len(short.events))
    longer = Recording([*short.events, again])
    difference = short.diff(longer)
    assert difference is not None
    assert (difference.number, difference.mine, difference.theirs) == (len(short.events), None, again)
    assert re.fullmatch(r"only the other recording has event 6: run \S+<lambda> \(.*test_insight.py:\d+\) on worker 0, "
                        "run 1", str(difference))
    back = longer.diff(short)
    assert back is not None and str(back).startswith("only this recording")


def test_times_and_folders_do_not_count(kept: Recording) -> None:
    moved = [type(event).of_json({**event.as_json(), "time": 0, **(
        {"site": [f"/elsewhere/{place}" for place in event["site"]]} if "site" in event.fields else {})})
        for event in kept.events]
    assert kept.diff(Recording(moved)) is None
    moved[5] = type(moved[5]).of_json({**moved[5].as_json(), "worker": 7})
    difference = kept.diff(Recording(moved))
    assert difference is not None and difference.number == 5


# --- Traces --------------------------------------------------------------------------------------------------

# What the Trace Event Format asks of each phase: fields that it must have, and those that it may have beside them.
_TIMED = {"name": str, "cat": str, "ph": str, "ts": float, "pid": int, "tid": int}
PHASES: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "X": ({**_TIMED, "dur": float}, {"args": dict}),
    "i": (_TIMED, {"s": str, "args": dict}),
    "s": ({**_TIMED, "id": int}, {"args": dict}),
    "f": ({**_TIMED, "id": int}, {"bp": str, "args": dict}),
    "M": ({"name": str, "ph": str, "pid": int, "args": dict}, {"tid": int}),
}
METADATA = {"process_name": {"name": str}, "thread_name": {"name": str}, "thread_sort_index": {"sort_index": int}}


@pytest.fixture(scope="module")
def trace(kept: Recording, tmp_path_factory: Any) -> Any:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    kept.trace(path)
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_every_field_is_that_of_the_trace_event_format(trace: Any) -> None:
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        needed, allowed = PHASES[event["ph"]]
        assert needed.keys() <= event.keys() <= {**needed, **allowed}.keys(), event
        assert all(isinstance(event[name], {**needed, **allowed}[name]) for name in event), event
        assert event.get("ts", 0.0) >= 0 and event.get("dur", 0.0) >= 0
        assert event.get("s", "t") in ("g", "p", "t") and (event["ph"] != "f" or event["bp"] == "e")
        if event["ph"] == "M":
            assert {name: type(value) for name, value in event["args"].items()} == METADATA[event["name"]]
    assert set(Counter(event["ph"] for event in trace["traceEvents"])) == set(PHASES)


def test_tracks_have_names_and_an_order(trace: Any) -> None:
    used = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] != "M"}
    for name in ("thread_name", "thread_sort_index"):
        named = [(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == name]
        assert set(named) == used and len(named) == len(used)
    assert [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"] == [
        "worker 0", "worker 1"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"]
             if event["name"] == "thread_name"}
    assert names == {(1, 1): "all replicas", (1, 2): "replica 0 on worker:0 GPU:0",
                     (1, 3): "replica 1 on worker:0 GPU:1", (4, 4): "all replicas",
                     (4, 5): "replica 2 on worker:1 GPU:0", (4, 6): "replica 3 on worker:1 GPU:1"}


def as_perfetto_reads(trace: Any) -> list[dict[str, Any]]:
    """The events by their time in whole nanoseconds, cut off; those of one time in the order of the file."""
    read = [{**event, **{name: int(event[name] * 1000) for name in ("ts", "dur") if name in event}}
            for event in trace["traceEvents"] if event["ph"] != "M"]
    return sorted(read, key=lambda event: event["ts"])


def test_times_are_those_of_the_events(trace: Any, kept: Recording) -> None:
    start = kept.events[0].time
    read = [event for event in as_perfetto_reads(trace) if event["ph"] in "Xi"]
    assert {event["args"]["id"]: event["ts"] for event in read} == {
        event.id: event.time - start for event in kept.events if event.kind != "end"}
    for nanoseconds in (*range(3000), *range(10**15, 10**15 + 3000)):
        assert int(_micro(nanoseconds) * 1000) == nanoseconds


def test_slices_of_a_track_nest_and_arrows_bind_to_theirs(trace: Any, kept: Recording) -> None:
    open_on: dict[int, list[dict[str, Any]]] = {}
    arrows: dict[int, list[tuple[str, str, Any]]] = {}
    for event in as_perfetto_reads(trace):
        slices = open_on.setdefault(event["tid"], [])
        if event["ph"] in "Xi":
            end = event["ts"] + event.get("dur", 0)
            while slices and slices[-1]["end"] <= event["ts"]:
                slices.pop()
            assert not slices or end <= slices[-1]["end"]
            slices.append({**event, "end": end})
        else:
            last = slices[-1]
            arrows.setdefault(event["id"], []).append((event["ph"], last["cat"], last["args"]["rendezvous"]))
    done = {(event.worker, event["rendezvous"]) for event in kept.events if event.kind == "combine"}
    assert arrows == {
        event.id: [("s", *ends[0]), ("f", *ends[1])] for event in kept.events if event.kind in ("meet", "receive")
        and (event.worker, event["rendezvous"]) in done
        for ends in [[("meet", event["rendezvous"]), ("combine", event["rendezvous"])] if event.kind == "meet" else
                     [("combine", event["rendezvous"]), ("receive", event["rendezvous"])]]}


def test_what_was_killed_lasts_to_the_end_of_the_trace(kept: Recording, tmp_path: Path) -> None:
    Recording(kept.events[:20]).trace(tmp_path / "a")
    events = [event for event in json.loads((tmp_path / "a").read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(
        (kept.events[19].time - kept.events[0].time) / 1000)
    Recording().trace(tmp_path / "b")
    assert json.loads((tmp_path / "b").read_text())["traceEvents"] == []


# --- Pictures ------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def columns(svg: str) -> list[tuple[list[str], list[str], int]]:
    """The texts, the colors and the number of dots of each column."""
    return [([text.text or "" for text in group.iter(f"{SVG}text")],
             sorted({circle.get("fill", "") for circle in group.iter(f"{SVG}circle")}),
             len(list(group.iter(f"{SVG}circle")))) for group in ElementTree.fromstring(svg).iter(f"{SVG}g")]


def test_a_picture_has_a_column_for_each_rendezvous_and_a_red_one_where_they_do_not_meet() -> None:
    def step() -> None:
        rc().all_reduce("SUM", 1.0)
        if rc().replica_id_in_sync_group == 2:
            rc().all_gather(np.ones(1), 0)
        else:
            rc().all_reduce("SUM", 2.0)

    recording = recorded(step, 4)
    line = step.__code__.co_firstlineno
    good, bad = columns(recording.svg())
    assert good == ([f"all_reduce test_insight.py:{line + 1}"], ["#1565c0"], 4)
    assert bad == (["all_reduce", *[str(line + 5)] * 2, str(line + 3), str(line + 5)], ["#c62828"], 4)
    texts = [text.text for text in ElementTree.fromstring(recording.svg()).iter(f"{SVG}text")]
    assert texts[:4] == [f"replica {i}" for i in range(4)]


def test_a_picture_of_workers(kept: Recording) -> None:
    drawn = columns(kept.svg())
    exchanges = {event["exchange"] for event in kept.events if event.kind == "exchange"}
    met = {(event.worker, event["rendezvous"]) for event in kept.events if event.kind == "meet"}
    assert len(drawn) == len(exchanges) + len(met)
    assert [number for _, colours, number in drawn if colours == ["#c62828"]] == [2]
    assert ElementTree.fromstring(Recording().svg()) is not None


def test_a_long_recording_shows_its_end() -> None:
    recording = recorded(lambda: [rc().all_reduce("SUM", float(i)) for i in range(450)])
    assert len(columns(recording.svg())) == 400
    assert "<title>450 rendezvous of 2 lanes</title>" in recording.svg()


def test_a_program_imports_what_looks_at_programs_when_it_asks_for_it() -> None:
    program = """
import sys, refdist
first = "pdb" in sys.modules or "refdist.insight.page" in sys.modules
table = refdist.MirroredStrategy(["GPU:0", "GPU:1"])._repr_html_()
names = [getattr(place, name).__name__ for place in (refdist, refdist.insight) for name in place.__all__
         if name in ("breakpoint", "compare", "explore", "record", "load")]
print(first, table[:4], *names)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "<tab", "breakpoint", "compare", "explore", "record", "breakpoint",
                                   "compare", "explore", "load", "record"]
