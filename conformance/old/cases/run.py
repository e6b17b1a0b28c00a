"""Strategy.run: arguments, results, structures, failures."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details, Standing
from refdist.conformance.old.language import Program, const, get, let, op, per_replica, run, seq

SOURCE = PAGE.format("Strategy.run")
RID = op("replica_id")
SAID: Standing = {}
UNSAID: Standing = {"level": "recommended", "document": "silent"}
KINDS = [("mirrored", n) for n in (2, 3, 4)] + [("central", 2)]


def case(name: str, program: Program, gives: object = None, strategy: tuple[str, int] = ("mirrored", 2),
         **more: Unpack[Details]) -> Case:
    needs = frozenset({"central"} if strategy[0] == "central" else ())
    return Case(f"{name}: {strategy[0]} {strategy[1]}", program, gives, strategy=strategy, source=SOURCE,
                needs=needs, **more)


CASES = [
    *(case("replicas are numbered from 0", run(RID), [*range(k[1])], k) for k in KINDS),
    *(case("every replica knows how many there are", run(op("num_replicas")), [k[1]] * k[1], k) for k in KINDS),
    *(case("replicas compute with an argument of run",
           run(op("add", get("0"), const(1.0)), const(2.0)), [3.0] * k[1], k)
      for k in KINDS),
    *(case("a distributed argument is taken apart",
           seq(let("x", run(op("mul", RID, const(10)))), run(op("add", get("0"), const(1)), get("x"))),
           [10 * i + 1 for i in range(k[1])], k) for k in KINDS),
    *(case(f"a distributed value in a {name} is taken apart",
           seq(let("x", run(op("mul", RID, const(10)))),
               run(op("add", op("item", op("item", get("0"), key), 0), const(1)), inside)),
           [10 * i + 1 for i in range(k[1])], k) for k in KINDS for name, inside, key in (
               ("list in a dict", op("dict", {"a": const(5), "b": op("list", get("x"))}), "b"),
               ("list in a list", op("list", const(5), op("list", get("x"))), 1))),
    *(case(f"a replica that changes {name} in place does not change {whose}",
           seq(let("x", made), run(op("change", get("0"), const(1.0)), get("x")), then), gives, k)
      for k in KINDS for name, made, of_user in (
          ("an array", const([1.0, 2.0]), [1.0, 2.0]),
          ("its part of a value", run(const([1.0, 2.0])), [[1.0, 2.0]] * k[1]))
      for whose, then, gives in (
          ("the user's", get("x"), of_user),
          ("the other replicas'", run(op("only", 0, seq(op("change", get("0"), const(1.0)), const([1.0, 2.0])),
                                         op("mul", get("0"), const(1.0))), get("x")), [[1.0, 2.0]] * k[1]))),
    *(case("two arguments", seq(let("x", run(RID)), run(op("add", get("0"), get("1")), get("x"), get("x"))),
           [2 * i for i in range(k[1])], k) for k in KINDS),
    *(case("a list of results is a list of values", run(op("list", RID, op("mul", RID, const(2)))),
           [[*range(k[1])], [2 * i for i in range(k[1])]], k) for k in KINDS),
    *(case("a dict of results is a dict of values", run(op("dict", {"a": RID, "b": op("list", RID)})),
           {"a": [*range(k[1])], "b": [[*range(k[1])]]}, k) for k in KINDS),
    *(case("results may have different shapes",
           run(["pick", [const([1.0] * (i + 1)) for i in range(k[1])]]), [[1.0] * (i + 1) for i in range(k[1])], k)
      for k in KINDS),
    *(case("with one replica nothing is wrapped", run(const([1.0, 2.0])), [1.0, 2.0], (kind, 1))
      for kind in ("mirrored", "one_device", "default")),
    case("local results of a result are a tuple", op("local", run(RID)), [0, 1]),
    case("local results of a plain value are that value", op("local", const(5.0)), [5.0]),
    *(case(f"structures that differ are refused, {name}", run(["pick", [first, second]]), fails=("value", "type"),
           then=(run(RID), [0, 1]), **level)
      for name, first, second, level in (
        ("lengths", op("list", RID), op("list", RID, RID), SAID),
        ("keys", op("dict", {"a": RID}), op("dict", {"b": RID}), SAID),
        ("a list and an array", op("list", RID), RID, SAID),
        ("a dict and a list", op("dict", {"a": RID}), op("list", RID), SAID),
        ("an array and a list", RID, op("list", RID), UNSAID))),
    *(case(f"an exception of a replica comes out of run, replica {i} of {k[1]}",
           run(op("only", i, op("item", op("dict", {}), "gone"), RID)), strategy=k, fails=("lookup",),
           then=(run(RID), [*range(k[1])])) for k in KINDS for i in range(k[1])),
    case("replicas choose by their number", run(per_replica(5.0, 7.0)), [5.0, 7.0]),
]
