"""The adapter of a Python library that has the names of tf.distribute; a few methods are left to each library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol

from refdist.conformance.old.adapter import Adapter


class Strategy(Protocol):
    """What is used of a `tf.distribute.Strategy`; the suite calls it with wrong arguments too."""

    @property
    def num_replicas_in_sync(self) -> int: ...
    @property
    def extended(self) -> Any: ...
    @property
    def scope(self) -> Callable[[], AbstractContextManager[object]]: ...
    @property
    def run(self) -> Callable[..., object]: ...
    @property
    def reduce(self) -> Callable[..., object]: ...
    @property
    def gather(self) -> Callable[..., object]: ...
    @property
    def experimental_local_results(self) -> Callable[..., tuple[object, ...]]: ...
    @property
    def experimental_distribute_values_from_function(self) -> Callable[..., object]: ...
    @property
    def experimental_distribute_dataset(self) -> Callable[..., Iterable[object]]: ...
    @property
    def distribute_datasets_from_function(self) -> Callable[..., Iterable[object]]: ...


class Variable(Protocol):
    """What is used of a `tf.Variable`, besides the methods that a program names."""

    @property
    def read_value(self) -> Callable[[], object]: ...


class Library(Adapter[Strategy, Variable]):
    """The part of an adapter that only calls the functions and methods that a program names.

    Attributes:
        api: the module that is `tf.distribute` there.
    """

    api: ModuleType

    def scope(self, strategy: Strategy) -> AbstractContextManager[object]:
        return strategy.scope()

    def run(self, strategy: Strategy, fn: Callable[..., object], args: tuple[object, ...]) -> object:
        return strategy.run(fn, args=args)

    def replica_id(self) -> int:
        return int(self._context().replica_id_in_sync_group)

    def num_replicas(self, strategy: Strategy) -> int:
        return int(strategy.num_replicas_in_sync)

    def where(self) -> str:
        if self.api.in_cross_replica_context():
            return "cross"
        return "replica" if self.api.has_strategy() else "default"

    def all_reduce(self, reduce_op: object, value: object) -> object:
        return self._context().all_reduce(reduce_op, value)

    def all_gather(self, value: object, axis: object) -> object:
        return self._context().all_gather(value, axis)

    def merge_call(self, fn: Callable[..., object], args: tuple[object, ...]) -> object:
        return self._context().merge_call(fn, args)

    def _context(self) -> Any:
        context = self.api.get_replica_context()
        if context is None:
            raise RuntimeError("a replica call outside a replica")
        return context

    def reduce(self, strategy: Strategy, reduce_op: object, value: object, axis: object) -> object:
        return strategy.reduce(reduce_op, value, axis=axis)

    def gather(self, strategy: Strategy, value: object, axis: object) -> object:
        return strategy.gather(value, axis=axis)

    def local_results(self, strategy: Strategy, value: object) -> tuple[object, ...]:
        return strategy.experimental_local_results(value)

    def is_distributed(self, value: object) -> bool:
        return isinstance(value, self.api.DistributedValues) and type(value).__name__ != "Mirrored"

    def values_from_function(self, strategy: Strategy, fn: Callable[..., object]) -> object:
        return strategy.experimental_distribute_values_from_function(fn)

    def read(self, variable: Variable) -> object:
        return variable.read_value()

    def write(self, variable: Variable, method: str, *values: object) -> None:
        getattr(variable, method)(*values)

    def update(self, strategy: Strategy, variable: Variable, fn: Callable[..., object],
               args: tuple[object, ...]) -> None:
        strategy.extended.update(variable, fn, args=args)

    def created_in_scope(self, strategy: Strategy, variable: Variable) -> bool:
        return bool(strategy.extended.variable_created_in_scope(variable))

    def lookup(self, name: str) -> Any:
        found: Any = self.api
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def resolver(self) -> object:
        return self.api.cluster_resolver.TFConfigClusterResolver()

    @abstractmethod
    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> object:
        """range(rows), batched and repeated, with an AutoShardPolicy."""

    def distribute(self, strategy: Strategy, rows: int, batch: int, drop: bool, policy: str,
                   repeat: int) -> Iterable[object]:
        return strategy.experimental_distribute_dataset(self.dataset(rows, batch, drop, policy, repeat))

    def distribute_from_function(self, strategy: Strategy, rows: int, batch: int, drop: bool) -> Iterable[object]:
        return strategy.distribute_datasets_from_function(
            lambda context: self.dataset(rows, batch, drop, "AUTO", 1))
