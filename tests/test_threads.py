"""Threads of a program that share variables, generators, iterators and a recording: no update is lost."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refdist
from refdist import VariableAggregation, VariableSynchronization
from refdist.core.cell import Cell

TIMES = 200
THREADS = 4


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(*functions: Callable[[], object]) -> None:
    """Calls each function in a thread of its own, all at once, and raises what the first one has raised."""
    errors: list[BaseException] = []
    begin = threading.Barrier(len(functions))

    def call(function: Callable[[], object]) -> None:
        try:
            begin.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def repeated(function: Callable[[], object], times: int = TIMES) -> list[Callable[[], object]]:
    def work() -> None:
        for _ in range(times):
            function()

    return [work] * THREADS


def mirrored(replicas: int = 2) -> refdist.MirroredStrategy:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])


def servers() -> Any:
    spec = refdist.train.ClusterSpec({"worker": ["w:1"], "ps": ["p0:1", "p1:1"]})
    return refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec),
                                           refdist.experimental.partitioners.FixedShardsPartitioner(2))


def made(strategy: Any, value: object, **kwargs: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(value, **kwargs)


ONE_ROW = refdist.IndexedSlices(np.array([1]), np.array([1]), np.array([3]))
SUM, ON_READ = VariableAggregation.SUM, VariableSynchronization.ON_READ


def plain() -> tuple[Any, Callable[[], object]]:
    v = refdist.Variable(0)
    return v, lambda: v.assign_add(1)


def subtracted() -> tuple[Any, Callable[[], object]]:
    v = refdist.Variable(0)
    return v, lambda: v.assign_sub(-1)


def scattered() -> tuple[Any, Callable[[], object]]:
    v = refdist.Variable([0, 0, 0])
    return v, lambda: v.scatter_add(ONE_ROW)


def parts() -> tuple[Any, Callable[[], object]]:
    v = refdist.Variable([[0, 0], [0, 0]])
    return v, lambda: v.scatter_nd_add([[1, 0]], [1])


def across_replicas() -> tuple[Any, Callable[[], object]]:
    v = made(mirrored(), 0)
    return v, lambda: v.assign_add(1)


def in_replicas() -> tuple[Any, Callable[[], object]]:
    s = mirrored()
    v = made(s, 0.0, aggregation=VariableAggregation.MEAN)
    return v, lambda: s.run(lambda: v.assign_add(1.0))


def agreed() -> tuple[Any, Callable[[], object]]:
    s = mirrored()
    v = made(s, 0, aggregation=VariableAggregation.ONLY_FIRST_REPLICA)
    return v, lambda: s.run(lambda: v.assign_add(1))


def own_copies() -> tuple[Any, Callable[[], object]]:
    s = mirrored()
    v = made(s, 0.0, synchronization=ON_READ, aggregation=VariableAggregation.MEAN)
    return v, lambda: s.run(lambda: v.assign_add(1.0))


def all_copies() -> tuple[Any, Callable[[], object]]:
    v = made(mirrored(), 0.0, synchronization=ON_READ, aggregation=VariableAggregation.MEAN)
    return v, lambda: v.assign_add(1.0)


def central() -> tuple[Any, Callable[[], object]]:
    s = refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0")
    v = made(s, 0.0, aggregation=VariableAggregation.MEAN)
    return v, lambda: s.run(lambda: v.assign_add(1.0))


def one_device() -> tuple[Any, Callable[[], object]]:
    s = refdist.OneDeviceStrategy("GPU:0")
    v = made(s, 0)
    return v, lambda: s.run(lambda: v.assign_add(1))


def updated() -> tuple[Any, Callable[[], object]]:
    s = mirrored()
    v = made(s, 0)
    return v, lambda: s.extended.update(v, lambda copy: copy.assign_add(1))


def updated_in_replicas() -> tuple[Any, Callable[[], object]]:
    s = mirrored()
    v = made(s, 0)
    return v, lambda: s.run(lambda: refdist.get_replica_context().merge_call(
        lambda strategy: strategy.extended.update(v, lambda copy: copy.assign_add(1))))


def updated_twice() -> tuple[Any, Callable[[], object]]:
    """An update inside an update of the same variable."""
    s = mirrored()
    v = made(s, 0)

    def half(copy: Any) -> None:
        copy.assign_add(2)
        copy.assign_sub(1)

    return v, lambda: s.extended.update(v, half)


def sharded() -> tuple[Any, Callable[[], object]]:
    v = made(servers(), [0, 0, 0])
    return v, lambda: v.scatter_add(ONE_ROW)


KINDS = [plain, subtracted, scattered, parts, across_replicas, in_replicas, agreed, own_copies, all_copies, central,
         one_device, updated, updated_in_replicas, updated_twice, sharded]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_no_update_is_lost(kind: Callable[[], tuple[Any, Callable[[], object]]]) -> None:
    v, add = kind()
    in_threads(*repeated(add))
    assert np.asarray(v.numpy() if hasattr(v, "numpy") else v).sum() == THREADS * TIMES
    copies = [v] if not hasattr(v, "values") or callable(v.values) else v.values
    assert {float(np.sum(copy.numpy())) for copy in copies} == {THREADS * TIMES}


def test_each_update_returns_its_own_result() -> None:
    v, results = refdist.Variable(0), list[int]()
    in_threads(*repeated(lambda: results.append(int(v.assign_add(1)))))
    assert sorted(results) == list(range(1, THREADS * TIMES + 1))


def test_copies_have_equal_bits_whatever_the_order_of_threads() -> None:
    v = made(mirrored(3), np.float32(0))
    in_threads(*[lambda number=number: [v.assign_add(np.float32(number)) for _ in range(TIMES)]
                 for number in (0.1, 1e5, 3e-4, 7.7)])
    assert len({copy.numpy().tobytes() for copy in v.values}) == 1


def test_a_reader_finds_equal_copies_in_the_midst_of_updates() -> None:
    s = mirrored()
    v, stop = made(s, 0), threading.Event()
    different = []

    def read() -> None:
        while not stop.is_set():
            copies = [int(copy) for copy in s.experimental_local_results(s.run(lambda: v.read_value()))]
            if copies[0] > copies[1]:
                different.append(copies)

    def write() -> None:
        try:
            for _ in range(TIMES):
                s.extended.update(v, lambda copy: copy.assign_add(1))
        finally:
            stop.set()

    in_threads(read, write)
    assert different == [] and int(v) == TIMES


def test_an_update_that_fails_takes_back_nothing_of_another_thread() -> None:
    s = mirrored()
    v = made(s, 0)

    def fail(copy: Any) -> None:
        copy.assign_add(1000)
        if copy is v.values[1]:
            raise KeyError("no")

    def failing() -> None:
        for _ in range(TIMES):
            with pytest.raises(KeyError):
                s.extended.update(v, fail)

    in_threads(failing, *[lambda: [v.assign_add(1) for _ in range(TIMES)]] * 2)
    assert [int(copy) for copy in v.values] == [2 * TIMES] * 2


def written_meanwhile(v: Any, value: object) -> None:
    thread = threading.Thread(target=v.assign_add, args=(value,))
    thread.start()
    thread.join()


def test_what_has_failed_in_an_update_is_not_made_up_for_at_its_end() -> None:
    s = mirrored()
    v = made(s, np.float32(2e38))

    def add(copy: Any) -> None:
        copy.assign_add(np.float32(1e37))
        with np.errstate(over="raise"), contextlib.suppress(FloatingPointError):
            copy.assign_add(np.float32(3e38))
        if copy is v.values[1]:
            written_meanwhile(v, np.float32(-1e38))

    s.extended.update(v, add)
    assert [float(copy) for copy in v.values] == [float(np.float32(2e38) - np.float32(1e38) + np.float32(1e37))] * 2


def test_an_update_that_is_made_again_keeps_its_errstate() -> None:
    s = mirrored()
    v = made(s, np.float32(1))

    def add(copy: Any) -> None:
        with np.errstate(over="ignore"):
            copy.assign_add(np.float32(3e38))
            copy.assign_add(np.float32(3e38))
        if copy is v.values[1]:
            written_meanwhile(v, np.float32(1))

    with np.errstate(over="raise"):
        s.extended.update(v, add)
    assert [float(copy) for copy in v.values] == [np.inf] * 2


class _Assigns:
    """An array that gives a variable another value while it is converted."""

    def __init__(self, v: Any, new: Any, array: Any) -> None:
        self.v, self.new, self.array = v, new, array

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        self.v.assign(self.new)
        return np.asarray(self.array)


@pytest.mark.parametrize("operation", ["assign_add", "assign_sub"])
def test_a_value_is_not_broadcast_to_a_shape_that_came_meanwhile(operation: str) -> None:
    v = refdist.Variable(np.zeros(1, np.float32), shape=[None])
    with pytest.raises(ValueError, match="RD04"):
        getattr(v, operation)(_Assigns(v, np.zeros(3, np.float32), np.ones(1, np.float32)))
    assert v.numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("strategy", [None, mirrored], ids=["plain", "mirrored"])
@pytest.mark.parametrize(("shape", "indices", "updates", "expected"), [
    ((2, 2), [[0, 1], [1, 0]], [1.0, 2.0], [[0, 1], [2, 0]]),
    ((3, 3), [[0, 1], [1, 0]], [1.0, 2.0], [[0, 1, 0], [2, 0, 0], [0, 0, 0]]),
    ((3, 3), [[1]], [[1.0, 2.0, 3.0]], [[0, 0, 0], [1, 2, 3], [0, 0, 0]]),
    ((1, 3), [[0, 1], [1, 0]], [1.0, 2.0], "RD34"),
    ((2, 2), [[1]], [[1.0, 2.0, 3.0]], "RD04"),
])
def test_parts_are_those_of_a_shape_that_came_meanwhile(strategy: Callable[[], Any] | None, shape: tuple[int, int],
                                                        indices: Any, updates: Any, expected: Any) -> None:
    with contextlib.nullcontext() if strategy is None else strategy().scope():
        v = refdist.Variable(np.zeros((2, 3), np.float32), shape=[None, None])
    late = _Assigns(v, np.zeros(shape, np.float32), indices)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            v.scatter_nd_update(late, updates)
        expected = np.zeros(shape).tolist()
    else:
        v.scatter_nd_update(late, updates)
    assert v.numpy().tolist() == expected


def test_rows_and_parts_are_written_whole_or_refused_while_the_shape_changes() -> None:
    v, refused = refdist.Variable(np.zeros((3, 2)), shape=[None, None]), set[str]()
    shapes = [(3, 2), (2, 3), (1, 1), (2, 2)]

    def add() -> None:
        for i in range(2 * TIMES):
            try:
                if i % 2:
                    v.scatter_nd_add([[0, 1], [1, 0]], [1.0, 1.0])
                else:
                    v.scatter_add(refdist.IndexedSlices(np.float64([[1, 1]]), [1]))
            except ValueError as error:
                refused.add(str(error)[:6])

    wrong = []

    def read() -> None:
        for i in range(2 * TIMES):
            v.assign(np.zeros(shapes[i % 4]))
            value = v.numpy()
            if value.shape in ((2, 3), (1, 1)) and (value.sum() % 2 or value[:, 2:].any()):
                wrong.append(value.tolist())

    in_threads(add, read)
    assert wrong == [] and refused <= {"[RD04]", "[RD34]"}


def test_an_update_of_several_variables_is_made_again_where_one_was_written_meanwhile() -> None:
    s = mirrored()
    with s.scope():
        first, second = refdist.Variable(1.0), refdist.Variable(10.0)

    def both(copy: Any) -> None:
        number = int(copy is first.values[1])
        copy.assign_add(2.0)
        second.values[number].assign_add(20.0)
        if number:
            written_meanwhile(first, 100.0)
            written_meanwhile(second, 1000.0)

    s.extended.update(first, both)
    assert [float(copy) for copy in first.values] == [103.0] * 2
    assert [float(copy) for copy in second.values] == [1030.0] * 2


def test_a_deep_copy_has_equal_copies_in_the_midst_of_updates() -> None:
    v, stop = made(mirrored(3), 0), threading.Event()
    different = []

    def write() -> None:
        while not stop.is_set():
            v.assign_add(1)

    def copies() -> None:
        try:
            for _ in range(10 * TIMES):
                values = [int(part) for part in copy.deepcopy(v).values]
                if len(set(values)) > 1:
                    different.append(values)
        finally:
            stop.set()

    in_threads(write, copies)
    assert different == []


def test_a_slow_write_keeps_none_of_the_values_that_came_meanwhile() -> None:
    kept, alive = list[weakref.ref[Any]](), list[bool]()
    cell = Cell(np.zeros(1))

    def slow(value: Any) -> Any:
        if not kept:
            for _ in range(5):
                kept.append(weakref.ref(cell.change(lambda old: old + 1)))
            alive.extend(reference() is not None for reference in kept)
        return value + 1

    assert cell.change(slow).tolist() == [6] and alive == [False] * 4 + [True]


def test_two_threads_that_write_two_variables_in_either_order() -> None:
    a, b = refdist.Variable(0), refdist.Variable(0)
    in_threads(lambda: [(a.assign_add(1), b.assign_add(1)) for _ in range(TIMES)],
               lambda: [(b.assign_add(1), a.assign_add(1)) for _ in range(TIMES)])
    assert int(a) == int(b) == 2 * TIMES


@pytest.mark.parametrize("strategy", [None, mirrored], ids=["plain", "mirrored"])
def test_a_signal_handler_writes_the_variable_that_it_interrupts(strategy: Callable[[], Any] | None) -> None:
    v = refdist.Variable(0) if strategy is None else made(strategy(), 0)
    handled = 0

    def handler(number: int, frame: object) -> None:
        nonlocal handled
        handled += 1
        v.assign_add(1)

    before = signal.signal(signal.SIGALRM, handler)
    written = 0
    try:
        while handled < 100:
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + written % 40))  # once: a handler is not interrupted itself
            v.assign_add(1)
            written += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert int(v) == written + handled


def test_a_forked_process_writes_while_other_threads_of_its_parent_did() -> None:
    v, stop = refdist.Variable(0), threading.Event()

    def write() -> None:
        while not stop.is_set():
            v.assign_add(1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                before = int(v)
                os._exit(int(v.assign_add(1)) - before)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        stop.set()
        thread.join()


def all_reduced(s: Any, count: int) -> None:
    for i in range(TIMES):
        total = s.run(lambda number=i: refdist.get_replica_context().all_reduce("SUM", number))
        assert [int(part) for part in s.experimental_local_results(total)] == [i * count] * count


def test_collectives_in_two_threads_with_a_strategy_each() -> None:
    in_threads(lambda: all_reduced(mirrored(2), 2), lambda: all_reduced(mirrored(3), 3))


def test_collectives_in_two_threads_with_one_strategy() -> None:
    s = mirrored(3)
    in_threads(*[lambda: all_reduced(s, 3)] * 2)


def drawn_outside() -> Callable[[], list[float]]:
    g = refdist.random.Generator.from_seed(1)
    return lambda: [float(g.uniform([]))]


def drawn_across_replicas() -> Callable[[], list[float]]:
    with mirrored().scope():
        g = refdist.random.Generator.from_seed(1)
    return lambda: [float(g.uniform([]))]


def drawn_in_replicas() -> Callable[[], list[float]]:
    s = mirrored()
    with s.scope():
        g = refdist.random.Generator.from_seed(1)
    return lambda: [float(number) for number in s.experimental_local_results(s.run(lambda: g.uniform([])))]


def drawn_from_one_stream() -> Callable[[], list[float]]:
    g, s = refdist.random.Generator.from_seed(1), mirrored()
    return lambda: [float(number) for number in s.experimental_local_results(s.run(lambda: g.uniform([])))]


def drawn_on(s: Any) -> Callable[[], list[float]]:
    with s.scope():
        g = refdist.random.Generator.from_seed(1)
    return lambda: [float(number) for number in s.experimental_local_results(s.run(lambda: g.uniform([])))]


def drawn_on_one_device() -> Callable[[], list[float]]:
    return drawn_on(refdist.OneDeviceStrategy("GPU:0"))


def drawn_under_central_storage() -> Callable[[], list[float]]:
    return drawn_on(refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0"))


def drawn_from_a_mirrored_state() -> Callable[[], list[float]]:
    s = mirrored()
    g = refdist.random.Generator.from_state(made(s, np.array([0, 0, 7])), "philox")
    return lambda: [float(number) for number in s.experimental_local_results(s.run(lambda: g.uniform([])))]


DRAWS = [drawn_outside, drawn_across_replicas, drawn_in_replicas, drawn_from_one_stream, drawn_on_one_device,
         drawn_under_central_storage, drawn_from_a_mirrored_state]


@pytest.mark.parametrize("kind", DRAWS, ids=[kind.__name__ for kind in DRAWS])
def test_threads_draw_the_numbers_that_one_thread_draws(kind: Callable[[], Callable[[], list[float]]]) -> None:
    draw, numbers = kind(), list[float]()
    in_threads(*repeated(lambda: numbers.extend(draw()), TIMES // 4))
    alone = kind()
    assert sorted(numbers) == sorted(number for _ in range(THREADS * TIMES // 4) for number in alone())


def taken_by_threads(iterator: Iterator[Any], first_of: Callable[[Any], object]) -> Counter[int]:
    """What several threads get of one iterator: how often each number."""
    taken = list[int]()

    def take() -> None:
        for element in iterator:
            taken.append(int(np.asarray(first_of(element)).reshape(-1)[0]))

    in_threads(*[take] * THREADS)
    return Counter(taken)


COUNT = THREADS * TIMES


def test_threads_share_the_elements_of_an_iterator() -> None:
    numbers = refdist.data.Dataset.range(COUNT).map(lambda number: number + 1)
    assert taken_by_threads(iter(numbers), lambda number: number) == Counter(range(1, COUNT + 1))


def test_a_signal_handler_that_reads_the_iterator_that_it_interrupts_is_told_so() -> None:
    raised = []

    def handler(number: int, frame: object) -> None:
        with pytest.raises(RuntimeError, match=r"RD09.*its next element is being produced") as error:
            next(numbers)
        raised.append(error)

    def interrupted(number: Any) -> Any:
        if number == 1:
            signal.raise_signal(signal.SIGALRM)
        return number

    numbers = iter(refdist.data.Dataset.range(3).map(interrupted))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        assert list(map(int, numbers)) == [0, 1, 2] and len(raised) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_forked_process_does_not_wait_for_an_element_that_a_thread_of_its_parent_reads() -> None:
    reading, forked = threading.Event(), threading.Event()

    def slow(number: Any) -> Any:
        reading.set()
        forked.wait()
        return number

    numbers = refdist.data.Dataset.range(1).map(slow)
    iterator = iter(numbers)
    thread = threading.Thread(target=next, args=(iterator,))
    thread.start()
    reading.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            next(iterator)
        except RuntimeError as error:
            os._exit(3 if "RD09" in str(error) else 4)
        os._exit(5)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize("recorded", [False, True])
def test_threads_share_the_elements_of_a_distributed_iterator(recorded: bool) -> None:
    s = mirrored()
    batches = s.experimental_distribute_dataset(refdist.data.Dataset.range(COUNT).batch(2))
    with refdist.record() if recorded else contextlib.nullcontext():
        firsts = taken_by_threads(iter(batches), lambda batch: s.experimental_local_results(batch)[0])
    assert firsts == Counter(range(0, COUNT, 2))


def test_a_recording_has_each_write_of_each_thread_once() -> None:
    v = refdist.Variable(0)
    with refdist.record() as recording:
        in_threads(*repeated(lambda: v.assign_add(1)))
    writes = [event for event in recording.events if event.kind == "write"]
    assert len(writes) == THREADS * TIMES and len({event.id for event in recording.events}) == len(recording.events)


def test_a_file_has_what_each_thread_did_where_it_belongs(tmp_path: Path) -> None:
    s = mirrored()

    def work() -> None:
        for _ in range(TIMES // 4):
            s.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))

    with refdist.record() as recording, refdist.insight.record_to(tmp_path / "a"):
        in_threads(*[work] * THREADS)
    events = refdist.insight.load(tmp_path / "a").events
    assert events == recording.events
    parents = Counter((event.parent, event.kind) for event in events)
    for event in events:
        if event.kind == "run":
            assert parents[event.id, "replica"] == 2 and parents[event.id, "combine"] == 1
        elif event.kind == "replica":
            assert parents[event.id, "meet"] == parents[event.id, "receive"] == 1


def test_a_recording_gives_a_variable_one_number_in_all_threads() -> None:
    variables, everybody = [refdist.Variable(0) for _ in range(4 * TIMES)], threading.Barrier(THREADS)

    def write() -> None:
        for v in variables:
            everybody.wait()
            v.assign_add(1)

    with refdist.record() as recording:
        in_threads(*[write] * THREADS)
    numbers = Counter(event["number"] for event in recording.events if event.kind == "write")
    assert set(numbers.values()) == {THREADS} and len(numbers) == 4 * TIMES
