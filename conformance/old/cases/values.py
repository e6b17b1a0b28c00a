"""Values made for each replica, and taken apart again."""

from refdist.conformance.old.case import PAGE, Case
from refdist.conformance.old.language import Program, const, get, let, op, run, seq

SOURCE = PAGE.format("Strategy.experimental_distribute_values_from_function")
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]


def case(name: str, program: Program, gives: object, strategy: tuple[str, int]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({"central"} if strategy[0] == "central" else ()))


def made(n: int) -> Program:
    return op("values", [const([float(i), 1.0]) for i in range(n)])


CASES = [
    *(case("a function makes a value for each replica", op("local", made(k[1])),
           [[float(i), 1.0] for i in range(k[1])], k) for k in KINDS),
    *(case("each replica gets its value", seq(let("v", made(k[1])), run(op("add", get("0"), const(1.0)), get("v"))),
           [[i + 1.0, 2.0] for i in range(k[1])], k) for k in KINDS),
    *(case("values from a function can be reduced",
           op("reduce", "SUM", made(k[1]), None), [float(sum(range(k[1]))), float(k[1])], k)
      for k in KINDS),
    *(case("values from a function can be gathered",
           op("gather", made(k[1]), 0), [x for i in range(k[1]) for x in (float(i), 1.0)], k)
      for k in KINDS),
]
