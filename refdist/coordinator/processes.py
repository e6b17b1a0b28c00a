"""`Processes`: the workers of a coordinator where each is a process, and what happens to their functions.

The coordinator has two channels to each worker.  Through the first it sends one function, and gets what came of it;
through the second it says that a function is to stop.  Everything is done by the thread that holds the lock: that of
the program, while it schedules or waits, or else one that looks after the channels while the program does something of
its own, so that workers do not wait for it.  The program does not hand its work to that thread, because the interpreter
would take milliseconds to switch between the two.

A worker is lost when its channel says so: its process is gone, or was silent in the middle of a message for longer than
the limit.  Its function goes to the end of the queue.  Where the launcher starts workers again, it comes back by
itself, with nothing of what it had, and is sent all definitions anew; a function that has lost more workers than one
may be started again is an error, because it would lose them all.  Where no worker is left and none comes back, waiting
is an error.  A worker that was stopped by a signal is not lost, and its function is waited for.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from refdist import errors
from refdist.coordinator.choices import current
from refdist.coordinator.closures import Closure
from refdist.coordinator.functions import Functions
from refdist.coordinator.parcels import Outgoing, SharedDataset
from refdist.strategies.job import Job
from refdist.strategies.parameter_server import ParameterServerExtended, ParameterServerStrategy
from refdist.workers.channels import Channel, Gone
from refdist.workers.launcher import WORKER, Task

DONE, FAILED, STOPPED = "done", "failed", "stopped"
_LOOK = 1.0  # seconds; something always happens before, but for a program that is interrupted
_STEP = 0.01


class _Worker:
    """A worker that is there.

    Attributes:
        number: its number.
        work, control: the channels to it.
        closure: the function that it carries out.
        sent: how many functions it was sent.
        defined: how many definitions it has.
    """

    def __init__(self, number: int, work: Channel, control: Channel) -> None:
        self.number = number
        self.work = work
        self.control = control
        self.closure: Closure | None = None
        self.sent = 0
        self.defined = 0


class Processes(Functions):
    """The workers of one coordinator, which are processes."""

    def __init__(self, extended: ParameterServerExtended, job: Job) -> None:
        super().__init__(extended.workers)
        strategy = extended._strategy
        assert isinstance(strategy, ParameterServerStrategy)
        self._outgoing = Outgoing(strategy, job)
        self._there = [_Worker(i, *job.peers.channels[Task(WORKER, i)]) for i in range(self.workers)]
        self._rested = list(self._there)
        self._lost = ""  # the last worker that was lost, and how
        self._events = select.epoll()
        self._by_file = {worker.work.fileno(): worker for worker in self._there}
        self._returned: deque[_Worker] = deque()  # workers that have come back, and were not seen yet
        self._return = os.eventfd(0, os.EFD_NONBLOCK)  # readable while there are some
        for file in (*self._by_file, self._return):
            self._events.register(file, select.EPOLLIN)
        self._peers = job.peers
        self._losses = [0] * self.workers
        job.peers.listen(self._come_back)
        threading.Thread(target=self._attend, name="refdist coordinator", daemon=True).start()

    # --- Methods that the coordinator calls ---

    @property
    def idle(self) -> bool:
        return not self.queue and len(self._rested) == len(self._there)

    def bound(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        if current.value is not None:
            raise errors.error("RD20", "ClusterCoordinator.schedule inside `interleaving`", "the workers are "
                               "processes, and nothing decides when they go on",
                               "Start the program alone; then its workers are simulated.")
        return self._outgoing.call(fn, args, kwargs)

    def per_worker_dataset(self, given: object) -> SharedDataset:
        made = SharedDataset(given)
        if not callable(given):
            made._made(0)
        self._outgoing.number_of(made)
        return made

    def wait(self, ready: Callable[[], bool], attempted: str) -> None:
        alone = 0.0  # seconds in which there was no worker
        while not ready():
            comes_back = min(self._losses) <= self._peers.returns
            if not self._there and (not comes_back or alone >= self._peers.seconds):
                late = f", none has come back within {self._peers.seconds:g} s" if comes_back else ""
                raise errors.error("RD33", attempted, f"no worker is left of {self.workers}{late}, and "
                                   f"{self.waiting()}; the last one was {self._lost}",
                                   "Start the job again from the latest checkpoint.")
            before = time.monotonic()
            self._look(_LOOK)
            alone = 0.0 if self._there else alone + min(time.monotonic() - before, 2 * _LOOK)

    def step(self) -> None:
        self._look(_STEP)

    def scheduled(self) -> None:
        self._look(0)

    def _stop_all(self) -> None:
        for worker in self._there:
            if worker.closure is not None:
                with contextlib.suppress(Gone):  # its other channel reports this, too
                    worker.control.send(pickle.dumps(worker.sent))
        while any(worker.closure for worker in self._there):
            self._hear_all(_LOOK)

    # --- Messages of workers ---

    def _attend(self) -> None:
        while True:
            self._events.poll()
            with self.lock:
                self._look(0)

    def _look(self, seconds: float) -> None:
        self._send_all()
        self._hear_all(seconds)
        self._send_all()

    def _send_all(self) -> None:
        while self.queue and self._rested:
            worker = self._rested.pop(0)
            worker.closure = closure = self.queue.popleft()
            known = self._outgoing.definitions
            worker.sent += 1
            try:
                worker.work.send(pickle.dumps((worker.sent, known[worker.defined:], closure.number, closure.call)))
            except Gone as gone:
                self._lose(worker, gone)
            worker.defined = len(known)

    def _hear_all(self, seconds: float) -> None:
        for file, _ in self._events.poll(seconds):
            worker = self._by_file.get(file)
            if file == self._return:
                os.eventfd_read(file)
                while self._returned:
                    self._welcome(self._returned.popleft())
            elif worker is not None:
                try:
                    answer = worker.work.answer()
                except Gone as gone:
                    self._lose(worker, gone)
                else:
                    self._ended(worker, *_unpacked(answer))

    def _ended(self, worker: _Worker, what: str, result: object) -> None:
        closure, worker.closure = worker.closure, None
        self._rested.append(worker)
        assert closure is not None
        if what == DONE:
            closure.finish(result, None)
        elif what == STOPPED:
            closure.cancel(f"it was stopped on worker {worker.number}, because another function failed")
        else:
            assert isinstance(result, BaseException)
            self._failed(closure, worker.number, result)

    def _come_back(self, task: Task, channels: Sequence[Channel]) -> None:
        # Called in another thread.
        self._returned.append(_Worker(task.number, *channels))
        os.eventfd_write(self._return, 1)

    def _welcome(self, worker: _Worker) -> None:
        for before in [other for other in self._there if other.number == worker.number]:
            self._lose(before, Gone("its process is gone"))
        self._there.append(worker)
        self._rested.append(worker)
        self._by_file[worker.work.fileno()] = worker
        self._events.register(worker.work.fileno(), select.EPOLLIN)

    def _lose(self, worker: _Worker, gone: Gone) -> None:
        closure, worker.closure = worker.closure, None
        self._losses[worker.number] += 1
        self._lost = f"worker {worker.number} ({gone})"
        self._there.remove(worker)
        if worker in self._rested:
            self._rested.remove(worker)
        self._by_file = {file: other for file, other in self._by_file.items() if other is not worker}
        worker.control.close()
        worker.work.close()
        if closure is not None:
            self._lost += f", in {closure}"
            self._again(closure)
            if closure.losses > self._peers.returns > 0 and closure in self.queue:
                self.queue.remove(closure)
                self._failed(closure, worker.number, errors.error(
                    "RD33", f"function {closure.name}", f"{closure.losses} workers were lost one after another while "
                    "they carried it out", "Look at what it does that ends its process, or takes its memory."))


def _unpacked(answer: bytes) -> tuple[str, object]:
    # An object that can be pickled may still fail to be unpickled.
    try:
        what, result = pickle.loads(answer)
    except Exception as error:
        return FAILED, error
    return what, result
