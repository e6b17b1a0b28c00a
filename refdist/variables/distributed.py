"""Variables with a copy per replica, or with one copy that several replicas update.

A read or a write looks up its action by the situation that it is made in, in the rows that the variable keeps of
READS and WRITES (`core/rules/variables.py`).  An action concerns one of three:

* the local copy: no other replica takes part;
* all copies, written across replicas: there is one value, on several workers the same one, and it goes to every copy;
* all copies, written in replicas: each contributes a value at a rendezvous, and the update is carried out once for all.

Values are checked and converted before the first copy is stored, so that a write that fails has changed nothing.  A
stored array is never written again: equal copies share one array where their devices share memory.

Copies that are equal at all times lie in one cell (`core/cell`) and are written together, so that two threads that add
to them add in one order on all copies, and get equal bits.  Copies that may differ have a cell each.  What is written
inside `extended.update` goes to a draft of the cell (`core/drafts`), and to the cell at the end of the update.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal, assert_never

import numpy as np

from refdist import errors, journal
from refdist.array import collectives, replica_checks
from refdist.array.backend import beside, current_backend
from refdist.array.convert import as_array, astype, cast, dtype_of, frozen, kind_of, on_device_of, read_only, to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.replica_types import UNKNOWN, ReplicaType, plain, source, type_of_contribution, typed
from refdist.array.types import Array
from refdist.core import checks, context_stack, lockstep, scaled
from refdist.core.agreement import CollectiveCall, contribution_of, signature_of
from refdist.core.cell import Cell
from refdist.core.context_stack import Situation
from refdist.core.rules.advice import ADVICE
from refdist.core.rules.options import ReduceOp, VariableAggregation
from refdist.core.rules.replica_types import Of, Reducing
from refdist.core.rules.table import Refusal
from refdist.core.rules.variables import (
    COPIES_DIFFER,
    FOREIGN_WRITES,
    ONE_COPY_ALONE,
    OPERATIONS,
    PARTS_DIFFER,
    READS,
    RETURNS,
    WRITES_OF,
    Aggregated,
    Kind,
    OperationClass,
    Read,
    Returned,
    Write,
)
from refdist.variables.access import different, refused, write_situation
from refdist.variables.interfaces import Extended, Strategy
from refdist.variables.operations import prepare, update
from refdist.variables.values import DistributedValues, Mirrored, PerReplica, is_splittable
from refdist.variables.variable import ResourceVariable, Variable
from refdist.workers import transport as transports

# Members that every read or write compares with: a constant is found faster than a member of an Enum (`Word`).
_READ_OWN_COPY: Final = Read.OWN_COPY
_READ_FIRST_COPY: Final = Read.FIRST_COPY
_WRITE_OWN_COPY: Final = Write.OWN_COPY
_WRITE_EVERY_COPY: Final = Write.EVERY_COPY

_REDUCING: Final[dict[Any, Reducing]] = {
    Write.SUM: Reducing.SUM, Write.MEAN: Reducing.MEAN, Write.REPLICA_0: Reducing.FIRST}
_TOTALS: Final = {VariableAggregation.SUM: ReduceOp.SUM, VariableAggregation.MEAN: ReduceOp.MEAN}

_Across = Literal[Write.EVERY_COPY, Write.SHARED_OUT]
_Together = Literal[Write.AGREED, Write.SUM, Write.MEAN, Write.REPLICA_0]


class _Shared(Variable):
    """The base of all kinds of variables that several replicas share."""

    __slots__ = ()
    _copies: tuple[ResourceVariable, ...]
    _devices: tuple[str, ...]
    _primary: ResourceVariable
    _strategy: Strategy
    # The rows of READS and WRITES for the variable's kind and aggregation.
    _reads: dict[Situation, Read | Refusal]
    _writes: dict[OperationClass, dict[Situation, Write | Refusal]]
    _cells: tuple[Cell[tuple[Any, ...]], ...]

    @property
    def device(self) -> str:
        """Canonical name of the device of the copy that a read would use."""
        return self._local_copy()._device

    def _local_copy(self) -> ResourceVariable:
        frame = context_stack.frame()
        copies = self._copies
        if frame.replica_id is None or frame.strategy is not self._strategy or len(copies) == 1:
            return copies[0]
        return copies[frame.replica_id]

    def _held(self) -> list[Any]:
        # The arrays of all copies; copies that are always equal are read at the same moment.
        drafts = context_stack.frame().drafts
        arrays: list[Any] = []
        for cell in self._cells:
            draft = None if drafts is None else drafts.of(cell)
            arrays += cell.newest()[1] if draft is None else draft.arrays
        return arrays

    def _read(self) -> Any:
        cell = self._reads[context_stack.situation(self._strategy)]
        if checks.types.value:
            return self._typed_read(cell)
        return self._read_as(cell)

    def _typed_read(self, cell: Read | Refusal) -> Any:
        array = self._read_as(cell)
        total = self._strategy.extended.layout.total
        if total < 2 or context_stack.frame().kind != context_stack.REPLICA:
            return array
        if self._kind is not Kind.ON_READ:
            return typed(array, source(Of.SAME, f"variable {self.name}"))
        if self._aggregation is not VariableAggregation.SUM:
            return array
        return typed(array, source(Of.PART, f"variable {self.name}", variable=self.name))

    def _read_as(self, cell: Read | Refusal) -> Any:
        if cell is _READ_OWN_COPY:
            own = self._local_copy()
            return own._to_current_device(self._recorded(own._array, own._index))
        if cell is _READ_FIRST_COPY:
            return self._to_current_device(self._recorded(self._copies[0]._array, 0))
        match cell:
            case Read.SUM:
                return self._recorded(self._reduced(ReduceOp.SUM), None)
            case Read.MEAN:
                return self._recorded(self._reduced(ReduceOp.MEAN), None)
            case Read.REPLICA_0:
                transport, array = self._strategy.extended.transport, self._copies[0]._array
                call = transport.call(f"reading variable {self.name}", self.name, like=array)
                array = beside(transport.broadcast(call, array), array)
                return self._to_current_device(self._recorded(array, 0))
            case Refusal(code):
                raise refused(code, f"reading variable {self.name}", self)
            case _:
                assert_never(cell)

    def _recorded(self, array: Any, copy: int | None) -> Any:
        # Records a read, and returns its result.
        sink = journal.recording.value
        if sink is not None:
            sink.write("read", variable=self, copy=copy, received=[array])
        return array

    def _stored(self) -> Any:
        cell = self._reads[context_stack.situation(self._strategy)]
        if cell is _READ_OWN_COPY:
            return self._local_copy()._array
        return self._copies[0]._array if cell is _READ_FIRST_COPY else None

    def _reduced(self, op: ReduceOp) -> Any:
        # A read of all copies.
        attempted, extended = f"reading variable {self.name}", self._strategy.extended
        arrays = self._held()
        collectives.reducible(arrays[0], attempted)
        call = extended.transport.call(attempted, self.name, op, like=arrays[0])
        return extended.reduction.onto_current(op, arrays, call)

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        situation = write_situation(self._strategy)
        attempted = f"{operation} of variable {self._primary._name}:0"
        cell = (self._writes[OPERATIONS[operation].of].get(situation)
                or FOREIGN_WRITES[self._kind][situation])
        kind = UNKNOWN
        if checks.types.value:
            value, kind = self._checked(cell, value, attempted)
        if cell is _WRITE_OWN_COPY:
            own = self._local_copy()
            prepared = prepare(own, operation, _component(value), attempted)
            fixed = None not in own._shape
            new = own._change(lambda old: update(operation, old, prepared, own._device, fixed))
            return read_only(new) if read_value else None
        if cell is _WRITE_EVERY_COPY or cell is Write.SHARED_OUT:
            arrays = self._write_across(operation, cell, attempted,
                                        self._cross_replica_value(operation, value, attempted))
            return self._assign_result(arrays) if read_value else None
        match cell:
            case Write.SUM | Write.MEAN | Write.AGREED | Write.REPLICA_0:
                prepared = prepare(self._primary, operation, _component(value), attempted)
                new = self._rendezvous(operation, cell, attempted, prepared, kind)
                return self._to_current_device(new) if read_value else None
            case Refusal(code):
                raise refused(code, attempted, self, OPERATIONS[operation].of)
            case _:
                assert_never(cell)

    def _checked(self, cell: Write | Refusal, value: object, attempted: str) -> tuple[Any, ReplicaType]:
        # For the check `types`: the value as a plain array, and its replica type.
        if context_stack.frame().kind != context_stack.REPLICA:
            return value, UNKNOWN
        component = _component(value)
        kind, total = type_of_contribution(component), self._strategy.extended.layout.total
        if cell is not Write.SUM and cell is not Write.MEAN:
            replica_checks.check_part(kind, attempted, self.name, total)
        if (cell is _WRITE_OWN_COPY and self._kind is Kind.ON_READ and self._aggregation is VariableAggregation.SUM
                and attempted.startswith("assign_")):
            replica_checks.check(Reducing.EACH, [kind], attempted, total)
        return (value if kind is UNKNOWN else plain(component)), kind

    def _cross_replica_value(self, operation: str, value: object, attempted: str) -> Any:
        # The one value of a cross-replica write, checked and converted.
        if not is_splittable(value):
            return prepare(self._primary, operation, value, attempted)
        first = self._strategy.extended.layout.first
        parts = [prepare(self._primary, operation, part, f"{attempted}, to replica {i}'s part of a PerReplica")
                 for i, part in enumerate(value.values, first)]
        code = PARTS_DIFFER[self._kind].code
        check_equal(parts, attempted, code, fix=ADVICE.get((code, context_stack.OUTSIDE), ""))
        return parts[0]

    def _write_across(self, operation: str, cell: _Across, attempted: str,
                      value: Array | IndexedSlices) -> Sequence[Any]:
        copies = self._copies
        extended = self._strategy.extended
        transport = extended.transport
        transport.check_same_bits(transport.call(attempted, self.name, like=value), value, _brief)
        if cell is Write.SHARED_OUT:
            layout = extended.layout
            shares = _shares(value, layout.total, attempted)[layout.first:layout.first + len(copies)]
            placed = collectives.put_all(extended.backend, shares, self._devices)
            return self._change_copies(lambda first, arrays: tuple(placed[first:first + len(arrays)]))
        return self._update_copies(operation, functools.partial(self._beside_copy, value))

    def _beside_copy(self, value: Array | IndexedSlices, number: int) -> Any:
        return collectives.put(self._strategy.extended.backend, value, self._devices[number])

    def _update_copies(self, operation: str, value_for: Callable[[int], Any]) -> list[Array]:
        # Copies that share an array go on sharing one: the value is computed for the first of them only.
        computed: dict[int, tuple[Array, Array]] = {}
        fixed = None not in self._primary._shape

        def change(first: int, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
            updated = []
            for i, old in enumerate(arrays, first):
                pair = computed.get(id(old))
                if pair is None:  # the old array is kept alive, so that no other one gets its id
                    computed[id(old)] = pair = old, update(operation, old, value_for(i), self._devices[i], fixed)
                updated.append(pair[1])
            return tuple(updated)

        return self._change_copies(change)

    def _change_copies(self, change: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]) -> list[Array]:
        # Replaces each cell's arrays by `change(index of its first copy, arrays)`; returns the arrays of all copies.
        drafts = context_stack.frame().drafts
        new: list[Array] = []
        for cell in self._cells:
            function = functools.partial(change, len(new))
            new += cell.change(function) if drafts is None else drafts.open(cell, self).change(None, function)
        sink = journal.recording.value
        if sink is not None:
            sink.write("write", variable=self, copy=None, copies=new)
        return new

    def _rendezvous(self, operation: str, cell: _Together, attempted: str, value: Array | IndexedSlices,
                    kind: ReplicaType) -> Any:
        execute: Any = functools.partial(self._update_from_replicas, operation, cell)
        if checks.types.value and cell in _REDUCING:
            execute = replica_checks.Contributing(execute, _REDUCING[cell], f"{attempted} with the aggregation "
                                                  f"{self._aggregation.name}", self._strategy.extended.layout.total,
                                                  typed(value, kind), result=False)
        call = CollectiveCall(attempted, signature_of(*collectives.signature(value)), (self, value), execute)
        return lockstep.rendezvous(context_stack.frame().run, call)

    def _update_from_replicas(self, operation: str, cell: _Together,
                              calls: list[CollectiveCall]) -> Sequence[Array]:
        attempted = calls[0].kind
        written, parts = zip(*map(contribution_of, calls), strict=True)
        if len({*map(id, written)}) > 1:
            raise different(attempted, written)
        extended = self._strategy.extended
        match cell:
            case Write.SUM:
                value_for = self._reduced_parts(extended, ReduceOp.SUM, parts, calls[0]).__getitem__
            case Write.MEAN:
                value_for = self._reduced_parts(extended, ReduceOp.MEAN, parts, calls[0]).__getitem__
            case Write.AGREED:
                check_equal(parts, attempted, "RD12", [call.line for call in calls],
                            fix=ADVICE["RD12", context_stack.REPLICA])
                extended.transport.check_same_bits(calls[0], parts[0], _brief)
                value_for = functools.partial(self._beside_copy, parts[0])
            case Write.REPLICA_0:
                value_for = functools.partial(self._beside_copy,
                                              transports.first(extended.transport, calls[0], parts[0]))
            case _:
                assert_never(cell)
        new = self._update_copies(operation, value_for)
        return new if len(new) == len(parts) else new * len(parts)

    def _reduced_parts(self, extended: Extended, op: ReduceOp, parts: Sequence[Array | IndexedSlices],
                       call: CollectiveCall) -> list[Any]:
        collectives.reducible(parts[0], call.kind)
        values = extended.reduction.onto(op, parts, self._devices, call)
        dtype = self._primary._array.dtype
        if values[0].dtype != dtype:
            values = [_cast(value, dtype, call.kind) for value in values]
        return values

    def _share_equal_copies(self, arrays: Sequence[Array]) -> list[Array]:
        # Equal copies on devices with the same memory become one array.
        place = self._strategy.extended.backend.memory_space
        firsts: dict[Hashable, Array] = {}
        return [firsts.setdefault(place(copy._device), array)
                for copy, array in zip(self._copies, arrays, strict=True)]

    def _assign_result(self, arrays: Sequence[Array]) -> Any:
        cell = RETURNS[self._kind]
        match cell:
            case Returned.ALL_COPIES if self._strategy.num_replicas_in_sync > 1:
                return Mirrored(list(map(read_only, arrays)), self._devices)
            case Returned.A_READ:
                return self._read()
            case Returned.OWN_COPY | Returned.ALL_COPIES:
                return read_only(arrays[self._copies.index(self._local_copy())])
            case _:
                assert_never(cell)

    def _settled(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Called at the end of an update with the arrays it has written; returns what is stored.

        Raises:
            RD12: copies that must be equal differ.
        """
        if len(arrays) == 1:
            return arrays
        cell = COPIES_DIFFER[self._kind]
        if not isinstance(cell, Refusal):
            return arrays
        check_equal(arrays, f"update of variable {self.name}", cell.code, unit_name="copy",
                    fix=ADVICE.get((cell.code, context_stack.UPDATE), ""))
        settled = self._share_equal_copies(arrays)
        sink = journal.recording.value
        if sink is not None:
            sink.write("write", variable=self, copy=None, copies=settled)
        return tuple(settled)

    def _put_back(self, arrays: tuple[Any, ...]) -> None:
        """Called after a failed update, whose drafts are dropped: the copies hold what they held before."""
        sink = journal.recording.value
        if sink is not None:
            sink.write("write", variable=self, copy=None, copies=list(arrays))

    def _check_component_write(self, component: ResourceVariable, attempted: str) -> None:
        """Raises when one copy may not be written alone.

        Raises:
            RD12: one of several copies that must not differ, outside the update of that copy.
        """
        frame = context_stack.frame()
        updating = (frame.kind == context_stack.UPDATE and frame.strategy is self._strategy
                    and frame.replica_id == component._index)
        if updating or len(self._copies) == 1:
            return
        cell = ONE_COPY_ALONE[self._kind]
        if isinstance(cell, Refusal):
            raise errors.error(cell.code, attempted, f"it is copy {component._index} of {len(self._copies)} and "
                               f"the code runs {context_stack.describe()}",
                               "Write to the variable itself, or inside `strategy.extended.update`.")

    def __repr__(self) -> str:
        arrays = self._held()
        head = f"{type(self).__name__} {self.name!r} shape={self.shape} dtype={self.dtype}"
        rows = Mirrored(arrays, self._devices)._rows()
        return "\n".join([f"{head}: {{", *(f"  {label}: {text}" for label, text in rows[:8]), "}"])

    def _reads_in_words(self) -> list[tuple[str, str]]:
        actions = {name: f"{errors.CATALOGUE[cell.code].title} ({cell.code})" if isinstance(cell, Refusal)
                else f"{cell.value}: {READS.actions[cell]}" for name, cell in self._reads.items()}
        return [(f"a read {where}", actions[situation]) for where, situation in (
            ("outside replicas", context_stack.CROSS), ("in a replica", context_stack.REPLICA))]

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        twins = [copy.deepcopy(variable, memo) for variable in self._copies]
        for variable, array in zip(twins, self._held(), strict=True):
            variable._array = array
        twin = self._of(twins, self._aggregation)
        memo[id(self)] = twin
        return twin

    @classmethod
    def _of(cls, copies: Sequence[ResourceVariable], aggregation: VariableAggregation) -> _Shared:
        raise errors.InternalError("abstract")


class DistributedVariable(_Shared, DistributedValues):
    """A variable with one copy per replica.

    Args:
        copies: a variable on each replica's device, in their order, of the same shape and dtype.
        aggregation: what becomes of the updates of several replicas, a VariableAggregation.

    Source: tf.distribute.DistributedValues, "DistributedVariable".
    """

    __slots__ = ("_aggregation", "_cells", "_copies", "_primary", "_reads", "_strategy", "_writes")

    def __init__(self, copies: Sequence[ResourceVariable], aggregation: VariableAggregation) -> None:
        DistributedValues.__init__(self, copies)
        _hold(self, copies, aggregation)

    @classmethod
    def _of(cls, copies: Sequence[ResourceVariable], aggregation: VariableAggregation) -> _Shared:
        variable = cls(copies, aggregation)
        _own_copies(variable)
        return variable

    def _local(self) -> Any:
        return self._local_copy()


class MirroredVariable(DistributedVariable):
    """Copies that hold the same value at all times.

    Source: tf.distribute.MirroredStrategy; tf.VariableSynchronization.ON_WRITE.
    """

    __slots__ = ()
    _kind = Kind.MIRRORED


class SyncOnReadVariable(DistributedVariable):
    """Copies that replicas update alone, and that are reduced when they are read outside replicas.

    Source: tf.VariableSynchronization.ON_READ.
    """

    __slots__ = ()
    _kind = Kind.ON_READ

    def _read_as(self, cell: Read | Refusal) -> Any:
        op = _TOTALS.get(self._aggregation) if scaled.totals() else None
        if op is None or cell is not _READ_OWN_COPY or context_stack.frame().kind != context_stack.REPLICA:
            return super()._read_as(cell)
        # An experiment of `refdist.compare`: all replicas meet, and read the value that code outside replicas would.
        own = self._local_copy()._array
        call = CollectiveCall(f"reading variable {self.name}", signature_of(*collectives.signature(own)), (self, own),
                              functools.partial(self._total_of, op))
        return self._recorded(lockstep.rendezvous(context_stack.frame().run, call), None)

    def _total_of(self, op: ReduceOp, calls: list[CollectiveCall]) -> Sequence[Any]:
        parts = [contribution_of(call)[1] for call in calls]
        return self._strategy.extended.reduction.onto(op, parts, self._devices, calls[0])


class AggregatingVariable(_Shared):
    """One copy, on the parameter device, that several replicas update.

    Args:
        variable: the copy.
        aggregation: what becomes of the updates of several replicas, a VariableAggregation.

    Source: tf.distribute.experimental.CentralStorageStrategy.
    """

    __slots__ = ("__weakref__", "_aggregation", "_cells", "_copies", "_devices", "_primary", "_reads", "_strategy",
                 "_writes")
    _kind = Kind.AGGREGATING

    def __init__(self, variable: ResourceVariable, aggregation: VariableAggregation) -> None:
        _hold(self, [variable], aggregation)

    @classmethod
    def _of(cls, copies: Sequence[ResourceVariable], aggregation: VariableAggregation) -> _Shared:
        variable = cls(copies[0], aggregation)
        _own_copies(variable)
        return variable

    def get(self) -> ResourceVariable:
        """The single copy."""
        return self._primary


KIND_CLASS: dict[Kind, Any] = {
    Kind.PLAIN: ResourceVariable, Kind.MIRRORED: MirroredVariable, Kind.ON_READ: SyncOnReadVariable,
    Kind.AGGREGATING: AggregatingVariable}


# They are attributes: every write reads them several times, and properties are slower.
def _hold(variable: DistributedVariable | AggregatingVariable, copies: Sequence[ResourceVariable],
          aggregation: VariableAggregation) -> None:
    primary = copies[0]
    assert primary._created_by is not None  # a distributed variable belongs to a strategy
    variable._copies = tuple(copies)
    variable._devices = tuple([copy._device for copy in copies])
    variable._primary = primary
    variable._strategy = primary._created_by
    variable._aggregation = aggregation
    row = Aggregated(variable._kind, aggregation)
    variable._reads = READS[row]
    variable._writes = WRITES_OF[row]


def _own_copies(variable: DistributedVariable | AggregatingVariable) -> None:
    copies = variable._copies
    for i, component in enumerate(copies):
        component._owner = variable
        component._index = i
    # One for copies that are equal at all times, which change together; else one for each.
    if len(copies) > 1 and isinstance(COPIES_DIFFER[variable._kind], Refusal):
        together = Cell(tuple([component._array for component in copies]))
        for i, component in enumerate(copies):
            component._cell, component._place = together, i
        variable._cells = (together,)
    else:
        variable._cells = tuple([component._cell for component in copies])


def _component(value: object) -> object:
    return value._local() if isinstance(value, (PerReplica, Mirrored)) else value


def _cast(value: Array | IndexedSlices, dtype: object, attempted: str) -> Any:
    if isinstance(value, IndexedSlices):
        return IndexedSlices(cast(value.values, dtype, attempted), value.indices, value.dense_shape)
    return frozen(cast(value, dtype, attempted))


def check_equal(parts: Sequence[Array | IndexedSlices], attempted: str, code: str, lines: Sequence[str] = (),
                unit_name: str = "replica", fix: str = "") -> None:
    """Raises unless the values for all copies are equal to the bit.

    Args:
        parts: the value for each copy, an array or IndexedSlices; all of one shape and dtype.
        attempted: the call, for the message.
        code: the code of the error that is raised, a key of `errors.CATALOGUE`.
        lines: the source line of each replica, when they are known.
        unit_name: what the values belong to.
        fix: what to write instead.
    """
    first, backend = parts[0], current_backend()
    for i, part in enumerate(parts):
        if part is first:
            continue
        complain = functools.partial(_differ, first, part, i, attempted, code, lines, unit_name, fix)
        for leaf, other_leaf in zip(collectives.leaves(first), collectives.leaves(part), strict=True):
            backend.expect_equal(leaf, other_leaf, complain)


def _differ(first: Array | IndexedSlices, part: Array | IndexedSlices, i: int, attempted: str, code: str,
            lines: Sequence[str], unit_name: str, fix: str) -> errors.RefdistError:
    here, there = (f" ({lines[0]})", f" ({lines[i]})") if lines else ("", "")
    return errors.error(code, attempted, f"{unit_name} 0 has {_brief(first)}{here}, "
                        f"{unit_name} {i} has {_brief(part)}{there}", fix)


def _brief(value: Array | IndexedSlices) -> str:
    if isinstance(value, IndexedSlices):
        return f"rows {_brief(value.indices)} = {_brief(value.values)}"
    array = to_numpy(value)
    return str(array[()]) if array.ndim == 0 else np.array2string(array, threshold=6, edgeitems=2).replace("\n", "")


def _shares(whole: Array | IndexedSlices, count: int, attempted: str) -> list[Array]:
    # Integers leave a remainder, which the first copy keeps so that the sum of all copies is the value.
    backend = current_backend()
    value = collectives.dense(backend, whole, attempted)
    collectives.reducible(value, attempted)
    dtype = dtype_of(value)
    if kind_of(dtype) in "iu":
        with on_device_of(value):
            share = frozen(astype(as_array(value // count), dtype))
            first = frozen(astype(as_array(value - share * (count - 1)), dtype))
        return [first, *[share] * (count - 1)]
    return [collectives.divide(backend, value, count)] * count
