"""Interrupts, at each moment, of a coordinator whose workers are processes: here a thread at the same sockets."""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import pytest
from limits import HANG
from workers import moments

import refdist
from refdist.backends.mpi.messages import SocketChannel
from refdist.coordinator import ClusterCoordinator, RemoteValue, processes
from refdist.coordinator.parcels import Incoming
from refdist.coordinator.processes import DONE, FAILED, STOPPED
from refdist.strategies import job as jobs
from refdist.workers import connection
from refdist.workers.channels import Gone
from refdist.workers.connection import Group
from refdist.workers.launcher import CHIEF, WORKER, Task

pytest.importorskip("cloudpickle", reason="functions are sent by cloudpickle")
CLUSTER = {"chief": ["one:1"], "worker": ["one:2"], "ps": ["one:3"]}


class Dies(BaseException):
    """Raised by a function that takes its worker with it."""


class GoesOn(BaseException):
    """Raised by a function that goes on until it is stopped."""


def dies() -> None:
    raise Dies


def goes_on() -> None:
    raise GoesOn


def fails() -> None:
    raise KeyError("mine")


def waits(_: bytes) -> None:
    assert may_end.wait(HANG)


may_end = threading.Event()


class OneWorker:
    """The processes of a job with one worker, which comes back when it was lost.

    Attributes:
        deaths: how many times more it dies where a function wants that.
        taken: how many functions it has begun.
        goes: set when it may die, or a function may fail.
        told: set when a function is to stop.
        stops: set when one may do so.
        threads: of the worker, each time that it was started.
    """

    seconds = HANG

    def __init__(self, returns: int, deaths: int) -> None:
        self.returns = returns
        self.deaths = deaths
        self.taken = 0
        self.threads: list[threading.Thread] = []
        self.goes, self.told, self.stops = threading.Event(), threading.Event(), threading.Event()
        self._returned: Callable[[Task, Any], object] = lambda *_: None
        self.channels = {Task(WORKER, 0): self._started(), Task("ps", 0): [self._pair()[0]]}

    @staticmethod
    def _pair() -> list[SocketChannel]:
        return [SocketChannel(Connection(end.detach()), HANG) for end in socket.socketpair()]

    def _started(self) -> list[SocketChannel]:
        (work, its_work), (control, its_control) = self._pair(), self._pair()
        self.threads.append(threading.Thread(target=self._serve, args=(its_work, its_control), daemon=True))
        self.threads[-1].start()
        return [work, control]

    def _serve(self, work: SocketChannel, control: SocketChannel) -> None:
        incoming = Incoming(lambda _: None, 0)  # type: ignore[arg-type, return-value]
        try:
            while True:
                number, definitions, _, _, call = pickle.loads(work.receive())
                incoming.define(definitions)
                fn, args, kwargs = incoming.unpacked(call)
                self.taken += 1
                try:
                    answer = DONE, fn(*args, **kwargs)
                except Dies:
                    if self.deaths > 0:
                        self.deaths -= 1
                        self.goes.wait()
                        break
                    answer = DONE, None
                except GoesOn:
                    while pickle.loads(control.receive()) < number:
                        pass
                    self.told.set()
                    self.stops.wait()
                    answer = STOPPED, None
                except KeyError as error:
                    self.goes.wait()
                    answer = FAILED, error
                work.send(pickle.dumps(answer))
        except Gone:
            return
        work.close()
        control.close()
        self._returned(Task(WORKER, 0), self._started())

    def finish(self) -> None:
        """The program has ended."""

    def listen(self, returned: Callable[[Task, Any], object]) -> None:
        self._returned = returned


Make = Callable[[int, int], tuple[ClusterCoordinator, OneWorker]]


def end(fleet: processes.Fleet, peers: OneWorker) -> None:
    """Ends a job, whose files and threads a program has until it ends; the one that looks after the channels rests."""
    resting = threading.Event()

    def rest() -> None:
        resting.set()
        threading.Event().wait()

    fleet.waiting.rest = rest  # type: ignore[method-assign]
    fleet.wake()
    assert resting.wait(HANG)
    peers.deaths = 0
    peers.goes.set()
    peers.stops.set()
    while running := [thread for thread in peers.threads if thread.is_alive()]:
        for worker in (*fleet.there, *fleet._returned):
            worker.work.close()
            worker.control.close()
        running[0].join(0.1)
    for channel in peers.channels[Task("ps", 0)]:
        channel.close()
    fleet._events.close()
    os.close(fleet._wake)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a coordinator of a job, and ends the one before."""
    spec = refdist.train.ClusterSpec(CLUSTER)
    monkeypatch.setattr(processes, "_LOOK", 0.1)  # after which goes on what an interrupt has broken off
    last: list[OneWorker] = []

    def end_the_last() -> None:
        if last:
            assert processes._fleet.value is not None
            end(processes._fleet.value, last.pop())

    def make(returns: int, deaths: int) -> tuple[ClusterCoordinator, OneWorker]:
        end_the_last()
        last.append(peers := OneWorker(returns, deaths))
        monkeypatch.setattr(jobs.current, "value", jobs.Job(Task(CHIEF, 0), spec, peers))  # type: ignore[arg-type]
        monkeypatch.setattr(processes._fleet, "value", None)
        resolver = refdist.cluster_resolver.SimpleClusterResolver(spec, task_type="chief", task_id=0)
        return ClusterCoordinator(refdist.ParameterServerStrategy(resolver)), peers

    yield make
    end_the_last()


def until(ready: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + HANG
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def interrupted_join(c: ClusterCoordinator, peers: OneWorker, number: int) -> tuple[bool, BaseException | None]:
    """Whether `join` has so many moments, at which it is interrupted then, and what it raises."""
    came: list[None] = []

    def interrupt() -> None:
        came.append(None)
        moments.interrupt()

    def counts(frame: FrameType) -> bool:
        if frame.f_code is processes.Fleet.go_on.__code__:  # no other thread sees what the worker does from now on
            peers.goes.set()
        return True

    error: BaseException | None = None
    try:
        moments.interrupted(number, c.join, interrupt, counts)
    except BaseException as raised:
        error = raised
    peers.goes.set()
    return bool(came), error


def outcome(call: Callable[[], object]) -> str:
    """What a call in another thread returns, or raises."""
    outcomes: list[str] = []

    def run() -> None:
        try:
            outcomes.append(str(call()))
        except (refdist.errors.RefdistError, KeyError) as error:
            outcomes.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG)
    return outcomes[0] if outcomes else "it has not ended"


def test_an_interrupt_at_any_moment_loses_neither_a_lost_worker_nor_its_function(made: Make) -> None:
    for number in itertools.count():
        c, peers = made(3, 1)
        values = [c.schedule(dies), c.schedule(int)]
        came, _ = interrupted_join(c, peers, number)
        until(lambda: peers.taken == 3, f"moment {number}")  # noqa: B023 - though nobody calls the coordinator
        assert [outcome(value.fetch) for value in values] == ["None", "0"], f"moment {number}"
        assert (outcome(c.join), peers.taken, outcome(c.schedule(int).fetch)) == ("None", 3, "0"), f"moment {number}"
        if not came:
            break
    assert number > 50


def test_an_interrupt_at_any_moment_loses_no_error_of_a_function_that_loses_its_workers(made: Make) -> None:
    for number in itertools.count():
        c, peers = made(1, 2)
        value = c.schedule(dies)
        came, error = interrupted_join(c, peers, number)
        if not isinstance(error, refdist.errors.RefdistError):
            assert "2 workers were lost one after another" in outcome(c.join), f"moment {number}"
        assert "2 workers were lost one after another" in outcome(value.fetch), f"moment {number}"
        assert (outcome(c.join), peers.taken) == ("None", 2), f"moment {number}"
        if not came:
            break
    assert number > 50


def test_an_interrupt_in_the_middle_of_a_long_function_sends_it_once(made: Make) -> None:
    """What was sent again would wait for its worker, and the next call for that."""
    def is_in_the_middle(frame: FrameType) -> bool:
        return frame.f_code is SocketChannel.send.__code__ and sum(frame.f_locals.get("sent", ())) > 0

    c, peers = made(0, 0)
    with pytest.raises(KeyboardInterrupt):
        moments.interrupted(0, lambda: c.schedule(waits, args=(bytes(10_000_000),)), moments.interrupt,
                            is_in_the_middle)
    until(lambda: peers.taken == 1, "though nobody calls the coordinator")
    late = c.schedule(int)
    may_end.set()
    assert (outcome(late.fetch), outcome(c.join), peers.taken) == ("0", "None", 2)


def test_what_a_signal_handler_sends_at_any_moment_is_the_object_that_the_program_sends(made: Make) -> None:
    for number in itertools.count():
        c, _ = made(0, 0)
        elements = iter(c.create_per_worker_dataset(refdist.data.Dataset.range(10)))
        values: list[RemoteValue] = []

        def read() -> None:
            values.append(c.schedule(next, args=(elements,)))  # noqa: B023

        came = moments.interrupted(number, read, read)
        read()
        assert sorted(outcome(value.fetch) for value in values) == ["0", "1", "2"][:2 + came], f"moment {number}"
        if not came:
            break
    assert number > 50


def test_two_threads_that_join_the_job_at_the_same_time_join_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Semaphore(0), threading.Event()

    class Launcher:
        @staticmethod
        def group() -> Group:
            begun.release()
            return Group(0, 3)

        @staticmethod
        def meet(task: Task, cluster: object) -> OneWorker:
            goes_on.wait()
            return OneWorker(0, 0)

    monkeypatch.setattr(connection, "launcher", lambda: Launcher)
    monkeypatch.setattr(jobs.current, "value", None)
    joined: list[object] = []
    threads = [threading.Thread(target=lambda: joined.append(jobs.met(
        Task(CHIEF, 0), refdist.train.ClusterSpec(CLUSTER)))) for _ in range(2)]
    for thread in threads:
        thread.start()
        begun.acquire()
    goes_on.set()
    for thread in threads:
        thread.join(HANG)
    assert len(joined) == 2 and joined[0] is joined[1] is not None


def failed(c: ClusterCoordinator, peers: OneWorker) -> list[RemoteValue]:
    """One function has failed; of the two that it returns one goes on, and one waits."""
    first, *others = [c.schedule(fails), c.schedule(goes_on), c.schedule(goes_on)]
    peers.goes.set()
    assert "mine" in outcome(first.fetch)
    until(lambda: peers.taken == 2, "the second one begins")
    return others


def test_an_interrupt_at_any_moment_loses_no_error_and_leaves_no_function_behind(made: Make) -> None:
    for number in itertools.count():
        c, peers = made(0, 0)
        others = failed(c, peers)
        peers.stops.set()
        came, error = interrupted_join(c, peers, number)
        if not isinstance(error, KeyError):
            assert "mine" in outcome(c.join), f"moment {number}"
        assert all("RD32" in outcome(value.fetch) for value in others), f"moment {number}"
        assert (outcome(c.join), outcome(c.schedule(int).fetch)) == ("None", "0"), f"moment {number}"
        if not came:
            break
    assert number > 30


def test_a_function_that_another_thread_schedules_while_an_error_is_raised_is_carried_out(made: Make) -> None:
    c, peers = made(0, 0)
    others = failed(c, peers)
    errors: list[BaseException | None] = []
    joins = threading.Thread(target=lambda: errors.append(interrupted_join(c, peers, -1)[1]))
    joins.start()
    peers.told.wait()
    late = c.schedule(int)
    peers.stops.set()
    joins.join()
    assert [type(error) for error in errors] == [KeyError]
    assert all("RD32" in outcome(value.fetch) for value in others)
    assert outcome(late.fetch) == "0"
