"""Copies of strategies: a deep one is a strategy of its own, as in TensorFlow; shallow and pickled ones are refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import refdist

STRATEGIES: dict[str, Callable[[], Any]] = {
    "mirrored": lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1"]),
    "one device": lambda: refdist.OneDeviceStrategy("CPU:0"),
    "central storage": lambda: refdist.experimental.CentralStorageStrategy(["GPU:0", "GPU:1"], "CPU:0"),
    "workers": lambda: refdist.MultiWorkerMirroredStrategy(),
    "default": refdist.get_strategy,
}


class Model:
    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_shallow_copies_and_pickles_are_refused(name: str) -> None:
    strategy = STRATEGIES[name]()
    for original in (strategy, strategy.extended):
        with pytest.raises(RuntimeError, match=rf"RD10\] copy.copy of a {type(original).__name__}: .*another strategy"):
            copy.copy(original)
    for original in (strategy, strategy.extended, Model(strategy), [strategy]):
        with pytest.raises(TypeError, match=r"RD20\] pickling a \w*(Strategy|Extended): .*this process"):
            pickle.dumps(original)
    copy.copy(Model(strategy))


@pytest.mark.parametrize("name", sorted({*STRATEGIES} - {"default"}))
def test_a_deep_copy_is_a_strategy_of_its_own(name: str) -> None:
    strategy = STRATEGIES[name]()
    twin = copy.deepcopy(Model(strategy)).strategy
    assert type(twin) is type(strategy) and twin is not strategy and twin.extended is not strategy.extended
    assert twin.extended.transport is strategy.extended.transport, "processes are connected once"
    assert twin.extended.worker_devices == strategy.extended.worker_devices
    with twin.scope():
        v = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.SUM)
    assert twin.extended.variable_created_in_scope(v) and not strategy.extended.variable_created_in_scope(v)

    def step() -> Any:
        assert refdist.get_strategy() is twin
        assert refdist.get_replica_context().strategy is twin
        v.assign_add(1.0)
        return refdist.get_replica_context().all_reduce("SUM", 1.0)

    count = strategy.num_replicas_in_sync
    assert [float(part) for part in twin.experimental_local_results(twin.run(step))] == [count] * count
    assert float(v) == 1.0 + count
    with strategy.scope(), pytest.raises(RuntimeError, match=r"RD10.*on another"):
        twin.run(step)
    assert copy.deepcopy(strategy.extended)._strategy is not strategy


def test_parts_that_refer_to_each_other_are_copied_together() -> None:
    strategy = STRATEGIES["mirrored"]()
    first, second = copy.deepcopy([strategy, strategy.extended])
    assert first.extended is second
    assert first.run(lambda: refdist.get_replica_context().strategy is first)
