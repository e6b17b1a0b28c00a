"""Bad input to every public entry: only catalogued errors come out, and the state is as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refdist
from refdist.core import context_stack
from refdist.errors import CATALOGUE, RefdistError

pytestmark = pytest.mark.slow


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5), st.integers(2**40, 2**70), st.floats(), st.text(max_size=3),
    st.binary(max_size=2), st.complex_numbers(), st.builds(Odd), st.just(int), st.just(len),
    st.sampled_from(["SUM", "mean", "CPU:0", "GPU:9", "XPU:1", "/job:a/task:1", ""]),
    st.sampled_from([np.zeros(()), np.ones(2), np.ones((0, 2)), np.ones((2, 3), np.int8), np.array([True]),
                     np.array(["a"]), np.array([None]), np.float16(2.5), np.arange(6).reshape(1, 2, 3)]),
    st.builds(lambda: refdist.IndexedSlices([1.0], [0])),
    st.builds(lambda n: refdist.PerReplica([np.ones(i + 1) for i in range(n)]), st.integers(1, 4)),
    st.builds(lambda n: refdist.Mirrored([np.ones(2)] * n), st.integers(1, 3)),
    st.sampled_from([refdist.ReduceOp.SUM, refdist.VariableAggregation.MEAN, refdist.VariableSynchronization.NONE]),
)
NESTS = st.recursive(JUNK, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4)

STRATEGIES: dict[str, Callable[[], Any]] = {
    "mirrored": lambda: refdist.MirroredStrategy(["CPU:0", "CPU:1"]),
    "one": lambda: refdist.OneDeviceStrategy("CPU:0"),
    "single": lambda: refdist.MirroredStrategy(["CPU:0"]),
    "central": lambda: refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),
}


def replica() -> Any:
    return refdist.get_replica_context()


# Entry: called with a strategy, a variable and three pieces of junk.
ENTRIES: dict[str, Callable[..., Any]] = {
    "reduce": lambda s, v, a, b, c: s.reduce(a, b, axis=c),
    "reduce SUM": lambda s, v, a, b, c: s.reduce("SUM", a, axis=b),
    "gather": lambda s, v, a, b, c: s.gather(a, axis=b),
    "run args": lambda s, v, a, b, c: s.run(lambda *x, **y: None, args=a, kwargs=b, options=c),
    "run fn": lambda s, v, a, b, c: s.run(Odd() if callable(a) else a),
    "run result": lambda s, v, a, b, c: s.run(lambda: [a, b, c][replica().replica_id_in_sync_group]),
    "all_reduce": lambda s, v, a, b, c: s.run(lambda: replica().all_reduce(a, b, options=c)),
    "all_reduce SUM": lambda s, v, a, b, c: s.run(lambda: replica().all_reduce("SUM", a)),
    "all_reduce each": lambda s, v, a, b, c: s.run(
        lambda: replica().all_reduce("SUM", [a, b][replica().replica_id_in_sync_group])),
    "all_gather": lambda s, v, a, b, c: s.run(lambda: replica().all_gather(a, axis=b)),
    "merge_call": lambda s, v, a, b, c: s.run(lambda: replica().merge_call(lambda *x: a, args=b)),
    "merge_call fn": lambda s, v, a, b, c: s.run(lambda: replica().merge_call(a if not callable(a) else 1)),
    "local results": lambda s, v, a, b, c: s.experimental_local_results(a),
    "values from function": lambda s, v, a, b, c: s.experimental_distribute_values_from_function(
        a if not callable(a) else None),
    "dataset": lambda s, v, a, b, c: list(s.experimental_distribute_dataset(a, b)),
    "assign": lambda s, v, a, b, c: v.assign(a),
    "assign in replica": lambda s, v, a, b, c: s.run(lambda: v.assign(a)),
    "assign each": lambda s, v, a, b, c: s.run(lambda: v.assign_add([a, b][replica().replica_id_in_sync_group])),
    "scatter": lambda s, v, a, b, c: v.scatter_add(a),
    "scatter slices": lambda s, v, a, b, c: v.scatter_update(refdist.IndexedSlices(a, b)),
    "variable": lambda s, v, a, b, c: in_scope(s, lambda: refdist.Variable(a if a is not int else 1.0, dtype=None,
                                                                          name=b, aggregation=c)),
    "reduce_to": lambda s, v, a, b, c: s.extended.reduce_to(a, b, c),
    "batch_reduce_to": lambda s, v, a, b, c: s.extended.batch_reduce_to("SUM", [(a, b)]),
    "broadcast_to": lambda s, v, a, b, c: s.extended.broadcast_to(a, b),
    "update": lambda s, v, a, b, c: s.extended.update(a, lambda x: x),
    "update args": lambda s, v, a, b, c: s.extended.update(v, lambda x, y: x.assign(y), args=(a,)),
    "created in scope": lambda s, v, a, b, c: s.extended.variable_created_in_scope(a),
    "colocate": lambda s, v, a, b, c: in_scope(s, lambda: s.extended.colocate_vars_with(a)),
    "indexed slices": lambda s, v, a, b, c: refdist.IndexedSlices(a, b, c),
    "constant": lambda s, v, a, b, c: refdist.constant(a),
    "device": lambda s, v, a, b, c: refdist.device(a),
    "mirrored strategy": lambda s, v, a, b, c: refdist.MirroredStrategy(a, b),
    "central strategy": lambda s, v, a, b, c: refdist.experimental.CentralStorageStrategy(a, b),
    "one device strategy": lambda s, v, a, b, c: refdist.OneDeviceStrategy(a),
    "cross device ops": lambda s, v, a, b, c: refdist.ReductionToOneDevice().reduce(a, b, c),
    "set devices": lambda s, v, a, b, c: refdist.config.set_simulated_devices(cpu=a, gpu=b, tpu=c),
    "divide devices": lambda s, v, a, b, c: refdist.config.set_logical_device_configuration(
        a, [refdist.config.LogicalDeviceConfiguration(b)] if isinstance(c, (list, tuple, dict)) else b),
    "set backend": lambda s, v, a, b, c: refdist.set_backend(a),
    "replica order": lambda s, v, a, b, c: refdist.config.replica_order(a).__exit__(None, None, None),
    "set strategy": lambda s, v, a, b, c: refdist.experimental_set_strategy(a),
    "creator scope": lambda s, v, a, b, c: refdist.variable_creator_scope(a),
    "options": lambda s, v, a, b, c: refdist.experimental.CommunicationOptions(a, implementation=b),
    "dataset batch": lambda s, v, a, b, c: list(refdist.data.Dataset.range(5).batch(a)),
    "dataset slices": lambda s, v, a, b, c: list(refdist.data.Dataset.from_tensor_slices(a)),
    "pack": lambda s, v, a, b, c: refdist.nest.pack_sequence_as(a, b),
    "same structure": lambda s, v, a, b, c: refdist.nest.assert_same_structure(a, b),
}


def in_scope(strategy: Any, call: Callable[[], Any]) -> Any:
    with strategy.scope():
        return call()


@pytest.mark.parametrize("entry", ENTRIES)
@given(kind=st.sampled_from(sorted(STRATEGIES)), a=NESTS, b=NESTS, c=NESTS)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_only_catalogued_errors_come_out_and_nothing_changes(entry: str, kind: str, a: Any, b: Any, c: Any) -> None:
    strategy = STRATEGIES[kind]()
    with strategy.scope():
        v = refdist.Variable([1.0, 2.0], aggregation=refdist.VariableAggregation.SUM)
    top = context_stack.frame()
    try:
        with np.errstate(all="ignore"):
            ENTRIES[entry](strategy, v, a, b, c)
    except RefdistError as error:
        assert error.code in CATALOGUE, repr(error)
        assert str(error).startswith(f"[{error.code}] ")
        assert v.numpy().tolist() == [1.0, 2.0]
    finally:
        refdist.config.reset_simulated_devices()
    assert context_stack.frame() is top
    assert strategy.run(lambda: replica().all_reduce("SUM", 1.0)) is not None
