"""`refdist.explore`: what waits for what cannot come does not wait for ever."""

from __future__ import annotations

import functools
import io
import itertools
import pdb
import queue
import re
import signal
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
from limits import HANG
from schedules import program

import refdist
from refdist.coordinator import ClusterCoordinator
from refdist.insight import schedules, stalls
from refdist.insight.explorer import replay


def event() -> tuple[Callable[[], object], Callable[[], object]]:
    happened = threading.Event()
    return happened.set, happened.wait


def items() -> tuple[Callable[[], object], Callable[[], object]]:
    rows: queue.SimpleQueue[int] = queue.SimpleQueue()
    return lambda: rows.put(1), rows.get


def sleeps() -> tuple[Callable[[], object], Callable[[], object]]:
    rows: list[int] = []

    def wait() -> None:
        while not rows:
            time.sleep(0.001)

    return lambda: rows.append(1), wait


def loop() -> tuple[Callable[[], object], Callable[[], object]]:
    rows: list[int] = []

    def wait() -> None:
        while not rows:
            pass

    return lambda: rows.append(1), wait


def waits_for(made: Callable[[], Any]) -> Callable[[], object]:
    """A program that waits itself for what its function does."""

    def body(c: ClusterCoordinator, v: Any) -> object:
        go_on, wait = made()

        def step() -> None:
            v.assign_add(1.0)
            go_on()

        c.schedule(step)
        wait()
        c.join()
        return float(v)

    return program(body)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "LOOKS", 1)


@pytest.fixture
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which what computes has a processor for itself."""
    monkeypatch.setattr(schedules, "time", types.SimpleNamespace(process_time=time.monotonic, monotonic=time.monotonic))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("made", [event, items, sleeps, loop])
def test_a_program_that_waits_without_the_coordinator_is_cut_and_told_what_to_write(
        made: Any, request: pytest.FixtureRequest) -> None:
    does = "waits"
    if made is loop:
        does = "has computed"
        request.getfixturevalue("idle_machine")
    handler = signal.getsignal(signal.SIGURG)
    report = refdist.explore(waits_for(made), budget="1s")
    assert not report.proved and not report.findings
    [cut] = [reason for reason in report.reasons if reason.startswith("a run was cut")]
    match = re.match(rf"a run was cut: the program {does} at {re.escape(__file__)}:(\d+)", cut)
    assert match and cut.endswith("or waits with `join` or `fetch`; write one of these"), cut
    assert int(match[1]) in range(made.__code__.co_firstlineno, waits_for.__code__.co_firstlineno + 14)
    assert not any("no function of a coordinator" in reason for reason in report.reasons)
    assert signal.getsignal(signal.SIGURG) is handler


@pytest.mark.usefixtures("soon")
def test_a_sleep_that_looks_like_a_wait_for_ever_is_to_be_left_out_while_functions_are_left() -> None:
    def body(sleeps_first: bool, c: ClusterCoordinator, v: Any) -> object:
        c.schedule(v.assign_add, args=(1.0,))
        if not sleeps_first:
            c.join()
        time.sleep(4)
        c.join()
        return float(v)

    report = refdist.explore(program(functools.partial(body, True)), budget="1s")
    assert any("did not go on for 1 seconds (if it sleeps, leave that out: nothing else goes on meanwhile)" in reason
               for reason in report.reasons), report
    assert refdist.explore(program(functools.partial(body, False)), budget="1min").proved


@pytest.mark.usefixtures("soon")
def test_a_schedule_that_is_repeated_is_cut_too() -> None:
    _, text = replay(waits_for(event), [])
    assert f"result: the program waits at {__file__}" in text


@pytest.mark.usefixtures("soon", "idle_machine")
def test_a_function_in_a_busy_loop_is_cut_and_ended() -> None:
    ended = []

    def body(c: ClusterCoordinator, v: Any) -> object:
        go_on, wait = loop()
        end = threading.Event()

        def waiting() -> None:
            v.assign_add(1.0)
            ended.append(end)
            try:
                wait()
            finally:
                end.set()

        c.schedule(waiting)
        c.schedule(lambda: (v.assign_add(1.0), go_on())[1])
        c.join()
        return float(v)

    report = refdist.explore(program(body), check=lambda result: True, budget="1s")
    assert not report.proved
    assert any(f"a function has computed at {__file__}" in reason for reason in report.reasons)
    assert all(end.wait(HANG) for end in ended)  # none goes on computing


@pytest.mark.usefixtures("soon")
def test_a_replica_that_waits_for_another_one_is_cut() -> None:
    def run() -> object:
        strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with strategy.scope():
            v = refdist.Variable(0.0, aggregation=refdist.VariableAggregation.SUM)
        barrier = threading.Barrier(2)

        def step() -> None:
            v.assign_add(1.0)
            barrier.wait()

        strategy.run(step)
        return float(v)

    report = refdist.explore(run, orders=True, budget="1s")
    assert not report.proved
    assert any("no other replica, for which it may wait, runs before the next" in reason for reason in report.reasons)


def test_a_program_that_computes_or_sleeps_for_a_while_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    used = itertools.count()
    monkeypatch.setattr(schedules, "LOOKS", 1)
    monkeypatch.setattr(schedules, "time", types.SimpleNamespace(process_time=lambda: float(next(used)),
                                                                monotonic=time.monotonic))

    def body(c: ClusterCoordinator, v: Any) -> object:
        c.schedule(lambda: v.assign_add(1.0))
        time.sleep(3)
        c.join()
        return float(v)

    assert refdist.explore(program(body), budget="10min").reasons == []


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("where", ["function", "program"])
def test_a_program_may_be_debugged(where: str) -> None:
    class Person(io.StringIO):
        def readline(self, size: int | None = -1) -> str:
            time.sleep(3)
            return "continue\n"

    def stop() -> bool:
        pdb.Pdb(stdin=Person(), stdout=io.StringIO(), nosigint=True, readrc=False).set_trace()
        return True

    def body(c: ClusterCoordinator, v: Any) -> object:
        c.schedule(lambda: (v.assign_add(1.0), where == "function" and stop())[0])
        if where == "program":
            stop()
        c.join()
        return float(v)

    assert replay(program(body), [])[1].endswith("result: 1.0")


@pytest.mark.usefixtures("soon")
def test_what_a_program_does_when_its_functions_have_ended_may_take_the_budget() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        c.schedule(lambda: v.assign_add(1.0))
        c.join()
        time.sleep(4)
        return float(v)

    assert replay(program(body), [])[1].endswith("result: 1.0")  # it has 20 seconds
    assert any(reason.startswith(f"a run was cut: the program was at {__file__}:")
               and reason.endswith("no function is left for which it may wait")
               for reason in refdist.explore(program(body), budget="1s").reasons)


def test_a_watch_takes_no_other_signal_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "SECONDS", HANG)
    looks: list[object] = []
    with stalls.Watch(lambda: 1, looks.append):
        signal.raise_signal(signal.SIGURG)
    assert looks == []


def test_a_watch_sends_nothing_to_the_handler_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "SECONDS", 0.01)
    outer, inner = threading.Event(), threading.Event()
    sent: list[int] = []
    with stalls.Watch(lambda: 1, lambda frame: outer.set()):
        with stalls.Watch(lambda: 1, lambda frame: inner.set()):
            assert inner.wait(HANG)
            outer.clear()
            before = signal.signal(signal.SIGURG, lambda number, frame: sent.append(number))
            time.sleep(0.3)
            signal.signal(signal.SIGURG, before)
        assert len(sent) <= 1 and not outer.is_set()  # one was perhaps on its way
        assert outer.wait(HANG)


def test_a_program_is_explored_in_another_thread_as_in_the_main_one() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        c.schedule(lambda: v.assign_add(1.0))
        c.join()
        return float(v)

    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(refdist.explore(program(body))))
    thread.start()
    thread.join()
    assert reports[0].proved
