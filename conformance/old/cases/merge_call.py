"""ReplicaContext.merge_call: all replicas meet, and one function sees all their values."""

from typing import Unpack

from refdist.conformance.old.case import PAGE, Case, Details
from refdist.conformance.old.language import Program, const, get, let, op, run, seq

SOURCE = PAGE.format("ReplicaContext.merge_call")
RID = op("replica_id")


def case(name: str, program: Program, gives: object = None, n: int = 2, kind: str = "mirrored",
         **more: Unpack[Details]) -> Case:
    return Case(f"{name}: {kind} {n}", program, gives, strategy=(kind, n), source=SOURCE,
                needs=frozenset({"central"} if kind == "central" else ()), **more)


EQUAL = "ambiguous: whether results that are one object on all replicas are put together"
WORLDS = [(2, "mirrored"), (3, "mirrored"), (4, "mirrored"), (2, "central")]
CASES = [
    *(case("the values of all replicas arrive", run(op("merge_call", op("local", get("0")), RID)),
           [[i] * n for i in range(n)], n, kind, document=EQUAL) for n, kind in WORLDS),
    *(case("a result that is distributed is taken apart", run(op("merge_call", get("0"), op("mul", RID, const(3)))),
           [3 * i for i in range(n)], n, kind) for n, kind in WORLDS),
    *(case("two arguments", run(op("merge_call", op("list", get("1"), get("0")), RID, op("add", RID, const(5)))),
           [[i + 5 for i in range(n)], [*range(n)]], n, kind) for n, kind in WORLDS),
    *(case("the merge function may return one value for all replicas",
           run(op("merge_call", op("reduce", "SUM", get("0"), None), RID)),
           [sum(range(n))] * n, n, kind, document=EQUAL) for n, kind in WORLDS),
    *(case("several calls, one after another",
           run(seq(let("a", op("merge_call", op("reduce", "SUM", get("0"), None), RID)),
                   op("merge_call", op("reduce", "SUM", get("0"), None), get("a")))),
           [n * sum(range(n))] * n, n, kind, document=EQUAL) for n, kind in WORLDS),
    *(case("a replica that does not make the call is an error",
           run(op("only", 0, op("merge_call", const(1), RID), RID)),
           n=n, kind=kind, fails=("context", "value"), then=(run(RID), [*range(n)])) for n, kind in WORLDS),
    *(case("the last replica does not make the call",
           run(op("only", n - 1, RID, op("merge_call", const(1), RID))), n=n, kind=kind,
           fails=("context", "value"), then=(run(RID), [*range(n)])) for n, kind in WORLDS),
    *(case("an exception of the function comes out",
           run(op("merge_call", op("item", op("dict", {}), "gone"), RID)), n=n, kind=kind, fails=("lookup",),
           then=(run(RID), [*range(n)])) for n, kind in WORLDS),
    *(case("arguments of different structure are refused",
           run(op("merge_call", const(1), ["pick", [op("list", RID)] + [op("list", RID, RID)] * (n - 1)])), n=n,
           kind=kind, fails=("value", "type", "context"), then=(run(RID), [*range(n)])) for n, kind in WORLDS),
]
