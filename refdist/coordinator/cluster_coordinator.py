"""`ClusterCoordinator`: schedules functions on the workers of a ParameterServerStrategy.

What happens to a function is in `functions`; here are the calls that users make, with their checks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refdist import errors, nest
from refdist.coordinator.choices import disturbed
from refdist.coordinator.closures import Closure, name_of
from refdist.coordinator.cluster import Cluster
from refdist.coordinator.functions import Functions
from refdist.coordinator.processes import Processes
from refdist.coordinator.values import PerWorkerDataset, RemoteValue, not_on_a_worker
from refdist.core import call_site
from refdist.core.callers import require
from refdist.core.integers import as_integer
from refdist.core.rules.calls import Call
from refdist.strategies.parameter_server import ParameterServerExtended, ParameterServerStrategy
from refdist.strategies.replica_context import call_arguments

# The length of the queue at which `schedule` blocks.
QUEUE_LIMIT = 262144

_making = threading.RLock()  # held while a thread makes a coordinator, and the workers that all of them share


class ClusterCoordinator:
    """Sends functions to workers, where they run when there is time, and collects their results.

    There is one for each strategy: a second call returns the same object.

    Args:
        strategy: a ParameterServerStrategy.

    >>> import refdist
    >>> spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
    >>> strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
    >>> with strategy.scope():
    ...     v = refdist.Variable(0.0)
    >>> coordinator = refdist.coordinator.ClusterCoordinator(strategy)
    >>> values = [coordinator.schedule(v.assign_add, args=(1.0,)) for _ in range(3)]
    >>> coordinator.join()
    >>> coordinator.fetch(values), float(v)
    ([np.float32(1.0), np.float32(2.0), np.float32(3.0)], 3.0)

    Raises:
        RD25: not a ParameterServerStrategy.

    Source: tf.distribute.coordinator.ClusterCoordinator.
    """

    _strategy: ParameterServerStrategy
    _cluster: Functions

    def __new__(cls, strategy: ParameterServerStrategy) -> ClusterCoordinator:
        if not isinstance(strategy, ParameterServerStrategy):
            raise errors.error("RD34", "ClusterCoordinator", f"strategy is {errors.type_of(strategy)}",
                               "Pass a refdist.ParameterServerStrategy.")
        with _making:
            known = strategy._coordinator
            if isinstance(known, cls):
                return known
            made = super().__new__(cls)
            made._strategy = strategy
            extended = strategy.extended
            assert isinstance(extended, ParameterServerExtended)
            made._cluster = Cluster(extended) if extended.job is None else Processes(extended, extended.job)
            strategy._coordinator = made
            return made

    def __init__(self, strategy: ParameterServerStrategy) -> None: ...

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy."""
        return self._strategy

    def schedule(self, fn: Callable[..., object], args: Sequence[object] | None = None,
                 kwargs: Mapping[str, object] | None = None) -> RemoteValue:
        """Puts a function at the end of the queue; a worker takes it when it is free.

        The function runs in the strategy's scope.  It may run more than once, from its beginning, if the worker is
        lost that carries it out.

        Args:
            fn: any function.
            args, kwargs: its arguments.  Of a PerWorkerValue, such as an iterator over a per-worker dataset, it gets
                the worker's own.  Arrays are copied, unless they are read-only.

        Returns:
            The result, to be fetched.

        Raises:
            The error of an earlier function, once; all functions are then stopped and dropped, this one too.
            RD09: in a replica, or in a scheduled function.  RD10: in the scope of another strategy.
            RD25, RD34: not a function, or a RemoteValue among the arguments.
            RD32: the program was interrupted while a function ran.  RD33: the queue is full, and no worker is left.

        Source: tf.distribute.coordinator.ClusterCoordinator.schedule.
        """
        attempted = Call.SCHEDULE.value
        not_on_a_worker(attempted)
        require(self._strategy, Call.SCHEDULE)
        if not callable(fn):
            raise errors.error("RD25", attempted, f"fn is {fn!r}", "Pass a function.")
        cluster = self._cluster
        call = cluster.bound(fn, *call_arguments(() if args is None else args, kwargs, attempted))
        site = call_site.of(sys._getframe(1))
        closure = Closure(call, name_of(fn), site[0] if site else None)
        cluster.check(attempted)
        if len(cluster.queue) >= QUEUE_LIMIT:
            cluster.wait(lambda: len(cluster.queue) < QUEUE_LIMIT or cluster.error is not None, attempted)
        cluster.scheduling()
        cluster.add(closure, site)
        cluster.raise_error()
        cluster.scheduled()
        return RemoteValue(closure, cluster)

    def join(self) -> None:
        """Waits until all functions have ended.

        Raises:
            The first error of a function, once; all others are then stopped and dropped.
            RD09: in a scheduled function, or in a signal handler that has interrupted another call of the coordinator.
            RD32: the program was interrupted while a function ran.  RD33: no worker is left.

        Source: tf.distribute.coordinator.ClusterCoordinator.join.
        """
        attempted = "ClusterCoordinator.join"
        not_on_a_worker(attempted)
        cluster = self._cluster
        cluster.check(attempted)
        cluster.wait_for_all(attempted)

    def done(self) -> bool:
        """Whether all functions have ended; if not, one goes on before it returns, so that a loop comes to an end.

        Raises:
            As `join`.

        Source: tf.distribute.coordinator.ClusterCoordinator.done.
        """
        attempted = "ClusterCoordinator.done"
        not_on_a_worker(attempted)
        cluster = self._cluster
        cluster.check(attempted)
        idle = cluster.idle  # before the error is looked for, which the last function may raise in between
        cluster.raise_error()
        if idle:
            return True
        cluster.step()
        return False

    def fetch(self, val: object) -> Any:
        """The same structure with the results in place of RemoteValues, for which it waits.

        Args:
            val: a RemoteValue, or a nest with some.

        Raises:
            As `RemoteValue.fetch`.

        Source: tf.distribute.coordinator.ClusterCoordinator.fetch.
        """
        return nest.map_structure(lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, val)

    def create_per_worker_dataset(self, dataset_fn: object) -> PerWorkerDataset:
        """A dataset for each worker; an iterator over it is an argument for scheduled functions.

        Every worker reads the whole dataset, from its beginning.  To give each a part, ask
        `experimental_get_current_worker_index` in the function.

        Args:
            dataset_fn: a function without arguments, called once for each worker; or a dataset, which may be one that
                the strategy has distributed over the replicas of a worker.

        >>> import refdist
        >>> spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]})
        >>> strategy = refdist.ParameterServerStrategy(refdist.cluster_resolver.SimpleClusterResolver(spec))
        >>> coordinator = refdist.coordinator.ClusterCoordinator(strategy)
        >>> iterator = iter(coordinator.create_per_worker_dataset(lambda: refdist.data.Dataset.range(5)))
        >>> values = [coordinator.schedule(next, args=(iterator,)) for _ in range(4)]
        >>> coordinator.join()
        >>> [int(value.fetch()) for value in values]
        [0, 0, 1, 1]

        Raises:
            RD25: not a dataset, nor a function that returns one.  Whatever the function raises.
            RD09: in a scheduled function.

        Source: tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
        """
        not_on_a_worker("ClusterCoordinator.create_per_worker_dataset")
        return self._cluster.per_worker_dataset(dataset_fn)


def stop_task(coordinator: ClusterCoordinator, task_type: str, task_id: int, after: int | None = 0) -> None:
    """Makes a simulated task be lost, as if its process had been killed.

    A worker's function begins again on another worker, and iterators and variables of the worker are gone.  A parameter
    server's variables are gone: each access to them is RD33.

    Args:
        coordinator: whose task it is.
        task_type, task_id: "worker" or "ps", and its number.
        after: 0 for now (while another thread waits for functions, for the moment before the next access); a number n
            for the moment before access n + 1 from now, of functions on the worker, or to variables of the server; None
            for a moment that `interleaving` chooses, if it chooses one.

    Raises:
        RD09: in a scheduled function.  RD17: there is no such task.  RD20: it is a process.  RD25, RD34: `after` is not
        an int of 0 or more, nor None.
    """
    cluster, task = _task(coordinator, "stop_task", task_type, task_id)
    accesses = as_integer(after)
    if after is not None and (accesses is None or accesses < 0):
        raise errors.error("RD25", "stop_task", f"after is {after!r}", "Pass an int of 0 or more, or None.")
    disturbed("a task is lost")
    cluster.stop(task, accesses)


def restart_task(coordinator: ClusterCoordinator, task_type: str, task_id: int) -> None:
    """Starts a lost worker again; it has new iterators, and its variables have their initial values.

    A parameter server that is started again is empty, and the variables of the strategy stay lost: make the strategy
    again, and restore a checkpoint.

    Args:
        coordinator: of the strategy whose worker was lost.
        task_type: "worker".
        task_id: the number of the worker, from 0.

    Raises:
        RD09: in a scheduled function.  RD17: there is no such worker.  RD20: it is a parameter server, or a process.
    """
    cluster, (kind, number) = _task(coordinator, "restart_task", task_type, task_id)
    if kind == "ps":
        raise errors.error("RD20", "restart_task", "a parameter server that is started again has none of its variables",
                           "Make the strategy again, and restore a checkpoint.")
    cluster.restart(number)


def _task(coordinator: ClusterCoordinator, attempted: str, task_type: str, task_id: int
          ) -> tuple[Cluster, tuple[str, int]]:
    not_on_a_worker(attempted)  # it would wait for the coordinator, which waits for the function
    cluster = coordinator._cluster
    if not isinstance(cluster, Cluster):
        fix = ("Send it a signal." if attempted == "stop_task" else "Start the job by `python -m refdist launch "
               "--max-restarts 3`: a worker that was lost then comes back by itself.")
        raise errors.error("RD20", attempted, f"{task_type} {task_id} is a process", fix)
    spec = coordinator.strategy.cluster_resolver.cluster_spec()
    number = as_integer(task_id)
    if task_type not in ("worker", "ps") or number is None or number not in spec.task_indices(task_type):
        raise errors.error("RD17", attempted, f"{spec} has no {task_type} {task_id} that can be lost",
                           'Pass "worker" or "ps", and the number of one.')
    return cluster, (task_type, number)
