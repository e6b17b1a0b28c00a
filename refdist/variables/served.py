"""Variables on parameter servers, and variables of which each worker of a coordinator has its own.

A served variable is a cell: functions on all workers, and the coordinator, read and write it, each access is carried
out as a whole, and between two accesses anything may happen.  So an access asks first (`Servers.visit`): there the
simulation may let others go on, and a server that is gone is an error.  `assign_add` is one access and loses nothing;
`v.assign(v + 1)` is two.

A variable with `per_worker_variable=True` is not served: each worker has one, in its own memory, that begins at the
initial value, and begins there again when the worker comes back after it was gone.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, Protocol

from refdist import errors, nest
from refdist.array.convert import HoldsArray, to_array
from refdist.array.types import Array
from refdist.core import devices
from refdist.core.rules.options import VariableAggregation
from refdist.variables.distributed import AggregatingVariable
from refdist.variables.interfaces import Extended, Strategy
from refdist.variables.values import is_splittable
from refdist.variables.variable import ResourceVariable, Variable


class _Here(threading.local):
    # The worker whose function runs in this thread; None on the coordinator.
    worker: int | None = None


here = _Here()


class Access(NamedTuple):
    """An access that a function or the coordinator is about to make to a variable on a parameter server.

    Attributes:
        operation: "read", "create", or a key of OPERATIONS (`core/rules/variables.py`).
        device: the server's.
        variable: what holds the value, which is one shard of a variable that is split; None for one that is not yet
            there.
        value: what is written.
        returned: whether the caller is given the value that the variable has then.
        name: what the variable will be called, if it is not yet there.
    """

    operation: str
    device: str
    variable: ResourceVariable | None = None
    value: object = None
    returned: bool = True
    name: str | None = None

    def __str__(self) -> str:
        if self.variable is None:
            return f"Variable(name={self.name!r})"
        return f"{self.operation} of variable {self.variable.name}"


class Servers(Extended, Protocol):
    """The part of a ParameterServerExtended that its variables use."""

    lost: set[int]
    workers: int
    lives: list[int]
    job: object

    def visit(self, access: Access) -> None:
        """Called before every access; raises where the variable's server is gone."""


def lost(device: str, what: str) -> errors.RefdistError:
    """The error for an access to a variable whose parameter server is gone."""
    return errors.error("RD33", what, f"ps {devices.parse(device).task}, which had the variable, is gone")


def _visit(variable: ResourceVariable, operation: str, value: object = None, returned: bool = True) -> None:
    strategy: Any = variable._created_by
    strategy.extended.visit(Access(operation, variable._device, variable, value, returned))


def _read_first(value: object) -> object:
    """Replaces variables in a value that is to be written by their arrays: they are read before the write begins."""
    if nest.is_nested(value):
        return nest.map_structure(_read_first, value)
    return to_array(value) if isinstance(value, HoldsArray) and not is_splittable(value) else value


class ServedVariable(ResourceVariable):
    """A variable on a parameter server.

    Source: tf.distribute.ParameterServerStrategy, "Variable creation with `strategy.scope()`".
    """

    __slots__ = ()

    def _read(self) -> Any:
        _visit(self, "read")
        return super()._read()

    def _stored(self) -> Any:
        _visit(self, "read")
        return super()._stored()

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        value = _read_first(value)
        _visit(self, operation, value, read_value)
        return super()._write(operation, value, read_value)

    def get(self) -> ServedVariable:
        """The variable itself."""
        return self


class ServedAggregatingVariable(AggregatingVariable):
    """A variable on a parameter server that several replicas of a worker update together."""

    __slots__ = ()

    def _read(self) -> Any:
        _visit(self._primary, "read")
        return super()._read()

    def _stored(self) -> Any:
        _visit(self._primary, "read")
        return super()._stored()

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        value = _read_first(value)
        _visit(self._primary, operation, value)
        return super()._write(operation, value, read_value)


class PerWorkerVariable(Variable):
    """A variable of which each worker has its own; the coordinator has one, too.

    In a scheduled function it is the worker's, anywhere else the coordinator's.

    Args:
        first: the coordinator's, whose value all begin with.

    Source: observed, TensorFlow 2.21 (`per_worker_variable=True`).
    """

    __slots__ = ("__weakref__", "_cells", "_first", "_initial")

    def __init__(self, first: ResourceVariable) -> None:
        self._first = first
        self._initial: Array = first._array
        # Worker -> (how often it had been lost when its variable was made, its variable).
        self._cells: dict[int, tuple[int, ResourceVariable]] = {}

    @property
    def _strategy(self) -> Strategy | None:
        return self._first._created_by

    @property
    def _aggregation(self) -> VariableAggregation:  # type: ignore[override]
        return self._first._aggregation

    @property
    def _copies(self) -> tuple[ResourceVariable, ...]:
        return (self._first if here.worker is None else self._of(here.worker),)

    def _of(self, worker: int) -> ResourceVariable:
        servers: Any = self._strategy
        life = servers.extended.lives[worker]
        made_in, cell = self._cells.get(worker, (-1, self._first))
        if made_in != life:
            first = self._first
            cell = ResourceVariable(self._initial, first._name, first._shape,
                                    devices.canonical(f"/job:worker/task:{worker}/device:CPU:0"), self._strategy,
                                    first._trainable, first._synchronization, first._aggregation, first._constraint)
            self._cells[worker] = life, cell
        return cell

    def _read(self) -> Any:
        return self._primary._array

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        return self._primary._write(operation, value, read_value)

    def read_all(self) -> list[Any]:
        """The values of all workers.

        Raises:
            RD09: called in a scheduled function.  RD20: the workers are processes.
        """
        if here.worker is not None:
            raise errors.error("RD09", f"read_all of variable {self.name}", f"it was called on worker {here.worker}",
                               "Call it on the coordinator, when the functions have ended.")
        servers: Any = self._strategy
        if servers.extended.job is not None:
            raise errors.error("RD20", f"read_all of variable {self.name}", "the values are in other processes",
                               "Return the value from a scheduled function.")
        return [self._of(worker)._array for worker in range(servers.extended.workers)]

    def __repr__(self) -> str:
        return f"<PerWorkerVariable {self.name!r} shape={self.shape} dtype={self.dtype}>"


