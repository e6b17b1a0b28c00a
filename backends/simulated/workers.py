"""Workers simulated in one process: each runs the whole program, in lock step with the others.

Lock step is used twice.  The outer run has a unit for each worker, and a worker's `strategy.run` is a run inside it
with a unit for each of its replicas.  A collective between workers is a rendezvous of the outer run.  A worker that has
returned, raised, or made another call is therefore found at once, and nothing ever waits: there are no threads, and no
limit of time is needed.

Simulated workers stand in for processes, so they must not be able to tell the difference:

* A call that differs between workers is an error on each of them, and each may catch it and go on.  That is why calls
  are compared while the rendezvous is executed, and the error is an answer; compared by the run itself, it would end
  the run.  Every worker raises an exception of its own, because tracebacks of several workers in one object would mix.
* What differs from process to process is a worker's own: beside what each replica has, TF_CONFIG, the global random
  generators, and the fields of the process of which there is one for each worker.  It is a list, `states.PROCESS`.

What remains shared is what the process has once: imported modules and what a program keeps in them, files, the working
directory, the rest of the environment.  Results are shared on purpose.  A sum is taken once, over the arrays of all
workers, and every worker gets the same read-only array: memory does not grow with the number of workers, and copies of
a mirrored variable on several workers are one array until a program writes to them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from greenlet import getcurrent

from refdist import config, errors, journal
from refdist.array.backend import chosen
from refdist.array.convert import to_numpy
from refdist.array.float_errors import Noted, report
from refdist.array.types import Array
from refdist.core import agreement, context_stack, history, lockstep, warned
from refdist.core.agreement import CollectiveCall
from refdist.core.integers import as_integer
from refdist.core.states import MODES, PROCESS, State, States
from refdist.runtime import Field
from refdist.workers.connection import ConnectableTransport, Group
from refdist.workers.launcher import WORKER, Task, named, prefixed
from refdist.workers.transport import Columns, concatenated, on_every_worker, summed

T = TypeVar("T")
_ADVICE = ("Use MultiWorkerMirroredStrategy(), and `--replicas-per-worker N`, or `replicas_per_worker=N`, for N GPUs "
           "on each simulated worker, also for one.")


_running: Field[SimulatedWorker | None] = Field(
    "the worker that the program runs as; None outside `simulate_workers`", lambda: None, per_worker=True)


class _Warned:
    """What workers have warned of, until the others have come to the same rendezvous."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._by: dict[str, set[Task]] = {}

    def take(self, text: str) -> None:
        """Keeps what this worker warns of; what all have warned of is printed."""
        worker = _running.value
        assert worker is not None
        self._by.setdefault(text, set()).add(Task(WORKER, worker.rank))
        if len(self._by[text]) == self._workers:
            self._print(text)

    def tell(self) -> None:
        """Prints what is kept."""
        for text in list(self._by):
            self._print(text)

    def _print(self, text: str) -> None:
        sys.stderr.write(prefixed(named(self._by.pop(text)), text))


_warned: Field[_Warned] = Field("what simulated workers have warned of", lambda: _Warned(0))


class SimulatedWorker(ConnectableTransport):
    """One of several workers in this process."""

    def __init__(self, rank: int, size: int, session: lockstep.LockstepRun) -> None:
        self.rank = rank
        self.size = size
        self._session = session
        self._greenlet = getcurrent()
        cluster = {"worker": [f"worker{i}.simulated:2222" for i in range(size)]}
        self._config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})

    @classmethod
    def group(cls) -> Group | None:
        worker = _running.value
        return None if worker is None else Group(worker.rank, worker.size, "simulated workers")

    @classmethod
    def connect(cls, timeout: float | None) -> SimulatedWorker:
        assert _running.value is not None
        return _running.value

    def enter(self) -> None:
        """Makes this the worker that the program runs as, from the program's beginning."""
        _running.value, journal.worker.value = self, self.rank
        os.environ["TF_CONFIG"] = self._config

    def _rendezvous(self, call: CollectiveCall, contribution: object, combine: Callable[[list[Any]], T]) -> T:
        with journal.span("exchange", called=call, contributed=contribution):
            return self._met(call, contribution, combine)

    def _met(self, call: CollectiveCall, contribution: object, combine: Callable[[list[Any]], T]) -> T:
        if getcurrent() is not self._greenlet:
            # Its own scheduler waits for this replica, and cannot be left behind.
            raise errors.error("RD09", str(call), "it needs all workers, and it was made "
                               f"{context_stack.describe()}, which has replicas on this worker only",
                               "Make the call outside `run`, and pass its result to the replicas.")

        def answer(calls: list[CollectiveCall]) -> Sequence[Any]:
            try:
                agreement.compare(calls, unit_name="worker")
            except errors.RefdistError as error:
                return [(None, error, 0)] * len(calls)
            _warned.value.tell()
            with Noted() as noted:
                combined = combine([call.contribution for call in calls])
            return [(combined, None, noted.bits)] * len(calls)

        journal.history.value.append((f"worker {self.rank}", call.kind, call.signature, call.call_site))
        answered: tuple[T, errors.RefdistError | None, int] = lockstep.rendezvous(
            self._session, CollectiveCall(call.kind, call.signature, contribution, answer, call.call_site))
        combined, error, float_errors = answered
        if error is not None:
            raise history.explained(on_every_worker(type(error)(str(error), error.code)))
        report(float_errors, "add")
        return combined

    def all_gather_object(self, call: CollectiveCall, value: object) -> list[Any]:
        return self._rendezvous(call, value, list)

    def all_reduce(self, call: CollectiveCall, columns: Columns, ordered: bool = True) -> list[Any]:
        return self._rendezvous(call, _on_host(columns), summed)

    def all_gather(self, call: CollectiveCall, columns: Columns, axis: int) -> list[Any]:
        return self._rendezvous(call, _on_host(columns), lambda everyone: concatenated(everyone, axis))

    def broadcast(self, call: CollectiveCall, array: Array) -> Any:
        return self._rendezvous(call, to_numpy(array), lambda everyone: everyone[0])


def _on_host(columns: Columns) -> list[list[Any]]:
    """The arrays as NumPy's: between workers they travel through the memory of the host."""
    return [[to_numpy(part) for part in column] for column in columns]


def simulate_workers(fn: Callable[[], T], workers: int, replicas_per_worker: int | None = None) -> list[T]:
    """Calls `fn()` once for each of several workers, in lock step, in this process.

    Each finds its own TF_CONFIG, so `MultiWorkerMirroredStrategy()` in `fn` is a worker's strategy.

    Args:
        fn: the program of a worker.
        workers: how many there are.
        replicas_per_worker: how many simulated GPUs every worker has, beside its CPU.  None gives every worker the
            devices of this machine: those of REFDIST_DEVICES or `set_simulated_devices`, and where none are stated one
            CPU, and any other that the program names.

    Returns:
        What `fn` returned for each worker.

    >>> import refdist
    >>> def program():
    ...     strategy = refdist.MultiWorkerMirroredStrategy()
    ...     return strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    >>> [float(total) for total in simulate_workers(program, workers=3, replicas_per_worker=1)]
    [3.0, 3.0, 3.0]

    Raises:
        RD01 ... RD07: workers that make different calls, with the lines of both.  RD09: inside a scope or a replica.
        RD25, RD34: bad arguments.
        The first exception of a worker, with a note that says which one.

    Source: refdist's own; TensorFlow needs a process for each worker.
    """
    attempted = "simulate_workers"
    if not callable(fn):
        raise errors.error("RD25", attempted, f"fn is {fn!r}", "Pass a function without arguments.")
    workers = _at_least_one(workers, "workers", attempted)
    if replicas_per_worker is not None:
        replicas_per_worker = _at_least_one(replicas_per_worker, "replicas_per_worker", attempted)
    if _running.value is not None or context_stack.frame().kind != context_stack.OUTSIDE:
        raise errors.error("RD09", attempted, f"it was called {context_stack.describe()}",
                           "Call it outside any scope and any other simulation.")

    def body(i: int, session: lockstep.LockstepRun) -> T:
        context_stack.top.set(context_stack.BOTTOM)
        SimulatedWorker(i, workers, session).enter()
        with journal.span("program", workers=workers):
            return fn()

    _warned.value = _Warned(workers)
    leave = warned.hand_over(_warned.value.take)
    try:
        with (config.devices_kept() if replicas_per_worker is None
              else config.temporary_devices(gpu=replicas_per_worker, advice=_ADVICE)):
            return lockstep.run(workers, body, config.order(workers), attempted, context_stack.BOTTOM, _OF_A_WORKER,
                                unit_name="worker", compared=False)
    finally:
        leave()
        _warned.value.tell()


class _InThread(State):
    """The state of the thread that belongs to a worker: that of the backend in use, whichever it is then."""

    def save(self, call: CollectiveCall | None) -> tuple[State, Any] | None:
        state = None if chosen.value is None else chosen.value.thread_state()
        return None if state is None else (state, state.save(call))

    def begin(self, saved: tuple[State, Any] | None, now: object) -> None:
        if saved is not None:
            saved[0].begin(saved[1], None)

    def restore(self, saved: tuple[State, Any] | None, now: object) -> None:
        if saved is not None:
            saved[0].restore(saved[1], None)


_OF_A_WORKER = States((*MODES, *PROCESS), _InThread())


def _at_least_one(value: object, argument: str, attempted: str) -> int:
    number = as_integer(value)
    if number is None or number < 1:
        raise errors.error("RD34", attempted, f"{argument} is {value!r}", "Pass an int of 1 or more.")
    return number
