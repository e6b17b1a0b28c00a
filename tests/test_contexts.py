"""Every public call in every situation: carried out, or refused with its own text; the table decides."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cells import outcome, survivors

import refdist
from refdist.core import context_stack
from refdist.core.context_stack import Situation
from refdist.core.rules import calls
from refdist.core.rules.calls import Call
from refdist.core.rules.table import Refusal
from refdist.errors import RefdistError


class World:
    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.x = np.ones(2)
        self.other = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        with self.strategy.scope():
            self.v = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.MEAN)
        with self.other.scope():
            self.w = refdist.Variable(1.0)
        distributed = self.strategy.experimental_distribute_dataset([np.ones(2)] * 2)
        coordinates = isinstance(self.strategy, refdist.ParameterServerStrategy)  # and reads no datasets
        self.iterator: Any = None if coordinates else iter(distributed)
        self.value = self.strategy.run(lambda: refdist.constant([1.0, 2.0]))


CALLS: dict[Call, Callable[[World], Any]] = {
    Call.SCOPE: lambda w: w.strategy.scope().__enter__(),
    Call.RUN: lambda w: w.strategy.run(lambda: 1),
    Call.REDUCE: lambda w: w.strategy.reduce("SUM", w.value, axis=None),
    Call.GATHER: lambda w: w.strategy.gather(w.value, axis=0),
    Call.DISTRIBUTE_DATASET: lambda w: w.strategy.experimental_distribute_dataset([np.ones(2)]),
    Call.DATASETS_FROM_FUNCTION:
        lambda w: w.strategy.distribute_datasets_from_function(lambda ctx: [np.ones(2)]),
    Call.LOCAL_RESULTS: lambda w: w.strategy.experimental_local_results(w.value),
    Call.VALUES_FROM_FUNCTION:
        lambda w: w.strategy.experimental_distribute_values_from_function(lambda ctx: 1),
    Call.GET_NEXT: lambda w: w.iterator.get_next(),
    Call.SCHEDULE: lambda w: refdist.coordinator.ClusterCoordinator(w.strategy).schedule(int),
    Call.REDUCE_TO: lambda w: w.strategy.extended.reduce_to("SUM", w.value, "CPU:0"),
    Call.BATCH_REDUCE_TO: lambda w: w.strategy.extended.batch_reduce_to("SUM", [(w.value, "CPU:0")]),
    Call.BROADCAST_TO: lambda w: w.strategy.extended.broadcast_to(np.ones(2), w.v),
    Call.CALL_FOR_EACH_REPLICA: lambda w: w.strategy.extended.call_for_each_replica(lambda: 1),
    Call.UPDATE: lambda w: w.strategy.extended.update(w.v, lambda x: x.assign(2.0)),
    Call.UPDATE_NON_SLOT: lambda w: w.strategy.extended.update_non_slot(("CPU:0",), lambda: 1),
    Call.COLOCATE_VARS_WITH: lambda w: w.strategy.extended.colocate_vars_with(w.v),
    Call.ASSIGN_TO_LOGICAL_DEVICE: lambda w: w.strategy.experimental_assign_to_logical_device(w.x, 0),
    Call.SPLIT_TO_LOGICAL_DEVICES: lambda w: w.strategy.experimental_split_to_logical_devices(w.x, [1]),
    Call.REPLICATE_TO_LOGICAL_DEVICES:
        lambda w: w.strategy.experimental_replicate_to_logical_devices(w.x),
    Call.MERGE_CALL: lambda w: own_context(w).merge_call(lambda s: 1),
    Call.ALL_REDUCE: lambda w: own_context(w).all_reduce("SUM", 1.0),
    Call.ALL_GATHER: lambda w: own_context(w).all_gather([np.ones(1)], axis=0),
    Call.DEVICES: lambda w: own_context(w).devices,
}


def own_context(world: World) -> refdist.ReplicaContext:
    """The world's own context: the current one in its replicas, else one that belongs to its replica 0."""
    now = refdist.get_replica_context()
    return now if now is not None and now.strategy is world.strategy else refdist.ReplicaContext(world.strategy, 0)


def in_situation(world: World, situation: Situation, call: Callable[[], Any]) -> Any:
    def of_other() -> Any:
        return call()

    if situation in (Situation.OUTSIDE, Situation.DEFAULT):
        return call()
    if situation is Situation.CROSS:
        with world.strategy.scope():
            return call()
    if situation is Situation.UPDATE:
        return world.strategy.extended.update(world.v, lambda x: [call(), None][1])
    if situation is Situation.REPLICA:
        return world.strategy.run(call)
    if situation is Situation.OTHER_CROSS:
        with world.other.scope():
            return call()
    return world.other.run(of_other)


def test_every_call_of_the_table_is_tried() -> None:
    assert set(calls.CALLS) == set(CALLS)


CELLS = [(call, situation) for call, row in calls.CALLS.items() for situation in row]


@pytest.fixture
def tpu() -> Iterator[None]:
    with refdist.config.temporary_devices(cpu=8, gpu=8, tpu=2):
        refdist.tpu.experimental.initialize_tpu_system()
        yield
        refdist.tpu.experimental.shutdown_tpu_system()


def of(call: Call, situation: Situation) -> World:
    """A world whose strategy is the one the cell is about."""
    if "logical_device" in call.value:
        return World(refdist.TPUStrategy())
    if call is Call.SCHEDULE:
        spec = refdist.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
        return World(refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec)))
    if situation is Situation.DEFAULT:
        return World(refdist.get_strategy())
    return World(refdist.MirroredStrategy(["CPU:0", "CPU:1"]))


@pytest.mark.parametrize(("name", "situation"), CELLS, ids=lambda member: member.value)
@pytest.mark.usefixtures("tpu")
def test_every_call_in_every_situation(name: Call, situation: Situation) -> None:
    world = of(name, situation)
    rule = calls.CALLS[name][situation]
    top = context_stack.frame()

    def call() -> Any:
        before = context_stack.frame()
        try:
            return CALLS[name](world)
        finally:
            context_stack.top.set(before)

    if not isinstance(rule, Refusal):
        in_situation(world, situation, call)
    else:
        with pytest.raises(RuntimeError) as caught:
            in_situation(world, situation, call)
        assert isinstance(caught.value, RefdistError)
        assert caught.value.code == rule.code
        assert float(world.v) == 1.0
    assert context_stack.frame() is top
    contexts: list[Any] = []
    world.strategy.run(lambda: contexts.append(refdist.get_replica_context()))
    assert contexts and None not in contexts


@pytest.mark.usefixtures("tpu")
def test_every_cell_is_what_the_code_obeys() -> None:
    def call(cell: tuple[Call, Situation]) -> Any:
        name, situation = cell
        world, outcomes = of(name, situation), []
        in_situation(world, situation, lambda: outcomes.append(outcome(lambda: CALLS[name](world))))
        return outcomes

    assert survivors(calls.CALLS, call) == []


def test_the_default_strategy_s_own_replica_is_a_replica() -> None:
    default = refdist.get_strategy()
    outside = refdist.get_replica_context()
    assert outside is not None

    def replica() -> Any:
        for call in (lambda: default.reduce("SUM", 1.0, axis=None), lambda: default.run(lambda: 1)):
            with pytest.raises(RuntimeError, match=r"\[RD09\]"):
                call()
        return outside.all_reduce("SUM", 1.0)

    assert default.run(replica) == 1.0
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope(), pytest.raises(RuntimeError, match=r"\[RD10\] ReplicaContext\.all_reduce"):
        outside.all_reduce("SUM", 1.0)


def test_outside_every_scope_one_is_replica_0_of_the_default_strategy() -> None:
    context = refdist.get_replica_context()
    assert context is not None
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (0, 1)
    assert context.strategy is refdist.get_strategy()
    assert not refdist.has_strategy()
    assert not refdist.in_cross_replica_context()


def test_a_scope_is_a_cross_replica_context_and_yields_the_strategy() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() as yielded, strategy.scope():
        assert yielded is strategy is refdist.get_strategy()
        assert refdist.in_cross_replica_context()
        assert refdist.get_replica_context() is None
    assert not refdist.has_strategy()


def test_strategies_are_told_apart_by_identity() -> None:
    strategy, equal = (refdist.MirroredStrategy(["CPU:0", "CPU:1"]) for _ in range(2))
    with strategy.scope(), pytest.raises(RuntimeError, match="RD10"), equal.scope():
        pass


def test_the_default_strategy_does_not_hide_another_one() -> None:
    default = refdist.get_strategy()
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    with default.scope(), strategy.scope():
        with pytest.raises(RuntimeError, match="RD10"):
            default.scope().__enter__()
        with pytest.raises(RuntimeError, match="RD10"):
            default.run(lambda: 1)
    with pytest.raises(RuntimeError, match="RD10"):
        copy.deepcopy(default)


def test_merge_fn_runs_across_replicas_and_may_run_the_strategy_again() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])

    def merge(s: Any) -> Any:
        assert s is strategy and refdist.in_cross_replica_context() and refdist.get_replica_context() is None
        return s.run(lambda: refdist.get_replica_context().replica_id_in_sync_group)

    assert strategy.run(lambda: refdist.get_replica_context().merge_call(merge)).values == (0, 1)


def test_a_context_of_another_replica_is_refused() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    contexts: list[Any] = []

    def replica() -> Any:
        contexts.append(refdist.get_replica_context())
        return contexts[0].merge_call(lambda s: 1)

    with pytest.raises(RuntimeError, match=r"RD09.*replica 0"):
        strategy.run(replica)


def test_merge_call_inside_merge_call_is_refused() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica() -> Any:
        context = refdist.get_replica_context()
        return context.merge_call(lambda s: context.merge_call(lambda s: 1))

    with pytest.raises(RuntimeError, match="RD09"):
        strategy.run(replica)


def test_set_strategy_lasts_until_another_one_is_set() -> None:
    strategy, other = (refdist.MirroredStrategy(["CPU:0", "CPU:1"]) for _ in range(2))
    refdist.experimental_set_strategy(strategy)
    assert refdist.get_strategy() is strategy
    refdist.experimental_set_strategy(other)
    assert refdist.get_strategy() is other
    refdist.experimental_set_strategy(None)
    assert not refdist.has_strategy()
    with strategy.scope(), pytest.raises(RuntimeError, match="RD09"):
        refdist.experimental_set_strategy(other)
    with pytest.raises(TypeError, match="RD25"):
        refdist.experimental_set_strategy("mirrored")


def test_each_simulated_worker_sets_its_strategy() -> None:
    def program() -> tuple[Any, ...]:
        strategy = refdist.MultiWorkerMirroredStrategy()
        refdist.experimental_set_strategy(strategy)
        total = strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0))
        current = refdist.get_strategy() is strategy
        refdist.experimental_set_strategy(None)
        return float(total), current, refdist.has_strategy()

    assert refdist.simulate_workers(program, 2, 1) == [(2.0, True, False)] * 2


def test_a_strategy_that_cannot_be_entered_is_not_set() -> None:
    class Broken(refdist.OneDeviceStrategy):
        def scope(self) -> Any:
            raise KeyError("broken")

    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    refdist.experimental_set_strategy(strategy)
    with pytest.raises(KeyError):
        refdist.experimental_set_strategy(Broken("CPU:0"))
    assert refdist.get_strategy() is strategy
    refdist.experimental_set_strategy(None)
    assert not refdist.has_strategy()


def test_scopes_are_left_in_the_reverse_order() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    before = context_stack.frame()
    scope = strategy.scope()
    creator = refdist.variable_creator_scope(lambda next_creator, **kwargs: next_creator(**kwargs))
    scope.__enter__()
    creator.__enter__()
    try:
        with pytest.raises(RuntimeError, match=r"RD09.*entered later"):
            scope.__exit__(None, None, None)
        assert refdist.get_strategy() is strategy
        creator.__exit__(None, None, None)
        scope.__exit__(None, None, None)
        assert context_stack.frame() is before
    finally:
        context_stack.top.set(before)


@pytest.mark.parametrize("opened", [
    refdist.MirroredStrategy(["CPU:0"]).scope(), refdist.device("CPU:0"),
    refdist.ReplicaContext(refdist.get_strategy(), 0),
    refdist.variable_creator_scope(lambda next_creator, **kwargs: next_creator(**kwargs))])
def test_what_is_not_open_cannot_be_left(opened: Any) -> None:
    for _ in range(2):
        with pytest.raises(refdist.errors.InvalidContextError, match=r"RD09.*leaving .*it is not open"):
            opened.__exit__(None, None, None)
        with opened:
            pass
    assert not refdist.has_strategy()


def test_a_new_thread_starts_outside_every_scope() -> None:
    import threading

    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    seen: list[bool] = []
    with strategy.scope():
        thread = threading.Thread(target=lambda: seen.append(refdist.has_strategy()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_a_variable_made_in_merge_fn_is_the_strategy_s_and_seen_by_the_creators_around_run() -> None:
    strategy = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
    seen: list[str] = []

    def create(next_creator: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["name"])
        return next_creator(**kwargs)

    with refdist.variable_creator_scope(create):
        made = strategy.run(lambda: refdist.get_replica_context().merge_call(
            lambda s: refdist.Variable(1.0, name="merged")))
    assert isinstance(made, refdist.MirroredVariable)
    assert seen == ["merged", "merged/replica_1/"]


def test_a_divided_device_is_numbered_over_all_of_its_type() -> None:
    halves = [refdist.config.LogicalDeviceConfiguration(), refdist.config.LogicalDeviceConfiguration(memory_limit=10)]
    try:
        refdist.config.set_logical_device_configuration("GPU:1", halves)
        assert [device.name for device in refdist.config.list_logical_devices("GPU")] == [
            "/device:GPU:0", "/device:GPU:1", "/device:GPU:2"]
        assert refdist.MirroredStrategy().num_replicas_in_sync == 3
        with pytest.raises(LookupError, match=r"\[RD24\] device 'GPU:3'"):
            refdist.MirroredStrategy(["GPU:3"])
        with refdist.config.temporary_devices(gpu=2):
            assert refdist.MirroredStrategy().num_replicas_in_sync == 2
        assert refdist.MirroredStrategy().num_replicas_in_sync == 3
    finally:
        refdist.config.reset_simulated_devices()


def test_the_cpu_is_divided_as_the_tutorials_do_it() -> None:
    config = refdist.config
    [cpu] = config.list_physical_devices("CPU")
    assert str(cpu) == "PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')"
    assert config.list_physical_devices() == [cpu] and config.list_physical_devices("GPU") == []
    assert config.get_logical_device_configuration(cpu) is None
    try:
        config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()] * 4)
        assert config.list_physical_devices("CPU") == [cpu]
        assert config.get_logical_device_configuration(cpu) == [config.LogicalDeviceConfiguration()] * 4
        logical = config.list_logical_devices("CPU")
        assert [str(device) for device in logical] == [f"LogicalDevice(name='/device:CPU:{i}', device_type='CPU')"
                                                       for i in range(4)]
        assert refdist.MirroredStrategy().num_replicas_in_sync == 4
        assert refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync == 1
        for named in (logical[:2], ["/device:CPU:0", "CPU:1"]):
            assert refdist.MirroredStrategy(named).extended.worker_devices == (
                "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1")
        assert refdist.experimental.CentralStorageStrategy(logical).num_replicas_in_sync == 4
        with refdist.OneDeviceStrategy(logical[3]).scope(), refdist.device(logical[2]):
            assert refdist.Variable(1.0).device.endswith("CPU:3")
    finally:
        config.reset_simulated_devices()
    assert config.get_logical_device_configuration("CPU:0") is None


def test_physical_devices_are_those_of_the_machine() -> None:
    config = refdist.config
    with config.temporary_devices(cpu=2, gpu=2):
        gpus = config.list_physical_devices("GPU")
        assert [gpu.name for gpu in gpus] == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
        config.set_logical_device_configuration(gpus[1], [config.LogicalDeviceConfiguration(memory_limit=10)] * 3)
        assert len(config.list_logical_devices("GPU")) == 4 and config.list_physical_devices("GPU") == gpus
        assert len(config.list_physical_devices()) == 4
        with pytest.raises(ValueError, match=r"RD24.*PhysicalDevice.*GPU:7.*list_physical_devices"):
            config.set_logical_device_configuration(config.PhysicalDevice("/physical_device:GPU:7", "GPU"),
                                                    [config.LogicalDeviceConfiguration()])
        with pytest.raises(ValueError, match=r"RD34.*memory_limit of a CPU"):
            config.set_logical_device_configuration("CPU:0", [config.LogicalDeviceConfiguration(memory_limit=10)])
        with pytest.raises(TypeError, match=r"RD25.*PhysicalDevice"):
            refdist.MirroredStrategy(gpus)
    assert config.list_physical_devices("GPU") == []


@pytest.mark.parametrize(("devices", "says"), [
    (4, r'Write MirroredStrategy\(\["GPU:0", "GPU:1", "GPU:2", "GPU:3"\]\).*set_simulated_devices\(gpu=4\)'),
    ("GPU:1", r'Write MirroredStrategy\(\["GPU:1"\]\)'),
    (refdist.config.LogicalDevice("/device:CPU:1", "CPU"), r'Write MirroredStrategy\(\["GPU:0", "GPU:1"\]\)')])
def test_what_is_no_list_of_devices_is_refused_with_one(devices: Any, says: str) -> None:
    with pytest.raises(TypeError, match=rf"RD25.*devices is .*{says}"):
        refdist.MirroredStrategy(devices)
    with pytest.raises(TypeError, match=rf"RD25.*devices is .*{says.replace('Mirrored', 'CentralStorage')}"):
        refdist.experimental.CentralStorageStrategy(devices)


@pytest.mark.parametrize(("logical", "message"), [
    ([], "logical_devices is"), ("GPU:0", "logical_devices is"), ([3], "logical_devices is"),
    ([refdist.config.LogicalDeviceConfiguration(0)], "memory_limit is 0"),
    ([refdist.config.LogicalDeviceConfiguration(True)], "memory_limit is True")])
def test_a_device_is_divided_into_what_is_asked_for(logical: Any, message: str) -> None:
    before = refdist.config.list_logical_devices()
    with pytest.raises(TypeError, match=rf"\[RD25\] set_logical_device_configuration: {message}"):
        refdist.config.set_logical_device_configuration("GPU:0", logical)
    assert refdist.config.list_logical_devices() == before


@pytest.mark.parametrize(("name", "advice"), [("all_reduce", "use `strategy.reduce("), ("merge_call", "itself")])
def test_none_in_place_of_a_replica_context_is_explained(name: str, advice: str) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])

    def program() -> None:
        getattr(refdist.get_replica_context(), name)

    with pytest.raises(AttributeError) as in_a_scope, strategy.scope():
        program()
    with pytest.raises(AttributeError) as merged:
        strategy.run(lambda: refdist.get_replica_context().merge_call(lambda _: program()))
    for raised in (in_a_scope, merged):
        [note] = [note for note in raised.value.__notes__ if "get_replica_context() is None" in note]
        assert advice in note
    with pytest.raises(AttributeError) as another, strategy.scope():
        getattr(None, "append")  # noqa: B009 - the mistake
    assert not hasattr(another.value, "__notes__")
