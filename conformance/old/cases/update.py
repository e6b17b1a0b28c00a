"""StrategyExtended.update."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, op, run, seq, variable

SOURCE = PAGE.format("StrategyExtended.update")
KINDS = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("central", 2)]
READ = op("read", "v")
METHODS = {"assign": 3.0, "assign_add": 5.0, "assign_sub": -1.0}


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=frozenset({"update"} | ({"central"} if strategy[0] == "central" else set())),
                **more)


def updated(method: str) -> Program:
    return op("update", "v", method, const(3.0))


CASES = [
    *(case(f"every copy is updated by {method}", seq(variable("v", 2.0), updated(method), READ), after, k)
      for k in KINDS for method, after in METHODS.items()),
    *(case(f"copies are equal after {method}", seq(variable("v", 2.0), updated(method), op("copies", "v")),
           [after] * k[1], k) for k in KINDS[:3] for method, after in METHODS.items()),
    *(case(f"in merge_call, {method}", seq(variable("v", 2.0), run(op("merge_call", updated(method))), READ), after, k)
      for k in KINDS for method, after in METHODS.items()),
    *(case("with a value that was reduced", seq(
        variable("v", 2.0), op("update", "v", "assign_add", op("reduce", "SUM", run(const(1.0)), None)), READ),
        2.0 + k[1], k) for k in KINDS),
    *(case("a wrong shape is refused", seq(variable("v", 2.0), op("update", "v", "assign", const([1.0, 2.0]))),
           strategy=k, fails=("value",), then=(op("copies", "v"), [2.0] * (k[1] if k[0] == "mirrored" else 1)))
      for k in KINDS),
]
