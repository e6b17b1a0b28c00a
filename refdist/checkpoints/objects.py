"""Finds the variables below an object, named by the attributes that lead to them."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeGuard

import numpy as np

from refdist import data, errors
from refdist.array.convert import is_array
from refdist.array.indexed_slices import IndexedSlices
from refdist.checkpoints.random_states import RandomStates
from refdist.variables.sharded import ShardedVariable
from refdist.variables.values import DistributedValues
from refdist.variables.variable import ResourceVariable, Variable

# Types whose attributes are not searched.  Callable objects are: a model may be one.
_PASSED = (str, bytes, np.ndarray, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
           types.ModuleType, functools.partial)


# Types of values that never have variables, and are not saved.
_PLAIN = (bool, int, float, complex, set, frozenset, np.generic, type(None), IndexedSlices, DistributedValues, *_PASSED)


class Stateful(Protocol):
    """An object that can save its state itself, as the optimizers and models of PyTorch do."""

    def state_dict(self) -> object:
        """The state, of values that JSON can hold."""

    def load_state_dict(self, state: Any, /) -> object:
        """Replaces the state; raises if it does not fit."""


# Objects that are saved as one array; a sharded variable is saved whole, so that it fits any number of shards.
Saved = Variable | ShardedVariable
# Objects that all workers save together; they are moved back if something else cannot be restored.
Placed = data.Iterator | RandomStates
Tracked = Saved | Stateful | Placed
# id -> (path, the object, kept so that no other one gets its id).
Seen = dict[int, tuple[str, object]]


class _Itemized(Protocol):
    def _checkpoint_items(self) -> dict[str, object]: ...


def names_its_items(value: object) -> TypeGuard[_Itemized]:
    """Whether the class itself names the items that a checkpoint saves: another checkpoint, or an object of Keras."""
    return hasattr(type(value), "_checkpoint_items")


def _is_stateful(value: object) -> TypeGuard[Stateful]:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def is_plain(value: object) -> bool:
    """Whether this is a number, text, arrays, None, a function, a class or an iterator: a value without variables."""
    if isinstance(value, Saved):
        return False
    if hasattr(type(value), "__next__"):
        return not any(walk(value, "", {}))
    return isinstance(value, _PLAIN) or is_array(value)


def walk(value: object, path: str, seen: Seen) -> Iterator[tuple[str, Tracked]]:
    """Yields (name, object) for all variables, iterators of datasets, and objects with `state_dict` below a value.

    It follows the items of dicts, lists and tuples and the public attributes of other objects, each object once.

    Args:
        value: where to begin.
        path: the name of the value; "" for a root.
        seen: collects the objects that were visited, so that a second path, or a circle, ends there.

    Raises:
        RD34: the iterator of a dataset whose position cannot be saved.
    """
    if isinstance(value, Saved):
        if not isinstance(value, ResourceVariable) or value._owner is None:
            yield path, value
        return
    if isinstance(value, _PASSED):
        return
    if _is_stateful(value) and not names_its_items(value):
        yield path, value
        return
    if isinstance(value, data.Iterator):
        if obstacle := value._obstacle():
            raise errors.error("RD34", "Checkpoint", f"{path} is {errors.type_of(value)}, whose position cannot be "
                               f"saved: {obstacle}", "Count the elements that are read in a variable, and begin again "
                               "with `dataset.skip(count)`.")
        yield path, value
        return
    if id(value) in seen:
        return
    seen[id(value)] = (path, value)
    items: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif names_its_items(value):
        items = value._checkpoint_items().items()
    else:
        items = ((name, item) for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_"))
    for name, item in items:
        # TensorFlow's escapes: "/" separates names, so a name must not contain it.
        escaped = str(name).replace(".", "..").replace("/", ".S")
        yield from walk(item, f"{path}/{escaped}" if path else escaped, seen)
