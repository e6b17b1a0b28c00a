"""`ReplicaContext`, which replicas call collectives and `merge_call` on, and functions that return the current context.

The stack itself is in `core/context_stack`, the rendezvous in `core/lockstep`, and what the contributions become in
`reduction`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from refdist import errors, journal, nest
from refdist.array import collectives, replica_checks
from refdist.array.collectives import Part
from refdist.array.convert import contributed, to_array
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.operators import ArrayOperators
from refdist.core import checks, context_stack, lockstep
from refdist.core.agreement import CollectiveCall, Signature
from refdist.core.callers import default_strategy, rule
from refdist.core.integers import integer
from refdist.core.rules.advice import INSTEAD
from refdist.core.rules.calls import CALLS, Call
from refdist.core.rules.options import ReduceOp, reduce_op_of
from refdist.core.rules.table import Refusal
from refdist.core.rules.values import Result
from refdist.runtime import Late
from refdist.strategies.communication import CommunicationOptions, check_options
from refdist.variables.values import (
    check_components,
    is_splittable,
    none_given,
    regroup,
    shared,
    splitter,
)

if TYPE_CHECKING:
    from refdist.strategies.base import Strategy
    from refdist.strategies.reduction import Reduction


class ReplicaContext(context_stack.Scope):
    """What a replica can ask and do: which one it is, merge_call, all_reduce, all_gather.

    Args:
        strategy: the strategy that runs the replica.
        replica_id_in_sync_group: a number from 0 to `num_replicas_in_sync - 1`.

    It is given by `get_replica_context()` inside the function passed to `strategy.run`.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> strategy.run(lambda: refdist.get_replica_context().replica_id_in_sync_group).values
    (0, 1)

    Source: tf.distribute.ReplicaContext.
    """

    __slots__ = ("_id", "_reduction", "_strategy")

    def __init__(self, strategy: Strategy, replica_id_in_sync_group: int) -> None:
        count = getattr(strategy, "num_replicas_in_sync", None)
        if not isinstance(count, int):
            raise errors.error("RD25", "ReplicaContext", f"strategy is {strategy!r}", "Pass a strategy.")
        number = integer(replica_id_in_sync_group, "replica_id_in_sync_group", "ReplicaContext")
        if not 0 <= number < count:
            raise errors.error("RD34", "ReplicaContext", f"replica_id_in_sync_group is {number} and the strategy has "
                               f"{count} replicas", "Pass a number from 0 to num_replicas_in_sync - 1.")
        self._set(strategy, number, strategy.extended.reduction)

    def _set(self, strategy: Strategy, number: int, reduction: Reduction) -> None:
        super().__init__()
        self._strategy = strategy
        self._id = number
        self._reduction = reduction

    @classmethod
    def _of(cls, strategy: Strategy, number: int, reduction: Reduction) -> ReplicaContext:
        # While the strategy is being made.
        context = cls.__new__(cls)
        context._set(strategy, number, reduction)
        return context

    def __enter__(self) -> ReplicaContext:
        top = context_stack.frame()
        self._push(context_stack.Frame(top, self._strategy, context_stack.REPLICA, self, self._id, top.run, top.device,
                                       top.creators, top.drafts))
        return self

    def _described(self) -> str:
        return "a replica context"

    @property
    def strategy(self) -> Strategy:
        """The current strategy."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """This replica's number, a Python int from 0."""
        return self._id

    @property
    def devices(self) -> tuple[str, ...]:
        """This replica's device in a tuple of length 1."""
        self._require(Call.DEVICES)
        layout = self._strategy.extended.layout
        return (layout.devices[self._id - layout.first],)

    def merge_call(self, merge_fn: Callable[..., object], args: Sequence[object] = (),
                   kwargs: Mapping[str, object] | None = None) -> Any:
        """Waits for all replicas and calls `merge_fn(strategy, *args, **kwargs)` once, across replicas.

        Args:
            merge_fn: replica 0's is called.
            args, kwargs: what the replicas pass, put together as the results of `run` are.

        Returns:
            The result, with PerReplica values taken apart again.

        Raises:
            RD01 ... RD06: replicas that make no such call, or another one.
            RD09: outside the replica that this context belongs to.  RD21: structures differ.

        Source: tf.distribute.ReplicaContext.merge_call.
        """
        frame = self._require(Call.MERGE_CALL)
        if not callable(merge_fn):
            raise errors.error("RD25", "merge_call", f"merge_fn is {merge_fn!r}", "Pass a function.")
        args, kwargs = call_arguments(args, kwargs, "merge_call")
        call = CollectiveCall("merge_call", Signature(target=_Function(merge_fn)),
                                   (merge_fn, args, kwargs), self._merge)
        return lockstep.rendezvous(frame.run, call)

    def _merge(self, calls: list[CollectiveCall]) -> Sequence[Any]:
        component_devices = self._strategy.extended.layout.devices
        owner = self._strategy.extended.value_container
        args, kwargs = (regroup([nest.map_structure(shared, call.contribution[i]) for call in calls],
                                component_devices, "merge_call", Result.MERGE_CALL, owner) for i in (1, 2))
        result = self._across(calls[0].contribution[0], args, kwargs)
        check_components(result, len(calls), "result of merge_fn")
        part = splitter((result,))
        return [part(i)[0] for i in range(len(calls))]

    def _across(self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        # Calls `function(strategy, *args, **kwargs)` at a rendezvous.
        strategy = self._strategy
        top = context_stack.frame()
        with context_stack.pushed(context_stack.Frame(top, strategy, context_stack.CROSS, device=top.device,
                                                      creators=top.creators, drafts=top.drafts)), \
                journal.span("merge", function=function_name(function)):
            return function(strategy, *args, **kwargs)

    def _reduce_then(self, op: ReduceOp, value: object, function: Callable[[Any, Any], None]) -> None:
        # An `all_reduce` of a nest, whose results no replica gets: `function(strategy, results)` is called with them,
        # once and across replicas.  They wait for each other once, and nothing is copied for each of them.  A recording
        # has the results as what they receive.
        frame = self._require(Call.ALL_REDUCE)
        leaves = self._reducible_leaves(value)

        def execute(calls: list[CollectiveCall]) -> Sequence[Any]:
            results = nest.pack_sequence_as(value, self._reduction.once(calls))
            self._across(function, (results,), {})
            return [results] * len(calls)
        carried_out: Any = execute
        if checks.types.value:
            carried_out = replica_checks.Contributing(execute, replica_checks.reducing_of(op), f"all_reduce {op.name}",
                                                      self.num_replicas_in_sync, value, result=False)
        lockstep.rendezvous(frame.run, CollectiveCall("all_reduce", _signature(op, None, value, leaves), leaves,
                                                      carried_out))

    def _reducible_leaves(self, value: object) -> list[Any]:
        leaves = [_contribution(leaf, "all_reduce") for leaf in nest.flatten(value)]
        for leaf in leaves:
            collectives.reducible(leaf, "all_reduce")
        return leaves

    def all_reduce(self, reduce_op: ReduceOp | str, value: object,
                   options: CommunicationOptions | None = None) -> Any:
        """Reduces `value` over all replicas and returns the result to each of them.

        Args:
            reduce_op: ReduceOp.SUM or ReduceOp.MEAN, or the name in any case.
            value: an array, a number, IndexedSlices, or a nest of them; equal shapes and dtypes everywhere.
            options: a CommunicationOptions, or None.

        Returns:
            The same nest of read-only arrays.  SUM keeps the dtype; MEAN of integers is a float.  The sum is
            taken left to right over the replica ids, so that every run has the same bits.

        The gradient of an all_reduce is the all_reduce of the gradients with the same op.

        >>> import refdist
        >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
        >>> strategy.run(lambda: refdist.get_replica_context().all_reduce("SUM", 1.0)).values[1]
        array(2., dtype=float32)

        Raises:
            RD01 ... RD06, RD21: replicas that make no such call, or another one.
            RD23: a dtype that is not a number's.  RD25, RD34: a bad reduce op or options.

        Source: tf.distribute.ReplicaContext.all_reduce.
        """
        frame = self._require(Call.ALL_REDUCE)
        op = reduce_op if type(reduce_op) is ReduceOp else reduce_op_of(reduce_op, "all_reduce")
        execute: Callable[..., Sequence[Any]] = self._reduction
        if options is not None:
            check_options(options, "all_reduce")
            execute = functools.partial(execute, options=options)
        if checks.types.value:
            execute = replica_checks.Contributing(execute, replica_checks.reducing_of(op), f"all_reduce {op.name}",
                                                  self.num_replicas_in_sync, value)
        contribution: Any = value
        if isinstance(value, (np.generic, float, int)):
            contribution = to_array(value, attempted="all_reduce")
        if type(contribution) is np.ndarray:  # nearly always
            signature = _checked_signature(op, collectives.NUMPY, contribution.dtype, contribution.shape)
        elif nest.is_nested(value):
            leaves = self._reducible_leaves(value)
            if not leaves:
                return value
            call = CollectiveCall("all_reduce", _signature(op, None, value, leaves), leaves, execute)
            return nest.pack_sequence_as(value, lockstep.rendezvous(frame.run, call))
        else:
            contribution = _contribution(value, "all_reduce")
            signature = _checked_signature(op, *collectives.signature(contribution))
        return lockstep.rendezvous(frame.run, CollectiveCall("all_reduce", signature, contribution, execute))

    def all_gather(self, value: object, axis: int, options: CommunicationOptions | None = None) -> Any:
        """Concatenates the values of all replicas along `axis` and returns the result to each of them.

        Args:
            value: an array of rank 1 or more and any dtype, or a nest of them; only the length along `axis` may differ.
            axis: an int in [-rank, rank).
            options: a CommunicationOptions, or None.

        Returns:
            The same nest of read-only arrays of the same ranks and dtypes, replica 0's part first.

        The gradient of an all_gather is this replica's slice of the summed gradients.

        Raises:
            RD01 ... RD07, RD21: replicas that make no such call, or one whose value does not fit.
            RD08: no such axis.  RD20: IndexedSlices.

        Source: tf.distribute.ReplicaContext.all_gather.
        """
        frame = self._require(Call.ALL_GATHER)
        axis = integer(axis, "axis", "all_gather")
        check_options(options, "all_gather")
        leaves = [_contribution(leaf, "all_gather") for leaf in nest.flatten(value)]
        for leaf in leaves:
            collectives.check_gather(leaf, axis, "all_gather")
        if not leaves:
            return value
        call = CollectiveCall("all_gather", _signature(None, axis, value, leaves, self._reduction.lengths_may_differ),
                              leaves, self._reduction.all_gather)
        gathered = lockstep.rendezvous(frame.run, call)
        if checks.types.value:
            gathered = replica_checks.gathered(gathered)
        return nest.pack_sequence_as(value, gathered)

    def _require(self, call: Call) -> context_stack.Frame:
        frame = context_stack.frame()
        cell = (CALLS[call][frame.kind] if frame.replica is self  # nearly always
                else rule(self._strategy, call))
        if isinstance(cell, Refusal):
            code = cell.code
        elif frame.replica is self or frame.replica is None or frame.replica.replica_id_in_sync_group == self._id:
            return frame
        else:
            code = "RD09"
        caller = f"the context belongs to replica {self._id} of {type(self._strategy).__name__}, and the code " \
                f"runs {context_stack.describe()}"
        raise errors.error(code, call.value, caller, INSTEAD[Call.MERGE_CALL])

    def __repr__(self) -> str:
        return f"ReplicaContext(replica {self._id} of {self.num_replicas_in_sync}, " \
               f"{type(self._strategy).__name__})"


def function_name(function: Callable[..., object]) -> str:
    """The name of a program's function, for messages."""
    return getattr(function, "__qualname__", type(function).__name__)


class _Function:
    """A function as it is compared between replicas: equal if name and code are."""

    __slots__ = ("code", "name")

    def __init__(self, function: Callable[..., object]) -> None:
        self.name = f"merge_fn {function_name(function)}"
        self.code = getattr(function, "__code__", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self.code is other.code and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def call_arguments(args: object, kwargs: object, attempted: str) -> tuple[tuple[object, ...], dict[str, object]]:
    """Checks the arguments that a caller passes for a function.

    Raises:
        RD25, RD34: `args` is not a list or tuple, or `kwargs` not a dict.
    """
    if not isinstance(args, (list, tuple)):
        raise errors.error("RD34", attempted, f"args is {errors.type_of(args)}",
                           "Pass a list or tuple of positional arguments.")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise errors.error("RD25", attempted, f"kwargs is {errors.type_of(kwargs)}", "Pass a dict.")
    return tuple(args), kwargs or {}


def _contribution(leaf: object, attempted: str) -> Any:
    # What one replica contributes to one leaf: an array or IndexedSlices.
    if type(leaf) is np.ndarray:
        return leaf
    if isinstance(leaf, IndexedSlices):
        for array in collectives.leaves(leaf):
            contributed(to_array(array, attempted=attempted), attempted)
        return leaf
    if is_splittable(leaf):
        return _contribution(leaf._local(), attempted)
    if leaf is None:
        raise none_given(f"{attempted} {context_stack.describe()}", "the value is None")
    value = leaf._read() if isinstance(leaf, ArrayOperators) else leaf
    return contributed(to_array(value, attempted=attempted), attempted)


# For one array.  Replicas with equal arguments share one object, which is made and checked once.
@functools.lru_cache(maxsize=1024)
def _checked_signature(op: ReduceOp, library: str, dtype: np.dtype[np.generic], shape: Hashable) -> Signature:
    collectives.reducible_dtype(dtype, "all_reduce")
    return Signature(op=op, libraries=library, dtypes=dtype, shapes=shape)


def _signature(op: ReduceOp | None, axis: int | None, value: object, leaves: Sequence[Part],
               lengths_may_differ: bool = True) -> Signature:
    pairs = [collectives.signature(leaf, axis, lengths_may_differ) for leaf in leaves]
    structure = nest.structure_of(value) if nest.is_nested(value) else None
    return Signature(None, op, axis, structure, *zip(*pairs, strict=True))


# --- Questions about the current context -----------------------------------------------------------------------

# The context of the default strategy's replica.
default_replica: Late[ReplicaContext] = Late()


def get_strategy() -> Strategy:
    """The current strategy, or the default one outside any scope.

    Source: tf.distribute.get_strategy.
    """
    return cast("Strategy", context_stack.frame().strategy or default_strategy.value)


def has_strategy() -> bool:
    """Whether a strategy other than the default one is current.

    Source: tf.distribute.has_strategy.
    """
    return get_strategy() is not default_strategy.value


def get_replica_context() -> ReplicaContext | None:
    """The context of the calling replica; None in a cross-replica context.

    Outside any scope this is the default context, replica 0 of 1.

    Source: tf.distribute.get_replica_context.
    """
    frame = context_stack.frame()
    if isinstance(frame.replica, ReplicaContext):
        return frame.replica
    if frame.kind == context_stack.OUTSIDE:
        return default_replica.value
    return None


def in_cross_replica_context() -> bool:
    """Whether the code runs in a cross-replica context: in a scope, a merge_fn or an update.

    Source: tf.distribute.in_cross_replica_context.
    """
    return context_stack.frame().kind in (context_stack.CROSS, context_stack.UPDATE)
