"""Creation of distributed variables: a copy on every device, from one initial value.

What the variables do is in `distributed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdist import errors
from refdist.array import convert as arrays
from refdist.core import context_stack, lockstep, rules
from refdist.core.rules import VariableAggregation, VariableSynchronization
from refdist.variables.distributed import KIND_CLASS, check_equal
from refdist.variables.interfaces import Strategy
from refdist.variables.values import is_splittable
from refdist.variables.variable import CopyOf, ResourceVariable, Variable, default_creator


def create(strategy: Strategy, keeps: str, devices: Sequence[str], next_creator: Callable[..., Any],
           kwargs: dict[str, Any]) -> Any:
    """Makes one variable with a copy on each of `devices`; in a replica, all replicas meet first.

    The kind and the aggregation are what `kwargs` say: creators outside the strategy's scope, which
    `next_creator` calls for each copy, change the copies and not what replicas do together.

    Args:
        keeps: what the strategy keeps of a variable, a column of `rules.CREATION`.

    Raises:
        RD04, RD05: the copies have different shapes or dtypes.
        RD12: mirrored copies have different initial values.
        RD13: MEAN of a variable that is not a float, where copies are averaged.
        RD20: a synchronization the strategy does not have.
        RD02: replicas ask for variables with different names, synchronizations or aggregations.
        RD25: an unknown synchronization or aggregation, or no initial value.
    """
    attempted = f"Variable(name={kwargs.get('name')!r})"
    auto = VariableSynchronization.AUTO
    synchronization = kwargs.get("synchronization", auto)
    if synchronization is not None:
        rules.settled("synchronization", synchronization, auto, attempted)
    kind = rules.CREATION[keeps][synchronization]
    if kind == rules.PLAIN:
        with context_stack.pushed(context_stack.frame().with_device(devices[0])):
            return next_creator(**{**kwargs, "distribute_strategy": strategy})
    aggregation = rules.settled("aggregation", kwargs.get("aggregation"), VariableAggregation.NONE, attempted)
    if kind.startswith("RD"):
        raise errors.error(kind, attempted, f"{type(strategy).__name__} has no variables whose synchronization is "
                           f"{synchronization}", "Use VariableSynchronization.ON_WRITE or ON_READ.",
                           kind=errors.InvalidValueError)
    kwargs = {**kwargs, "aggregation": aggregation}
    if rules.SYNCHRONIZATION[kind] != rules.ASKED:
        kwargs["synchronization"] = synchronization = VariableSynchronization[rules.SYNCHRONIZATION[kind]]
    frame = context_stack.frame()
    if frame.kind != context_stack.REPLICA:
        return _make(strategy, kind, aggregation, devices, next_creator, kwargs)
    # The initial value is replica 0's, as replica 0 reads it; the others copy it.
    if frame.replica_id == 0:
        kwargs["initial_value"] = _read_here(kwargs.get("initial_value"))

    def execute(calls: list[lockstep.CollectiveCall]) -> Sequence[Any]:
        with context_stack.pushed(context_stack.Frame(context_stack.frame(), strategy, context_stack.CROSS,
                                          creators=context_stack.frame().creators)):
            made = _make(strategy, kind, aggregation, devices, *calls[0].contribution)
        return [made] * len(calls)

    target = f"variable {kwargs.get('name') or 'Variable'!r} with {synchronization} and {aggregation}"
    return lockstep.rendezvous(frame.run, lockstep.CollectiveCall(
        "creation of a variable", (target, None, None, None, None, None), (next_creator, kwargs), execute))


def _read_here(initial_value: Any) -> Any:
    value = initial_value() if callable(initial_value) else initial_value
    value = value._local() if is_splittable(value) else value
    return value._read() if isinstance(value, Variable) else value


def _make(strategy: Strategy, kind: str, aggregation: VariableAggregation, devices: Sequence[str],
          next_creator: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    copies: list[ResourceVariable] = []
    backend = strategy.extended.backend
    for i, device in enumerate(devices):
        mine = {**kwargs, "use_resource": True, "distribute_strategy": strategy, "collections": []}
        if i:
            mine |= {"name": f"{copies[0]._name}/replica_{i}/", "initial_value": CopyOf(copies[0])}
        with context_stack.pushed(context_stack.frame().with_device(device)), backend.device(device):
            made = next_creator(**mine)
        if not (isinstance(made, ResourceVariable) and made._created_by is strategy and made._owner is None) or any(
                made is other for other in copies):
            raise errors.error("RD25", f"Variable(name={kwargs.get('name')!r})",
                               f"a variable creator outside the strategy's scope returned {made!r} for copy {i}",
                               "Return what `next_creator(**kwargs)` returns, a new variable for every copy.")
        copies.append(made)
        if i == 0:
            _check_mean(strategy, kind, aggregation, made)
            _take_first_worker_s_value(strategy, made, kwargs)
    if len(copies) > 1 and next_creator is not default_creator:
        _check_copies(kind, copies)
    return KIND_CLASS[kind]._of(copies, aggregation)


def _check_copies(kind: str, copies: Sequence[ResourceVariable]) -> None:
    # Creators outside the scope are called for each copy and may make each one another.
    first = copies[0]
    attempted = f"Variable(name={first._name!r})"
    advice = "A variable creator outside the strategy's scope is called once for each copy: "
    for i, other in enumerate(copies):
        for code, what, mine, theirs in (("RD05", "dtype", first.dtype, other.dtype),
                                         ("RD04", "shape", first._shape, other._shape),
                                         ("RD04", "shape", first._array.shape, other._array.shape)):
            if mine != theirs:
                raise errors.error(code, attempted, f"copy 0 has {what} {mine}, copy {i} has {what} {theirs}",
                                   f"{advice}let it give every copy the same {what}.")
    code = rules.COPIES_DIFFER[kind]
    if code.startswith("RD"):
        check_equal([copy._array for copy in copies], attempted, code, unit_name="copy",
                    fix=f"{advice}let it pass `initial_value` on, or enter it inside the scope.")


def _take_first_worker_s_value(strategy: Strategy, made: ResourceVariable, kwargs: dict[str, Any]) -> None:
    transport = strategy.extended.transport
    call = transport.call("creation of a variable", made._name, kwargs["synchronization"], kwargs["aggregation"],
                          made._array)
    made._array = transport.broadcast(call, made._array)


def _check_mean(strategy: Strategy, kind: str, aggregation: VariableAggregation, variable: ResourceVariable) -> None:
    code = rules.INTEGER_MEAN[kind]
    if (code.startswith("RD") and aggregation is VariableAggregation.MEAN
            and arrays.kind_of(variable.dtype) not in "fc"):
        raise errors.error(code, f"Variable(name={variable._name!r})",
                           f"aggregation MEAN and dtype {variable.dtype} under {type(strategy).__name__}",
                           "Use a float dtype; the mean of integers is none.")
