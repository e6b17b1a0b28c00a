"""Where two recordings begin to differ."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from refdist.insight.events import Event


class Difference(NamedTuple):
    """The first event at which two recordings differ; `print` shows both sides.

    Attributes:
        number: its position.
        mine, theirs: the event in each; None where a recording has ended.
        fields: the names of what differs.
    """

    number: int
    mine: Event | None
    theirs: Event | None
    fields: tuple[str, ...]

    def __str__(self) -> str:
        if self.mine is None or self.theirs is None:
            there = self.mine or self.theirs
            assert there is not None
            which = "the other" if self.theirs is not None else "this"
            return f"only {which} recording has event {self.number}: {_shown(there)}"
        lines = [f"event {self.number} differs in {', '.join(self.fields)}"]
        for name, event in (("this", self.mine), ("other", self.theirs)):
            found = _compared(event)
            lines += [f"  {name}: {_shown(event)}", *(f"    {field}: {found.get(field)}" for field in self.fields)]
        return "\n".join(lines)


def difference(mine: Sequence[Event], theirs: Sequence[Event]) -> Difference | None:
    """The first difference; None where there is none.  Times and the folders of source files do not count."""
    for number, (one, other) in enumerate(zip_longest(mine, theirs)):
        if one is None or other is None:
            return Difference(number, one, other, ())
        if one != other:
            here, there = _compared(one), _compared(other)
            fields = tuple(name for name in {**here, **there} if here.get(name) != there.get(name))
            if fields:
                return Difference(number, one, other, fields)
    return None


def _compared(event: Event) -> dict[str, Any]:
    found = event.as_json()
    del found["time"]
    if "site" in found:
        found["site"] = [place.rpartition(os.sep)[2] for place in found["site"]]
    return found


def _shown(event: Event) -> str:
    where = f"worker {event.worker}" + ("" if event.replica is None else f", replica {event.replica}")
    what = event.fields.get("call") or event.fields.get("variable") or event.fields.get("text") or ""
    line = (event.fields.get("site") or [""])[0]
    return " ".join(part for part in (event.kind, what, f"({line})" if line else "", f"on {where}, run {event.run}")
                    if part)
