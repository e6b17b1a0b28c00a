"""`MultiWorkerMirroredStrategy`: several workers, each with its own replicas, that hold equal copies."""

from __future__ import annotations

import os

from refdist import config, errors
from refdist.array.backend import current_backend
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import check_cluster
from refdist.cluster_resolver.launcher import MPIClusterResolver
from refdist.cluster_resolver.tfconfig import TFConfigClusterResolver
from refdist.core import call_site
from refdist.core import devices as names
from refdist.strategies.across_workers import AcrossWorkers
from refdist.strategies.base import Strategy
from refdist.strategies.communication import CommunicationImplementation, CommunicationOptions
from refdist.strategies.extended import StrategyExtended
from refdist.workers import connection
from refdist.workers.launcher import CHIEF, WORKER, Task, launched
from refdist.workers.staging import through_host
from refdist.workers.transport import LoneWorker, Transport


class MultiWorkerMirroredStrategy(Strategy):
    """Synchronous training on several workers, each with one or more devices.

    Every worker runs the same program.  The workers are those that `mpiexec` or `srun` started, those of
    `simulate_workers`, or those of TF_CONFIG, each of which was started by itself and waits here for the others; a
    program that was started alone is one worker.

    Args:
        cluster_resolver: says which worker this is, and how many GPUs it has, on each of which there is a replica;
            without GPUs there is one on the CPU. None asks TF_CONFIG and the launcher, and takes all GPUs.
        communication_options: CommunicationOptions, or None.  With implementation RING sums are taken by the
            transport's fastest way: the bits then depend on the number of workers.

    >>> import refdist
    >>> refdist.MultiWorkerMirroredStrategy().num_replicas_in_sync
    1

    Raises:
        RD01: not all workers of TF_CONFIG came in time.
        RD17: the cluster is described wrongly, or the other workers were not started.
        RD24: the resolver counts GPUs that the machine does not have.  RD25, RD34: bad arguments.

    Source: tf.distribute.MultiWorkerMirroredStrategy.
    """

    def __init__(self, cluster_resolver: ClusterResolver | None = None,
                 communication_options: CommunicationOptions | None = None) -> None:
        attempted = "MultiWorkerMirroredStrategy"
        if cluster_resolver is not None and not isinstance(cluster_resolver, ClusterResolver):
            raise errors.error("RD34", attempted, f"cluster_resolver is {cluster_resolver!r}",
                               "Pass a refdist.cluster_resolver.ClusterResolver, or None.")
        if communication_options is not None and not isinstance(communication_options, CommunicationOptions):
            raise errors.error("RD34", attempted, f"communication_options is {communication_options!r}",
                               "Pass refdist.experimental.CommunicationOptions(...), or None.")
        options = communication_options or CommunicationOptions()
        self._cluster_resolver = cluster_resolver or _default_resolver()
        super().__init__(MultiWorkerMirroredExtended(self, self._cluster_resolver, options))

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The resolver that says which worker this process is."""
        return self._cluster_resolver


class _EitherName(type):
    # As in TensorFlow, an object made by the newer name is an instance of the older one too.
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, MultiWorkerMirroredStrategy)


class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy, metaclass=_EitherName):
    """The strategy with the arguments that it had before TensorFlow 2.4.

    Args:
        communication: how workers sum, a CommunicationImplementation.
        cluster_resolver: says which worker this is; None asks TF_CONFIG.

    Source: tf.distribute.experimental.MultiWorkerMirroredStrategy.
    """

    def __init__(self, communication: CommunicationImplementation = CommunicationImplementation.AUTO,
                 cluster_resolver: ClusterResolver | None = None) -> None:
        call_site.warn("experimental.MultiWorkerMirroredStrategy is deprecated; use MultiWorkerMirroredStrategy",
                       DeprecationWarning)
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication))


class MultiWorkerMirroredExtended(StrategyExtended):
    """MultiWorkerMirroredStrategy's methods."""

    def __init__(self, container_strategy: Strategy, resolver: ClusterResolver, options: CommunicationOptions) -> None:
        transport = _transport(resolver, options)
        job, task = resolver.task_type or "localhost", resolver.task_id or 0
        local = [f"GPU:{i}" for i in range(resolver.num_accelerators().get("GPU", 0))] or ["CPU:0"]
        for device in local:
            config.check_device(device, "num_accelerators")
        devices = [names.canonical(f"/job:{job}/task:{task}/{device}") for device in local]
        ops = through = None
        if transport is not None:
            self._ordered = options.implementation is CommunicationImplementation.AUTO
            backend = current_backend()
            through = backend.between_workers(through_host(transport, devices), devices)
            ops = AcrossWorkers(through, transport.layout(devices).total, self._ordered)
            if backend.array_types:
                transport = through
        super().__init__(container_strategy, worker_devices=devices, cross_device_ops=ops, transport=transport,
                         through=through)

    @property
    def experimental_between_graph(self) -> bool:
        """Whether every worker runs the program itself: yes."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this worker writes checkpoints: the first one does."""
        return self.transport.rank == 0

    @property
    def should_save_summary(self) -> bool:
        """Whether this worker writes summaries: the first one does."""
        return self.transport.rank == 0


def _default_resolver() -> ClusterResolver:
    if not os.environ.get("TF_CONFIG") and launched() is not None:
        return MPIClusterResolver()
    return TFConfigClusterResolver()


def _transport(resolver: ClusterResolver, options: CommunicationOptions) -> Transport | None:
    # None for the only worker.
    spec = resolver.cluster_spec()
    member = check_cluster(spec, resolver.task_type, resolver.task_id)
    launcher = connection.launcher()
    if launcher is None and member is not None and member.size > 1 and isinstance(resolver, TFConfigClusterResolver):
        tasks = {Task(job, number): spec.task_address(job, number) for job in (CHIEF, WORKER) if job in spec.jobs
                 for number in spec.task_indices(job)}
        launcher = connection.gathered(member.number, tasks, options.timeout_seconds or None)
    transport: Transport = LoneWorker()
    if launcher is not None and (member is None or member.size > 1):
        transport = connection.connect(launcher, options.timeout_seconds or None)
    elif launcher is not None:
        launcher.alone()
    if member is not None and (member.size, member.number) != (transport.size, transport.rank):
        described = f"worker {member.number} of {member.size}"
        if transport.size == 1:
            raise errors.error("RD17", "MultiWorkerMirroredStrategy", f"the cluster says that this is {described}, "
                               "and the other workers were not started",
                               "Workers are connected by MPI: run `pip install mpi4py mpich` and start all of them "
                               f"with `mpiexec -n {member.size} python ...`, or give each its TF_CONFIG and no "
                               f"resolver, or simulate them: `python -m refdist run --workers {member.size} ...`.",
                               kind=errors.InvalidContextError)
        raise errors.error("RD17", "MultiWorkerMirroredStrategy", f"the cluster says that this is {described}, the "
                           f"launcher that it is worker {transport.rank} of {transport.size}",
                           "Give TF_CONFIG the launcher's numbers, or leave it out.")
    return transport if transport.size > 1 else None
