"""What led to an error: the last 64 rendezvous of this worker, whether anything is recorded or not.

Each completed rendezvous is one tuple of objects that the calls have in common anyway, which costs a tenth of a
microsecond and keeps no array alive.  Replicas remember theirs when their calls have been compared, and workers theirs
when they enter one, since what they wait for may never come.

Errors about calls that do not fit together carry the list as `error.history`, with the calls that did not fit at its
end; with `REFDIST_HISTORY=8` the last eight are shown under the message.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from refdist import errors, journal, notebook

VARIABLE = "REFDIST_HISTORY"


class Rendezvous(NamedTuple):
    """One rendezvous, or what some replicas came to where they should have met.

    Attributes:
        who: "8 replicas", "worker 1", or those that made this call: "replicas 0, 2".
        call: what was called.
        op, dtype, shape: of what was contributed, "" where that does not apply.
        line: the place of the call as "file:line".
    """

    who: str
    call: str
    op: str
    dtype: str
    shape: str
    line: str


class History(list[Rendezvous]):
    """What led to an error, from the first rendezvous to the last; a notebook shows it as a table."""

    def _repr_html_(self) -> str:
        return notebook.drawing(self)


def of(who: str, kind: str, signature: Any, site: Sequence[object]) -> Rendezvous:
    """The entry of a history for a call; `who` says which replicas made it."""
    op, dtype, shape = ("" if value is None else str(getattr(value, "name", value))
                        for value in (signature.op, signature.dtypes, signature.shapes))
    return Rendezvous(who, kind, op, dtype, shape, str(site[0]) if site else "")


def explained(error: errors.RefdistError, last: Iterable[Rendezvous] = ()) -> errors.RefdistError:
    """The error, with what led to it; `last` are the calls that did not fit together."""
    if not error.history:
        error.history = History([*(of(*entry) for entry in journal.history.value), *last])
        wanted = os.environ.get(VARIABLE, "")
        if wanted.isdecimal() and int(wanted):
            error.add_note(table(error.history[-int(wanted):]))
    return error


def table(history: Sequence[Rendezvous]) -> str:
    """The rendezvous as lines of text, the last one at the end."""
    rows = [Rendezvous._fields, *history]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(["The last rendezvous:", *(f"  {line}" for line in lines)])
