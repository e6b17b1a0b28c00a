"""What a recording amounts to: calls and bytes by kind and by line, steps, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from refdist.insight.events import Event, workers_of
from refdist.notebook import drawing

_LINES = 12


class Calls(NamedTuple):
    """Collective calls of one kind, or at one line; those that reduce outside replicas are there, too.

    Attributes:
        what: the kind, or the line and the kind.
        rendezvous: how many there were.
        nbytes: what all replicas contributed to them.
    """

    what: str
    rendezvous: int
    nbytes: int


class Waiting(NamedTuple):
    """How one replica, or worker, waited.

    Attributes:
        who: for example "replica 3" or "worker 1".
        rendezvous: how many it came to.
        last: to how many of them it came last, so that the others waited for it.
        seconds: how long it waited.  Simulated replicas run one at a time, so there it is the others' work.
    """

    who: str
    rendezvous: int
    last: int
    seconds: float


class Summary(NamedTuple):
    """What `Recording.summary` returns; `print` shows it as tables.

    Attributes:
        counts: how many workers, replicas, runs, steps, rows, variables, writes, warnings and errors there were; where
            a coordinator scheduled functions how many, too, and how often one began.
        kinds: the collective calls by kind, those with most bytes first.
        lines: the same by line.
        transferred: how many bytes moved from device to device.
        waiting: who waited, and for whom.
    """

    counts: dict[str, int]
    kinds: list[Calls]
    lines: list[Calls]
    transferred: int
    waiting: list[Waiting]

    def __str__(self) -> str:
        counted = ", ".join(f"{number:,} {noun[:-1] if number == 1 else noun}" for noun, number in self.counts.items())
        kinds, lines, waiting = self._tables()
        return "\n\n".join([counted, _aligned(kinds), _aligned(lines),
                            f"{self.transferred:,} bytes moved between devices", _aligned(waiting)])

    def _tables(self) -> list[list[tuple[str, ...]]]:
        """Calls by kind, calls by line, and who waited, each with its heads in the first row."""
        more = len(self.lines) - _LINES
        return [[("call", "rendezvous", "bytes"), *map(_texts, self.kinds)],
                [("line", "rendezvous", "bytes"), *map(_texts, self.lines[:_LINES]),
                 *[(f"and {more} more",)] * (more > 0)],
                [("who", "rendezvous", "came last", "waited"),
                 *(_texts((*waiting[:3], f"{waiting.seconds:.6f} s")) for waiting in self.waiting)]]

    def _repr_html_(self) -> str:
        return drawing(self)


def summary_of(events: Sequence[Event]) -> Summary:
    """The summary of the events of a recording."""
    numbers = Counter(event.kind for event in events)
    replicas = {(event.worker, event.replica) for event in events if event.replica is not None}
    scheduled = {"scheduled functions": numbers["schedule"], "begun functions": numbers["function"]}
    counts = {"workers": workers_of(events), **(scheduled if numbers["schedule"] else {}), "replicas": len(replicas),
              "runs": numbers["run"], "steps": numbers["step"],
              "rows": sum(sum(event["counts"]) for event in events if event.kind == "step"),
              "variables": numbers["variable"], "writes": numbers["write"], "warnings": numbers["warning"],
              "errors": numbers["error"]}
    met = [event for event in events if event.kind in ("meet", "reduce")]
    return Summary(
        counts, _calls((event, event["call"].partition(" of ")[0]) for event in met),
        _calls((event, f"{event['site'][0] if event['site'] else ''} {event['call']}") for event in met),
        sum(event["bytes"] for event in events if event.kind == "transfer"), _waiting(events))


def _calls(named: Iterable[tuple[Event, str]]) -> list[Calls]:
    places: dict[str, set[tuple[int, int]]] = {}
    nbytes: Counter[str] = Counter()
    for event, name in named:
        # A reduction outside replicas is one event on each worker.
        number = event["rendezvous"] if event.kind == "meet" else -event.id
        places.setdefault(name, set()).add((event.worker, number))
        nbytes[name] += event["bytes"]
    calls = [Calls(name, len(places[name]), nbytes[name]) for name in places]
    return sorted(calls, key=lambda call: (-call.nbytes, -call.rendezvous, call.what))


def _waiting(events: Sequence[Event]) -> list[Waiting]:
    # Rendezvous -> (arrival, who, when it went on) of each participant.
    came: dict[tuple[str, int, int], list[tuple[int, str, int]]] = {}
    went_on = {event["of"]: event.time for event in events if event.kind in ("receive", "end")}
    for event in events:
        if event.id in went_on and event.kind == "meet" and event.replica is not None:
            place, who = ("replica", event.worker, event["rendezvous"]), f"replica {event.replica}"
        elif event.id in went_on and event.kind == "exchange":
            place, who = ("worker", 0, event["exchange"]), f"worker {event.worker}"
        else:
            continue
        came.setdefault(place, []).append((event.time, who, went_on[event.id]))
    together: Counter[str] = Counter()
    last: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    for arrivals in came.values():
        if len(arrivals) > 1:
            latest = max(arrivals)
            last[latest[1]] += 1
            for time, who, _ in arrivals:
                together[who] += 1
                waited[who] += latest[0] - time
    order = sorted(together, key=lambda who: (who.split()[0], int(who.split()[1])))
    return [Waiting(who, together[who], last[who], waited[who] / 1e9) for who in order]


def _texts(row: Iterable[object]) -> tuple[str, ...]:
    return tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*(row for row in rows if len(row) > 1), strict=True)]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 and len(row) > 1 else cell.rjust(width) if i else cell
                               for i, (cell, width) in enumerate(zip(row, widths, strict=False))) for row in rows)
