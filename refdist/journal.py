"""Records runs, rendezvous and transfers, so that tests and documents can count and draw them.

Outside `record()` nothing is kept.  Events hold names, sizes and positions, never arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from refdist.runtime import Field


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        step: position in the journal, from 0.
        kind: "start" and "finish" of a replica function, "meet" when a replica arrives at a rendezvous,
            "transfer" when bytes move between devices, "update" when copies of a variable change.
        replica: the replica, or None for what concerns all of them.
        name: the function, call or variable; for a transfer "source -> destination".
        nbytes: bytes moved (transfer) or contributed (meet), otherwise 0.
        source: "file:line" of the user's call, or "".
    """

    step: int
    kind: str
    replica: int | None
    name: str
    nbytes: int = 0
    source: str = ""


recording: Field[list[Event] | None] = Field("the events recorded so far; None while nothing is", lambda: None)


def write(kind: str, replica: int | None, name: str, nbytes: int = 0, source: str = "") -> None:
    """Adds an event.  Callers check `recording.value is not None` first, to pay nothing otherwise."""
    events = recording.value
    if events is not None:
        events.append(Event(len(events), kind, replica, name, nbytes, source))


@contextmanager
def record() -> Iterator[list[Event]]:
    """Records all events of a `with` block into a list.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with refdist.journal.record() as events:
    ...     _ = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    >>> [(event.kind, event.replica) for event in events][:2]
    [('start', 0), ('meet', 0)]
    """
    outer, mine = recording.value, list[Event]()
    recording.value = mine
    try:
        yield mine
    finally:
        recording.value = outer
        if outer is not None:
            for event in mine:
                write(event.kind, event.replica, event.name, event.nbytes, event.source)
