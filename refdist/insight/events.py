"""What is recorded: the table of events.

An event is one line of JSON in a file.  `COMMON` says what every event has, and `KINDS` what each kind has beside it.
docs/recording.md prints both, and `checked` holds events to them, so a field that is not in the table is a fault.

Two kinds of numbers order them.  `id` is the position in the recording, which nothing else has to agree with.
`rendezvous` and `exchange` number what replicas, and workers, come to: all that have the same number are at the same
one, whether they should be or not, so a picture draws them as one column.  Both count from 1 on each worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from refdist.workers.launcher import WORKER, Task

VERSION = 5

COMMON = {
    "id": "the position in the recording, from 0; in a file that was written as things happened, a number that orders "
          "them",
    "kind": "one of the kinds below",
    "time": "nanoseconds of a clock that only goes forward; left out of comparisons",
    "worker": "the worker, from 0; in a job with parameter servers the process, and `process` says which task it is",
    "replica": "the number of the replica among those of all workers; null for what concerns all of them",
    "device": 'where the code runs, for example "GPU:1"; "" where no device is current',
    "run": "how many times the worker has called `strategy.run` so far, and 0 before the first",
    "step": "how many elements of distributed datasets the worker has taken so far",
    "parent": "the `id` of the event that this is part of; null for none",
}

_CALL = {
    "call": 'what was called, for example "all_reduce" or "assign_add of variable w:0"',
    "op": '"SUM", "MEAN", or null for a call without a reduce op',
    "axis": "the axis of a gather, or null",
    "bytes": "the size of what is contributed",
    "site": 'the places in the program that led to the call, innermost first, each "file:line", or '
            '"Cell In[3], line 5" in a notebook; without those of what has called the program itself',
}

# Kind of event -> (what it is, its fields and what each means).
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "program": ("The program of a simulated worker begins.", {
        "workers": "how many workers there are",
    }),
    "process": ("A process of a job with parameter servers begins to record.", {
        "job": '"chief", "worker" or "ps"',
        "task": "its number among the tasks of that kind",
    }),
    "run": ("A call of `strategy.run` begins.", {
        "function": "the name of what it runs",
        "strategy": "the class of the strategy",
        "first": "the number of the first replica of this worker",
        "replicas": "how many replicas run on this worker",
        "devices": "where each of them runs",
        "site": "as for `meet`",
    }),
    "replica": ("A replica begins.", {
        "function": "the name of what it runs",
    }),
    "meet": ("A replica arrives at a rendezvous, and waits for the others.", {
        "rendezvous": "which one",
        **_CALL,
        "contributed": "a summary of each array that the replica contributes",
    }),
    "combine": ("All replicas have arrived and made the same call, which is now carried out once.", {
        "rendezvous": "which one",
        "call": "as for `meet`",
        "replicas": "how many replicas have arrived",
    }),
    "receive": ("A replica goes on with its part of the answer.", {
        "rendezvous": "which one",
        "of": "the `id` of the `meet`",
        "received": "a summary of each array that the replica gets",
    }),
    "return": ("The arrays that a replica's function, or a `reduce`, has returned.", {
        "returned": "a summary of each array, where it has returned any",
    }),
    "reduce": ("A call that reduces or gathers outside replicas begins: `strategy.reduce`, `gather`, `reduce_to` or "
               "`batch_reduce_to`.", {
        **_CALL,
        "contributed": "a summary of each array that the replicas of this worker contribute, of one replica after "
                       "another; of a nest those of its first leaf, then those of the next",
    }),
    "exchange": ("This worker arrives at a collective call of all workers.", {
        "exchange": "which one",
        **_CALL,
        "contributed": "a summary of each array that the worker contributes",
    }),
    "merge": ("The function of a `merge_call` begins.", {
        "function": "its name",
    }),
    "update": ("`extended.update` begins for one copy of a variable, or `update_non_slot` for a device.", {
        "copy": "which one, from 0",
    }),
    "transfer": ("Bytes move between devices, as the plan of the reduction says.", {
        "source": "the device that sends",
        "destination": "the device that receives",
        "bytes": "how many in all",
        "times": "in how many pieces: around a ring each device sends its neighbour several",
    }),
    "variable": ("A variable was created.", {
        "variable": "its name",
        "number": "its number on the worker, from 1, as several may have one name",
        "type": "its class",
        "strategy": "the class of the strategy that made it, or null",
        "synchronization": "when the copies are synchronized",
        "aggregation": "how updates of several replicas become one",
        "devices": "where the copies are",
        "copies": "a summary of each copy on this worker",
        "site": "as for `meet`",
    }),
    "write": ("The value of a variable changed.", {
        "variable": "its name",
        "number": "its number on the worker",
        "copy": "which copy alone was written, from 0; null for all of them",
        "bytes": "the size of what was written",
        "copies": "a summary of each copy on this worker that was written",
        "site": "as for `meet`",
    }),
    "read": ("A variable was read.", {
        "variable": "its name",
        "number": "its number on the worker",
        "copy": "which copy was read, from 0; null where the value was computed from several",
        "received": "a summary of the value, in a list",
        "site": "as for `meet`",
    }),
    "schedule": ("A coordinator puts a function at the end of its queue.", {
        "function": "its name",
        "scheduled": "its number among those of the coordinator, from 1",
        "site": "as for `meet`",
    }),
    "function": ("A worker of a coordinator begins a function. One whose worker was lost begins again.", {
        "function": "its name",
        "scheduled": "its number",
        "task": "the number of the worker among those of the coordinator",
    }),
    "step": ("An element of a distributed dataset was taken.", {
        "rows": "for each replica of this worker the rows that it gets, as [first, last] pairs; null where they cannot "
                "be followed from their source",
        "counts": "for each replica of this worker how many rows it gets",
        "site": "as for `meet`: the line that asked for the element",
    }),
    "print": ("A line was printed.", {
        "text": "the line",
        "stream": '"stdout" or "stderr"',
    }),
    "warning": ("A warning was shown.", {
        "text": "what it says",
        "category": "its class",
        "site": "where it was raised, in a list as for `meet`",
    }),
    "error": ("An exception was raised, by the replica or worker where it is first seen.", {
        "code": 'of an error of refdist, for example "RD04"; "" for any other',
        "type": "its class",
        "text": "its message",
        "site": "the lines of the program in its traceback and those that led there, in a list as for `meet`",
    }),
    "end": ("What began has ended: a program, run, replica, combine, exchange, reduce, function, merge or update.", {
        "of": "the `id` of the event that began it",
        "how": '"returned", "raised", or "stopped" where another replica or function failed, or a worker was lost',
    }),
}
BEGINNINGS = ("program", "run", "replica", "combine", "exchange", "reduce", "function", "merge", "update")
_NAMED = {*BEGINNINGS, "meet"}

# The fields that hold summaries of arrays.
ARRAYS = ("contributed", "received", "returned", "copies")
# Field of an array's summary -> what it means.
SUMMARY = {
    "shape": "the shape, a list",
    "dtype": "the dtype",
    "bytes": "the size",
    "min": "the smallest item, NaN left out; null where there is none, or the dtype has no order",
    "max": "the largest item, likewise",
    "norm": "the square root of the sum of the squares, to 6 digits; null for what is not a number",
    "nans": "how many items are NaN",
    "nan": "the index of the first of them, a list; null where there is none",
    "items": "all items, nested as the array is, where there are at most 16; else not there",
    "first": "the first 4 items where there are more than 16; else not there",
}


# An event as one object of JSON: what all events have, and the fields of its kind.
JsonEvent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `COMMON` says what its attributes are.

    The fields of its kind are items: `event["call"]`.
    """

    id: int
    kind: str
    time: int = field(compare=False)
    worker: int
    replica: int | None
    device: str
    run: int
    step: int
    parent: int | None
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def as_json(self) -> JsonEvent:
        """The event as one JSON object."""
        return {**{name: getattr(self, name) for name in COMMON}, **self.fields}

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Event:
        """The event from the JSON object of `as_json`."""
        return cls(**{name: fields[name] for name in COMMON},
                   fields={name: value for name, value in fields.items() if name not in COMMON})


def checked(event: Event) -> Event:
    """Returns the event if it has the fields that the table says.

    Raises:
        ValueError: it is not.
    """
    if event.kind not in KINDS:
        raise ValueError(f"there is no kind of event {event.kind!r}")
    wanted = KINDS[event.kind][1]
    if set(event.fields) != set(wanted):
        raise ValueError(f"an event {event.kind!r} has the fields {sorted(event.fields)}, not {sorted(wanted)}")
    return event


def tasks_of(events: Iterable[Event]) -> dict[int, Task]:
    """Worker -> its task of the cluster."""
    tasks: dict[int, Task] = {}
    for event in events:
        tasks.setdefault(event.worker, Task(WORKER, event.worker))
        if event.kind == "process":
            tasks[event.worker] = Task(event["job"], event["task"])
    return tasks


def workers_of(events: Iterable[Event]) -> int:
    """The number of workers; those of a coordinator in one process are known by the functions that they ran."""
    events = list(events)
    return max(len({event["task"] for event in events if event.kind == "function"}),
               sum(task.type == WORKER for task in tasks_of(events).values()))


def renumbered(event: JsonEvent, position: dict[int, int], number: int) -> bool:
    """Changes an event's `id`, `of` and `parent` from the stream's numbers to positions in a recording.

    Args:
        event: the event, which is changed in place.
        position: for each event that has begun and not ended, its stream's number -> its position; this event is
            added if something begins with it, and removed if something ends.
        number: the position of this event.

    Returns:
        False for the end of what began before the recording, which is not part of it.
    """
    if "of" in event:
        if event["of"] not in position:
            return False
        event["of"] = position.pop(event["of"])
    elif event["kind"] in _NAMED:
        position[event["id"]] = number
    event["id"] = number
    if event["parent"] is not None:
        event["parent"] = position.get(event["parent"])
    return True
