"""Who may call what where, and which error replicas get that do not make the same call."""

from __future__ import annotations

from refdist.core.context_stack import DEFAULT, OUTSIDE, SITUATIONS, Situation
from refdist.core.rules.table import Allowed, Permission, Refusal, Table, Word

CALLERS = (OUTSIDE, DEFAULT, *SITUATIONS[1:])


class Call(Word):
    """Calls that are allowed in some situations only: rows of CALLS.  The values are their names in messages."""

    SCOPE = "Strategy.scope"
    RUN = "Strategy.run"
    REDUCE = "Strategy.reduce"
    GATHER = "Strategy.gather"
    DISTRIBUTE_DATASET = "experimental_distribute_dataset"
    DATASETS_FROM_FUNCTION = "distribute_datasets_from_function"
    LOCAL_RESULTS = "experimental_local_results"
    VALUES_FROM_FUNCTION = "experimental_distribute_values_from_function"
    GET_NEXT = "DistributedIterator.get_next"
    SCHEDULE = "ClusterCoordinator.schedule"
    REDUCE_TO = "extended.reduce_to"
    BATCH_REDUCE_TO = "extended.batch_reduce_to"
    BROADCAST_TO = "extended.broadcast_to"
    CALL_FOR_EACH_REPLICA = "extended.call_for_each_replica"
    UPDATE = "extended.update"
    UPDATE_NON_SLOT = "extended.update_non_slot"
    COLOCATE_VARS_WITH = "extended.colocate_vars_with"
    ASSIGN_TO_LOGICAL_DEVICE = "experimental_assign_to_logical_device"
    SPLIT_TO_LOGICAL_DEVICES = "experimental_split_to_logical_devices"
    REPLICATE_TO_LOGICAL_DEVICES = "experimental_replicate_to_logical_devices"
    MERGE_CALL = "ReplicaContext.merge_call"
    ALL_REDUCE = "ReplicaContext.all_reduce"
    ALL_GATHER = "ReplicaContext.all_gather"
    DEVICES = "ReplicaContext.devices"


CALLS: Table[Call, Situation, Allowed] = Table(
    "Calls",
    "Rows: the call.  Columns: the situation of the caller, seen from the strategy that the call is made on.  Outside "
    "every scope the default strategy is current; the column \"default\" is for calls on it and its replica context.  "
    "Source: tf.distribute.get_replica_context, and the pages of the calls; the column \"default\" was "
    "observed, TensorFlow 2.21.",
    {Permission.OK: "allowed"}, """
                                                  outside  default  cross  update  replica  other cross  other replica
    Strategy.scope                                ok       ok       ok     RD09    RD09     RD10         RD10
    Strategy.run                                  ok       ok       ok     RD09    RD09     RD10         RD10
    Strategy.reduce                               ok       ok       ok     ok      RD09     RD10         RD10
    Strategy.gather                               ok       ok       ok     ok      RD09     RD10         RD10
    experimental_distribute_dataset               ok       ok       ok     ok      ok       ok           ok
    distribute_datasets_from_function             ok       ok       ok     ok      ok       ok           ok
    experimental_local_results                    ok       ok       ok     ok      ok       ok           ok
    experimental_distribute_values_from_function  ok       ok       ok     ok      ok       ok           ok
    DistributedIterator.get_next                  ok       ok       ok     ok      RD09     RD10         RD10
    ClusterCoordinator.schedule                   ok       -        ok     RD09    RD09     RD10         RD10
    extended.reduce_to                            ok       ok       ok     ok      RD09     RD10         RD10
    extended.batch_reduce_to                      ok       ok       ok     ok      RD09     RD10         RD10
    extended.broadcast_to                         ok       ok       ok     ok      RD09     RD10         RD10
    extended.call_for_each_replica                ok       ok       ok     RD09    RD09     RD10         RD10
    extended.update                               ok       ok       ok     RD09    ok       RD10         RD10
    extended.update_non_slot                      ok       ok       ok     RD09    RD09     RD10         RD10
    extended.colocate_vars_with                   RD09     ok       ok     ok      ok       RD10         RD10
    experimental_assign_to_logical_device         RD09     -        RD09   RD09    ok       RD10         RD10
    experimental_split_to_logical_devices         RD09     -        RD09   RD09    ok       RD10         RD10
    experimental_replicate_to_logical_devices     RD09     -        RD09   RD09    ok       RD10         RD10
    ReplicaContext.merge_call                     RD09     ok       RD09   RD09    ok       RD10         RD10
    ReplicaContext.all_reduce                     RD09     ok       RD09   RD09    ok       RD10         RD10
    ReplicaContext.all_gather                     RD09     ok       RD09   RD09    ok       RD10         RD10
    ReplicaContext.devices                        RD09     ok       RD09   RD09    ok       RD10         RD10
    """, rows=Call, columns=CALLERS, cells=Allowed,
    unreached="the default strategy has no logical devices, and no coordinator")


class Difference(Word):
    """Rows of MISMATCH: in what the calls of replicas, or workers, differ.  The values are words in messages."""

    MISSING = "missing"
    CALL = "call"
    CALL_SITE = "call site"
    TARGET = "target"
    REDUCE_OP = "reduce op"
    AXIS = "axis"
    STRUCTURE = "structure"
    LIBRARY = "library"
    DTYPE = "dtype"
    SHAPE = "shape"


class Combining(Word):
    """Columns of MISMATCH: whether a call gathers arrays, which may then differ in one dimension."""

    GATHERS = "gathers"
    OTHER_CALLS = "other calls"


MISMATCH: Table[Difference, Combining, Refusal] = Table(
    "Calls that do not fit together",
    "Rows: what differs between the calls that replicas, or workers, make at a rendezvous (\"missing\": some of them "
    "have ended), or between the components of a value that is reduced or gathered across replicas.  Columns: whether "
    "arrays are gathered.  Source: refdist's own; in TensorFlow such programs hang, or go on with values that "
    "differ.",
    {}, """
                     gathers    other calls
        missing      RD01       RD01
        call         RD02       RD02
        call site    RD06       RD06
        target       -          RD02
        reduce op    -          RD03
        axis         RD03       RD03
        structure    RD21       RD21
        library      RD05       RD05
        dtype        RD05       RD05
        shape        RD07       RD04
    """, rows=Difference, columns=Combining, cells=Refusal, unreached="a gather has neither")

_GATHERS = ("all_gather", Call.GATHER.value)


def combining(kind: str) -> Combining:
    """The column of MISMATCH for a kind of `CollectiveCall`."""
    return Combining.GATHERS if kind in _GATHERS else Combining.OTHER_CALLS
