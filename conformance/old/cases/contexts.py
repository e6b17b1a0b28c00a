"""Which context one is in, and which call is allowed where."""

from refdist.conformance.old.case import PAGE, Case
from refdist.conformance.old.language import const, op, run, seq

KINDS = [("mirrored", 2), ("mirrored", 3), ("central", 2), ("mirrored", 1), ("one_device", 1)]
WHERE = op("where")
REPLICA, SCOPE = PAGE.format("ReplicaContext"), PAGE.format("Strategy.scope")
ONE = const(1.0)
# Calls that need all replicas from outside, and calls that a replica makes.
ACROSS = {"reduce": op("reduce", "SUM", ONE, None), "gather": op("gather", const([1.0]), 0), "run": run(ONE)}
INSIDE = {"all_reduce": op("all_reduce", "SUM", ONE), "all_gather": op("all_gather", const([1.0]), 0),
          "merge_call": op("merge_call", WHERE)}


def needs(kind: str) -> frozenset[str]:
    return frozenset({"central"} if kind == "central" else ())


CASES = [
    Case("outside any scope the context is the default replica context", WHERE, "default", strategy=("default", 1),
         source=PAGE.format("get_replica_context")),
    *(Case(f"a scope is a cross-replica context: {kind} {n}", op("scope", WHERE), "cross", strategy=(kind, n),
           source=SCOPE, needs=needs(kind)) for kind, n in KINDS),
    *(Case(f"scopes of one strategy nest: {kind} {n}", op("scope", op("scope", WHERE)), "cross", strategy=(kind, n),
           source=SCOPE, needs=needs(kind)) for kind, n in KINDS),
    *(Case(f"run is a replica context: {kind} {n}", run(WHERE), "replica", strategy=(kind, n), source=REPLICA,
           needs=needs(kind)) for kind, n in KINDS),
    *(Case(f"merge_call is a cross-replica context: {kind} {n}", run(op("merge_call", WHERE)), "cross",
           strategy=(kind, n), source=PAGE.format("ReplicaContext.merge_call"), needs=needs(kind))
      for kind, n in KINDS if n > 1),
    *(Case(f"after merge_call the code is in a replica context again: {kind} {n}",
           run(seq(op("merge_call", WHERE), WHERE)), "replica",
           strategy=(kind, n), source=PAGE.format("ReplicaContext.merge_call"), needs=needs(kind))
      for kind, n in KINDS if n > 1),
    *(Case(f"{name} in a replica is refused: {kind} {n}", run(call), fails=("context",), strategy=(kind, n),
           then=(run(WHERE), "replica"), source=PAGE.format(f"Strategy.{name}"), needs=needs(kind))
      for kind, n in KINDS if n > 1 for name, call in ACROSS.items()),
    *(Case(f"{name} in a scope is refused: {kind} {n}", op("scope", call), fails=("context",), strategy=(kind, n),
           then=(run(WHERE), "replica"), source=PAGE.format(f"ReplicaContext.{name}"), needs=needs(kind))
      for kind, n in KINDS if n > 1 for name, call in INSIDE.items()),
    *(Case(f"{name} in merge_call is refused: {kind} {n}", run(op("merge_call", call)), fails=("context",),
           strategy=(kind, n), then=(run(WHERE), "replica"), source=PAGE.format(f"ReplicaContext.{name}"),
           needs=needs(kind)) for kind, n in KINDS if n > 1 for name, call in INSIDE.items()),
    *(Case(f"{name} in another strategy's scope is refused: {kind} {n}", op("other_scope", "mirrored", 2, call),
           fails=("context",), strategy=(kind, n), then=(run(WHERE), "replica"), source=SCOPE, needs=needs(kind))
      for kind, n in (("central", 2), ("mirrored", 3)) for name, call in ACROSS.items()),
    *(Case(f"a scope inside a replica is refused: {kind} {n}", run(op("scope", WHERE)), fails=("context",),
           strategy=(kind, n), then=(run(WHERE), "replica"), source=SCOPE, needs=needs(kind))
      for kind, n in KINDS if n > 1),
    *(Case(f"another strategy's scope inside a scope is refused: {kind} {n}",
           op("scope", op("other_scope", "mirrored", 2, WHERE)), fails=("context",), strategy=(kind, n),
           then=(run(WHERE), "replica"), source=SCOPE, needs=needs(kind))
      for kind, n in (("central", 2), ("mirrored", 3))),
]
