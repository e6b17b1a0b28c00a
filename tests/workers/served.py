"""Programs of a coordinator with workers and parameter servers that are processes: served.py PROGRAM.

Every process runs it; only the coordinator comes to the programs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import operator
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from moments import interrupt, interrupted, time_is_up

import refdist
from refdist.coordinator import ClusterCoordinator, interleaving, restart_task, stop_task

Dataset = refdist.data.Dataset
index = refdist.coordinator.experimental_get_current_worker_index


class Pair(NamedTuple):
    """A class of the program."""

    first: Any
    second: Any


class Unfriendly(Exception):
    """An error that cannot be made again from what it holds."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Unreadable:
    """An object that can be sent, and not be made again."""

    def __reduce__(self) -> Any:
        return operator.truediv, (1, 0)


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    """The error of a call."""
    try:
        call(*args, **kwargs)
    except refdist.errors.RefdistError as error:
        return f"{type(error).__name__} {error}"
    raise AssertionError("no error")


def results(strategy: Any, c: Any) -> None:
    """What functions get and return."""
    with strategy.scope():
        v = refdist.Variable(1.0, name="v")
    r = c.schedule(lambda x, y=None: [x, {"y": y}], args=[np.int32(1)], kwargs={"y": (2.5, None, "s")})
    assert c.fetch(r) == [1, {"y": (2.5, None, "s")}]
    returned = [c.schedule(fn).fetch() for fn in (lambda: v, lambda: 3, lambda: True, lambda: None, tuple,
                                                  lambda: np.arange(2))]
    assert [type(value).__name__ for value in returned] == ["float32", "int32", "bool", "NoneType", "tuple", "ndarray"]
    pair = c.schedule(lambda x: Pair(x, [x]), args=(Pair(1, 2),)).fetch()
    assert pair == Pair(Pair(1, 2), [Pair(1, 2)]) and type(pair) is Pair and type(pair.first) is Pair
    x, y = np.zeros(2), [0]
    late = c.schedule(lambda a: (a.sum(), y[0]), args=(x,))
    x[:], y[0] = 1.0, 1
    assert late.fetch() == (0.0, 0) and c.schedule(lambda: y[0]).fetch() == 1
    assert set(c.fetch([c.schedule(index) for _ in range(20)])) <= {0, 1}

    def where() -> Any:
        return (refdist.get_strategy() is strategy, refdist.in_cross_replica_context(),
                strategy.run(lambda: refdist.get_replica_context().replica_id_in_sync_group))

    def strict() -> str:
        before = np.geterr()["divide"]
        np.seterr(divide="raise")
        return before

    assert c.schedule(where).fetch() == (True, True, 0)
    assert {c.schedule(strict).fetch() for _ in range(6)} == {"warn"}, "a function's context variables end with it"
    assert c.done() and c.join() is None


def variables(strategy: Any, c: Any) -> None:
    """Reads and writes of the variables of the strategy."""
    with strategy.scope():
        v, w = refdist.Variable(1.0), refdist.Variable(np.zeros((4, 2)), name="w")
        grows = refdist.Variable(np.zeros(1), shape=(None,))
        own = refdist.Variable(5, per_worker_variable=True)
    assert v.device == grows.device != w.device and sorted([v.device, w.device]) == [
        f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in (0, 1)]
    assert (v.dtype, w.shape, float(v), w.numpy().tolist()) == (np.float32, (4, 2), 1.0, [[0, 0]] * 4)
    for _ in range(50):
        c.schedule(v.assign_add, args=(1.0,))
    c.join()
    assert float(v) == 51.0 and float(v.assign(2.0)) == 2.0 and v.assign_sub(1.0, read_value=False) is None
    assert c.schedule(lambda: v + w[0, 0] + 1.0).fetch() == 2.0
    slices = refdist.IndexedSlices(np.ones((2, 2)), [1, 3])
    assert c.schedule(lambda: w.scatter_add(slices)).fetch().tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert w.sparse_read([3]).tolist() == [[1, 1]]
    assert c.schedule(lambda: grows.assign(np.arange(3.0))).fetch().tolist() == [0, 1, 2]
    assert grows.assign_add(np.ones(3)).tolist() == [1, 2, 3]
    for wrong, code in (((np.zeros(3),), "RD04"), ((object(),), "RD25"), (([1],), "RD04")):
        assert code in refused(w.assign, *wrong), code
    assert "RD04" in refused(grows.assign_add, np.ones(2))
    assert w.numpy().sum() == 4.0 and not w.numpy().flags.writeable
    strategy.extended.update(v, lambda copy: copy.assign_add(1.0))
    assert float(v) == 2.0

    def fails_late(copy: Any) -> None:
        copy.assign(7.0)
        raise KeyError

    with contextlib.suppress(KeyError):
        strategy.extended.update(v, fails_late)
    assert float(v) == 2.0, "the update is undone"

    def adds_and_reads(copy: Any) -> None:
        before = float(copy)
        copy.assign_add(1.0)
        assert float(copy) == float(copy.read_value()) == before + 1

    strategy.extended.update(v, adds_and_reads)
    assert float(v) == 3.0
    for _ in range(100):
        c.schedule(v.assign_add, args=(1.0,))
    for _ in range(20):
        strategy.extended.update(v, lambda copy: copy.assign_sub(1.0))
    c.join()
    assert float(v) == 83.0, "neither the functions nor the updates lose what the others write"
    v.assign(2.0)
    counts = c.fetch([c.schedule(lambda: (index(), own.assign_add(1))) for _ in range(6)])
    by_worker: dict[int, list[int]] = {}
    for worker, count in counts:
        by_worker.setdefault(int(worker), []).append(int(count))
    assert all(counted == list(range(6, 6 + len(counted))) for counted in map(sorted, by_worker.values())), counts
    assert int(own) == 5 and "RD20" in refused(own.read_all)
    checkpoint = refdist.train.Checkpoint(v=v, w=w)
    path = checkpoint.save(os.path.join(os.environ["FOLDER"], "ckpt"))
    v.assign(0.0)
    checkpoint.restore(path)
    assert float(v) == 2.0
    for call in ("deepcopy", "copy"):
        assert "RD20" in refused(getattr(__import__("copy"), call), v)


def datasets(strategy: Any, c: Any) -> None:
    """Per-worker datasets: each worker reads all, in order."""
    def dataset() -> Any:
        start = int(index()) * 100
        return Dataset.range(start, start + 3)

    per_worker = c.create_per_worker_dataset(dataset)
    assert per_worker.element_spec.dtype == np.int64
    iterator = iter(per_worker)
    elements = []
    try:
        for _ in range(7):
            elements.append(int(c.schedule(next, args=(iterator,)).fetch()))
    except refdist.errors.OutOfRangeError as error:
        assert "RD29" in str(error)
    for start in (0, 100):
        of_worker = [element for element in elements if start <= element < start + 3]
        assert of_worker == [start, start + 1, start + 2][:len(of_worker)], elements
    with contextlib.suppress(refdist.errors.OutOfRangeError):
        c.join()
    other = iter(c.create_per_worker_dataset(Dataset.from_tensor_slices(np.arange(4.0)).batch(2)))
    assert c.schedule(lambda i: next(i), args=(other,)).fetch().tolist() == [0.0, 1.0]
    assert c.schedule(lambda d: len(list(d)), args=(per_worker,)).fetch() == 3
    assert "RD34" in refused(c.create_per_worker_dataset, 3)
    wrong = iter(c.create_per_worker_dataset(lambda: 3))
    for _ in range(3):
        assert "RD34" in refused(c.schedule(next, args=(wrong,)).fetch)
        refused(c.join)
    assert c.done()


def failures(strategy: Any, c: Any) -> None:
    """Errors of functions, and what cannot be sent."""
    with strategy.scope():
        v = refdist.Variable(0)
    outside = refdist.Variable(1.0)

    def fails() -> None:
        raise KeyError("mine")

    c.schedule(fails)
    try:
        c.join()
    except KeyError as error:
        notes = "\n".join(error.__notes__)
        assert "in fails\n" in notes and "raise KeyError" in notes and "raised on worker" in notes, notes
        assert notes.count("served.py") == 2, notes
    else:
        raise AssertionError

    def unfriendly() -> None:
        raise Unfriendly(1, 2)

    remote = c.schedule(unfriendly)
    for _ in range(2):
        try:
            remote.fetch()
        except RuntimeError as error:
            assert str(error) == "Unfriendly: 1 and 2"
        else:
            raise AssertionError
    with contextlib.suppress(RuntimeError):
        c.done()

    remote = c.schedule(Unreadable)
    for ask in (remote.fetch, c.join):
        try:
            ask()
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError
    assert c.done()

    def endless() -> None:
        while True:
            v.assign_add(0)

    runs, queued = c.schedule(endless), []
    c.schedule(fails)
    try:
        for _ in range(1000):
            queued.append(c.schedule(endless))
            time.sleep(0.01)
    except KeyError:
        pass
    else:
        raise AssertionError
    for remote_value in (runs, *queued):
        assert "RD32" in refused(remote_value.fetch)
    assert c.join() is None and c.schedule(lambda: 7).fetch() == 7
    lock, r, alone = threading.Lock(), c.schedule(int), refdist.OneDeviceStrategy("CPU:0")
    for wrong, code in ((lambda: lock, "RD25"), (lambda: r, "RD34"), (lambda: c, "RD25"), (lambda: outside, "RD20"),
                        (lambda: alone, "RD20")):
        assert code in refused(c.schedule, wrong), code
    assert "RD34" in refused(c.schedule, print, args=(r,)) and "RD25" in refused(c.schedule, 3)
    for wrong, code in ((lambda: refdist.Variable(1.0), "RD20"), (threading.Lock, "RD25"),
                        (lambda: strategy.run(lambda: strategy.run(int)), "RD09")):
        assert code in refused(c.schedule(wrong).get), code
        refused(c.join)
    assert "RD20" in refused(stop_task, c, "worker", 0) and "RD20" in refused(restart_task, c, "worker", 0)
    with interleaving(1):
        assert "RD20" in refused(c.schedule, int)


def strategies(strategy: Any, c: Any) -> None:
    """Two strategies with the same tasks: each has its own variables, scope, queue and error."""
    other = refdist.ParameterServerStrategy(strategy.cluster_resolver)
    d = ClusterCoordinator(other)
    assert d is not c and ClusterCoordinator(other) is d
    with strategy.scope():
        v = refdist.Variable(0.0)
    with other.scope():
        w, own = refdist.Variable(10.0), refdist.Variable(5.0, per_worker_variable=True)
    assert w.device.startswith("/job:ps/replica:0/task:0")  # each counts its own

    def counted(mine: Any, others: Any) -> Any:
        mine.assign_add(1.0)
        return refdist.get_strategy() is strategy, refdist.get_strategy() is other, others.read_value() >= 0.0

    of_c = [c.schedule(counted, args=(v, w)) for _ in range(20)]
    of_d = [d.schedule(counted, args=(w, v)) for _ in range(20)]
    c.join()
    d.join()
    assert (float(v), float(w)) == (20.0, 30.0)
    assert [tuple(map(bool, value)) for value in c.fetch(of_c)] == [(True, False, True)] * 20
    assert [tuple(map(bool, value)) for value in d.fetch(of_d)] == [(False, True, True)] * 20

    # What the first one makes for each worker, the functions of the second one get, too, and not another one.
    iterator = iter(c.create_per_worker_dataset(lambda: Dataset.range(1000)))
    read = [one.schedule(lambda: (index(), next(iterator))).fetch() for one in (c, d) * 10]
    assert all([int(value) for worker, value in read if worker == number] == list(range(
        sum(worker == number for worker, _ in read))) for number in range(2))
    assert float(c.schedule(lambda: own.assign_add(1.0)).fetch()) == 6.0

    def goes_on() -> None:
        while v.read_value() >= 0:
            pass

    def fails() -> None:
        raise KeyError("mine")

    runs = d.schedule(goes_on)
    c.schedule(fails)
    try:
        c.join()
    except KeyError:
        pass
    else:
        raise AssertionError
    c.schedule(v.assign, args=(-1.0,))
    assert runs.fetch() is None and d.join() is None and c.join() is None and c.done()

    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    resolver = refdist.cluster_resolver.SimpleClusterResolver(refdist.train.ClusterSpec(
        {**cluster, "worker": cluster["worker"][:1]}))
    assert "RD17" in refused(refdist.ParameterServerStrategy, resolver)


def threads(strategy: Any, c: Any) -> None:
    """Two threads of the program, each with a strategy of its own, make and send objects at the same time."""
    other = refdist.ParameterServerStrategy(strategy.cluster_resolver)
    errors: list[BaseException] = []

    def schedules(its_own: Any, coordinator: Any) -> None:
        values: list[Any] = []
        try:
            for i in range(100):
                with its_own.scope():
                    variable = refdist.Variable(i, per_worker_variable=True)
                values += coordinator.schedule(variable.read_value), coordinator.schedule(shared.read_value)
            assert [int(value) for value in coordinator.fetch(values)] == [n for i in range(100) for n in (i, -1)]
        except BaseException as error:
            errors.append(error)

    for _ in range(5):
        with strategy.scope():
            shared = refdist.Variable(-1)
        both = [threading.Thread(target=schedules, args=pair) for pair in ((strategy, c), (other, ClusterCoordinator(
            other)))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert not errors, errors


class Asks:
    """A result that, where it arrives, makes a file and waits for another one."""

    def __getstate__(self) -> str:
        return os.environ["FOLDER"]

    def __setstate__(self, folder: str) -> None:
        Path(folder, "arrives").touch()
        until(Path(folder, "goes on").exists)


def until(ready: Callable[[], object]) -> None:
    while not ready():
        time.sleep(0.001)


def schedules_meanwhile(strategy: Any, c: Any) -> None:
    """A thread waits for a function, which waits for functions of both coordinators that another thread schedules."""
    d = ClusterCoordinator(refdist.ParameterServerStrategy(strategy.cluster_resolver))
    with strategy.scope():
        step = refdist.Variable(0)

    def waits() -> int:
        step.assign(1)
        while step.read_value() < 3:
            pass
        return 7

    def in_a_thread(call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call)
        thread.start()
        return thread

    for join in (True, False):
        step.assign(0)
        value = c.schedule(waits)
        thread = in_a_thread(c.join if join else value.fetch)
        until(lambda: step.read_value() == 1)
        assert not c.done()
        assert d.schedule(lambda: step.assign_add(1)).fetch() == 2
        d.join()
        assert c.schedule(lambda: step.assign_add(1)).fetch() == 3
        thread.join()
        c.join()
        assert value.fetch() == 7

    # Nor does a schedule wait for what the program's own class does where it arrives, which is not in this thread: it
    # has not scheduled `Asks`, which can take the answer, too.
    thread = in_a_thread(lambda: c.schedule(Asks).get())
    until(Path(os.environ["FOLDER"], "arrives").exists)
    value = d.schedule(int)
    Path(os.environ["FOLDER"], "goes on").touch()
    thread.join()
    assert value.fetch() == 0


def handlers(strategy: Any, c: Any) -> None:
    """A signal handler interrupts calls of the coordinator at any moment: it may schedule and read, and never hangs."""
    with strategy.scope():
        step = refdist.Variable(0)
    came: list[str] = []

    def handler(*_: object) -> None:
        value = c.schedule(step.assign_add, args=(1,))
        assert step.read_value() <= len(came) + 1
        for call in (c.join, c.done, value.fetch):
            try:
                call()
            except refdist.errors.InvalidContextError as error:
                assert "RD09" in str(error) and "a signal handler calls it" in str(error), error
                refusals[call.__name__] += 1
        came.append("")

    refusals = {"join": 0, "done": 0, "fetch": 0}
    signal.signal(signal.SIGALRM, handler)
    while min(refusals.values()) < 20 or len(came) < 100:
        before = len(came)
        signal.setitimer(signal.ITIMER_REAL, (before % 20 + 1) / 2000)
        value = c.schedule(time.sleep, args=(0.01,))
        value.fetch() if before % 2 else c.join()
        until(lambda: len(came) > before)  # noqa: B023
    c.join()
    assert int(step) == len(came)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def handlers_at_each_moment(strategy: Any, c: Any) -> None:
    """The same at each moment of a call, where a worker has answered before the handler waits."""
    def handler() -> None:
        c.schedule(int)
        time.sleep(0.01)  # so the thread that looks after the channels would take the answer
        with contextlib.suppress(refdist.errors.InvalidContextError):
            c.join()

    calls: list[Callable[[Any], object]] = [
        lambda value: c.schedule(int), lambda value: c.join(), lambda value: c.done(), lambda value: value.fetch()]
    for call in calls:
        values = (c.schedule(time.sleep, args=(0.005,)) for _ in itertools.count())
        moments = (interrupted(i, functools.partial(call, value), handler) for i, value in enumerate(values))
        assert sum(itertools.takewhile(bool, moments)) > 0
        c.join()


def fails_at_each_moment(strategy: Any, c: Any) -> None:
    """At whatever moment of a wait a function fails: the wait raises its error."""
    with strategy.scope():
        step = refdist.Variable(0)

    def fails() -> None:
        while step.read_value() == 0:
            pass
        raise KeyError("mine")

    def lets_it_fail() -> None:
        step.assign(1)
        time.sleep(0.005)  # so the thread that looks after the channels takes the error, where this one does not

    def wait_until_done() -> None:
        while not c.done():
            pass

    for wait in (c.join, wait_until_done):
        for number in range(20):
            step.assign(0)
            c.schedule(fails)
            try:
                interrupted(number, wait, lets_it_fail)
            except KeyError:
                continue
            raise AssertionError(f"{wait.__name__}, moment {number}")


def accesses_of_handlers(strategy: Any, c: Any) -> None:
    """A signal handler at each moment of an access may make another one, unless the server's answer is awaited."""
    with strategy.scope():
        v = refdist.Variable(0)
    outcomes: list[str] = []

    def handler() -> None:
        try:
            outcomes.append(str(v.assign_add(1) > 0))
        except refdist.errors.InvalidContextError as error:
            outcomes.append(str(error))

    for number in itertools.count():
        if not interrupted(number, v.read_value, handler):
            break
    refusals = [outcome for outcome in outcomes if outcome != "True"]
    assert int(v) == len(outcomes) - len(refusals) > 0
    assert refusals and all("[RD09] assign_add of variable" in refusal and "a signal handler makes this one" in refusal
                            for refusal in refusals)


def interrupts(strategy: Any, c: Any) -> None:
    """Neither Ctrl-C nor a signal handler's error, at any moment of a call, loses a function, worker or variable."""
    with strategy.scope():
        step = refdist.Variable(0)

    def add(by: int = 1) -> int:
        time.sleep(0.002)  # so it has not ended when the call begins
        return int(step.assign_add(by))

    def comes(call: Callable[[Any], object], handler: Callable[[], object], number: int) -> bool:
        before = int(step)
        value = c.schedule(add)
        try:
            was_interrupted = interrupted(number, functools.partial(call, value), handler)
        except (KeyboardInterrupt, TimeoutError):
            was_interrupted = True
        assert value.fetch() in (before + 1, before + 2)
        c.join()
        after = int(step)
        assert after == before + 1 or (call in (calls[0], calls[4]) and after == before + 2)
        assert sorted(c.fetch([c.schedule(add) for _ in range(2)])) == [after + 1, after + 2]
        return was_interrupted

    calls: list[Callable[[Any], object]] = [
        lambda value: c.schedule(add, args=(1,)), lambda value: value.fetch(), lambda value: c.join(),
        lambda value: c.done(), lambda value: step.assign_add(1), lambda value: step.read_value()]
    handlers = [(call, interrupt) for call in calls] + [(calls[i], time_is_up) for i in (0, 1, 5)]
    for call, handler in handlers:
        number = 0
        while any(comes(call, handler, number) for _ in range(10)):  # of an ended function a wait has fewer moments
            number += 1
        assert number > 10


def interrupted_answers(strategy: Any, c: Any) -> None:
    """After an interrupt in a long answer, the next request may be as long."""
    with strategy.scope():
        v = refdist.Variable(np.zeros(4_000_000))
    signal.signal(signal.SIGALRM, lambda *_: interrupt())
    for i in range(1, 11):
        with contextlib.suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, i / 500)
            while True:
                v.read_value()
        assert v.assign(np.full(4_000_000, float(i)))[-1] == i
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def note_the_time() -> None:
    """Makes the file AT, whose time is then that of the first fault."""
    if "AT" in os.environ:
        with contextlib.suppress(FileExistsError):
            Path(os.environ["AT"]).touch(exist_ok=False)


def die() -> None:
    """What a function does that kills its worker."""
    note_the_time()
    os.kill(os.getpid(), signal.SIGKILL)


def counted(strategy: Any, c: Any, lost: Any) -> tuple[int, int, list[int]]:
    """Ten functions, of which the first one on a worker for which `lost()` is true does not come back."""
    with strategy.scope():
        started, ended, first = refdist.Variable(0), refdist.Variable(0), refdist.Variable(0)

    def work() -> int:
        started.assign_add(1)
        if int(index()) == 0 and first.assign_add(1) == 1:
            lost()
        ended.assign_add(1)
        return int(index())

    values = [c.schedule(work) for _ in range(10)]
    c.join()
    return int(started), int(ended), [int(number) for number in c.fetch(values)]


def worker(strategy: Any, c: Any) -> None:
    """One worker is killed in a function, which begins again on the other one."""
    started, ended, where = counted(strategy, c, die)
    assert (started, ended) == (11, 10) and set(where) == {1}, (started, ended, where)
    assert c.schedule(index).fetch() == 1 and c.done()


def leaves(strategy: Any, c: Any) -> None:
    """A worker leaves without a word."""
    def leave() -> None:
        note_the_time()
        os._exit(5)

    started, ended, _ = counted(strategy, c, leave)
    assert (started, ended) == (11, 10)


def returns(strategy: Any, c: Any) -> None:
    """Worker 0 is killed in a function, comes back with nothing of what it had, and takes part again."""
    with strategy.scope():
        first, total, own = (refdist.Variable(0), refdist.Variable(0), refdist.Variable(5, per_worker_variable=True))
    iterator = iter(c.create_per_worker_dataset(Dataset.range(100_000)))

    def work(elements: Any) -> tuple[int, int, int, int]:
        element = int(next(elements))
        if index() == 0 and element == 3 and first.assign_add(1) == 1:
            die()
        total.assign_add(1)
        return int(index()), element, int(own.assign_add(1)), os.getpid()

    seen: list[tuple[int, ...]] = []
    while len({pid for number, *_, pid in seen if number == 0}) < 2:
        seen.append(tuple(map(int, c.schedule(work, args=(iterator,)).fetch())))
    first_pid = next(pid for number, *_, pid in seen if number == 0)
    before = [row[1:3] for row in seen if row[0] == 0 and row[3] == first_pid]
    after = [row[1:3] for row in seen if row[0] == 0 and row[3] != first_pid]
    assert before == [(0, 6), (1, 7), (2, 8)] and after == [(0, 6)], (before, after)
    assert int(total) == len(seen) and c.done()
    assert set(c.fetch([c.schedule(lambda: (time.sleep(0.01), int(index()))[1]) for _ in range(20)])) == {0, 1}


def poison(strategy: Any, c: Any) -> None:
    """A function that kills its worker each time is an error, and the workers come back."""
    remote = c.schedule(die)
    assert "workers were lost one after another while they carried it out" in refused(c.join), remote
    assert c.schedule(lambda: 7).fetch() == 7


def returns_late(strategy: Any, c: Any) -> None:
    """Worker 0 is killed; its second start fails or hangs (see `start`), and its third one comes back."""
    returns(strategy, c)


def server(strategy: Any, c: Any) -> None:
    """A parameter server is killed: its variables are gone, and all others are as they were."""
    with strategy.scope():
        kept, gone = refdist.Variable(1.0), refdist.Variable(2.0)
    Path(os.environ["PIDS"], "go").touch()
    while True:
        try:
            float(gone)
        except refdist.errors.UnavailableError as error:
            assert "[RD33] read of variable Variable:0: ps 1, which" in str(error)
            break
    assert float(kept) == 1.0 and c.schedule(lambda: kept + 1.0).fetch() == 2.0
    c.schedule(lambda: gone + 1.0)
    assert "RD33" in refused(c.join) and c.join() is None
    assert "RD33" in refused(gone.assign, 1.0) and c.schedule(lambda: 5).fetch() == 5


def restored(strategy: Any, c: Any) -> None:
    """A parameter server is killed after step 7, once; the program restores its last checkpoint as it begins."""
    with strategy.scope():
        total, step = refdist.Variable(0), refdist.Variable(0)
    manager = refdist.train.CheckpointManager(refdist.train.Checkpoint(total=total, step=step), os.environ["FOLDER"], 2)
    manager.restore_or_initialize()
    print(f"from step {int(step)}", flush=True)
    go = Path(os.environ["PIDS"], "go")
    while int(step) < 20:
        c.schedule(lambda: (total.assign_add(step), step.assign_add(1)))
        c.join()
        if int(step) % 5 == 0:
            manager.save()
        if int(step) == 7 and not go.exists():
            go.touch()
            while True:
                step.read_value()
    assert int(total) == sum(range(20))


def workers(strategy: Any, c: Any) -> None:
    """All workers are killed by one function."""
    print("workers was here", flush=True)
    c.schedule(die)
    c.join()


def chief(strategy: Any, c: Any) -> None:
    """The coordinator is killed while a function runs that would never end."""
    print("chief was here", flush=True)
    c.schedule(lambda: time.sleep(1000))
    c.schedule(lambda: 1).fetch()
    die()


def exits(strategy: Any, c: Any) -> None:
    """The coordinator ends with a status of its own while a function runs that would never end."""
    print("exits was here", flush=True)
    c.schedule(lambda: time.sleep(1000))
    c.schedule(lambda: 1).fetch()
    note_the_time()
    sys.exit(3)


def stops(strategy: Any, c: Any) -> None:
    """The coordinator ends while a worker is stopped, which could not end by itself."""
    c.schedule(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    c.schedule(lambda: 1).fetch()
    note_the_time()


def supervisor(strategy: Any, c: Any) -> None:
    """The supervisor of a worker is killed."""
    def lost() -> None:
        note_the_time()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)

    c.schedule(lost).fetch()


def adds_and_raises(strategy: Any, c: Any) -> None:
    """Four functions, and one that raises."""
    with strategy.scope():
        v = refdist.Variable(0.0)

    def adds() -> Any:
        return v.assign_add(1.0)

    def raises() -> None:
        raise KeyError("mine")

    for _ in range(4):
        c.schedule(adds)
    c.join()
    c.schedule(raises)
    with contextlib.suppress(KeyError):
        c.join()


def joins(strategy: Any, c: Any) -> None:
    """The other tasks have come here by `Server.join`, see `start`."""


def start(arguments: list[str]) -> tuple[Any, Any]:
    """The strategy and its coordinator; workers and parameter servers do not come back."""
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    if "--other-cluster" in arguments:
        cluster["worker"].append("one:1")
    spec = refdist.train.ClusterSpec(cluster)
    if "joins" in arguments and task["type"] != "chief":
        refdist.Server(spec, task["type"], task["index"]).join()
    if "returns_late" in arguments and task["type"] == "worker" and task["index"] == 0:
        starts = Path(os.environ["PIDS"], "starts")
        with starts.open("a") as file:
            file.write("x")
        if starts.stat().st_size == 2:
            if os.environ["SECOND"] == "raises":
                raise KeyError("the second start")
            time.sleep(1000)
    dies = {"server", "restored"} & {*arguments} and not Path(os.environ["PIDS"], "go").exists()
    if dies and (task["type"], task["index"]) == ("ps", 1):
        threading.Thread(target=killed_when_told, daemon=True).start()
    resolver = refdist.cluster_resolver.SimpleClusterResolver(spec, task_type=task["type"], task_id=task["index"])
    strategy = refdist.ParameterServerStrategy(resolver)
    return strategy, ClusterCoordinator(strategy)


def killed_when_told() -> None:
    """Kills this process when the coordinator says so."""
    while not Path(os.environ["PIDS"], "go").exists():
        time.sleep(0.01)
    die()


if __name__ == "__main__":
    strategy, coordinator = start(sys.argv[1:])
    for name in sys.argv[1:]:
        globals()[name](strategy, coordinator)
        print(f"{name} came through", flush=True)
