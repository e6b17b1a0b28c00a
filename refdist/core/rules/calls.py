"""Who may call what where."""

from __future__ import annotations

from refdist.core.context_stack import OUTSIDE, SITUATIONS
from refdist.core.rules.table import Table

DEFAULT = "default"
CALLERS = (OUTSIDE, DEFAULT, *SITUATIONS[1:])

CALLS = Table(
    "Calls",
    "Rows: the call.  Columns: the situation of the caller, seen from the strategy that the call is made on.  Outside "
    "every scope the default strategy is current; the column \"default\" is for calls on it and its replica context.  "
    "Source: tf.distribute.get_replica_context, and the pages of the calls; the column \"default\" was "
    "observed, TensorFlow 2.21.",
    {"ok": "allowed", "-": "the default strategy has no logical devices, and no coordinator"}, """
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
    """)

GATHERS, OTHER_CALLS = "gathers", "other calls"

MISMATCH = Table(
    "Calls that do not fit together",
    "Rows: what differs between the calls that replicas, or workers, make at a rendezvous (\"missing\": some of them "
    "have ended), or between the components of a value that is reduced or gathered across replicas.  Columns: whether "
    "arrays are gathered.  Source: refdist's own; in TensorFlow such programs hang, or go on with values that "
    "differ.",
    {"-": "a gather has neither"}, """
                     gathers    other calls
        missing      RD01       RD01
        call         RD02       RD02
        call site    RD06       RD06
        target       -          RD02
        reduce op    -          RD03
        axis         RD03       RD03
        structure    RD21       RD21
        dtype        RD05       RD05
        shape        RD07       RD04
    """)
