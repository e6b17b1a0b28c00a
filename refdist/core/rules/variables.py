"""What the kinds of variables are, which kind a strategy makes, and what each read and write of it does.

A plain variable is one array.  It has one value, which its strategy may write in every situation, so it is in few of
the tables.  Code looks a cell up and carries it out; it does not ask for the kind of a variable.
"""

from __future__ import annotations

from refdist.core.rules.options import VariableAggregation
from refdist.core.rules.table import Table

PLAIN, MIRRORED, ON_READ, AGGREGATING = "plain", "mirrored", "on read", "aggregating"
KINDS = (PLAIN, MIRRORED, ON_READ, AGGREGATING)
OK = "ok"

# --- Creation ----------------------------------------------------------------------------------------------

COPIES, CENTRAL, LONE_CENTRAL, ONE_DEVICE = "a copy per replica", "one copy", "one copy, one replica", "one device"

CREATION = Table(
    "Creation of variables",
    "Rows: the synchronization that is asked for.  Columns: what the strategy keeps of a variable: MirroredStrategy, "
    "MultiWorkerMirroredStrategy and TPUStrategy a copy per replica; CentralStorageStrategy and "
    "ParameterServerStrategy one copy, for several replicas (of a worker) or for one; OneDeviceStrategy one.  Outside "
    "any scope, and in that of the default strategy, variables are plain.  Source: tf.VariableSynchronization; "
    "observed, TensorFlow 2.21.",
    {PLAIN: "one array", MIRRORED: "a copy for each replica; all have the same value at all times",
     ON_READ: "a copy for each replica, which it updates alone; reads outside replicas aggregate the copies",
     AGGREGATING: "one copy, which several replicas update"}, """
                    a copy per replica    one copy       one copy, one replica    one device
        AUTO        mirrored              aggregating    plain                    plain
        NONE        RD20                  aggregating    plain                    plain
        ON_WRITE    mirrored              aggregating    plain                    plain
        ON_READ     on read               aggregating    plain                    plain
        None        RD25                  aggregating    plain                    plain
    """)

YES, NO = "yes", "no"

TRAINABLE = Table(
    "Trainable variables",
    "Rows: the synchronization.  Column: whether a variable is trainable where the program does not say so.  Source: "
    "tf.Variable.", {YES: "it is", NO: "it is not"}, """
                    trainable
        AUTO        yes
        NONE        yes
        ON_WRITE    yes
        ON_READ     no
    """)

# --- Kinds -------------------------------------------------------------------------------------------------

ASKED, ALL_COPIES, A_READ, OWN_COPY = "asked", "all copies", "a read", "own copy"

TRAITS = Table(
    "Kinds of variables",
    "Columns: the kind.  Rows: *synchronization*, which one the variable says it has; *integer mean*, creation with "
    "the aggregation MEAN and a dtype that is not a float; *copies differ*, when they are created or at the end of an "
    "update; *one copy alone*, a write to one of several copies, outside the update of that copy; *parts differ*, a "
    "write across replicas of a PerReplica or Mirrored that holds several values; *returns*, what a write across "
    "replicas returns (in a replica or an update, the copy that is there).  Source: tf.Variable; observed, TensorFlow "
    "2.21.",
    {ASKED: "the synchronization that was asked for", "ON_WRITE": "ON_WRITE, whichever was asked for", OK: "allowed",
     ALL_COPIES: "a Mirrored of the copies' values", A_READ: "what a read returns",
     OWN_COPY: "the value of the only copy", "-": "cannot be asked"}, """
                           mirrored      on read    aggregating
        synchronization    ON_WRITE      asked      asked
        integer mean       RD13          RD13       ok
        copies differ      RD12          ok         -
        one copy alone     RD12          ok         -
        parts differ       RD12          RD19       RD12
        returns            all copies    a read     own copy
    """)

SYNCHRONIZATION, INTEGER_MEAN, COPIES_DIFFER, ONE_COPY_ALONE, PARTS_DIFFER, RETURNS = TRAITS.values()

# --- Reads -------------------------------------------------------------------------------------------------

FIRST_COPY, SUM, MEAN, REPLICA_0 = "first copy", "sum", "mean", "replica 0's"

READS = Table(
    "Reads of variables",
    "Rows: the kind of variable and its aggregation.  Columns: the situation.  Source: tf.VariableAggregation; "
    "observed, TensorFlow 2.21.",
    {FIRST_COPY: "the first copy on this worker",
     OWN_COPY: "the copy of the replica that reads, or the one that is updated",
     REPLICA_0: "the first copy on the first worker", SUM: "of the copies on all workers",
     MEAN: "of the copies on all workers"}, """
                                       outside      cross        update      replica     other cross  other replica
        mirrored; any                first copy   first copy   own copy    own copy    first copy   first copy
        on read; NONE                RD13         RD13         own copy    own copy    RD13         RD13
        on read; SUM                 sum          sum          own copy    own copy    sum          sum
        on read; MEAN                mean         mean         own copy    own copy    mean         mean
        on read; ONLY_FIRST_REPLICA  replica 0's  replica 0's  own copy    own copy    replica 0's  replica 0's
        aggregating; any             first copy   first copy   first copy  first copy  first copy   first copy
    """)

# --- Writes ------------------------------------------------------------------------------------------------

EVERY_COPY, AGREED, SHARED_OUT = "every copy", "agreed", "shared out"

# Operations fall into five classes.
ASSIGN, ADD, SCATTER, SCATTER_PICK, BATCH_SCATTER = CLASSES = ("assign", "add", "scatter", "pick", "batch")
OPERATIONS = {
    "assign": ASSIGN, "assign_add": ADD, "assign_sub": ADD,
    "scatter_add": SCATTER, "scatter_sub": SCATTER, "scatter_mul": SCATTER, "scatter_div": SCATTER,
    "scatter_min": SCATTER_PICK, "scatter_max": SCATTER_PICK, "scatter_update": SCATTER_PICK,
    "batch_scatter_update": BATCH_SCATTER,
    "scatter_nd_add": SCATTER, "scatter_nd_sub": SCATTER, "scatter_nd_update": SCATTER_PICK,
}

WRITES = Table(
    "Writes to variables",
    "Rows: the kind of variable, its aggregation, and the operation: `assign`; add is `assign_add` and `assign_sub`; "
    "scatter is `scatter_add`, `scatter_sub`, `scatter_mul`, `scatter_div`, `scatter_nd_add` and `scatter_nd_sub`; "
    "pick is `scatter_min`, `scatter_max`, `scatter_update` and `scatter_nd_update`, which SUM and MEAN refuse because "
    "the minimum of a sum is not what any replica asked for; batch is `batch_scatter_update`.  Columns: the situation. "
    " Source: tf.VariableAggregation; observed, TensorFlow 2.21.",
    {EVERY_COPY: "the one value that is given goes to all copies",
     OWN_COPY: "the copy of the replica that writes, or the one that is updated, and no other",
     AGREED: "the value that all replicas contribute, else RD12, goes to all copies",
     SUM: "the sum of what replicas contribute goes to all copies", MEAN: "their mean does",
     REPLICA_0: "what replica 0 contributes does",
     SHARED_OUT: "each copy gets the value divided by the number of replicas, so that their sum is the value"}, """
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
    """)

# --- Variables of other strategies ---------------------------------------------------------------------------

LONE_REPLICA = "lone replica"

FOREIGN_WRITES = Table(
    "Writes under another strategy",
    "Rows: the kind of variable.  Columns: the situation.  A lone replica, which has no second one beside it, "
    "overwrites nothing that another replica wrote.  Source: observed, TensorFlow 2.21.",
    {OWN_COPY: "the variable is written"}, """
                       other cross    other replica    lone replica
        plain          own copy       RD11             own copy
        mirrored       RD10           RD11             RD10
        on read        RD10           RD11             RD10
        aggregating    RD10           RD11             RD10
    """)

FOREIGN_UPDATES = Table(
    "Updates of other strategies' variables",
    "Rows: the kind of variable that `extended.update` is given.  Columns: what the strategy that it is called on "
    "keeps of its own ones.  Source: observed, TensorFlow 2.21.", {OK: "allowed"}, """
                       a copy per replica    one copy    one copy, one replica    one device    default
        plain          RD11                  RD11        RD11                     ok            ok
        mirrored       RD11                  RD11        RD11                     RD11          RD11
        on read        RD11                  RD11        RD11                     RD11          RD11
        aggregating    RD11                  RD11        RD11                     RD11          ok
    """)

# --- The rows of one variable ----------------------------------------------------------------------------------
# What a variable keeps and looks its cells up in: the reads of its kind and aggregation by situation, and the writes by
# class and situation.

Key = tuple[str, VariableAggregation]


def _named(names: str) -> list[VariableAggregation]:
    return [*VariableAggregation] if names == "any" else [VariableAggregation[name] for name in names.split(", ")]


def _reads() -> dict[Key, dict[str, str]]:
    found = {}
    for name, row in READS.items():
        kind, aggregations = name.split("; ")
        found.update({(kind, one): dict(row) for one in _named(aggregations)})
    return found


def _writes() -> dict[Key, dict[tuple[str, str], str]]:
    found: dict[Key, dict[tuple[str, str], str]] = {key: {} for key in READS_OF}
    for name, row in WRITES.items():
        kind, aggregations, classes = name.split("; ")
        for aggregation in _named(aggregations):
            for one in CLASSES if classes == "any" else classes.split(", "):
                found[kind, aggregation] |= {(one, situation): action for situation, action in row.items()}
    return found


READS_OF = _reads()
WRITES_OF = _writes()
