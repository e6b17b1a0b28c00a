"""`SlurmClusterResolver`: the cluster that a Slurm step describes in its environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import numpy as np

from refdist import errors
from refdist.cluster_resolver.base import ClusterResolver
from refdist.cluster_resolver.cluster_spec import ClusterSpec
from refdist.core.integers import integer

_PART = re.compile(r"([^\[\],]+)(?:\[([\d,-]+)\])?(?:,|$)")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_TASKS = "SLURM_STEP_NUM_TASKS"


class SlurmClusterResolver(ClusterResolver):
    """The tasks of a Slurm step, assigned to jobs in the order of their rank.

    Args:
        jobs: how many tasks each job has; all are workers when it is None.
        port_base: the port of the first task of a host; the next one has the next port.
        gpus_per_node: None counts CUDA_VISIBLE_DEVICES, or what nvidia-smi lists if that is not set.
        gpus_per_task: None divides the GPUs of a node equally among its tasks.
        tasks_per_node: an int, a list in the order in which Slurm lists the hosts, or a dict by host; None asks the
            environment.
        auto_set_gpu: whether CUDA_VISIBLE_DEVICES is set to this task's GPUs by `cluster_spec()`.
        rpc_layer: the protocol.

    Raises:
        RD17: the program does not run in a Slurm step, or the numbers of tasks, hosts and GPUs contradict each other.
        RD25, RD34: `tasks_per_node` is none of these.

    Source: tf.distribute.cluster_resolver.SlurmClusterResolver.
    """

    def __init__(self, jobs: dict[str, int] | None = None, port_base: int = 8888, gpus_per_node: int | None = None,
                 gpus_per_task: int | None = None,
                 tasks_per_node: int | Sequence[int] | Mapping[str, int] | None = None, auto_set_gpu: bool = True,
                 rpc_layer: str = "grpc") -> None:
        self._rank = _number("SLURM_PROCID")
        tasks = _number(_TASKS) if jobs is None or _TASKS in os.environ else sum(jobs.values())
        self._jobs = {"worker": tasks} if jobs is None else dict(sorted(jobs.items()))
        if sum(self._jobs.values()) != tasks:
            raise _wrong(f"the jobs ask for {sum(self._jobs.values())} tasks, and the step has {tasks}",
                         "Start as many tasks as the jobs need.", errors.InvalidContextError)
        self._hosts = self._tasks_of_hosts(tasks_per_node)
        if sum(self._hosts.values()) < tasks:
            raise _wrong(f"the hosts have room for {sum(self._hosts.values())} of {tasks} tasks",
                         "Pass more tasks_per_node.", errors.InvalidContextError)
        most = max(self._hosts.values())
        self._gpus_per_node = _gpus() if gpus_per_node is None else gpus_per_node
        self._gpus_per_task = self._gpus_per_node // most if gpus_per_task is None else gpus_per_task
        if self._gpus_per_task * most > self._gpus_per_node:
            raise _wrong(f"{most} tasks with {self._gpus_per_task} GPUs each run on nodes with {self._gpus_per_node}",
                         "Pass fewer gpus_per_task.", errors.InvalidContextError)
        self._port_base = port_base
        self._auto_set_gpu = auto_set_gpu
        self.rpc_layer = rpc_layer

    def _tasks_of_hosts(self, tasks_per_node: int | Sequence[int] | Mapping[str, int] | None) -> dict[str, int]:
        if isinstance(tasks_per_node, Mapping):
            listed = expand_hostlist(os.environ.get("SLURM_STEP_NODELIST", ""))
            hosts = [host for host in listed if host in tasks_per_node]
            return {host: tasks_per_node[host] for host in [*hosts, *sorted(set(tasks_per_node) - set(hosts))]}
        hosts = expand_hostlist(_text("SLURM_STEP_NODELIST"))
        if tasks_per_node is None:
            tasks_per_node = expand_tasks_per_node(_text("SLURM_STEP_TASKS_PER_NODE"))
        elif isinstance(tasks_per_node, int) or not np.ndim(tasks_per_node):
            tasks_per_node = [integer(tasks_per_node, "tasks_per_node", "SlurmClusterResolver")] * len(hosts)
        if len(tasks_per_node) != len(hosts):
            raise _wrong(f"the number of hosts is {len(hosts)}, and that of numbers of tasks {len(tasks_per_node)}",
                         "Pass one number of tasks for every host.", errors.InvalidContextError)
        return dict(zip(hosts, tasks_per_node, strict=True))

    def cluster_spec(self) -> ClusterSpec:
        """The tasks by job.  Sets task_type and task_id, and CUDA_VISIBLE_DEVICES if `auto_set_gpu`."""
        places = [(host, i) for host, count in self._hosts.items() for i in range(count)]
        cluster: dict[str, list[str]] = {}
        rank = 0
        for job, count in self._jobs.items():
            cluster[job] = [f"{host}:{self._port_base + i}" for host, i in places[rank:rank + count]]
            if rank <= self._rank < rank + count:
                self.task_type, self.task_id = job, self._rank - rank
            rank += count
        if self._auto_set_gpu and self._gpus_per_task:
            first = places[self._rank][1] * self._gpus_per_task
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + self._gpus_per_task)))
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """(task_type, task_id), known after `cluster_spec()`.

        Source: tf.distribute.cluster_resolver.SlurmClusterResolver.get_task_info.
        """
        return self.task_type, self.task_id

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: object = None) -> dict[str, int]:
        """The GPUs of a task.

        Args:
            task_type, task_id, config_proto: without effect.
        """
        return {"GPU": self._gpus_per_task}


def expand_hostlist(text: str) -> list[str]:
    """The hosts that a host list of Slurm names.

    >>> expand_hostlist("n1,n[2-4,7],m[08-10]")
    ['n1', 'n2', 'n3', 'n4', 'n7', 'm08', 'm09', 'm10']

    Raises:
        RD17: it is malformed.
    """
    hosts, end = [], 0
    while end < len(text):
        match = _PART.match(text, end)
        if match is None:
            raise _wrong(f"the host list {text!r} is malformed at {text[end:]!r}", "Write for example n[1-4],m1.")
        prefix, numbers = match.groups()
        hosts += [prefix] if numbers is None else [prefix + number for number in _numbers(numbers, text)]
        end = match.end()
    return hosts


def _numbers(text: str, whole: str) -> list[str]:
    numbers = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise _wrong(f"the host list {whole!r} is malformed at {item!r}", "Write for example n[1-4],m1.")
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last or first) + 1)]
    return numbers


def expand_tasks_per_node(text: str) -> list[int]:
    """The numbers of tasks per host that SLURM_STEP_TASKS_PER_NODE names.

    >>> expand_tasks_per_node("3(x2),2,1")
    [3, 3, 2, 1]

    Raises:
        RD17: it is malformed.
    """
    counts = []
    for item in text.split(","):
        match = _COUNT.fullmatch(item)
        if match is None:
            raise _wrong(f"the numbers of tasks {text!r} are malformed at {item!r}", "Write for example 2(x3),1.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(name: str) -> int:
    text = _text(name)
    if not text.isdecimal():
        raise _outside(name, text)
    return int(text)


def _text(name: str) -> str:
    text = os.environ.get(name, "")
    if not text:
        raise _outside(name, "not set")
    return text


def _outside(name: str, found: str) -> errors.RefdistError:
    return _wrong(f"the environment variable {name} is {found}",
                  "Start the program in a Slurm step: `srun python ...`.", errors.InvalidContextError)


def _gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return sum(map(bool, visible.split(",")))
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listed = subprocess.run([program, "--list-gpus"], capture_output=True, check=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise _wrong(f"nvidia-smi does not say which GPUs there are: {error}", "Pass gpus_per_node.",
                     errors.InvalidContextError) from error
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def _wrong(found: str, fix: str, kind: type[errors.RefdistError] | None = None) -> errors.RefdistError:
    return errors.error("RD17", "SlurmClusterResolver", found, fix, kind=kind)
