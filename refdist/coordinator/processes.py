"""`Processes`: the functions of a coordinator whose workers are processes, and `Fleet`: those workers.

A program may have several strategies, each with a coordinator of its own: their queues are served in turn by the same
workers, each of which carries out one function at a time.

The process of the coordinators has two channels to each worker.  Through the first it sends one function, and gets what
came of it; through the second it says that a function is to stop.  One thread at a time takes what workers answer
(`waiting`): one of the program, while it waits, or else one that looks after the channels while the program does
something of its own, so that workers do not wait for it.  The program does not hand its work to that thread, because
the interpreter would take milliseconds to switch between the two; and while the program takes answers itself, the
thread sleeps, because each answer would wake both.

A worker is lost when its channel says so: its process is gone, or was silent in the middle of a message for longer than
the limit.  Its function goes to the end of the queue.  Where the launcher starts workers again, it comes back by
itself, with nothing of what it had, and is sent all definitions anew; a function that has lost more workers than one
may be started again is an error, because it would lose them all.  Where no worker is left and none comes back, waiting
is an error.  A worker that was stopped by a signal is not lost, and its function is waited for.

An interrupt of the program, such as Ctrl-C's, comes where a function begins, and where a call has returned (`waiting`).
What goes between two of these is done as a whole; what it breaks off is done again by the next thread that looks after
the channels.  So what may be done twice comes first (`_lose`, `_welcome`), and then, without a call, what may not.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from refdist import errors
from refdist.coordinator.choices import current
from refdist.coordinator.closures import CANCELLED, Closure
from refdist.coordinator.functions import Functions
from refdist.coordinator.parcels import Outgoing, SharedDataset, fails_again
from refdist.coordinator.waiting import Waiting
from refdist.runtime import Field
from refdist.strategies.job import Job
from refdist.strategies.parameter_server import ParameterServerExtended
from refdist.workers.channels import Channel, Gone
from refdist.workers.launcher import WORKER, Task

DONE, FAILED, STOPPED = "done", "failed", "stopped"
_LOOK = 1.0  # seconds; something always happens before, but for a program that is interrupted
_STEP = 0.01
_MOMENT = 0.001  # how long a worker waits at most when the program begins to do something of its own


class _Worker:
    """A worker that is there.

    Attributes:
        number: its number.
        work, control: the channels to it.
        closure: the function that it carries out.
        owner: whose that is.
        answer: what it has answered, while that is looked at.
        sent: how many functions it was sent.
        defined: how many definitions it has.
    """

    def __init__(self, number: int, work: Channel, control: Channel) -> None:
        self.number = number
        self.work = work
        self.control = control
        self.closure: Closure | None = None
        self.owner: Processes | None = None
        self.answer = b""
        self.sent = 0
        self.defined = 0


class Fleet:
    """The workers of a job, which are processes.

    Attributes:
        waiting: the threads of the program that wait for functions of any coordinator.
        size: how many workers there were at the start.
        there: the workers that there are.
        outgoing: pickles what they are sent.
        coordinators: whose functions they carry out.
        lost: the last worker that was lost, and how.
    """

    def __init__(self, job: Job, size: int) -> None:
        self.waiting = Waiting()
        self.size = size
        self.outgoing = Outgoing(job)
        self.coordinators: list[Processes] = []
        self.there = [_Worker(i, *job.peers.channels[Task(WORKER, i)]) for i in range(size)]
        self.lost = ""
        self._rested = list(self.there)
        self._sending: tuple[_Worker, bytes] | None = None  # a message, and to whom, until it is sent
        self._hearing: _Worker | None = None  # whose answer is looked at
        self._events = select.epoll()
        self._by_file = {worker.work.fileno(): worker for worker in self.there}
        self._returned: deque[_Worker] = deque()  # workers that have come back, and were not seen yet
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)  # readable when there are some, or what is waited for may be there
        for file in (*self._by_file, self._wake):
            self._events.register(file, select.EPOLLIN)
        self._peers = job.peers
        self._losses = [0] * size
        self._looks = 0  # how often a thread has looked after the channels
        job.peers.listen(self._come_back)
        threading.Thread(target=self._attend, name="refdist coordinator", daemon=True).start()

    def wait(self, ready: Callable[[], bool], attempted: str, backlog: Callable[[], str]) -> None:
        """Lets functions run until `ready()`.

        Raises:
            RD33: no worker is left.
        """
        alone = 0.0  # seconds in which there was no worker

        def go_on() -> None:
            nonlocal alone
            comes_back = min(self._losses) <= self._peers.returns
            if not self.there and (not comes_back or alone >= self._peers.seconds):
                late = f", none has come back within {self._peers.seconds:g} s" if comes_back else ""
                raise errors.error("RD33", attempted, f"no worker is left of {self.size}{late}, and {backlog()}; the "
                                   f"last one was {self.lost}", "Start the job again from the latest checkpoint.")
            before = time.monotonic()
            self.go_on(_LOOK)
            alone = 0.0 if self.there else alone + min(time.monotonic() - before, 2 * _LOOK)

        self.waiting.until(ready, go_on)

    def look(self) -> None:
        """Sends functions to workers that are free, and takes what others have answered.

        If another thread waits for answers, that one takes them.
        """
        if self.waiting.is_interrupted():
            self.wake()
        else:
            self.waiting.lead(self.go_on, 0, otherwise=self._send_all)

    def go_on(self, seconds: float) -> None:
        """Sends functions to workers that are free, and takes what others answer within so many seconds.

        Called by one thread at a time.
        """
        self._looks += 1
        self._send_all()
        if self._hearing:  # an interrupt has kept its answer from being taken, which may be what is waited for
            self._take(self._hearing)
            seconds = 0
        for file, _ in self._events.poll(seconds):
            self._hear(file)
        self._send_all()
        self.waiting.changed()

    def wake(self) -> None:
        """Makes all threads that wait look whether they have what they wait for."""
        os.eventfd_write(self._wake, 1)
        self.waiting.changed()

    def _attend(self) -> None:
        looks = 0
        while True:
            self.waiting.rest()
            self._events.poll(_LOOK)
            if looks != self._looks or not self.waiting.lead(self.go_on, 0):  # the program comes by itself
                time.sleep(_MOMENT)
            looks = self._looks

    def _send_all(self) -> None:
        with self.waiting.lock:
            while self._returned:
                self._welcome(self._returned[0])
                self._returned.popleft()
            if self._sending:
                self._pass_on(*self._sending)
            while self._rested and (owners := [each for each in self.coordinators if each.queue]):
                self._send(owners[0], self._rested[0])

    def _send(self, owner: Processes, worker: _Worker) -> None:
        if len(self.coordinators) > 1:  # the others have their turns before it has another one
            self.coordinators = [*[other for other in self.coordinators if other is not owner], owner]
        closure, function = owner.queue[0], worker.sent + 1
        definitions = self.outgoing.definitions[worker.defined:]  # other threads of the program add some meanwhile
        defined = worker.defined + len(definitions)
        message = pickle.dumps((function, definitions, owner.strategy, closure.number, closure.call))
        worker.owner, worker.closure, worker.sent, worker.defined = owner, closure, function, defined
        self._sending = worker, message
        del owner.queue[0], self._rested[0]
        self._pass_on(worker, message)

    def _pass_on(self, worker: _Worker, message: bytes) -> None:
        try:
            worker.work.send(message)
        except Gone as gone:
            self._lose(worker, gone)
        self._sending = None

    def _hear(self, file: int) -> None:
        if file == self._wake:
            os.eventfd_read(file)
            return
        with self.waiting.lock:
            worker = self._by_file.get(file)
            if worker is None:
                return
            self._hearing = worker
        self._take(worker)  # of an idle worker, that it is gone

    def _take(self, worker: _Worker) -> None:
        # No other thread uses a channel from which an answer is expected; a lock would be held for a whole message, and
        # while the program's own classes are unpickled.
        try:
            worker.answer = worker.answer or worker.work.answer()
            outcome = _unpacked(worker.answer)
        except Gone as gone:
            with self.waiting.lock:
                self._lose(worker, gone)
                self._hearing = None
            return
        with self.waiting.lock:
            if worker.owner is None or worker.closure is None:  # another thread has lost it meanwhile
                worker.answer, self._hearing = b"", None
                return
            worker.owner.ended(worker.closure, worker.number, *outcome)
            worker.closure, worker.answer, self._hearing = None, b"", None
            self._rested.append(worker)

    def _come_back(self, task: Task, channels: Sequence[Channel]) -> None:
        # Called in another thread.
        self._returned.append(_Worker(task.number, *channels))
        os.eventfd_write(self._wake, 1)

    def _welcome(self, worker: _Worker) -> None:
        for before in [other for other in self.there if other.number == worker.number]:
            self._lose(before, Gone("its process is gone"))
        file = worker.work.fileno()
        with contextlib.suppress(FileExistsError):  # an interrupt came afterwards
            self._events.register(file, select.EPOLLIN)
        self._by_file[file] = worker
        self.there += [worker]
        self._rested += [worker]

    def _lose(self, worker: _Worker, gone: Gone) -> None:
        if worker not in self.there:
            return
        others = [other for other in self.there if other is not worker]
        self._rested = [other for other in self._rested if other is not worker]
        self._by_file = {file: other for file, other in self._by_file.items() if other is not worker}
        worker.control.close()
        worker.work.close()
        closure, lost = worker.closure, f"worker {worker.number} ({gone})"
        if closure is not None and worker.owner is not None:
            lost += f", in {closure}"
            worker.owner.lost(closure, worker.number, self._peers.returns)
        worker.closure, self.there, self.lost = None, others, lost
        self._losses[worker.number] += 1


class Processes(Functions):
    """The functions of one coordinator, whose workers are processes.

    Attributes:
        strategy: the number of its strategy.
    """

    def __init__(self, extended: ParameterServerExtended, job: Job) -> None:
        fleet = _fleet.value = _fleet.value or Fleet(job, extended.workers)
        super().__init__(extended.workers, fleet.waiting)
        self._fleet = fleet
        self.strategy = job.strategies.index(extended._strategy)
        with fleet.waiting.lock:
            fleet.coordinators.append(self)

    # --- Methods that the coordinator calls ---

    @property
    def idle(self) -> bool:
        with self.waiting.lock:
            return not self.queue and not self._running()

    def bound(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        if current.value is not None:
            raise errors.error("RD20", "ClusterCoordinator.schedule inside `interleaving`", "the workers are "
                               "processes, and nothing decides when they go on",
                               "Start the program alone; then its workers are simulated.")
        return self._fleet.outgoing.call(fn, args, kwargs)

    def per_worker_dataset(self, given: object) -> SharedDataset:
        dataset = SharedDataset(given)
        if not callable(given):
            dataset._made(0)  # raises the error of what is no dataset
        self._fleet.outgoing.number_of(dataset)
        return dataset

    def wait(self, ready: Callable[[], bool], attempted: str) -> None:
        self.waiting.require_not_interrupted(attempted)
        self._fleet.wait(ready, attempted, self.backlog)

    def step(self) -> None:
        self.waiting.require_not_interrupted("ClusterCoordinator.done")
        self.waiting.step(self._fleet.go_on, _STEP)

    def scheduled(self) -> None:
        self._fleet.look()

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._fleet.there if worker.closure is not None and worker.owner is self]

    def _stop_all(self) -> None:
        with self.waiting.lock:
            stopped = []
            for worker in self._running():
                assert worker.closure is not None
                worker.closure.fate = CANCELLED
                stopped.append(worker.closure)
                with contextlib.suppress(Gone):  # its other channel reports this, too
                    worker.control.send(pickle.dumps(worker.sent))
        self._fleet.wake()  # some may wait for functions that were dropped
        # A list: an interrupt that comes where a generator ends is swallowed.
        self.waiting.until(lambda: not [closure for closure in stopped if not closure.done],
                           functools.partial(self._fleet.go_on, _LOOK))

    # --- What has become of functions ---

    def ended(self, closure: Closure, worker: int, what: str, result: object) -> None:
        """A worker says what came of a function."""
        if what == DONE:
            closure.finish(result, None)
        elif what == STOPPED:
            closure.cancel(f"it was stopped on worker {worker}, because another function failed")
        else:
            assert isinstance(result, BaseException)
            self._failed(closure, worker, result)

    def lost(self, closure: Closure, worker: int, returns: int) -> None:
        """The worker is lost that carried out a function; each comes back at most so many times."""
        if closure.losses < returns or returns == 0:
            self._again(closure)
        else:
            self._failed(closure, worker, errors.error(
                "RD33", f"function {closure.name}", f"{closure.losses + 1} workers were lost one after another while "
                "they carried it out", "Look at what it does that ends its process, or takes its memory."))


_fleet: Field[Fleet | None] = Field("the workers of this process's job", lambda: None, kept=True)


def _unpacked(answer: bytes) -> tuple[str, object]:
    # An object that can be pickled may still fail to be unpickled.
    try:
        what, result = pickle.loads(answer)
    except Exception as error:
        if not fails_again(pickle.loads, answer):
            raise
        return FAILED, error
    return what, result
