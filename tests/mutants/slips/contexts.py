"""Slips in contexts, in making strategies, and in cluster resolvers."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import islice
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import refdist
from mutants.slips import instead, slip
from refdist import (
    CentralStorageStrategy,
    CrossDeviceOps,
    DistributedIterator,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    OneDeviceStrategy,
    ReplicaContext,
    Strategy,
    StrategyExtended,
    config,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    nest,
)
from refdist.cluster_resolver import (
    ClusterResolver,
    GCEClusterResolver,
    KubernetesClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    UnionResolver,
)
from refdist.errors import DuplicateKeyError, InvalidContextError, InvalidValueError
from refdist.train import ClusterSpec

# --- Contexts ----------------------------------------------------------------------------------------------------


def _scopes(enter: Callable[..., Any] | None = None, leave: Callable[..., Any] | None = None) -> None:
    """What `Strategy.scope` returns is entered and left by these functions, also where it is the default strategy's."""
    scope = type(OneDeviceStrategy("CPU:0").scope())
    for name, function in (("__enter__", enter), ("__exit__", leave)):
        for owner in (scope, *(subclass for subclass in scope.__subclasses__() if name in vars(subclass))):
            if function is not None:
                instead(owner, name)(function)


def _runs_in_replica(strategy: Strategy) -> bool:
    """Whether the code that asks is a replica of this strategy."""
    context = get_replica_context()
    return has_strategy() and context is not None and context.strategy is strategy


def _allowed_in_replicas(name: str) -> None:
    """A replica may call a method of its strategy: all replicas call it, and it gets what `merge_call` makes of their
    arguments; of the first one, a function or an op, it gets that of replica 0."""
    @instead(Strategy, name)
    def call(right: Any, self: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        if not _runs_in_replica(self):
            return right(self, first, *args, **kwargs)

        def merge(strategy: Any, *args: Any, **kwargs: Any) -> Any:
            return right(strategy, first, *args, **kwargs)

        context: Any = get_replica_context()
        return context.merge_call(merge, args, kwargs)


@slip("outside any scope is across replicas", "contexts.outside-is-the-default-replica")
def _() -> None:
    outside = get_replica_context()

    @instead(refdist, "in_cross_replica_context")
    def in_cross_replica_context(right: Any) -> Any:
        return right() or get_replica_context() is outside


@slip("outside any scope there is no replica context", "contexts.collectives-outside")
def _() -> None:
    outside = get_replica_context()

    @instead(refdist, "get_replica_context")
    def get_context(right: Any) -> Any:
        context = right()
        return None if context is outside else context


@slip("in a replica there is no strategy", "contexts.run-is-a-replica-context")
def _() -> None:
    @instead(refdist, "has_strategy")
    def has_strategy(right: Any) -> Any:
        return right() and in_cross_replica_context()


@slip("the scope of a strategy with one replica is in that replica", "contexts.scope-is-across-replicas")
def _() -> None:
    @instead(refdist, "get_replica_context")
    def get_context(right: Any) -> Any:
        context, strategy = right(), get_strategy()
        return ReplicaContext(strategy, 0) if context is None and strategy.num_replicas_in_sync == 1 else context


@slip("a scope binds nothing", "contexts.scope-yields-the-strategy")
def _() -> None:
    def enter(right: Any, self: Any) -> None:
        right(self)

    _scopes(enter)


@slip("leaving a scope leads out of all scopes", "contexts.a-scope-nests-in-itself")
def _() -> None:
    opened: WeakKeyDictionary[Strategy, list[Any]] = WeakKeyDictionary()

    def enter(right: Any, self: Any) -> Any:
        strategy = right(self)
        opened.setdefault(strategy, []).append(self)
        return strategy

    def leave(right: Any, self: Any, *error: Any) -> None:
        scopes = opened.get(get_strategy(), [])
        while scopes:
            right(scopes.pop(), *error)

    _scopes(enter, leave)


@slip("a scope that an exception leaves stays open", "contexts.an-exception-leaves-the-scope")
def _() -> None:
    def leave(right: Any, self: Any, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            right(self, kind, error, trace)

    _scopes(leave=leave)


@slip("in a scope the scope of another strategy may be entered", "contexts.scopes-of-two-strategies-do-not-nest")
def _() -> None:
    # The scopes of a strategy that are open, and those that were left for as long as another strategy's is open.
    opened: WeakKeyDictionary[Strategy, list[Any]] = WeakKeyDictionary()
    left: dict[Any, list[Any]] = {}

    def enter(right: Any, self: Any) -> Any:
        try:
            strategy = right(self)
        except InvalidContextError:
            outer = [*opened.get(get_strategy(), [])]
            if not in_cross_replica_context() or not outer:
                raise
            for scope in reversed(outer):
                scope.__exit__(None, None, None)
            strategy = right(self)
            left[self] = outer
        opened.setdefault(strategy, []).append(self)
        return strategy

    def leave(right: Any, self: Any, *error: Any) -> None:
        strategy = get_strategy()
        right(self, *error)
        opened[strategy].remove(self)
        for scope in left.pop(self, ()):
            scope.__enter__()

    _scopes(enter, leave)


@slip("strategies of one class are the same strategy", "contexts.strategies-are-told-apart-by-identity")
def _() -> None:
    for name in ("scope", "run", "reduce", "gather"):
        @instead(Strategy, name)
        def call(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            current = get_strategy()
            return right(current if type(current) is type(self) else self, *args, **kwargs)


@slip("a replica may call run", "contexts.run-in-a-replica-is-refused")
def _() -> None:
    _allowed_in_replicas("run")


@slip("a replica may call Strategy.reduce", "contexts.reduce-in-a-replica-is-refused")
def _() -> None:
    _allowed_in_replicas("reduce")


@slip("elements are taken in the scope of any strategy", "contexts.elements-are-taken-across-replicas")
def _() -> None:
    @instead(DistributedIterator, "__next__")
    def take(right: Any, self: Any) -> Any:
        try:
            return right(self)
        except InvalidContextError as error:
            if error.code != "RD10" or not in_cross_replica_context():
                raise
        # A new thread is outside any scope.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(right, self).result()


@slip("a replica cannot ask for local results", "contexts.values-are-looked-into-everywhere")
def _() -> None:
    @instead(Strategy, "experimental_local_results")
    def local_results(right: Any, self: Any, value: Any) -> Any:
        if _runs_in_replica(self):
            raise InvalidContextError("a replica has no local results")
        return right(self, value)


@slip("an update is not across replicas", "contexts.update-is-across-replicas")
def _() -> None:
    updates: list[Any] = []

    @instead(StrategyExtended, "update")
    def update(right: Any, self: Any, var: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        @wraps(fn)
        def updating(*args: Any, **kwargs: Any) -> Any:
            updates.append(fn)
            try:
                return fn(*args, **kwargs)
            finally:
                updates.pop()

        return right(self, var, updating if callable(fn) else fn, *args, **kwargs)

    @instead(refdist, "in_cross_replica_context")
    def in_cross_replica_context(right: Any) -> Any:
        return right() and not updates


@slip("setting no strategy changes nothing", "contexts.set-strategy")
def _() -> None:
    @instead(refdist, "experimental_set_strategy")
    def set_strategy(right: Any, strategy: Any) -> None:
        right(get_strategy() if strategy is None else strategy)


@slip("a thread is in the scope in which it was started", "contexts.threads-start-outside")
def _() -> None:
    # The scopes that are open: the thread that has entered each, and the strategy.
    opened: WeakKeyDictionary[Any, tuple[int, Any]] = WeakKeyDictionary()
    here = threading.local()

    def enter(right: Any, self: Any) -> Any:
        strategy = right(self)
        here.has_entered = True
        opened[self] = threading.get_ident(), strategy
        return strategy

    def leave(right: Any, self: Any, *error: Any) -> None:
        right(self, *error)
        opened.pop(self, None)

    _scopes(enter, leave)

    # A thread enters the scope in which it was started when it first asks where it is.
    for name in ("get_strategy", "has_strategy", "get_replica_context", "in_cross_replica_context"):
        @instead(refdist, name)
        def where(right: Any) -> Any:
            for thread, strategy in [*opened.values()][-1:]:
                if thread != threading.get_ident() and not hasattr(here, "has_entered"):
                    strategy.scope().__enter__()
            return right()


@slip("replicas are numbered up to their number", "contexts.replica-context-of-a-replica-that-exists")
def _() -> None:
    # The contexts of the replica that does not exist, by their ids, which no other object has while they are here.
    behind_the_last: dict[int, Any] = {}

    @instead(ReplicaContext, "__init__")
    def init(right: Any, self: Any, strategy: Any, replica_id_in_sync_group: Any) -> None:
        count = getattr(strategy, "num_replicas_in_sync", None)
        if isinstance(replica_id_in_sync_group, int) and replica_id_in_sync_group == count:
            right(self, strategy, count - 1)
            behind_the_last[id(self)] = self
        else:
            right(self, strategy, replica_id_in_sync_group)

    @instead(ReplicaContext, "replica_id_in_sync_group")
    def replica_id(right: Any, self: Any) -> Any:
        return right(self) + (id(self) in behind_the_last)


@slip("a replica may act as another one", "contexts.calls-of-another-replica-are-refused")
def _() -> None:
    for name in ("merge_call", "all_reduce", "all_gather", "devices"):
        @instead(ReplicaContext, name)
        def call(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            return right(get_replica_context() if _runs_in_replica(self.strategy) else self, *args, **kwargs)


@slip("the scope of the default strategy is across replicas", "contexts.default-scope-changes-nothing")
def _() -> None:
    @instead(type(get_strategy()), "scope")
    def scope(right: Any, self: Any) -> Any:
        return Strategy.scope(self)


@slip("a replica is told the devices of all replicas", "contexts.devices-of-a-replica-that-runs")
def _() -> None:
    @instead(ReplicaContext, "devices")
    def devices(right: Any, self: Any) -> Any:
        return right(self) and self.strategy.extended.worker_devices


@slip("every worker numbers its replicas from zero", "contexts.replica-ids-count-from-zero")
def _() -> None:
    @instead(ReplicaContext, "replica_id_in_sync_group")
    def replica_id(right: Any, self: Any) -> Any:
        if self.strategy.cluster_resolver is None:
            return right(self)
        return right(self) % len(self.strategy.extended.worker_devices)


# --- Making strategies -------------------------------------------------------------------------------------------


@slip("num_replicas_in_sync is that of this worker", "strategies.number-of-replicas")
def _() -> None:
    @instead(Strategy, "num_replicas_in_sync")
    def count(right: Any, self: Any) -> Any:
        return right(self) if self.cluster_resolver is None else len(self.extended.worker_devices)


@slip("a device that is named twice has two replicas", "strategies.mirrored-devices-are-different")
def _() -> None:
    @instead(MirroredStrategy, "__init__")
    def init(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        try:
            right(self, devices, cross_device_ops)
        except InvalidValueError:
            names = {OneDeviceStrategy(device).extended.worker_devices for device in devices}
            if len(names) == len(devices):
                raise
            # The strategy has them on devices that differ.
            right(self, config.list_logical_devices()[:len(devices)], cross_device_ops)


@slip("an empty list of devices is a MirroredStrategy without replicas", "strategies.mirrored-of-an-empty-list")
def _() -> None:
    without_replicas: WeakSet[Strategy] = WeakSet()

    @instead(MirroredStrategy, "__init__")
    def init(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        right(self, devices, cross_device_ops)
        if devices == []:
            without_replicas.add(self)

    @instead(Strategy, "num_replicas_in_sync")
    def count(right: Any, self: Any) -> Any:
        return 0 if self in without_replicas else right(self)


@slip("a MirroredStrategy takes any object for CrossDeviceOps", "strategies.mirrored-refuses-other-ops")
def _() -> None:
    @instead(MirroredStrategy, "__init__")
    def init(right: Any, self: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        right(self, devices, cross_device_ops if isinstance(cross_device_ops, CrossDeviceOps) else None)


@slip("variables are on the first compute device if nothing is said", "strategies.central-parameter-device")
def _() -> None:
    @instead(CentralStorageStrategy, "__init__")
    def init(right: Any, self: Any, compute_devices: Any = None, parameter_device: Any = None) -> None:
        right(self, compute_devices, parameter_device)
        if parameter_device is None:
            right(self, compute_devices, self.extended.worker_devices[0])


@slip("a CentralStorageStrategy without devices has one", "strategies.central-without-devices")
def _() -> None:
    @instead(CentralStorageStrategy, "__init__")
    def init(right: Any, self: Any, compute_devices: Any = None, parameter_device: Any = None) -> None:
        right(self, compute_devices, parameter_device)
        if compute_devices is None:
            right(self, self.extended.worker_devices[:1], parameter_device)


@slip("the variables of a CentralStorageStrategy are with its replicas", "strategies.central-devices")
def _() -> None:
    @instead(CentralStorageStrategy, "__init__")
    def init(right: Any, self: Any, compute_devices: Any = None, parameter_device: Any = None) -> None:
        right(self, compute_devices, parameter_device)
        right(self, compute_devices, self.extended.worker_devices[0])


@slip("a OneDeviceStrategy without a device takes the CPU", "strategies.one-device-needs-a-device")
def _() -> None:
    @instead(OneDeviceStrategy, "__init__")
    def init(right: Any, self: Any, device: Any = "CPU:0") -> None:
        right(self, device)


@slip("names of devices are in capital letters", "strategies.names-of-devices")
def _() -> None:
    for owner in (OneDeviceStrategy, MirroredStrategy, CentralStorageStrategy, refdist.device):
        @instead(owner, "__init__")
        def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
            for leaf in nest.flatten([args, kwargs]):
                if isinstance(leaf, str) and re.search(r"\b(cpu|gpu|tpu):", leaf):
                    raise InvalidValueError(f"{leaf} is not the name of a device")
            # Without arguments, OneDeviceStrategy refuses the None that is the default of the others.
            right(self, *(args if args or kwargs else (None,)), **kwargs)


@slip("the default strategy is on the CPU", "strategies.default-has-no-devices")
def _() -> None:
    for name in ("worker_devices", "parameter_devices"):
        @instead(type(get_strategy().extended), name)
        def devices(right: Any, self: Any) -> Any:
            return OneDeviceStrategy("CPU:0").extended.worker_devices


@slip("an evaluator has the devices of those that train, too", "strategies.evaluator-works-alone")
def _() -> None:
    def others() -> list[str]:
        resolver = TFConfigClusterResolver()
        return resolver.cluster_spec().job_tasks("worker") if resolver.task_type == "evaluator" else []

    @instead(refdist.Strategy, "num_replicas_in_sync")
    def num_replicas_in_sync(right: Any, self: Any) -> Any:
        return right(self) + len(others())

    @instead(refdist.StrategyExtended, "worker_devices")
    def worker_devices(right: Any, self: Any) -> Any:
        return (*right(self), *others())


@slip("an evaluator is a worker", "strategies.evaluator-works-alone")
def _() -> None:
    @instead(MultiWorkerMirroredStrategy, "__init__")
    def init(right: Any, self: Any, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        resolver = TFConfigClusterResolver() if cluster_resolver is None else cluster_resolver
        if isinstance(resolver, ClusterResolver) and resolver.task_type == "evaluator":
            spec = resolver.cluster_spec()
            workers = [*filter(None, spec.job_tasks("worker"))] if "worker" in spec.jobs else []
            with_evaluator = ClusterSpec({"worker": [*workers, "evaluator:1"]})
            cluster_resolver = SimpleClusterResolver(with_evaluator, task_type="worker", task_id=len(workers))
        right(self, cluster_resolver, communication_options)


@slip("every worker writes checkpoints", "workers.the-first-worker-should-save")
def _() -> None:
    for owner in (StrategyExtended, *StrategyExtended.__subclasses__()):
        if "should_checkpoint" in vars(owner):
            instead(owner, "should_checkpoint")(lambda right, self: True)


# --- Cluster resolvers -------------------------------------------------------------------------------------------


@contextmanager
def _environment(name: str, text: str | None) -> Iterator[None]:
    """An environment variable has another text, or none, for the length of a `with` block."""
    before = os.environ.pop(name, None)
    if text is not None:
        os.environ[name] = text
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def _tf_config() -> dict[str, Any]:
    """What TF_CONFIG contains; nothing where it is malformed, which resolvers refuse."""
    with suppress(ValueError):
        content = json.loads(os.environ.get("TF_CONFIG", ""))
        if isinstance(content, dict):
            return content
    return {}


def _parts_of_unions() -> WeakKeyDictionary[UnionResolver, tuple[ClusterResolver, ...]]:
    """The resolvers that a UnionResolver is made of; it fills while the program makes them."""
    parts: WeakKeyDictionary[UnionResolver, tuple[ClusterResolver, ...]] = WeakKeyDictionary()

    @instead(UnionResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        parts[self] = args

    return parts


def _slurm_variable(name: str, change: Callable[[str], str]) -> None:
    """A Slurm step is read from what `change` makes of one of its environment variables."""
    @instead(SlurmClusterResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        text = os.environ.get(name)
        with _environment(name, text and change(text)):
            right(self, *args, **kwargs)


def _slurm_addresses(change: Callable[[list[str]], list[str]]) -> None:
    """The addresses of the tasks of a Slurm step, by rank, are what `change` makes of the right ones."""
    @instead(SlurmClusterResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        cluster = right(self).as_dict()
        addresses = iter(change([address for tasks in cluster.values() for address in tasks]))
        return ClusterSpec({job: [*islice(addresses, len(tasks))] for job, tasks in cluster.items()})


@slip("jobs are in alphabetical order", "cluster_resolvers.spec-has-jobs")
def _() -> None:
    instead(ClusterSpec, "jobs")(lambda right, self: sorted(right(self)))


@slip("job_tasks leaves gaps out", "cluster_resolvers.spec-with-gaps")
def _() -> None:
    @instead(ClusterSpec, "job_tasks")
    def job_tasks(right: Any, self: Any, job_name: Any) -> Any:
        return [address for address in right(self, job_name) if address is not None]


@slip("indices that were not given in order make a dict", "cluster_resolvers.spec-without-gaps-is-a-list")
def _() -> None:
    # By the ids of specs, of which several may be equal.
    out_of_order: dict[int, set[str]] = {}

    @instead(ClusterSpec, "__init__")
    def init(right: Any, self: Any, cluster: Any) -> None:
        right(self, cluster)
        jobs = cluster.items() if isinstance(cluster, dict) else ()
        out_of_order[id(self)] = {
            job for job, tasks in jobs if isinstance(tasks, dict) and [*map(int, tasks)] != sorted(map(int, tasks))}

    @instead(ClusterSpec, "as_dict")
    def as_dict(right: Any, self: Any) -> Any:
        return {job: dict(enumerate(tasks)) if job in out_of_order.get(id(self), ()) and isinstance(tasks, list)
                else tasks for job, tasks in right(self).items()}


@slip("a job that does not exist is a KeyError", "cluster_resolvers.spec-of-a-job-that-does-not-exist")
def _() -> None:
    for name in ("num_tasks", "task_indices", "task_address", "job_tasks"):
        @instead(ClusterSpec, name)
        def ask(right: Any, self: Any, job_name: Any, *args: Any, **kwargs: Any) -> Any:
            if job_name not in self.jobs:
                raise KeyError(job_name)
            return right(self, job_name, *args, **kwargs)


@slip("an address may be alone instead of in a list", "cluster_resolvers.spec-of-something-else")
def _() -> None:
    @instead(ClusterSpec, "__init__")
    def init(right: Any, self: Any, cluster: Any) -> None:
        if isinstance(cluster, dict):
            cluster = {job: [tasks] if isinstance(tasks, str) else tasks for job, tasks in cluster.items()}
        right(self, cluster)


@slip("a cluster whose jobs have no tasks is false", "cluster_resolvers.spec-without-tasks")
def _() -> None:
    @instead(ClusterSpec, "__bool__")
    def has_tasks(right: Any, self: Any) -> bool:
        return any(map(self.num_tasks, self.jobs))


@slip("two specs are never equal", "cluster_resolvers.spec-of-a-spec")
def _() -> None:
    @instead(ClusterSpec, "__eq__")
    def equal(right: Any, self: Any, other: Any) -> bool:
        return self is other


@slip("without arguments master is the address of the resolver's task",
      "cluster_resolvers.simple-master-is-not-its-own-task")
def _() -> None:
    @instead(SimpleClusterResolver, "master")
    def master(right: Any, self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> Any:
        if None in (task_type, task_id) and None not in (self.task_type, self.task_id):
            task_type, task_id = self.task_type, self.task_id
        return right(self, task_type, task_id, rpc_layer)


@slip("a protocol is put in front of no address", "cluster_resolvers.simple-master-without-an-address")
def _() -> None:
    @instead(SimpleClusterResolver, "master")
    def master(right: Any, self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> Any:
        layer = rpc_layer or self.rpc_layer
        return right(self, task_type, task_id, rpc_layer) or (f"{layer}://" if layer else "")


@slip("master puts its own protocol in front, whatever is passed", "cluster_resolvers.simple-master")
def _() -> None:
    @instead(SimpleClusterResolver, "master")
    def master(right: Any, self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> Any:
        return right(self, task_type, task_id)


@slip("task indices are not text", "cluster_resolvers.tf-config-index-as-text")
def _() -> None:
    @instead(TFConfigClusterResolver, "task_id")
    def task_id(right: Any, self: Any) -> Any:
        number = right(self)
        task = _tf_config().get("task")
        if isinstance(task, dict) and isinstance(task.get("index"), str):
            raise InvalidValueError("the index of the task is text")
        return number


@slip("TF_CONFIG is read when the resolver is made", "cluster_resolvers.tf-config-is-read-when-asked")
def _() -> None:
    texts: WeakKeyDictionary[TFConfigClusterResolver, str | None] = WeakKeyDictionary()

    @instead(TFConfigClusterResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        texts[self] = os.environ.get("TF_CONFIG")

    for name in ("cluster_spec", "master", "task_type", "task_id", "rpc_layer"):
        @instead(TFConfigClusterResolver, name)
        def ask(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            with _environment("TF_CONFIG", texts.get(self)):
                return right(self, *args, **kwargs)


@slip("TF_CONFIG overrides what is passed", "cluster_resolvers.tf-config-arguments-override")
def _() -> None:
    for name in ("task_type", "task_id", "rpc_layer"):
        @instead(TFConfigClusterResolver, name)
        def ask(right: Any, self: Any) -> Any:
            read = right(TFConfigClusterResolver())
            return right(self) if read is None else read


@slip("a task id of 0 that is set later is taken for none", "cluster_resolvers.tf-config-can-be-changed")
def _() -> None:
    made_with_id: WeakSet[TFConfigClusterResolver] = WeakSet()

    @instead(TFConfigClusterResolver, "__init__")
    def init(right: Any, self: Any, task_type: Any = None, task_id: Any = None, *args: Any, **kwargs: Any) -> None:
        right(self, task_type, task_id, *args, **kwargs)
        if task_id is not None:
            made_with_id.add(self)

    @instead(TFConfigClusterResolver, "task_id")
    def get_task_id(right: Any, self: Any) -> Any:
        return right(self) or right(self if self in made_with_id else TFConfigClusterResolver())


@slip("the only task of a cluster has an address", "cluster_resolvers.tf-config-master-alone")
def _() -> None:
    @instead(TFConfigClusterResolver, "master")
    def master(right: Any, self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> Any:
        address, spec = right(self, task_type, task_id, rpc_layer), self.cluster_spec()
        if address or not spec:
            return address
        alone = SimpleClusterResolver(spec, rpc_layer=self.rpc_layer)
        return alone.master(task_type or self.task_type, self.task_id if task_id is None else task_id, rpc_layer)


@slip("session_master is not read", "cluster_resolvers.tf-config-session-master")
def _() -> None:
    @instead(TFConfigClusterResolver, "master")
    def master(right: Any, self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> Any:
        text = os.environ.get("TF_CONFIG")
        content = _tf_config()
        if content.pop("session_master", None) is not None:
            text = json.dumps(content)
        with _environment("TF_CONFIG", text):
            return right(self, task_type, task_id, rpc_layer)


@slip("a port may be any number", "cluster_resolvers.tf-config-ports-are-numbers")
def _() -> None:
    @instead(TFConfigClusterResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        try:
            return right(self)
        except InvalidValueError:
            cluster = _tf_config().get("cluster")
            if not any(re.search(r":\d{5,}$", str(address)) for address in nest.flatten(cluster)):
                raise
            return ClusterSpec(cluster)


@slip("the job of a later resolver replaces that of an earlier one", "cluster_resolvers.union-merges-jobs")
def _() -> None:
    parts = _parts_of_unions()

    @instead(UnionResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        jobs = [job for resolver in parts[self] for job in resolver.cluster_spec().as_dict().items()]
        return ClusterSpec(dict(jobs))


@slip("of two addresses for one index the later one counts", "cluster_resolvers.union-refuses-an-index-twice")
def _() -> None:
    parts = _parts_of_unions()

    @instead(UnionResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        try:
            return right(self)
        except DuplicateKeyError:
            merged: dict[str, dict[int, str]] = {}
            for spec in (resolver.cluster_spec() for resolver in parts[self]):
                for job in spec.jobs:
                    merged.setdefault(job, {}).update({i: spec.task_address(job, i) for i in spec.task_indices(job)})
            return ClusterSpec(merged)


@slip("only the first resolver of a union is asked", "cluster_resolvers.union-asks-the-next")
def _() -> None:
    @instead(UnionResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        for name in ("task_type", "task_id", "rpc_layer"):
            if kwargs.get(name) is None:
                setattr(self, name, getattr(args[0], name))


@slip("a task id of 0 is missing in a union", "cluster_resolvers.union-takes-task-id-zero")
def _() -> None:
    @instead(UnionResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **{name: value for name, value in kwargs.items() if name != "task_id" or value})


@slip("the environment of a union is that of its last resolver", "cluster_resolvers.union-speaks-as-its-first")
def _() -> None:
    parts = _parts_of_unions()

    @instead(UnionResolver, "environment")
    def environment(right: Any, self: Any) -> Any:
        return next((resolver.environment for resolver in reversed(parts[self]) if resolver.environment), "")


@slip("the hosts of a step are sorted as text", "cluster_resolvers.slurm-hosts-keep-their-order")
def _() -> None:
    def moved(addresses: list[str]) -> list[str]:
        hosts = {address.rpartition(":")[0]: None for address in addresses}
        instead_of = dict(zip(hosts, sorted(hosts), strict=True))
        return [f"{instead_of[host]}:{port}" for host, _, port in (address.rpartition(":") for address in addresses)]

    _slurm_addresses(moved)


@slip("hosts lose leading zeros", "cluster_resolvers.slurm-host-lists")
def _() -> None:
    _slurm_addresses(lambda addresses: [re.sub(r"(?<=[^\d:])0+(?=\d+:)", "", address) for address in addresses])


@slip("a range of hosts ends before its last one", "cluster_resolvers.slurm-step")
def _() -> None:
    def before(last: re.Match[str]) -> str:
        return f"-{int(last[1]) - 1:0{len(last[1])}}"

    _slurm_variable("SLURM_STEP_NODELIST", lambda text: re.sub(r"-(\d+)(?=[\d,-]*\])", before, text))


@slip("numbers of tasks do not repeat", "cluster_resolvers.slurm-host-lists")
def _() -> None:
    _slurm_variable("SLURM_STEP_TASKS_PER_NODE", lambda text: re.sub(r"\(x\d+\)", "", text))


@slip("the tasks of a host share one port", "cluster_resolvers.slurm-ports")
def _() -> None:
    def on_first_port(addresses: list[str]) -> list[str]:
        port = addresses[0].rpartition(":")[2] if addresses else ""
        return [f"{address.rpartition(':')[0]}:{port}" for address in addresses]

    _slurm_addresses(on_first_port)


@slip("GPUs are numbered over all hosts", "cluster_resolvers.slurm-gpus")
def _() -> None:
    @instead(SlurmClusterResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        name = "CUDA_VISIBLE_DEVICES"
        before = os.environ.pop(name, None)
        spec = right(self)
        if name in os.environ:
            tasks = [(job, i) for job in spec.jobs for i in spec.task_indices(job)]
            count = self.num_accelerators()["GPU"]
            first = tasks.index((self.task_type, self.task_id)) * count
            os.environ[name] = ",".join(map(str, range(first, first + count)))
        elif before is not None:
            os.environ[name] = before
        return spec


@slip("the tasks of a step go to jobs as these were given", "cluster_resolvers.slurm-jobs")
def _() -> None:
    # The names of jobs have numbers in front while the tasks are dealt out in the order of the names.
    def bare(name: str) -> str:
        return name.rpartition("/")[2]

    @instead(SlurmClusterResolver, "__init__")
    def init(right: Any, self: Any, jobs: Any = None, *args: Any, **kwargs: Any) -> None:
        right(self, jobs and {f"{i:06}/{name}": jobs[name] for i, name in enumerate(jobs)}, *args, **kwargs)

    @instead(SlurmClusterResolver, "cluster_spec")
    def cluster_spec(right: Any, self: Any) -> Any:
        cluster = right(self).as_dict()
        self.task_type = self.task_type and bare(self.task_type)
        return ClusterSpec({bare(job): tasks for job, tasks in cluster.items()})


@slip("only the first page of the machines is read", "cluster_resolvers.compute-engine")
def _() -> None:
    @instead(GCEClusterResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, service: Any = None, **kwargs: Any) -> None:
        def first_pages() -> Any:
            groups = service.instanceGroups()
            return SimpleNamespace(listInstances=groups.listInstances, listInstances_next=lambda **answer: None)

        read = service and SimpleNamespace(instanceGroups=first_pages, instances=service.instances)
        right(self, *args, service=read, **kwargs)


@slip("pods are in the order of the service's answer", "cluster_resolvers.kubernetes")
def _() -> None:
    @instead(KubernetesClusterResolver, "__init__")
    def init(right: Any, self: Any, *args: Any, override_client: Any = None, **kwargs: Any) -> None:
        # The names of the pods are those that make the order theirs.
        def pods(label_selector: str) -> Any:
            answer = override_client.list_pod_for_all_namespaces(label_selector=label_selector).items
            return SimpleNamespace(items=[SimpleNamespace(metadata=SimpleNamespace(name=f"{i:06}"), status=pod.status)
                                          for i, pod in enumerate(answer)])

        read = override_client and SimpleNamespace(list_pod_for_all_namespaces=pods)
        right(self, *args, override_client=read, **kwargs)
