"""Which transport connects this process with the other workers.

The workers were started by a launcher: `simulate_workers`, mpiexec or srun, or one that a package has.  Each launcher
has a transport that recognizes a process that it started (`ConnectableTransport.group`); asking connects nothing and
imports no library of communication.  A strategy of several workers connects (`connect`); every other strategy only
asks, to warn of a program that trains a model of its own in every process.

Built-in transports are asked in the order of their table, so that workers simulated in a process that mpiexec started
are simulated ones.  A transport of a package is asked only where REFDIST_TRANSPORT names it: finding out what all
installed packages know would import all of them, and what a program computes would depend on what is installed.  Its
launcher sets the variable.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from refdist import errors, journal
from refdist.plugins import Plugins
from refdist.runtime import Field
from refdist.workers.channels import Peers
from refdist.workers.launcher import Task
from refdist.workers.transport import Transport

VARIABLE = "REFDIST_TRANSPORT"
BUILT_IN = {"simulated": "refdist.backends.simulated.workers:SimulatedWorker",
            "mpi": "refdist.backends.mpi.transport:MPITransport"}


class Group(NamedTuple):
    """The workers that were started together.

    Attributes:
        rank: the number of this one.
        size: how many there are.
        noun: what messages call them, in the plural.
    """

    rank: int
    size: int
    noun: str = "processes"


class ConnectableTransport(Transport):
    """A transport that connects a process by itself, as every one does that a package offers.

    Other transports are made from it: a backend's, for arrays in its own memory.
    """

    @classmethod
    @abstractmethod
    def group(cls) -> Group | None:
        """The workers that this process was started with; None where this transport's launcher did not start it.

        Connects nothing, and is asked often.
        """

    @classmethod
    @abstractmethod
    def connect(cls, timeout: float | None) -> ConnectableTransport:
        """The transport of this process; called once, and only where there is a group.

        Args:
            timeout: seconds that a worker waits for the others; None for the transport's own default.

        Raises:
            RD01: not all workers came in time.  RD27: a library that it needs is not installed.
        """

    @classmethod
    def alone(cls) -> None:
        """Called instead of `connect` in a process that is the only worker of its cluster, where there is a group."""

    @classmethod
    def gather(cls, rank: int, tasks: Mapping[Task, str], timeout: float | None) -> bool:
        """Meets workers that no launcher has started, so that `group` has them from then on; False where it cannot.

        Args:
            rank: the number of this worker.
            tasks: the chief, if any, and the workers, in the order of their numbers, and the address of each.
            timeout: as for `connect`.

        Raises:
            RD01: not all workers came in time.  RD17: they do not have the same cluster, or one task twice.
        """
        return False

    @classmethod
    def meet(cls, task: Task, cluster: Mapping[str, Sequence[int]]) -> Peers | None:
        """Connects this process with the other tasks of a job with parameter servers; instead of `connect`.

        Args:
            task: which one this process is.
            cluster: the numbers of the tasks of each type.

        Returns:
            None where the transport has no messages between two tasks: then each process simulates all of them.

        Raises:
            RD01: not all processes came in time.  RD17: the processes are not the tasks of one cluster.
        """
        return None


TRANSPORTS = Plugins(
    "transport", ConnectableTransport, BUILT_IN,  # type: ignore[type-abstract]
    "Implement them; the verbs but all_gather_object have defaults.")


def launcher() -> type[ConnectableTransport] | None:
    """The transport of what started this process together with other workers; None for a process that is alone.

    Raises:
        RD27: REFDIST_TRANSPORT names a transport that cannot be used, or whose launcher did not start this process.
    """
    wanted = os.environ.get(VARIABLE)
    for name in ("simulated", wanted) if wanted else BUILT_IN:
        transport = TRANSPORTS.find(name)
        if transport.group() is not None:
            return transport
    if wanted:
        raise errors.error("RD27", f"{VARIABLE}={wanted}", "this process was not started by that transport's launcher",
                           f"Start the program with the launcher, or unset {VARIABLE}.")
    return None


def gathered(rank: int, tasks: Mapping[Task, str], timeout: float | None) -> type[ConnectableTransport] | None:
    """The transport of workers that no launcher has started and that have met at the addresses of a cluster.

    Args:
        rank, tasks, timeout: see `ConnectableTransport.gather`.

    Returns:
        None where no built-in transport can do it.
    """
    kinds = map(TRANSPORTS.find, BUILT_IN)
    return next((kind for kind in kinds if kind.gather(rank, tasks, timeout)), None)


connected: Field[Transport | None] = Field(
    "what connects this worker with the others; None before the first strategy of several workers", lambda: None,
    per_worker=True, kept=True)


def joined() -> bool:
    """Whether this worker is connected with the others."""
    return connected.value is not None


def connect(kind: type[ConnectableTransport], timeout: float | None) -> Transport:
    """The transport of this worker, which is connected at the first call.

    Args:
        kind: found by `launcher`.
        timeout: seconds that a worker waits for the others; None leaves it as it is.

    Raises:
        RD27: the transport is not for the workers that `group` has named.
    """
    if connected.value is None:
        connected.value = transport = _checked(kind, kind.connect(timeout))
        journal.worker.value = transport.rank
    elif timeout is not None:
        connected.value.timeout = timeout
    return connected.value


def _checked(kind: type[ConnectableTransport], transport: object) -> Transport:
    # A transport for other workers would compute something else without a word: as one that lacks its rank and size,
    # which are those of a worker that is alone.
    group = kind.group()
    if group is not None and isinstance(transport, Transport) and (transport.rank, transport.size) == group[:2]:
        return transport
    actual = f"worker {transport.rank} of {transport.size}" if isinstance(transport, Transport) else repr(transport)
    wanted = "None" if group is None else f"worker {group.rank} of {group.size}"
    raise errors.error("RD27", f"{kind.__name__}.connect", f"it returned {actual}, and group() {wanted}",
                       "Return a transport with the rank and size of the group.", kind=errors.InvalidValueError)
