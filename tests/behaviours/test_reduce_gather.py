"""Topic D: Strategy.reduce, gather, experimental_local_results, experimental_distribute_values_from_function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import world as w
from world import C1, C2, M1, M2, M4, Agg, D, O, Row, Sync, c, dv, f, rid, variable

import refdist

BATCH = dv(M2, f(0, 1, 2, 3), f(4, 5))
SQUARE = M2.run(lambda: c([[1.0, 2.0], [3.0, 4.0]]))
ONES = M2.run(lambda: np.ones((2, 3), np.float32) * (1.0 + rid()))
SLICES = M2.run(lambda: refdist.IndexedSlices(f(1, 2), [0, 0], [3]))
V = variable(M2, [1.0, 2.0])
ITEM = f(3)


def ints(*names: str) -> list[str]:
    return [w.show(M2.reduce("MEAN", dv(M2, np.array([1, 2], name), np.array([2, 2], name)), axis=axis))
            for name in names for axis in (None, 0)]


def failed(program: Any) -> str:
    return w.outcome(program)


ROWS = [
    Row("D5", lambda: M2.reduce("SUM", SQUARE, axis=1), "float32[2] [6.0, 14.0]"),
    Row("D6", lambda: M2.reduce("SUM", SQUARE, axis=-1), "float32[2] [6.0, 14.0]"),
    Row("D8", lambda: M2.reduce("SUM", ONES, axis=[0, 1]), "float32[] 18.0", "TypeError: a list cannot be hashed"),
    Row("D10", lambda: M2.reduce("MEAN", ONES, axis=(0, 1)), "float32[] 1.5"),
    Row("D11", lambda: M2.reduce("SUM", dv(M2, f(1, 1), f(1, 1)), axis=()), "float32[2] [2.0, 2.0]"),
    Row("D12", lambda: M2.reduce("MEAN", dv(M2, f(1, 1), f(1, 1)), axis=()), "float32[2] [1.0, 1.0]"),
    Row("D13", lambda: M2.reduce("SUM", BATCH, axis=0), "float32[] 15.0"),
    Row("D14", lambda: M2.reduce("MEAN", BATCH, axis=0), "float32[] 2.5"),
    Row("D15", lambda: M2.reduce("MEAN", dv(M2, np.ones((2, 4)), 3 * np.ones((2, 2))), axis=1),
        f"float64[2] {[10 / 6, 10 / 6]}"),
    Row("D16", lambda: M2.reduce("MEAN", dv(M2, f(1, 2), f()), axis=0), "float32[] 1.5"),
    Row("D17", lambda: M2.reduce("MEAN", dv(M2, f(), f()), axis=0), "float32[] nan"),
    Row("D18", lambda: M2.reduce("MEAN", M2.run(lambda: np.zeros(0, np.int32)), axis=0), "float64[] nan"),
    Row("D20", lambda: M2.reduce("MEAN", BATCH, axis=None), "!! ValueError RD04"),
    Row("D21", lambda: M2.reduce("SUM", dv(M2, f(1), f(1, 1)), axis=None), "!! ValueError RD04"),
    Row("D25", lambda: M2.reduce("MEAN", dv(M2, c([1, 2]), c([2, 2])), axis=0), "float64[] 1.75"),
    Row("D27", lambda: ints("int8", "uint8", "int16", "uint16"),
        str(["float32[2] [1.5, 2.0]", "float32[] 1.75"] * 4)),
    Row("D26", lambda: ints("uint32", "int64", "uint64"), str(["float64[2] [1.5, 2.0]", "float64[] 1.75"] * 3)),
    Row("D28", lambda: M2.reduce("SUM", dv(M2, np.array([True]), np.array([False])), axis=None), "!! TypeError RD23"),
    Row("D29", lambda: M2.reduce("SUM", dv(M2, np.array([True]), np.array([False])), axis=0), "!! TypeError RD23"),
    Row("D30", lambda: M2.reduce("SUM", dv(M2, np.array("a"), np.array("b")), axis=None), "!! TypeError RD23"),
    Row("D31", lambda: M2.reduce("MEAN", dv(M2, np.float16([1, 2]), np.float16([2, 2])), axis=0), "float16[] 1.75"),
    Row("D33", lambda: M2.reduce("SUM", dv(M2, np.array([1j]), np.array([2 + 0j])), axis=None),
        "complex128[1] [(2+1j)]"),
    Row("D34", lambda: M2.reduce("SUM", dv(M2, f(1), c([2])), axis=None), "!! ValueError RD05"),
    Row("D35", lambda: M2.reduce("SUM", M2.run(lambda: c(1.0)), axis=0), "!! ValueError RD08"),
    Row("D38", lambda: M2.reduce("MEAN", M2.run(lambda: f(1, 1)), axis=3), "!! ValueError RD08"),
    Row("D39", lambda: M2.reduce("MEAN", M2.run(lambda: f(1, 1)), axis=-2), "!! ValueError RD08"),
    Row("D40", lambda: M2.reduce("MEAN", M2.run(lambda: f(1, 1)), axis=0.5), "!! TypeError RD25"),
    Row("D41", lambda: M2.reduce("SUM", M2.run(lambda: f(1, 1)), axis=np.array(0)), "float32[] 4.0", "TypeError"),
    Row("D42", lambda: [M2.reduce(op, M2.run(lambda: f(1, 1)), axis=np.int64(0)) for op in ("SUM", "MEAN")],
        "[float32[] 4.0, float32[] 1.0]", "MEAN raises TypeError"),
    Row("D43", lambda: [M2.reduce(op, M2.run(lambda: f(1)), axis=None) for op in ("sum", "Sum", "mean")],
        "[float32[1] [2.0], float32[1] [2.0], float32[1] [1.0]]"),
    Row("D46", lambda: M2.reduce(7, M2.run(lambda: f(1)), axis=0), "!! TypeError RD25"),
    Row("D47", lambda: M2.reduce(Agg.SUM, M2.run(lambda: f(1)), axis=None), "!! TypeError RD25", "AssertionError"),
    Row("D48", lambda: M2.reduce("SUM", f(1, 2), axis=None), "!! ValueError RD16"),
    Row("D49", lambda: M2.reduce("MEAN", f(1, 2), axis=None), "float32[2] [1.0, 2.0]"),
    Row("D50", lambda: M2.reduce("SUM", f(1, 2), axis=0), "float32[] 6.0"),
    Row("D52", lambda: M2.reduce("SUM", 1.0, axis=None), "!! ValueError RD16"),
    Row("D53", lambda: M2.reduce("MEAN", 3, axis=None), "float64[] 3.0", "returns 3; a mean of ints is a float"),
    Row("D54", lambda: M2.reduce("SUM", 0, axis=None), "!! ValueError RD16", "AttributeError"),
    Row("D55", lambda: M2.reduce("SUM", np.zeros(2), axis=None), "!! ValueError RD16",
        "zeros are let through; a program must not fail only when a value is not 0"),
    Row("D57", lambda: M2.reduce("SUM", None, axis=None), "!! ValueError RD25"),
    Row("D59", lambda: M1.reduce("SUM", 3.0, axis=None), "float32[] 3.0"),
    Row("D60", lambda: M2.reduce("SUM", M2.run(lambda: V[0]), axis=None), "float32[] 2.0",
        "ValueError for a captured tensor; an array counts once per replica"),
    Row("D61", lambda: M2.reduce("SUM", M2.run(lambda: {"a": c(1.0), "b": [c(2)]}), axis=None),
        "{'a': float32[] 2.0, 'b': [int32[] 4]}"),
    Row("D62", lambda: C2.reduce("SUM", C2.run(lambda: {"a": c(1.0)}), axis=None), "{'a': float32[] 2.0}", "ValueError"),
    Row("D63", lambda: M2.reduce("SUM", M2.run(lambda: [f(1, 1), f(1, 1, 1)]), axis=0),
        "[float32[] 4.0, float32[] 6.0]", "ValueError: the list is stacked"),
    Row("D65", lambda: M2.reduce("MEAN", V, axis=None), "float32[2] [1.0, 2.0]", "returns replica 0's variable itself"),
    Row("D68", lambda: [failed(lambda: M2.reduce("SUM", refdist.Mirrored([c(1.0)] * 2), axis=None)),
                        M2.reduce("MEAN", refdist.Mirrored([c(1.0)] * 2), axis=None)],
        "['!! ValueError RD16', float32[] 1.0]"),
    Row("D69", lambda: M2.reduce("SUM", SLICES, axis=None),
        "IndexedSlices(float32[4] [1.0, 2.0, 1.0, 2.0], [0, 0, 0, 0], [3])"),
    Row("D70", lambda: M2.reduce("SUM", SLICES, axis=0), "float32[] 6.0"),
    Row("D74", lambda: O.reduce("SUM", "anything", axis=None), "!! TypeError RD23", "returned unchanged"),
    Row("D75", lambda: [O.reduce("SUM", f(1, 2), axis=0), O.reduce("MEAN", c([1, 2]), axis=0)],
        "[float32[] 3.0, float64[] 1.5]"),
    Row("D79", lambda: O.reduce("SUM", dv(M2, f(1), f(2)), axis=None), "!! ValueError RD25", "returned unchanged"),
    Row("D80", lambda: [C2.reduce(op, dv(C2, f(0, 1), f(2, 3)), axis=axis) for op in ("SUM", "MEAN")
                        for axis in (None, 0)],
        "[float32[2] [2.0, 4.0], float32[] 6.0, float32[2] [1.0, 2.0], float32[] 1.5]"),
    Row("D81", lambda: C2.reduce("MEAN", dv(C2, f(0, 1, 2, 3), f(4, 5)), axis=0), "float32[] 2.5"),
    Row("D86", lambda: C1.reduce("SUM", np.array([4, 6, 8, 10]), axis=0), "int64[] 28"),
    Row("D87", lambda: M2.gather(M2.run(lambda: c([[1], [2]]) + 10 * rid()), axis=0),
        "int32[4, 1] [[1], [2], [11], [12]]"),
    Row("D90", lambda: M2.gather(dv(M2, np.ones((1, 2)), np.ones((1, 3))), axis=0), "!! ValueError RD07"),
    Row("D92", lambda: M2.gather(dv(M2, np.ones((1, 2)), np.ones(2)), axis=0), "!! ValueError RD07"),
    Row("D93", lambda: M2.gather(M2.run(lambda: c([[1, 2]])), axis=-1), "int32[1, 4] [[1, 2, 1, 2]]"),
    Row("D94", lambda: M2.gather(M2.run(lambda: c([[1.0]])), axis=-1), "float32[1, 2] [[1.0, 1.0]]", "ValueError"),
    Row("D95", lambda: M2.gather(M2.run(lambda: c([1, 2])), axis=1), "!! ValueError RD08"),
    Row("D97", lambda: M2.gather(M2.run(lambda: c(1)), axis=0), "!! ValueError RD08"),
    Row("D99", lambda: M2.gather(f(1, 2), axis=0), "float32[2] [1.0, 2.0]"),
    Row("D101", lambda: M2.gather(M2.run(lambda: c([1, 2])), axis=None), "!! TypeError RD25", "ValueError"),
    Row("D102", lambda: M2.gather(SLICES.values[0], axis=0), "!! NotImplementedError RD20"),
    Row("D103", lambda: M2.gather(SLICES, axis=0), "!! NotImplementedError RD20", "ValueError"),
    Row("D106", lambda: C2.gather(C2.run(lambda: np.array([f"a{rid()}"])), axis=0), "<U2[2] ['a0', 'a1']"),
    Row("D108", lambda: M2.gather(M2.run(lambda: [c([1]), c([2])]), axis=0), "[int32[2] [1, 1], int32[2] [2, 2]]",
        "returns replica 0's list without gathering"),
    Row("D110", lambda: M2.gather(V, axis=0), "float32[4] [1.0, 2.0, 1.0, 2.0]"),
    Row("D112", lambda: O.gather(c([1]), axis=5), "!! ValueError RD08", "returned unchanged"),
    Row("D115", lambda: M2.gather(M2.run(lambda: c([1])), axis=np.array(0)), "int32[2] [1, 1]"),
    Row("D117", lambda: [str(M2.gather(M2.run(lambda name=name: np.ones(1, name)), axis=0).dtype)
                         for name in ("int64", "float16", "float64")], "['int64', 'float16', 'float64']"),
    Row("D118", lambda: M2.gather(dv(M2, np.zeros((0, 2)), np.ones((1, 2))), axis=0), "float64[1, 2] [[1.0, 1.0]]"),
    Row("D121", lambda: len(M2.experimental_local_results(V)), "2"),
    Row("D122", lambda: M2.experimental_local_results({"a": dv(M2, 1, 2), "b": 7}),
        "({'a': 1, 'b': 7}, {'a': 2, 'b': 7})"),
    Row("D123", lambda: M2.experimental_local_results([1, 2]), "([1, 2], [1, 2])"),
    Row("D125", lambda: [O.experimental_local_results({"a": 1}), D.experimental_local_results([1, 2])],
        "[({'a': 1},), ([1, 2],)]"),
    Row("D126", lambda: O.experimental_local_results(dv(M2, 1, 2)), "(PerReplica(1, 2),)"),
    Row("D128", lambda: M2.experimental_local_results(dv(M4, 1, 2, 3, 4)), "(1, 2, 3, 4)"),
    Row("D130", lambda: M2.experimental_distribute_values_from_function(lambda ctx: 1.0), "PerReplica(1.0, 1.0)"),
    Row("D131", lambda: M2.experimental_distribute_values_from_function(str).values[1],
        "'tf.distribute.ValueContext(replica id 1,  total replicas in sync: 2)'"),
    Row("D133", lambda: M2.experimental_distribute_values_from_function(lambda ctx: None), "PerReplica(None, None)"),
    Row("D134", lambda: O.experimental_distribute_values_from_function(
        lambda ctx: [ctx.replica_id_in_sync_group, ctx.num_replicas_in_sync]), "[0, 1]"),
    Row("D135", lambda: [s.experimental_distribute_values_from_function(lambda ctx: 1.0) for s in (M1, C1)],
        "[PerReplica(1.0), PerReplica(1.0)]"),
    Row("D138", lambda: M2.experimental_distribute_values_from_function(lambda ctx: 1 / 0), "!! ZeroDivisionError"),
    Row("D139", lambda: M2.run(lambda: M2.experimental_distribute_values_from_function(
        lambda ctx: ctx.replica_id_in_sync_group)), "PerReplica(PerReplica(0, 1), PerReplica(0, 1))"),
    Row("D141", lambda: str(refdist.experimental.ValueContext(9, 2)),
        "'tf.distribute.ValueContext(replica id 9,  total replicas in sync: 2)'"),
    Row("D144", lambda: [failed(lambda: len(BATCH)), failed(lambda: list(BATCH)), failed(lambda: BATCH[0])],
        "['!! TypeError RD19', '!! TypeError RD19', '!! TypeError RD19']"),
    Row("D147", lambda: [isinstance(x, refdist.DistributedValues) for x in (BATCH, V, c(1))], "[True, True, False]"),
    Row("ON_READ", lambda: M2.reduce("SUM", variable(M2, 3.0, synchronization=Sync.ON_READ, aggregation=Agg.MEAN),
                                     axis=None), "float32[] 6.0"),
    Row("D36", lambda: M2.reduce("MEAN", M2.run(lambda: c(1.0)), axis=0), "!! ValueError RD08"),
    Row("D56", lambda: M2.reduce("SUM", c(0.0), axis=None), "!! ValueError RD16"),
    Row("D71", lambda: type(M2.reduce("SUM", M2.run(lambda: c(1.0)), axis=None)).__name__, "'ndarray'"),
    Row("D83", lambda: list(C2.experimental_distribute_dataset(refdist.data.Dataset.range(10))), "!! ValueError RD15",
        "IndexError"),
    Row("D84", lambda: [C2.reduce("SUM", x, axis=axis) for axis in (None, 0) for x in
                        C2.experimental_distribute_dataset(refdist.data.Dataset.range(8).batch(8))],
        "[int64[4] [4, 6, 8, 10], int64[] 28]"),
    Row("D85", lambda: C2.reduce("SUM", np.array([4, 6, 8, 10]), axis=0), "int64[] 56"),
    Row("D91", lambda: M2.gather(dv(M2, np.ones((1, 2), np.float32), np.ones((1, 3), np.float32)), axis=0), "!! ValueError RD07"),
    Row("D96", lambda: M2.gather(M2.run(lambda: f(1, 2)), axis=1), "!! ValueError RD08"),
    Row("D98", lambda: M2.gather(M2.run(lambda: c(1.0)), axis=0), "!! ValueError RD08"),
    Row("D114", lambda: C2.gather(dv(C2, [1, 2], [3]), axis=0), "!! ValueError RD21", "AssertionError"),
    Row("D127", lambda: M2.experimental_local_results(M2.run(lambda: SLICES.values[0]))[1] is SLICES.values[0], "True"),
    Row("D142", lambda: repr(M2.run(lambda: c(1.0))).splitlines(),
        "['PerReplica:{', '  0 CPU:0: float32 scalar 1.', '  1 CPU:1: float32 scalar 1.', '}']"),
    Row("D143", lambda: repr((dv(M2, 1, "a"),)).splitlines()[1:3], "['  0 CPU:0: 1', \"  1 CPU:1: 'a'\"]"),

    Row("D60b", lambda: M2.reduce("SUM", M2.run(lambda: ITEM), axis=None), "float32[1] [6.0]",
        "ValueError; the same array on every replica is still one contribution for each"),
    Row("D68b", lambda: M2.reduce("MEAN", refdist.Mirrored([f(1, 2)] * 2), axis=0), "float32[] 1.5"),
    Row("D80b", lambda: [C2.reduce(op, dv(C2, f(0, 1, 2, 3), f(4, 5, 6, 7)), axis=axis) for op in ("SUM", "MEAN")
                         for axis in (None, 0)],
        "[float32[4] [4.0, 6.0, 8.0, 10.0], float32[] 28.0, float32[4] [2.0, 3.0, 4.0, 5.0], float32[] 3.5]"),
    Row("D112b", lambda: [O.gather(c([1]), axis=0), failed(lambda: D.gather("x", axis=0))],
        "[int32[1] [1], '!! ValueError RD08']", "'x' is returned; a scalar has no axis on any strategy"),
    Row("D121b", lambda: [type(M2.experimental_local_results(V)).__name__,
                          *(x is y for x, y in zip(M2.experimental_local_results(V), V.values, strict=True))],
        "['tuple', True, True]"),
    Row("D126b", lambda: D.experimental_local_results(dv(M2, 1, 2)), "(PerReplica(1, 2),)"),
    Row("D134b", lambda: D.experimental_distribute_values_from_function(str),
        "'tf.distribute.ValueContext(replica id 0,  total replicas in sync: 1)'"),
    Row("ValueContext: defaults", lambda: [refdist.experimental.ValueContext().replica_id_in_sync_group,
                                           refdist.experimental.ValueContext().num_replicas_in_sync], "[0, 1]"),
    Row("public names", lambda: [hasattr(refdist, name) for name in (
        "PerReplica", "Mirrored", "DistributedValues", "DistributedIterator", "DistributedDataset")],
        "[True, True, True, True, True]", "PerReplica and Mirrored are private"),
    Row("variable: axis", lambda: [failed(lambda: M2.reduce("SUM", V, axis=None)), M2.reduce("SUM", V, axis=0),
                                   M2.reduce("MEAN", V, axis=0)], "['!! ValueError RD16', float32[] 6.0, float32[] 1.5]"),
    Row("axis twice", lambda: M2.reduce("SUM", ONES, axis=(0, -2)), "!! ValueError RD08"),
    Row("one replica checks", lambda: [
        failed(lambda op=op, axis=axis: O.reduce(op, f(1), axis=axis)) for op, axis in (
        (None, None), (3, 0), ("MAX", None), ("SUM", 1), ("SUM", 0.5))],
        "['!! TypeError RD25', '!! TypeError RD25', '!! ValueError RD25', '!! ValueError RD08', '!! TypeError RD25']"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_behaviour(row: Row) -> None:
    assert w.outcome(row.program) == row.outcome
