"""The options of a program: how values are reduced, how variables are aggregated, when copies are synchronized, and how
rows are shared out.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TypeVar

from refdist import errors


class ReduceOp(Enum):
    """How values of several replicas become one.

    >>> ReduceOp.from_variable_aggregation(VariableAggregation.MEAN)
    <ReduceOp.MEAN: 'MEAN'>

    Source: tf.distribute.ReduceOp.
    """

    SUM = "SUM"
    MEAN = "MEAN"

    # Members are compared by identity; Enum's own hash is that of the name, and a call.
    __hash__ = object.__hash__

    @staticmethod
    def from_variable_aggregation(aggregation: VariableAggregation) -> ReduceOp:
        """The op of an aggregation.

        Args:
            aggregation: a VariableAggregation.

        Raises:
            RD13: NONE and ONLY_FIRST_REPLICA are not reductions.
        """
        if aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN):
            return ReduceOp[aggregation.name]
        raise errors.error("RD13", "ReduceOp.from_variable_aggregation", f"{aggregation} is not a reduction",
                           "Use SUM or MEAN.")


class VariableAggregation(Enum):
    """How the updates that replicas make to one variable become one update.

    Source: tf.VariableAggregation.
    """

    __hash__ = object.__hash__

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class VariableSynchronization(Enum):
    """When the copies of a variable are combined.

    Source: tf.VariableSynchronization.
    """

    __hash__ = object.__hash__

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class AutoShardPolicy(IntEnum):
    """How the rows of a dataset are divided among the replicas.

    AUTO and DATA split every batch into pieces of the same, rounded-up size.  OFF, FILE and HINT split the stream of
    rows, regardless of batch boundaries, into pieces whose sizes differ by at most one.

    Source: tf.data.experimental.AutoShardPolicy.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class UnevenEnd(Enum):
    """What happens where the replicas would get different numbers of rows.

    EMPTY is what TensorFlow does: some replicas get fewer rows, or none.  DROP leaves rows out until all have
    the same number.  PAD adds rows of zeros, and every element becomes a pair: the padded element, and a mask, bool
    of shape [rows], that is True for real rows.  ERROR raises RD18.
    """

    EMPTY = "EMPTY"
    DROP = "DROP"
    PAD = "PAD"
    ERROR = "ERROR"


class InputReplicationMode(Enum):
    """Whether an input function is called once per worker or once per replica.

    Source: tf.distribute.InputReplicationMode.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


_Option = TypeVar("_Option", VariableSynchronization, VariableAggregation)


def settled(label: str, value: _Option | None, default: _Option, attempted: str) -> _Option:
    """The synchronization or aggregation that was asked for; None means the default.

    Raises:
        RD34: anything else.
    """
    if value is None:
        return default
    if type(value) is not type(default):
        raise errors.error("RD34", attempted, f"{label} is {value!r}", f"Pass {errors.type_of(default)}.")
    return value


_OPS = dict(ReduceOp.__members__)


def reduce_op_of(value: object, attempted: str) -> ReduceOp:
    """The ReduceOp for an op or its name in any case.

    Raises:
        RD25, RD34: neither a ReduceOp nor "SUM" or "MEAN" (ValueError for an unknown name, else TypeError).
    """
    if type(value) is ReduceOp:
        return value
    if isinstance(value, str):
        op = _OPS.get(value) or _OPS.get(value.upper())
        if op is not None:
            return op
        raise errors.error("RD34", attempted, f"{value!r} is not a reduce op",
                           "Pass ReduceOp.SUM or ReduceOp.MEAN.")
    raise errors.error("RD25", attempted, f"reduce_op is {value!r}, {errors.type_of(value)}",
                       "Pass ReduceOp.SUM or ReduceOp.MEAN.")
