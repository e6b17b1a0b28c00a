"""Libraries of collectives, tested on the chapters that speak of collectives.

PyTorch and JAX have no strategies, but what tf.distribute promises of all_reduce and all_gather can be asked of them as
well.  An adapter says how: replicas are threads, `strategy.run` starts them and collects what they return, and the two
collectives are the library's own.  Everything else that stands in such programs (constants with TensorFlow's default
dtypes, contexts, numbers of replicas) is here, and is not what is tested.

What a library does not have is not made up: nests, IndexedSlices, distributed values and options are `unsupported`.
Checks are the library's own as well; an implementation without checks answers wrongly or waits, and a wait ends after
`LIMIT`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Generic, TypeGuard, TypeVar

from refdist.conformance import results
from refdist.conformance.adapter import Adapter
from refdist.conformance.capabilities import PROFILES, TABLE
from refdist.conformance.results import Result

LIMIT = 5.0  # seconds that replicas wait for each other

Tensor = TypeVar("Tensor")

_here = threading.local()


class PerReplica:
    """What a run returns: a value of each replica."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = tuple(values)


class ReplicaContext:
    """What a replica knows of itself, and its collectives."""

    def __init__(self, strategy: Strategy, rank: int) -> None:
        self.strategy, self.replica_id_in_sync_group = strategy, rank
        self.num_replicas_in_sync = strategy.num_replicas_in_sync

    def all_reduce(self, reduce_op: object, value: object, options: object = None) -> Any:
        """The library's all_reduce of a tensor."""
        name = str(reduce_op).upper()
        if name not in ("SUM", "MEAN"):
            raise NotImplementedError(f"the op {name}")
        return self.strategy.adapter.all_reduce(self, name, self._tensor(value, options))

    def all_gather(self, value: object, axis: int, options: object = None) -> Any:
        """The library's all_gather of a tensor along an axis."""
        return self.strategy.adapter.all_gather(self, self._tensor(value, options), axis)

    def _tensor(self, value: object, options: object) -> Any:
        if options is not None or isinstance(value, (list, tuple, dict, PerReplica)) or value is None:
            raise NotImplementedError("nests, distributed values and options")
        return value if self.strategy.adapter.is_tensor(value) else self.strategy.adapter.constant(value)


class Strategy:
    """Threads as replicas."""

    def __init__(self, adapter: Collectives[Any], count: int) -> None:
        self.adapter, self.num_replicas_in_sync = adapter, count
        self.group = adapter.group(count)

    def scope(self) -> AbstractContextManager[None]:
        """Nothing; there is one strategy."""
        return nullcontext()

    def experimental_local_results(self, value: object) -> tuple[object, ...]:
        """The parts of a value."""
        return value.values if isinstance(value, PerReplica) else (value,)

    def run(self, fn: Callable[..., object], args: Sequence[object] = (),
            kwargs: Mapping[str, object] | None = None) -> object:
        """Calls a function in each replica, all at once; raises the first error."""
        if _context() is not None:
            raise RuntimeError("run in a replica")
        returned: list[Any] = [None] * self.num_replicas_in_sync
        errors: list[Exception] = []

        def replica(rank: int) -> None:
            _here.context = ReplicaContext(self, rank)
            try:
                returned[rank] = fn(*(_part(value, rank) for value in args),
                                    **{key: _part(value, rank) for key, value in (kwargs or {}).items()})
            except Exception as error:
                errors.append(error)
                self.adapter.abandon(self.group)

        threads = [threading.Thread(target=replica, args=(rank,)) for rank in range(self.num_replicas_in_sync)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            # The next program needs a group in which no replica is waiting.
            self.group = self.adapter.group(self.num_replicas_in_sync)
            raise errors[0]
        return _regrouped(returned)


def _part(value: object, rank: int) -> object:
    return value.values[rank] if isinstance(value, PerReplica) else value


def _regrouped(values: Sequence[Any]) -> Any:
    first = values[0]
    if len(values) == 1 or first is None:
        return first
    if isinstance(first, dict):
        return {key: _regrouped([value[key] for value in values]) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(_regrouped(items) for items in zip(*values, strict=True))
    return PerReplica(values)


def _context() -> ReplicaContext | None:
    return getattr(_here, "context", None)


def _context_of_program() -> ReplicaContext:
    context = _context()
    if context is None:
        raise NotImplementedError("contexts outside of run")
    return context


class Collectives(Adapter, Generic[Tensor]):
    """An adapter of a library of collectives."""

    lacks = frozenset(TABLE) - PROFILES["collectives"][1]

    def __init__(self) -> None:
        names = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                 "uint64", "bool", "complex64", "complex128", "bfloat16")
        self.tf = SimpleNamespace(constant=self.constant, **{name: name for name in names}, distribute=SimpleNamespace(
            get_replica_context=_context_of_program, ReduceOp=SimpleNamespace(SUM="SUM", MEAN="MEAN"),
            in_cross_replica_context=lambda: _context() is None))

    def strategy(self, kind: str) -> Strategy:
        return Strategy(self, int(kind.split()[1]))

    def constant(self, value: object, dtype: str | None = None, shape: Sequence[int] | None = None) -> Any:
        """A tensor, with TensorFlow's dtype where none is named."""
        leaf: Any = value
        while isinstance(leaf, (list, tuple)):
            leaf = next((part for part in leaf if part != []), 0.0)
        if isinstance(leaf, str) or shape is not None:
            raise NotImplementedError("texts, and constants with a shape")
        if self.is_tensor(leaf):
            raise NotImplementedError("constants made of tensors")
        default = ("bool" if isinstance(leaf, bool) else "int32" if isinstance(leaf, int) else
                   "complex128" if isinstance(leaf, complex) else "float32")
        return self.tensor(value, dtype or default)

    def observe(self, value: object) -> Result:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float)):
            return results.number(value)
        if isinstance(value, PerReplica):
            return {"per_replica": [self.observe(part) for part in value.values]}
        if self.is_tensor(value):
            return self.data(value)
        if isinstance(value, dict):
            return {"dict": {str(key): self.observe(item) for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            return {"list" if isinstance(value, list) else "tuple": [self.observe(item) for item in value]}
        return {"object": str(value)}

    @abstractmethod
    def tensor(self, value: object, dtype: str) -> Tensor:
        """The library's tensor with these numbers."""

    @abstractmethod
    def is_tensor(self, value: object) -> TypeGuard[Tensor]:
        """Whether a value is one of the library's tensors."""

    @abstractmethod
    def data(self, tensor: Tensor) -> Result:
        """A tensor as a result."""

    @abstractmethod
    def group(self, count: int) -> Any:
        """Makes the library's group of `count` replicas."""

    @abstractmethod
    def abandon(self, group: object) -> None:
        """Ends the wait of others for a replica that has raised, where the library can."""

    @abstractmethod
    def all_reduce(self, context: ReplicaContext, op: str, tensor: Tensor) -> Tensor:
        """Reduces the tensor that this replica contributes; returns the result that it receives."""

    @abstractmethod
    def all_gather(self, context: ReplicaContext, tensor: Tensor, axis: int) -> Tensor:
        """Gathers the tensor that this replica contributes; returns the result that it receives."""
