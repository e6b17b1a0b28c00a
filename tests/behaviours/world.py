"""What the programs of this folder share: strategies, short names, and how results are written down.

The same notation as in the list of observations: `float32[2] [1.0, 2.0]` is an array (dtype, shape, values).
Behaviours are numbered as observed on TensorFlow 2.21.0; a letter is a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refdist
from refdist import VariableAggregation as Agg  # noqa: F401
from refdist import VariableSynchronization as Sync  # noqa: F401

M1, M2, M3, M4 = (refdist.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in (1, 2, 3, 4))
C1, C2 = (refdist.experimental.CentralStorageStrategy([f"CPU:{i}" for i in range(n)], "CPU:0") for n in (1, 2))
O, D = refdist.OneDeviceStrategy("CPU:0"), refdist.get_strategy()  # noqa: E741
SUM, MEAN = refdist.ReduceOp.SUM, refdist.ReduceOp.MEAN
c = refdist.constant


def rc() -> Any:
    return refdist.get_replica_context()


def rid() -> int:
    number: int = rc().replica_id_in_sync_group
    return number


def dv(strategy: Any, *values: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda ctx: values[ctx.replica_id_in_sync_group])


def f(*values: float) -> Any:
    return np.asarray(values, np.float32)


def variable(strategy: Any, *args: Any, **kwargs: Any) -> Any:
    with strategy.scope():
        return refdist.Variable(*args, **kwargs)


def show(value: Any) -> str:
    if isinstance(value, refdist.Variable):
        parts = value.values if isinstance(value, refdist.DistributedValues) else [value]
        kind = type(value).__name__.removeprefix("Resource")
        return f"{kind}({', '.join(str(part.numpy().tolist()) for part in parts)})"
    if isinstance(value, refdist.DistributedValues):
        return f"{type(value).__name__}({', '.join(map(show, value.values))})"
    if isinstance(value, refdist.IndexedSlices):
        shape = None if value.dense_shape is None else value.dense_shape.tolist()
        return f"IndexedSlices({show(value.values)}, {value.indices.tolist()}, {shape})"
    if isinstance(value, np.ndarray | np.generic):
        shape = "" if np.ndim(value) == 0 else ", ".join(map(str, value.shape))
        return f"{value.dtype}[{shape}] {value.tolist()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def outcome(program: Callable[[], Any]) -> str:
    try:
        return show(program())
    except refdist.errors.RefdistError as error:
        kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
        return f"!! {kind} {error.code}"
    except Exception as error:
        return f"!! {type(error).__name__}"


class Row(NamedTuple):
    """One behaviour: number, program, outcome in refdist, and what TensorFlow does where it differs on purpose."""

    number: str
    program: Callable[[], Any]
    outcome: str
    tensorflow: str = ""
