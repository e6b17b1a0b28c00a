"""How variables are created: a stack of creators, the first of which `Variable(...)` calls.

What the program asks for is a `VariableSpec`.  It is handed on as keyword arguments, from the innermost creator that is
active to the outermost: creators of the program (`variable_creator_scope`) and of strategies, whose scopes are creators
too.  Each may change the arguments, call the next one, even several times, and return something else.  The last one,
`default_creator`, makes one array on one device, a plain variable.

A strategy's creator (`create`) looks up the kind of variable and calls the next creator once for each copy.  Hence two
rules.  What replicas do with the variable together, its kind and its aggregation, is settled there: creators outside
the strategy's scope see copies, and can no longer change it.  Whatever concerns a single copy is settled and checked
at the end of the stack, because until then creators may change it.

Replicas create a variable together.  Creators that one of them has entered are called in every replica; those that were
entered inside the scope, around the run, are called once for all (`for_all_replicas`).

There is one initial value.  Later copies share the array of the first, of which that of the first worker counts; in
replicas it is replica 0's, as replica 0 reads it.  Where copies must not differ, a creator that passes different values
for them is an error.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from numpy.typing import DTypeLike

from refdist import errors, journal
from refdist.array import collectives
from refdist.array.backend import beside, current_backend
from refdist.array.convert import aliases, converted, copied, dtype_of, frozen, has_dtype, kind_of, to_array
from refdist.array.indexed_slices import IndexedSlices
from refdist.core import call_site, context_stack, devices, lockstep
from refdist.core.agreement import CollectiveCall, Signature
from refdist.core.context_stack import Creator
from refdist.core.rules.options import VariableAggregation, VariableSynchronization, settled
from refdist.core.rules.table import Refusal
from refdist.core.rules.variables import (
    COPIES_DIFFER,
    CREATION,
    INTEGER_MEAN,
    SYNCHRONIZATION,
    TRAINABLE,
    Asked,
    Default,
    Keeps,
    Kind,
    Trainable,
)
from refdist.variables.distributed import check_equal
from refdist.variables.interfaces import Strategy
from refdist.variables.operations import declared_shape
from refdist.variables.values import is_splittable
from refdist.variables.variable import ResourceVariable, Variable


@dataclass
class VariableSpec:
    """The arguments of `Variable(...)`, as creators get them; `Variable` says what each means."""

    initial_value: object = None
    trainable: bool | None = None
    validate_shape: bool = True
    caching_device: object = None
    name: str | None = None
    variable_def: object = None
    dtype: DTypeLike | None = None
    import_scope: str | None = None
    constraint: Callable[..., object] | None = None
    synchronization: VariableSynchronization | None = VariableSynchronization.AUTO
    aggregation: VariableAggregation | None = VariableAggregation.NONE
    shape: Iterable[int | None] | None = None
    experimental_enable_variable_lifting: bool = True
    per_worker_variable: bool = field(default=False, kw_only=True)

    @classmethod
    def of(cls, arguments: Mapping[str, object]) -> VariableSpec:
        """The spec for the arguments of a creator, which may have left out some and added others."""
        spec = cls()
        vars(spec).update({name: arguments[name] for name in _FIELDS if name in arguments})
        return spec

    @property
    def attempted(self) -> str:
        """The call, for error messages."""
        return f"Variable(name={self.name!r})"


VariableSpec.__init__.__qualname__ = "Variable"  # the name that Python's messages about wrong arguments show
_FIELDS = [field.name for field in fields(VariableSpec)]


# --- The stack of creators -----------------------------------------------------------------------------------

class variable_creator_scope(context_stack.Scope):  # noqa: N801 - TensorFlow's name
    """Calls `variable_creator` for every variable made inside the `with` block.

    Args:
        variable_creator: called as `variable_creator(next_creator, **kwargs)`; it returns the variable,
            usually `next_creator(**kwargs)` with changed arguments.

    Entered inside a strategy's scope it sees one call and gets the distributed variable; entered outside it
    sees one call for each copy.  There it can change the copies, for example their names, but no longer what
    replicas do with them: the kind of variable and its aggregation are settled by then.

    >>> import refdist
    >>> def named(next_creator, **kwargs):
    ...     return next_creator(**{**kwargs, "name": "mine"})
    >>> with refdist.variable_creator_scope(named):
    ...     refdist.Variable(1.0).name
    'mine:0'

    Source: tf.variable_creator_scope.
    """

    def __init__(self, variable_creator: Creator) -> None:
        if not callable(variable_creator):
            raise errors.error("RD25", "variable_creator_scope", f"variable_creator is {variable_creator!r}",
                               "Pass a function of next_creator and keyword arguments.")
        super().__init__()
        self._creator = variable_creator

    def __enter__(self) -> None:
        self._push(context_stack.frame().with_creator(self._creator))

    def _described(self) -> str:
        return "variable_creator_scope"


def new_variable(*args: Any, **kwargs: Any) -> Any:
    """Creates a variable for `Variable(...)`: calls the innermost creator."""
    spec = VariableSpec(*args, **kwargs)
    if spec.aggregation is None:
        spec.aggregation = VariableAggregation.NONE
    creator: Creator = default_creator
    for outer in context_stack.frame().creators:
        creator = functools.partial(outer, creator)
    arguments = dict(vars(spec))
    if not spec.per_worker_variable:
        del arguments["per_worker_variable"]  # as in TensorFlow, which has no parameter of this name
    variable = creator(**arguments)
    if isinstance(variable, Variable) and variable._primary._made is None:
        site = call_site.of(sys._getframe(1))
        variable._primary._made = site[0] if site else None
        if context_stack.frame().kind == context_stack.REPLICA and variable._strategy is not None:
            extended = variable._strategy.extended
            extended.habits.look(variable, site, extended.runs)
        sink = journal.recording.value
        if sink is not None:
            strategy = variable._strategy
            sink.write("variable", variable=variable, type=type(variable).__name__,
                       synchronization=variable.synchronization.name, aggregation=variable.aggregation.name, site=site,
                       strategy=None if strategy is None else type(strategy).__name__,
                       devices=[devices.short(copy._device) for copy in variable._copies],
                       copies=[copy._array for copy in variable._copies])
    return variable


Variable._create = new_variable


def default_creator(distribute_strategy: Strategy | None = None, **kwargs: object) -> ResourceVariable:
    """The last creator of the stack: makes a variable with one array, on the current device.

    Raises:
        RD04, RD05: a shape or dtype that the initial value does not fit.
        RD25, RD34: no initial value, or another argument that is not what it should be.
    """
    spec = VariableSpec.of(kwargs)
    attempted, name, initial_value, shape = spec.attempted, spec.name, spec.initial_value, spec.shape
    if name is not None and not isinstance(name, str):
        raise errors.error("RD25", attempted, f"name is {name!r}", "Pass a string.")
    if initial_value is None:
        raise errors.error("RD34", attempted, "there is no initial value",
                           "Pass an array, a number, or a function that returns one.")
    synchronization = settled("synchronization", spec.synchronization, VariableSynchronization.AUTO, attempted)
    aggregation = settled("aggregation", spec.aggregation, VariableAggregation.NONE, attempted)
    trainable = spec.trainable
    if trainable is None:
        trainable = TRAINABLE[synchronization][Default.TRAINABLE] is Trainable.YES
    if shape is not None and not hasattr(shape, "__iter__"):
        raise errors.error("RD25", attempted, f"shape is {shape!r}", "Pass a tuple of ints.")
    if spec.constraint is not None and not callable(spec.constraint):
        raise errors.error("RD34", attempted, f"constraint is {spec.constraint!r}", "Pass a function of a value, which "
                           "optimizers apply after an update.")
    name = (name or "Variable").rstrip("/")
    value = initial_value() if callable(initial_value) else initial_value
    if isinstance(value, IndexedSlices):
        value = collectives.dense(current_backend(), value, attempted)
    array = to_array(value, None if has_dtype(value) else spec.dtype, "initial_value", attempted)
    if spec.dtype is not None:
        array = converted(array, spec.dtype, attempted)
    if dtype_of(array).hasobject:
        raise errors.error("RD25", attempted, f"the initial value has dtype {array.dtype}",
                           "Pass numbers, booleans or text.")
    if not isinstance(initial_value, _CopyOf) and aliases(array, value):
        array = copied(array)
    device = context_stack.frame().device or devices.CPU
    array = frozen(current_backend().put(array, device))
    declared = tuple(array.shape) if shape is None else declared_shape(shape, array.shape, attempted)
    if spec.per_worker_variable:
        raise errors.error("RD20", attempted, "per_worker_variable is True, and the strategy has no workers of a "
                           "coordinator", "Leave it out, or create the variable under a ParameterServerStrategy.")
    variable_class = ResourceVariable if distribute_strategy is None else distribute_strategy.extended.kinds[Kind.PLAIN]
    return variable_class(array, name, declared, device, distribute_strategy, trainable,
                          synchronization, aggregation, spec.constraint)


class _CopyOf:
    """An initial value that is the value of another variable, shared instead of copied."""

    __slots__ = ("variable",)

    def __init__(self, variable: ResourceVariable) -> None:
        self.variable = variable

    def __call__(self) -> Any:
        return self.variable._array


# --- A strategy's creator --------------------------------------------------------------------------------------

def create(strategy: Strategy, keeps: Keeps, devices: Sequence[str], next_creator: Callable[..., object],
           kwargs: Mapping[str, object]) -> object:
    """Makes one variable with a copy on each of `devices`; in a replica, all replicas call it together.

    Args:
        strategy: the strategy whose variable it becomes.
        keeps: what the strategy keeps of a variable, a column of the table CREATION.
        devices: canonical names; a strategy that keeps one copy names one.
        next_creator: called for each copy: creators outside the strategy's scope, or `default_creator`.
        kwargs: what the variable is asked for with, as creators inside the scope have left it.

    Raises:
        RD04, RD05: the copies have different shapes or dtypes.
        RD12: mirrored copies have different initial values.
        RD13: MEAN of a variable that is not a float, where copies are averaged.
        RD20: a synchronization the strategy does not have.
        RD02: replicas ask for variables with different names, synchronizations or aggregations.
        RD25, RD34: an unknown synchronization or aggregation, no initial value, or a creator that returned something
            else.
    """
    spec = VariableSpec.of(kwargs)
    attempted, synchronization = spec.attempted, spec.synchronization
    if synchronization is not None:
        settled("synchronization", synchronization, VariableSynchronization.AUTO, attempted)
    kind = CREATION[synchronization][keeps]
    if kind is Kind.PLAIN:
        with context_stack.pushed(context_stack.frame().with_device(devices[0])):
            return next_creator(**{**kwargs, "distribute_strategy": strategy})
    aggregation = settled("aggregation", spec.aggregation, VariableAggregation.NONE, attempted)
    if isinstance(kind, Refusal):
        raise errors.error(kind.code, attempted, f"{type(strategy).__name__} has no variables whose synchronization is "
                           f"{synchronization}", "Use VariableSynchronization.ON_WRITE or ON_READ.",
                           kind=errors.InvalidValueError)
    kwargs = {**kwargs, "aggregation": aggregation}
    cell = SYNCHRONIZATION[kind]
    if cell is not Asked.ASKED:
        kwargs["synchronization"] = synchronization = cell
    frame = context_stack.frame()
    if frame.kind != context_stack.REPLICA:
        return _make(strategy, kind, aggregation, devices, next_creator, kwargs)
    # The initial value is replica 0's, as replica 0 reads it; the others copy it.
    if frame.replica_id == 0:
        kwargs["initial_value"] = _read_here(spec.initial_value)
    return _meet(frame, _described(spec.name or "Variable", synchronization, aggregation), next_creator, kwargs,
                 functools.partial(_make, strategy, kind, aggregation, devices))


def for_all_replicas(next_creator: Callable[..., object], **kwargs: object) -> object:
    """The outermost creator in a replica: calls the creators around `run` once for all replicas.

    Those that a replica itself has entered come before it, and are called in every replica.
    """
    frame, spec = context_stack.frame(), VariableSpec.of(kwargs)
    if frame.replica_id == 0:
        value = _read_here(spec.initial_value)
        kwargs["initial_value"] = (lambda: value) if callable(spec.initial_value) else value
    return _meet(frame, _described(spec.name or "Variable", spec.synchronization, spec.aggregation), next_creator,
                 kwargs, lambda creator, asked: creator(**asked))


def _meet(frame: context_stack.Frame, target: str, next_creator: Callable[..., object], kwargs: Mapping[str, object],
          make: Callable[[Callable[..., object], Mapping[str, object]], object]) -> object:
    # All replicas create one variable together, with replica 0's arguments.
    def execute(calls: list[CollectiveCall]) -> Sequence[Any]:
        with context_stack.pushed(context_stack.Frame(context_stack.frame(), frame.strategy, context_stack.CROSS,
                                          creators=context_stack.frame().creators)):
            variable = make(*calls[0].contribution)
        return [variable] * len(calls)

    return lockstep.rendezvous(frame.run, CollectiveCall(
        "creation of a variable", Signature(target), (next_creator, kwargs), execute))


def _read_here(initial_value: object) -> object:
    value = initial_value() if callable(initial_value) else initial_value
    value = value._local() if is_splittable(value) else value
    return value._read() if isinstance(value, Variable) else value


def _make(strategy: Strategy, kind: Kind, aggregation: VariableAggregation, devices: Sequence[str],
          next_creator: Callable[..., object], kwargs: Mapping[str, object]) -> Variable:
    first = _made_by(next_creator, strategy, devices[0], kwargs, ())
    _check_mean(strategy, kind, aggregation, first)
    _take_first_worker_s_value(strategy, first, _described(first._name, kwargs["synchronization"], aggregation))
    copies = [first]
    for device in devices[1:]:
        # Further copies have the options of the first one, so `default_creator` need not compute them again.
        copies.append(_copied(first, f"{first._name}/replica_{len(copies)}", device)
                      if next_creator is default_creator
                      else _made_by(next_creator, strategy, device, kwargs, copies))
    if len(copies) > 1 and next_creator is not default_creator:
        _check_copies(kind, copies)
    variable: Variable = strategy.extended.kinds[kind]._of(copies, aggregation)
    return variable


def _made_by(creator: Callable[..., object], strategy: Strategy, device: str, kwargs: Mapping[str, object],
             copies: Sequence[ResourceVariable]) -> ResourceVariable:
    # The copy on one device, made by creators outside the strategy's scope; `copies` are those made so far.
    asked = {**kwargs, "use_resource": True, "distribute_strategy": strategy, "collections": []}
    if copies:
        asked |= {"name": f"{copies[0]._name}/replica_{len(copies)}/", "initial_value": _CopyOf(copies[0])}
    with context_stack.pushed(context_stack.frame().with_device(device)), strategy.extended.backend.device(device):
        copy = creator(**asked)
    if not (isinstance(copy, ResourceVariable) and copy._created_by is strategy and copy._owner is None) or any(
            copy is other for other in copies):
        raise errors.error("RD25", f"Variable(name={kwargs.get('name')!r})",
                           f"a variable creator outside the strategy's scope returned {copy!r} for copy {len(copies)}",
                           "Return what `next_creator(**kwargs)` returns, a new variable for every copy.")
    return copy


def _copied(first: ResourceVariable, name: str, device: str) -> ResourceVariable:
    array = frozen(current_backend().put(first._array, device))
    return type(first)(array, name, first._shape, device, first._created_by, first._trainable, first._synchronization,
                       first._aggregation, first._constraint)


def _check_copies(kind: Kind, copies: Sequence[ResourceVariable]) -> None:
    # A creator outside the scope is called for each copy, and may make each one different.
    arrays = [copy._array for copy in copies]
    first, array = copies[0], arrays[0]
    attempted = f"Variable(name={first._name!r})"
    advice = "A variable creator outside the strategy's scope is called once for each copy: "
    for i, other in enumerate(copies):
        if arrays[i] is array and other._shape == first._shape:
            continue
        for code, what, expected, actual in (("RD05", "dtype", first.dtype, other.dtype),
                                         ("RD04", "shape", first._shape, other._shape),
                                         ("RD04", "shape", array.shape, arrays[i].shape)):
            if expected != actual:
                raise errors.error(code, attempted, f"copy 0 has {what} {expected}, copy {i} has {what} {actual}",
                                   f"{advice}let it give every copy the same {what}.")
    cell = COPIES_DIFFER[kind]
    if isinstance(cell, Refusal):
        check_equal(arrays, attempted, cell.code, unit_name="copy",
                    fix=f"{advice}let it pass `initial_value` on, or enter it inside the scope.")


def _take_first_worker_s_value(strategy: Strategy, copy: ResourceVariable, target: str) -> None:
    transport = strategy.extended.transport
    value = transport.broadcast(transport.call("creation of a variable", target, like=copy._array), copy._array)
    copy._array = frozen(collectives.put(strategy.extended.backend, beside(value, copy._array), copy._device))


def _described(name: object, synchronization: object, aggregation: object) -> str:
    # The properties that replicas, and workers, have to agree on.
    return f"variable {name!r} with {synchronization} and {aggregation}"


def _check_mean(strategy: Strategy, kind: Kind, aggregation: VariableAggregation, variable: ResourceVariable) -> None:
    cell = INTEGER_MEAN[kind]
    if (isinstance(cell, Refusal) and aggregation is VariableAggregation.MEAN
            and kind_of(dtype_of(variable._array)) not in "fc"):
        raise errors.error(cell.code, f"Variable(name={variable._name!r})",
                           f"aggregation MEAN and dtype {variable.dtype} under {type(strategy).__name__}",
                           "Use a float dtype; the mean of integers is not an integer.")
