"""The state of this process, in one place.

A program sets what holds for all that comes after: the backend, the size of the machine, the strategy of
`experimental_set_strategy`, the journal that is being recorded.  All of it is a field of `process`, typed here, so
that a reader sees what there is and a test can put everything back: `with process.fresh():` runs its block as if
refdist had just been imported.

What is not here, and why:

* the stack of contexts (`core/context_stack`) and the parked replicas (`core/lockstep`) belong to a thread each, and
  are read at every call;
* caches, which change how long something takes and not what comes out: places in source files, parsed device names,
  classes of containers, compiled kernels;
* what belongs to the interpreter: `sys.excepthook`, and the environment.  Where a launcher gives no TF_CONFIG refdist
  sets one, because programs count their workers in it.  `fresh` puts the environment back.

The classes of the fields are those of higher layers, and named for annotations only.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from refdist.array.backend import Backend
    from refdist.array.convert import Library
    from refdist.array.transport import Transport
    from refdist.backends.simulated.workers import SimulatedWorker
    from refdist.config import LogicalPart
    from refdist.core.context_stack import Frame
    from refdist.core.interfaces import ReplicaSwitchHooks
    from refdist.journal import Event
    from refdist.random.generator import Generator
    from refdist.strategies.base import Strategy
    from refdist.strategies.replica_context import ReplicaContext


class Machine:
    """The devices of the machine, as they were stated, and the order in which replicas run on them.

    Attributes:
        counts: how many devices of each type there are; None where that is not stated.
        asked: whether REFDIST_DEVICES has been read, or overruled.
        advice: what errors about devices that the machine does not have tell the user to write.
        random: draws the order in which replicas run next; None for replica order.
        seed_asked: whether REFDIST_REPLICA_SEED has been read.
        divided: by type and number of a physical device, the memory limits of the logical ones on it, in MiB.
        parts: the logical devices by type and number of physical ones; computed at first use.
        watchers: called whenever the machine is sized or divided.
    """

    __slots__ = ("advice", "asked", "counts", "divided", "parts", "random", "seed_asked", "watchers")

    def __init__(self) -> None:
        self.counts: dict[str, int] | None = None
        self.asked = False
        self.advice = ""
        self.random: random.Random | None = None
        self.seed_asked = False
        self.divided: dict[tuple[str, int], tuple[int | None, ...]] = {}
        self.parts: dict[tuple[str, int], list[LogicalPart]] = {}
        self.watchers: list[Callable[[], None]] = []


class Runtime:
    """What changes while a program runs; and, set once at import, what lower layers ask of higher ones.

    Attributes:
        array_types: the types of arrays, and the backend that has declared them; None for NumPy's, which every
            backend takes.
        backend: the backend in use; None until one is chosen or needed.
        backends: those made so far, by name; each is made once, so that a strategy that goes back to its backend
            finds the same one.
        switch_hooks: called when replicas take turns; None where the backend does not need it.
        journal: the events recorded so far; None while nothing is recorded.
        machine: its devices.
        generator: the global random generator; each simulated worker has its own.
        set_strategy: the frame that `experimental_set_strategy` has pushed; None where it has not.
        simulated_worker: the one that the program runs as; None outside `simulate_workers`.
        transport: what connects the processes that a launcher started; None before the first strategy of several
            workers.
        count_devices: asks the backend for its devices.
        default_strategy: the strategy outside any scope.
        default_replica: its replica.
    """

    __slots__ = ("array_types", "backend", "backends", "count_devices", "default_replica", "default_strategy",
                 "generator", "journal", "machine", "set_strategy", "simulated_worker", "switch_hooks", "transport")

    # Set once, at import or by the first strategy of several workers; `fresh` leaves them.
    _ONCE = frozenset({"count_devices", "default_replica", "default_strategy", "transport"})
    count_devices: Callable[[], dict[str, int] | None]
    default_strategy: Strategy
    default_replica: ReplicaContext

    def __init__(self) -> None:
        self.array_types: dict[type, Library | None] = {np.ndarray: None}
        self.backend: Backend | None = None
        self.backends: dict[str, Backend] = {}
        self.switch_hooks: ReplicaSwitchHooks | None = None
        self.journal: list[Event] | None = None
        self.machine = Machine()
        self.generator: Generator | None = None
        self.set_strategy: Frame | None = None
        self.simulated_worker: SimulatedWorker | None = None
        self.transport: Transport | None = None

    @contextmanager
    def fresh(self, **environment: str) -> Iterator[None]:
        """A process that has just imported refdist, for the length of a `with` block outside any scope.

        Args:
            environment: variables that it finds set, beside those there are.
        """
        new, variables = Runtime(), dict(os.environ)
        before = {name: getattr(self, name) for name in self.__slots__ if name not in self._ONCE}
        for name in before:
            setattr(self, name, getattr(new, name))
        os.environ.update(environment)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            os.environ.clear()
            os.environ.update(variables)


process = Runtime()
