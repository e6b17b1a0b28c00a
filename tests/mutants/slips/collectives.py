"""Slips in all_reduce and all_gather, and in how replicas meet."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

import refdist
from mutants.slips import instead, slip
from mutants.tools import replicas_sum
from refdist import IndexedSlices, ReduceOp, ReplicaContext, Strategy, VariableAggregation, nest

# What each replica has handed to `_from_all`, by the number of the replica.
_handed: dict[int, Any] = {}


def _from_all(context: Any, meet: Callable[[], object], item: Any) -> list[Any]:
    """The items of all replicas, in their order; `meet` is a collective that changes nothing."""
    _handed[context.replica_id_in_sync_group] = item
    meet()
    items = [_handed.get(i, item) for i in range(context.num_replicas_in_sync)]
    meet()  # so that no replica hands over the next item before all have these
    return items


def _is_mean(reduce_op: Any) -> bool:
    return reduce_op in (ReduceOp.MEAN, "MEAN", "mean")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic))


def _divided(array: Any, count: int) -> Any:
    # In the dtype of a mean.
    small = array.dtype.kind in "iu" and array.dtype.itemsize < 4
    return np.divide(array, count, dtype=np.float32 if small else None)


def _total(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts)


def _adds(add: Callable[[list[Any]], Any]) -> None:
    """The sum of all replicas' arrays is what `add` makes of them."""
    replicas_sum(lambda op, parts: _divided(add(parts), len(parts)) if op == "MEAN" else add(parts))


def _reduces(change: Callable[[Any, bool], Any]) -> None:
    """all_reduce reduces `change(leaf, whether the op is MEAN)` in place of each leaf."""
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        changed = nest.map_structure(lambda leaf: change(leaf, _is_mean(reduce_op)), value)
        return right(self, reduce_op, changed, options)


def _reduced(change: Callable[[Any, Any, bool], Any]) -> None:
    """all_reduce returns `change(leaf, contribution, whether the op is MEAN)` in place of each leaf of its result."""
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        return nest.map_structure(lambda leaf, own: change(leaf, own, _is_mean(reduce_op)), result, value)


def _reduced_slices(change: Callable[[Any, bool], Any]) -> None:
    """all_reduce returns `change(slices, whether the op is MEAN)` in place of IndexedSlices."""
    _reduced(lambda leaf, own, mean: change(leaf, mean) if isinstance(leaf, IndexedSlices) else leaf)


def _returns(change: Callable[[Any], Any]) -> None:
    """Each container in what all_reduce returns goes through `change`, the innermost first."""
    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return change({key: changed(item) for key, item in value.items()})
        return change(type(value)(map(changed, value))) if isinstance(value, (list, tuple)) else value

    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        return changed(right(self, reduce_op, value, options))


def _passes(change: Callable[[list[Any], int], Any]) -> None:
    """A replica passes `change(the values of all replicas, its number)` to all_reduce in place of its own value."""
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        values = _from_all(self, lambda: right(self, "SUM", 0.0), value)
        return right(self, reduce_op, change(values, self.replica_id_in_sync_group), options)


def _broadcast(value: Any, values: list[Any]) -> Any:
    # To the shape that fits all values.
    shape = np.broadcast_shapes(*map(np.shape, values))
    return value if np.shape(value) == shape else np.broadcast_to(value, shape)


# Sums and means.

@slip("SUM leaves out the last replica", "all_reduce.sum")
def _() -> None:
    _adds(lambda parts: sum(parts[1:-1], parts[0]))


@slip("MEAN divides by one replica too many", "all_reduce.mean")
def _() -> None:
    replicas_sum(lambda op, parts: _divided(_total(parts), len(parts) + 1) if op == "MEAN" else _total(parts))


@slip("the mean of ints is float32 whatever the ints are", "all_reduce.mean-of-ints")
def _() -> None:
    _reduced(lambda leaf, own, mean: leaf.astype(np.float32) if mean and np.asarray(own).dtype.kind in "iu" else leaf)


@slip("the mean of ints of 8 bits is float64", "all_reduce.mean-of-small-and-unsigned-ints")
def _() -> None:
    _reduced(lambda leaf, own, mean: leaf.astype(np.float64) if mean and np.asarray(own).dtype.itemsize == 1 else leaf)


@slip("with one replica the mean of ints stays an int", "all_reduce.mean-of-ints-on-one-replica")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        alone = self.num_replicas_in_sync == 1 and _is_mean(reduce_op)
        return right(self, "SUM" if alone else reduce_op, value, options)


@slip("ints become floats before they are added for a mean", "all_reduce.mean-of-large-ints")
def _() -> None:
    _reduces(lambda leaf, mean: _divided(leaf, 1) if mean and _is_array(leaf) and leaf.dtype.kind in "iu" else leaf)


@slip("MEAN divides each value before they are added", "all_reduce.overflow-of-floats")
def _() -> None:
    replicas_sum(lambda op, parts: _total([_divided(part, len(parts)) for part in parts] if op == "MEAN" else parts))


@slip("the sum is taken from the last replica to the first", "all_reduce.order-of-addition")
def _() -> None:
    _adds(lambda parts: _total(parts[::-1]))


@slip("floats are added in float64 and rounded at the end", "all_reduce.order-of-addition")
def _() -> None:
    def add(parts: list[Any]) -> Any:
        wide = [part.astype(np.float64) if part.dtype.kind == "f" else part for part in parts]
        return _total(wide).astype(parts[0].dtype)

    _adds(add)


@slip("the sum starts from zero", "all_reduce.negative-zero")
def _() -> None:
    _adds(sum)


@slip("sums of ints of 8 bits are widened", "all_reduce.sums-of-small-ints-wrap")
def _() -> None:
    def widened(leaf: Any, mean: bool) -> Any:
        return leaf.astype(np.int32) if not mean and _is_array(leaf) and leaf.dtype in (np.int8, np.uint8) else leaf

    _reduces(widened)


@slip("a sum of ints that is too large is the largest int", "all_reduce.sums-of-ints-wrap")
def _() -> None:
    def add(parts: list[Any]) -> Any:
        if parts[0].dtype != np.int32:
            return _total(parts)
        limits = np.iinfo(np.int32)
        return _total([part.astype(np.int64) for part in parts]).clip(limits.min, limits.max).astype(np.int32)

    _adds(add)


@slip("ints are added as floats of 64 bits", "all_reduce.large-ints-are-exact")
def _() -> None:
    def add(parts: list[Any]) -> Any:
        numbers = [part.astype(np.float64) if part.dtype.kind in "iu" else part for part in parts]
        return _total(numbers).astype(parts[0].dtype)

    _adds(add)


@slip("NaN is left out of a sum", "all_reduce.nan-and-infinity")
def _() -> None:
    _adds(lambda parts: _total([np.where(np.isnan(part), 0, part) for part in parts]))


@slip("subnormal numbers are taken for zero", "all_reduce.subnormal-numbers")
def _() -> None:
    def flushed(leaf: Any, own: Any, mean: bool) -> Any:
        if not _is_array(leaf) or leaf.dtype.kind != "f":
            return leaf
        return leaf * (np.abs(leaf) >= np.finfo(leaf.dtype).tiny)

    _reduced(flushed)


@slip("the sum is written into the array of the first replica", "all_reduce.contribution-is-unchanged")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        first = self.replica_id_in_sync_group == 0 and not _is_mean(reduce_op)
        if first and isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = result
        return result


@slip("an array without elements loses its shape", "all_reduce.empty-arrays")
def _() -> None:
    _reduced(lambda leaf, own, mean: leaf if not _is_array(leaf) or leaf.size else leaf.reshape(-1))


@slip("an array that all replicas share is reduced to itself", "all_reduce.shared-array")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        values = _from_all(self, lambda: right(self, "SUM", 0.0), value)
        result = right(self, reduce_op, value, options)
        shared = len(values) > 1 and _is_array(value) and all(other is value for other in values)
        return value if shared else result


@slip("the leaves of nests are added from the last replica on", "all_reduce.every-leaf-as-if-alone")
def _() -> None:
    _passes(lambda values, i: values[-1 - i] if all(map(nest.is_nested, values)) else values[i])


# Arguments.

@slip("names of ops are in capital letters only", "all_reduce.name-of-the-op-in-lower-case")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if isinstance(reduce_op, str) and reduce_op not in ("SUM", "MEAN"):
            raise ValueError(reduce_op)
        return right(self, reduce_op, value, options)


@slip("an aggregation is taken for the op of its name", "all_reduce.what-is-not-an-op")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        op = reduce_op.name if isinstance(reduce_op, VariableAggregation) else reduce_op
        return right(self, op, value, options)


@slip("an unknown name of an op is SUM", "all_reduce.unknown-names-of-ops")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        unknown = isinstance(reduce_op, str) and reduce_op.upper() not in ("SUM", "MEAN")
        return right(self, "SUM" if unknown else reduce_op, value, options)


@slip("the op of ONLY_FIRST_REPLICA is MEAN", "all_reduce.op-of-an-aggregation")
def _() -> None:
    @instead(ReduceOp, "from_variable_aggregation")
    def from_variable_aggregation(right: Any, aggregation: Any) -> Any:
        return ReduceOp.MEAN if aggregation is VariableAggregation.ONLY_FIRST_REPLICA else right(aggregation)


@slip("all_reduce takes its arguments by position only", "all_reduce.arguments-by-name")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, *args: Any, **named: Any) -> Any:
        if "reduce_op" in named or "value" in named:
            raise TypeError("reduce_op and value have no names")
        return right(self, *args, **named)


@slip("all_reduce does not look at its options", "all_reduce.what-is-not-options")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        return right(self, reduce_op, value)


def _as_number(leaf: Any) -> Any:
    return leaf.astype(np.int32) if _is_array(leaf) and leaf.dtype.kind == "b" else leaf


@slip("booleans are added as numbers", "all_reduce.only-numbers")
def _() -> None:
    _reduces(lambda leaf, mean: _as_number(leaf))


@slip("of a nest only the first leaf is looked at", "all_reduce.only-numbers")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        leaves = nest.flatten(value)
        changed = nest.pack_sequence_as(value, leaves[:1] + [_as_number(leaf) for leaf in leaves[1:]])
        return right(self, reduce_op, changed, options)


def _refuses(refused: Callable[[Any], bool]) -> None:
    """all_reduce takes no leaf of which `refused` holds: its type is wrong."""
    def checked(leaf: Any, mean: bool) -> Any:
        if refused(leaf):
            raise TypeError(f"{leaf!r} cannot be reduced")
        return leaf

    _reduces(checked)


@slip("complex numbers are not added", "all_reduce.complex-numbers")
def _() -> None:
    _refuses(lambda leaf: _is_array(leaf) and leaf.dtype.kind == "c")


@slip("only ints of 32 and 64 bits are added", "all_reduce.sum-of-any-number")
def _() -> None:
    _refuses(lambda leaf: _is_array(leaf) and leaf.dtype.kind in "iu" and leaf.dtype.itemsize < 4)


@slip("a float of Python has 64 bits", "all_reduce.numbers-of-the-language")
def _() -> None:
    _reduces(lambda leaf, mean: np.array(leaf) if isinstance(leaf, float) else leaf)


@slip("outside of run there is nothing to reduce", "all_reduce.outside-of-run")
def _() -> None:
    outside = refdist.get_replica_context()

    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if self is outside:
            raise RuntimeError("all_reduce outside of run")
        return right(self, reduce_op, value, options)


@slip("all_reduce is allowed in a merge function", "all_reduce.only-in-a-replica")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        with self if refdist.in_cross_replica_context() else nullcontext():
            return right(self, reduce_op, value, options)


# Nests.

@slip("a nest without leaves is an error", "all_reduce.empty-nests")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if not nest.flatten(value):
            raise ValueError("there is nothing to reduce")
        return right(self, reduce_op, value, options)


@slip("a dict comes back with its keys sorted", "all_reduce.keys-keep-their-order")
def _() -> None:
    _returns(lambda value: {key: value[key] for key in sorted(value)} if isinstance(value, dict) else value)


@slip("the values of dicts are matched in the order of insertion", "all_reduce.keys-are-matched")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        keys = [*value] if isinstance(value, dict) else []
        # refdist matches the values of sorted keys, so these are given to the values in the order of insertion.
        changed = dict(zip(sorted(keys), value.values(), strict=True)) if keys else value
        result = right(self, reduce_op, changed, options)
        return {key: result[other] for key, other in zip(keys, changed, strict=True)} if keys else result


@slip("a tuple comes back as a list", "all_reduce.nests")
def _() -> None:
    _returns(lambda value: [*value] if isinstance(value, tuple) else value)


@slip("all leaves of a nest must have one dtype", "all_reduce.dtypes-of-a-nest-may-differ")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        if len({leaf.dtype for leaf in nest.flatten(result)}) > 1:
            raise TypeError("the dtypes of the leaves differ")
        return result


@slip("the rows of IndexedSlices that have one index are added up", "all_reduce.indexed-slices-of-different-length")
def _() -> None:
    def added_up(slices: Any, mean: bool) -> Any:
        indices = np.array([*dict.fromkeys(slices.indices.tolist())], slices.indices.dtype)
        values = np.zeros((len(indices), *slices.values.shape[1:]), slices.values.dtype)
        for i, index in enumerate(indices):
            values[i] = slices.values[slices.indices == index].sum(axis=0)
        return IndexedSlices(values, indices, slices.dense_shape)

    _reduced_slices(added_up)


@slip("MEAN of IndexedSlices divides by the number of rows", "all_reduce.indexed-slices-mean")
def _() -> None:
    def mean_of_rows(slices: Any, mean: bool) -> Any:
        if not mean or not len(slices.indices):
            return slices
        count = refdist.get_strategy().num_replicas_in_sync
        return IndexedSlices(slices.values * count / len(slices.indices), slices.indices, slices.dense_shape)

    _reduced_slices(mean_of_rows)


@slip("the sum of IndexedSlices is the whole array", "all_reduce.indexed-slices")
def _() -> None:
    def whole(slices: Any, mean: bool) -> Any:
        if mean or slices.dense_shape is None:
            return slices
        array = np.zeros(slices.dense_shape, slices.values.dtype)
        np.add.at(array, slices.indices, slices.values)
        return array

    _reduced_slices(whole)


@slip("IndexedSlices must have a dense shape", "all_reduce.indexed-slices-without-dense-shape")
def _() -> None:
    @instead(IndexedSlices, "__init__")
    def init(right: Any, self: Any, values: Any, indices: Any, dense_shape: Any = None) -> None:
        if dense_shape is None:
            raise TypeError("there is no dense shape")
        right(self, values, indices, dense_shape)


@slip("in a nest IndexedSlices come before arrays", "all_reduce.indexed-slices-beside-arrays")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        return nest.pack_sequence_as(
            result, sorted(nest.flatten(result), key=lambda leaf: not isinstance(leaf, IndexedSlices)))


# How replicas meet.

@slip("shapes agree if they have the same rank", "all_reduce.shapes-are-not-broadcast")
def _() -> None:
    def fitting(values: list[Any], i: int) -> Any:
        same_rank = all(map(_is_array, values)) and len({value.ndim for value in values}) == 1
        return _broadcast(values[i], values) if same_rank else values[i]

    _passes(fitting)


@slip("different dtypes are promoted", "all_reduce.dtypes-must-agree")
def _() -> None:
    def promoted(values: list[Any], i: int) -> Any:
        return values[i].astype(np.result_type(*values)) if all(map(_is_array, values)) else values[i]

    _passes(promoted)


@slip("of a nest only the shape of the first leaf is compared", "all_reduce.shapes-of-all-leaves-must-agree")
def _() -> None:
    def fitting(values: list[Any], i: int) -> Any:
        leaves = [nest.flatten(value) for value in values]
        if len({len(own) for own in leaves}) > 1:
            return values[i]
        columns = [[*column] for column in zip(*leaves, strict=True)]
        return nest.pack_sequence_as(values[i], leaves[i][:1] + [
            _broadcast(column[i], column) for column in columns[1:]])

    _passes(fitting)


@slip("nests are compared by their leaves alone", "all_reduce.kinds-of-containers-must-agree")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        nested = nest.is_nested(value)
        result = right(self, reduce_op, nest.flatten(value) if nested else value, options)
        return nest.pack_sequence_as(value, result) if nested else result


@slip("the leaves of a nest after the first are gathered along axis 0", "all_gather.nests-along-another-axis")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        leaves = nest.flatten(value)
        if len(leaves) < 2:
            return right(self, value, axis, options)
        first = right(self, leaves[0], axis, options)
        return nest.pack_sequence_as(value, [first, *(right(self, leaf, 0, options) for leaf in leaves[1:])])


@slip("gathered nests are compared by their leaves alone", "all_gather.structures-must-agree")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        nested = nest.is_nested(value)
        result = right(self, nest.flatten(value) if nested else value, axis, options)
        return nest.pack_sequence_as(value, result) if nested else result


@slip("the op of the first replica is taken for all", "all_reduce.ops-must-agree")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        first = _from_all(self, lambda: right(self, "SUM", 0.0), reduce_op)[0]
        return right(self, first, value, options)


@slip("for a replica that has returned the value of another one counts", "all_reduce.every-replica-must-come")
def _() -> None:
    came: set[int] = set()

    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        came.add(self.replica_id_in_sync_group)
        return right(self, reduce_op, value, options)

    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, *args: Any, **named: Any) -> Any:
        def as_one_that_comes(*args: Any, **named: Any) -> Any:
            context: Any = refdist.get_replica_context()
            present = context.replica_id_in_sync_group in here
            with nullcontext() if present else ReplicaContext(self, min(here)):
                return fn(*args, **named)

        came.clear()
        try:
            return right(self, fn, *args, **named)
        except refdist.errors.RefdistError as error:
            here = {*came}
            if error.code != "RD01" or not here:
                raise
        # Once more, and a replica that did not come does what one does that came.
        return right(self, as_one_that_comes, *args, **named)


@slip("an exception is hidden by the error that its replica is missing", "all_reduce.exception-of-a-replica")
def _() -> None:
    @instead(Strategy, "run")
    def run(right: Any, self: Any, fn: Any, *args: Any, **named: Any) -> Any:
        raised = []

        @functools.wraps(fn)
        def returning(*args: Any, **named: Any) -> Any:
            try:
                return fn(*args, **named)
            except Exception as error:
                raised.append(error)

        result = right(self, returning, *args, **named)
        if raised:
            raise raised[0]
        return result


@slip("a replica that cannot be answered goes on with None", "all_reduce.waiting-replicas-are-unwound")
def _() -> None:
    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        try:
            return right(self, reduce_op, value, options)
        except Exception:
            raise
        except BaseException:  # what unwinds a replica is no Exception
            return None


# Gathering.

def _gathers(change: Callable[[Any], Any]) -> None:
    """all_gather gathers `change(leaf)` in place of each leaf."""
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        return right(self, nest.map_structure(change, value), axis, options)


@slip("arrays are gathered along the first axis always", "all_gather.other-axes")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        right(self, value, axis, options)  # for its errors
        return right(self, value, 0, options)


@slip("arrays are gathered from the last replica on", "all_gather.order-of-replicas")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        values = _from_all(self, lambda: right(self, np.zeros(1), 0), value)
        return right(self, values[-1 - self.replica_id_in_sync_group], axis, options)


@slip("a gather of nothing has no shape", "all_gather.only-empty-arrays")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        result = right(self, value, axis, options)
        return nest.map_structure(lambda leaf: leaf if leaf.size else leaf.reshape(-1), result)


@slip("all_gather has no negative axes", "all_gather.negative-axes")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        if isinstance(axis, int) and axis < 0:
            raise ValueError(f"the axis {axis} is negative")
        return right(self, value, axis, options)


@slip("an axis is an int of Python", "all_gather.axis-as-an-array")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        if not isinstance(axis, int):
            raise TypeError(f"the axis is {axis!r}")
        return right(self, value, axis, options)


@slip("a float or a text is an axis, if it can be made an int", "all_gather.axis-must-be-an-int")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        return right(self, value, int(axis) if isinstance(axis, (float, str)) else axis, options)


@slip("all_gather asks for equal shapes, as all_reduce does", "all_gather.lengths-may-differ")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        result = right(self, value, axis, options)
        self.all_reduce("SUM", nest.map_structure(lambda leaf: np.zeros(np.shape(leaf)), value))
        return result


@slip("scalars are gathered into a vector", "all_gather.scalars")
def _() -> None:
    _gathers(lambda leaf: leaf.reshape(1) if _is_array(leaf) and not leaf.ndim else leaf)


@slip("a list of numbers is one array", "all_gather.lists-of-numbers")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        numbers = isinstance(value, list) and value and all(isinstance(item, (int, float)) for item in value)
        return right(self, refdist.constant(value) if numbers else value, axis, options)


@slip("with one replica all_gather returns its value unseen", "all_gather.one-replica-checks-too")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        return value if self.num_replicas_in_sync == 1 else right(self, value, axis, options)


@slip("only what can be added can be gathered", "all_gather.every-dtype")
def _() -> None:
    def checked(leaf: Any) -> Any:
        if _is_array(leaf) and leaf.dtype.kind not in "iufc":
            raise TypeError(f"{leaf!r} cannot be gathered")
        return leaf

    _gathers(checked)


@slip("texts of different length have different dtypes", "all_gather.every-dtype")
def _() -> None:
    @instead(ReplicaContext, "all_gather")
    def all_gather(right: Any, self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        texts = [leaf.dtype.str for leaf in nest.flatten(value) if _is_array(leaf) and leaf.dtype.kind in "US"]
        if any(other != texts for other in _from_all(self, lambda: right(self, np.zeros(1), 0), texts)):
            raise ValueError("the dtypes differ")
        return right(self, value, axis, options)


@slip("of IndexedSlices the values are gathered", "all_gather.slices")
def _() -> None:
    _gathers(lambda leaf: leaf.values if isinstance(leaf, IndexedSlices) else leaf)


@slip("of a captured distributed value every replica has the first part", "all_gather.distributed-values")
def _() -> None:
    _gathers(lambda leaf: leaf.values[0] if isinstance(leaf, (refdist.PerReplica, refdist.Mirrored)) else leaf)
