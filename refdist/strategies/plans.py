"""Plans: refdist's own CrossDeviceOps, each a list of transfers for a number of bytes.

A plan says which way the bytes would take, and the journal records that.  The sum itself is the backend's, from left to
right over the replica ids whatever the plan, so that all plans have the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from refdist import errors, journal
from refdist.array import collectives
from refdist.array.backend import Backend, constant, current_backend
from refdist.array.collectives import Part
from refdist.array.convert import kept
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core import devices
from refdist.core.agreement import CollectiveCall, Signature
from refdist.core.integers import as_integer
from refdist.core.rules.options import ReduceOp
from refdist.strategies.communication import CommunicationOptions
from refdist.strategies.cross_device_ops import (
    CrossDeviceOps,
    Destinations,
    Pairs,
    Transfer,
    check_parts,
    components,
    destinations_of,
    devices_of,
    write_transfers,
)
from refdist.variables.values import DistributedValues


class Plan(CrossDeviceOps):
    """Base of refdist's own CrossDeviceOps: they list their transfers and leave the sums to the backend."""

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """The transfers for a value of `nbytes` bytes on each of `sources`, through the first destination.

        Args:
            sources: the devices that have a value.
            destinations: those that get the result, at least one.
            nbytes: of one value.
        """
        return _by_way_of(destinations[0], sources, destinations, nbytes)

    def reduce_implementation(self, reduce_op: ReduceOp, per_replica_value: DistributedValues, destinations: object,
                              options: CommunicationOptions) -> Any:
        """The sum, by this plan.

        Args:
            reduce_op: SUM or MEAN.
            per_replica_value: a nest of arrays, or of IndexedSlices, of the same shape and dtype on each device.
            destinations: where the result goes: a device, several, or a value whose devices are meant.
            options: without effect.
        """
        return self._reduced(reduce_op, [(per_replica_value, destinations)])[0]

    def batch_reduce_implementation(self, reduce_op: ReduceOp, value_destination_pairs: Pairs,
                                    options: CommunicationOptions) -> Any:
        """`reduce_implementation` for each pair.

        Args:
            reduce_op: SUM or MEAN.
            value_destination_pairs: values of the replicas, and where each result goes.
            options: without effect.
        """
        return [self.reduce_implementation(reduce_op, value, destinations, options)
                for value, destinations in value_destination_pairs]

    def _reduced(self, op: ReduceOp, pairs: Pairs) -> list[Any]:
        # Of pairs with the same devices.
        target = destinations_of(pairs[0][1], "reduce")
        leaves = [check_parts(components(value), "reduce") for value, _ in pairs]
        call = CollectiveCall("reduce", Signature(op=op))
        results = self.carry_out(current_backend(), op, leaves, devices_of(pairs[0][0]), target, call)
        return [target.wrapped(copies) for copies in results]

    def carry_out(self, backend: Backend, op: ReduceOp, leaves: Sequence[Sequence[Part]], sources: Sequence[str],
                  target: Destinations, call: CollectiveCall) -> list[list[Any]]:
        """Reduces checked contributions and records the transfers.

        Args:
            backend: holds the arrays.
            op: SUM or MEAN.
            leaves: for every leaf one contribution per device of `sources`, an array or IndexedSlices.
            sources: where the contributions are.
            target: where the results go.
            call: what led here, for a plan that goes over several workers.

        Returns:
            For every leaf the result on each device of `target`.
        """
        results = []
        if target.asked and (target.devices is sources or target.devices == sources) and self.sums:
            self.check_devices(sources)
            # Dense arrays are reduced together, because a GPU sums all of them in one kernel.
            dense: list[Any] = [parts for parts in leaves if type(parts[0]) is not IndexedSlices]
            totals = iter(backend.all_reduce(dense, sources))
            for contributions in leaves:
                if type(contributions[0]) is IndexedSlices:
                    here = collectives.put_all(backend, contributions, sources)
                    results.append(collectives.broadcast(backend, collectives.reduce(backend, op, here), sources))
                else:
                    total = next(totals)
                    results.append(total if op is ReduceOp.SUM else _means(backend, total, len(contributions)))
        else:
            for contributions in leaves:
                results.append(target.copies(backend, self._one(backend, op, contributions, target.devices)))
        self.record(leaves, sources, target)
        return results

    # Whether the backend sums, and not a function of the program.
    sums = True

    def record(self, leaves: Sequence[Sequence[Part]], sources: Sequence[str], target: Destinations) -> None:
        """Records the transfers of one call, if there is a journal.

        Args:
            leaves: for every leaf one contribution per device, an array or IndexedSlices.
            sources: where the contributions are.
            target: where the results go.
        """
        if journal.recording.value is None:
            return
        sizes = tuple(self._packs([collectives.nbytes(contributions[0]) for contributions in leaves]))
        write_transfers(functools.partial(self._moves, sizes, tuple(sources), target.devices))

    def _moves(self, sizes: Sequence[int], sources: Sequence[str], destinations: Sequence[str]) -> list[Transfer]:
        return [move for nbytes in sizes for move in self.transfers(sources, destinations, nbytes)]

    def check_devices(self, sources: Sequence[str]) -> None:
        """Raises when no value can be reduced to all of these devices.

        Args:
            sources: the devices that have a value, and get the result.
        """

    def _one(self, backend: Backend, op: ReduceOp, contributions: Sequence[Part], destinations: Sequence[str]) -> Any:
        return collectives.reduce(backend, op, contributions)

    def _packs(self, sizes: Sequence[int]) -> Sequence[int]:
        return sizes


class ReductionToOneDevice(Plan):
    """All values go to one device, are summed there, and the result goes back to every destination.

    Args:
        reduce_to_device: the device that sums; None means the first destination.
        accumulation_fn: called with a list of arrays instead of the sum; None means the sum.

    Source: tf.distribute.ReductionToOneDevice.
    """

    def __init__(self, reduce_to_device: str | None = None,
                 accumulation_fn: Callable[[list[Array]], object] | None = None) -> None:
        if accumulation_fn is not None and not callable(accumulation_fn):
            raise errors.error("RD25", "ReductionToOneDevice", f"accumulation_fn is {accumulation_fn!r}",
                               "Pass a function of a list of arrays, or None.")
        self._device = None if reduce_to_device is None else devices.canonical(reduce_to_device, "reduce_to_device")
        self._accumulate = accumulation_fn
        self.sums = accumulation_fn is None

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """n transfers to the summing device and one to each destination.

        Args:
            sources: the devices that have a value.
            destinations: those that get the result, at least one.
            nbytes: of one value.
        """
        return _by_way_of(self._device or destinations[0], sources, destinations, nbytes)

    def _one(self, backend: Backend, op: ReduceOp, contributions: Sequence[Part], destinations: Sequence[str]) -> Any:
        if self._accumulate is None or isinstance(contributions[0], IndexedSlices):
            return super()._one(backend, op, contributions, destinations)
        center = [self._device or destinations[0]] * len(contributions)
        arrays: Any = contributions
        total = kept(constant(self._accumulate(list(backend.put_all(arrays, center)))))
        return total if op is ReduceOp.SUM else collectives.divide(backend, total, len(contributions))


class _Packed(Plan):
    def __init__(self, num_packs: int = 1) -> None:
        packs = as_integer(num_packs)
        if packs is None or packs < 0:
            raise errors.error("RD34", f"{type(self).__name__}(num_packs={num_packs!r})",
                               "it is not a number of packs", "Pass an int of at least 0.")
        self._num_packs = packs
        self._checked: Sequence[str] | None = None

    def transfers(self, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
        """Of an all-reduce when the value goes to all of `sources`, otherwise through the first destination.

        Args:
            sources: the devices that have a value.
            destinations: those that get the result, at least one.
            nbytes: of one value.
        """
        if set(sources) != set(destinations):
            return super().transfers(sources, destinations, nbytes)
        return self._all_reduce_transfers(sources, nbytes)

    def _all_reduce_transfers(self, sources: Sequence[str], nbytes: int) -> list[Transfer]:
        raise errors.InternalError("abstract")

    def batch_reduce_implementation(self, reduce_op: ReduceOp, value_destination_pairs: Pairs,
                                    options: CommunicationOptions) -> Any:
        """Reduces all pairs together if each result goes to the devices of its value, otherwise one pair at a time.

        Args:
            reduce_op: SUM or MEAN.
            value_destination_pairs: values of the replicas, and where each result goes.
            options: without effect.
        """
        if value_destination_pairs and len({place for value, destinations in value_destination_pairs for place in (
                devices_of(value), destinations_of(destinations, "batch_reduce").devices)}) == 1:
            return self._reduced(reduce_op, value_destination_pairs)
        return super().batch_reduce_implementation(reduce_op, value_destination_pairs, options)

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

    A value that goes to some of the devices only travels as with ReductionToOneDevice.

    Raises:
        RD34: at the first reduction to all devices, when one of them is not a GPU.

    Source: tf.distribute.NcclAllReduce.
    """

    def _all_reduce_transfers(self, sources: Sequence[str], nbytes: int) -> list[Transfer]:
        # 2 (n - 1) rounds around the ring.
        count = len(sources)
        chunks = [nbytes * (i + 1) // count - nbytes * i // count for i in range(count)]
        return [Transfer(sources[i], sources[(i + 1) % count], chunks[(i - step) % count])
                for step in range(2 * (count - 1)) for i in range(count)]

    def check_devices(self, sources: Sequence[str]) -> None:
        """Raises unless all devices are GPUs.

        Args:
            sources: the devices that have a value, and get the result.

        Raises:
            RD34: one of them is not a GPU.
        """
        if sources is self._checked:
            return
        for device in sources:
            if devices.device_type(device) != "GPU":
                raise errors.error("RD34", "NcclAllReduce", f"{devices.short(device)} is not a GPU",
                                   "Use ReductionToOneDevice or HierarchicalCopyAllReduce between other devices.",
                                   kind=errors.InvalidArgumentError)
        self._checked = sources


class HierarchicalCopyAllReduce(_Packed):
    """Two groups reduce to their first device, the two exchange their sums, and each group gets the result.

    Args:
        num_packs: into how many packs the values of one call are put; 0 sends them one by one.

    A value that goes to some of the devices only travels as with ReductionToOneDevice.

    Source: tf.distribute.HierarchicalCopyAllReduce.
    """

    def _all_reduce_transfers(self, sources: Sequence[str], nbytes: int) -> list[Transfer]:
        # To the first device of each half, between these two, and back.
        half = max(1, len(sources) // 2)
        groups = [group for group in (sources[:half], sources[half:]) if group]
        up = [Transfer(device, group[0], nbytes) for group in groups for device in group[1:]]
        heads = [group[0] for group in groups]
        across = [Transfer(source, target, nbytes) for source in heads for target in heads if source != target]
        return [*up, *across, *(Transfer(move.destination, move.source, nbytes) for move in up)]


_ENTRIES = ("reduce", "batch_reduce", "reduce_implementation", "batch_reduce_implementation")
_OWN = (ReductionToOneDevice, NcclAllReduce, HierarchicalCopyAllReduce)


def plan_of(ops: CrossDeviceOps) -> Plan | None:
    """`ops` as a plan that may be carried out at once; None where a program's own methods have to be called."""
    base = next((base for base in _OWN if isinstance(ops, base)), None)
    if base is None or any(getattr(type(ops), name) is not getattr(base, name) for name in _ENTRIES):
        return None
    assert isinstance(ops, Plan)
    return ops


def _means(backend: Backend, total: Sequence[Array], count: int) -> list[Any]:
    # Devices with the same memory share an array, which is divided once.
    arrays = {id(array): array for array in total}
    means = {key: collectives.divide(backend, array, count) for key, array in arrays.items()}
    return [means[id(array)] for array in total]


def _by_way_of(center: str, sources: Sequence[str], destinations: Sequence[str], nbytes: int) -> list[Transfer]:
    return [*(Transfer(source, center, nbytes) for source in sources if source != center),
            *(Transfer(center, device, nbytes) for device in destinations if device != center)]
