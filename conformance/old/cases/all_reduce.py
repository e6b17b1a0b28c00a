"""ReplicaContext.all_reduce."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details, Standing, mean
from refdist.conformance.old.language import Program, const, let, op, per_replica, run, seq

SOURCE = PAGE.format("ReplicaContext.all_reduce")
RID = op("replica_id")
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]
UNSAID: Standing = {"level": "recommended", "document": "silent"}
MEAN_DTYPE = {"int32": "float64", "int64": "float64"}


def reduce(reduce_op: Program, value: Program) -> Program:
    return run(op("all_reduce", reduce_op, value))


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         needs: tuple[str, ...] = (), **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({*needs, "central"} if strategy[0] == "central" else needs),
                **more)


def numbers(n: int, dtype: str) -> Program:
    return per_replica(*[[i + 1, 2 * i + 2] for i in range(n)], dtype=dtype)


FLOATS, INTS = ("float16", "float32", "float64"), ("int32", "int64")
MORE = ("int8", "int16", "uint8", "uint16", "uint32", "uint64", "complex64", "complex128")
OK = run(op("all_reduce", "SUM", op("add", RID, const(1))))


def fine(n: int) -> tuple[Program, object]:
    return OK, [n * (n + 1) // 2] * n


CASES = [
    *(case(f"SUM of {dtype}", reduce("SUM", numbers(k[1], dtype)),
           [[sum(range(1, k[1] + 1)), 2 * sum(range(1, k[1] + 1))]] * k[1], k, dtype=dtype)
      for k in KINDS for dtype in FLOATS + INTS),
    *(case(f"MEAN of {dtype}", reduce("MEAN", numbers(k[1], dtype)),
           [[mean([*range(1, k[1] + 1)]), 2 * mean([*range(1, k[1] + 1)])]] * k[1], k,
           dtype=MEAN_DTYPE.get(dtype, dtype), **({} if dtype in FLOATS else UNSAID))
      for k in KINDS for dtype in FLOATS + INTS),
    *(case(f"SUM of {dtype}", reduce("SUM", numbers(k[1], dtype)),
           [[sum(range(1, k[1] + 1)), 2 * sum(range(1, k[1] + 1))]] * k[1], k, dtype=dtype, needs=("all dtypes",),
           level="recommended", document="silent: TensorFlow 2.21 refuses them")
      for k in KINDS[:2] for dtype in MORE),
    *(case("the op in lower case", reduce("sum", op("add", RID, const(1))), [k[1] * (k[1] + 1) // 2] * k[1], k)
      for k in KINDS[:2]),
    *(case("a nest", reduce("SUM", op("dict", {"a": per_replica(*[float(i) for i in range(k[1])]),
                                               "b": op("list", per_replica(*[[1.0 + i] for i in range(k[1])]))})),
           {"a": [float(sum(range(k[1])))] * k[1], "b": [[[float(k[1] + sum(range(k[1])))]] * k[1]]}, k)
      for k in KINDS),
    *(case("ints and floats in one nest",
           reduce("SUM", op("list", per_replica(*[1.0] * k[1]), per_replica(*[2] * k[1]))),
           [[float(k[1])] * k[1], [2 * k[1]] * k[1]], k, **UNSAID) for k in KINDS),
    *(case("a matrix keeps its shape", reduce("SUM", per_replica(*[[[1.0, 2.0], [3.0, 4.0]]] * k[1])),
           [[[1.0 * k[1], 2.0 * k[1]], [3.0 * k[1], 4.0 * k[1]]]] * k[1], k) for k in KINDS),
    *(case("an empty array", reduce("SUM", per_replica(*[[]] * k[1], dtype="float32")), [[]] * k[1], k)
      for k in KINDS),
    *(case("three calls, one after another", run(seq(let("a", op("all_reduce", "SUM", const(1.0))),
                                      op("all_reduce", "SUM", op("add", ["get", "a"], const(0.0))))),
           [float(k[1] ** 2)] * k[1], k) for k in KINDS),
    *(case("on one replica the value comes back", reduce("SUM", const([1.0, 2.0])), [1.0, 2.0], (kind, 1))
      for kind in ("mirrored", "one_device", "default")),
    *(case("a value that replicas share counts once per replica",
           seq(let("x", const([1.0, 2.0])), reduce("SUM", ["get", "x"])), [[1.0 * k[1], 2.0 * k[1]]] * k[1], k,
           document="ambiguous: the examples make a tensor in each replica") for k in KINDS),
    *(case(f"shapes that differ are refused, replica {i}", reduce("SUM", per_replica(
        *[[1.0] * (2 if j == i else 1) for j in range(k[1])])), strategy=k, fails=("value",), then=fine(k[1]))
      for k in KINDS for i in range(1, k[1])),
    *(case(f"dtypes that differ are refused, replica {i}", run(op("all_reduce", "SUM", ["pick", [
        const(1, "int64" if j == i else "float64") for j in range(k[1])]])), strategy=k,
        fails=("value", "type"), then=fine(k[1])) for k in KINDS for i in range(1, k[1])),
    *(case(f"structures that differ are refused, replica {i}", run(op("all_reduce", "SUM", ["pick", [
        op("list", *[const(1.0)] * (2 if j == i else 1)) for j in range(k[1])]])), strategy=k,
        fails=("value", "type", "context"), then=fine(k[1])) for k in KINDS for i in range(1, k[1])),
    *(case(f"a replica that does not make the call is an error, replica {i}",
           run(op("only", i, RID, op("all_reduce", "SUM", const(1.0)))), strategy=k,
           fails=("context", "value"), then=fine(k[1])) for k in KINDS for i in range(k[1])),
    *(case("ops that differ are refused", run(["pick", [
        op("all_reduce", "MEAN" if j else "SUM", const(1.0)) for j in range(k[1])]]), strategy=k,
        fails=("value", "context"), then=fine(k[1]), **UNSAID) for k in KINDS),
    *(case("one replica gathers, the other reduces", run(["pick", [
        op("all_gather", const([1.0]), 0) if j else op("all_reduce", "SUM", const([1.0])) for j in range(k[1])]]),
        strategy=k, fails=("value", "context"), then=fine(k[1])) for k in KINDS),
    *(case("booleans are refused", reduce("SUM", per_replica(*[True] * k[1], dtype="bool")), strategy=k,
           fails=("type", "value"), then=fine(k[1]), **UNSAID) for k in KINDS),
    *(case(f"a reduce op that does not exist is refused, {bad!r}", reduce(bad, const(1.0)), strategy=k,
           fails=("value", "type", "lookup"), then=fine(k[1])) for k in KINDS[:2] for bad in ("PRODUCT", 3, None)),
]
