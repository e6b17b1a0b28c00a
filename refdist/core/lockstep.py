"""Lock step: runs one function once per replica, one replica at a time, and carries out their collective calls.

A replica runs until it returns or hands over a `CollectiveCall`, and then the next one runs.  When all have handed one
over, which is a rendezvous, the calls are compared (`agreement`) and executed once, and every replica continues with
its part of the answer.  Where some have returned, or one raised or made another call, that is an error at once and
never a wait.  Lock step does not know what a call does.

Replicas are greenlets, so a switch costs a fraction of a microsecond and runs repeat exactly.  They are parked after
a run and used again, because a new greenlet costs 10 microseconds: CPython maps fresh memory for its Python frames.
What thousands of waiting replicas cost is mostly the garbage collector's: each of them should keep as few objects
alive as possible.

State.  A replica is one object, a `Unit`: a greenlet, whose context is a copy of the one in which `run` was called
(`inherited`) and is dropped when it is parked.  What is set around `run` holds in every replica, and what a replica
sets is its own and ends with it.  What is not kept in contexts is saved and restored when replicas take turns
(`states`); `run` is given it, and does not know what it is.  The calls of all replicas at a rendezvous are one call,
which is carried out in a copy of replica 0's context, on a context stack that `run` is given.

Stacks.  A greenlet keeps only its own part of the C stack.  While it runs, what lies above that part belongs to the
code that switched to it last.  Code that walks up the stack (NumPy, for every temporary array of 256 KiB or more; the
backtrace in an error of PyTorch; a profiler) leaves the greenlet's part after a few frames and reads on there: in a
replica parked by one run and resumed by another, which may be elsewhere on the stack, that ended the process.  So a
replica is resumed only from the address it was started from: there, the frames above its own are those of the run that
resumes it, down to the bottom of the thread's stack.  Five rules make it so:

* Replicas are parked by place.  Each place has a probe, a greenlet started at the same address, which reports how many
  bytes of the scheduler's stack were moved to make room for it: the distance between the two, and the same number again
  exactly when the scheduler is where it was.
* A replica that starts a run of its own looks only at places inside its own part of the stack (`Unit.inside`).  A
  greenlet that lies further out would be laid over frames of the outer scheduler, which come back only when that
  scheduler runs again.
* Within a run all switches are made from the one frame of `run`, so they are made from one address.
* A greenlet that is let go is ended at once.  The garbage collector would enter it once more to end it, at any moment.
* A waiting replica is unwound by a switch too, after which `rendezvous` raises, and not by `greenlet.throw`, which
  comes through other C functions.

One case is left: Python 3.11 makes traced calls through one more C function, so where a debugger or a trace function is
started inside a replica, the address moves for the rest of that run.  From 3.12 on it does not.

Tried before: filling each greenlet's own part with harmless frames.  It protects from NumPy, which looks at ten frames,
and not from PyTorch, which looks at 64, and every frame is copied at every switch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from sys import modules
from types import FrameType, TracebackType
from typing import Any

import greenlet as greenlets
from greenlet import GreenletExit, getcurrent, greenlet

from refdist import errors, journal
from refdist.core import call_site, checks, context_stack, history, inherited, jax, turns
from refdist.core.agreement import CollectiveCall, compare, grouped, mismatch, names
from refdist.core.rules.calls import Difference
from refdist.core.states import States

Meets = Callable[[Sequence[CollectiveCall], Sequence[FrameType | None]], None]
"""Called with the call of each replica, and its innermost frame."""


class ReplicaStopped(BaseException):
    """Unwinds a waiting replica after another one failed; not an Exception, so that it is not swallowed."""


class LockstepRun:
    """One run in progress: where to switch to, what came out so far, and whether it was stopped.

    Attributes:
        states: what each of those that run has of its own beside its context.
        around: what the code that called `run` had of it, with which they begin.
        left: what the one has that waits since a moment ago; None where something else has run since.
        frame: the context stack on which calls are carried out.
        first: the number of the first replica that runs here.
        unit_name: what messages call those that run.
        compared: whether lock step compares their calls, as it does those of replicas.
        event, rendezvous: where it is recorded, its event, and the number of the rendezvous that replicas come to.
        unwound, refusals: the waiting replica that is being ended, and how many calls it has made meanwhile.
    """

    __slots__ = ("around", "compared", "error", "event", "first", "frame", "left", "refusals", "rendezvous", "results",
                 "scheduler", "states", "stopped", "unit_name", "unwound")

    def __init__(self, scheduler: greenlet, count: int, frame: context_stack.Frame, states: States, first: int,
                 unit_name: str, compared: bool) -> None:
        self.scheduler = scheduler
        self.states = states
        self.around = self.left = None if states.idle == len(modules) else states.save(None)
        self.frame = frame
        self.first = first
        self.compared = compared
        self.unit_name = unit_name
        self.results: list[Any] = [None] * count
        self.error: BaseException | None = None
        self.stopped = False
        self.event: Any = None
        self.rendezvous = 0
        self.unwound: greenlet | None = None
        self.refusals = 0


class Unit(greenlet):
    """What runs in lock step: a replica or a simulated worker.

    Attributes:
        inside: the places of runs that it starts.
    """

    __slots__ = ("inside",)

    def __init__(self, inside: list[_Place]) -> None:
        super().__init__(_carry_on)
        self.inside = inside


class _Place:
    """Parked replicas that were started from one address of the C stack (see "Stacks" above).

    Attributes:
        probe, distance: tell whether a scheduler is at that address.
        inside: places of runs inside these replicas.
        runs: how many runs are using it.
    """

    __slots__ = ("distance", "inside", "parked", "probe", "runs")

    def __init__(self, probe: greenlet, distance: int) -> None:
        self.probe = probe
        self.distance = distance
        self.parked: list[Unit] = []
        self.inside: list[_Place] = []
        self.runs = 0

    def end(self) -> None:
        """Ends its greenlets, those inside first."""
        for place in self.inside:
            place.end()
        for ended in (*self.parked, self.probe):
            ended.parent = getcurrent()
            ended.throw(GreenletExit)


class _Thread(threading.local):
    """The places of runs outside any replica, the one used last first."""

    def __init__(self) -> None:
        self.places: list[_Place] = []


_thread = _Thread()
_PLACES = 8
# Calls after which a replica that is to end is given up: `while True: try: ... except BaseException` makes them without
# end, and a program that tidies up in several `finally` blocks makes a few.
REFUSALS = 1000


def rendezvous(run: LockstepRun | None, call: CollectiveCall) -> Any:
    """Hands a call over and waits until all replicas have; called inside a replica.

    Args:
        run: the run in progress, None for a replica that is alone.
        call: the collective call with this replica's contribution; the replicas' calls are compared.

    Returns:
        This replica's part of the result.

    Raises:
        RD09: JAX compiles the function that makes it.
        RD22: the run has already been stopped.
    """
    if "jax" in modules:
        jax.refuse_in_compiled(call)
    sink = journal.recording.value
    if run is None:
        return call.execute([call])[0] if sink is None else _alone(sink, call)
    if run.stopped:
        if run.unwound is getcurrent():
            run.refusals += 1
            if run.refusals > REFUSALS:
                run.scheduler.switch(call)  # and never comes back
        raise errors.error("RD22", call.kind, "the call was made after the run had been stopped")
    # Workers meet with a call of their own, which their transport records.
    met = None if sink is None or not run.compared else sink.meet(run, call)
    states = run.states
    saved = run.left = None if states.idle == len(modules) else states.save(call)
    try:
        answer = run.scheduler.switch(call)
    except greenlets.error:
        run.left = None
        raise errors.error("RD09", str(call), f"it was made {context_stack.describe()} by another thread, which has a "
                           "copy of the replica's context variables", "Make the call in the replica itself.") from None
    if states.idle != len(modules):
        states.restore(saved, run.left)
    if run.stopped:
        raise ReplicaStopped
    if met is not None and sink is not None:
        sink.receive(met, answer)
    return answer


def _alone(sink: journal.Sink, call: CollectiveCall) -> Any:
    met = sink.meet(None, call)
    [answer] = _observed(sink, None, [call])
    sink.receive(met, answer)
    return answer


def _observed(sink: journal.Sink, run: LockstepRun | None, calls: list[CollectiveCall]) -> Sequence[Any]:
    begun = sink.combine(run, calls)
    try:
        answers = calls[0].execute(calls)
    except BaseException as error:
        sink.combined(run, begun, error)
        raise
    sink.combined(run, begun)
    return answers


def _carry_out(run: LockstepRun, calls: list[CollectiveCall]) -> Sequence[Any]:
    # In a context of its own.
    context_stack.top.set(run.frame)
    call_site.meeting.set(calls[0].call_site)
    sink = journal.recording.value if run.compared else None
    return calls[0].execute(calls) if sink is None else _observed(sink, run, calls)


def run(count: int, body: Callable[[int, LockstepRun], object], order: Iterable[int], what: str,
        frame: context_stack.Frame, states: States, first: int = 0, unit_name: str = "replica",
        compared: bool = True, meets: Meets | None = None) -> list[Any]:
    """Runs `body(replica, run)` for every replica in lock step and returns the results.

    Args:
        count: the number of replicas.
        body: what a replica does; it may call `rendezvous`.
        order: a permutation of range(count), the order in which replicas are resumed; iterated anew after each
            rendezvous.
        what: the call, for messages, for example "strategy.run of train_step".
        frame: the context stack on which their calls are carried out.
        states: what each has of its own beside its context; the caller has its own again afterwards.
        first: the number of the first replica, where others run on other workers.
        unit_name: what messages call those that run.
        compared: False where `execute` compares the calls itself.
        meets: called when all replicas have come to a rendezvous.

    Raises:
        RD01: some replicas were at a rendezvous when others had returned.
        RD02 ... RD06, RD21: the replicas made different calls.
        Whatever a replica raised first, with a note that says which one.
    """
    scheduler = getcurrent()
    known = True
    if scheduler.parent is None:
        places = _thread.places
    elif type(scheduler) is Unit:
        places = scheduler.inside
    else:  # a greenlet of another library, whose place on the stack is unknown
        places, known = [], False
    for place in places:  # nearly always the first
        if place.probe.switch(scheduler) == place.distance:
            break
    else:
        probe = greenlet(_probe)
        probe.switch(scheduler)
        place = _Place(probe, probe.switch(scheduler))
        unused = [other for other in places if not other.runs]
        for old in unused[_PLACES - 1:]:
            places.remove(old)
            old.end()
    if not places or places[0] is not place:
        places[:] = [place, *(other for other in places if other is not place)]
    parked = place.parked
    replicas: list[Any] = [None] * count
    calls: list[Any] = [None] * count
    together = f"{count} replicas"
    own_context = inherited.contexts()
    waiting = 0
    watched = turns.Turns() if compared and checks.watch.value else None
    current = LockstepRun(scheduler, count, frame, states, first, unit_name, compared)
    place.runs += 1
    try:
        for i in order:
            if parked:
                replica = parked.pop()
            else:
                replica = Unit(place.inside)
                # A greenlet keeps the arguments that it is started with alive, so it is started without a job.
                replica.switch(None)
            replicas[i] = replica
            replica.gr_context = own_context()
            calls[i] = call = replica.switch((current, body, i))
            if call is not None:
                waiting += 1
            else:
                replica.gr_context = replicas[i] = None
                parked.append(replica)
                if current.error is not None:
                    raise _noted(current, i, what)
        while waiting:
            current.left = None
            if waiting != count:
                raise _missing(calls, what, current).with_traceback(_place_of_first(replicas, calls))
            if compared:
                compare(calls, first, unit_name)
                call = calls[0]
                journal.history.value.append((together, call.kind, call.signature, call.call_site))
                if watched is not None:
                    watched.look(calls, (replica.gr_frame for replica in replicas), first)
            if meets is not None:
                meets(calls, [replica.gr_frame for replica in replicas])
            waiting = 0
            answers = replicas[0].gr_context.copy().run(_carry_out, current, calls)
            following: list[Any] = [None] * count
            for i in order:
                replica = replicas[i]
                following[i] = call = replica.switch(answers[i])
                if call is not None:
                    waiting += 1
                else:
                    replica.gr_context = replicas[i] = None
                    parked.append(replica)
                    if current.error is not None:
                        raise _noted(current, i, what)
            calls = following
        return current.results
    except BaseException as error:
        if isinstance(error, errors.RefdistError):
            history.explained(error, _last(calls, current) if waiting else ())
        current.stopped = True
        for number, replica in enumerate(replicas, first):
            if replica is not None:
                current.unwound, current.refusals = replica, 0
                # Not by `throw`, which enters a greenlet through other C functions than `switch`.
                call = replica.switch(None)
                if call is not None:
                    _give_up(replica)
                    error.add_note(f"{unit_name} {number} caught what ends it {REFUSALS} times, last at {call}, and "
                                   "was left there; catch `Exception` and not `BaseException`")
                    continue
                replica.gr_context = None
                parked.append(replica)
        current.unwound = None
        raise
    finally:
        current.stopped = True  # seen by code that runs with a copy of a replica's context variables
        if states.idle != len(modules):
            states.restore(current.around, None)
        place.runs -= 1
        if not known:
            place.end()


def _give_up(replica: greenlet) -> None:
    # It is never resumed, and never ended: it would catch GreenletExit, too.  So one reference is left over; a list of
    # such replicas would be emptied at the end of the process, which would then hang.
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(replica))


def _missing(calls: Sequence[CollectiveCall | None], what: str, run: LockstepRun) -> errors.RefdistError:
    gone = [i for i, call in enumerate(calls, run.first) if call is None]
    here = grouped([None if call is None else f"at {call}" for call in calls], run.first, run.unit_name)
    kind = next(call.kind for call in calls if call is not None)
    missing = f"{here}, but {names(gone, run.unit_name)} already returned"
    return mismatch(Difference.MISSING, kind, what, missing, run.unit_name)


def _place_of_first(replicas: Sequence[Any], calls: Sequence[object]) -> TracebackType | None:
    # The frames of the first replica that waits, so that a printed traceback ends at its call.
    waiting = next(replica for replica, call in zip(replicas, calls, strict=True) if call is not None)
    frame = waiting.gr_frame
    trace: TracebackType | None = None
    while frame is not None:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return trace


def _last(calls: Sequence[CollectiveCall | None], run: LockstepRun) -> list[history.Rendezvous]:
    # The calls that replicas came to without meeting.
    arrivals = [None if call is None else history.of("", call.kind, call.signature, call.call_site) for call in calls]
    return [call._replace(who=names([i for i, other in enumerate(arrivals, run.first) if other == call], run.unit_name))
            for call in dict.fromkeys(arrivals) if call is not None]


def _noted(run: LockstepRun, i: int, what: str) -> BaseException:
    error = run.error
    assert error is not None
    note = f"raised in {run.unit_name} {run.first + i} of {len(run.results)} during {what}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


def _probe(scheduler: Any) -> None:
    while True:
        scheduler = scheduler.switch(scheduler._stack_saved)


def _carry_on(_: None) -> None:
    scheduler: Any = getcurrent().parent
    while True:
        run, body, i = scheduler.switch(None)
        try:
            if run.states.idle != len(modules):
                run.states.begin(run.around, run.left)
            run.results[i] = body(i, run)
        except GreenletExit:
            raise
        except BaseException as error:
            run.error = run.error or error
        run.left = None
        scheduler = run.scheduler
        # A parked replica must not keep the arrays of its last run alive.
        del run, body


call_site.end_at(_carry_on.__code__)
call_site.carry_out_in(_carry_out.__code__)
