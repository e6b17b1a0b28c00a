"""`ClusterResolver` and the two that need nothing from outside: Simple and Union."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from refdist import config, errors
from refdist.cluster_resolver.cluster_spec import ClusterSpec


class ClusterResolver(ABC):
    """Describes the tasks of a cluster, and which of them this program is.

    A subclass sets the attributes, or `_task_type`, `_task_id` and `_rpc_layer`.

    Source: tf.distribute.cluster_resolver.ClusterResolver.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    _environment: str | None = ""

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The tasks of the cluster."""

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, of this task if type or index is None; "" if neither says which.

        Args:
            task_type, task_id: the task.
            rpc_layer: the protocol to put in front, as in "grpc://host:port"; None for the resolver's.

        Raises:
            RD17: the cluster does not have this task.

        Source: tf.distribute.cluster_resolver.ClusterResolver.master.
        """
        return self._address_of(self.task_type if task_type is None else task_type,
                                self.task_id if task_id is None else task_id, rpc_layer)

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: object = None) -> dict[str, int]:
        """The number of devices of a task by type, without CPUs; all tasks are assumed to have those of this machine.

        A type of which the machine has no device is 0.

        Args:
            task_type, task_id: the task; None for this one.
            config_proto: has no effect, as refdist does not use sessions.

        Raises:
            RD17: the cluster does not have this task.

        Source: tf.distribute.cluster_resolver.ClusterResolver.num_accelerators.
        """
        spec = self.cluster_spec()
        if spec and task_type is not None and task_id is not None:
            spec.task_address(task_type, task_id)
        return Counter(device.device_type for device in config.list_logical_devices() if device.device_type != "CPU")

    @property
    def environment(self) -> str | None:
        """Where the program runs: "", "google", or what was given."""
        return self._environment

    @property
    def task_type(self) -> str | None:
        """The type of this task: "chief", "worker", "ps", "evaluator", or None."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task within its type, or None."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol between tasks, for example "grpc", or None."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _address_of(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        if task_type is None or task_id is None:
            return ""
        return with_layer(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self.rpc_layer)


def with_layer(address: str, rpc_layer: str | None) -> str:
    """The address with the protocol in front; the address alone if either is empty."""
    return f"{rpc_layer}://{address}" if rpc_layer and address else address


class SimpleClusterResolver(ClusterResolver):
    """A resolver whose answers are given to it.

    Args:
        cluster_spec: a ClusterSpec.
        master: what `master()` returns where no task is named.
        task_type, task_id: of this task.
        environment: what the property of that name returns.
        num_accelerators: what the method of that name returns.
        rpc_layer: the protocol in front of addresses, such as "grpc".

    >>> spec = ClusterSpec({"worker": ["h0:1", "h1:2"]})
    >>> SimpleClusterResolver(spec, rpc_layer="grpc").master("worker", 1)
    'grpc://h1:2'

    Raises:
        RD25: `cluster_spec` is not a ClusterSpec, or `master` is not a str.

    Source: tf.distribute.cluster_resolver.SimpleClusterResolver.
    """

    def __init__(self, cluster_spec: ClusterSpec, master: str = "", task_type: str | None = None,
                 task_id: int | None = None, environment: str = "", num_accelerators: dict[str, int] | None = None,
                 rpc_layer: str | None = None) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise errors.error("RD25", "SimpleClusterResolver", f"cluster_spec is {cluster_spec!r}",
                               "Pass a refdist.train.ClusterSpec.")
        if not isinstance(master, str):
            raise errors.error("RD25", "SimpleClusterResolver", f"master is {master!r}", "Pass a str.")
        self._cluster_spec = cluster_spec
        self._master = master
        self.task_type, self.task_id, self.rpc_layer = task_type, task_id, rpc_layer
        self._environment = environment
        self._num_accelerators = num_accelerators

    def cluster_spec(self) -> ClusterSpec:
        """The cluster that was given."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or the master that was given.

        Args:
            task_type, task_id: the task; where one of them is None, the given master.
            rpc_layer: the protocol in front of the address; None for the resolver's own.

        Raises:
            RD17: the cluster does not have this task.
        """
        if task_type is not None and task_id is not None:
            return self._address_of(task_type, task_id, rpc_layer)
        return with_layer(self._master, rpc_layer or self.rpc_layer)

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: object = None) -> dict[str, int]:
        """The dict that was given, or an empty one.

        Args:
            task_type, task_id, config_proto: without effect.
        """
        return self._num_accelerators or {}


class UnionResolver(ClusterResolver):
    """Several resolvers as one: their clusters are merged; anything else is the first answer that is not None or empty.

    Args:
        args: the resolvers.
        kwargs: task_type, task_id and rpc_layer, which override those of the resolvers.

    Raises:
        RD25, RD34: no resolvers, an argument that is not a resolver, or an unknown keyword.

    Source: tf.distribute.cluster_resolver.UnionResolver.
    """

    def __init__(self, *args: ClusterResolver, **kwargs: Any) -> None:
        self.task_type = kwargs.pop("task_type", None)
        self.task_id = kwargs.pop("task_id", None)
        self.rpc_layer = kwargs.pop("rpc_layer", None)
        if kwargs:
            raise errors.error("RD34", "UnionResolver", f"got an unknown argument {next(iter(kwargs))!r}",
                               "Pass task_type, task_id or rpc_layer.")
        if not args:
            raise errors.error("RD34", "UnionResolver", "no resolver was given", "Pass at least one.")
        for resolver in args:
            if not isinstance(resolver, ClusterResolver):
                raise errors.error("RD25", "UnionResolver", f"got {resolver!r}", "Pass ClusterResolvers.")
        self._resolvers = args
        # TensorFlow treats a task_id of 0 as missing; here it is an index like any other.
        for name in ("task_type", "task_id", "rpc_layer"):
            if getattr(self, name) is None:
                values = [getattr(resolver, name) for resolver in args]
                setattr(self, name, next((value for value in values if value is not None), None))

    def cluster_spec(self) -> ClusterSpec:
        """The tasks of all resolvers: the lists of a job are concatenated; if one is a dict, all are merged as dicts.

        Raises:
            RD17: two resolvers have an address for the same task, which is also a KeyError.

        Source: tf.distribute.cluster_resolver.UnionResolver.cluster_spec.
        """
        clusters = [resolver.cluster_spec().as_dict() for resolver in self._resolvers]
        with_gaps = {job for cluster in clusters for job, tasks in cluster.items() if isinstance(tasks, dict)}
        merged: dict[str, dict[int, str]] = {}
        for cluster in clusters:
            for job, tasks in cluster.items():
                addresses = merged.setdefault(job, {})
                start = 0 if job in with_gaps else len(addresses)
                for i, address in tasks.items() if isinstance(tasks, dict) else enumerate(tasks, start):
                    if i in addresses:
                        raise errors.error("RD17", "UnionResolver.cluster_spec", f"two resolvers have task {i} of job "
                                           f"{job!r}", "Give every task one address.", kind=errors.DuplicateKeyError)
                    addresses[i] = address
        return ClusterSpec({job: dict(sorted(tasks.items())) for job, tasks in merged.items()})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or the first `master()` of a resolver that is not empty.

        Args:
            task_type, task_id: the task; where one of them is None, the resolvers are asked in turn.
            rpc_layer: the protocol in front of the address; None for the resolver's own.

        Raises:
            RD17: the cluster does not have this task.
        """
        if task_type is not None and task_id is not None:
            return self._address_of(task_type, task_id, rpc_layer)
        for resolver in self._resolvers:
            if master := resolver.master(rpc_layer=rpc_layer or ""):
                bare = master.rpartition("://")[2]
                return with_layer(bare, rpc_layer or self.rpc_layer)
        return ""

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: object = None) -> dict[str, int]:
        """The first answer that is not empty.

        Args:
            task_type, task_id, config_proto: passed on.
        """
        for resolver in self._resolvers:
            if counts := resolver.num_accelerators(task_type, task_id, config_proto):
                return counts
        return {}

    @property
    def environment(self) -> str | None:
        """The first answer that is not empty."""
        return next((resolver.environment for resolver in self._resolvers if resolver.environment), "")
