"""A worked testee: a small implementation of its own, in Python with NumPy, that speaks the suite's protocol.

    python -m refdist.conformance --adapter "testee:python conformance/testees/worked.py"

It shares only JSON with the suite. `Run`, `Strategy` and `ReplicaContext` are the implementation: replicas are threads,
and in a collective wait at a barrier, where the last to come combines what all have given. `Program` carries out the
steps of a case, and `result_of` makes results of values. What is not implemented raises NotImplementedError.
"""

from __future__ import annotations

import json
import operator
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np

HAS = ["Default", "OneDevice", "Mirrored", "Central", "two strategies", "all_reduce", "all_gather", "merge_call",
       "reduce", "gather", "values from functions", "exceptions"]
ARRAY = (np.ndarray, np.generic)


class PerReplica:
    """A value for each replica."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __bool__(self) -> bool:
        raise TypeError("a value of several replicas is not a bool")


def expect(right: object, error: type[Exception], message: str) -> None:
    if not right:
        raise error(message)


def form(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    return [type(value), *map(form, value)] if isinstance(value, (list, tuple)) else None


def mapped(function: Callable[..., Any], *values: Any) -> Any:
    """A structure with the function of the leaves of several structures."""
    first = values[0]
    expect(all(form(value) == form(first) for value in values), ValueError, "the structures differ")
    if isinstance(first, dict):
        return {key: mapped(function, *(value[key] for value in values)) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)([mapped(function, *items) for items in zip(*values, strict=True)])
    return function(*values)


def regrouped(results: Sequence[Any]) -> Any:
    """What the replicas have as one structure; what is the same object on all of them remains that object."""
    def together(*parts: Any) -> Any:
        same = all(part is parts[0] for part in parts) and not isinstance(parts[0], ARRAY)
        return parts[0] if same else PerReplica(*parts)

    return results[0] if len(results) == 1 else mapped(together, *results)


def array(value: Any, dtype: Any = None) -> Any:
    expect(not isinstance(value, PerReplica), TypeError, "a value of several replicas is not an array")
    result = np.array(value, dtype)
    expect(result.dtype.kind != "O", ValueError, "neither numbers, bools nor texts")
    expect(result.dtype.kind != "U", NotImplementedError, "arrays of texts")
    short = {"i": np.int32, "f": np.float32}.get(result.dtype.kind)
    return result if dtype or isinstance(value, ARRAY) or not short else result.astype(short)


def joined(parts: Sequence[Any], axis: Any, join: Callable[..., Any] = np.concatenate) -> Any:
    expect(not isinstance(axis, (list, tuple)), NotImplementedError, "several axes")
    expect(len({part.dtype for part in parts}) == 1, ValueError, "the dtypes differ")
    return join(parts, operator.index(axis))


def reduced(op: str, rows: Any) -> Any:
    expect(op in ("SUM", "MEAN"), ValueError, f"{op} is not a ReduceOp")
    expect(len(rows), NotImplementedError, "sums of nothing")
    expect(rows.dtype.kind in "iufc", TypeError, f"arrays of {rows.dtype} cannot be added")
    total = sum(rows[1:], rows[0])
    exact = rows.dtype.kind in "fc"
    return np.asarray(total if op == "SUM" else total / len(rows), rows.dtype if op == "SUM" or exact else np.float64)


class Run:
    """The replicas of a run in lock step. One that has ended comes to each rendezvous with None in place of a call."""

    def __init__(self, size: int) -> None:
        self.calls: list[Any] = [None] * size
        self.found: Any = None
        self.barrier = threading.Barrier(size, self.combine)

    def meet(self, i: int, call: Any) -> Any:
        self.calls[i] = call
        self.barrier.wait()
        return self.found

    def combine(self) -> None:
        """Finds the result of each replica, or an error; None when all have ended."""
        self.found = None
        try:
            if any(self.calls):
                expect(all(self.calls), RuntimeError, "a replica does not come to the call of the others")
                names, arguments, values, functions = zip(*self.calls, strict=True)
                expect(len(set(names)) == 1, RuntimeError, "the replicas are in different calls")
                expect(all(given == arguments[0] for given in arguments), ValueError, "their arguments differ")
                self.found = functions[0](values)
        except Exception as error:
            self.found = error


class Strategy:
    """All kinds of strategies on one worker."""

    def __init__(self, kind: str, replicas: int) -> None:
        self.num_replicas_in_sync, self._lone, self.kind = replicas, kind in ("Default", "OneDevice"), kind

    def _across(self) -> None:
        between_runs = now().strategy is self and now().replica_id_in_sync_group is None
        expect(between_runs or now() is ENTERED.get()[0], RuntimeError, "in a replica or another scope")

    def scope(self) -> Any:
        self._across()
        return ENTERED.get()[0] if self is DEFAULT else ReplicaContext(self, None)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._across()
        expect(callable(fn), TypeError, "the first argument is not a function")
        expect(isinstance(args, (list, tuple)) and isinstance(kwargs or {}, dict), ValueError, "not a list and a dict")
        given, run, errors = self._parts((args, kwargs or {})), Run(self.num_replicas_in_sync), list[Exception]()

        def replica(i: int) -> Any:
            try:
                with ReplicaContext(self, i, run):
                    return fn(*given[i][0], **given[i][1])
            except Exception as error:
                errors.append(error)
            finally:
                while run.meet(i, None):
                    pass

        with ThreadPoolExecutor(len(given)) as pool:
            results = list(pool.map(replica, range(len(given))))
        if errors:  # the others may be that a replica waited for the first one in vain
            raise errors[0]
        return regrouped(results)

    def _parts(self, value: Any) -> list[Any]:
        def part(leaf: Any, i: int) -> Any:
            parts = leaf.parts if isinstance(leaf, PerReplica) else [leaf] * self.num_replicas_in_sync
            expect(len(parts) == self.num_replicas_in_sync, ValueError, "of another number of replicas")
            return parts[i]

        return [mapped(lambda leaf, i=i: part(leaf, i), value) for i in range(self.num_replicas_in_sync)]

    def _combined(self, value: Any, combine: Callable[[list[Any], bool], Any]) -> Any:
        self._across()
        return mapped(lambda leaf, *parts: combine(list(map(array, parts)), isinstance(leaf, PerReplica)),
                      value, *self._parts(value))

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        op = "SUM" if axis is None and self.kind == "OneDevice" and reduce_op == "MEAN" else str(reduce_op).upper()

        def combine(parts: list[Any], distributed: bool) -> Any:
            if axis is not None:
                return reduced(op, np.moveaxis(joined(parts, axis), axis, 0))
            expect(distributed or len(parts) == 1 or op == "MEAN", ValueError, "a sum of what is not distributed")
            return reduced(op, joined(parts if distributed else parts[:1], 0, np.stack))

        return self._combined(value, combine)

    def gather(self, value: Any, axis: Any) -> Any:
        return self._combined(value, lambda parts, distributed: joined(parts if distributed else parts[:1], axis))

    def experimental_distribute_values_from_function(self, value_fn: Any) -> Any:
        values = [value_fn(ReplicaContext(self, i)) for i in range(self.num_replicas_in_sync)]
        return values[0] if self._lone else mapped(PerReplica, *values)


class ReplicaContext:
    """What a replica can ask and do; without a number it is the context across replicas. Both can be entered."""

    def __init__(self, strategy: Strategy, i: int | None, run: Run | None = None) -> None:
        self.strategy, self.replica_id_in_sync_group, self._run = strategy, i, run or Run(1)
        self.num_replicas_in_sync = strategy.num_replicas_in_sync

    def __enter__(self) -> Strategy:
        ENTERED.set((*ENTERED.get(), self))
        return self.strategy

    def __exit__(self, *error: object) -> None:
        ENTERED.set(ENTERED.get()[:-1])

    def _meet(self, name: str, argument: Any, value: Any, combine: Callable[[Any], Any]) -> Any:
        expect(now() is self, RuntimeError, "this is not the replica that runs")
        i = self.replica_id_in_sync_group or 0
        results = self._run.meet(i, (name, argument, value, combine))
        if isinstance(results, Exception):
            raise results
        return results[i]

    def _collective(self, name: str, argument: Any, value: Any, options: Any, combine: Callable[[Any], Any]) -> Any:
        expect(options is None, TypeError, "there are no options here")
        arrays = mapped(array, self.strategy._parts(value)[self.replica_id_in_sync_group or 0])
        return self._meet(name, (argument, form(arrays)), arrays, lambda values: [
            mapped(lambda *parts: combine(parts), *values)] * len(values))

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        op = str(reduce_op).upper()
        return self._collective("all_reduce", op, value, options, lambda all: reduced(op, joined(all, 0, np.stack)))

    def all_gather(self, value: Any, axis: Any, options: Any = None) -> Any:
        return self._collective("all_gather", axis, value, options, lambda parts: joined(parts, axis))

    def merge_call(self, merge_fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        def merge(values: Any) -> list[Any]:
            merged, named = regrouped(values)
            with ReplicaContext(self.strategy, None) as strategy:
                return strategy._parts(merge_fn(strategy, *merged, **named))

        expect(callable(merge_fn), TypeError, "the first argument is not a function")
        given = (tuple(args), kwargs or {})
        return self._meet(f"merge_call of {merge_fn.__name__}", form(given), given, merge)


DEFAULT = Strategy("Default", 1)
ENTERED: ContextVar[tuple[ReplicaContext, ...]] = ContextVar("entered", default=(ReplicaContext(DEFAULT, 0),))
NAMES: dict[str, Any] = {
    "tf.constant": array, "tf.distribute.ReduceOp.SUM": "SUM", "tf.distribute.ReduceOp.MEAN": "MEAN",
    "tf.distribute.get_replica_context": lambda: None if now().replica_id_in_sync_group is None else now(),
    "tf.distribute.get_strategy": lambda: now().strategy,
    "tf.distribute.has_strategy": lambda: now().strategy is not DEFAULT,
    "tf.distribute.in_cross_replica_context": lambda: now().replica_id_in_sync_group is None,
    **{f"tf.{name}": np.dtype(name) for name in ("float32", "int32", "int64", "bool")}}
OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": lambda a, *b: a - b[0] if b else -a, "*": operator.mul, "/": operator.truediv,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "[]": operator.getitem, "is": operator.is_, "not": operator.not_, "int": int, "float": float, "bool": bool,
    "list": list, "tuple": tuple, "length": len}
KINDS: dict[str, type[Exception]] = {
    "context": RuntimeError, "type": TypeError, "value": ValueError, "lookup": LookupError, "crash": Exception}


def now() -> ReplicaContext:
    return ENTERED.get()[-1]


class Program:
    """Carries out steps; `values` are those of a body by their ids, and begin with those of the bodies around it."""

    def __init__(self, **names: Any) -> None:
        self.names, self.kept, self.demanded = {**NAMES, **names}, dict[Any, Any](), list[Any]()
        self.literals: dict[Any, Any] = {}  # what is equal is one object

    def steps(self, steps: Any, values: dict[Any, Any]) -> None:
        for step in steps:
            result = self.step(step, values)
            expect(step.get("is", result_of(result)) == result_of(result), Exception, f"not as in {step}")
            values[step.get("id")] = self.kept[step.get("keep")] = result

    def step(self, step: Any, values: dict[Any, Any]) -> Any:
        expect("raises" not in step, NotImplementedError, "programs that catch exceptions")
        if "raise" in step:
            raise KINDS[step["raise"]]("raised by the program")
        if "with" in step:
            with self.value(step["with"], values) as values[step.get("id")]:
                self.steps(step["steps"], values)
            return values[step.get("id")]
        args = [self.value(argument, values) for argument in step.get("args", [])]
        kwargs = {name: self.value(argument, values) for name, argument in step.get("kwargs", {}).items()}
        if "call" in step:
            called = {"name": step["call"]} if isinstance(step["call"], str) else step["call"]
            return self.value(called, values)(*args, **kwargs)
        name = step.get("method", step.get("get"))
        if name and isinstance(args[0], (Strategy, ReplicaContext)) and hasattr(args[0], name):
            return getattr(args[0], name) if "get" in step else getattr(args[0], name)(*args[1:], **kwargs)
        expect(step.get("operator") in OPERATORS, NotImplementedError, f"the step {step}")
        return OPERATORS[step["operator"]](*args)

    def value(self, tree: Any, values: dict[Any, Any]) -> Any:
        kind, content = next(iter(tree.items())) if isinstance(tree, dict) else ("literal", tree)
        known = {"ref": values, "kept": self.kept, "name": self.names}
        if kind in known and content in known[kind]:
            return known[kind][content]
        if kind in ("ints", "floats"):
            return [self.value({kind[:-1]: item}, values) for item in content]
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](self.value(item, values) for item in content)
        if kind == "dict":
            return {key: self.value(item, values) for key, item in content.items()}
        if kind == "function":
            return self.function(content["name"], list(content["bodies"]), values)
        expect(kind in ("literal", "int", "float"), NotImplementedError, f"the value {tree}")
        literal = content if kind == "literal" else {"int": int, "float": float}[kind](content)
        return self.literals.setdefault((kind, literal), literal)

    def function(self, name: str, bodies: list[Any], outer: dict[Any, Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            i = now().replica_id_in_sync_group
            body: Any = next((candidate for candidate in list(bodies) if candidate.get("replica", i) == i), None)
            expect(body is not None, Exception, f"{name} is called once more than expected")
            if "replica" in body:
                bodies.remove(body)
            parameters, keywords = body.get("parameters", []), body.get("keywords", {})
            expect(len(args) == len(parameters) and kwargs.keys() == keywords.keys(), TypeError, f"arguments of {name}")
            named = {keywords[key]: value for key, value in kwargs.items()}
            values = {**outer, **dict(zip(parameters, args, strict=True)), **named}
            self.kept.update((int(key), values[own]) for key, own in body.get("keep", {}).items())
            self.steps(body.get("steps", []), values)
            return self.value(body.get("returns"), values)

        self.demanded.append(bodies)
        function.__name__ = name
        return function


def number(value: Any) -> Any:
    """A number as an element: JSON has no NaN, infinity and negative zero, and few readers long integers."""
    special = isinstance(value, float) and (not np.isfinite(value) or str(value) == "-0.0")
    return str(value) if special or (isinstance(value, int) and abs(value) > 2**53) else value


def result_of(value: Any) -> Any:
    """A value as a result."""
    if type(value) in (int, float):
        return {type(value).__name__: number(value)}
    if isinstance(value, ARRAY):
        data = [number(element) for element in np.asarray(value).ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, PerReplica):
        return {"per_replica": list(map(result_of, value.parts))}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: list(map(result_of, value))}
    if isinstance(value, dict):
        return {"dict": {key: result_of(item) for key, item in value.items()}}
    return value if value is None or isinstance(value, (bool, str)) else {"object": type(value).__name__}


def answer(case: Any) -> dict[str, Any]:
    if "programs" not in case:
        return {"skip": case["only_python"]}
    kind, replicas = case["strategy"]["kind"], case["strategy"]["replicas"]
    strategy = DEFAULT if kind == "Default" else Strategy(kind, replicas)
    program, values, pairs = Program(strategy=strategy, other=Strategy("Mirrored", 2)), dict[Any, Any](), list[Any]()
    for statement in case["programs"][0]:
        i = statement["statement"]
        try:
            program.steps(statement.get("steps", []), values)
            result = result_of(program.value(statement.get("value"), values))
            late = any(body.get("by", i + 1) <= i for bodies in program.demanded for body in bodies)
            expect(not late, Exception, "a function was not called")
            if i in case["observe"]:
                pairs.append([i, result])
        except NotImplementedError as error:
            return {"unsupported": str(error)}
        except Exception as error:
            raised = next(kind for kind, known in KINDS.items() if isinstance(error, known))
            pairs.append([i, {"error": raised, "message": f"{type(error).__name__}: {error}"}])
            if i not in case["observe"]:
                break
    return {"answers": [pairs]}


if __name__ == "__main__":
    sys.stdin.readline()
    print(json.dumps({"protocol": 1, "name": "worked.py", "version": "1", "has": HAS}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"id": question["id"], **answer(question["case"])}), flush=True)
