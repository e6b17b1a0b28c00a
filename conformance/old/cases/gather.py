"""Strategy.gather."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, op, per_replica, run

SOURCE = PAGE.format("Strategy.gather")
RID = op("replica_id")
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({"central"} if strategy[0] == "central" else ()), **more)


def gather(value: Program, axis: Program = 0) -> Program:
    return op("gather", run(value), axis)


def fine(n: int) -> tuple[Program, object]:
    return op("reduce", "SUM", run(RID), None), sum(range(n))


CASES = [
    *(case(f"rows of {dtype} in the order of the replicas", gather(per_replica(
        *[[i, 10 * i] for i in range(k[1])], dtype=dtype)), [j for i in range(k[1]) for j in (i, 10 * i)], k,
        dtype=dtype)
      for k in KINDS for dtype in ("float32", "float64", "int32", "int64")),
    *(case("lengths may differ", gather(per_replica(*[[float(i)] * (i + 1) for i in range(k[1])])),
           [float(i) for i in range(k[1]) for _ in range(i + 1)], k) for k in KINDS),
    *(case("along the second axis", gather(per_replica(*[[[float(i)], [5.0]] for i in range(k[1])]), 1),
           [[float(i) for i in range(k[1])], [5.0] * k[1]], k) for k in KINDS),
    *(case("a slice of what was gathered is the part of a replica",
           gather(op("add", per_replica(*[[float(i)] for i in range(k[1])]), const([0.5]))),
           [i + 0.5 for i in range(k[1])], k) for k in KINDS),
    *(case("scalars are refused", gather(RID), strategy=k, fails=("value",), then=fine(k[1])) for k in KINDS),
    *(case(f"an axis that does not exist is refused, {axis}", gather(per_replica(*[[1.0]] * k[1]), axis), strategy=k,
           fails=("value", "lookup", "type"), then=fine(k[1])) for k in KINDS for axis in (1, 4)),
    *(case("other dimensions must agree", gather(per_replica(*[[[1.0] * (i + 1)] for i in range(k[1])])), strategy=k,
           fails=("value",), then=fine(k[1])) for k in KINDS),
    *(case("dtypes must agree", gather(["pick", [const([1], "int64" if i else "float64") for i in range(k[1])]]),
           strategy=k, fails=("value", "type"), then=fine(k[1])) for k in KINDS),
]
