"""`breakpoint`: the debugger in one replica, whose prompt says which."""

from __future__ import annotations

import pdb
import sys

from refdist import errors, journal
from refdist.core import context_stack
from refdist.core.integers import integer
from refdist.workers.launcher import WORKER, Task, launched, task_of


def breakpoint(replica: int | None = None) -> None:
    """Stops in pdb in one replica, or in each replica that comes here.

    The others wait meanwhile, as replicas take turns. The prompt says which replica, and which worker where it is not
    the first: `(Pdb replica 2) `. Frames of refdist are skipped, so `next` goes over a collective to the next line.

    Args:
        replica: its number among those of all workers; None for every replica, and for code outside replicas.

    >>> import refdist
    >>> refdist.breakpoint(replica=0)  # outside replicas: passed over

    Raises:
        RD25, RD34: `replica` is not the number of a replica of the strategy.
    """
    frame = context_stack.frame()
    here = None if frame.replica is None else frame.replica.replica_id_in_sync_group
    if replica is not None:
        wanted = integer(replica, "replica", "breakpoint")
        count = 1 if frame.strategy is None else frame.strategy.num_replicas_in_sync
        if here is not None and not 0 <= wanted < count:
            raise errors.error("RD34", "breakpoint", f"replica is {wanted}, and there are {count}",
                               f"Pass a number from 0 to {count - 1}.")
        if here != wanted:
            return
    worker, group = journal.worker.value, launched()
    task = Task(WORKER, worker) if group is None else task_of(worker, group.size)
    who = [str(task)] * bool(worker) + [f"replica {here}"] * (here is not None)
    # Pdb reads standard input, also if that is not a terminal.
    debugger = pdb.Pdb(skip=["refdist", "refdist.*", "abc", "_collections_abc"])
    debugger.prompt = f"(Pdb {', '.join(who)}) " if who else "(Pdb) "
    debugger.set_trace(sys._getframe(1))
