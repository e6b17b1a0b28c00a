"""`Cluster`: the simulated workers of a coordinator, and what happens to their functions.

Exactly one strand (`strands`) runs at a time, either the program of the coordinator or one function, and at these
points another one may get the turn: before every access to a variable of the strategy (`pause`), when a function has
ended, and where the coordinator waits.  Who gets it is one of the choices (`choices`).

The coordinator runs until it waits: for one function (`fetch`), for all of them (`join`), or for room in the queue.
Nothing else makes functions go on unless the choices say so, and there are no clocks.  Where nothing could ever end the
wait, because no worker is left, it is an error.

A function is stopped at an access, by an exception that is not an `Exception`.  One that catches it and goes on is
stopped at its next access, and after `REFUSALS` of them it is given up: its thread waits for ever.  A strand that waits
for a variable to change, the coordinator too, would never let others go on.  After `PATIENCE` accesses in a row it is
tired: until a function ends, it comes after all that are not, and among those that are, in the order in which they got
tired.  So whatever it waits for gets its turn.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import NoReturn

from refdist import errors, nest
from refdist.coordinator import strands
from refdist.coordinator.choices import COORDINATOR, GO_ON, LOSE, TAKE, Option, current, disturbed
from refdist.coordinator.closures import CANCELLED, LOST, Closure, Fault, Stopped, Worker, carried_out
from refdist.coordinator.functions import Functions
from refdist.coordinator.strands import Job, Turn
from refdist.coordinator.values import PerWorkerDataset, PerWorkerValue, kept, per_worker_datasets
from refdist.coordinator.waiting import Waiting
from refdist.core import call_site, context_stack, devices, inherited
from refdist.strategies.parameter_server import ParameterServerExtended
from refdist.variables.served import Access, here

PATIENCE = 1000
# How often a function that was stopped may go on, each time to an access that ends it again, before it is left where it
# is.  One that tries each row of a batch, and lets no exception end it, comes to its end by itself.
REFUSALS = 1000


class _Mine(threading.local):
    closure: Closure | None = None


_mine = _Mine()


def _always() -> bool:
    return True


def _of_worker(value: PerWorkerValue, worker: int) -> object:
    disturbed("a function is given what belongs to its worker")
    return value._of(worker)


def _snapshot(scope: context_stack.Frame) -> inherited.Snapshot:
    context_stack.top.set(scope)
    return inherited.Snapshot()


class Bound:
    """A function with its arguments, called with the number of a worker.

    Attributes:
        fn, args, kwargs: the function and the arguments; arrays among these are its own.
        snapshot: the state that it begins with: that of the code that scheduled it, in the strategy's scope.
    """

    __slots__ = ("args", "fn", "kwargs", "snapshot")

    def __init__(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object],
                 scope: context_stack.Frame) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.snapshot = copy_context().run(_snapshot, scope)  # here nothing is pushed that an interrupt could leave

    def on(self, worker: int) -> Callable[[], object]:
        """The function of no arguments that a worker calls."""
        return functools.partial(self, worker) if self.args or self.kwargs else self.fn

    def __call__(self, worker: int) -> object:
        args, kwargs = nest.map_structure(
            lambda leaf: _of_worker(leaf, worker) if isinstance(leaf, PerWorkerValue) else leaf,
            [self.args, self.kwargs])
        return self.fn(*args, **kwargs)


class Cluster(Functions):
    """The simulated workers of one coordinator.

    Attributes:
        servers: how many parameter servers there are.
        ready: whether the coordinator can go on, asked while it waits.
    """

    def __init__(self, extended: ParameterServerExtended) -> None:
        super().__init__(extended.workers, Waiting())
        self.servers = len(extended.parameter_devices)
        self.ready: Callable[[], bool] = _always
        self._extended = extended
        self._workers = [Worker(i) for i in range(extended.workers)]
        self._rested = list(self._workers)  # idle workers, the one that has been idle longest first
        self._faults: list[Fault] = []
        self._turn = Turn(self._look)
        self._failure: BaseException | None = None
        self._in_a_row = 0
        self._tired: list[Option] = []
        self._interrupted = self._abandoned = False
        self._pauses: Callable[[Access | None], None] = functools.partial(self._pause, None)
        extended.pause = self.pause

    # --- Methods that the coordinator calls ---

    @property
    def idle(self) -> bool:
        if self.queue:  # nearly always, where it is asked after each function; this needs no lock
            return False
        with self.waiting.lock:
            return not self.queue and not any(worker.closure for worker in self._workers)

    def wait(self, ready: Callable[[], bool], attempted: str) -> None:
        self.waiting.require_not_interrupted(attempted)

        def go_on() -> None:
            self.check(attempted)
            if not self._let_others(ready):
                raise errors.error("RD33", attempted, f"no worker is left of {len(self._workers)}, and "
                                   f"{self.backlog()}",
                                   "Start a worker again with refdist.coordinator.restart_task.")

        self.waiting.until(ready, go_on)

    def wait_for_all(self, attempted: str) -> None:
        waits = not self.idle
        super().wait_for_all(attempted)
        if current.value is not None:
            current.value.ended(self, waits)

    def _raise_error(self) -> None:
        # Functions are stopped one at a time, by the thread that lets them go on.
        self.waiting.until(lambda: self.error is None, self._raise_it)

    def _raise_it(self) -> None:
        if current.value is not None:
            current.value.stops(self)
        super()._raise_error()

    def abandon(self) -> None:
        """Stops and drops all functions, because the program has ended."""
        if not self._interrupted:  # interrupted functions stop by themselves
            self.waiting.until(lambda: self._abandoned, self._abandon)

    def _abandon(self) -> None:
        if current.value is not None:
            current.value.stops(self)
        self._stop_all()
        self.queue.clear()
        self._abandoned = True

    def check(self, attempted: str) -> None:
        if self._interrupted:
            raise errors.error("RD32", attempted, "the program was interrupted while a function ran",
                               "Make the strategy and the coordinator again.")

    def step(self) -> None:
        self.waiting.require_not_interrupted("ClusterCoordinator.done")
        disturbed("the program asks `done()`, whose answer is no access")
        self.waiting.step(self._let_others, _always)

    def scheduling(self) -> None:
        if current.value is not None and current.value.queueing(self):
            self.waiting.lead(self._switch, None)

    def scheduled(self) -> None:
        self.pause()

    def _let_others(self, ready: Callable[[], bool]) -> bool:
        option = self._chosen(())
        if option is None:
            return False
        self.ready = ready
        self._hand_over(option, self._turn)
        return True

    def bound(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
              ) -> Callable[[int], object]:
        if args or kwargs:
            args, kwargs = nest.map_structure(kept, [args, kwargs])
        return Bound(fn, args, kwargs, self._extended._scope_frame(context_stack.frame()))

    def per_worker_dataset(self, given: object) -> PerWorkerDataset:
        return PerWorkerDataset(per_worker_datasets(given, self.workers), self._extended.lives)

    def _stop_all(self) -> None:
        for worker in self._workers:
            closure = worker.closure
            if closure is not None:
                self._stop(closure, CANCELLED)
                closure.cancel(f"it was stopped on worker {worker.number}, because another function failed")

    # --- Points where another strand may get the turn ---

    def pause(self, access: Access | None = None) -> None:
        """Called before an access to a variable, and (None) when something was scheduled."""
        closure = _mine.closure
        if closure is None:
            if self._interrupted:
                return
            if not self.waiting.lead(self._pauses, access):
                disturbed("a thread of the program's own makes accesses")
        elif closure.fate or self._interrupted:
            self._end(closure)
        else:
            self._pause(closure, access)

    def _pause(self, closure: Closure | None, access: Access | None) -> None:
        if self._faults and access is not None:
            self._count_down(closure, access.device)
        worker = None if closure is None else closure.worker
        if current.value is not None:
            current.value.visit(self, None if worker is None else worker.number, access)
        self._in_a_row += 1
        if current.value is not None or self._in_a_row >= PATIENCE:
            self._switch(closure)

    def _switch(self, closure: Closure | None) -> None:
        worker = None if closure is None else closure.worker
        first = Option(COORDINATOR) if worker is None else Option(GO_ON, worker.number)
        try:
            option = self._chosen((first,))
        except BaseException as error:  # raised by the scheduler, and none of the function's business
            if closure is None:
                raise
            self._failure = error
            option = Option(COORDINATOR)
        if closure is not None and closure.fate:
            self._end(closure)
        if option is None or option == first:
            return
        if closure is None:
            self.ready = _always
        self._hand_over(option, self._turn if closure is None else closure.turn)
        if closure is not None and closure.fate:
            self._end(closure)

    def _options(self, first: Sequence[Option]) -> list[Option]:
        options = list(first)
        coordinator = Option(COORDINATOR)
        if coordinator not in options and _mine.closure is not None and self.ready():
            options.append(coordinator)
        for worker in self._workers:
            if worker.closure is not None and Option(GO_ON, worker.number) not in first:
                options.append(Option(GO_ON, worker.number))
        if self.queue:
            options += [Option(TAKE, worker.number) for worker in self._rested]
        if options and self._in_a_row >= PATIENCE:
            self._in_a_row = 0
            self._tired = [*(option for option in self._tired if option != options[0]), options[0]]
        if self._tired:
            options.sort(key=lambda option: self._tired.index(option) + 1 if option in self._tired else 0)
        if options:
            options += [Option(LOSE, str(fault)) for fault in self._faults if self._may_strike(fault)]
        return options

    def _may_strike(self, fault: Fault) -> bool:
        if fault.left is not None or not fault.done:
            return fault.left is None
        closure = self._workers[fault.task[1]].closure
        return closure is not None and closure.returns

    def _chosen(self, first: Sequence[Option]) -> Option | None:
        while True:
            options = self._options(first)
            source = current.value
            number = source.choose(options, self) if source is not None and options else 0
            if not options or options[number].action != LOSE:
                return options[number] if options else None
            fault = next(fault for fault in self._faults if str(fault) == options[number].task)
            self.lose(fault.task, fault.returns)
            closure = _mine.closure
            if closure is not None and closure.fate:
                return None

    def _hand_over(self, option: Option, turn: Turn) -> None:
        self._in_a_row = 0
        self._wait(turn, functools.partial(self._give, option))
        failure = self._failure
        if failure is not None and turn is self._turn:
            self._failure = None
            raise failure

    def _look(self) -> None:
        """Shows the scheduler where the function is that has the turn; the others wait for it in code of refdist."""
        if current.value is not None and _mine.closure is None:
            frames = sys._current_frames()
            for closure in [worker.closure for worker in self._workers if worker.closure is not None]:
                frame = frames.get(closure.thread)
                if frame is not None and not call_site.is_ours(frame.f_globals.get("__name__", "")):
                    try:
                        current.value.runs(frame)
                    except BaseException:
                        self._interrupted = True  # before the function ends, so that no other one takes its place
                        strands.end(closure.thread, Stopped)
                        raise

    def _wait(self, turn: Turn, give: Callable[[], object]) -> None:
        """Gives the turn to another strand, and waits until it comes back."""
        try:
            give()
            turn.wait()
        except BaseException:  # KeyboardInterrupt, in the thread of the coordinator
            self._interrupted = True
            raise

    def _give(self, option: Option) -> None:
        if option.action == COORDINATOR:
            self._turn.give()
        elif option.action == GO_ON:
            closure = self._workers[int(option.task)].closure
            assert closure is not None
            closure.turn.give()
        else:
            strands.start(self._taken(int(option.task)))

    # --- Carrying out functions ---

    def _taken(self, number: int) -> Job:
        worker = self._workers[number]
        closure = self.queue[0]
        worker.closure, closure.worker = closure, worker  # before it leaves the queue, where `idle` looks first
        self.queue.popleft()
        self._rested.remove(worker)
        return functools.partial(self._carry_out, closure)

    def _carry_out(self, closure: Closure) -> Job | None:
        worker = closure.worker
        assert worker is not None and isinstance(closure.call, Bound)
        _mine.closure, here.worker = closure, worker.number
        closure.thread = threading.get_ident()
        call, number, snapshot = closure.call.on(worker.number), worker.number, closure.call.snapshot
        try:
            value = snapshot.call(carried_out, call, closure.name, closure.number, number)
            if not closure.fate:
                self._before_it_returns(closure)
            if not closure.fate:
                closure.finish(value, None)
        except Stopped:
            pass
        except BaseException as error:
            if not closure.fate:
                if current.value is not None:
                    current.value.failed(self)
                self._failed(closure, worker.number, error)
        try:
            return self._ended(closure)
        finally:
            _mine.closure = here.worker = None

    def _ended(self, closure: Closure) -> Job | None:
        """Frees the worker of a function that has ended, or was given up, and passes the turn on.

        Returns:
            The next function, if this thread is to carry it out; None if the turn went to another thread.
        """
        worker = closure.worker
        assert worker is not None
        self._tired.clear()
        with self.waiting.lock:
            worker.closure = closure.worker = None
            if worker.alive:
                self._rested.append(worker)
            if closure.fate == LOST:
                self._again(closure)
        self.waiting.changed()
        asker, closure.asker = closure.asker, None
        try:
            return self._next() if asker is None else asker.give()  # type: ignore[return-value]
        except BaseException as error:  # raised by the scheduler, or by what it chose
            self._failure = error
            self._turn.give()
            return None

    def _before_it_returns(self, closure: Closure) -> None:
        """The function has made its last access; where the choices say so, the coordinator never hears of it."""
        worker = closure.worker
        if worker is not None and current.value is not None and any(
                fault.done and fault.task == ("worker", worker.number) for fault in self._faults):
            closure.returns = True
            current.value.returning(self, worker.number)
            self._switch(closure)

    def _next(self) -> Job | None:
        if self._interrupted:
            return None  # the coordinator no longer waits
        option = self._chosen(())
        self._in_a_row = 0
        if option is not None and option.action == TAKE:
            return self._taken(int(option.task))
        closure = None if option is None or option.action == COORDINATOR else self._workers[int(option.task)].closure
        (self._turn if closure is None else closure.turn).give()
        return None

    # --- Losing tasks ---

    def stop(self, task: tuple[str, int], left: int | None) -> None:
        """Simulates the loss of a task after so many accesses, or, None, when the choices say so."""
        if left != 0 or not self.waiting.lead(self.lose, task):
            self.add_fault(task, left)

    def lose(self, task: tuple[str, int], returns: bool = False) -> None:
        """Simulates the loss of a task; if `returns`, the worker is started again at once, with a fresh state."""
        with self.waiting.lock:
            for fault in self._faults:
                fault.times -= fault.task == task
            self._faults = [fault for fault in self._faults if fault.times]
        kind, number = task
        if kind == "ps":
            self._extended.lost.add(number)
            return
        worker = self._workers[number]
        if not worker.alive:
            return
        worker.alive = returns
        self._extended.lives[number] += 1
        if worker in self._rested and not returns:
            self._rested.remove(worker)
        if worker.closure is not None:
            self._stop(worker.closure, LOST)

    def add_fault(self, task: tuple[str, int], left: int | None, returns: bool = False, done: bool = False,
                  times: int = 1) -> None:
        """The task will be lost after so many accesses, or when the choices say so, as `Fault` has it."""
        with self.waiting.lock:
            self._faults.append(Fault(task, left, returns, done, times))

    def restart(self, number: int) -> None:
        """Starts a lost worker again, with a fresh state."""
        worker = self._workers[number]
        with self.waiting.lock:
            if not worker.alive:
                worker.alive = True
                if worker.closure is None:
                    self._rested.append(worker)

    def _count_down(self, closure: Closure | None, device: str) -> None:
        ps = ("ps", devices.parse(device).task)
        worker = None if closure is None or closure.worker is None else ("worker", closure.worker.number)
        for fault in list(self._faults):
            if fault.left is not None and fault.task in (ps, worker):
                if fault.left <= 0:
                    self.lose(fault.task, fault.returns)
                fault.left -= 1
        if closure is not None and closure.fate:
            self._end(closure)

    def _end(self, closure: Closure) -> NoReturn:
        """Ends the function, which runs in this thread and was stopped, by an exception; or gives it up."""
        closure.refusals += 1
        if closure.refusals <= REFUSALS:
            raise Stopped
        worker = closure.worker
        assert worker is not None
        if not self._interrupted:
            site = call_site.that_led_here()
            given_up = errors.error(
                "RD22", f"function {closure} on worker {worker.number}", f"it was to end, and has caught the exception "
                f"that ends it {REFUSALS} times{f', last at {site[0]}' if site else ''}; its thread was left there",
                "Write `except Exception` around accesses to variables.")
            self.given_up.append(given_up)
            if current.value is not None:
                current.value.left(given_up)
            if closure.fate == LOST:
                self._failed(closure, worker.number, given_up)
                closure.fate = CANCELLED
            job = self._ended(closure)
            if job is not None:
                strands.start(job)
        while True:
            Turn().wait()

    def _stop(self, closure: Closure, fate: str) -> None:
        closure.fate = fate
        if closure is not _mine.closure:
            closure.asker = asker = Turn(self._look)
            self._wait(asker, closure.turn.give)
