"""Slips in StrategyExtended, in CrossDeviceOps and in their options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import numpy as np

import refdist
from mutants.slips import instead, slip
from refdist import (
    CrossDeviceOps,
    DistributedValues,
    DistributedVariable,
    HierarchicalCopyAllReduce,
    IndexedSlices,
    Mirrored,
    MirroredStrategy,
    MirroredVariable,
    NcclAllReduce,
    PerReplica,
    ReductionToOneDevice,
    ReplicaContext,
    Strategy,
    StrategyExtended,
    SyncOnReadVariable,
    Variable,
    nest,
)
from refdist.experimental import CentralStorageStrategy, CommunicationOptions


def _is(op: Any, name: str) -> bool:
    return getattr(op, "name", str(op)).upper() == name


def _in_replica() -> bool:
    """Whether one of a strategy's replicas runs, and not the code around them."""
    return refdist.has_strategy() and refdist.get_replica_context() is not None


def _can_be_called(fn: Any, args: Any, kwargs: Any) -> bool:
    """Whether these are a function and arguments, and nothing that `update` refuses."""
    return callable(fn) and isinstance(args, (list, tuple)) and isinstance(kwargs, (dict, type(None)))


def _first_parts(value: Any) -> Any:
    """A nest with the first part of each mirrored value."""
    return nest.map_structure(lambda leaf: leaf.values[0] if isinstance(leaf, Mirrored) else leaf, value)


# --- reduce_to and batch_reduce_to ---------------------------------------------------------------------------


@slip("reduce_to a distributed value returns the array of one device", "extended.reduce-to-the-value-itself")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, destinations, options)
        return result if isinstance(destinations, Variable) else _first_parts(result)


@slip("reduce_to a variable writes it", "extended.reduce-to-a-variable")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, destinations, options)
        if isinstance(destinations, Variable):
            destinations.assign(_first_parts(result))
        return result


@slip("reduce_to takes one value and no nest", "extended.reduce-to-of-a-nest")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        if isinstance(value, (dict, list, tuple)):
            raise ValueError("a nest")
        return right(self, reduce_op, value, destinations, options)


@slip("the parts of a mirrored value are summed", "extended.reduce-to-of-a-mirrored-value")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        if _is(reduce_op, "SUM") and isinstance(value, Mirrored):
            value = PerReplica(value.values)
        return right(self, reduce_op, value, destinations, options)


@slip("a value that is not distributed is its own sum", "extended.reduce-to-of-an-array")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        try:
            return right(self, reduce_op, value, destinations, options)
        except ValueError:
            if not _is(reduce_op, "SUM") or isinstance(value, (DistributedValues, dict, list, tuple)):
                raise
            return right(self, "MEAN", value, destinations, options)


@slip("a variable that is synchronized on read is reduced as one value", "extended.reduce-to-of-variables")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        if isinstance(value, SyncOnReadVariable):
            value = value.read_value()
        return right(self, reduce_op, value, destinations, options)


@slip("a list of devices are destinations", "extended.reduce-to-refuses-destinations")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        if isinstance(destinations, (list, tuple)):
            return [right(self, reduce_op, value, device, options) for device in destinations]
        return right(self, reduce_op, value, destinations, options)


@slip("a replica reduces to a device", "extended.reduce-to-not-in-replicas")
def _() -> None:
    @instead(StrategyExtended, "reduce_to")
    def reduce_to(right: Any, self: Any, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        context = refdist.get_replica_context()
        if context is None or context.strategy.extended is not self:
            return right(self, reduce_op, value, destinations, options)
        return context.merge_call(
            lambda strategy, values: right(self, reduce_op, values, destinations, options), args=(value,))


@slip("all pairs go to the destinations of the first", "extended.batch-reduce-to-different-destinations")
def _() -> None:
    @instead(StrategyExtended, "batch_reduce_to")
    def batch_reduce_to(right: Any, self: Any, reduce_op: Any, value_destination_pairs: Any,
                        options: Any = None) -> Any:
        right(self, reduce_op, value_destination_pairs, options)  # refuses what is wrong with one of the pairs
        pairs = [(value, value_destination_pairs[0][1]) for value, _ in value_destination_pairs]
        return right(self, reduce_op, pairs, options)


@slip("a batch of no pairs is refused", "extended.batch-reduce-to-nothing")
def _() -> None:
    @instead(StrategyExtended, "batch_reduce_to")
    def batch_reduce_to(right: Any, self: Any, reduce_op: Any, value_destination_pairs: Any,
                        options: Any = None) -> Any:
        if not value_destination_pairs:
            raise ValueError("no pairs")
        return right(self, reduce_op, value_destination_pairs, options)


# --- update --------------------------------------------------------------------------------------------------


def _update_results(change: Callable[[Any, Any, list[Any], bool], Any]) -> None:
    """Outside of replicas, `update` returns what `change` makes of the variable, of the right result, of what `fn`
    returned for each copy, and of whether results are grouped."""
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        returned: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            returned.append(fn(*args, **kwargs))
            return returned[-1]

        if _in_replica() or not callable(fn):
            return right(self, var, fn, args, kwargs, group)
        return change(var, right(self, var, call, args, kwargs, group), returned, group)


def _failed_updates(then: Callable[[Any, list[Any], bool], None]) -> None:
    """After an update outside of replicas that fails, `then` gets the variable, what each copy had become when its call
    ended, and whether it was `fn` that raised."""
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        values: list[Any] = []
        ended: list[Any] = []

        def call(copy: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                ended.append(fn(copy, *args, **kwargs))
            finally:
                values.append(copy.read_value())
            return ended[-1]

        if _in_replica() or not callable(fn):
            return right(self, var, fn, args, kwargs, group)
        try:
            return right(self, var, call, args, kwargs, group)
        except Exception:
            then(var, values, len(ended) < len(values))
            raise


@slip("each copy gets all parts of a value", "extended.update-of-on-read-variables")
def _() -> None:
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        if _in_replica() or not _can_be_called(fn, args, kwargs):
            return right(self, var, fn, args, kwargs, group)
        return right(self, var, lambda copy: fn(copy, *args, **(kwargs or {})), (), None, group)


@slip("update gives the copy as the last argument", "extended.update-with-arguments")
def _() -> None:
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        def call(copy: Any, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, copy, **kwargs)

        return right(self, var, call if callable(fn) else fn, args, kwargs, group)


@slip("one copy is updated with one part alone", "extended.update-of-one-copy-takes-the-first-part")
def _() -> None:
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        if isinstance(var, Variable) and not isinstance(var, DistributedVariable):
            for leaf in nest.flatten([args, kwargs]):
                if isinstance(leaf, PerReplica) and len(leaf.values) > 1:
                    raise ValueError("more parts than copies")
        return right(self, var, fn, args, kwargs, group)


@slip("another variable that an update writes takes what is written last",
      "extended.update-of-another-variable-that-differs")
def _() -> None:
    # The variable that is updated, and what is to be written to others when the update has ended.
    updating: ContextVar[tuple[Any, list[Any]] | None] = ContextVar("updating", default=None)

    @instead(MirroredVariable, "assign")
    def assign(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        state = updating.get()
        if state is None or state[0] is self:
            return right(self, value, *args, **kwargs)
        state[1].append((self, value))
        return value

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        writes: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            token = updating.set((var, writes))
            try:
                return fn(*args, **kwargs)
            finally:
                updating.reset(token)

        if _in_replica() or not callable(fn):
            return right(self, var, fn, args, kwargs, group)
        result = right(self, var, call, args, kwargs, group)
        for variable, value in writes:
            variable.assign(value)
        return result


@slip("an update that fails half-way is carried out with what the first copy has become",
      "extended.update-that-fails-half-way")
def _() -> None:
    def stays(var: Any, values: list[Any], fn_raised: bool) -> None:
        if fn_raised and len(values) > 1 and isinstance(var, MirroredVariable):
            var.assign(values[0])

    _failed_updates(stays)


@slip("of an update that is refused only the last write is undone", "extended.update-leaves-copies-equal")
def _() -> None:
    def undone(var: Any, values: list[Any], fn_raised: bool) -> None:
        if not fn_raised and len(values) > 1 and isinstance(var, MirroredVariable):
            var.assign(values[-2])

    _failed_updates(undone)


@slip("what an update wrote to a variable with one copy stays", "extended.update-that-fails-on-one-copy")
def _() -> None:
    def stays(var: Any, values: list[Any], fn_raised: bool) -> None:
        if fn_raised and not isinstance(var, DistributedVariable):
            var.assign(values[0])

    _failed_updates(stays)


@slip("copies that fn returns stay copies", "extended.update-returns-copies")
def _() -> None:
    _update_results(lambda var, result, returned, group: tuple(returned) if result is var else result)


@slip("update returns what the copies returned as one value per replica", "extended.update-returns-different-objects")
def _() -> None:
    _update_results(lambda var, result, returned, group:
                    PerReplica(returned) if result is None and any(part is not None for part in returned) else result)


@slip("group=False returns a list with a nest for each copy", "extended.update-ungrouped")
def _() -> None:
    _update_results(lambda var, result, returned, group: result if group else returned)


@slip("the result of an update to an array is per replica", "extended.update-returns-mirrored-values")
def _() -> None:
    _update_results(lambda var, result, returned, group: nest.map_structure(
        lambda leaf: PerReplica(leaf.values) if isinstance(leaf, Mirrored) else leaf, result))


@slip("in an update the variable itself is written on every device", "extended.update-through-the-variable")
def _() -> None:
    # By `id`: the variables that were written themselves since their last update began.
    written: set[int] = set()

    @instead(MirroredVariable, "assign")
    def assign(right: Any, self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        written.add(id(self))
        return right(self, value, *args, **kwargs)

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        values: list[Any] = []

        def call(copy: Any, *args: Any, **kwargs: Any) -> Any:
            if values and id(var) in written:
                copy.assign(values[-1])
            result = fn(copy, *args, **kwargs)
            values.append(copy.read_value())
            return result

        if _in_replica() or not callable(fn) or not isinstance(var, MirroredVariable):
            return right(self, var, fn, args, kwargs, group)
        written.discard(id(var))
        try:
            return right(self, var, call, args, kwargs, group)
        except ValueError:
            if len(values) < len(var.values) or id(var) not in written:
                raise
            # Every copy has been written as often as there are copies.
            return var.assign(values[-1])


@slip("in an update the default strategy is current", "extended.update-knows-its-strategy")
def _() -> None:
    default, depth = refdist.get_strategy(), [0]

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                return fn(*args, **kwargs)
            finally:
                depth[0] -= 1

        return right(self, var, call if callable(fn) else fn, *args, **kwargs)

    @instead(refdist, "get_strategy")
    def get_strategy(right: Any) -> Any:
        return default if depth[0] else right()


@slip("in replicas each replica makes the whole update", "extended.update-in-replicas")
def _() -> None:
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        times = refdist.get_strategy().num_replicas_in_sync if _in_replica() else 1
        return [right(self, var, fn, args, kwargs, group) for _ in range(times)][-1]


@slip("replicas update the variable of the first of them", "extended.update-in-replicas-of-different-variables")
def _() -> None:
    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        def merged(strategy: Any, variables: Any, args: Any, kwargs: Any) -> Any:
            first = variables.values[0] if isinstance(variables, PerReplica) else variables
            return right(self, first, fn, args, kwargs, group)

        context = refdist.get_replica_context()
        if context is None or context.strategy.extended is not self or not isinstance(var, Variable):
            return right(self, var, fn, args, kwargs, group)
        return context.merge_call(merged, args=(var, args, kwargs))


@slip("variables from outside are updated on every device", "extended.update-refuses-other-variables")
def _() -> None:
    default = refdist.get_strategy().extended

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        is_from_outside = isinstance(var, Variable) and var.distribute_strategy is None
        if self is default or not is_from_outside or not _can_be_called(fn, args, kwargs):
            return right(self, var, fn, args, kwargs, group)
        returned = [fn(var, *args, **(kwargs or {})) for _ in self.worker_devices]
        return returned[-1] if group else tuple(returned)


@slip("one device updates its own variables only", "extended.update-of-plain-variables")
def _() -> None:
    default = refdist.get_strategy().extended

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        if self is not default and isinstance(var, Variable) and var.distribute_strategy is None:
            raise ValueError("a variable from outside of the scope")
        return right(self, var, fn, args, kwargs, group)


@slip("the default strategy updates any variable", "extended.update-refuses-copies-of-another-strategy")
def _() -> None:
    default = refdist.get_strategy().extended

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True) -> Any:
        owner = var.distribute_strategy if isinstance(var, Variable) else None
        return right(self if owner is None or self is not default else owner.extended, var, fn, args, kwargs, group)


@slip("update_non_slot hands all parts to each device", "extended.update-non-slot-takes-values-apart")
def _() -> None:
    @instead(StrategyExtended, "update_non_slot")
    def update_non_slot(right: Any, self: Any, colocate_with: Any, fn: Any, args: Any = (), kwargs: Any = None,
                        group: bool = True) -> Any:
        if not _can_be_called(fn, args, kwargs):
            return right(self, colocate_with, fn, args, kwargs, group)
        return right(self, colocate_with, lambda: fn(*args, **(kwargs or {})), (), None, group)


# --- Facts ---------------------------------------------------------------------------------------------------


@slip("variables from outside are of every strategy", "extended.variable-created-in-scope")
def _() -> None:
    @instead(StrategyExtended, "variable_created_in_scope")
    def variable_created_in_scope(right: Any, self: Any, v: Any) -> Any:
        return right(self, v) or v.distribute_strategy is None


@slip("variables are colocated with those of another strategy", "extended.colocate-refuses-other-variables")
def _() -> None:
    @instead(StrategyExtended, "colocate_vars_with")
    def colocate_vars_with(right: Any, self: Any, colocate_with_variable: Any) -> Any:
        owner = colocate_with_variable.distribute_strategy if isinstance(colocate_with_variable, Variable) else None
        if owner is None or owner.extended is self or refdist.get_strategy().extended is not self:
            return right(self, colocate_with_variable)
        return nullcontext()


@slip("variables are colocated outside of the scope", "extended.colocate-only-in-scope")
def _() -> None:
    @instead(StrategyExtended, "colocate_vars_with")
    def colocate_vars_with(right: Any, self: Any, colocate_with_variable: Any) -> Any:
        if refdist.has_strategy() or not self.variable_created_in_scope(colocate_with_variable):
            return right(self, colocate_with_variable)
        return nullcontext()


@slip("the only worker does not initialize variables", "extended.facts")
def _() -> None:
    @instead(StrategyExtended, "experimental_should_init")
    def experimental_should_init(right: Any, self: Any) -> Any:
        return False


@slip("with one device variables are on the CPU, too", "extended.parameter-device-by-default")
def _() -> None:
    @instead(CentralStorageStrategy, "__init__")
    def made(right: Any, self: Any, compute_devices: Any = None, parameter_device: Any = None) -> None:
        right(self, compute_devices, "CPU:0" if parameter_device is None else parameter_device)


# --- CrossDeviceOps ------------------------------------------------------------------------------------------


def _strategies_with(chosen: Callable[[Any], bool]) -> WeakSet[Any]:
    """The MirroredStrategies that are made from now on with CrossDeviceOps that are `chosen`."""
    strategies: WeakSet[Any] = WeakSet()

    @instead(MirroredStrategy, "__init__")
    def made(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        right(self, devices, cross_device_ops)
        if chosen(cross_device_ops):
            strategies.add(self)

    return strategies


def _accumulating() -> WeakSet[Any]:
    """The ReductionToOneDevice that are made from now on with a function that accumulates."""
    accumulating: WeakSet[Any] = WeakSet()

    @instead(ReductionToOneDevice, "__init__")
    def made(right: Any, self: Any, reduce_to_device: Any = None, accumulation_fn: Any = None) -> None:
        right(self, reduce_to_device, accumulation_fn)
        if accumulation_fn is not None:
            accumulating.add(self)

    return accumulating


def _are_gpus(devices: Any) -> bool:
    return all("GPU" in str(device) for device in devices)


@slip("NcclAllReduce reduces between any devices", "cross_device_ops.nccl-needs-gpus")
def _() -> None:
    @instead(MirroredStrategy, "__init__")
    def made(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        if isinstance(cross_device_ops, NcclAllReduce) and not _are_gpus(devices or ()):
            cross_device_ops = ReductionToOneDevice()
        right(self, devices, cross_device_ops)


@slip("NcclAllReduce needs GPUs also to reduce to one device", "cross_device_ops.nccl-needs-gpus")
def _() -> None:
    strategies = _strategies_with(lambda ops: isinstance(ops, NcclAllReduce))

    @instead(Strategy, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        if self in strategies and not _are_gpus(self.extended.worker_devices):
            raise ValueError("NCCL reduces between GPUs")
        return right(self, reduce_op, value, axis)


@slip("no packs are refused", "cross_device_ops.packs")
def _() -> None:
    def needs_one(ops: type) -> None:
        @instead(ops, "__init__")
        def made(right: Any, self: Any, num_packs: Any = 1) -> None:
            if num_packs == 0:
                raise ValueError("no packs")
            right(self, num_packs)

    needs_one(HierarchicalCopyAllReduce)
    needs_one(NcclAllReduce)


@slip("with the mean a function that accumulates is not divided", "cross_device_ops.accumulation-function")
def _() -> None:
    accumulating = _accumulating()

    @instead(ReductionToOneDevice, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, per_replica_value: Any, destinations: Any,
               options: Any = None) -> Any:
        op = "SUM" if self in accumulating and _is(reduce_op, "MEAN") else reduce_op
        return right(self, op, per_replica_value, destinations, options)


@slip("all_reduce does not ask the function that accumulates", "cross_device_ops.accumulation-function-of-a-strategy")
def _() -> None:
    accumulating = _accumulating()
    strategies = _strategies_with(lambda ops: ops in accumulating)

    @instead(ReplicaContext, "all_reduce")
    def all_reduce(right: Any, self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        result = right(self, reduce_op, value, options)
        if self.strategy not in strategies or not isinstance(value, (np.ndarray, np.generic)):
            return result
        total = self.all_gather(value[np.newaxis], axis=0).sum(axis=0)
        return total / self.num_replicas_in_sync if _is(reduce_op, "MEAN") else total


@slip("a program's own CrossDeviceOps are not asked", "cross_device_ops.own-implementation")
def _() -> None:
    known = (ReductionToOneDevice, NcclAllReduce, HierarchicalCopyAllReduce)

    @instead(MirroredStrategy, "__init__")
    def made(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        own = isinstance(cross_device_ops, CrossDeviceOps) and not isinstance(cross_device_ops, known)
        right(self, devices, None if own else cross_device_ops)


@slip("the rows of slices are not divided for a mean", "cross_device_ops.reduce-of-slices")
def _() -> None:
    @instead(CrossDeviceOps, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, per_replica_value: Any, destinations: Any,
               options: Any = None) -> Any:
        parts = per_replica_value.values if isinstance(per_replica_value, DistributedValues) else [per_replica_value]
        op = "SUM" if _is(reduce_op, "MEAN") and isinstance(parts[0], IndexedSlices) else reduce_op
        return right(self, op, per_replica_value, destinations, options)


@slip("HierarchicalCopyAllReduce leaves its result on the first device",
      "cross_device_ops.reduce-by-hierarchical-copy")
def _() -> None:
    @instead(HierarchicalCopyAllReduce, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, per_replica_value: Any, destinations: Any,
               options: Any = None) -> Any:
        return _first_parts(right(self, reduce_op, per_replica_value, destinations, options))


@slip("an array counts once for each device", "cross_device_ops.reduce-of-an-array")
def _() -> None:
    @instead(CrossDeviceOps, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, per_replica_value: Any, destinations: Any,
               options: Any = None) -> Any:
        if isinstance(per_replica_value, (np.ndarray, np.generic)):
            per_replica_value = PerReplica([per_replica_value for _ in refdist.config.list_logical_devices("GPU")])
        return right(self, reduce_op, per_replica_value, destinations, options)


@slip("of destinations that make no sense the CPU is taken", "cross_device_ops.reduce-refuses")
def _() -> None:
    known = (str, DistributedValues, Variable, IndexedSlices, np.ndarray, np.generic)

    @instead(CrossDeviceOps, "reduce")
    def reduce(right: Any, self: Any, reduce_op: Any, per_replica_value: Any, destinations: Any,
               options: Any = None) -> Any:
        device = destinations if isinstance(destinations, known) else "CPU:0"
        return right(self, reduce_op, per_replica_value, device, options)


# --- CommunicationOptions ------------------------------------------------------------------------------------


@slip("options that are merged keep what the first ones have", "cross_device_ops.merged-options")
def _() -> None:
    @instead(CommunicationOptions, "merge")
    def merge(right: Any, self: Any, options: Any) -> Any:
        return right(options, self) if isinstance(options, CommunicationOptions) else right(self, options)


@slip("merge changes the options themselves", "cross_device_ops.merged-options")
def _() -> None:
    @instead(CommunicationOptions, "merge")
    def merge(right: Any, self: Any, options: Any) -> Any:
        result = right(self, options)
        self.bytes_per_pack = result.bytes_per_pack
        return result


@slip("a time below 0 is accepted", "strategies.timeouts-are-not-below-zero")
def _() -> None:
    @instead(CommunicationOptions, "__init__")
    def made(right: Any, self: Any, bytes_per_pack: Any = 0, timeout_seconds: Any = None,
             implementation: Any = "AUTO") -> None:
        if not isinstance(timeout_seconds, (int, float)) or timeout_seconds >= 0:
            right(self, bytes_per_pack, timeout_seconds, implementation)
        else:
            right(self, bytes_per_pack, None, implementation)
            self.timeout_seconds = timeout_seconds


@slip("the first option is the time", "cross_device_ops.options-by-position")
def _() -> None:
    @instead(CommunicationOptions, "__init__")
    def made(right: Any, self: Any, timeout_seconds: Any = None, bytes_per_pack: Any = 0,
             implementation: Any = "AUTO") -> None:
        right(self, bytes_per_pack, timeout_seconds, implementation)
