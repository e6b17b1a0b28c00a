"""Encodes events as lines of a file, fast, because the program waits for it.

A line is an object of JSON: an event, as the table of `events.py` has it, or the text of a source file that the next
event is the first to name.  What happens most often is not made an event first: what its lines have in common is kept
as text, and of an array that was kept whole there are its items as they lie in memory.  `event_of` makes the summaries
when the lines are read.

Events have the stream's numbers here, and get their positions when they are read, where they are also put in order: a
program's threads write beside each other.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from refdist import notebook
from refdist.core import devices
from refdist.insight import summaries
from refdist.insight.events import ARRAYS, Event, JsonEvent
from refdist.insight.stream import Moves, Places, Raw, Where, json_of, places_of, site_of, transferred

encoded = json.JSONEncoder(separators=(",", ":")).encode
_text = functools.lru_cache(maxsize=4096)(encoded)
_KEPT = 1024  # the most calls, and lists of transfers, whose text is kept


@functools.lru_cache(maxsize=4096)
def _device(name: str) -> str:
    return encoded(name and devices.short(name))


class Lines:
    """The lines of one part of a recording, each with its end."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._named: set[str] = set()
        self._places: Places = {}
        self._calls: dict[tuple[object, ...], str] = {}
        self._moves: dict[object, list[str]] = {}
        self._often: dict[str, Callable[..., str]] = {
            "replica": self._replica, "meet": self._meet, "receive": self._receive, "end": self._end,
            "return": self._return, "write": self._write, "transfers": self._transfers}

    def of(self, raw: Raw) -> str:
        """The lines for what the stream hands on."""
        often = self._often.get(raw[1])
        return often(*raw) if often is not None else "".join(map(self._line, json_of(raw, self._places)))

    def event(self, event: Event) -> str:
        """The lines for an event."""
        return self._line(event.as_json())

    def source(self, file: str, text: str | None = None) -> str:
        """The line with the text of a source file; "" if it was written before."""
        if file in self._files:
            return ""
        self._files.add(file)
        return f"{encoded({'file': file, 'text': notebook.source_of(file) if text is None else text})}\n"

    def _line(self, event: JsonEvent) -> str:
        return f"{self._sources(event.get('site', ()))}{encoded(event)}\n"

    def _sources(self, site: Iterable[str]) -> str:
        texts = ""
        for place in site:
            if place not in self._named:
                self._named.add(place)
                texts += self.source(notebook.parts(place)[0])
        return texts

    def _begin(self, number: int, kind: str, at: int, where: Where) -> str:
        # The fields that all events have, as the beginning of a JSON object.
        worker, replica, device, run, step, parent = where
        return (f'{{"id":{number},"kind":"{kind}","time":{at},"worker":{worker},'
                f'"replica":{"null" if replica is None else replica},"device":{_device(device)},"run":{run},'
                f'"step":{step},"parent":{"null" if parent is None else parent}')

    def _replica(self, number: int, kind: str, at: int, where: Where, function: str) -> str:
        return f'{self._begin(number, kind, at, where)},"function":{_text(function)}}}\n'

    def _meet(self, number: int, kind: str, at: int, where: Where, rendezvous: int, call: str, op: str | None,
              axis: int | str | None, place: int, kept: summaries.Taken) -> str:
        key = call, op, axis, place
        known = self._calls.get(key)
        sources = ""
        if known is None:
            if len(self._calls) >= _KEPT:
                self._calls.clear()
            site = places_of(site_of(place))
            sources = self._sources(site)
            known = self._calls[key] = encoded({"call": call, "op": op, "axis": axis, "site": site})[1:-1]
        return (f'{sources}{self._begin(number, kind, at, where)},"rendezvous":{rendezvous},{known},'
                f'"bytes":{summaries.nbytes(kept)},"contributed":{summaries.packed(kept)}}}\n')

    def _receive(self, number: int, kind: str, at: int, where: Where, rendezvous: int, of: int,
                 kept: summaries.Taken) -> str:
        return (f'{self._begin(number, kind, at, where)},"rendezvous":{rendezvous},"of":{of},'
                f'"received":{summaries.packed(kept)}}}\n')

    def _return(self, number: int, kind: str, at: int, where: Where, kept: summaries.Taken) -> str:
        return f'{self._begin(number, kind, at, where)},"returned":{summaries.packed(kept)}}}\n'

    def _end(self, number: int, kind: str, at: int, where: Where, of: int, how: str) -> str:
        return f'{self._begin(number, kind, at, where)},"of":{of},"how":"{how}"}}\n'

    def _write(self, number: int, kind: str, at: int, where: Where, variable: str, count: int, copy: int | None,
               kept: summaries.Taken, place: int) -> str:
        site = places_of(site_of(place))
        return (f'{self._sources(site)}{self._begin(number, kind, at, where)},"variable":{_text(variable)},'
                f'"number":{count},"copy":{"null" if copy is None else copy},'
                f'"bytes":{summaries.nbytes(kept)},"copies":{summaries.packed(kept)},"site":{encoded(site)}}}\n')

    def _transfers(self, number: int, kind: str, at: int, where: Where, fields: dict[str, Moves]) -> str:
        # Kept, because a reduction that is done in every step has the same moves in every step.
        moves = fields["moves"]
        key = (moves.func, moves.args) if isinstance(moves, functools.partial) else moves
        ends = self._moves.get(key)
        if ends is None:
            if len(self._moves) >= _KEPT:
                self._moves.clear()
            ends = self._moves[key] = [
                f',"source":"{source}","destination":"{destination}","bytes":{nbytes},"times":{times}}}\n'
                for source, destination, nbytes, times in transferred(moves)]
        return "".join([self._begin(number, "transfer", at, where) + end for end in ends])


def event_of(line: Mapping[str, Any]) -> Event:
    """The event of a line that was read.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    fields = dict(line)
    for name in ARRAYS:
        if name in fields:
            fields[name] = [summaries.unpacked(entry) for entry in fields[name]]
    return Event.of_json(fields)
