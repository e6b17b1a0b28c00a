"""A worked testee: a small implementation of its own, with replicas in threads, that speaks the suite's protocol.

    python -m refdist.conformance --adapter "testee:python conformance/testees/worked.py"

It shares nothing with the suite but the JSON on its standard input and output, and was written from
docs/testing-your-implementation.md and docs/protocol.md. `Run`, `Strategy` and `ReplicaContext` are the implementation,
on NumPy; `Program` carries out the steps of a case, and `told` makes results of values.
"""

from __future__ import annotations

import json
import operator
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

HAS = ["Default", "OneDevice", "Mirrored", "Central", "two strategies", "all_reduce", "all_gather", "merge_call",
       "reduce", "gather", "local results", "values from functions", "exceptions"]


class Unsupported(Exception):
    """What this implementation does not do."""


class Diverged(Exception):
    """The program would go another way here."""


class PerReplica:
    """A value for each replica."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __bool__(self) -> bool:
        raise TypeError("a value of several replicas is not a bool")


def expect(right: object, error: type[Exception], message: str) -> None:
    if not right:
        raise error(message)


# Structures and arrays.

def form(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: form(value[key]) for key in sorted(value)}
    return [type(value), *map(form, value)] if isinstance(value, (list, tuple)) else None


def mapped(function: Callable[..., Any], *values: Any) -> Any:
    first = values[0]
    expect(all(form(one) == form(first) for one in values), ValueError, "the structures differ")
    if isinstance(first, dict):
        return {key: mapped(function, *(one[key] for one in values)) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)([mapped(function, *items) for items in zip(*values, strict=True)])
    return function(*values)


def regrouped(results: Sequence[Any]) -> Any:
    def together(*parts: Any) -> Any:
        apart = isinstance(parts[0], (np.ndarray, np.generic)) or any(one is not parts[0] for one in parts)
        return PerReplica(*parts) if apart else parts[0]

    return results[0] if len(results) == 1 else mapped(together, *results)


def array(value: Any, dtype: Any = None) -> Any:
    expect(not isinstance(value, PerReplica), TypeError, "a value of several replicas is not an array")
    found = np.array(value, dtype)
    expect(found.dtype.kind != "O", ValueError, "neither numbers, bools nor texts")
    expect(found.dtype.kind != "U", Unsupported, "arrays of texts")
    short = {"i": np.int32, "f": np.float32}.get(found.dtype.kind)
    return found if dtype or isinstance(value, (np.ndarray, np.generic)) or not short else found.astype(short)


def operation(op: Any) -> str:
    expect(str(op).upper() in ("SUM", "MEAN"), ValueError, f"{op} is not a ReduceOp")
    return str(op).upper()


def reduced(op: Any, parts: Sequence[Any], count: int | None = None) -> Any:
    total = parts[0]
    expect(total.dtype.kind in "iufc", TypeError, f"arrays of {total.dtype} cannot be added")
    expect(len({(one.dtype, one.shape) for one in parts}) == 1, ValueError, "the shapes or dtypes differ")
    for one in parts[1:]:
        total = np.asarray(np.add(total, one, dtype=one.dtype))
    if operation(op) == "SUM":
        return total
    of = total.dtype if total.dtype.kind in "fc" else np.float64
    return np.asarray(np.divide(total, len(parts) if count is None else count), of)


def along(axis: Any, one: Any) -> int:
    expect(not isinstance(axis, (list, tuple)), Unsupported, "several axes")
    place = operator.index(axis)
    expect(-one.ndim <= place < one.ndim, ValueError, f"there is no axis {place}")
    return place


def joined(axis: Any, parts: Sequence[Any]) -> Any:
    expect(len({one.dtype for one in parts}) == 1, ValueError, "the dtypes differ")
    return np.concatenate(parts, along(axis, parts[0]))


# The implementation.

LOCAL = threading.local()  # what the code of a thread is in: `contexts`, the current one last


def now() -> ReplicaContext:
    contexts: list[ReplicaContext] = LOCAL.__dict__.setdefault("contexts", [])
    return contexts[-1] if contexts else OUTSIDE


class Run:
    """The replicas of one run. Those that have ended take part in every rendezvous, with None in place of a call."""

    def __init__(self, size: int) -> None:
        self.calls, self.results, self.errors = list[Any]([None] * size), list[Any](), list[Exception]()
        self.barrier = threading.Barrier(size, self.combine)

    def meet(self, i: int, *call: Any) -> Any:
        self.calls[i] = call
        self.barrier.wait()
        for error in self.errors:
            raise error
        return self.results[i]

    def combine(self) -> None:
        self.errors, self.over = [], not any(self.calls)
        try:
            if not self.over:
                expect(all(self.calls), RuntimeError, "a replica does not come to the call of the others")
                name, argument, combine, _ = self.calls[0]
                expect(all(one[0] == name for one in self.calls), RuntimeError, "the replicas are in different calls")
                expect(all(one[1] == argument for one in self.calls), ValueError, "their arguments differ")
                self.results = combine([one[3] for one in self.calls])
        except Exception as error:
            self.errors = [error]

    def end(self, i: int) -> None:
        self.calls[i] = None
        self.barrier.wait()
        if not self.over:
            self.end(i)


class Strategy:
    """All kinds of strategies on one worker."""

    def __init__(self, kind: str, replicas: int) -> None:
        self.num_replicas_in_sync, self._lone = replicas, kind in ("Default", "OneDevice")

    def _across(self) -> None:
        strategy, i = now().strategy, now().replica_id_in_sync_group
        expect(strategy is DEFAULT or (strategy is self and i is None), RuntimeError, "in a replica or another scope")

    def scope(self) -> Any:
        self._across()
        return ReplicaContext(self, 0 if self is DEFAULT else None)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        self._across()
        expect(callable(fn), TypeError, "the first argument is not a function")
        expect(options is None, Unsupported, "options")
        expect(isinstance(args, (list, tuple)) and isinstance(kwargs or {}, dict), ValueError, "not a list and a dict")
        given, run, errors = self._parts((args, kwargs or {})), Run(self.num_replicas_in_sync), list[Exception]()

        def replica(i: int) -> None:
            try:
                with ReplicaContext(self, i, run):
                    given[i] = fn(*given[i][0], **given[i][1])
            except Exception as error:
                errors.append(error)
            run.end(i)

        with ThreadPoolExecutor(len(given)) as pool:
            list(pool.map(replica, range(len(given))))
        if errors:  # what a replica raised by itself says more than that another one waited for it
            raise min(errors, key=lambda error: isinstance(error, RuntimeError))
        return regrouped(given)

    def _parts(self, value: Any) -> list[Any]:
        def part(leaf: Any, i: int) -> Any:
            if isinstance(leaf, PerReplica):
                expect(len(leaf.parts) == self.num_replicas_in_sync, ValueError, "of another number of replicas")
                return leaf.parts[i]
            return leaf

        return [mapped(lambda leaf, i=i: part(leaf, i), value) for i in range(self.num_replicas_in_sync)]

    def _combined(self, value: Any, combine: Callable[[list[Any], bool], Any]) -> Any:
        self._across()
        return mapped(lambda leaf, *parts: combine([array(one) for one in parts], isinstance(leaf, PerReplica)),
                      value, *self._parts(value))

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        def combine(parts: list[Any], distributed: bool) -> Any:
            if axis is None:
                alone = distributed or len(parts) == 1 or operation(reduce_op) == "MEAN"
                expect(alone, ValueError, "a sum of what is not distributed")
                return reduced(reduce_op, parts if distributed else parts[:1])
            sums = [np.asarray(np.sum(one, along(axis, one), dtype=one.dtype)) for one in parts]
            return reduced(reduce_op, sums, sum(one.shape[along(axis, one)] for one in parts))

        operation(reduce_op)
        return self._combined(value, combine)

    def gather(self, value: Any, axis: Any) -> Any:
        return self._combined(value, lambda parts, distributed: joined(axis, parts if distributed else parts[:1]))

    def experimental_local_results(self, value: Any) -> Any:
        if isinstance(value, PerReplica) and not self._lone:
            return value.parts
        return tuple(self._parts(value)) if isinstance(value, (list, tuple, dict)) and not self._lone else (value,)

    def experimental_distribute_values_from_function(self, value_fn: Any) -> Any:
        values = [value_fn(ReplicaContext(self, i)) for i in range(self.num_replicas_in_sync)]
        return values[0] if self._lone else mapped(PerReplica, *values)


class ReplicaContext:
    """What a replica can ask and do; without a number it is the context across replicas. Both can be entered."""

    def __init__(self, strategy: Strategy, i: int | None, run: Run | None = None) -> None:
        self.strategy, self.replica_id_in_sync_group, self._run = strategy, i, run
        self.num_replicas_in_sync = strategy.num_replicas_in_sync

    def __enter__(self) -> Strategy:
        now()
        LOCAL.contexts.append(self)
        return self.strategy

    def __exit__(self, *error: object) -> None:
        LOCAL.contexts.pop()

    def _meet(self, name: str, argument: Any, combine: Callable[[Any], Any], value: Any) -> Any:
        expect(now() is self, RuntimeError, "this is not the replica that runs")
        i = self.replica_id_in_sync_group or 0
        return self._run.meet(i, name, argument, combine, value) if self._run else combine([value])[0]

    def _collective(self, name: str, argument: Any, value: Any, options: Any, combine: Callable[[Any], Any]) -> Any:
        expect(options is None, Unsupported, "options")
        arrays = mapped(array, self.strategy._parts(value)[self.replica_id_in_sync_group or 0])
        return self._meet(name, (argument, form(arrays)), lambda values: [
            mapped(lambda *parts: combine(parts), *values)] * len(values), arrays)

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        op = operation(reduce_op)
        return self._collective("all_reduce", op, value, options, lambda parts: reduced(op, parts))

    def all_gather(self, value: Any, axis: Any, options: Any = None) -> Any:
        place = operator.index(axis)
        return self._collective("all_gather", place, value, options, lambda parts: joined(place, parts))

    def merge_call(self, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        def merge(values: Any) -> list[Any]:
            merged, named = regrouped(values)
            with ReplicaContext(self.strategy, None) as strategy:
                return strategy._parts(merge_fn(strategy, *merged, **named))

        expect(callable(merge_fn), TypeError, "the first argument is not a function")
        given = (tuple(args), kwargs or {})
        return self._meet(f"merge_call of {merge_fn.__name__}", form(given), merge, given)


DEFAULT = Strategy("Default", 1)
OUTSIDE = ReplicaContext(DEFAULT, 0)
NAMES: dict[str, Any] = {
    "tf.constant": array, "tf.distribute.ReduceOp.SUM": "SUM", "tf.distribute.ReduceOp.MEAN": "MEAN",
    "tf.distribute.get_replica_context": lambda: None if now().replica_id_in_sync_group is None else now(),
    "tf.distribute.get_strategy": lambda: now().strategy,
    "tf.distribute.has_strategy": lambda: now().strategy is not DEFAULT,
    "tf.distribute.in_cross_replica_context": lambda: now().replica_id_in_sync_group is None,
    **{f"tf.{name}": np.dtype(name) for name in ("float32", "int32", "int64", "bool")}}


# The steps of a case.

OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": lambda a, *b: a - b[0] if b else -a, "*": operator.mul, "/": operator.truediv,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "[]": operator.getitem, "is": operator.is_, "not": operator.not_, "int": int, "float": float, "bool": bool,
    "list": list, "tuple": tuple, "length": len, "same": lambda value: value,
    "text": lambda *parts: "".join(map(str, parts))}
KINDS: dict[type[Exception], str] = {
    Unsupported: "unsupported", Diverged: "crash", RuntimeError: "context", TypeError: "type", LookupError: "lookup",
    AttributeError: "lookup", ValueError: "value", Exception: "crash"}


def kind_of(error: Exception) -> str:
    return next(kind for known, kind in KINDS.items() if isinstance(error, known))


class Program:
    """Carries out steps; `values` are those of a body by their ids, and begin with those of the bodies around it."""

    def __init__(self, **names: Any) -> None:
        self.names, self.kept, self.demanded = names, dict[Any, Any](), list[Any]()
        self.literals: dict[Any, Any] = {}  # what is equal is one object

    def steps(self, steps: Any, values: dict[Any, Any]) -> None:
        for step in steps:
            try:
                found = self.step(step, values)
            except Exception as error:
                if "raises" not in step or isinstance(error, (Unsupported, Diverged)):
                    raise
                expect(kind_of(error) == step["raises"], Diverged, f"{error}; {step['raises']} was expected")
                continue
            expect("raises" not in step and step.get("is", told(found)) == told(found), Diverged, f"not as in {step}")
            self.keep(step, found, values)

    def keep(self, step: Any, found: Any, values: dict[Any, Any]) -> None:
        values[step.get("id")] = self.kept[step.get("keep")] = found

    def step(self, step: Any, values: dict[Any, Any]) -> Any:
        if "with" in step:
            with self.value(step["with"], values) as entered:
                self.keep(step, entered, values)
                self.steps(step["steps"], values)
            return entered
        if "raise" in step:
            raise next(known for known, kind in KINDS.items() if kind == step["raise"])("raised by the program")
        args = [self.value(one, values) for one in step.get("args", [])]
        kwargs = {name: self.value(one, values) for name, one in step.get("kwargs", {}).items()}
        if "call" in step:
            called = {"name": step["call"]} if isinstance(step["call"], str) else step["call"]
            return self.value(called, values)(*args, **kwargs)
        name = step.get("method", step.get("get"))
        if name and isinstance(args[0], (Strategy, ReplicaContext)) and hasattr(args[0], name):
            return getattr(args[0], name) if "get" in step else getattr(args[0], name)(*args[1:], **kwargs)
        expect(step.get("operator") in OPERATORS, Unsupported, f"the step {step}")
        return OPERATORS[step["operator"]](*args)

    def value(self, tree: Any, values: dict[Any, Any]) -> Any:
        if not isinstance(tree, dict):
            return self.literals.setdefault((type(tree), tree), tree)
        kind, content = next(iter(tree.items()))
        if kind in ("int", "float"):
            return self.literals.setdefault((kind, content), int(content) if kind == "int" else float(content))
        if kind in ("ints", "floats"):
            return [self.value({kind[:-1]: one}, values) for one in content]
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](self.value(one, values) for one in content)
        if kind == "dict":
            return {key: self.value(one, values) for key, one in content.items()}
        if kind == "function":
            return self.function(content["name"], list(content["bodies"]), values)
        known = {"ref": values, "kept": self.kept, "name": {**NAMES, **self.names}}
        expect(kind in known and content in known[kind], Unsupported, f"the value {tree}")
        return known[kind][content]

    def function(self, name: str, bodies: list[Any], outer: dict[Any, Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            i = now().replica_id_in_sync_group
            body: Any = next((one for one in bodies if one.get("replica", i) == i), None)
            expect(body is not None, Diverged, f"{name} is called once more than expected")
            if "replica" in body:
                bodies.remove(body)
            parameters, keywords = body.get("parameters", []), body.get("keywords", {})
            expect(len(args) == len(parameters) and kwargs.keys() == keywords.keys(), TypeError, f"arguments of {name}")
            values = {**outer, **dict(zip(parameters, args, strict=True))}
            values.update((keywords[key], value) for key, value in kwargs.items())
            self.kept.update((int(key), values[own]) for key, own in body.get("keep", {}).items())
            self.steps(body.get("steps", []), values)
            return self.value(body.get("returns"), values)

        self.demanded.append(bodies)
        function.__name__ = name
        return function


# Results.

def number(one: Any) -> Any:
    """A number as an element: JSON has no NaN, infinity and negative zero, and few readers long integers."""
    special = isinstance(one, float) and (not np.isfinite(one) or str(one) == "-0.0")
    return str(one) if special or (isinstance(one, int) and abs(one) > 2**53) else one


def told(value: Any) -> Any:
    """A value as a result."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) in (int, float):
        return {type(value).__name__: number(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        data = [number(one) for one in np.asarray(value).ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, PerReplica):
        return {"per_replica": list(map(told, value.parts))}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: list(map(told, value))}
    return {"dict": {key: told(one) for key, one in value.items()}} if isinstance(value, dict) else {"object": "object"}


def answer(case: Any) -> dict[str, Any]:
    if "programs" not in case:
        return {"skip": case["only_python"]}
    kind, values, pairs = case["strategy"]["kind"], dict[Any, Any](), list[Any]()
    strategy = DEFAULT if kind == "Default" else Strategy(kind, case["strategy"]["replicas"])
    program = Program(strategy=strategy, other=Strategy("Mirrored", 2))
    for statement in case["programs"][0]:
        i, observed = statement["statement"], statement["statement"] in case["observe"]
        try:
            program.steps(statement.get("steps", []), values)
            result = told(program.value(statement.get("value"), values))
            late = any(body.get("by", i + 1) <= i for bodies in program.demanded for body in bodies)
            expect(not late, Diverged, "a function was not called")
        except Unsupported as error:
            return {"unsupported": str(error)}
        except Exception as error:
            result = {"error": kind_of(error), "message": f"{type(error).__name__}: {error}"}
        if observed or "error" in (result or ""):
            pairs.append([i, result])
        if not observed and "error" in (result or ""):
            break
    return {"answers": [pairs]}


if __name__ == "__main__":
    sys.stdin.readline()
    print(json.dumps({"protocol": 1, "name": "worked.py", "version": "1", "has": HAS}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"id": question["id"], **answer(question["case"])}), flush=True)
