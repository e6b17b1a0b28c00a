"""Where refdist tells what happens: one sink for the process, or none.

The layers below `insight` tell of runs, rendezvous, transfers and writes at the places where they happen; what becomes
of it, `insight` decides, which is above all of them.  Where nothing is recorded, each of these places costs one
attribute test: `journal.recording.value is not None`.

A sink gets what the program uses, arrays too, and must neither keep nor change them: what is recorded never changes
what is computed.

Beside it each worker remembers its last 64 rendezvous, whether anything is recorded or not (`core/history.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol

from refdist.runtime import Field

KEPT = 64


class Sink(Protocol):
    """Takes events where they happen.  The kinds of events and their fields are the table of `insight/events.py`."""

    def write(self, kind: str, /, **fields: Any) -> None:
        """Takes an event that has no duration, of this kind and with these fields."""

    def begin(self, kind: str, /, within: Any = None, **fields: Any) -> Any:
        """Takes the beginning of something of this kind; events until its end are part of it.

        Args:
            kind: the kind of the event.
            within: what `begin` returned for the event that this one is part of; None for the innermost open one.
            fields: the fields of the event.

        Returns:
            A token for `end`.
        """

    def end(self, begun: Any, error: BaseException | None = None) -> None:
        """Takes the end of what `begin` returned `begun` for; with the error, if that ended it."""

    def enter(self, run: Any, function: str) -> Any:
        """Takes the beginning of a replica, which calls a function of this name.

        Args:
            run: what `begin` returned for the run of all replicas.
            function: the name of the function.

        Returns:
            A token for `leave`.
        """

    def leave(self, entered: Any, error: BaseException | None = None, returned: object = None) -> None:
        """Takes the end of a replica: the error that ended it, or what its function returned.

        Args:
            entered: what `enter` returned.
            error: the exception, None without one.
            returned: the result of the function.
        """

    def tell(self, error: BaseException) -> None:
        """Takes an exception; the same exception again makes no second event."""

    def transfers(self, moves: Callable[[], Iterable[tuple[str, str, int]]]) -> None:
        """Takes transfers between devices.

        Args:
            moves: returns (source, destination, bytes) of each transfer; called when the recording is read.
        """

    def meet(self, run: object, call: object) -> Any:
        """A replica arrives at a rendezvous of `run` with `call`; None is the run of a replica that is alone.

        Returns:
            What `receive` is called with.
        """

    def combine(self, run: object, calls: Sequence[Any]) -> Any:
        """All replicas of `run` have arrived with these calls, which are executed now.

        Returns:
            What `combined` is called with.
        """

    def combined(self, run: object, begun: Any, error: BaseException | None = None) -> None:
        """The calls were executed, or raised an error."""

    def receive(self, met: Any, answer: object) -> None:
        """The replica for which `meet` returned `met` goes on with its part of the answer."""


recording: Field[Sink | None] = Field("what is told of all that happens; None while nothing is recorded", lambda: None)
worker: Field[int] = Field("the number of the worker that runs, as recordings give it", lambda: 0, per_worker=True)
# Who, the kind of call, its signature and its call site.
history: Field[deque[tuple[str, str, Any, Any]]] = Field(
    "the last rendezvous that this worker came to", lambda: deque(maxlen=KEPT), per_worker=True)
rows: Field[Sequence[int]] = Field(
    "how many rows the last element of a distributed dataset gave each replica", tuple, per_worker=True)
NOT_RECORDED = nullcontext()


class _Span:
    __slots__ = ("begun", "fields", "kind", "sink")

    def __init__(self, sink: Sink, kind: str, fields: dict[str, object]) -> None:
        self.sink = sink
        self.kind = kind
        self.fields = fields

    def __enter__(self) -> None:
        self.begun = self.sink.begin(self.kind, **self.fields)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.sink.end(self.begun, error)


def span(kind: str, /, **fields: object) -> AbstractContextManager[None]:
    """Records the events of a `with` block as parts of one event of this kind; does nothing where nothing is recorded.

    Args:
        kind: a key of `insight.events.KINDS`.
        fields: those of the event.
    """
    sink = recording.value
    return NOT_RECORDED if sink is None else _Span(sink, kind, fields)


def tell(error: BaseException) -> None:
    """An exception was not caught."""
    sink = recording.value
    if sink is not None:
        sink.tell(error)
