"""Resolvers that ask a service for the machines of a cluster: Kubernetes, Google Compute Engine, TPUs.

Each uses a client object of the service's own Python package, which is imported only if the caller passes no client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from refdist import config, errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.missing import lacks
from refdist.runtime import Field, Late

# Connects to the TPU of a resolver and initializes it; `TPUClusterResolver.connect` calls it.
initialize: Late[Callable[[TPUClusterResolver], None]] = Late()


# TensorFlow's programs ask so whether there is a TPU.
needs_tpu: Field[bool] = Field("whether a resolver for no TPU by name is an error on a machine without one",
                               lambda: False, kept=True)


class PodLister(Protocol):
    """The part of `kubernetes.client.CoreV1Api` that the resolver calls."""

    def list_pod_for_all_namespaces(self, *, label_selector: str) -> Any:
        """The pods with these labels, as the attribute `items`."""


class ComputeService(Protocol):
    """What is used of a `googleapiclient` compute service, version 1."""

    def instanceGroups(self) -> Any:  # noqa: N802
        """The resource with `listInstances` and `listInstances_next`."""

    def instances(self) -> Any:
        """The resource with `get`."""


class TPUService(Protocol):
    """What tells the addresses of a Cloud TPU; refdist's own."""

    def get_tpu(self, tpu: str, zone: str | None, project: str | None) -> Iterable[str]:
        """The addresses ("host:port") of the hosts of a TPU."""


class ExecutableLocation(Enum):
    """Where the program runs, seen from the Kubernetes cluster.

    Source: tf.distribute.cluster_resolver.KubernetesExecutableLocation.
    """

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


KubernetesExecutableLocation = ExecutableLocation


class KubernetesClusterResolver(ClusterResolver):
    """The running pods with certain labels, job by job, in the order of their names.

    Args:
        job_to_label_mapping: for every job a list of label selectors; None for {"worker": ["job-name=tensorflow"]}.
        tf_server_port: the port of every task.
        rpc_layer: the protocol.
        override_client: a `kubernetes.client.CoreV1Api`, or an object with its `list_pod_for_all_namespaces`.
        executable_location: how the client finds its configuration, if none is passed.

    Raises:
        RD34: `executable_location` is not an ExecutableLocation.
        RD27: no client was passed, and the package `kubernetes` is not installed, which is also an ImportError.

    Source: tf.distribute.cluster_resolver.KubernetesClusterResolver.
    """

    def __init__(self, job_to_label_mapping: dict[str, list[str]] | None = None, tf_server_port: int = 8470,
                 rpc_layer: str = "grpc", override_client: PodLister | None = None,
                 executable_location: ExecutableLocation = ExecutableLocation.WITHIN_CLUSTER
                 ) -> None:
        if not isinstance(executable_location, ExecutableLocation):
            raise errors.error("RD34", "KubernetesClusterResolver", f"executable_location is {executable_location!r}",
                               "Pass KubernetesExecutableLocation.WITHIN_CLUSTER or .OFF_CLUSTER.")
        self._labels = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port = tf_server_port
        self.rpc_layer = rpc_layer
        self._client = override_client or _kubernetes_client(executable_location)

    def cluster_spec(self) -> ClusterSpec:
        """The tasks, with the addresses of their pods.

        Raises:
            RD17: a pod is not running.
        """
        jobs: dict[str, list[str]] = {}
        for job, labels in self._labels.items():
            pods = []
            for label in labels:
                labelled = self._client.list_pod_for_all_namespaces(label_selector=label).items
                pods += sorted(labelled, key=lambda pod: pod.metadata.name)
            for pod in pods:
                if pod.status.phase != "Running":
                    raise errors.error("RD17", "KubernetesClusterResolver", f"pod {pod.metadata.name} of job {job!r} "
                                       f"is {pod.status.phase}", "Wait until all pods are running.",
                                       kind=errors.InvalidContextError)
            jobs[job] = [f"{pod.status.host_ip}:{self._port}" for pod in pods]
        return ClusterSpec(jobs)


class GCEClusterResolver(ClusterResolver):
    """The machines of an instance group of Google Compute Engine.

    Args:
        project, zone, instance_group: where the machines are.
        port: the port of every task.
        task_type, task_id: the task that this program is.
        rpc_layer: the protocol.
        credentials: for the client, if none is passed.
        service: a `googleapiclient` compute service, or an object like it.

    Raises:
        RD27: no service was passed, and `google-api-python-client` is not installed, which is also an ImportError.

    Source: tf.distribute.cluster_resolver.GCEClusterResolver.
    """

    def __init__(self, project: str, zone: str, instance_group: str, port: int = 8470, task_type: str = "worker",
                 task_id: int = 0, rpc_layer: str = "grpc", credentials: object = "default",
                 service: ComputeService | None = None) -> None:
        self._project, self._zone, self._group, self._port = project, zone, instance_group, port
        self._task_type, self.task_id = task_type, task_id
        self.rpc_layer = rpc_layer
        self._service = service or _compute_service(credentials)

    @property
    def task_type(self) -> str | None:
        """The name of the job of all machines, which stays what it is.

        Raises:
            RD34: it is set.
        """
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        raise errors.error("RD34", "GCEClusterResolver", f"task_type cannot be set to {task_type!r}: it is the job "
                           f"of all machines of the group, {self._task_type!r}", "Make another resolver.",
                           kind=errors.InvalidContextError)

    def cluster_spec(self) -> ClusterSpec:
        """One job with a task for each running machine, in the order of their addresses as text."""
        addresses = []
        where = {"project": self._project, "zone": self._zone}
        groups = self._service.instanceGroups()
        request = groups.listInstances(**where, instanceGroup=self._group, body={"instanceState": "RUNNING"},
                                       orderBy="name")
        while request is not None:
            answer = request.execute()
            for item in answer.get("items", []):
                name = item["instance"].rpartition("/")[2]
                machine = self._service.instances().get(**where, instance=name).execute()
                if machine.get("status", "RUNNING") == "RUNNING":
                    addresses.append(f"{machine['networkInterfaces'][0]['networkIP']}:{self._port}")
            request = groups.listInstances_next(previous_request=request, previous_response=answer)
        return ClusterSpec({self._task_type: sorted(addresses)})


class TPUSystemMetadata(NamedTuple):
    """What a TPU consists of.

    Attributes:
        num_cores: how many cores it has.
        num_hosts: how many hosts.
        num_of_cores_per_host: how many cores each host has.
        topology: None; `initialize_tpu_system` returns it.
        devices: the CPU and the cores of every host.

    Source: tf.tpu.experimental.TPUSystemMetadata.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: None
    devices: tuple[config.LogicalDevice, ...]


@lacks({"set_tpu_topology tpu_hardware_feature": "Leave it out: TPUs are simulated, and there is no hardware to ask."})
class TPUClusterResolver(ClusterResolver):
    """The hosts of a TPU.  TPUs are simulated devices in refdist, so "" and "local" mean this process.

    The devices of the only host of a local TPU are those of this process, "TPU:0" and so on; of another TPU they belong
    to the tasks of `job_name`, which is the resolver's `task_type`, and can be set later like `task_id`.

    Args:
        tpu: "", "local", or an address such as "grpc://host:port", of which no service is asked; names of Cloud TPUs
            need a `service`.  Or a list of one of these.
        zone, project, credentials, discovery_url: for the service.
        job_name, coordinator_name, coordinator_address: names of jobs.
        service: an object with `get_tpu(tpu, zone, project)` that returns a list of addresses.

    Raises:
        RD34: `tpu` is not one text.
        RD24: a program of TensorFlow names no TPU, and this machine has none.
        RD27: it is the name of a Cloud TPU, and no service was passed.

    Source: tf.distribute.cluster_resolver.TPUClusterResolver.
    """

    def __init__(self, tpu: str | list[str] | None = None, zone: str | None = None, project: str | None = None,
                 job_name: str = "worker", coordinator_name: str | None = None,
                 coordinator_address: str | None = None, credentials: object = "default",
                 service: TPUService | None = None,
                 discovery_url: str | None = None) -> None:
        named = tpu[0] if isinstance(tpu, list) and len(tpu) == 1 else tpu
        if not isinstance(named, str | None):
            raise errors.error("RD34", "TPUClusterResolver", f"tpu is {tpu!r}",
                               "Pass the name or the address of one TPU.")
        if not named and needs_tpu.value and not config.list_logical_devices("TPU"):
            raise errors.error("RD24", "TPUClusterResolver", "no TPU is named, and this machine has none",
                               "Name one in `tpu`, or simulate one: REFDIST_DEVICES=TPU:8 in the environment.",
                               kind=errors.InvalidValueError)
        self._tpu = "local" if named is None else named
        self._coordinator = coordinator_name, coordinator_address
        self.task_type, self.task_id, self.rpc_layer = job_name, 0, "grpc"
        self._addresses: list[str] = []
        if self._tpu not in ("", "local"):
            if service is not None and "://" not in self._tpu:
                self._addresses = list(service.get_tpu(self._tpu, zone, project))
            elif ":" in self._tpu:
                self._addresses = [address.rpartition("://")[2] for address in self._tpu.split(",")]
            else:
                raise errors.error("RD27", "TPUClusterResolver", f"{self._tpu!r} is the name of a Cloud TPU, whose "
                                   "address is not known",
                                   "Pass its address, such as \"grpc://host:port\", or a `service`.")

    def cluster_spec(self) -> ClusterSpec:
        """The TPU's hosts and the coordinator; empty for this process."""
        if not self._addresses:
            return ClusterSpec({})
        jobs = {self.task_type: self._addresses}
        name, address = self._coordinator
        if name and address:
            jobs[name] = [address]
        return ClusterSpec(jobs)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, of the resolver's own if none is named; that is the first one unless it was set.

        Args:
            task_type, task_id: the task; None for this one.
            rpc_layer: the protocol in front of the address; None for the resolver's own.

        Raises:
            RD17: the cluster does not have this task.
        """
        return super().master(task_type, task_id, rpc_layer) if self._addresses else ""

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: object = None) -> dict[str, int]:
        """How many TPUs this machine has.

        Args:
            task_type, task_id, config_proto: without effect.
        """
        return {"TPU": len(config.list_logical_devices("TPU"))}

    def get_master(self) -> str:
        """The same as `master()`."""
        return self.master()

    def get_job_name(self) -> str | None:
        """The name of the TPU's job."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """The task that would coordinate the others: the first one."""
        return f"/job:{self.task_type}/task:0"

    @staticmethod
    def connect(tpu: str | None = None, zone: str | None = None, project: str | None = None) -> TPUClusterResolver:
        """A resolver whose TPU has been initialized.

        Args:
            tpu: None or "" for the simulated TPU.
            zone, project: without effect.

        Raises:
            RD24: there is no TPU.  RD27: the name of a Cloud TPU.

        Source: tf.distribute.cluster_resolver.TPUClusterResolver.connect.
        """
        resolver = TPUClusterResolver(tpu, zone, project)
        initialize.value(resolver)
        return resolver

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """What the TPU consists of.

        Raises:
            RD17: there are not as many addresses as hosts.  RD24: this machine has no TPU.

        Source: tf.distribute.cluster_resolver.TPUClusterResolver.get_tpu_system_metadata.
        """
        mesh = config.tpu_mesh()
        if mesh is None:
            raise errors.error("RD24", "TPUClusterResolver", "this machine has no TPU",
                               "Simulate one: `refdist.config.set_simulated_devices(tpu=\"2x2x1x2\")`, the lengths of "
                               "the axes x, y, z and core.")
        if self._addresses and len(self._addresses) != mesh.hosts:
            raise errors.error("RD17", "TPUClusterResolver", f"the number of addresses is {len(self._addresses)}, "
                               f"and that of the TPU's hosts {mesh.hosts}", "Simulate as many: "
                               f"`set_simulated_devices(tpu=..., tpu_hosts={len(self._addresses)})`.")
        job = self.task_type if self._addresses or mesh.hosts > 1 else "localhost"
        devices = [config.LogicalDevice(f"/job:{job}/replica:0/task:{task}/device:{kind}:{i}", kind)
                 for task in range(mesh.hosts) for kind, count in (("CPU", 1), ("TPU", mesh.cores_per_host))
                 for i in range(count)]
        cores = mesh.hosts * mesh.cores_per_host
        return TPUSystemMetadata(cores, mesh.hosts, mesh.cores_per_host, None, tuple(devices))

    @property
    def environment(self) -> str | None:
        """Where the program runs: always ""."""
        return ""


def _kubernetes_client(location: ExecutableLocation) -> PodLister:
    try:
        from kubernetes import client
        from kubernetes import config as access
    except ImportError as error:
        raise errors.error("RD27", "KubernetesClusterResolver", "the package kubernetes is not installed",
                           "Run `pip install kubernetes`, or pass `override_client`.",
                           kind=errors.MissingPackageError) from error
    if location is ExecutableLocation.WITHIN_CLUSTER:
        access.load_incluster_config()
    else:
        access.load_kube_config()
    service: PodLister = client.CoreV1Api()
    return service


def _compute_service(credentials: object) -> ComputeService:
    try:
        from googleapiclient import discovery
    except ImportError as error:
        raise errors.error("RD27", "GCEClusterResolver", "the package google-api-python-client is not installed",
                           "Run `pip install google-api-python-client`, or pass `service`.",
                           kind=errors.MissingPackageError) from error
    options = {} if credentials == "default" else {"credentials": credentials}
    service: ComputeService = discovery.build("compute", "v1", **options)
    return service
