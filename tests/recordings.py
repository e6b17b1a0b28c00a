"""Recordings of programs of each kind, right and wrong, for tests of what is made of a recording."""

from __future__ import annotations

import argparse
import importlib.util
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import broken
import numpy as np
import pytest
from recorded import recorded

import refdist
from refdist.insight import Recording

DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"


def digits() -> types.ModuleType:
    """The example, as a module."""
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("digits", DIGITS)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(module: types.ModuleType, strategy: Any, rows: int = 256) -> None:
    (x, y), _ = module.load()
    options = argparse.Namespace(seed=0, batch=64, epochs=1)
    module.train(strategy, module.SoftmaxRegression, (x[:rows], y[:rows]), options, show=False)


def of_digits() -> Recording:
    module = digits()
    with refdist.record() as recording:
        train(module, broken.mirrored(4))
    return recording


def of_workers() -> Recording:
    module = digits()
    with refdist.record() as recording:
        refdist.simulate_workers(lambda: train(module, refdist.MultiWorkerMirroredStrategy()), 2, 2)
    return recording


def of_a_lost_worker() -> Recording:
    """As two processes leave it, of which one was killed in the middle of an exchange."""
    whole = recorded()
    killed = [event for event in whole.events if event.worker == 1 and event.kind == "exchange"][-1].id
    parts = [[event for event in whole.events if event.worker == 0],
             [event for event in whole.events if event.worker == 1 and event.id <= killed]]
    number = {event.id: i for i, event in enumerate(parts[0] + parts[1])}
    renumber = {-1: None, **number}
    events = [replace(event, id=number[event.id], parent=renumber[-1 if event.parent is None else event.parent],
                      fields={**event.fields, **({"of": number[event["of"]]} if "of" in event.fields else {})})
              for event in parts[0] + parts[1]]
    return Recording(events, whole.sources)


def of_uneven_workers() -> Recording:
    """One worker does more than the other before both reduce."""
    def program() -> None:
        strategy = refdist.MultiWorkerMirroredStrategy()
        for _ in range(5 * strategy.cluster_resolver.task_id):
            print("alone")
        strategy.run(lambda: broken.replica().all_reduce("SUM", 1.0))

    with refdist.record() as recording:
        refdist.simulate_workers(program, 2, 2)
    return recording


def steps(count: int) -> Recording:
    """A training of this many steps on four replicas."""
    strategy = broken.mirrored(4)
    w = broken.weights(strategy)

    def step() -> None:
        w.assign_sub(broken.replica().all_reduce("SUM", np.arange(3, dtype=np.float32) + w.value()))

    with refdist.record() as recording:
        for _ in range(count):
            strategy.run(step)
    return recording


PROGRAMS: dict[str, Callable[[], Recording]] = {
    "digits": of_digits, "digits on workers": of_workers, "a lost worker": of_a_lost_worker, "mismatch": recorded,
    **{program.__name__: (lambda program=program: broken.recorded(program)) for program in broken.PROGRAMS}}
