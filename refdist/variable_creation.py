"""Creation of distributed variables: a copy on every device, from one initial value.

What the variables do is in `distributed_variables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdist import collectives, current, errors, lockstep, rules
from refdist.distributed_variables import KIND_CLASS
from refdist.rules import VariableAggregation, VariableSynchronization
from refdist.variables import CopyOf, ResourceVariable


def create(strategy: Any, kind_of: dict[VariableSynchronization, str], devices: Sequence[str],
           next_creator: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Makes one distributed variable with a copy on each of `devices`; in a replica, all replicas meet first.

    Args:
        kind_of: the kind of variable, or the code of an error, for each synchronization.

    Raises:
        RD13: MEAN of a variable that is no float, where copies are averaged.
        RD20: a synchronization the strategy does not have.
        RD02: replicas ask for variables with different names.
    """
    attempted = f"Variable(name={kwargs.get('name')!r})"
    synchronization = kwargs["synchronization"]
    kind = kind_of[synchronization]
    if kind.startswith("RD"):
        raise errors.error(kind, attempted, f"{type(strategy).__name__} has no {synchronization}",
                           "Use VariableSynchronization.ON_WRITE or ON_READ.", kind=errors.InvalidValueError)
    frame = current.frame()
    if frame.kind != current.REPLICA:
        return _make(strategy, kind, devices, next_creator, kwargs)
    # Replica 0 alone computes the initial value; the others copy it.
    if frame.replica_id == 0 and callable(kwargs["initial_value"]):
        kwargs = {**kwargs, "initial_value": kwargs["initial_value"]()}

    def act(requests: list[lockstep.Request]) -> Sequence[Any]:
        with current.pushed(current.Frame(current.frame(), strategy, current.CROSS,
                                          creators=current.frame().creators)):
            made = _make(strategy, kind, devices, *requests[0].payload)
        return [made] * len(requests)

    signature = (kwargs.get("name"), synchronization, kwargs["aggregation"], None, None, None)
    return lockstep.meet(frame.run, lockstep.Request(
        "creation of a variable", signature, (next_creator, kwargs), act))


def _make(strategy: Any, kind: str, devices: Sequence[str], next_creator: Callable[..., Any],
          kwargs: dict[str, Any]) -> Any:
    name = kwargs.get("name") or "Variable"
    copies: list[ResourceVariable] = []
    backend = strategy.extended.backend
    for i, device in enumerate(devices):
        mine = {**kwargs, "use_resource": True, "distribute_strategy": strategy, "collections": []}
        if i:
            mine |= {"name": f"{name}/replica_{i}/", "initial_value": CopyOf(copies[0])}
        with current.pushed(current.frame().with_device(device)), backend.device(device):
            made = next_creator(**mine)
        if not isinstance(made, ResourceVariable):
            raise errors.error("RD25", f"Variable(name={name!r})",
                               f"a variable creator outside the strategy's scope returned {made!r}",
                               "Return what `next_creator(**kwargs)` returns.")
        copies.append(made)
        if i == 0:
            _check_mean(strategy, kind, made)
            _take_first_worker_s_value(strategy, made, kwargs)
    return KIND_CLASS[kind]._of(copies)


def _take_first_worker_s_value(strategy: Any, made: ResourceVariable, kwargs: dict[str, Any]) -> None:
    transport = strategy.extended.transport
    if transport.size == 1:
        return
    signature = (made._name, kwargs["synchronization"], kwargs["aggregation"], None,
                 *collectives.signature(made._array))
    made._array = transport.broadcast(lockstep.Request("creation of a variable", signature), made._array)


def _check_mean(strategy: Any, kind: str, variable: ResourceVariable) -> None:
    if (kind != rules.AGGREGATING and variable._aggregation is VariableAggregation.MEAN
            and variable.dtype.kind not in "fcV"):
        raise errors.error("RD13", f"Variable(name={variable._name!r})",
                           f"aggregation MEAN and dtype {variable.dtype} under {type(strategy).__name__}",
                           "Use a float dtype; the mean of integers is none.")
