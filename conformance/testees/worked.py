"""A worked testee: a small implementation of its own, with replicas in threads, that speaks the suite's protocol.

    python -m refdist.conformance --adapter "testee:python conformance/testees/worked.py"

It shares nothing with the suite but the JSON on its standard input and output, so it shows how much an implementation
in any language has to do. `Strategy`, `Run` and `ReplicaContext` are the implementation; the second half carries out
the steps of a case, as `cases.schema.json` describes them, and makes results of values.
"""

from __future__ import annotations

import json
import operator
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing

HAS = ["Default", "OneDevice", "Mirrored", "Central", "all_reduce", "all_gather", "merge_call", "reduce", "gather",
       "local results", "values from functions", "exceptions", "two strategies"]
Array: TypeAlias = np.typing.NDArray[np.generic]


# The value of each replica, from what each has handed to a rendezvous.
Combine: TypeAlias = Callable[[Sequence[object]], Sequence[object]]


class Unsupported(Exception):
    """What this implementation does not do."""


class Diverged(Exception):
    """The program would go another way here."""


class PerReplica:
    """A value for each replica."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = tuple(values)


# Structures.

def leaves(value: object) -> list[Any]:
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, (list, tuple)) else [value]


def form(value: object) -> object:
    if isinstance(value, dict):
        return {key: form(value[key]) for key in sorted(value)}
    return [type(value), *map(form, value)] if isinstance(value, (list, tuple)) else None


def mapped(function: Callable[..., object], *values: object) -> Any:
    first, alike = values[0], list[Any](values)
    if isinstance(first, dict):
        done = {key: mapped(function, *(one[key] for one in alike)) for key in sorted(first)}
        return {key: done[key] for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)([mapped(function, *items) for items in zip(*alike, strict=True)])
    return function(*values)


def regrouped(results: Sequence[object]) -> Any:
    if len(results) == 1:
        return results[0]
    if any(form(one) != form(results[0]) for one in results):
        raise ValueError("the replicas have different structures")
    return mapped(lambda *parts: parts[0] if all(one is parts[0] for one in parts) and not isinstance(
        parts[0], (np.ndarray, np.generic)) else PerReplica(parts), *results)


# The implementation.

class Frames(threading.local):
    """The contexts that this thread is in, the current one last: a strategy, and in a replica its run and number."""

    def __init__(self) -> None:
        self.all: list[tuple[Strategy, Run | None, int | None]] = []

    def now(self) -> tuple[Strategy, Run | None, int | None]:
        return self.all[-1] if self.all else (DEFAULT, None, 0)


class Entered:
    """A context that can be entered with `with`."""

    def __init__(self, strategy: Strategy, run: Run | None = None, replica: int | None = None) -> None:
        self.frame = strategy, run, replica

    def __enter__(self) -> Strategy:
        strategy, run, replica = FRAMES.now()
        if self.frame[1] is None and (run or (replica is None and strategy is not self.frame[0])):
            raise RuntimeError("a scope in a replica, or in the scope of another strategy")
        FRAMES.all.append(self.frame)
        return self.frame[0]

    def __exit__(self, *error: object) -> None:
        FRAMES.all.pop()


class Run:
    """The replicas of one run. At a rendezvous they wait until all have come, or until one cannot come any more."""

    def __init__(self, size: int) -> None:
        self.size, self.changed, self.gone, self.turn = size, threading.Condition(), 0, 0
        self.arrived: dict[int, tuple[tuple[object, ...], object]] = {}
        self.results: dict[int, object] = {}
        self.error: Exception | None = None

    def meet(self, replica: int, signature: tuple[object, ...], value: object, combine: Combine) -> Any:
        with self.changed:
            self.arrived[replica], turn = (signature, value), self.turn
            if len(self.arrived) + self.gone == self.size:
                self.finish(combine)
            while self.turn == turn:
                self.changed.wait()
            if self.error:
                raise self.error
            return self.results[replica]

    def finish(self, combine: Combine) -> None:
        calls, self.results, self.error = [self.arrived[i] for i in sorted(self.arrived)], {}, None
        try:
            if self.gone or any(one[0][0] != calls[0][0][0] for one in calls):
                raise RuntimeError("the replicas do not all make the same call")
            if any(one[0] != calls[0][0] for one in calls):
                raise ValueError(f"the calls of the replicas differ: {[one[0] for one in calls]}")
            self.results = dict(enumerate(combine([one[1] for one in calls])))
        except Exception as error:
            self.error = error
        self.arrived, self.turn = {}, self.turn + 1
        self.changed.notify_all()

    def leave(self) -> None:
        with self.changed:
            self.gone += 1
            if self.arrived and len(self.arrived) + self.gone == self.size:
                self.finish(lambda values: values)


class Strategy:
    """All kinds of strategies on one worker."""

    def __init__(self, replicas: int) -> None:
        self.num_replicas_in_sync = replicas

    def scope(self) -> Entered:
        if self is DEFAULT:
            raise Unsupported("the scope of the default strategy")
        return Entered(self)

    def across(self) -> None:
        strategy, run, replica = FRAMES.now()
        if run or (replica is None and strategy is not self):
            raise RuntimeError("in a replica, or in the scope of another strategy")

    def run(self, fn: Callable[..., object], args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None) -> Any:
        self.across()
        if not callable(fn) or not isinstance(args, (list, tuple)) or not isinstance(kwargs or {}, dict):
            raise ValueError("run(function, list, dict)")
        count = self.num_replicas_in_sync
        results, errors, run = list[object]([None] * count), list[Exception](), Run(count)

        def replica(i: int) -> None:
            FRAMES.all = [(self, run, i)]
            try:
                mine = self.parts((list(args), kwargs or {}))[i]
                results[i] = fn(*mine[0], **mine[1])
            except Exception as error:
                errors.append(error)
            run.leave()

        threads = [threading.Thread(target=replica, args=(i,)) for i in range(self.num_replicas_in_sync)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if errors:
            # What a replica raised by itself says more than that another one waited for it.
            raise min(errors, key=lambda error: isinstance(error, RuntimeError))
        return regrouped(results)

    def parts(self, value: object) -> list[Any]:
        if any(isinstance(one, PerReplica) and len(one.values) != self.num_replicas_in_sync for one in leaves(value)):
            raise ValueError("a value of another number of replicas")
        return [mapped(lambda leaf: leaf.values[i] if isinstance(leaf, PerReplica) else leaf, value)  # noqa: B023
                for i in range(self.num_replicas_in_sync)]

    def combined(self, value: object, combine: Callable[[list[Array]], Array]) -> Any:
        self.across()
        parts = self.parts(value)
        if self.num_replicas_in_sync > 1 and not all(isinstance(leaf, PerReplica) for leaf in leaves(value)):
            raise Unsupported("values that are not distributed")
        return mapped(lambda *leaf: combine([array(one) for one in leaf]), *parts)

    def reduce(self, reduce_op: object, value: object, axis: object) -> Any:
        if axis is not None:
            raise Unsupported("reduce with an axis")
        return self.combined(value, adding(reduce_op))

    def gather(self, value: object, axis: int) -> Any:
        return self.combined(value, joining(axis))

    def experimental_local_results(self, value: object) -> tuple[object, ...]:
        return value.values if isinstance(value, PerReplica) else (value,)

    def experimental_distribute_values_from_function(self, value_fn: Callable[[ReplicaContext], object]) -> Any:
        self.across()
        return regrouped([value_fn(ReplicaContext(self, None, i)) for i in range(self.num_replicas_in_sync)])


class ReplicaContext:
    """What a replica can ask and do."""

    def __init__(self, strategy: Strategy, run: Run | None, replica: int) -> None:
        self.strategy, self.replica_id_in_sync_group, self._run = strategy, replica, run
        self.num_replicas_in_sync = strategy.num_replicas_in_sync

    def _meet(self, signature: tuple[object, ...], value: object, combine: Combine) -> Any:
        if FRAMES.now() != (self.strategy, self._run, self.replica_id_in_sync_group):
            raise RuntimeError("not in this replica")
        return self._run.meet(self.replica_id_in_sync_group, signature, value, combine) if self._run else \
            combine([value])[0]

    def _collective(self, name: str, op: object, value: object, combine: Callable[[list[Array]], Array]) -> Any:
        arrays = mapped(array, value)
        if any(one.dtype.kind not in "iufc" for one in leaves(arrays)):
            raise Unsupported("bools and texts")
        dtypes = [(one.dtype, one.ndim) for one in leaves(arrays)]
        return self._meet((name, op, form(value), dtypes), arrays,
                          lambda values: [mapped(lambda *parts: combine(list(parts)), *values)] * len(values))

    def all_reduce(self, reduce_op: object, value: object, options: object = None) -> Any:
        if options is not None:
            raise Unsupported("options")
        return self._collective("all_reduce", operation(reduce_op), value, adding(reduce_op))

    def all_gather(self, value: object, axis: int, options: object = None) -> Any:
        if options is not None:
            raise Unsupported("options")
        return self._collective("all_gather", operator.index(axis), value, joining(axis))

    def merge_call(self, merge_fn: Callable[..., object], args: Sequence[object] = (),
                   kwargs: Mapping[str, object] | None = None) -> Any:
        def call(values: Sequence[object]) -> list[Any]:
            given, named = zip(*list[Any](values), strict=True)
            FRAMES.all.append((self.strategy, None, None))
            try:
                merged = given[0][0](self.strategy, *map(regrouped, zip(*(one[1:] for one in given), strict=True)),
                                     **{key: regrouped([one[key] for one in named]) for key in named[0]})
            finally:
                FRAMES.all.pop()
            return self.strategy.parts(merged)

        if not callable(merge_fn):
            raise TypeError("merge_call(function)")
        signature = (f"merge_call {merge_fn.__name__}", form([list(args), kwargs or {}]))
        return self._meet(signature, ((merge_fn, *args), kwargs or {}), call)


def array(value: object, dtype: np.dtype[np.generic] | None = None) -> Array:
    found = np.array(value, dtype)
    if found.dtype.kind in "OU":
        raise Unsupported("arrays of texts and objects")
    short = {"i": np.int32, "f": np.float32}.get(found.dtype.kind)
    return found if dtype or isinstance(value, (np.ndarray, np.generic)) or not short else found.astype(short)


def operation(reduce_op: object) -> str:
    if str(reduce_op).upper() not in ("SUM", "MEAN"):
        raise ValueError(f"{reduce_op} is not SUM or MEAN")
    return str(reduce_op).upper()


def adding(reduce_op: object) -> Callable[[list[Array]], Array]:
    op = operation(reduce_op)

    def add(parts: list[Array]) -> Array:
        if len({(one.dtype, one.shape) for one in parts}) > 1:
            raise ValueError("the replicas have arrays of different shapes or dtypes")
        total = parts[0]
        for one in parts[1:]:
            total = np.add(total, one, dtype=one.dtype)
        if op == "MEAN":
            total = np.asarray(np.divide(total, len(parts)), total.dtype if total.dtype.kind in "fc" else np.float64)
        return np.asarray(total)

    return add


def joining(axis: int) -> Callable[[list[Array]], Array]:
    place = operator.index(axis)

    def join(parts: list[Array]) -> Array:
        if not -parts[0].ndim <= place < parts[0].ndim or len({one.dtype for one in parts}) > 1:
            raise ValueError("there is no such axis, or the dtypes differ")
        return np.concatenate(parts, place)

    return join


DEFAULT, FRAMES = Strategy(1), Frames()


def get_replica_context() -> ReplicaContext | None:
    strategy, run, replica = FRAMES.now()
    return None if replica is None else ReplicaContext(strategy, run, replica)


NAMES: dict[str, Any] = {
    "tf.constant": array, "tf.distribute.get_replica_context": get_replica_context,
    "tf.distribute.get_strategy": lambda: FRAMES.now()[0],
    "tf.distribute.has_strategy": lambda: FRAMES.now()[0] is not DEFAULT,
    "tf.distribute.in_cross_replica_context": lambda: FRAMES.now()[2] is None,
    "tf.distribute.ReduceOp.SUM": "SUM", "tf.distribute.ReduceOp.MEAN": "MEAN",
    **{f"tf.{name}": np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "bool")}}


# The steps of a case.

OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": lambda a, *b: a - b[0] if b else -a, "*": operator.mul, "/": operator.truediv,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "[]": operator.getitem, "is": operator.is_, "not": operator.not_, "int": int, "float": float, "bool": bool,
    "list": list, "tuple": tuple, "text": lambda *parts: "".join(map(str, parts)), "length": len,
    "same": lambda value: value}
KINDS = ((Unsupported, "unsupported"), (RuntimeError, "context"), (TypeError, "type"), (LookupError, "lookup"),
         (AttributeError, "lookup"), (ValueError, "value"))


def kind_of(error: Exception) -> str:
    return next((kind for known, kind in KINDS if isinstance(error, known)), "crash")


# The values of a body, and of those around it, by their ids.
Values: TypeAlias = dict[int | None, object]


class Program:
    """Carries out the steps of a case; literals that are equal are one object, as in the text of a program."""

    def __init__(self, names: dict[str, object]) -> None:
        self.names, self.kept, self.literals = names, dict[int | None, object](), dict[object, object]()

    def steps(self, steps: Sequence[object], values: Values) -> None:
        for step in list[Any](steps):
            try:
                found = self.step(step, values)
            except Exception as error:
                if "raises" not in step or isinstance(error, (Unsupported, Diverged)):
                    raise
                if kind_of(error) != step["raises"]:
                    raise Diverged(f"{error}; {step['raises']} was expected") from error
                continue
            if "raises" in step or ("is" in step and told(found) != step["is"]):
                raise Diverged(f"{told(found)} in {step}")
            values[step.get("id")] = self.kept[step.get("keep")] = found

    def step(self, written: Mapping[str, object], values: Values) -> Any:
        step: Any = dict(written)
        if "with" in step:
            with self.value(step["with"], values) as entered:
                values[step.get("id")] = entered
                self.steps(step["steps"], values)
            return entered
        if "raise" in step:
            raise {kind: known for known, kind in KINDS}.get(step["raise"], Exception)("raised by the program")
        args = [self.value(one, values) for one in step.get("args", [])]
        kwargs = {name: self.value(one, values) for name, one in step.get("kwargs", {}).items()}
        if "call" in step:
            called = step["call"]
            return self.value({"name": called} if isinstance(called, str) else called, values)(*args, **kwargs)
        if "method" in step or "get" in step:
            name = step.get("method") or step["get"]
            if not isinstance(args[0], (Strategy, ReplicaContext)) or not hasattr(args[0], name):
                raise Unsupported(f"{name} of {type(args[0]).__name__}")
            found = getattr(args[0], name)
            return found if "get" in step else found(*args[1:], **kwargs)
        if step.get("operator") not in OPERATORS:
            raise Unsupported(f"the step {step}")
        return OPERATORS[step["operator"]](*args)

    def value(self, tree: object, values: Values) -> Any:
        if not isinstance(tree, dict):
            return self.literals.setdefault((type(tree), tree), tree)
        (form, content), *more = tree.items()
        if form == "ref":
            return values[content]
        if form == "kept":
            return self.kept[content]
        if form == "name" and (content in NAMES or content in self.names):
            return NAMES.get(content, self.names.get(content))
        if form == "function":
            return self.function(content, values)
        if form in ("int", "float"):
            return self.literals.setdefault((form, content), int(content) if form == "int" else float(content))
        if form in ("ints", "floats"):
            return [self.value({form[:-1]: one}, values) for one in content]
        if form == "dict":
            return {key: self.value(one, values) for key, one in content.items()}
        if form in ("list", "tuple") and not more:
            return (list if form == "list" else tuple)(self.value(one, values) for one in content)
        raise Unsupported(f"the value {tree}")

    def function(self, recorded: Mapping[str, object], outer: Values) -> Callable[..., object]:
        waiting: list[Any] = list(recorded["bodies"]) if isinstance(recorded["bodies"], list) else []

        def called(*args: object, **kwargs: object) -> object:
            body = next((one for one in waiting if one.get("replica", any) in (any, FRAMES.now()[2])), None)
            if body is None:
                raise Diverged(f"{recorded['name']} is called once more than expected")
            if "replica" in body:
                waiting.remove(body)
            if len(args) != len(body.get("parameters", [])) or set(kwargs) != set(body.get("keywords", {})):
                raise TypeError("a call with other arguments")
            values = {**outer, **dict(zip(body.get("parameters", []), args, strict=True))}
            values.update((number, kwargs[name]) for name, number in body.get("keywords", {}).items())
            self.kept.update((int(number), values[own]) for number, own in body.get("keep", {}).items())
            self.steps(body.get("steps", []), values)
            return self.value(body.get("returns"), values)

        called.__name__ = str(recorded["name"])
        return called


def told(value: object) -> Any:
    """A value as a result."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) in (int, float):
        return {type(value).__name__: number(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return {"dtype": str(value.dtype), "shape": list(value.shape),
                "data": [number(one) for one in np.asarray(value).ravel().tolist()]}
    if isinstance(value, PerReplica):
        return {"per_replica": [told(one) for one in value.values]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [told(one) for one in value]}
    return {"dict": {key: told(one) for key, one in value.items()}} if isinstance(value, dict) else \
        {"object": type(value).__name__}


def number(one: object) -> Any:
    """A number as an element: JSON has no NaN, infinity and negative zero, and few readers long integers."""
    if isinstance(one, complex):
        return [number(one.real), number(one.imag)]
    special = isinstance(one, float) and (not np.isfinite(one) or str(one) == "-0.0")
    return str(one) if special or (isinstance(one, int) and abs(one) > 2**53) else one


def answer(asked: Mapping[str, object]) -> dict[str, object]:
    case: Any = dict(asked)
    if "programs" not in case:
        return {"skip": case.get("only_python", "there are no steps")}
    program = Program({"strategy": Strategy(case["strategy"]["replicas"]), "other": Strategy(2)})
    if case["strategy"]["kind"] == "Default":
        program.names["strategy"] = DEFAULT
    FRAMES.all, values, pairs = [], Values(), list[object]()
    for statement in case["programs"][0]:
        i = statement["statement"]
        try:
            program.steps(statement.get("steps", []), values)
            if i in case["observe"]:
                pairs.append([i, told(program.value(statement.get("value"), values))])
        except Unsupported as error:
            return {"unsupported": str(error)[:200]}
        except Exception as error:
            pairs.append([i, {"error": kind_of(error), "message": f"{type(error).__name__}: {error}"[:500]}])
            if i not in case["observe"]:
                break
    return {"answers": [pairs]}


if __name__ == "__main__":
    sys.stdin.readline()
    print(json.dumps({"protocol": 1, "name": "worked", "version": "1", "has": HAS}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"id": question["id"], **answer(question["case"])}), flush=True)
