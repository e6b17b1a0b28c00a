"""What an implementation has to offer to be tested: a class with these methods.

Values are the implementation's own; only `to_numpy` and `array` know NumPy.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

# What an exception is called in verdicts, in the order in which it is looked for.
KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (NotImplementedError, "unsupported"), (RecursionError, "crash"), (RuntimeError, "context"), (TypeError, "type"),
    (LookupError, "lookup"), (AttributeError, "lookup"), (ValueError, "value"), (AssertionError, "value"))


class Adapter(ABC):
    """One implementation.

    Attributes:
        name: for reports.
        capabilities: which optional parts there are: "central", "sync_on_read", "update", "datasets", "scatter",
            "all dtypes" (int8, uint16, complex ...), "names", "resolvers".
    """

    name = ""
    capabilities: frozenset[str] = frozenset()

    @abstractmethod
    def strategy(self, kind: str, replicas: int) -> Any:
        """A strategy: "default", "one_device", "mirrored" or "central"."""

    @abstractmethod
    def scope(self, strategy: Any) -> AbstractContextManager[Any]:
        """`strategy.scope()`."""

    @abstractmethod
    def run(self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """`strategy.run(fn, args=args)`."""

    @abstractmethod
    def replica_id(self) -> int:
        """The number of the replica that asks."""

    @abstractmethod
    def num_replicas(self, strategy: Any) -> int:
        """`strategy.num_replicas_in_sync`."""

    @abstractmethod
    def where(self) -> str:
        """"cross" in a cross-replica context, "replica" in a replica, "default" outside every scope."""

    @abstractmethod
    def all_reduce(self, reduce_op: Any, value: Any) -> Any:
        """`get_replica_context().all_reduce(reduce_op, value)`."""

    @abstractmethod
    def all_gather(self, value: Any, axis: Any) -> Any:
        """`get_replica_context().all_gather(value, axis)`."""

    @abstractmethod
    def merge_call(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """`get_replica_context().merge_call(fn, args)`."""

    @abstractmethod
    def reduce(self, strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        """`strategy.reduce(reduce_op, value, axis)`."""

    @abstractmethod
    def gather(self, strategy: Any, value: Any, axis: Any) -> Any:
        """`strategy.gather(value, axis)`."""

    @abstractmethod
    def local_results(self, strategy: Any, value: Any) -> tuple[Any, ...]:
        """`strategy.experimental_local_results(value)`."""

    @abstractmethod
    def is_distributed(self, value: Any) -> bool:
        """Whether a value has a component for each replica."""

    @abstractmethod
    def values_from_function(self, strategy: Any, fn: Callable[[Any], Any]) -> Any:
        """`strategy.experimental_distribute_values_from_function(fn)`."""

    @abstractmethod
    def variable(self, initial: Any, synchronization: str, aggregation: str) -> Any:
        """A variable in the current scope, with the names of VariableSynchronization and VariableAggregation."""

    @abstractmethod
    def read(self, variable: Any) -> Any:
        """`variable.read_value()`."""

    @abstractmethod
    def write(self, variable: Any, method: str, *values: Any) -> None:
        """`variable.assign(value)`, `assign_add`, `scatter_update` ..."""

    @abstractmethod
    def array(self, value: Any, dtype: str | None) -> Any:
        """An array; numbers without a dtype are float32 or int32."""

    @abstractmethod
    def to_numpy(self, value: Any) -> Any:
        """An array, or a variable's copy, as a NumPy array."""

    # Optional, by capability.

    def update(self, strategy: Any, variable: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """"update": `strategy.extended.update(variable, fn, args)`."""
        raise NotImplementedError

    def created_in_scope(self, strategy: Any, variable: Any) -> bool:
        """"update": `strategy.extended.variable_created_in_scope(variable)`."""
        raise NotImplementedError

    def slices(self, values: Any, indices: Any) -> Any:
        """"scatter": IndexedSlices."""
        raise NotImplementedError

    def distribute(self, strategy: Any, rows: int, batch: int, drop: bool, policy: str, repeat: int) -> Iterable[Any]:
        """"datasets": range(rows), batched, repeated, and distributed under an AutoShardPolicy."""
        raise NotImplementedError

    def distribute_from_function(self, strategy: Any, rows: int, batch: int, drop: bool) -> Iterable[Any]:
        """"datasets": the same, made by a function."""
        raise NotImplementedError

    def lookup(self, name: str) -> Any:
        """"names": what `tf.distribute.NAME` is here; AttributeError where there is nothing."""
        raise NotImplementedError

    def parameters(self, name: str) -> list[str]:
        """"names": the names of its parameters, without `self`."""
        found = inspect.signature(self.lookup(name)).parameters
        return [parameter for parameter in found if parameter != "self"]

    def resolver(self) -> Any:
        """"resolvers": a TFConfigClusterResolver."""
        raise NotImplementedError

    def tf_config(self, text: str | None, question: str) -> Any:
        """What a TFConfigClusterResolver says when TF_CONFIG is `text`."""
        before = os.environ.pop("TF_CONFIG", None)
        try:
            if text is not None:
                os.environ["TF_CONFIG"] = text
            found = getattr(self.resolver(), question)
            found = found() if callable(found) else found
            return found.as_dict() if hasattr(found, "as_dict") else found
        finally:
            os.environ.pop("TF_CONFIG", None)
            if before is not None:
                os.environ["TF_CONFIG"] = before

    def kind_of(self, error: BaseException) -> str:
        """What an exception is called in verdicts."""
        return next((kind for known, kind in KINDS if isinstance(error, known)), "crash")
