"""CrossDeviceOps: how the values of several devices are brought together and where the bytes travel.

Each class is a plan: a list of transfers for a number of bytes.  The numbers themselves are summed left to
right over the replica ids whatever the plan, so that all of them give the same bits; the journal records
the transfers the plan makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from refdist import collectives, current, devices, errors, journal, rules
from refdist.arrays import frozen, is_array, to_array
from refdist.backend import Backend, constant, current_backend
from refdist.indexed_slices import IndexedSlices
from refdist.rules import ReduceOp
from refdist.values import DistributedValues, Mirrored, PerReplica
from refdist.variables import Variable

CPU = devices.canonical("CPU:0")


class Transfer(NamedTuple):
    """Bytes that move from one device to another."""

    source: str
    destination: str
    nbytes: int


class Destinations(NamedTuple):
    """Where a result goes: the devices, and whether it becomes a Mirrored over them.

    Attributes:
        asked: False where nobody named a device, so that the result stays where it was made.
    """

    devices: tuple[str, ...]
    distributed: bool
    asked: bool = True

    def of(self, backend: Backend, result: Any) -> Any:
        """A result as it is given to whoever asked."""
        if self.distributed:
            copies = collectives.broadcast(backend, result, self.devices)
            return Mirrored([frozen(copy) for copy in copies], self.devices)
        return collectives.put(backend, result, self.devices[0]) if self.asked else result


def destinations_of(destinations: Any, attempted: str) -> Destinations:
    """The devices meant by a device name, an array, a variable or a distributed value.

    Raises:
        RD24: an unknown name.  RD25: anything else.
    """
    if isinstance(destinations, str):
        return Destinations((devices.canonical(destinations),), False)
    if isinstance(destinations, DistributedValues):
        found = destinations._devices or (CPU,) * len(destinations.values)
        return Destinations(found, len(found) > 1)
    if isinstance(destinations, Variable):
        return Destinations((destinations.device,), False)
    if is_array(destinations) or isinstance(destinations, IndexedSlices):
        return Destinations((current.frame().device or CPU,), False)
    raise errors.error("RD25", attempted, f"destinations is {destinations!r}",
                       "Pass a device name, an array, a variable or a distributed value.",
                       kind=errors.InvalidValueError)


class CrossDeviceOps:
    """Base of the plans; subclasses say which transfers they make.

    >>> import refdist
    >>> ops = refdist.ReductionToOneDevice()
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"], cross_device_ops=ops)
    >>> value = strategy.run(lambda: refdist.constant(1.0))
    >>> ops.reduce("SUM", value, destinations="CPU:0")
    array(2., dtype=float32)

    Source: tf.distribute.CrossDeviceOps.
    """

    def reduce(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any = None) -> Any:
        """Reduces one distributed value to `destinations`.

        Args:
            reduce_op: ReduceOp.SUM or ReduceOp.MEAN, or the name.
            per_replica_value: a DistributedValues, or one array for a single replica.
            destinations: a device name, an array, a variable or a distributed value.

        Returns:
            A Mirrored over the devices, or one read-only array for a single device.

        Raises:
            RD04, RD05, RD23: values that do not fit.  RD25: bad arguments.
        """
        return self.batch_reduce(reduce_op, [(per_replica_value, destinations)], options)[0]

    def batch_reduce(self, reduce_op: Any, value_destination_pairs: Sequence[tuple[Any, Any]],
                     options: Any = None) -> list[Any]:
        """Reduces several (value, destinations) pairs; everything is checked before anything is reduced."""
        op = rules.reduce_op(reduce_op, "batch_reduce")
        pairs = []
        for pair in value_destination_pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise errors.error("RD25", "batch_reduce", f"got {type(pair).__name__} where a pair was expected",
                                   "Pass a list of (value, destinations) tuples.", kind=errors.InvalidValueError)
            value, destinations = pair
            parts = list(value.values) if isinstance(value, DistributedValues) else [value]
            pairs.append((check_parts(parts, "batch_reduce"), _devices_of(value),
                          destinations_of(destinations, "batch_reduce")))
        return [self.carry_out(current_backend(), op, parts, sources, target) for parts, sources, target in pairs]

    def broadcast(self, tensor: Any, destinations: Any) -> Any:
        """The array on all `destinations`: a Mirrored, or the array itself for a single device."""
        slices = isinstance(tensor, IndexedSlices)
        part = tensor if slices else to_array(tensor)
        target = destinations_of(destinations, "broadcast")
        source = current.frame().device or CPU
        write_transfers([Transfer(source, device, _nbytes(part)) for device in target.devices])
        return target.of(current_backend(), part.copy() if target.distributed and not slices else part)

    def reduce_implementation(self, reduce_op: Any, per_replica_value: Any, destinations: Any,
                              options: Any) -> Any:
        """The same as `reduce`; TensorFlow's hook for subclasses."""
        return self.reduce(reduce_op, per_replica_value, destinations, options)

    def batch_reduce_implementation(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        """The same as `batch_reduce`; TensorFlow's hook for subclasses."""
        return self.batch_reduce(reduce_op, value_destination_pairs, options)

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        """The same as `broadcast`; TensorFlow's hook for subclasses."""
        return self.broadcast(tensor, destinations)

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """The transfers for a value of `nbytes` bytes on each of `sources`."""
        raise errors.error("RD20", f"{type(self).__name__}.transfers", "this class has no plan",
                           "Use ReductionToOneDevice, NcclAllReduce or HierarchicalCopyAllReduce.")

    def carry_out(self, backend: Backend, op: ReduceOp, parts: Sequence[Any], sources: Sequence[str],
                  target: Destinations) -> Any:
        """Sums checked parts and places the result; records the transfers."""
        self.check_devices(sources)
        result = self._combine(backend, op, parts)
        if journal.active is not None:
            write_transfers(self.transfers(sources, target.devices, _nbytes(parts[0])))
        return target.of(backend, result)

    def all_reduce(self, backend: Backend, op: ReduceOp, columns: Sequence[Sequence[Any]],
                   sources: Sequence[str]) -> list[list[Any]]:
        """Sums several checked values, one column of parts each, for all of `sources`."""
        self.check_devices(sources)
        results = self._combine_all(backend, op, [collectives.put_all(backend, parts, sources) for parts in columns],
                                    sources)
        if journal.active is not None:
            for nbytes in self._packs([_nbytes(parts[0]) for parts in columns]):
                write_transfers(self.transfers(sources, sources, nbytes))
        return results

    def check_devices(self, sources: Sequence[str]) -> None:
        """Raises when the plan cannot work between these devices."""

    def _combine(self, backend: Backend, op: ReduceOp, parts: Sequence[Any]) -> Any:
        return collectives.reduce(backend, op, parts)

    def _combine_all(self, backend: Backend, op: ReduceOp, columns: Sequence[Sequence[Any]],
                     devices: Sequence[str]) -> list[list[Any]]:
        return collectives.all_reduce(backend, op, columns, devices)

    def _packs(self, sizes: Sequence[int]) -> list[int]:
        return list(sizes)


class ReductionToOneDevice(CrossDeviceOps):
    """All values go to one device, are summed there, and the result goes back to every destination.

    Args:
        reduce_to_device: the device that sums; None means the first destination.
        accumulation_fn: called with a list of arrays instead of the sum; None means the sum.

    Source: tf.distribute.ReductionToOneDevice.
    """

    def __init__(self, reduce_to_device: str | None = None,
                 accumulation_fn: Callable[[list[Any]], Any] | None = None) -> None:
        self._device = None if reduce_to_device is None else devices.canonical(reduce_to_device)
        self._accumulate = accumulation_fn

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """n transfers to the summing device and one to each destination."""
        center = self._device or destinations[0]
        return [*(Transfer(source, center, nbytes) for source in sources if source != center),
                *(Transfer(center, device, nbytes) for device in destinations if device != center)]

    def _combine(self, backend: Backend, op: ReduceOp, parts: Sequence[Any]) -> Any:
        if self._accumulate is None or isinstance(parts[0], IndexedSlices):
            return super()._combine(backend, op, parts)
        total = constant(self._accumulate(list(parts)))
        return total if op is ReduceOp.SUM else collectives.divide(total, len(parts))

    def _combine_all(self, backend: Backend, op: ReduceOp, columns: Sequence[Sequence[Any]],
                     devices: Sequence[str]) -> list[list[Any]]:
        if self._accumulate is None:
            return super()._combine_all(backend, op, columns, devices)
        return [collectives.broadcast(backend, self._combine(backend, op, parts), devices) for parts in columns]


class _Packed(CrossDeviceOps):
    def __init__(self, num_packs: int = 1) -> None:
        if isinstance(num_packs, bool) or not isinstance(num_packs, int) or num_packs < 0:
            raise errors.error("RD25", f"{type(self).__name__}(num_packs={num_packs!r})",
                               "it is no number of packs", "Pass an int of at least 0.",
                               kind=errors.InvalidValueError)
        self._num_packs = num_packs
        self._checked: Sequence[str] | None = None

    def _packs(self, sizes: Sequence[int]) -> list[int]:
        # Neighbouring values travel together in packs of about equal size; 0 packs means one by one.
        if self._num_packs == 0 or len(sizes) <= self._num_packs:
            return list(sizes)
        each = -(-len(sizes) // self._num_packs)
        return [sum(sizes[i:i + each]) for i in range(0, len(sizes), each)]


class NcclAllReduce(_Packed):
    """A ring: each device passes 2 (n - 1) chunks of 1 / n of the bytes to its neighbour.

    Args:
        num_packs: into how many packs the values of one call are put; 0 sends them one by one.

    Raises:
        RD25: at the first collective, when a device is no GPU.

    Source: tf.distribute.NcclAllReduce.
    """

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """2 (n - 1) rounds around the ring."""
        count = len(sources)
        chunks = [nbytes * (i + 1) // count - nbytes * i // count for i in range(count)]
        return [Transfer(sources[i], sources[(i + 1) % count], chunks[(i - step) % count])
                for step in range(2 * (count - 1)) for i in range(count)]

    def check_devices(self, sources: Sequence[str]) -> None:
        """Raises unless all devices are GPUs."""
        if sources is self._checked:
            return
        for device in sources:
            if devices.device_type(device) != "GPU":
                raise errors.error("RD25", "NcclAllReduce", f"{devices.short(device)} is no GPU",
                                   "Use ReductionToOneDevice or HierarchicalCopyAllReduce between other devices.",
                                   kind=errors.InvalidArgumentError)
        self._checked = sources


class HierarchicalCopyAllReduce(_Packed):
    """Two groups reduce to their first device, the two exchange their sums, and each group gets the result.

    Args:
        num_packs: into how many packs the values of one call are put; 0 sends them one by one.

    Source: tf.distribute.HierarchicalCopyAllReduce.
    """

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """To the head of each half, between the heads, and back."""
        half = max(1, len(sources) // 2)
        groups = [group for group in (sources[:half], sources[half:]) if group]
        up = [Transfer(device, group[0], nbytes) for group in groups for device in group[1:]]
        heads = [group[0] for group in groups]
        across = [Transfer(one, other, nbytes) for one in heads for other in heads if one != other]
        return [*up, *across, *(Transfer(move.destination, move.source, nbytes) for move in up)]


def check_parts(values: Sequence[Any], attempted: str) -> list[Any]:
    """The values of all replicas as arrays that can be summed.

    Raises:
        RD04, RD05, RD21: values that do not fit together.  RD23: no numbers.
    """
    parts = [value if isinstance(value, IndexedSlices) else to_array(_read(value)) for value in values]
    for part in parts:
        collectives.reducible(part, attempted)
    collectives.agree(parts, attempted)
    return parts


def _read(value: Any) -> Any:
    return value._array if hasattr(value, "_array") else value


def _devices_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, (PerReplica, Mirrored, DistributedValues)) and value._devices:
        return value._devices
    return (CPU,) * (len(value.values) if isinstance(value, DistributedValues) else 1)


def _nbytes(part: Any) -> int:
    size: int = part.values.nbytes + part.indices.nbytes if isinstance(part, IndexedSlices) else part.nbytes
    return size


def write_transfers(moves: Sequence[Transfer]) -> None:
    """Notes transfers between different devices in the journal."""
    for move in moves:
        if move.source != move.destination and move.nbytes:
            journal.write("transfer", None, f"{devices.short(move.source)} -> {devices.short(move.destination)}",
                          move.nbytes)
