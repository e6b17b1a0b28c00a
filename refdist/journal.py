"""Where refdist tells what happens: one sink for the process, or none.

The layers below `insight` tell of runs, rendezvous, transfers and writes at the places where they happen; what becomes
of it, `insight` decides, which is above all of them.  Where nothing is recorded, each of these places costs one
attribute test: `journal.recording.value is not None`.

A sink gets what the program uses, arrays too, and must neither keep nor change them: what is recorded never changes
what is computed.

Beside it, whether anything is recorded or not, each worker remembers its last 64 rendezvous (`history`): a tuple for
each, of objects that the calls have in common, so that it costs a tenth of a microsecond and keeps no array alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from refdist.runtime import Field

KEPT = 64


class Rendezvous(NamedTuple):
    """One rendezvous in the history of a worker.

    Attributes:
        units: how many met.
        unit_name: what met, "replica" or "worker".
        kind, signature, call_site: of the call, which was the same on all of them.
    """

    units: int
    unit_name: str
    kind: str
    signature: Any
    call_site: Any


class Sink(Protocol):
    """What is told what happens.  The kinds of events and their fields are the table of `insight/events.py`."""

    def write(self, kind: str, /, **fields: Any) -> int:
        """Something happened; returns the number of the event."""

    def begin(self, kind: str, /, within: int | None = None, **fields: Any) -> int:
        """Something begins, and what follows is part of it; returns the number of the event.

        Args:
            within: the event that it is part of itself; None for the innermost that is open here.
        """

    def end(self, number: int, error: BaseException | None = None) -> None:
        """What began has ended, by an error where there is one."""

    def meet(self, run: Any, call: Any) -> Any:
        """A replica arrives at a rendezvous of `run` with `call`; None is the run of a replica that is alone.

        Returns:
            What `receive` is called with.
        """

    def combine(self, run: Any, calls: list[Any]) -> Sequence[Any]:
        """All replicas of `run` have arrived with these calls, which are to be executed; returns the answers."""

    def receive(self, met: Any, answer: object) -> None:
        """The replica for which `meet` returned `met` goes on with its part of the answer."""


recording: Field[Sink | None] = Field("what is told of all that happens; None while nothing is recorded", lambda: None)
worker: Field[int] = Field("the number of the worker that runs, as recordings give it", lambda: 0, per_worker=True)
history: Field[deque[Rendezvous]] = Field(
    "the last rendezvous that were completed", lambda: deque(maxlen=KEPT), per_worker=True)
NOT_RECORDED = nullcontext()


class _Span:
    __slots__ = ("fields", "kind", "number", "sink")

    def __init__(self, sink: Sink, kind: str, fields: dict[str, Any]) -> None:
        self.sink = sink
        self.kind = kind
        self.fields = fields

    def __enter__(self) -> None:
        self.number = self.sink.begin(self.kind, **self.fields)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.sink.end(self.number, error)


def span(kind: str, /, **fields: Any) -> AbstractContextManager[None]:
    """What happens in a `with` block is part of an event of this kind; nothing where nothing is recorded."""
    sink = recording.value
    return NOT_RECORDED if sink is None else _Span(sink, kind, fields)
