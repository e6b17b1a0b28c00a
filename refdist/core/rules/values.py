"""What becomes of values: of those that are reduced or gathered, and of what replicas return."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product, starmap
from typing import Literal, NamedTuple

from refdist.core.rules.options import ReduceOp
from refdist.core.rules.table import Allowed, Permission, Refusal, Table, Word
from refdist.core.rules.variables import Keeps

# --- Reducing and gathering ----------------------------------------------------------------------------------


class Value(Word):
    """A value that is reduced or gathered, by its type: rows of REDUCE."""

    NOT_DISTRIBUTED = "not distributed"
    PER_REPLICA = "PerReplica"
    MIRRORED = "Mirrored"
    MIRRORED_VARIABLE = "mirrored variable"
    ON_READ_VARIABLE = "on read variable"


class Replicas(Word):
    """How many replicas a strategy has in all, and on each worker: rows of REDUCE."""

    ONE = "one"
    ONE_PER_WORKER = "one per worker"
    SEVERAL = "several"


class Reduced(NamedTuple):
    """A row of REDUCE: a type of value, and how many replicas there are."""

    value: Value
    replicas: Replicas


class Across(Word):
    """Columns of REDUCE beside SUM and MEAN: reductions along an axis, and gathers."""

    ALONG_AN_AXIS = "along an axis"
    GATHER = "gather"


class Contributed(Word):
    """Cells of REDUCE: what of a value is contributed to its reduction, such as the value of each replica."""

    EACH = "each"
    AGREED = "agreed"
    ITSELF = "itself"
    OF_WORKERS = "of workers"


REDUCE: Table[Reduced, ReduceOp | Across, Contributed | Refusal] = Table(
    "Reducing and gathering",
    "Rows: the value, and how many replicas there are: one in all, one on each of several workers, or several on a "
    "worker.  Variables with one copy are not distributed.  Columns: SUM and MEAN across replicas (`Strategy.reduce` "
    "with `axis=None`, `reduce_to`, `batch_reduce_to`), both along an axis too, and `Strategy.gather`.  A value "
    "that is not distributed is the replica's own where a worker has one; where it has several, they share it, and a "
    "sum would count it as often as there are replicas; a gather takes what each worker has.  Source: "
    "tf.distribute.Strategy.reduce; observed, TensorFlow 2.21.",
    {Contributed.EACH: "every replica contributes its component, or the value where there are no components",
     Contributed.AGREED: "the value, which must have the same bits on all workers",
     Contributed.ITSELF: "the value, which is the only one, or whose copies are equal",
     Contributed.OF_WORKERS:
         "the mean of what the workers have, or that of each worker; of one worker it is the value"}, """
                                                SUM     MEAN          along an axis    gather
        not distributed, one                    each    each          each             itself
        not distributed, one per worker         each    each          each             each
        not distributed, several                RD16    of workers    each             of workers
        PerReplica, one                         each    each          each             each
        PerReplica, one per worker              each    each          each             each
        PerReplica, several                     each    each          each             each
        Mirrored, one                           each    each          each             each
        Mirrored, one per worker                RD16    agreed        each             each
        Mirrored, several                       RD16    agreed        each             each
        mirrored variable, one                  each    each          each             each
        mirrored variable, one per worker       RD16    itself        each             each
        mirrored variable, several              RD16    itself        each             each
        on read variable, one                   each    each          each             each
        on read variable, one per worker        each    each          each             each
        on read variable, several               each    each          each             each
    """, rows=starmap(Reduced, product(Value, Replicas)), columns=(*ReduceOp, *Across), cells=Contributed | Refusal)

# --- Results -------------------------------------------------------------------------------------------------


class Leaves(Word):
    """Rows of RESULTS: what kind of objects the replicas returned at one leaf of a structure."""

    ONE_REPLICA = "with one replica"
    ARRAYS = "arrays"
    COPIES_OF_ONE_VARIABLE = "copies of one variable"
    SAME_OBJECT = "the same object"
    OTHER_OBJECTS = "other objects"


class Result(Word):
    """Columns of RESULTS: which call's results, or arguments, are put together."""

    RUN = "run"
    MERGE_CALL = "merge_call"
    UPDATE = "update"
    VALUES = "values"
    ELEMENT = "element"


class Together(Word):
    """Cells of RESULTS: what the replicas' objects at one leaf become in the result."""

    PER_REPLICA = "PerReplica"
    MIRRORED = "Mirrored"
    NOTHING = "None"
    BARE = "bare"


RESULTS: Table[Leaves, Result, Together] = Table(
    "What replicas return, put together",
    "Rows: what the replicas have at one leaf of a structure; IndexedSlices are arrays.  Columns: results of `run`; "
    "arguments of a `merge_fn`; results of `extended.update`, where the replicas are the copies; values of "
    "`experimental_distribute_values_from_function` and, as tuples, results of an update with `group=False`; elements "
    "of distributed datasets.  Source: tf.distribute.Strategy.run; observed, TensorFlow 2.21.",
    {Together.PER_REPLICA: "a PerReplica", Together.MIRRORED: "a Mirrored", Together.NOTHING: "None",
     Together.BARE: "the object itself, and for a copy of a variable that variable"}, """
                                  run           merge_call    update      values        element
        with one replica          bare          bare          bare        PerReplica    bare
        arrays                    PerReplica    PerReplica    Mirrored    PerReplica    PerReplica
        copies of one variable    bare          bare          bare        PerReplica    PerReplica
        the same object           bare          bare          bare        PerReplica    PerReplica
        other objects             PerReplica    PerReplica    None        PerReplica    PerReplica
    """, rows=Leaves, columns=Result, cells=Together)


class Unwrapped(Word):
    """Rows of LOCAL: what other strategies wrap in a tuple or a PerReplica, and those of one device may not."""

    LOCAL_VALUE = "local results of a distributed value"
    LOCAL_NEST = "local results of a nest"
    FROM_FUNCTION = "values from a function"


class Local(Word):
    """Cells of LOCAL: in which form it is returned."""

    COMPONENTS = "components"
    NEST_EACH = "a nest each"
    BARE = "bare"
    PER_REPLICA = "PerReplica"


LOCAL: Table[Unwrapped, Keeps, Local] = Table(
    "What one device does not wrap",
    "Rows: what `experimental_local_results` returns for a distributed value and for a nest; and what "
    "`experimental_distribute_values_from_function` returns.  Columns: what the strategy keeps of a variable (see "
    "\"Creation of variables\"); strategies of one device know no distributed values.  Source: observed, TensorFlow "
    "2.21.",
    {Local.COMPONENTS: "a tuple of the components on this worker",
     Local.NEST_EACH: "a tuple with a nest for each replica",
     Local.BARE: "the value itself; as local results, in a tuple of length 1", Local.PER_REPLICA: "a PerReplica"}, """
                                            a copy per replica  one copy     one copy, one replica  one device  default
    local results of a distributed value    components          components   components             bare        bare
    local results of a nest                 a nest each         a nest each  a nest each            bare        bare
    values from a function                  PerReplica          PerReplica   PerReplica             bare        bare
    """, rows=Unwrapped, columns=Keeps, cells=Local)

LocalValue = Literal[Local.COMPONENTS, Local.BARE]
LocalNest = Literal[Local.NEST_EACH, Local.BARE]
FromFunction = Literal[Local.PER_REPLICA, Local.BARE]
LOCAL_VALUE: Mapping[Keeps, LocalValue] = LOCAL.row(Unwrapped.LOCAL_VALUE, LocalValue)
LOCAL_NEST: Mapping[Keeps, LocalNest] = LOCAL.row(Unwrapped.LOCAL_NEST, LocalNest)
FROM_FUNCTION: Mapping[Keeps, FromFunction] = LOCAL.row(Unwrapped.FROM_FUNCTION, FromFunction)

# --- Dtypes ------------------------------------------------------------------------------------------------

OTHER_KINDS = "other"


class Use(Word):
    """Rows of DTYPES: what is done with an array, for which not every dtype will do."""

    SUMMED = "summed"
    ORDERED = "ordered"
    SAVED = "saved"


DTYPES: Table[Use, str, Allowed] = Table(
    "Dtypes",
    "Rows: what is added, multiplied or divided, in reductions and in writes to variables; `scatter_min` and "
    "`scatter_max`; checkpoints.  Columns: NumPy's letter for the kind of a dtype: b bool, i int, u uint, f float, c "
    "complex, S bytes, U text.  An extension dtype, such as bfloat16, has the kind of its numbers, except in "
    "checkpoints, which do not hold them.  Source: observed, TensorFlow 2.21.",
    {Permission.OK: "allowed"}, """
                   b       i     u     f     c       S       U       other
        summed     RD23    ok    ok    ok    ok      RD23    RD23    RD23
        ordered    -       ok    ok    ok    RD23    -       -       -
        saved      ok      ok    ok    ok    ok      RD31    RD31    RD31
    """, rows=Use, columns=(*"biufcSU", OTHER_KINDS), cells=Allowed,
    unreached="what cannot be added is refused before it is ordered")


def of_kind(use: Use, kind: str) -> Allowed:
    """The cell of DTYPES for a use of arrays whose dtype has this `kind`, a letter of NumPy's."""
    row = DTYPES[use]
    return row[kind if kind in DTYPES.columns else OTHER_KINDS]


# The dtype of a mean where it is not that of the values.  Source: observed, TensorFlow 2.21.
MEAN_DTYPE: dict[str, Literal["float32", "float64"]] = {
    "int2": "float32", "uint2": "float32", "int4": "float32", "uint4": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64", "int64": "float64", "uint64": "float64",
}
