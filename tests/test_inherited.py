"""Context variables: what is set around a call holds in what it starts, and what is set there stays there."""

from __future__ import annotations

import decimal
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import refdist
from refdist.coordinator import ClusterCoordinator

COLOR: ContextVar[object] = ContextVar("color", default="none")


@pytest.fixture(autouse=True)
def red() -> Iterator[None]:
    token = COLOR.set("red")
    with decimal.localcontext(), np.errstate():
        yield
    COLOR.reset(token)


def mirrored(count: int) -> refdist.Strategy:
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])


def paint() -> object:
    before = COLOR.get()
    COLOR.set("blue")
    return before


def precision() -> int:
    before, decimal.getcontext().prec = decimal.getcontext().prec, 50
    return before


def division() -> str:
    before = np.geterr()["divide"]
    np.seterr(divide="raise")
    return before


def rank() -> int:
    context = refdist.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def meet() -> Any:
    context = refdist.get_replica_context()
    assert context is not None
    return context.all_reduce("SUM", 1.0)


SETTERS: list[Callable[[], object]] = [paint, precision, division]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("change", SETTERS)
def test_what_a_replica_sets_is_its_own_and_ends_with_it(change: Callable[[], object], count: int) -> None:
    strategy = mirrored(count)
    here = COLOR.get(), decimal.getcontext().prec, np.geterr()

    def step() -> tuple[object, ...]:
        first = change()
        meet()
        second = change()
        meet()
        return first, second, change()

    outcomes = [strategy.experimental_local_results(strategy.run(step)) for _ in range(3)]
    # What was there before, and then what the replica has set itself.
    assert len({outcome for run in outcomes for outcome in run}) == 1
    assert outcomes[0][0][0] != outcomes[0][0][1] == outcomes[0][0][2]
    assert (COLOR.get(), decimal.getcontext().prec, np.geterr()) == here


@pytest.mark.parametrize("strategy", [
    refdist.get_strategy(), refdist.OneDeviceStrategy("CPU:0"), refdist.experimental.CentralStorageStrategy(
        ["GPU:0", "GPU:1"])], ids=lambda strategy: type(strategy).__name__)
def test_every_strategy_keeps_what_its_replicas_set_apart(strategy: refdist.Strategy) -> None:
    for _ in range(2):
        assert set(strategy.experimental_local_results(strategy.run(paint))) == {"red"}
    assert COLOR.get() == "red"


@pytest.mark.parametrize("count", [1, 2])
def test_what_holds_around_run_holds_in_every_replica(count: int) -> None:
    strategy = mirrored(count)

    def step() -> Any:
        meet()
        return np.float32(1) / np.zeros(1, np.float32)

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        strategy.run(step)
    with np.errstate(divide="ignore"):
        strategy.run(step)
    with decimal.localcontext() as context:
        context.prec = 7
        assert set(strategy.experimental_local_results(strategy.run(precision))) == {7}
        assert decimal.getcontext().prec == 7


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_collective_is_carried_out_in_the_context_of_replica_0(count: int) -> None:
    strategy = mirrored(count)

    def step() -> object:
        COLOR.set(f"of {rank()}")
        context = refdist.get_replica_context()
        assert context is not None
        return context.merge_call(lambda strategy: paint())

    for seed in range(3):
        with refdist.config.replica_order(seed):
            assert set(strategy.experimental_local_results(strategy.run(step))) == {"of 0"}
    assert COLOR.get() == "red"


@pytest.mark.parametrize("change", SETTERS)
def test_simulated_workers_have_contexts_of_their_own(change: Callable[[], object]) -> None:

    def program() -> tuple[object, ...]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        first = change()
        strategy.run(meet)
        inside = strategy.experimental_local_results(strategy.run(change))
        return first, inside, change()

    outcomes = refdist.simulate_workers(program, 3, 2)
    assert len(set(outcomes)) == 1
    first, inside, after = outcomes[0]
    assert first != after and set(inside) == {after}
    assert refdist.simulate_workers(change, 2) == [first] * 2


def test_functions_of_a_coordinator_have_the_context_in_which_they_were_scheduled() -> None:
    resolver = refdist.cluster_resolver.SimpleClusterResolver(
        refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]}))
    coordinator = ClusterCoordinator(refdist.ParameterServerStrategy(resolver))
    for change in SETTERS:
        scheduled = [coordinator.schedule(change) for _ in range(4)]
        coordinator.join()
        assert len({remote.fetch() for remote in scheduled}) == 1
    token = COLOR.set("green")
    green = coordinator.schedule(paint)
    COLOR.reset(token)
    assert green.fetch() == "green" and COLOR.get() == "red"


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("calls", [None, 2])
def test_functions_of_datasets_have_the_context_of_the_reader(calls: int | None, ahead: bool) -> None:
    def divide(value: Any) -> tuple[Any, Any]:
        return COLOR.get(), value / np.float64(0)

    dataset = refdist.data.Dataset.from_tensor_slices(np.float64([1, 2, 3])).map(divide, num_parallel_calls=calls)
    if ahead:
        dataset = dataset.prefetch(2)
    with np.errstate(divide="ignore"):
        assert [str(color) for color, _ in dataset] == ["red"] * 3
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(dataset)


@pytest.mark.parametrize("change", SETTERS)
def test_what_functions_of_datasets_set_in_threads_stays_there(change: Callable[[], object]) -> None:
    dataset = refdist.data.Dataset.range(6).map(lambda _: str(change()), num_parallel_calls=2)
    assert len({str(x) for x in dataset} | {str(x) for x in dataset.prefetch(2)} | {str(change())}) == 1


class Kept:
    pass


def test_a_parked_replica_keeps_nothing_of_its_context() -> None:
    strategy = mirrored(2)
    gone = []

    def step() -> None:
        value = Kept()
        gone.append(weakref.ref(value))
        COLOR.set(value)
        meet()

    strategy.run(step)
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
