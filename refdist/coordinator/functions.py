"""The queue of a coordinator: the functions that wait for a worker, and the error that it raises next.

Subclasses carry the functions out, on simulated workers (`cluster`) or in processes (`processes`).  For both:

There is one queue.  A worker takes the function that waits longest, carries it out, and takes the next; so a worker has
one function at a time, functions begin in the order in which they were scheduled, and end in any.

The first error of a function is kept, and the others go on, until the coordinator calls `schedule`, `join` or `done`:
that call stops what runs, drops what waits, forgets the error and raises it.  A lost worker is not an error: its
function goes to the end of the queue, and begins again; what it wrote stays written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from refdist import errors, journal
from refdist.coordinator.closures import CANCELLED, Closure
from refdist.coordinator.waiting import Waiting
from refdist.core.call_site import Site

if TYPE_CHECKING:
    from refdist.coordinator.values import PerWorkerDataset


class Functions(ABC):
    """The queue of one coordinator, and its workers.

    Attributes:
        workers: how many there were at the start.
        waiting: the threads of the program that wait for functions.
        queue: the functions that wait.
        count: how many were scheduled.
        error: the first one of a function, until it is raised.
        given_up: those of functions that could not be stopped, until an error that is raised has them as notes.
    """

    def __init__(self, workers: int, waiting: Waiting) -> None:
        self.workers = workers
        self.waiting = waiting
        self.queue: deque[Closure] = deque()
        self.count = 0
        self.error: BaseException | None = None
        self.given_up: list[errors.RefdistError] = []

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether all functions have ended."""

    @abstractmethod
    def bound(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
              ) -> Callable[[int], object] | bytes:
        """Prepares a call to be sent to a worker; later changes of the arrays among its arguments have no effect."""

    @abstractmethod
    def per_worker_dataset(self, given: object) -> PerWorkerDataset:
        """A dataset for each worker.

        Raises:
            RD25: not a dataset, nor a function that returns one.
        """

    @abstractmethod
    def wait(self, ready: Callable[[], bool], attempted: str) -> None:
        """Lets functions run until `ready()`.

        Raises:
            RD33: no worker is left.
        """

    def wait_for_all(self, attempted: str) -> None:
        """Lets functions run until all have ended.

        Raises:
            The first error of a function.  RD33: no worker is left.
        """
        # In this order: the last function may fail between the two.  Another thread may raise its error first.
        while not self.idle or self.error is not None:
            self.wait(lambda: self.error is not None or self.idle, attempted)
            self.raise_error()

    def check(self, attempted: str) -> None:  # noqa: B027 - functions in processes go on after an interrupt
        """Whether functions can still run.

        Raises:
            RD32: the program was interrupted while one ran.
        """

    @abstractmethod
    def step(self) -> None:
        """Carries out one step of a function, if any can go on."""

    def scheduling(self) -> None:  # noqa: B027 - only simulated workers let others go on here
        """Called before there is one more function in the queue."""

    def add(self, closure: Closure, site: Site | None) -> None:
        """Puts a function at the end of the queue, and gives it its number."""
        with self.waiting.lock:
            closure.number = self.count = self.count + 1
            if journal.recording.value is not None:
                journal.recording.value.write("schedule", function=closure.name, scheduled=closure.number, site=site)
            self.queue.append(closure)

    @abstractmethod
    def scheduled(self) -> None:
        """Called when there is one more function in the queue."""

    @abstractmethod
    def _stop_all(self) -> None:
        """Stops the functions that run, and waits until none does."""

    def backlog(self) -> str:
        """How many functions wait for a worker, for messages."""
        return f"{errors.counted(len(self.queue), 'function')} wait{'s' if len(self.queue) == 1 else ''} for one"

    def raise_error(self) -> None:
        """Stops and drops all functions, and then raises the error that one of them has raised, if there is one.

        A signal handler that interrupts a call of the coordinator leaves this to that call, or to the next one.

        Raises:
            The first error of a function since the last call.
        """
        if self.error is not None and not self.waiting.is_interrupted():
            self._raise_error()

    def _raise_error(self) -> None:
        error: BaseException | None = None
        try:
            with self.waiting.lock:
                error, self.error = self.error, None
                if error is None:
                    return
                while self.queue:
                    self.queue[0].cancel("it was dropped before it began, because another function failed")
                    self.queue.popleft()
            self._stop_all()
            for other in self.given_up:
                if other is not error:
                    error.add_note(str(other))
            self.given_up = []
        except BaseException:  # an interrupt: the next call does what is left, and raises the error
            if error is not None:
                self.error = error
            raise
        raise error

    def _failed(self, closure: Closure, worker: int, error: BaseException) -> None:
        if isinstance(error, StopIteration):
            ended = errors.error("RD29", f"function {closure.name} on worker {worker}",
                                 "there are no more elements in the dataset that it reads")
            ended.__cause__ = error
            error = ended
        errors.explain_read_only(error)
        error.add_note(f"raised on worker {worker} of {self.workers} in {closure}")
        if closure.fate != CANCELLED:
            self.error = self.error or error
        closure.finish(None, error)

    def _again(self, closure: Closure) -> None:
        if self.error is not None or closure.fate == CANCELLED:
            closure.cancel("its worker was lost after another function had failed")
            return
        closure.fate, closure.returns, closure.refusals = "", False, 0
        closure.losses += 1
        self.queue += [closure]
