"""`ClusterSpec`: the tasks of a cluster and their addresses; `check_cluster`: whether a strategy can run on it."""

from __future__ import annotations

from typing import Any, NamedTuple

from refdist import errors
from refdist.core.integers import as_integer
from refdist.missing import NO_PROTOS, lacks

TASK_TYPES = ("chief", "worker", "evaluator", "ps")


@lacks({"as_cluster_def": f"{NO_PROTOS} Write `as_dict`."})
class ClusterSpec:
    """Jobs, and the network addresses of their tasks.

    Args:
        cluster: for every job a list of addresses or a dict from task index to address; or a ClusterSpec.  An index
            may be text, as in JSON, and indices may have gaps.

    >>> spec = ClusterSpec({"worker": ["a:1", "b:2"], "ps": {3: "c:4"}})
    >>> spec.num_tasks("worker"), spec.task_address("ps", 3), spec.job_tasks("ps")
    (2, 'c:4', [None, None, None, 'c:4'])

    Raises:
        RD25, RD34: it is neither a ClusterSpec nor a dict of lists or dicts of addresses.

    Source: tf.train.ClusterSpec.
    """

    def __init__(self, cluster: object) -> None:
        self._jobs: dict[str, dict[int, str]] = {}
        if isinstance(cluster, ClusterSpec):
            self._jobs = {job: dict(tasks) for job, tasks in cluster._jobs.items()}
            return
        if not isinstance(cluster, dict):
            raise errors.error("RD25", "ClusterSpec", f"got {cluster!r}",
                               "Pass a dict such as {\"worker\": [\"host:port\"]}.")
        for name, tasks in cluster.items():
            if not isinstance(name, (str, bytes)):
                raise errors.error("RD25", "ClusterSpec", f"a job has the name {name!r}",
                                   "Pass text such as \"worker\".")
            job = name.decode() if isinstance(name, bytes) else name
            if isinstance(tasks, (list, tuple)):
                tasks = dict(enumerate(tasks))
            if not isinstance(tasks, dict):
                raise errors.error("RD25", "ClusterSpec", f"the tasks of job {job!r} are {tasks!r}",
                                   "Pass a list of addresses, or a dict from task index to address.")
            addresses = [(_index(job, i), _address(job, i, where)) for i, where in tasks.items()]
            self._jobs[job] = dict(addresses)
            if len(self._jobs[job]) < len(addresses):
                raise errors.error("RD25", "ClusterSpec", f"job {job!r} has a task index twice: {list(tasks)}",
                                   "Give every task one address.")

    def as_dict(self) -> dict[str, Any]:
        """The addresses by job: a list if the task indices are 0, 1, 2 ..., else a dict from task index to address.

        Source: tf.train.ClusterSpec.as_dict.
        """
        return {job: [tasks[i] for i in range(len(tasks))] if tasks and set(tasks) == set(range(len(tasks)))
                else dict(tasks) for job, tasks in self._jobs.items()}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs.

        Source: tf.train.ClusterSpec.jobs.
        """
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks a job has.

        Args:
            job_name: such as "worker".

        Raises:
            RD17: no such job.

        Source: tf.train.ClusterSpec.num_tasks.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The indices of the tasks of a job.

        Args:
            job_name: such as "worker".

        Raises:
            RD17: no such job.

        Source: tf.train.ClusterSpec.task_indices.
        """
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task.

        Args:
            job_name: such as "worker".
            task_index: the number of the task within its job.

        Raises:
            RD17: no such job or task.

        Source: tf.train.ClusterSpec.task_address.
        """
        tasks = self._job(job_name)
        index = as_integer(task_index)
        if index is None or index not in tasks:
            raise errors.error("RD17", "ClusterSpec", f"job {job_name!r} has no task {task_index!r}",
                               f"Its tasks are {sorted(tasks)}.")
        return tasks[index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job by task index, None for an index without a task.

        Args:
            job_name: such as "worker".

        Raises:
            RD17: no such job.

        Source: tf.train.ClusterSpec.job_tasks.
        """
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def _job(self, name: str) -> dict[int, str]:
        if name not in self._jobs:
            raise errors.error("RD17", "ClusterSpec", f"job {name!r} does not exist", f"The jobs are {self.jobs}.")
        return self._jobs[name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(repr(sorted(self._jobs)))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


class Member(NamedTuple):
    """The rank of a task among the workers that train together, and how many there are; the chief has rank 0."""

    number: int
    size: int


def check_cluster(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> Member | None:
    """Checks that a task of a cluster can train, and finds its rank; None for an empty cluster.

    An evaluator works alone, with rank 0 of 1, and need not be in the cluster.

    Raises:
        RD17: an unknown task type, no task type or index, or an index that the cluster does not have.

    Source: observed, TensorFlow 2.21, multi_worker_util.
    """
    attempted = f"task {task_type}:{task_id} of {spec}"
    if task_id is not None and (as_integer(task_id) is None or task_id < 0):
        raise errors.error("RD17", attempted, f"the task index is {task_id!r}", "Pass an int of 0 or more.")
    if not spec:
        return None
    strange: list[str | None] = [job for job in spec.jobs if job not in TASK_TYPES]
    if strange or not (task_type is None or task_type in TASK_TYPES):
        raise errors.error("RD17", attempted, f"{(strange or [task_type])[0]!r} is not a type of task",
                           f"The types are {', '.join(TASK_TYPES)}.")
    if task_type is None or task_id is None:
        raise errors.error("RD17", attempted, "the cluster is given, but the type or index of the task is not",
                           "Give both; in TF_CONFIG they are \"task\": {\"type\": ..., \"index\": ...}.")
    if task_type == "ps":
        raise errors.error("RD17", attempted, "a parameter server does not train",
                           "Give this task another type; refdist has only strategies that train on workers.")
    for job in ("chief", "evaluator"):
        if job in spec.jobs and spec.num_tasks(job) > 1:
            raise errors.error("RD17", attempted, f"there are {spec.num_tasks(job)} {job}s",
                               f"Give the cluster one {job} at most.")
    outside = task_type == "evaluator" and task_type not in spec.jobs
    if not outside and (task_type not in spec.jobs or task_id not in spec.task_indices(task_type)):
        there = f"indices {spec.task_indices(task_type)}" if task_type in spec.jobs else f"jobs {spec.jobs}"
        raise errors.error("RD17", attempted, "the cluster does not have this task", f"It has {there}.")
    if task_type == "evaluator":
        return Member(0, 1)
    chiefs = spec.num_tasks("chief") if "chief" in spec.jobs else 0
    workers = spec.num_tasks("worker") if "worker" in spec.jobs else 0
    place = spec.task_indices(task_type).index(task_id)
    return Member(place if task_type == "chief" else chiefs + place, chiefs + workers)


def check_servers(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> None:
    """Checks that a coordinator can train on a cluster with parameter servers.

    Raises:
        RD17: an unknown type of task, several chiefs or evaluators, no worker or no parameter server, or a task that is
            not there.

    Source: tf.distribute.ParameterServerStrategy; observed, TensorFlow 2.21, multi_worker_util.
    """
    attempted = f"ParameterServerStrategy on {spec}"
    if not spec:
        raise errors.error("RD17", attempted, "the cluster is empty", 'Set TF_CONFIG, or pass a SimpleClusterResolver '
                           'of ClusterSpec({"worker": ["host:port", ...], "ps": ["host:port", ...]}).')
    strange: list[str | None] = [job for job in spec.jobs if job not in TASK_TYPES]
    if strange or not (task_type is None or task_type in TASK_TYPES):
        raise errors.error("RD17", attempted, f"{(strange or [task_type])[0]!r} is not a type of task",
                           f"The types are {', '.join(TASK_TYPES)}.")
    for job, least, most in (("chief", 0, 1), ("evaluator", 0, 1), ("worker", 1, None), ("ps", 1, None)):
        count = spec.num_tasks(job) if job in spec.jobs else 0
        if count < least or (most is not None and count > most):
            raise errors.error("RD17", attempted, f"the number of tasks of type {job} is {count}",
                               "Give the cluster one worker and one ps at least, and one chief and one evaluator "
                               "at most.")
    if task_type in spec.jobs and task_type != "chief" and task_id not in spec.task_indices(task_type):
        raise errors.error("RD17", attempted, f"this task is said to be {task_type} {task_id}, which the cluster does "
                           "not have", f"It has {spec.task_indices(task_type)}.")


def integer(value: object) -> int | None:
    """The int that a task index is: an int, or the text of one, as JSON has for keys; None for anything else.

    >>> integer("3"), integer(True), integer(1.0)
    (3, None, None)
    """
    if not isinstance(value, str):
        return as_integer(value)
    try:
        return int(value)
    except ValueError:
        return None


def _index(job: object, value: object) -> int:
    index = integer(value)
    if index is None or index < 0:
        raise errors.error("RD25", "ClusterSpec", f"job {job!r} has the task index {value!r}",
                           "Pass ints of 0 or more.")
    return index


def _address(job: object, index: object, address: object) -> str:
    if not isinstance(address, (str, bytes)):
        raise errors.error("RD25", "ClusterSpec", f"the address of task {index} of job {job!r} is {address!r}",
                           "Pass text such as \"host:port\".")
    return address.decode() if isinstance(address, bytes) else address
