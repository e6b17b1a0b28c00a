"""What stands out in a recording: where to look first.

An error says what was noticed, which is often later than where it went wrong.  So these are found from the events
alone: the rendezvous that was not carried out and who is where instead, the first NaN, the first infinity that is
summed or comes of a sum, rows that a replica does not get, and a lane that ends in the middle of something.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from refdist.insight.events import ARRAYS, BEGINNINGS, Event, tasks_of
from refdist.insight.layout import in_order, place_of, slots_of
from refdist.workers.launcher import Task, named

# How a replica's function ended -> why the replica is absent.
_ABSENCE = {"returned": "never arrives, as its function has returned",
            "raised": "never arrives, as its function has raised",
            "stopped": "had not arrived when the run was stopped", None: "has not arrived"}
# Kind of event -> the verb for its arrays.
_NANS = {"meet": "contributed to", "exchange": "contributed to", "reduce": "contributed to",
         "receive": "received from", "return": "returned from", "write": "wrote to", "variable": "put into the new",
         "read": "read of"}


class Finding(NamedTuple):
    """Something that stands out.

    Attributes:
        event: the `id` of the event at which to look.
        wrong: whether it is wrong for certain; else it may be meant so.
        text: what it is, in a sentence.
    """

    event: int
    wrong: bool
    text: str


def findings(events: Sequence[Event]) -> list[Finding]:
    """What stands out, in the order in which it is shown."""
    events = in_order(events, slots_of(events))
    position = {event.id: i for i, event in enumerate(events)}
    unordered = [finding for look in (_rendezvous, _exchanges, _errors, _warnings, _not_numbers, _infinities,
                                      _without_rows, _unfinished)
                 for finding in look(events)]
    return sorted(unordered, key=lambda finding: (position[finding.event], not finding.wrong))


def not_carried_out(events: Sequence[Event]) -> set[int]:
    """The ids of the `meet` and `exchange` events whose call was not carried out, or failed."""
    return {event.id for some in _failed_calls(events) for event in some}


def _failed_calls(events: Sequence[Event]) -> Iterator[list[Event]]:
    how = {event["of"]: event["how"] for event in events if event.kind == "end"}
    arrived: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    combined: dict[tuple[object, ...], int] = {}
    for event in events:
        if event.kind in ("meet", "exchange"):
            arrived[place_of(event)].append(event)
        elif event.kind == "combine":
            combined[place_of(event)] = event.id
    for place, some in arrived.items():
        if place[0] == "exchange":
            failed = any(how.get(event.id) != "returned" for event in some)
        else:
            failed = how.get(combined.get(place, -1)) != "returned"
        if failed:
            yield some


def _rendezvous(events: Sequence[Event]) -> Iterator[Finding]:
    how = {event["of"]: event["how"] for event in events if event.kind == "end"}
    combined = {place_of(event) for event in events if event.kind == "combine"}
    begun = [event for event in events if event.kind == "replica"]
    tasks = tasks_of(events)
    runs = {(event.worker, event.run): event for event in events if event.kind == "run"}
    for some in _failed_calls(events):
        first, last = some[0], some[-1]
        if first.kind == "exchange" or place_of(first) in combined:
            continue
        here, run = {event.replica for event in some}, (first.worker, first.run)
        others = [event for event in begun if (event.worker, event.run) == run and event.replica not in here]
        absent = [f"{_lanes([event], tasks)} {_ABSENCE[how.get(event.id)]}{_raised(events, event)}"
                  f"{_last_call(events, event)}" for event in others]
        if run in runs:
            started = {event.replica for event in begun if (event.worker, event.run) == run}
            all_of_it = range(runs[run]["first"], runs[run]["first"] + runs[run]["replicas"])
            absent += [f"replica {replica} was not started" for replica in all_of_it if replica not in started]
        arrivals = _sentence("; ".join([*_where(some, tasks), *absent]))
        yield Finding(last.id, True, f"Rendezvous {first['rendezvous']} was not carried out. {arrivals}")


def _raised(events: Sequence[Event], replica: Event) -> str:
    error = next((event for event in events if event.kind == "error" and event.parent == replica.id), None)
    return f" {error['type']}" if error else ""


def _last_call(events: Sequence[Event], replica: Event) -> str:
    # Replicas that call something a different number of times have the last call in common.
    calls = [event for event in events if event.kind == "meet" and event.parent == replica.id]
    return f"; its last call was {calls[-1]['call']} at {place_name(calls[-1])}" if calls else ""


def _exchanges(events: Sequence[Event]) -> Iterator[Finding]:
    tasks = tasks_of(events)
    for some in _failed_calls(events):
        first, last = some[0], some[-1]
        absent = sorted(tasks.keys() - {event.worker for event in some})
        # If all have arrived with the same call, something else has stopped them.
        if first.kind == "exchange" and (absent or len({_call(event) for event in some}) > 1):
            missing = (f"{tasks[worker]} never arrives" for worker in absent)
            arrivals = _sentence("; ".join([*_where(some, tasks), *missing]))
            yield Finding(last.id, True,
                          f"Exchange {first['exchange']} between workers was not carried out. {arrivals}")


def _where(some: Iterable[Event], tasks: Mapping[int, Task]) -> list[str]:
    """Who is at which line with which call, in the order in which they arrived."""
    calls: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in some:
        calls[place_name(event), _call(event)].append(event)
    return [f"{_lanes(group, tasks)} at {place}: {call}" for (place, call), group in calls.items()]


def _errors(events: Sequence[Event]) -> Iterator[Finding]:
    seen = set()
    tasks = tasks_of(events)
    for event in events:
        if event.kind == "error" and event["text"] not in seen:
            seen.add(event["text"])
            who = _sentence(_lanes([event], tasks)) if len(tasks) > 1 or event.replica is not None else "The program"
            where = "" if event["code"] else f" at {place_name(event)}"  # refdist's own messages name their lines
            yield Finding(event.id, True, f"{who} raises {event['type']}{where}: {event['text']}")


def _warnings(events: Sequence[Event]) -> Iterator[Finding]:
    seen = set()
    for event in events:
        # `_not_numbers` says more about NaN than the warning does.
        by_refdist = event.kind == "warning" and event["text"].startswith("[RD") and " NaN" not in event["text"][:99]
        if by_refdist and event["text"] not in seen:
            seen.add(event["text"])
            yield Finding(event.id, False, event["text"])


def _not_numbers(events: Sequence[Event]) -> Iterator[Finding]:
    first = next((event for event in events if _nans(event)), None)
    if first is None:
        return
    same = [event for event in events if event.kind == first.kind == "meet" and place_of(event) == place_of(first)]
    having = [event for event in same if _nans(event)] or [first]
    count = sum(map(_nans, having))
    by_id = {event.id: event for event in events}
    origin = by_id[first.fields.get("of", first.id)]
    if first.kind == "return" and first.parent is not None:
        origin = by_id[first.parent]
    name = next((text for text in (f"variable {first['variable']}" if "variable" in first.fields else "",
                                   origin.fields.get("call"), origin.fields.get("function")) if text), "a function")
    while origin.kind == "replica" and origin.parent is not None:
        origin = by_id[origin.parent]
    others = max(len(same) - len(having), 0)  # a write has no contributions
    rest = ("", "; the other replica contributes none", f"; the other {others} replicas contribute none")
    who = _lanes(having, tasks_of(events))
    yield Finding(first.id, True, f"The first NaN: {count} in what {who} {_NANS[first.kind]} {name} at "
                                  f"{place_name(origin)}{_index(first)}{_rows(events, first)}{rest[min(others, 2)]}")


def _infinities(events: Sequence[Event]) -> Iterator[Finding]:
    if any(event.kind == "warning" and event["text"].startswith("[RD42]") for event in events):
        return  # because the warning says the same
    by_id = {event.id: event for event in events}
    for event in events:
        call = event
        if event.kind == "receive":
            call = by_id[event["of"]]
        elif event.kind == "return" and event.parent is not None:
            call = by_id[event.parent]
        if not call.fields.get("op"):
            continue
        where = f"{call['call']} at {place_name(call)}"
        if call is event and any(map(_infinite, event["contributed"])):
            same = [meet for meet in events if meet.kind == event.kind == "meet" and place_of(meet) == place_of(event)]
            having = [meet for meet in same if any(map(_infinite, meet["contributed"]))] or [event]
            who = _lanes(having, tasks_of(events))
            yield Finding(event.id, False, f"The first infinity: in what {who} contributed to {where}")
            return
        results = [] if call is event else event["received" if event.kind == "receive" else "returned"]
        dtype = next((summary["dtype"] for summary in results if _infinite(summary)), None)
        if dtype is not None:
            yield Finding(event.id, True, f"The first infinity: {where} makes it of finite parts, whose sum is beyond "
                                          f"the largest {dtype}")
            return


def _infinite(summary: Mapping[str, object]) -> bool:
    return summary["min"] == "-Infinity" or summary["max"] == "Infinity"


def _index(event: Event) -> str:
    # The index of the first NaN in the first array that has one.
    having = [summary for name in ARRAYS for summary in event.fields.get(name, ()) if summary["nans"]]
    who = "" if event.replica is None else f" of replica {event.replica}'s array"
    return f", the first at {having[0]['nan']}{who}" if having[0]["nan"] else ""


def _rows(events: Sequence[Event], event: Event) -> str:
    # The rows of the last element taken before the event; the run may not have used it.
    here = {}  # the event's run, and the step that it belongs to
    for other in events:
        if other.worker == event.worker and ((other.kind == "run" and other.run == event.run)
                                             or (other.kind == "step" and other.step == event.step)):
            here[other.kind] = other
    if event.replica is None or len(here) < 2 or not here["step"]["rows"]:
        return ""
    spans = dict(enumerate(here["step"]["rows"], here["run"]["first"])).get(event.replica, ())
    ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"; the last rows of a dataset that replica {event.replica} got: {ranges or 'none'}"


def _without_rows(events: Sequence[Event]) -> Iterator[Finding]:
    steps = [event for event in events if event.kind == "step"]
    first_of: dict[int, int] = {}
    for event in events:
        if event.kind == "run":
            first_of.setdefault(event.worker, event["first"])
    for worker, task in sorted(tasks_of(events).items()):
        taken = [event for event in steps if event.worker == worker]
        if steps and not taken:
            begin = next(event for event in events if event.worker == worker)
            yield Finding(begin.id, True,
                          f"{_sentence(str(task))} takes no element of a distributed dataset, and others do")
        empty = [event for event in taken if 0 in event["counts"]]
        if empty:
            times = Counter(i for event in empty for i, count in enumerate(event["counts"]) if not count)
            counted = ", ".join(f"replica {first_of.get(worker, 0) + i} in {count} of {len(taken)} steps"
                                for i, count in sorted(times.items()))
            yield Finding(empty[0].id, max(times.values()) == len(taken), f"No rows for {counted}")


def _unfinished(events: Sequence[Event]) -> Iterator[Finding]:
    tasks = tasks_of(events)
    open_: dict[int, dict[int, Event]] = defaultdict(dict)
    last: dict[int, Event] = {}
    for event in events:
        last[event.worker] = event
        if event.kind in BEGINNINGS:
            open_[event.worker][event.id] = event
        elif event.kind == "end":
            open_[event.worker].pop(event["of"], None)
    for worker, some in open_.items():
        if some:
            inside = list(some.values())[-1]
            name = next((inside.fields[name] for name in ("call", "function") if name in inside.fields), inside.kind)
            yield Finding(last[worker].id, True, f"{_sentence(str(tasks[worker]))} ends here, in the middle of {name}: "
                                                 "its process ended, or what recorded it")


def place_name(event: Event) -> str:
    """Where in the program, with the last part of the file's name; "an unknown line" where that is not known."""
    site = event.fields.get("site") or ()
    return PurePath(site[0]).name if site else "an unknown line"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _nans(event: Event) -> int:
    # The copies of a variable are alike, so the one with the most NaNs counts.
    *apart, copies = ([summary["nans"] for summary in event.fields.get(name, ())] for name in ARRAYS)
    return sum(map(sum, apart)) + max(copies, default=0)


def _call(event: Event) -> str:
    types = ", ".join(f"{summary['dtype']} {summary['shape']}" for summary in event["contributed"])
    return " ".join(filter(None, (event["call"], event["op"], types and f"of {types}")))


def _lanes(events: Iterable[Event], tasks: Mapping[int, Task]) -> str:
    replicas = sorted({event.replica for event in events if event.replica is not None})
    if replicas:
        return f"replica{'s' if len(replicas) > 1 else ''} {', '.join(map(str, replicas))}"
    return named(tasks[event.worker] for event in events)
