"""assign, assign_add, assign_sub and scatter updates, in replicas and outside, by aggregation."""

from collections.abc import Callable
from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, op, per_replica, run, seq, variable

SOURCE = "tf.VariableAggregation; " + PAGE.format("MirroredStrategy") + ", variables"
KINDS = [("mirrored", 2), ("mirrored", 3), ("central", 2)]
READ = op("read", "v")
METHODS: dict[str, Callable[[float, float], float]] = {
    "assign": lambda old, new: new, "assign_add": lambda old, new: old + new, "assign_sub": lambda old, new: old - new}
AGGREGATE: dict[str, Callable[[list[float]], float]] = {
    "SUM": sum, "MEAN": lambda parts: sum(parts) / len(parts), "ONLY_FIRST_REPLICA": lambda parts: parts[0]}


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         needs: frozenset[str] = frozenset(), **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=needs | frozenset({"central"} if strategy[0] == "central" else ()),
                **more)


def parts(n: int) -> list[float]:
    return [2.0 * i + 1.0 for i in range(n)]


def updated(aggregation: str, method: str, n: int, synchronization: str = "AUTO") -> Program:
    return seq(variable("v", 10.0, synchronization, aggregation), run(op("write", "v", method, per_replica(*parts(n)))),
               READ)


def after(aggregation: str, method: str, n: int) -> float:
    return METHODS[method](10.0, AGGREGATE[aggregation](parts(n)))


def rows(method: str, aggregation: str, n: int) -> Program:
    return seq(variable("v", [[1.0], [2.0], [4.0]], aggregation=aggregation),
               op("write_rows", "v", method, const([[8.0], [0.5]]), const([0, 2])), READ)


SCATTERED = {"scatter_add": [[9.0], [2.0], [4.5]], "scatter_sub": [[-7.0], [2.0], [3.5]],
             "scatter_mul": [[8.0], [2.0], [2.0]], "scatter_div": [[0.125], [2.0], [8.0]],
             "scatter_min": [[1.0], [2.0], [0.5]], "scatter_max": [[8.0], [2.0], [4.0]],
             "scatter_update": [[8.0], [2.0], [0.5]]}
SCATTER = frozenset({"scatter"})
ON_READ = frozenset({"sync_on_read"})
FIRST_AND_REST = (seq(variable("w", 1.0), op("read", "w")), 1.0)

CASES = [
    *(case(f"{method} in replicas, aggregation {aggregation}", updated(aggregation, method, k[1]),
           after(aggregation, method, k[1]), k) for k in KINDS for aggregation in AGGREGATE for method in METHODS),
    *(case(f"after {method} in replicas all copies are equal, {aggregation}",
           seq(variable("v", 10.0, aggregation=aggregation),
               run(op("write", "v", method, per_replica(*parts(k[1])))), op("copies", "v")),
           [after(aggregation, method, k[1])] * k[1], k)
      for k in KINDS if k[0] == "mirrored" for aggregation in AGGREGATE for method in METHODS),
    *(case(f"{method} outside replicas, aggregation {aggregation}",
           seq(variable("v", 10.0, aggregation=aggregation), op("write", "v", method, const(3.0)), READ),
           METHODS[method](10.0, 3.0), k)
      for k in KINDS for aggregation in ("NONE", *AGGREGATE) for method in METHODS),
    *(case(f"{method} of different values without aggregation is refused", updated("NONE", method, k[1]), strategy=k,
           fails=("value", "context"), then=(READ, 10.0)) for k in KINDS for method in METHODS),
    *(case(f"{method} of a wrong shape is refused, {aggregation}",
           seq(variable("v", 10.0, aggregation=aggregation), run(op("write", "v", method, const([1.0, 2.0])))),
           strategy=k, fails=("value",), then=(READ, 10.0))
      for k in KINDS for aggregation in AGGREGATE for method in METHODS),
    *(case(f"{method} of a float to an int variable is refused",
           seq(variable("v", 10, aggregation="SUM"), op("write", "v", method, const(0.5))), strategy=k,
           fails=("value", "type"), then=(READ, 10)) for k in KINDS for method in METHODS),
    *(case(f"{method}: a replica that does not make the call is an error, {aggregation}",
           seq(variable("v", 10.0, aggregation=aggregation),
               run(op("only", 0, op("write", "v", method, const(1.0)), op("replica_id")))),
           strategy=k, fails=("context", "value"), then=(READ, 10.0))
      for k in KINDS for aggregation in ("SUM", "MEAN") for method in METHODS),
    *(case(f"{method} of shapes that differ between replicas is refused",
           seq(variable("v", [1.0, 2.0], aggregation="SUM"),
               run(op("write", "v", method, ["pick", [const([1.0] * (2 if i else 1)) for i in range(k[1])]]))),
           strategy=k, fails=("value",), then=(READ, [1.0, 2.0])) for k in KINDS for method in METHODS),
    *(case(f"{method} outside replicas", rows(method, "NONE", k[1]), gives, k, SCATTER)
      for k in KINDS for method, gives in SCATTERED.items()),
    *(case("scatter_div of integers rounds towards zero",
           seq(variable("v", [[-7], [7]]), op("write_rows", "v", "scatter_div", const([[2], [-2]]), const([0, 1])),
               READ), [[-3], [-3]], k, SCATTER) for k in KINDS),
    *(case("scatter_div by zero is refused",
           seq(variable("v", [[1.0], [2.0]]), op("write_rows", "v", "scatter_div", const([[0.0]]), const([0]))),
           strategy=k, needs=SCATTER, fails=("value",), then=(READ, [[1.0], [2.0]])) for k in KINDS),
    *(case(f"{method} of booleans is refused",
           seq(variable("v", [[True]], dtype="bool"), op("write_rows", "v", method, const([[True]]), const([0]))),
           strategy=k, needs=SCATTER, fails=("value", "type"), then=(READ, [[True]]))
      for k in KINDS for method in ("scatter_add", "scatter_sub", "scatter_mul", "scatter_div")),
    *(case("scatter_add outside the variable is refused",
           seq(variable("v", [[1.0], [2.0]]), op("write_rows", "v", "scatter_add", const([[8.0]]), const([7]))),
           strategy=k, needs=SCATTER, fails=("value", "lookup"), then=(READ, [[1.0], [2.0]])) for k in KINDS),
    *(case(f"synchronized on read, {aggregation}: {method} changes a replica's own copy",
           seq(variable("v", 10.0, "ON_READ", aggregation),
               run(op("write", "v", method, per_replica(*parts(k[1])))), op("copies", "v")),
           [METHODS[method](10.0, part) for part in parts(k[1])], k, ON_READ)
      for k in KINDS[:2] for aggregation in ("NONE", *AGGREGATE) for method in METHODS),
    *(case(f"synchronized on read, {aggregation}: what is read after {method}",
           updated(aggregation, method, k[1], "ON_READ"),
           AGGREGATE[aggregation]([METHODS[method](10.0, part) for part in parts(k[1])]), k,
           ON_READ) for k in KINDS[:2] for aggregation in AGGREGATE for method in METHODS),
    *(case("synchronized on read, SUM: assign outside divides the value among the copies",
           seq(variable("v", 0.0, "ON_READ", "SUM"), op("write", "v", "assign", const(12.0)), op("copies", "v")),
           [12.0 / k[1]] * k[1], k, ON_READ) for k in KINDS[:2]),
    *(case("synchronized on read, MEAN: assign outside sets every copy",
           seq(variable("v", 0.0, "ON_READ", "MEAN"), op("write", "v", "assign", const(12.0)), op("copies", "v")),
           [12.0] * k[1], k, ON_READ) for k in KINDS[:2]),
    *(case(f"synchronized on read, SUM: {method} outside is refused",
           seq(variable("v", 1.0, "ON_READ", "SUM"), op("scope", op("write", "v", method, const(1.0)))), strategy=k,
           needs=ON_READ, fails=("value",), then=(op("copies", "v"), [1.0] * k[1]))
      for k in KINDS[:2] for method in ("assign_add", "assign_sub")),
    *(case("updates follow each other", seq(variable("v", 0.0, aggregation="SUM"), run(seq(
        op("write", "v", "assign_add", const(1.0)), op("write", "v", "assign_add", const(2.0)), READ))),
        [3.0 * k[1]] * k[1], k) for k in KINDS),
    case("a write on one replica", seq(variable("v", 1.0), run(op("write", "v", "assign", const(5.0))), READ), 5.0,
         ("mirrored", 1), then=FIRST_AND_REST),
]
