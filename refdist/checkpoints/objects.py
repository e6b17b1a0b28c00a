"""The variables that an object leads to, by the names of the attributes that lead to them."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard

import numpy as np

from refdist.variables.variable import ResourceVariable, Variable

# What holds no variables of its own.  Not everything that can be called: a model can.
_PASSED = (str, bytes, np.ndarray, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
           types.ModuleType, functools.partial)


class Stateful(Protocol):
    """An object that keeps its state itself, for example an optimizer of PyTorch."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: object, /) -> object: ...


def walk(value: object, path: str, seen: dict[int, tuple[str, object]]) -> Iterator[tuple[str, Variable | Stateful]]:
    """(name, variable or object with `state_dict`) of everything below a value.

    Args:
        value: where to begin.
        path: the names that lead there.
        seen: gets the path and the object of everything that was passed, by `id`.
    """
    if isinstance(value, Variable):
        if not isinstance(value, ResourceVariable) or value._owner is None:
            yield path, value
        return
    if isinstance(value, _PASSED):
        return
    if _is_stateful(value):
        yield path, value
        return
    if id(value) in seen:
        return
    seen[id(value)] = (path, value)
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif _is_tracked(value):
        items = value._checkpoint_items().items()
    else:
        items = ((name, item) for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_"))
    for name, item in items:
        # As TensorFlow writes them: "/" stands between names, so it cannot stand in one.
        escaped = str(name).replace(".", "..").replace("/", ".S")
        yield from walk(item, f"{path}/{escaped}" if path else escaped, seen)


class _Tracked(Protocol):
    def _checkpoint_items(self) -> dict[str, Any]: ...


def _is_tracked(value: object) -> TypeGuard[_Tracked]:
    return hasattr(type(value), "_checkpoint_items")


def _is_stateful(value: object) -> TypeGuard[Stateful]:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
