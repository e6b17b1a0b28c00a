"""How many Python functions a step calls, and how deep they are nested: the paths that every program walks stay short.

Every call of a Python function counts, whoever wrote the function, but for those in this file: in the replicas too,
each resumption of a generator, and each comprehension before Python 3.12.  Steady state: the third run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import greenlet
import numpy as np
import pytest

import refdist

VALUE = np.ones(3, np.float32)


class Calls:
    """The functions that the third run of a step calls, and how deep they are nested at most.

    Functions of this file are in `own` and count neither as calls nor as levels.
    """

    def __init__(self, strategy: refdist.Strategy, step: Callable[[], Any]) -> None:
        self.names: list[str] = []
        self.own: list[str] = []
        self.depth = 0
        self._counting = False
        before = sys.getprofile()
        # Before the first run: a greenlet that was started without a profile function never calls one.
        sys.setprofile(self._write)
        try:
            for self._counting in (False, False, True):
                strategy.run(step)
        finally:
            sys.setprofile(before)

    def _write(self, frame: FrameType, event: str, _: object) -> None:
        if self._counting and event == "call":
            names = self.own if frame.f_code.co_filename == __file__ else self.names
            names.append(frame.f_code.co_qualname)
            self.depth = max(self.depth, _depth(frame))


def _depth(innermost: FrameType) -> int:
    # A replica is nested in the run that switches to it.
    frame: FrameType | None = innermost
    found, current = 0, greenlet.getcurrent()
    while frame is not None and frame.f_code is not Calls.__init__.__code__:
        found += frame.f_code.co_filename != __file__
        frame = frame.f_back
        if frame is None and current.parent is not None:
            current = current.parent
            frame = current.gr_frame
    return found


def seen() -> None:
    """Called in a replica, to show that calls in replicas are counted."""


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have imported PyTorch, whose mode takes calls of its own."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_an_all_reduce_is_few_calls() -> None:
    def step() -> Any:
        seen()
        context = refdist.get_replica_context()
        assert context is not None
        found = context.all_reduce("SUM", VALUE)
        seen()
        return found

    calls = Calls(refdist.MirroredStrategy(["GPU:0", "GPU:1"]), step)
    assert calls.own.count("seen") == 4
    assert len(calls.names) <= 48, calls.names
    assert calls.depth <= 10


def test_an_update_of_a_variable_is_few_calls() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        v = refdist.Variable(np.zeros(3, np.float32), aggregation=refdist.VariableAggregation.SUM)

    def step() -> Any:
        seen()
        found = v.assign_add(VALUE)
        seen()
        return found

    calls = Calls(strategy, step)
    assert calls.own.count("seen") == 4
    assert len(calls.names) <= 95, calls.names
