"""Replaying: a recorded case, carried out on any implementation in Python.

It knows nothing of the program that was recorded, so that a record with which refdist passes is complete. It is also
the shortest description of what a record means: a testee in another language does what is done here.
"""

from __future__ import annotations

import builtins
import copy
import json
import operator
import os
import shutil
import tempfile
import threading
from collections import namedtuple
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypedDict

import numpy as np

from refdist.conformance.adapter import Adapter
from refdist.conformance.comparison import differences
from refdist.conformance.examples import BEFORE, Answer, Program, nothing_left, raised, worker
from refdist.conformance.protocol import read_program
from refdist.conformance.results import Result, integer, real


class Diverged(Exception):
    """The implementation did something else than the recorded one, so the rest of the record is not about it."""


# What is read of a record; `cases.schema.json` says what it means.

Step = TypedDict("Step", {
    "call": object, "method": str, "get": str, "set": str, "operator": str, "object": str, "with": object,
    "steps": "list[Step]", "raise": str, "yield": object, "args": list[object], "kwargs": dict[str, object],
    "id": int, "keep": int, "is": Result, "raises": str}, total=False)


class Body(TypedDict, total=False):
    """What a call of a function does."""

    replica: int | None
    by: int
    parameters: list[int | None]
    keywords: dict[str, int | None]
    keep: dict[str, int]
    steps: list[Step]
    returns: object


class Function(TypedDict):
    """A function of the program."""

    name: str
    bodies: list[Body]


class Statement(TypedDict, total=False):
    """A statement of the program."""

    statement: int
    steps: list[Step]
    value: object


class Replaying(Adapter):
    """An adapter that carries out records."""

    _programs: Sequence[Sequence[Statement]]

    def replay(self, record: Mapping[str, object]) -> list[Answer]:
        """Carries out a recorded case: the answer of each worker."""
        programs = record["programs"]
        assert isinstance(programs, list)
        self._programs = programs
        return self.run(read_program(dict(record)))

    def execute(self, program: Program, answer: Answer) -> Answer:
        programs = self._programs
        try:
            names = {"tf": self.tf, "strategy": self.strategy(program.strategy)}
            if '{"name": "other"}' in json.dumps(programs):
                names["other"] = self.strategy("Mirrored 2")
        except Exception as error:
            answer[BEFORE] = raised(self, error)
            return answer
        interpreter = _Interpreter(self, names)
        try:
            with nothing_left(self):
                interpreter.run(programs[worker() if len(programs) > 1 else 0], program.observe, answer)
        finally:
            interpreter.remove()
        return answer


class _Scope:
    """The values of a body, and of those around it."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.values: dict[int | None, object] = {}
        self._outer = outer

    def find(self, number: int) -> Any:
        """The value with this number."""
        if number in self.values:
            return self.values[number]
        if self._outer is None:
            raise Diverged(f"step {number} has no value")
        return self._outer.find(number)


class _Interpreter:
    def __init__(self, adapter: Adapter, names: Mapping[str, object]) -> None:
        self._adapter = adapter
        self._names = names
        self._kept: dict[int, Any] = {}
        self._demanded: list[list[Body]] = []
        self._kinds: dict[tuple[str, ...], Any] = {}
        # A literal of the program is one object, whichever replica has it.
        self._literals: dict[tuple[Any, Any], Any] = {}
        self._lock = threading.Lock()
        self._folders: list[str] = []
        self._operators: dict[str, Callable[..., Any]] = {**OPERATORS, "folder": self._folder}

    def run(self, program: Sequence[Statement], observe: tuple[int, ...], answer: Answer) -> None:
        """Carries out the program of a worker."""
        scope = _Scope()
        for statement in program:
            i = statement["statement"]
            try:
                self._steps(statement.get("steps", []), scope)
                if i in observe:
                    answer[i] = self._adapter.observe(self._value(statement.get("value"), scope))
                for bodies in self._demanded:
                    if late := [body for body in bodies if body.get("by", i + 1) <= i]:
                        raise Diverged(f"a function was called {len(late)} times less than expected")
            except Exception as error:
                answer[i] = raised(self._adapter, error)
                if i not in observe:
                    break

    def remove(self) -> None:
        """Removes the folders that were made."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self) -> str:
        self._folders.append(tempfile.mkdtemp())
        return self._folders[-1]

    # Steps.

    def _steps(self, steps: Sequence[Step], scope: _Scope) -> None:
        for step in steps:
            try:
                result = self._step(step, scope)
            except Exception as error:
                if "raises" not in step or isinstance(error, Diverged):
                    raise
                if (kind := self._adapter.kind_of(error)) != step["raises"]:
                    raise Diverged(f"raises {kind} where {step['raises']} was expected: {error}") from error
                continue
            if "raises" in step:
                raise Diverged(f"does not raise {step['raises']}")
            if "is" in step and (difference := next(differences(step["is"], self._adapter.observe(result)), None)):
                raise Diverged(difference)
            self._store(step, result, scope)

    def _store(self, step: Step, result: object, scope: _Scope) -> None:
        if "id" in step:
            scope.values[step["id"]] = result
        if "keep" in step:
            self._kept[step["keep"]] = result

    def _step(self, step: Step, scope: _Scope) -> Any:
        if "with" in step:
            with self._value(step["with"], scope) as entered:
                self._store(step, entered, scope)
                self._steps(step["steps"], scope)
            return entered
        if "raise" in step:
            raise _RAISED[step["raise"]]("raised by the program")
        args = [self._value(argument, scope) for argument in step.get("args", [])]
        kwargs = {name: self._value(argument, scope) for name, argument in step.get("kwargs", {}).items()}
        if "call" in step:
            called: Any = step["call"]
            function = self._named(called) if isinstance(called, str) else self._value(called, scope)
            return function(*args, **kwargs)
        if "method" in step:
            return getattr(args[0], step["method"])(*args[1:], **kwargs)
        if "get" in step:
            return getattr(args[0], step["get"])
        if "set" in step:
            return setattr(args[0], step["set"], args[1])
        if "object" in step:
            return SimpleNamespace(**kwargs)
        return self._operators[step["operator"]](*args)

    # Values.

    def _value(self, tree: object, scope: _Scope) -> Any:
        if not isinstance(tree, dict):
            return self._literals.setdefault((type(tree), tree), tree)
        if "dtype" in tree:
            return _array(tree)
        if "named" in tree:
            key = (tree["named"], *tree["fields"])
            kind: Any = self._kinds.setdefault(key, namedtuple(key[0], key[1:]))
            return kind(*(self._value(field, scope) for field in tree["fields"].values()))
        (form, content), = tree.items()
        if form == "ref":
            return scope.find(content)
        if form == "kept":
            return self._kept[content]
        if form == "name":
            return self._named(content)
        if form == "function":
            return self._function(content, scope)
        if form in ("int", "float"):
            return self._literals.setdefault((form, content), _NUMBERS[form](content))
        if form in _NUMBERS:
            return _NUMBERS[form](content)
        if form == "range":
            first, step, count = self._value(content[0], scope), self._value(content[1], scope), content[2]
            return [first + i * step for i in range(count)]
        if form == "dict":
            return {key: self._value(item, scope) for key, item in content.items()}
        if form == "pairs":
            return {self._value(key, scope): self._value(item, scope) for key, item in content}
        return _CONTAINERS[form]([self._value(item, scope) for item in content])

    def _named(self, name: str) -> Any:
        first, *rest = name.split(".")
        value = self._names[first] if first in self._names else getattr(builtins, first)
        for part in rest:
            value = getattr(value, part)
        return value

    def _function(self, recorded: Function, scope: _Scope) -> Callable[..., object]:
        bodies = recorded["bodies"]
        any_time = len(bodies) == 1 and "replica" not in bodies[0]
        waiting = list(bodies)
        self._demanded.append([] if any_time else waiting)

        def function(*args: object, **kwargs: object) -> object:
            body = bodies[0] if any_time else self._next(waiting)
            inner = _Scope(scope)
            parameters, keywords = body.get("parameters", []), body.get("keywords", {})
            if len(args) != len(parameters) or set(kwargs) != set(keywords):
                raise TypeError(f"the function takes {len(parameters)} arguments and {sorted(keywords)}, and was "
                                f"called with {len(args)} and {sorted(kwargs)}")
            inner.values.update(zip(parameters, args, strict=True))
            inner.values.update((keywords[key], value) for key, value in kwargs.items())
            for number, own in body.get("keep", {}).items():
                self._kept[int(number)] = inner.find(own)
            if any("yield" in step for step in body.get("steps", [])):
                return self._generated(body["steps"], inner)
            self._steps(body.get("steps", []), inner)
            return self._value(body.get("returns"), inner)

        function.__name__ = function.__qualname__ = recorded["name"]
        return function

    def _generated(self, steps: Sequence[Step], scope: _Scope) -> Iterator[object]:
        for step in steps:
            if "yield" in step:
                yield self._value(step["yield"], scope)
            else:
                self._steps([step], scope)

    def _next(self, waiting: list[Body]) -> Body:
        context = self._adapter.tf.distribute.get_replica_context()
        replica = None if context is None else int(context.replica_id_in_sync_group)
        with self._lock:
            for i, body in enumerate(waiting):
                if body["replica"] == replica:
                    return waiting.pop(i)
        raise Diverged(f"a function is called once more than expected, "
                       f"{'across replicas' if replica is None else f'in replica {replica}'}")


def _array(tree: Mapping[str, Any]) -> Any:
    data = [complex(*map(float, number)) if isinstance(number, list) else float(number) if isinstance(number, str)
            and "float" in tree["dtype"] else int(number) if isinstance(number, str) and "int" in tree["dtype"]
            else number for number in tree["data"]]
    return np.array(data, None if tree["dtype"] == "string" else tree["dtype"]).reshape(tree["shape"])


def _is_in(value: object, container: Container[object]) -> bool:
    return value in container


def _environment(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "int": integer, "float": real, "ints": lambda written: list(map(integer, written)),
    "floats": lambda written: list(map(real, written)), "complex": lambda written: complex(*map(float, written))}
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list, "tuple": tuple, "set": set, "slice": lambda items: slice(*items)}
_RAISED = {"value": ValueError, "type": TypeError, "context": RuntimeError, "lookup": LookupError,
           "end": StopIteration, "unsupported": NotImplementedError, "crash": Exception}
# `cases.schema.json` says what each does, and docs/protocol.md is printed from both.
OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": lambda a, *b: a - b[0] if b else -a, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq,
    "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "abs": abs,
    "~": operator.invert, "is": operator.is_, "not": operator.not_, "in": _is_in, "[]": operator.getitem,
    "[]=": operator.setitem, "int": int, "float": float, "bool": bool, "list": list, "tuple": tuple,
    "text": lambda *parts: "".join(map(str, parts)), "length": len, "same": lambda value: value, "iterate": iter,
    "next": next, "instance": isinstance, "has": hasattr, "type": type, "callable": callable,
    "copy": copy.copy, "deep copy": copy.deepcopy, "round": round,
    "folder": tempfile.mkdtemp, "path": os.path.join, "base name": os.path.basename, "environment": _environment,
    "environment value": os.environ.get, "file": _write}
