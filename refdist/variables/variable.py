"""`Variable`: an array that keeps its identity while its value changes.

`ResourceVariable` is one array on one device: a plain variable, or a copy of a distributed one (`distributed`).  How
variables are created is in `creation`.  A stored array is never written again, so reads need no copies and equal copies
of a variable share one array.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refdist import errors, journal, notebook
from refdist.array.backend import current_backend
from refdist.array.convert import dtype_of, read_only, short, to_array, to_numpy
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.operators import ArrayOperators
from refdist.array.types import Array
from refdist.core import call_site, context_stack, jax
from refdist.core.cell import Cell
from refdist.core.rules.options import VariableAggregation, VariableSynchronization
from refdist.core.rules.table import Refusal
from refdist.core.rules.variables import FOREIGN_WRITES, Kind
from refdist.missing import NO_GRAPHS, NO_PROTOS, lacks
from refdist.variables.access import refused, write_situation
from refdist.variables.interfaces import Strategy
from refdist.variables.operations import gathered, prepare, update
from refdist.variables.values import DistributedValues, packed

_FOREIGN = FOREIGN_WRITES[Kind.PLAIN]
# Functions that get each array that is read from a variable and return one in its place: tapes of `refdist.tf`.
watchers: ContextVar[tuple[Callable[[Variable, Any], Any], ...]] = ContextVar("watchers", default=())


class _VariableType(type):
    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return Variable._create(*args, **kwargs) if cls is Variable else super().__call__(*args, **kwargs)


@lacks({
    "load": "Write `variable.assign(value)`.",
    "eval initial_value initialized_value read_value_no_copy": "Write `variable.read_value()`.",
    "experimental_ref": "Write `variable.ref()`.",
    "scatter_nd_min scatter_nd_max": "Write `scatter_min` or `scatter_max` with IndexedSlices.",
    "count_up_to": "Write `variable.assign_add(1)`.",
    "set_shape": "Leave it out: the shape is known.",
    "create graph handle initializer op SaveSliceInfo": NO_GRAPHS,
    "from_proto to_proto": NO_PROTOS,
})
class Variable(ArrayOperators, metaclass=_VariableType):  # type: ignore[metaclass]
    """A value that replicas read and update.

    Called inside `strategy.scope()` or inside a replica, it makes the kind of variable the strategy defines.

    Args:
        initial_value: a number, list, array, variable, or a function without arguments that returns one.
        trainable: None means True, except for variables that are synchronized on read.
        name: None means "Variable"; copies are called `name/replica_1` and so on.
        dtype: None keeps the dtype of the initial value.
        synchronization: when the copies are synchronized.
        aggregation: how the updates of several replicas become one.
        shape: None means the shape of the initial value; a tuple with None allows other sizes later.
        per_worker_variable: under a ParameterServerStrategy, whether each worker has a variable of its own.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> with strategy.scope():
    ...     v = refdist.Variable(1.0, aggregation=refdist.VariableAggregation.SUM)
    >>> _ = strategy.run(lambda: v.assign_add(2.0))
    >>> float(v)
    5.0

    Raises:
        RD25, RD34: no initial value, or an unknown synchronization or aggregation.
        RD13, RD20: a combination that the strategy does not support.

    Source: tf.Variable; tf.distribute.Strategy.scope, "What happens when Strategy.scope is entered?".
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the metaclass hides the parameters from type checkers
        def __init__(self, initial_value: object = None, trainable: bool | None = None, validate_shape: bool = True,
                     caching_device: object = None, name: str | None = None, variable_def: object = None,
                     dtype: DTypeLike | None = None, import_scope: str | None = None,
                     constraint: Callable[..., object] | None = None,
                     synchronization: VariableSynchronization | None = VariableSynchronization.AUTO,
                     aggregation: VariableAggregation | None = VariableAggregation.NONE,
                     shape: Iterable[int | None] | None = None,
                     experimental_enable_variable_lifting: bool = True, *,
                     per_worker_variable: bool = False) -> None: ...

    # What `Variable(...)` calls; set by `creation`, which imports all kinds of variables and cannot be imported here.
    _create: ClassVar[Callable[..., Any]]

    # Implemented by subclasses.

    _kind: ClassVar[Kind] = Kind.PLAIN
    _aggregation: VariableAggregation

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        raise errors.InternalError("abstract")

    @property
    def _strategy(self) -> Strategy | None:
        raise errors.InternalError("abstract")

    @property
    def _copies(self) -> tuple[ResourceVariable, ...]:
        raise errors.InternalError("abstract")

    @property
    def _primary(self) -> ResourceVariable:
        return self._copies[0]

    # Reading.

    def _to_current_device(self, array: Array) -> Any:
        if type(array) is not np.ndarray:
            array = read_only(array)
        if watching := watchers.get():
            owner = getattr(self, "_owner", None)
            for watch in watching:
                array = watch(self if owner is None else owner, array)
        if "jax" in sys.modules and jax.compiles():
            call_site.warn(f"JAX compiles a function that reads variable {self.name}: the compiled function keeps the "
                           "value of now and sees no later one. Pass `v.read_value()` to it as an argument.")
        device = context_stack.frame().device
        return current_backend().put(array, device) if device and device != self._primary._device else array

    def read_value(self) -> Any:
        """The value as a read-only array."""
        return self._read()

    def value(self) -> Any:
        """The value as a read-only array."""
        return self._read()

    def _stored(self) -> Any:
        # The array that a read gives, as it is stored, so that nobody may write to it; None where a read computes one.
        return None

    def sparse_read(self, indices: object, name: str | None = None) -> Any:
        """The rows at `indices` of the first dimension, as a read-only array.

        Args:
            indices: an array of integers of any shape; the result has that shape, `[*indices.shape, *self.shape[1:]]`,
                and the dtype of the variable.
            name: without effect.

        Raises:
            RD25, RD34: indices that are not integers, or of rows that do not exist.
        """
        return self._gathered(to_array(indices, argument="indices")[..., None], "sparse_read")

    def gather_nd(self, indices: object, name: str | None = None) -> Any:
        """The parts at `indices`, as a read-only array; the last dimension of `indices` has the indices of one part.

        Args:
            indices: an array of integers of shape [..., depth]; the result has the shape `[..., *self.shape[depth:]]`,
                and the dtype of the variable.
            name: without effect.

        Raises:
            RD25, RD34: indices that are not integers, or of parts that do not exist.
        """
        return self._gathered(to_array(indices, argument="indices"), "gather_nd")

    def _gathered(self, indices: Array, method: str) -> Any:
        device = context_stack.frame().device or self.device
        return gathered(self._read(), indices, device, f"{method} of variable {self.name}")

    def is_initialized(self, name: str | None = None) -> np.bool_:
        """True: a variable has its initial value when it is made.

        Args:
            name: without effect.
        """
        return np.True_

    @property
    def name(self) -> str:
        """The name with ":0", as TensorFlow writes it."""
        return sys.intern(f"{self._primary._name}:0")  # one object, which replicas can return

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the value; it never changes."""
        return dtype_of(self._primary._array)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of the value; None for dimensions that may change."""
        return self._primary._shape

    def get_shape(self) -> tuple[int | None, ...]:
        """The same as `shape`."""
        return self.shape

    @property
    def device(self) -> str:
        """Canonical name of the device of the copy that a read would use."""
        return self._primary._device

    @property
    def trainable(self) -> bool:
        """Whether optimizers should update it."""
        return self._primary._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When the copies are synchronized."""
        return self._primary._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How updates of several replicas become one."""
        return self._aggregation

    @property
    def constraint(self) -> Callable[..., object] | None:
        """The projection given at creation, for optimizers to apply."""
        return self._primary._constraint

    @property
    def distribute_strategy(self) -> Any:
        """The strategy that created the variable, None outside any scope."""
        return self._strategy

    def __hash__(self) -> int:
        raise errors.error("RD25", f"hash of variable {self.name}", "variables compare by value",
                           "Use `variable.ref()` as the key.")

    def ref(self) -> Reference:
        """A hashable reference, because variables compare by value."""
        return Reference(self)

    # Writing.  `use_locking` and `name` are accepted for TensorFlow's sake and have no effect.

    def assign(self, value: object, use_locking: bool = False, name: str | None = None,
               read_value: bool = True) -> Any:
        """Replaces the value; returns the new one, or None with `read_value=False`.

        Args:
            value: what each copy becomes: numbers or an array of shape `self.shape`, of a dtype that converts to
                `self.dtype`.
            use_locking, name: without effect; every write is atomic.
            read_value: whether the new value is returned.

        Raises:
            RD04: another shape.  RD05: a dtype that cannot be converted.
            RD10, RD11: the variable belongs to another strategy.
            RD12: copies of a mirrored variable would get different values.
            RD13: its aggregation, NONE, does not say what becomes of the values of several replicas.
            RD14: `assign_add` and `assign_sub` to an ON_READ variable with the aggregation SUM, across replicas.
            RD20: an operation on slices that the variable does not have.
        """
        return self._write("assign", value, read_value)

    def assign_add(self, delta: object, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> Any:
        """Adds to the value; otherwise as `assign`.

        Args:
            delta: what is added: numbers or an array of shape `self.shape`, of a dtype that converts to
                `self.dtype`.
            use_locking, name: without effect.
            read_value: whether the new value is returned.
        """
        return self._write("assign_add", delta, read_value)

    def assign_sub(self, delta: object, use_locking: bool = False, name: str | None = None,
                   read_value: bool = True) -> Any:
        """Subtracts from the value; otherwise as `assign`.

        Args:
            delta: what is subtracted: numbers or an array of shape `self.shape`, of a dtype that converts to
                `self.dtype`.
            use_locking, name: without effect.
            read_value: whether the new value is returned.
        """
        return self._write("assign_sub", delta, read_value)

    def scatter_add(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Adds slices to rows; rows that occur twice are added twice.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Subtracts slices from rows.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_sub", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Multiplies rows by slices.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Divides rows by slices; integers round towards zero, so -7 / 2 is -3.  No divisor may be 0.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_div", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces each row by its elementwise minimum with the slice for it.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces each row by its elementwise maximum with the slice for it.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_max", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False,
                       name: str | None = None) -> Any:
        """Replaces rows by slices; of slices for one row the last one stays.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("scatter_update", sparse_delta)

    def batch_scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False,
                             name: str | None = None) -> Any:
        """Replaces rows by slices, for variables with one copy.

        Args:
            sparse_delta: `indices`, integers of shape [n], and `values`, of shape `[n, *self.shape[1:]]`.
            use_locking, name: without effect.
        """
        return self._write("batch_scatter_update", sparse_delta)

    def scatter_nd_add(self, indices: object, updates: object, name: str | None = None) -> Any:
        """Adds to parts; the last dimension of `indices` has the indices of one part.

        Args:
            indices: integer array of shape [..., depth]; a part may occur more than once.
            updates: what is added to each, an array of shape `[..., *self.shape[depth:]]`.
            name: without effect.

        Raises:
            As `assign`.  RD25, RD34: indices that are not integers, or of parts that do not exist.
        """
        return self._write("scatter_nd_add", packed((indices, updates), "scatter_nd_add"))

    def scatter_nd_sub(self, indices: object, updates: object, name: str | None = None) -> Any:
        """Subtracts from parts; otherwise as `scatter_nd_add`.

        Args:
            indices: integer array of shape [..., depth].
            updates: an array of shape `[..., *self.shape[depth:]]`.
            name: without effect.
        """
        return self._write("scatter_nd_sub", packed((indices, updates), "scatter_nd_sub"))

    def scatter_nd_update(self, indices: object, updates: object, name: str | None = None) -> Any:
        """Replaces parts; otherwise as `scatter_nd_add`.  Of updates for one part the last one stays.

        Args:
            indices: integer array of shape [..., depth].
            updates: an array of shape `[..., *self.shape[depth:]]`.
            name: without effect.
        """
        return self._write("scatter_nd_update", packed((indices, updates), "scatter_nd_update"))

    # For a notebook.

    def _repr_html_(self) -> str:
        return notebook.drawing(self)

    def _reads_in_words(self) -> list[tuple[str, str]]:
        # The results of a read, if they depend on the reader.
        return []


def as_variable(value: object, attempted: str, argument: str,
                code: str = "RD25") -> Variable:
    """Returns `value` if it is a variable.

    Args:
        value: what the program passed.
        attempted, argument: the call and the name of the argument, for the message.
        code: of the error; RD34 for a ValueError.

    Raises:
        RD25: it is something else.
    """
    if isinstance(value, Variable):
        return value
    raise errors.error(code, attempted, f"{argument} is {short(value)}, {errors.type_of(value)}", "Pass a variable.")


class ResourceVariable(Variable):
    """A variable with one array on one device; also each copy of a distributed one."""

    __slots__ = ("__weakref__", "_aggregation", "_cell", "_constraint", "_created_by", "_device", "_index", "_made",
                 "_name", "_owner", "_place", "_shape", "_synchronization", "_trainable")

    def __init__(self, array: Array, name: str, shape: tuple[int | None, ...], device: str, strategy: Strategy | None,
                 trainable: bool, synchronization: VariableSynchronization, aggregation: VariableAggregation,
                 constraint: Callable[..., object] | None) -> None:
        # The array is an item of the cell's tuple; equal copies of a variable share a cell.
        self._cell: Cell[tuple[Any, ...]] = Cell((array,))
        self._place = 0
        self._name = name
        self._shape = shape
        self._device = device
        self._created_by = strategy
        self._trainable = trainable
        self._synchronization = synchronization
        self._aggregation = aggregation
        self._constraint = constraint
        self._owner: Any = None
        self._index = 0
        self._made: call_site.Place | None = None

    @property
    def _strategy(self) -> Strategy | None:
        return self._created_by

    @property
    def _copies(self) -> tuple[ResourceVariable, ...]:
        return (self,)

    @property
    def _primary(self) -> ResourceVariable:
        return self

    @property
    def _array(self) -> Any:
        cell = self._cell
        if cell.drafted:
            drafts = context_stack.frame().drafts
            draft = None if drafts is None else drafts.of(cell)
            if draft is not None:
                return draft.arrays[self._place]
        arrays, following = cell.head
        if following:
            _, arrays = cell.newest()
        return arrays[self._place]

    @_array.setter
    def _array(self, array: Array) -> None:
        self._cell.change(functools.partial(_with_item, self._place, lambda _: array))

    def _read(self) -> Any:
        array = self._array
        sink = journal.recording.value
        if sink is not None:
            owner = self._owner
            sink.write("read", variable=self if owner is None else owner, copy=self._index, received=[array])
        return self._to_current_device(array)

    def _stored(self) -> Any:
        return self._array

    def _write(self, operation: str, value: object, read_value: bool = True) -> Any:
        attempted = f"{operation} of variable {self._name}:0"
        if self._owner is not None:
            self._owner._check_component_write(self, attempted)
        else:
            cell = _FOREIGN.get(write_situation(self._created_by))
            if isinstance(cell, Refusal):
                raise refused(cell.code, attempted, self)
        if isinstance(value, DistributedValues) and not isinstance(value, Variable):
            value = value._local()
        return self._update(operation, value, attempted, read_value)

    def _update(self, operation: str, value: object, attempted: str, read_value: bool) -> Any:
        prepared = self._prepared(operation, value, attempted)
        fixed = None not in self._shape
        new = self._change(lambda old: update(operation, old, prepared, self._device, fixed))
        if not read_value:
            return None
        return new if type(new) is np.ndarray else read_only(new)

    def _prepared(self, operation: str, value: object, attempted: str) -> Any:
        return prepare(self, operation, value, attempted)

    def _change(self, function: Callable[[Any], Any], at_once: bool = False) -> Any:
        """Replaces the array by `function(array)`, with no other write in between; returns the new one.

        Args:
            function: called with the array, of the variable's shape and dtype; called again if another thread was
                faster.
            at_once: whether to store the array even inside an update; otherwise it goes to the update's drafts.
        """
        cell, place = self._cell, self._place
        drafts = None if at_once else context_stack.frame().drafts
        if drafts is not None:
            owner = self if self._owner is None else self._owner
            new = drafts.open(cell, owner).change(place, function)
        else:
            while True:
                seen = cell.head
                arrays, following = seen
                if following:
                    seen, arrays = cell.newest()
                new = function(arrays[place])
                if cell.replace(seen, (new,) if len(arrays) == 1 else (*arrays[:place], new, *arrays[place + 1:])):
                    break
        sink = journal.recording.value
        if sink is not None:
            owner = self._owner
            sink.write("write", variable=self if owner is None else owner, copy=self._index, copies=[new])
        return new

    def _settled(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Called at the end of an update with the arrays it has written; returns what is stored, here the same."""
        return arrays

    def _put_back(self, arrays: tuple[Any, ...]) -> None:
        """Called after a failed update, whose drafts are dropped: the variable holds what it held before."""
        sink = journal.recording.value
        if sink is not None:
            sink.write("write", variable=self, copy=self._index, copies=list(arrays))

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} shape={self._shape} dtype={self.dtype} value={to_numpy(self._array)}>"

    def __deepcopy__(self, memo: dict[int, object]) -> ResourceVariable:
        twin = copy.copy(self)
        twin._cell, twin._place = Cell((self._array,)), 0
        twin._owner, twin._index = None, 0
        memo[id(self)] = twin
        return twin


def _with_item(place: int, function: Callable[[Any], Any], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*arrays[:place], function(arrays[place]), *arrays[place + 1:])


class Reference:
    """A hashable stand-in for a variable or a tensor, equal to every other reference to the same one."""

    __slots__ = ("_variable",)

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def deref(self) -> Any:
        """The variable or tensor."""
        return self._variable

    def __hash__(self) -> int:
        return id(self._variable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._variable is self._variable
