"""Topics A (contexts, scope, devices) and B (run): number, program, outcome, and what TensorFlow 2.21 does if it
does something else on purpose."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
import world as w
from world import C1, C2, M1, M2, M3, M4, Agg, D, O, Row, Sync, c, dv, f, rc, rid, variable

import refdist

MIRRORED = "/job:localhost/replica:0/task:0/device:CPU:"


@dataclasses.dataclass
class Box:
    content: Any


def within(strategy: Any, program: Any) -> Any:
    with strategy.scope():
        return program()


def log_of(strategy: Any, step: Any) -> list[Any]:
    log: list[Any] = []
    strategy.run(lambda: step(log))
    return log


def order_of_execution(log: list[Any]) -> None:
    log.append(f"a{rid()}")
    rc().merge_call(lambda s: log.append("m"))
    log.append(f"b{rid()}")


def raise_in_replica_0(log: list[Any]) -> None:
    log.append(rid())
    if rid() == 0:
        raise KeyError("boom")


def started_before_the_error() -> list[Any]:
    log: list[Any] = []
    try:
        M2.run(lambda: raise_in_replica_0(log))
    except KeyError:
        log.append("caught")
    return log


def swallowing() -> Any:
    try:
        return rc().merge_call(lambda s: 1 / 0)
    except ZeroDivisionError:
        return "caught"


def is_same_list() -> list[bool]:
    mine = [1, 2]
    seen: list[bool] = []
    M2.run(lambda x: seen.append(x is mine), args=(mine,))
    return seen


def entered(context: refdist.ReplicaContext) -> list[Any]:
    with context:
        return [rid(), refdist.get_strategy() is M2]


def sized(program: Any, **counts: int) -> Any:
    refdist.config.set_simulated_devices(**counts)
    try:
        return program()
    finally:
        refdist.config.reset_simulated_devices()


def local_value() -> Any:
    mine = threading.local()
    mine.value = 1
    return M2.run(lambda: hasattr(mine, "value"))


SHARED = f(3.0)
P = dv(M2, f(1.0), f(2.0))

ROWS = [
    Row("A1", lambda: [rc() is not None, refdist.in_cross_replica_context(), refdist.has_strategy(),
                       rc().strategy is D], "[True, False, False, True]"),
    Row("A2", lambda: [isinstance(D, refdist.Strategy), D.num_replicas_in_sync], "[True, 1]"),
    Row("A3", lambda: [rid(), rc().num_replicas_in_sync], "[0, 1]"),
    Row("A6", lambda: within(M2, lambda: refdist.get_strategy() is M2), "True"),
    Row("A7", lambda: M2.run(lambda: [rid(), rc().num_replicas_in_sync, refdist.in_cross_replica_context(),
                                      refdist.has_strategy(), rc().strategy is M2]),
        "[PerReplica(0, 1), 2, False, True, True]", "the id is an int32 tensor; a Python int indexes lists and keeps "
        "dtypes"),
    Row("A8", lambda: M2.run(lambda: refdist.get_strategy() is M2), "True"),
    Row("A9", lambda: [M2.run(lambda: 1), rc() is not None, refdist.has_strategy()], "[1, True, False]"),
    Row("A10", lambda: M2.run(lambda: rc().merge_call(
        lambda s: [s is M2, rc(), refdist.in_cross_replica_context()])), "[True, None, True]"),
    Row("A12", lambda: within(M2, lambda: within(M3, lambda: 1)), "!! RuntimeError RD10"),
    Row("A13", lambda: within(M2, lambda: within(refdist.MirroredStrategy(["CPU:0", "CPU:1"]), lambda: 1)),
        "!! RuntimeError RD10"),
    Row("A16", lambda: within(D, lambda: within(M2, lambda: refdist.get_strategy() is M2)), "True"),
    Row("A17", lambda: M2.run(lambda: within(M2, lambda: 1)), "!! RuntimeError RD09"),
    Row("A19", lambda: M2.run(lambda: M2.run(lambda: 1)), "!! RuntimeError RD09"),
    Row("A20", lambda: M2.run(lambda: M3.run(lambda: 1)), "!! RuntimeError RD10"),
    Row("A22", lambda: within(M2, lambda: M3.run(lambda: 1)), "!! RuntimeError RD10"),
    Row("A24", lambda: within(M2, lambda: D.run(lambda: 1)), "!! RuntimeError RD10"),
    Row("A25", lambda: M2.run(lambda: M2.reduce("SUM", c(1.0), axis=None)), "!! RuntimeError RD09"),
    Row("A27", lambda: M2.reduce("SUM", dv(M2, 1.0, 2.0), axis=None), "float32[] 3.0",
        "AttributeError; numbers are converted like any other value"),
    Row("A29", lambda: M2.run(lambda: M2.gather(f(1.0), axis=0)), "!! RuntimeError RD09"),
    Row("A30", lambda: within(M3, lambda: M2.gather(f(1.0), axis=0)), "!! RuntimeError RD10"),
    Row("A36", lambda: rc().merge_call(lambda s, x: [s is D, refdist.in_cross_replica_context(), rc(), x], args=(3,)),
        "[True, True, None, 3]"),
    Row("A37", lambda: [rc().all_reduce("SUM", f(1.0, 2.0)), rc().all_reduce("MEAN", 5)],
        "[float32[2] [1.0, 2.0], float64[] 5.0]", "MEAN of an int stays an int; a second device changes no dtypes"),
    Row("A41", lambda: refdist.ReplicaContext(M2, 17).replica_id_in_sync_group, "!! ValueError RD25",
        "17 of 2 replicas is refused"),
    Row("A43", lambda: within(M2, lambda: refdist.experimental_set_strategy(M3)), "!! RuntimeError RD09"),
    Row("A52", lambda: log_of(M2, lambda log: None) + M2.extended.update(
        variable(M2, 1.0), lambda x: [refdist.in_cross_replica_context(), rc()], group=False),
        "[(True, True), (None, None)]"),
    Row("A53", lambda: M2.run(lambda: rc().merge_call(lambda s: s.run(rid))), "PerReplica(0, 1)"),
    Row("A54", lambda: [s.num_replicas_in_sync for s in (D, O, M1, M2, M4, C1, C2)], "[1, 1, 1, 2, 4, 1, 2]"),
    Row("A55", lambda: [s.cluster_resolver for s in (D, O, M2, C2)], "[None, None, None, None]"),
    Row("A66", lambda: refdist.MirroredStrategy(["CPU:0", "/cpu:0"]), "!! ValueError RD25"),
    Row("A67", lambda: refdist.MirroredStrategy([]).num_replicas_in_sync, "1"),
    Row("A69", lambda: refdist.MirroredStrategy(["XPU:0", "XPU:1"]), "!! ValueError RD24"),
    Row("A70", lambda: refdist.MirroredStrategy(["GPU:0", "GPU:1"]).num_replicas_in_sync, "2"),
    Row("A72", lambda: refdist.MirroredStrategy(["foo"]), "!! ValueError RD24"),
    Row("A73", lambda: refdist.MirroredStrategy(["cpu:0", "cpu:1"]).extended.worker_devices,
        f"('{MIRRORED}0', '{MIRRORED}1')"),
    Row("A74", lambda: refdist.MirroredStrategy(["/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"]),
        "!! RuntimeError RD25"),
    Row("central: devices", lambda: [w.outcome(lambda args=args: refdist.experimental.CentralStorageStrategy(*args))
                                     for args in (([],), ((),), (["CPU:0"] * 2,), (["/job:worker/task:1/cpu:0"],),
                                                  (["CPU:0"], "/job:worker/task:1/cpu:0"), (["CPU:0"], ""))],
        str([*["!! ValueError RD25"] * 3, *["!! RuntimeError RD25"] * 2, "!! ValueError RD24"]),
        "accepts them all; [] is a strategy of 0 replicas that fails when it runs"),
    Row("A75", lambda: refdist.OneDeviceStrategy("/gpu:0").run(lambda: c(1.0) + 1), "float32[] 2.0"),
    Row("B1", lambda: M2.run(lambda: f(1.0, 2.0)), "PerReplica(float32[2] [1.0, 2.0], float32[2] [1.0, 2.0])"),
    Row("B3", lambda: [M2.run(lambda: None), M1.run(lambda: None), O.run(lambda: None)], "[None, None, None]"),
    Row("B5", lambda: M2.run(lambda: float("1.5")), "PerReplica(1.5, 1.5)"),
    Row("B6", lambda: M2.run(rid), "PerReplica(0, 1)"),
    Row("B7", lambda: M2.run(lambda: int("123456789")), "PerReplica(123456789, 123456789)"),
    Row("B9", lambda: M2.run(lambda: f"r{rid()}"), "PerReplica('r0', 'r1')"),
    Row("B11", lambda: M2.run(lambda: SHARED), "PerReplica(float32[1] [3.0], float32[1] [3.0])",
        "bare; an array is one value per replica whether or not it is shared"),
    Row("B13", lambda: M2.run(lambda: np.ones(2)), "PerReplica(float64[2] [1.0, 1.0], float64[2] [1.0, 1.0])"),
    Row("B14", lambda: M2.run(lambda: {"a": [c(1), (c(2), None)]}),
        "{'a': [PerReplica(int32[] 1, int32[] 1), (PerReplica(int32[] 2, int32[] 2), None)]}"),
    Row("B19", lambda: type(M2.run(lambda: Box(1))).__name__, "'PerReplica'"),
    Row("B21", lambda: M2.run(lambda: [c(1)] * (rid() + 1)), "!! ValueError RD21"),
    Row("B22", lambda: M2.run(lambda: (1,) * (rid() + 1)), "!! ValueError RD21"),
    Row("B24", lambda: M2.run(lambda: [1] if rid() == 0 else (1,)), "!! ValueError RD21"),
    Row("B25", lambda: M2.run(lambda: {"a": 1} if rid() == 0 else [1]), "!! ValueError RD21"),
    Row("B26", lambda: M2.run(lambda: c(2) if rid() == 0 else [c(1)]), "!! ValueError RD21",
        "passes; the order of the replicas does not decide"),
    Row("B27", lambda: M2.run(lambda: [c(1)] if rid() == 0 else c(2)), "!! ValueError RD21"),
    Row("B29", lambda: M2.run(lambda: f(1.0) if rid() == 0 else c(2)), "PerReplica(float32[1] [1.0], int32[] 2)"),
    Row("B31", lambda: M2.run(lambda x: x, args=5), "!! ValueError RD25"),
    Row("B32", lambda: M2.run(lambda x, y: (x, y), args=[1, 2]), "(1, 2)"),
    Row("B34", lambda: M2.run(lambda x, y=0: [x, y], args=(1,), kwargs={"y": 2}), "[1, 2]"),
    Row("B35", lambda: M2.run(lambda y: y + 1, kwargs={"y": dv(M2, 10, 20)}), "PerReplica(11, 21)"),
    Row("B36", lambda: M2.run(lambda x, d: [x, d["k"][1]], args=(dv(M2, 1, 2), {"k": [0, dv(M2, "a", "b")]})),
        "[PerReplica(1, 2), PerReplica('a', 'b')]"),
    Row("B38", lambda: M2.run(lambda box: type(box.content).__name__, args=(Box(dv(M2, 1, 2)),)), "'PerReplica'"),
    Row("B39", lambda: M2.run(lambda: np.asarray(P) + 1), "PerReplica(float32[1] [2.0], float32[1] [3.0])"),
    Row("B40", lambda: np.add(P, 1.0), "!! ValueError RD19"),
    Row("B41", lambda: P + 1, "!! TypeError RD19"),
    Row("B45", is_same_list, "[False, False]"),
    Row("B47", lambda: M2.run(lambda d: list(d), args=({"b": 1, "a": 2},)), "['b', 'a']"),
    Row("B48", lambda: M2.run(lambda x: x + 1.0, args=(variable(M2, 1.0),)),
        "PerReplica(float32[] 2.0, float32[] 2.0)"),
    Row("B51", lambda: M2.run(variable(M2, 1.0).value), "PerReplica(float32[] 1.0, float32[] 1.0)"),
    Row("B52", lambda: M2.run(lambda x: x * 10.0, args=(M2.extended.reduce_to("SUM", P, P),)),
        "PerReplica(float32[1] [30.0], float32[1] [30.0])"),
    Row("B53", lambda: M2.run(lambda x: x), "!! TypeError"),
    Row("B55", lambda: M2.run(lambda: [][rid() - 1] if rid() else 1), "!! IndexError"),
    Row("B56", started_before_the_error, "[0, 'caught']"),
    Row("B57", lambda: log_of(M3, order_of_execution), "['a0', 'a1', 'a2', 'm', 'b0', 'b1', 'b2']"),
    Row("B58", lambda: M2.run(lambda: rc().merge_call(lambda s: 1 / 0)), "!! ZeroDivisionError"),
    Row("B59", lambda: M2.run(swallowing), "!! ZeroDivisionError"),
    Row("B60", lambda: M2.run(lambda: 1 if rid() else rc().all_reduce("SUM", 1.0)), "!! RuntimeError RD01"),
    Row("B61", lambda: M2.run(lambda: rc().all_reduce("SUM", 1.0) if rid() else 1), "!! RuntimeError RD01"),
    Row("B65", lambda: M2.run(lambda: 1, options=refdist.RunOptions(False)), "1"),
    Row("B75", lambda: M3.run(lambda: refdist.get_replica_context().devices[0][-5:]),
        "PerReplica('CPU:0', 'CPU:1', 'CPU:2')"),
    Row("B77", lambda: type(M2.run(lambda: (i for i in range(2)))).__name__, "'PerReplica'"),
    Row("B78", lambda: M2.run(lambda *a, **k: [len(a), sorted(k)], args=(1, 2), kwargs={"z": 1}), "[2, ['z']]"),
    Row("B79", lambda: C2.run(rid), "PerReplica(0, 1)"),
    Row("B80", lambda: O.run(lambda: [rid(), rc().num_replicas_in_sync]), "[0, 1]"),
    Row("B82", lambda: D.run(lambda: 1), "1"),
    Row("B90", lambda: M2.run(lambda box: type(box.content).__name__, args=(Box(P),)), "'PerReplica'"),
    Row("B91", lambda: M2.run(lambda s: [type(x).__name__ for x in s], args=({P},)), "['PerReplica']"),
    Row("B93", lambda: M2.run(lambda: P) is P, "True"),
    Row("B94", lambda: M2.run(lambda: rc().merge_call(lambda s, x: s.extended.reduce_to("SUM", x, x), args=(c(1.0),))),
        "PerReplica(float32[] 2.0, float32[] 2.0)"),
    Row("B95", lambda: M2.run(lambda: ON_READ) is ON_READ, "True"),
    Row("B96", lambda: M2.run(lambda: PLAIN) is PLAIN, "True"),
    Row("B97", lambda: C2.run(lambda: CENTRAL) is CENTRAL, "True"),
    Row("B100", lambda: M2.run(lambda: rid() < 5), "True"),
    Row("B101", lambda: M2.run(lambda: float("nan")), "PerReplica(nan, nan)"),
    Row("B102", lambda: M2.run(lambda: 1.5), "1.5"),
    Row("B104", lambda: M2.run(lambda: [b"x", None, ...]), "[b'x', None, Ellipsis]"),
    Row("A39", lambda: entered(refdist.ReplicaContext(M2, 1)), "[1, True]"),
    Row("A68", lambda: sized(lambda: refdist.MirroredStrategy().extended.worker_devices, cpu=2),
        f"('{MIRRORED}0', '{MIRRORED}1')"),
    Row("B12", lambda: M2.run(lambda: SHARED).values[1] is SHARED, "True"),
    Row("B64", lambda: M2.run(lambda: next(iter([]))), "!! StopIteration"),
    Row("B81", lambda: D.run(lambda: [rid(), type(rc()).__name__]), "[0, 'ReplicaContext']"),
    Row("B84", lambda: M2.run(lambda: threading.current_thread() is threading.main_thread()), "True",
        "False: replicas are threads; here print and pdb work"),
    Row("B85", lambda: local_value(), "True", "False for MirroredStrategy: replicas are threads"),
    Row("B89", lambda: [n for n in dir(refdist.ReplicaContext) if not n.startswith("_")],
        "['all_gather', 'all_reduce', 'devices', 'merge_call', 'num_replicas_in_sync', 'replica_id_in_sync_group', "
        "'strategy']"),
    Row("B92", lambda: M2.run(lambda d: [type(k).__name__ for k in d], args=({P: 1},)), "['PerReplica']"),
]
ON_READ = variable(M2, 1.0, synchronization=Sync.ON_READ, aggregation=Agg.SUM)
PLAIN = refdist.Variable(1.0)
CENTRAL = variable(C2, 1.0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_behaviour(row: Row) -> None:
    assert w.outcome(row.program) == row.outcome
