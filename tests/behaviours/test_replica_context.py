"""Topic C, ReplicaContext: merge_call, all_reduce, all_gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import world as w
from world import C2, M1, M2, M3, M4, Agg, O, Row, c, dv, f, rc, rid, variable

import refdist


def reduced(strategy: Any, op: Any, program: Any, **options: Any) -> Any:
    return strategy.run(lambda: rc().all_reduce(op, program(), **options))


def first(strategy: Any, op: Any, program: Any) -> Any:
    return reduced(strategy, op, program).values[0]


def gathered(strategy: Any, program: Any, axis: Any = 0) -> Any:
    return strategy.run(lambda: rc().all_gather(program(), axis=axis))


def slices(count: int, shape: Any = (4, 1)) -> Any:
    dense = None if shape is None else np.asarray(shape)
    return refdist.IndexedSlices(np.ones((count, 1), np.float32), np.arange(count, dtype=np.int32), dense)


def calls_of_merge_fn() -> list[Any]:
    seen: list[Any] = []
    result = M2.run(lambda: rc().merge_call(lambda s, x: seen.append(x) or 7, args=(rid(),)))  # type: ignore[func-returns-value]
    return [result, seen]


def own_number() -> Any:
    mine = rid()
    return rc().merge_call(lambda s: f"fn of {mine}")


def assigned_in_merge_fn() -> Any:
    v = variable(M2, 1.0)
    M2.run(lambda: rc().merge_call(lambda s: v.assign(5.0)) is None)
    return v


def dtypes(op: str, names: str, strategy: Any) -> list[str]:
    return [str(first(strategy, op, lambda name=name: np.ones(1, name)).dtype) for name in names.split()]


SHARED = f(1.0)
INTS_SHARED = c(1)
V = variable(M2, 1.0)
TWICE = "PerReplica(float32[] 2.0, float32[] 2.0)"
INTS = "int8 int16 uint8 uint16 int32 uint32 int64 uint64"

ROWS = [
    Row("C1", calls_of_merge_fn, "[7, [PerReplica(0, 1)]]"),
    Row("C2", lambda: M3.run(own_number), "'fn of 0'"),
    Row("C4", lambda: M2.run(lambda: rc().merge_call(
        lambda s, x: {"a": [x, 1], "b": s.experimental_local_results(x)}, args=(rid(),))),
        "{'a': [PerReplica(0, 1), 1], 'b': (0, 1)}"),
    Row("C5", lambda: M2.run(lambda: rc().merge_call(lambda s, k=None: w.show(k), kwargs={"k": rid()})),
        "'PerReplica(0, 1)'"),
    Row("C6", lambda: M2.run(lambda: rc().merge_call(lambda s, a, b: [w.show(a), w.show(b)], args=(5, "x"))),
        "['5', \"'x'\"]"),
    Row("C8", lambda: M2.run(lambda: rc().merge_call(lambda s, x: 1, args=([1] * (rid() + 1),))),
        "!! ValueError RD21"),
    Row("C9", lambda: M2.run(lambda: rc().merge_call(lambda s, **k: 1, kwargs={f"k{rid()}": 1})), "!! ValueError RD21"),
    Row("C10", lambda: M2.run(lambda: rc().merge_call(lambda s: V) is V), "True"),
    Row("C11", lambda: M2.run(lambda: rc().merge_call(lambda s, x: s.reduce("SUM", x, axis=None), args=(c(2.0),))),
        "PerReplica(float32[] 4.0, float32[] 4.0)", "bare; arrays that come back from run are always per replica"),
    Row("C12", assigned_in_merge_fn, "MirroredVariable(5.0, 5.0)"),
    Row("C17", lambda: reduced(M2, w.SUM, lambda: f(1.0, 2.0)), "PerReplica(float32[2] [2.0, 4.0], float32[2] [2.0, 4.0])"),
    Row("C20", lambda: reduced(M2, "MAX", lambda: c(1.0)), "!! ValueError RD25"),
    Row("C22", lambda: reduced(M2, None, lambda: c(1.0)), "!! TypeError RD25", "sums; a reduce op that is none is refused"),
    Row("C23", lambda: reduced(M2, 3, lambda: c(1)), "!! TypeError RD25", "ValueError"),
    Row("C24", lambda: reduced(M2, Agg.MEAN, lambda: c(1.0)), "!! TypeError RD25", "sums, although MEAN is written"),
    Row("C26", lambda: M2.run(lambda: [rc().all_reduce("SUM", 3), rc().all_reduce("SUM", 1.5)]),
        "[PerReplica(int32[] 6, int32[] 6), PerReplica(float32[] 3.0, float32[] 3.0)]", "AttributeError"),
    Row("C27", lambda: reduced(M2, "SUM", lambda: rid() + 0.5), TWICE, "AttributeError"),
    Row("C28", lambda: reduced(M2, "SUM", lambda: np.asarray([1, 2])), "PerReplica(int64[2] [2, 4], int64[2] [2, 4])"),
    Row("C29", lambda: reduced(M2, "SUM", lambda: {"b": [c(1.0)], "a": (c(3.0),)}),
        f"{{'b': [{TWICE}], 'a': (PerReplica(float32[] 6.0, float32[] 6.0),)}}"),
    Row("C30", lambda: reduced(M2, "SUM", lambda: [c(1.0), c(2)]), f"[{TWICE}, PerReplica(int32[] 4, int32[] 4)]",
        "ValueError; int32 needs no special way here"),
    Row("C31", lambda: reduced(C2, "SUM", lambda: [c(1.0), c(2)]), f"[{TWICE}, PerReplica(int32[] 4, int32[] 4)]"),
    Row("C33", lambda: reduced(M2, "SUM", list), "[]", "AttributeError"),
    Row("C36", lambda: reduced(M2, "SUM", lambda: c([1, 2])), "PerReplica(int32[2] [2, 4], int32[2] [2, 4])"),
    Row("C37", lambda: first(M2, "MEAN", lambda: c([1, 2]) + rid()), "float64[2] [1.5, 2.5]"),
    Row("C38", lambda: first(M2, "MEAN", lambda: np.asarray([1, 2]) + rid()), "float64[2] [1.5, 2.5]"),
    Row("C40", lambda: dtypes("MEAN", INTS, C2), str(["float32"] * 4 + ["float64"] * 4)),
    Row("C45", lambda: first(M2, "SUM", lambda: np.asarray([1.5 + 1j])), "complex128[1] [(3+2j)]",
        "refused by the collective, although Strategy.reduce takes it"),
    Row("C46", lambda: dtypes("SUM", INTS, M2), str(INTS.split()), "refused by the collective, the same"),
    Row("C53", lambda: reduced(C2, "SUM", lambda: np.asarray([True])), "!! TypeError RD23", "InvalidArgumentError"),
    Row("C54", lambda: reduced(C2, "SUM", lambda: np.asarray(["a"])), "!! TypeError RD23", "InvalidArgumentError"),
    Row("C57", lambda: reduced(M2, "SUM", lambda: np.ones(rid() + 1)), "!! ValueError RD04"),
    Row("C58", lambda: reduced(M2, "SUM", lambda: np.ones(rid() + 1, np.int32)), "!! ValueError RD04"),
    Row("C60", lambda: reduced(C2, "SUM", lambda: np.ones(1 + 2 * rid())), "!! ValueError RD04"),
    Row("C61", lambda: reduced(C2, "SUM", lambda: c(1.0) if rid() else c(1)), "!! ValueError RD05"),
    Row("C65", lambda: first(M2, "SUM", lambda: slices(rid() + 1)),
        "IndexedSlices(float32[3, 1] [[1.0], [1.0], [1.0]], [0, 0, 1], [4, 1])"),
    Row("C66", lambda: first(C2, "MEAN", lambda: slices(rid() + 1)),
        "IndexedSlices(float32[3, 1] [[0.5], [0.5], [0.5]], [0, 0, 1], [4, 1])"),
    Row("C67", lambda: first(M2, "SUM", lambda: slices(1, None)),
        "IndexedSlices(float32[2, 1] [[1.0], [1.0]], [0, 0], None)"),
    Row("C68", lambda: reduced(M2, "SUM", lambda: [c(1.0), slices(1)])[0], TWICE),
    Row("C69", lambda: reduced(M2, "SUM", lambda: f(1.0) if rid() else slices(1)), "!! ValueError RD04"),
    Row("C72", lambda: reduced(M2, "SUM", lambda: V), TWICE),
    Row("C73", lambda: reduced(M2, "SUM", V.read_value), TWICE),
    Row("C75", lambda: M2.run(lambda: type(rc().all_reduce("SUM", 1.0)) is np.ndarray), "True"),
    Row("C76", lambda: reduced(M2, "SUM", lambda: c(1.0), options=refdist.experimental.CommunicationOptions(10)), TWICE),
    Row("C77", lambda: reduced(M2, "SUM", lambda: c(1.0), options=5), "!! TypeError RD25", "AttributeError"),
    Row("C78", lambda: O.run(lambda: [rc().all_reduce("SUM", c([1, 2])), rc().all_reduce("MEAN", c([1, 2]))]),
        "[int32[2] [1, 2], float64[2] [1.0, 2.0]]", "MEAN stays an int on one replica"),
    Row("C86", lambda: gathered(M2, lambda: f(1.0, 2.0) + rid()).values[0], "float32[4] [1.0, 2.0, 2.0, 3.0]"),
    Row("C87", lambda: gathered(M2, lambda: np.arange(rid() + 1)).values[1], "int64[3] [0, 0, 1]"),
    Row("C88", lambda: gathered(M2, lambda: c([[1], [2]]) + 10 * rid(), 1).values[0], "int32[2, 2] [[1, 11], [2, 12]]"),
    Row("C91", lambda: gathered(M2, lambda: np.ones((1, rid() + 1))), "!! ValueError RD07"),
    Row("C92", lambda: gathered(M2, lambda: np.ones([2] * (rid() + 1))), "!! ValueError RD07"),
    Row("C96", lambda: gathered(M2, lambda: c([[1.0, 2.0]]) + rid(), -1).values[0], "float32[1, 4] [[1.0, 2.0, 2.0, 3.0]]",
        "ValueError for floats, works for int32"),
    Row("C98", lambda: gathered(M2, lambda: f(1.0, 2.0), 1), "!! ValueError RD08"),
    Row("C100", lambda: gathered(M2, lambda: f(1.0), np.asarray(0)).values[0], "float32[2] [1.0, 1.0]"),
    Row("C101", lambda: gathered(M2, lambda: {"a": f(1.0), "b": [c([2])]}),
        "{'a': PerReplica(float32[2] [1.0, 1.0], float32[2] [1.0, 1.0]), "
        "'b': [PerReplica(int32[2] [2, 2], int32[2] [2, 2])]}"),
    Row("C103", lambda: gathered(M2, lambda: np.asarray([True, rid() == 0])).values[0],
        "bool[4] [True, True, True, False]", "TypeError, although CentralStorage gathers every dtype"),
    Row("C109", lambda: gathered(M2, lambda: slices(1)), "!! NotImplementedError RD20"),
    Row("C111", lambda: gathered(M2, lambda: [1, 2]), "!! ValueError RD08", "returns the numbers; scalars have no axis"),
    Row("C112", lambda: gathered(M2, lambda: np.ones((rid(), 2))).values[0], "float64[1, 2] [[1.0, 1.0]]"),
    Row("C115", lambda: O.run(lambda: rc().all_gather(f(1.0), axis=7)), "!! ValueError RD08",
        "returned unchanged; a second device must not be the first to find the fault"),
    Row("C116", lambda: M1.run(lambda: rc().all_gather(c(1.0), axis=0)), "!! ValueError RD08", "returned unchanged"),
    Row("C122", lambda: M2.run(lambda: [rc().strategy is M2, rc().num_replicas_in_sync]), "[True, 2]"),
    Row("C123", lambda: M2.run(lambda: [10, 20][rid()]), "PerReplica(10, 20)"),
    Row("C125", lambda: M2.run(lambda: rc() is rc()), "True"),
    Row("C126", lambda: [reduced(s, "SUM", lambda: c(1.0)).values[0] for s in (M2, M4)],
        "[float32[] 2.0, float32[] 4.0]", "InternalError: the two strategies' groups clash"),
    Row("C135", lambda: reduced(M2, "SUM", lambda: SHARED), "PerReplica(float32[1] [2.0], float32[1] [2.0])",
        "1.0: a tensor that replicas share is not summed"),
    Row("C136", lambda: reduced(M2, "MEAN", lambda: SHARED), "PerReplica(float32[1] [1.0], float32[1] [1.0])"),
    Row("C139", lambda: gathered(M2, lambda: SHARED), "PerReplica(float32[2] [1.0, 1.0], float32[2] [1.0, 1.0])",
        "[1.0]: a tensor that replicas share is not gathered"),
    Row("C140", lambda: M2.run(lambda x: rc().all_reduce("SUM", x), args=(c(1.0),)), TWICE, "1.0, the same"),
    Row("C141", lambda: M2.run(lambda x: rc().all_reduce("SUM", x.copy()), args=(c(1.0),)), TWICE),
    Row("D152", lambda: M4.reduce("SUM", dv(M4, *map(np.float32, (1e8, 1.0, -1e8, 1.0))), axis=None), "float32[] 1.0"),
    Row("D153", lambda: reduced(M4, "SUM", lambda: np.float32([1e8, 1.0, -1e8, 1.0][rid()])).values[3],
        "float32[] 1.0"),
    Row("C32", lambda: reduced(M2, "SUM", lambda: [1.0, 1.0]), f"[{TWICE}, {TWICE}]", "AttributeError"),
    Row("C56", lambda: first(C2, "MEAN", lambda: c([1, 2]) + rid()), "float64[2] [1.5, 2.5]"),
    Row("C79", lambda: M1.run(lambda: [rc().all_reduce("SUM", c([1, 2])), rc().all_reduce("MEAN", c([1, 2]))]),
        "[int32[2] [1, 2], float64[2] [1.0, 2.0]]", "MEAN stays an int on one replica"),
    Row("C93", lambda: gathered(M2, lambda: np.ones([2] * (rid() + 1), np.float32)), "!! ValueError RD07"),
    Row("C97", lambda: gathered(M2, lambda: c([[1, 2]]) + rid(), -1).values[0], "int32[1, 4] [[1, 2, 2, 3]]"),
    Row("C105", lambda: [str(gathered(s, lambda x=x: x).values[1].dtype) for s in (C2, M2) for x in
                         (np.array(["a"]), np.array([True]), np.array([1], np.uint8), np.array([1j]), np.float16([1]))],
        str(["<U1", "bool", "uint8", "complex128", "float16"] * 2), "MirroredStrategy refuses all but float16 (C102-C108)"),
    Row("C113", lambda: gathered(C2, lambda: np.ones((1, rid() + 1)), -1).values[0], "float64[1, 3] [[1.0, 1.0, 1.0]]"),
    Row("C127", lambda: [first(s, "SUM", lambda: c(1)) for s in (M2, M4, C2)], "[int32[] 2, int32[] 4, int32[] 2]"),
    Row("C137", lambda: reduced(M2, "SUM", lambda: INTS_SHARED), "PerReplica(int32[] 2, int32[] 2)", "1: not summed"),
    Row("C138", lambda: reduced(C2, "SUM", lambda: SHARED), "PerReplica(float32[1] [2.0], float32[1] [2.0])", "1.0: not summed"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_behaviour(row: Row) -> None:
    assert w.outcome(row.program) == row.outcome
