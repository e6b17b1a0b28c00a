"""`Waiting`: several threads of a program that wait for functions at the same time.

One of them lets the functions go on; the others wait for what comes of it, and when it has what it waited for, another
one lets them go on.  Meanwhile no lock is held that another thread needs to schedule a function, or to see what has
come of one.

A signal handler runs in the middle of what its thread does.  It cannot wait there, nor let functions go on: what it
interrupts may be half done.  Python calls it, and raises its exception, such as KeyboardInterrupt, where a function
begins, and where a call, of C too, has returned: what the call has returned may then be lost.  The lead is given up all
the same, whenever this happens.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TypeVar

from refdist import errors
from refdist.coordinator.strands import SIGNAL_SECONDS

A = TypeVar("A")

_STEP_SECONDS = 0.01


class Waiting:
    """Decides which thread lets the functions of a coordinator go on: that one has the lead.

    Attributes:
        lock: held for moments, by code that changes what threads wait for.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._leads = threading.RLock()  # held by the thread that has the lead
        self._inside: set[int] = set()  # threads that are in `until`, `step` or `lead`
        self._followers: set[threading.Lock] = set()  # for each thread that waits, what it waits for

    def is_interrupted(self) -> bool:
        """Whether a signal handler, in this thread, interrupts `until`, `step`, `lead`, or code that has the lock.

        If it waited with the lock, the thread that lets functions go on would wait for the lock.
        """
        return threading.get_ident() in self._inside or self.lock._is_owned()  # type: ignore[attr-defined]

    def require_not_interrupted(self, attempted: str) -> None:
        """Raises where this thread would wait in the middle of a call that waits, or lets functions go on.

        Raises:
            RD09: it would.
        """
        if self.is_interrupted():
            raise errors.error("RD09", attempted, "another call of the coordinator, in the same thread, has not ended: "
                               "a signal handler calls it, which interrupts that call, or a result's own class does",
                               "Let the handler set a variable, and look at it after each call.")

    def until(self, ready: Callable[[], bool], go_on: Callable[[], object]) -> None:
        """Waits until `ready()`: calls `go_on` again and again, unless another thread does.

        Raises:
            What `go_on` raises.
        """
        def goes_on(ready: Callable[[], bool]) -> None:
            while not ready():
                go_on()

        if not ready():
            self.lead(goes_on, ready, takes=functools.partial(self._follow, ready))

    def step(self, go_on: Callable[[A], object], argument: A) -> None:
        """Calls `go_on` once; or waits a moment for a change, if another thread lets functions go on."""
        self.lead(go_on, argument, otherwise=self._wait_a_moment)

    def rest(self) -> None:
        """Waits while another thread has the lead."""
        with self._leads:
            pass
        self.changed()

    def lead(self, call: Callable[[A], object], argument: A, otherwise: Callable[[], object] | None = None,
             takes: Callable[[], bool] | None = None) -> bool:
        """Calls `call` with the lead, or `otherwise` if another thread has it; returns whether it called `call`.

        A signal handler that interrupts such a call gets neither.

        Args:
            call, argument: what is called, and with what.
            otherwise: what is called without the lead.
            takes: takes the lead, for which it may wait; returns whether it did.
        """
        if self.is_interrupted():
            return False
        thread = threading.get_ident()
        # An exception may come after each call in `finally`, too.  So each is one of C, does no harm where nothing is
        # to be done, and has a `finally` of its own for what follows.
        try:
            self._inside.add(thread)
            if leads := takes() if takes else self._leads.acquire(False):
                call(argument)
            elif otherwise:
                otherwise()
            return leads
        finally:
            try:
                self._leads.release()
            except RuntimeError:  # it was not taken
                pass
            finally:
                self._inside.discard(thread)
            if self._followers:
                self.changed()

    def changed(self) -> None:
        """Called when a function has ended, or nobody lets them go on any more."""
        for follower in tuple(self._followers):
            with contextlib.suppress(RuntimeError):  # another thread has done it
                follower.release()

    def _follow(self, ready: Callable[[], bool]) -> bool:
        """Waits until no other thread has the lead, or `ready()`; returns whether this thread has it now."""
        if self._leads.acquire(False):
            return True
        follower = threading.Lock()
        follower.acquire()
        try:
            self._followers.add(follower)  # before it looks: a change that it does not see releases it
            while not (leads := self._leads.acquire(False)) and not ready():
                follower.acquire(timeout=SIGNAL_SECONDS)
            return leads
        finally:
            self._followers.discard(follower)

    def _wait_a_moment(self) -> None:
        follower = threading.Lock()
        follower.acquire()
        try:
            self._followers.add(follower)
            follower.acquire(timeout=_STEP_SECONDS)
        finally:
            self._followers.discard(follower)
