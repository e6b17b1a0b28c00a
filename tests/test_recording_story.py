"""What a recording tells beside the rendezvous: reductions, what functions return, reads, coordinators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.__main__ import main
from refdist.insight import Recording, layout, load, page
from refdist.insight.curves import curves_of


def mirrored(count: int) -> refdist.MirroredStrategy:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def number() -> int:
    return int(refdist.get_replica_context().replica_id_in_sync_group)


def items(event: refdist.insight.Event, name: str) -> list[object]:
    return [summary["items"] for summary in event[name]]


def of_kind(recording: Recording, kind: str) -> list[refdist.insight.Event]:
    return [event for event in recording.events if event.kind == kind]


def test_a_loss_is_in_the_recording_from_the_replicas_to_the_printed_number() -> None:
    strategy = mirrored(2)
    with refdist.record() as recording:
        losses = strategy.run(lambda: np.float32([1, np.nan][number()]))
        strategy.reduce("MEAN", losses, axis=None)
    [reduce] = of_kind(recording, "reduce")
    assert (reduce["call"], reduce["op"], items(reduce, "contributed")) == ("Strategy.reduce", "MEAN", [1.0, "NaN"])
    assert reduce["site"][0].startswith(__file__)
    assert [(event.replica, items(event, "returned")) for event in of_kind(recording, "return")] == [
        (0, [1.0]), (1, ["NaN"]), (None, ["NaN"])]
    [first] = [finding for finding in recording.findings if finding.text.startswith("The first NaN")]
    assert "replica 1 returned from" in first.text and "test_recording_story.py" in first.text and first.wrong


@pytest.mark.parametrize(("parts", "sentence", "wrong"), [
    ([1.0, np.inf], "in what replica 1 contributed to all_reduce at test_recording_story.py:", False),
    ([60000.0, 60000.0], "whose sum is beyond the largest float16", True)])
@pytest.mark.filterwarnings("ignore")
def test_the_first_infinity_stands_out(parts: list[float], sentence: str, wrong: bool) -> None:
    strategy = mirrored(2)
    with refdist.record() as recording:
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.float16(parts[number()])))
    [first] = recording.findings
    assert first.text.startswith("The first infinity: ") and sentence in first.text and first.wrong == wrong
    with refdist.record() as outside:
        strategy.reduce("SUM", strategy.run(lambda: np.float16(parts[number()])), axis=None)
    [first] = outside.findings
    assert sentence.partition("replica 1")[0] in first.text or not wrong


def test_a_summary_counts_what_is_reduced_outside_and_what_a_coordinator_does() -> None:
    strategy = mirrored(2)
    with refdist.record() as recording:
        for _ in range(3):
            strategy.reduce("SUM", strategy.run(lambda: np.float32(1)), axis=None)
    assert recording.summary().kinds == [("Strategy.reduce", 3, 24)]
    assert recording.summary().lines[0].what.startswith(__file__)
    counts = coordinator().summary().counts
    assert (counts["workers"], counts["scheduled functions"], counts["begun functions"]) == (2, 2, 2)


def test_every_reduction_outside_replicas_is_told() -> None:
    strategy = mirrored(2)
    value = strategy.run(lambda: np.full(2, number(), np.float32))
    with refdist.record() as recording:
        strategy.reduce("SUM", value, axis=0)
        strategy.gather(value, axis=0)
        strategy.extended.reduce_to("MEAN", value, "GPU:1")
        strategy.extended.batch_reduce_to("SUM", [(value, "GPU:0"), (value, "GPU:1")])
        with pytest.raises(refdist.errors.RefdistError):
            strategy.reduce("SUM", 1.0, axis=None)
    assert [(event["call"], event["op"], event["axis"]) for event in of_kind(recording, "reduce")] == [
        ("Strategy.reduce", "SUM", 0), ("Strategy.gather", None, 0), ("reduce_to", "MEAN", None),
        ("batch_reduce_to", "SUM", None), ("Strategy.reduce", "SUM", None)]
    assert items(of_kind(recording, "return")[1], "returned") == [[0.0, 0.0, 1.0, 1.0]]
    assert [event["how"] for event in of_kind(recording, "end")] == ["returned"] * 4 + ["raised"]


@pytest.mark.parametrize(("synchronization", "inside", "outside"), [
    (refdist.VariableSynchronization.AUTO, [(0, 0.0), (1, 0.0)], (0, 0.0)),
    (refdist.VariableSynchronization.ON_READ, [(0, 1.0), (1, 2.0)], (None, 3.0))])
def test_a_read_tells_which_copy_it_gives(synchronization: refdist.VariableSynchronization,
                                          inside: list[object], outside: object) -> None:
    strategy = mirrored(2)
    with strategy.scope():
        v = refdist.Variable(0.0, synchronization=synchronization, aggregation=refdist.VariableAggregation.SUM)
    if synchronization is refdist.VariableSynchronization.ON_READ:
        strategy.run(lambda: v.assign(1.0 + number()))
    with refdist.record() as recording:
        strategy.run(lambda: v.value())
        line = v + 1.0  # noqa: F841 - an operator reads, too
    reads = [(event["copy"], event["received"][0]["items"]) for event in of_kind(recording, "read")]
    assert reads == [*inside, outside]
    assert {event["site"][0].rpartition(":")[0] for event in of_kind(recording, "read")} == {__file__}


def coordinator() -> Recording:
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    coordinator = refdist.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        v = refdist.Variable(0.0, name="v")
    with refdist.record() as recording:
        for _ in range(2):
            coordinator.schedule(lambda: v.assign(v + 1.0))
        coordinator.join()
    return recording


def test_a_coordinator_tells_who_carries_out_what_and_each_access(tmp_path: Path) -> None:
    recording = coordinator()
    assert [event.kind for event in recording.events] == ["schedule"] * 2 + [
        "function", "read", "write", "return", "end"] * 2
    assert [(event["scheduled"], event["task"]) for event in of_kind(recording, "function")] == [(1, 0), (2, 1)]
    lanes = layout.lanes_of(layout.lane_of_each(recording.events))
    assert layout.names_of(lanes, recording.events) == ["coordinator", "worker 0", "worker 1"]
    assert page.data(recording.events, {})["workers"] == 2
    recording.save(tmp_path / "a")
    assert load(tmp_path / "a").events == recording.events


def test_a_function_whose_worker_is_lost_is_stopped_and_begins_again() -> None:
    spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    coordinator = refdist.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        v = refdist.Variable(0.0, name="v")
    refdist.coordinator.stop_task(coordinator, "worker", 0, after=1)
    with refdist.record() as recording:
        coordinator.schedule(lambda: v.assign(v + 1.0))
        coordinator.join()
    assert [(event["scheduled"], event["task"]) for event in of_kind(recording, "function")] == [(1, 0), (1, 1)]
    assert [event["how"] for event in of_kind(recording, "end")] == ["stopped", "returned"]
    assert not of_kind(recording, "error")


def test_each_strategy_has_lanes_of_its_own_on_its_devices() -> None:
    first, second = mirrored(2), refdist.OneDeviceStrategy("GPU:5")
    with refdist.record() as recording:
        first.run(lambda: None)
        second.run(lambda: None)
    each = layout.lane_of_each(recording.events)
    devices = {each[event.id]: event.device for event in of_kind(recording, "replica")}
    assert sorted((lane.strategy, lane.replica, device) for lane, device in devices.items()) == [
        (0, 0, "GPU:0"), (0, 1, "GPU:1"), (1, 0, "GPU:5")]


def test_a_number_that_is_reduced_in_each_step_is_a_curve() -> None:
    strategy = mirrored(2)
    with refdist.record() as recording:
        for loss in (3.0, 2.0, np.nan, 0.5):
            strategy.reduce("MEAN", strategy.run(lambda loss=loss: np.float32(loss)), axis=None)
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", np.ones(3)))
    curves = curves_of(recording.events)
    assert [curve.name.partition(" at ")[0].rpartition(".")[2] for curve in curves] == [
        "reduce MEAN", "<lambda>", "<lambda>"]
    assert [curve.numbers for curve in curves] == [[3.0, 2.0, "NaN", 0.5]] * 3
    assert [recording.events[i]["returned"][0]["items"] for i in curves[0].events] == curves[0].numbers


@pytest.mark.parametrize("display", ["", ":0"])
def test_the_command_shows_a_recording_where_there_is_a_browser(tmp_path: Path, display: str, capsys: Any,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator().save(tmp_path / "run.jsonl")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["show", str(tmp_path / "run.jsonl")]) == 0
    page = tmp_path / "run.html"
    assert capsys.readouterr().out == f"{page}\n" and page.read_text().startswith("<!doctype html>")
    assert opened == ([page.as_uri()] if display else [])


def test_the_command_says_what_is_no_recording(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a").write_text("x")
    for name in ("a", "none"):
        assert main(["show", str(tmp_path / name)]) == 2
        assert "[RD30]" in capsys.readouterr().err and not (tmp_path / f"{name}.html").exists()
