"""One way to reduce: what the replicas of a strategy contribute becomes one value.

Seven calls reduce: all_reduce, the aggregation of a variable, the read of an ON_READ variable, Strategy.reduce with and
without an axis, reduce_to and batch_reduce_to.  They differ in where their contributions come from, what is checked and
where the result goes.  In how it is computed they do not differ, because a program that goes from one of them to
another expects the same bits.  Each goes the same way:

    contributions   for every leaf of the value one array or IndexedSlices per replica of this worker
    -> plan         one of refdist's own CrossDeviceOps: checks the devices and records the transfers
    -> backend      sums arrays on the devices of one process
    -> transport    sums over workers; `AcrossWorkers` is the plan that asks it instead of the backend

Invariants:

* A sum is taken from left to right over the replica ids, whatever the plan and wherever the result goes.  A plan
  decides which transfers the journal shows, and never the order of a sum, so all plans have the same bits.
* A MEAN is the sum divided by the number of contributions, once, at the end.
* Contributions are checked before they come to a plan.  Those of replicas are checked in the replica, so that the error
  names its line, and compared at the rendezvous; those inside a distributed value are checked here.
* A program's own CrossDeviceOps is asked wherever the strategy reduces: by `batch_reduce` for all_reduce and
  batch_reduce_to, by `reduce` for the others.  It has no plan, because only the program knows what it does.
* Recording in the journal changes no result.

A replica's call is executed by the strategy's Reduction itself: a rendezvous calls it with the calls of all replicas,
and from there it is one step to the plan and one to the backend.  Each layer that only passes contributions on, or
transposes them, costs as much as the sum of small arrays.

There were four ways once: all_reduce and reduce_to went through the plan, aggregation and reduction along an axis did
not, a reduction to one device had a plan of its own, and several workers had another.  A CrossDeviceOps that scaled its
sums scaled some of these calls and not the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, assert_never

from refdist import errors, journal, nest
from refdist.array import collectives
from refdist.array.backend import Backend
from refdist.array.collectives import Part
from refdist.array.convert import short
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.types import Array
from refdist.core import context_stack
from refdist.core.agreement import CollectiveCall, contribution_of
from refdist.core.rules.options import ReduceOp
from refdist.core.rules.table import Refusal, word
from refdist.core.rules.values import REDUCE, Across, Contributed, Reduced, Replicas, Value
from refdist.core.rules.variables import Kind
from refdist.strategies import cross_device_ops, watch
from refdist.strategies.communication import CommunicationOptions
from refdist.strategies.cross_device_ops import CrossDeviceOps, Destinations, check_parts, through_hooks
from refdist.strategies.plans import ReductionToOneDevice, plan_of
from refdist.variables.distributed import DistributedVariable
from refdist.variables.values import DistributedValues, Mirrored, PerReplica, as_parts, check_count
from refdist.variables.variable import Variable
from refdist.workers import transport as transports
from refdist.workers.transport import Transport

_Equal = Literal[Contributed.AGREED, Contributed.ITSELF, Contributed.OF_WORKERS]
_VARIABLES = {Kind.MIRRORED: Value.MIRRORED_VARIABLE, Kind.ON_READ: Value.ON_READ_VARIABLE}


class Reduction:
    """Reduces and gathers over the replicas of one strategy.

    Args:
        ops: how the values of several devices are reduced; None means ReductionToOneDevice.
        transport: between the workers.
        devices: of this worker's replicas.
        backend: returns the strategy's own backend, or raises where another one is in use.
        ordered: see `Transport.all_reduce`.
        lengths_may_differ: whether arrays that replicas gather may have different lengths along the axis.
    """

    def __init__(self, ops: CrossDeviceOps | None, transport: Transport, devices: Sequence[str],
                 backend: Callable[[], Backend], ordered: bool = True, lengths_may_differ: bool = True) -> None:
        self.ops = ops or ReductionToOneDevice()
        self._plan = plan_of(self.ops)
        self._transport = transport
        self._backend = backend
        self._devices = tuple(devices)
        self._everywhere = Destinations(self._devices, len(devices) > 1)
        self._count = len(devices)
        layout = transport.layout(devices)
        self._total, self._first = layout.total, layout.first
        self._ordered = ordered
        self.lengths_may_differ = lengths_may_differ
        replicas = (Replicas.ONE if self._total == 1 else Replicas.ONE_PER_WORKER if self._count == 1
                    else Replicas.SEVERAL)
        self._rows = {value: REDUCE[Reduced(value, replicas)] for value in Value}

    # Arrays.

    def __call__(self, calls: Sequence[CollectiveCall], options: CommunicationOptions | None = None) -> Sequence[Any]:
        """Executes an all_reduce, which all replicas have called.

        Args:
            calls: of all replicas of this worker.  A contribution is an array or IndexedSlices, or a list with one for
                each leaf where the signature has a structure.
            options: a CommunicationOptions, for a program's own CrossDeviceOps.

        Returns:
            For every replica the result: of a list, one for each leaf.
        """
        op, single = calls[0].signature.op, calls[0].signature.structure is None
        assert op is not None  # an all_reduce has one
        leaves = [[*map(contribution_of, calls)]] if single else _leaves(calls)
        plan = self._plan
        if plan is None:
            results = self._through_hooks(op, leaves, self._everywhere, (), options, batch=True)
        else:
            # In a replica context that the program has entered itself there is one call, not one per device.
            sources = self._devices if len(calls) == len(self._devices) else self._devices[:len(calls)]
            results = plan.carry_out(self._backend(), op, leaves, sources, self._everywhere, calls[0])
        watch.look(leaves, results, calls[0], self._first, self._total)
        return results[0] if single else list(zip(*results, strict=True))

    def once(self, calls: Sequence[CollectiveCall]) -> list[Any]:
        """Executes an all_reduce whose results go to code across replicas, such as an optimizer's step.

        Returns:
            For every leaf the result, once; of a replica that is alone what it contributes, and no copy.
        """
        op, leaves = calls[0].signature.op, _leaves(calls)
        assert op is not None  # an all_reduce has one
        plan = self._plan
        if plan is None:
            results = self._through_hooks(op, leaves, self._everywhere, (), None, batch=True)
        else:
            sources = self._devices if len(calls) == len(self._devices) else self._devices[:len(calls)]
            target = Destinations(sources, False, asked=False)
            plan.check_devices(sources)
            if self._total == 1 and plan.sums and op is ReduceOp.SUM:
                self._backend()  # raises unless it is the strategy's own
                results = leaves
                plan.record(leaves, sources, target)
            else:
                results = plan.carry_out(self._backend(), op, leaves, sources, target, calls[0])
        watch.look(leaves, results, calls[0], self._first, self._total)
        return [copies[0] for copies in results]

    def reduce(self, op: ReduceOp, contributions: Sequence[Part], target: Destinations, call: CollectiveCall,
               sources: Sequence[str] = (), options: CommunicationOptions | None = None) -> list[Any]:
        """The reduction of one contribution per replica, on each device of `target`.

        Args:
            op: SUM or MEAN.
            contributions: one array or IndexedSlices per replica of this worker, of equal shapes and dtypes.
            target: where the result goes.
            call: what led here.
            sources: where the contributions are; () means on the replicas' devices.
            options: a CommunicationOptions, for a program's own CrossDeviceOps.
        """
        if self._plan is None:
            return self._through_hooks(op, [contributions], target, sources, options)[0]
        sources = sources or self._devices[:len(contributions)]
        results = self._plan.carry_out(self._backend(), op, [contributions], sources, target, call)
        watch.look([contributions], results, call, self._first, self._total)
        return results[0]

    def _through_hooks(self, op: ReduceOp, leaves: Sequence[Sequence[Part]], target: Destinations,
                       sources: Sequence[str], options: CommunicationOptions | None,
                       batch: bool = False) -> list[list[Any]]:
        self._backend()  # raises unless it is the strategy's own
        values = [PerReplica(contributions, sources or self._devices[:len(contributions)]) for contributions in leaves]
        return through_hooks(self.ops, op, values, [target] * len(values), options, batch)

    def onto(self, op: ReduceOp, contributions: Sequence[Part], devices: Sequence[str],
             call: CollectiveCall) -> list[Any]:
        """The reduction of one contribution per replica, on each of `devices`."""
        return self.reduce(op, contributions, Destinations(tuple(devices), len(devices) > 1), call)

    def onto_current(self, op: ReduceOp, contributions: Sequence[Part], call: CollectiveCall) -> Any:
        """Reduces one contribution per replica; the result is on the current device."""
        [total] = self.reduce(op, contributions, self.here(), call)
        return total

    def here(self) -> Destinations:
        """Where the result goes if a call names no destination: to the current device, if there is one."""
        device = context_stack.frame().device
        return Destinations((device or self._backend().default_result_device(self._devices[0]),), False, bool(device))

    def all_gather(self, calls: Sequence[CollectiveCall]) -> Sequence[Any]:
        """Executes an all_gather, which all replicas have called; contributions are lists with one for each leaf."""
        axis, backend, devices = calls[0].signature.axis, self._backend(), self._devices
        assert isinstance(axis, int)  # an all_gather has one
        results = [backend.broadcast(self.gather(backend.put_all(contributions, devices), axis, calls[0]), devices)
                   for contributions in _leaves(calls)]
        return list(zip(*results, strict=True))

    def gather(self, parts: Sequence[Array], axis: int, call: CollectiveCall) -> Any:
        """The arrays of all replicas one after another."""
        if journal.recording.value is not None:
            sizes = [collectives.nbytes(part) for part in parts]
            cross_device_ops.write_transfers(lambda: [
                cross_device_ops.Transfer(source, device, nbytes)
                for source, nbytes in zip(self._devices, sizes, strict=True) for device in self._devices])
        [gathered] = self._transport.all_gather(call, [parts], axis % parts[0].ndim)
        return gathered

    # Values, as users hold them.

    def reduce_value(self, op: ReduceOp, value: object, target: Destinations, attempted: str,
                     options: CommunicationOptions | None = None) -> Any:
        """One value reduced over all replicas, as the table REDUCE says.

        Raises:
            RD04, RD05, RD21, RD23: contributions that do not fit.  RD12: a Mirrored that differs between workers.
            RD16: SUM of a value that is the same on all replicas.
        """
        cell = self._cell(op, value, attempted)
        if cell is not Contributed.EACH:
            return self._reduce_equal(cell, op, value, target, attempted)
        parts = check_parts(self._contributions(value), attempted)
        call = self._transport.call(attempted, op=op, like=parts[0])
        return target.wrapped(self.reduce(op, parts, target, call, _sources(value), options))

    def reduce_pairs(self, op: ReduceOp, pairs: Sequence[tuple[object, Destinations]], attempted: str,
                     options: CommunicationOptions | None = None) -> list[Any]:
        """As `reduce_value` for every pair, after all pairs have been checked; in one all_reduce if possible."""
        cells = [self._cell(op, value, attempted) for value, _ in pairs]
        leaves = [check_parts(self._contributions(value), attempted)
                  for (value, _), cell in zip(pairs, cells, strict=True) if cell is Contributed.EACH]
        sources = [_sources(value) or self._devices for value, _ in pairs]
        targets = [target for _, target in pairs]
        if len(leaves) == len(pairs) and self._plan is None:
            values = [PerReplica(parts, where) for parts, where in zip(leaves, sources, strict=True)]
            results = through_hooks(self.ops, op, values, targets, options, batch=True)
        elif self._plan is not None and len(leaves) == len(pairs) and {
                *sources, *(target.devices for target in targets)} == {self._devices}:
            call = self._transport.call(attempted, op=op, like=tuple(parts[0] for parts in leaves))
            results = self._plan.carry_out(self._backend(), op, leaves, self._devices, self._everywhere, call)
        else:
            return [self.reduce_value(op, value, target, attempted, options) for value, target in pairs]
        return [target.wrapped(copies) for target, copies in zip(targets, results, strict=True)]

    def _cell(self, column: ReduceOp | Across, value: object, attempted: str) -> Contributed:
        # The cell of REDUCE, where it does not refuse the value.
        self._backend()  # raises unless it is the strategy's own
        if isinstance(value, DistributedValues):
            check_count(value, self._count, attempted)
            row = (_VARIABLES[value._kind] if isinstance(value, DistributedVariable)
                   else Value.MIRRORED if isinstance(value, Mirrored) else Value.PER_REPLICA)
        else:
            row = Value.NOT_DISTRIBUTED
        cell = self._rows[row][column]
        if not isinstance(cell, Refusal):
            return cell
        if value is None:
            return Contributed.ITSELF  # it is refused later, with a message of its own
        distributed = row is not Value.NOT_DISTRIBUTED
        raise errors.error(cell.code, attempted, f"{word(column)} of {_brief(value)}, which is "
                           f"{'the same on' if distributed else 'not distributed, over'} {self._total} replicas",
                           "Use MEAN, or multiply by `num_replicas_in_sync` yourself." if distributed else "")

    def _contributions(self, value: object) -> list[Any]:
        # One contribution for each replica of this worker; for a variable, what each replica would read.
        if isinstance(value, DistributedValues):
            return [_read(item) for item in value.values]
        return [_read(value)] * self._count

    def _reduce_equal(self, cell: _Equal, op: ReduceOp, value: object, target: Destinations, attempted: str) -> Any:
        [part] = check_parts([_read(value)], attempted)
        call, backend = self._transport.call(attempted, op=op, like=part), self._backend()
        match cell:
            case Contributed.OF_WORKERS:
                [total] = transports.reduce(self._transport, call, op, [[part]], self._total // self._count,
                                            self._ordered)
            case Contributed.AGREED:
                self._transport.check_same_bits(call, part, _brief)
                total = collectives.reduce(backend, op, [part])
            case Contributed.ITSELF:
                total = collectives.reduce(backend, op, [part])
            case _:
                assert_never(cell)
        return target.wrapped(target.copies(backend, total))

    def reduce_along(self, op: ReduceOp, value: object, axes: tuple[int, ...], attempted: str) -> Any:
        """One value reduced over all replicas and, on each, along `axes`.

        Raises:
            RD05, RD08, RD23: contributions that do not fit, or have no such axis.
        """
        self._cell(Across.ALONG_AN_AXIS, value, attempted)
        backend = self._backend()
        parts = [collectives.dense(backend, item, attempted) if isinstance(item, IndexedSlices) else item
                 for item in as_parts(self._contributions(value), attempted)]
        for part in parts:
            collectives.reducible(part, attempted)
        sums = [collectives.reduce_axes(part, axes, attempted) for part in parts]
        totals = [total for total, _ in sums]
        collectives.check_same_signature(totals, f"{attempted} of the sums along {axes}")
        call = self._transport.call(attempted, op=op, axis=axes, like=totals[0])
        [total] = self.reduce(ReduceOp.SUM, totals, self.here(), call, _sources(value))
        if op is ReduceOp.SUM:
            return total
        rows = self._transport.all_gather_object(call, sum(count for _, count in sums))
        return collectives.divide(backend, total, sum(rows))

    def gather_value(self, value: object, axis: int, attempted: str) -> Any:
        """The contributions of all replicas one after another, as the table REDUCE says.

        Raises:
            RD05, RD07, RD08, RD20: contributions that cannot be put one after another.
        """
        cell = self._cell(Across.GATHER, value, attempted)
        parts = as_parts(self._contributions(value), attempted)
        for part in parts:
            collectives.check_gather(part, axis, attempted)
        collectives.check_same_signature(parts, attempted, axis)
        call = self._transport.call(attempted, like=parts[0], varying=axis)
        match cell:
            case Contributed.EACH:
                return self.gather(parts, axis, call)
            case Contributed.OF_WORKERS if self._total > self._count:
                [gathered] = self._transport.all_gather(call, [parts[:1]], axis % parts[0].ndim)
                return gathered
            case Contributed.OF_WORKERS | Contributed.ITSELF | Contributed.AGREED:
                return value
            case _:
                assert_never(cell)


def recorded(attempted: str, op: ReduceOp | None, axis: object, value: object, carry_out: Callable[[], Any]) -> Any:
    """Carries out a reduction or gather outside replicas, and records its values and results."""
    sink = journal.recording.value
    if sink is None:
        return carry_out()
    begun = sink.begin("reduce", call=attempted, op=op and op.name, axis=axis, contributed=_parts_of(value))
    try:
        result = carry_out()
    except BaseException as error:
        sink.end(begun, error)
        raise
    sink.write("return", returned=_parts_of(result))
    sink.end(begun)
    return result


def _parts_of(value: object) -> list[Any]:
    # The arrays of each leaf on this worker, one after another.
    arrays: list[Any] = []
    for leaf in nest.flatten(value):
        if isinstance(leaf, DistributedVariable):
            arrays += leaf._held()
        elif isinstance(leaf, DistributedValues):
            arrays += leaf.values
        else:
            arrays.append(leaf._primary._array if isinstance(leaf, Variable) else leaf)
    return arrays


def _leaves(calls: Sequence[CollectiveCall]) -> list[list[Any]]:
    # For every leaf the contributions of all replicas.  A zip of a thousand lists would make a thousand iterators.
    return [[call.contribution[i] for call in calls] for i in range(len(calls[0].contribution))]


def _read(value: object) -> Any:
    if isinstance(value, Mirrored) and isinstance(value.values[0], IndexedSlices):
        return value.values[0]
    return value._read() if isinstance(value, (Variable, Mirrored)) else value


def _sources(value: object) -> tuple[str, ...]:
    return value._devices if isinstance(value, DistributedValues) else ()


def _brief(value: object) -> str:
    return f"{type(value).__name__} {short(value)}"
