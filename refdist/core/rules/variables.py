"""What a variable does on each read and write."""

from __future__ import annotations

from itertools import product
from typing import TypeVar

from refdist.core.context_stack import CROSS, OTHER_CROSS, OTHER_REPLICA, OUTSIDE, REPLICA, SITUATIONS, UPDATE
from refdist.core.rules.options import VariableAggregation, VariableSynchronization

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
