"""`record` and `Recording`: the events of a `with` block, of a program, or of a file."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from refdist import journal, notebook
from refdist.insight import files, page
from refdist.insight.console import Console
from refdist.insight.difference import Difference, difference
from refdist.insight.environment import VARIABLE
from refdist.insight.events import Event, renumbered
from refdist.insight.findings import Finding, findings
from refdist.insight.picture import picture_of
from refdist.insight.stream import Places, Raw, Stream, each_of, json_of
from refdist.insight.summary import Summary, summary_of
from refdist.insight.trace import trace_of
from refdist.workers.launcher import CHIEF, jobs_of, launched, task_of


class Recording:
    """The events of a program, in order.

    Args:
        events: what it has from the beginning.
        sources: see below.

    `refdist.record` makes one, and `refdist.insight.load` reads one from a file.
    """

    def __init__(self, events: Iterable[Event] = (), sources: Mapping[str, str] | None = None) -> None:
        self._events = list(events)
        self._sources = dict(sources or {})
        # The events that the stream has handed on, end to end.
        self._raw: list[Any] = []
        self._position: dict[int, int] = {}

    @property
    def events(self) -> list[Event]:
        """The events; the table in docs/recording.md says what they have."""
        taken = self._raw[:]
        del self._raw[:len(taken)]  # emptied in place, because the stream appends to this list
        known: Places = {}
        for raw in sorted(each_of(taken), key=itemgetter(0)):  # events of several threads may be out of order
            for event in json_of(raw, known):
                if renumbered(event, self._position, len(self._events)):
                    self._events.append(Event.of_json(event))
        return self._events

    @property
    def sources(self) -> dict[str, str]:
        """The text of the program's files that events name, by the name in the event."""
        for file in {notebook.parts(place)[0] for event in self.events for place in event.fields.get("site", ())}:
            if file not in self._sources:
                self._sources[file] = notebook.source_of(file)
        return self._sources

    @property
    def findings(self) -> list[Finding]:
        """What stands out, as the page begins with it: where to look first.

        >>> import numpy as np, refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> with refdist.record() as recording:
        ...     _ = strategy.run(lambda: np.nan)
        >>> [one.text[:13] for one in recording.findings]
        ['The first NaN']
        """
        return findings(self.events)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording to a file, which `refdist.insight.load` reads.

        Args:
            path: of the file.

        Raises:
            RD34: it cannot be written.
        """
        files.write(path, self.events, self.sources)

    def summary(self) -> Summary:
        """Calls and bytes by kind and by line, steps, and who waits for whom."""
        return summary_of(self.events)

    def svg(self) -> str:
        """A picture: a lane for each replica, a column for each rendezvous."""
        return picture_of(self.events)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for Perfetto or chrome://tracing.

        Args:
            path: of the file, which is JSON.

        Raises:
            OSError: it cannot be written.
        """
        Path(path).write_text(json.dumps(trace_of(self.events)))

    def diff(self, other: Recording) -> Difference | None:
        """The first event at which another recording differs; None where there is none.

        Args:
            other: a recording of the same program.

        >>> import refdist
        >>> def recorded(value):
        ...     strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        ...     with refdist.record() as recording:
        ...         _ = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", value))
        ...     return recording
        >>> recorded(1.0).diff(recorded(1.0)) is None, recorded(1.0).diff(recorded(2.0)).fields
        (True, ('contributed',))
        """
        return difference(self.events, other.events)

    def html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page that shows the recording: one file, which needs nothing else.

        Args:
            path: of the file.

        Raises:
            OSError: it cannot be written.
        """
        page.write(path, self.events, self.sources)

    def _repr_html_(self) -> str:
        return page.framed(self.events, self.sources)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Recording of {len(self.events)} events>"


class _Taking:
    """Base of `with` blocks that take events from the stream."""

    def _taken_by(self, take: Callable[[Raw], None]) -> None:
        stream = journal.recording.value
        self._console: Console | None = None
        if not isinstance(stream, Stream):
            stream = journal.recording.value = Stream()
            self._console = Console(stream)
        self._stream = stream
        self._take = take
        stream.give_to([*stream.takers, take])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        stream = self._stream
        if error is not None:
            stream.tell(error)
        stream.give_to([take for take in stream.takers if take is not self._take])
        if self._console is not None:
            self._console.leave()
        if not stream.takers and journal.recording.value is stream:
            journal.recording.value = None


class record(_Taking):  # noqa: N801 - used like a function
    """Records what happens in a `with` block.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with refdist.record() as recording:
    ...     _ = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
    >>> [event.kind for event in recording.events if event.replica == 1]
    ['replica', 'meet', 'receive', 'return', 'end']

    Recording changes no result.
    """

    def __enter__(self) -> Recording:
        recording = Recording()
        self._taken_by(recording._raw.extend)
        return recording


class record_to(_Taking):  # noqa: N801 - used like a function
    """Records what happens in a `with` block into a file, as it happens; `load` reads it.

    Args:
        path: the file.  Of several processes, each writes one of its own beside it; see `insight/files.py`.

    Raises:
        RD25: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._launched = launched()

    def __enter__(self) -> None:
        self._number()
        self._writer: files.Writer | None = self._opened()
        self._taken_by(self._writer.take)
        self._name()

    def _number(self) -> None:
        # Before the worker is connected with the others, and before the first event.
        if self._launched is not None:
            journal.worker.value = self._launched.rank

    def _opened(self) -> files.Writer:
        if self._launched is None:
            return files.Writer(self._path)
        return files.Writer(self._path, self._launched.rank, self._launched.size)

    def _name(self) -> None:
        if self._launched is not None and CHIEF in (jobs_of(self._launched.size) or {}):
            task = task_of(self._launched.rank, self._launched.size)
            self._stream.write("process", job=task.type, task=task.number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        assert self._writer is not None
        self._writer.close()


class _OfTheProgram(record_to):
    """The recording that REFDIST_RECORD asks for.

    The file is opened by the first event, and then the variable is taken away: what starts other processes before it
    does anything itself is not the program, and what the program starts is not either.
    """

    def __enter__(self) -> None:
        self._number()
        self._writer = None
        self._taken_by(self._first)

    def _first(self, raw: Raw) -> None:
        os.environ.pop(VARIABLE, None)
        self._writer = self._opened()
        before, self._take = self._take, self._writer.take
        self._stream.give_to([self._take if take is before else take for take in self._stream.takers])
        self._name()
        self._take(raw)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._writer is None:
            self._writer = self._opened()
        super().__exit__(kind, error, trace)


def start() -> None:
    """Records the program into the file that REFDIST_RECORD names."""
    recorder = _OfTheProgram(os.environ[VARIABLE])
    recorder.__enter__()
    atexit.register(recorder.__exit__, None, None, None)


def load(path: str | os.PathLike[str]) -> Recording:
    """The recording in a file, or in the parts of one that processes were killed while writing.

    Args:
        path: of the file.

    Raises:
        RD30: there is no such file, it is not a recording, or it was changed after it was written.
    """
    return Recording(*files.read(path))
