"""Why two runs of a program part: what explains it, from what was recorded.

Each cause is looked for by a function of the table at the end, the strongest evidence first: numbers that fit exactly
before a line that may matter.  Where none fits, the first call whose result differs is said, and that the cause is not
known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import PurePath
from typing import Any, NamedTuple

from refdist.core import divisors
from refdist.core.scaled import Deal
from refdist.insight import summaries
from refdist.insight.aligned import (
    RETURNED,
    Meeting,
    Parting,
    _flat,
    global_batch,
    meetings,
    numbers_of,
    points_of,
    readings,
    returned,
    steps,
    tolerance,
)
from refdist.insight.draws import GLOBAL, PYTORCH
from refdist.insight.keys import SEEDS
from refdist.insight.trial import Trial

_MOST_ROWS = 1_000_000
# Calls whose result need not be the same on another number of replicas.
_JOINING = ("merge_call", "gather", "all_gather", "Strategy.gather")
_BY_THE_BATCH = ("Divide by the global batch (`nn.compute_average_loss(loss, global_batch_size=...)`), or reduce with "
                 "MEAN.")
_FOLD_IN = ("Make a key for each replica from it: jax.random.fold_in(key, context.replica_id_in_sync_group), outside "
            "of what JAX compiles, or with the replica as an argument.")
_FOLD_IN_SEED = ("Make a seed for each replica from it: tf.random.fold_in(seed, "
                 "tf.distribute.get_replica_context().replica_id_in_sync_group).")
# Of numbers that were printed, with few digits.
_OF_PRINTED = 0.01
_CHANGING = ("assign_add of", "assign_sub of", "scatter_add of", "scatter_sub of")


class Cause(NamedTuple):
    """Why two runs part.

    Attributes:
        title: what kind of cause it is.
        why: what was seen, in a sentence.
        advice: what to write instead.
    """

    title: str
    why: str
    advice: str


class Case:
    """Two runs that part.

    Attributes:
        first, second: the runs; the second is that with more replicas, or in another order.
        parting: where.
        shaken: where runs of the same number of replicas part that differ in their order; None where they do not.
        meeting: the first rendezvous, or reduction outside replicas, that both came to and whose results differ, in
            each; or a read of replicas' parts that differs in the same measure as what was printed or returned then;
            None for none.
        aligned: whether, where there is none, the first came to each of the second.
    """

    def __init__(self, first: Trial, second: Trial, parting: Parting, shaken: Parting | None = None) -> None:
        self.first, self.second, self.parting, self.shaken = first, second, parting, shaken
        self.counts = first.setting.replicas, second.setting.replicas
        self._all = meetings(second)
        self.aligned = True
        self._harmless: dict[tuple[str, ...], float] = {}  # by call and line, factors that are divided by later
        self.meeting = next(self._differing(), None) or next(self._read(), None)

    def _differing(self) -> Iterator[tuple[Meeting, Meeting]]:
        # Two meetings are the same one if call and line are; where no line is known, if the call is.
        by_place: dict[tuple[str, ...], list[Meeting]] = {}
        for first in meetings(self.first):
            by_place.setdefault((first.call, first.line), []).append(first)
            by_place.setdefault((first.call,), []).append(first)
        taken: Counter[tuple[str, ...]] = Counter()
        until = self.parting.points[1]
        # A factor did no harm if the value that parts in the end was still equal after it: the program divides by it
        # later.  But what is printed in the same step may have been computed before.
        printed = until is not None and until.name == "printed"
        equal = {point.step - printed: point.at for point in points_of(self.second)
                 if until is not None and point.name == until.name and point.at < until.at}
        harmless = self._harmless
        others_differ: list[tuple[Meeting, Meeting]] = []
        for second in self._all:
            key: tuple[str, ...] = (second.call, second.line) if second.line else (second.call,)
            candidates = by_place.get(key, [])
            at = taken[key]
            taken[key] += 1
            if second.step > self.parting.step or second.call in _JOINING or (
                    until is not None and second.at > until.at):
                continue
            if at >= len(candidates):
                self.aligned = False
                continue
            first = candidates[at]
            shapes = [[summary["shape"] for summary in meeting.received] for meeting in (first, second)]
            if shapes[0] != shapes[1]:
                continue
            x, y = _items(first.received), _items(second.received)
            counts = _all_are(x, self.counts[0]) and _all_are(y, self.counts[1])
            parts_here = second.call.endswith(f" of variable {self.parting.name}:0")
            if not x or (counts and not parts_here) or _near(x, y, _loosest(first, second)):
                continue
            factor = _factor_between(x, y)
            if factor is not None and second.step < self.parting.step and second.at < equal.get(second.step, 0):
                harmless[key] = factor
            elif factor is None or key not in harmless or not _near([factor], [harmless[key]], 1e-3):
                yield first, second
                continue
            others_differ.append((first, second))
        yield from others_differ

    def _read(self) -> Iterator[tuple[Meeting, Meeting]]:
        here, there = self.parting.points
        if here is None or there is None or self.parting.name not in ("printed", RETURNED):
            return
        shown = [(x, y) for x, y in zip(numbers_of(here), numbers_of(there), strict=False) if x != y]
        reads = {(first.call, first.line): first for first in readings(self.first) if first.at < here.at}
        for second in reversed(readings(self.second)):
            first = reads.get((second.call, second.line))
            if first is None or second.at > there.at or not second.contributed:
                continue
            x, y = _items(first.received), _items(second.received)
            if any(not _near([a * q], [b * p], _OF_PRINTED) and (_is_finite(b) or _is_finite(q))
                   for a, b in zip(x, y, strict=False) for p, q in shown):
                continue
            if shown and not _near(x, y, _loosest(first, second)):
                yield first, second

    def rows(self) -> list[int] | None:
        """How many rows each replica of the second has where it parts, by replica; None where that is not known."""
        rows = [count for event in steps(self.second) if event.step == self.parting.step for count in event["counts"]]
        return rows or None

    def results(self) -> tuple[list[Any], list[Any]]:
        """The results of both runs' first call that differs; of one that adds to a variable, what it has added."""
        assert self.meeting is not None
        first, second = self.meeting
        x, y = _items(first.received), _items(second.received)
        if second.call.startswith(_CHANGING) and second.line == self.parting.line:
            x, y = self.changes() or (x, y)
        return x, y

    def changes(self) -> tuple[list[Any], list[Any]] | None:
        """By how much the value that differs has changed in each; None where it is not one of numbers."""
        changes: list[list[Any]] = []
        for point, before in zip(self.parting.points, self.parting.before, strict=True):
            if point is None or isinstance(point.value, str):
                return None
            then = [0.0] * len(_items(point.value)) if before is None else _items(before.value)
            changes.append([x - y for x, y in zip(_items(point.value), then, strict=False)])
        return changes[0], changes[1]

    def is_never_reduced(self) -> bool:
        """Whether no replica has met another, and the runs part after the first step."""
        return self.parting.step > 1 and all(meeting.call.startswith("Strategy.") for meeting in self._all)

    def is_divided(self) -> bool:
        """Whether what the first call that differs has given is divided by the number of replicas later."""
        assert self.meeting is not None
        first, second = self.meeting
        changes, times = self.changes(), self.counts[0] / self.counts[1]
        if changes is not None and len(changes[0]) == len(changes[1]) == len(_items(first.received)):
            here, there = (_factor_between(_items(meeting.received), change)
                           for meeting, change in zip(self.meeting, changes, strict=True))
            if here is not None and there is not None:
                return _near([here * times], [there], 1e-3)
        return ((second.call, second.line) if second.line else (second.call,)) in self._harmless

    def op(self) -> str | None:
        """What the first call that differs does with what replicas contribute: "SUM", "MEAN", "ONLY_FIRST_REPLICA"."""
        assert self.meeting is not None
        two = self.meeting[1]
        name = two.call.rpartition(" of variable ")[2]
        aggregations = {event["aggregation"] for event in self.second.events
                        if event.kind == "variable" and event["variable"] == name}
        return two.op or (aggregations.pop() if len(aggregations) == 1 else None)

    def alone(self) -> list[Any] | None:
        """What the one replica of the first contributes to the first call that differs; None where it has several."""
        assert self.meeting is not None
        [*parts] = self.meeting[0].contributed.values()
        return _items(parts[0]) if len(parts) == 1 and self.counts[0] == 1 else None

    def parts(self) -> list[list[Any]]:
        """What each replica of the second contributes to the first call that differs."""
        assert self.meeting is not None
        return [_items(part) for _, part in sorted(self.meeting[1].contributed.items())]

    def earlier(self, meeting: Meeting) -> Meeting | None:
        """The call of the same run whose result, or a multiple of it, is what is contributed to this one."""
        contributed = _items(meeting.contributed[min(meeting.contributed)])
        return next((other for other in self._all if other.run == meeting.run and other.at < meeting.at
                     and other.call == "all_reduce" and _is_multiple(contributed, _items(other.received))), None)


def _factor_between(items: list[Any], others: list[Any]) -> float | None:
    # By what all of the first are multiplied; None where that is not one factor.
    most = max(range(len(items)), key=lambda i: abs(items[i]))
    factor = others[most] / items[most] if items[most] and len(items) == len(others) else None
    return factor if factor is not None and _near([item * factor for item in items], others, 1e-5) else None


def _is_multiple(items: list[Any], of: list[Any]) -> bool:
    # One number is a multiple of any other, which says nothing.
    if items == of or len(items) != len(of) or len(items) < 2 or any(isinstance(item, str) for item in (*items, *of)):
        return items == of
    most = max(range(len(of)), key=lambda i: abs(of[i]))
    return bool(of[most]) and len({*of}) > 1 and _near([items[most] / of[most] * item for item in of], items, 1e-5)


def cause_of(case: Case) -> Cause | None:
    """What explains it best; None where nothing that was recorded does."""
    for look in _CAUSES:
        cause = look(case)
        if cause is not None:
            return cause
    return None


def of_dealing(case: Case, deal: Deal, parting: Parting) -> Cause:
    """Why two runs part, where a run with the same rows, dealt otherwise, parts from the second, too."""
    if deal is not Deal.TO_THE_NEXT_REPLICA and case.is_never_reduced():
        return _never_reduced(case)
    result = f"{parting.name} is {parting.second} in place of {parting.first}"
    if deal is Deal.TO_THE_NEXT_REPLICA:
        return Cause("WHICH REPLICA", f"{_seen_first(case)}. With each part of the rows given to the next replica, "
                     f"{result}: something is computed from the number of a replica, or taken from one of them alone",
                     "Leave the number of the replica out of what is trained, and reduce over all replicas.")
    return Cause("ROWS OF ONE REPLICA", f"{_seen_first(case)}. With the same rows in other parts, {result}: what a "
                 "replica computes from a row depends on the rows that it has beside it, or on its place "
                 "among them: a statistic of the batch, a norm, a ratio, pairs of rows",
                 "Reduce what it is computed from before that.")


def of_parts(case: Case) -> Cause:
    """Why two runs part, where the second does not if one replica has all rows of each step, and the others none."""
    if case.is_never_reduced():
        return _never_reduced(case)
    return Cause("ROWS OF ONE REPLICA", f"{_seen_first(case)}. With all rows on the last replica, and none on the "
                 f"others, {case.parting.name} is what it is on {case.counts[0]}: what a replica computes from a row "
                 "depends on the rows that it has beside it: a statistic of the batch, a norm, a ratio, pairs of rows",
                 "Reduce what it is computed from before that.")


def _never_reduced(case: Case) -> Cause:
    return Cause("NOTHING REDUCED", f"{_seen_first(case)}. The first step is the same, and no replica has met another "
                 "in it: there is no all_reduce, and no write to a variable that aggregates. So what a replica learns "
                 "of its rows is known to it alone, and what it has after the first step differs from what the others "
                 "have", "Reduce the gradients over the replicas before weights are changed, "
                 "`replica.all_reduce(\"MEAN\", gradient)`; `REFDIST_CHECKS=types` names the line of the write.")


def of_reading(case: Case, other: Trial) -> Cause | None:
    """The cause of a difference that is gone when replicas read the total of a variable; None where they read none.

    Args:
        other: the run in which replicas read totals.
    """
    reads = [event for event in other.events if event.kind == "read" and event.replica is not None
             and event["copy"] is None]
    if not reads:
        return None
    places = {event["variable"].removesuffix(":0"): (event.fields.get("site") or [""])[0] for event in reversed(reads)}
    variables = ", ".join(f"{name} at {_short(line)}" for name, line in sorted(places.items())[:4])
    return Cause("PART READ AS THE TOTAL", f"a replica reads {variables}, of which it has a part of its own. Where "
                 f"each replica reads what is read outside, {case.parting.name} is what it is on {case.counts[0]}",
                 "Reduce what is read, `replica.all_reduce(\"SUM\", variable.read_value())`, with the variable's "
                 "aggregation; or read the variable outside of replicas.")


def of_counting(case: Case, others: list[Trial]) -> Cause | None:
    """Why a run of one replica and of several part, where each further replica adds the same; None where it does not.

    Args:
        others: runs of other numbers of replicas.
    """
    place = case.parting.points[0]
    points = {trial.setting.replicas: point for trial in (case.first, case.second, *others)
              for point in points_of(trial) if place is not None and (point.name, point.times) == place[:2]}
    if len(points) < len(others) + 2 or any(isinstance(point.value, str) for point in points.values()):
        return None
    alone = _items(points.pop(1).value)
    added = [[(item - of_one) / (count - 1) for item, of_one in zip(_items(point.value), alone, strict=False)]
             for count, point in sorted(points.items())]
    loose = 1e-3  # of a difference of rounded numbers
    if not any(added[0]) or not all(_near(each, added[0], loose) for each in added):
        return None
    return Cause("THE SAME SUMMED", f"{_seen_first(case)}. Each further replica changes {case.parting.name} by "
                 f"{', '.join(f'{item:.4g}' for item in added[0][:4])}, whatever rows it has: all replicas contribute "
                 "the same beside what they compute from their rows, such as a penalty of the weights",
                 "Divide what is the same on all by the number of replicas (`nn.scale_regularization_loss`), or add it "
                 "after the reduction.")


def of_itself(first: Trial, again: Trial, hashes: bool, parting: Parting) -> Cause:
    """Why a program differs from itself.

    Args:
        hashes: whether it is the same where the hash seed is.
    """
    if hashes:
        return Cause("HASH ORDER", "with another hash seed the same run differs, with the same one it does not: the "
                     "order of a set, or hash() of a text, decides",
                     "Sort what comes out of a set before looping over it.")
    seeded = {draw.made for draw in first.draws if draw.seed not in (None, "None")}
    if any(draw.made == PYTORCH for draw in first.draws):
        return Cause("NO SEED", "random numbers are drawn from PyTorch's generator, such as the first values of a "
                     "layer, and it was not seeded", "Call torch.manual_seed(0) first: without that, nothing can be "
                     "said of other numbers of replicas.")
    for draw in first.draws:
        if draw.seed == "None" or (draw.seed is None and draw.made == GLOBAL and GLOBAL not in seeded):
            problem = "a random generator is made without a seed" if draw.seed else (
                "random numbers are drawn from a generator that was not seeded")
            return Cause("NO SEED", f"{problem} ({_short(draw.line)})",
                         "Seed it: without that, nothing can be said of other numbers of replicas.")
    return Cause("DIFFERS FROM ITSELF", "two runs at the same number of replicas differ: by the time, by random "
                 "numbers that have no seed, or by files that other programs write",
                 "Make the program repeatable first: without that, nothing can be said of other numbers of replicas.")


def _batch(case: Case) -> Cause | None:
    (a, b), (here, there) = case.counts, (global_batch(case.first), global_batch(case.second))
    if not here or here == there or here * b != there * a:
        return None
    return Cause("GLOBAL BATCH", f"its global batch is {here // a} times the number of replicas: {here} rows on {a}, "
                 f"{there} on {b}; so it takes other steps, which is no mistake",
                 f"Compare with the same batch: --global-batch {there}, or global_batch={there}.")


def _rows(case: Case) -> Cause | None:
    if case.first.ended != "returned" or case.second.ended != "returned":
        return None
    here, there = _seen(case.first), _seen(case.second)
    if not here[1] or not there[1] or here[1] == there[1]:
        return None
    (a, b), fewer = map(str, (case.first.setting, case.second.setting)), there[1] < here[1]
    text = f"in all, {here[1]} rows are taken on {a} and {there[1]} on {b}"
    known = here[0] is not None and there[0] is not None
    if here[0] is not None and there[0] is not None:
        some = sorted(here[0] - there[0]) if fewer else sorted(there[0] - here[0])
        times = Counter(there[0][row] for row in some)
        often = times.most_common(1)[0][0]
        frequency = "never seen" if not often else "seen twice" if often == 2 else f"seen {often} times"
        text += f"; {_listed(some)} {'is' if len(some) == 1 else 'are'} {frequency} there"
    kind = "ROWS NEVER SEEN" if fewer else "ROWS SEEN TWICE"
    taken = [_taken(trial, known) for trial in (case.first, case.second)]
    common = min(map(len, taken))
    if taken[0][:common] == taken[1][:common]:
        return Cause(kind, f"{text}: {_number(taken[0], 'step')} and {_number(taken[1], 'step')}, which begin with "
                     f"{'the same' if known else 'as many'} rows",
                     "Where the program leaves the loop, let a value decide that is the same on any "
                     "number of replicas, such as a loss that is reduced over all of them; where the dataset ends, "
                     "look at `distributed.explain()`, and at drop_remainder.")
    return Cause(kind, text, "Let experimental_distribute_dataset divide one dataset, or shard it once, by "
                 "`dataset.shard(context.num_input_pipelines, context.input_pipeline_id)`; look at "
                 "`distributed.explain()`, and at drop_remainder.")


def _taken(trial: Trial, known: bool) -> list[tuple[int, Counter[int]]]:
    # In each step how many rows, and which, if that is known.
    by_step: dict[int, list[Any]] = {}
    for event in steps(trial):
        by_step.setdefault(event.step, []).append(event)
    return [(sum(sum(event["counts"]) for event in events),
             Counter(row for event in events if known for spans in event["rows"] for first, last in spans or ()
                     for row in range(first, last + 1)))
            for _, events in sorted(by_step.items())]


def _number(of: Sized, noun: str) -> str:
    return f"{len(of)} {noun}{'s' * (len(of) != 1)}"


def _multiplied(observation: str) -> Cause:
    return Cause("MULTIPLIED AFTER REDUCING", f"{observation}, although what is reduced is the same: something is "
                 "multiplied or divided by the number of replicas after that, such as the learning rate",
                 "Leave that out to train as on one replica with the same global batch.")


def _not_finite(case: Case) -> Cause | None:
    if case.meeting is None or not all(map(_is_finite, _items(case.meeting[0].received))):
        return None
    second, rows = case.meeting[1], case.rows()
    parts = {replica: _items(part) for replica, part in sorted(second.contributed.items())}
    bad = [replica for replica, part in parts.items() if not all(map(_is_finite, part))]
    if not bad or len(bad) == len(parts):
        return None
    none = [replica for replica in bad if rows is not None and replica < len(rows) and not rows[replica]]
    empty = f"; {_listed(none, 'replica')} {'has' if len(none) == 1 else 'have'} no rows there" if none else ""
    advice = ("Sum over the rows and divide by the size of the global batch, which is never 0: the mean of no rows is "
              "NaN." if none else "Look at what that replica computes from its rows.")
    return Cause("NOT FINITE", f"{_listed(bad, 'replica')} {'contributes' if len(bad) == 1 else 'contribute'} "
                 f"{_short_text(second.contributed[bad[0]])} to {second.call} at {_short(second.line)}, and the others "
                 f"finite numbers{empty}", advice)


def _first_only(case: Case) -> Cause | None:
    if case.meeting is None or case.op() != "ONLY_FIRST_REPLICA":
        return None
    first, second = case.meeting
    parts, alone = case.parts(), case.alone()
    loose = _loosest(first, second)
    if alone is None or len({len(part) for part in (alone, *parts)}) > 1 or all(
            _near(parts[0], part, loose) for part in parts):
        return None
    total = [sum(items) for items in zip(*parts, strict=True)]
    mean = [item / len(parts) for item in total]
    fits = "their sum" if _near(total, alone, loose) else "their mean" if _near(mean, alone, loose) else ""
    if not fits and case.shaken is not None:
        return None  # what replica 0 contributes depends on the order of the replicas
    return Cause("ONLY THE FIRST REPLICA", f"replicas contribute {_parts(second.contributed)} to {second.call} at "
                 f"{_short(second.line)}, and its aggregation takes what replica 0 contributes"
                 + (f"; {fits} is what is contributed on 1" if fits else ""),
                 "Reduce it first, with all_reduce; or give the variable the aggregation SUM or MEAN.")


def _scaled(case: Case) -> Cause | None:
    if case.meeting is None:
        return None
    first, second = case.meeting
    (a, b), where = case.counts, f"{second.call} at {_short(second.line)}"
    x, y = case.results()
    parts, op = case.parts(), case.op()
    alike = len(parts) > 1 and all(_near(part, parts[0], 1e-5) for part in parts)
    factor = b / a
    changes = case.changes()
    if case.shaken is not None and (case.shaken.name == case.parting.name or (
            changes is not None and not _near([factor * item for item in changes[0]], changes[1], 1e-3))):
        return None  # the factor may be divided by, or be chance, and the order of the replicas decides
    if _near([factor * item for item in x], y, _loosest(first, second)):
        times = f"{factor:g} times what it is on {a}"
        if alike:
            earlier = case.earlier(second)
            if earlier is not None and second.call.startswith("assign") and _near(
                    sorted(map(abs, parts[0])), sorted(map(abs, y)), 1e-3):  # it is written, and not summed
                return _multiplied(f"{where} gets {times}")
        place = None if alike else _multiplication(second)
        if place is not None:
            return Cause("MULTIPLIED BEFORE REDUCING", f"{where} gets {times}: what replicas contribute, or a factor "
                         f"of it such as the learning rate, is multiplied by the number of replicas at {place}",
                         "Leave that factor out to train as on one replica with the same global batch.")
        if op in ("MEAN", "ONLY_FIRST_REPLICA"):
            return _factor(f"{where} gets {times}")
        if alike:
            if earlier is not None:
                other = ("reduce with MEAN" if second.call == "Strategy.reduce"
                         else "write aggregation=ONLY_FIRST_REPLICA")
                return Cause("REDUCED TWICE", f"{where} gets {times}: what each replica contributes is already the "
                             f"result of {earlier.call} at {_short(earlier.line)}, the same on all, and is summed "
                             "again", f"Reduce once: leave the first reduction out, or {other}.")
            undistributed = _undistributed(case, f"{where} gets {times}")
            return undistributed or Cause("THE SAME SUMMED", f"{where} gets {times}: all replicas contribute the same "
                                          f"value, {_text(second)}, whatever rows they have: a constant, or what was "
                                          "clipped to its limit",
                                          "Sum what differs between replicas, clip after the reduction, and add what "
                                          "is the same on all after it, too, or use MEAN.")
        return Cause("MEANS SUMMED", f"{where} gets {times}: each replica contributes a mean over its own rows, "
                     f"{_parts(second.contributed)}, and the sum of {b} means is {b} means", _BY_THE_BATCH)
    if _near([item / factor for item in x], y, _loosest(first, second)):
        if alike and _written_as_reduced(case) is not None:
            return _multiplied(f"{where} gets 1/{factor:g} of what it is on {a}")
        if op == "ONLY_FIRST_REPLICA":
            return _factor(f"{where} gets 1/{factor:g} of what it is on {a}")
        return Cause("DIVIDED TWICE", f"{where} gets 1/{factor:g} of what it is on {a}: {_parts(second.contributed)} "
                     "are sums over the rows of a replica, or are divided by the number of replicas already, and are "
                     "divided once more",
                     "Divide once: reduce with SUM what was divided by the global batch, or with MEAN what is a mean.")
    return None


def _multiplication(meeting: Meeting) -> str | None:
    # Where the text multiplies what is contributed by the number of replicas.
    file, _, line = meeting.line.rpartition(":")
    call = meeting.call.partition(" ")[0].rpartition(".")[2]
    at = divisors.multiplied_by_replicas(file, int(line), call) if file and line.isdigit() else None
    return None if at is None else f"{PurePath(file).name}:{at}"


def _undistributed(case: Case, observation: str) -> Cause | None:
    if steps(case.second):
        return None
    return Cause("NOT DISTRIBUTED", f"{observation}: all replicas do the same, and no distributed dataset is used, so "
                 "that each computes with the whole batch, or a constant is summed", "Loop over "
                 "strategy.experimental_distribute_dataset(dataset), so that each replica gets its part.")


def _means(case: Case) -> Cause | None:
    rows = case.rows()
    if case.meeting is None or rows is None or len(set(rows)) < 2 or case.op() not in ("MEAN", "SUM"):
        return None
    first, second = case.meeting
    parts, alone, op = case.parts(), case.alone(), case.op()
    if len(parts) != len(rows) or len({*map(len, parts)}) > 1 or (op == "SUM" and alone is None):
        return None
    # Weighed by the rows, it is the mean over all.
    weighed = [sum(count * item for count, item in zip(rows, items, strict=True) if count) / sum(rows)
               for items in zip(*parts, strict=True)]
    if alone is not None and not _near(weighed, alone, _loosest(first, second)):
        return None
    if op == "SUM" and not case.is_divided():
        return Cause("MEANS SUMMED", f"{second.call} at {_short(second.line)} takes the sum of what replicas "
                     f"contribute: each contributes a mean over its own {', '.join(map(str, rows))} rows, "
                     f"{_parts(second.contributed)}", _BY_THE_BATCH)
    takes = "mean of what replicas contribute" if op == "MEAN" else "sum of means, which is divided by their number"
    return Cause("MEAN OF MEANS", f"{second.call} at {_short(second.line)} takes the {takes}, and "
                 f"they have {', '.join(map(str, rows))} rows: the mean of their means is not the mean over all rows",
                 "Sum over rows, reduce the sums and the numbers of rows with SUM, and divide; or drop the remainder.")


def _extremes(case: Case) -> Cause | None:
    if case.meeting is None or case.shaken is not None or case.op() not in ("MEAN", "SUM"):
        return None
    first, second = case.meeting
    parts, alone = case.parts(), case.alone()
    if alone is None or not alone or len({len(part) for part in (alone, *parts)}) > 1:
        return None
    for extreme, choose in (("largest", max), ("smallest", min)):
        if _near([choose(items) for items in zip(*parts, strict=True)], alone, _loosest(first, second)):
            return Cause("ROWS OF ONE REPLICA", f"{second.call} at {_short(second.line)} reduces "
                         f"{_parts(second.contributed)} with {second.op or case.op()}; the {extreme} of them is what "
                         f"is contributed on {case.counts[0]}: each replica takes the {extreme} of its own rows",
                         "Gather what each replica has, with all_gather or `strategy.gather`, and take the "
                         f"{extreme} of that.")
    return None


def _changes(case: Case) -> Cause | None:
    """The change of a variable is k times as large, and no call explains it."""
    if case.meeting is not None and case.meeting[1].call.endswith(f" of variable {case.parting.name}:0"):
        return None
    changes = case.changes()
    if changes is None:
        return None
    x, y = changes
    a, b = case.counts
    loose = 1e-3  # of a difference of rounded numbers
    line = _short(case.parting.line)
    for factor, text in ((b / a, f"{b / a:g} times"), (a / b, f"1/{b / a:g} of")):
        if factor != 1 and x and any(x) and _near([factor * item for item in x], y, loose):
            observation = f"the change of {case.parting.name} at {line} is {text} what it is on {a}"
            if factor > 1 and case.meeting is None:
                undistributed = _undistributed(case, observation) if not meetings(case.second) else None
                if undistributed:
                    return undistributed
            if case.meeting is None and case.aligned and meetings(case.second):
                return _multiplied(observation)
            return _factor(observation)
    return None


def _written_as_reduced(case: Case) -> tuple[Meeting, float, float] | None:
    """The all_reduce whose result, times a number, is what all replicas write, and that number in each run.

    None where there is none.
    """
    if case.meeting is None or case.op() == "SUM" or not case.meeting[1].call.startswith(("assign", "scatter")):
        return None
    first, second = case.meeting
    reduced = case.earlier(second)
    if reduced is None:
        return None
    reductions = [meeting for meeting in meetings(case.first) if meeting.run == first.run and meeting.at < first.at
              and (meeting.call, meeting.line) == (reduced.call, reduced.line)]
    sides = [(_items(writing.contributed[min(writing.contributed)]), _items(meeting.received))
             for writing, meeting in ((first, reductions[-1]), (second, reduced))] if reductions else []
    if not sides or not all(_is_multiple(*side) for side in sides):
        return None
    most = max(range(len(sides[0][1])), key=lambda i: abs(sides[0][1][i]))
    ratios = [items[most] / of[most] if of[most] else 0.0 for items, of in sides]
    return reduced, ratios[0], ratios[1]


def _after_reducing(case: Case) -> Cause | None:
    written = _written_as_reduced(case)
    if written is None:
        return None
    reduced, here, there = written
    if _near([here], [there], 1e-4):
        return None
    assert case.meeting is not None
    second, (a, b) = case.meeting[1], case.counts
    return Cause("MULTIPLIED AFTER REDUCING", f"{second.call} at {_short(second.line)} gets what {reduced.call} at "
                 f"{_short(reduced.line)} has given, times {abs(here):.4g} on {a} and times {abs(there):.4g} on {b}, "
                 "although what is reduced is the same: what it is multiplied by is another, such as a rate that each "
                 "replica changes", "Change it once in a step, outside of replicas, or keep it in a variable.")


def _factor(observation: str) -> Cause:
    return Cause("SCALED BY THE NUMBER OF REPLICAS", f"{observation}: what was reduced is summed and divided by a "
                 "part's rows, or divided by the number of replicas once more",
                 "Divide by the global batch once, and reduce with SUM; or reduce means with MEAN.")


def _alike_seeded(case: Case) -> Cause | None:
    seeds: dict[tuple[str, str], set[int]] = {}
    for draw in case.second.draws:
        if draw.seed not in (None, "None") and draw.replica is not None:
            seeds.setdefault((draw.line, draw.seed or ""), set()).add(draw.replica)
    for (line, seed), replicas in seeds.items():
        if len(replicas) > 1:
            return Cause("ONE SEED", f"replicas {_listed(sorted(replicas), '')} make a generator with the seed {seed} "
                         f"({_short(line)}), so all of them draw the same numbers",
                         "Add the replica to the seed: default_rng([seed, context.replica_id_in_sync_group]), or draw "
                         "from a refdist.random.Generator made outside.")
    return None


def _alike_keys(case: Case) -> Cause | None:
    # What is drawn for rows has another shape on another number of replicas; weights that replicas make have the same.
    here = _drawn_with_keys(case.first)
    drawn = [key for key in case.second.keys
             if key.is_drawn and key.replica is not None and (key.line, key.shape) not in here]
    by_key: dict[tuple[str, str, bool], set[int]] = {}
    for key in drawn:
        if key.key is not None and key.replica is not None:
            by_key.setdefault((key.line, key.key, key.what.startswith(SEEDS)), set()).add(key.replica)
    for (line, numbers, is_seed), replicas in by_key.items():
        if len(replicas) > 1:
            key_or_seed = f"the seed {numbers}" if is_seed else f"one key of JAX, {numbers}"
            return Cause("ONE SEED", f"replicas {_listed(sorted(replicas), '')} draw random numbers ({_short(line)}) "
                         f"with {key_or_seed}, so all of them draw the same", _FOLD_IN_SEED if is_seed else _FOLD_IN)
    traced = [key for key in drawn if key.key is None]
    seeds: dict[str, set[str | None]] = {}
    for key in case.second.keys:
        if key.is_made:
            seeds.setdefault(key.line, set()).add(key.key)
    own = any(None in of_line or len(of_line) > 1 for of_line in seeds.values()) or any(
        key.what == "fold_in" or (key.what == "split" and key.shape == str(case.counts[1]))
        for key in case.second.keys)
    if not traced or not seeds or own:
        return None  # a replica may have a key of its own
    return Cause("ONE SEED", f"replicas draw random numbers ({_short(traced[0].line)}) with a key of JAX that is made "
                 f"from one seed ({_short(next(iter(seeds)))}), so all of them draw the same", _FOLD_IN)


def _drawn_with_keys(trial: Trial) -> set[tuple[str, str | None]]:
    return {(key.line, key.shape) for key in trial.keys if key.is_drawn}


def _shared_generator(case: Case) -> Cause | None:
    for draw in case.second.draws:
        if draw.replica is None or draw.seed is not None:
            continue
        if draw.made == GLOBAL:
            return Cause("GLOBAL RANDOM STATE", f"replicas draw random numbers from the global generator "
                         f"({_short(draw.line)}), of which each takes what the one before has left",
                         "Draw from a refdist.random.Generator, which has a stream for each replica, or from "
                         "default_rng([seed, context.replica_id_in_sync_group]).")
        if draw.maker is None:
            return Cause("SHARED GENERATOR", f"replicas draw random numbers ({_short(draw.line)}) from one generator, "
                         f"made at {_short(draw.made)}, of which each takes what the one before has left",
                         "Give each replica a generator: default_rng([seed, context.replica_id_in_sync_group]).")
    return None


def _state(case: Case) -> Cause | None:
    if case.shaken is None:
        return None
    return Cause("SHARED PYTHON STATE", "the order in which replicas run decides, too "
                 f"({case.shaken.name} at {_short(case.shaken.line)}): replicas read and write something of Python "
                 "that they have in common: a counter, a list, an attribute",
                 "Give each replica its own, or use a variable.")


def _own_generator(case: Case) -> Cause | None:
    draw = next((draw for draw in case.second.draws if draw.replica is not None and draw.maker is not None), None)
    keyed = next((key for key in case.second.keys if key.is_drawn and key.replica is not None
                  and (key.line, key.shape) not in _drawn_with_keys(case.first)), None)
    line = draw.line if draw is not None else None if keyed is None else keyed.line
    if line is None:
        return None
    return Cause("RANDOM NUMBERS OF EACH REPLICA", f"each replica draws numbers of its own ({_short(line)}), which "
                 "with another number of replicas are others; that is no mistake, and hides any other",
                 "Compare without them: no dropout, no augmentation.")


def unknown(case: Case) -> Cause:
    """What is said where the cause is not known: what differs first."""
    if case.meeting is None:
        return Cause("NOT KNOWN", _seen_first(case), "Look at the line: what it writes depends on the number of "
                     "replicas.")
    names = [event["variable"].removesuffix(":0") for event in case.second.events
             if event.kind == "variable" and event["synchronization"] == "ON_READ" and not event.worker]
    read = f"; or a replica reads its own copy of {names[0]}" if names else ""
    return Cause("NOT KNOWN", f"{_seen_first(case)}. It may be that something is computed from the rows of one replica "
                 f"that is meant over all: a statistic of the batch, a norm, pairs of rows{read}",
                 "Reduce what it is computed from before that.")


def _seen_first(case: Case) -> str:
    """The first call whose result differs, with what replicas contribute; without one what `run` returned."""
    if case.meeting is None:
        text = "no collective call has another result before that"
        sides = [returned(trial, point.at) for trial, point in zip((case.first, case.second), case.parting.points,
                                                                   strict=True) if point is not None]
        if len(sides) == 2 and all(parts for _, parts in sides):
            here, there = (_parts(parts) for _, parts in sides)
            text += (f"; run at {_short(sides[1][0])} returns {here} on {case.counts[0]} and {there} on "
                     f"{case.counts[1]}")
        return text
    first, second = case.meeting
    return (f"the first call with another result is {second.call} at {_short(second.line)}, which gets "
            f"{_short_text(first.received)} on {case.counts[0]} and {_short_text(second.received)} on "
            f"{case.counts[1]}; replicas contribute {_parts(second.contributed)}")


def of_order(case: Case) -> Cause:
    """Why two orders of replicas come to different results."""
    cause = _shared_generator(case)
    if cause is not None:
        return cause
    example = ""
    for first, second in zip(meetings(case.first), meetings(case.second), strict=False):
        differing = [replica for replica, items in first.contributed.items()
                     if items != second.contributed.get(replica)]
        if differing:
            replica = differing[0]
            example = (f"; replica {replica} contributes {_short_text(first.contributed[replica])} to {first.call} at "
                       f"{_short(first.line)} in the order of the numbers, and "
                       f"{_short_text(second.contributed[replica])} in another")
            break
    return Cause("SHARED PYTHON STATE", "replicas read and write something of Python that they have in common: a "
                 f"counter, a list, an attribute{example}", "Give each replica its own, or use a variable.")


_CAUSES: tuple[Callable[[Case], Cause | None], ...] = (
    _batch, _rows, _not_finite, _first_only, _scaled, _changes, _alike_seeded, _alike_keys, _shared_generator, _means,
    _state, _own_generator, _after_reducing, _extremes)


def _seen(trial: Trial) -> tuple[Counter[int] | None, int]:
    # How often each row was taken, where that is known, and how many rows in all.
    total = sum(sum(event["counts"]) for event in steps(trial))
    seen: Counter[int] = Counter()
    if total > _MOST_ROWS:
        return None, total
    for event in steps(trial):
        if event["rows"] is None:
            return None, total
        for spans in event["rows"]:
            for first, last in spans or ():
                seen.update(range(first, last + 1))
    return seen, total


def _items(arrays: list[summaries.Summary]) -> list[Any]:
    return [item for array in arrays if array["dtype"] != "bool" and array["shape"] is not None
            for part in ([array["items"]] if "items" in array else [array["first"], array["min"], array["max"]])
            if part is not None for item in _flat(part)]


def _loosest(*compared: Meeting) -> float:
    return max([1e-5, *(tolerance(array["dtype"]) for meeting in compared for array in meeting.received)])


def _near(x: list[Any], y: list[Any], relative: float) -> bool:
    scale = max([abs(item) for item in (*x, *y) if _is_finite(item)], default=0.0)
    return len(x) == len(y) and all(first == second or abs(first - second) <= relative * scale
                                    for first, second in zip(x, y, strict=True))


def _is_finite(item: Any) -> bool:
    return bool(item == item and abs(item) != float("inf"))


def _all_are(items: list[Any], number: int) -> bool:
    return all(item == number for item in items)


def _short(place: str) -> str:
    return PurePath(place).name if place else "an unknown line"


def _short_text(arrays: list[summaries.Summary]) -> str:
    text = ", ".join(map(summaries.text, arrays))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(meeting: Meeting) -> str:
    return _short_text(meeting.contributed[min(meeting.contributed)])


def _parts(of_replicas: Mapping[int, list[summaries.Summary]]) -> str:
    texts = [(len(part), _short_text(part)) for _, part in sorted(of_replicas.items())]
    parts = [text if count == 1 else f"[{text}]" for count, text in texts]
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if 1 < len(parts) <= 4 else ", ".join(parts[:4])


def _listed(numbers: list[int], noun: str = "row") -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans[:6])
    text += ", ..." * (len(spans) > 6)
    return f"{noun}{'s' * (len(numbers) != 1)} {text}" if noun else text
