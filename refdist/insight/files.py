"""Recordings in files: lines of JSON, each written as it happens.

A process writes one *part*: a line that says what this is, the lines of events (`lines.py`), and a last line that says
that it is complete.  Each line ends with a checksum of its own, as nothing else tells a value that a disk has changed
from the one that was recorded.  Nothing is buffered: each event is handed to the operating system in one call, so
whatever ends the process, all events until then are there.  A mapping of the file into memory would spare these calls;
but a process that is killed would leave a file that ends in zeros, and its children would write into the same place.

Of several processes, rank 0 writes FILE and rank 3 writes FILE.3.  Whichever ends last finds all parts complete,
and puts them one after another into FILE, by rank; so a file is a sequence of parts, and a part alone is a file.  After
an error or a kill some part is not complete, nothing is put together, and `read` takes the parts as they are.  That
needs no process that outlives the others, and no message between them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from refdist import errors
from refdist.insight.events import VERSION, Event, checked, renumbered
from refdist.insight.lines import Lines, encoded, event_of
from refdist.insight.stream import Raw

FORMAT = "refdist recording"
_CHECKSUM = b',"crc":"%08x"}'  # the end of each line
_CHECKSUM_SIZE = len(_CHECKSUM % 0)


def sealed(line: bytes) -> bytes:
    """Adds to a JSON object, as its last field, the checksum of everything before.

    >>> sealed(b'{"complete":true}')
    b'{"complete":true,"crc":"89538dc4"}'
    """
    fields = line[:-1]
    return fields + _CHECKSUM % zlib.crc32(fields)


def _unsealed(line: bytes) -> bytes | None:
    # The line without its checksum; None if the checksum is wrong.
    fields = line[:-_CHECKSUM_SIZE] + b"}"
    return fields if sealed(fields) == line else None


def _line(content: object) -> bytes:
    return sealed(encoded(content).encode()) + b"\n"


_COMPLETE = _line({"complete": True})


def part_of(path: str | os.PathLike[str], rank: int) -> Path:
    """The file to which the process with this rank writes its part of a recording."""
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
        part = part_of(path, rank)
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise errors.error("RD34", f"recording to {os.fspath(path)!r}", f"it cannot be written: {error.strerror}",
                               "Name a file in a folder that can be written to.") from error
        self._lines = Lines()
        os.write(self._file, _line({"format": FORMAT, "version": VERSION, "rank": rank, "size": size}))

    def _write(self, text: str) -> None:
        if text:
            os.write(self._file, b"".join([sealed(line) + b"\n" for line in text.encode().splitlines()]))

    def take(self, raw: Raw) -> None:
        """Writes the event that the stream hands on."""
        self._write(self._lines.of(raw))

    def event(self, event: Event) -> None:
        """Writes an event."""
        self._write(self._lines.event(event))

    def source(self, file: str, text: str) -> None:
        """Writes the text of a source file, once."""
        self._write(self._lines.source(file, text))

    def close(self) -> None:
        """Ends the part; the process that ends last merges all parts into one file."""
        os.write(self._file, _COMPLETE)
        os.close(self._file)
        if self._size > 1:
            self._put_together()

    def _put_together(self) -> None:
        lock = Path(f"{os.fspath(self._path)}.lock")
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return  # another process merges the parts, which are therefore complete
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
            file.seek(max(0, file.tell() - len(_COMPLETE)))
            return file.read() == _COMPLETE
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
    """Reads the events and source files of a recording; from parts that are not merged yet, by rank.

    Raises:
        RD30: there is no such file, it is not a recording, or it was changed after it was written.
    """
    events: list[Event] = []
    sources: dict[str, str] = {}
    parts: list[list[tuple[int, int, dict[str, Any]]]] = []
    rank, size = 0, 1
    while rank < size:
        lines = _lines(path, rank)
        if not lines and not rank:
            raise _unreadable(path, "it is not a recording, as it has no line")
        for number, line in enumerate(lines, 1):
            fields = _parsed(line, path, rank, number)
            if "format" in fields:
                parts.append([])
                if rank == fields["rank"]:
                    size = fields["size"]
                else:
                    size = 0  # this file has all parts
            elif "file" in fields:
                sources.setdefault(fields["file"], fields["text"])
            elif "kind" in fields:
                if not parts or type(fields.get("id")) is not int:
                    raise _unreadable(path, f"line {number} of part {rank} is not an event")
                parts[-1].append((rank, number, fields))
        rank += 1
    for part in parts:
        position: dict[int, int] = {}
        for rank, number, fields in sorted(part, key=lambda line: line[2]["id"]):
            try:
                if renumbered(fields, position, len(events)):
                    events.append(checked(event_of(fields)))
            except (KeyError, TypeError, ValueError) as error:
                raise _unreadable(path, f"line {number} of part {rank} is not an event") from error
    return events, sources


def _lines(path: str | os.PathLike[str], rank: int) -> list[bytes]:
    try:
        data = part_of(path, rank).read_bytes()
    except OSError as error:
        if rank and isinstance(error, FileNotFoundError):
            return []  # the process of this part had not begun
        raise _unreadable(path, f"{error}") from error
    *lines, rest = data.split(b"\n")
    # A killed process may leave an incomplete line; a complete one without its end is an error.
    return [*lines, rest] if _unsealed(rest[:-1]) else lines


def _parsed(line: bytes, path: str | os.PathLike[str], rank: int, number: int) -> dict[str, Any]:
    where = f"line {number} of part {rank}"
    fields = _unsealed(line)
    if number == 1:
        header = _loaded(line)
        if header.get("format") != FORMAT:
            raise _unreadable(path, f"{where} is not that of a recording")
        # Lines have a checksum since version 3.
        if header.get("version") != VERSION and (fields or "crc" not in header):
            raise _unreadable(path, f"it is a recording of version {header.get('version')}, and this refdist reads "
                              f"version {VERSION}", "Record the program again.")
    if fields is None:
        raise _unreadable(path, f"{where} does not have the checksum that it was written with, so the file was changed "
                          "since then", "Take another copy of the file, or record the program again.")
    return _loaded(fields)


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _unreadable(path: str | os.PathLike[str], found: str,
                fix: str = "Name a file that `python -m refdist run --record` or `Recording.save` has written."
                ) -> errors.RefdistError:
    return errors.error("RD30", f"reading the recording {os.fspath(path)!r}", found, fix)
