"""`ClusterResolver` and the two that need nothing from outside: Simple and Union."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from refdist import config, errors
from refdist.cluster_resolver.cluster_spec import ClusterSpec


class ClusterResolver(ABC):
    """Says which tasks a cluster has, and which of them this program is.

    Attributes:
        task_type: "chief", "worker", "ps", "evaluator", or None.
        task_id: the index within its type, or None.
        rpc_layer: the protocol, for example "grpc".

    Source: tf.distribute.cluster_resolver.ClusterResolver.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    _environment: str | None = ""

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The tasks of the cluster."""

    @abstractmethod
    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a session, of this task if none is named."""

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: Any = None) -> dict[str, int]:
        """How many devices other than CPUs a task has, by type; every task is taken to have what this machine has.

        Args:
            task_type, task_id: the task; this one if none is named.
            config_proto: has no effect; there are no sessions.

        Raises:
            RD17: the cluster has no such task.

        Source: tf.distribute.cluster_resolver.ClusterResolver.num_accelerators.
        """
        spec = self.cluster_spec()
        if spec and task_type is not None and task_id is not None:
            spec.task_address(task_type, task_id)
        found: dict[str, int] = {}
        for device in config.list_logical_devices():
            if device.device_type != "CPU":
                found[device.device_type] = found.get(device.device_type, 0) + 1
        return found

    @property
    def environment(self) -> str | None:
        """Where the program runs: "", "google", or what was given."""
        return self._environment

    @property
    def task_type(self) -> str | None:
        """The type of this task."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task within its type."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol between tasks."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _own_address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        # Of this task where none is named.
        return self._address_of(self.task_type if task_type is None else task_type,
                                self.task_id if task_id is None else task_id, rpc_layer)

    def _address_of(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        if task_type is None or task_id is None:
            return ""
        return with_layer(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self.rpc_layer)


def with_layer(address: str, rpc_layer: str | None) -> str:
    """The address with its protocol in front, where both are known."""
    return f"{rpc_layer}://{address}" if rpc_layer and address else address


class SimpleClusterResolver(ClusterResolver):
    """Says what it was told.

    >>> spec = ClusterSpec({"worker": ["h0:1", "h1:2"]})
    >>> SimpleClusterResolver(spec, rpc_layer="grpc").master("worker", 1)
    'grpc://h1:2'

    Raises:
        RD25: no ClusterSpec, or a master that is no text.

    Source: tf.distribute.cluster_resolver.SimpleClusterResolver.
    """

    def __init__(self, cluster_spec: Any, master: str = "", task_type: str | None = None, task_id: int | None = None,
                 environment: str = "", num_accelerators: dict[str, int] | None = None,
                 rpc_layer: str | None = None) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise errors.error("RD25", "SimpleClusterResolver", f"cluster_spec is {cluster_spec!r}",
                               "Pass a refdist.train.ClusterSpec.")
        if not isinstance(master, str):
            raise errors.error("RD25", "SimpleClusterResolver", f"master is {master!r}", "Pass text.")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type, self._task_id = task_type, task_id
        self._environment, self._rpc_layer = environment, rpc_layer
        self._num_accelerators = num_accelerators

    def cluster_spec(self) -> ClusterSpec:
        """The tasks that were given."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or the master that was given.

        Raises:
            RD17: no such task.
        """
        if task_type is not None and task_id is not None:
            return self._address_of(task_type, task_id, rpc_layer)
        return with_layer(self._master, rpc_layer or self._rpc_layer)

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: Any = None) -> dict[str, int]:
        """What was given, or nothing."""
        return self._num_accelerators or {}


class UnionResolver(ClusterResolver):
    """Several resolvers as one: jobs are put together, everything else is the first one's that says something.

    Args:
        args: the resolvers.
        kwargs: task_type, task_id and rpc_layer, which go before those of the resolvers.

    Raises:
        RD25: no resolver, something else, or unknown arguments.

    Source: tf.distribute.cluster_resolver.UnionResolver.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._task_type = kwargs.pop("task_type", None)
        self._task_id = kwargs.pop("task_id", None)
        self._rpc_layer = kwargs.pop("rpc_layer", None)
        if kwargs:
            raise errors.error("RD25", "UnionResolver", f"there is no argument {next(iter(kwargs))!r}",
                               "Pass task_type, task_id or rpc_layer.", kind=errors.InvalidValueError)
        if not args:
            raise errors.error("RD25", "UnionResolver", "there is no resolver", "Pass at least one.",
                               kind=errors.InvalidValueError)
        for resolver in args:
            if not isinstance(resolver, ClusterResolver):
                raise errors.error("RD25", "UnionResolver", f"got {resolver!r}", "Pass ClusterResolvers.")
        self._resolvers: tuple[ClusterResolver, ...] = args
        # TensorFlow takes a task_id of 0 for none given; 0 is an index like any other.
        for name in ("_task_type", "_task_id", "_rpc_layer"):
            if getattr(self, name) is None:
                told = [getattr(resolver, name[1:]) for resolver in args]
                setattr(self, name, next((value for value in told if value is not None), None))

    def cluster_spec(self) -> ClusterSpec:
        """The tasks of all resolvers; lists of one job are put one after another.

        Raises:
            RD17: two resolvers give an address for the same task.
        """
        merged: dict[str, dict[int, str]] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                mine = merged.setdefault(job, {})
                listed = isinstance(tasks, list)
                start = len(mine) if listed and set(mine) == set(range(len(mine))) else 0
                for i, address in (enumerate(tasks, start) if listed else tasks.items()):
                    if i in mine:
                        raise errors.error("RD17", "UnionResolver.cluster_spec", f"two resolvers have task {i} of job "
                                           f"{job!r}", "Give every task one address.")
                    mine[i] = address
        return ClusterSpec({job: dict(sorted(tasks.items())) for job, tasks in merged.items()})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or the first master that a resolver gives.

        Raises:
            RD17: no such task.
        """
        if task_type is not None and task_id is not None:
            return self._address_of(task_type, task_id, rpc_layer)
        for resolver in self._resolvers:
            if found := resolver.master(rpc_layer=rpc_layer or ""):
                bare = found.rpartition("://")[2]
                return with_layer(bare, rpc_layer or self._rpc_layer)
        return ""

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: Any = None) -> dict[str, int]:
        """The first answer that is not empty."""
        for resolver in self._resolvers:
            if found := resolver.num_accelerators(task_type, task_id, config_proto):
                return found
        return {}

    @property
    def environment(self) -> str | None:
        """The first answer that is not empty."""
        return next((resolver.environment for resolver in self._resolvers if resolver.environment), "")
