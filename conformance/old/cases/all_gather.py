"""ReplicaContext.all_gather."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, op, per_replica, run

SOURCE = PAGE.format("ReplicaContext.all_gather")
RID = op("replica_id")
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]


def gather(value: Program, axis: Program = 0) -> Program:
    return run(op("all_gather", value, axis))


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({"central"} if strategy[0] == "central" else ()), **more)


def fine(n: int) -> tuple[Program, object]:
    return run(op("all_reduce", "SUM", op("add", RID, const(1)))), [n * (n + 1) // 2] * n


CASES = [
    *(case(f"rows of {dtype} in the order of the replicas", gather(per_replica(
        *[[i, i + 10] for i in range(k[1])], dtype=dtype)),
        [[j for i in range(k[1]) for j in (i, i + 10)]] * k[1], k, dtype=dtype)
      for k in KINDS for dtype in ("float32", "float64", "int32", "int64")),
    *(case("lengths may differ", gather(per_replica(*[[float(i)] * (i + 1) for i in range(k[1])])),
           [[float(i) for i in range(k[1]) for _ in range(i + 1)]] * k[1], k) for k in KINDS),
    *(case("a replica may contribute an empty array", gather(per_replica(*[[float(i)] * bool(i) for i in range(k[1])],
                                                             dtype="float32")),
           [[float(i) for i in range(1, k[1])]] * k[1], k, level="recommended", document="silent") for k in KINDS),
    *(case("along the second axis", gather(per_replica(*[[[float(i)], [10.0 + i]] for i in range(k[1])]), 1),
           [[[float(i) for i in range(k[1])], [10.0 + i for i in range(k[1])]]] * k[1], k) for k in KINDS),
    *(case("a nest", gather(op("list", per_replica(*[[float(i)] for i in range(k[1])]),
                               op("dict", {"a": per_replica(*[[2.0]] * k[1])}))),
           [[[float(i) for i in range(k[1])]] * k[1], {"a": [[2.0] * k[1]] * k[1]}], k) for k in KINDS),
    *(case("a value that replicas share is gathered once per replica", gather(const([1.0])), [[1.0] * k[1]] * k[1], k)
      for k in KINDS),
    case("on one replica the value comes back", gather(const([1.0, 2.0])), [1.0, 2.0], ("mirrored", 1)),
    *(case("a scalar is refused", gather(per_replica(*[1.0] * k[1])), strategy=k, fails=("value",),
           then=fine(k[1])) for k in KINDS),
    *(case(f"axis {axis} of a vector is refused", gather(per_replica(*[[1.0]] * k[1]), axis), strategy=k,
           fails=("value", "type", "lookup"), then=fine(k[1])) for k in KINDS for axis in (1, 7)),
    *(case("an axis that is not an int is refused", gather(per_replica(*[[1.0]] * k[1]), "0"), strategy=k,
           fails=("value", "type"), then=fine(k[1])) for k in KINDS),
    *(case("other dimensions must agree", gather(per_replica(*[[[1.0] * (i + 1)] for i in range(k[1])])), strategy=k,
           fails=("value",), then=fine(k[1])) for k in KINDS),
    *(case("dtypes must agree", run(op("all_gather", ["pick", [
        const([1], "int64" if i else "float64") for i in range(k[1])]], 0)), strategy=k, fails=("value", "type"),
        then=fine(k[1])) for k in KINDS),
    *(case("a replica that does not make the call is an error",
           run(op("only", 0, op("all_gather", const([1.0]), 0), RID)),
           strategy=k, fails=("context", "value"), then=fine(k[1])) for k in KINDS),
    *(case("axes that differ are refused", run(["pick", [
        op("all_gather", const([[1.0]]), 1 if i else 0) for i in range(k[1])]]), strategy=k,
        fails=("value", "context"), then=fine(k[1]), level="recommended", document="silent") for k in KINDS),
]
