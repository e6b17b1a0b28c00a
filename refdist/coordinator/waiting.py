"""`Waiting`: several threads of a program that wait for functions at the same time.

One of them lets the functions go on; the others wait for what comes of it, and when it has what it waited for, another
one lets them go on.  Meanwhile no lock is held that another thread needs to schedule a function, or to see what has
come of one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from refdist.coordinator.strands import SIGNAL_SECONDS

_STEP_SECONDS = 0.01


class Waiting:
    """Decides which thread lets the functions of a coordinator go on.

    Attributes:
        lock: held for moments, by code that changes what threads wait for.
        leads: held by the thread that lets functions go on, for as long as it does.
        lead: takes the lead, unless another thread has it; returns whether it did.  `leave` follows in a `finally`:
            a context manager would take longer than the access to a variable for which it is called.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.leads = threading.RLock()
        self.lead: Callable[[], bool] = functools.partial(self.leads.acquire, False)
        self._change = threading.Condition(self.lock)
        self._followers = 0
        self._lasts = threading.RLock()  # held by the thread that leads in `until`; taken by nobody else for long

    def until(self, ready: Callable[[], bool], go_on: Callable[[], object]) -> None:
        """Waits until `ready()`: calls `go_on` again and again, unless another thread does.

        Raises:
            What `go_on` raises.
        """
        while not ready():
            if self._follow(ready):
                try:
                    with self._lasts:
                        while not ready():
                            go_on()
                finally:
                    self.leave()

    def step(self, go_on: Callable[[], object]) -> None:
        """Calls `go_on` once; or waits a moment for a change, if another thread lets functions go on."""
        if self.lead():
            try:
                go_on()
            finally:
                self.leave()
            return
        with self._change:
            self._followers += 1
            try:
                self._change.wait(_STEP_SECONDS)
            finally:
                self._followers -= 1

    def leave(self) -> None:
        """Gives up the lead; another thread that waits takes it."""
        self.leads.release()
        if self._followers:
            self._notify()

    def attend(self, go_on: Callable[[], object]) -> None:
        """Calls `go_on`; or, while another thread is in `until` and does, waits until it has come to its end."""
        if self.lead():
            try:
                go_on()
            finally:
                self.leave()
        else:
            with self._lasts:
                pass

    def changed(self) -> None:
        """Called when a function has ended, or nobody lets them go on any more."""
        if self._followers:
            self._notify()

    def _notify(self) -> None:
        with self._change:
            self._change.notify_all()

    def _follow(self, ready: Callable[[], bool]) -> bool:
        """Waits until no other thread lets functions go on, or `ready()`; returns whether this thread does it now."""
        with self._change:
            self._followers += 1  # before it looks: a change that it does not see notifies it
            try:
                while not (leads := self.lead()) and not ready():
                    self._change.wait(SIGNAL_SECONDS)
                return leads
            finally:
                self._followers -= 1
