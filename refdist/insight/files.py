"""Recordings in files: lines of JSON, each written as it happens.

A process writes one *part*: a line that says what this is, a line for each event, before an event the text of each
source file that it is the first to name, and a last line that says that it is complete.  Nothing is buffered: each line
is one call of the operating system, so whatever ends the process, all events until then are there.

Of several processes, rank 0 writes FILE and rank 3 writes FILE.3.  Whichever ends last finds all parts complete,
and puts them one after another into FILE, by rank; so a file is a sequence of parts, and a part alone is a file.  After
an error or a kill some part is not complete, nothing is put together, and `read` takes the parts as they are.  That
needs no process that outlives the others, and no message between them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from refdist import errors, notebook
from refdist.insight.events import VERSION, Event, Told, renumbered
from refdist.insight.stream import Places, Raw, told_of

FORMAT = "refdist recording"
_COMPLETE = {"complete": True}
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def part_of(path: str | os.PathLike[str], rank: int) -> Path:
    """The file that the process of this rank writes."""
    return Path(f"{os.fspath(path)}.{rank}" if rank else path)


class Writer:
    """Writes the part of one process.

    Args:
        path: the file of the recording.
        rank, size: of this process among those that are recorded together.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int = 0, size: int = 1) -> None:
        self._path = path
        self._size = size
        self._files: set[str] = set()
        self._named: set[str] = set()
        self._places: Places = {}
        self._count = 0
        self._position: dict[int, int] = {}
        mine = part_of(path, rank)
        try:
            mine.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise errors.error("RD25", f"recording to {os.fspath(path)!r}", f"it cannot be written: {error.strerror}",
                               "Name a file in a folder that can be written to.",
                               kind=errors.InvalidValueError) from error
        self._line({"format": FORMAT, "version": VERSION, "rank": rank, "size": size})

    def _line(self, found: Mapping[str, Any]) -> None:
        os.write(self._file, (_ENCODE(found) + "\n").encode())

    def take(self, raw: Raw) -> None:
        """Writes what the stream hands on."""
        for told in told_of(raw, self._places):
            if renumbered(told, self._position, self._count):
                self._count += 1
                self._told(told)

    def event(self, event: Event) -> None:
        """Writes an event."""
        self._told(event.as_json())

    def _told(self, told: Told) -> None:
        for place in told.get("site", ()):
            if place not in self._named:
                self._named.add(place)
                self.source(notebook.parts(place)[0])
        self._line(told)

    def source(self, file: str, text: str | None = None) -> None:
        """Writes the text of a source file, once."""
        if file not in self._files:
            self._files.add(file)
            self._line({"file": file, "text": notebook.source_of(file) if text is None else text})

    def close(self) -> None:
        """Ends the part, and puts all parts together where this is the last."""
        self._line(_COMPLETE)
        os.close(self._file)
        if self._size > 1:
            self._put_together()

    def _put_together(self) -> None:
        lock = Path(f"{os.fspath(self._path)}.lock")
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return  # another process is at it, so all parts are complete
        try:
            parts = [part_of(self._path, rank) for rank in range(self._size)]
            if all(map(_is_complete, parts)):
                together = lock.with_suffix(".all")
                together.write_bytes(b"".join(part.read_bytes() for part in parts))
                os.replace(together, self._path)
                for part in parts[1:]:
                    part.unlink()
        finally:
            lock.unlink()


def _is_complete(part: Path) -> bool:
    try:
        with part.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64))
            return file.read().endswith(_ENCODE(_COMPLETE).encode() + b"\n")
    except FileNotFoundError:
        return False


def write(path: str | os.PathLike[str], events: Iterable[Event], sources: Mapping[str, str]) -> None:
    """Writes a whole recording as one part."""
    writer = Writer(path)
    for file, text in sources.items():
        writer.source(file, text)
    for event in events:
        writer.event(event)
    writer.close()


def read(path: str | os.PathLike[str]) -> tuple[list[Event], dict[str, str]]:
    """The events and source files of a recording; of parts that are not put together yet, by rank.

    Raises:
        RD30: there is no such file, or it is not a recording.
    """
    events: list[Event] = []
    sources: dict[str, str] = {}
    position: dict[int, int] = {}
    rank, size = 0, 1
    while rank < size:
        lines = _lines(path, rank)
        if not lines and not rank:
            raise _unreadable(path, "it is not one of a recording, as it has no line")
        for number, line in enumerate(lines, 1):
            found = _parsed(line, path, rank, number)
            if "format" in found:
                position = {}
                if rank == found["rank"]:
                    size = found["size"]
                else:
                    size = 0  # they are together in this file
            elif "file" in found:
                sources.setdefault(found["file"], found["text"])
            elif "kind" in found:
                if renumbered(found, position, len(events)):
                    events.append(Event.of_json(found))
        rank += 1
    return events, sources


def _lines(path: str | os.PathLike[str], rank: int) -> list[str]:
    part = part_of(path, rank)
    try:
        text = part.read_text()
    except (OSError, UnicodeDecodeError) as error:
        if rank:
            return []  # this process had not begun
        raise _unreadable(path, f"{error}") from error
    # What was killed may have left half a line.
    return text[:text.rfind("\n") + 1].splitlines()


def _parsed(line: str, path: str | os.PathLike[str], rank: int, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise _unreadable(path, f"line {number} of part {rank} is not JSON") from error
    if not isinstance(found, dict) or (
            number == 1 and (found.get("format"), found.get("version")) != (FORMAT, VERSION)):
        raise _unreadable(path, f"line {number} of part {rank} is not one of a recording of version {VERSION}")
    return found


def _unreadable(path: str | os.PathLike[str], found: str) -> errors.RefdistError:
    return errors.error("RD30", f"reading the recording {os.fspath(path)!r}", found,
                        "Name a file that `python -m refdist run --record` or `Recording.save` has written.")
