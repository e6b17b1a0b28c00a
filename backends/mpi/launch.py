"""`python -m refdist launch -n 4 script.py`: starts mpiexec, watches it, and cleans up after it.

The processes of mpiexec are supervisors (`supervisor`), which start the script before anything is imported in it.  This
process stays above all of them.  It

* is the desk of this host, which prints the reports (`reports`), and keeps the exit status of the worker that failed
  first;
* watches mpiexec and the supervisors of this host.  When one of those is killed, MPICH's launcher kills the others
  within milliseconds, and none of them can say which one was the first; the kernel reports deaths in their order;
* passes on the signals that end a job, to the supervisors, or to mpiexec where some are on other hosts; mpiexec has a
  session of its own, so that each comes once; one that comes before all supervisors are there ends the job at once;
* lets mpiexec, its proxies and supervisors go on that are stopped for longer than processes wait for each other, and
  says so, since nothing would end otherwise;
* adopts the processes of this host that lose their parents, ends those that are left when mpiexec has ended, and
  removes what MPICH leaves in shared memory.

A process that outlives this one does the rest when it is killed: it says so, and ends what is left.

Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from refdist.backends.mpi import hosts, logs, processes, restarts
from refdist.backends.mpi.processes import ENDING
from refdist.backends.mpi.reports import Left, Line, Message, task
from refdist.backends.mpi.supervisor import (
    FAILED,
    HOLD_SECONDS,
    LAUNCHER_VARIABLE,
    LINGER_SECONDS,
    TOPOLOGY_VARIABLE,
    died,
    seconds_to_wait,
    write,
)
from refdist.workers.launcher import SUPERVISED_VARIABLE, Task, named, prefixed, task_of

START_SECONDS = 0.05  # between two looks at what mpiexec has started
STOPPED_SECONDS = 0.5  # and at what is stopped
LEAVE_SECONDS = 3.0  # how long processes may take to end by themselves, when this one was killed
_PROXY = "hydra_pmi_proxy"
_ASSERTS = 255  # what mpiexec may return when it has lost its proxy
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV)


def main(size: int, restarts_at_most: int, command: list[str], listed: Sequence[tuple[str, int]] = (),
         fewest: int | None = None, log_dir: str = "") -> int:
    """Starts workers with a command, and again when one was lost (`restarts`); returns the exit status.

    Args:
        size: how many processes.
        restarts_at_most: how often the job is started again.
        command: the words that start a worker.
        listed: the hosts, each with its room; none for this host, or what mpiexec finds by itself.
        fewest: how few workers may go on when hosts are gone; None for all.
        log_dir: a folder for what the workers print; "" for none.
    """
    all_hosts = [hosts.Host(*host) for host in listed]
    if why := _too_few_files(all_hosts, size):
        write(prefixed("launcher", why))
        return FAILED
    woken = processes.woken_by(*ENDING)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # which the command has blocked, so that none comes too early
    program = mpiexec()
    if program is None:
        print("there is no mpiexec beside this Python, nor on PATH; run `pip install mpi4py mpich`", file=sys.stderr)
        return 2
    alone = os.path.join(os.path.dirname(os.path.realpath(__file__)), "alone.py")
    supervised = [sys.executable, "-I", "-S", alone, "supervise", *command]
    of_openmpi = is_openmpi(program)
    os.environ.pop(SUPERVISED_VARIABLE, None)  # of a worker that starts another job
    if not of_openmpi:
        os.environ.setdefault(TOPOLOGY_VARIABLE, "")

    def start(again: bool) -> restarts.Ended:
        reachable = hosts.there(program, of_openmpi, all_hosts) if again else all_hosts
        workers, where = size, hosts.placed(reachable, size)
        if len(reachable) < len(all_hosts):
            workers = sum(host.room for host in where)
            gone = [host.name for host in all_hosts if host not in reachable]
            text = f"{', '.join(gone)} {'does' if len(gone) == 1 else 'do'} not answer; "
            if workers < (size if fewest is None else fewest):
                text += f"there is room for {_counted(workers)}, and at least {fewest or size} are needed"
                return _not_started(text)
            write(prefixed(
                "launcher", f"{text}{_counted(workers)} of {size} start on {', '.join(map(str, where))}"))
        # OpenMPI's counts cores.
        words = [program, *(["--oversubscribe"] if of_openmpi else []), *hosts.words(where, of_openmpi), "-n",
                 str(workers), *supervised]
        if log_dir:
            try:
                os.environ[logs.FOLDER_VARIABLE] = logs.attempt(log_dir)
            except OSError as error:
                return _not_started(f"{error.filename} cannot be made: {error.strerror}")
        key = secrets.token_hex(16)
        left, launcher = Left(key), os.getpid()
        after = processes.outlived(lambda _: _end_without_launcher(launcher, key, left), left)
        left.close()
        launch = _Launch(workers, where, words, key, woken)
        ended = launch.ended(launch.run())
        after.settimeout(LEAVE_SECONDS)  # it may be stopped
        with after, contextlib.suppress(OSError):
            after.send(processes.OVER)
            after.recv(1)  # until that process has ended, too
        return ended

    return restarts.run(restarts_at_most, start, woken)


def _too_few_files(all_hosts: Sequence[hosts.Host], size: int) -> str:
    # What is said where no worker of this host could start; "" if they can.
    if not processes.too_few_files(size):
        return ""
    here = sum(host.room for host in hosts.placed(all_hosts, size) if hosts.is_here(host)) if all_hosts else size
    return processes.too_few_files(here)


def _not_started(why: str) -> restarts.Ended:
    line = prefixed("launcher", why)
    write(line)
    return restarts.Ended(FAILED, line.rstrip(), False, None, 0)


def _counted(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _end_without_launcher(launcher: int, key: str, files: Left) -> None:
    """Says that the launch command was killed, and ends what that would have ended."""
    variable = f"{LAUNCHER_VARIABLE}={launcher} {key}"
    for pid in processes.with_variable(variable):
        processes.kill(pid, signal.SIGCONT)  # what is stopped does not end
    line, text = Line(key, write), died(launcher, "python -m refdist launch")
    try:
        line.become_desk()  # for what supervisors still have to say
    except OSError:  # one of them is, and may be killed before it prints this
        write(prefixed("launcher", text))
    else:
        line.send({"rank": 0, "size": 0, "of": 0, "text": text, "wait": 0, "label": "launcher", "if_first": True,
                   "status": 128 + signal.SIGKILL})
    until = time.monotonic() + LEAVE_SECONDS
    while (left := processes.with_variable(variable)) and time.monotonic() < until + HOLD_SECONDS:
        line.work()
        for pid in left if time.monotonic() > until else ():
            processes.kill(pid)
        time.sleep(START_SECONDS)
    line.close()
    files.remove()


def mpiexec() -> str | None:
    """The mpiexec beside this Python, or that on PATH; None where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.path.exists(beside) else shutil.which("mpiexec")


def is_openmpi(program: str) -> bool:
    """Whether this mpiexec is OpenMPI's, and not MPICH's."""
    return "Open MPI" in subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout


def _has_left(process: processes.Facts) -> bool:
    # Whether it has ended by itself, and nobody has waited for it: what has started it is gone.
    return process.state == "Z" and not process.killed_by


class _Launch:
    _failed_before = False  # whether a worker had failed when Linux was asked for the last time

    def __init__(self, size: int, where: Sequence[hosts.Host], command: list[str], key: str,
                 woken: socket.socket) -> None:
        self._size = size
        self._where = where  # none for this host, or what mpiexec finds by itself
        self._here = sum(host.room for host in where if hosts.is_here(host)) if where else size  # workers
        self._woken = woken
        self._line = Line(key, write)
        self._desk = self._line.become_desk()
        self._waiting = select.epoll()
        for source in (self._woken, *self._line.sockets()):
            self._waiting.register(source, select.EPOLLIN)
        processes.adopt_orphans()
        this = os.getpid()
        self._mpiexec = subprocess.Popen(
            command, env={**os.environ, LAUNCHER_VARIABLE: f"{this} {key}"}, start_new_session=True,
            preexec_fn=lambda: processes.die_with(this, signal.SIGKILL))
        self._opened: list[int] = []  # what becomes readable when processes end
        self._end = self._watch(self._mpiexec.pid)
        self._over = False  # whether that has ended, and all other processes end because of it
        self._seen_proxies: set[int] = set()  # children of mpiexec, which starts supervisors through them
        self._proxies: dict[int, int] = {}  # those, by what becomes readable when they end
        self._cause = ""  # what was lost first, if no supervisor says it
        self._is_proxy = False  # whether that is a child of mpiexec
        self._orphans = False  # whether a supervisor had lost its proxy when it began
        self._seen: set[int] = set()  # workers whose supervisors have said that they are there
        self._supervisors: dict[int, int] = {}  # those workers, by what becomes readable when the supervisor ends
        self._childless = time.monotonic()  # when mpiexec had a child for the last time
        self._told = self._killed = False  # mpiexec, by this process
        self._kill_at = math.inf
        self._limit = seconds_to_wait()
        self._stopped: dict[int, float] = {}  # processes of the launcher that are stopped, and for how long
        self._looked = time.monotonic()
        self._ended_by = 0  # the signal that has ended the job while it started

    def run(self) -> int:
        while self._mpiexec.poll() is None:
            self._step()
        self._look(0)
        self._line.close()
        status = 128 + self._ended_by if self._ended_by else self._desk.cause or self._lost(self._mpiexec.returncode)
        processes.end_descendants(0 if status else LINGER_SECONDS)
        processes.adopt_orphans(False)  # what outlives this process at the next start is nobody's child
        for memory, topology in {(state["memory"], state["topology"]) for state in self._desk.states.values()}:
            processes.remove_shared_memory(memory)
            processes.remove_file(topology)
        self._waiting.close()
        for descriptor in self._opened:
            os.close(descriptor)
        return status

    def ended(self, status: int) -> restarts.Ended:
        """What a restart depends on, when `run` has returned this."""
        first = self._desk.first
        lost = f"mpiexec ended with exit status {status}" if first is None else ""
        if first is not None and "text" in first:
            # The line of the exception, where there is a traceback before it, the last of several.
            text = re.split(r"^(?:Traceback .*\n)?(?: .*\n)+", first["text"].rstrip(), flags=re.MULTILINE)[-1]
            lost = (text.splitlines() or [""])[0]
        elif first is not None:
            lost = f"ended with exit status {first['status']}"
        label = "launcher" if first is None else first.get("label") or str(task(first))
        saved = [restarts.Saved(*state["saved"]) for state in self._desk.states.values() if "saved" in state]
        return restarts.Ended(
            status, prefixed(*(("launcher", self._cause) if self._cause else (label, lost))).rstrip(),
            self._told or bool(self._ended_by), max(saved, key=lambda each: each.step or 0, default=None), self._size)

    def _step(self) -> None:
        now = time.monotonic()
        if self._desk.status:
            self._kill_at = min(self._kill_at, now + HOLD_SECONDS + LINGER_SECONDS)
        if now >= self._kill_at:
            self._killed = True
            self._mpiexec.kill()
            return
        starting = self._is_starting()
        look = now + (START_SECONDS if starting else STOPPED_SECONDS)
        self._look(max(min(self._kill_at, self._line.next(), look) - now, 0))
        if starting:
            self._find_proxies(now)
        self._wake()

    def _is_starting(self) -> bool:
        here: int = min([self._here, *(state["size"] for state in self._desk.states.values())])
        return len(self._seen) < here

    def _look(self, seconds: float) -> None:
        events = self._waiting.poll(seconds)
        dying = self._dying(events)
        self._failed_before = bool(self._desk.status)
        self._line.work()  # what supervisors have said before they ended
        for rank in dying:
            self._supervisor_died(self._desk.states[rank], is_first=True)
        for rank in self._desk.states.keys() - self._seen:
            self._seen.add(rank)
            self._found(self._desk.states[rank])
        for descriptor, _ in events:  # in the order in which they happened
            if descriptor == self._woken.fileno():
                self._pass_on(self._woken.recv(64))
            elif descriptor == self._end:
                self._waiting.unregister(descriptor)
                self._mpiexec_ended(self._mpiexec.wait())
            elif descriptor in self._supervisors:
                self._waiting.unregister(descriptor)
                self._supervisor_died(self._desk.states[self._supervisors.pop(descriptor)])
            elif descriptor in self._proxies:
                self._waiting.unregister(descriptor)
                self._proxy_died(self._proxies.pop(descriptor))
        self._failed_before = bool(self._desk.status)

    def _found(self, state: Message) -> None:
        # A supervisor has said that it is there; what is dead by now has died before what was not read yet.
        if state["proxy"] == os.getpid():  # which has adopted it
            self._orphans = True
            self._kill_at = min(self._kill_at, time.monotonic() + HOLD_SECONDS)
        elif state["proxy"]:
            self._found_proxy(state["proxy"])
        ends = self._watch(state["supervisor"])
        if ends is not None:
            self._supervisors[ends] = state["rank"]
        if not processes.alive(state["supervisor"]):
            self._supervisor_died(state)

    def _found_proxy(self, pid: int) -> None:
        if pid not in self._seen_proxies:
            self._seen_proxies.add(pid)
            if (ends := self._watch(pid)) is not None:
                self._proxies[ends] = pid
            if not processes.alive(pid):
                self._proxy_died(pid)

    def _mpiexec_ended(self, code: int) -> None:
        if self._over:
            return
        if code < 0 and not self._killed:
            if self._is_proxy:
                self._cause = ""  # it has ended because of this one, and sooner
            self._blame(f"mpiexec (process {self._mpiexec.pid}) was killed by {processes.signal_name(-code)}")
        elif self._orphans:
            self._blame_proxy(f"what mpiexec (process {self._mpiexec.pid}) has started died at once")
        self._over = True

    def _look_at_mpiexec(self) -> None:
        # Events that are reported together have no order.  What mpiexec has started dies after it, or while it ends.
        facts = processes.facts(self._mpiexec.pid)
        if facts is not None and facts.ends:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._mpiexec.wait(HOLD_SECONDS)
        if (self._mpiexec.poll() or 0) < 0:
            self._mpiexec_ended(self._mpiexec.wait())

    def _dying(self, events: Sequence[tuple[int, int]]) -> list[int]:
        # Supervisors that end before anything has failed.  OpenMPI's mpiexec tells all others to end because of one,
        # and they may say it before Linux reports its end.
        if self._cause or self._desk.status or self._told:
            return []
        dying = {}
        for descriptor, rank in self._supervisors.items():
            process = processes.facts(self._desk.states[rank]["supervisor"])
            if process is None or (process.ends and not _has_left(process)):
                dying[descriptor] = process
        if not dying:
            return []
        # The one that was lost may take longer to end than those that mpiexec kills because of it, by SIGKILL.  Those
        # that Linux has reported to have ended come in the order of that, and what mpiexec has waited for comes before
        # what is still ending.
        reported = [descriptor for descriptor, _ in (*events, *self._waiting.poll(0))]

        def when(descriptor: int) -> tuple[bool, int, bool]:
            process = dying[descriptor]
            place = reported.index(descriptor) if descriptor in reported else len(reported)
            return process is None or process.killed_by in (0, signal.SIGKILL), place, process is not None

        return [self._supervisors[descriptor] for descriptor in sorted(dying, key=when)]

    def _supervisor_died(self, state: Message, is_first: bool = False) -> None:
        self._look_at_mpiexec()
        self._desk.is_gone(state["rank"])  # OpenMPI's mpiexec lets the others report
        process = processes.facts(state["supervisor"])
        if process is not None and _has_left(process):
            return  # because of what has died above it
        if state["state"] != "ended" and state["proxy"] != os.getpid():
            if is_first and not self._cause:
                self._desk.has_failed()
            self._blame(f"the supervisor of {task(state)} (process {state['supervisor']}) was killed")

    def _is_one_host(self) -> bool:
        # Workers of other hosts do not tell this one that they have started.
        return self._here == self._size and all(
            state["size"] == self._size for state in self._desk.states.values())

    def _find_proxies(self, now: float) -> None:
        children = processes.children(self._mpiexec.pid)
        for pid in children:
            facts = processes.facts(pid)
            # It has its name when it has begun its program.
            if facts is not None and facts.name == _PROXY:
                self._found_proxy(pid)
        if any(map(processes.alive, children)) or self._mpiexec.pid in self._stopped:
            self._childless = now
        elif now > self._childless + HOLD_SECONDS:
            self._blame(f"what mpiexec (process {self._mpiexec.pid}) has started died at once")
            self._kill_at = now  # it would wait for ever

    def _wake(self) -> None:
        # What is stopped neither forwards what others print nor ends.
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * STOPPED_SECONDS), now
        before, self._stopped = self._stopped, {}
        for pid in processes.started_by(self._mpiexec.pid):
            process = processes.facts(pid)
            if process is None or process.state != "T":
                continue
            self._stopped[pid] = before.get(pid, 0.0) + passed
            if self._stopped[pid] >= self._limit or self._told or self._kill_at < math.inf:
                tasks = [task(state) for state in self._desk.states.values() if state["supervisor"] == pid]
                who = f"the supervisor of {named(tasks)}" if tasks else process.name
                seconds = f"{round(self._stopped[pid], 1):g} s"
                write(prefixed("launcher", f"{who} (process {pid}) was stopped for {seconds}, and now goes on"))
                processes.kill(pid, signal.SIGCONT)

    def _proxy_died(self, pid: int) -> None:
        self._look_at_mpiexec()
        going_on = [state for state in self._desk.states.values() if state["state"] != "ended"]
        if not self._cause and (going_on or not self._desk.states):
            self._blame_proxy(f"{_PROXY} (process {pid}) died")
        # MPICH's mpiexec waits for it for ever.
        self._kill_at = min(self._kill_at, time.monotonic() + (LINGER_SECONDS if going_on else HOLD_SECONDS))

    def _blame_proxy(self, cause: str) -> None:
        self._is_proxy = self._is_proxy or not self._cause
        self._blame(cause)

    def _blame(self, cause: str) -> None:
        # What Linux has reported by then is the cause, though workers that miss another one have said so meanwhile:
        # they do not end before they have an answer.
        if not self._cause and not self._failed_before and not self._desk.cause and not self._over:
            self._cause = cause

    def _watch(self, pid: int) -> int | None:
        descriptor = processes.opened(pid)
        if descriptor is not None:
            self._opened.append(descriptor)
            self._waiting.register(descriptor, select.EPOLLIN)
        return descriptor

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            if number in ENDING and self._is_starting():  # what MPICH's launcher does then depends on the moment
                if not self._ended_by:
                    name = signal.Signals(number).name
                    write(prefixed("launcher", f"ended by {name} before all workers had started"))
                self._ended_by = self._ended_by or number
                self._killed = True
                self._mpiexec.kill()
            elif number in ENDING:
                # Not to mpiexec if that can be avoided, which has something to say of its own.
                going_on = [state["supervisor"] for state in self._desk.states.values() if state["state"] != "ended"]
                directly = self._is_one_host() and not self._told
                for pid in (going_on if directly else []) or [self._mpiexec.pid]:
                    processes.kill(pid, signal.SIGKILL if self._told else number)
                self._told = True

    def _lost(self, code: int) -> int:
        """The exit status of the job, after a report of a process that was killed before another one could say it."""
        missing = [task_of(rank, self._size) for rank in range(self._size) if rank not in self._seen]
        # What MPICH's returns when it was told to end, and all supervisors have died of it.
        signal_name = signal.Signals(code).name if code in (signal.SIGINT, signal.SIGTERM) else ""
        if (signal_name or not self._is_of_signals(code)) and self._has_ended_early(code, missing):
            why = "" if signal_name else processes.lack_of_files(self._size)
            self._cause = (f"mpiexec ended with exit status {code}{f', as of {signal_name},' if signal_name else ''} "
                           f"before {named(missing)} had started{why}")
            write(prefixed("launcher", self._cause))
            return 128 + code if signal_name else code
        if why := self._why_not_everywhere(code):
            self._cause = why
            write(prefixed("launcher", self._cause))
            return code
        if self._is_of_signals(code) and missing and self._is_one_host():
            of = f"of {named(missing)}" if len(missing) == 1 else f"of one of {named(missing)}"
            if self._is_proxy or not self._cause:  # the proxy has ended because of it
                self._cause = f"the supervisor {of} was killed when it started"
            else:
                self._cause += f", or that {of} when it started"
        if self._desk.status and not self._cause:
            return self._desk.status
        if code >= 0 and not self._is_of_signals(code) and not (code == _ASSERTS and self._is_proxy) \
                and not (code and self._desk.status):
            return code
        if self._cause and not self._desk.blamed:
            write(prefixed("launcher", f"{self._cause}, and all workers have ended with it"))
        return 128 + signal.SIGKILL

    def _has_ended_early(self, code: int, missing: list[Task]) -> bool:
        # A proxy ends with mpiexec, so its end is no cause, unless mpiexec says that it has lost the proxy.
        by_itself = not self._cause or (self._is_proxy and code != _ASSERTS)
        return code > 0 and bool(missing) and by_itself and not self._desk.status and self._is_one_host()

    def _why_not_everywhere(self, code: int) -> str:
        # A job on several hosts that has not started on all of them.  The workers of this host, which end because of
        # it, have not failed; of what has ended elsewhere that host has reported.
        has_joined = any(state["joined"] for state in self._desk.states.values())
        if code != _ASSERTS or self._is_one_host() or has_joined or self._desk.status:
            return ""
        why = hosts.without_address(self._where)
        if not why and (not self._desk.states or (self._is_proxy and self._cause)):
            return ""
        return f"mpiexec ended with exit status {code} before any worker of this host had joined the others{why}"

    def _is_of_signals(self, code: int) -> bool:
        """Whether mpiexec returns this when one of its processes has died of a signal, and it has killed the others.

        MPICH's combines the bits of all these signals, so an MPI_Abort(15) is not told from a SIGABRT.
        """
        if self._size == 1 and code in _CRASHES:
            return True
        return 128 < code < 128 + signal.NSIG or (code < 32 and code & signal.SIGKILL == signal.SIGKILL)
