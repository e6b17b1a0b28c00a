"""CrossDeviceOps: how the values of several devices are reduced, and the hooks by which a program defines its own.

Those that refdist has are in `plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from refdist import errors, journal
from refdist.array import collectives
from refdist.array.backend import Backend, current_backend
from refdist.array.collectives import Part
from refdist.array.convert import copied, frozen, is_array, kept, to_array
from refdist.array.indexed_slices import IndexedSlices
from refdist.core import context_stack, devices
from refdist.core.rules.options import ReduceOp, reduce_op_of
from refdist.strategies.communication import CommunicationOptions
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import DistributedValues, Mirrored, PerReplica, as_parts, shared
from refdist.variables.variable import ResourceVariable, Variable

# (value, destinations) of a batch, as the hooks get them.
Pairs = Sequence[tuple[DistributedValues, object]]


class Transfer(NamedTuple):
    """Bytes that move from one device to another."""

    source: str
    destination: str
    nbytes: int


class Destinations(NamedTuple):
    """Where a result goes: the devices, and whether it becomes a Mirrored over them.

    Attributes:
        asked: False where no device was named, so that the result stays where it was made.
        given: what the caller named, for a program's own CrossDeviceOps.
    """

    devices: tuple[str, ...]
    distributed: bool
    asked: bool = True
    given: object = None

    def copies(self, backend: Backend, result: Part) -> list[Any]:
        """A result on every device."""
        return collectives.broadcast(backend, result, self.devices) if self.asked else [result]

    def wrapped(self, copies: Sequence[Part]) -> Any:
        """The copies as the caller gets them: one, or a Mirrored of all."""
        return Mirrored(copies, self.devices) if self.distributed else copies[0]


def destinations_of(destinations: object, attempted: str) -> Destinations:
    """The devices that a device name, an array, a variable or a distributed value stands for.

    Raises:
        RD24: an unknown name.  RD25: anything else.
    """
    if isinstance(destinations, str):
        return Destinations((devices.canonical(destinations, "destinations"),), False, given=destinations)
    if isinstance(destinations, DistributedValues):
        places = devices_of(destinations)
        return Destinations(places, len(places) > 1, given=destinations)
    if isinstance(destinations, Variable):
        return Destinations((destinations.device,), False, given=destinations)
    if isinstance(destinations, ShardedVariable):
        shards = tuple(dict.fromkeys(shard.device for shard in destinations.variables))
        return Destinations(shards, len(shards) > 1, given=destinations)
    if is_array(destinations) or isinstance(destinations, IndexedSlices):
        return Destinations((context_stack.frame().device or devices.CPU,), False, given=destinations)
    raise errors.error("RD34", attempted, f"destinations is {destinations!r}",
                       "Pass a device name, an array, a variable or a distributed value.")


class CrossDeviceOps:
    """How the values of several devices become one.

    A program's own subclass defines `reduce_implementation` and `batch_reduce_implementation`.  A strategy that was
    made with it reduces through `batch_reduce` in all_reduce and batch_reduce_to, and through `reduce` everywhere
    else.

    >>> import refdist
    >>> ops = refdist.ReductionToOneDevice()
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"], cross_device_ops=ops)
    >>> value = strategy.run(lambda: refdist.constant(1.0))
    >>> ops.reduce("SUM", value, destinations="CPU:0")
    array(2., dtype=float32)

    Source: tf.distribute.CrossDeviceOps.
    """

    def reduce(self, reduce_op: ReduceOp | str, per_replica_value: object, destinations: object,
               options: CommunicationOptions | None = None) -> Any:
        """Checks the arguments and calls `reduce_implementation`.

        Args:
            reduce_op: ReduceOp.SUM or ReduceOp.MEAN, or the name.
            per_replica_value: a DistributedValues of arrays or IndexedSlices, of numbers of one shape and dtype; or one
                array for a single replica.
            destinations: a device name, an array, a variable or a distributed value.
            options: a CommunicationOptions, or None.

        Returns:
            A Mirrored over the devices, or one read-only array for a single device, of the same shape.  SUM keeps the
            dtype; MEAN of integers is a float.

        Raises:
            RD04, RD05, RD23: values that do not fit.  RD09: in a replica.  RD20: no implementation.
            RD25, RD34: bad arguments.
        """
        _require_across("reduce")
        op = reduce_op_of(reduce_op, "reduce")
        destinations_of(destinations, "reduce")
        value = _checked(per_replica_value, "reduce")
        return self.reduce_implementation(op, value, destinations, options or CommunicationOptions())

    def batch_reduce(self, reduce_op: ReduceOp | str, value_destination_pairs: Sequence[tuple[object, object]],
                     options: CommunicationOptions | None = None) -> list[Any]:
        """Checks several (value, destinations) pairs and calls `batch_reduce_implementation`.

        Args:
            reduce_op: SUM or MEAN, or its name.
            value_destination_pairs: what is reduced, and where its result goes, each as `reduce` takes it.
            options: hints to the implementation; None for the defaults.

        Returns:
            A list with the result of each pair, as of `reduce`.

        Raises:
            RD04, RD05, RD23: values that do not fit.  RD09: in a replica.  RD20: no implementation.
            RD25, RD34: bad arguments.
        """
        _require_across("batch_reduce")
        op = reduce_op_of(reduce_op, "batch_reduce")
        pairs = []
        for value, destinations in check_pairs(value_destination_pairs, "batch_reduce"):
            destinations_of(destinations, "batch_reduce")
            pairs.append((_checked(value, "batch_reduce"), destinations))
        results: list[Any] = self.batch_reduce_implementation(op, pairs, options or CommunicationOptions())
        return results

    def broadcast(self, tensor: object, destinations: object) -> Any:
        """Checks the arguments and calls `broadcast_implementation`.

        Args:
            tensor: an array of any shape and dtype, or IndexedSlices.
            destinations: a device name, or an array, variable or distributed value, whose devices are taken.

        Returns:
            A Mirrored over the devices, or the array itself for a single device.

        Raises:
            RD09: in a replica.  RD25, RD34: bad arguments.
        """
        _require_across("broadcast")
        destinations_of(destinations, "broadcast")
        part = tensor if isinstance(tensor, IndexedSlices) else to_array(tensor, argument="tensor")
        return self.broadcast_implementation(part, destinations)

    def reduce_implementation(self, reduce_op: ReduceOp, per_replica_value: DistributedValues, destinations: object,
                              options: CommunicationOptions) -> Any:
        """The hook behind `reduce`, for subclasses.

        Args:
            reduce_op: a ReduceOp.
            per_replica_value: a DistributedValues of arrays or IndexedSlices, of numbers of one shape and dtype.
            destinations: as it was given.
            options: a CommunicationOptions.

        Returns:
            A DistributedValues over the devices of `destinations`, or one array for all of them.

        Raises:
            RD20: the subclass does not define it.
        """
        raise _abstract(self, "reduce_implementation")

    def batch_reduce_implementation(self, reduce_op: ReduceOp, value_destination_pairs: Pairs,
                                    options: CommunicationOptions) -> Any:
        """The hook behind `batch_reduce`, for subclasses: a list with one result for each pair.

        Args:
            reduce_op: SUM or MEAN.
            value_destination_pairs: as in `batch_reduce`, checked.
            options: hints to the implementation.

        Raises:
            RD20: the subclass does not define it.
        """
        raise _abstract(self, "batch_reduce_implementation")

    def broadcast_implementation(self, tensor: Part, destinations: object) -> Any:
        """The hook behind `broadcast`; subclasses may replace it.

        Args:
            tensor: an array of any shape and dtype, or IndexedSlices.
            destinations: as in `broadcast`, checked.
        """
        target = destinations_of(destinations, "broadcast")
        source = context_stack.frame().device or devices.CPU
        nbytes = collectives.nbytes(tensor)
        write_transfers(lambda: [Transfer(source, device, nbytes) for device in target.devices])
        part = (shared(tensor) if isinstance(tensor, IndexedSlices) or not target.distributed
                else frozen(copied(tensor)))
        return target.wrapped(target.copies(current_backend(), part))


def through_hooks(ops: CrossDeviceOps, op: ReduceOp, values: Sequence[PerReplica], targets: Sequence[Destinations],
                  options: CommunicationOptions | None, batch: bool) -> list[list[Any]]:
    """Reduces by a program's own CrossDeviceOps.

    Args:
        ops: the program's object, whose `reduce` or `batch_reduce` is called.
        op: SUM or MEAN.
        values: checked contributions.
        targets: where each result goes.
        options: handed on to `ops`.
        batch: whether `batch_reduce` is called once for all values; otherwise `reduce` is called for each.

    Returns:
        For every value the result on each device of its target.

    Raises:
        RD25: results that do not fit the destinations.
    """
    pairs = [(value, _named(value, target)) for value, target in zip(values, targets, strict=True)]
    attempted = f"{type(ops).__name__}.{'batch_reduce' if batch else 'reduce'}"
    with context_stack.pushed(_across(context_stack.frame())):
        results = (ops.batch_reduce(op, pairs, options) if batch
                   else [ops.reduce(op, value, destinations, options) for value, destinations in pairs])
    if not isinstance(results, (list, tuple)) or len(results) != len(values):
        returned = f"{len(results)} results" if isinstance(results, (list, tuple)) else f"{errors.type_of(results)}"
        raise errors.error("RD34", attempted, f"{len(values)} values were reduced, and it returned {returned}",
                           "Return a list with one result for each pair.")
    return [_results(result, target, attempted) for result, target in zip(results, targets, strict=True)]


def _across(top: context_stack.Frame) -> context_stack.Frame:
    # A single replica reduces without a rendezvous, still in its own context.
    if top.kind != context_stack.REPLICA:
        return top
    return context_stack.Frame(top, top.strategy, context_stack.CROSS, device=top.device, creators=top.creators,
                               drafts=top.drafts)


def _named(value: PerReplica, target: Destinations) -> Any:
    if target.given is not None:
        return target.given
    return value if target.devices == value._devices else target.devices[0]


def _results(result: object, target: Destinations, attempted: str) -> list[Any]:
    if not isinstance(result, DistributedValues):
        return target.copies(current_backend(), _received(result))
    if len(result.values) != len(target.devices):
        raise errors.error("RD34", attempted, f"it returned {len(result.values)} values for "
                           f"{len(target.devices)} devices", "Return one value per destination, or one array.")
    return [_received(part) for part in result.values]


def _received(part: object) -> Any:
    return part if isinstance(part, IndexedSlices) else kept(to_array(_read(part)))


def _require_across(method: str) -> None:
    if context_stack.frame().kind == context_stack.REPLICA:
        raise errors.error("RD09", f"CrossDeviceOps.{method}", f"it was called {context_stack.describe()}",
                           "In a replica use `get_replica_context().all_reduce(reduce_op, value)`, or make this call "
                           "in `get_replica_context().merge_call(...)`.")


def _abstract(ops: CrossDeviceOps, name: str) -> errors.RefdistError:
    return errors.error("RD20", f"{type(ops).__name__}.{name}", "the class does not define it",
                        "Use ReductionToOneDevice, NcclAllReduce or HierarchicalCopyAllReduce, or define it.")


def check_pairs(pairs: object, attempted: str) -> Sequence[tuple[Any, Any]]:
    """Returns `pairs` if it is a list of (value, destinations) pairs.

    Raises:
        RD34: anything else.
    """
    if not isinstance(pairs, (list, tuple)):
        raise errors.error("RD34", attempted, f"value_destination_pairs is {errors.type_of(pairs)}",
                           "Pass a list of (value, destinations) tuples.")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise errors.error("RD34", attempted, f"got {type(pair).__name__} where a pair was expected",
                               "Pass a list of (value, destinations) tuples.")
    return pairs


def components(value: object) -> list[Any]:
    """The contribution of each replica of this worker, unconverted."""
    return list(value.values) if isinstance(value, DistributedValues) else [value]


def check_parts(values: Sequence[object], attempted: str) -> list[Any]:
    """The values of all replicas as arrays that can be summed.

    Raises:
        RD04, RD05, RD21: values that do not fit together.  RD23: not numbers.  RD25: not arrays.
    """
    parts = as_parts([_read(value) for value in values], attempted)
    for part in parts:
        collectives.reducible(part, attempted)
    collectives.check_same_signature(parts, attempted)
    return parts


def _checked(value: object, attempted: str) -> Any:
    # The hooks always get a distributed value.
    parts = check_parts(components(value), attempted)
    return value if isinstance(value, DistributedValues) else PerReplica(parts, devices_of(value))


def _read(value: object) -> Any:
    return value._array if isinstance(value, ResourceVariable) else value


def devices_of(value: object) -> tuple[str, ...]:
    """The device of each component of a value."""
    if isinstance(value, DistributedValues):
        return value._devices or (devices.CPU,) * len(value.values)
    return (devices.CPU,)


def write_transfers(moves: Callable[[], Sequence[Transfer]]) -> None:
    """Records transfers between different devices; they are computed when the recording is read, as there are many."""
    if journal.recording.value is not None:
        journal.recording.value.transfers(moves)
