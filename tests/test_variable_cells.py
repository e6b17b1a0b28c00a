"""The tables of variables are law: every cell, changed to every other value that it could have, shows.

Copies are made different by hand, so that what is read or written says which copy it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from cells import REFUSED, outcome, seen, survivors

import refdist
from refdist import VariableAggregation as Agg
from refdist import VariableSynchronization as Sync
from refdist.core import context_stack
from refdist.core.context_stack import Situation
from refdist.core.rules.table import Permission, Refusal
from refdist.core.rules.variables import (
    CREATION,
    FOREIGN_UPDATES,
    FOREIGN_WRITES,
    OPERATIONS,
    READS,
    TRAINABLE,
    TRAITS,
    WRITES,
    Aggregated,
    Asked,
    Computes,
    Keeps,
    Kind,
    Operation,
    OperationClass,
    Read,
    Returned,
    Takes,
    Trainable,
    Trait,
    Write,
    Written,
)

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
LONE_CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0"], "CPU:0")
ONE = refdist.OneDeviceStrategy("CPU:0")
DEFAULT = refdist.get_strategy()
OTHER = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
LONE = refdist.MirroredStrategy(["GPU:0"])
KEEPS = {Keeps.COPIES: TWO, Keeps.CENTRAL: CENTRAL, Keeps.LONE_CENTRAL: LONE_CENTRAL, Keeps.ONE_DEVICE: ONE,
         Keeps.DEFAULT: DEFAULT}


def made(kind: Kind, aggregation: Agg = Agg.NONE, copies: Any = ((1.0, 3.0), (1.0, 5.0)),
         mirrored: Any = TWO) -> tuple[Any, Any]:
    """A strategy and its variable of a kind, with these values in the copies."""
    strategy = {Kind.AGGREGATING: CENTRAL, Kind.PLAIN: DEFAULT}.get(kind, mirrored)
    with strategy.scope():
        v = refdist.Variable(copies[0], aggregation=aggregation, dtype=np.float32,
                             synchronization=Sync.ON_READ if kind is Kind.ON_READ else Sync.AUTO)
    for copy, value in zip(getattr(v, "_copies", (v,)), copies, strict=False):
        copy._array = refdist.constant(value)
    return strategy, v


def in_situation(strategy: Any, situation: Situation, call: Callable[[], Any]) -> Any:
    """What the call returns or raises; for each replica, or for each copy that is updated."""
    outcomes: list[Any] = []

    def caught() -> None:
        outcomes.append(outcome(call))

    if situation is Situation.OUTSIDE:
        caught()
    elif situation in (Situation.CROSS, Situation.OTHER_CROSS):
        with (strategy if situation is Situation.CROSS else OTHER).scope():
            caught()
    elif situation is Situation.UPDATE:
        with strategy.scope():
            bystander = refdist.Variable(0.0)
        outcomes.append(outcome(lambda: strategy.extended.update(bystander, lambda x: caught())))
    else:
        who = {Situation.REPLICA: strategy, Situation.OTHER_REPLICA: OTHER, Situation.LONE_REPLICA: LONE}[situation]
        outcomes.append(outcome(lambda: who.run(call)))
    return outcomes


# --- Reads and writes --------------------------------------------------------------------------------------------

ACROSS = (Write.EVERY_COPY, Write.SHARED_OUT, Write.OWN_COPY, REFUSED)
IN_REPLICA = (Write.OWN_COPY, Write.AGREED, Write.SUM, Write.MEAN, Write.REPLICA_0, REFUSED)
IN_UPDATE = (Write.OWN_COPY, Write.EVERY_COPY, REFUSED)


def read(cell: tuple[Aggregated, Situation]) -> Any:
    (kind, aggregation), situation = cell
    if kind is Kind.AGGREGATING:
        strategy, v = made(kind, aggregation)
        return in_situation(strategy, situation, v.read_value)

    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        worker = strategy.extended.layout.first
        strategy, v = made(kind, aggregation, (1.0 + worker, 10.0 + worker), strategy)
        # Between workers a read is a collective, which one replica on each makes.
        reading = Situation.LONE_REPLICA if situation is Situation.OTHER_REPLICA else situation
        return in_situation(strategy, reading, v.read_value)

    return refdist.simulate_workers(program, 2, 2)


def other_reads(cell: tuple[Aggregated, Situation], action: Any) -> Iterable[Any]:
    (kind, _), situation = cell
    if kind is Kind.AGGREGATING:
        return (REFUSED,)  # its only copy is the first, its own, replica 0's, and the sum and mean of all
    own_is_first = situation not in (Situation.REPLICA, Situation.UPDATE)
    same = {Read.FIRST_COPY, Read.OWN_COPY} if own_is_first else set()
    return [other for other in (*Read, REFUSED) if not (action in same and other in same)]


def test_every_cell_of_reads_shows() -> None:
    assert survivors(READS, read, other_reads) == []


def value_of(operation: str, replica: int) -> Any:
    if operation.startswith("assign"):
        return np.float32([2, 2]) * (1 + replica)
    # Of replica 1 the smaller minimum and the larger maximum, so that more than replica 0's shows.
    row = {"scatter_min": 2 - replica, "scatter_max": 6 + 2 * replica}.get(operation, 2 + 2 * replica)
    return np.float32([row]) if of_parts(operation) else refdist.IndexedSlices(np.float32([row]), [1])


def of_parts(operation: str) -> bool:
    return operation.startswith("scatter_nd")


# What is written: a value, another one in each replica; one value in two parts; and two parts that differ.
GIVEN: list[Callable[[str], Any]] = [
    lambda operation: value_of(operation, context_stack.frame().replica_id or 0),
    lambda operation: refdist.PerReplica([value_of(operation, 0)] * 2),
    lambda operation: refdist.PerReplica([value_of(operation, 0), value_of(operation, 1)]),
]


def write(kind: Kind, aggregation: Agg, operation: str, situation: Situation, **more: Any) -> Any:
    """What an operation returns, raises, and leaves behind."""
    shown = []
    for given in GIVEN:
        strategy, v = made(kind, aggregation)
        outcomes = in_situation(strategy, situation, partial(write_once, v, operation, given, more))
        shown.append((outcomes, seen(v)))
    return shown


def write_once(v: Any, operation: str, given: Callable[[str], Any], more: dict[str, Any]) -> Any:
    return operate(v, operation, given(operation), **more)


def operate(v: Any, operation: str, value: Any, **more: Any) -> Any:
    return getattr(v, operation)(*([[[1]]] if of_parts(operation) else []), value, **more)


@pytest.mark.parametrize(("operation", "more"), [
    *((operation, {}) for operation in OPERATIONS),
    *((operation, {"read_value": False}) for operation in OPERATIONS if operation.startswith("assign"))])
def test_every_cell_of_writes_shows(operation: str, more: dict[str, Any]) -> None:
    def others(cell: tuple[Written, Situation], action: Any) -> Iterable[Any]:
        (kind, aggregation, _), situation = cell
        actions = {Situation.REPLICA: IN_REPLICA, Situation.UPDATE: IN_UPDATE}.get(situation, ACROSS)
        # Replicas that add to one copy, one after another, have added their sum; only what they get back differs.
        summed = (kind, aggregation, situation, bool(more)) == (Kind.AGGREGATING, Agg.SUM, Situation.REPLICA, True)
        return [other for other in actions if not (summed and other is Write.OWN_COPY)]

    def observe(cell: tuple[Written, Situation]) -> Any:
        (kind, aggregation, _), situation = cell
        return write(kind, aggregation, operation, situation, **more)

    for row in WRITES:
        if row.operation is OPERATIONS[operation].of:
            assert survivors(WRITES, observe, others, row=row) == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_cell_of_writes_under_another_strategy_shows(operation: str) -> None:
    assert survivors(FOREIGN_WRITES, lambda cell: write(cell[0], Agg.NONE, operation, cell[1]),
                     lambda cell, action: (Write.OWN_COPY, Refusal("RD10"), Refusal("RD11"), REFUSED)) == []


def test_every_class_of_operations_shows() -> None:
    def observe(operation: str) -> Any:
        return [write(kind, aggregation, operation, situation) for kind in (Kind.MIRRORED, Kind.ON_READ)
                for aggregation in (Agg.NONE, Agg.SUM) for situation in (Situation.CROSS, Situation.REPLICA)]

    def others(operation: str, row: Operation) -> Iterable[Operation]:
        return [row._replace(of=other) for other in OperationClass]

    assert survivors(OPERATIONS, observe, others) == []


def test_what_every_operation_takes_and_computes_shows() -> None:
    def observe(operation: str) -> Any:
        outcomes = []
        for item in (4, 9):
            v = refdist.Variable([1.0, 6.0], dtype=np.float32)
            value: Any = np.float32([item, item])
            if not operation.startswith("assign"):
                value = np.float32([item]) if of_parts(operation) else refdist.IndexedSlices(np.float32([item]), [1])
            outcomes.append((outcome(partial(operate, v, operation, value)), seen(v)))
        return outcomes

    def others(operation: str, row: Operation) -> Iterable[Operation]:
        return [*(row._replace(takes=other) for other in Takes), *(row._replace(computes=other) for other in Computes)]

    assert survivors(OPERATIONS, observe, others) == []


# --- Creation ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("in_replica", [False, True])
def test_every_cell_of_creation_shows(in_replica: bool) -> None:
    def observe(cell: Any) -> Any:
        synchronization, keeps = cell

        def create() -> Any:
            return type(refdist.Variable(1.0, synchronization=synchronization)).__name__

        with KEEPS[keeps].scope():
            return KEEPS[keeps].run(create) if in_replica else create()

    assert survivors(CREATION, observe, lambda cell, kind: (*Kind, REFUSED)) == []


@pytest.mark.parametrize("keeps", KEEPS)
def test_whether_a_variable_is_trainable_shows(keeps: Keeps) -> None:
    # A mirrored variable has ON_WRITE by then, whichever was asked for.
    rows = (Sync.ON_WRITE, Sync.ON_READ) if keeps is Keeps.COPIES else TRAINABLE

    def observe(cell: Any) -> Any:
        with KEEPS[keeps].scope():
            return refdist.Variable(1.0, synchronization=cell[0]).trainable

    for row in rows:
        assert survivors(TRAINABLE, observe, lambda cell, trainable: Trainable, row=row) == []


# Strategies that are not among those that update, by the kind of variable that they make.
WHOSE = {Kind.PLAIN: (DEFAULT, refdist.OneDeviceStrategy("CPU:0")), Kind.MIRRORED: (OTHER, LONE),
         Kind.ON_READ: (OTHER, LONE),
         Kind.AGGREGATING: (refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),)}


@pytest.mark.parametrize(("kind", "whose"), [(kind, whose) for kind in WHOSE for whose in WHOSE[kind]])
def test_every_cell_of_updates_of_foreign_variables_shows(kind: Kind, whose: Any) -> None:
    with whose.scope():
        foreign = refdist.Variable(1.0, synchronization=Sync.ON_READ if kind is Kind.ON_READ else Sync.AUTO)

    def observe(cell: Any) -> Any:
        return KEEPS[cell[1]].extended.update(foreign, lambda x: 1)

    for keeps in FOREIGN_UPDATES.columns:
        if KEEPS[keeps] is not whose:
            assert survivors(FOREIGN_UPDATES, observe, lambda cell, code: (Permission.OK, REFUSED), keeps, kind) == []


# --- What tells the kinds apart ----------------------------------------------------------------------------------

OF_KIND = {Kind.MIRRORED: (TWO, {}), Kind.ON_READ: (TWO, {"synchronization": Sync.ON_READ}),
           Kind.AGGREGATING: (CENTRAL, {})}


def created(kind: Kind, value: Any = 1.0, **more: Any) -> Any:
    strategy, arguments = OF_KIND[kind]
    with strategy.scope():
        return refdist.Variable(value, **arguments, **more)


def synchronization(kind: Kind) -> Any:
    return created(kind).synchronization


def integer_mean(kind: Kind) -> Any:
    return created(kind, 1, aggregation=Agg.MEAN)


def created_different(kind: Kind) -> Any:
    def different(next_creator: Any, **given: Any) -> Any:
        return next_creator(**{**given, "initial_value": 2.0 if "replica_1" in str(given["name"]) else 1.0})

    with refdist.variable_creator_scope(different):
        return created(kind)


def updated_differently(kind: Kind) -> Any:
    v = created(kind)
    return outcome(lambda: TWO.extended.update(v, lambda x, y: x.assign(y), (refdist.PerReplica([1.0, 2.0]),))), seen(v)


def one_copy_alone(operation: str, kind: Kind) -> Any:
    v = created(kind, [1.0, 1.0])
    outcomes = [in_situation(TWO, situation, lambda: operate(v.values[1], operation, value_of(operation, 0)))
                for situation in context_stack.SITUATIONS]
    return outcomes, seen(v)


def parts_differ(kind: Kind) -> Any:
    return created(kind, aggregation=Agg.MEAN).assign(refdist.PerReplica([1.0, 2.0]))


def returned(kind: Kind) -> Any:
    return created(kind, aggregation=Agg.SUM).assign(2.0)


ROWS: list[tuple[Trait, Callable[[Kind], Any], tuple[Any, ...]]] = [
    (Trait.SYNCHRONIZATION, synchronization, (Asked.ASKED, Sync.ON_WRITE, Sync.NONE)),
    (Trait.INTEGER_MEAN, integer_mean, (Permission.OK, REFUSED)),
    (Trait.COPIES_DIFFER, created_different, (Permission.OK, REFUSED)),
    (Trait.COPIES_DIFFER, updated_differently, (Permission.OK, REFUSED)),
    *((Trait.ONE_COPY_ALONE, partial(one_copy_alone, operation), (Permission.OK, REFUSED))
      for operation in OPERATIONS),
    (Trait.PARTS_DIFFER, parts_differ, (Refusal("RD12"), Refusal("RD19"), REFUSED)),
    (Trait.RETURNS, returned, tuple(Returned))]


@pytest.mark.parametrize(("row", "observe", "others"), ROWS)
def test_every_cell_of_kinds_shows(row: Trait, observe: Callable[[Kind], Any], others: tuple[Any, ...]) -> None:
    def plausible(cell: tuple[Trait, Kind], value: Any) -> Iterable[Any]:
        # An aggregating variable is read as its only copy is.
        return [other for other in others if (cell[1], other) != (Kind.AGGREGATING, Returned.A_READ)]

    def behaviour(cell: tuple[Trait, Kind]) -> Any:
        return outcome(lambda: observe(cell[1]))

    assert survivors(TRAITS, behaviour, plausible, row=row) == []


def test_every_row_of_kinds_is_tested() -> None:
    assert {row for row, _, _ in ROWS} == set(TRAITS)
