"""`refdist.explore`: Python objects that functions share, functions that fail, and programs that do not wait."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time
import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import HANG
from schedules import Body, all_outcomes, explored_outcomes, program, twice

import refdist
from refdist.coordinator import ClusterCoordinator
from refdist.insight import explorer, schedules


def count_in_a_dict(c: ClusterCoordinator, v: Any) -> object:
    state = {"rows": 0}

    def step(k: int) -> None:
        rows = state["rows"]
        v.assign_add(1.0)
        state["rows"] = rows + 1

    twice(c, step)
    return state["rows"]


def who_was_first(c: ClusterCoordinator, v: Any) -> object:
    order: list[int] = []

    def step(k: int) -> None:
        v.assign_add(1.0)
        order.append(k)

    twice(c, step)
    return list(order)


def change_and_restore(c: ClusterCoordinator, v: Any) -> object:
    class Busy(str):
        now = False

    busy, clashes = Busy(), []

    def step(k: int) -> None:
        if busy.now:
            clashes.append(k)
        busy.now = True
        v.assign_add(1.0)
        busy.now = False

    twice(c, step)
    return list(clashes)


def late_binding(c: ClusterCoordinator, v: Any) -> object:
    for i in range(2):
        c.schedule(lambda: v.assign_add(float(i)))  # noqa: B023
    c.join()
    return float(v)


def read_meanwhile(c: ClusterCoordinator, v: Any) -> object:
    seen: list[int] = []

    def step() -> None:
        v.assign_add(1.0)
        seen.append(1)

    c.schedule(step)
    early = len(seen)
    c.schedule(step)
    c.join()
    return early


def write_in_place(c: ClusterCoordinator, v: Any) -> object:
    buffer = np.zeros(100_000, np.float32)

    def step(k: int) -> None:
        buffer[:] = k
        before = float(v)
        v.assign(before + float(buffer[-1]))

    twice(c, step)
    return float(v)


def draw(c: ClusterCoordinator, v: Any) -> object:
    random.seed(3)

    def step(k: int) -> None:
        v.assign_add(1.0)
        v.assign_add(float(k * random.randrange(100)))

    twice(c, step)
    return float(v)


def environment(c: ClusterCoordinator, v: Any) -> object:
    os.environ["REFDIST_TEST"] = "0"

    def step(k: int) -> None:
        v.assign_add(float(os.environ["REFDIST_TEST"]))
        os.environ["REFDIST_TEST"] = str(k + 1)

    twice(c, step)
    return float(v)


def go_through(c: ClusterCoordinator, v: Any) -> object:
    rows = (float(i) for i in range(9))

    def step(k: int) -> None:
        before = float(v)
        v.assign(before + (k + 1) * next(rows))

    twice(c, step)
    return float(v)


def map_a_dataset(c: ClusterCoordinator, v: Any) -> object:
    calls = [0]

    def number(row: Any) -> Any:
        calls[0] += 1
        return row + calls[0]

    rows = refdist.data.Dataset.range(1).map(number)

    def step(k: int) -> None:
        before = float(v)
        v.assign(before + (k + 1) * float(next(iter(rows))))

    twice(c, step)
    return float(v)


def keep_in_a_cache(c: ClusterCoordinator, v: Any) -> object:
    @functools.lru_cache
    def rows(name: str) -> list[int]:
        return []

    def step(k: int) -> None:
        read = len(rows("all"))
        v.assign_add(1.0)
        rows("all").append(read)

    twice(c, step)
    return list(rows("all"))


def one_fails(c: ClusterCoordinator, v: Any) -> object:
    def bad() -> None:
        v.assign_add(10.0)
        raise ValueError("bad")

    c.schedule(lambda: (v.assign_add(1.0), v.assign_add(1.0)))
    try:
        c.schedule(bad)
        c.join()
    except ValueError:
        return float(v)
    return None


def fail_and_go_on(c: ClusterCoordinator, v: Any) -> object:
    def bad() -> None:
        v.assign(v * 2.0)
        raise ValueError("bad")

    failures = 0
    for step in (bad, lambda: v.assign_add(1.0), None):
        try:
            c.join() if step is None else c.schedule(step)
        except ValueError:
            failures += 1
    return failures, float(v)


def fetch_one(c: ClusterCoordinator, v: Any) -> object:
    first, _ = (c.schedule(lambda: v.assign_add(1.0, read_value=False)) for _ in range(2))
    return c.fetch(first)


def never_wait(c: ClusterCoordinator, v: Any) -> object:
    c.schedule(lambda: (v.assign_add(1.0), v.assign_add(1.0)))
    v.assign_add(4.0)
    return None


@pytest.mark.parametrize("body", [
    count_in_a_dict, who_was_first, change_and_restore, late_binding, read_meanwhile, write_in_place, draw, environment,
    go_through, map_a_dataset, keep_in_a_cache, one_fails, fail_and_go_on, fetch_one, never_wait])
def test_no_outcome_of_all_schedules_is_missed(body: Body) -> None:
    expected = all_outcomes(program(body))
    assert len(expected) > 1
    assert explored_outcomes(program(body)) == expected


@pytest.mark.parametrize(("body", "name"), [
    (count_in_a_dict, "state"), (change_and_restore, "clashes"), (environment, "`os.environ`")])
def test_a_shared_object_that_makes_a_difference_is_found_and_replayed(body: Body, name: str) -> None:
    report = refdist.explore(program(body))
    [finding] = report.findings
    assert finding.title == "SHARED OBJECT" and str(finding).startswith(f"SHARED OBJECT {name}")
    assert f"functions share {name}" in str(report) or name in report.shared[-1]
    right, shown = explorer.replay(program(body), finding.choices)
    assert not right and f"changes {name}" in shown
    assert str(report) == str(refdist.explore(program(body)))


def test_objects_that_are_changed_and_make_no_difference_are_proved_in_all_orders() -> None:
    report = refdist.explore(program(who_was_first), budget="10min")
    line = who_was_first.__code__.co_firstlineno + 5
    assert report.proved and report.shared == [f"order ({__file__}:{line})"]
    assert "workers on other machines do not" in str(report)
    assert [result for result, _ in report.results] == ["[0, 1]", "[1, 0]"]


CONSTANTS = types.SimpleNamespace(rate=0.5, sizes=[1, 2], log=logging.getLogger("steps"), names={"a": "b"})


def test_what_is_only_read_costs_no_schedule() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        table = np.zeros(3, np.float32)

        def step(k: int) -> None:
            CONSTANTS.log.warning("step %s", k)
            print(k, len(os.environ["PATH"]))
            v.assign_add(CONSTANTS.rate * len(CONSTANTS.sizes) + float(np.sum(table)))

        twice(c, step)
        return float(v)

    report = refdist.explore(program(body))
    assert report.proved and report.classes == 1 and not report.shared, report


@pytest.mark.parametrize("name", ["__main__", "no_module", None])
def test_functions_that_were_made_by_exec_are_looked_into(name: str | None) -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        names: dict[str, Any] = {"state": [0]} if name is None else {"__name__": name, "state": [0]}
        exec("def step(v):\n    rows = state[0]\n    v.assign_add(1.0)\n    state[0] = rows + 1", names)
        twice(c, lambda k: names["step"](v))
        return names["state"][0]

    assert [finding.title for finding in refdist.explore(program(body)).findings] == ["SHARED OBJECT"]


def test_each_function_may_have_a_generator_of_its_own() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        for k in range(3):
            c.schedule(lambda rng: v.assign_add(float(rng.integers(9))), args=(np.random.default_rng(k),))
        c.join()
        return float(v)

    assert refdist.explore(program(body), budget="10min").proved


def test_what_cannot_be_looked_into_is_named_and_nothing_is_proved() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        rows = itertools.zip_longest([1.0, 2.0], [1.0, 2.0])
        twice(c, lambda k: v.assign_add(next(rows)[0]))
        return float(v)

    assert "what functions share was not looked into: itertools.zip_longest" in refdist.explore(program(body)).reasons


def test_a_lock_is_no_reason_unless_an_access_is_made_under_it() -> None:
    def body(over_an_access: bool) -> Body:
        def locked(c: ClusterCoordinator, v: Any) -> object:
            lock = threading.Lock()

            def step(k: int) -> None:
                with lock:
                    before = float(v) if over_an_access else 0.0
                v.assign_add(1.0 + before)

            twice(c, step)
            return float(v)

        return locked

    assert refdist.explore(program(body(False))).proved
    [reason] = refdist.explore(program(body(True))).reasons
    assert reason == ("a run was cut: a function makes an access while it has a lock (lock), for which others would "
                      "wait for ever")


def test_modules_that_a_function_imports_from_its_package_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rows.py").write_text("read = 0\n")
    (package / "steps.py").write_text("""\
def step(v):
    from . import rows
    read = rows.read
    v.assign_add(1.0)
    rows.read = read + 1
""")
    (tmp_path / "train.py").write_text("""\
import refdist, package.rows
from package.steps import step
package.rows.read = 0
spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
with strategy.scope():
    v, seen = refdist.Variable(0.0, name="v"), refdist.Variable(0, name="seen")
coordinator = refdist.coordinator.ClusterCoordinator(strategy)
for _ in range(2):
    coordinator.schedule(step, args=(v,))
coordinator.join()
seen.assign(package.rows.read)
""")
    ended = subprocess.run([sys.executable, "-m", "refdist", "explore", "train.py"], capture_output=True, text=True,
                           cwd=tmp_path, timeout=HANG)
    assert ended.returncode == 1 and "SHARED OBJECT package.rows.read" in ended.stdout, ended


def test_a_result_that_orders_which_were_not_tried_may_have_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        rows: list[int] = []

        def step(k: int) -> None:
            if v.assign_add(1.0) > 0:
                rows.append(k)

        for k in range(3):
            c.schedule(step, args=(k,))
        c.join()
        return tuple(rows)

    assert refdist.explore(program(body)).proved
    monkeypatch.setattr(explorer, "ORDERS", 2)
    report = refdist.explore(program(body))
    assert not report.findings
    assert any("no order of whole functions has that was tried" in reason for reason in report.reasons)


def test_of_several_objects_with_one_name_each_is_looked_at() -> None:
    """The arguments of a partial have no names: a list was taken for the longer one behind it."""

    def step(assign_add: Callable[[float], object], rows: list[int], longer: list[int]) -> None:
        count = len(rows)
        assign_add(1.0)
        rows[count:] = longer[:1]

    def body(c: ClusterCoordinator, v: Any) -> object:
        rows: list[int] = []
        partial = functools.partial(step, v.assign_add, rows, [0, 0, 0])
        for _ in range(2):
            c.schedule(partial)
        c.join()
        return len(rows)

    report = refdist.explore(program(body))
    assert {result for result, _ in report.results} == {"1", "2"} and report.findings


def test_the_order_of_the_keys_of_a_dict_is_looked_at() -> None:
    def body(c: ClusterCoordinator, v: Any) -> object:
        keys = OrderedDict.fromkeys("abc")

        def step(key: str) -> None:
            last = next(reversed(keys))
            v.assign_add(1.0)
            if last == next(reversed(keys)):
                keys.move_to_end(key)

        for key in "ab":
            c.schedule(step, args=(key,))
        c.join()
        return "".join(keys)

    report = refdist.explore(program(body))
    assert len(report.results) == 3 and report.findings


def set_by_another(v: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    event = threading.Event()
    return event.wait, event.set


def put_by_another(v: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    rows: queue.SimpleQueue[int] = queue.SimpleQueue()
    return rows.get, lambda: rows.put(1)


def met_by_another(v: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    barrier = threading.Barrier(2)
    return barrier.wait, barrier.wait


def polled(v: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    rows: list[int] = []

    def wait() -> None:
        while not rows:
            time.sleep(0.001)

    return wait, lambda: rows.append(1)


@pytest.mark.parametrize("made", [set_by_another, put_by_another, met_by_another, polled])
def test_a_function_that_waits_for_another_one_ends_the_run(made: Callable[[Any], Any],
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "LOOKS", 1)

    def body(c: ClusterCoordinator, v: Any) -> object:
        wait, go_on = made(v)

        def waiting() -> None:
            v.assign_add(1.0)
            wait()
            v.assign_add(1.0)

        def other() -> None:
            v.assign_add(1.0)
            go_on()

        c.schedule(waiting)
        c.schedule(other)
        c.join()
        return float(v)

    report = refdist.explore(program(body), budget="1s")
    lines = range(made.__code__.co_firstlineno, body.__code__.co_firstlineno + 6)
    [place] = {match[1] for reason in report.reasons if (match := re.match(
        rf"a run was cut: a function waits at {re.escape(__file__)}:(\d+), and did not go on for 1 seconds", reason))}
    assert not report.proved and int(place) in lines
    assert refdist.explore(program(who_was_first), budget="10min").proved  # the thread that waits disturbs nothing


def test_a_function_that_computes_or_sleeps_for_a_while_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    used = itertools.count()
    monkeypatch.setattr(schedules, "LOOKS", 1)
    monkeypatch.setattr(schedules, "time", types.SimpleNamespace(process_time=lambda: float(next(used)),
                                                                monotonic=time.monotonic))

    def body(c: ClusterCoordinator, v: Any) -> object:
        c.schedule(lambda: (v.assign_add(1.0), time.sleep(3), v.assign_add(1.0))[0])
        c.join()
        return float(v)

    assert refdist.explore(program(body), budget="10min").reasons == []


def test_a_function_that_waits_while_it_is_stopped_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "LOOKS", 1)

    def body(c: ClusterCoordinator, v: Any) -> object:
        def waiting() -> None:
            try:
                v.assign_add(1.0)
                v.assign_add(1.0)
            finally:
                threading.Event().wait()

        def failing() -> None:
            v.assign_add(1.0)
            raise ValueError

        c.schedule(waiting)
        c.schedule(failing)
        c.join()
        return float(v)

    report = refdist.explore(program(body), budget="1s")
    assert not report.proved and f"waits at {__file__}" in str(report.reasons)
