"""Strands: pieces of a program of which exactly one runs at a time, and which can be left in the middle.

Each has a thread, and hands the turn over by releasing the lock for which the next one waits.  Threads, because a
function may have to be left anywhere: in the function that `strategy.run` calls on several replicas, say.  Those are
greenlets, which may be resumed only from the address in the C stack that they were started from (`core/lockstep`); a
thread that waits keeps its whole stack, greenlets included, as it is.  Functions that are not left in the middle cost
almost nothing: the thread in which one has ended carries out the next one, and threads are parked and used again.

Nothing here decides who is next.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable

from refdist.core import call_site

# A job of a thread; returns the thread's next job, or None if it has given the turn to another thread.
Job = Callable[[], "Job | None"]


# A signal that comes after Python has looked for one, and before the thread waits, is not seen until the wait ends.
SIGNAL_SECONDS = 1.0


class Turn:
    """Passes the turn between strands: `wait` returns when another strand has called `give`, possibly before.

    Args:
        look: called each second while a thread waits that handles signals, as the program's own does.
    """

    __slots__ = ("give", "wait")

    def __init__(self, look: Callable[[], object] | None = None) -> None:
        lock = threading.Lock()
        lock.acquire()
        self.wait: Callable[[], object] = lock.acquire if look is None else functools.partial(_wait, lock, look)
        self.give: Callable[[], object] = lock.release


def _wait(lock: threading.Lock, look: Callable[[], object]) -> None:
    while not lock.acquire(timeout=SIGNAL_SECONDS):
        look()


class _Thread:
    """A thread that carries out jobs, and is parked between them."""

    __slots__ = ("job", "number", "turn")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.number = 0
        self.turn = Turn()
        threading.Thread(target=self._work, name="refdist worker", daemon=True).start()

    def _work(self) -> None:
        self.number = threading.get_ident()
        _ended.discard(self.number)  # that was another one, which is gone
        try:
            while True:
                job, self.job = self.job, None
                while job is not None:
                    job = job()
                _parked.append(self)
                self.turn.wait()
        except BaseException:
            if self.number not in _ended:
                raise


_parked: list[_Thread] = []
# The numbers of threads in which an error is raised.  It may come when their job is done, so they get no other one.
_ended: set[int] = set()


def start(job: Job) -> None:
    """Gives the turn to a job, which runs in a thread of its own."""
    try:
        while (thread := _parked.pop()).number in _ended:
            pass
    except IndexError:
        _Thread(job)
        return
    thread.job = job
    thread.turn.give()


class _Seen(BaseException):
    """Raised and caught in `end`."""


def end(thread: int, error: type[BaseException]) -> None:
    """Raises an error in a thread, at its next instruction of Python: one that waits in C first comes back from it."""
    _ended.add(thread)
    # Python keeps a flag for all threads: one has an error to take.  Only a thread that takes one clears it, so while
    # this one waits in C it stays set, in forks for good; and on Python 3.11 a traced function then never begins.  So
    # this thread takes an error, too, before it calls a function of Python.  The flag is set again when the other
    # thread comes back from C.
    raises, this, seen = ctypes.pythonapi.PyThreadState_SetAsyncExc, threading.get_ident(), ctypes.py_object(_Seen)
    try:
        raises(ctypes.c_ulong(thread), ctypes.py_object(error))
        raises(ctypes.c_ulong(this), seen)
        while True:
            pass
    except _Seen:
        pass
    except BaseException:  # a signal handler's
        raises(ctypes.c_ulong(this), None)
        raise
    for parked in tuple(_parked):
        if parked.number == thread:  # it waits in C for a job, and gets none
            parked.turn.give()


call_site.end_at(_Thread._work.__code__)
