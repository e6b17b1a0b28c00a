"""`record` and `Recording`: the events of a `with` block, of a program, or of a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType

from refdist import journal
from refdist.core.launcher import launched
from refdist.insight import files
from refdist.insight.console import Console
from refdist.insight.events import Event, renumbered
from refdist.insight.stream import Raw, Stream, event_of


class Recording:
    """What happened, in order.

    Args:
        events: what it has from the beginning.
        sources: see below.

    `refdist.record` makes one, and `refdist.insight.load` reads one from a file.
    """

    def __init__(self, events: Iterable[Event] = (), sources: Mapping[str, str] | None = None) -> None:
        self._events = list(events)
        self._sources = dict(sources or {})
        self._raw: list[Raw] = []
        self._position: dict[int, int] = {}

    def _take(self, raw: Raw) -> None:
        self._raw.append(raw)

    @property
    def events(self) -> list[Event]:
        """The events; the table in docs/recording.md says what they have."""
        taken, self._raw = self._raw, self._raw[:0]
        for raw in taken:
            event = renumbered(event_of(raw), self._position, len(self._events))
            if event is not None:
                self._events.append(event)
        return self._events

    @property
    def sources(self) -> dict[str, str]:
        """The text of the program's files that events name, by the name in the event."""
        for file in {place.rpartition(":")[0] for event in self.events for place in event.fields.get("site", ())}:
            if file not in self._sources:
                self._sources[file] = files.source_of(file)
        return self._sources

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording to a file, which `refdist.insight.load` reads."""
        files.write(path, self.events, self.sources)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Recording of {len(self.events)} events>"


class record:  # noqa: N801 - used like a function
    """Records what happens in a `with` block.

    Args:
        path: a file that is written as it happens, so that it is there after an error or a kill; None keeps the events
            in memory only.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with refdist.record() as recording:
    ...     _ = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    >>> [event.kind for event in recording.events if event.replica == 1]
    ['replica', 'meet', 'receive', 'end']

    Recording changes no result.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path

    def __enter__(self) -> Recording:
        self._writer = None if self._path is None else files.Writer(self._path, *_place())
        self._recording = Recording()
        self._console: Console | None = None
        stream = journal.recording.value
        if not isinstance(stream, Stream):
            stream = journal.recording.value = Stream()
            self._console = Console(stream)
        self._stream = stream
        self._take = self._recording._take if self._writer is None else self._writer.take
        stream.takers.append(self._take)
        return self._recording

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            self._stream.tell(error)
        self._stream.takers.remove(self._take)
        if self._console is not None:
            self._console.leave()
        if not self._stream.takers and journal.recording.value is self._stream:
            journal.recording.value = None
        if self._writer is not None:
            self._writer.close()


def _place() -> tuple[int, int]:
    # Among the processes that a launcher has started together.
    found = launched()
    if found is None:
        return 0, 1
    return found.rank, found.size


def load(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file, or in the parts of one that processes were killed while writing.

    Raises:
        RD30: there is no such file, or it is not a recording.
    """
    return Recording(*files.read(path))
