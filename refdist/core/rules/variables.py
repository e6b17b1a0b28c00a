"""What the kinds of variables are, which kind a strategy makes, and what each read and write of it does.

A plain variable is one array.  It has one value, which its strategy may write in every situation, so it is in few of
the tables.  Code looks a cell up and carries it out; it does not ask for the kind of a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product, starmap
from typing import Literal, NamedTuple

from refdist.core.context_stack import (
    CROSS,
    LONE_REPLICA,
    OTHER_CROSS,
    OTHER_REPLICA,
    OUTSIDE,
    REPLICA,
    SITUATIONS,
    UPDATE,
    Situation,
)
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.core.rules.table import Allowed, Permission, Refusal, Table, Word


class Kind(Word):
    """The kinds of variables: cells of CREATION, which has a row for each synchronization."""

    PLAIN = "plain"
    MIRRORED = "mirrored"
    ON_READ = "on read"
    AGGREGATING = "aggregating"


# The kinds of which several replicas have one variable.
SHARED = (Kind.MIRRORED, Kind.ON_READ, Kind.AGGREGATING)

# --- Creation ----------------------------------------------------------------------------------------------


class Keeps(Word):
    """Columns of CREATION: how many copies of a variable a strategy keeps, and for how many replicas."""

    COPIES = "a copy per replica"
    CENTRAL = "one copy"
    LONE_CENTRAL = "one copy, one replica"
    ONE_DEVICE = "one device"
    DEFAULT = "default"


CREATION: Table[VariableSynchronization | None, Keeps, Kind | Refusal] = Table(
    "Creation of variables",
    "Rows: the synchronization that is asked for.  Columns: what the strategy keeps of a variable: MirroredStrategy, "
    "MultiWorkerMirroredStrategy and TPUStrategy a copy per replica; CentralStorageStrategy and "
    "ParameterServerStrategy one copy, for several replicas (of a worker) or for one; OneDeviceStrategy one.  Outside "
    "any scope, and in that of the default strategy, variables are plain.  Source: tf.VariableSynchronization; "
    "observed, TensorFlow 2.21.",
    {Kind.PLAIN: "one array", Kind.MIRRORED: "a copy for each replica; all have the same value at all times",
     Kind.ON_READ: "a copy for each replica, which it updates alone; reads outside replicas aggregate the copies",
     Kind.AGGREGATING: "one copy, which several replicas update"}, """
                    a copy per replica    one copy       one copy, one replica    one device
        AUTO        mirrored              aggregating    plain                    plain
        NONE        RD20                  aggregating    plain                    plain
        ON_WRITE    mirrored              aggregating    plain                    plain
        ON_READ     on read               aggregating    plain                    plain
        None        RD34                  aggregating    plain                    plain
    """, rows=(*VariableSynchronization, None), columns=[keeps for keeps in Keeps if keeps is not Keeps.DEFAULT],
    cells=Kind | Refusal)


class Trainable(Word):
    """Cells of TRAINABLE: whether a variable is trainable if the program does not say."""

    YES = "yes"
    NO = "no"


class Default(Word):
    """Columns of TRAINABLE: arguments whose default depends on the synchronization, of which there is one."""

    TRAINABLE = "trainable"


TRAINABLE: Table[VariableSynchronization, Default, Trainable] = Table(
    "Trainable variables",
    "Rows: the synchronization.  Column: whether a variable is trainable where the program does not say so.  Source: "
    "tf.Variable.", {Trainable.YES: "it is", Trainable.NO: "it is not"}, """
                    trainable
        AUTO        yes
        NONE        yes
        ON_WRITE    yes
        ON_READ     no
    """, rows=VariableSynchronization, columns=Default, cells=Trainable)

# --- Kinds -------------------------------------------------------------------------------------------------


class Trait(Word):
    """Rows of TRAITS: in what the kinds of variables differ, beside reads and writes."""

    SYNCHRONIZATION = "synchronization"
    INTEGER_MEAN = "integer mean"
    COPIES_DIFFER = "copies differ"
    ONE_COPY_ALONE = "one copy alone"
    PARTS_DIFFER = "parts differ"
    RETURNS = "returns"


class Asked(Word):
    """A cell of TRAITS: the variable has the synchronization that was asked for."""

    ASKED = "asked"


class Returned(Word):
    """Cells of TRAITS: what a write across replicas returns."""

    ALL_COPIES = "all copies"
    A_READ = "a read"
    OWN_COPY = "own copy"


Synchronized = Literal[Asked.ASKED, VariableSynchronization.ON_WRITE]

TRAITS: Table[Trait, Kind, Synchronized | Returned | Allowed] = Table(
    "Kinds of variables",
    "Columns: the kind.  Rows: *synchronization*, which one the variable says it has; *integer mean*, creation with "
    "the aggregation MEAN and a dtype that is not a float; *copies differ*, when they are created or at the end of an "
    "update; *one copy alone*, a write to one of several copies, outside the update of that copy; *parts differ*, a "
    "write across replicas of a PerReplica or Mirrored that holds several values; *returns*, what a write across "
    "replicas returns (in a replica or an update, the copy that is there).  Source: tf.Variable; observed, TensorFlow "
    "2.21.",
    {Asked.ASKED: "the synchronization that was asked for",
     VariableSynchronization.ON_WRITE: "ON_WRITE, whichever was asked for", Permission.OK: "allowed",
     Returned.ALL_COPIES: "a Mirrored of the copies' values", Returned.A_READ: "what a read returns",
     Returned.OWN_COPY: "the value of the only copy"}, """
                           mirrored      on read    aggregating
        synchronization    ON_WRITE      asked      asked
        integer mean       RD13          RD13       ok
        copies differ      RD12          ok         -
        one copy alone     RD12          ok         -
        parts differ       RD12          RD19       RD12
        returns            all copies    a read     own copy
    """, rows=Trait, columns=SHARED, cells=Synchronized | Returned | Allowed, unreached="cannot be asked")

SYNCHRONIZATION: Mapping[Kind, Synchronized] = TRAITS.row(Trait.SYNCHRONIZATION, Synchronized)
INTEGER_MEAN: Mapping[Kind, Allowed] = TRAITS.row(Trait.INTEGER_MEAN, Allowed)
COPIES_DIFFER: Mapping[Kind, Allowed] = TRAITS.row(Trait.COPIES_DIFFER, Allowed)
ONE_COPY_ALONE: Mapping[Kind, Allowed] = TRAITS.row(Trait.ONE_COPY_ALONE, Allowed)
PARTS_DIFFER: Mapping[Kind, Refusal] = TRAITS.row(Trait.PARTS_DIFFER, Refusal)
RETURNS: Mapping[Kind, Returned] = TRAITS.row(Trait.RETURNS, Returned)

# --- Reads -------------------------------------------------------------------------------------------------


class Read(Word):
    """Cells of READS: which copy is read, or how all copies are reduced."""

    FIRST_COPY = "first copy"
    OWN_COPY = "own copy"
    REPLICA_0 = "replica 0's"
    SUM = "sum"
    MEAN = "mean"


class Aggregated(NamedTuple):
    """A row of READS: a kind of variable, and its aggregation."""

    kind: Kind
    aggregation: VariableAggregation


READS: Table[Aggregated, Situation, Read | Refusal] = Table(
    "Reads of variables",
    "Rows: the kind of variable and its aggregation.  Columns: the situation.  Source: tf.VariableAggregation; "
    "observed, TensorFlow 2.21.",
    {Read.FIRST_COPY: "the first copy on this worker",
     Read.OWN_COPY: "the copy of the replica that reads, or the one that is updated",
     Read.REPLICA_0: "the first copy on the first worker", Read.SUM: "of the copies on all workers",
     Read.MEAN: "of the copies on all workers"}, """
                                       outside      cross        update      replica     other cross  other replica
        mirrored; any                first copy   first copy   own copy    own copy    first copy   first copy
        on read; NONE                RD13         RD13         own copy    own copy    RD13         RD13
        on read; SUM                 sum          sum          own copy    own copy    sum          sum
        on read; MEAN                mean         mean         own copy    own copy    mean         mean
        on read; ONLY_FIRST_REPLICA  replica 0's  replica 0's  own copy    own copy    replica 0's  replica 0's
        aggregating; any             first copy   first copy   first copy  first copy  first copy   first copy
    """, rows=starmap(Aggregated, product(SHARED, VariableAggregation)), columns=SITUATIONS, cells=Read | Refusal)

# --- Writes ------------------------------------------------------------------------------------------------


class OperationClass(Word):
    """Groups of operations that share a row of WRITES: `assign_add` and `assign_sub` are ADD."""

    ASSIGN = "assign"
    ADD = "add"
    SCATTER = "scatter"
    PICK = "pick"
    BATCH = "batch"


class Takes(Word):
    """What an operation is called with: an array for the whole variable, IndexedSlices, or indices and parts."""

    VALUE = "a value"
    SLICES = "slices"
    PARTS = "parts"


class Computes(Word):
    """How an operation combines the old and the new items; the values are the names in `Backend.scatter`."""

    UPDATE = "update"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MIN = "min"
    MAX = "max"


class Operation(NamedTuple):
    """What `assign`, `assign_add` or a `scatter_*` does: its group, what it takes and what it computes."""

    of: OperationClass
    takes: Takes
    computes: Computes


OPERATIONS = {
    "assign": Operation(OperationClass.ASSIGN, Takes.VALUE, Computes.UPDATE),
    "assign_add": Operation(OperationClass.ADD, Takes.VALUE, Computes.ADD),
    "assign_sub": Operation(OperationClass.ADD, Takes.VALUE, Computes.SUB),
    "scatter_add": Operation(OperationClass.SCATTER, Takes.SLICES, Computes.ADD),
    "scatter_sub": Operation(OperationClass.SCATTER, Takes.SLICES, Computes.SUB),
    "scatter_mul": Operation(OperationClass.SCATTER, Takes.SLICES, Computes.MUL),
    "scatter_div": Operation(OperationClass.SCATTER, Takes.SLICES, Computes.DIV),
    "scatter_min": Operation(OperationClass.PICK, Takes.SLICES, Computes.MIN),
    "scatter_max": Operation(OperationClass.PICK, Takes.SLICES, Computes.MAX),
    "scatter_update": Operation(OperationClass.PICK, Takes.SLICES, Computes.UPDATE),
    "batch_scatter_update": Operation(OperationClass.BATCH, Takes.SLICES, Computes.UPDATE),
    "scatter_nd_add": Operation(OperationClass.SCATTER, Takes.PARTS, Computes.ADD),
    "scatter_nd_sub": Operation(OperationClass.SCATTER, Takes.PARTS, Computes.SUB),
    "scatter_nd_update": Operation(OperationClass.PICK, Takes.PARTS, Computes.UPDATE),
}


class Write(Word):
    """Cells of WRITES: which copies are written, and with what."""

    EVERY_COPY = "every copy"
    OWN_COPY = "own copy"
    AGREED = "agreed"
    SUM = "sum"
    MEAN = "mean"
    REPLICA_0 = "replica 0's"
    SHARED_OUT = "shared out"


class Written(NamedTuple):
    """A row of WRITES: a kind of variable, its aggregation, and a group of operations."""

    kind: Kind
    aggregation: VariableAggregation
    operation: OperationClass


WRITES: Table[Written, Situation, Write | Refusal] = Table(
    "Writes to variables",
    "Rows: the kind of variable, its aggregation, and the operation: `assign`; add is `assign_add` and `assign_sub`; "
    "scatter is `scatter_add`, `scatter_sub`, `scatter_mul`, `scatter_div`, `scatter_nd_add` and `scatter_nd_sub`; "
    "pick is `scatter_min`, `scatter_max`, `scatter_update` and `scatter_nd_update`, which SUM and MEAN refuse because "
    "the minimum of a sum is not what any replica asked for; batch is `batch_scatter_update`.  Columns: the situation. "
    " Source: tf.VariableAggregation; observed, TensorFlow 2.21.",
    {Write.EVERY_COPY: "the one value that is given goes to all copies",
     Write.OWN_COPY: "the copy of the replica that writes, or the one that is updated, and no other",
     Write.AGREED: "the value that all replicas contribute, else RD12, goes to all copies",
     Write.SUM: "the sum of what replicas contribute goes to all copies", Write.MEAN: "their mean does",
     Write.REPLICA_0: "what replica 0 contributes does",
     Write.SHARED_OUT:
         "each copy gets the value divided by the number of replicas, so that their sum is the value"}, """
                                                                  outside       cross         update      replica
        mirrored; NONE; assign, add, scatter, pick                every copy    every copy    own copy    agreed
        mirrored; SUM; assign, add, scatter                       every copy    every copy    own copy    sum
        mirrored; MEAN; assign, add, scatter                      every copy    every copy    own copy    mean
        mirrored; SUM, MEAN; pick                                 RD20          RD20          RD20        RD20
        mirrored; ONLY_FIRST_REPLICA; assign, add, scatter, pick  every copy    every copy    own copy    replica 0's
        mirrored; any; batch                                      RD20          RD20          RD20        RD20
        on read; NONE; assign, add                                RD13          RD13          own copy    own copy
        on read; SUM; assign                                      shared out    shared out    own copy    own copy
        on read; SUM; add                                         RD14          RD14          own copy    own copy
        on read; MEAN, ONLY_FIRST_REPLICA; assign, add            every copy    every copy    own copy    own copy
        on read; any; scatter, pick, batch                        RD20          RD20          RD20        RD20
        aggregating; NONE; any                                    every copy    every copy    own copy    RD13
        aggregating; SUM; assign, add, scatter                    every copy    every copy    own copy    sum
        aggregating; MEAN; assign, add, scatter                   every copy    every copy    own copy    mean
        aggregating; SUM, MEAN; pick, batch                       every copy    every copy    own copy    RD20
        aggregating; ONLY_FIRST_REPLICA; any                      every copy    every copy    own copy    replica 0's
    """, rows=starmap(Written, product(SHARED, VariableAggregation, OperationClass)),
    columns=(OUTSIDE, CROSS, UPDATE, REPLICA), cells=Write | Refusal)

# --- Variables of other strategies ---------------------------------------------------------------------------

FOREIGN_WRITES: Table[Kind, Situation, Literal[Write.OWN_COPY] | Refusal] = Table(
    "Writes under another strategy",
    "Rows: the kind of variable.  Columns: the situation.  A lone replica, which has no second one beside it, "
    "overwrites nothing that another replica wrote.  Source: observed, TensorFlow 2.21.",
    {Write.OWN_COPY: "the variable is written"}, """
                       other cross    other replica    lone replica
        plain          own copy       RD11             own copy
        mirrored       RD10           RD11             RD10
        on read        RD10           RD11             RD10
        aggregating    RD10           RD11             RD10
    """, rows=Kind, columns=(OTHER_CROSS, OTHER_REPLICA, LONE_REPLICA), cells=Literal[Write.OWN_COPY] | Refusal)

FOREIGN_UPDATES: Table[Kind, Keeps, Allowed] = Table(
    "Updates of other strategies' variables",
    "Rows: the kind of variable that `extended.update` is given.  Columns: what the strategy that it is called on "
    "keeps of its own ones.  Source: observed, TensorFlow 2.21.",
    {Permission.OK: "allowed"}, """
                       a copy per replica    one copy    one copy, one replica    one device    default
        plain          RD11                  RD11        RD11                     ok            ok
        mirrored       RD11                  RD11        RD11                     RD11          RD11
        on read        RD11                  RD11        RD11                     RD11          RD11
        aggregating    RD11                  RD11        RD11                     RD11          ok
    """, rows=Kind, columns=Keeps, cells=Allowed)

# --- The rows of one variable ----------------------------------------------------------------------------------

# Of a kind and an aggregation the rows of WRITES by the class of operations.
WRITES_OF = {row: {operation: WRITES[Written(*row, operation)] for operation in OperationClass} for row in READS}
