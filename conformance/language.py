"""The language of the programs: nested lists, and what they mean on an implementation.

A program is a list `[operation, argument, ...]`; everything that is no list is a value.  The functions build
programs; `Interpreter` runs one on an adapter.  docs/testing-your-implementation.md describes every operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Program = Any  # nested lists of operations, names, numbers and None


def const(value: Any, dtype: str | None = None) -> Program:
    """An array; numbers without a dtype are float32 or int32."""
    return ["const", value, dtype]


def per_replica(*values: Any, dtype: str | None = None) -> Program:
    """In a replica: the value with the replica's number."""
    return ["pick", [const(value, dtype) for value in values]]


def run(body: Program, *args: Program) -> Program:
    """The body once per replica; arguments are `get("0")`, `get("1")` ... in it."""
    return ["run", body, *args]


def op(name: str, *arguments: Any) -> Program:
    """Any operation."""
    return [name, *arguments]


def get(name: str) -> Program:
    """What a `let` has named."""
    return ["get", name]


def let(name: str, value: Program) -> Program:
    """Names a value."""
    return ["let", name, value]


def seq(*programs: Program) -> Program:
    """One after another; the last one's value."""
    return ["seq", *programs]


def variable(name: str, initial: Any, synchronization: str = "AUTO", aggregation: str = "NONE",
             dtype: str | None = None) -> Program:
    """Makes a variable in the scope of the strategy."""
    return ["variable", name, const(initial, dtype), synchronization, aggregation]


class Failed(Exception):
    """An operation that the language does not have, or that was written wrongly."""


class Interpreter:
    """Runs programs on an adapter.

    Args:
        adapter: see `adapter.py`.
        strategy: (kind, number of replicas).
    """

    def __init__(self, adapter: Any, strategy: tuple[str, int]) -> None:
        self.adapter = adapter
        self.strategy = adapter.strategy(*strategy)
        self.count = strategy[1]
        self.variables: dict[str, Any] = {}
        self.names: dict[str, Any] = {}

    def value(self, program: Program) -> Any:
        """Runs a program and returns what it gives as plain data."""
        return self._plain(self._do(program, self.names))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        if value is None or isinstance(value, (str, bool)):
            return value
        parts = self.adapter.local_results(self.strategy, value)
        found = [self.adapter.to_numpy(part) for part in parts]
        return found if self.adapter.is_distributed(value) else found[0]

    def _do(self, program: Program, names: dict[str, Any]) -> Any:
        if not isinstance(program, list):
            return program
        name, *arguments = program
        method = getattr(self, f"_{name}", None)
        if method is None:
            raise Failed(f"there is no operation {name!r}")
        return method(names, *arguments)

    def _all(self, programs: Any, names: dict[str, Any]) -> list[Any]:
        return [self._do(program, names) for program in programs]

    # Values.

    def _const(self, names: dict[str, Any], value: Any, dtype: str | None) -> Any:
        return self.adapter.array(value, dtype)

    def _pick(self, names: dict[str, Any], choices: list[Program]) -> Any:
        return self._do(choices[self.adapter.replica_id()], names)

    def _number(self, names: dict[str, Any], value: Any) -> Any:
        return value

    def _list(self, names: dict[str, Any], *items: Program) -> Any:
        return self._all(items, names)

    def _dict(self, names: dict[str, Any], items: dict[str, Program]) -> Any:
        return {key: self._do(item, names) for key, item in items.items()}

    def _get(self, names: dict[str, Any], name: str) -> Any:
        return names[name]

    def _let(self, names: dict[str, Any], name: str, value: Program) -> Any:
        names[name] = self._do(value, names)
        return None

    def _seq(self, names: dict[str, Any], *programs: Program) -> Any:
        return self._all(programs, names)[-1]

    def _item(self, names: dict[str, Any], value: Program, key: Any) -> Any:
        return self._do(value, names)[key]

    def _add(self, names: dict[str, Any], a: Program, b: Program) -> Any:
        return self._do(a, names) + self._do(b, names)

    def _mul(self, names: dict[str, Any], a: Program, b: Program) -> Any:
        return self._do(a, names) * self._do(b, names)

    def _change(self, names: dict[str, Any], a: Program, b: Program) -> Any:
        value, other = self._do(a, names), self._do(b, names)
        try:
            value += other
        except Exception:
            return None  # an implementation may refuse it: what counts is what others see
        return None

    # Contexts.

    def _replica_id(self, names: dict[str, Any]) -> Any:
        return self.adapter.array(int(self.adapter.replica_id()), None)

    def _num_replicas(self, names: dict[str, Any]) -> Any:
        return self.adapter.array(int(self.adapter.num_replicas(self.strategy)), None)

    def _only(self, names: dict[str, Any], replica: int, then: Program, otherwise: Program = None) -> Any:
        return self._do(then if self.adapter.replica_id() == replica else otherwise, names)

    def _where(self, names: dict[str, Any]) -> Any:
        return self.adapter.where()

    def _scope(self, names: dict[str, Any], body: Program) -> Any:
        with self.adapter.scope(self.strategy):
            return self._do(body, names)

    def _other_scope(self, names: dict[str, Any], kind: str, replicas: int, body: Program) -> Any:
        with self.adapter.scope(self.adapter.strategy(kind, replicas)):
            return self._do(body, names)

    def _run(self, names: dict[str, Any], body: Program, *args: Program) -> Any:
        def fn(*values: Any) -> Any:
            # Names that a replica gives are its own; those given before are seen by all.
            return self._do(body, {**names, **{str(i): value for i, value in enumerate(values)}})
        return self.adapter.run(self.strategy, fn, tuple(self._all(args, names)))

    def _merge_call(self, names: dict[str, Any], body: Program, *args: Program) -> Any:
        def fn(strategy: Any, *values: Any) -> Any:
            return self._do(body, {**names, **{str(i): value for i, value in enumerate(values)}})
        return self.adapter.merge_call(fn, tuple(self._all(args, names)))

    # Collectives.

    def _all_reduce(self, names: dict[str, Any], reduce_op: Any, value: Program) -> Any:
        return self.adapter.all_reduce(reduce_op, self._do(value, names))

    def _all_gather(self, names: dict[str, Any], value: Program, axis: Any) -> Any:
        return self.adapter.all_gather(self._do(value, names), axis)

    def _reduce(self, names: dict[str, Any], reduce_op: Any, value: Program, axis: Any) -> Any:
        axis = tuple(axis) if isinstance(axis, list) else axis
        return self.adapter.reduce(self.strategy, reduce_op, self._do(value, names), axis)

    def _gather(self, names: dict[str, Any], value: Program, axis: Any) -> Any:
        return self.adapter.gather(self.strategy, self._do(value, names), axis)

    def _local(self, names: dict[str, Any], value: Program) -> Any:
        return list(self.adapter.local_results(self.strategy, self._do(value, names)))

    def _values(self, names: dict[str, Any], choices: list[Program]) -> Any:
        return self.adapter.values_from_function(
            self.strategy, lambda context: self._do(choices[context.replica_id_in_sync_group], names))

    # Variables.

    def _variable(self, names: dict[str, Any], name: str, initial: Program, synchronization: str,
                  aggregation: str) -> Any:
        with self.adapter.scope(self.strategy):
            self.variables[name] = self.adapter.variable(self._do(initial, names), synchronization, aggregation)

    def _variable_here(self, names: dict[str, Any], name: str, initial: Program, synchronization: str,
                       aggregation: str) -> Any:
        made = self.adapter.variable(self._do(initial, names), synchronization, aggregation)
        self.variables.setdefault(name, made)

    def _read(self, names: dict[str, Any], name: str) -> Any:
        return self.adapter.read(self.variables[name])

    def _copies(self, names: dict[str, Any], name: str) -> Any:
        return [self.adapter.to_numpy(part) for part in
                self.adapter.local_results(self.strategy, self.variables[name])]

    def _write(self, names: dict[str, Any], name: str, method: str, value: Program) -> Any:
        self.adapter.write(self.variables[name], method, self._do(value, names))

    def _write_rows(self, names: dict[str, Any], name: str, method: str, rows: Program, indices: Program) -> Any:
        slices = self.adapter.slices(self._do(rows, names), self._do(indices, names))
        self.adapter.write(self.variables[name], method, slices)

    def _update(self, names: dict[str, Any], name: str, method: str, *args: Program) -> Any:
        self.adapter.update(self.strategy, self.variables[name],
                            lambda copy, *values: self.adapter.write(copy, method, *values),
                            tuple(self._all(args, names)))

    def _created_in_scope(self, names: dict[str, Any], name: str) -> Any:
        return bool(self.adapter.created_in_scope(self.strategy, self.variables[name]))

    # Datasets.

    def _dataset(self, names: dict[str, Any], rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Any:
        elements = self.adapter.distribute(self.strategy, rows, batch, drop, policy, repeat)
        return [self.adapter.local_results(self.strategy, element) for element in elements]

    def _dataset_fn(self, names: dict[str, Any], rows: int, batch: int, drop: bool) -> Any:
        elements = self.adapter.distribute_from_function(self.strategy, rows, batch, drop)
        return [self.adapter.local_results(self.strategy, element) for element in elements]


    # Names and resolvers.

    def _parameters(self, names: dict[str, Any], name: str, count: int) -> Any:
        return self.adapter.parameters(name)[:count]

    def _members(self, names: dict[str, Any], name: str) -> Any:
        return list(self.adapter.lookup(name).__members__)

    def _exists(self, names: dict[str, Any], name: str) -> Any:
        try:
            self.adapter.lookup(name)
        except AttributeError:
            return False
        return True

    def _tf_config(self, names: dict[str, Any], text: str | None, question: str) -> Any:
        return self.adapter.tf_config(text, question)


def shown(value: Any) -> Any:
    """A result as data that JSON can hold: arrays as [dtype, nested list]."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return [str(array.dtype), array.tolist() if array.dtype.kind != "c" else str(array.tolist())]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value
