"""Recordings in files: written as things happen, by each process, and read whatever has ended them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG
from recorded import recorded
from test_workers import mpiexec

import refdist
from refdist.__main__ import main
from refdist.insight import Recording, files, load, page, recording
from refdist.insight.curves import curves_of

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os, signal, sys, refdist
strategy = refdist.MultiWorkerMirroredStrategy()
def step():
    context = refdist.get_replica_context()
    print("replica", context.replica_id_in_sync_group)
    return context.all_reduce("SUM", 1.0)
strategy.run(step)
if sys.argv[1] == "killed" and strategy.cluster_resolver.task_id in (None, 1):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "raises":
    raise KeyError("mine")
strategy.run(step)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(PROGRAM)
    return str(path)


def kinds(recording: refdist.insight.Recording, worker: int = 0) -> list[str]:
    return [event.kind for event in recording.events if event.worker == worker]


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    recording = recorded()
    recording.save(tmp_path / "a")
    loaded = load(tmp_path / "a")
    assert loaded.events == recording.events and loaded.sources == recording.sources
    assert [event.time for event in loaded.events] == [event.time for event in recording.events]
    assert all(json.loads(line) is not None for line in (tmp_path / "a").read_text().splitlines())
    assert "NaN" not in (tmp_path / "a").read_text().replace('"NaN"', "").replace("np.nan", "").partition('"text"')[0]


def test_the_file_has_what_the_memory_has(tmp_path: Path) -> None:
    with refdist.insight.record_to(tmp_path / "a"):
        recording = recorded()
    assert load(tmp_path / "a").events == recording.events


def test_what_moves_is_asked_once_for_each_plan_and_size(tmp_path: Path) -> None:
    devices = [f"GPU:{i}" for i in range(4)]
    plans = (refdist.NcclAllReduce(), refdist.NcclAllReduce(num_packs=0), refdist.HierarchicalCopyAllReduce(),
             refdist.ReductionToOneDevice(), refdist.ReductionToOneDevice("CPU:0"))
    strategies = [refdist.MirroredStrategy(devices[:count], cross_device_ops=plan)
                  for plan in plans for count in (2, 4)]

    def step(size: int) -> None:
        context = refdist.get_replica_context()
        assert context is not None
        context.all_reduce("SUM", [np.ones(size, np.float32), np.ones(3)])

    with refdist.record() as recording, refdist.insight.record_to(tmp_path / "a"):
        for size in (1, 5, 1000, 5):
            for strategy in strategies:
                strategy.run(step, (size,))
    events = load(tmp_path / "a").events
    assert events == recording.events
    sent = {(event.run, event["source"], event["destination"], event["bytes"], event["times"])
            for event in events if event.kind == "transfer"}
    count = len(strategies)
    by_run = [{transfer[1:] for transfer in sent if transfer[0] == run} for run in range(1, 4 * count + 1)]
    assert by_run[count:2 * count] == by_run[3 * count:], "the same size"
    assert len({frozenset(transfers) for transfers in by_run}) > 2 * count


@pytest.mark.parametrize("how", ["", "raises", "killed"])
def test_the_environment_records_a_program_whatever_ends_it(tmp_path: Path, script: str, how: str) -> None:
    done = subprocess.run([sys.executable, script, how], capture_output=True, text=True, timeout=HANG, cwd=ROOT,
                          env={**os.environ, "REFDIST_RECORD": str(tmp_path / "a"), "PYTHONPATH": str(ROOT)})
    assert done.returncode == {"": 0, "raises": 1, "killed": -signal.SIGKILL}[how], done.stderr
    one_run = ["run", "replica", "print", "meet", "combine", "end", "receive", "return", "end", "end"]
    shown = ["print"] * done.stderr.count("\n")
    assert kinds(load(tmp_path / "a")) == {"": one_run * 2, "killed": one_run,
                                          "raises": [*one_run, "error", *shown]}[how]
    if how == "raises":
        error = load(tmp_path / "a").events[len(one_run)]
        assert (error["code"], error["type"], error["site"]) == ("", "KeyError", [f"{script}:12"])


def test_what_the_program_starts_is_not_recorded_over_it(tmp_path: Path) -> None:
    program = ("import os, subprocess, sys, refdist\nprint('first')\nassert 'REFDIST_RECORD' not in os.environ\n"
               "subprocess.run([sys.executable, '-c', 'import refdist'], check=True)\nprint('mine')")
    subprocess.run([sys.executable, "-c", program], timeout=HANG, check=True, cwd=ROOT,
                   env={**os.environ, "REFDIST_RECORD": str(tmp_path / "a"), "PYTHONPATH": str(ROOT)})
    assert [event["text"] for event in load(tmp_path / "a").events] == ["first", "mine"]


def test_the_command_records_simulated_workers(tmp_path: Path, script: str) -> None:
    assert main(["run", "--workers", "2", "--record", str(tmp_path / "new" / "a"), script, ""]) == 0
    loaded = load(tmp_path / "new" / "a")
    assert kinds(loaded, 0) == kinds(loaded, 1) and loaded.sources[script] == PROGRAM
    assert kinds(loaded, 0)[0] == "program" and kinds(loaded, 0)[-1] == "end"
    assert [event["text"] for event in loaded.events if event.kind == "print"] == [
        "replica 0", "replica 1", "replica 0", "replica 1"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", "raises", "killed"])
def test_processes_are_recorded_into_one_file(tmp_path: Path, script: str, how: str) -> None:
    done = mpiexec(2, script, how, REFDIST_RECORD=str(tmp_path / "a"), REFDIST_TIMEOUT="20")
    assert (done.returncode == 0) == (how == ""), done.stderr
    loaded = load(tmp_path / "a")
    for worker in range(2):
        of_worker = [event for event in loaded.events if event.worker == worker]
        assert {event.replica for event in of_worker if event.kind == "meet"} == {worker}
        assert [event["exchange"] for event in of_worker if event.kind == "exchange"][:1] == [1]
        assert next(event["text"] for event in of_worker if event.kind == "print") == f"replica {worker}"
        runs = 2 if how == "" or (how, worker) == ("killed", 0) else 1
        assert sum(event.kind == "run" for event in of_worker) == runs
    workers = [event.worker for event in loaded.events]
    assert workers == sorted(workers), "by rank"
    assert [event.id for event in loaded.events] == list(range(len(workers)))
    if how == "":
        assert [path.name for path in tmp_path.iterdir() if path.name != "script.py"] == ["a"]
    if how == "killed":
        assert [event["code"] for event in loaded.events if event.kind == "error"] == ["RD01"]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes this process one of a coordinator, two workers and a parameter server."""
    def become(rank: int) -> None:
        for name, value in (("PMI_FD", 9), ("PMI_RANK", rank), ("PMI_SIZE", 4), ("REFDIST_PS", 1)):
            monkeypatch.setenv(name, str(value))

    yield become
    refdist.journal.worker.value = 0


@pytest.mark.filterwarnings("ignore:.*train 4 models")
def test_a_recording_names_the_tasks_of_the_cluster(tmp_path: Path, process: Callable[[int], None]) -> None:
    def step() -> Any:
        return refdist.get_replica_context().all_reduce("SUM", 1.0)

    for rank in range(4):
        process(rank)
        with contextlib.suppress(KeyError), refdist.insight.record_to(tmp_path / "a"):
            for _ in range(3):
                refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(step)
            raise KeyError(rank)
    loaded = load(tmp_path / "a")
    names = ["chief", "worker 0", "worker 1", "ps 0"]
    raised = [finding.text.partition(" raises")[0] for finding in loaded.findings]
    assert raised == ["Chief", "Worker 0", "Worker 1", "Ps 0"]
    assert loaded.summary().counts["workers"] == 2
    assert [name for name in names if f">replica 1 of {name}<" in loaded.svg()] == names
    assert [curve.name.partition(" on ")[2] for curve in curves_of(loaded.events)][:4] == ["", *names[1:]]
    loaded.trace(tmp_path / "trace")
    tracks = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    assert [track["args"]["name"] for track in tracks if track["name"] == "process_name"] == names
    assert [tuple(lane[3:]) for lane in page.data(loaded.events, {})["lanes"] if lane[1] is None] == [
        ("chief", "chief", 0), ("worker 0", "worker", 0), ("worker 1", "worker", 1), ("ps 0", "ps", 0)]
    other = Recording(event for event in loaded.events if (event.worker, event.kind) != (3, "error"))
    assert "on ps 0, run 3" in str(loaded.diff(other))
    loaded.save(tmp_path / "again")
    assert load(tmp_path / "again").events == loaded.events


def test_also_the_first_event_of_a_process_has_its_number(tmp_path: Path, process: Callable[[int], None]) -> None:
    process(3)
    with recording._OfTheProgram(tmp_path / "a"):
        print("first")
    events = [json.loads(line) for line in (tmp_path / "a.3").read_text().splitlines() if '"kind"' in line]
    assert [(event["worker"], event["kind"]) for event in events] == [(3, "process"), (3, "print")]
    assert (events[0]["job"], events[0]["task"]) == ("ps", 0)


def test_the_last_process_puts_the_parts_together(tmp_path: Path) -> None:
    events = recorded().events
    writers = [files.Writer(tmp_path / "a", rank, 3) for rank in range(3)]
    for rank in (2, 0, 1):
        for event in events[:rank + 1]:
            writers[rank].event(event)
    ids: list[list[int]] = []
    for rank in (1, 2, 0):
        ids.append([event.id for event in load(tmp_path / "a").events])
        writers[rank].close()
    ids.append([event.id for event in load(tmp_path / "a").events])
    assert ids == [[0, 1, 2, 3, 4, 5]] * 4, "the same before and after"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_half_a_line_and_a_part_that_is_missing_are_left_out(tmp_path: Path) -> None:
    events = recorded().events
    writer = files.Writer(tmp_path / "a", 0, 2)
    for event in events[:3]:
        writer.event(event)
    whole = (tmp_path / "a").read_text()
    (tmp_path / "a").write_text(whole[:-10])
    assert load(tmp_path / "a").events == events[:2]


@pytest.mark.parametrize(("text", "message"), [
    (None, "No such file"), ("", "not a recording"), ("{}\n", "not that of a recording"),
    ("nonsense\n", "not that of a recording"), ("[1]\n", "not that of a recording"), ("\x80", "not a recording"),
    ("[" * 100_000 + "\n", "not that of a recording"),
    # As version 2 was written, which had no checksums.
    ('{"format":"refdist recording","version":2,"rank":0,"size":1}\n{"complete":true}\n',
     r"it is a recording of version 2, and this refdist reads version 5\. Record the program again"),
    (files.sealed(b'{"format":"refdist recording","version":99,"rank":0,"size":1}').decode() + "\n",
     "it is a recording of version 99"),
])
def test_what_is_not_a_recording_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "a").write_text(text)
    with pytest.raises(refdist.errors.DataLossError, match=message):
        load(tmp_path / "a")


@pytest.mark.parametrize("change", [
    {"of": 99}, {"worker": ...}, {"contributed": [["<f4", [2], "00"]]}, {"contributed": [["<f4", [1], "xx"]]},
    {"contributed": [["nonsense", [1], ""]]}, {"contributed": 1}, {"parent": ...}, {"site": ...}, {"more": 1},
])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    with refdist.insight.record_to(tmp_path / "a"):
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    lines = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    number = next(i for i, line in enumerate(lines) if line.get("kind") == "meet")
    changed = {**lines[number], **change}
    lines[number] = {name: value for name, value in changed.items() if value is not ...}
    for line in lines:
        del line["crc"]
    (tmp_path / "a").write_bytes(b"".join(files.sealed(json.dumps(line).encode()) + b"\n" for line in lines))
    if "of" in change:  # of something that is not there: it began before the recording
        assert "meet" not in [event.kind for event in load(tmp_path / "a").events if event.replica == 0]
    else:
        with pytest.raises(refdist.errors.DataLossError, match=f"line {number + 1} of part 0 is not an event"):
            load(tmp_path / "a")


def damaged(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes with one to three of them changed, a part of them cut out, or without their end."""
    changed = bytearray(data)
    how, at = random.integers(4), int(random.integers(len(data)))
    if how == 0:
        return data[:at]
    if how == 1:
        del changed[at:at + int(random.integers(1, 300))]
    for _ in range(how):
        place = int(random.integers(len(changed)))
        changed[place] ^= 1 << int(random.integers(8))
    return bytes(changed)


def by_part(recording: refdist.insight.Recording, parts: int) -> list[list[dict[str, Any]]]:
    # Numbers of events depend on how many there are in the parts before.
    parts_read = [[event.as_json() for event in recording.events if event.worker == part] for part in range(parts)]
    return [[{**event, "id": 0, "parent": 0, "of": 0} for event in part] for part in parts_read]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_a_damaged_recording_is_refused_or_has_what_was_recorded(tmp_path: Path, size: int, together: bool) -> None:
    events = recorded().events
    writers = [files.Writer(tmp_path / "a", rank, size) for rank in range(size)]
    for rank, writer in enumerate(writers):
        writer.source(f"{rank}.py", "x = 1\n")
        for event in events[:40 + rank]:
            writer.event(replace(event, worker=rank))
    for writer in writers if together else ():
        writer.close()
    whole = load(tmp_path / "a")
    assert [len(part) for part in by_part(whole, size)] == [40, 41, 42][:size]
    parts = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(parts) == (1 if together else size)
    random, refused = np.random.default_rng(size), 0
    for number in range(900):
        path, data = list(parts.items())[number % len(parts)]
        path.write_bytes(damaged(data, random))
        try:
            loaded = load(tmp_path / "a")
        except refdist.errors.DataLossError as error:
            assert "[RD30]" in str(error)
            refused += 1
        else:  # what is left of a part that was cut off is its beginning
            assert loaded.sources.items() <= whole.sources.items()
            for kept, part in zip(by_part(loaded, size), by_part(whole, size), strict=True):
                assert kept == part[:len(kept)], f"damage number {number}"
        path.write_bytes(data)
    assert 600 < refused < 900


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"RD34.*cannot be written"), refdist.insight.record_to(tmp_path / "a"):
        pytest.fail("it must not begin")
    assert refdist.journal.recording.value is None


def test_what_is_printed_and_warned_of_is_shown_as_ever(capsys: Any) -> None:
    before = sys.stdout, sys.stderr, warnings.showwarning
    with warnings.catch_warnings(), refdist.record() as recording:
        warnings.simplefilter("always")
        print("one", "two", end="")
        print(" three\nfour")
        print("five", file=sys.stderr)
        warnings.warn("six", UserWarning, stacklevel=1)
    assert (sys.stdout, sys.stderr) == before[:2]
    shown = capsys.readouterr()
    assert shown.out == "one two three\nfour\n"
    assert shown.err.startswith("five\n")
    assert [(event["stream"], event["text"]) for event in recording.events if event.kind == "print"] == [
        ("stdout", "one two three"), ("stdout", "four"), ("stderr", "five")]
    [warned] = [event for event in recording.events if event.kind == "warning"]
    assert (warned["text"], warned["category"]) == ("six", "UserWarning")
    line = test_what_is_printed_and_warned_of_is_shown_as_ever.__code__.co_firstlineno + 7
    assert warned["site"] == [f"{__file__}:{line}"]


def test_replicas_may_be_in_the_middle_of_a_line() -> None:
    def step() -> None:
        context = refdist.get_replica_context()
        assert context is not None
        print(f"replica {context.replica_id_in_sync_group}", end="")
        context.all_reduce("SUM", 1.0)
        print(" has met")

    with refdist.record() as recording:
        refdist.MirroredStrategy(["GPU:0", "GPU:1"]).run(step)
    assert [(event.replica, event["text"]) for event in recording.events if event.kind == "print"] == [
        (0, "replica 0 has met"), (1, "replica 1 has met")]


def test_recordings_may_be_inside_each_other() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with refdist.record() as outer:
        strategy.run(lambda: None)
        with refdist.record() as inner:
            strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    assert len(inner.events) > 10 and len(outer.events) == len(inner.events) + 6
    assert [event.kind for event in outer.events][6:] == [event.kind for event in inner.events]
    assert inner.events[0].id == 0 and [event.parent for event in inner.events if event.kind == "replica"] == [0, 0]
    assert refdist.journal.recording.value is None
