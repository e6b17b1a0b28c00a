"""ClusterCoordinator, simulated: workers and parameter servers that are lost and come back."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from limits import HANG
from test_coordinator import all_runs, coordinator, fail, index, variable
from test_parameter_servers import made

import refdist
from refdist.coordinator import ClusterCoordinator, interleaving, restart_task, stop_task
from refdist.coordinator.cluster import REFUSALS
from refdist.data import Dataset
from refdist.errors import CancelledError, UnavailableError


def test_a_lost_worker_s_function_begins_again_at_the_end_of_the_queue() -> None:
    c, began = coordinator(2, 1), []
    v = variable(c)

    def f(i: int) -> int:
        began.append((i, int(index())))
        v.assign_add(1.0)
        v.assign_add(1.0)
        return i

    values = [c.schedule(f, args=(i,)) for i in range(4)]
    stop_task(c, "worker", 0, after=1)
    c.join()
    assert c.fetch(values) == [0, 1, 2, 3] and float(v) == 9.0
    assert began == [(0, 0), (1, 1), (2, 1), (3, 1), (0, 1)]
    stop_task(c, "worker", 0)  # it is gone already
    restart_task(c, "worker", 0)
    restart_task(c, "worker", 0)
    assert sorted(int(number) for number in c.fetch([c.schedule(index) for _ in range(4)])) == [0, 0, 1, 1]


def test_a_worker_may_be_lost_at_any_moment() -> None:
    """At least once; what was written stays."""
    def program() -> Any:
        c = coordinator(2, 1)
        v, w = variable(c), variable(c)

        def f() -> None:
            v.assign_add(1.0)
            w.assign_add(1.0)

        stop_task(c, "worker", 0, after=None)
        value = c.schedule(f)
        c.join()
        assert value.fetch() is None
        return float(v), float(w)

    assert set(all_runs(program)) == {(1.0, 1.0), (2.0, 1.0)}


def test_a_function_that_was_lost_after_an_error_is_cancelled() -> None:
    c = coordinator(2, 1)
    v = variable(c)

    def f() -> None:
        v.assign_add(1.0)
        v.assign_add(1.0)

    with interleaving([1, 1, 2]):  # worker 0 begins f, the coordinator goes on, worker 1 fails
        a, b = c.schedule(f), c.schedule(fail)
    assert float(v) == 0.0
    stop_task(c, "worker", 0)
    with pytest.raises(CancelledError, match=r"RD32.*f: its worker was lost"):
        a.fetch()
    with pytest.raises(KeyError):
        c.join()
    with pytest.raises(KeyError):
        b.fetch()
    assert c.done() and float(v) == 0.0


def test_without_workers_waiting_is_an_error() -> None:
    """TensorFlow waits for ever."""
    c = coordinator(2)
    stop_task(c, "worker", 0)
    stop_task(c, "worker", 1)
    r = c.schedule(lambda: 3)
    for wait in (c.join, r.fetch):
        with pytest.raises(UnavailableError, match=r"RD33.*no worker is left of 2, and 1 function waits for one"):
            wait()
    assert not c.done()
    restart_task(c, "worker", 1)
    assert r.fetch() == 3 and c.done()


def test_iterators_and_variables_of_a_worker_that_comes_back_begin_again() -> None:
    c = coordinator(1)
    iterator = iter(c.create_per_worker_dataset(lambda: Dataset.range(100)))
    own, served = variable(c, per_worker_variable=True), variable(c)

    def f(i: Any) -> Any:
        served.assign_add(1.0)
        return int(next(i)), float(own.assign_add(1.0))

    old = [c.schedule(f, args=(iterator,)) for _ in range(3)]
    assert c.fetch(old) == [(0, 1.0), (1, 2.0), (2, 3.0)] and [float(value) for value in own.read_all()] == [3.0]
    stop_task(c, "worker", 0)
    restart_task(c, "worker", 0)
    assert c.fetch([c.schedule(f, args=(iterator,)) for _ in range(2)]) == [(0, 1.0), (1, 2.0)]
    assert c.fetch(old)[2] == (2, 3.0) and float(served) == 5.0 and float(own) == 0.0


@pytest.mark.parametrize("call", ["join", "done", "schedule"])
def test_a_lost_server_takes_its_variables_with_it(call: str) -> None:
    c = coordinator()
    v, w = variable(c, 1.0), variable(c, 2.0)
    stop_task(c, "ps", 1)
    for use in (w.numpy, lambda: w.assign(1.0), lambda: w + 1.0):
        with pytest.raises(UnavailableError, match=r"RD33.*ps 1, which had the variable"):
            use()
    assert float(v) == 1.0 and c.schedule(lambda: 3).fetch() == 3 and c.schedule(lambda: v + 1.0).fetch() == 2.0

    def both() -> None:
        v.assign_add(1.0)
        w.assign_add(1.0)

    r = c.schedule(both)
    with pytest.raises(UnavailableError, match="RD33"):
        r.fetch()
    with pytest.raises(UnavailableError, match="RD33"):
        {"join": c.join, "done": c.done, "schedule": lambda: c.schedule(int)}[call]()
    assert c.done() and float(v) == 2.0, "what was written before stays"
    with pytest.raises(UnavailableError, match="RD33"):
        made(c.strategy, 1.0), made(c.strategy, 1.0)
    with pytest.raises(refdist.errors.UnsupportedError, match="RD20"):
        restart_task(c, "ps", 1)
    again = ClusterCoordinator(refdist.ParameterServerStrategy(c.strategy.cluster_resolver))
    assert again.schedule(lambda: variable(again)).fetch() == 0.0


def test_a_server_is_lost_after_so_many_accesses() -> None:
    c = coordinator(2, 2)
    v, w = variable(c), variable(c)
    stop_task(c, "ps", 0, after=3)
    for _ in range(3):
        c.schedule(lambda: [v.assign_add(1.0), w.assign_add(1.0)])
    c.join()
    with pytest.raises(UnavailableError):
        v.numpy()
    assert float(w) == 3.0


@pytest.mark.parametrize("arguments", [("worker", 2), ("chief", 0), ("ps", -1), ("evaluator", 0)])
def test_tasks_that_cannot_be_lost(arguments: Any) -> None:
    c = coordinator()
    for call in (stop_task, restart_task):
        with pytest.raises(ValueError, match="RD17"):
            call(c, *arguments)
    for after in (-1, 1.5, True):
        with pytest.raises(TypeError, match="RD25"):
            stop_task(c, "worker", 0, after=after)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [stop_task, restart_task])
def test_a_function_cannot_lose_or_start_a_task_itself(call: Any) -> None:
    c = coordinator(2, 1)
    value = c.schedule(lambda: call(c, "worker", 0))
    with pytest.raises(RuntimeError, match=rf"RD09.*{call.__name__}: it was called in a scheduled function"):
        value.fetch()


def never_stopped(v: Any) -> Callable[[], None]:
    def step() -> None:
        while True:
            with suppress(BaseException):
                v.assign_add(1.0)

    return step


def test_a_function_that_goes_on_after_its_loss_is_given_up_and_named() -> None:
    c = coordinator(2, 1)
    v = variable(c)
    value = c.schedule(never_stopped(v))
    c.schedule(lambda: None)
    stop_task(c, "worker", 0, after=3)
    line = never_stopped.__code__.co_firstlineno + 4
    swallowed = (rf"RD22\] function step \(scheduled at .*test_lost_tasks.py:\d+\) on worker 0: it was to end, and has "
                 rf"caught the exception that ends it {REFUSALS} times, last at .*test_lost_tasks.py:{line}; .*"
                 "Write `except Exception`")
    with pytest.raises(RuntimeError, match=swallowed):
        c.join()
    with pytest.raises(RuntimeError, match=swallowed):
        value.fetch()
    assert float(v) == 3.0
    c.schedule(lambda: v.assign_add(1.0))
    c.join()
    assert float(v) == 4.0


def test_a_function_that_goes_on_after_another_failed_is_named_beside_the_error() -> None:
    def failing() -> None:
        v.assign_add(1.0)
        raise KeyError("mine")

    notes = []
    for seed in range(8):
        c = coordinator(2, 1)
        v = variable(c)
        with interleaving(seed):
            spinning = c.schedule(never_stopped(v))
            c.schedule(failing)
            with pytest.raises(KeyError, match="mine") as caught:
                c.join()
        notes += [note for note in caught.value.__notes__ if "RD22" in note]
        with pytest.raises(CancelledError, match="RD32"):
            spinning.fetch()
        assert c.done()
    assert notes and all("function step" in note and "1000 times" in note for note in notes)


def test_a_function_that_was_given_up_is_noted_on_the_next_error_only() -> None:
    def failing() -> None:
        v.assign_add(1.0)
        raise KeyError("mine")

    noted = 0
    for seed in range(8):
        c = coordinator(2, 1)
        v = variable(c)
        notes = []
        for functions in ((never_stopped(v), failing), (failing,)):
            with interleaving(seed):
                for function in functions:
                    c.schedule(function)
                with pytest.raises(KeyError, match="mine") as caught:
                    c.join()
            notes.append(sum("RD22" in note for note in caught.value.__notes__))
        assert notes[1] == 0
        noted += notes[0]
    assert noted


def test_a_function_that_goes_on_in_a_few_handlers_ends_by_itself() -> None:
    c = coordinator(2, 1)
    v = variable(c)

    def step() -> None:
        for _ in range(50):
            with suppress(BaseException):
                v.assign_add(1.0)

    c.schedule(step)
    stop_task(c, "worker", 0, after=3)
    c.join()
    assert float(v) == 53.0


# To the thread that waits, or to another one: then nothing interrupts the wait.
@pytest.mark.parametrize("interrupt", [
    "signal.pthread_kill(main, signal.SIGINT)", "signal.raise_signal(signal.SIGINT)"])
def test_a_program_ends_although_a_function_cannot_be_stopped(interrupt: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(f"""\
        import refdist, signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
        spec = refdist.train.ClusterSpec({{"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]}})
        strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
        with strategy.scope():
            v = refdist.Variable(0.0)
        c = refdist.coordinator.ClusterCoordinator(strategy)
        main = threading.get_ident()
        def step():
            while True:
                try:
                    if v.assign_add(1.0) == 3.0:
                        {interrupt}
                except BaseException:
                    pass
        c.schedule(step)
        try:
            c.join()
        except KeyboardInterrupt:
            print("interrupted")
        """))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=HANG)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")
