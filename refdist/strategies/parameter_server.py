"""`ParameterServerStrategy`: variables on parameter servers, functions on workers, one coordinator that schedules them.

Training is asynchronous: functions on several workers run at the same time, each reads and writes the variables when it
gets there, and no one waits for another.  Everything is said by three objects.  The strategy places variables; the
coordinator (`refdist.coordinator`) sends functions to workers; the cluster resolver says how many tasks there are.

Tasks are simulated, unless a launcher has started one process for each of them (`job`).  Simulated ones exist as soon
as the cluster names them, in the process of the coordinator, and nothing has to be started.  An access to a variable is
where the coordinator's simulation may let another function go on; it sets `pause`.  The processes of a job all run the
same program: where this strategy is made, those of workers and parameter servers do their work, and end.

Within a worker everything is as with CentralStorageStrategy: a worker without GPUs has one replica, and its variables
are plain; with several, they aggregate what the replicas of this one worker write.  Nothing is ever reduced over
workers.

Placement is round robin: a counter per strategy, which goes up by one for each variable, or shard of one, whatever its
size.  A variable that is colocated with another one does not count, and is not split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from numpy.typing import DTypeLike

from refdist import config, errors
from refdist.array.convert import dtype_of, to_array
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import check_servers
from refdist.core import context_stack, devices
from refdist.core.callers import require
from refdist.core.integers import as_integer
from refdist.core.rules.calls import Call
from refdist.core.rules.variables import Keeps, Kind
from refdist.input import distributed
from refdist.input.options import InputContext, InputOptions
from refdist.strategies.base import Strategy
from refdist.strategies.extended import StrategyExtended
from refdist.strategies.job import joined
from refdist.variables import creation, served
from refdist.variables.access import foreign
from refdist.variables.operations import declared_shape
from refdist.variables.partitioners import initial_parts, makes_parts, row_counts
from refdist.variables.remote import RemoteVariable
from refdist.variables.sharded import ShardedVariable
from refdist.variables.variable import Variable, as_variable
from refdist.workers.launcher import CHIEF

Partition = Callable[..., object]


class ParameterServerStrategy(Strategy):
    """Asynchronous training with a coordinator, workers and parameter servers.

    Args:
        cluster_resolver: its cluster has workers and parameter servers ("ps"), and perhaps a chief and an evaluator.
            Its number of GPUs is that of each worker, on each of which there is a replica; without GPUs a worker has
            one replica.
        variable_partitioner: called as `partitioner(shape=..., dtype=...)` for each variable of rank 1 or more; it
            returns the number of shards on the first axis, and 1 for all others.  None splits nothing.  Where a
            variable that it splits is given its shape, its dtype, and a function with the parameters `partition_shape`
            and `partition_offset` as its initial value, the function is called once for each shard.

    >>> import refdist
    >>> spec = refdist.train.ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]})
    >>> resolver = refdist.cluster_resolver.SimpleClusterResolver(spec)
    >>> strategy = refdist.ParameterServerStrategy(resolver)
    >>> with strategy.scope():
    ...     v, w = refdist.Variable(1.0), refdist.Variable(2.0)
    >>> v.device, w.device
    ('/job:ps/replica:0/task:0/device:CPU:0', '/job:ps/replica:0/task:1/device:CPU:0')

    Raises:
        SystemExit: this process is a worker or a parameter server, and its coordinator has ended.
        RD17: the cluster is described wrongly, has no worker or no parameter server, or is not the one of the
            processes that were started, which is that of every strategy of the program.
        RD20: in a job, workers with several GPUs.
        RD24: the resolver counts GPUs that the machine does not have.  RD25, RD34: bad arguments.

    Source: tf.distribute.ParameterServerStrategy.
    """

    def __init__(self, cluster_resolver: ClusterResolver, variable_partitioner: Partition | None = None) -> None:
        attempted = "ParameterServerStrategy"
        if not isinstance(cluster_resolver, ClusterResolver):
            raise errors.error("RD25", attempted, f"cluster_resolver is {cluster_resolver!r}",
                               "Pass a refdist.cluster_resolver.ClusterResolver.")
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise errors.error("RD25", attempted, f"variable_partitioner is {variable_partitioner!r}",
                               "Pass one of refdist.experimental.partitioners, or None.")
        self._cluster_resolver = cluster_resolver
        self._coordinator: object = None  # there is one for each strategy
        super().__init__(ParameterServerExtended(self, cluster_resolver, variable_partitioner))

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        raise errors.error("RD10", "copy.deepcopy of a ParameterServerStrategy", "the copy would be another strategy "
                           "with the original's variables", "Make another one from its cluster resolver.")

    def _size(self) -> str:
        counts = [errors.counted(len(self._cluster_resolver.cluster_spec().as_dict().get(job, ())), noun)
                  for job, noun in (("worker", "worker"), ("ps", "parameter server"))]
        return f"one replica on each of {counts[0]}, {counts[1]}"

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The resolver that describes the cluster."""
        return self._cluster_resolver

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[object]],
                                          options: InputOptions | None = None) -> Any:
        """A dataset for `ClusterCoordinator.create_per_worker_dataset`; the function is called on each worker.

        Args:
            dataset_fn: called once on each worker, with its InputContext; returns a dataset.
            options: None, or InputOptions of replication mode PER_WORKER.

        Raises:
            RD25, RD34: bad arguments.

        Source: tf.distribute.ParameterServerStrategy.distribute_datasets_from_function.
        """
        if served.here.worker is not None:
            return super().distribute_datasets_from_function(dataset_fn, options)
        require(self, Call.DATASETS_FROM_FUNCTION)
        checked = distributed.check_function(self, dataset_fn, options)
        return distributed.LateDataset(self, partial(distributed.distribute_from_function, self, dataset_fn, checked))


_KINDS = {**StrategyExtended.kinds, Kind.PLAIN: served.ServedVariable,
          Kind.AGGREGATING: served.ServedAggregatingVariable}


class ParameterServerExtended(StrategyExtended):
    """ParameterServerStrategy's methods.

    Attributes:
        job: what this process is a task of; None where tasks are simulated.
        workers: how many there are.
        lives: how often each of them has been lost.
        lost: the numbers of the parameter servers that are gone.
        pause: called before every access to a variable; None where no coordinator runs functions.
    """

    kinds: Mapping[Kind, type] = _KINDS

    def __init__(self, container_strategy: Strategy, resolver: ClusterResolver, partition: Partition | None) -> None:
        spec = resolver.cluster_spec()
        check_servers(spec, resolver.task_type, resolver.task_id)
        self.job = joined(spec, resolver.task_type or CHIEF, resolver.task_id or 0)
        gpus = resolver.num_accelerators().get("GPU", 0)
        servers = [devices.canonical(f"/job:ps/task:{i}/device:CPU:0") for i in range(spec.num_tasks("ps"))]
        super().__init__(container_strategy, worker_devices=[f"GPU:{i}" for i in range(gpus)] or ["CPU:0"],
                         parameter_devices=servers)
        if self.job is not None:
            self.job.take(container_strategy, spec, self.layout)
            self.kinds = {**_KINDS, Kind.PLAIN: RemoteVariable}
        self._keeps = Keeps.CENTRAL if self.layout.count > 1 else Keeps.LONE_CENTRAL
        self._partition = partition
        self._placed = 0
        self.workers = spec.num_tasks("worker")
        self.lives = [0] * self.workers
        self.lost: set[int] = set()
        self.pause: Callable[[served.Access], None] | None = None

    def visit(self, access: served.Access) -> None:
        """Called before every access to a variable.

        Raises:
            RD33: its server is gone.
        """
        if self.pause is not None:
            self.pause(access)
        if self.lost and devices.parse(access.device).task in self.lost:
            raise served.lost(access.device, str(access))

    def check_reader(self, attempted: str) -> None:
        """Raises unless a worker reads the dataset.

        Raises:
            RD20: this is the coordinator (ValueError).
        """
        if served.here.worker is None:
            raise errors.error("RD20", attempted, "its elements are those of a worker, and this is the coordinator",
                               "Pass the dataset to `ClusterCoordinator.create_per_worker_dataset`, and an iterator of "
                               "that to a scheduled function.", kind=errors.InvalidValueError)

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[Any]:
        """A scope whose new variables are on the server of the given one, whole.

        Raises:
            RD11: a variable of another strategy.  RD09, RD10: wrong context.  RD25: not a variable.
        """
        require(self._strategy, Call.COLOCATE_VARS_WITH)
        variable = as_variable(colocate_with_variable, "colocate_vars_with", "colocate_with_variable")
        if not self.variable_created_in_scope(variable):
            raise foreign(f"colocate_vars_with of variable {variable.name}", variable)
        return creation.variable_creator_scope(
            lambda next_creator, **kwargs: next_creator(**{"colocate_with": variable, **kwargs}))

    def variable_created_in_scope(self, v: object) -> bool:
        """Whether `v`, or its first shard, was created by this strategy.

        Raises:
            RD25: not a variable.
        """
        return super().variable_created_in_scope(v.variables[0] if isinstance(v, ShardedVariable) else v)

    def _create_variable(self, next_creator: Callable[..., object], **kwargs: Any) -> Any:
        if self.job is not None and self.job.task.type != CHIEF:
            raise errors.error("RD20", f"Variable(name={kwargs.get('name')!r})", f"it would be made on {self.job.task} "
                               "alone",
                               "Make variables in the program that schedules the functions.")
        beside = kwargs.get("colocate_with")
        if kwargs.get("per_worker_variable"):
            return self._create_for_workers(next_creator, kwargs)
        if beside is not None:
            return self._create_on(beside.device, next_creator, kwargs)
        if self._partition is None or kwargs.get("initial_value") is None:
            return self._create_on(self._place(), next_creator, kwargs)
        values = self._initial_values(kwargs)
        if len(values) == 1:
            return self._create_on(self._place(), next_creator, kwargs)
        name = (kwargs.get("name") or "Variable").rstrip("/")
        shards = [self._create_on(self._place(), next_creator, {
            **kwargs, "initial_value": value, "shape": None, "name": f"{name}/part_{i}"})
            for i, value in enumerate(values)]
        return ShardedVariable(shards, f"{name}:0")

    def _initial_values(self, kwargs: dict[str, Any]) -> list[Any]:
        # The initial value of each shard, all computed before the first shard is created.  A variable that is not split
        # is created from `kwargs`.
        value, shape, dtype = kwargs["initial_value"], kwargs.get("shape"), kwargs.get("dtype")
        attempted = f"Variable(name={kwargs.get('name')!r})"
        if shape is not None and dtype is not None and makes_parts(value):
            sizes = [as_integer(size) for size in shape] if isinstance(shape, (list, tuple)) else [None]
            whole = tuple([size for size in sizes if size is not None])
            if len(whole) == len(sizes):
                counts = self._counts(whole, dtype, attempted)
                return initial_parts(value, whole, dtype, counts, attempted) if len(counts) > 1 else [value]
        value = kwargs["initial_value"] = value() if callable(value) else value
        if isinstance(value, Variable | ShardedVariable):
            value = kwargs["initial_value"] = value.numpy()
        array = to_array(value, dtype, "initial_value", attempted)
        declared = tuple(array.shape) if shape is None else declared_shape(shape, array.shape, attempted)
        counts = self._counts(array.shape, dtype_of(array) if dtype is None else dtype, attempted)
        if len(counts) > 1 and None in declared:
            raise errors.error("RD34", attempted, f"shape is {shape!r} and the variable has {len(counts)} shards",
                               "Leave the shape out: a variable of changing size cannot be split.")
        return [array[begin:end] for begin, end in pairwise(accumulate(counts, initial=0))] if array.shape else [array]

    def _counts(self, shape: tuple[int, ...], dtype: DTypeLike, attempted: str) -> list[int]:
        # How many rows each shard has.
        if not shape or self._partition is None:
            return [1]
        return row_counts(self._partition(shape=tuple(shape), dtype=dtype), shape[0], attempted)

    def _place(self) -> str:
        # In replicas, which create a variable together, replica 0 chooses.
        frame = context_stack.frame()
        if frame.kind == context_stack.REPLICA and frame.replica_id != 0:
            return self._parameter_devices[0]
        device = self._parameter_devices[self._placed % len(self._parameter_devices)]
        self._placed += 1
        return device

    def _create_on(self, device: str, next_creator: Callable[..., object], kwargs: Mapping[str, object]) -> Any:
        name: Any = kwargs.get("name")
        self.visit(served.Access("create", device, name=name))
        return creation.create(self._strategy, self._keeps, [device], next_creator, kwargs)

    def _create_for_workers(self, next_creator: Callable[..., object], kwargs: Mapping[str, object]) -> Any:
        first_kwargs = {**kwargs, "per_worker_variable": False, "distribute_strategy": None,
                "trainable": bool(kwargs.get("trainable"))}
        with context_stack.pushed(context_stack.frame().with_device(config.check_device(devices.CPU))):
            first: Any = next_creator(**first_kwargs)
        first._created_by = self._strategy
        return served.PerWorkerVariable(first)
