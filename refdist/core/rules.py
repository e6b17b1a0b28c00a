"""The tables: who may call what where, what a variable does, and which dtypes can be reduced.

Code looks its rule up here and carries it out; a test walks every cell, and docs/tables.md is printed from
the same data.  Nothing here touches an array.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import TypeVar

from refdist import errors
from refdist.core.context_stack import CROSS, OTHER_CROSS, OTHER_REPLICA, OUTSIDE, REPLICA, SITUATIONS, UPDATE


class ReduceOp(Enum):
    """How values of several replicas become one.

    >>> ReduceOp.from_variable_aggregation(VariableAggregation.MEAN)
    <ReduceOp.MEAN: 'MEAN'>

    Source: tf.distribute.ReduceOp.
    """

    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def from_variable_aggregation(aggregation: VariableAggregation) -> ReduceOp:
        """The op of an aggregation.

        Raises:
            RD13: NONE and ONLY_FIRST_REPLICA are no reductions.
        """
        if aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN):
            return ReduceOp[aggregation.name]
        raise errors.error("RD13", "ReduceOp.from_variable_aggregation", f"{aggregation} is no reduction",
                           "Use SUM or MEAN.")


class VariableAggregation(Enum):
    """How the updates that replicas make to one variable become one update.

    Source: tf.VariableAggregation.
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class VariableSynchronization(Enum):
    """When the copies of a variable are brought together.

    Source: tf.VariableSynchronization.
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


_Option = TypeVar("_Option", VariableSynchronization, VariableAggregation)


def settled(label: str, value: _Option | None, default: _Option, attempted: str) -> _Option:
    """The synchronization or aggregation that was asked for; None means the default.

    Raises:
        RD25: anything else.
    """
    if value is None:
        return default
    if type(value) is not type(default):
        raise errors.error("RD25", attempted, f"{label} is {value!r}", f"Pass a {type(default).__name__}.",
                           kind=errors.InvalidValueError)
    return value


# --- Calls -------------------------------------------------------------------------------------------------
# Columns: the situation of the caller, seen from the strategy the call is made on.  Outside every scope the
# default strategy is current, and calls on it, or on its replica context, have a column of their own.  A cell is
# "ok" or the code of the error; "-": the default strategy does not make such an object.
# Source: tf.distribute.StrategyExtended, "Replica context vs. cross-replica context"; the column "default" was
# observed, TensorFlow 2.21.

DEFAULT = "default"
CALLERS = (OUTSIDE, DEFAULT, *SITUATIONS[1:])

_CALLS = """
                                        outside default cross update replica other_cross other_replica
    Strategy.scope                      ok      ok      ok    RD09   RD09    RD10        RD10
    Strategy.run                        ok      ok      ok    RD09   RD09    RD10        RD10
    Strategy.reduce                     ok      ok      ok    ok     RD09    RD10        RD10
    Strategy.gather                     ok      ok      ok    ok     RD09    RD10        RD10
    experimental_distribute_dataset     ok      ok      ok    ok     ok      ok          ok
    distribute_datasets_from_function   ok      ok      ok    ok     ok      ok          ok
    experimental_local_results          ok      ok      ok    ok     ok      ok          ok
    experimental_distribute_values_from_function  ok ok ok    ok     ok      ok          ok
    DistributedIterator.get_next        ok      ok      ok    ok     RD09    RD10        RD10
    extended.reduce_to                  ok      ok      ok    ok     RD09    RD10        RD10
    extended.batch_reduce_to            ok      ok      ok    ok     RD09    RD10        RD10
    extended.broadcast_to               ok      ok      ok    ok     RD09    RD10        RD10
    extended.call_for_each_replica      ok      ok      ok    RD09   RD09    RD10        RD10
    extended.update                     ok      ok      ok    RD09   ok      RD10        RD10
    extended.update_non_slot            ok      ok      ok    RD09   RD09    RD10        RD10
    extended.colocate_vars_with         RD09    ok      ok    ok     ok      RD10        RD10
    ReplicaContext.merge_call           RD09    ok      RD09  RD09   ok      RD10        RD10
    ReplicaContext.all_reduce           RD09    ok      RD09  RD09   ok      RD10        RD10
    ReplicaContext.all_gather           RD09    ok      RD09  RD09   ok      RD10        RD10
    ReplicaContext.devices              RD09    ok      RD09  RD09   ok      RD10        RD10
"""


def _read_calls(text: str) -> dict[str, dict[str, str]]:
    lines = [line.split() for line in text.strip().splitlines()]
    columns = [name.replace("_", " ") for name in lines[0]]
    return {name: dict(zip(columns, cells, strict=True)) for name, *cells in lines[1:]}


CALLS = _read_calls(_CALLS)

# What to write instead, where the catalogue's advice can be more exact.
INSTEAD = {
    "Strategy.gather": "In a replica use `get_replica_context().all_gather(value, axis)`.",
    "Strategy.reduce": "In a replica use `get_replica_context().all_reduce(reduce_op, value)`.",
    "Strategy.run": "Replicas run already; call the function itself, or use "
                    "`get_replica_context().merge_call(...)` to leave them.",
    "DistributedIterator.get_next": "Take the element outside and pass it on: `strategy.run(fn, args=(element,))`.",
    "extended.colocate_vars_with": "Enter `with strategy.scope():` first.",
    "ReplicaContext.merge_call": "Call `get_replica_context()` inside the function given to `strategy.run`.",
}


# --- Variables ---------------------------------------------------------------------------------------------
# Kinds: what creation makes.  Source: tf.VariableSynchronization, tf.VariableAggregation.

PLAIN, MIRRORED, ON_READ, AGGREGATING = "plain", "mirrored", "on read", "aggregating"
KINDS = (PLAIN, MIRRORED, ON_READ, AGGREGATING)

# What a strategy that keeps copies makes of a synchronization; one that keeps a single copy ignores it.
CREATION: dict[VariableSynchronization | None, str] = {
    VariableSynchronization.AUTO: MIRRORED,
    VariableSynchronization.ON_WRITE: MIRRORED,
    VariableSynchronization.ON_READ: ON_READ,
    VariableSynchronization.NONE: "RD20",
}

# Reads: which value `read_value()` gives.
FIRST_COPY, OWN_COPY = "first copy", "own copy"
SUM_OF_COPIES, MEAN_OF_COPIES = "sum of copies", "mean of copies"

# Writes: what happens to the copies.
EVERY_COPY = "every copy"            # the one value given goes to all copies
AGREED = "agreed value"              # every replica brings the same value; else RD12
REDUCE_SUM, REDUCE_MEAN = "sum over replicas", "mean over replicas"    # then to every copy
FIRST_REPLICA = "replica 0's value"  # then to every copy
SHARED_OUT = "shared out"            # value / n to each copy, so that the sum of copies is the value

# Operations fall into four classes that have their own columns.
ASSIGN, ADD, SCATTER, SCATTER_PICK, BATCH_SCATTER = (
    "assign", "assign_add/sub", "scatter_add/sub/mul/div", "scatter_min/max/update", "batch_scatter_update")
CLASSES = (ASSIGN, ADD, SCATTER, SCATTER_PICK, BATCH_SCATTER)
OPERATIONS = {
    "assign": ASSIGN, "assign_add": ADD, "assign_sub": ADD,
    "scatter_add": SCATTER, "scatter_sub": SCATTER, "scatter_mul": SCATTER, "scatter_div": SCATTER,
    "scatter_min": SCATTER_PICK, "scatter_max": SCATTER_PICK, "scatter_update": SCATTER_PICK,
    "batch_scatter_update": BATCH_SCATTER,
}

_AGGREGATIONS = tuple(VariableAggregation)
_NONE, _SUM, _MEAN, _FIRST = _AGGREGATIONS
_ACROSS = (OUTSIDE, CROSS, OTHER_CROSS, OTHER_REPLICA)

_T = TypeVar("_T")
Cell = tuple[str, VariableAggregation, str, str]


def _some(one_or_more: _T | tuple[_T, ...]) -> tuple[_T, ...]:
    return one_or_more if isinstance(one_or_more, tuple) else (one_or_more,)


def _write_rules() -> dict[Cell, str]:
    table: dict[Cell, str] = {}

    def rule(kinds: str | tuple[str, ...], aggregations: VariableAggregation | tuple[VariableAggregation, ...],
             situations: str | tuple[str, ...], classes: str | tuple[str, ...], action: str) -> None:
        table.update(dict.fromkeys(
            product(_some(kinds), _some(aggregations), _some(situations), _some(classes)), action))

    # Later rows refine earlier ones.  A variable with one copy that belongs to no replica:
    rule(PLAIN, _AGGREGATIONS, SITUATIONS, CLASSES, OWN_COPY)
    rule(PLAIN, _AGGREGATIONS, OTHER_REPLICA, CLASSES, "RD11")
    # Copies that are kept equal: written from outside the replicas, then from inside.
    rule((MIRRORED, AGGREGATING), _AGGREGATIONS, (OUTSIDE, CROSS), CLASSES, EVERY_COPY)
    rule((MIRRORED, AGGREGATING), _AGGREGATIONS, UPDATE, CLASSES, OWN_COPY)
    rule((MIRRORED, AGGREGATING), _SUM, REPLICA, CLASSES, REDUCE_SUM)
    rule((MIRRORED, AGGREGATING), _MEAN, REPLICA, CLASSES, REDUCE_MEAN)
    rule((MIRRORED, AGGREGATING), _FIRST, REPLICA, CLASSES, FIRST_REPLICA)
    rule(MIRRORED, _NONE, REPLICA, CLASSES, AGREED)
    rule(AGGREGATING, _NONE, REPLICA, CLASSES, "RD13")
    # The minimum of a sum of slices is no update that any replica asked for.
    rule(MIRRORED, (_SUM, _MEAN), SITUATIONS, SCATTER_PICK, "RD20")
    rule(AGGREGATING, (_SUM, _MEAN), REPLICA, (SCATTER_PICK, BATCH_SCATTER), "RD20")
    rule(MIRRORED, _AGGREGATIONS, SITUATIONS, BATCH_SCATTER, "RD20")
    # Copies that differ until they are read.
    rule(ON_READ, _AGGREGATIONS, (REPLICA, UPDATE), CLASSES, OWN_COPY)
    rule(ON_READ, _SUM, (OUTSIDE, CROSS), ASSIGN, SHARED_OUT)
    rule(ON_READ, _SUM, (OUTSIDE, CROSS), ADD, "RD14")
    rule(ON_READ, (_MEAN, _FIRST), (OUTSIDE, CROSS), (ASSIGN, ADD), EVERY_COPY)
    rule(ON_READ, _NONE, (OUTSIDE, CROSS), (ASSIGN, ADD), "RD13")
    rule(ON_READ, _AGGREGATIONS, SITUATIONS, (SCATTER, SCATTER_PICK, BATCH_SCATTER), "RD20")
    # Variables of one strategy under another.
    rule((MIRRORED, AGGREGATING, ON_READ), _AGGREGATIONS, OTHER_CROSS, CLASSES, "RD10")
    rule((MIRRORED, AGGREGATING, ON_READ), _AGGREGATIONS, OTHER_REPLICA, CLASSES, "RD11")
    return table


def _read_rules() -> dict[tuple[str, VariableAggregation, str], str]:
    table = {(kind, aggregation, situation): FIRST_COPY
             for kind in KINDS for aggregation in _AGGREGATIONS for situation in SITUATIONS}
    across = {_NONE: "RD13", _SUM: SUM_OF_COPIES, _MEAN: MEAN_OF_COPIES, _FIRST: FIRST_COPY}
    for aggregation in _AGGREGATIONS:
        for situation in _ACROSS:
            table[ON_READ, aggregation, situation] = across[aggregation]
        for situation in (REPLICA, UPDATE):
            for kind in (MIRRORED, ON_READ):
                table[kind, aggregation, situation] = OWN_COPY
    return table


WRITES = _write_rules()
READS = _read_rules()


# --- Dtypes ------------------------------------------------------------------------------------------------
# Kinds that can be summed (`arrays.kind_of`), and the dtype of a mean; other dtypes keep their own.
# Source: observed, TensorFlow 2.21.

REDUCIBLE_KINDS = "iufc"
MEAN_DTYPE = {
    "int2": "float32", "uint2": "float32", "int4": "float32", "uint4": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64", "int64": "float64", "uint64": "float64",
}


_OPS = dict(ReduceOp.__members__)


def reduce_op(value: object, attempted: str) -> ReduceOp:
    """The ReduceOp for an op or its name in any case.

    Raises:
        RD25: neither a ReduceOp nor "SUM" or "MEAN" (ValueError for an unknown name, else TypeError).
    """
    if type(value) is ReduceOp:
        return value
    if isinstance(value, str):
        op = _OPS.get(value) or _OPS.get(value.upper())
        if op is not None:
            return op
        raise errors.error("RD25", attempted, f"{value!r} is not a reduce op",
                           "Pass ReduceOp.SUM or ReduceOp.MEAN.", kind=errors.InvalidValueError)
    raise errors.error("RD25", attempted, f"reduce_op is {value!r}, a {type(value).__name__}",
                       "Pass ReduceOp.SUM or ReduceOp.MEAN.")
