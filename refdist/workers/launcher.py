"""What mpiexec and srun tell the processes that they start: one table of environment variables, and its readers.

Read from the environment alone, without importing mpi4py.  Launchers number processes, and clusters tasks: `task_of`
is where the one becomes the other, and beyond it a process has the name of its task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CHIEF, WORKER, SERVER = "chief", "worker", "ps"
SERVERS_VARIABLE = "REFDIST_PS"
# Under a supervisor: its process, and the numbers of the socket to it and of the standard error.
SUPERVISED_VARIABLE = "REFDIST_SUPERVISOR"
RESTARTS_VARIABLE = "REFDIST_MAX_RESTARTS"  # how often the job is started again at most; not set for never


class Task(NamedTuple):
    """A task of a cluster: its type and its number.

    >>> str(Task("worker", 1)), str(Task("chief", 0))
    ('worker 1', 'chief')
    """

    type: str
    number: int

    def __str__(self) -> str:
        return self.type if self.type == CHIEF else f"{self.type} {self.number}"


class Launcher(NamedTuple):
    """The environment variables of one launcher.

    Attributes:
        name: what the launcher is called here.
        proof: set in every process that it started, and nowhere else.
        rank, size: this process's number, and how many there are.
        local_rank, local_size: the same among the processes of this host.
    """

    name: str
    proof: str
    rank: str
    size: str
    local_rank: str
    local_size: str


LAUNCHERS = (
    Launcher("PRRTE", "PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Launcher("OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    Launcher("Hydra", "PMI_FD", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Set in batch scripts too, so it counts only in a step of several tasks.
    Launcher("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
             "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


class Launch(NamedTuple):
    """How this process was started."""

    launcher: str
    rank: int
    size: int


def launched() -> Launch | None:
    """Who started this process together with others; None for a process that was started alone."""
    for row in LAUNCHERS:
        rank, size = (os.environ.get(name, "") for name in (row.rank, row.size))
        if row.proof in os.environ and rank.isdecimal() and size.isdecimal():
            if row.name != "Slurm" or int(size) > 1:
                return Launch(row.name, int(rank), int(size))
    return None


def on_this_host(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """This process's number among those of its host, and how many they are; None where no launcher says it.

    >>> on_this_host({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    (1, 2)
    """
    for row in LAUNCHERS:
        rank, size = (environment.get(name, "") for name in (row.local_rank, row.local_size))
        if rank.isdecimal():
            return int(rank), max(int(size) if size.isdecimal() else 0, int(rank) + 1)
    return None


def jobs_of(size: int) -> dict[str, int] | None:
    """How many tasks of each type so many processes are; None where there are too few for REFDIST_PS, or it is wrong.

    They are all workers, unless REFDIST_PS says how many of them are parameter servers: then process 0 is the chief,
    which coordinates, the last ones are the parameter servers, and those between them the workers.
    """
    text = os.environ.get(SERVERS_VARIABLE, "0")
    servers = int(text) if text.isdecimal() else -1
    if servers == 0:
        return {WORKER: size}
    workers = size - 1 - servers
    return None if servers < 0 or workers < 1 else {CHIEF: 1, WORKER: workers, SERVER: servers}


def task_of(rank: int, size: int) -> Task:
    """The task of a process; a worker where no tasks can be told."""
    number = rank
    for job, count in (jobs_of(size) or {}).items():
        if number < count:
            return Task(job, number)
        number -= count
    return Task(WORKER, rank)


def named(tasks: Iterable[Task]) -> str:
    """These tasks in one text.

    >>> workers = [Task("worker", number) for number in (3, 0, 1, 5, 6)]
    >>> named(workers[:1]), named(workers), named([Task("ps", 0), *workers[1:3], Task("chief", 0)])
    ('worker 3', 'workers 0-1, 3, 5-6', 'chief, workers 0-1, ps 0')
    """
    different = set(tasks)
    texts = [CHIEF] if Task(CHIEF, 0) in different else []
    for job, several in ((WORKER, "workers"), (SERVER, SERVER)):
        runs: list[list[int]] = []
        for number in sorted(number for task_job, number in different if task_job == job):
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        if runs:
            text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
            texts.append(f"{job if text.isdecimal() else several} {text}")
    return ", ".join(texts)


def prefixed(label: str, text: str) -> str:
    """The text with the label before each line."""
    return "".join(f"[{label}] {line}\n" for line in text.splitlines())
