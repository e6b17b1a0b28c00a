"""Aligns two runs: the values that both have, in order, and where they first differ.

What is compared is what all replicas have in common: each variable after each write, the numbers that the program
prints outside replicas, and what a function returned.  What is a replica's own is not: contributions, copies of
variables that are synchronized on reading, what a replica prints.  Nor are the results of collectives, because a right
program may reduce the number of replicas itself, and divide by it.  Values are aligned by their name and by how often
they were written, and not by the line.

Sums that are grouped otherwise are rounded otherwise.  `tolerance` is how large a difference is no difference, relative
to the largest value that the variable has had.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from refdist.insight import summaries
from refdist.insight.events import Event
from refdist.insight.trial import Trial

# In units of eps: a sum of n terms in another grouping differs by less than n of them, typically by about sqrt(n).
ROUNDINGS = 64
# In float64: training may enlarge a rounding to 10 million times eps, which is still 60 times less than the eps of
# float32, so that a difference above it does not come from rounding.
IN_DOUBLE = 1e-9
_OF_NORMS = 1e-4
RETURNED = "returned"  # the name of the numbers that a function returns
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf|infinity))(?![\w])")
# By these NumPy aligns the columns of an array.
_INDENTED, _SPACES = re.compile(r"(?<=[\[(])\s+"), re.compile(r"\s{2,}")
# Texts in printed lines that depend on replicas and devices.
_OWN = ("PerReplica", "GPU:", "CPU:", "TPU:", "replica_")


class Point(NamedTuple):
    """A value that all replicas have in common.

    Attributes:
        name: what has the value.
        times: how often it has had one.
        step: after how many elements of distributed datasets.
        line: where it was set; "" where that is not known.
        value: a summary of each array, or the line that was printed.
        at: the id of the event.
    """

    name: str
    times: int
    step: int
    line: str
    value: Any
    at: int


class Parting(NamedTuple):
    """Where two runs part.

    Attributes:
        name, line, step: of the value that differs first.
        first, second: the value in each, as text.
        relative: how large the difference is, relative to the largest value; infinite where it is not one of numbers.
        points: the value in each; None where it does not have that.
        before: the value of the same variable before that, in each.
    """

    name: str
    line: str
    step: int
    first: str
    second: str
    relative: float
    points: tuple[Point | None, Point | None]
    before: tuple[Point | None, Point | None] = (None, None)


def points_of(trial: Trial) -> list[Point]:
    """The values of a run, in order."""
    own: set[int] = set()
    alone: set[int] = set()
    counts: dict[str, int] = {}
    points: list[Point] = []
    for event in trial.events:
        if event.worker:
            continue  # other workers have the same variables
        value: Any
        if event.kind in ("variable", "write"):
            if event.fields.get("synchronization") == "ON_READ":
                own.add(event["number"])
            copies = event["copies"]
            if event.kind == "variable" and len(copies) == 1:
                alone.add(event["number"])
            # Writes of single copies are followed by one of all copies.
            part = event.fields.get("copy") is not None and event["number"] not in alone
            if event["number"] in own or part or not copies or any(copy != copies[0] for copy in copies):
                continue
            name, value = event["variable"].removesuffix(":0"), copies[:1]
            key = f"{name} {event['number']}"
        elif event.kind == "print" and event.replica is None and event["stream"] == "stdout":
            name = key = "printed"
            value = event["text"]
        else:
            continue
        counts[key] = counts.get(key, 0) + 1
        points.append(Point(key, counts[key], event.step, (event.fields.get("site") or [""])[0], value, event.id))
    if trial.returned:
        points.append(Point(RETURNED, 1, trial.events[-1].step if trial.events else 0, "", trial.returned,
                            len(trial.events)))
    return points


class Aligned:
    """Two runs side by side.

    Args:
        first, second: the runs.
        unstable: texts of printed lines, without numbers, that differ from run to run.

    Attributes:
        compared: how many values both have.
        worst: the largest difference of two values that count as equal.
    """

    def __init__(self, first: Trial, second: Trial, unstable: frozenset[str] = frozenset()) -> None:
        self.first, self.second = first, second
        self._unstable = unstable
        self.compared = 0
        self.worst = 0.0

    def partings(self, whole: bool = True) -> Iterator[Parting]:
        """Yields the points at which the runs differ, in the order of the first run.

        Args:
            whole: whether both runs have ended, so that one must not have more values than the other.
        """
        ones, others = points_of(self.first), points_of(self.second)
        unmatched = {(point.name, point.times): point for point in others if point.name != "printed"}
        lines = self._lines(ones, others)
        largest: dict[str, float] = {}
        previous: dict[str, tuple[Point, Point]] = {}
        missing: list[Parting] = []
        ended = {name for name, *_ in ones} ^ {name for name, *_ in others}
        for point in ones:
            if point.name == "printed":
                other = lines.get(point.at)
            else:
                other = unmatched.pop((point.name, point.times), None)
            if other is None:
                if point.name not in ended and point.name != "printed":
                    ended.add(point.name)
                    missing.append(_only(point, True))
                continue
            if point.name == "printed" and template(point.value) in self._unstable:
                continue
            self.compared += 1
            relative = self._relative(point, other, largest)
            if relative > 0:
                place = point if point.line else other
                name = point.name.rpartition(" ")[0] or point.name
                yield Parting(name, place.line, point.step, _shown(point.value), _shown(other.value), relative,
                              (point, other), previous.get(point.name, (None, None)))
            previous[point.name] = point, other
        if whole:
            for point in unmatched.values():
                if point.name not in ended:
                    ended.add(point.name)
                    missing.append(_only(point, False))
            yield from missing

    def _lines(self, ones: list[Point], others: list[Point]) -> dict[int, Point]:
        # Pairs the printed lines of both runs that have the same text between the numbers.
        here = [point for point in ones if point.name == "printed"]
        there = [point for point in others if point.name == "printed"]
        matcher = difflib.SequenceMatcher(None, [template(point.value) for point in here],
                                          [template(point.value) for point in there], autojunk=False)
        return {here[block.a + i].at: there[block.b + i] for block in matcher.get_matching_blocks()
                for i in range(block.size)}

    def _relative(self, point: Point, other: Point, largest: dict[str, float]) -> float:
        """How large the difference is; 0 for one that rounding explains."""
        if isinstance(point.value, str):
            return self._of_lines(point.value, other.value)
        if len(point.value) != len(other.value):
            return float("inf")
        worst = 0.0
        for first, second in zip(point.value, other.value, strict=True):
            if any(first[name] != second[name] for name in ("dtype", "shape", "nans")):
                return float("inf")
            distance, scale = _distance(first, second)
            scale = largest[point.name] = max(scale, largest.get(point.name, 0.0))
            worst = max(worst, self._counted(distance, scale, first["dtype"]), _of_norms(first, second))
        return worst

    def _of_lines(self, first: str, second: str) -> float:
        if any(text in first for text in _OWN):
            return 0.0
        worst = 0.0
        for x, y in zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True):
            if x == y or self._says(x, y):
                continue
            if not (np.isfinite(float(x)) and np.isfinite(float(y))):
                return float("inf")
            # A difference of one in the last printed digit may be a rounding; 0.5 beside 0.625 is not cut, but exact.
            digits = 10.0 ** -max(map(_decimals, (x, y))) if "." in x + y and "e" not in (x + y).lower() else 0.0
            difference = abs(float(x) - float(y))
            if difference > digits * 1.01:
                worst = max(worst, self._counted(difference, max(abs(float(x)), abs(float(y))), "float32"))
        return worst

    def _says(self, x: str, y: str) -> bool:
        """Whether two printed numbers differ because they are the number of replicas or workers, or a batch size."""
        pairs = [(self.first.setting.replicas, self.second.setting.replicas),
                 (max(self.first.setting.workers, 1), max(self.second.setting.workers, 1))]
        here, there = global_batch(self.first), global_batch(self.second)
        pairs += [(here, there), (here // pairs[0][0], there // pairs[0][1])]
        return (x, y) in {(str(first), str(second)) for first, second in pairs}

    def _counted(self, difference: float, scale: float, dtype: str) -> float:
        if not difference:
            return 0.0
        relative = difference / scale if scale else float("inf")
        if relative <= tolerance(dtype):
            self.worst = max(self.worst, relative)
            return 0.0
        return relative


def template(line: str) -> str:
    """A printed line with each number replaced by "#", and without the spaces by which NumPy aligns columns.

    >>> template("epoch 3: loss 0.25")
    'epoch #: loss #'
    >>> template("[-0.5   1.25]") == template("[nan nan]")
    True
    """
    return _SPACES.sub(" ", _INDENTED.sub("", _NUMBER.sub("#", line)))


def _decimals(number: str) -> int:
    return len(number.partition(".")[2])


def tolerance(dtype: str) -> float:
    """The largest relative difference that does not count as one."""
    if dtype in ("float64", "complex128"):
        return IN_DOUBLE
    if dtype in ("float32", "complex64"):
        return ROUNDINGS * float(np.finfo(np.dtype(dtype)).eps)
    return {"float16": 2.0**-6, "bfloat16": 2.0**-3}.get(dtype, 0.0)


def global_batch(trial: Trial) -> int:
    """The number of rows on all workers in the first element of a distributed dataset; 0 if none was read."""
    firsts = {event.worker: sum(event["counts"]) for event in reversed(trial.events) if event.kind == "step"}
    return sum(firsts.values())


def _distance(first: summaries.Summary, second: summaries.Summary) -> tuple[float, float]:
    # The largest difference of items, and the largest item.
    pairs = list(zip_longest(_numbers(first), _numbers(second)))
    finite = [(x, y) for x, y in pairs if np.isfinite(x) and np.isfinite(y)]
    if any(x != y and not (x != x and y != y) for x, y in pairs if not (np.isfinite(x) and np.isfinite(y))):
        return float("inf"), 1.0
    return (max((abs(x - y) for x, y in finite), default=0.0),
            max((max(abs(x), abs(y)) for x, y in finite), default=0.0))


def _of_norms(first: summaries.Summary, second: summaries.Summary) -> float:
    # A large array is recorded by some of its items, and by its norm with six digits.
    x, y = (summary["norm"] for summary in (first, second))
    if "items" in first or not (isinstance(x, float) and isinstance(y, float)):
        return 0.0
    relative = abs(x - y) / max(x, y, 1e-300)
    return relative if relative > _OF_NORMS else 0.0


def _numbers(summary: summaries.Summary) -> list[Any]:
    parts = [summary["items"]] if "items" in summary else [summary["first"], summary["min"], summary["max"]]
    return [number for part in parts if part is not None for number in _flat(part)]


def _flat(items: Any) -> Iterator[Any]:
    if isinstance(items, list):
        for item in items:
            yield from _flat(item)
    else:
        yield complex(items) if isinstance(items, str) and "j" in items else float(items)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else ", ".join(map(summaries.text, value))


def _only(point: Point, here: bool) -> Parting:
    name = point.name.rpartition(" ")[0] or point.name
    texts = _shown(point.value), "not written any more"
    return Parting(name, point.line, point.step, *(texts if here else texts[::-1]), float("inf"),
                   (point, None) if here else (None, point))


class Meeting(NamedTuple):
    """A rendezvous of all replicas, or a call that reduces or gathers outside of them.

    Attributes:
        call, op, line: what was called, and where.
        step, run, at: of the replica that came first, or of the call outside, and the id of its event.
        contributed: summaries of what each replica contributed, by its number.
        received: what the first of them got, or what the call outside has returned.
    """

    call: str
    op: str | None
    line: str
    step: int
    run: int
    at: int
    contributed: dict[int, list[summaries.Summary]]
    received: list[summaries.Summary]


def meetings(trial: Trial) -> list[Meeting]:
    """The rendezvous of a run, and what it reduces outside replicas, in order, over all of its workers."""
    of_calls: dict[tuple[str, int], Meeting] = {}
    numbers: dict[tuple[int, object], int] = {}
    met: dict[int, tuple[str, int]] = {}
    counts: dict[int, int] = {}
    runs: dict[int, Event] = {}
    for event in trial.events:
        if event.kind == "run":
            runs[event.worker] = event
        elif (event.kind == "meet" and event.replica is not None) or event.kind == "reduce":
            place = event.worker, event["rendezvous"] if event.kind == "meet" else ("reduce", event.id)
            if place not in numbers:
                numbers[place] = counts[event.worker] = counts.get(event.worker, 0) + 1
            key = event["call"], numbers[place]
            if key not in of_calls:
                of_calls[key] = Meeting(event["call"], event["op"], (event["site"] or [""])[0], event.step, event.run,
                                        event.id, {}, [])
            of_calls[key].contributed.update(_of_each(event, runs.get(event.worker)))
            met[event.id] = key
        elif event.kind in ("receive", "return"):
            call = event["of"] if event.kind == "receive" else event.parent
            if call in met and not of_calls[met[call]].received:
                of_calls[met[call]].received.extend(event["received" if event.kind == "receive" else "returned"])
    return list(of_calls.values())


def readings(trial: Trial) -> list[Meeting]:
    """The reads of variables outside replicas to which each replica's part has contributed, on the first worker."""
    parts: dict[int, dict[int, list[summaries.Summary]]] = {}
    ops: dict[int, str] = {}
    meetings: list[Meeting] = []
    for event in trial.events:
        if event.worker:
            continue
        if event.kind == "variable" and event["synchronization"] == "ON_READ":
            ops[event["number"]] = event["aggregation"]
        elif event.kind == "write" and event["number"] in ops:
            first = event["copy"] or 0  # of an assignment outside there are all copies
            parts.setdefault(event["number"], {}).update(
                {first + i: [copy] for i, copy in enumerate(event["copies"])})
        elif event.kind == "read" and event.replica is None and event["number"] in ops:
            meetings.append(Meeting(f"read of variable {event['variable']}", ops[event["number"]],
                                 (event["site"] or [""])[0], event.step, event.run, event.id,
                                 {**parts.get(event["number"], {})}, event["received"]))
    return meetings


def numbers_of(point: Point) -> list[float]:
    """The numbers of a value; of a printed line those that are in its text."""
    if isinstance(point.value, str):
        return [float(number) for number in _NUMBER.findall(point.value)]
    return [number for part in point.value for number in _numbers(part)]


def _of_each(event: Event, run: Event | None) -> dict[int, list[summaries.Summary]]:
    """What each replica contributes to a call; outside replicas, those of the last run."""
    contributed = event["contributed"]
    if event.replica is not None:
        return {event.replica: contributed}
    first, count = (0, 1) if run is None else (run["first"], run["replicas"])
    if len(contributed) % count:
        return {first: contributed}  # not every value has a component for each replica
    return {first + i: contributed[i::count] for i in range(count)}


def returned(trial: Trial, until: int) -> tuple[str, dict[int, list[summaries.Summary]]]:
    """The line of the last `run` of the first worker before an event, and what each replica has returned from it."""
    line = ""
    replicas: set[int] = set()
    values: dict[int, list[summaries.Summary]] = {}
    for event in trial.events:
        if event.id >= until:
            break
        if event.worker:
            continue
        if event.kind == "run":
            line, replicas, values = (event["site"] or [""])[0], set(), {}
        elif event.kind == "replica":
            replicas.add(event.id)
        elif event.kind == "return" and event.parent in replicas and event.replica is not None:
            values[event.replica] = event["returned"]
    return line, values


def steps(trial: Trial) -> list[Event]:
    """The elements of distributed datasets that were taken."""
    return [event for event in trial.events if event.kind == "step"]
