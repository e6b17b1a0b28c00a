"""What becomes of values: of those that are reduced or gathered, and of what replicas return."""

from __future__ import annotations

from refdist.core.rules.table import Table

# --- Reducing and gathering ----------------------------------------------------------------------------------

NOT_DISTRIBUTED, PER_REPLICA, MIRRORED_VALUE = "not distributed", "PerReplica", "Mirrored"
ALONG, GATHER = "along an axis", "gather"
EACH, AGREEMENT, ITSELF, OF_WORKERS = "each", "agreed", "itself", "of workers"

REDUCE = Table(
    "Reducing and gathering",
    "Rows: the value, and how many replicas there are: one in all, one on each of several workers, or several on a "
    "worker.  Variables with one copy are not distributed.  Columns: SUM and MEAN across replicas (`Strategy.reduce` "
    "with `axis=None`, `reduce_to`, `batch_reduce_to`), both along an axis too, and `Strategy.gather`.  A value "
    "that is not distributed is the replica's own where a worker has one; where it has several, they share it, and a "
    "sum would count it as often as there are replicas; gathered is what each worker has.  Source: "
    "tf.distribute.Strategy.reduce; observed, TensorFlow 2.21.",
    {EACH: "every replica contributes its component, or the value where there are no components",
     AGREEMENT: "the value, which must have the same bits on all workers",
     ITSELF: "the value, which is the only one, or whose copies are equal",
     OF_WORKERS: "the mean of what the workers have, or that of each worker; of one worker it is the value"}, """
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
    """)

# --- Results -------------------------------------------------------------------------------------------------

ONE_REPLICA, ARRAYS, COPIES_OF_ONE, SAME_OBJECT, OBJECTS = (
    "with one replica", "arrays", "copies of one variable", "the same object", "other objects")
RUN, MERGE, UPDATED, VALUES, ELEMENT = "run", "merge_call", "update", "values", "element"
BARE, NOTHING = "bare", "None"

RESULTS = Table(
    "What replicas return, put together",
    "Rows: what the replicas have at one leaf of a structure; IndexedSlices are arrays.  Columns: results of `run`; "
    "arguments of a `merge_fn`; results of `extended.update`, where the replicas are the copies; values of "
    "`experimental_distribute_values_from_function` and, as tuples, results of an update with `group=False`; elements "
    "of distributed datasets.  Source: tf.distribute.Strategy.run; observed, TensorFlow 2.21.",
    {PER_REPLICA: "a PerReplica", MIRRORED_VALUE: "a Mirrored", NOTHING: "None",
     BARE: "the object itself, and for a copy of a variable that variable"}, """
                                  run           merge_call    update      values        element
        with one replica          bare          bare          bare        PerReplica    bare
        arrays                    PerReplica    PerReplica    Mirrored    PerReplica    PerReplica
        copies of one variable    bare          bare          bare        PerReplica    PerReplica
        the same object           bare          bare          bare        PerReplica    PerReplica
        other objects             PerReplica    PerReplica    None        PerReplica    PerReplica
    """)

LOCAL_VALUE, LOCAL_NEST, FROM_FUNCTION = (
    "local results of a distributed value", "local results of a nest", "values from a function")
COMPONENTS, NEST_EACH = "components", "a nest each"

LOCAL = Table(
    "What one device does not wrap",
    "Rows: what `experimental_local_results` returns for a distributed value and for a nest; and what "
    "`experimental_distribute_values_from_function` returns.  Columns: what the strategy keeps of a variable (see "
    "\"Creation of variables\"); strategies of one device know no distributed values.  Source: observed, TensorFlow "
    "2.21.",
    {COMPONENTS: "a tuple of the components on this worker", NEST_EACH: "a tuple with a nest for each replica",
     BARE: "the value itself; as local results, in a tuple of length 1", PER_REPLICA: "a PerReplica"}, """
                                            a copy per replica  one copy     one copy, one replica  one device  default
    local results of a distributed value    components          components   components             bare        bare
    local results of a nest                 a nest each         a nest each  a nest each            bare        bare
    values from a function                  PerReplica          PerReplica   PerReplica             bare        bare
    """)

# --- Dtypes ------------------------------------------------------------------------------------------------

SUMMED, ORDERED, SAVED = "summed", "ordered", "saved"
OTHER_KINDS = "other"

DTYPES = Table(
    "Dtypes",
    "Rows: what is added, multiplied or divided, in reductions and in writes to variables; `scatter_min` and "
    "`scatter_max`; checkpoints.  Columns: NumPy's letter for the kind of a dtype: b bool, i int, u uint, f float, c "
    "complex, S bytes, U text.  An extension dtype, such as bfloat16, has the kind of its numbers, except in "
    "checkpoints, which do not hold them.  Source: observed, TensorFlow 2.21.",
    {"ok": "allowed", "-": "what cannot be added is refused before it is ordered"}, """
                   b       i     u     f     c       S       U       other
        summed     RD23    ok    ok    ok    ok      RD23    RD23    RD23
        ordered    -       ok    ok    ok    RD23    -       -       -
        saved      ok      ok    ok    ok    ok      RD31    RD31    RD31
    """)


def of_kind(operation: str, kind: str) -> str:
    """The cell of DTYPES for a letter."""
    row = DTYPES[operation]
    return row[kind] if kind in row else row[OTHER_KINDS]


# The dtype of a mean where it is not that of the values.  Source: observed, TensorFlow 2.21.
MEAN_DTYPE = {
    "int2": "float32", "uint2": "float32", "int4": "float32", "uint4": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64", "int64": "float64", "uint64": "float64",
}
