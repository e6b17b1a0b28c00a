"""The state of a process is in declared fields, and a block can have fresh ones."""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

import refdist
from refdist.array.backend import chosen
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import Case, cases
from refdist.conformance.examples import program
from refdist.core import call_site
from refdist.runtime import process

# What programs may leave behind: caches, and threads that are used again.
LEFT = {"refdist.core.call_site._interned", "refdist.core.call_site._known", "refdist.nest._kind_of",
        "refdist.coordinator.strands._parked"}


def state() -> dict[str, Any]:
    """What the modules of refdist hold, by name: the object, and the items of a container.

    Attributes of classes and functions, default arguments and the fields of the process are looked at too.
    """
    held: dict[str, Any] = {f"field: {field.what}": getattr(field, "value", None) for field in process.fields}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "refdist" and not name.startswith("refdist.conformance"):
            for attribute, value in vars(module).items():
                held |= dict(parts(f"{name}.{attribute}", value, name))
    return {name: (id(value), [*map(id, value)] if isinstance(value, (dict, list, set, deque)) else None)
            for name, value in held.items() if value is not sys.modules and "__" not in name}


def parts(name: str, value: Any, module: str) -> Iterator[tuple[str, Any]]:
    """A value of a module, and what is kept in it where it is a class or a function of that module."""
    yield name, value
    if isinstance(value, (type, FunctionType)) and value.__module__ == module:
        for attribute, inner in list(vars(value).items()):
            yield from parts(f"{name}.{attribute}", inner, module)
    if isinstance(value, FunctionType):
        yield from ((f"{name}({i})", default) for i, default in enumerate(value.__defaults__ or ()))


def left_behind(run: Callable[[], object]) -> set[str]:
    """What differs after something has run in a fresh process, of what was there before."""
    before = state()
    with process.fresh():
        run()
    after = state()
    return {name for name in before if before[name] != after.get(name)} - LEFT


@pytest.mark.filterwarnings("ignore")
def test_programs_leave_nothing_behind() -> None:
    known = [case for case in cases() if not case.example.parameters]
    some: list[Case] = [case for _, chapter in itertools.groupby(known, lambda case: case.clause.name.split(".")[0])
                        for case in itertools.islice(chapter, 0, None, 15)]
    assert len(some) > 150

    def run() -> None:
        adapter = Simulated()
        for case in some:
            adapter.run(program(case))

    with process.fresh():
        run()  # imports what is imported when it is needed
    assert left_behind(run) == set()


def test_what_is_left_behind_is_seen() -> None:
    """Wherever it is kept: a module, a class, a function, a default argument, a field."""
    kept: dict[str, Callable[[], object]] = {
        "refdist.strategies.base.kept": lambda: refdist.strategies.base.kept.append(1),  # type: ignore[attr-defined]
        "refdist.strategies.base.Strategy.kept": lambda: refdist.Strategy.kept.append(1),  # type: ignore[attr-defined]
        "refdist.core.call_site.of.kept": lambda: call_site.of.kept.append(1),  # type: ignore[attr-defined]
        "field: kept by a test": lambda: setattr(field, "value", 1)}
    field = refdist.runtime.Field("kept by a test", lambda: 0, kept=True)
    owners: list[Any] = [refdist.strategies.base, refdist.Strategy, call_site.of]
    for owner in owners:
        owner.kept = []
    try:
        for name, keep in kept.items():
            assert left_behind(keep) == {name}
    finally:
        process.fields.remove(field)
        for owner in owners:
            del owner.kept


def test_a_fresh_process_has_forgotten_everything_and_the_old_one_is_put_back() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    generator, backend = refdist.random.get_global_generator(), strategy.extended.backend
    with refdist.record() as recording, process.fresh(REFDIST_DEVICES="GPU:3", REFDIST_REPLICA_SEED="1"):
        assert len(refdist.config.list_logical_devices("GPU")) == 3
        assert refdist.config.order(8) != range(8)
        assert refdist.random.get_global_generator() is not generator
        refdist.experimental_set_strategy(strategy)
        refdist.experimental_set_strategy(None)
        assert strategy.extended is not None and chosen.value is not backend
        with pytest.raises(RuntimeError, match="RD27"):
            strategy.run(lambda: 1)
        refdist.MirroredStrategy().run(lambda: refdist.get_replica_context())
        refdist.config.set_simulated_devices(gpu=1)
        os.environ["REFDIST_LEFT_BEHIND"] = "1"
    assert recording.events == [] and "REFDIST_LEFT_BEHIND" not in os.environ and "REFDIST_DEVICES" not in os.environ
    assert refdist.random.get_global_generator() is generator and chosen.value is backend
    assert refdist.config.order(8) == range(8)
    assert strategy.run(lambda: 1) == 1
    assert refdist.MirroredStrategy(["GPU:5"]).num_replicas_in_sync == 1, "no size is stated"


def test_a_fresh_process_is_put_back_after_an_error() -> None:
    before = [field.value for field in process.fields]
    with pytest.raises(ZeroDivisionError), process.fresh():
        refdist.set_backend("simulated")
        raise ZeroDivisionError
    assert all(field.value is value for field, value in zip(process.fields, before, strict=True))


def test_every_field_is_described_once() -> None:
    words = [field.what for field in process.fields]
    assert len(words) >= 10 and all(len(what.split()) >= 4 for what in words) and len(set(words)) == len(words)


def test_each_simulated_worker_has_fields_of_its_own() -> None:
    refdist.random.set_global_generator(refdist.random.Generator.from_seed(1))
    generator = refdist.random.get_global_generator()

    def program() -> refdist.random.Generator:
        strategy = refdist.MultiWorkerMirroredStrategy()
        first = refdist.random.get_global_generator()
        strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
        assert refdist.random.get_global_generator() is first is not generator
        return first

    assert len(set(map(id, refdist.simulate_workers(program, 3)))) == 3
    assert refdist.random.get_global_generator() is generator
