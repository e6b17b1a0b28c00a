"""The tables of rules: what a program may do and what happens then.  Code looks a cell up and carries it out.

A table is text (`table.py`): its rows and columns can be read in the source, and `docs/tables.md` is printed from the
same object, with the sentences that say what rows, columns and actions mean.  A cell is an action or the code of an
error.  Three things keep tables and code from drifting apart:

* There is no second place.  Code that has found its row and column does what the cell says, and asks nothing else.
* A test changes every cell, one at a time, and something that a program sees must change (`tests/cells.py`).
* "-" is a cell that no program reaches, because such calls are refused before it is looked up.

Nothing here touches an array or knows a class.  The advice in messages (what to write instead) is
kept in three places: in `errors.CATALOGUE` if it holds for every error of a code; in `advice.py` if it is for one call,
or one read or write of a variable, that a table refuses; and beside the `raise` if it needs the values found.

Tried: the conditions as `if` statements beside the work, with tables for the largest of them.  Seventy-two cells of
those tables then decided nothing, and three of them were wrong.

Not in the tables, and why.  Checks of one argument (RD24 to RD31, RD17) are where the argument is taken.  Otherwise:

One rule without a second case, shorter as code than as a table:
    core/lockstep.py: rendezvous (after a failure there is no further call)
    core/agreement.py: _difference (which of several differences is reported: the call site first, then the fields)
    core/context_stack.py: Scope.__exit__ (scopes are left in the reverse order)
    core/context_stack.py: situation (a column of the tables: the innermost scope is the strategy's own, or another's)
    array/backend.py: set_backend (not inside a scope)
    strategies/replica_context.py: ReplicaContext._require (a replica's context is that replica's alone)
    strategies/replica_context.py: get_strategy, get_replica_context, in_cross_replica_context (what the stack says)
    strategies/base.py: OneOfAKind.__copy__, OneOfAKind.__reduce_ex__ (a strategy is one object)
    strategies/default.py: DefaultStrategy.__deepcopy__, experimental_set_strategy (the default strategy is one object)
    strategies/default.py: _NoScope, DefaultExtended.colocate_vars_with, DefaultExtended._nowhere (it has no devices)
    strategies/default.py: DefaultStrategy.experimental_distribute_dataset (it returns the dataset)
    strategies/default.py: DefaultStrategy.distribute_datasets_from_function (it returns the dataset)
    strategies/extended.py: StrategyExtended._run (a lone replica runs without lock step)
    strategies/extended.py: StrategyExtended.colocate_vars_with (copies are on the strategy's devices anyway)
    strategies/mirrored.py: MirroredStrategy.__init__, _check (default devices, and NcclAllReduce between GPUs)
    strategies/central_storage.py: CentralStorageStrategy.__init__ (default devices)
    strategies/multi_worker.py: MultiWorkerMirroredExtended.__init__ (devices; RING and NCCL give up the order of a sum)
    strategies/multi_worker.py: _default_resolver, _transport (who the other workers are)
    strategies/reduction.py: Reduction.here (a result without a destination is on the current device)
    strategies/reduction.py: Reduction.reduce_along (a mean along an axis counts every row once)
    strategies/tpu.py: TPUExtended.__init__, TPUExtended._together (a core is a replica; results are arrays)
    strategies/tpu.py: TPUExtended.worker_devices, LogicalDeviceScope.__enter__ (the innermost logical device, else 0)
    strategies/tpu.py: TPUExtended.experimental_logical_device (that it exists)
    strategies/tpu.py: TPUStrategy.experimental_assign_to_logical_device (under SPMD no array is on one device)
    strategies/cross_device_ops.py: destinations_of, _abstract (where results go; what a class must define)
    strategies/cross_device_ops.py: _require_across, _across (not in a replica, whatever the strategy)
    strategies/update.py: Updates.update (in a replica it is a merge_call)
    strategies/update.py: Updates._call_for_each_copy, _the_same (an update is whole, and of one variable)
    variables/values.py: splitter, Mirrored._read (a replica gets its component, other code the first)
    variables/values.py: PerReplica._several, DistributedValues._local (several values are not one)
    array/operators.py: ArrayOperators.__array_ufunc__ (NumPy does not write variables)
    variables/access.py: refused, foreign, different (the words of refusals)
    variables/access.py: write_situation (a column of the tables: a replica is lone where its strategy has no other)
    variables/variable.py: Variable._to_current_device (what is read is on the current device)
    variables/distributed.py: _Shared._local_copy (a replica's own copy is the one with its number, else the first)
    variables/distributed.py: _Shared._write (in replicas and updates: one's component is written, one's copy returned)
    variables/distributed.py: _Shared._settled, _Shared._check_component_write (one copy differs from no other)
    variables/creation.py: create, _check_copies, _take_first_worker_s_value (the initial value is replica 0's)
    variables/creation.py: for_all_replicas (what replicas create together is created once)
    variables/creation.py: default_creator (a variable of each worker needs workers)
    variables/served.py: lost (a parameter server that is gone takes its variables with it)
    variables/served.py: PerWorkerVariable.read_all (a worker does not see what others have of their own)
    strategies/parameter_server.py: ParameterServerExtended._create_variable (the coordinator makes them)
    strategies/parameter_server.py: ParameterServerExtended.check_reader (workers read)
    strategies/parameter_server.py: ParameterServerExtended._place (the next server; replica 0 chooses for all)
    strategies/parameter_server.py: ParameterServerStrategy.__deepcopy__ (there is one coordinator)
    coordinator/cluster.py: Cluster.wait (what is waited for can happen)
    coordinator/closures.py: Closure.cancel (what was stopped is told so)
    coordinator/cluster_coordinator.py: _task, restart_task (only what is simulated; a new parameter server is empty)
    coordinator/values.py: not_on_a_worker, experimental_get_current_worker_index (the coordinator, or a worker)
    coordinator/values.py: PerWorkerIterator._not_here (an iterator is a worker's)
    random/generator.py: Generator._skip, Generator._stream (replicas draw from streams of their own)
    compat/v1/strategies.py: _of_graphs (there are no graphs)
    checkpoints/checkpoint.py: Checkpoint._begin (the first worker that saves to a path writes)
    cluster_resolver/server.py: Server.join (no coordinator connects to another process)
    cluster_resolver/cluster_spec.py: check_cluster (a chief is worker 0, an evaluator is alone, a ps does not train)
    nn.py: compute_average_loss, scale_regularization_loss, _replicas, _weighted (in a replica, by the global number)

Arithmetic and comparisons of arrays, of which a table could only name the function:
    array/convert.py: to_array, cast, _cast_weak, _narrow, _same_kind
    array/placement.py: split, _index (tiles in row-major order)
    cluster_resolver/topology.py, cluster_resolver/device_assignment.py: all
    array/collectives.py: reduce, check_gather, dense, reduce_axes
    array/ordered_sum.py: ordered_sum, _look_for_nan (of two NaNs the first is kept)
    array/transport.py: Transport.check_same_bits
    variables/partitioners.py: initial_parts
    variables/operations.py: prepare, declared_shape, _prepare_slices, _prepare_parts, update
    variables/sharded.py: ShardedVariable._write
    variables/distributed.py: check_equal, _shares, _Shared._update_from_replicas
    variables/values.py: _columns
    random/generator.py: _fitting
    nest.py: pack_sequence_as, assert_same_structure
    input/split.py: split_batch, piece_sizes, split_stream, even_out, _pad, _filler, _check_rank
    input/sharding.py: _batch_size, _sizes, _check_rows, _empty_shares, _empty, empty_of, _in_turn, _places, _owners
    input/sharding.py: _OfBatches._spec_of_piece, _OfBatches.cuts
    input/distributed.py: DistributedIterator._next_of_all (empty elements until the rows of all workers have ended)

Not of tf.distribute, or what one library cannot do: data/, checkpoints/, backends/, config.py, journal.py, insight/,
missing.py, random/state.py, strategies/deprecated.py, strategies/plans.py, strategies/job.py, variables/remote.py,
coordinator/parcels.py, coordinator/processes.py, coordinator/rpc.py, coordinator/tasks.py, __main__.py.
"""

from refdist.core.rules.advice import (
    ADVICE,
    INSTEAD,
)
from refdist.core.rules.calls import (
    CALLERS,
    CALLS,
    DEFAULT,
    GATHERS,
    MISMATCH,
    OTHER_CALLS,
)
from refdist.core.rules.input import (
    ALL_ROWS,
    CUTS,
    DROP,
    EACH_BATCH,
    EQUAL_SHARES,
    EVERY_ROW,
    ITS_FILES,
    ITS_SHARE,
    KEEP,
    MODES,
    PAD,
    ROW_STREAM,
    SHARDING,
    UNEVEN,
    WHOLE,
)
from refdist.core.rules.options import (
    ReduceOp,
    VariableAggregation,
    VariableSynchronization,
    reduce_op,
    settled,
)
from refdist.core.rules.table import (
    Table,
    is_code,
)
from refdist.core.rules.values import (
    AGREEMENT,
    ALONG,
    ARRAYS,
    BARE,
    COMPONENTS,
    COPIES_OF_ONE,
    DTYPES,
    EACH,
    ELEMENT,
    FROM_FUNCTION,
    GATHER,
    ITSELF,
    LOCAL,
    LOCAL_NEST,
    LOCAL_VALUE,
    MEAN_DTYPE,
    MERGE,
    MIRRORED_VALUE,
    NEST_EACH,
    NOT_DISTRIBUTED,
    NOTHING,
    OBJECTS,
    OF_WORKERS,
    ONE_REPLICA,
    ORDERED,
    OTHER_KINDS,
    PER_REPLICA,
    REDUCE,
    RESULTS,
    RUN,
    SAME_OBJECT,
    SAVED,
    SUMMED,
    UPDATED,
    VALUES,
    of_kind,
)
from refdist.core.rules.variables import (
    A_READ,
    ADD,
    AGGREGATING,
    AGREED,
    ALL_COPIES,
    ASKED,
    ASSIGN,
    BATCH_SCATTER,
    CENTRAL,
    CLASSES,
    COPIES,
    COPIES_DIFFER,
    CREATION,
    EVERY_COPY,
    FIRST_COPY,
    FOREIGN_UPDATES,
    FOREIGN_WRITES,
    INTEGER_MEAN,
    KINDS,
    LONE_CENTRAL,
    LONE_REPLICA,
    MEAN,
    MIRRORED,
    NO,
    OK,
    ON_READ,
    ONE_COPY_ALONE,
    ONE_DEVICE,
    OPERATIONS,
    OWN_COPY,
    PARTS_DIFFER,
    PLAIN,
    READS,
    READS_OF,
    REPLICA_0,
    RETURNS,
    SCATTER,
    SCATTER_PICK,
    SHARED_OUT,
    SUM,
    SYNCHRONIZATION,
    TRAINABLE,
    TRAITS,
    WRITES,
    WRITES_OF,
    YES,
)

__all__ = [
    "ADD",
    "ADVICE",
    "AGGREGATING",
    "AGREED",
    "AGREEMENT",
    "ALL_COPIES",
    "ALL_ROWS",
    "ALONG",
    "ARRAYS",
    "ASKED",
    "ASSIGN",
    "A_READ",
    "BARE",
    "BATCH_SCATTER",
    "CALLERS",
    "CALLS",
    "CENTRAL",
    "CLASSES",
    "COMPONENTS",
    "COPIES",
    "COPIES_DIFFER",
    "COPIES_OF_ONE",
    "CREATION",
    "CUTS",
    "DEFAULT",
    "DROP",
    "DTYPES",
    "EACH",
    "EACH_BATCH",
    "ELEMENT",
    "EQUAL_SHARES",
    "EVERY_COPY",
    "EVERY_ROW",
    "FIRST_COPY",
    "FOREIGN_UPDATES",
    "FOREIGN_WRITES",
    "FROM_FUNCTION",
    "GATHER",
    "GATHERS",
    "INSTEAD",
    "INTEGER_MEAN",
    "ITSELF",
    "ITS_FILES",
    "ITS_SHARE",
    "KEEP",
    "KINDS",
    "LOCAL",
    "LOCAL_NEST",
    "LOCAL_VALUE",
    "LONE_CENTRAL",
    "LONE_REPLICA",
    "MEAN",
    "MEAN_DTYPE",
    "MERGE",
    "MIRRORED",
    "MIRRORED_VALUE",
    "MISMATCH",
    "MODES",
    "NEST_EACH",
    "NO",
    "NOTHING",
    "NOT_DISTRIBUTED",
    "OBJECTS",
    "OF_WORKERS",
    "OK",
    "ONE_COPY_ALONE",
    "ONE_DEVICE",
    "ONE_REPLICA",
    "ON_READ",
    "OPERATIONS",
    "ORDERED",
    "OTHER_CALLS",
    "OTHER_KINDS",
    "OWN_COPY",
    "PAD",
    "PARTS_DIFFER",
    "PER_REPLICA",
    "PLAIN",
    "READS",
    "READS_OF",
    "REDUCE",
    "REPLICA_0",
    "RESULTS",
    "RETURNS",
    "ROW_STREAM",
    "RUN",
    "ReduceOp",
    "SAME_OBJECT",
    "SAVED",
    "SCATTER",
    "SCATTER_PICK",
    "SHARDING",
    "SHARED_OUT",
    "SUM",
    "SUMMED",
    "SYNCHRONIZATION",
    "TRAINABLE",
    "TRAITS",
    "Table",
    "UNEVEN",
    "UPDATED",
    "VALUES",
    "VariableAggregation",
    "VariableSynchronization",
    "WHOLE",
    "WRITES",
    "WRITES_OF",
    "YES",
    "is_code",
    "of_kind",
    "reduce_op",
    "settled",
]
