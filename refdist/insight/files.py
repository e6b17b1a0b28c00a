"""Recordings in files: lines of JSON, each written as it happens.

A process writes one *part*: a line that says what this is, the lines of events (`lines.py`), and a last line that says
that it is complete.  Nothing is buffered: each event is handed to the operating system in one call, so whatever ends
the process, all events until then are there.  A mapping of the file into memory would spare these calls; but a process
that is killed would leave a file that ends in zeros, and its children would write into the same place.

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

from refdist import errors
from refdist.insight.events import VERSION, Event, renumbered
from refdist.insight.lines import Lines, encoded, event_of
from refdist.insight.stream import Raw

FORMAT = "refdist recording"
_COMPLETE = {"complete": True}


def _line(found: object) -> str:
    return f"{encoded(found)}\n"


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
        mine = part_of(path, rank)
        try:
            mine.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise errors.error("RD25", f"recording to {os.fspath(path)!r}", f"it cannot be written: {error.strerror}",
                               "Name a file in a folder that can be written to.",
                               kind=errors.InvalidValueError) from error
        self._lines = Lines()
        self._write(_line({"format": FORMAT, "version": VERSION, "rank": rank, "size": size}))

    def _write(self, text: str) -> None:
        if text:
            os.write(self._file, text.encode())

    def take(self, raw: Raw) -> None:
        """Writes what the stream hands on."""
        self._write(self._lines.of(raw))

    def event(self, event: Event) -> None:
        """Writes an event."""
        self._write(self._lines.event(event))

    def source(self, file: str, text: str) -> None:
        """Writes the text of a source file, once."""
        self._write(self._lines.source(file, text))

    def close(self) -> None:
        """Ends the part, and puts all parts together where this is the last."""
        self._write(_line(_COMPLETE))
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
            return file.read().endswith(_line(_COMPLETE).encode())
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
    parts: list[list[tuple[int, int, dict[str, Any]]]] = []
    rank, size = 0, 1
    while rank < size:
        lines = _lines(path, rank)
        if not lines and not rank:
            raise _unreadable(path, "it is not one of a recording, as it has no line")
        for number, line in enumerate(lines, 1):
            found = _parsed(line, path, rank, number)
            if "format" in found:
                parts.append([])
                if rank == found["rank"]:
                    size = found["size"]
                else:
                    size = 0  # they are together in this file
            elif "file" in found:
                sources.setdefault(found["file"], found["text"])
            elif "kind" in found:
                if type(found.get("id")) is not int:
                    raise _unreadable(path, f"line {number} of part {rank} is not an event")
                parts[-1].append((rank, number, found))
        rank += 1
    for part in parts:
        position: dict[int, int] = {}
        for rank, number, found in sorted(part, key=lambda line: line[2]["id"]):
            try:
                if renumbered(found, position, len(events)):
                    events.append(event_of(found))
            except (KeyError, TypeError, ValueError) as error:
                raise _unreadable(path, f"line {number} of part {rank} is not an event") from error
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
