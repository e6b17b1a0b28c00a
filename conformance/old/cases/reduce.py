"""Strategy.reduce."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details, Standing, mean
from refdist.conformance.old.language import Program, const, op, per_replica, run

SOURCE = PAGE.format("Strategy.reduce")
RID = op("replica_id")
UNSAID: Standing = {"level": "recommended", "document": "silent"}
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]


def reduce(reduce_op: Program, value: Program, axis: Program = None) -> Program:
    return op("reduce", reduce_op, value, axis)


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({"central"} if strategy[0] == "central" else ()), **more)


def rows(n: int) -> Program:
    """Replica i has i + 1 rows of two numbers."""
    return run(per_replica(*[[[float(i), 1.0]] * (i + 1) for i in range(n)]))


def fine(n: int) -> tuple[Program, object]:
    return reduce("SUM", run(RID)), sum(range(n))


CASES = [
    *(case(f"SUM of {dtype}", reduce("SUM", run(per_replica(*[[i, 2 * i] for i in range(k[1])], dtype=dtype))),
           [sum(range(k[1])), 2 * sum(range(k[1]))], k, dtype=dtype)
      for k in KINDS for dtype in ("float32", "float64", "int32", "int64")),
    *(case(f"MEAN of {dtype}", reduce("MEAN", run(per_replica(*[[i, 2 * i] for i in range(k[1])], dtype=dtype))),
           [mean([*range(k[1])]), 2 * mean([*range(k[1])])], k, dtype="float32" if dtype == "float32" else "float64",
           **({} if dtype.startswith("f") else UNSAID))
      for k in KINDS for dtype in ("float32", "float64", "int32", "int64")),
    *(case("SUM along the batch", reduce("SUM", rows(k[1]), 0),
           [float(sum(i * (i + 1) for i in range(k[1]))), float(sum(i + 1 for i in range(k[1])))], k) for k in KINDS),
    *(case("MEAN along the batch divides by the rows of all replicas", reduce("MEAN", rows(k[1]), 0),
           [sum(i * (i + 1) for i in range(k[1])) / sum(i + 1 for i in range(k[1])), 1.0], k) for k in KINDS),
    *(case("SUM along two axes", reduce("SUM", rows(k[1]), [0, 1]),
           float(sum((i + 1) * (i + 1) for i in range(k[1]))), k) for k in KINDS),
    *(case("a negative axis", reduce("SUM", run(per_replica(*[[1.0, 2.0]] * k[1])), -1), 3.0 * k[1], k)
      for k in KINDS),
    *(case("a replica without rows", reduce("MEAN", run(per_replica(*[[4.0] * bool(i) for i in range(k[1])],
                                                                     dtype="float32")), 0), 4.0, k, **UNSAID)
      for k in KINDS),
    *(case("in merge_call", run(op("merge_call", reduce("SUM", ["get", "0"]), RID)), [sum(range(k[1]))] * k[1], k,
           document="ambiguous: whether results that are one object on all replicas are put together") for k in KINDS),
    *(case("on one replica", reduce("SUM", run(const([1.0, 2.0]))), [1.0, 2.0], (kind, 1))
      for kind in ("mirrored", "one_device")),
    *(case("shapes that differ are refused", reduce("SUM", rows(k[1])), strategy=k, fails=("value",),
           then=fine(k[1])) for k in KINDS),
    *(case(f"an axis that does not exist is refused, {axis}",
           reduce("SUM", run(per_replica(*[[1.0]] * k[1])), axis), strategy=k,
           fails=("value", "lookup"), then=fine(k[1])) for k in KINDS for axis in (1, -2, 5)),
    *(case("a scalar has no axis", reduce("SUM", run(RID), 0), strategy=k, fails=("value", "lookup"),
           then=fine(k[1])) for k in KINDS),
    *(case(f"a reduce op that does not exist is refused, {bad!r}", reduce(bad, run(RID)), strategy=k,
           fails=("value", "type", "lookup"), then=fine(k[1])) for k in KINDS[:2] for bad in ("PRODUCT", None, 3)),
    *(case("booleans are refused", reduce("SUM", run(per_replica(*[True] * k[1], dtype="bool"))), strategy=k,
           fails=("type", "value"), then=fine(k[1]), **UNSAID) for k in KINDS),
    *(case("MEAN of a value that is not distributed is the value", reduce("MEAN", const([1.0, 2.5])), [1.0, 2.5], k,
           level="recommended", document="wrong: plain values are for one replica only") for k in KINDS),
    *(case("along the batch a value that is not distributed counts once per replica",
           reduce("SUM", const([1.0, 2.0]), 0), 3.0 * k[1], k, level="recommended",
           document="wrong: plain values are for one replica only") for k in KINDS),
    *(case("SUM of a value that is not distributed is refused", reduce("SUM", const(1.0)), strategy=k,
           fails=("value",), then=fine(k[1])) for k in KINDS),
]
