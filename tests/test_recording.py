"""Recordings: what events say, and that they go into files and come back."""

from __future__ import annotations

import gc
import json
import warnings
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import PATH, recorded

import refdist
from refdist.insight.events import BEGINNINGS, COMMON, KINDS, SUMMARY, Event, checked
from refdist.insight.stream import places_of
from refdist.insight.summaries import in_words, nbytes, of, packed, taken, unpacked
from refdist.notebook import parts


def rc() -> Any:
    return refdist.get_replica_context()


@pytest.fixture(scope="module")
def recording() -> refdist.insight.Recording:
    return recorded()


def local(event: Event) -> Event:
    """The event with its lines but not the folder of their file."""
    fields = {name: [Path(place).name for place in value] if name == "site" else value
              for name, value in event.fields.items()}
    if "text" in fields and event.kind == "error":
        fields["text"] = fields["text"].partition(":")[0]
    return Event.of_json({**event.as_json(), **fields})


def test_the_recording_that_is_kept_is_the_one_that_is_made(recording: refdist.insight.Recording) -> None:
    kept = refdist.insight.load(PATH)
    assert [*map(local, kept.events)] == [*map(local, recording.events)], "python tests/recorded.py writes it"
    assert [Path(name).name for name in kept.sources if "recorded" in name] == ["recorded.py"]


def test_every_event_is_as_the_table_says(recording: refdist.insight.Recording) -> None:
    for number, event in enumerate(recording.events):
        assert checked(event).id == number
        assert set(json.loads(json.dumps(event.as_json()))) == {*COMMON, *KINDS[event.kind][1]}
        for name in ("contributed", "received", "copies"):
            for summary in event.fields.get(name, ()):
                assert {*summary, "items", "first"} == set(SUMMARY) and ("items" in summary) != ("first" in summary)
    times = [event.time for event in recording.events]
    assert times == sorted(times) and times[0] > 0


def test_what_begins_ends_once_and_nests(recording: refdist.insight.Recording) -> None:
    ends = Counter(event["of"] for event in recording.events if event.kind == "end")
    assert ends == Counter(event.id for event in recording.events if event.kind in BEGINNINGS)
    for event in recording.events:
        if event.parent is not None:
            parent = recording.events[event.parent]
            assert parent.id < event.id and parent.kind in BEGINNINGS and parent.worker == event.worker
            assert parent.replica in (None, event.replica) or parent.kind == "run"


def test_each_event_has_its_worker_and_global_replica(recording: refdist.insight.Recording) -> None:
    met = {(event.worker, event.replica, event.device) for event in recording.events if event.kind == "meet"}
    assert met == {(worker, 2 * worker + i, f"worker:{worker} GPU:{i}") for worker in range(2) for i in range(2)}
    printed = [(event.worker, event.replica, event["text"]) for event in recording.events if event.kind == "print"]
    assert printed == [(0, None, "merged on this worker"), (1, None, "merged on this worker")]
    assert {event.worker for event in recording.events if event.kind == "error"} <= {0, 1}


def test_each_worker_has_its_own_lines(recording: refdist.insight.Recording) -> None:
    """One worker goes on while the call of another is being carried out."""
    lines = recording.sources[recorded.__code__.co_filename].splitlines()
    placed = {(event.kind, event.worker, lines[parts(event["site"][0])[1] - 1].strip().partition("(")[0])
              for event in recording.events if event.kind in ("variable", "step", "run", "write")}
    assert placed == {(kind, worker, line) for worker in range(2) for kind, line in [
        ("variable", "weights = refdist.Variable"), ("step", "for batch in strategy.experimental_distribute_dataset"),
        ("run", "strategy.run"), ("write", "weights.assign_sub")]}


def test_a_step_is_at_the_line_that_asks_for_the_element() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    dataset = strategy.experimental_distribute_dataset(refdist.data.Dataset.range(6).batch(2))

    def element(rows: Any) -> Any:
        return next(rows)

    with refdist.record() as recording:
        rows = iter(dataset)
        rows.get_next()
        element(rows)
        for _ in rows:
            pass
    first = test_a_step_is_at_the_line_that_asks_for_the_element.__code__.co_firstlineno
    sites = [[parts(place)[1] - first for place in event["site"]] for event in recording.events if event.kind == "step"]
    assert sites == [[9], [5, 10], [11]]


def test_what_is_counted_goes_on_in_the_middle_of_a_replica() -> None:
    """A replica that was somewhere when another run, or a step, began is not there with the old numbers."""
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    elements = iter(strategy.experimental_distribute_dataset(refdist.data.Dataset.range(8).batch(2)))

    def merged(strategy: Any) -> None:
        next(elements)
        strategy.run(lambda: rc().all_reduce("SUM", 2.0))

    def step() -> None:
        rc().all_reduce("SUM", 1.0)
        rc().merge_call(merged)
        rc().all_reduce("SUM", 3.0)

    with refdist.record() as recording:
        strategy.run(step)
    runs = steps = 0
    met = []
    for event in recording.events:
        runs += event.kind == "run"
        steps += event.kind == "step"
        if event.kind == "meet" and event["contributed"]:
            assert event.parent is not None
            parent = recording.events[event.parent]
            assert (event.run, event.step, parent.kind, parent.replica) == (runs, steps, "replica", event.replica)
            met.append((event["contributed"][0]["items"], parent.run, runs, steps))
    assert met == [(1, 1, 1, 0)] * 2 + [(2, 2, 2, 1)] * 2 + [(3, 1, 2, 1)] * 2


def test_the_rows_of_each_step_are_those_that_were_read() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    dataset = refdist.data.Dataset.range(10).shuffle(10).filter(lambda n: True).batch(4)
    plain = refdist.data.Dataset.range(10).shuffle(10).batch(4)
    for source, follows in ((plain, True), (dataset, False)):
        with refdist.record() as recording:
            read = [x.values for x in strategy.experimental_distribute_dataset(source)]
        steps = [event for event in recording.events if event.kind == "step"]
        assert [event["counts"] for event in steps] == [[len(part) for part in step] for step in read]
        for event, step in zip(steps, read, strict=True):
            if follows:
                rows = [[n for first, last in part for n in range(first, last + 1)] for part in event["rows"]]
                assert rows == [part.tolist() for part in step]
            else:
                assert event["rows"] is None, "the filter would be called once more for each row"


def test_a_function_of_the_program_is_called_as_often_as_without() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    calls: list[int] = []
    dataset = refdist.data.Dataset.range(4).map(lambda n: calls.append(n) or n).filter(
        lambda n: calls.append(n) or True).batch(2)
    counts = []
    for act in (lambda: None, refdist.record):
        calls.clear()
        context = act()
        if context is not None:
            context.__enter__()
        list(strategy.experimental_distribute_dataset(dataset))
        if context is not None:
            context.__exit__(None, None, None)
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(("array", "expected"), [
    (np.float32([0.1, -2]), {"min": -2.0, "max": 0.1, "norm": 2.0025, "nans": 0, "items": [0.1, -2.0]}),
    (np.float64([np.nan, np.inf]), {"min": "Infinity", "max": "Infinity", "norm": "NaN", "nans": 1, "nan": [0],
                                    "items": ["NaN", "Infinity"]}),
    (np.float32([np.nan]), {"min": None, "max": None, "norm": "NaN", "nans": 1, "nan": [0], "items": ["NaN"]}),
    (np.int32(7), {"min": 7, "max": 7, "norm": 7.0, "nans": 0, "items": 7}),
    (np.array([True, False]), {"min": False, "max": True, "norm": 1.0, "nans": 0, "items": [True, False]}),
    (np.array("x"), {"min": None, "max": None, "norm": None, "nans": 0, "items": "x"}),
    (np.zeros((0, 2)), {"min": None, "max": None, "norm": 0.0, "nans": 0, "items": []}),
    (np.complex64([3 + 4j]), {"min": None, "max": None, "norm": 5.0, "nans": 0, "items": ["(3+4j)"]}),
    (np.arange(17), {"min": 0, "max": 16, "norm": 38.6782, "nans": 0, "first": [0, 1, 2, 3]}),
    (np.float32([*range(17), np.nan]), {"min": 0.0, "max": 16.0, "norm": "NaN", "nans": 1, "nan": [17],
                                        "first": [0.0, 1.0, 2.0, 3.0]}),
    (np.float32([[0] * 10, [0, 0, np.nan, np.nan, *[0] * 6]]), {
        "min": 0.0, "max": 0.0, "norm": "NaN", "nans": 2, "nan": [1, 2], "first": [0.0] * 4}),
    (np.float32(np.nan), {"min": None, "max": None, "norm": "NaN", "nans": 1, "nan": [], "items": "NaN"}),
    (np.full(20, 1e30, np.float32), {"min": 1e30, "max": 1e30, "norm": 4.47214e30, "nans": 0,
                                     "first": [1e30] * 4}),
])
def test_a_summary_says_what_the_array_holds(array: Any, expected: dict[str, Any]) -> None:
    array = np.asarray(array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (array, np.resize(array, (300, *array.shape)) if array.ndim == 1 and array.size else array):
            for stored in (given, np.asfortranarray(given), given.astype(given.dtype.newbyteorder(">"))):
                assert [unpacked(read) for read in json.loads(packed(taken(stored)))] == of(taken(stored))
                assert nbytes(taken(stored)) == stored.nbytes
        [summarized] = of(taken(array))
    assert summarized == {"shape": list(array.shape), "dtype": str(array.dtype), "bytes": array.nbytes, "nan": None,
                          **expected}
    json.loads(json.dumps(summarized, allow_nan=False))


@pytest.mark.parametrize(("array", "text"), [
    (np.float32([[0.1, -2], [1e-9, np.inf]]), "float32 [2, 2] [[0.1, -2], [1e-09, Infinity]]"),
    (np.int32(7), "int32 [] 7"), (np.array(True), "bool [] True"), (np.array(["a", "b"]), "<U1 [2] [a, b]"),
    (np.zeros((0, 2)), "float64 [0, 2] []"), (np.float32(np.nan), "float32 [] NaN 1 NaN"),
    (np.array([2**60, 1]), "int64 [2] [1152921504606846976, 1]"), (np.float64([2.0**60]), "float64 [1] [1.152922e+18]"),
    (np.float32([np.nan, 1, np.nan]), "float32 [3] [NaN, 1, NaN] 2 NaN, the first at [0]"),
    (np.arange(20.0).reshape(2, 10), "float64 [2, 10] 0 to 19, norm 49.6991, first [0, 1, 2, 3, ...]"),
    (np.array(["a"] * 20), "<U1 [20] first [a, a, a, a, ...]"),
])
def test_a_summary_in_words(array: Any, text: str) -> None:
    assert in_words(np.asarray(array)) == text


def test_lines_of_what_has_called_the_program_are_left_out() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with refdist.record() as recording:
        strategy.run(lambda: None)
    line = test_lines_of_what_has_called_the_program_are_left_out.__code__.co_firstlineno + 3
    assert recording.events[0]["site"] == [f"{__file__}:{line}"] and list(recording.sources) == [__file__]


def test_lines_of_a_program_that_is_a_text_are_kept_and_those_of_one_that_starts_a_launcher_are_not() -> None:
    """`python -c "..."`, and what `python -c` started before it called the program."""
    launcher = str(Path(pytest.__file__).parent / "main.py")
    assert places_of(("<string>:3", "<string>:1")) == ["<string>:3", "<string>:1"]
    assert places_of(("program.py:3", f"{launcher}:7", "<string>:8", "<string>:1")) == ["program.py:3"]
    command = str(Path(refdist.__file__).parent / "__main__.py")
    assert places_of(("program.py:3", "<frozen runpy>:88", f"{command}:115", "<frozen runpy>:198")) == ["program.py:3"]


def test_an_array_that_is_written_to_later_was_recorded_before() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for size in (2, 100, 1000):
        def step(size: int = size) -> None:
            contribution = np.ones(size)
            rc().all_reduce("SUM", contribution)
            contribution[:] = 7

        with refdist.record() as recording:
            strategy.run(step)
        met = [event["contributed"][0] for event in recording.events if event.kind == "meet"]
        assert {summary["max"] for summary in met} == {1.0}
        assert {item for summary in met for item in (summary.get("items") or summary["first"])} == {1.0}


def test_a_recording_keeps_no_large_array_alive() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    seen: list[weakref.ref[Any]] = []

    def step() -> None:
        seen.append(weakref.ref(rc().all_reduce("SUM", np.ones(1000))))

    with refdist.record():
        for _ in range(10):
            strategy.run(step)
        assert [reference() is None for reference in seen] == [True] * 18 + [False] * 2, "those of the last rendezvous"
    gc.collect()
    assert seen[-1]() is None
