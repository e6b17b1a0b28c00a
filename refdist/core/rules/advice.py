"""What to write instead, where it can be said better than in `errors.CATALOGUE`."""

from __future__ import annotations

from refdist.core.context_stack import OUTSIDE, REPLICA, UPDATE, Situation
from refdist.core.rules.calls import Call
from refdist.core.rules.variables import OperationClass

_IN_A_REPLICA = "Call it in the function given to `strategy.run`: every replica has logical devices of its own."

# For calls.
INSTEAD = {
    Call.ASSIGN_TO_LOGICAL_DEVICE: _IN_A_REPLICA,
    Call.SPLIT_TO_LOGICAL_DEVICES: _IN_A_REPLICA,
    Call.REPLICATE_TO_LOGICAL_DEVICES: _IN_A_REPLICA,
    Call.GATHER: "In a replica use `get_replica_context().all_gather(value, axis)`.",
    Call.REDUCE: "In a replica use `get_replica_context().all_reduce(reduce_op, value)`.",
    Call.RUN: "Call the function itself here; or leave the replicas first, with "
              "`get_replica_context().merge_call(...)`, or the update, by returning from its function.",
    Call.GET_NEXT: "Take the element outside and pass it on: `strategy.run(fn, args=(element,))`.",
    Call.SCOPE: "Enter the scope outside `strategy.run` and `strategy.extended.update`.",
    Call.CALL_FOR_EACH_REPLICA: "Call the function itself here.",
    Call.REDUCE_TO: "In a replica use `get_replica_context().all_reduce(reduce_op, value)`, or make this call in "
                          "`get_replica_context().merge_call(...)`.",
    Call.UPDATE: "Finish this update first; its function writes to the copy that it is given, with `assign`.",
    Call.COLOCATE_VARS_WITH: "Enter `with strategy.scope():` first.",
    Call.MERGE_CALL: "Call `get_replica_context()` inside the function given to `strategy.run`.",
}

# By code: the advice for calls of workers that do not fit together; the catalogue's is for replicas.
AMONG_WORKERS = {
    "RD01": "Move the call out of the branch, loop or `try` that only some workers go through.",
    "RD02": "Make the same sequence of calls on every worker.",
    "RD03": "Pass the same reduce op, and the same axis, on every worker.",
    "RD04": "Contribute the same array on every worker, gradients in the same order. Where the number of rows differs, "
            "reduce over the batch first (`axis=0` in `strategy.reduce`), or gather instead.",
    "RD06": "Where every worker comes to both lines, make the calls in the same order on all. Where each comes to one "
            "of them only, write the call once, outside the branch, and let its argument depend on the worker. Where "
            "some come to both, make both calls on all.",
    "RD21": "Use the same nesting of lists, tuples and dicts, with the same keys, on every worker.",
}

# For calls to which replicas bring arrays of different libraries.
ONE_LIBRARY = "Use arrays of one library everywhere, for example `np.asarray(x)`."

# For all_gather on TPUs, whose replicas gather arrays of one shape.
ONE_SHAPE = ("On a TPU replicas gather arrays of one shape: pad or slice them to it; or return them from `run` and "
             "gather them with `strategy.gather`.")

# For reads and writes of a variable: by the code, and the class of the operation or the kind of context.
ADVICE: dict[tuple[str, Situation | OperationClass | None], str] = {
    ("RD12", REPLICA):
        "Reduce the value first: `get_replica_context().all_reduce(\"SUM\", value)` where each replica has its part "
        "of a sum, as after `compute_average_loss`, and \"MEAN\" where each has a mean; or give the variable an "
        "aggregation, SUM or MEAN.",
    ("RD12", OUTSIDE):
        "Reduce the value first: `strategy.reduce(\"SUM\", value, axis=None)` where each replica has its part of a "
        "sum, and \"MEAN\" where each has a mean.",
    ("RD12", UPDATE):
        "Give every copy the same update; reduce per-replica values before it: "
        "`strategy.reduce(\"MEAN\", value, axis=None)`.",
    ("RD13", REPLICA):
        "Create the variable with an aggregation: SUM or MEAN where every replica contributes a part, "
        "ONLY_FIRST_REPLICA where all contribute the same value, as after `all_reduce`, which SUM would multiply.",
    ("RD20", OperationClass.SCATTER): "Assign the whole value instead.",
    ("RD20", OperationClass.PICK): "Use aggregation NONE or ONLY_FIRST_REPLICA, or assign the whole value.",
    ("RD20", OperationClass.BATCH): "Use `scatter_update`.",
}
