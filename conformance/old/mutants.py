"""Implementations that are wrong on purpose; at least one case of the concept that each breaks must fail.

A mutant is refdist with one method of its adapter replaced.  The replacement is called with the adapter, the right
method (`call`), and the arguments of the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

import refdist
from refdist.conformance.old.adapters.library import Variable
from refdist.conformance.old.adapters.simulated import Simulated
from refdist.conformance.old.case import judge
from refdist.conformance.old.cases import load


class Mutant(NamedTuple):
    """What is wrong, the concept whose cases must notice, the method that is replaced, and what replaces it."""

    name: str
    concept: str
    method: str
    wrong: Callable[..., Any]


def per_leaf(function: Callable[[np.ndarray[Any, Any]], object]) -> Callable[[object], Any]:
    """A function that applies `function` to every array of a nest."""
    return lambda value: refdist.nest.map_structure(
        lambda leaf: refdist.PerReplica([function(part) for part in leaf.values])
        if isinstance(leaf, refdist.PerReplica) else function(np.asarray(leaf)) if not isinstance(leaf, str) else leaf,
        value)


def swallow(call: Callable[..., object], *args: object) -> object:
    """Calls, and returns 0 where that raises."""
    try:
        return call(*args)
    except Exception:
        return np.float32(0)


def other(op: object) -> object:
    """MEAN for SUM and SUM for MEAN."""
    return {"SUM": "MEAN", "MEAN": "SUM", "sum": "MEAN"}.get(str(op), op)


def first_of(value: object) -> Any:
    """The part of replica 0 for all replicas."""
    if isinstance(value, refdist.PerReplica):
        return refdist.PerReplica([value.values[0]] * len(value.values))
    return value


def backwards(parts: Sequence[object]) -> tuple[object, ...]:
    """The parts in reverse order."""
    return tuple(reversed(parts))


def rid() -> int:
    """The number of the calling replica."""
    context = refdist.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def shuffled(elements: Iterable[object]) -> Iterator[object]:
    """Replica 0 and the last one swap their rows."""
    for element in elements:
        parts = list(element.values) if isinstance(element, refdist.PerReplica) else [element]
        parts[0], parts[-1] = parts[-1], parts[0]
        yield refdist.PerReplica(parts) if len(parts) > 1 else parts[0]


def padded(elements: Iterable[object]) -> Iterator[object]:
    """Shorter pieces are filled up to the length of the longest."""
    for element in elements:
        parts = [np.asarray(part) for part in element.values] if isinstance(element, refdist.PerReplica) else [
            np.asarray(element)]
        most = max(len(part) for part in parts)
        parts = [np.resize(part, most) if len(part) else np.zeros(most, np.int64) for part in parts]
        yield refdist.PerReplica(parts) if len(parts) > 1 else parts[0]


def write_first(a: Simulated, call: Callable[..., object], variable: Variable, method: str, *values: object) -> object:
    """Replicas write the value of replica 0, whatever the aggregation of the variable."""
    if refdist.in_cross_replica_context() or refdist.get_replica_context() is None:
        return call(variable, method, *values)
    shared = refdist.get_replica_context().all_gather(np.asarray(values[0])[None], 0)[0]  # type: ignore[union-attr]
    return call(variable, method, shared)


MUTANTS = [
    Mutant("parameters in the other order", "names", "parameters", lambda a, call, name: call(name)[::-1]),
    Mutant("every name is there", "names", "lookup", lambda a, call, name: (
        call(name) if hasattr(refdist, name.split(".")[0]) else None)),
    Mutant("TF_CONFIG is not read", "resolvers", "tf_config", lambda a, call, text, question: call(None, question)),
    Mutant("a malformed TF_CONFIG is taken for none", "resolvers", "tf_config",
           lambda a, call, text, question: swallow(call, text, question)),
    # all_reduce
    Mutant("sums for means", "all_reduce", "all_reduce", lambda a, call, op, v: call(other(op), v)),
    Mutant("means for sums only", "all_reduce", "all_reduce", lambda a, call, op, v: call("MEAN", v)),
    Mutant("own replica only", "all_reduce", "all_reduce", lambda a, call, op, v: [call(op, v), v][1]),
    Mutant("replica 0's value for all", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op, per_leaf(lambda x: x if rid() == 0 else x * 0)(v))),
    Mutant("one too many", "all_reduce", "all_reduce", lambda a, call, op, v: per_leaf(lambda x: x + 1)(call(op, v))),
    Mutant("the sign is lost", "all_reduce", "all_reduce", lambda a, call, op, v: per_leaf(lambda x: -x)(call(op, v))),
    Mutant("the shape is lost", "all_reduce", "all_reduce", lambda a, call, op, v: per_leaf(np.ravel)(call(op, v))),
    Mutant("everything becomes float32", "all_reduce", "all_reduce", lambda a, call, op, v: per_leaf(
        lambda x: x.astype(np.float32) if x.dtype.kind in "fiu" else x)(call(op, v))),
    Mutant("ints stay ints in a mean", "all_reduce", "all_reduce", lambda a, call, op, v: per_leaf(
        lambda x: x)(call("SUM", v)) if op == "SUM" else per_leaf(lambda x: np.floor(x))(call(op, v))),
    Mutant("only the first leaf", "all_reduce", "all_reduce", lambda a, call, op, v: (
        {"a": call(op, v["a"]), "b": v["b"]} if isinstance(v, dict) else call(op, v))),
    Mutant("errors are swallowed", "all_reduce", "all_reduce", lambda a, call, op, v: swallow(call, op, v)),
    Mutant("any op is a sum", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op if str(op).upper() == "MEAN" else "SUM", v)),
    Mutant("replicas do not wait", "all_reduce", "all_reduce", lambda a, call, op, v: (
        call(op, v) if rid() < 0 else per_leaf(lambda x: x * refdist.get_strategy().num_replicas_in_sync)(v))),
    Mutant("a singleton is broadcast", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op, per_leaf(lambda x: np.resize(x, 2) if x.shape == (1,) else x)(v))),
    Mutant("dtypes are made equal", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op, per_leaf(lambda x: x.astype(np.float64))(v))),
    Mutant("lists are cut to one item", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op, v[:1] if isinstance(v, list) else v)),
    Mutant("booleans are counted", "all_reduce", "all_reduce", lambda a, call, op, v: call(
        op, per_leaf(lambda x: x.astype(np.int32) if x.dtype == bool else x)(v))),
    # all_gather
    Mutant("own part only", "all_gather", "all_gather", lambda a, call, v, axis: [call(v, axis), v][1]),
    Mutant("the axis is ignored", "all_gather", "all_gather", lambda a, call, v, axis: call(v, 0)),
    Mutant("the other order", "all_gather", "all_gather", lambda a, call, v, axis: per_leaf(
        lambda x: x[::-1])(call(v, axis))),
    Mutant("scalars get a dimension", "all_gather", "all_gather", lambda a, call, v, axis: call(
        per_leaf(lambda x: x[None] if x.ndim == 0 else x)(v), axis)),
    Mutant("errors of gathering are swallowed", "all_gather", "all_gather", lambda a, call, v, axis: swallow(
        call, v, axis)),
    Mutant("lengths are made equal", "all_gather", "all_gather", lambda a, call, v, axis: call(
        per_leaf(lambda x: x[:1])(v), axis)),
    Mutant("an axis may be text", "all_gather", "all_gather", lambda a, call, v, axis: call(v, int(axis))),
    Mutant("an axis wraps around", "all_gather", "all_gather", lambda a, call, v, axis: call(
        v, axis if isinstance(axis, str) else axis % 2 if np.ndim(v) == 2 else 0)),
    Mutant("gathered floats are halves", "all_gather", "all_gather", lambda a, call, v, axis: per_leaf(
        lambda x: x.astype(np.float16) if x.dtype.kind == "f" else x)(call(v, axis))),
    # reduce
    Mutant("sums for means outside", "reduce", "reduce", lambda a, call, s, op, v, axis: call(s, other(op), v, axis)),
    Mutant("replica 0 for all", "reduce", "reduce", lambda a, call, s, op, v, axis: call(s, op, first_of(v), axis)),
    Mutant("the axis of reduce is ignored", "reduce", "reduce", lambda a, call, s, op, v, axis: call(s, op, v, None)),
    Mutant("the mean of means", "reduce", "reduce", lambda a, call, s, op, v, axis: (
        call(s, op, refdist.PerReplica([np.asarray(part).mean(axis=axis) for part in v.values]), None)
        if op == "MEAN" and axis is not None and isinstance(v, refdist.PerReplica) else call(s, op, v, axis))),
    Mutant("errors of reduce are swallowed", "reduce", "reduce", lambda a, call, s, op, v, axis: swallow(
        call, s, op, v, axis)),
    Mutant("a plain value is taken for a distributed one", "reduce", "reduce", lambda a, call, s, op, v, axis: (
        v if not isinstance(v, refdist.PerReplica) else call(s, op, v, axis))),
    Mutant("any op reduces", "reduce", "reduce", lambda a, call, s, op, v, axis: call(
        s, op if op in ("SUM", "MEAN") else "SUM", v, axis)),
    Mutant("reduced to one number", "reduce", "reduce", lambda a, call, s, op, v, axis: np.sum(call(s, op, v, axis))),
    Mutant("the last replica is left out", "reduce", "reduce", lambda a, call, s, op, v, axis: call(
        s, op, refdist.PerReplica([*v.values[:-1], np.asarray(v.values[-1]) * 0])
        if isinstance(v, refdist.PerReplica) else v, axis)),
    # gather
    Mutant("gather gives replica 0's", "gather", "gather", lambda a, call, s, v, axis: (
        v.values[0] if isinstance(v, refdist.PerReplica) else call(s, v, axis))),
    Mutant("gather in the other order", "gather", "gather", lambda a, call, s, v, axis: call(
        s, refdist.PerReplica(backwards(v.values)), axis)),
    Mutant("gather ignores the axis", "gather", "gather", lambda a, call, s, v, axis: call(s, v, 0)),
    Mutant("gather adds a dimension", "gather", "gather", lambda a, call, s, v, axis: call(s, v, axis)[None]),
    Mutant("gather takes scalars", "gather", "gather", lambda a, call, s, v, axis: call(
        s, refdist.PerReplica([np.atleast_1d(part) for part in v.values]), axis)),
    Mutant("gather swallows errors", "gather", "gather", lambda a, call, s, v, axis: swallow(call, s, v, axis)),
    # contexts and run
    Mutant("a scope changes nothing", "contexts", "scope", lambda a, call, s: nullcontext()),
    Mutant("always in a replica", "contexts", "where", lambda a, call: "replica"),
    Mutant("run calls once", "run", "run", lambda a, call, s, fn, args: call(s, fn, args).values[0]
           if isinstance(call(s, fn, args), refdist.PerReplica) else call(s, fn, args)),
    Mutant("every replica is number 0", "run", "replica_id", lambda a, call: 0 * call()),
    Mutant("replicas count from 1", "run", "replica_id", lambda a, call: min(
        call() + 1, refdist.get_strategy().num_replicas_in_sync - 1)),
    Mutant("one replica too many is told", "run", "num_replicas", lambda a, call, s: call(s) + 1),
    Mutant("arguments are not taken apart", "run", "run", lambda a, call, s, fn, args: call(
        s, fn, tuple(map(first_of, args)))),
    Mutant("arguments change places", "run", "run", lambda a, call, s, fn, args: call(s, fn, args[:1])),
    Mutant("what a replica raises is lost", "run", "run", lambda a, call, s, fn, args: swallow(call, s, fn, args)),
    Mutant("results come in the other order", "run", "local_results", lambda a, call, s, v: backwards(call(s, v))),
    Mutant("only one local result", "run", "local_results", lambda a, call, s, v: call(s, v)[:1]),
    Mutant("the function is called by every replica alone", "merge_call", "merge_call", lambda a, call, fn, args: fn(
        refdist.get_strategy(), *args)),
    Mutant("merged results are not taken apart", "merge_call", "merge_call", lambda a, call, fn, args: call(
        lambda s, *v: first_of(fn(s, *v)), args)),
    Mutant("merged arguments are replica 0's", "merge_call", "merge_call", lambda a, call, fn, args: call(
        lambda s, *v: fn(s, *map(first_of, v)), args)),
    Mutant("errors of a merge are swallowed", "merge_call", "merge_call", lambda a, call, fn, args: call(
        lambda s, *v: swallow(fn, s, *v), args)),
    Mutant("values from a function are all replica 0's", "values", "values_from_function",
           lambda a, call, s, fn: first_of(call(s, fn))),
    # variables
    Mutant("creators forget the aggregation", "variable_updates", "variable",
           lambda a, call, v, sync, agg: call(v, sync, "NONE")),
    Mutant("every aggregation is a sum", "variable_updates", "variable",
           lambda a, call, v, sync, agg: call(v, sync, "SUM" if agg != "NONE" else agg)),
    Mutant("the first replica's value for every aggregation", "variable_updates", "write", write_first),
    Mutant("synchronization is forgotten", "variables", "variable",
           lambda a, call, v, sync, agg: call(v, "AUTO" if sync == "ON_READ" else sync, agg)),
    Mutant("initial values are zero", "variables", "variable",
           lambda a, call, v, sync, agg: call(np.asarray(v) * 0, sync, agg)),
    Mutant("variables are float32", "variables", "variable",
           lambda a, call, v, sync, agg: call(np.asarray(v).astype(np.float32), sync, agg)),
    Mutant("every variable belongs to the strategy", "variables", "created_in_scope", lambda a, call, s, v: True),
    Mutant("writes are forgotten", "variable_updates", "write", lambda a, call, v, method, *x: None),
    Mutant("subtracting adds", "variable_updates", "write", lambda a, call, v, method, *x: call(
        v, method.replace("sub", "add"), *x)),
    Mutant("adding assigns", "variable_updates", "write", lambda a, call, v, method, *x: call(
        v, "assign" if method.startswith("assign") else method, *x)),
    Mutant("floats are cut for ints", "variable_updates", "write", lambda a, call, v, method, *x: call(
        v, method, *[np.asarray(one).astype(v.dtype) if not isinstance(one, refdist.IndexedSlices) else one
                     for one in x])),
    Mutant("wrong shapes are broadcast", "variable_updates", "write", lambda a, call, v, method, *x: call(
        v, method, *[np.resize(one, v.shape) if not isinstance(one, refdist.IndexedSlices) else one for one in x])),
    Mutant("the state is half changed on an error", "variable_updates", "write",
           lambda a, call, v, method, *x: half(call, v, method, *x)),
    Mutant("rows are always added", "variable_updates", "write", lambda a, call, v, method, *x: call(
        v, "scatter_add" if method.startswith("scatter") else method, *x)),
    Mutant("updates do nothing", "update", "update", lambda a, call, s, v, fn, args: None),
    Mutant("updates happen twice", "update", "update", lambda a, call, s, v, fn, args: [
        call(s, v, fn, args), call(s, v, fn, args)]),
    Mutant("errors of updates are swallowed", "update", "update", lambda a, call, s, v, fn, args: swallow(
        call, s, v, fn, args)),
    # datasets
    Mutant("rows change replicas", "datasets", "distribute", lambda a, call, *x: shuffled(call(*x))),
    Mutant("short batches are padded", "datasets", "distribute", lambda a, call, *x: padded(call(*x))),
    Mutant("the policy is ignored", "datasets", "distribute",
           lambda a, call, s, rows, batch, drop, policy, repeat: call(s, rows, batch, drop, "AUTO", repeat)),
    Mutant("the remainder is always dropped", "datasets", "distribute",
           lambda a, call, s, rows, batch, drop, policy, repeat: call(s, rows, batch, True, policy, repeat)),
    Mutant("a row is lost", "datasets", "distribute",
           lambda a, call, s, rows, batch, drop, policy, repeat: call(
               s, max(rows - 1, 0), batch, drop, policy, repeat)),
    Mutant("functions' batches go to replica 0 first", "datasets", "distribute_from_function",
           lambda a, call, *x: shuffled(call(*x))),
]


def half(call: Callable[..., object], variable: refdist.Variable, method: str, *values: object) -> None:
    """Where writing raises, changes the variable before the exception comes out."""
    try:
        call(variable, method, *values)
    except Exception:
        copies: tuple[Any, ...] = getattr(variable, "_copies", (variable,))
        for copy in copies:
            copy._array = copy._array + 1
        raise


def adapter_of(mutant: Mutant) -> Simulated:
    """refdist with one method replaced."""
    adapter = Simulated()
    right = getattr(adapter, mutant.method)
    setattr(adapter, mutant.method, lambda *args: mutant.wrong(adapter, right, *args))
    return adapter


def killed_by(mutant: Mutant) -> str | None:
    """The first case of the mutant's concept that fails, None when it survives."""
    adapter = adapter_of(mutant)
    for case in load():
        if case.concept == mutant.concept and judge(case, adapter).outcome in ("failed", "errored"):
            return case.name
    return None


def main() -> int:
    """Prints the kill rate; 1 when a mutant survives."""
    survivors = [mutant.name for mutant in MUTANTS if killed_by(mutant) is None]
    print(f"{len(MUTANTS) - len(survivors)} of {len(MUTANTS)} mutants killed")
    for name in survivors:
        print(f"survives: {name}")
    return int(bool(survivors))


if __name__ == "__main__":
    raise SystemExit(main())
