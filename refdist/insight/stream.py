"""`Stream`: the sink that gives events their numbers, their place and their time, and hands them to all that record.

There is one stream while anything is recorded, and each recording takes what passes: a `with refdist.record()` inside
another, or inside a program whose recording goes to a file, sees the same events.

What is handed on is as little as can be made of an event at once, because the program waits meanwhile: the objects of
the call that are not going to change, and of arrays what `summaries.taken` keeps.  `told_of` makes the event of it,
when it is written to a file or read.

Where an event belongs is found by what is open.  Each replica has a stack of what it has begun, and each worker one for
what concerns all its replicas; an event is part of the innermost entry of its own stack, or else of its worker's.
Replicas take turns, and each ends what it began, so the stacks need no more than that.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable, Sequence
from time import monotonic_ns
from typing import Any

from refdist import journal
from refdist.array import summaries
from refdist.core import call_site, context_stack, devices
from refdist.core.lockstep import ReplicaStopped
from refdist.errors import RefdistError
from refdist.insight.events import KINDS, Told

Site = call_site.Site
_INSTALLED = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


# An event as it is handed on: id, kind, time, worker, replica, device, run, step, parent, and its fields, of the most
# frequent kinds without their names.  Python's garbage collector follows dicts and lists as long as a recording has
# them, and that was a quarter of the cost; a tuple of numbers and arrays it soon leaves alone.
Fields = dict[str, Any] | tuple[Any, ...]
Raw = tuple[int, str, int, int, int | None, str, int, int, int | None, Fields]
_NAMES = {
    "meet": ("rendezvous", "call", "signature", "site", "contributed"), "receive": ("rendezvous", "of", "received"),
    "end": ("of", "how")}

_NOTHING: list[int] = []
_state, _worker = context_stack.state, journal.worker
# The places of sites by their id, with the site, so that the id stays its own.
Places = dict[int, tuple[tuple[object, ...], list[str]]]
# Kinds whose fields are not as they are handed on.
_COMPLETED = {"run", "exchange", "variable", "write"}


class _Worker:
    """What is counted, and open, on one worker."""

    __slots__ = ("all", "exchange", "open", "rendezvous", "run", "step", "variables")

    def __init__(self) -> None:
        self.run = self.step = self.rendezvous = self.exchange = self.variables = 0
        self.all: list[int] = []
        self.open: dict[int | None, list[int]] = {None: self.all}


class Stream:
    """What is told of everything that happens; see `journal.Sink`.

    Attributes:
        takers: called with every event.
    """

    def __init__(self) -> None:
        self.takers: list[Callable[[Raw], None]] = []
        self._count = 0
        self._workers: dict[int, _Worker] = {}
        self._opened: dict[int, list[int]] = {}
        # By the id of a variable's first copy: whether it is still that one, and its number.
        self._variables: dict[int, tuple[weakref.ref[Any], int]] = {}
        # Of the call that is being carried out, where no function of the program is part of that.
        self._site: Site | None = None
        # What was taken of arrays that the answers to a rendezvous have in common, by id, with the array.
        self._known: summaries.Known = {}

    # The sink.

    def write(self, kind: str, /, **fields: Any) -> int:
        if kind == "step":
            self._here().step += 1
        return self._hand_on(kind, self._completed(kind, fields) if kind in _COMPLETED else fields)[0]

    def begin(self, kind: str, /, within: int | None = None, **fields: Any) -> int:
        if kind in _COMPLETED:
            worker = self._here()
            if kind == "run":
                worker.run += 1
            else:
                worker.exchange += 1
                fields["exchange"] = worker.exchange
            fields = self._completed(kind, fields)
        return self._open(kind, fields, within)

    def end(self, number: int, error: BaseException | None = None) -> None:
        how = "returned"
        if error is not None:
            how = "stopped" if isinstance(error, ReplicaStopped) else "raised"
            if how == "raised":
                self.tell(error)
        stack = self._opened.pop(number, _NOTHING)
        if stack and stack[-1] == number:
            stack.pop()
        elif number in stack:
            del stack[stack.index(number):]
        self._hand_on("end", (number, how))

    def tell(self, error: BaseException) -> None:
        """An exception was raised; what was told before is not told again."""
        if getattr(error, "_told_to", None) is not self:
            with contextlib.suppress(AttributeError):
                error._told_to = self  # type: ignore[attr-defined]
            self._hand_on("error", {"code": error.code if isinstance(error, RefdistError) else "",
                                    "type": type(error).__name__, "text": str(error), "site": _places(error)})

    def transfers(self, moves: Callable[[], Iterable[tuple[str, str, int]]]) -> None:
        self._hand_on("transfers", {"moves": moves})

    def meet(self, run: Any, call: Any) -> Raw:
        rendezvous = 0 if run is None else run.rendezvous
        if not rendezvous:
            worker = self._here()
            rendezvous = worker.rendezvous = worker.rendezvous + 1
            if run is not None:
                run.rendezvous = rendezvous
        # The contribution is the program's, and is not kept.
        return self._hand_on("meet", (
            rendezvous, call.kind, call.signature, call.call_site, summaries.taken(call.contribution)))

    def combine(self, run: Any, calls: list[Any]) -> Sequence[Any]:
        call, before = calls[0], self._site
        number = self._open("combine", {
            "rendezvous": self._here().rendezvous if run is None else run.rendezvous, "call": call.kind,
            "replicas": len(calls)}, None if run is None else run.event)
        self._site = None if call.kind == "merge_call" else call.call_site
        self._known.clear()
        error: BaseException | None = None
        try:
            answers: Sequence[Any] = call.execute(calls)
            return answers
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._site = before
            if run is not None:
                run.rendezvous = 0
            self.end(number, error)

    def receive(self, met: Raw, answer: object) -> None:
        # A replica goes on where it arrived.
        of, _, _, worker, replica, device, run, step, parent, fields = met
        number = self._count
        self._count = number + 1
        raw = (number, "receive", monotonic_ns(), worker, replica, device, run, step, parent,
               (fields[0], of, summaries.taken(answer, self._known)))  # type: ignore[index]
        for take in self.takers:
            take(raw)

    # How.

    def _here(self) -> _Worker:
        number = journal.worker.value
        found = self._workers.get(number)
        if found is None:
            found = self._workers[number] = _Worker()
        return found

    def _completed(self, kind: str, fields: Told) -> Told:
        called = fields.pop("called", None)
        if called is not None:
            fields |= {"call": called.kind, "signature": called.signature, "site": called.call_site,
                       "contributed": summaries.taken(fields["contributed"])}
        variable = fields.get("variable")
        if variable is not None:
            fields["variable"], fields["number"] = variable.name, self._number_of(variable)
            fields["copies"] = summaries.taken_each(fields["copies"], self._known)
        if "site" not in fields and "site" in KINDS[kind][1]:
            fields["site"] = self._site or call_site.of(sys._getframe(2))
        return fields

    def _number_of(self, variable: Any) -> int:
        first = variable._primary
        known = self._variables.get(id(first))
        if known is None or known[0]() is not first:
            worker = self._here()
            worker.variables += 1
            known = self._variables[id(first)] = weakref.ref(first), worker.variables
        return known[1]

    def _open(self, kind: str, fields: Told, parent: int | None) -> int:
        raw = self._hand_on(kind, fields, parent)
        number, replica, stacks = raw[0], raw[4], self._workers[raw[3]].open
        stack = stacks.get(replica)
        if stack is None:
            stack = stacks[replica] = []
        stack.append(number)
        self._opened[number] = stack
        return number

    def _hand_on(self, kind: str, fields: Fields, parent: int | None = None) -> Raw:
        frame = _state.top
        context = frame.replica
        replica = None if context is None else context.replica_id_in_sync_group
        here = _worker.value
        worker = self._workers.get(here) or self._here()
        if parent is None:
            stack = worker.open.get(replica) or worker.all
            if stack:
                parent = stack[-1]
        number = self._count
        self._count = number + 1
        raw = (number, kind, monotonic_ns(), here, replica, frame.device, worker.run, worker.step, parent, fields)
        for take in self.takers:
            take(raw)
        return raw


def _places(error: BaseException) -> Site:
    # A traceback begins where the exception has come to; what has called that is on the stack.
    places: list[call_site.Place] = []
    trace = error.__traceback__
    outside = call_site.of(trace.tb_frame.f_back) if trace is not None else ()
    while trace is not None:
        if not call_site.is_ours(trace.tb_frame.f_globals.get("__name__", "")):
            places.append(call_site.of_one(trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    return (*reversed(places), *outside)


def places_of(site: tuple[object, ...]) -> list[str]:
    """The places of a site, "file:line", without what has called the program: a launcher, a notebook, pytest."""
    places = [str(place) for place in site]
    while len(places) > 1 and places[-1].startswith(("<frozen ", *_INSTALLED)):
        places.pop()
    return places


def told_of(raw: Raw, known: Places) -> list[Told]:
    """What was handed on: one event, or several of that number.

    Args:
        known: the places of each site that was seen before; those of this one are added.
    """
    number, kind, at, worker, replica, device, run, step, parent, given = raw
    told: Told = {
        "id": number, "kind": kind, "time": at, "worker": worker, "replica": replica,
        "device": device and devices.short(device), "run": run, "step": step, "parent": parent}
    told.update(zip(_NAMES[kind], given, strict=True) if isinstance(given, tuple) else given)
    if kind == "transfers":
        sent: dict[tuple[str, str], list[int]] = {}
        for source, destination, nbytes in told.pop("moves")():
            if source != destination and nbytes:
                sent.setdefault((source, destination), []).append(nbytes)
        return [{**told, "kind": "transfer", "source": devices.short(source), "destination": devices.short(destination),
                 "bytes": sum(parts), "times": len(parts)} for (source, destination), parts in sent.items()]
    for name in ("contributed", "received", "copies"):
        if name in told:
            told[name] = summaries.of(told[name])
    if "site" in told:
        site = told["site"]
        found = known.get(id(site))
        if found is None:
            found = known[id(site)] = site, places_of(site)
        told["site"] = found[1]
    if "signature" in told:
        signature = told.pop("signature")
        told["op"] = None if signature.op is None else signature.op.name
        axis = signature.axis
        told["axis"] = axis if axis is None or isinstance(axis, int) else str(axis)
        told["bytes"] = sum(one["bytes"] for one in told["contributed"])
    elif kind == "write":
        told["bytes"] = sum(one["bytes"] for one in told["copies"])
    return [told]
