"""One run of an asynchronous program under a schedule: which step was made when, by whom, and what it accessed.

A *process* is the coordinator, or a function that was scheduled.  Functions are numbered in the order in which workers
take them, which is the order in which they were scheduled; so a process has the same number in every schedule.  A step
is what happens between two points at which another process could go on, and begins with at most one access.

Workers are alike: where several rest, the one that has rested longest takes the function.
"""

from __future__ import annotations

import dis
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from refdist import disk, errors
from refdist.array.convert import to_numpy
from refdist.checkpoints import preemption
from refdist.checkpoints.files import INDEX
from refdist.coordinator.choices import COORDINATOR, GO_ON, LOSE, TAKE, Option, Scheduler
from refdist.coordinator.closures import Closure
from refdist.coordinator.cluster import Bound, Cluster
from refdist.core import call_site, context_stack, devices
from refdist.core.call_site import Place
from refdist.core.chooser import chooser
from refdist.insight.commuting import QUEUEING, Commutes, Touch, commute, touch
from refdist.insight.kills import Files
from refdist.insight.names import of_the_program
from refdist.insight.orders import Orders
from refdist.insight.sharing import ENDED, FAILED, Cell, Change, Server, Sharing, is_read
from refdist.variables.creation import variable_creator_scope
from refdist.variables.served import Access, PerWorkerVariable, ServedVariable, here
from refdist.variables.sharded import ShardedVariable
from refdist.variables.variable import ResourceVariable, Variable

KILLED = "the program is killed"
LOOKS = 5  # a second apart, in which a function, or the program, that does not go on is taken to wait for ever
IDLE = 0.05  # the CPU time of a second in which a process does not compute
LONGEST = 4  # the part of the budget for which a step may compute is 1 in so many
DEBUGGERS = ("bdb", "pydevd", "_pydevd_bundle")  # modules in which, or under which, a program is debugged
LIMIT = 2500  # steps of a run: more than `cluster.PATIENCE`, after which a loop that waits lets others go on

Process = tuple[int, int]
"""The number of the coordinator's cluster, from 0, and of its function, from 1; (0, 0) is the coordinator."""

PROGRAM: Process = (0, 0)
REPLICA = -1
"""In the place of the number of a cluster: the process is a replica, of this number among those that are left."""

Doom = tuple[Process, int]
"""A function, and the number of one of its steps."""


class Cut(BaseException):
    """Ends a run whose rest does not matter; not an Exception, so that no program swallows it."""


class Pending(NamedTuple):
    """What a process does when it goes on: an access; a step in which a file is written, read or removed; `RETURN`."""

    touch: Touch | None
    operation: str
    name: str
    place: Place | None
    variable: Variable | None


_NOTHING = Pending(None, "", "", None, None)
RETURN = Pending(None, "return", "", None, None)
NOTICE = "notice"
_QUEUES = Pending(QUEUEING, "", "", None, None)


class Faults(NamedTuple):
    """Faults that are simulated in a run.

    Attributes:
        workers: how many workers can be lost before an access of their functions; each is started again at once.
        returns: how many can be lost when their functions have made their last access, and have not returned.
        servers: how many parameter servers can be.
        kills: how often the program can be killed at a step in which it changes a file.
        notices: how often it can be told to end where a PreemptionCheckpointHandler asks.
    """

    workers: int = 0
    returns: int = 0
    servers: int = 0
    kills: int = 0
    notices: int = 0


NO_FAULTS = Faults()


class Step:
    """A step of a run.

    Attributes:
        process: whose.
        worker: which one it ran on; None for the coordinator.
        access: what it began with.
        after: processes, all of whose steps so far came before this one: functions that were waited for.
        lost: whether the worker was lost instead of making the access, or returning; the function begins again.
        failed: whether the access failed, because its server is lost.
        killed: whether the program was killed instead of changing the file.
        told: whether the program was told to end.
        server: the number of the parameter server that is lost in this step; None for other steps.
        ends: whether the program ends here and begins again.
        starts: the number of the step after which the function that this step begins was in the queue; else -1.
        value: what the variable held after the access.
        scope: what its function reaches of Python objects; None for the coordinator.
        wrote: what it has changed beside a variable.
        changes: the same, with names, where these are Python objects.
        on: the server of the variable that it accesses.
    """

    __slots__ = ("access", "after", "changes", "ends", "failed", "killed", "lost", "on", "process", "scope", "server",
                 "starts", "told", "value", "worker", "wrote")

    def __init__(self, process: Process, worker: int | None, access: Pending, after: bool, starts: int) -> None:
        self.process = process
        self.worker = worker
        self.access = access
        self.after = after
        self.starts = starts
        self.lost = False
        self.failed = False
        self.killed = False
        self.told = False
        self.server: int | None = None
        self.ends = False
        self.value: Any = None
        self.scope: int | None = None
        self.wrote: frozenset[Cell] = frozenset()
        self.changes: tuple[Change, ...] = ()
        self.on: Server | None = None

    def reads(self, cell: Cell) -> bool:
        """Whether it reads what another step changes."""
        return is_read(cell, self.scope, self.process == PROGRAM, self.on)

    @property
    def touch(self) -> Touch | None:
        if self.lost:
            return QUEUEING  # the function returns to the queue
        return None if self.failed else self.access.touch

    def __str__(self) -> str:
        access = self.access
        what = f"{access.operation} of {access.name} ({access.place})" if access.name else "no access"
        return f"{name_of(self.process)}: {what}"


def name_of(process: Process) -> str:
    """The name of a process, for messages."""
    return "the coordinator" if process == PROGRAM else f"function {process[1]}" + (
        f" of coordinator {process[0] + 1}" if process[0] else "")


def independent(first: Step, second: Step, commutes: Commutes = commute) -> bool:
    """Whether two steps of different processes come to the same in either order, if their accesses commute so."""
    if not commutes(first.touch, second.touch):
        return False
    if not first.wrote and not second.wrote:
        return True
    return not (first.wrote & second.wrote or any(map(second.reads, first.wrote))
                or any(map(first.reads, second.wrote)))


Decide = Callable[["Run", dict[Process, int]], int]
"""Given the run, and the number of an option for each process that can go on; the quiet one first."""


class Run(Scheduler):
    """Follows a program through one schedule.

    Args:
        decide: who goes on.
        values: whether to keep the values that variables held.
        faults: what can happen to the program.
        files: what notes the files that are written; None where the program cannot be killed while it writes.
        before: the run that ended when the program was killed, lost a server, or was told to end; this one is the rest.
        doomed: functions that lose their workers, or the server that they access, whoever goes on, and in which of
            their steps.
        orders: whether the order of replicas is a choice, too.
        whole: whether all that functions share is looked at after each step, as `Sharing` has it.
        budget: for how many seconds the program is explored.  A step may compute for a part of it, by the clock and of
            CPU time, which is less on a busy machine; where no function is left, it may compute or wait for as long.

    Attributes:
        steps: what has happened.
        taken: the choices, as `interleaving` takes them.
        others: for each of them, which other ones would have let another process go on.
        losing: for each of them, the one that loses the worker of the function that went on, or the server of the
            variable that is accessed; None where none does.
        killing: for each of them, the one that kills the program, or tells it to end; None where none does.
        losable: the steps, by their function and their number in it, in which its worker or a server could be lost.
        disturbances: why the schedule does not decide everything.
        cut: why it was not followed to its end; "" if it was.
        exits: whether the program has ended with SystemExit.
        orders: the turns of replicas; None where they are no choices.
        opened: files that were opened to be written, since it was last emptied.
        thread: the one that it is carried out in.
        given_up: the error of a function that could not be stopped, whose thread is left; None where all could.
        several: how many options there are at the point where `decide` is asked; 0 where there is only one.
        cells: what held values, in the order in which it was made.
        copies: other variables, by their copies: those of replicas, and those without a strategy.
        sharing: what functions share beside variables.
    """

    def __init__(self, decide: Decide, values: bool = False, faults: Faults = NO_FAULTS, files: Files | None = None,
                 before: Run | None = None, doomed: Collection[Doom] = (), orders: bool = False,
                 whole: bool = False, budget: float = math.inf) -> None:
        self.before = before
        self.steps: list[Step] = []
        self.taken: list[int] = [] if before is None else list(before.taken)
        self.others: list[list[int]] = [[] for _ in self.taken]
        self.losing: list[int | None] = [None for _ in self.taken]
        self.killing: list[int | None] = [None for _ in self.taken]
        self.losable: list[Doom] = []
        self.disturbances: dict[str, None] = {}
        self.cut = ""
        self.exits = False
        self.given_up: errors.RefdistError | None = None
        self.orders = Orders(self) if orders else None
        self.opened: dict[str, None] = {}
        self.several = 0
        self.cells: list[Variable] = []
        self.copies: list[ResourceVariable] = []
        self.sharing = Sharing(whole)
        self._decide = decide
        self._values = values
        self._faults = faults
        self._files = files
        self._doomed = doomed
        self._options: Sequence[Option] = ()  # at the point where `decide` is asked, in the cluster of this number
        self._cluster = 0
        self.thread = threading.get_ident()
        self._gone: set[Server] = set()
        self._numbers: dict[int, int] = {}  # id of a cell -> its number
        self._clusters: list[Cluster] = []
        self._pending: dict[Process, Pending] = {}
        self._on: dict[tuple[int, int], Process] = {}  # (cluster, worker) -> the process on it
        self._begun: list[int] = []  # for each cluster, how many functions have begun
        self._made: dict[Process, int] = {}  # how many steps; of the coordinator, how many accesses
        self._scopes: dict[int, tuple[int, Closure]] = {}  # id of a function -> what it reaches, and the function
        self._reached: dict[Process, int] = {}  # the same, by process
        # For each cluster and function, the number of the step after which it was in the queue.
        self._scheduled: list[list[int]] = []
        self._own_step = -1  # the coordinator's last one
        self._all_ended = False
        self._joined: bool | None = None  # whether the coordinator has waited for all functions; None for no function
        self._open: Step | None = None
        self._budget = budget
        self._seen_at: tuple[object, ...] = ()  # where the program, or the function that runs, was last seen
        self._looks: list[float] = []  # the CPU time of the process, each time that it was seen there
        self._begins: tuple[object, float, float] = None, 0.0, 0.0  # a position, and when it was first seen there

    def carry_out(self, program: Callable[[], object], outcome: Callable[[object], Any]) -> Any:
        """Runs the program under this schedule; returns what `outcome` makes of its result.

        Raises:
            Cut: it was not followed to its end.  Whatever the program raises.
        """
        if self._files is not None:
            disk.watch.value = self._file
        if self._faults.notices:
            preemption.asked.value = self._asks
        chooser.value = self.orders
        _watch_files(self.opened if self.orders else None)
        ends = signal.getsignal(signal.SIGTERM)
        try:
            with self, variable_creator_scope(self._create):
                try:
                    return outcome(program())
                finally:
                    self._settle()
                    self._forget()
                    if self._joined is False and not self.cut:
                        self.steps[-1].wrote |= {ENDED}
        finally:
            if self.orders is not None:
                self.orders.end_turn()
            disk.watch.value = preemption.asked.value = chooser.value = None
            _watch_files(None)
            if ends is not None and signal.getsignal(signal.SIGTERM) is not ends:  # the program's handler waits for it
                signal.signal(signal.SIGTERM, ends)
            if not self.cut:
                self.cut = "ended"
            for cluster in self._clusters:
                cluster.abandon()
                self.given_up = self.given_up or next(iter(cluster.given_up), None)
            if self.cut == "ended":
                self.cut = ""

    def is_gone(self, variable: Variable) -> bool:
        """Whether a variable belongs to a strategy that has lost a parameter server."""
        strategy: Any = variable._created_by if isinstance(variable, ServedVariable) else None
        return strategy is not None and bool(strategy.extended.lost)

    def touch_of(self, process: Process) -> Touch | None:
        """The access that a process makes when it goes on."""
        if self._dooms(process) and not self._faults.servers:
            return QUEUEING
        return self._pending.get(process, _NOTHING).touch

    def _dooms(self, process: Process) -> bool:
        return (process, self._made.get(process, 0)) in self._doomed

    def stop(self, why: str) -> Cut:
        """Ends the run, for the reason `why`."""
        self.cut = why
        return Cut(why)

    # --- Methods of a scheduler ---

    def choose(self, options: Sequence[Option], cluster: Cluster) -> int:
        if self.cut:  # the run is about to end
            return next((i for i, option in enumerate(options) if option.action == COORDINATOR), 0)
        self._settle()
        self._look_at_what_is_shared()
        if len(self.steps) >= LIMIT:
            raise self.stop(f"it went on for more than {LIMIT} steps")
        number = self._number(cluster)
        if not self._others_rest(cluster):
            self.disturbed("functions of several coordinators run at the same time")
        processes: dict[Process, int] = {}
        for i, option in enumerate(options):
            if option.action == COORDINATOR:
                processes[PROGRAM] = i
            elif option.action == GO_ON:
                processes[self._on[number, int(option.task)]] = i
            elif option.action == TAKE:
                processes.setdefault((number, self._begun[number] + 1), i)
        self.several = len(options) if len(options) > 1 else 0
        self._options, self._cluster = options, number
        chosen = self._decide(self, processes)
        doomed: Process | None = None
        if len(options) > 1:  # counted as `interleaving` counts choices
            others = [i for i in processes.values() if i != chosen]
            losing = self.losing_of(chosen)
            if losing is not None and options[chosen].action in (COORDINATOR, GO_ON):
                process = PROGRAM if options[chosen].action == COORDINATOR else self._on[
                    number, int(options[chosen].task)]
                self.losable.append((process, self._made.get(process, 0)))
                if self._dooms(process):
                    chosen, doomed = losing, process
            self.taken.append(chosen)
            self.others.append(others)
            self.losing.append(losing)
            self.killing.append(None)
        self._note(options[chosen], number, doomed)
        return chosen

    def losing_of(self, number: int) -> int | None:
        """The number of the option to lose the task whose access comes next, if option `number` is a process.

        It may be asked where `decide` is.
        """
        action, task = self._options[number]
        lost = None
        if self._faults.workers or self._faults.returns:
            lost = Option(LOSE, f"worker {task}") if action == GO_ON else None
        elif self._faults.servers and action in (COORDINATOR, GO_ON):
            process = PROGRAM if action == COORDINATOR else self._on[self._cluster, int(task)]
            variable = self._pending.get(process, _NOTHING).variable
            lost = None if variable is None else Option(LOSE, f"ps {_server(variable)}")
        return self._options.index(lost) if lost in self._options else None

    def first(self, waiting: int) -> None:
        """Moves a function to the front of the queue: that of this number among those that wait.

        It may be asked where `decide` is.
        """
        queue = self._clusters[self._cluster].queue
        function = queue[waiting]
        del queue[waiting]
        queue.appendleft(function)

    @property
    def waiting(self) -> int:
        """How many functions wait for a worker where `decide` is asked."""
        return len(self._clusters[self._cluster].queue)

    def is_running(self, process: Process) -> bool:
        """Whether a function that can go on has begun."""
        return process != PROGRAM and process[1] <= self._begun[process[0]]

    def _note(self, option: Option, number: int, doomed: Process | None = None) -> None:
        starts = -1
        kind, _, task = str(option.task).rpartition(" ")
        worker = None if option.action == COORDINATOR or kind == "ps" else int(task)
        if worker is None:
            process = PROGRAM if doomed is None else doomed
        elif option.action == LOSE:
            process = self._on.get((number, worker), PROGRAM)
            if process in self._pending:
                self._scheduled[number].append(len(self.steps))  # it returns to the queue
            else:
                process = PROGRAM  # a worker that rests is lost, which nobody sees
        elif option.action == TAKE:
            begun = self._begun[number] = self._begun[number] + 1
            process = self._on[number, worker] = (number, begun)
            self._reached[process] = self._scopes.get(id(self._clusters[number].queue[0]), (-1, None))[0]
            known = self._scheduled[number]
            starts = known[begun - 1] if begun <= len(known) else -1
        else:
            process = self._on[number, worker]
        nobody = option.action == LOSE and (kind == "ps" or process == PROGRAM)
        access = _NOTHING if nobody else self._pending.pop(process, _NOTHING)
        step = Step(process, worker, access, self._all_ended and option.action == COORDINATOR, starts)
        if kind == "ps":
            step.server = int(task)
            gone = Server(number, step.server)
            self._gone.add(gone)
            step.wrote = frozenset([gone])
        step.lost = option.action == LOSE and not nobody
        server = None if access.variable is None else _server(access.variable)
        if server is not None:
            step.on = Server(number, server)
            step.failed = step.on in self._gone
        step.scope = self._reached.get(process)
        if option.action == COORDINATOR:
            self._all_ended = False
            self._own_step = len(self.steps)
        if process != PROGRAM or access.variable is not None:
            self._made[process] = self._made.get(process, 0) + 1
        self.steps.append(step)
        self._open = step

    def pick(self, count: int) -> int:
        """Which of so many replicas that are left has its turn."""
        if count == 1:
            return 0
        self.several = count
        chosen = self._decide(self, {(REPLICA, number): number for number in range(count)})
        self.taken.append(chosen)
        self.others.append([number for number in range(count) if number != chosen])
        self.losing.append(None)
        self.killing.append(None)
        return chosen

    def _settle(self) -> None:
        step, self._open = self._open, None
        if self._values and step is not None and step.access.variable is not None:
            step.value = np.array(to_numpy(step.access.variable._primary._array))

    def visit(self, cluster: Cluster, worker: int | None, access: Access | None) -> None:
        if self.cut:
            return
        number = self._number(cluster)
        process = PROGRAM if worker is None else self._on[number, worker]
        if access is None:
            self._scheduled[number].append(self._own_step)
            self._joined = False
            closure = cluster.queue[-1]
            if isinstance(closure.call, Bound) and self.orders is None:
                call = closure.call
                self._scopes[id(closure)] = self.sharing.add(call.fn, call.args, call.kwargs), closure
        elif access.variable is not None:
            if context_stack.frame().drafts is not None:
                self.disturbed("an `extended.update` writes at its end")
            place, used = _caller(access)
            cell = self._numbers.get(id(access.variable))
            if cell is None:
                cell = self._add(access.variable)
            shown = access.variable.name.removesuffix(":0")
            self._pending[process] = Pending(touch(access, cell, used), access.operation, shown, place,
                                             access.variable)

    def queueing(self, cluster: Cluster) -> bool:
        if self.cut or not (self._faults.workers or self._faults.returns):
            return False
        self._number(cluster)
        self._pending[PROGRAM] = _QUEUES
        return True

    def returning(self, cluster: Cluster, worker: int) -> None:
        self._pending[self._on[self._number(cluster), worker]] = RETURN

    def _file(self, step: str, path: str, descriptor: int | None) -> None:
        """Called before a file is written, read or removed; whether a kill precedes a change is a choice."""
        assert self._files is not None
        if not self._files.note(step, path, descriptor):
            raise self.stop(f"it would change {path}")
        if self.cut:
            return
        if here.worker is not None or threading.get_ident() != self.thread:
            self.disturbed("a function, or a thread of the program's own, saves or restores")
            return
        self._settle()
        name = os.path.basename(path)
        self._pending[PROGRAM] = Pending(None, step, "the index" if name == INDEX else name,
                                         _place(sys._getframe(1))[0], None)
        if self._ended_by(self._faults.kills and step != disk.READ):
            self.steps[-1].killed = self.steps[-1].ends = True
            self._files.keep()
            raise self.stop(KILLED)

    def _asks(self, grace: bool) -> bool:
        """Called where a PreemptionCheckpointHandler asks; whether its worker is told to end is a choice."""
        if self.cut or self.before is not None:
            return False
        if here.worker is not None or threading.get_ident() != self.thread:
            self.disturbed("a function, or a thread of the program's own, asks whether it is to end")
            return False
        self._settle()
        self._pending[PROGRAM] = Pending(None, NOTICE, "", _place(sys._getframe(1))[0], None)
        notice_comes = self._ended_by(self._faults.notices)
        self.steps[-1].told = notice_comes
        if notice_comes and grace:
            self.disturbed("a grace period was taken to be over at once")
        return notice_comes

    def _ended_by(self, possible: int) -> bool:
        """Makes the coordinator's next step; whether what ends the program comes in it, where that is possible."""
        choice = possible and self.before is None
        self.several = 2 if choice else 0
        ended = self._decide(self, {PROGRAM: 0}) == 1
        if choice:
            self.taken.append(int(ended))
            self.others.append([])
            self.losing.append(None)
            self.killing.append(1)
        self._note(Option(COORDINATOR), 0)
        return ended

    def ended(self, cluster: Cluster, waited: bool) -> None:
        if waited:
            self.steps[-1].after = True  # the one with which it went on
        self._all_ended = True
        if self._others_rest(cluster):
            self._joined = True
            self._look_at_what_is_shared()
            self._forget()

    def _forget(self) -> None:
        if self.sharing.forget() and not self.cut:
            self.disturbed("in some schedules only, random numbers are drawn, or a large array is changed")

    def failed(self, cluster: Cluster) -> None:
        if not self.cut:
            self.steps[-1].wrote |= {FAILED}

    def stops(self, cluster: Cluster) -> None:
        if self.cut:
            return
        self.steps[-1].wrote |= {ENDED}
        number = self._number(cluster)
        self._begun[number] += len(cluster.queue)  # those that are dropped keep their numbers
        known = self._scheduled[number]
        known += [-1] * (self._begun[number] - len(known))  # `schedule` may raise the error after it has added one

    @property
    def position(self) -> tuple[int, int]:
        """How far the run is: it changes with each step of the program, of a function, or of a replica."""
        return len(self.steps), len(self.taken)

    def runs(self, frame: FrameType) -> None:
        self._look("a function", frame, "no other function, for which it may wait, runs before its next access")

    def stalls(self, frame: FrameType) -> None:
        """Called each second while the position is the same; ends a run that waits, or computes for too long.

        Args:
            frame: where the program is.

        Raises:
            Cut: it does.
        """
        if not any(self.position) or call_site.is_ours(frame.f_globals.get("__name__", "")):
            return
        if self.orders is not None:
            why = "no other replica, for which it may wait, runs before the next rendezvous"
        elif any(not cluster.idle for cluster in self._clusters):
            why = "functions run only where it makes an access, or waits with `join` or `fetch`; write one of these"
        else:
            why = ""
        self._look("the program", frame, why)

    def _look(self, who: str, frame: FrameType, why: str) -> None:
        now, clock = time.process_time(), time.monotonic()
        debugged = _is_debugged(frame)
        if self._begins[0] != self.position or debugged:
            self._begins = self.position, now, clock
        at = self.position, id(frame), frame.f_lasti
        if at != self._seen_at or debugged:
            self._seen_at = at
            self._looks.clear()
        self._looks.append(now)
        computed, passed = now - self._begins[1], clock - self._begins[2]
        if not why:  # what it does by itself may take its time
            if passed >= max(LOOKS, self._budget):
                raise self.stop(f"the program was at {_own_place(frame)} for {passed:.0f} seconds; no function is left "
                                "for which it may wait")
            return
        if self._looks[LOOKS:] and self._looks[-1] - self._looks[-1 - LOOKS] < LOOKS * IDLE:
            # Nothing shows how a wait will end: a sleep looks like the wait for an event that nobody sets.
            raise self.stop(f"{who} waits at {_own_place(frame)}, and did not go on for {LOOKS} seconds (if it sleeps, "
                            f"leave that out: nothing else goes on meanwhile); {why}")
        longest = max(LOOKS, self._budget / LONGEST)
        if min(computed, passed) >= longest:
            raise self.stop(f"{who} has computed at {_own_place(frame)} for {longest:.0f} seconds, without an access; "
                            f"{why}")

    def left(self, error: errors.RefdistError) -> None:
        self.given_up = self.given_up or error

    def _others_rest(self, cluster: Cluster) -> bool:
        return all(other is cluster or other.idle for other in self._clusters)

    def _look_at_what_is_shared(self) -> None:
        """Notes what the last step has changed of it."""
        cells, changes = self.sharing.changes()
        if self.sharing.held and not self.cut:
            lock = next(iter(self.sharing.held))
            raise self.stop(f"a function makes an access while it has a lock ({lock}), for which others would wait for "
                            "ever")
        if cells:
            self.steps[-1].wrote |= cells
            self.steps[-1].changes += changes

    def disturbed(self, why: str) -> None:
        if not self.cut:
            self.disturbances[why] = None

    def _number(self, cluster: Cluster) -> int:
        try:
            return self._clusters.index(cluster)
        except ValueError:
            self._clusters.append(cluster)
            self._begun.append(0)
            self._scheduled.append([])
            if self._faults.workers or self._faults.returns:
                for worker in range(cluster.workers):
                    cluster.add_fault(("worker", worker), None, returns=True, done=bool(self._faults.returns),
                                      times=self._faults.workers + self._faults.returns)
            if self._faults.servers and self.before is None and not self._gone:
                for server in range(cluster.servers):
                    cluster.add_fault(("ps", server), None)
            return len(self._clusters) - 1

    def _create(self, next_creator: Callable[..., Any], **kwargs: object) -> Any:
        if here.worker is not None:
            self.disturbed("a function makes a variable")
        variable = next_creator(**kwargs)
        for part in variable.variables if isinstance(variable, ShardedVariable) else [variable]:
            if isinstance(part, PerWorkerVariable):
                self.disturbed("a variable is each worker's own")
            elif isinstance(part, ServedVariable):
                self._add(part)
            elif isinstance(part, ResourceVariable):
                self.copies.append(part)
        return variable

    def _add(self, variable: Variable) -> int:
        if id(variable) not in self._numbers:
            self._numbers[id(variable)] = len(self.cells)
            self.cells.append(variable)
        return self._numbers[id(variable)]


_watching: dict[str, None] | None = None
_hooked = False


def _watch_files(opened: dict[str, None] | None) -> None:
    """Notes files in `opened` that are opened to be written, from now on; None: no more."""
    global _watching, _hooked
    _watching = opened
    if opened is not None and not _hooked:
        _hooked = True  # a hook cannot be taken back
        sys.addaudithook(_note_file)


def _note_file(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is not None and event == "open" and isinstance(arguments[0], str) and (
            arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        _watching[arguments[0]] = None


def _server(variable: Variable) -> int | None:
    """The number of the parameter server that has a variable."""
    device = devices.parse(variable.device)
    return device.task if device.job == "ps" else None


def _caller(access: Access) -> tuple[Place | None, bool]:
    """The line of the program that makes the access, and whether it may use what that returns."""
    place, used, method = _place(sys._getframe(2))
    return place, used or method != access.operation


def _place(frame: FrameType | None) -> tuple[Place | None, bool, str]:
    """The line of the program that led to a frame, whether it may use what its call returns, and what it has called."""
    method = ""
    while frame is not None and call_site.is_between(frame.f_globals.get("__name__", "")):
        method, frame = frame.f_code.co_name, frame.f_back
    return (None, True, method) if frame is None else (*_call(frame.f_code, frame.f_lasti), method)


def _is_debugged(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return False


def _own_place(frame: FrameType) -> Place:
    """The line of the program's own that led to a frame."""
    own = frame
    while own.f_back is not None and not of_the_program(own.f_globals.get("__name__")):
        own = own.f_back
    return call_site.of_one(own.f_code, own.f_lasti)


@lru_cache(maxsize=4096)
def _call(code: CodeType, at: int) -> tuple[Place, bool]:
    """The place of the call at this offset, and whether its result is kept: if not, the next instruction drops it."""
    # The offset may lie in the inline caches behind the instruction.
    following = next((instruction for instruction in dis.get_instructions(code) if instruction.offset > at), None)
    return call_site.of_one(code, at), following is None or following.opname != "POP_TOP"
