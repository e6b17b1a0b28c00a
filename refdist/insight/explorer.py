"""`refdist.explore`: runs an asynchronous program under every schedule that matters, and says what goes wrong in which.

In this order: the quiet schedule, twice, because nothing can be said of a program that differs from itself; one more
run for each pair of functions of which the quiet run predicts a lost update; then one run for each class of schedules
(`reduction`), to the end or for two thirds of the budget; where that is not the end, some others (`sampling`).  Where
workers can be lost, the quiet run is followed by those in which the worker of a function is lost before one of its
accesses, or the server of the variable.  A worker or server that is lost in a certain step of a certain function makes
another program, which is as deterministic, so where the end is reached, all classes of each of these programs are run,
too; and those of programs with two losses.  Where the program can be killed, it is killed before each step of each file
that refdist writes (`kills`), or told to end where it asks, and begins again: from there on, all classes are run, once
for each state of the files.  What is found is made shorter, and run again for the report.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refdist import errors
from refdist.coordinator.values import not_on_a_worker
from refdist.core import call_site, keras
from refdist.core.integers import as_integer
from refdist.insight.anomalies import (
    INTERRUPTED,
    LOST_UPDATE,
    NOT_RESTART_SAFE,
    OTHER,
    RUN_TWICE,
    SHARED,
    STALE_READ,
    TORN_READ,
    TORN_WRITE,
    Anomaly,
    anomaly,
    too_stale,
)
from refdist.insight.commuting import Effect, commute, keep_ages
from refdist.insight.kills import Files
from refdist.insight.names import place_of
from refdist.insight.orders import choices_of
from refdist.insight.outcomes import Outcome, outcome, same
from refdist.insight.reduction import ASLEEP, DIFFERS, Clocks, Reduction
from refdist.insight.report import LIMITS, ORDERS_LIMITS, SHOWN, Finding, Report, table
from refdist.insight.sampling import by_lot, by_priorities, probability
from refdist.insight.schedules import (
    KILLED,
    NO_FAULTS,
    PROGRAM,
    REPLICA,
    Cut,
    Decide,
    Doom,
    Faults,
    Process,
    Run,
    Step,
)
from refdist.insight.stalls import Watch

Program = Callable[[], object]
Check = Callable[[Any], object]

SHORTENING = 1000  # the most runs spent on looking for a shorter schedule
ORDERS = 1000  # the most orders of whole functions that are tried
ORDERING = 4  # the part of the budget that they may take is 1 in so many
# Where these are in a schedule, a result of no order that was tried is wrong, although others were not tried.  With any
# other anomaly it may be that of another order, if those that were tried differ.
CERTAIN = (LOST_UPDATE, TORN_READ, TORN_WRITE, STALE_READ)
PREDICTIONS = 10  # the most runs that confirm predicted schedules
UNITS = {"s": 1, "min": 60}  # of a budget, in seconds
NOT_FOLLOWED = "what is shared under a name that is computed was not followed; write the name out"
NO_OPTION = "there is no such option"
TURNS_ADVICE = ("keep what a replica changes in the replica, and combine it in a collective call; draw random numbers "
                "from a generator for each replica")
KEPT = 5  # the most findings that are reported, each of another kind

# What `faults` can be, and how a report says what was lost in further runs.
FAULTS = {
    "any worker, once": (Faults(workers=1), "workers lost, each before an access of its function,"),
    "any two workers, once each": (Faults(workers=2), "workers lost, each before an access of its function,"),
    "any return, once": (Faults(returns=1), "workers lost, each before its function returns,"),
    "any parameter server, once": (
        Faults(servers=1), "a parameter server lost, before each access to a variable of it,"),
    "any checkpoint, once": (Faults(kills=1), ""),
    "any preemption notice, once": (Faults(notices=1), ""),
}
# What is proved of a program that has these faults.
WHEREVER = {
    "any worker, once": ", wherever a worker is lost before an access",
    "any two workers, once each": ", wherever two workers are lost before an access",
    "any return, once": ", whichever function loses its worker before it returns",
    "any parameter server, once": ", wherever a parameter server is lost before an access to a variable of it",
    "any checkpoint, once": ", wherever it is killed while it saves",
    "any preemption notice, once": ", wherever it is told to end",
}
KNOWN = "the files are as after another kill"


class _Trial(NamedTuple):
    run: Run  # after a restart, the run of the restarted program
    came: Outcome | None  # None if the run was cut short

    @property
    def steps(self) -> list[Step]:
        return [*([] if self.run.before is None else self.run.before.steps), *self.run.steps]


class _Fault(NamedTuple):
    title: str
    why: str
    anomaly: Anomaly | None


def explore(program: Program, check: Check | None = None, budget: float | str = "20s",
            faults: str | None = None, max_staleness: int | None = None, orders: bool = False) -> Report:
    """Runs a program of a ClusterCoordinator under every schedule that matters.

    A schedule says which function makes the next access to a variable, wherever several could.  Two schedules in which
    only accesses change places that commute come to the same; of such a class one is run.

    Args:
        program: called without arguments, once for each schedule; it makes its strategy, variables and coordinator
            anew, schedules functions, waits for them, and returns what came of it.
        check: called with what the program has returned; False, or an exception, is a fault.  None: the program has
            to come to what it comes to when its functions run whole, one after the other, in some order; that
            compares what it returns and what its variables hold, but for the rounding of sums.
        budget: how long it may take after the first run: seconds, or a text such as "20s" or "2min".
        faults: None, or "any worker, once": in further runs the worker of a function is lost before one of its
            accesses, comes back without what it had, and the function begins again, in every order.
            "any two workers, once each": two are lost, of which the second may be the first, when it has come back.
            "any return, once": the worker is lost when its function has made its last access, before the coordinator
            hears of it, and the function is carried out again.
            "any parameter server, once": a server is lost before an access to one of its variables.  A program that
            ends with RD33 begins again, and has to come to what it comes to otherwise.
            "any checkpoint, once": the program is killed before each write, fsync, rename and removal of a file by
            which refdist saves a checkpoint, and begins again with the files as they were.  It has to come to what it
            comes to otherwise.  What it has saved is removed after each run.
            "any preemption notice, once": the program is told to end where a PreemptionCheckpointHandler asks, saves,
            exits, and begins again with what it has saved.  It has to come to what it comes to otherwise.
        max_staleness: by how many updates of others a variable may have changed between a function's read of it and its
            write.  The program is then not asked to be as if its functions ran whole; a `check` is asked, too.
        orders: whether the order in which replicas have their turns before a rendezvous is explored, in place of the
            schedules of functions.  The program has to come to what it comes to in the order of their numbers.

    Returns:
        What was found, what was tried and what is proved.  An exception that the program raises is found, too.

    >>> import refdist
    >>> spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    >>> resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)
    >>> def program(step):
    ...     strategy = refdist.ParameterServerStrategy(resolver)
    ...     with strategy.scope():
    ...         v = refdist.Variable(0.0, name="v")
    ...     coordinator = refdist.coordinator.ClusterCoordinator(strategy)
    ...     for _ in range(2):
    ...         coordinator.schedule(step, args=(v,))
    ...     coordinator.join()
    ...     return float(v)
    >>> report = refdist.explore(lambda: program(lambda v: v.assign(v + 1.0)))
    >>> report.findings[0].title, report.findings[0].choices
    ('LOST UPDATE', [0, 0, 0, 0, 1])
    >>> def add(v):
    ...     v.assign_add(1.0)
    >>> refdist.explore(lambda: program(add)).proved
    True

    Raises:
        RD25, RD34: bad arguments.  RD09: in a scheduled function.  RD34: with a checkpoint or a notice, it would
        replace or remove a file that was there before.
    """
    not_on_a_worker("explore")
    return _Explorer(program, check, budget, faults, max_staleness, orders).explore()


def replay(program: Program, choices: Sequence[int], check: Check | None = None, faults: str | None = None,
           max_staleness: int | None = None, orders: bool = False) -> tuple[bool, str]:
    """Runs a program under one schedule: whether it is without fault there, and what happened, in words.

    Raises:
        RD25, RD34: bad arguments.
    """
    given = list(map(as_integer, choices)) if isinstance(choices, (Sequence, np.ndarray)) else [None]
    if not all(choice is not None and choice >= 0 for choice in given):
        raise errors.error("RD25", "explore", f"choices is {choices!r}", "Pass ints from 0.")
    explorer = _Explorer(program, check, "20s", faults, max_staleness, orders)
    try:
        with explorer.watch():
            if orders:
                explorer.look_at_quiet_order()
            trial = explorer.attempt(_following([choice or 0 for choice in given]), values=True)
    except _GivenUp as ended:
        return False, f"CANNOT BE STOPPED: {ended.trial.run.given_up}"
    if trial.run.cut.startswith(NO_OPTION):
        raise errors.error("RD34", "explore", trial.run.cut, "Pass the choices of this program, as the report gave "
                           "them.")
    fault = explorer.fault(trial)
    title = f"{fault.title}: {fault.why}" if fault else "nothing is wrong in this schedule"
    came = trial.run.cut if trial.came is None else str(trial.came)
    lines = _turns(trial.run) if orders else table(trial.steps, fault.anomaly if fault else None)
    return fault is None, "\n".join([title, *lines, f"result: {came}"])


def _seconds(budget: object) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min)", budget) if isinstance(budget, str) else None
    seconds = float(match[1]) * UNITS[match[2]] if match else budget
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, np.integer, np.floating)) or not (
            0 < seconds <= sys.float_info.max):
        raise errors.error("RD34", "explore", f"budget is {budget!r}", 'Pass seconds, or a text such as "20s" or '
                           '"2min".')
    return float(seconds)


def _quiet(run: Run, processes: dict[Process, int]) -> int:
    return 0


def _reversed(run: Run, processes: dict[Process, int]) -> int:
    """The last replica first, in all turns."""
    return max(processes.values()) if all(cluster == REPLICA for cluster, _ in processes) else 0


def _following(choices: Sequence[int]) -> Decide:
    def decide(run: Run, processes: dict[Process, int]) -> int:
        at = len(run.taken)
        if at >= len(choices) or not run.several:
            return 0
        if choices[at] >= run.several:
            raise run.stop(f"{NO_OPTION}: choice {at} is {choices[at]}, of {run.several} options")
        return choices[at]

    return decide


class _GivenUp(Exception):
    """A function could not be stopped, and its thread is left; further runs would leave more of them."""

    def __init__(self, trial: _Trial) -> None:
        self.trial = trial


class _Explorer:
    def __init__(self, program: Program, check: Check | None, budget: float | str,
                 faults: str | None = None, max_staleness: int | None = None, orders: bool = False) -> None:
        for name, value in (("program", program), ("check", check)):
            if not callable(value) and (name == "program" or value is not None):
                raise errors.error("RD25", "explore", f"{name} is {value!r}", "Pass a function.")
        if faults is not None and not (isinstance(faults, str) and faults in FAULTS):
            raise errors.error("RD34", "explore", f"faults is {faults!r}",
                               f"Pass None or {' or '.join(map(repr, FAULTS))}.")
        bound = as_integer(max_staleness)
        if max_staleness is not None and (bound is None or bound < 0):
            raise errors.error("RD25", "explore", f"max_staleness is {max_staleness!r}", "Pass an int of 0 or more, or "
                               "None.")
        if not isinstance(orders, bool):
            raise errors.error("RD25", "explore", f"orders is {orders!r}", "Pass True or False.")
        if orders and (faults is not None or max_staleness is not None):
            raise errors.error("RD34", "explore", "orders is True, beside faults or max_staleness",
                               "Explore orders of replicas, and faults, one after the other.")
        self._program = program
        self._check = check
        self._replicas = orders
        self._faulty = faults
        self._possible, self._lost = FAULTS.get(faults or "", (NO_FAULTS, ""))
        self._losses = self._possible.workers + self._possible.returns + self._possible.servers  # at most, in a run
        self._bound = bound
        self._budget = _seconds(budget)
        self._end = time.monotonic() + self._budget
        self._faults: dict[tuple[str, object], tuple[_Trial, _Fault]] = {}
        self._runs = 0
        self._first: int | None = None  # after how many runs a fault was first found
        self._names = keras.names()
        self._serial: list[Outcome] = []
        self._orders = self._serially()
        self._all_orders = False  # whether all orders have been tried
        self._tried = 0
        self._reasons: dict[str, None] = {}  # why nothing is proved
        self._states: set[object] = set()  # of the files that kills and losses have left
        self._run: Run | None = None  # the one that is carried out
        self._shares = False  # whether a run has changed what functions share
        self._shared: dict[str, None] = {}  # what that is

    def explore(self) -> Report:
        """Explores the program; an interrupt ends this, and the report has what is known by then."""
        with self.watch():
            return self._explored()

    def watch(self) -> Watch:
        """What ends a run in which the program waits for ever."""
        return Watch(lambda: None if self._run is None else self._run.position,
                     lambda frame: None if self._run is None else self._run.stalls(frame))

    def _explored(self) -> Report:
        report = Report(self._asked(), self._lost, ORDERS_LIMITS if self._replicas else LIMITS)
        trials: list[_Trial] = []
        try:
            trials.append(self.attempt(_quiet))
            self._end = time.monotonic() + self._budget  # now, as the first run of a script includes its imports
            trials.append(self.attempt(_quiet))
            search = self._reorder if self._replicas else self._search
            difference = _difference(*trials) or search(report, trials[0])
            if difference:
                report.findings.append(Finding("NOT REPEATABLE", difference, [], [
                    "two runs of one schedule differ, so nothing else is said of the program; look for",
                    "the time, random numbers without a seed, files, and objects that a run leaves changed"]))
                self._faults.clear()
        except KeyboardInterrupt:
            report.interrupted = True
            self._reasons["it was interrupted"] = None
        except _GivenUp as ended:
            run = ended.trial.run
            report.findings.append(Finding("CANNOT BE STOPPED", str(run.given_up), _trimmed(run.taken), [
                "its thread is left, so nothing else was run after this schedule"], steps=ended.trial.steps,
                options=self._options(), losses=self._faulty is not None))
        self._end = time.monotonic() + (0 if report.interrupted else self._budget)
        for trial, fault in list(self._faults.values())[:KEPT]:
            report.findings.append(self._shown(trials[0], trial, fault))
        keras.set_names(self._names)
        report._end(self._runs, self._first if self._faults else None, list(self._reasons), list(self._shared))
        return report

    def look_at_quiet_order(self) -> None:
        """Learns what the program comes to in the order of the replicas' numbers."""
        trial = self.attempt(_quiet)
        if trial.came is not None:
            self._serial.append(trial.came)

    def _reorder(self, report: Report, quiet: _Trial) -> str:
        """Looks for an order of replicas that makes a difference; as `_search` does."""
        if quiet.came is not None:
            self._serial.append(quiet.came)
            report._count(quiet.came)
        assert quiet.run.orders is not None
        if not quiet.run.orders.segments:
            self._reasons["no function ran on several replicas"] = None
        if self._note(quiet) is not None:
            return ""
        states = {(i, segment.state) for i, segment in enumerate(quiet.run.orders.segments)}
        waiting = deque([(quiet, 0)])
        finished = True
        while waiting and finished:
            base, begin = waiting.popleft()
            assert base.run.orders is not None
            for i, segment in enumerate(base.run.orders.segments[begin:], begin):
                changing, tried = segment.changing(), set[tuple[int, ...]]()
                for order in segment.others(changing):
                    if tuple(order) in tried:
                        continue
                    tried.add(tuple(order))
                    finished = time.monotonic() < self._end
                    if not finished:
                        break
                    trial = self.attempt(_following([*base.run.taken[:segment.at], *choices_of(order)]))
                    assert trial.run.orders is not None
                    if self._note(trial) is not None:
                        return ""
                    if trial.came is None:
                        continue
                    report._count(trial.came)
                    changing |= trial.run.orders.segments[i].changing()
                    state = i, trial.run.orders.segments[i].state
                    if state not in states:
                        states.add(state)
                        waiting.append((trial, i + 1))
        if not finished:
            self._reasons["the budget was used up"] = None
        self._note(self.attempt(_reversed))
        if unseen := ", ".join(sorted(quiet.run.orders.unseen)):
            self._reasons[f"what replicas share was not looked into: {unseen}"] = None
        if quiet.run.orders.computed:
            self._reasons[f"{NOT_FOLLOWED}: {', '.join(quiet.run.orders.computed)}"] = None
        return ""

    def _search(self, report: Report, quiet: _Trial) -> str:
        """Looks for faults; returns how the program differs between runs of one schedule, if it does."""
        saves = any(killing is not None for killing in quiet.run.killing)
        if (self._possible.kills or self._possible.notices) and not saves:
            self._reasons["the program saved no checkpoint" if self._possible.kills else
                          "no PreemptionCheckpointHandler asked whether the program is to end"] = None
        compares = quiet.came is not None and (quiet.came.value is not None or bool(quiet.came.finals))
        nobody = quiet.came is not None and all(step.process == PROGRAM for step in quiet.run.steps)
        if nobody and not (saves and compares):
            self._reasons["nothing is compared: the program made no variables, and returned nothing"
                          if saves else "no function of a coordinator ran, or not in this process"] = None
        if quiet.came is not None and anomaly(quiet.run.steps) is None:
            self._serial.append(quiet.came)
        for trial in [quiet, *map(self.attempt, _predicted(quiet, self._bound is not None))]:
            self._note(trial)
        classes: list[_Trial] = []
        difference = self._break(report, quiet)
        if difference:
            return difference
        reduction = Reduction(commute if self._bound is None else keep_ages)
        enough = self._end - self._budget / 3
        losable = dict.fromkeys(quiet.run.losable)
        while not reduction.finished and time.monotonic() < enough:
            trial = self.attempt(reduction.decide)
            reduction.learn(trial.run)
            if trial.run.cut == DIFFERS:
                return f"after {len(trial.run.steps)} steps it can go on otherwise than before"
            if trial.came is not None:
                report._count(trial.came)
                self._note(trial)
                losable.update(dict.fromkeys(trial.run.losable))
                if self._faulty and trial.run.taken != quiet.run.taken:
                    classes.append(trial)
        if self._losses and reduction.finished:
            difference = self._lose_in_all_orders(report, losable)
            if difference:
                return difference
        else:
            for trial in classes:
                difference = self._break(report, trial)
                if difference:
                    return difference
        if not reduction.finished:
            self._sample(report, quiet)
        if not reduction.finished or time.monotonic() >= self._end:
            self._reasons["the budget was used up"] = None
        return ""

    def _sample(self, report: Report, quiet: _Trial) -> None:
        """Runs with one switch, then of random priorities, then drawn by lot: each for a third of what time is left."""
        left = self._end - time.monotonic()
        ends = [self._end - left * 2 / 3, self._end - left / 3, self._end]
        switched = [(at, other) for at, others in enumerate(quiet.run.others) for other in others]
        steps, processes = len(quiet.run.steps), len({step.process for step in quiet.run.steps})
        counts = []
        for end, decides in zip(ends, (
                (_following([*quiet.run.taken[:at], other]) for at, other in switched),
                (by_priorities(seed, steps) for seed in itertools.count()),
                (by_lot(seed) for seed in itertools.count())), strict=True):
            counts.append(0)
            for decide in decides:
                if time.monotonic() >= end:
                    break
                self._note(self.attempt(decide))
                counts[-1] += 1
        if any(counts):
            every = "every run" if counts[0] == len(switched) else f"{counts[0]} of {len(switched)} runs"
            report.sampled = [
                f"then {every} with one switch, {counts[1]} of random priorities, and {counts[2]} drawn by lot;",
                f"these priorities find an error of one overtaking with probability "
                f"{probability(processes, steps, counts[1]):.3f} or more ({processes} processes, up to {steps} steps)"]

    def _break(self, report: Report, trial: _Trial) -> str:
        """Repeats a run with each of the faults; returns how the program differs between such runs, if it does."""
        self._lose(report, trial)
        right = trial.came is not None and self.fault(trial) is None
        for at, killing in enumerate(trial.run.killing if right else []):
            if killing is not None and time.monotonic() < self._end:
                difference = self._kill(report, [*trial.run.taken[:at], killing])
                if difference:
                    return difference
        return ""

    def _kill(self, report: Report, choices: Sequence[int]) -> str:
        """Runs all classes of what comes after a kill, a notice or a loss that ends the program, as `_break` does.

        Args:
            report: where runs are counted.
            choices: those until then.
        """
        until_then = _following(choices)
        reduction = Reduction(commute if self._bound is None else keep_ages)

        def decide(run: Run, processes: dict[Process, int]) -> int:
            return (until_then if run.before is None else reduction.decide)(run, processes)

        trial = self.attempt(decide, states=self._states)
        while trial.run.cut != KNOWN:
            report.kills += self._possible.kills
            report.notices += self._possible.notices
            report.losses += self._possible.servers
            self._note(trial)
            reduction.learn(trial.run)
            if trial.run.cut == DIFFERS:
                return f"after it has begun again and {len(trial.run.steps)} steps it can go on otherwise than before"
            if reduction.finished or time.monotonic() >= self._end:
                break
            trial = self.attempt(decide)
        return ""

    def _lose(self, report: Report, trial: _Trial) -> None:
        """Repeats a run that was right once for each access, with the worker or the server of it lost before it.

        Where two workers may be lost, the runs with one loss that are right are repeated in the same way.
        """
        level = [(trial, 0)]
        for _ in range(self._losses):
            following: list[tuple[_Trial, int]] = []
            for base, begin in level:
                if base.came is None or self.fault(base) is not None:
                    continue
                for at, losing in enumerate(base.run.losing[begin:], begin):
                    if losing is not None and time.monotonic() < self._end:
                        report.losses += 1
                        following.append((self.attempt(_following([*base.run.taken[:at], losing])), at + 1))
                        self._note(following[-1][0])
            level = following

    def _lose_in_all_orders(self, report: Report, losable: Collection[Doom]) -> str:
        """Runs all classes of each of the programs in which certain functions lose workers or servers in certain steps.

        One run of each in turn, so that little time finds what most of them have.  Another loss comes after those that
        are right.
        """
        level = [frozenset([doom]) for doom in losable]
        for _ in range(self._losses):
            following: dict[frozenset[Doom], None] = {}
            left = [(dooms, Reduction(commute if self._bound is None else keep_ages)) for dooms in level]
            while left and time.monotonic() < self._end:
                for dooms, reduction in left:
                    if time.monotonic() >= self._end:
                        break
                    trial = self.attempt(reduction.decide, doomed=dooms, restarts=False)
                    reduction.learn(trial.run)
                    if trial.run.cut == DIFFERS:
                        return f"after a loss and {len(trial.run.steps)} steps it can go on otherwise than before"
                    losses = sum(step.lost or step.server is not None for step in trial.run.steps)
                    if trial.came is None or losses < len(dooms):
                        continue
                    if _ends_by_a_loss(trial):
                        difference = self._kill(report, trial.run.taken)
                        if difference:
                            return difference
                        continue
                    report.losses += 1
                    if self._note(trial) is None:
                        following |= {dooms | {doom}: None for doom in trial.run.losable if doom not in dooms}
                left = [(dooms, reduction) for dooms, reduction in left if not reduction.finished]
            level = list(following)
        return ""

    def attempt(self, decide: Decide, values: bool = False, states: set[object] | None = None,
                doomed: Collection[Doom] = (), restarts: bool = True) -> _Trial:
        """Runs the program once.

        Args:
            decide: who goes on.
            values: whether to keep the values that variables held.
            states: what does not begin again after a fault that leaves the files in one of these, which others join.
            doomed: functions that lose their workers or a server, and in which of their steps.
            restarts: whether the program begins again after it was ended by the loss of a server.
        """
        self._runs += 1
        files = Files() if self._possible.kills or self._possible.servers or self._possible.notices else None
        try:
            whole = self._runs == 1 or self._shares
            trial = self._carried_out(Run(decide, values, self._possible, files, doomed=doomed,
                                          orders=self._replicas, whole=whole, budget=self._budget))
            ended_by_loss = _ends_by_a_loss(trial) and restarts
            if files is not None and (ended_by_loss or trial.run.cut == KILLED or (
                    trial.run.exits and _is_told(trial))):
                ended = trial.run
                if ended.exits or ended_by_loss:
                    ended.steps[-1].ends = True
                    files.keep()
                files.put_back()
                state = "" if ended_by_loss else str(ended.steps[-1]), files.state()
                if states is not None and state in states:
                    ended.cut = KNOWN
                    return _Trial(ended, None)
                if states is not None:
                    states.add(state)
                trial = self._carried_out(Run(decide, values, self._possible, files, ended, whole=whole,
                                              budget=self._budget))
        finally:
            if files is not None:
                files.remove()
        if files is not None and files.overwritten:
            raise errors.error("RD34", "explore", f"the program would change {files.overwritten}, which was there "
                               "before", "Save to a folder without checkpoints; what a run saves there is removed "
                               "after it.")
        if trial.run.cut not in ("", ASLEEP, DIFFERS) and not trial.run.cut.startswith(NO_OPTION):
            self._reasons[f"a run was cut: {trial.run.cut}"] = None
        return trial

    def _carried_out(self, run: Run) -> _Trial:
        keras.set_names(self._names)  # otherwise layers have other names in each run
        try:
            self._run = run
            came: Outcome | None = run.carry_out(self._program, lambda returned: outcome(run, returned))
        except Cut:
            came = None
        except Exception as error:
            came = Outcome(None, None, (), error=error)
        except SystemExit as error:
            run.exits = True
            came = Outcome(None, None, (), error=error if error.code else None)
        finally:
            self._run = None
        self._reasons |= run.disturbances
        if came is not None and came.unseen and self._check is None and self._bound is None:
            self._reasons[f"what the program returned was not looked into: {', '.join(came.unseen)}"] = None
        if run.sharing.unseen:
            self._reasons[f"what functions share was not looked into: {', '.join(run.sharing.unseen)}"] = None
        if run.sharing.computed:
            self._reasons[f"{NOT_FOLLOWED}: {', '.join(run.sharing.computed)}"] = None
        for step in run.steps:
            self._shares = self._shares or bool(step.changes)
            self._shared |= dict.fromkeys(map(str, step.changes))
        if run.given_up is not None:
            raise _GivenUp(_Trial(run, came))
        return _Trial(run, None if run.cut else came)

    # What is wrong in a run.

    def fault(self, trial: _Trial) -> _Fault | None:
        """The fault that a trial shows, if any."""
        came = trial.came
        if came is None:
            return None  # a run that was cut short shows nothing
        if came.error is not None:
            return _Fault("RAISED", _raised(came.error), self._anomaly(trial))
        if self._bound is not None:
            stale = too_stale(trial.run.steps, self._bound)
            if stale is not None:
                name = stale[0].subject(trial.run.steps).access.name
                before = len(trial.steps) - len(trial.run.steps)
                return _Fault(stale[0].kind.title, f"{name} is written {_updates(stale[1])} after it was read; "
                              f"max_staleness is {self._bound}", stale[0].moved(before))
        if self._check is not None:
            try:
                passed = self._check(came.returned)
                if passed is None or passed:
                    return None
            except Exception as error:  # a result that the check was not written for
                return _Fault("CHECK", _raised(error), self._anomaly(trial))
            return _Fault("CHECK", f"check({came}) is {passed!r}", self._anomaly(trial))
        if self._bound is not None or any(same(came, other) for other in self._serial):
            return None
        if self._replicas and self._serial:
            return _Fault("ORDER OF REPLICAS", f"the result is {came}; in the order of their numbers, it is "
                          f"{self._serial[0]}", None)
        circle = self._anomaly(trial)  # last, since it takes longest
        if circle is None:
            return None
        for other in self._orders:
            if not any(same(other, known) for known in self._serial):
                self._serial.append(other)
            if same(came, other):
                return None
        if not self._all_orders and len(self._serial) > 1 and circle.kind not in CERTAIN:
            self._reasons["a schedule has a result that no order of whole functions has that was tried, and there are "
                          "more orders; pass a `check` that says which results are right"] = None
            return None
        known = sorted({str(outcome) for outcome in self._serial})
        result = str(came)
        if result in known:  # it is a variable that differs
            known = sorted({_with_variables(outcome) for outcome in self._serial})
            result = _with_variables(came)
        orders = "all orders" if self._all_orders else f"the {self._tried} orders that were tried"
        whole = f"of whole functions, in {orders}"
        if trial.run.before is not None or _gone(trial) or _is_told(trial):
            what = "loss" if _gone(trial) else "notice" if _is_told(trial) else "kill"
            whole = f"without the {what}" + f", and {whole}" * (self._tried > 1)
        return _Fault(circle.kind.title, f"the result is {result}; {whole}, it is "
                      f"{' or '.join(known[:4])}{' ...' * (len(known) > 4)}", circle)

    def _anomaly(self, trial: _Trial) -> Anomaly | None:
        """The anomaly of a program's last run, or else of the runs before a restart."""
        broken = next((i for i, step in enumerate(trial.steps)
                       if step.killed or step.told or step.server is not None), None)
        # Of a program that is told of a loss, and goes on, no order of whole functions is asked.
        circle = None if broken is not None and trial.run.before is None else anomaly(trial.run.steps)
        if broken is None:
            return circle
        return circle.moved(len(trial.steps) - len(trial.run.steps)) if circle else Anomaly(INTERRUPTED, (broken,))

    def _asked(self) -> str:
        asked = [] if self._check is None else ["the check"]
        if self._replicas:
            return (asked or ["that it comes to the same"])[0] + " in every order of replicas"
        if self._bound is not None:
            asked.append(f"that nothing is written more than {_updates(self._bound)} after it was read")
        asked = asked or ["that it is as if the functions ran whole, one after the other"]
        return " and ".join(asked) + WHEREVER.get(self._faulty or "", "")

    def _options(self) -> str:
        """The options of the command that these choices need."""
        faults = f' --faults "{self._faulty}"' if self._faulty else " --orders" if self._replicas else ""
        return faults + (f" --max-staleness {self._bound}" if self._bound is not None else "")

    def _note(self, trial: _Trial) -> _Fault | None:
        fault = self.fault(trial)
        if fault is not None:
            self._first = self._first or self._runs
            self._faults.setdefault(_key(trial, fault), (trial, fault))
        return fault

    def _serially(self) -> Iterator[Outcome]:
        """Yields the outcomes of serial runs, one order of the functions after the other."""
        prefix: list[int] = []
        spent = 0.0
        for self._tried in range(1, ORDERS + 1):
            taken: list[int] = []
            counts: list[int] = []

            def decide(run: Run, processes: dict[Process, int], prefix: list[int] = prefix, taken: list[int] = taken,
                       counts: list[int] = counts) -> int:
                last = run.steps[-1] if run.steps else None
                if last and last.touch and last.process != PROGRAM and last.process in processes:
                    return processes[last.process]
                silent = [process for process in processes if run.touch_of(process) is None]
                if silent:
                    return processes[silent[0]]
                could = list(processes.values())
                taken.append(prefix[len(taken)] if len(taken) < len(prefix) else 0)
                counts.append(len(could))
                return could[taken[-1]]

            begun = time.monotonic()
            shared = self._shares
            trial = self.attempt(_whole(taken, counts, prefix) if shared else decide)
            spent += time.monotonic() - begun
            if shared != self._shares:
                prefix = []  # other orders count, too
                continue
            if trial.came is not None:
                yield trial.came
            while taken and taken[-1] + 1 >= counts[len(taken) - 1]:
                taken.pop()
            if not taken:
                self._all_orders = True
                return
            if spent >= self._budget / ORDERING or time.monotonic() >= self._end:
                return
            prefix = [*taken[:-1], taken[-1] + 1]

    # --- Finding the shortest schedule ---

    def _shown(self, quiet: _Trial, trial: _Trial, fault: _Fault) -> Finding:
        choices, fewest = self._shortened(quiet, trial, _key(trial, fault))
        shown = self.attempt(_following(choices), values=True)
        fault = self.fault(shown) or fault
        if self._replicas:
            return Finding(fault.title, fault.why, choices, _turns(shown.run), options=self._options(),
                           advice=TURNS_ADVICE)
        return Finding(fault.title, fault.why, choices, table(shown.steps, fault.anomaly), fault.anomaly, shown.steps,
                       fewest, self._options(), self._faulty is not None)

    def _shortened(self, quiet: _Trial, trial: _Trial, wanted: tuple[str, object]) -> tuple[list[int], bool]:
        """Choices with as few switches as were found, and whether there are none with fewer."""
        best = self._undone(_trimmed(trial.run.taken), wanted)
        if any(step.lost or step.killed or step.told for step in trial.steps) or _gone(trial):
            return best, False
        level = [quiet]
        left = SHORTENING
        for switches in range(_switches(best)):
            following = []
            for base in level:
                kept = _trimmed(base.run.taken)
                if self._has(base, wanted):
                    return kept, True
                for at in range(len(kept), len(base.run.taken)):
                    for other in base.run.others[at]:
                        if not left or switches + 1 >= _switches(best):
                            continue
                        if time.monotonic() >= self._end:
                            return best, False
                        left -= 1
                        following.append(self.attempt(_following([*base.run.taken[:at], other])))
                        if self._has(following[-1], wanted):
                            return _trimmed(following[-1].run.taken), left > 0
            level = following
            if not left:
                return best, False
        return best, True

    def _undone(self, choices: list[int], wanted: tuple[str, object]) -> list[int]:
        """Removes from choices the switches that are not needed for the same fault, half of them at once at first."""
        size = max(len(choices) // 2, 1)
        while size:
            at = 0
            while at < len(choices) and time.monotonic() < self._end:
                if any(choices[at:at + size]):
                    quiet = [0] * len(choices[at:at + size])
                    trial = self.attempt(_following([*choices[:at], *quiet, *choices[at + size:]]))
                    fewer = _trimmed(trial.run.taken)
                    if _switches(fewer) < _switches(choices) and self._has(trial, wanted):
                        choices, at = fewer, -size
                at += size
            size //= 2
        return choices

    def _has(self, trial: _Trial, wanted: tuple[str, object]) -> bool:
        fault = self.fault(trial)
        return fault is not None and _key(trial, fault) == wanted


def _turns(run: Run) -> list[str]:
    """Where a replica has its turn before one with a smaller number, and what they have changed."""
    assert run.orders is not None
    lines = []
    for segment in run.orders.segments:
        pair = segment.overtaking()
        if pair is None:
            continue
        first, second, names = pair
        lines.append(f"before {segment.call}: replica {first} has its turn before replica {second}")
        both = all(names <= segment.changes.get(replica, names) for replica in (first, second))
        places = {name: place_of(name.partition(".")[0], segment.codes) for name in sorted(names)}
        shown = ", ".join(name if place is None else f"{name} ({place})" for name, place in places.items())
        lines.append(f"  {'both change' if both else 'between them they change'} {shown}" if names else
                     "  what they share was not seen: look for files, and for what is printed or sent")
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"... and {len(lines) - SHOWN} more"]


def _ends_by_a_loss(trial: _Trial) -> bool:
    """Whether the program ended with the error of a parameter server that is lost."""
    return trial.came is not None and isinstance(trial.came.error, errors.UnavailableError) and _gone(trial)


def _gone(trial: _Trial) -> bool:
    """Whether a parameter server is lost in this trial."""
    return any(step.server is not None for step in trial.steps)


def _is_told(trial: _Trial) -> bool:
    """Whether the program is told to end in this trial."""
    return any(step.told for step in trial.steps)


def _whole(taken: list[int], counts: list[int], prefix: Sequence[int]) -> Decide:
    """An order of whole functions, whichever of those that wait is next; the coordinator goes on between any two.

    Args:
        taken, counts: where the choices are put, and how many there were of each.
        prefix: the choices to begin with.
    """

    def decide(run: Run, processes: dict[Process, int]) -> int:
        running = next((number for process, number in processes.items() if run.is_running(process)), None)
        if running is not None:
            return running
        begins = next((number for process, number in processes.items() if process != PROGRAM), None)
        options = [number for process, number in processes.items() if process == PROGRAM]
        waiting = 0 if begins is None else run.waiting
        taken.append(prefix[len(taken)] if len(taken) < len(prefix) else 0)
        counts.append(len(options) + waiting)
        if taken[-1] < len(options):
            return options[taken[-1]]
        assert begins is not None
        run.first(taken[-1] - len(options))
        return begins

    return decide


def _key(trial: _Trial, fault: _Fault) -> tuple[str, object]:
    """The kind of a fault and its variable; of faults that agree in both, one is reported."""
    if fault.title in ("RAISED", "CHECK") or fault.anomaly is None:
        return fault.title, None
    if fault.anomaly.kind in (OTHER, SHARED, NOT_RESTART_SAFE, RUN_TWICE, INTERRUPTED):
        return fault.title, None
    return fault.title, fault.anomaly.subject(trial.steps).access.place


def _raised(error: BaseException) -> str:
    trace = error.__traceback__
    place = ""
    while trace is not None:
        if not call_site.is_ours(trace.tb_frame.f_globals.get("__name__", "")):
            place = f" ({call_site.of_one(trace.tb_frame.f_code, trace.tb_lasti)})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error) or 'no message'}{place}"


def _with_variables(outcome: Outcome) -> str:
    return f"{outcome} with {outcome.variables}" if outcome.value is not None else str(outcome)


def _updates(count: int) -> str:
    return f"{count} update{'s' * (count != 1)}"


def _switches(choices: Sequence[int]) -> int:
    return sum(map(bool, choices))


def _trimmed(choices: Sequence[int]) -> list[int]:
    end = max((i + 1 for i, choice in enumerate(choices) if choice), default=0)
    return list(choices[:end])


def _difference(first: _Trial, second: _Trial) -> str:
    """How two runs of one schedule differ, in a step or in their outcome; "" if they do not."""
    for number, (step, other) in enumerate(zip(first.run.steps, second.run.steps, strict=False)):
        if (str(step), step.touch) != (str(other), other.touch):
            return f"step {number} is {step} in the one run, and {other} in the other"
    if len(first.run.steps) != len(second.run.steps):
        return f"the one run has {len(first.run.steps)} steps, the other {len(second.run.steps)}"
    if first.came is not None and second.came is not None and not same(first.came, second.came):
        return f"the result is {first.came} in the one run, and {second.came} in the other"
    return ""


def _predicted(quiet: _Trial, ages: bool) -> list[Decide]:
    """Schedules in which a function is overtaken between its read of a variable and its assignment to it.

    Where `ages` matter, it is overtaken by as many others as can be, before any write.
    """
    steps = quiet.run.steps
    clocks = Clocks()
    for step in steps:
        # Functions are ordered only by what they wait for, because races are what is looked for.
        clocks.add(step, races=False)
    first: dict[Process, int] = {}
    last: dict[Process, int] = {}
    own: dict[Process, list[int]] = {}
    for i, step in enumerate(steps):
        if step.process != PROGRAM:
            first.setdefault(step.process, i)
            last[step.process] = i
            own.setdefault(step.process, []).append(i)
    seen: set[object] = set()
    schedules: list[Decide] = []
    for f, own_steps in own.items():
        for at, i in enumerate(own_steps):
            read = steps[i].touch
            if read is None or read.effect is not Effect.READ:
                continue
            writes = [touch for j in own_steps[at + 1:] if (touch := steps[j].touch) and touch.cell == read.cell]
            overwrites = any(ages or write.effect is Effect.ASSIGN for write in writes)
            if not overwrites or steps[i].access.place in seen:
                continue
            writing = [g for g, others in own.items() if any(
                (touch := steps[j].touch) and touch.cell == read.cell and touch.writes for j in others)]
            apart = [g for g in writing if g != f and not clocks.ordered(last[f], first[g])
                     and not clocks.ordered(last[g], first[f])]
            if apart:
                seen.add(steps[i].access.place)
                schedules.append(_overtaken(f, at + 1, apart if ages else apart[:1]))
    return schedules[:PREDICTIONS]


def _overtaken(f: Process, steps: int, others: Sequence[Process]) -> Decide:
    """A schedule: `f` makes `steps` steps, then each of `others` runs whole, then all else, and `f` last."""

    def decide(run: Run, processes: dict[Process, int]) -> int:
        done = sum(step.process == f for step in run.steps)
        order = [f] if done < steps else [*others, *(process for process in processes if process != f)]
        return next((processes[process] for process in order if process in processes), next(iter(processes.values())))

    return decide
