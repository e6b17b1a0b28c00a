"""Runs one function once per replica, one at a time, and lets all replicas meet.

A replica runs until it finishes or hands over a `Request`; when all have come, the requests are compared
and carried out once, and every replica goes on with its part of the answer.  A replica that finished,
raised, or came with another request is an error at once, never a wait.  What the replicas say to each
other is not known here.  Replicas are greenlets, parked for reuse, so a switch costs a fraction of a
microsecond and runs repeat exactly.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from refdist import current, errors, journal

# What a request says about itself, in the order in which differences are reported, with the code of each.
FIELDS = (("target", "RD02"), ("reduce op", "RD03"), ("axis", "RD03"), ("structure", "RD21"),
          ("dtype", "RD05"), ("shape", "RD04"))

_PACKAGE = __name__.partition(".")[0]
_ROOT = "root"
# By the id of a code object, because hashing one costs more than everything else here; with the object itself, so
# that its id stays its own.
_ours: dict[int, tuple[bool | str, CodeType]] = {}


def _nothing(requests: list[Request]) -> Sequence[Any]:
    raise errors.InternalError("this request only says what is compared")


class Request:
    """What a replica brings to a meeting.

    Attributes:
        kind: the call, for example "all_reduce".
        signature: (target, reduce op, axis, structure, dtypes, shapes); equal on all replicas.
        payload: whatever `act` needs.
        act: called once, with the requests of all replicas in replica order; returns one answer each.
        site: (code, instruction) of every frame of the user's program, innermost first.
    """

    __slots__ = ("act", "kind", "payload", "signature", "site")

    def __init__(self, kind: str, signature: tuple[Any, ...], payload: Any = None,
                 act: Callable[[list[Request]], Sequence[Any]] = _nothing, site: tuple[Any, ...] | None = None) -> None:
        self.kind = kind
        self.signature = signature
        self.payload = payload
        self.act = act
        self.site = _site(sys._getframe(1)) if site is None else site

    @property
    def line(self) -> str:
        """The place of the call as "file:line"."""
        return place(self.site[0]) if self.site else "an unknown line"


def place(entry: Any) -> str:
    """An entry of a site as "file:line"; one from another process is a text, with the instruction behind an @."""
    if isinstance(entry, str):
        return entry.rpartition("@")[0]
    code, instruction = entry
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


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


class _Pool(threading.local):
    def __init__(self) -> None:
        self.parked: list[greenlet] = []


_pool = _Pool()


def _site(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    # The whole chain, because a helper that wraps a collective is one line called from several places.
    site: list[tuple[CodeType, int]] = []
    known = _ours
    while frame is not None:
        code = frame.f_code
        entry = known.get(id(code))
        if entry is None:
            name = frame.f_globals.get("__name__", "")
            entry = known[id(code)] = name == _PACKAGE or name.startswith(_PACKAGE + "."), code
        ours = entry[0]
        if ours is _ROOT:
            break
        if not ours:
            site.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(site)


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
        raise errors.error("RD22", request.kind, f"{request.line} met again after the run was stopped")
    state = current.state
    mine = state.top
    if journal.active is not None:
        replica = None if mine.replica is None else mine.replica.replica_id_in_sync_group
        journal.write("meet", replica, request.kind, _nbytes(request.payload), request.line)
    switching = current.switching
    where = None if switching is None else switching.leave()
    try:
        return session.hub.switch(request)
    finally:
        state.top = mine
        if switching is not None:
            switching.enter(where)


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
    # Below the replica's own function there is nothing that a user wrote.
    _ours[id(body.__code__)] = _ROOT, body.__code__
    session = Session(getcurrent(), count, first, noun)
    state = current.state
    top = state.top
    parked = _pool.parked
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
            if waiting != count:
                raise _missing(requests, what, session)
            if compared:
                compare(requests, first, noun)
            answers = requests[0].act(requests)
            waiting = 0
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
        for replica in replicas:
            if replica is not None:
                _stop(replica)
        raise
    finally:
        state.top = top


def compare(requests: Sequence[Any], number: int = 0, noun: str = "replica") -> None:
    """Raises unless all replicas brought the same kind of request, with the same signature and site.

    Raises:
        RD02: kinds or targets differ.  RD03: reduce op or axis.  RD04: shape.  RD05: dtype.
        RD06: the same call at another source line.  RD21: structure.
    """
    first = requests[0]
    kind, signature, site = first.kind, first.signature, first.site
    for i, other in enumerate(requests):
        if other.site != site or other.kind != kind or other.signature != signature:
            raise _difference(first, other, f"{noun} {number}", f"{noun} {number + i}", noun)


def _difference(first: Any, other: Any, here: str, there: str, noun: str) -> errors.RefdistError:
    moved = first.site != other.site
    hint = (f" The {noun}s are at different places of the program, so the order of their calls probably "
            "differs." if moved else "")
    if first.kind != other.kind:
        found = f"{here} is at {first.kind} ({first.line}), {there} is at {other.kind} ({other.line})"
        return errors.error("RD02", f"meeting of all {noun}s", found)
    for (field, code), mine, theirs in zip(FIELDS, first.signature, other.signature, strict=False):
        if mine != theirs:
            code = "RD07" if field == "shape" and first.kind.endswith("gather") else code
            found = (f"{here} has {field} {shown(mine)} ({first.line}), "
                     f"{there} has {field} {shown(theirs)} ({other.line})")
            return errors.error(code, first.kind, found, errors.CATALOGUE[code].fix + hint)
    found = f"{here} calls it at {_chain(first, other)}, {there} at {_chain(other, first)}"
    return errors.error("RD06", first.kind, found)


def shown(value: Any) -> str:
    """A field of a signature for messages."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    return str(getattr(value, "name", value))


def _chain(request: Any, other: Any) -> str:
    # The innermost lines can be equal when the calls go through one helper; then the callers tell them apart.
    for mine, theirs in zip(request.site, other.site, strict=False):
        if mine != theirs:
            return place(mine) if mine is request.site[0] else f"{request.line}, called from {place(mine)}"
    return str(request.line)


def _missing(requests: Sequence[Request | None], what: str, session: Session) -> errors.RefdistError:
    here = [i + session.first for i, request in enumerate(requests) if request is not None]
    gone = [i + session.first for i, request in enumerate(requests) if request is None]
    noun = session.noun
    places = sorted({f"{request.kind} ({request.line})" for request in requests if request is not None})
    return errors.error(
        "RD01", what, f"{names(here, noun)} at {' and '.join(places)}, but {names(gone, noun)} already returned")


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


def _stop(replica: greenlet) -> None:
    if replica.throw(ReplicaStopped) is not None:
        raise errors.InternalError("a stopped replica met again")
    _pool.parked.append(replica)


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
