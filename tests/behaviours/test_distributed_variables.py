"""Topic F: distributed variables: creation, names, initial values, creators, properties, writes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import world as w
from world import C2, M1, M2, M3, M4, Agg, O, Row, Sync, c, dv, f, rc, rid, variable

import refdist


def made(strategy: Any, *args: Any, **kwargs: Any) -> Any:
    return strategy.run(lambda: refdist.Variable(*args, **kwargs))


def counted(strategy: Any) -> list[Any]:
    calls: list[int] = []
    v = variable(strategy, lambda: [calls.append(1), 1.0][1])
    return [len(calls), v]


def initial_in_run() -> list[Any]:
    calls: list[int] = []
    v = M3.run(lambda: refdist.Variable(lambda: [calls.append(rid()), float(rid() + 5)][1]))
    return [calls, v]


def after(strategy: Any, write: Any, start: Any = 0.0, **kwargs: Any) -> Any:
    v = variable(strategy, start, **kwargs)
    strategy.run(lambda: [write(v), None][1])
    return v


def across(strategy: Any, write: Any, start: Any = 0.0, **kwargs: Any) -> list[Any]:
    v = variable(strategy, start, **kwargs)
    result = write(v)
    return [result, v, v.read_value()]


def unchanged(strategy: Any, write: Any, **kwargs: Any) -> list[Any]:
    v = variable(strategy, [1.0, 2.0], **kwargs)
    return [w.outcome(lambda: write(v)), v]


def creators(order: str) -> list[Any]:
    log: list[Any] = []

    def creator(tag: str) -> Any:
        def create(next_creator: Any, **kwargs: Any) -> Any:
            v = next_creator(**kwargs)
            log.append((tag, kwargs["name"], type(v).__name__))
            return v
        return refdist.variable_creator_scope(create)

    if order == "around":
        with creator("outer"), M2.scope(), creator("inner"):
            refdist.Variable(1.0, name="w")
    elif order == "run":
        with creator("outer"):
            M2.run(lambda: [refdist.Variable(1.0, name="w"), None][1])
    else:
        with creator("outer"):
            for strategy in (O, C2):
                variable(strategy, 1.0, name="w")
    return log


def created_by(create: Any, strategy: Any = M2, outside: bool = False) -> Any:
    if outside:
        with refdist.variable_creator_scope(create):
            return variable(strategy, 1.0)
    with strategy.scope(), refdist.variable_creator_scope(create):
        return refdist.Variable(1.0)


def arguments(outside: bool) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def create(next_creator: Any, **kwargs: Any) -> Any:
        seen.append(kwargs)
        return next_creator(**kwargs)

    created_by(create, outside=outside)
    return seen


def kinds(outside: bool) -> list[str]:
    seen: list[str] = []

    def create(next_creator: Any, **kwargs: Any) -> Any:
        v = next_creator(**kwargs)
        seen.append(type(v).__name__)
        return v

    created_by(create, outside=outside)
    return seen


def add_rebinds() -> list[Any]:
    v = kept = variable(M2, 2.0)
    v += 1.0
    return [v, kept]


def deep_copy() -> list[Any]:
    v = variable(M2, 1.0)
    twin = copy.deepcopy(v)
    twin.assign(5.0)
    return [v, twin, twin.distribute_strategy is M2]


def read_in_merge() -> Any:
    v = variable(M2, 0.0, synchronization=Sync.ON_READ, aggregation=Agg.SUM)

    def step() -> Any:
        v.assign(1.0 + rid())
        return v.read_value(), rc().merge_call(lambda s: v.read_value())

    return M2.run(step)


def user_array_is_copied() -> list[Any]:
    mine = f(1, 2)
    v = variable(M2, mine)
    mine[0] = 9
    v.assign(mine)
    mine[1] = 9
    return [v, w.outcome(lambda: v.numpy().__setitem__(0, 3.0))]


OPERATORS = variable(M2, 2.0)
ITEMS = variable(M2, [1.0, 2.0, 3.0])
SUM_READ = {"synchronization": Sync.ON_READ, "aggregation": Agg.SUM}


def created_in_replicas() -> list[Any]:
    seen: list[Any] = []

    def step() -> Any:
        seen.append(refdist.Variable(1.0, name="inrun"))
        return seen[-1]

    made = M2.run(step)
    return [len(seen), seen[0] is made, seen[1] is made, [part.name for part in made.values]]


def placed() -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []

    def create(next_creator: Any, **kwargs: Any) -> Any:
        v = next_creator(**kwargs)
        seen.append((v.name, v.device[-5:]))
        return v

    created_by(create, outside=True)
    return seen


def plain_in_one_replica() -> Any:
    v = refdist.Variable(0.0)
    M1.run(lambda: v.assign_add(1.0))
    return v


def plain_in_two_replicas() -> list[Any]:
    v = refdist.Variable(0.0)
    return [w.outcome(lambda: M2.run(lambda: v.assign_add(1.0))), v]


def mirrored_in_merge() -> list[Any]:
    v = variable(M2, 0.0)
    return [w.outcome(lambda: M2.run(lambda: v.assign(1.0 + rid()))), v]


def failed_writes() -> list[Any]:
    v = variable(M2, 0.0, aggregation=Agg.SUM)
    writes = (lambda: v.assign_add(f(1, 2)), lambda: v.assign_sub(1.0) if rid() else v.assign_add(1.0),
              lambda: None if rid() else v.assign_add(1.0))
    return [*(w.outcome(lambda write=write: M2.run(write)) for write in writes), v]


ROWS = [
    Row("F2", lambda: repr(variable(M2, 1.0, **SUM_READ)).splitlines()[1], "'  0..1 CPU:0 .. CPU:1: float32 scalar 1.'",
        "one line for each copy, equal or not"),
    Row("F4", lambda: [variable(O, 1.0).distribute_strategy is O, refdist.Variable(1.0).distribute_strategy], "[True, None]"),
    Row("F5", lambda: [variable(M3, 1.0, name="w").name, [x.name for x in variable(M3, 1.0, name="w").values]],
        "['w:0', ['w:0', 'w/replica_1:0', 'w/replica_2:0']]"),
    Row("F6", lambda: [variable(M2, 1.0, name="w").name for _ in range(2)], "['w:0', 'w:0']"),
    Row("F9", lambda: made(M2, 1.0, name="inrun"), "MirroredVariable(1.0, 1.0)"),
    Row("F10", lambda: M2.run(lambda: refdist.Variable(1.0, name=f"a{rid()}")), "!! RuntimeError RD02"),
    Row("F11", lambda: M2.run(lambda: [refdist.Variable(1.0) for _ in range(2 - rid())]), "!! RuntimeError RD01",
        "pairs the variables by order, in silence"),
    Row("F12", lambda: M2.run(lambda: [refdist.Variable(1.0) for _ in range(1 + rid())]), "!! RuntimeError RD01"),
    Row("F14", lambda: counted(M2), "[1, MirroredVariable(1.0, 1.0)]"),
    Row("F16", initial_in_run, "[[0], MirroredVariable(5.0, 5.0, 5.0)]"),
    Row("F17", lambda: M3.run(lambda: refdist.Variable(float(rid()))), "MirroredVariable(0.0, 0.0, 0.0)"),
    Row("F18", lambda: variable(M2, dv(M2, c(1.0), c(2.0))), "!! ValueError RD19"),
    Row("F19", lambda: variable(M2, variable(M2, 3.0)), "MirroredVariable(3.0, 3.0)"),
    Row("F21", lambda: counted(O), "[1, Variable(1.0)]"),
    Row("F22", lambda: counted(C2), "[1, AggregatingVariable(1.0)]"),
    Row("F25", lambda: variable(M2, 1.0, **SUM_READ).trainable, "False"),
    Row("F26", lambda: variable(M2, 1.0, trainable=True, **SUM_READ).trainable, "True"),
    Row("F27", lambda: [variable(s, 1.0, synchronization=Sync.ON_READ).trainable for s in (O, C2)], "[False, False]"),
    Row("F28", lambda: [w.outcome(lambda: variable(M2, 1.0, synchronization="ON_READ")),
                        w.outcome(lambda: variable(M2, 1.0, aggregation="SUM"))],
        "['!! ValueError RD25', '!! ValueError RD25']"),
    Row("F29", lambda: variable(M2, 1.0, synchronization=Sync.NONE), "!! ValueError RD20"),
    Row("F30", lambda: variable(M2, 1, aggregation=Agg.MEAN), "!! ValueError RD13"),
    Row("F31", lambda: [variable(M2, True), across(M2, lambda v: v.assign("y"), "x")[0]],
        "[MirroredVariable(True, True), Mirrored(<U1[] y, <U1[] y)]"),
    Row("F32", lambda: [ITEMS.shape, str(ITEMS.dtype), ITEMS.device[-5:], ITEMS.trainable, ITEMS.get_shape()],
        "[(3,), 'float32', 'CPU:0', True, (3,)]"),
    Row("F33", lambda: M2.run(lambda: ITEMS.device[-5:]), "PerReplica('CPU:0', 'CPU:1')"),
    Row("F38", lambda: [OPERATORS + 1.0, 1.0 - OPERATORS, OPERATORS * OPERATORS, OPERATORS / 2.0, OPERATORS // 2.0,
                        OPERATORS % 2.0, OPERATORS ** 2.0, -OPERATORS, abs(OPERATORS), OPERATORS > 1.0],
        "[float32[] 3.0, float32[] -1.0, float32[] 4.0, float32[] 1.0, float32[] 1.0, float32[] 0.0, float32[] 4.0, "
        "float32[] -2.0, float32[] 2.0, bool[] True]"),
    Row("F39", lambda: [f(1, 2, 3) @ ITEMS, np.exp(OPERATORS * 0), np.add(f(1), OPERATORS)],
        "[float32[] 14.0, float32[] 1.0, float32[1] [3.0]]"),
    Row("F40", add_rebinds, "[float32[] 3.0, MirroredVariable(2.0, 2.0)]"),
    Row("F41", lambda: [ITEMS[0], ITEMS[1:]], "[float32[] 1.0, float32[2] [2.0, 3.0]]"),
    Row("F47", lambda: variable(M4, 5.0, **SUM_READ).read_value(), "float32[] 20.0"),
    Row("F48", lambda: across(M4, lambda v: v.assign(10.0), 5.0, **SUM_READ)[1:],
        "[SyncOnReadVariable(2.5, 2.5, 2.5, 2.5), float32[] 10.0]"),
    Row("F49", lambda: across(M4, lambda v: v.assign(10), 0, **SUM_READ)[1:],
        "[SyncOnReadVariable(4, 2, 2, 2), int32[] 10]", "2, 2, 2, 2, which read 8"),
    Row("F49b", lambda: across(M4, lambda v: v.assign(-7), 0, **SUM_READ)[2], "int32[] -7"),
    Row("F50", lambda: unchanged(M2, lambda v: v.assign_add([1.0, 1.0]), **SUM_READ),
        "['!! ValueError RD14', SyncOnReadVariable([1.0, 2.0], [1.0, 2.0])]"),
    Row("F51", lambda: [across(M2, lambda v: v.assign(2.0, read_value=False))[0],
                        across(M2, lambda v: v.assign(2.0, read_value=False), **SUM_READ)[0]], "[None, None]"),
    Row("F52", lambda: unchanged(M2, lambda v: v.assign([1.0, 2.0, 3.0])),
        "['!! ValueError RD04', MirroredVariable([1.0, 2.0], [1.0, 2.0])]"),
    Row("F53", lambda: unchanged(M2, lambda v: v.assign_add([[1.0, 2.0]])),
        "['!! ValueError RD04', MirroredVariable([1.0, 2.0], [1.0, 2.0])]"),
    Row("dtype", lambda: [w.outcome(lambda: variable(M2, 1).assign(1.5)),
                          across(M2, lambda v: v.assign(np.float64(1.5)))[1]], "['!! ValueError RD05', MirroredVariable(1.5, 1.5)]"),
    Row("F54", lambda: unchanged(M2, lambda v: v.assign(dv(M2, f(1, 1), f(2, 2)))),
        "['!! ValueError RD12', MirroredVariable([1.0, 2.0], [1.0, 2.0])]", "the copies become 1 and 2"),
    Row("F55", lambda: across(M2, lambda v: v.assign(dv(M2, 1.0, 1.0)))[1], "MirroredVariable(1.0, 1.0)"),
    Row("F56", lambda: after(M2, lambda v: v.assign_add(1.0), aggregation=Agg.SUM), "MirroredVariable(2.0, 2.0)", "ValueError"),
    Row("F57", lambda: after(M2, lambda v: v.assign_add(1.0), aggregation=Agg.MEAN), "MirroredVariable(1.0, 1.0)"),
    Row("F58", lambda: after(M2, lambda v: v.assign_add(1.5 + rid()), aggregation=Agg.SUM), "MirroredVariable(4.0, 4.0)",
        "AttributeError"),
    Row("F61", lambda: after(M2, lambda v: v.assign(5.0 + rid()), aggregation=Agg.ONLY_FIRST_REPLICA),
        "MirroredVariable(5.0, 5.0)"),
    Row("F63", lambda: after(M2, lambda v: v.assign(1.0 + rid())), "!! ValueError RD12", "the copies become 1 and 2"),
    Row("F63b", lambda: after(M2, lambda v: v.assign(1.0)), "MirroredVariable(1.0, 1.0)"),
    Row("F64", lambda: after(C2, lambda v: v.assign(1.0)), "!! ValueError RD13"),
    Row("F65", lambda: after(M2, lambda v: v.assign_sub(f(1, 2) * (rid() + 1)), [1.0, 1.0], aggregation=Agg.MEAN),
        "MirroredVariable([-0.5, -2.0], [-0.5, -2.0])"),
    Row("F66", lambda: M2.run(lambda: variable_sum.assign_add(1.0)), "PerReplica(float32[] 2.0, float32[] 2.0)"),
    Row("F67", lambda: [across(M2, lambda v: v.assign_add(1.0))[0], across(M2, lambda v: v.assign_add(1.0) + 1.0)[0]],
        "[Mirrored(float32[] 1.0, float32[] 1.0), float32[] 2.0]"),
    Row("F70", lambda: in_scope(M4, lambda: [OPERATORS.read_value(), OPERATORS + 1.0]), "[float32[] 2.0, float32[] 3.0]",
        "read_value raises, operators work; all copies are equal, so reading is safe"),
    Row("F70b", lambda: in_scope(M4, lambda: OPERATORS.assign(1.0)), "!! RuntimeError RD10"),
    Row("F71", lambda: M2.run(lambda: refdist_plain.assign_add(1.0)), "!! ValueError RD11", "every replica adds"),
    Row("F72", lambda: M2.run(lambda: refdist_plain + 1.0), "PerReplica(float32[] 4.0, float32[] 4.0)"),
    Row("F75", lambda: unchanged(M2, lambda v: v.scatter_update(([0], [5.0]))),
        "['!! TypeError RD25', MirroredVariable([1.0, 2.0], [1.0, 2.0])]"),
    Row("F76", lambda: unchanged(M2, lambda v: v.scatter_add(refdist.IndexedSlices([1.0], [2]))),
        "['!! ValueError RD25', MirroredVariable([1.0, 2.0], [1.0, 2.0])]"),
    Row("F77", lambda: [ITEMS.sparse_read([2, 0]), w.outcome(lambda: ITEMS.sparse_read([3])),
                        w.outcome(lambda: ITEMS.sparse_read([-1]))],
        "[float32[2] [3.0, 1.0], '!! ValueError RD25', '!! ValueError RD25']", "AttributeError"),
    Row("scatter_div", lambda: across(O, lambda v: v.scatter_div(refdist.IndexedSlices(c([2, -2]), [0, 1])), [-7, 7])[1],
        "Variable([-3, -3])"),
    Row("scatter_div 0", lambda: w.outcome(lambda: variable(O, [1, 2]).scatter_div(refdist.IndexedSlices(c([0]), [0]))),
        "'!! ValueError RD25'", "InvalidArgumentError"),
    Row("F79", lambda: creators("around"), "[('outer', 'w', 'ResourceVariable'), ('outer', 'w/replica_1/', 'ResourceVariable'), "
        "('inner', 'w', 'MirroredVariable')]"),
    Row("F84", lambda: created_by(lambda n, **k: n(**{**k, "initial_value": 42.0})), "MirroredVariable(42.0, 42.0)"),
    Row("F85", lambda: created_by(lambda n, **k: "not a variable"), "'not a variable'"),
    Row("F86", lambda: created_by(lambda n, **k: "nope", outside=True), "!! TypeError RD25", "AttributeError"),
    Row("F86b", lambda: created_by(lambda n, **k: n(**{**k, "initial_value": float(len(k["name"] or ""))}), outside=True),
        "!! ValueError RD12", "the copies differ"),
    Row("F88", lambda: creators("run"), "[('outer', 'w', 'ResourceVariable'), ('outer', 'w/replica_1/', 'ResourceVariable')]"),
    Row("F90", lambda: creators("one copy"), "[('outer', 'w', 'ResourceVariable'), ('outer', 'w', 'ResourceVariable')]"),
    Row("F93", lambda: across(M2, lambda v: v.assign([1.0, 2.0]), [1.0], shape=(None,))[1],
        "MirroredVariable([1.0, 2.0], [1.0, 2.0])"),
    Row("F95", deep_copy, "[MirroredVariable(1.0, 1.0), MirroredVariable(5.0, 5.0), True]"),
    Row("F97", lambda: [isinstance(variable(s, 1.0), kind) for s in (M2, C2) for kind in
                        (refdist.Variable, refdist.DistributedValues)], "[True, True, True, False]"),
    Row("F109", read_in_merge, "(PerReplica(float32[] 1.0, float32[] 2.0), PerReplica(float32[] 3.0, float32[] 3.0))"),
    Row("own array", user_array_is_copied, "[MirroredVariable([9.0, 2.0], [9.0, 2.0]), '!! ValueError']"),
    Row("ref", lambda: [OPERATORS.ref() == OPERATORS.ref(), OPERATORS.ref() == ITEMS.ref(),
                        {OPERATORS.ref(): 1}[OPERATORS.ref()]], "[True, False, 1]"),
    Row("one replica", lambda: after(M1, lambda v: v.assign_add(1.0), aggregation=Agg.SUM), "MirroredVariable(1.0)"),
    Row("F15", lambda: len({x.numpy().tobytes() for x in variable(M4, lambda: np.random.default_rng().random(2)).values}), "1"),
    Row("F20", lambda: variable(M2, lambda *a, **k: [len(a), len(k)]), "MirroredVariable([0, 0], [0, 0])"),
    Row("F36", lambda: [len(OPERATORS.values), OPERATORS.values[1].device[-5:]], "[2, 'CPU:1']"),
    Row("F62", lambda: after(M2, lambda v: v.assign(5.0), aggregation=Agg.ONLY_FIRST_REPLICA), "MirroredVariable(5.0, 5.0)"),
    Row("F80", lambda: kinds(outside=False), "['MirroredVariable']"),
    Row("F81", lambda: kinds(outside=True), "['ResourceVariable', 'ResourceVariable']"),
    Row("F82", lambda: sorted(arguments(outside=False)[0]),
        "['aggregation', 'caching_device', 'constraint', 'dtype', 'experimental_enable_variable_lifting', 'import_scope', "
        "'initial_value', 'name', 'shape', 'synchronization', 'trainable', 'validate_shape', 'variable_def']"),
    Row("F83", lambda: [[k["name"], k["use_resource"], k["distribute_strategy"] is M2, callable(k["initial_value"])]
                        for k in arguments(outside=True)],
        "[[None, True, True, False], ['Variable/replica_1/', True, True, True]]"),

    Row("F9b", created_in_replicas, "[2, True, True, ['inrun:0', 'inrun/replica_1:0']]"),
    Row("F22b", lambda: type(variable(C2, 1.0, synchronization=Sync.ON_READ)).__name__, "'AggregatingVariable'"),
    Row("F27b", lambda: refdist.Variable(1.0, synchronization=Sync.ON_READ).trainable, "False"),
    Row("F32b", lambda: ITEMS.distribute_strategy is M2, "True"),
    Row("F38b", lambda: [OPERATORS <= 1.0, OPERATORS >= 2.0, OPERATORS != 2.0, 7.0 // OPERATORS, 2.0 ** OPERATORS],
        "[bool[] False, bool[] True, bool[] False, float32[] 3.0, float32[] 4.0]"),
    Row("F67b", lambda: across(M2, lambda v: v.assign_add(1.0).numpy())[0], "float32[] 1.0"),
    Row("F71b", plain_in_one_replica, "Variable(1.0)"),
    Row("F71c", plain_in_two_replicas, "['!! ValueError RD11', Variable(0.0)]", "2.0: every replica adds"),
    Row("F81b", placed, "[('Variable:0', 'CPU:0'), ('Variable/replica_1:0', 'CPU:1')]"),
    Row("F93b", lambda: variable(M2, [1.0], shape=(None,)).shape, "(None,)"),
    Row("F93c", lambda: w.outcome(lambda: variable(M2, [1.0], shape=(None,)).assign([[1.0]])), "'!! ValueError RD04'"),
    Row("F95b", lambda: [copy.deepcopy(variable(M2, 1.0, **SUM_READ)), copy.deepcopy(variable(C2, 1.0))],
        "[SyncOnReadVariable(1.0, 1.0), AggregatingVariable(1.0)]"),
    Row("F97b", lambda: isinstance(ITEMS, np.ndarray), "False"),
    Row("F109b", mirrored_in_merge, "['!! ValueError RD12', MirroredVariable(0.0, 0.0)]",
        "the copies become 1 and 2, and merge_call reads replica 0's"),
    Row("failed writes in replicas", failed_writes,
        "['!! ValueError RD04', '!! RuntimeError RD02', '!! RuntimeError RD01', MirroredVariable(0.0, 0.0)]"),
]
variable_sum = variable(M2, 0.0, aggregation=Agg.SUM)
refdist_plain = refdist.Variable(3.0)


def in_scope(strategy: Any, program: Any) -> Any:
    with strategy.scope():
        return program()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_behaviour(row: Row) -> None:
    assert w.outcome(row.program) == row.outcome


def test_equal_copies_share_one_array() -> None:
    v = variable(M4, np.zeros(1000, np.float32), aggregation=Agg.MEAN)
    v.assign_add(np.ones(1000, np.float32))
    M4.run(lambda: v.assign_sub(np.ones(1000, np.float32) * rid()))
    M4.extended.update(v, lambda x: x.assign(x * 2.0))
    assert len({id(part.read_value()) for part in v.values}) == 1
