"""Runs one function once per replica, one at a time, and lets all replicas meet.

A replica runs until it finishes or hands over a `Request`; when all have come, the requests are compared and carried
out once, and every replica goes on with its part of the answer.  A replica that finished, raised, or came with another
request is an error at once, never a wait.  What the replicas say to each other is not known here.

Replicas are greenlets, so a switch costs a fraction of a microsecond and runs repeat exactly.  They are parked after
a run and used again, because a new greenlet costs 10 microseconds: CPython maps fresh memory for its Python frames.

Stacks.  A greenlet keeps only its own part of the C stack.  While it runs, what lies above that part belongs to
whoever switched to it last.  Code that walks up the stack (NumPy, for every temporary array of 256 KiB or more; the
backtrace in an error of PyTorch; a profiler) leaves the greenlet's part after a few frames and reads on there: in a
replica parked by one run and resumed by another, which may stand elsewhere on the stack, that ended the process.  So a
replica is resumed only from the address it was started from: there, the frames above its own are those of the run that
resumes it, down to the bottom of the thread's stack.  Five rules make it so:

* Replicas are parked by place.  Each place has a probe, a greenlet started at the same address, which reports how many
  bytes of the hub's stack were moved to make room for it: the distance between the two, and the same number again
  exactly when the hub stands where it stood.
* A replica that starts a run of its own looks only at places inside its own part of the stack.  A greenlet that lies
  further out would be laid over frames of the outer hub, which come back only when that hub runs again.
* Within a run all switches are made from the one frame of `run`, so they are made from one address.
* A greenlet that is let go is ended at once.  The garbage collector would enter it once more to end it, at any moment.
* A waiting replica is unwound by a switch too, after which `meet` raises, and not by `greenlet.throw`, which comes
  through other C functions.

One case is left: Python 3.11 makes traced calls through one more C function, so where a debugger or a trace function is
started inside a replica, the address moves for the rest of that run.  From 3.12 on it does not.

Tried before: filling each greenlet's own part with harmless frames.  It protects from NumPy, which looks at ten frames,
and not from PyTorch, which looks at 64, and every frame is copied at every switch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from refdist import errors, journal
from refdist.core import call_site, context_stack

# What a request says about itself, in the order in which differences are reported, with the code of each.
FIELDS = (("target", "RD02"), ("reduce op", "RD03"), ("axis", "RD03"), ("structure", "RD21"),
          ("dtype", "RD05"), ("shape", "RD04"))
NOTHING_TO_COMPARE = (None,) * len(FIELDS)
_DTYPES = 4  # a tuple for a nest, as the shapes then are


def _nothing(requests: list[Request]) -> Sequence[Any]:
    raise errors.InternalError("this request only says what is compared")


class Request:
    """What a replica brings to a meeting.

    Attributes:
        kind: the call, for example "all_reduce".
        signature: (target, reduce op, axis, structure, dtypes, shapes); equal on all replicas.
        payload: whatever `act` needs.
        act: called once, with the requests of all replicas in replica order; returns one answer each.
        site: the places in the user's program that led to the call, innermost first.
    """

    __slots__ = ("act", "kind", "payload", "signature", "site")

    def __init__(self, kind: str, signature: tuple[Any, ...], payload: Any = None,
                 act: Callable[[list[Request]], Sequence[Any]] = _nothing, site: call_site.Site | None = None) -> None:
        self.kind = kind
        self.signature = signature
        self.payload = payload
        self.act = act
        self.site = call_site.of(sys._getframe(1)) if site is None else site

    @property
    def line(self) -> str:
        """The place of the call as "file:line", "" where it is not known."""
        return str(self.site[0]) if self.site else ""

    def __str__(self) -> str:
        return described(self.kind, self.line)


def described(kind: str, place: str) -> str:
    """A call and its place for messages: "all_reduce (a.py:3)"; the place is "" where no line is known."""
    return f"{kind} ({place})" if place else kind


class ReplicaStopped(BaseException):
    """Unwinds a waiting replica after another one failed; not an Exception, so that it is not swallowed."""


class Session:
    """One run in progress: where to switch to, what came out so far, and whether it was stopped.

    Attributes:
        first: the number of the first replica that runs here.
        noun: what messages call those that run.
    """

    __slots__ = ("error", "first", "hub", "noun", "results", "stopped")

    def __init__(self, hub: greenlet, count: int, first: int = 0, noun: str = "replica") -> None:
        self.first = first
        self.noun = noun
        self.hub = hub
        self.results: list[Any] = [None] * count
        self.error: BaseException | None = None
        self.stopped = False


class _Place:
    """Parked replicas that were started from one address of the C stack (see "Stacks" above).

    Attributes:
        probe, distance: tell whether a hub stands at that address.
        inside: places of runs inside these replicas.
        runs: how many runs are using it.
    """

    __slots__ = ("distance", "inside", "parked", "probe", "runs")

    def __init__(self, probe: greenlet, distance: int) -> None:
        self.probe = probe
        self.distance = distance
        self.parked: list[greenlet] = []
        self.inside: list[_Place] = []
        self.runs = 0

    def end(self) -> None:
        """Ends its greenlets, those inside first."""
        for place in self.inside:
            place.end()
        for one in (*self.parked, self.probe):
            one.parent = getcurrent()
            one.throw(GreenletExit)


class _Pool(threading.local):
    """The places of this thread, the one used last first.

    Attributes:
        outermost: those of runs outside every replica.
        places: those of the run that may be started now.
    """

    def __init__(self) -> None:
        self.outermost: list[_Place] = []
        self.places = self.outermost


_pool = _Pool()
_PLACES = 8


def meet(session: Session | None, request: Request) -> Any:
    """Hands a request over and waits for all replicas; called inside a replica.

    Args:
        session: the run in progress, None for a replica that is alone.

    Raises:
        RD22: the run has already been stopped.
    """
    if session is None:
        return request.act([request])[0]
    if session.stopped:
        raise errors.error("RD22", request.kind, f"{request} met again after the run was stopped")
    state = context_stack.state
    mine = state.top
    if journal.active is not None:
        replica = None if mine.replica is None else mine.replica.replica_id_in_sync_group
        journal.write("meet", replica, request.kind, _nbytes(request.payload), request.line)
    switching = context_stack.switching
    where = None if switching is None else switching.leave(request)
    answer = session.hub.switch(request)
    state.top = mine
    if switching is not None:
        switching.enter(where)
    if session.stopped:
        raise ReplicaStopped
    return answer


def run(count: int, body: Callable[[int, Session], Any], order: Sequence[int], what: str, first: int = 0,
        noun: str = "replica", compared: bool = True) -> list[Any]:
    """Runs `body(replica, session)` for every replica in lock step and returns the results.

    Args:
        count: the number of replicas.
        body: what a replica does; it may call `meet`.
        order: a permutation of range(count), the order in which replicas are resumed.
        what: the call, for messages, for example "strategy.run of train_step".
        first: the number of the first replica, where others run on other workers.
        noun: what messages call those that run.
        compared: False where `act` compares the requests itself.

    Raises:
        RD01: some replicas came to a meeting and others had returned.
        RD02 ... RD06, RD21: replicas met with different requests.
        Whatever a replica raised first, with a note that says which one.
    """
    call_site.end_at(body.__code__)
    hub = getcurrent()
    session = Session(hub, count, first, noun)
    state = context_stack.state
    top = state.top
    pool = _pool
    mine = places = pool.places
    if places is pool.outermost and hub.parent is not None:
        places = []  # another library's greenlet, of whose stack nothing is known
    for place in places:  # nearly always the first
        if place.probe.switch(hub) == place.distance:
            break
    else:
        probe = greenlet(_probe)
        probe.switch(hub)
        place = _Place(probe, probe.switch(hub))
        unused = [other for other in places if not other.runs]
        for old in unused[_PLACES - 1:]:
            places.remove(old)
            old.end()
    if not places or places[0] is not place:
        places[:] = [place, *(other for other in places if other is not place)]
    pool.places = place.inside
    place.runs += 1
    parked = place.parked
    replicas: list[Any] = [None] * count
    requests: list[Any] = [None] * count
    waiting = 0
    try:
        for i in order:
            replica = parked.pop() if parked else greenlet(_replica)
            replicas[i] = replica
            requests[i] = request = replica.switch((session, body, i))
            if request is not None:
                waiting += 1
            else:
                parked.append(replica)
                replicas[i] = None
                if session.error is not None:
                    raise _noted(session, i, what)
        while waiting:
            state.top = top
            pool.places = mine
            if waiting != count:
                raise _missing(requests, what, session)
            if compared:
                compare(requests, first, noun)
            answers = requests[0].act(requests)
            waiting = 0
            pool.places = place.inside
            met: list[Any] = [None] * count
            for i in order:
                met[i] = request = replicas[i].switch(answers[i])
                if request is not None:
                    waiting += 1
                else:
                    parked.append(replicas[i])
                    replicas[i] = None
                    if session.error is not None:
                        raise _noted(session, i, what)
            requests = met
        return session.results
    except BaseException:
        session.stopped = True
        pool.places = place.inside
        for replica in replicas:
            if replica is not None:
                # Not by `throw`, which enters a greenlet through other C functions than `switch`.
                if replica.switch(None) is not None:
                    raise errors.InternalError("a stopped replica met again") from None
                parked.append(replica)
        raise
    finally:
        state.top = top
        pool.places = mine
        place.runs -= 1
        if places is not mine:
            place.end()


def compare(requests: Sequence[Any], number: int = 0, noun: str = "replica") -> None:
    """Raises unless all replicas brought the same kind of request, with the same signature and site.

    Raises:
        RD02: kinds or targets differ.  RD03: reduce op or axis.  RD04: shape.  RD05: dtype.
        RD06: the same call at another source line.  RD21: structure.
    """
    first = requests[0]
    kind, signature, site = first.kind, first.signature, first.site
    for other in requests:
        if other.site != site or other.kind != kind or other.signature != signature:
            raise _difference(requests, number, noun)


def _difference(requests: Sequence[Any], number: int, noun: str) -> errors.RefdistError:
    # Different places come first: what else differs follows from them.
    kind = requests[0].kind
    sites = list(dict.fromkeys(request.site for request in requests))
    place_of = dict(zip(sites, call_site.tell_apart(sites), strict=True))
    places = [place_of[request.site] for request in requests]
    if any(request.kind != kind for request in requests):
        texts = [f"at {described(request.kind, place)}" for request, place in zip(requests, places, strict=True)]
        return _mismatch("RD02", f"meeting of all {noun}s", _grouped(texts, number, noun), noun)
    field, code, values = _first_field([request.signature for request in requests])
    if len(sites) > 1:
        found = _grouped([f"at {place}" for place in places], number, noun)
        if field:
            found += f"; the {field} differs too: {', '.join(dict.fromkeys(values))}"
        return _mismatch("RD06", kind, found, noun)
    code = "RD07" if field == "shape" and kind.endswith("gather") else code
    label = "" if field == "target" else f"{field} "
    found = _grouped([f"with {label}{value}" for value in values], number, noun)
    return _mismatch(code, described(kind, places[0]), found, noun)


def _mismatch(code: str, attempted: str, found: str, noun: str) -> errors.RefdistError:
    return errors.error(code, attempted, found, errors.CATALOGUE[code].fix.replace("replica", noun))


def _first_field(signatures: Sequence[tuple[Any, ...]]) -> tuple[str, str, list[str]]:
    # The first field that differs, its code, and its text for each request; "" where none does.
    for (field, code), values in zip(FIELDS, zip(*signatures, strict=True), strict=True):
        if any(value != values[0] for value in values):
            if field not in ("dtype", "shape") or not isinstance(signatures[0][_DTYPES], tuple):
                return field, code, [shown(value) for value in values]
            leaf, column = next((i, column) for i, column in enumerate(zip(*values, strict=True))
                                if any(value != column[0] for value in column))
            of = f" in leaf {leaf}" if len(values[0]) > 1 else ""
            return field, code, [f"{shown(value)}{of}" for value in column]
    return "", "", []


def shown(value: Any) -> str:
    """A field of a signature for messages."""
    return str(getattr(value, "name", value))


_GROUPS = 4


def _grouped(texts: Sequence[str | None], number: int, noun: str) -> str:
    # "replicas 0, 1 at a.py:9; replica 2 at a.py:10", from one text for each; None is left out.
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts, number):
        if text is not None:
            groups.setdefault(text, []).append(i)
    listed = [f"{names(numbers, noun)} {text}" for text, numbers in groups.items()]
    more = [f"and {len(listed) - _GROUPS} more groups"] if len(listed) > _GROUPS else []
    return "; ".join(listed[:_GROUPS] + more)


def _missing(requests: Sequence[Request | None], what: str, session: Session) -> errors.RefdistError:
    gone = [i for i, request in enumerate(requests, session.first) if request is None]
    here = _grouped([None if request is None else f"at {request}" for request in requests], session.first, session.noun)
    return _mismatch("RD01", what, f"{here}, but {names(gone, session.noun)} already returned", session.noun)


def names(numbers: Sequence[int], noun: str) -> str:
    """For messages: "replica 3", "workers 0, 2"."""
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"{noun} {listed}" if len(numbers) == 1 else f"{noun}s {listed}"


def _nbytes(payload: Any) -> int:
    # Workers bring a list of arrays for every result.
    return sum(map(_nbytes, payload)) if isinstance(payload, list) else getattr(payload, "nbytes", 0)


def _noted(session: Session, i: int, what: str) -> BaseException:
    error = session.error
    assert error is not None
    note = f"raised in {session.noun} {session.first + i} of {len(session.results)} by {what}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


def _probe(hub: Any) -> None:
    while True:
        hub = hub.switch(hub._stack_saved)


def _replica(job: tuple[Session, Callable[[int, Session], Any], int]) -> Any:
    while True:
        session, body, i = job
        try:
            session.results[i] = body(i, session)
        except GreenletExit:
            raise
        except BaseException as error:
            session.error = session.error or error
        hub = session.hub
        # A parked replica must not keep the arrays of its last run alive.
        del session, body, job
        job = hub.switch(None)
