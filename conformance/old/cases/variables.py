"""Creation and reading of variables by synchronization and aggregation."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, op, run, seq, variable

SOURCE = PAGE.format("MirroredStrategy") + ", variables; tf.VariableSynchronization"
KINDS = [("mirrored", 2), ("mirrored", 3), ("central", 2)]
READ = op("read", "v")
ON_READ = frozenset({"sync_on_read"})


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         needs: frozenset[str] = frozenset(), **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=needs | frozenset({"central"} if strategy[0] == "central" else ()),
                **more)


CASES = [
    *(case(f"a variable has its initial value, {dtype}", seq(variable("v", [1, 2], dtype=dtype), READ), [1, 2], k,
           dtype=dtype) for k in KINDS for dtype in ("float32", "float64", "int32", "int64")),
    *(case("a variable of booleans", seq(variable("v", [True, False], dtype="bool"), READ), [True, False], k,
           dtype="bool") for k in KINDS),
    *(case(f"replicas read the value, aggregation {aggregation}",
           seq(variable("v", 3.0, aggregation=aggregation), run(READ)), [3.0] * k[1], k)
      for k in KINDS for aggregation in ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")),
    *(case("every replica has a copy", seq(variable("v", 3.0), op("copies", "v")), [3.0] * k[1], k)
      for k in KINDS if k[0] == "mirrored"),
    case("central storage keeps one copy", seq(variable("v", 3.0), op("copies", "v")), [3.0], ("central", 2)),
    *(case(f"synchronized on read, {aggregation}: replicas read their own",
           seq(variable("v", 3.0, "ON_READ", aggregation), run(READ)), [3.0] * k[1], k, ON_READ)
      for k in KINDS[:2] for aggregation in ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")),
    *(case("synchronized on read, SUM: the sum of the copies is read outside",
           seq(variable("v", 3.0, "ON_READ", "SUM"), READ), 3.0 * k[1], k, ON_READ) for k in KINDS[:2]),
    *(case(f"synchronized on read, {aggregation}: read outside",
           seq(variable("v", 3.0, "ON_READ", aggregation), READ), 3.0, k, ON_READ)
      for k in KINDS[:2] for aggregation in ("MEAN", "ONLY_FIRST_REPLICA")),
    *(case("synchronized on read, NONE: cannot be read across replicas",
           seq(variable("v", 3.0, "ON_READ", "NONE"), op("scope", READ)), strategy=k, needs=ON_READ,
           fails=("value", "type", "unsupported")) for k in KINDS[:2]),
    *(case("synchronization NONE is refused", variable("v", 3.0, "NONE"), strategy=k, fails=("value",),
           then=(seq(variable("w", 1.0), op("read", "w")), 1.0)) for k in KINDS[:2]),
    *(case("a variable belongs to the strategy in whose scope it was created",
           seq(variable("v", 1.0), op("created_in_scope", "v")), True, k, frozenset({"update"})) for k in KINDS),
    *(case("a variable created outside the scope does not belong to the strategy",
           seq(op("variable_here", "v", const(1.0), "AUTO", "NONE"),
                                                     op("created_in_scope", "v")), False, k, frozenset({"update"}))
      for k in KINDS),
    *(case("replicas can create a variable together",
           seq(run(op("variable_here", "v", const(5.0), "AUTO", "NONE")), op("created_in_scope", "v")), True, k,
           frozenset({"update"})) for k in KINDS[:2]),
]
