"""What travels between the coordinator and the workers of a job: functions with their arguments, and results.

A function is sent by value, by cloudpickle, as far as it stands in the program itself, with all that it refers to as it
is when it is scheduled; what stands in a module is sent by name.  So a worker needs the modules of the program, and no
line of the program itself.  What the function changes of the objects that came with it is changed on the worker alone,
and is gone when it ends.  A function that cannot change is not sent again (`steady`).

Some objects stand for something that lies elsewhere: variables on parameter servers, the strategy, per-worker datasets
and their iterators, and variables of which each worker has its own.  They have a number instead.  The first time that
one of them is sent it gets a definition, and a worker gets the definitions that it lacks together with its next
function.  There it makes the object at its first use, and keeps it; so an iterator goes on where it was.

What cannot be sent is an error where it is scheduled: open files, locks, generators, other strategies, the coordinator,
RemoteValues, and variables made outside the strategy's scope, whose value is in the coordinator's memory.
"""

from __future__ import annotations

import functools
import io
import pickle
import threading
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, NamedTuple, TypeVar

from refdist import errors
from refdist.coordinator import steady
from refdist.coordinator.values import (
    PerWorkerDataset,
    PerWorkerIterator,
    RemoteValue,
    checked_dataset,
    not_on_a_worker,
    on_worker,
)
from refdist.core import devices
from refdist.strategies.job import Job
from refdist.strategies.parameter_server import ParameterServerExtended, ParameterServerStrategy
from refdist.variables.remote import RemoteVariable, handle
from refdist.variables.served import PerWorkerVariable
from refdist.variables.variable import ResourceVariable

A = TypeVar("A")


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise errors.error("RD27", "ClusterCoordinator.schedule", "functions are sent to processes, and cloudpickle is "
                           "not installed", "Run `pip install cloudpickle`.",
                           kind=errors.MissingPackageError) from error
    return cloudpickle


def _code(file: str, *args: Any) -> CodeType:
    return CodeType(*args).replace(co_filename=file)


@functools.cache
def _pickler() -> Any:
    """cloudpickle's pickler, made to keep the file names of code objects in every version, because errors name them."""
    base: Any = _cloudpickle().Pickler
    reduced = base.dispatch_table[CodeType]

    class Pickler(base):  # type: ignore[misc, unused-ignore]
        dispatch_table: ClassVar[Any] = ChainMap(
            {CodeType: lambda code: (_code, (code.co_filename, *reduced(code)[1]))}, base.dispatch_table)

    return Pickler


def by_value(value: object) -> bytes:
    """Pickles a result that a worker sends back, including objects of the program's own classes.

    Raises:
        RD25: something in it cannot be sent.
    """
    file = io.BytesIO()
    try:
        _pickler()(file, 5).dump(value)
    except Exception as error:
        raise errors.error("RD25", "the result of a scheduled function", f"it cannot be sent to the coordinator: "
                           f"{error}", "Return arrays, numbers and other plain objects.") from error
    return file.getvalue()


def fails_again(call: Callable[[A], object], argument: A) -> bool:
    """Whether a call that has raised an error raises one again; else a signal handler has raised that meanwhile.

    Handlers are called in the main thread only.
    """
    try:
        if threading.current_thread() is threading.main_thread():
            call(argument)
            return False
    except Exception:
        pass
    return True


class SharedDataset(PerWorkerDataset):
    """A per-worker dataset in a job of processes: each worker reads its own copy.

    Args:
        given: the dataset, or the function that returns one.
    """

    def __init__(self, given: object) -> None:
        super().__init__([], [])
        self._given = given

    @property
    def element_spec(self) -> Any:
        """The spec of the elements that a worker reads."""
        return self._made(0).element_spec

    def __iter__(self) -> PerWorkerIterator:
        not_on_a_worker("iterating over a per-worker dataset")
        return SharedIterator(self)

    def _made(self, worker: int) -> Any:
        given, attempted = self._given, "create_per_worker_dataset"
        if not callable(given):
            return checked_dataset(given, attempted)
        return checked_dataset(on_worker(worker, given), f"the dataset_fn of {attempted}")


class SharedIterator(PerWorkerIterator):
    """A per-worker iterator in a job of processes: each worker has its own."""

    def __init__(self, dataset: SharedDataset) -> None:
        super().__init__([], [])
        self._dataset = dataset


class _Function(NamedTuple):
    """Stands in a message for a function that the workers already have, by its number."""

    number: int


class Outgoing:
    """Pickles what the coordinator sends to workers.

    Attributes:
        definitions: of the objects that have a number, in an order in which none needs a later one.
    """

    def __init__(self, job: Job) -> None:
        self.definitions: list[tuple[int, bytes]] = []
        self._lock = threading.RLock()  # held while objects get their numbers; a definition may need others
        self._job = job
        # id -> (number, the object, kept so that no other one gets its id).
        self._numbers: dict[int, tuple[int, object]] = {}
        # ids of a function's parts -> [the parts, its number, a pickled call without arguments].
        self._steady: dict[tuple[int, ...], list[Any]] = {}
        base: Any = _pickler()
        outgoing = self

        class Pickler(base):  # type: ignore[misc, unused-ignore]
            def persistent_id(self, obj: object) -> int | None:
                return outgoing.number_of(obj) if isinstance(obj, _NUMBERED) else None

        self._pickler = Pickler

    def packed(self, value: object) -> bytes:
        """Pickles a value for the other process, with a number in place of each object that it knows by one.

        Raises:
            RD25: something in it cannot be sent.  RD20: a variable of this process alone.
        """
        try:
            return self._packed(value)
        except errors.RefdistError:
            raise
        except Exception as error:
            if not fails_again(self._packed, value):
                raise
            raise errors.error("RD25", "ClusterCoordinator.schedule", f"something that the function needs cannot be "
                               f"sent to a process: {error}", "Make it in the function, or in the function given to "
                               "create_per_worker_dataset.") from error

    def _packed(self, value: object) -> bytes:
        file = io.BytesIO()
        self._pickler(file, 5).dump(value)
        return file.getvalue()

    def call(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        """Pickles a call; a function that cannot change is sent twice, and by its number from then on.

        Raises:
            As `packed`.
        """
        with self._lock:
            return self._call(fn, args, kwargs)

    def _call(self, fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        parts = steady.parts(fn)
        if parts is None or len(self._steady) >= _MOST:
            return self.packed((fn, args, kwargs))
        known = self._steady.setdefault(tuple(map(id, parts)), [parts, None, b""])
        if known[1] is None:
            known[1] = -1
            return self.packed((fn, args, kwargs))
        if known[1] == -1:
            definition, number = self.packed(("function", fn)), self._job.new_number()
            without_arguments = self.packed((_Function(number), (), {}))
            self.definitions.append((number, definition))
            known[1:] = number, without_arguments  # at once; before, an interrupt has done no harm
        return self.packed((_Function(known[1]), args, kwargs)) if args or kwargs else known[2]

    def number_of(self, obj: object) -> int:
        """The number by which messages name an object; the first call adds the object to `definitions`.

        Raises:
            RD20: a variable of this process alone.  RD34: another object that belongs to this process.
        """
        if isinstance(obj, _Function):
            return obj.number
        with self._lock:
            key = id(obj)
            if key not in self._numbers:
                definition = self.packed(self._definition(obj))
                number = obj._number if isinstance(obj, RemoteVariable) else self._job.new_number()
                if key not in self._numbers:  # a signal handler may have come meanwhile, which sends the object, too
                    self._numbers[key] = number, obj
                    self.definitions.append((number, definition))
            return self._numbers[key][0]

    def _definition(self, obj: object) -> tuple[str, object]:
        if isinstance(obj, RemoteVariable):
            return "variable", (self._strategy_of(obj), obj.facts())
        for number, strategy in enumerate(self._job.strategies):
            if obj is strategy or obj is strategy.extended:
                return "strategy" if obj is strategy else "extended", number
        if isinstance(obj, PerWorkerVariable):
            first = obj._first
            return "own variable", (
                self._strategy_of(obj), obj._initial, first._name, first._shape, first._trainable,
                first._synchronization, first._aggregation, first._constraint)
        if isinstance(obj, SharedDataset):
            return "dataset", obj._given
        if isinstance(obj, SharedIterator):
            return "iterator", obj._dataset
        if isinstance(obj, ResourceVariable):
            raise errors.error("RD20", "ClusterCoordinator.schedule", f"the function uses variable {obj.name}, which "
                               "is in the memory of the coordinator's process",
                               "Create it in the strategy's scope, or pass its value as an argument.")
        raise errors.error("RD34", "ClusterCoordinator.schedule", f"the function uses a {type(obj).__name__}, which "
                           "belongs to the coordinator's process", "Pass the result, `value.fetch()`, or keep it in a "
                           "variable." if isinstance(obj, RemoteValue) else "")

    def _strategy_of(self, variable: RemoteVariable | PerWorkerVariable) -> int:
        return self._job.strategies.index(variable._strategy)


# Also those that are refused.
_NUMBERED = (ResourceVariable, PerWorkerVariable, ParameterServerStrategy, ParameterServerExtended, PerWorkerDataset,
             PerWorkerIterator, RemoteValue, _Function)
_MOST = 1000  # the most functions that are sent by their numbers


class Incoming:
    """Unpickles what a worker receives, and makes the objects that messages name by number.

    Args:
        strategy: this worker's counterpart of a strategy of the coordinator's process, by its number.
        worker: the number of this worker.
    """

    def __init__(self, strategy: Callable[[int], ParameterServerStrategy], worker: int) -> None:
        self._definitions: dict[int, bytes] = {}
        self._objects: dict[int, Any] = {}
        self._strategy = strategy
        self._worker = worker
        incoming = self

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid: int) -> Any:
                return incoming.numbered(pid)

        self._unpickler = Unpickler

    def define(self, definitions: list[tuple[int, bytes]]) -> None:
        """Stores definitions of numbered objects, which are made when they are first used."""
        self._definitions.update(definitions)

    def unpacked(self, data: bytes) -> Any:
        """Unpickles what `Outgoing.packed` returned."""
        return self._unpickler(io.BytesIO(data)).load()

    def numbered(self, number: int) -> Any:
        """The object with this number, which is made when it is first used.

        Raises:
            Whatever the making of it has raised, as often as it is asked for.
        """
        if number not in self._objects:
            try:
                self._objects[number] = self._made(*self.unpacked(self._definitions[number]))
            except Exception as error:
                self._objects[number] = error
        opened = self._objects[number]
        if isinstance(opened, Exception):
            raise opened
        return opened

    def _made(self, kind: str, given: Any) -> Any:
        if kind == "variable":
            number, facts = given
            return handle(self._strategy(number), facts)
        if kind == "own variable":
            number, array, name, shape, *rest = given
            return ResourceVariable(array, name, shape, devices.canonical(
                f"/job:worker/task:{self._worker}/device:CPU:0"), self._strategy(number), *rest)
        if kind == "function":
            return given
        if kind == "dataset":
            return SharedDataset(given)._made(self._worker)
        if kind == "iterator":
            return iter(given)
        return self._strategy(given) if kind == "strategy" else self._strategy(given).extended
