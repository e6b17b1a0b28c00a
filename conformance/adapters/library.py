"""An implementation in Python whose names are those of tf.distribute: most of its adapter is the same for all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from refdist.conformance.adapter import Adapter


class Library(Adapter):
    """The part of an adapter that needs only the names.

    Attributes:
        api: what `tf.distribute` is there.
    """

    api: Any

    def scope(self, strategy: Any) -> Any:
        return strategy.scope()

    def run(self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return strategy.run(fn, args=args)

    def replica_id(self) -> int:
        return int(self._context().replica_id_in_sync_group)

    def num_replicas(self, strategy: Any) -> int:
        return int(strategy.num_replicas_in_sync)

    def where(self) -> str:
        if self.api.in_cross_replica_context():
            return "cross"
        return "replica" if self.api.has_strategy() else "default"

    def all_reduce(self, reduce_op: Any, value: Any) -> Any:
        return self._context().all_reduce(reduce_op, value)

    def all_gather(self, value: Any, axis: Any) -> Any:
        return self._context().all_gather(value, axis)

    def merge_call(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._context().merge_call(fn, args)

    def _context(self) -> Any:
        context = self.api.get_replica_context()
        if context is None:
            raise RuntimeError("not in a replica")
        return context

    def reduce(self, strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        return strategy.reduce(reduce_op, value, axis=axis)

    def gather(self, strategy: Any, value: Any, axis: Any) -> Any:
        return strategy.gather(value, axis=axis)

    def local_results(self, strategy: Any, value: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = strategy.experimental_local_results(value)
        return found

    def is_distributed(self, value: Any) -> bool:
        return isinstance(value, self.api.DistributedValues) and type(value).__name__ != "Mirrored"

    def values_from_function(self, strategy: Any, fn: Callable[[Any], Any]) -> Any:
        return strategy.experimental_distribute_values_from_function(fn)

    def read(self, variable: Any) -> Any:
        return variable.read_value()

    def write(self, variable: Any, method: str, *values: Any) -> None:
        getattr(variable, method)(*values)

    def update(self, strategy: Any, variable: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        strategy.extended.update(variable, fn, args=args)

    def created_in_scope(self, strategy: Any, variable: Any) -> bool:
        return bool(strategy.extended.variable_created_in_scope(variable))

    def lookup(self, name: str) -> Any:
        found: Any = self.api
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def resolver(self) -> Any:
        return self.api.cluster_resolver.TFConfigClusterResolver()

    @abstractmethod
    def dataset(self, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Any:
        """range(rows), batched and repeated, with an AutoShardPolicy."""

    def distribute(self, strategy: Any, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Iterable[Any]:
        found: Iterable[Any] = strategy.experimental_distribute_dataset(self.dataset(rows, batch, drop, policy, repeat))
        return found

    def distribute_from_function(self, strategy: Any, rows: int, batch: int, drop: bool) -> Iterable[Any]:
        found: Iterable[Any] = strategy.distribute_datasets_from_function(
            lambda context: self.dataset(rows, batch, drop, "AUTO", 1))
        return found
