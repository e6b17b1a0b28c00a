"""Slips in reduce and gather, in CrossDeviceOps, and in distributed values."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import numpy as np

from mutants.slips import instead, slip
from refdist import (
    CrossDeviceOps,
    DistributedValues,
    HierarchicalCopyAllReduce,
    IndexedSlices,
    Mirrored,
    MirroredStrategy,
    MirroredVariable,
    NcclAllReduce,
    OneDeviceStrategy,
    PerReplica,
    ReduceOp,
    ReductionToOneDevice,
    Strategy,
    SyncOnReadVariable,
    has_strategy,
    in_cross_replica_context,
    nest,
)
from refdist.experimental import CommunicationImplementation, CommunicationOptions, ValueContext

# An array, or a number, that is not distributed.
_PLAIN = (np.ndarray, np.generic, int, float, complex)


def _count(strategy: Any) -> int:
    """How many replicas this worker has: the local results of a nest are one nest for each of them."""
    return len(strategy.experimental_local_results([0]))


def _parts(strategy: Any, value: Any) -> list[Any]:
    """The arrays of this worker's replicas; what is not distributed is the array of each of them."""
    return [*map(np.asarray, value.values if isinstance(value, DistributedValues) else [value] * _count(strategy))]


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with what `function` makes of each part, or of the value if it is not distributed."""
    return PerReplica([*map(function, value.values)]) if isinstance(value, PerReplica) else function(value)


def _promoted(value: Any) -> Any:
    """Parts of different dtypes, in the dtype to which NumPy promotes them."""
    parts = value.values if isinstance(value, PerReplica) else ()
    if not parts or not all(isinstance(part, (np.ndarray, np.generic)) for part in parts):
        return value
    return PerReplica([part.astype(np.result_type(*parts)) for part in parts])


def _reducing(mistake: Callable[..., Any]) -> None:
    """`Strategy.reduce` returns for each leaf of the value what `mistake` returns.

    It is called with the right reduction, a function of (op, value, axis); the strategy; the name of the op; the leaf;
    and the axis. A call without an axis is refused, and so is an op of a wrong type.
    """
    @instead(Strategy, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, value: Any, axis: Any = ...) -> Any:
        if axis is ...:
            raise TypeError("reduce needs an axis, or None")
        if not isinstance(reduce_op, (ReduceOp, str)):
            return right(self, reduce_op, value, axis)
        op = reduce_op.upper() if isinstance(reduce_op, str) else reduce_op.name
        return nest.map_structure(lambda leaf: mistake(functools.partial(right, self), self, op, leaf, axis), value)


def _averaging(mistake: Callable[..., Any]) -> None:
    """MEAN along an axis is what `mistake` makes of it, in the dtype that it should have.

    It is called with the right reduction; the strategy; the right mean; the arrays of this worker's replicas; and the
    axis. The rest is reduced as it should be, and so are IndexedSlices.
    """
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        leaves = value.values if isinstance(value, DistributedValues) else [value]
        if op != "MEAN" or axis is None or any(isinstance(leaf, IndexedSlices) for leaf in leaves):
            return result
        axis = tuple(axis) if isinstance(axis, list) else axis
        return np.asarray(mistake(right, strategy, result, _parts(strategy, value), axis)).astype(result.dtype)


def _rows(part: Any, axis: Any) -> Any:
    """How many elements of an array are added up along an axis, for each element of the sum."""
    return np.sum(np.ones_like(part), axis)


def _gathering(mistake: Callable[..., Any]) -> None:
    """`Strategy.gather` returns for each leaf of the value what `mistake` returns.

    It is called with the right gathering, a function of (value, axis); the strategy; the leaf; and the axis.
    """
    @instead(Strategy, "gather")
    def gather(right: Any, self: Any, value: Any, axis: Any) -> Any:
        return nest.map_structure(lambda leaf: mistake(functools.partial(right, self), self, leaf, axis), value)


def _value_contexts(changed: Callable[[Any, Any, int], Any]) -> None:
    """A value function gets the context that `changed` makes of the strategy, the right context and a number.

    The number counts the calls of the function from 0.
    """
    @instead(Strategy, "experimental_distribute_values_from_function")
    def from_function(right: Any, self: Any, value_fn: Any) -> Any:
        if not callable(value_fn):
            return right(self, value_fn)
        numbers = itertools.count()
        return right(self, lambda context: value_fn(changed(self, context, next(numbers))))


# Reducing across replicas.

@slip("without an axis all elements are added up", "reduce.across-replicas-only")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        return result if axis is not None or isinstance(result, IndexedSlices) else result.sum(dtype=result.dtype)


@slip("the SUM of a plain array counts it once for each replica", "reduce.sum-of-an-array")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if op == "SUM" and axis is None and isinstance(value, _PLAIN):
            return right(op, strategy.experimental_distribute_values_from_function(lambda _: value), axis)
        return right(op, value, axis)


@slip("the SUM of zero is zero before anything is looked at", "reduce.sum-of-zero")
def _() -> None:
    _reducing(lambda right, strategy, op, value, axis:
              0 if op == "SUM" and isinstance(value, int) and value == 0 else right(op, value, axis))


@slip("the SUM of a mirrored value counts every copy", "reduce.mirrored-values")
def _() -> None:
    _reducing(lambda right, strategy, op, value, axis: right(
        op, PerReplica(value.values) if op == "SUM" and isinstance(value, Mirrored) else value, axis))


@slip("the SUM of a mirrored variable is its value", "reduce.mirrored-variables")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if op == "SUM" and axis is None and isinstance(value, MirroredVariable):
            return value.read_value()
        return right(op, value, axis)


@slip("an ON_READ variable is read before it is reduced", "reduce.on-read-variables")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if isinstance(value, SyncOnReadVariable):
            value = PerReplica([value.read_value()] * len(value.values))
        return right(op, value, axis)


@slip("an array of a worker with one replica is refused as shared", "reduce.arrays-of-workers")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if op == "SUM" and axis is None and isinstance(value, _PLAIN) and strategy.num_replicas_in_sync > 1:
            raise ValueError("the SUM of an array that is not distributed")
        return right(op, value, axis)


@slip("the MEAN of a plain number is the number", "reduce.mean-of-a-plain-number")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        return value if op == "MEAN" and isinstance(value, (int, float)) else result


@slip("workers do not compare their mirrored values", "reduce.mirrored-values-of-workers")
def _() -> None:
    _reducing(lambda right, strategy, op, value, axis: right(
        op, PerReplica(value.values) if op == "MEAN" and isinstance(value, Mirrored) else value, axis))


@slip("the mean of halves is float32", "reduce.mean-keeps-the-dtype-of-floats")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        halves = op == "MEAN" and not isinstance(result, IndexedSlices) and result.dtype == np.float16
        return result.astype(np.float32) if halves else result


@slip("a nest becomes a list of its leaves", "reduce.nests")
def _() -> None:
    @instead(Strategy, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, value: Any, axis: Any = ...) -> Any:
        if axis is ...:
            raise TypeError("reduce needs an axis, or None")
        result = right(self, reduce_op, value, axis)
        return nest.flatten(result) if nest.is_nested(value) else result


@slip("replicas that returned None are left out", "reduce.none-is-not-a-value")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        present = [part for part in value.values if part is not None] if isinstance(value, PerReplica) else []
        if op == "SUM" and axis is None and present:
            value = _each(lambda part: np.zeros_like(present[0]) if part is None else part, value)
        return right(op, value, axis)


@slip("parts of different dtypes are promoted", "reduce.dtypes-must-agree")
def _() -> None:
    _reducing(lambda right, strategy, op, value, axis: right(op, _promoted(value), axis))


@slip("a value has as many parts as it has", "reduce.values-of-another-number-of-replicas")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if axis is None and isinstance(value, PerReplica) and len(value.values) != _count(strategy):
            return (np.mean if op == "MEAN" else np.sum)(_parts(strategy, value), axis=0)
        return right(op, value, axis)


# Reducing along an axis.

@slip("MEAN along an axis is the mean of the means of the replicas", "reduce.partial-batches")
def _() -> None:
    _averaging(lambda right, strategy, mean, parts, axis:
               right("MEAN", PerReplica([np.mean(part, axis) for part in parts]), None))


@slip("all replicas are taken to have as many rows as the first", "reduce.a-replica-without-rows")
def _() -> None:
    _averaging(lambda right, strategy, mean, parts, axis:
               right("SUM", PerReplica(parts), axis) / (_rows(parts[0], axis) * strategy.num_replicas_in_sync))


@slip("MEAN divides by the rows of this worker alone", "reduce.along-the-batch")
def _() -> None:
    _averaging(lambda right, strategy, mean, parts, axis:
               right("SUM", PerReplica(parts), axis) / sum(_rows(part, axis) for part in parts))


@slip("the MEAN of no rows is zero", "reduce.no-rows-at-all")
def _() -> None:
    _averaging(lambda right, strategy, mean, parts, axis:
               np.where(right("SUM", PerReplica([*map(np.ones_like, parts)]), axis), mean, 0))


@slip("the MEAN of ints along an axis is rounded down", "reduce.mean-of-integers")
def _() -> None:
    _averaging(lambda right, strategy, mean, parts, axis: np.floor(mean) if parts[0].dtype.kind in "iu" else mean)


@slip("reduce has no negative axes", "reduce.negative-axes")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        if axis is not None and np.any(np.asarray(axis) < 0):
            raise ValueError(f"there is no axis {axis}")
        return result


@slip("of several axes the first is reduced", "reduce.several-axes")
def _() -> None:
    _reducing(lambda right, strategy, op, value, axis: right(
        op, value, axis[:1] if isinstance(axis, (list, tuple)) else axis))


@slip("an axis that is named twice counts once", "reduce.an-axis-once")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        rank = np.ndim(_parts(strategy, value)[0])
        if isinstance(axis, tuple) and all(-rank <= item < rank for item in axis):
            axis = tuple({item % rank for item in axis})
        return right(op, value, axis)


@slip("a dimension that is reduced remains with length 1", "reduce.other-axes")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        return result if axis is None else np.expand_dims(result, axis)


@slip("the sum of ints of 32 bits along an axis has 64 bits", "reduce.along-the-batch")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        result = right(op, value, axis)
        return result.astype(np.int64) if axis is not None and result.dtype == np.int32 else result


@slip("a scalar is one row", "reduce.scalars-have-no-axis")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        parts = value.values if isinstance(value, PerReplica) else [value]
        if axis is not None and all(isinstance(part, _PLAIN) for part in parts):
            value = _each(np.atleast_1d, value)
        return right(op, value, axis)


@slip("along an axis a plain array counts once", "reduce.arrays-along-an-axis")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if op == "SUM" and axis is not None and isinstance(value, _PLAIN):
            first, *others = _parts(strategy, value)
            value = PerReplica([first, *map(np.zeros_like, others)])
        return right(op, value, axis)


@slip("of IndexedSlices the rows are counted that are there", "reduce.slices-along-an-axis")
def _() -> None:
    def rows(part: Any) -> Any:
        return part.values if isinstance(part, IndexedSlices) else part

    _reducing(lambda right, strategy, op, value, axis: right(
        op, value if axis is None else _each(rows, value), axis))


@slip("an axis may be a list, but not an array", "reduce.axis-as-an-array")
def _() -> None:
    @_reducing
    def _(right: Any, strategy: Any, op: str, value: Any, axis: Any) -> Any:
        if isinstance(axis, np.ndarray):
            raise TypeError("the axis is an array")
        return right(op, value, axis)


# Gathering.

@slip("a plain array is gathered once for each replica", "gather.arrays")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        if isinstance(value, _PLAIN):
            value = strategy.experimental_distribute_values_from_function(lambda _, array=value: array)
        return right(value, axis)


@slip("workers that have one replica must have equal arrays", "gather.arrays-of-workers")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        result = right(value, axis)
        if not isinstance(value, _PLAIN) or np.array_equal(result, value):
            return result
        if not np.array_equal(result, np.concatenate([value] * strategy.num_replicas_in_sync, axis)):
            raise ValueError("the workers have different arrays")
        return value


@slip("where workers have several replicas, one array is that of all", "gather.arrays-of-workers")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        result = right(value, axis)
        return value if isinstance(value, _PLAIN) and _count(strategy) > 1 and np.array_equal(
            result, np.concatenate([value] * (len(result) // len(value)), axis)) else result


@slip("each worker keeps its own plain array", "gather.arrays-of-workers")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        if not isinstance(value, _PLAIN) or _count(strategy) == 1:
            return right(value, axis)
        right(PerReplica(_parts(strategy, value)), axis)  # which refuses what cannot be gathered
        return value


@slip("a mirrored variable is gathered once", "gather.variables")
def _() -> None:
    _gathering(lambda right, strategy, value, axis: right(
        value.read_value() if isinstance(value, MirroredVariable) else value, axis))


@slip("gather promotes different dtypes", "gather.dtypes-must-agree")
def _() -> None:
    _gathering(lambda right, strategy, value, axis: right(_promoted(value), axis))


@slip("an axis beyond the last counts from the first again", "gather.axis-must-exist")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        rank = np.ndim(_parts(strategy, value)[0])
        return right(value, axis % rank if isinstance(axis, int) and 0 < rank <= axis else axis)


@slip("no replica may be without rows", "gather.a-replica-without-rows")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        result = right(value, axis)
        if not all(part.size for part in _parts(strategy, value)):
            raise ValueError("a replica has no rows")
        return result


@slip("the result of gather has a dimension for the replicas", "gather.rows")
def _() -> None:
    @_gathering
    def _(right: Any, strategy: Any, value: Any, axis: Any) -> Any:
        result = right(value, axis)
        if not isinstance(value, PerReplica):
            return result
        return right(_each(lambda part: np.expand_dims(part, axis), value), axis)


# CrossDeviceOps and their options.

@slip("MEAN does not divide what the accumulation function returned", "cross_device_ops.accumulation-function")
def _() -> None:
    accumulating: WeakSet[ReductionToOneDevice] = WeakSet()

    @instead(ReductionToOneDevice, "__init__")
    def init(right: Any, self: Any, reduce_to_device: Any = None, accumulation_fn: Any = None) -> None:
        right(self, reduce_to_device, accumulation_fn)
        if accumulation_fn is not None:
            accumulating.add(self)

    @instead(ReductionToOneDevice, "reduce_implementation")
    def reduce_implementation(right: Any, self: Any, reduce_op: Any, *args: Any, **kwargs: Any) -> Any:
        return right(self, ReduceOp.SUM if self in accumulating else reduce_op, *args, **kwargs)


@slip("the accumulation function is called with two values at a time", "cross_device_ops.accumulation-function")
def _() -> None:
    @instead(ReductionToOneDevice, "__init__")
    def init(right: Any, self: Any, reduce_to_device: Any = None, accumulation_fn: Any = None) -> None:
        def in_pairs(values: Any) -> Any:
            return functools.reduce(lambda total, value: accumulation_fn([total, value]), values)

        right(self, reduce_to_device, in_pairs if callable(accumulation_fn) else accumulation_fn)


@slip("NcclAllReduce takes any devices", "cross_device_ops.nccl-needs-gpus")
def _() -> None:
    @instead(MirroredStrategy, "__init__")
    def init(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        # Between devices for which there is no NCCL, by what there is for all of them.
        right(self, devices, ReductionToOneDevice() if type(cross_device_ops) is NcclAllReduce else cross_device_ops)


@slip("a number of packs begins at one", "cross_device_ops.packs")
def _() -> None:
    def init(right: Any, self: Any, num_packs: Any = 1) -> None:
        if num_packs == 0:
            raise ValueError("there is no pack")
        right(self, num_packs)

    for ops in (NcclAllReduce, HierarchicalCopyAllReduce):
        instead(ops, "__init__")(init)


@slip("all results of batch_reduce go where the first one goes", "cross_device_ops.batch-reduce")
def _() -> None:
    @instead(ReductionToOneDevice, "batch_reduce_implementation")
    def batch_reduce_implementation(right: Any, self: Any, reduce_op: Any, pairs: Any, options: Any) -> Any:
        return right(self, reduce_op, [(value, pairs[0][1]) for value, _ in pairs], options)


@slip("pairs of a batch may be lists", "cross_device_ops.batch-reduce-refuses")
def _() -> None:
    @instead(CrossDeviceOps, "batch_reduce")
    def batch_reduce(right: Any, self: Any, reduce_op: Any, value_destination_pairs: Any, options: Any = None) -> Any:
        if isinstance(value_destination_pairs, list):
            value_destination_pairs = [tuple(pair) if isinstance(pair, list) else pair
                                       for pair in value_destination_pairs]
        return right(self, reduce_op, value_destination_pairs, options)


@slip("merged options prefer the first ones", "cross_device_ops.merged-options")
def _() -> None:
    @instead(CommunicationOptions, "merge")
    def merge(right: Any, self: Any, options: Any) -> Any:
        return right(self, None) if options is None else right(options, self)


@slip("options are for rings if nothing else is said", "strategies.communication-options")
def _() -> None:
    @instead(CommunicationOptions, "__init__")
    def init(right: Any, self: Any, bytes_per_pack: Any = 0, timeout_seconds: Any = None,
             implementation: Any = CommunicationImplementation.RING) -> None:
        right(self, bytes_per_pack, timeout_seconds, implementation)


@slip("a time limit may be below zero", "strategies.timeouts-are-not-below-zero")
def _() -> None:
    @instead(CommunicationOptions, "__init__")
    def init(right: Any, self: Any, bytes_per_pack: Any = 0, timeout_seconds: Any = None,
             implementation: Any = CommunicationImplementation.AUTO) -> None:
        negative = isinstance(timeout_seconds, (int, float)) and timeout_seconds < 0
        right(self, bytes_per_pack, None if negative else timeout_seconds, implementation)
        self.timeout_seconds = timeout_seconds


@slip("an implementation has no name", "cross_device_ops.implementation-by-name")
def _() -> None:
    @instead(CommunicationOptions, "__init__")
    def init(right: Any, self: Any, bytes_per_pack: Any = 0, timeout_seconds: Any = None,
             implementation: Any = CommunicationImplementation.AUTO) -> None:
        if isinstance(implementation, str):
            raise ValueError(f"{implementation!r} is no CommunicationImplementation")
        right(self, bytes_per_pack, timeout_seconds, implementation)


# Distributed values.

@slip("local results are a list", "values.local-results")
def _() -> None:
    @instead(Strategy, "experimental_local_results")
    def experimental_local_results(right: Any, self: Any, value: Any) -> Any:
        results = right(self, value)
        return list(results) if isinstance(value, DistributedValues) else results


@slip("the local results of an array are the array", "values.local-results-of-one-value")
def _() -> None:
    @instead(Strategy, "experimental_local_results")
    def experimental_local_results(right: Any, self: Any, value: Any) -> Any:
        results = right(self, value)
        return value if isinstance(value, _PLAIN) else results


@slip("the local results of a nest are the nest alone", "values.local-results-of-nests")
def _() -> None:
    @instead(Strategy, "experimental_local_results")
    def experimental_local_results(right: Any, self: Any, value: Any) -> Any:
        results = right(self, value)
        return (value,) if nest.is_nested(value) else results


@slip("a OneDeviceStrategy takes values apart", "values.local-results-of-another-strategy-on-one-replica")
def _() -> None:
    @instead(OneDeviceStrategy, "experimental_local_results")
    def experimental_local_results(right: Any, self: Any, value: Any) -> Any:
        results = right(self, value)
        return value.values if isinstance(value, DistributedValues) else results


@slip("every worker counts its replicas from zero for a value function", "workers.values-of-a-function-are-local")
def _() -> None:
    _value_contexts(lambda strategy, context, number: ValueContext(number, context.num_replicas_in_sync))


@slip("a value function is told the number of the replicas of its worker", "workers.values-of-a-function-are-local")
def _() -> None:
    _value_contexts(lambda strategy, context, number: ValueContext(context.replica_id_in_sync_group, _count(strategy)))


@slip("the value function is called once for all", "values.from-a-function-once")
def _() -> None:
    @instead(Strategy, "experimental_distribute_values_from_function")
    def from_function(right: Any, self: Any, value_fn: Any) -> Any:
        if not callable(value_fn):
            return right(self, value_fn)
        values: list[Any] = []

        def once(context: Any) -> Any:
            if not values:
                values.append(value_fn(context))
            return values[0]

        return right(self, once)


@slip("equal values from a function become one", "values.from-a-function-as-it-is")
def _() -> None:
    def bare(leaf: Any) -> Any:
        parts = leaf.values if isinstance(leaf, PerReplica) else ()
        same = len(parts) > 1 and all(part is None or isinstance(part, (int, float, str)) for part in parts)
        return parts[0] if same and len({*parts}) == 1 else leaf

    @instead(Strategy, "experimental_distribute_values_from_function")
    def from_function(right: Any, self: Any, value_fn: Any) -> Any:
        return nest.map_structure(bare, right(self, value_fn))


@slip("the value of the only replica is not distributed", "values.from-a-function-on-one-replica")
def _() -> None:
    def bare(leaf: Any) -> Any:
        return leaf.values[0] if isinstance(leaf, PerReplica) and len(leaf.values) == 1 else leaf

    @instead(Strategy, "experimental_distribute_values_from_function")
    def from_function(right: Any, self: Any, value_fn: Any) -> Any:
        return nest.map_structure(bare, right(self, value_fn))


@slip("a context that was made by hand has no replicas", "values.context-of-one-replica")
def _() -> None:
    @instead(ValueContext, "__init__")
    def init(right: Any, self: Any, replica_id_in_sync_group: Any = 0, num_replicas_in_sync: Any = 0) -> None:
        right(self, replica_id_in_sync_group, num_replicas_in_sync)


@slip("outside the replicas a distributed value is its first part", "values.no-arithmetic")
def _() -> None:
    @instead(PerReplica, "__add__")
    def add(right: Any, self: Any, other: Any) -> Any:
        outside = in_cross_replica_context() or not has_strategy()
        if outside and isinstance(self.values[0], _PLAIN) and isinstance(other, _PLAIN):
            return self.values[0] + other
        return right(self, other)
