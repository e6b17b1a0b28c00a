"""What mpiexec and srun tell the processes that they start: one table of environment variables, and its readers.

Read from the environment alone, without importing mpi4py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


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
