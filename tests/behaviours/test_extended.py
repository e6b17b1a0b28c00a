"""Topic E: StrategyExtended, CrossDeviceOps, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import world as w
from world import C1, C2, M1, M2, M4, MEAN, SUM, Agg, D, O, Row, c, dv, f, rc, rid, variable

import refdist
from refdist import journal

X = M2.run(lambda: c(1.0))
Y = M2.run(lambda: f(2, 3))
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:"
TWO = "Mirrored(float32[] 2.0, float32[] 2.0)"
GPUS = ["GPU:0", "GPU:1"]


def updated(strategy: Any, fn: Any, **options: Any) -> Any:
    v = variable(strategy, 1.0)
    return [strategy.extended.update(v, fn, **options), v]


def seen_in_update() -> list[Any]:
    v = variable(M2, 1.0, synchronization=refdist.VariableSynchronization.ON_READ, aggregation=Agg.SUM)
    out: list[Any] = []
    M2.extended.update(v, lambda x, a: x.assign(a), args=(dv(M2, c(5.0), c(6.0)),))
    M2.extended.update(v, lambda x: out.append(v.read_value()))
    return out


def non_slot() -> list[Any]:
    out: list[Any] = []
    M2.extended.update_non_slot(M2.extended.non_slot_devices(None), out.append, args=(dv(M2, 1, 2),))
    return out


def transfers(ops: Any, devices: list[str], size: int = 4) -> list[tuple[str, int]]:
    strategy = refdist.MirroredStrategy(devices, cross_device_ops=ops)
    with journal.record() as events:
        strategy.run(lambda: rc().all_reduce("SUM", np.ones(size, np.float32)))
    return [(event.name, event.nbytes) for event in events if event.kind == "transfer"]


def in_replica() -> Any:
    v = variable(M2, 1.0, aggregation=Agg.SUM)
    M2.run(lambda: M2.extended.update(v, lambda x, a: x.assign(a), args=(7.0,)) is None)
    return v


def colocated() -> Any:
    with M2.scope():
        v = refdist.Variable(1.0)
        with M2.extended.colocate_vars_with(v):
            return refdist.Variable(2.0)


def within(strategy: Any, program: Any) -> Any:
    with strategy.scope():
        return program()


V2 = variable(M2, 1.0)
VC = variable(C2, 1.0)
PLAIN = refdist.Variable(3.0)

called_with: list[Any] = []


def central_copy() -> list[Any]:
    v, seen = variable(C2, 1.0), []
    C2.extended.update(v, seen.append)
    return [len(seen), seen[0] is v.get()]


def failing_update() -> list[Any]:
    v = variable(M2, 1.0)

    def change(x: Any) -> None:
        x.assign(9.0)
        if x is v.values[1]:
            raise KeyError

    return [w.outcome(lambda: M2.extended.update(v, change)), v]


def updated_rows() -> Any:
    v = variable(M2, [1.0, 2.0])
    M2.extended.update(v, lambda x: x.scatter_add(refdist.IndexedSlices(f(1), [0])))
    return v


def differing_in_replicas() -> list[Any]:
    v = variable(M2, 1.0)
    return [w.outcome(lambda: M2.run(lambda: M2.extended.update(
        v, lambda x, a: x.assign(a), args=(c(1.0 + rid()),)))), v]


def merged_options() -> list[Any]:
    options, kinds = refdist.experimental.CommunicationOptions, refdist.experimental.CommunicationImplementation
    both = options(1, 2.0, kinds.RING).merge(options(0, 3.0, kinds.AUTO))
    return [both.bytes_per_pack, both.timeout_seconds, both.implementation.name, options().merge(None).bytes_per_pack]


ROWS = [
    Row("E1", lambda: [s.extended.worker_devices for s in (O, M2, C2)],
        f"[('{DEVICE}0',), ('{DEVICE}0', '{DEVICE}1'), ('{DEVICE}0', '{DEVICE}1')]"),
    Row("E1b", lambda: [s.extended.parameter_devices for s in (O, M2, C2)],
        f"[('{DEVICE}0',), ('{DEVICE}0', '{DEVICE}1'), ('{DEVICE}0',)]", "Central: ('CPU:0',), not completed"),
    Row("E2", lambda: D.extended.worker_devices, "!! RuntimeError RD20"),
    Row("E4", lambda: M2.extended.non_slot_devices([]), f"('{DEVICE}0', '{DEVICE}1')"),
    Row("E5", lambda: [M2.extended.experimental_between_graph, M2.extended.experimental_should_init,
                       M2.extended.should_checkpoint, M2.extended.should_save_summary,
                       M2.extended.experimental_require_static_shapes], "[False, True, True, True, False]"),
    Row("E8", lambda: M2.extended.reduce_to("SUM", X, destinations="CPU:1"), "float32[] 2.0"),
    Row("E10", lambda: M2.extended.reduce_to("MEAN", X, destinations=X), "Mirrored(float32[] 1.0, float32[] 1.0)"),
    Row("E11", lambda: M2.extended.reduce_to("SUM", X, destinations=V2), TWO),
    Row("E13", lambda: M2.extended.reduce_to("SUM", X, ["CPU:0", "CPU:1"]), "!! ValueError RD25", "AssertionError"),
    Row("E14", lambda: M2.extended.reduce_to("SUM", X, None), "!! ValueError RD25", "AttributeError"),
    Row("E15", lambda: M2.extended.reduce_to("SUM", X, ""), "!! ValueError RD24"),
    Row("E16", lambda: M2.extended.reduce_to("SUM", X, 5), "!! ValueError RD25", "AttributeError"),
    Row("E19", lambda: M2.extended.reduce_to("SUM", M2.extended.reduce_to("SUM", X, X), "CPU:0"), "!! ValueError RD16"),
    Row("E20", lambda: M2.run(lambda: M2.extended.reduce_to("SUM", c(1.0), "CPU:0")), "!! RuntimeError RD09"),
    Row("E21", lambda: O.extended.reduce_to("SUM", "x", "CPU:0"), "!! TypeError RD23", "returns 'x'"),
    Row("E22", lambda: O.extended.reduce_to(Agg.SUM, 1, "CPU:0"), "!! TypeError RD25", "AssertionError"),
    Row("E25", lambda: M2.extended.batch_reduce_to("SUM", [(X, X), (Y, Y)]),
        f"[{TWO}, Mirrored(float32[2] [4.0, 6.0], float32[2] [4.0, 6.0])]"),
    Row("E27", lambda: M2.extended.batch_reduce_to("SUM", []), "[]", "AttributeError"),
    Row("E29", lambda: M2.extended.batch_reduce_to("SUM", [(X, "CPU:0"), (M2.run(lambda: c(1)), "CPU:0")]),
        "[float32[] 2.0, int32[] 2]", "ValueError; int32 needs no special way here"),
    Row("E33", lambda: M2.extended.broadcast_to(c(3.0), "CPU:1"), "float32[] 3.0"),
    Row("E34", lambda: M2.extended.broadcast_to(c(3.0), V2), "Mirrored(float32[] 3.0, float32[] 3.0)"),
    Row("E35", lambda: M2.extended.broadcast_to(c(3.0), None), "!! ValueError RD25", "AssertionError"),
    Row("E41", lambda: updated(M2, lambda x: x.assign_add(2.0)),
        "[Mirrored(float32[] 3.0, float32[] 3.0), MirroredVariable(3.0, 3.0)]"),
    Row("E42", lambda: updated(M2, lambda x: x + 1.0)[0], TWO),
    Row("E43", lambda: updated(M2, lambda x: None)[0], "None"),
    Row("E45", lambda: updated(M2, lambda x: x + 1.0, group=False)[0], "(float32[] 2.0, float32[] 2.0)"),
    Row("E45b", lambda: updated(M2, lambda x: 5, group=False)[0], "(5, 5)", "(5,)"),
    Row("E43b", lambda: updated(M2, lambda x: 5)[0], "5"),
    Row("E43c", lambda: updated(M2, lambda x: [x, float(x) + 1.0])[0], "[MirroredVariable(1.0, 1.0), None]"),
    Row("E46", lambda: updated(M2, lambda x: {"a": x + 1.0}, group=False)[0], "{'a': (float32[] 2.0, float32[] 2.0)}"),
    Row("E47", lambda: updated(M2, lambda x, a: x.assign(a), args=(dv(M2, c(5.0), c(6.0)),)), "!! ValueError RD12",
        "the copies become 5 and 6"),
    Row("E47b", lambda: updated(M2, lambda x, a: x.assign(a), args=(dv(M2, c(5.0), c(5.0)),))[1],
        "MirroredVariable(5.0, 5.0)"),
    Row("E48", lambda: updated(M2, lambda x, a=0.0: x.assign(a), kwargs={"a": 7.0})[1], "MirroredVariable(7.0, 7.0)"),
    Row("E49", lambda: M2.extended.update(PLAIN, lambda x: x.assign(2.0)), "!! ValueError RD11", "AssertionError"),
    Row("E50", lambda: M2.extended.update(variable(M4, 1.0), lambda x: x.assign(2.0)), "!! ValueError RD11",
        "updates another strategy's variable"),
    Row("E51", lambda: updated(O, lambda x, a: x.assign_add(a), args=(2.0,))[1], "Variable(3.0)"),
    Row("E52", lambda: updated(C2, lambda x, a: x.assign(a), args=(dv(C2, c(5.0), c(6.0)),))[1],
        "AggregatingVariable(5.0)"),
    Row("E53", lambda: C2.extended.update(c(1.0), lambda x: x), "!! ValueError RD25"),
    Row("E54", lambda: D.extended.update(refdist.Variable(1.0), lambda x, a: x.assign_add(a), args=(1.0,)),
        "float32[] 2.0"),
    Row("E55", in_replica, "MirroredVariable(7.0, 7.0)"),
    Row("E56", lambda: M2.extended.update(V2, lambda x: V2.assign(V2 + 1.0)), TWO),
    Row("E57", seen_in_update, "[float32[] 5.0, float32[] 6.0]"),
    Row("E58", non_slot, "[1, 2]"),
    Row("E60", lambda: [M2.extended.update_non_slot(("CPU:0", "CPU:1"), lambda: c(1.0), group=group)
                        for group in (True, False)],
        "[Mirrored(float32[] 1.0, float32[] 1.0), (float32[] 1.0, float32[] 1.0)]"),
    Row("E62", lambda: M2.run(lambda: M2.extended.update_non_slot(("CPU:0",), lambda: 1)), "!! RuntimeError RD09"),
    Row("E63", lambda: M2.extended.call_for_each_replica(rid), "PerReplica(0, 1)"),
    Row("E64", lambda: M2.run(lambda: M2.extended.call_for_each_replica(lambda: 1)), "!! RuntimeError RD09"),
    Row("E66", lambda: [s.extended.read_var(PLAIN) for s in (O, C2, D)], "[float32[] 3.0, float32[] 3.0, float32[] 3.0]"),
    Row("E67", lambda: [M2.extended.value_container(V2.values[1]) is V2, M2.extended.value_container(V2) is V2],
        "[True, True]"),
    Row("E68", lambda: [M2.extended.value_container(5), O.extended.value_container("x")], "[5, 'x']"),
    Row("E69", lambda: C2.extended.value_container(VC.get()) is VC, "True"),
    Row("E70", lambda: [M2.extended.variable_created_in_scope(V2), M4.extended.variable_created_in_scope(V2),
                        M2.extended.variable_created_in_scope(PLAIN), D.extended.variable_created_in_scope(PLAIN),
                        D.extended.variable_created_in_scope(V2)], "[True, False, False, True, False]"),
    Row("E71", lambda: M2.extended.variable_created_in_scope(c(1.0)), "!! TypeError RD25", "AttributeError"),
    Row("E73", colocated, "MirroredVariable(2.0, 2.0)"),
    Row("E77", lambda: within(O, lambda: O.extended.colocate_vars_with(PLAIN)), "!! ValueError RD11"),
    Row("E79", lambda: within(D, lambda: type(D.extended.colocate_vars_with(V2)).__name__), "'device'"),
    Row("E78", lambda: M2.extended.colocate_vars_with(V2), "!! RuntimeError RD09"),
    Row("E84", lambda: transfers(refdist.NcclAllReduce(), ["CPU:0", "CPU:1"]), "!! ValueError RD25"),
    Row("plan: one device", lambda: transfers(refdist.ReductionToOneDevice(), GPUS),
        "[('GPU:1 -> GPU:0', 16), ('GPU:0 -> GPU:1', 16)]"),
    Row("plan: another device", lambda: transfers(refdist.ReductionToOneDevice("CPU:0"), GPUS),
        "[('GPU:0 -> CPU:0', 16), ('GPU:1 -> CPU:0', 16), ('CPU:0 -> GPU:0', 16), ('CPU:0 -> GPU:1', 16)]"),
    Row("plan: ring", lambda: transfers(refdist.NcclAllReduce(), GPUS),
        "[('GPU:0 -> GPU:1', 8), ('GPU:1 -> GPU:0', 8), ('GPU:0 -> GPU:1', 8), ('GPU:1 -> GPU:0', 8)]"),
    Row("plan: ring, bytes", lambda: sum(n for _, n in transfers(refdist.NcclAllReduce(), [f"GPU:{i}" for i in range(4)])),
        "96"),  # 4 devices, 2 (n - 1) rounds of 16 bytes in all
    Row("plan: hierarchy", lambda: transfers(refdist.HierarchicalCopyAllReduce(), [f"GPU:{i}" for i in range(4)]),
        "[('GPU:1 -> GPU:0', 16), ('GPU:3 -> GPU:2', 16), ('GPU:0 -> GPU:2', 16), ('GPU:2 -> GPU:0', 16), "
        "('GPU:0 -> GPU:1', 16), ('GPU:2 -> GPU:3', 16)]"),
    Row("E88", lambda: refdist.ReductionToOneDevice(accumulation_fn=lambda parts: np.maximum(*parts)).reduce(
        "SUM", dv(M2, f(1, 5), f(3, 2)), "CPU:0"), "float32[2] [3.0, 5.0]"),
    Row("E89", lambda: refdist.ReductionToOneDevice().batch_reduce(SUM, [[X, X]]), "!! ValueError RD25"),  # type: ignore[list-item]
    Row("E90", lambda: refdist.NcclAllReduce(num_packs=-1), "!! ValueError RD25"),
    Row("E91", lambda: refdist.ReductionToOneDevice().reduce(MEAN, Y, Y),
        "Mirrored(float32[2] [2.0, 3.0], float32[2] [2.0, 3.0])"),
    Row("E92", lambda: [refdist.ReduceOp.from_variable_aggregation(Agg.SUM).name,
                        w.outcome(lambda: refdist.ReduceOp.from_variable_aggregation(Agg.NONE))],
        "['SUM', '!! ValueError RD13']"),
    Row("E94", lambda: repr(refdist.RunOptions()), repr("RunOptions(experimental_enable_dynamic_batch_size=True, "
        "experimental_bucketizing_dynamic_shape=False, experimental_xla_options=None)")),
    Row("E97", lambda: refdist.experimental.CollectiveCommunication
        is refdist.experimental.CommunicationImplementation, "True"),
    Row("E100", lambda: str(refdist.experimental.CommunicationOptions(1, 2.0, "RING").merge(  # type: ignore[arg-type]
        refdist.experimental.CommunicationOptions(0, 3.0))),
        "'Options(bytes_per_pack=1,timeout_seconds=3.0, implementation=CommunicationImplementation.RING)'"),
    Row("central: default", lambda: [C1.extended.parameter_devices[0][-5:],
                                     refdist.experimental.CentralStorageStrategy(["GPU:0"]).extended
                                     .parameter_devices[0][-5:]], "['CPU:0', 'GPU:0']"),
    Row("mirrored of one", lambda: M1.extended.reduce_to("SUM", c(2.0), "CPU:0"), "float32[] 2.0"),
    Row("E36", lambda: M2.extended.broadcast_to(c(3.0), ["CPU:0"]), "!! ValueError RD25", "AssertionError"),
    Row("E37", lambda: D.extended.broadcast_to(c(3.0), "CPU:0"), "float32[] 3.0", "NotImplementedError"),
    Row("E38", lambda: O.extended.broadcast_to(c(3.0), "CPU:0"), "float32[] 3.0"),
    Row("E39", lambda: M2.run(lambda: M2.extended.broadcast_to(c(1.0), "CPU:0")), "!! RuntimeError RD09"),
    Row("E80", lambda: [refdist.MirroredStrategy(["CPU:0", "CPU:1"], ops()).run(
        lambda: rc().all_reduce("MEAN", f(1, 2))).values[1] for ops in
        (refdist.ReductionToOneDevice, refdist.HierarchicalCopyAllReduce)],
        "[float32[2] [1.0, 2.0], float32[2] [1.0, 2.0]]"),
    Row("E98", lambda: [refdist.experimental.CommunicationOptions().bytes_per_pack,
                        refdist.experimental.CommunicationOptions().timeout_seconds], "[0, None]"),
    Row("E101", lambda: str(refdist.experimental.CommunicationOptions(bytes_per_pack=5)),
        "'Options(bytes_per_pack=5,timeout_seconds=None, implementation=CommunicationImplementation.AUTO)'"),

    Row("E2b", lambda: D.extended.parameter_devices, "!! RuntimeError RD20"),
    Row("E4b", lambda: [C2.extended.non_slot_devices([]), O.extended.non_slot_devices([])],
        f"[('{DEVICE}0',), ('{DEVICE}0',)]", "Central: ValueError, min() of nothing"),
    Row("E5b", lambda: [[s.extended.experimental_between_graph, s.extended.experimental_should_init,
                         s.extended.should_checkpoint, s.extended.should_save_summary,
                         s.extended.experimental_require_static_shapes] for s in (O, C2, D)],
        str([[False, True, True, True, False]] * 3),
        "Central: experimental_between_graph is True; default: the first two raise NotImplementedError"),
    Row("E19b", lambda: M2.extended.reduce_to("MEAN", M2.extended.reduce_to("SUM", X, X), "CPU:0"), "float32[] 2.0",
        "returns the Mirrored itself, not what is asked for: one array on one device"),
    Row("E21b", lambda: [D.extended.reduce_to("MEAN", 3, "CPU:0"), O.extended.reduce_to("SUM", 3, "CPU:0")],
        "[float64[] 3.0, int32[] 3]", "returns 3 and 3"),
    Row("broadcast_to of a PerReplica", lambda: M2.extended.broadcast_to(dv(M2, f(1), f(2)), "CPU:0"), "!! ValueError RD19"),
    Row("E51b", lambda: updated(O, lambda x: (called_with.append(x), None)[1])[1] is called_with[-1], "True"),
    Row("E52b", central_copy, "[1, True]"),
    Row("E54b", lambda: [D.extended.update(PLAIN, lambda x: x is PLAIN)], "[True]"),
    Row("E58b", lambda: M2.extended.update_non_slot(M2.extended.non_slot_devices(None), lambda: refdist.Variable(
        1.0).device[-5:], group=False), "('CPU:0', 'CPU:1')"),
    Row("E60b", lambda: M2.extended.update_non_slot(("CPU:0", "CPU:1"), lambda: None), "None"),
    Row("E68b", lambda: D.extended.value_container(None), "None"),
    Row("E73b", lambda: [x.device[-5:] for x in colocated().values], "['CPU:0', 'CPU:1']"),
    Row("E77b", lambda: within(C2, lambda: C2.extended.colocate_vars_with(PLAIN)), "!! ValueError RD11"),
    Row("E89b", lambda: [w.outcome(lambda pairs=pairs: refdist.ReductionToOneDevice().batch_reduce(SUM, pairs))
                         for pairs in ([(X, X, X)], [(X, 5)])], "['!! ValueError RD25', '!! ValueError RD25']"),
    Row("E92b", lambda: [w.outcome(lambda a=a: refdist.ReduceOp.from_variable_aggregation(a).name)
                         for a in (Agg.MEAN, Agg.ONLY_FIRST_REPLICA)], "[\"'MEAN'\", '!! ValueError RD13']"),
    Row("E97b", lambda: [x.value for x in refdist.experimental.CommunicationImplementation], "['AUTO', 'RING', 'NCCL']"),
    Row("E98b", lambda: refdist.experimental.CommunicationOptions().implementation.name, "'AUTO'"),
    Row("E100b", merged_options, "[1, 3.0, 'RING', 0]"),
    Row("update: failure", failing_update, "['!! KeyError', MirroredVariable(1.0, 1.0)]",
        "the first copy stays changed"),
    Row("update: scatter", updated_rows, "MirroredVariable([2.0, 2.0], [2.0, 2.0])"),
    Row("update: nests of arguments", lambda: updated(M2, lambda x, a: x.assign(a["k"][0]),
                                                      args=({"k": [dv(M2, c(5.0), c(5.0))]},))[1],
        "MirroredVariable(5.0, 5.0)"),
    Row("update in replicas: different values", differing_in_replicas, "['!! ValueError RD12', MirroredVariable(1.0, 1.0)]",
        "the copies become 1 and 2"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_behaviour(row: Row) -> None:
    assert w.outcome(row.program) == row.outcome
