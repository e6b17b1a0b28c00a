"""The language in which the programs of the suite are written, and its interpreter.

Why a language: a case must be readable by a person, must be sent to an implementation in another process or another
programming language, and must be made and shortened at random.  So a program is data that JSON can hold: a list
`[operation, argument, ...]`.  The arguments of an operation are programs, and what is not a list is a value of its own:
a number, text, None.  A few arguments are data rather than programs: the nested list of numbers of a `const`, names of
variables, axes, reduce ops.

Each operation is one method of `Interpreter` (`_all_reduce` runs `["all_reduce", ...]`); it evaluates the arguments
that are programs and calls one method of the adapter.  The interpreter knows nothing of the implementation: arrays,
variables, strategies and distributed values are objects that it only passes on, except for `+`, `*` and `[]` of values,
which every array has.  The final value is made plain: an array becomes a NumPy array, a distributed value the
list of its parts, in the order of the replicas.

`run` and `merge_call` are the only operations that change who runs: their body is evaluated by the implementation, once
per replica or once for all of them.  Names that were defined outside are visible inside; names that a replica defines
are its own, because each replica works on a copy of the dict.  Variables belong to the whole program.

A program fails in two ways that must not be confused.  An exception of the implementation is a result, and is compared
with the kinds of errors that the case allows; `Failed` means that the program itself is wrong.

The functions `const`, `run`, `op` ... build programs.  docs/testing-your-implementation.md describes every operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

import numpy as np

from refdist.conformance.old.adapter import Adapter, Strategy, Variable

Program: TypeAlias = "bool | int | float | complex | str | Sequence[Program] | Mapping[str, Program] | None"
# What `let` has named, and the arguments of `run` and `merge_call`: "0", "1" ...
Names: TypeAlias = dict[str, object]


def const(value: Program, dtype: str | None = None) -> Program:
    """An array; numbers without a dtype are float32 or int32."""
    return ["const", value, dtype]


def per_replica(*values: Program, dtype: str | None = None) -> Program:
    """In replica i: the i-th value."""
    return ["pick", [const(value, dtype) for value in values]]


def run(body: Program, *args: Program) -> Program:
    """Runs the body once per replica; in it the arguments are `get("0")`, `get("1")` ..."""
    return ["run", body, *args]


def op(name: str, *arguments: Program) -> Program:
    """A program of any operation."""
    return [name, *arguments]


def get(name: str) -> Program:
    """The value that a `let` has named."""
    return ["get", name]


def let(name: str, value: Program) -> Program:
    """Names a value."""
    return ["let", name, value]


def seq(*programs: Program) -> Program:
    """Runs programs one after another; the value is that of the last one."""
    return ["seq", *programs]


def variable(name: str, initial: Program, synchronization: str = "AUTO", aggregation: str = "NONE",
             dtype: str | None = None) -> Program:
    """Creates a variable in the scope of the strategy."""
    return ["variable", name, const(initial, dtype), synchronization, aggregation]


class Failed(Exception):
    """The program uses an operation that does not exist."""


class Interpreter(Generic[Strategy, Variable]):
    """Runs programs on an adapter, all with one strategy; names and variables are kept from program to program.

    Args:
        adapter: see `adapter.py`.
        strategy: (kind, number of replicas), passed to `adapter.strategy`.
    """

    def __init__(self, adapter: Adapter[Strategy, Variable], strategy: tuple[str, int]) -> None:
        self.adapter = adapter
        self.strategy = adapter.strategy(*strategy)
        self.count = strategy[1]
        self.variables: dict[str, Variable] = {}
        self.names: Names = {}

    def value(self, program: Program) -> Any:
        """Runs a program and returns its value as nested lists and dicts of NumPy arrays."""
        return self._plain(self._do(program, self.names))

    def _plain(self, value: object) -> Any:
        if isinstance(value, dict):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        if value is None or isinstance(value, (str, bool)):
            return value
        parts = self.adapter.local_results(self.strategy, value)
        found = [self.adapter.to_numpy(part) for part in parts]
        return found if self.adapter.is_distributed(value) else found[0]

    def _do(self, program: Program, names: Names) -> Any:
        if not isinstance(program, list):
            return program
        name, *arguments = program
        method = getattr(self, f"_{name}", None)
        if method is None:
            raise Failed(f"the language does not have the operation {name!r}")
        return method(names, *arguments)

    def _all(self, programs: Iterable[Program], names: Names) -> list[Any]:
        return [self._do(program, names) for program in programs]

    # Values.

    def _const(self, names: Names, value: Program, dtype: str | None) -> object:
        return self.adapter.array(value, dtype)

    def _pick(self, names: Names, choices: list[Program]) -> object:
        return self._do(choices[self.adapter.replica_id()], names)

    def _list(self, names: Names, *items: Program) -> object:
        return self._all(items, names)

    def _dict(self, names: Names, items: dict[str, Program]) -> object:
        return {key: self._do(item, names) for key, item in items.items()}

    def _get(self, names: Names, name: str) -> object:
        return names[name]

    def _let(self, names: Names, name: str, value: Program) -> object:
        names[name] = self._do(value, names)
        return None

    def _seq(self, names: Names, *programs: Program) -> object:
        return self._all(programs, names)[-1]

    def _item(self, names: Names, value: Program, key: str | int) -> object:
        return self._do(value, names)[key]

    def _add(self, names: Names, a: Program, b: Program) -> object:
        return self._do(a, names) + self._do(b, names)

    def _mul(self, names: Names, a: Program, b: Program) -> object:
        return self._do(a, names) * self._do(b, names)

    def _change(self, names: Names, a: Program, b: Program) -> object:
        value, other = self._do(a, names), self._do(b, names)
        try:
            value += other
        except Exception:
            return None  # an implementation may refuse it; what matters is what the others see
        return None

    # Contexts.

    def _replica_id(self, names: Names) -> object:
        return self.adapter.array(int(self.adapter.replica_id()), None)

    def _num_replicas(self, names: Names) -> object:
        return self.adapter.array(int(self.adapter.num_replicas(self.strategy)), None)

    def _only(self, names: Names, replica: int, then: Program, otherwise: Program = None) -> object:
        return self._do(then if self.adapter.replica_id() == replica else otherwise, names)

    def _where(self, names: Names) -> object:
        return self.adapter.where()

    def _scope(self, names: Names, body: Program) -> object:
        with self.adapter.scope(self.strategy):
            return self._do(body, names)

    def _other_scope(self, names: Names, kind: str, replicas: int, body: Program) -> object:
        with self.adapter.scope(self.adapter.strategy(kind, replicas)):
            return self._do(body, names)

    def _run(self, names: Names, body: Program, *args: Program) -> object:
        def fn(*values: object) -> object:
            # A copy for each replica: see the head of the file.
            return self._do(body, {**names, **{str(i): value for i, value in enumerate(values)}})
        return self.adapter.run(self.strategy, fn, tuple(self._all(args, names)))

    def _merge_call(self, names: Names, body: Program, *args: Program) -> object:
        def fn(strategy: object, *values: object) -> object:
            return self._do(body, {**names, **{str(i): value for i, value in enumerate(values)}})
        return self.adapter.merge_call(fn, tuple(self._all(args, names)))

    # Collectives.

    def _all_reduce(self, names: Names, reduce_op: Program, value: Program) -> object:
        return self.adapter.all_reduce(reduce_op, self._do(value, names))

    def _all_gather(self, names: Names, value: Program, axis: Program) -> object:
        return self.adapter.all_gather(self._do(value, names), axis)

    def _reduce(self, names: Names, reduce_op: Program, value: Program, axis: Program) -> object:
        axis = tuple(axis) if isinstance(axis, list) else axis
        return self.adapter.reduce(self.strategy, reduce_op, self._do(value, names), axis)

    def _gather(self, names: Names, value: Program, axis: Program) -> object:
        return self.adapter.gather(self.strategy, self._do(value, names), axis)

    def _local(self, names: Names, value: Program) -> object:
        return list(self.adapter.local_results(self.strategy, self._do(value, names)))

    def _values(self, names: Names, choices: list[Program]) -> object:
        return self.adapter.values_from_function(
            self.strategy, lambda context: self._do(choices[context.replica_id_in_sync_group], names))

    # Variables.

    def _variable(self, names: Names, name: str, initial: Program, synchronization: str,
                  aggregation: str) -> None:
        with self.adapter.scope(self.strategy):
            self.variables[name] = self.adapter.variable(self._do(initial, names), synchronization, aggregation)

    def _variable_here(self, names: Names, name: str, initial: Program, synchronization: str,
                       aggregation: str) -> None:
        made = self.adapter.variable(self._do(initial, names), synchronization, aggregation)
        self.variables.setdefault(name, made)

    def _read(self, names: Names, name: str) -> object:
        return self.adapter.read(self.variables[name])

    def _copies(self, names: Names, name: str) -> object:
        return [self.adapter.to_numpy(part) for part in
                self.adapter.local_results(self.strategy, self.variables[name])]

    def _write(self, names: Names, name: str, method: str, value: Program) -> None:
        self.adapter.write(self.variables[name], method, self._do(value, names))

    def _write_rows(self, names: Names, name: str, method: str, rows: Program, indices: Program) -> None:
        slices = self.adapter.slices(self._do(rows, names), self._do(indices, names))
        self.adapter.write(self.variables[name], method, slices)

    def _update(self, names: Names, name: str, method: str, *args: Program) -> None:
        self.adapter.update(self.strategy, self.variables[name],
                            lambda copy, *values: self.adapter.write(copy, method, *values),
                            tuple(self._all(args, names)))

    def _created_in_scope(self, names: Names, name: str) -> object:
        return bool(self.adapter.created_in_scope(self.strategy, self.variables[name]))

    # Datasets.

    def _dataset(self, names: Names, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> object:
        elements = self.adapter.distribute(self.strategy, rows, batch, drop, policy, repeat)
        return [self.adapter.local_results(self.strategy, element) for element in elements]

    def _dataset_fn(self, names: Names, rows: int, batch: int, drop: bool) -> object:
        elements = self.adapter.distribute_from_function(self.strategy, rows, batch, drop)
        return [self.adapter.local_results(self.strategy, element) for element in elements]

    # Names and resolvers.

    def _parameters(self, names: Names, name: str, count: int) -> object:
        return self.adapter.parameters(name)[:count]

    def _members(self, names: Names, name: str) -> object:
        return list(self.adapter.lookup(name).__members__)

    def _exists(self, names: Names, name: str) -> object:
        try:
            self.adapter.lookup(name)
        except AttributeError:
            return False
        return True

    def _tf_config(self, names: Names, text: str | None, question: str) -> object:
        return self.adapter.tf_config(text, question)


def shown(value: object) -> Any:
    """A result as data that JSON can hold: an array is [name of its dtype, nested list]."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return [str(array.dtype), array.tolist() if array.dtype.kind != "c" else str(array.tolist())]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value
