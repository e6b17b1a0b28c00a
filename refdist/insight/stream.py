"""`Stream`: the sink that gives events their numbers, their place and their time, and hands them to all that record.

There is one stream while anything is recorded, and each recording takes what passes: a `with refdist.record()` inside
another, or inside a program whose recording goes to a file, sees the same events.

What is handed on is as little as can be made of an event at once, because the program waits meanwhile: the objects of
the call that are not going to change, and of arrays what `summaries.taken` keeps.  `json_of` makes the event of it,
when it is written to a file or read.

Where an event belongs is found by what is open.  Each replica has a stack of what it has begun, and each worker one for
what concerns all its replicas; an event is part of the innermost entry of its own stack, or else of its worker's.
Replicas take turns, and each ends what it began, so the stacks need no more than that.  A program's threads do not take
turns: each has stacks of its own, and they count together.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_ident
from time import monotonic_ns
from typing import Any

from refdist import journal, notebook
from refdist.coordinator.closures import Stopped
from refdist.core import call_site, context_stack, devices
from refdist.core.lockstep import ReplicaStopped
from refdist.errors import RefdistError
from refdist.insight import summaries
from refdist.insight.events import ARRAYS, KINDS, JsonEvent

Site = call_site.Site
# What starts programs: Python, installed packages, and refdist's own commands, which may be in a checkout.
_STARTERS = ("<frozen ", *call_site.INSTALLED, f"{os.path.dirname(notebook.__file__)}{os.sep}")


# Where an event belongs: worker, replica, device, run, step and parent.  The events of a replica have one object in
# common, as long as nothing else begins.
Where = tuple[int, int | None, str, int, int, int | None]
# An event as it is handed on: id, kind, time and place, and then its fields: of the most frequent kinds one after
# another, without their names, and of others a dict.  A recording in memory has them all in one list, end to end, and
# drops the tuples, because Python's garbage collector looks at each new container, and at those that hold others again
# and again.  For the same reason a meet has the id of its site, which `_sites` keeps.
Raw = tuple[Any, ...]
_COMMON = 4
_NAMES = {
    "replica": ("function",), "meet": ("rendezvous", "call", "op", "axis", "site", "contributed"),
    "combine": ("rendezvous", "call", "replicas"), "receive": ("rendezvous", "of", "received"),
    "return": ("returned",), "end": ("of", "how"),
    "write": ("variable", "number", "copy", "copies", "site")}
_sites: dict[int, Site] = {}
Moves = Callable[[], Iterable[tuple[str, str, int]]]

_frame, _worker, _taken = context_stack.frame, journal.worker, summaries.taken
# id of a site -> (the site, kept so that no other one gets its id; its places).
Places = dict[int, tuple[tuple[object, ...], list[str]]]
# Kinds of events whose fields are completed before they are handed on.
_COMPLETED = {"run", "exchange", "reduce", "return", "variable", "write", "read", "schedule", "step"}


class _Counts:
    """The last number of each kind on one worker; `next_run()` and so on give each number to one thread only."""

    __slots__ = ("next_exchange", "next_rendezvous", "next_run", "next_step", "next_variable", "step")

    def __init__(self) -> None:
        self.step = 0
        self.next_run, self.next_step, self.next_rendezvous, self.next_exchange, self.next_variable = (
            itertools.count(1).__next__ for _ in range(5))


class _Worker:
    """The open events of one worker, in one of its threads.

    Attributes:
        run, rendezvous: the numbers of the last ones.
        site: of the call that is being carried out, where no function of the program is part of that.  Of each worker,
            because in the middle of a call the others go on.
    """

    __slots__ = ("all", "counts", "open", "rendezvous", "run", "site")

    def __init__(self, counts: _Counts) -> None:
        self.counts = counts
        self.site: Site | None = None
        self.run = self.rendezvous = 0
        self.all: list[int] = []
        self.open: dict[int | None, list[int]] = {None: self.all}


# What has begun: its number, where, and in which stack of which worker that is kept.
Begun = tuple[int, Where, list[int], _Worker]


class Stream:
    """Receives everything that happens; see `journal.Sink`.

    Attributes:
        takers: called with every event.
    """

    def __init__(self) -> None:
        self.give_to([])
        self._next_number = itertools.count().__next__
        self._counts: dict[int, _Counts] = {}
        self._workers: dict[tuple[int, int], _Worker] = {}
        # Where replicas are, by the frame that they began with.  What happens while they wait for a function of a
        # merge_call may begin runs and take steps, so this is forgotten when such a function, or the run, has ended.
        self._wheres: dict[context_stack.Frame, Where] = {}
        # id of a variable's first copy -> (reference that removes the entry with the copy, number of the variable).
        self._variables: dict[int, tuple[weakref.ref[Any], int]] = {}
        # id of an array that several replicas receive -> (the array, what is kept of it).
        self._known: summaries.Known = {}

    def give_to(self, takers: Sequence[Callable[[Raw], None]]) -> None:
        """From now on these are called with every event."""
        self.takers = takers
        self._take = takers[0] if len(takers) == 1 else self._give_to_each

    def _give_to_each(self, raw: Raw) -> None:
        for take in self.takers:
            take(raw)

    # The sink.

    def write(self, kind: str, /, **fields: Any) -> None:
        if kind == "step":
            counts = self._here().counts
            counts.step = counts.next_step()
        where = self._where()
        if kind in _COMPLETED:
            fields = self._completed(kind, fields)
        if kind == "write":
            site = fields["site"]
            fields["site"] = id(site)
            _sites[id(site)] = site
        if kind in _NAMES:
            self._hand_on(kind, where, *map(fields.__getitem__, _NAMES[kind]))
        else:
            self._hand_on(kind, where, fields)

    def begin(self, kind: str, /, within: Begun | None = None, **fields: Any) -> Begun:
        if kind in _COMPLETED:
            worker = self._here()
            if kind == "run":
                worker.run = worker.counts.next_run()
            elif kind == "exchange":
                fields["exchange"] = worker.counts.next_exchange()
            fields = self._completed(kind, fields)
        return self._open(kind, self._where(within), fields)

    def end(self, begun: Begun, error: BaseException | None = None) -> None:
        self._wheres.clear()
        number, where, stack, worker = begun
        self.leave((number, (*where[:3], worker.run, worker.counts.step, where[5]), stack, worker), error)

    def enter(self, run: Begun, function: str) -> Begun:
        # In one function, as are `meet`, `receive` and `leave`: these four cost most of a recording's time.
        frame, worker = _frame(), run[3]
        context = frame.replica
        assert context is not None
        here, replica, device = _worker.value, context.replica_id_in_sync_group, frame.device
        runs, step = worker.run, worker.counts.step
        number = self._next_number()
        where = here, replica, device, runs, step, run[0]
        self._take((number, "replica", monotonic_ns(), where, function))
        stack = worker.open.get(replica)
        if stack is None:
            stack = worker.open[replica] = []
        stack.append(number)
        self._wheres[frame] = here, replica, device, runs, step, number
        return number, where, stack, worker

    def leave(self, begun: Begun, error: BaseException | None = None, returned: object = None) -> None:
        of, where, stack, _ = begun
        how = "returned"
        kept = () if returned is None else _returned(returned)
        if type(kept) is not tuple or kept:
            number = self._next_number()
            self._take((number, "return", monotonic_ns(), (*where[:5], of), kept))
        if error is not None:
            how = "stopped" if isinstance(error, (ReplicaStopped, Stopped)) else "raised"
            if how == "raised":
                self.tell(error)
        if of in stack:
            del stack[stack.index(of):]
        number = self._next_number()
        self._take((number, "end", monotonic_ns(), where, of, how))

    def tell(self, error: BaseException) -> None:
        """An exception was raised; what was told before is not told again."""
        if getattr(error, "_told_to", None) is not self:
            with contextlib.suppress(AttributeError):
                error._told_to = self  # type: ignore[attr-defined]
            self.write("error", code=error.code if isinstance(error, RefdistError) else "", type=type(error).__name__,
                       text=str(error), site=_places(error))

    def transfers(self, moves: Moves) -> None:
        self._hand_on("transfers", self._where(), {"moves": moves})

    def meet(self, run: Any, call: Any) -> Raw:
        rendezvous = 0 if run is None else run.rendezvous
        if not rendezvous:
            worker = self._here()
            rendezvous = worker.rendezvous = worker.counts.next_rendezvous()
            if run is not None:
                run.rendezvous = rendezvous
        signature, site = call.signature, call.call_site
        op, axis = signature.op, signature.axis
        place = id(site)
        _sites[place] = site
        number = self._next_number()
        # The contribution belongs to the program, so only what `taken` copies of it is kept.
        met = (number, "meet", monotonic_ns(), self._wheres.get(_frame()) or self._where(), rendezvous, call.kind,
               op and op._name_, axis if axis is None else _axis(axis), place, _taken(call.contribution))
        self._take(met)
        return met

    def combine(self, run: Any, calls: Sequence[Any]) -> tuple[Begun, Site | None]:
        call, worker = calls[0], self._here()
        before = worker.site
        begun = self._open("combine", self._where(None if run is None else run.event),
                           worker.rendezvous if run is None else run.rendezvous, call.kind, len(calls))
        worker.site = None if call.kind == "merge_call" else call.call_site
        self._known.clear()
        return begun, before

    def combined(self, run: Any, begun: tuple[Begun, Site | None], error: BaseException | None = None) -> None:
        combining, before = begun
        combining[3].site = before
        if run is not None:
            run.rendezvous = 0
        self.leave(combining, error)

    def receive(self, met: Raw, answer: object) -> None:
        number = self._next_number()
        # A replica goes on where it arrived.
        self._take((number, "receive", monotonic_ns(), met[3], met[4], met[0], _taken(answer, self._known)))

    # How.

    def _here(self) -> _Worker:
        number = journal.worker.value
        key = number, get_ident()
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = _Worker(self._counts.setdefault(number, _Counts()))
        return worker

    def _completed(self, kind: str, fields: JsonEvent) -> JsonEvent:
        called = fields.pop("called", None)
        if called is not None:
            op, axis = called.signature.op, called.signature.axis
            fields |= {"call": called.kind, "op": op and op.name, "axis": _axis(axis), "site": called.call_site,
                       "contributed": summaries.taken(fields["contributed"])}
        variable = fields.get("variable")
        if variable is not None:
            fields["variable"], fields["number"] = variable.name, self._number_of(variable)
            name = "received" if kind == "read" else "copies"
            fields[name] = summaries.taken_each(fields[name], self._known)
        if kind == "reduce":
            fields["axis"] = _axis(fields["axis"])
            fields["contributed"] = summaries.taken(fields["contributed"])
        elif kind == "return":
            fields["returned"] = summaries.taken(fields["returned"])
        if "site" not in fields and "site" in KINDS[kind][1]:
            fields["site"] = self._here().site or call_site.of(sys._getframe(2))
        return fields

    def _number_of(self, variable: Any) -> int:
        first = variable._primary
        key = id(first)
        known = self._variables.get(key)
        if known is None:  # another thread may be here, too
            known = self._variables.setdefault(key, (
                weakref.ref(first, lambda _: self._variables.pop(key, None)), self._here().counts.next_variable()))
        return known[1]

    def _open(self, kind: str, where: Where, *fields: object) -> Begun:
        number = self._hand_on(kind, where, *fields)
        worker = self._here()
        stack = worker.open.setdefault(where[1], [])
        stack.append(number)
        return number, where, stack, worker

    def _where(self, within: Begun | None = None) -> Where:
        frame = _frame()
        context = frame.replica
        replica = None if context is None else context.replica_id_in_sync_group
        here = _worker.value
        worker = self._here()
        stack = worker.open.get(replica) or worker.all
        parent = within[0] if within is not None else stack[-1] if stack else None
        return here, replica, frame.device, worker.run, worker.counts.step, parent

    def _hand_on(self, kind: str, where: Where, *fields: object) -> int:
        number = self._next_number()
        self._take((number, kind, monotonic_ns(), where, *fields))
        return number


def _returned(value: object) -> summaries.Taken:
    # A result that cannot be put together is refused by the run itself.
    try:
        return _taken(value)
    except RefdistError:
        return ()


def _places(error: BaseException) -> Site:
    # The traceback begins at the frame that the exception has reached; that frame's callers are on the stack.
    places: list[call_site.Place] = []
    trace = error.__traceback__
    outside = call_site.of(trace.tb_frame.f_back) if trace is not None else ()
    while trace is not None:
        if not call_site.is_ours(trace.tb_frame.f_globals.get("__name__", "")):
            places.append(call_site.of_one(trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    return (*reversed(places), *outside)


def places_of(site: tuple[object, ...]) -> list[str]:
    """The lines of a call site, as "file:line", without those of what runs the program: launcher, notebook, pytest.

    Where a launcher was itself started by `python -c`, as the processes of pytest-xdist are, that text goes with it.
    """
    places = [str(place) for place in site]
    while len(places) > 1:
        end = len(places)
        while end > 1 and places[end - 1].startswith("<string>:"):
            end -= 1
        if end == 1 or not places[end - 1].startswith(_STARTERS):
            break
        del places[end - 1:]
    return places


def each_of(handed_on: Sequence[Any]) -> Iterator[Raw]:
    """Splits a list into the events that were appended to it one after another."""
    i = 0
    while i < len(handed_on):
        end = i + _COMMON + len(_NAMES.get(handed_on[i + 1], "1"))
        yield tuple(handed_on[i:end])
        i = end


def json_of(raw: Raw, known: Places) -> list[JsonEvent]:
    """The event of what was handed on, or several events with one number.

    Args:
        raw: what the stream handed on.
        known: the places of each site that was seen before; those of this one are added.
    """
    number, kind, at, (worker, replica, device, run, step, parent), *fields = raw
    event: JsonEvent = {
        "id": number, "kind": kind, "time": at, "worker": worker, "replica": replica,
        "device": device and devices.short(device), "run": run, "step": step, "parent": parent}
    event.update(zip(_NAMES[kind], fields, strict=True) if kind in _NAMES else fields[0])
    if kind == "transfers":
        return [{**event, "kind": "transfer", "source": source, "destination": destination, "bytes": nbytes,
                 "times": times} for source, destination, nbytes, times in transferred(event.pop("moves"))]
    for name in ARRAYS:
        if name in event:
            event[name] = summaries.of(event[name])
    if "site" in event:
        site = site_of(event["site"])
        seen = known.get(id(site))
        if seen is None:
            seen = known[id(site)] = site, places_of(site)
        event["site"] = seen[1]
    if "contributed" in event:
        event["bytes"] = sum(summary["bytes"] for summary in event["contributed"])
    elif kind == "write":
        event["bytes"] = sum(summary["bytes"] for summary in event["copies"])
    return [event]


def site_of(kept: Site | int) -> Site:
    """The call site of an event that is handed on, from the site or its number."""
    return _sites[kept] if isinstance(kept, int) else kept


def _axis(axis: object) -> int | str | None:
    return axis if axis is None or isinstance(axis, int) else str(axis)


def transferred(moves: Moves) -> list[tuple[str, str, int, int]]:
    """The transfers as (source, destination, bytes, number of pieces)."""
    sent: dict[tuple[str, str], list[int]] = {}
    for source, destination, nbytes in moves():
        if source != destination and nbytes:
            sent.setdefault((source, destination), []).append(nbytes)
    return [(devices.short(source), devices.short(destination), sum(parts), len(parts))
            for (source, destination), parts in sent.items()]
