"""What the kinds of variables are, which kind a strategy makes, and what each read and write of it does.

The tables are written out below and read once, when this is imported: "_" is a space, "any" is every aggregation and
"all" every class of operations.  A cell is an action, "ok", or the code of an error; "-" is no cell, because no program
can ask.
Code looks a cell up and carries it out: no code asks for a kind of variable.
"""

from __future__ import annotations

from itertools import product

from refdist.core.rules.calls import DEFAULT
from refdist.core.rules.options import VariableAggregation, VariableSynchronization

# Source: tf.VariableSynchronization, tf.VariableAggregation; the columns "other" were observed, TensorFlow 2.21.
PLAIN, MIRRORED, ON_READ, AGGREGATING = "plain", "mirrored", "on read", "aggregating"
KINDS = (PLAIN, MIRRORED, ON_READ, AGGREGATING)
OK = "ok"


def _words(line: str) -> list[str]:
    return [word if word.isupper() else word.replace("_", " ") for word in line.split()]


def lines(text: str) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows, each beginning with what it is about."""
    head, *rows = map(_words, text.strip().splitlines())
    return head, rows


# --- Creation ----------------------------------------------------------------------------------------------
# Rows: the synchronization that is asked for.  Columns: what a strategy keeps of a variable (`_keeps` of its extended).
# A cell is the kind that is made.  Outside every scope, and in the scope of the default strategy, variables are plain,
# because no strategy takes part in their creation.

COPIES, CENTRAL, LONE_CENTRAL, ONE_DEVICE = "a copy per replica", "one copy", "one copy, one replica", "one device"

CREATION_TEXT = """
                a_copy_per_replica  one_copy     one_copy,_one_replica  one_device
    AUTO        mirrored            aggregating  plain                  plain
    NONE        RD20                aggregating  plain                  plain
    ON_WRITE    mirrored            aggregating  plain                  plain
    ON_READ     on_read             aggregating  plain                  plain
    None        RD25                aggregating  plain                  plain
"""


def _read_creation(text: str) -> dict[str, dict[VariableSynchronization | None, str]]:
    head, rows = lines(text)
    return {column: {None if name == "None" else VariableSynchronization[name]: cells[i] for name, *cells in rows}
            for i, column in enumerate(head)}


CREATION = _read_creation(CREATION_TEXT)

# Whether a variable is trainable where the program does not say so.
TRAINABLE = {VariableSynchronization.AUTO: True, VariableSynchronization.NONE: True,
             VariableSynchronization.ON_WRITE: True, VariableSynchronization.ON_READ: False}

# `extended.update` of a variable that the strategy did not make.
UPDATE_FOREIGN = {COPIES: "RD11", CENTRAL: "RD11", LONE_CENTRAL: "RD11", ONE_DEVICE: OK, DEFAULT: OK}


# --- Kinds -------------------------------------------------------------------------------------------------
# What else tells the kinds apart.  A plain variable is one array, of which nothing of this can be asked.
#   synchronization   the one that the variable says it has: another one, or the one that was asked for
#   integer mean      creation with aggregation MEAN and a dtype that is not a float
#   copies differ     copies that are made different, or are different at the end of an update
#   one copy alone    a write to one of several copies, outside the update of that copy
#   parts differ      a write across replicas of a PerReplica or Mirrored whose components are not one value
#   returns           what a write across replicas returns

ASKED, ALL_COPIES, A_READ = "asked", "all copies", "a read"
OWN_COPY = "own copy"

TRAITS_TEXT = """
                synchronization  integer_mean  copies_differ  one_copy_alone  parts_differ  returns
    mirrored    ON_WRITE         RD13          RD12           RD12            RD12          all_copies
    on_read     asked            RD13          ok             ok              RD19          a_read
    aggregating asked            ok            -              -               RD12          own_copy
"""


def _read_traits(text: str) -> dict[str, dict[str, str]]:
    head, rows = lines(text)
    return {column: {kind: cells[i] for kind, *cells in rows if cells[i] != "-"} for i, column in enumerate(head)}


TRAITS = _read_traits(TRAITS_TEXT)
SYNCHRONIZATION, INTEGER_MEAN, COPIES_DIFFER, ONE_COPY_ALONE, PARTS_DIFFER, RETURNS = TRAITS.values()


# --- Reads -------------------------------------------------------------------------------------------------
# What `read_value()` returns.  A plain variable is not here: it has one value, whoever reads it.

FIRST_COPY = "first copy"                              # of the copies on this worker
SUM, MEAN, REPLICA_0 = "sum", "mean", "replica 0's"    # over the copies of all replicas, on all workers

READS_TEXT = """
                                     outside      cross        update      replica     other_cross  other_replica
    mirrored     any                 first_copy   first_copy   own_copy    own_copy    first_copy   first_copy
    on_read      NONE                RD13         RD13         own_copy    own_copy    RD13         RD13
    on_read      SUM                 sum          sum          own_copy    own_copy    sum          sum
    on_read      MEAN                mean         mean         own_copy    own_copy    mean         mean
    on_read      ONLY_FIRST_REPLICA  replica_0's  replica_0's  own_copy    own_copy    replica_0's  replica_0's
    aggregating  any                 first_copy   first_copy   first_copy  first_copy  first_copy   first_copy
"""


def _aggregations(names: str) -> list[VariableAggregation]:
    return [*VariableAggregation] if names == "any" else [VariableAggregation[name] for name in names.split(",")]


def _read_reads(text: str) -> dict[tuple[str, VariableAggregation], dict[str, str]]:
    head, rows = lines(text)
    return {(kind, aggregation): dict(zip(head, cells, strict=True))
            for kind, aggregations, *cells in rows for aggregation in _aggregations(aggregations)}


READS = _read_reads(READS_TEXT)


# --- Writes ------------------------------------------------------------------------------------------------
# What happens to the copies; SUM, MEAN and REPLICA_0 are over the values that the replicas contribute.  A plain
# variable is not here: its strategy may write it in every situation.

EVERY_COPY = "every copy"    # the one value that is given goes to all copies
AGREED = "agreed"            # all replicas contribute the same value, else RD12
SHARED_OUT = "shared out"    # value / n to each copy, so that the sum of the copies is the value

# Operations fall into five classes.
ASSIGN, ADD, SCATTER, SCATTER_PICK, BATCH_SCATTER = CLASSES = ("assign", "add", "scatter", "pick", "batch")
OPERATIONS = {
    "assign": ASSIGN, "assign_add": ADD, "assign_sub": ADD,
    "scatter_add": SCATTER, "scatter_sub": SCATTER, "scatter_mul": SCATTER, "scatter_div": SCATTER,
    "scatter_min": SCATTER_PICK, "scatter_max": SCATTER_PICK, "scatter_update": SCATTER_PICK,
    "batch_scatter_update": BATCH_SCATTER,
}

# SUM and MEAN refuse the class "pick": the minimum of a sum of slices is not an update that any replica asked for.
WRITES_TEXT = """
                                                              outside     cross       update    replica
    mirrored     NONE                assign,add,scatter,pick  every_copy  every_copy  own_copy  agreed
    mirrored     SUM                 assign,add,scatter       every_copy  every_copy  own_copy  sum
    mirrored     MEAN                assign,add,scatter       every_copy  every_copy  own_copy  mean
    mirrored     SUM,MEAN            pick                     RD20        RD20        RD20      RD20
    mirrored     ONLY_FIRST_REPLICA  assign,add,scatter,pick  every_copy  every_copy  own_copy  replica_0's
    mirrored     any                 batch                    RD20        RD20        RD20      RD20
    on_read      NONE                assign,add               RD13        RD13        own_copy  own_copy
    on_read      SUM                 assign                   shared_out  shared_out  own_copy  own_copy
    on_read      SUM                 add                      RD14        RD14        own_copy  own_copy
    on_read      MEAN                assign,add               every_copy  every_copy  own_copy  own_copy
    on_read      ONLY_FIRST_REPLICA  assign,add               every_copy  every_copy  own_copy  own_copy
    on_read      any                 scatter,pick,batch       RD20        RD20        RD20      RD20
    aggregating  NONE                all                      every_copy  every_copy  own_copy  RD13
    aggregating  SUM                 assign,add,scatter       every_copy  every_copy  own_copy  sum
    aggregating  MEAN                assign,add,scatter       every_copy  every_copy  own_copy  mean
    aggregating  SUM,MEAN            pick,batch               every_copy  every_copy  own_copy  RD20
    aggregating  ONLY_FIRST_REPLICA  all                      every_copy  every_copy  own_copy  replica_0's
"""

# Under another strategy.  "lone replica": one that has no second one beside it overwrites nothing that another replica
# wrote, so it may do what a cross-replica context may.
LONE_REPLICA = "lone replica"

FOREIGN_WRITES_TEXT = """
                 other_cross  other_replica  lone_replica
    plain        own_copy     RD11           own_copy
    mirrored     RD10         RD11           RD10
    on_read      RD10         RD11           RD10
    aggregating  RD10         RD11           RD10
"""


def _read_writes(text: str) -> dict[tuple[str, VariableAggregation], dict[tuple[str, str], str]]:
    head, rows = lines(text)
    table: dict[tuple[str, VariableAggregation], dict[tuple[str, str], str]] = {}
    for kind, aggregations, classes, *cells in rows:
        for aggregation in _aggregations(aggregations):
            for one in CLASSES if classes == "all" else classes.split(","):
                table.setdefault((kind, aggregation), {}).update(zip(product((one,), head), cells, strict=True))
    return table


def _read_foreign_writes(text: str) -> dict[str, dict[str, str]]:
    head, rows = lines(text)
    return {kind: dict(zip(head, cells, strict=True)) for kind, *cells in rows}


WRITES = _read_writes(WRITES_TEXT)
FOREIGN_WRITES = _read_foreign_writes(FOREIGN_WRITES_TEXT)
