"""The process that watches one worker: its parent, which the launcher takes for the worker.

A launcher kills all processes when one of its own dies, before the others can say which one they lost.  It sees only
supervisors, and these are small: no library, no threads.  A supervisor starts its worker, or is what remains of a
process that has forked (`supervised`), and ends last.  It

* dies never before its worker: Linux kills the worker when its supervisor dies;
* says how the worker was lost, and waits until the others of this host have said what they saw (`reports`), or for
  HOLD_SECONDS, before it ends the job;
* counts the seconds in which the worker joins the others.  MPI's own start waits without a limit, inside of MPI, and
  holds the interpreter's lock meanwhile, so the worker cannot count them itself;
* sees when its worker is stopped, and kills it when that has lasted longer than processes wait for each other;
* passes on the signals that the launcher passes on, and knows afterwards that a worker that they ended was told to end;
* watches the processes of the launcher above it: when one of them dies, it ends its worker and the other ones, which
  MPICH's would not do by itself.

The worker tells its supervisor how far it is over a socket that it has inherited: one JSON object per packet, with its
"kind": starting (with the "limit" in seconds; answered with the folder for "ucx"), initialized: MPI has started in all
processes, joined, finished, warning (a "text"), report (a "text", how long it may "wait" for the same one of other
workers, and whether the worker "ends" by itself when it was printed, which then is answered), absent: the "ranks" of
those that will not say the same, because they are elsewhere, and of those that are "dead", task: which "task" of the
cluster it is, saved: the "path" and "step" of a checkpoint that is complete, spared: from now on the job goes on when
this worker is lost, which ends with the process "chief" of this host, and what it takes to come back, "left_behind",
which is the answer to left behind in a worker that is started in its place, notice: what it takes to tell the workers
of other hosts that this one is lost, again and again, because datagrams get lost, and lost: another worker is, and the
exit "status" that it gives the job, which is the same on all hosts.

How MPICH's launcher is told that a job has failed: by the line that MPI_Abort would send it, because it then returns
the exit status in that line; a process that just ends is followed by a page of text and another status.

Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from refdist.backends.mpi import logs, pipes, processes
from refdist.backends.mpi.backoff import backoff
from refdist.backends.mpi.datagrams import Notice
from refdist.backends.mpi.last_words import LastWords
from refdist.backends.mpi.logs import Printed
from refdist.backends.mpi.processes import ENDING
from refdist.backends.mpi.reports import EVERYONE_SECONDS, MERGE_SECONDS, WARNING_SECONDS, Line, Message, desk_of
from refdist.workers.launcher import (
    RESTARTS_VARIABLE,
    SUPERVISED_VARIABLE,
    Task,
    launched,
    on_this_host,
    prefixed,
    task_of,
)

LAUNCHER_VARIABLE = "REFDIST_LAUNCHER"  # under `refdist launch`: the process of that, and the key of its desk
TIMEOUT_VARIABLE = "REFDIST_TIMEOUT"  # for how many seconds processes wait for each other
DEFAULT_TIMEOUT = 300.0
# A file with the topology of the machine, for hwloc.  Where MPICH's launcher has one it does not make its own, which it
# leaves in /tmp when it is killed; none will do.
TOPOLOGY_VARIABLE = "HWLOC_XMLFILE"
HOLD_SECONDS = 10.0  # how long the others may take to report that a worker is lost
NOTICE_SECONDS = 0.2  # after which others are told again
STOPPED_SECONDS = 2.0  # beyond the limit, in which the others say that they miss a worker that is stopped
TOLD_SECONDS = 1.0  # how long a worker may take to end when it is told to
SPARED_SECONDS = 5.0  # and one that is spared, when the one with which it ends has ended
LINGER_SECONDS = 1.0  # how long processes that a script has started may outlive it
FORWARD_SECONDS = 0.3  # a launcher drops what it has not forwarded when a job is aborted
FAILED = 70  # the exit status for what has none of its own
_DESK_SECONDS = 5.0  # how long the desk may take to print what is due
_STEP = 0.5  # the longest wait while time counts; beyond it, this process did not run
_NEVER = float("inf")
_OWN = "/proc/self/fd/2"
_FOLDER_VARIABLE = "PMIX_SERVER_TMPDIR"  # of OpenMPI's mpiexec, which the launch command removes after it
_CLOSED = object()
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
            signal.SIGCONT)
_WATCHED = (*_SIGNALS, signal.SIGCHLD)


class Started(NamedTuple):
    """A worker that runs.

    Attributes:
        child: its process.
        printed: what passes on what it prints; None where it prints by itself.
        words: what passes on its errors until it makes its strategy; None where it has made it.
    """

    child: int
    printed: Printed | None = None
    words: LastWords | None = None


class Supervisor:
    """Watches one worker; made in the process that becomes the supervisor, before the worker exists."""

    def __init__(self) -> None:
        launch = launched()
        # A job that a worker has started is not the one of the launch command above that.
        desk = "" if SUPERVISED_VARIABLE in os.environ else os.environ.get(LAUNCHER_VARIABLE, "").partition(" ")[2]
        rank, size = (0, 1) if launch is None else (launch.rank, launch.size)
        self._launched = bool(desk)  # by the launch command, which is above mpiexec
        self._above = dict(processes.launchers())
        # What no launcher has started (`gather`) reports where it was started itself.
        self._line = Line(desk or desk_of(os.getppid() if self._above else os.getpid()), self._write)
        self._pmi = int(os.environ["PMI_FD"]) if launch is not None and launch.launcher == "Hydra" else -1
        self._who: Message = {"rank": rank, "of": size, "size": (on_this_host(os.environ) or (0, 1))[1],
                     # Or what has adopted this process, where that has died by now.
                     "proxy": os.getppid() if self._pmi >= 0 else 0}
        self._memory = self._folder = ""  # what MPI's files in shared memory are called; that of UCX, in a folder
        # A file that MPICH's launcher leaves when a job is aborted; the folder that OpenMPI's leaves when it is killed.
        self._topology = "" if self._pmi >= 0 else os.environ.get(_FOLDER_VARIABLE, "")
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = 0
        self._after: socket.socket | None = None  # a process that tidies when this one is killed
        self._mask: set[int] = set()  # of the signals that were blocked before the worker was started
        self._state = "running"  # how far it is, for the desk
        self._joined = self._finished = False  # what the worker has said
        self._spared = False  # whether the job goes on when it is lost
        self._start: Callable[[], Started] | None = None  # starts it again
        self._left_behind: Message = {}  # what it takes to come back
        self._starts = 0  # how often it was started again
        self._start_at = _NEVER  # when it is started again, if it was lost
        self._todo: dict[int, Callable[[], object]] = {}  # by the file that becomes readable, what is then to be done
        self._reported = self._weak = False  # whether it has said why it fails; and that is because of another one
        self._ends = False  # whether it ends by itself when that was printed
        self._said = 0  # the exit status that this process has reported, of a worker that it may have killed
        self._failed = self._broken = False  # whether this process has said it; because of a process of the launcher
        self._if_first = False  # that is left out when a worker has failed before
        self._notices: list[Notice] = []
        self._printed: Printed | None = None
        self._words: LastWords | None = None
        self._told = 0  # the last signal by which the worker was told to end
        self._limit = 0.0  # seconds left for the start; 0 for no limit
        self._initialized = False  # whether MPI has started
        self._wanted = seconds_to_wait()  # for how many the others wait for this worker
        self._stopped = 0.0  # seconds left for the worker, which is stopped; 0 if it is not
        self._waited = self._killed = False  # it was stopped too long; this process has killed it
        self._late = False  # it was started again, and has not come back in time
        self._lost = False  # it has ended as it should not
        self._kill_at = self._end_at = _NEVER  # when the worker, and when the job is ended at the latest
        self._printed_at = _NEVER  # when what is said of the worker was printed, and forwarded
        self._notify_at = _NEVER  # when the workers of other hosts are told that this one is lost
        self._status: int | None = None  # the exit status of the worker, once it has ended
        self._known = 0  # that of the job, as far as the desk has told
        self._elsewhere = 0  # that of the job, as the supervisor of a worker says that is lost

    def fork(self, *numbers: int) -> int:
        """Starts the worker: returns its process, or 0 in the worker.  Signals wait until `watch` passes them on.

        Args:
            *numbers: signals that the worker ignores from its beginning.
        """
        parent = os.getpid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignored:  # it would not be known how a worker has ended that ends before `watch` is called
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child = os.fork()
        if child == 0:
            if ignored:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
            processes.die_with(parent, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return child

    def worker(self, *errors: int) -> socket.socket:
        """The worker's end of the socket, and `SUPERVISED_VARIABLE` in its environment; called in the worker.

        Args:
            *errors: the number of its standard error, where that is a pipe until it makes its strategy (`last_words`).
        """
        os.environ[SUPERVISED_VARIABLE] = " ".join(map(str, (os.getppid(), self._there.fileno(), *errors)))
        self._here.close()
        return self._there

    @property
    def task(self) -> Task:
        """That of the worker, before it says another one."""
        return task_of(self._who["rank"], self._who["of"])

    def watch(self, started: Started, start: Callable[[], Started] | None = None) -> NoReturn:
        """Watches the worker, and ends as it does.

        Args:
            started: the worker.
            start: starts it again; None where that is not possible.
        """
        self._start = start
        self._watch(started)
        if not self._launched:
            self._after = processes.outlived(_remove)
        processes.adopt_orphans()
        woken = processes.woken_by(*_WATCHED)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        todo = self._todo
        todo[woken.fileno()] = lambda: self._signalled(woken.recv(64))
        self._tell("running")
        self._leaves()
        self._signalled(bytes([signal.SIGCHLD]))  # which may have come before the handler
        for pid in self._above:
            descriptor = processes.opened(pid)
            if descriptor is None:
                self._launcher_died(pid)
            else:
                todo[descriptor] = functools.partial(self._launcher_died, pid)
        before = time.monotonic()
        while True:
            poll = select.poll()
            for number in (*todo, *(end.fileno() for end in self._line.sockets())):
                poll.register(number, select.POLLIN)
            for descriptor, _ in poll.poll(self._seconds() * 1000):
                if todo.get(descriptor, _nothing)() is _CLOSED:
                    del todo[descriptor]
            for answer in self._line.work():
                self._answered(answer)
            now = time.monotonic()
            self._times(now, min(now - before, 2 * _STEP))
            before = now

    def _watch(self, started: Started) -> None:
        self._child, self._printed, self._words = started
        self._there.close()
        self._todo[self._here.fileno()] = self._hear
        if started.printed is not None:
            for source, passed in started.printed.sources().items():
                self._todo[source] = functools.partial(_unless_closed, passed)
        if started.words is not None:
            self._todo[started.words.source()] = functools.partial(_unless_closed, started.words.passed)

    def _start_again(self, start: Callable[[], Started]) -> None:
        self._start_at, self._starts = _NEVER, self._starts + 1
        processes.end_descendants(0)  # what the one before has started
        self._todo.pop(self._here.fileno(), None)  # unless the worker has closed its end
        self._here.close()
        self._here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status = None
        self._joined = self._waited = self._killed = self._late = False
        self._limit = self._wanted
        self._watch(start())
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._tell("running")

    # What happens.

    def _hear(self) -> object:
        while True:
            try:
                message = json.loads(self._here.recv(1 << 18, socket.MSG_DONTWAIT) or "{}")
            except BlockingIOError:
                return None
            except OSError:
                return _CLOSED
            if not message:  # the worker has closed its end
                return _CLOSED
            if message["kind"] == "starting":
                self._limit = self._wanted = message["limit"]
                if self._words is not None:
                    self._words.drain()
                    self._words.flush()
                # Not before: a process that has asked and does not start MPI has failed, for MPICH's launcher.
                if self._pmi >= 0 and not self._memory:
                    job = _asked(self._pmi, "get_my_kvsname", "kvsname")
                    self._memory = processes.memory_of_mpich(job)
                    self._topology = _asked(self._pmi, f"get kvsname={job} key=PMI_hwloc_xmlfile", "value")
                self._tell("starting")  # before there is a folder, so that the desk knows its name
                self._leaves()
                self._folder = self._folder or processes.folder_for_ucx(self._memory, self._who["rank"])
                self._answer_worker(ucx=self._folder)
            elif message["kind"] == "joined":
                self._limit, self._joined = 0.0, True
                self._memory = self._memory or processes.memory_of_openmpi(self._child)
                self._tell("joined")
                self._leaves()
            elif message["kind"] == "finished":
                self._finished = True
            elif message["kind"] == "warning":
                self._report(message["text"], WARNING_SECONDS, status=0, warning=True)
            elif message["kind"] == "left behind":
                if self._words is not None:
                    self._words.drain()
                    self._words.flush()
                self._answer_worker(**({**self._left_behind, "start": self._starts} if self._starts else {}))
            elif message["kind"] == "initialized":
                self._initialized = True
            elif message["kind"] == "task":
                self._who["task"] = message["task"]
            elif message["kind"] == "absent":
                self._who |= {"absent": message["ranks"], "dead": message["dead"]}
            elif message["kind"] == "saved":
                self._who["saved"] = [message["path"], message["step"]]
                self._tell(self._state)
            elif message["kind"] == "spared":
                self._spared = True
                self._left_behind = self._left_behind or message["left_behind"]
                if message["chief"]:  # otherwise it is on another host
                    chief = processes.opened(message["chief"])
                    if chief is None:
                        self._chief_ended()
                    else:
                        self._todo[chief] = self._chief_ended
            elif message["kind"] == "notice":
                self._notices.append(Notice(message["rank"], message["key"], message["addresses"]))
            elif message["kind"] == "lost":
                self._elsewhere = self._elsewhere or message["status"]
            elif message["kind"] == "report":
                self._reported, self._weak, self._ends = True, message["everyone"], message["ends"]
                self._report(message["text"], message["wait"], status=FAILED, weak=self._weak, ends=self._ends)

    def _signalled(self, numbers: bytes) -> None:
        # SIGCHLD is handled last.  A signal to the whole process group also ends the worker, and where both signals are
        # pending, Linux runs the handler of SIGCHLD first.
        for number in sorted(numbers, key=signal.SIGCHLD.__eq__):
            if number != signal.SIGCHLD:
                self._pass_on(number)
                continue
            with contextlib.suppress(ChildProcessError):
                while (changed := os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED))[0]:
                    if changed[0] != self._child:
                        continue
                    if os.WIFSTOPPED(changed[1]) or os.WIFCONTINUED(changed[1]):
                        self._stopped = self._wanted + STOPPED_SECONDS if os.WIFSTOPPED(changed[1]) else 0.0
                        self._tell(self._state)
                    else:
                        self._hear()  # what it said before
                        self._ended(os.waitstatus_to_exitcode(changed[1]))

    def _pass_on(self, number: int) -> None:
        if self._status is None:
            # Python ignores SIGINT until a strategy is made, so that no traceback shows how far imports are.
            unseen = number == signal.SIGINT and processes.ignores(self._child, number)
            processes.kill(self._child, signal.SIGTERM if unseen else number)
            if number in ENDING:
                processes.kill(self._child, signal.SIGCONT)  # a process that is stopped does not end
                if self._limit or self._told:  # MPI's start does not let Python see it; or this is the second one
                    self._kill_at = time.monotonic() + TOLD_SECONDS
                self._told = number
        elif self._start_at < _NEVER and number in ENDING:
            self._start_at = _NEVER
            self._fail(_told_to_end(number), TOLD_SECONDS, status=128 + number, if_first=True)

    def _ended(self, code: int) -> None:
        if self._words is not None:
            self._words.drain()
            if code <= 0:  # it has not ended of an exception
                self._words.flush()
        if self._printed is not None:
            self._printed.drain()
        was_told = code < 0 and bool(self._told) and -code in (self._told, signal.SIGTERM, signal.SIGKILL)
        self._status = FAILED if self._waited else 128 + self._told if was_told else code if code >= 0 else 128 - code
        self._limit, self._stopped, self._kill_at = 0.0, 0.0, _NEVER
        if self._notices and not self._finished and not self._reported:
            self._notify_at = 0.0
        if self._comes_back() and not was_told:
            self._start_at = time.monotonic() + backoff(self._starts)
        how, several = self._how(code), self._how(code, several=True)
        if self._failed or self._reported:
            self._if_first = self._if_first or was_told
            self._tell("ended")  # the others are about to end, too
            if self._reported:  # otherwise the report may be about to be printed, and is lost when the job ends with it
                self._end_at = min(self._end_at, time.monotonic() + TOLD_SECONDS)
        elif (code == 0 and (self._finished or not self._joined)) or (
                self._killed and self._finished and not self._told):
            self._status = 0
            self._tell("ended")
            self._leave()
        elif was_told:
            self._fail(_told_to_end(self._told), TOLD_SECONDS, if_first=True)
        elif self._spared:
            words = "" if self._joined or self._words is None else self._words.taken()
            self._finished, self._status = self._start_at == _NEVER, 0
            self._report(words + how, 0, status=0, several=words + several)
            if self._finished:
                self._tell("ended")
                self._leave()
        elif not self._joined:
            words = self._words.taken() if self._words is not None else ""
            why = f": {processes.too_many_open_files()}" if f"[Errno {errno.EMFILE}]" in words else ""
            self._fail(words + how + why, MERGE_SECONDS, several=words + several + why)
        else:
            self._lost, self._end_at = True, time.monotonic() + HOLD_SECONDS
            self._printed_at = time.monotonic() + MERGE_SECONDS + FORWARD_SECONDS
            alike = code >= 0 or self._waited  # others may say the same
            self._report(how, MERGE_SECONDS if alike else 0, status=self._status or FAILED, several=several)
            self._tell("ended")

    def _comes_back(self) -> bool:
        """Whether a worker that was lost is started again."""
        text = os.environ.get(RESTARTS_VARIABLE, "")
        most = int(text) if text.isdecimal() else 0
        over = self._finished or self._failed or self._reported
        return self._start is not None and bool(self._left_behind) and not over and self._starts < most

    def _how(self, code: int, several: bool = False) -> str:
        """How the worker has ended: what follows its name, or those of several that have ended alike."""
        was, subject, its_program = ("were", "they", "their programs") if several else ("was", "it", "its program")
        when = f" after the end of {its_program}" if self._finished else ""
        if self._waited:
            how = f"{was} stopped for {self._wanted:g} s{when}, and then killed"
        elif self._late:
            how = f"{was} not back after {self._wanted:g} s, and then killed"
        elif code < 0:
            how = f"{was} killed by {processes.signal_name(-code)}{when}"
        else:
            how = f"ended with exit status {code}"
        if self._start_at < _NEVER:
            how += f"; {'they are' if several else 'it is'} started again in {backoff(self._starts):g} s"
        elif self._spared:
            how += "" if self._finished else f"; the job goes on without {'them' if several else subject}"
        elif not self._joined:
            how += f" before {subject} joined the others"
            if self._state == "starting" and not self._initialized and -code != signal.SIGBUS:
                how += processes.lack_at_start(self._who["size"])
        elif code >= 0 and not self._finished:
            how += f" before the end of {its_program}, as by os._exit or exit() in C"
        return how + processes.lack_of_memory(-code)

    def _launcher_died(self, pid: int) -> object:
        if self._finished and self._status is None:  # nothing is lost, and nothing stays
            self._broken = not self._launched
            self._kill_at = min(self._kill_at, time.monotonic() + TOLD_SECONDS)
        elif self._end_at == _NEVER:
            if self._launched:
                self._leave()  # the launch command says it, which knows how mpiexec has ended, and what died first
            self._broken = True
            # At once: what forwards it may be gone soon.
            self._fail(died(pid, self._above[pid]), 0, label="launcher", if_first=True, status=128 + signal.SIGKILL)
        return _CLOSED

    def _chief_ended(self) -> object:
        if self._start_at < _NEVER:
            self._tell("ended")
            self._leave()
        self._finished, self._kill_at = True, time.monotonic() + SPARED_SECONDS
        return _CLOSED

    def _answered(self, answer: Message) -> None:
        self._known = answer["status"]
        if answer["answer"] == "in vain":
            self._fail(f"[RD01] starting: {answer['why']}", MERGE_SECONDS)
        elif answer["answer"] == "late":
            if self._limit and not self._stopped:
                self._fail(_late(self._wanted, self._initialized), TOLD_SECONDS, missing=True)
        elif answer["answer"] == "printed" and self._ends and self._status is None:
            self._kill_at = time.monotonic() + HOLD_SECONDS
            self._answer_worker()
        elif answer["answer"] == "printed" and self._reported:
            # Its process stays until the job ends, so that the others do not miss it and say so.  Those of other hosts,
            # who see the same failure at the same time, report elsewhere.
            wait = EVERYONE_SECONDS if self._weak and self._notices else FORWARD_SECONDS
            self._end_at = min(self._end_at, time.monotonic() + wait)
        elif (answer["answer"] == "over" and (self._finished or not self._notices)) or self._failed:
            self._end_at = min(self._end_at, time.monotonic() + FORWARD_SECONDS)

    def _is_last(self) -> bool:
        """Whether all programs have come to their end, and no other supervisor of this host is left.

        Under plain mpiexec the desk does not know it, if it was one of those that have left.
        """
        beside = [pid for above in list(self._above)[:1] for pid in processes.children(above) if pid != os.getpid()]
        return self._lost and self._finished and bool(self._above) and not any(map(processes.alive, beside))

    def _times(self, now: float, passed: float) -> None:
        if self._limit and not self._stopped:  # a worker that is stopped does not wait for the others: they miss it
            self._limit = max(self._limit - passed, 0.0)
            if not self._limit and self._starts:
                self._late = True
                processes.kill(self._child)
            elif not self._limit:
                self._fail(_late(self._wanted, self._initialized), TOLD_SECONDS, missing=True)
        if self._stopped:
            self._stopped = max(self._stopped - passed, 0.0)
            if not self._stopped:
                self._waited = True
                processes.kill(self._child)
        if now >= self._start_at and self._start is not None:
            self._start_again(self._start)
        if now >= self._kill_at:
            self._kill_at, self._killed = _NEVER, True
            processes.kill(self._child)
        if self._words is not None and now >= self._words.next():
            self._words.flush()
        if now >= self._notify_at:
            self._notify_at = now + NOTICE_SECONDS
            for notice in self._notices:
                notice.send(self._status or FAILED)
        if now >= self._end_at or (now >= self._printed_at and self._is_last()):
            self._leave()

    def _seconds(self) -> float:
        until = min(self._kill_at, self._end_at, self._notify_at, self._start_at, self._line.next(),
                    _NEVER if self._words is None else self._words.next())
        counts = self._limit or self._stopped or (self._lost and self._finished)
        return max(min(until - time.monotonic(), _STEP if counts else 3600.0), 0.0)

    # What it does.

    def _answer_worker(self, **more: object) -> None:
        with contextlib.suppress(OSError):
            self._here.send(json.dumps(more).encode())

    def _tell(self, state: str) -> None:
        self._state = state
        self._line.send({**self._who, "state": state, "process": self._child, "supervisor": os.getpid(),
                         "memory": self._memory, "topology": self._topology, "joined": self._joined,
                         "stopped": self._stopped > 0, "status": self._status or 0, "if_first": self._if_first,
                         **({"weak": True} if self._weak and self._status == FAILED else {})})

    def _leaves(self) -> None:
        # For what tidies when this process is killed, or the launch command above it.
        self._line.leaves(self._memory, self._topology)
        if self._after is not None:
            with contextlib.suppress(OSError):
                self._after.send(json.dumps([self._memory, self._topology]).encode())

    def _report(self, text: str, wait: float, **more: object) -> None:
        if self._printed is not None:
            self._printed.keep(text)
        if not self._line.send({**self._who, "text": text, "wait": wait, **more}) and not more.get("warning"):
            self._answered({"answer": "printed", "status": self._known})

    def _fail(self, text: str, wait: float, status: int = 0, if_first: bool = False, **more: object) -> None:
        """Reports why the job cannot go on, and ends it without waiting for reports of the others."""
        if not self._failed:
            self._failed, self._end_at = True, time.monotonic() + wait + _DESK_SECONDS
            self._if_first = if_first
            self._said = status or self._status or FAILED
            self._report(text, wait, status=self._said, if_first=if_first, **more)
            if self._status is None:
                processes.kill(self._child)
            else:
                self._tell("ended")

    def _leave(self) -> NoReturn:
        """Ends this process, and with it the job if the worker has failed."""
        if self._words is not None:
            self._words.drain()
            self._words.flush()
        if self._printed is not None:
            self._printed.drain()
        self._line.close()
        processes.remove_shared_memory(os.path.basename(self._folder))
        status = self._status or 0
        if self._broken or self._status is None or self._failed or self._reported or self._lost:
            status = self._known or self._said or status or FAILED
            if self._weak and status == FAILED:
                status = self._elsewhere or FAILED
            processes.remove_shared_memory(self._memory)
            if self._pmi >= 0:
                processes.remove_file(self._topology)
                with contextlib.suppress(OSError):
                    os.write(self._pmi, b"cmd=abort exitcode=%d\n" % status)
                self._wait_for_the_launcher()
            processes.end_descendants(0)
        elif self._spared and self._pmi >= 0:
            # MPICH ends all processes when one leaves without this, which its library says as the last thing of all.
            with contextlib.suppress(OSError):
                os.write(self._pmi, b"cmd=finalize\n")
                select.select([self._pmi], [], [], TOLD_SECONDS)
        if self._launched:
            # What the script has started may have its output, whose end MPICH's launcher waits for.
            processes.end_descendants(LINGER_SECONDS)
        if self._after is not None:
            with contextlib.suppress(OSError):
                self._after.send(processes.OVER)
        os._exit(status)

    def _wait_for_the_launcher(self) -> None:
        # It kills this process, unless it is not there any more.
        until = time.monotonic() + TOLD_SECONDS
        while time.monotonic() < until and all(map(processes.alive, self._above)):
            time.sleep(0.01)
        for pid in self._above if self._broken else ():
            processes.kill(pid)

    def _write(self, text: str) -> None:
        # What a dead process of the launcher would have forwarded goes where the one above it writes: other processes
        # may have inherited its end of the pipe, so that what is written to it is lost without an error.
        data, above = text.encode(errors="replace"), list(self._above)
        dead = [i for i, pid in enumerate(above) if not processes.alive(pid)]
        places = [f"/proc/{pid}/fd/2" for pid in above]
        for path in (*places[max(dead) + 1:], _OWN) if dead else (_OWN, *places):
            with contextlib.suppress(OSError):
                number = 2 if path == _OWN else os.open(path, os.O_WRONLY | os.O_APPEND)
                pipes.put(number, data, processes.told_to_end)
                return


def died(pid: int, name: str) -> str:
    """What is said when a process of the launcher has died."""
    return f"{name} (process {pid}) died, and the workers of this host end with it"


def _told_to_end(number: int) -> str:
    return f"ended by {processes.signal_name(number)}, which the launcher passed on"


def _nothing() -> object:
    return None


def _unless_closed(passed: Callable[[], bytes | None]) -> object:
    return _CLOSED if passed() == b"" else None


def _late(seconds: float, initialized: bool = False) -> str:
    if initialized:
        return (f"[RD01] starting: MPI has started in all processes, but within {seconds:g} s not all of them have "
                "answered. Look whether their hosts reach each other, and have the same version of refdist.")
    return (f"[RD01] starting: not all workers arrived within {seconds:g} s. "
            "Look at why the others did not start.")


def _remove(files: bytes) -> None:
    # Called in a process that outlives a supervisor.
    if files:
        memory, topology = json.loads(files)
        processes.remove_shared_memory(memory)
        processes.remove_file(topology)


def write(text: str) -> None:
    """Prints a text at once and whole."""
    _pass_on(text.encode(errors="replace"))


def seconds_to_wait() -> float:
    """What the environment says; the default where that is not a number, which the worker says."""
    with contextlib.suppress(ValueError):
        seconds = float(os.environ.get(TIMEOUT_VARIABLE) or DEFAULT_TIMEOUT)
        return seconds if seconds > 0 else DEFAULT_TIMEOUT
    return DEFAULT_TIMEOUT


def _pass_on(data: bytes) -> None:
    with contextlib.suppress(OSError):
        pipes.put(2, data, processes.told_to_end)


def _asked(pmi: int, question: str, key: str) -> str:
    # What MPICH's launcher says.
    os.write(pmi, f"cmd={question}\n".encode())
    answer = os.read(pmi, 1024).decode() if select.select([pmi], [], [], 5)[0] else ""
    return answer.partition(f" {key}=")[2].strip()


def supervise(command: list[str]) -> NoReturn:
    """Starts a worker and watches it."""
    supervisor = Supervisor()

    def start() -> Started:
        try:
            printed = logs.printed(supervisor.task, os.environ)
        except OSError as error:
            write(prefixed(str(supervisor.task), f"{error.filename} cannot be written: {error.strerror}"))
            os._exit(FAILED)
        words = LastWords(_pass_on if printed is None else printed.pass_on)
        child = supervisor.fork(signal.SIGINT)  # until there is a strategy (`failure`)
        if child == 0:
            if printed is not None:
                printed.become()
            os.set_inheritable(supervisor.worker(words.become()).fileno(), True)
            if not os.environ.get(TOPOLOGY_VARIABLE):  # only the launcher was meant
                os.environ.pop(TOPOLOGY_VARIABLE, None)
            try:
                os.execv(command[0], command)
            except OSError as error:
                os.write(2, f"{command[0]}: {error.strerror}\n".encode())
                os._exit(127)
        return Started(child, printed, words)

    supervisor.watch(start(), start)


def limit(process: int, seconds: float, who: str) -> None:
    """Kills a process that has no supervisor when it takes too long to start, and ends its job.

    The process that is watched kills this one once it has started.
    """
    descriptor = processes.opened(process)
    launcher = processes.parent_that_goes_on(process)
    left, before = seconds, time.monotonic()
    while descriptor is not None and not select.select([descriptor], [], [], min(left, _STEP))[0]:
        now = time.monotonic()
        left, before = left - min(now - before, 2 * _STEP), now
        if left <= 0:
            write(prefixed(who, _late(seconds)))
            processes.kill(process)
            if launcher:
                time.sleep(FORWARD_SECONDS)
                processes.kill(launcher, signal.SIGTERM)
            return
