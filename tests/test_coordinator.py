"""ClusterCoordinator, simulated: order, results, errors, and what the choices decide."""

from __future__ import annotations

import contextlib
import functools
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import HANG
from test_parameter_servers import Fixed, made, strategy
from workers import moments

import refdist
from refdist.coordinator import (
    ClusterCoordinator,
    RemoteValue,
    choices,
    cluster_coordinator,
    interleaving,
    restart_task,
    stop_task,
    strands,
)
from refdist.coordinator.choices import Option, Scheduler
from refdist.coordinator.cluster import PATIENCE, Cluster
from refdist.data import Dataset
from refdist.errors import CancelledError, InvalidContextError

index = refdist.coordinator.experimental_get_current_worker_index


def coordinator(*args: Any, **options: Any) -> Any:
    return ClusterCoordinator(strategy(*args, **options))


def variable(c: Any, value: Any = 0.0, **options: Any) -> Any:
    return made(c.strategy, value, **options)


def fail() -> None:
    raise KeyError("fail")


def all_runs(program: Callable[[], Any]) -> list[Any]:
    """What a program returns for every list of choices."""
    results, prefix = [], []
    while True:
        with interleaving(prefix) as run:
            results.append(program())
        taken, counts = run.taken, run.counts
        while taken and taken[-1] + 1 == counts[len(taken) - 1]:
            taken.pop()
        if not taken:
            return results
        prefix = [*taken[:-1], taken[-1] + 1]


def test_one_coordinator_for_each_strategy() -> None:
    s = strategy()
    assert ClusterCoordinator(s) is ClusterCoordinator(s) and ClusterCoordinator(s).strategy is s
    assert ClusterCoordinator(strategy()) is not ClusterCoordinator(s)
    older = refdist.experimental.coordinator
    assert older.ClusterCoordinator is ClusterCoordinator
    assert older.PerWorkerValues is refdist.coordinator.PerWorkerValue
    for other in (refdist.MirroredStrategy(["GPU:0"]), None, refdist.get_strategy()):
        with pytest.raises(ValueError, match=r"RD34.*ParameterServerStrategy"):
            ClusterCoordinator(other)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"RD10.*deepcopy"):
        __import__("copy").deepcopy(s)


def test_functions_run_in_the_scope_of_the_strategy() -> None:
    c = coordinator()

    def where() -> Any:
        return (refdist.get_strategy() is c.strategy, refdist.in_cross_replica_context(),
                refdist.get_replica_context() is None)

    assert c.schedule(where).fetch() == (True, True, True)
    with c.strategy.scope():
        assert c.schedule(where).fetch() == (True, True, True)

    def step(x: Any) -> Any:
        part = c.strategy.run(lambda y: (y + 1.0, refdist.get_replica_context().replica_id_in_sync_group), args=(x,))
        return c.strategy.reduce("MEAN", part[0], axis=None), part[1], c.strategy.gather(x, axis=0)

    mean, number, gathered = c.schedule(step, args=(np.array([1.0]),)).fetch()
    assert (mean.tolist(), number, gathered.tolist()) == ([2.0], 0, [1.0])


@pytest.mark.parametrize("call", ["schedule", "join", "done", "fetch", "create_per_worker_dataset", "iter"])
def test_a_scheduled_function_does_not_schedule_or_wait(call: str) -> None:
    c = coordinator()
    other = c.schedule(int)
    dataset = c.create_per_worker_dataset(Dataset.range(2))
    calls = {"schedule": lambda: c.schedule(int), "join": c.join, "done": c.done, "fetch": lambda: late[0].fetch(),
             "create_per_worker_dataset": lambda: c.create_per_worker_dataset(Dataset.range(1)),
             "iter": lambda: iter(dataset)}
    late: list[Any] = []
    c.schedule(calls[call])
    late.append(c.schedule(int))
    with pytest.raises(RuntimeError, match=r"RD09.*in a scheduled function, on worker 1"):
        c.join()
    assert other.fetch() == 0


@pytest.mark.parametrize("fn", [3, None, "f"])
def test_what_cannot_be_scheduled(fn: Any) -> None:
    c = coordinator()
    with pytest.raises(TypeError, match=r"RD25.*Pass a function"):
        c.schedule(fn)
    for args, kwargs in ((np.array([1, 2]), None), (None, [1])):
        with pytest.raises((TypeError, ValueError), match=r"RD(25|34)"):
            c.schedule(int, args=args, kwargs=kwargs)
    assert c.done()


def test_arguments_and_results() -> None:
    c = coordinator()
    v = variable(c, 7.0)
    r = c.schedule(lambda x, y=None: [x, {"y": y}], args=[np.int32(1)], kwargs={"y": (2.5, None, "s")})
    assert c.fetch(r) == [1, {"y": (2.5, None, "s")}]
    assert c.fetch([r, 5, {"k": (r,)}])[2]["k"][0][0] == 1 and c.fetch(None) is None and c.fetch(()) == ()
    results = [c.schedule(fn).fetch() for fn in (lambda: v, lambda: 3, lambda: 2.5, lambda: True, lambda: None, tuple,
                                                 lambda: v.assign_add(1.0), lambda: np.arange(2))]
    assert [type(result).__name__ for result in results] == [
        "float32", "int32", "float32", "bool", "NoneType", "tuple", "float32", "ndarray"]
    assert results[0] == 7.0 and results[6] == 8.0
    assert r.get() is r.get() and not isinstance(c.schedule(lambda: 3).get(), np.generic) and "RemoteValue" in repr(r)
    for wrong in ((r,), ([r],), ({"a": (r,)},)):
        with pytest.raises(ValueError, match=r"RD34.*RemoteValue"):
            c.schedule(print, args=wrong)
    with pytest.raises(ValueError, match="RD34"):
        c.schedule(print, kwargs={"x": r})
    assert c.schedule(lambda x: x + 1, args=(r.fetch()[0],)).fetch() == 2 and c.done()
    c.schedule(lambda x: x)
    with pytest.raises(TypeError, match="missing 1 required"):
        c.join()


def test_arrays_are_those_of_the_time_of_the_call() -> None:
    c = coordinator()
    x, y = np.zeros(2), np.zeros(2)
    r, s = c.schedule(lambda a: a.sum(), args=(x,)), c.schedule(lambda: y)
    x[:] = 1.0
    assert r.fetch() == 0.0 and s.fetch().tolist() == [0.0, 0.0]
    y[:] = 1.0
    assert s.fetch().tolist() == [0.0, 0.0]


def test_functions_begin_in_order_on_workers_in_turn() -> None:
    for workers, where in ((1, [0] * 5), (2, [0, 1, 0, 1, 0]), (3, [0, 1, 2, 0, 1])):
        c = coordinator(workers)
        began: list[tuple[int, int]] = []

        def f(i: int, began: list[tuple[int, int]] = began) -> None:
            began.append((i, int(index())))

        values = [c.schedule(f, args=(i,)) for i in range(5)]
        c.join()
        assert began == list(zip(range(5), where, strict=True)) and c.fetch(values) == [None] * 5


def test_nothing_runs_before_the_coordinator_waits_and_fetch_waits_for_one() -> None:
    c, ran = coordinator(), []
    assert c.done() and c.join() is None
    a, b, d = (c.schedule(ran.append, args=(i,)) for i in range(3))
    assert ran == []
    b.fetch()
    assert ran == [0, 1] and not c.done() and ran == [0, 1, 2] and c.done()
    assert (a.fetch(), d.fetch()) == (None, None)


def test_a_loop_of_done_comes_to_an_end() -> None:
    c, ran, times = coordinator(), [], 0
    for i in range(5):
        c.schedule(ran.append, args=(i,))
    while not c.done():
        times += 1
    assert ran == [0, 1, 2, 3, 4] and times == 5


def test_schedule_waits_when_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_coordinator, "QUEUE_LIMIT", 2)
    c, ran = coordinator(), []
    for i in range(5):
        c.schedule(ran.append, args=(i,))
    assert ran == [0, 1, 2]
    c.join()
    assert ran == [0, 1, 2, 3, 4]
    for f in (fail, int):
        c.schedule(f)
    with pytest.raises(KeyError, match="fail"):
        c.schedule(int)
    assert c.done()


def test_several_threads_may_schedule_and_fetch() -> None:
    c = coordinator()
    v = variable(c)

    def program() -> None:
        for _ in range(20):
            c.schedule(v.assign_add, args=(1.0,)).fetch()

    threads = [threading.Thread(target=program) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    c.join()
    assert float(v) == 80.0


class Waits:
    """A scheduled function that begins, and goes on when the test says so."""

    def __init__(self) -> None:
        self.runs, self.goes_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.runs.set()
        self.goes_on.wait()


def in_a_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


@pytest.mark.parametrize("of_all", [True, False])
def test_while_one_thread_waits_another_one_calls_the_coordinator(of_all: bool) -> None:
    c, function = coordinator(2), Waits()
    v = variable(c)
    value = c.schedule(function)
    thread = in_a_thread(c.join if of_all else value.fetch)
    function.runs.wait()
    number = c.schedule(v.assign_add, args=(1.0,))
    stop_task(c, "worker", 0)
    restart_task(c, "worker", 1)
    assert not c.done() and float(v) == 0.0
    function.goes_on.set()
    thread.join()
    assert number.fetch() == 1.0 and c.join() is None


def test_a_thread_gets_its_result_while_another_one_waits_for_more() -> None:
    c, first, second = coordinator(1), Waits(), Waits()
    value = c.schedule(first)
    c.schedule(second)
    joins = in_a_thread(c.join)
    first.runs.wait()
    fetches = in_a_thread(value.fetch)
    first.goes_on.set()
    fetches.join()
    assert joins.is_alive()
    second.goes_on.set()
    joins.join()


def test_when_the_first_thread_has_its_result_the_second_one_lets_the_rest_go_on() -> None:
    c, first = coordinator(1), Waits()
    v = variable(c)
    value = c.schedule(first)
    for _ in range(3):
        c.schedule(v.assign_add, args=(1.0,))
    fetches = in_a_thread(value.fetch)
    first.runs.wait()
    joins = in_a_thread(c.join)
    first.goes_on.set()
    fetches.join()
    joins.join()
    assert float(v) == 3.0


def test_of_two_threads_that_wait_one_gets_the_error() -> None:
    c, function, outcomes = coordinator(2), Waits(), []

    def fails() -> None:
        function()
        fail()

    def join() -> None:
        try:
            outcomes.append(c.join())
        except KeyError as error:
            outcomes.append(error.args)

    c.schedule(fails)
    threads = [in_a_thread(join), in_a_thread(join)]
    function.runs.wait()
    function.goes_on.set()
    for thread in threads:
        thread.join()
    assert None in outcomes and ("fail",) in outcomes and c.done()


def test_after_an_interrupt_nothing_more_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    c, go_on, ran = coordinator(1), threading.Event(), threading.Event()

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(c._cluster._turn, "wait", interrupted)
    c.schedule(go_on.wait)
    c.schedule(ran.set)
    with pytest.raises(KeyboardInterrupt):
        c.join()
    go_on.set()
    with pytest.raises(CancelledError, match=r"RD32.*interrupted"):
        c.join()
    # The thread in which the first function ended would go on with the queue by itself.
    assert not ran.wait(0.5) and coordinator().schedule(lambda: 2).fetch() == 2


def test_after_an_interrupt_every_call_says_so_and_variables_can_be_read() -> None:
    """Each of these waited for a function that had ended."""
    c = coordinator(2)
    v, ran = variable(c), threading.Event()

    def endless() -> None:
        while True:
            v.read_value()
            ran.set()

    def interrupt() -> None:
        ran.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    c.schedule(endless)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            c.join()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    for call in (c.done, c.join, lambda: c.schedule(endless)):
        for _ in range(2 * PATIENCE):
            with pytest.raises(CancelledError, match=r"RD32.*interrupted"):
                call()
    for _ in range(2 * PATIENCE):
        v.assign_add(1.0)
    assert float(v) == 2 * PATIENCE


def waits_for(v: Any, number: float) -> None:
    while float(v) < number:
        pass


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("given", [None, [], 0, 1], ids=str)
@pytest.mark.parametrize("ask", ["done", "read", "join", "fetch"])
def test_a_loop_of_the_coordinator_ends_where_functions_wait_for_one_another(workers: int, given: Any,
                                                                             ask: str) -> None:
    c = coordinator(workers)
    v, w = variable(c), variable(c)

    def program() -> None:
        # Each waits for the one that is scheduled after it.
        for number in range(workers - 1, 0, -1):
            c.schedule(lambda number=number: (waits_for(v, number), v.assign_add(1.0)))
        last = c.schedule(v.assign_add, args=(1.0,))
        c.schedule(w.assign, args=(1.0,))
        if ask == "done":
            while not c.done():
                pass
        elif ask == "read":
            waits_for(v, workers)
        elif ask == "fetch":
            last.fetch()
        c.join()

    if given is None:
        program()
    else:
        with interleaving(given):
            program()
    assert (float(v), float(w)) == (workers, 1.0)


def test_endless_functions_leave_turns_to_those_that_end() -> None:
    c = coordinator(3)
    v, stop = variable(c), variable(c)
    for _ in range(2):
        c.schedule(waits_for, args=(stop, 1.0))
    for _ in range(5):
        c.schedule(v.assign_add, args=(1.0,))
    while float(v) < 5:
        c.done()
    stop.assign(1.0)
    c.join()
    assert c.done()


# --- Variables -------------------------------------------------------------------------------------------------

def counted(workers: int, functions: int, add: Callable[[Any], object]) -> float:
    c = coordinator(workers, 1)
    v = variable(c)
    for _ in range(functions):
        c.schedule(add, args=(v,))
    c.join()
    return float(v)


def test_updates_are_lost_by_reading_before_another_writes() -> None:
    def read_and_write(v: Any) -> None:
        v.assign(v + 1.0)

    assert set(all_runs(lambda: counted(2, 2, read_and_write))) == {1.0, 2.0}
    assert set(all_runs(lambda: counted(1, 3, read_and_write))) == {3.0}
    totals = set()
    for seed in range(200):
        with interleaving(seed):
            totals.add(counted(4, 3, read_and_write))
    assert totals == {1.0, 2.0, 3.0}


def test_assign_add_loses_nothing_whatever_happens() -> None:
    def add(v: Any) -> None:
        v.assign_add(1.0)

    assert set(all_runs(lambda: counted(2, 2, add))) == {2.0}
    for seed in range(100):
        with interleaving(seed):
            assert counted(4, 5, add) == 5.0


def test_a_sharded_variable_is_read_in_parts() -> None:
    def program(partitioner: Any) -> float:
        c = coordinator(2, 2, partitioner)
        v = variable(c, np.zeros(2))
        c.schedule(lambda: v.assign_add([1.0, 1.0], read_value=False))
        seen = c.schedule(lambda: v.numpy())
        c.join()
        return float(np.ptp(seen.fetch()))

    assert set(all_runs(lambda: program(None))) == {0.0}
    assert set(all_runs(lambda: program(Fixed(2)))) == {0.0, 1.0}
    c = coordinator(2, 2, Fixed(2))
    v = variable(c, np.arange(4.0))
    assert c.schedule(lambda x: x[1:3], args=(v,)).fetch().tolist() == [1.0, 2.0]
    assert c.schedule(lambda: refdist.nn.embedding_lookup(v, [3, 0])).fetch().tolist() == [3.0, 0.0]


def test_the_coordinator_is_one_more_client() -> None:
    def program() -> Any:
        c = coordinator(1, 1)
        v = variable(c)
        r = c.schedule(lambda: (v.read_value(), v.read_value()))
        v.assign(5.0)
        return tuple(map(float, r.fetch()))

    assert set(all_runs(program)) == {(0.0, 0.0), (0.0, 5.0), (5.0, 5.0)}
    c, outside = coordinator(), refdist.Variable(1.0)
    v = variable(c)
    for i in range(3):
        v.assign(float(i))
        assert c.schedule(lambda: v + 0.0).fetch() == i
        c.schedule(lambda: v.assign_add(1.0, read_value=False)).fetch()
        assert float(v) == i + 1
    assert c.schedule(lambda: outside + 1.0).fetch() == 2.0


def test_variables_made_in_a_function_are_on_the_servers() -> None:
    c, kept = coordinator(), {}

    def f() -> Any:
        if "v" not in kept:
            kept["v"] = refdist.Variable(1.0)
        return kept["v"].assign_add(1.0)

    assert c.fetch([c.schedule(f) for _ in range(3)]) == [2.0, 3.0, 4.0]
    assert kept["v"].device == "/job:ps/replica:0/task:0/device:CPU:0"


def test_a_function_that_waits_for_another_lets_it_run() -> None:
    c = coordinator(2, 1)
    v = variable(c)

    def wait() -> int:
        times = 0
        while float(v) < 1.0:
            times += 1
        return times

    waited = c.schedule(wait)
    c.schedule(v.assign, args=(1.0,))
    c.join()
    assert waited.fetch() == PATIENCE - 1


def test_replicas_of_a_worker_update_together() -> None:
    """Functions are left in the middle of a run of several replicas, too."""
    def program() -> Any:
        c = coordinator(2, 1, num_accelerators={"GPU": 2})
        v = variable(c, aggregation=refdist.VariableAggregation.SUM)
        seen = [c.schedule(lambda: c.strategy.run(lambda: v.assign_add(1.0, read_value=False))) for _ in range(2)]
        c.join()
        return float(v), [remote.fetch() for remote in seen]

    results = all_runs(program)
    assert len(results) > 5 and all(result == (4.0, [None, None]) for result in results)


# --- Choices ---------------------------------------------------------------------------------------------------

def run_with(numbers: Any) -> tuple[Any, interleaving]:
    c = coordinator(3, 2)
    v, w = variable(c), variable(c, 1.0)
    order: list[int] = []

    def f(i: int) -> Any:
        order.append(i)
        v.assign(v + w)
        w.assign_add(v / 3.0)
        return int(index())

    with interleaving(numbers) as run:
        values = [c.schedule(f, args=(i,)) for i in range(5)]
        c.join()
    return (order, c.fetch(values), float(v), float(w)), run


@given(st.integers())
def test_a_seed_is_a_run_and_its_choices_repeat_it(seed: int) -> None:
    first, run = run_with(seed)
    assert run_with(seed)[0] == first and run_with(run.taken)[0] == first
    assert first[0] == [0, 1, 2, 3, 4] and len(run.taken) == len(run.counts)
    assert all(0 <= choice < count for choice, count in zip(run.taken, run.counts, strict=True))


def test_seeds_differ() -> None:
    assert len({str(run_with(seed)[0]) for seed in range(20)}) > 5
    assert run_with([])[0] == run_with(lambda options: 0)[0]


def test_a_function_sees_the_options_that_it_chooses_from() -> None:
    seen: list[list[tuple[str, Any]]] = []

    def last(options: Sequence[Any]) -> int:
        seen.append([tuple(option) for option in options])
        return len(options) - 1

    _, run = run_with(last)
    assert seen[0] == [("coordinator", ""), ("take", 0), ("take", 1), ("take", 2)] and run.taken[0] == 3
    assert seen[1] == [("go on", 2), ("coordinator", "")]


@pytest.mark.parametrize("numbers", [None, "a", 1.5, [1.5], [True], True])
def test_bad_choices(numbers: Any) -> None:
    with pytest.raises(TypeError, match=r"RD25.*choices is"):
        interleaving(numbers)


@pytest.mark.parametrize("number", [-1, 99, 1.0, True, None])
def test_a_choice_that_is_not_there(number: Any) -> None:
    """Wherever it is asked for: by schedule, where a function goes on, or where one has ended."""
    for at in range(6):
        counter = itertools.count()
        with pytest.raises(ValueError, match=r"RD34.*options"):
            run_with(lambda options, at=at, counter=counter: number if next(counter) == at else 0)
    assert run_with(3)[0] == run_with(3)[0]


def test_the_block_ends_with_what_was_before() -> None:
    with interleaving([]) as outer, interleaving(0):
        pass
    assert outer.taken == [] and choices.current.value is None


# --- Errors ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("call", ["join", "done", "schedule"])
def test_an_error_is_raised_once_and_drops_what_waits(call: str) -> None:
    c, ran = coordinator(), []
    failed = c.schedule(fail)
    with pytest.raises(KeyError, match="fail"):
        failed.fetch()
    with pytest.raises(KeyError, match="fail") as caught:
        {"join": c.join, "done": c.done, "schedule": lambda: c.schedule(ran.append, args=(1,))}[call]()
    assert "raised on worker 0 of 2 in fail (scheduled at" in caught.value.__notes__[0]
    assert c.done() and c.join() is None and ran == []
    assert c.schedule(lambda: 2).fetch() == 2
    for _ in range(2):
        with pytest.raises(KeyError, match="fail"):
            failed.fetch()


def test_functions_go_on_until_the_coordinator_looks() -> None:
    c, ran = coordinator(1), []
    c.schedule(fail)
    b = c.schedule(ran.append, args=(1,))
    b.fetch()
    assert ran == [1]
    with pytest.raises(KeyError):
        c.join()


def test_join_stops_what_runs_and_drops_what_waits() -> None:
    def program() -> Any:
        c, ended = coordinator(2, 1), []
        v, w = variable(c), variable(c)

        def f() -> None:
            try:
                v.assign_add(1.0)
                w.assign_add(1.0)
            except BaseException:
                ended.append("stopped")
                w.assign_add(7.0)
                raise
            finally:
                ended.append("finally")

        values = []
        with pytest.raises(KeyError):
            for fn in (f, fail, f):
                values.append(c.schedule(fn))
            c.join()
        assert c.done()
        kinds = []
        for value in values:
            try:
                kinds.append(str(value.fetch()))
            except (CancelledError, KeyError) as error:
                kinds.append(type(error).__name__ + ("RD32" in str(error)) * " RD32")
        before = float(v), float(w)
        again = [c.schedule(f) for _ in range(2)]
        c.join()
        assert c.fetch(again) == [None, None] and (float(v), float(w)) == (before[0] + 2, before[1] + 2)
        return kinds, *before, "stopped" in ended

    outcomes = []
    for seed in range(300):
        with interleaving(seed):
            outcomes.append(program())
    dropped = "CancelledError RD32"
    assert (["None", "KeyError", dropped], 1.0, 1.0, False) in outcomes, "the third had not begun"
    assert ([dropped, "KeyError", dropped], 1.0, 0.0, True) in outcomes, "the first was stopped in the middle"
    assert (["None", "KeyError"], 1.0, 1.0, False) in outcomes, "schedule raised the error"
    assert all(kinds[1] == "KeyError" and first >= second for kinds, first, second, _ in outcomes)
    assert all(stopped for _, first, second, stopped in outcomes if first > second)


def test_of_two_errors_the_first_is_raised() -> None:
    c = coordinator()
    a, b = c.schedule(fail), c.schedule(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        b.fetch()
    with pytest.raises(KeyError):
        c.join()
    assert c.done()
    with pytest.raises(KeyError):
        a.fetch()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_signal_handler_that_interrupts_a_wait_cannot_wait_itself(stopped: bool) -> None:
    """Nobody gave the turn back to the call that was interrupted; both waited for ever."""
    c, handled, errors = coordinator(2), threading.Event(), []
    v = variable(c)

    def handler(*_: object) -> None:
        for _ in range(2 * PATIENCE):
            v.read_value()
        c.schedule(v.assign_add, args=(1.0,))
        for call in (c.join, c.done):
            try:
                call()
            except InvalidContextError as error:
                errors.append(str(error))
        handled.set()

    def function() -> None:
        try:
            while stopped:
                v.read_value()
        finally:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            handled.wait()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        c.schedule(function)
        if stopped:
            c.schedule(fail)
        with pytest.raises(KeyError) if stopped else contextlib.nullcontext():
            c.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(errors) == 2 and all("RD09" in error and "a signal handler calls it" in error for error in errors)
    c.join()
    assert float(v) == 1.0


WAITS: dict[str, Callable[[ClusterCoordinator, RemoteValue, Any], object]] = {
    "join": lambda c, value, v: c.join(),
    "fetch": lambda c, value, v: value.fetch(),
    "done": lambda c, value, v: c.done(),
    "an access": lambda c, value, v: v.read_value(),
}


def schedules(c: ClusterCoordinator, value: RemoteValue, v: Any) -> None:
    c.schedule(v.assign_add, args=(1.0,))


def scheduled_and_joined(c: ClusterCoordinator, v: Any, outcomes: list[str]) -> None:
    try:
        c.schedule(v.assign_add, args=(1.0,))
        outcomes.append(str(c.join()))
    except (CancelledError, InvalidContextError) as error:
        outcomes.append(str(error))


def elsewhere(call: Callable[[], object]) -> None:
    """Makes a call in another thread, and waits for its end as long as a test may wait."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(HANG)


@pytest.mark.parametrize("name", ["schedule", *WAITS])
def test_an_interrupt_at_any_moment_leaves_no_thread_waiting_and_no_scope_open(name: str) -> None:
    call = WAITS.get(name, schedules)
    for number in itertools.count():
        c = coordinator(1)
        v = variable(c)
        value = c.schedule(v.assign_add, args=(1.0,))
        try:
            if not moments.interrupted(number, functools.partial(call, c, value, v), moments.interrupt):
                break
        except KeyboardInterrupt:
            assert not refdist.has_strategy(), f"the interrupt {number} has left a scope open"
        outcomes: list[str] = []
        elsewhere(functools.partial(scheduled_and_joined, c, v, outcomes))
        assert outcomes, f"after the interrupt {number} another thread waits for ever"
        scheduled_and_joined(c, v, outcomes)
        assert outcomes[0] == outcomes[1] == "None" or all("RD32" in outcome for outcome in outcomes), outcomes
    assert number > 10


@pytest.mark.parametrize("name", ["schedule", *WAITS])
def test_a_signal_handler_at_any_moment_waits_or_is_told_that_it_cannot(name: str) -> None:
    call = WAITS.get(name, schedules)
    waited = []

    def is_handled_at(number: int) -> bool:
        c = coordinator(1)
        v = variable(c)
        value = c.schedule(v.assign_add, args=(1.0,))
        outcomes: list[str] = []
        ends: list[bool] = []
        elsewhere(lambda: ends.append(moments.interrupted(
            number, functools.partial(call, c, value, v), functools.partial(scheduled_and_joined, c, v, outcomes))))
        assert ends, f"a signal handler at the moment {number} waits for ever"
        if ends == [True]:
            assert outcomes == ["None"] or "RD09" in outcomes[0]
            waited.append(outcomes == ["None"])
            c.join()
            assert float(v) == 2.0 + (name == "schedule")
        return ends == [True]

    assert next(number for number in itertools.count() if not is_handled_at(number)) > 10
    assert any(waited)


def test_a_function_that_ends_while_it_is_given_up_takes_no_later_one_with_it() -> None:
    ends = threading.Event()
    later = coordinator(1)

    class GivesUp(Scheduler):
        def choose(self, options: Sequence[Option], cluster: Cluster) -> int:
            return 0

        def runs(self, frame: FrameType) -> None:
            ends.set()
            while not strands._parked:
                time.sleep(0.001)
            raise KeyboardInterrupt

    def waits() -> None:
        while not ends.is_set():
            time.sleep(0.001)

    strands._parked.clear()
    with GivesUp(), pytest.raises(KeyboardInterrupt):
        c = coordinator(1)
        c.schedule(waits)
        c.join()
    outcomes: list[object] = []
    elsewhere(lambda: outcomes.append(later.schedule(int).fetch()))
    assert outcomes == [0], "it waits for ever"


ENDS = """
import sys, threading, time
from refdist.coordinator import strands

class Ended(BaseException):
    pass

numbers, comes_back = [], threading.Event()

def waits():
    numbers.append(threading.get_ident())
    comes_back.wait()

def is_parked():
    numbers.append(threading.get_ident())

strands.start(waits)
strands.start(is_parked)
while len(numbers) < 2 or not strands._parked:
    time.sleep(0.001)
for number in numbers:
    strands.end(number, Ended)
sys.settrace(lambda *_: None)
assert (lambda: 7)() == 7
sys.settrace(None)
for thread in threading.enumerate():
    if thread.ident == numbers[1]:
        thread.join()
comes_back.set()
for thread in threading.enumerate():
    if thread.ident == numbers[0]:
        thread.join()
print("ended")
"""


def test_functions_are_traced_while_a_thread_that_is_ended_waits() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=HANG)
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_threads_that_make_the_coordinator_of_a_strategy_get_the_same_one() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            its_own, both, coordinators = strategy(1), threading.Barrier(2), list[ClusterCoordinator]()

            def make() -> None:
                both.wait()  # noqa: B023
                coordinators.append(ClusterCoordinator(its_own))  # noqa: B023

            threads = [threading.Thread(target=make) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert coordinators[0] is coordinators[1]
    finally:
        sys.setswitchinterval(before)
