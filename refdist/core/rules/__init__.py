"""The tables: who may call what where, what a variable does, and which dtypes can be reduced.

Code looks its rule up here and carries it out; a test walks every cell, and docs/tables.md is printed from
the same data.  Nothing here touches an array.
"""

from refdist.core.rules.calls import (
    CALLERS,
    CALLS,
    DEFAULT,
    INSTEAD,
)
from refdist.core.rules.options import (
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
    reduce_op,
    settled,
)
from refdist.core.rules.values import (
    MEAN_DTYPE,
    REDUCIBLE_KINDS,
)
from refdist.core.rules.variables import (
    ADD,
    AGGREGATING,
    AGREED,
    ASSIGN,
    BATCH_SCATTER,
    CLASSES,
    CREATION,
    EVERY_COPY,
    FIRST_COPY,
    FIRST_REPLICA,
    KINDS,
    MEAN_OF_COPIES,
    MIRRORED,
    ON_READ,
    OPERATIONS,
    OWN_COPY,
    PLAIN,
    READS,
    REDUCE_MEAN,
    REDUCE_SUM,
    SCATTER,
    SCATTER_PICK,
    SHARED_OUT,
    SUM_OF_COPIES,
    WRITES,
)

__all__ = [
    "ADD",
    "AGGREGATING",
    "AGREED",
    "ASSIGN",
    "BATCH_SCATTER",
    "CALLERS",
    "CALLS",
    "CLASSES",
    "CREATION",
    "DEFAULT",
    "EVERY_COPY",
    "FIRST_COPY",
    "FIRST_REPLICA",
    "INSTEAD",
    "KINDS",
    "MEAN_DTYPE",
    "MEAN_OF_COPIES",
    "MIRRORED",
    "ON_READ",
    "OPERATIONS",
    "OWN_COPY",
    "PLAIN",
    "READS",
    "REDUCE_MEAN",
    "REDUCE_SUM",
    "REDUCIBLE_KINDS",
    "ReduceOp",
    "SCATTER",
    "SCATTER_PICK",
    "SHARED_OUT",
    "SUM_OF_COPIES",
    "VariableAggregation",
    "VariableSynchronization",
    "WRITES",
    "reduce_op",
    "settled",
]
