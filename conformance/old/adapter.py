"""What an implementation must offer to be tested: a class with these methods.

The suite never looks into the objects of the implementation.  It gets arrays from `array`, strategies from `strategy`
and variables from `variable`, passes them to the other methods, and looks at results only after `to_numpy`; so those
objects may be anything.  A value may also be a nest of values: lists and dicts.  The suite passes wrong arguments on
purpose (a reduce op that does not exist, an axis that is text), and then expects the exception that the implementation
raises; an adapter should neither check arguments nor catch exceptions.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import numpy as np

Strategy = TypeVar("Strategy")
Variable = TypeVar("Variable")

# What an exception is called in verdicts; the first row of whose class it is an instance decides.
KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (NotImplementedError, "unsupported"), (RecursionError, "crash"), (RuntimeError, "context"), (TypeError, "type"),
    (LookupError, "lookup"), (AttributeError, "lookup"), (ValueError, "value"), (AssertionError, "value"))


class Adapter(ABC, Generic[Strategy, Variable]):
    """One implementation, whose strategies and variables have these types.

    Attributes:
        name: of the implementation, for reports.
        capabilities: which optional parts it has, of "central", "sync_on_read", "update", "datasets", "scatter",
            "all dtypes" (int8, uint16, complex ...), "names", "resolvers"; a case that needs another is skipped.
    """

    name = ""
    capabilities: frozenset[str] = frozenset()

    @abstractmethod
    def strategy(self, kind: str, replicas: int) -> Strategy:
        """A strategy of that many replicas; its kind is "default", "one_device", "mirrored" or "central"."""

    @abstractmethod
    def scope(self, strategy: Strategy) -> AbstractContextManager[object]:
        """`strategy.scope()`."""

    @abstractmethod
    def run(self, strategy: Strategy, fn: Callable[..., object], args: tuple[object, ...]) -> object:
        """`strategy.run(fn, args=args)`."""

    @abstractmethod
    def replica_id(self) -> int:
        """The number of the calling replica, from 0."""

    @abstractmethod
    def num_replicas(self, strategy: Strategy) -> int:
        """`strategy.num_replicas_in_sync`."""

    @abstractmethod
    def where(self) -> str:
        """"cross" in a cross-replica context, "replica" in a replica, "default" outside any scope."""

    @abstractmethod
    def all_reduce(self, reduce_op: object, value: object) -> object:
        """`get_replica_context().all_reduce(reduce_op, value)`."""

    @abstractmethod
    def all_gather(self, value: object, axis: object) -> object:
        """`get_replica_context().all_gather(value, axis)`."""

    @abstractmethod
    def merge_call(self, fn: Callable[..., object], args: tuple[object, ...]) -> object:
        """`get_replica_context().merge_call(fn, args)`."""

    @abstractmethod
    def reduce(self, strategy: Strategy, reduce_op: object, value: object, axis: object) -> object:
        """`strategy.reduce(reduce_op, value, axis)`."""

    @abstractmethod
    def gather(self, strategy: Strategy, value: object, axis: object) -> object:
        """`strategy.gather(value, axis)`."""

    @abstractmethod
    def local_results(self, strategy: Strategy, value: object) -> tuple[object, ...]:
        """`strategy.experimental_local_results(value)`."""

    @abstractmethod
    def is_distributed(self, value: object) -> bool:
        """Whether a value has one part per replica, as a PerReplica or a variable with copies has."""

    @abstractmethod
    def values_from_function(self, strategy: Strategy, fn: Callable[..., object]) -> object:
        """`strategy.experimental_distribute_values_from_function(fn)`."""

    @abstractmethod
    def variable(self, initial: object, synchronization: str, aggregation: str) -> Variable:
        """A variable created in the current scope, given the names of its VariableSynchronization and aggregation."""

    @abstractmethod
    def read(self, variable: Variable) -> object:
        """`variable.read_value()`."""

    @abstractmethod
    def write(self, variable: Variable, method: str, *values: object) -> None:
        """`variable.assign(value)`, `assign_add`, `scatter_update` ..."""

    @abstractmethod
    def array(self, value: object, dtype: str | None) -> object:
        """An array of numbers or nested lists of them; without a dtype, float32 for floats and int32 for ints."""

    @abstractmethod
    def to_numpy(self, value: object) -> np.ndarray[Any, Any]:
        """The NumPy array of the same value, for an array or the copy of a variable."""

    # Optional, by capability.

    def update(self, strategy: Strategy, variable: Variable, fn: Callable[..., object],
               args: tuple[object, ...]) -> None:
        """"update": `strategy.extended.update(variable, fn, args)`."""
        raise NotImplementedError

    def created_in_scope(self, strategy: Strategy, variable: Variable) -> bool:
        """"update": `strategy.extended.variable_created_in_scope(variable)`."""
        raise NotImplementedError

    def slices(self, values: object, indices: object) -> object:
        """"scatter": IndexedSlices."""
        raise NotImplementedError

    def distribute(self, strategy: Strategy, rows: int, batch: int, drop: bool, policy: str,
                   repeat: int) -> Iterable[object]:
        """"datasets": the distributed elements of range(rows), batched, repeated, under an AutoShardPolicy."""
        raise NotImplementedError

    def distribute_from_function(self, strategy: Strategy, rows: int, batch: int, drop: bool) -> Iterable[object]:
        """"datasets": the distributed elements of range(rows), batched, from a function that returns the dataset."""
        raise NotImplementedError

    def lookup(self, name: str) -> Any:
        """"names": what `tf.distribute.NAME` is in the implementation; AttributeError if it does not exist."""
        raise NotImplementedError

    def parameters(self, name: str) -> list[str]:
        """"names": the names of its parameters, without `self`."""
        found = inspect.signature(self.lookup(name)).parameters
        return [parameter for parameter in found if parameter != "self"]

    def resolver(self) -> object:
        """"resolvers": a TFConfigClusterResolver."""
        raise NotImplementedError

    def tf_config(self, text: str | None, question: str) -> object:
        """"resolvers": an attribute of a TFConfigClusterResolver, or what its method returns, with TF_CONFIG=`text`."""
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
