"""What to write instead, where it can be said better than in `errors.CATALOGUE`."""

from __future__ import annotations

from refdist.core.context_stack import OUTSIDE, REPLICA, UPDATE
from refdist.core.rules.variables import BATCH_SCATTER, SCATTER, SCATTER_PICK

_IN_A_REPLICA = "Call it in the function given to `strategy.run`: every replica has logical devices of its own."

# For calls.
INSTEAD = {
    "experimental_assign_to_logical_device": _IN_A_REPLICA,
    "experimental_split_to_logical_devices": _IN_A_REPLICA,
    "experimental_replicate_to_logical_devices": _IN_A_REPLICA,
    "Strategy.gather": "In a replica use `get_replica_context().all_gather(value, axis)`.",
    "Strategy.reduce": "In a replica use `get_replica_context().all_reduce(reduce_op, value)`.",
    "Strategy.run": "Call the function itself, here, or leave the replicas first, by "
                    "`get_replica_context().merge_call(...)`.",
    "DistributedIterator.get_next": "Take the element outside and pass it on: `strategy.run(fn, args=(element,))`.",
    "Strategy.scope": "Enter the scope outside `strategy.run` and `strategy.extended.update`.",
    "extended.call_for_each_replica": "Call the function itself, here.",
    "extended.reduce_to": "In a replica use `get_replica_context().all_reduce(reduce_op, value)`, or make this call in "
                          "`get_replica_context().merge_call(...)`.",
    "extended.update": "Finish this update first; its function writes to the copy that it is given, by `assign`.",
    "extended.colocate_vars_with": "Enter `with strategy.scope():` first.",
    "ReplicaContext.merge_call": "Call `get_replica_context()` inside the function given to `strategy.run`.",
}

# For reads and writes of a variable: by the code, and the class of the operation or the kind of context.
ADVICE = {
    ("RD12", REPLICA):
        "Reduce the value first, for example `get_replica_context().all_reduce(\"MEAN\", value)`, or give the "
        "variable an aggregation (SUM, MEAN, ONLY_FIRST_REPLICA).",
    ("RD12", OUTSIDE):
        "Reduce the value first: `strategy.reduce(\"MEAN\", value, axis=None)`.",
    ("RD12", UPDATE):
        "Give every copy the same update; reduce per-replica values before it: "
        "`strategy.reduce(\"MEAN\", value, axis=None)`.",
    ("RD13", REPLICA):
        "Create the variable with an aggregation: SUM or MEAN where every replica contributes a part, "
        "ONLY_FIRST_REPLICA where all contribute the same value, as after `all_reduce`, which SUM would multiply.",
    ("RD20", SCATTER): "Assign the whole value instead.",
    ("RD20", SCATTER_PICK): "Use aggregation NONE or ONLY_FIRST_REPLICA, or assign the whole value.",
    ("RD20", BATCH_SCATTER): "Use `scatter_update`.",
}
