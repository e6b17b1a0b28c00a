"""`refdist.compare`: does a program train the same on N replicas as on one?

In this order: the fewest replicas, twice and with another hash seed, because nothing can be said of a program that
differs from itself; each other number of replicas; the same on several workers, where the program has a strategy for
them; and the most replicas in permuted orders.  Where two runs part by little, both are run again in float64: what is a
rounding becomes a billion times smaller, and what is not stays.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from refdist import errors
from refdist.coordinator.values import not_on_a_worker
from refdist.core.integers import integer
from refdist.core.scaled import Deal
from refdist.insight import aligned, causes, forks, trial
from refdist.insight.aligned import Aligned, Parting
from refdist.insight.causes import Case, Cause
from refdist.insight.trial import Program, Setting, Trial
from refdist.notebook import drawing

# A larger relative difference is no rounding, so the program is not run again in float64.
_LARGE = 1e-2
# Training makes a rounding larger from value to value, and another difference comes at once: with more than this times
# the largest one before it.  Where there is none before, with this times 1e-9 in float64, and times 1e-6 in float32.
_GROWTH = 100.0
_ROUNDED = 1e-6
_STRATEGY_OF_WORKERS = "MultiWorkerMirroredStrategy"


class Difference(NamedTuple):
    """Where a run parts from the one that it is compared with, and why.

    Attributes:
        first, second: the runs, in words: "1 replica", "4 replicas in order 1".
        name, line, step: of the first value that differs; the step is how many elements of distributed datasets had
            been taken.
        values: that value in each.
        cause: what kind of cause it is, such as "MEANS SUMMED" or "NOT KNOWN"; docs/compare.md lists them.
        why: what was seen.
        advice: what to write instead.
    """

    first: str
    second: str
    name: str
    line: str
    step: int
    values: tuple[str, str]
    cause: str
    why: str
    advice: str

    def __str__(self) -> str:
        width = max(len(self.first), len(self.second))
        return "\n".join([self._head(), f"  {self._where()}", f"    {self.first.ljust(width)}  {self.values[0]}",
                          f"    {self.second.ljust(width)}  {self.values[1]}", f"  why: {self.why}",
                          f"  write: {self.advice}"])

    def _head(self) -> str:
        """The cause, and which runs part."""
        return f"{self.cause}: {self.second} against {self.first}"

    def _where(self) -> str:
        """In which step, at which value and line."""
        if self.name == aligned.RETURNED:
            return "what the program returns"
        place = f"{self.name} at {self.line}" if self.line else self.name
        return f"{f'step {self.step}' if self.step else 'before the first step'}, {place}"

    def _repr_html_(self) -> str:
        return drawing(self)


class Comparison:
    """What `refdist.compare` returns; `print` shows it.

    Attributes:
        differences: where the runs part, one for each run that parts.
        failures: (a run, why it could not be compared).
        runs: what was run, in words.
        compared: how many values were found equal, over all runs.
        notes: what is to be known of the comparison.
    """

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.failures: list[tuple[str, str]] = []
        self.runs: list[str] = []
        self.compared = 0
        self.notes: list[str] = []

    @property
    def same(self) -> bool:
        """Whether all runs came to the same, and each could be compared."""
        return not self.differences and not self.failures

    @property
    def status(self) -> int:
        """The exit status of the command: 0 where it trains the same, 1 where not, 3 where that cannot be said."""
        return 1 if self.differences else 3 if self.failures else 0

    def assert_same(self) -> None:
        """Raises unless all runs agree; for tests.

        Raises:
            AssertionError: runs part, or could not be compared; its text is the report.
        """
        if not self.same:
            raise AssertionError(str(self))

    def _head(self) -> str:
        """Whether it trains the same, in a sentence."""
        if self.differences:
            parted = len(self.differences)
            return (f"it does not train the same: {errors.counted(parted, 'run')} of {len(self.runs)} "
                    f"differ{'s' * (parted == 1)}")
        if self.failures:
            return "it cannot be said whether it trains the same"
        return f"it trains the same in {errors.counted(len(self.runs), 'run')}: {self.compared:,} values are equal"

    def __str__(self) -> str:
        return "\n".join([
            self._head(), f"  runs: {'; '.join(self.runs)}", *(f"  note: {note}" for note in self.notes),
            *(f"  {run}: {why}" for run, why in self.failures),
            *(f"\n{difference}" for difference in self.differences)])

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.runs)} runs: {self._head()}>"

    def _repr_html_(self) -> str:
        return drawing(self)


def compare(program: str | os.PathLike[str] | Callable[[], object], *, replicas: Sequence[int] = (1, 2, 4),
            workers: int = 1, orders: int = 1, global_batch: int | None = None, limit: float = 60.0,
            arguments: Sequence[str] = (), tensorflow: bool = False) -> Comparison:
    """Runs a program at several numbers of replicas, and says where the runs part, and why.

    Compared are the values of variables, the numbers that are printed outside replicas, and what a function returns,
    but for the rounding of sums.  Each run is a process in a folder of its own.  The strategy of the program gets as
    many devices as are asked for, whichever it names.

    Args:
        program: the path of a script; or a function, which makes its strategy and variables anew.  Only a script has
            fresh hash seeds, and is run in float64 where a difference is small.
        replicas: the numbers of replicas; all are compared with the first.
        workers: a number of simulated workers that share the replicas, where it divides them and the program has a
            MultiWorkerMirroredStrategy; 1 for none.
        orders: in how many other orders the replicas run, of the largest number.
        global_batch: what a whole number times `num_replicas_in_sync` is to be in every run; None for their product.
        limit: how many seconds a run may take.
        arguments: those of a script.
        tensorflow: whether a script, or a notebook, finds `refdist.tf` where it imports TensorFlow.

    >>> import numpy as np, refdist
    >>> def program():
    ...     strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    ...     with strategy.scope():
    ...         w = refdist.Variable(0.0, name="w")
    ...     def step(rows):
    ...         replica = refdist.get_replica_context()
    ...         gradient = replica.all_reduce("SUM", rows.mean())
    ...         replica.merge_call(lambda s, g: s.extended.update(w, lambda v, g: v.assign_sub(g), (g,)), (gradient,))
    ...     rows = refdist.data.Dataset.range(8).map(np.float32).batch(8)
    ...     for batch in strategy.experimental_distribute_dataset(rows):
    ...         strategy.run(step, (batch,))
    >>> refdist.compare(program, replicas=(1, 2)).differences[0].cause
    'MEANS SUMMED'

    Raises:
        RD25, RD34: bad arguments.  RD09: in a scheduled function.  RD20: a function that uses JAX, TensorFlow
            or CUDA, which has computed in this process before; each run is a copy of it.
    """
    not_on_a_worker("compare")
    if not callable(program):
        program = _script(program)
    if not isinstance(tensorflow, bool):
        raise errors.error("RD25", "compare", f"tensorflow is {tensorflow!r}", "Pass True or False.")
    if tensorflow and not isinstance(program, str):
        raise errors.error("RD34", "compare", "tensorflow is True, and program is a function",
                           "Pass the path of a script or a notebook, or let the function's module "
                           "`import refdist.tf as tf`.")
    counts = [_at_least_one(count, "an element of replicas") for count in _listed(replicas, "replicas")]
    if len(counts) < 2 or len(set(counts)) < len(counts):
        raise errors.error("RD34", "compare", f"replicas is {replicas!r}",
                           "Pass at least two different numbers, such as (1, 2, 4).")
    among = _at_least_one(workers, "workers")
    if among > 1 and not any(count % among == 0 for count in counts):
        raise errors.error("RD34", "compare", f"workers is {workers}, and no number of replicas is a multiple of it",
                           f"Pass one to replicas, such as {2 * among}.")
    permuted = integer(orders, "orders", "compare")
    if permuted < 0:
        raise errors.error("RD34", "compare", f"orders is {orders}", "Pass 0 or more.")
    if global_batch is not None:
        global_batch = _at_least_one(global_batch, "global_batch")
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < float("inf"):
        raise errors.error("RD34", "compare", f"limit is {limit!r}", "Pass a number of seconds above 0.")
    base = Setting(counts[0], 1 if among > 1 else 0, global_batch=global_batch,
                   arguments=tuple(map(str, _listed(arguments, "arguments"))),
                   tensorflow=tensorflow)
    with tempfile.TemporaryDirectory(prefix="refdist-compare-") as folder:
        return _Comparing(program, base, Path(folder), float(limit)).compare(counts[1:], among, permuted)


def _script(program: object) -> str:
    if not isinstance(program, (str, os.PathLike)):
        raise errors.error("RD25", "compare", f"program is {program!r}", "Pass the path of a script, or a function.")
    path = os.fspath(program)
    if not os.path.isfile(path):
        raise errors.error("RD34", "compare", f"there is no file {path!r}", "Pass the path of a script.")
    return os.path.abspath(path)


def _listed(value: object, name: str) -> list[object]:
    if isinstance(value, (list, tuple, range)):
        return list(value)
    raise errors.error("RD25", "compare", f"{name} is {value!r}", "Pass a list or a tuple.")


def _at_least_one(value: object, name: str) -> int:
    number = integer(value, name, "compare")
    if number < 1:
        raise errors.error("RD34", "compare", f"{name} is {number}", "Pass 1 or more.")
    return number


class _Comparing:
    def __init__(self, program: Program, base: Setting, folder: Path, limit: float) -> None:
        self._program, self._setting, self._folder, self._limit = program, base, folder, limit
        self._report = Comparison()
        self._runs = 0
        self._doubles: dict[Setting, Trial] = {}
        self._unstable: frozenset[str] = frozenset()
        self._itself: tuple[Case, Cause] | None = None  # why printed lines differ from run to run

    def compare(self, counts: Sequence[int], workers: int, orders: int) -> Comparison:
        report = self._report
        base = self._tried(self._setting)
        if base is None and self._setting.replicas == 1 and len(counts) > 1:
            base, counts = self._without_one(counts[0]), counts[1:]
        if base is None or not self._is_itself(base):
            return report
        at_first = base.setting
        pairs: list[tuple[Trial, Trial]] = []
        trials = [base]
        for count in counts:
            other = self._tried(at_first._replace(replicas=count))
            if other is not None:
                trials.append(other)
                pairs.append((base, other))
        if workers > 1:
            pairs += self._of_workers(trials, workers)
        most = max(trials, key=lambda trial: trial.setting.replicas)
        shaken: Parting | None = None
        by_order: list[tuple[Trial, Trial, Parting]] = []
        for seed in range(1, orders + 1) if most.setting.replicas > 1 else ():
            other = self._tried(most.setting._replace(order=seed, hashes=self._hashes(seed)))
            if other is None:
                continue
            parting = self._parting(most, other)
            if parting is not None:
                shaken = shaken or parting[0]
                by_order.append((*parting[1:], parting[0]))
        for first, second in pairs:
            parting = self._parting(first, second)
            if parting is not None:
                case = Case(parting[1], parting[2], parting[0], shaken)
                self._add(case, causes.cause_of(case) or self._by_experiment(case, orders) or causes.unknown(case))
        for first, second, parted in by_order[:1]:
            case = Case(first, second, parted)
            self._add(case, causes.of_order(case))
        self._notes(base, trials)
        if self._itself is not None and not report.differences and not report.compared:
            self._add(*self._itself)
        if not report.differences and not report.failures and not report.compared:
            report.failures.append(("all", "the program has no variable, prints no number outside replicas and "
                                    "returns none"))
        return report

    def _by_experiment(self, case: Case, orders: int) -> Cause | None:
        """Finds the cause by further runs of the second program, each with one thing changed; None if none shows it."""
        setting = case.second.setting
        if (case.shaken is not None or setting.workers > 1 or setting.replicas == case.first.setting.replicas
                or case.second.ended != "returned"):
            return None
        return self._by_reading(case) or (self._by_dealing(case, orders) if aligned.steps(case.second) else None)

    def _by_reading(self, case: Case) -> Cause | None:
        """Tests whether the runs agree if replicas read totals of variables instead of their own parts."""
        if not any(event.fields.get("synchronization") == "ON_READ" for event in case.second.events):
            return None
        other = self._run(case.second.setting._replace(totals=True))
        return causes.of_reading(case, other) if self._is_as_the_first(case, other) else None

    def _is_as_the_first(self, case: Case, other: Trial) -> bool:
        """Whether a changed run of the second program agrees with the first, up to where the second differs from it."""
        place = case.parting.points[0]
        if other.ended != "returned" or place is None:
            return False
        earlier = [parting for parting in Aligned(case.first, other, self._unstable).partings()
                   if parting.points[0] is None or parting.points[0].at <= place.at]
        return all(_GROWTH * parting.relative <= case.parting.relative for parting in earlier)

    def _by_dealing(self, case: Case, orders: int) -> Cause | None:
        """Finds the cause by runs of the second program in which rows are dealt in another way."""
        setting = case.second.setting
        # If the order of the replicas changes the results, so may any other change, so that is tried first.
        changes = [setting._replace(order=1)] * (not orders) + [
            setting._replace(deal=deal.value) for deal in (Deal.TO_THE_NEXT_REPLICA, Deal.IN_OTHER_PARTS)]
        for changed in changes:
            other = self._run(changed)
            if other.ended != "returned":
                return None
            parting = next(Aligned(case.second, other, self._unstable).partings(), None)
            if parting is not None and parting.step <= case.parting.step and parting.relative > _GROWTH * _ROUNDED:
                return None if changed.deal is None else causes.of_dealing(case, Deal(changed.deal), parting)
        together = self._run(setting._replace(deal=Deal.ALL_TO_THE_LAST_REPLICA.value))
        return causes.of_parts(case) if self._is_as_the_first(case, together) else self._by_counting(case)

    def _by_counting(self, case: Case) -> Cause | None:
        """Tests whether each further replica adds the same amount to what differs, by runs on two other numbers."""
        if case.counts[0] != 1:
            return None
        others = [self._run(case.second.setting._replace(replicas=count))
                  for count in range(2, 5) if count != case.counts[1]][:2]
        if any(other.ended != "returned" for other in others):
            return None
        return causes.of_counting(case, others)

    def _hashes(self, seed: int) -> int:
        return seed if isinstance(self._program, str) else 0

    def _run(self, setting: Setting) -> Trial:
        self._runs += 1
        return trial.run(self._program, setting, self._folder / str(self._runs), self._limit)

    def _tried(self, setting: Setting) -> Trial | None:
        """Runs the program; returns None, and reports it, if the run cannot be compared."""
        outcome = self._run(setting)
        self._report.runs.append(str(setting))
        if outcome.ended == "alone":
            raise forks.waited("compare", outcome.text)
        if outcome.ended in ("raised", "died"):
            refused = forks.without_cuda("compare", outcome.text) if callable(self._program) else None
            if refused is not None:
                raise refused
            if setting != self._setting and outcome.events and outcome.ended == "raised":
                self._raised(outcome)
            else:
                self._report.failures.append((str(setting), outcome.text or "it died"))
            return None
        if outcome.ended != "returned":
            steps = len(aligned.steps(outcome))
            what = (f"it was stopped after {self._limit:g} s, {outcome.text}" if outcome.ended == "limit"
                    else f"it was stopped after {trial.EVENTS:,} events")
            self._report.failures.append((str(setting), f"{what}, in step {steps}; it is compared until there"))
        replicas = {event.replica for event in outcome.events if event.kind == "replica"}
        if replicas and len(replicas) != setting.replicas and outcome.ended != "limit":  # some may not have begun then
            found_on = errors.counted(len(replicas), "replica")
            self._report.failures.append((str(setting), f"the program runs on {found_on} all the same: its strategy "
                                          "does not take the devices that it is given"))
            return None
        return outcome

    def _without_one(self, replicas: int) -> Trial | None:
        """Runs a program that fails on one replica on more, which are compared with each other if it does not there."""
        before, self._setting = self._setting, self._setting._replace(replicas=replicas)
        base = self._tried(self._setting)
        if base is None:
            self._setting = before
            del self._report.failures[1:]
            return None
        self._report.notes.append(f"all are compared with {replicas} replicas, as it fails on one; there `run` returns "
                                  "a value itself and no PerReplica, and "
                                  "`strategy.experimental_local_results(value)[0]` is replica 0's on any number")
        return base

    def _raised(self, failed: Trial) -> None:
        last = next((event for event in reversed(failed.events) if event.kind == "error"), None)
        line = (last.fields.get("site") or [""])[0] if last else ""
        self._report.differences.append(Difference(
            str(self._setting), str(failed.setting), "the program", line, len(aligned.steps(failed)),
            ("goes on", "raises an exception"), "AN EXCEPTION", failed.text, "Mend this first."))

    def _is_itself(self, base: Trial) -> bool:
        """Whether a second run gives the same; printed lines whose numbers vary are ignored from then on."""
        again = self._tried(base.setting._replace(hashes=self._hashes(1)))
        if again is None:
            return False
        whole = base.ended == again.ended == "returned"
        partings = list(Aligned(base, again).partings(whole))
        real = next((parting for parting in partings if parting.name != "printed"), None)
        if real is not None:
            hashes = False
            if isinstance(self._program, str):
                third = self._run(base.setting)
                hashes = not any(parting.name != "printed" for parting in Aligned(base, third).partings(whole))
            self._add(Case(base, again, real), causes.of_itself(base, again, hashes, real))
            return False
        if partings:
            case = Case(base, again, partings[0])
            self._itself = case, causes.of_itself(base, again, False, partings[0])
        unstable = [aligned.template(parting.points[0].value) for parting in partings if parting.points[0] is not None]
        self._unstable = frozenset(unstable)
        if unstable:
            self._report.notes.append("printed lines whose numbers differ from run to run are not compared: "
                                      f"{unstable[0]!r}")
        return True

    def _of_workers(self, trials: Sequence[Trial], workers: int) -> Iterator[tuple[Trial, Trial]]:
        strategies = {event["strategy"] for event in trials[0].events if event.kind == "run"}
        if _STRATEGY_OF_WORKERS not in strategies:
            self._report.notes.append(f"it is not run on workers, as it has no {_STRATEGY_OF_WORKERS}")
            return
        for alone in trials:
            if alone.setting.replicas % workers == 0:
                other = self._tried(alone.setting._replace(workers=workers))
                if other is not None:
                    yield alone, other

    def _parting(self, first: Trial, second: Trial) -> tuple[Parting, Trial, Trial] | None:
        """The first difference of two runs, and the runs, repeated in float64 if necessary; None if they agree."""
        whole = first.ended == second.ended == "returned"
        both = Aligned(first, second, self._unstable)
        partings = list(both.partings(whole))
        self._report.compared += both.compared
        parting = next(iter(partings), None)
        if parting is None or parting.relative > _LARGE or first.setting.replicas == second.setting.replicas:
            return parting and (parting, first, second)
        doubles = [self._in_double(trial.setting) for trial in (first, second)]
        if all(trial is not None and _is_double(trial) for trial in doubles):
            first_double, second_double = doubles
            assert first_double is not None and second_double is not None
            both = Aligned(first_double, second_double, self._unstable)
            parting = _jump(both.partings(whole), aligned.IN_DOUBLE)
            if parting is not None:
                return parting, first_double, second_double
            self._note_of(partings, "and is a rounding: in float64 the runs are equal, but for one")
            return None
        parting = _jump(partings, _ROUNDED)
        if parting is None:
            self._note_of(partings, "and is taken for a rounding that grows: the program was not run in float64")
        return parting and (parting, first, second)

    def _in_double(self, setting: Setting) -> Trial | None:
        if not isinstance(self._program, str):
            return None
        if setting not in self._doubles:
            self._doubles[setting] = self._run(setting._replace(double=True))
        in_double = self._doubles[setting]
        return in_double if in_double.ended == "returned" else None

    def _note_of(self, partings: Sequence[Parting], what: str) -> None:
        worst = max(partings, key=lambda parting: parting.relative)
        note = f"{worst.name} differs by {worst.relative:.1g} of its size in step {worst.step}, {what}"
        self._report.notes.append(note)

    def _notes(self, base: Trial, trials: Sequence[Trial]) -> None:
        held = base.setting.global_batch
        if held is None:
            return
        for other in trials:
            batch = aligned.global_batch(other)
            if batch and batch != held:
                self._report.notes.append(f"the global batch is {batch} on {other.setting}, not the {held} asked for: "
                                          "the program does not make it from num_replicas_in_sync")

    def _add(self, case: Case, cause: Cause) -> None:
        parting = case.parting
        self._report.differences.append(Difference(
            str(case.first.setting), str(case.second.setting), parting.name, parting.line, parting.step,
            (parting.first, parting.second), *cause))


def _jump(partings: Iterable[Parting], largest: float) -> Parting | None:
    """The first difference that is larger than growth of the earlier ones explains; those are at most `largest`."""
    for parting in partings:
        if parting.relative > _GROWTH * largest:
            return parting
        largest = max(largest, parting.relative)
    return None


def _is_double(trial: Trial) -> bool:
    dtypes = {summary["dtype"] for event in trial.events if event.kind == "variable" for summary in event["copies"]}
    return not dtypes & {"float32", "float16", "bfloat16"}
