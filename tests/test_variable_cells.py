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
from refdist.core import context_stack, rules

TWO = refdist.MirroredStrategy(["CPU:0", "CPU:1"])
CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
LONE_CENTRAL = refdist.experimental.CentralStorageStrategy(["CPU:0"], "CPU:0")
ONE = refdist.OneDeviceStrategy("CPU:0")
DEFAULT = refdist.get_strategy()
OTHER = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
LONE = refdist.MirroredStrategy(["GPU:0"])
KEEPS = {rules.COPIES: TWO, rules.CENTRAL: CENTRAL, rules.LONE_CENTRAL: LONE_CENTRAL, rules.ONE_DEVICE: ONE,
         rules.DEFAULT: DEFAULT}


def made(kind: str, aggregation: Agg = Agg.NONE, copies: Any = ((1.0, 3.0), (1.0, 5.0)),
         mirrored: Any = TWO) -> tuple[Any, Any]:
    """A strategy and its variable of a kind, with these values in the copies."""
    strategy = {rules.AGGREGATING: CENTRAL, rules.PLAIN: DEFAULT}.get(kind, mirrored)
    with strategy.scope():
        v = refdist.Variable(copies[0], aggregation=aggregation, dtype=np.float32,
                             synchronization=Sync.ON_READ if kind == rules.ON_READ else Sync.AUTO)
    for copy, value in zip(getattr(v, "_copies", (v,)), copies, strict=False):
        copy._array = refdist.constant(value)
    return strategy, v


def in_situation(strategy: Any, situation: str, call: Callable[[], Any]) -> Any:
    """What the call returns or raises; for each replica, or for each copy that is updated."""
    found: list[Any] = []

    def caught() -> None:
        found.append(outcome(call))

    if situation == context_stack.OUTSIDE:
        caught()
    elif situation in (context_stack.CROSS, context_stack.OTHER_CROSS):
        with (strategy if situation == context_stack.CROSS else OTHER).scope():
            caught()
    elif situation == context_stack.UPDATE:
        with strategy.scope():
            bystander = refdist.Variable(0.0)
        found.append(outcome(lambda: strategy.extended.update(bystander, lambda x: caught())))
    else:
        who = {context_stack.REPLICA: strategy, context_stack.OTHER_REPLICA: OTHER, rules.LONE_REPLICA: LONE}[situation]
        found.append(outcome(lambda: who.run(call)))
    return found


# --- Reads and writes --------------------------------------------------------------------------------------------

READ_ACTIONS = (rules.FIRST_COPY, rules.OWN_COPY, rules.REPLICA_0, rules.SUM, rules.MEAN, REFUSED)
ACROSS = (rules.EVERY_COPY, rules.SHARED_OUT, rules.OWN_COPY, REFUSED)
IN_REPLICA = (rules.OWN_COPY, rules.AGREED, rules.SUM, rules.MEAN, rules.REPLICA_0, REFUSED)
IN_UPDATE = (rules.OWN_COPY, rules.EVERY_COPY, REFUSED)


def read(cell: Any) -> Any:
    (kind, aggregation), situation = cell
    if kind == rules.AGGREGATING:
        strategy, v = made(kind, aggregation)
        return in_situation(strategy, situation, v.read_value)

    def program() -> Any:
        strategy = refdist.MultiWorkerMirroredStrategy()
        worker = strategy.extended.layout.first
        strategy, v = made(kind, aggregation, (1.0 + worker, 10.0 + worker), strategy)
        # Between workers a read is a collective, which one replica on each makes.
        one = rules.LONE_REPLICA if situation == context_stack.OTHER_REPLICA else situation
        return in_situation(strategy, one, v.read_value)

    return refdist.simulate_workers(program, 2, 2)


def other_reads(cell: Any, action: str) -> Iterable[str]:
    (kind, _), situation = cell
    if kind == rules.AGGREGATING:
        return (REFUSED,)  # its only copy is the first, its own, replica 0's, and the sum and mean of all
    own_is_first = situation not in (context_stack.REPLICA, context_stack.UPDATE)
    same = {rules.FIRST_COPY, rules.OWN_COPY} if own_is_first else set()
    return [other for other in READ_ACTIONS if not (action in same and other in same)]


def test_every_cell_of_reads_shows() -> None:
    assert survivors(rules.READS_OF, read, other_reads) == []


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


def write(kind: str, aggregation: Agg, operation: str, situation: str, **more: Any) -> Any:
    """What an operation returns, raises, and leaves behind."""
    shown = []
    for given in GIVEN:
        strategy, v = made(kind, aggregation)
        found = in_situation(strategy, situation, partial(write_once, v, operation, given, more))
        shown.append((found, seen(v)))
    return shown


def write_once(v: Any, operation: str, given: Callable[[str], Any], more: dict[str, Any]) -> Any:
    return operate(v, operation, given(operation), **more)


def operate(v: Any, operation: str, value: Any, **more: Any) -> Any:
    return getattr(v, operation)(*([[[1]]] if of_parts(operation) else []), value, **more)


@pytest.mark.parametrize(("operation", "more"), [
    *((operation, {}) for operation in rules.OPERATIONS),
    *((operation, {"read_value": False}) for operation in rules.OPERATIONS if operation.startswith("assign"))])
def test_every_cell_of_writes_shows(operation: str, more: dict[str, Any]) -> None:
    def others(cell: Any, action: str) -> Iterable[str]:
        (kind, aggregation), (_, situation) = cell
        found = {context_stack.REPLICA: IN_REPLICA, context_stack.UPDATE: IN_UPDATE}.get(situation, ACROSS)
        # Replicas that add to one copy, one after another, have added their sum; only what they get back differs.
        summed = (kind, aggregation, situation, bool(more)) == (rules.AGGREGATING, Agg.SUM, context_stack.REPLICA, True)
        return [other for other in found if not (summed and other == rules.OWN_COPY)]

    def observe(cell: Any) -> Any:
        (kind, aggregation), (_, situation) = cell
        return write(kind, aggregation, operation, situation, **more)

    for situation in rules.WRITES.columns:
        assert survivors(rules.WRITES_OF, observe, others, (rules.OPERATIONS[operation], situation)) == []


@pytest.mark.parametrize("operation", rules.OPERATIONS)
def test_every_cell_of_writes_under_another_strategy_shows(operation: str) -> None:
    assert survivors(rules.FOREIGN_WRITES, lambda cell: write(cell[0], Agg.NONE, operation, cell[1]),
                     lambda cell, action: (rules.OWN_COPY, "RD10", "RD11", REFUSED)) == []


def test_every_class_of_operations_shows() -> None:
    def observe(operation: str) -> Any:
        return [write(kind, aggregation, operation, situation) for kind in (rules.MIRRORED, rules.ON_READ)
                for aggregation in (Agg.NONE, Agg.SUM) for situation in (context_stack.CROSS, context_stack.REPLICA)]

    assert survivors(rules.OPERATIONS, observe, lambda operation, one: rules.CLASSES) == []


@pytest.mark.parametrize(("table", "rows", "classes"), [
    (rules.READS, rules.READS_OF, 1), (rules.WRITES, rules.WRITES_OF, len(rules.CLASSES))])
def test_rows_leave_nothing_out_and_do_not_overlap(table: rules.Table, rows: dict[Any, Any], classes: int) -> None:
    kinds = [kind for kind in rules.KINDS if kind != rules.PLAIN]
    assert set(rows) == {(kind, aggregation) for kind in kinds for aggregation in Agg}
    assert {len(row) for row in rows.values()} == {classes * len(table.columns)}
    every = (len(Agg), len(rules.CLASSES))
    covered = [[count if names == "any" else len(names.split(", "))
                for names, count in zip(name.split("; ")[1:], every, strict=False)] for name in table]
    assert sum(int(np.prod(row)) for row in covered) == len(rows) * classes


# --- Creation ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("in_replica", [False, True])
def test_every_cell_of_creation_shows(in_replica: bool) -> None:
    def observe(cell: Any) -> Any:
        synchronization, keeps = cell

        def create() -> Any:
            v = refdist.Variable(1.0, synchronization=None if synchronization == "None" else Sync[synchronization])
            return type(v).__name__

        with KEEPS[keeps].scope():
            return KEEPS[keeps].run(create) if in_replica else create()

    assert survivors(rules.CREATION, observe, lambda cell, kind: (*rules.KINDS, REFUSED)) == []


@pytest.mark.parametrize("keeps", KEEPS)
def test_whether_a_variable_is_trainable_shows(keeps: str) -> None:
    # A mirrored variable has ON_WRITE by then, whichever was asked for.
    rows = ("ON_WRITE", "ON_READ") if keeps == rules.COPIES else rules.TRAINABLE

    def observe(cell: Any) -> Any:
        with KEEPS[keeps].scope():
            return refdist.Variable(1.0, synchronization=Sync[cell[0]]).trainable

    for row in rows:
        assert survivors(rules.TRAINABLE, observe, lambda cell, trainable: (rules.YES, rules.NO), row=row) == []


# Strategies that are not among those that update, by the kind of variable that they make.
WHOSE = {rules.PLAIN: (DEFAULT, refdist.OneDeviceStrategy("CPU:0")), rules.MIRRORED: (OTHER, LONE),
         rules.ON_READ: (OTHER, LONE),
         rules.AGGREGATING: (refdist.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),)}


@pytest.mark.parametrize(("kind", "whose"), [(kind, whose) for kind in WHOSE for whose in WHOSE[kind]])
def test_every_cell_of_updates_of_foreign_variables_shows(kind: str, whose: Any) -> None:
    with whose.scope():
        foreign = refdist.Variable(1.0, synchronization=Sync.ON_READ if kind == rules.ON_READ else Sync.AUTO)

    def observe(cell: Any) -> Any:
        return KEEPS[cell[1]].extended.update(foreign, lambda x: 1)

    for keeps in rules.FOREIGN_UPDATES.columns:
        if KEEPS[keeps] is not whose:
            assert survivors(rules.FOREIGN_UPDATES, observe, lambda cell, code: (rules.OK, REFUSED), keeps, kind) == []


# --- What tells the kinds apart ----------------------------------------------------------------------------------

OF_KIND = {rules.MIRRORED: (TWO, {}), rules.ON_READ: (TWO, {"synchronization": Sync.ON_READ}),
           rules.AGGREGATING: (CENTRAL, {})}


def created(kind: str, value: Any = 1.0, **more: Any) -> Any:
    strategy, arguments = OF_KIND[kind]
    with strategy.scope():
        return refdist.Variable(value, **arguments, **more)


def synchronization(kind: str) -> Any:
    return created(kind).synchronization


def integer_mean(kind: str) -> Any:
    return created(kind, 1, aggregation=Agg.MEAN)


def created_different(kind: str) -> Any:
    def different(next_creator: Any, **given: Any) -> Any:
        return next_creator(**{**given, "initial_value": 2.0 if "replica_1" in str(given["name"]) else 1.0})

    with refdist.variable_creator_scope(different):
        return created(kind)


def updated_differently(kind: str) -> Any:
    v = created(kind)
    return outcome(lambda: TWO.extended.update(v, lambda x, y: x.assign(y), (refdist.PerReplica([1.0, 2.0]),))), seen(v)


def one_copy_alone(operation: str, kind: str) -> Any:
    v = created(kind, [1.0, 1.0])
    found = [in_situation(TWO, situation, lambda: operate(v.values[1], operation, value_of(operation, 0)))
             for situation in context_stack.SITUATIONS]
    return found, seen(v)


def parts_differ(kind: str) -> Any:
    return created(kind, aggregation=Agg.MEAN).assign(refdist.PerReplica([1.0, 2.0]))


def returned(kind: str) -> Any:
    return created(kind, aggregation=Agg.SUM).assign(2.0)


COLUMNS: list[tuple[str, Callable[[str], Any], tuple[str, ...]]] = [
    ("synchronization", synchronization, (rules.ASKED, "ON_WRITE", "NONE")),
    ("integer mean", integer_mean, (rules.OK, REFUSED)),
    ("copies differ", created_different, (rules.OK, REFUSED)),
    ("copies differ", updated_differently, (rules.OK, REFUSED)),
    *(("one copy alone", partial(one_copy_alone, operation), (rules.OK, REFUSED)) for operation in rules.OPERATIONS),
    ("parts differ", parts_differ, ("RD12", "RD19", REFUSED)),
    ("returns", returned, (rules.ALL_COPIES, rules.A_READ, rules.OWN_COPY))]


@pytest.mark.parametrize(("column", "observe", "others"), COLUMNS)
def test_every_cell_of_kinds_shows(column: str, observe: Callable[[str], Any], others: tuple[str, ...]) -> None:
    def plausible(kind: str, value: str) -> Iterable[str]:
        # An aggregating variable is read as its only copy is.
        return [other for other in others if (kind, other) != (rules.AGGREGATING, rules.A_READ)]

    def behaviour(kind: str) -> Any:
        return outcome(lambda: observe(kind))

    assert survivors(rules.TRAITS[column], behaviour, plausible) == []


def test_every_column_of_kinds_is_tested() -> None:
    assert {column for column, _, _ in COLUMNS} == set(rules.TRAITS)
