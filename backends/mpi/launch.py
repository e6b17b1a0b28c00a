"""`python -m refdist launch -n 4 script.py`: starts mpiexec, watches it, and cleans up after it.

The processes of mpiexec are supervisors (`supervisor`), which start the script before anything is imported in it.  This
process stays above all of them.  It

* is the desk of this host, which prints the reports (`reports`), and keeps the exit status of the worker that failed
  first;
* watches mpiexec and the supervisors of this host.  When one of those is killed, MPICH's launcher kills the others
  within milliseconds, and none of them can say which one was the first; the kernel reports deaths in their order;
* passes on the signals that end a job, to mpiexec, which has a session of its own so that it receives each only once;
* adopts the processes of this host that lose their parents, ends those that are left when mpiexec has ended, and
  removes what MPICH leaves in shared memory.

Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time

from refdist.backends.mpi import processes
from refdist.backends.mpi.reports import Line, Message, task
from refdist.backends.mpi.supervisor import ENDING, HOLD_SECONDS, LAUNCHER_VARIABLE
from refdist.core.launcher import named, prefixed, task_of

START_SECONDS = 0.05  # between two looks at what mpiexec has started
LINGER_SECONDS = 1.0  # how long processes that a script has started may outlive it
_PROXY = "hydra_pmi_proxy"
_ASSERTS = 255  # what mpiexec may return when it has lost its proxy
_KILLED = (signal.SIGKILL, 128 + signal.SIGKILL)  # what mpiexec returns when it has lost one of its processes


def main(size: int, command: list[str]) -> int:
    """Starts as many workers with this command; returns the exit status of the job."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    mpiexec = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if mpiexec is None:
        print("there is no mpiexec beside this Python, nor on PATH; run `pip install mpi4py mpich`", file=sys.stderr)
        return 2
    alone = os.path.join(os.path.dirname(os.path.realpath(__file__)), "alone.py")
    return _Launch(size, [mpiexec, *_options(mpiexec), "-n", str(size), sys.executable, "-I", "-S", alone, "supervise",
                           *command]).run()


def _options(mpiexec: str) -> list[str]:
    # OpenMPI's counts cores.
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return ["--oversubscribe"] if "Open MPI" in version else []


class _Launch:
    def __init__(self, size: int, command: list[str]) -> None:
        self._size = size
        key = secrets.token_hex(16)
        self._line = Line(key, _write)
        self._desk = self._line.become_desk()
        self._waiting = select.epoll()
        self._woken = processes.woken_by(*ENDING)
        for source in (self._woken, *self._line.sockets()):
            self._waiting.register(source, select.EPOLLIN)
        processes.adopt_orphans()
        this = os.getpid()
        self._mpiexec = subprocess.Popen(
            command, env={**os.environ, LAUNCHER_VARIABLE: f"{this} {key}"}, start_new_session=True,
            preexec_fn=lambda: processes.die_with(this, signal.SIGTERM))
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

    def run(self) -> int:
        while self._mpiexec.poll() is None:
            self._step()
        self._look(0)
        self._line.close()
        status = self._desk.cause or self._lost(self._mpiexec.returncode)
        processes.end_descendants(0 if status else LINGER_SECONDS)
        for names in {state["memory"] for state in self._desk.states.values()}:
            processes.remove_shared_memory(names)
        return status

    def _step(self) -> None:
        now = time.monotonic()
        if self._desk.status:
            self._kill_at = min(self._kill_at, now + HOLD_SECONDS + LINGER_SECONDS)
        if now >= self._kill_at:
            self._killed = True
            self._mpiexec.kill()
            return
        starting = len(self._seen) < min([self._size, *(state["size"] for state in self._desk.states.values())])
        left = min(self._kill_at, self._line.next(), now + START_SECONDS if starting else math.inf) - now
        self._look(None if left == math.inf else max(left, 0))
        if starting:
            self._find_proxies(now)

    def _look(self, seconds: float | None) -> None:
        events = self._waiting.poll(seconds)
        self._line.work()  # what supervisors have said before they ended
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
            self._blame(f"mpiexec (process {self._mpiexec.pid}) was killed by {signal.Signals(-code).name}")
        elif self._orphans:
            self._blame_proxy(f"what mpiexec (process {self._mpiexec.pid}) has started died at once")
        self._over = True

    def _look_at_mpiexec(self) -> None:
        # Events that are reported together have no order.  What mpiexec has started dies after it, or while it ends.
        found = processes.facts(self._mpiexec.pid)
        if found is not None and found.ends:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._mpiexec.wait(HOLD_SECONDS)
        if (self._mpiexec.poll() or 0) < 0:
            self._mpiexec_ended(self._mpiexec.wait())

    def _supervisor_died(self, state: Message) -> None:
        self._look_at_mpiexec()
        if state["state"] != "ended" and state["proxy"] != os.getpid():
            self._blame(f"the supervisor of {task(state)} (process {state['supervisor']}) was killed")

    def _is_one_host(self) -> bool:
        # Workers of other hosts do not tell this one that they have started.
        return all(state["size"] == self._size for state in self._desk.states.values())

    def _find_proxies(self, now: float) -> None:
        children = processes.children(self._mpiexec.pid)
        for pid in children:
            found = processes.facts(pid)
            # It has its name when it has begun its program.
            if found is not None and found.name == _PROXY:
                self._found_proxy(pid)
        if any(map(processes.alive, children)):
            self._childless = now
        elif now > self._childless + HOLD_SECONDS:
            self._blame(f"what mpiexec (process {self._mpiexec.pid}) has started died at once")
            self._kill_at = now  # it would wait for ever

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
        if not self._cause and not self._desk.status and not self._over:
            self._cause = cause

    def _watch(self, pid: int) -> int | None:
        descriptor = processes.opened(pid)
        if descriptor is not None:
            self._waiting.register(descriptor, select.EPOLLIN)
        return descriptor

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            if number in ENDING:
                processes.kill(self._mpiexec.pid, signal.SIGKILL if self._told else number)
                self._told = True

    def _lost(self, code: int) -> int:
        """The exit status of the job, after a report of a process that was killed before another one could say it."""
        missing = [task_of(rank, self._size) for rank in range(self._size) if rank not in self._seen]
        if code in _KILLED and missing and self._is_one_host():
            if self._is_proxy or not self._cause:  # the proxy has ended because of it
                self._cause = f"the supervisor of {named(missing)} was killed when it started"
            else:
                self._cause += f", or that of {named(missing)} when it started"
        if code > 0 and missing and not self._cause and not self._desk.status and self._is_one_host():
            _write(prefixed("launcher", f"mpiexec ended with exit status {code} before {named(missing)} had started"))
        if self._desk.status and not self._cause:
            return self._desk.status
        if code >= 0 and code not in _KILLED and not (code == _ASSERTS and self._is_proxy) \
                and not (code and self._desk.status):
            return code
        if self._cause and not self._desk.blamed:
            _write(prefixed("launcher", f"{self._cause}, and all workers have ended with it"))
        return 128 + signal.SIGKILL


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
