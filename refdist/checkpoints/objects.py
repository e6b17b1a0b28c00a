"""Finds the variables below an object, named by the attributes that lead to them."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Mapping
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
# The name under which an object saves the state of a generator of seeds, which a file may have or not.
SEEDS = "seed_generator_state"
# Methods of objects that have variables which no attribute leads to.  They are given the names of all other variables,
# by id, and name these; those of layers are called first, because optimizers name slots after weights.
_COMPLETING = ("_checkpoint_rest", "_checkpoint_slots")
# The attribute of an object of Keras or a module that keeps the checkpoint which has values for it.
AWAITED_BY = "_awaited_by"
# The most names that one object gets.  Where each of n objects refers to all before it, 2**(n - 2) paths lead to the
# first one from the last.
_NAMES = 16
# id -> (path, the object, kept so that no other one gets its id).
Seen = dict[int, tuple[str, object]]


class _Itemized(Protocol):
    def _checkpoint_items(self) -> dict[str, object]: ...


class _StandIn(Protocol):
    def _checkpoint_variable(self) -> Saved | None: ...


def is_stand_in(value: object) -> TypeGuard[_StandIn]:
    """Whether the class itself says which variable a checkpoint saves for an object; None while there is none."""
    return hasattr(type(value), "_checkpoint_variable")


def names_its_items(value: object) -> TypeGuard[_Itemized]:
    """Whether the class itself names the items that a checkpoint saves: another checkpoint, or an object of Keras."""
    return hasattr(type(value), "_checkpoint_items")


def _is_stateful(value: object) -> TypeGuard[Stateful]:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _is_unconnected(value: object) -> bool:
    # Whether a checkpoint would find no variables in it, because it is Keras's, and `refdist.tf.keras.connect` was not
    # called.
    return not (is_stand_in(value) or names_its_items(value)) and any(
        kind.__module__.startswith("keras.") and kind.__name__ in ("Layer", "Metric", "Optimizer", "Variable")
        for kind in type(value).__mro__)


def is_plain(value: object) -> bool:
    """Whether this is a number, text, arrays, None, a function, a class or an iterator: a value without variables."""
    if isinstance(value, Saved) or is_stand_in(value):
        return False
    if hasattr(type(value), "__next__"):
        return not any(walk(value, "", {}))
    return isinstance(value, _PLAIN) or is_array(value)


def tracked(roots: Iterable[object], path: str, seen: Seen) -> dict[str, Tracked]:
    """All that a checkpoint saves below some objects, under each of its names; circles end where they began.

    Args:
        roots: where to begin.
        path: the name of each of them.
        seen: is given the objects that were visited.

    Raises:
        RD34: the iterator of a dataset whose position cannot be saved, or an object of Keras that is not connected.
    """
    again: list[tuple[str, str]] = []
    by_name = {name: value for root in roots for name, value in walk(root, path, seen, again)}
    owners = {place: owner for place, owner in seen.values()
              if any(hasattr(type(owner), method) for method in _COMPLETING)}
    for second, first in again:
        _add_names(by_name, second, first)
        _add_names(owners, second, first)
    names, places = _names_by_id(by_name), _names_by_id(owners)
    # Innermost objects first: a variable has its name from the object closest to it.
    innermost_first = list({id(owner): owner for owner in reversed(owners.values())}.values())
    for method in _COMPLETING:
        for owner in innermost_first:
            for name, variable in getattr(owner, method, _nothing)(names):
                for place in places[id(owner)]:
                    whole = f"{place}/{name}" if place else name
                    by_name[whole] = variable
                    names.setdefault(id(variable), []).append(whole)
    return by_name


def _nothing(names: Mapping[int, list[str]]) -> Iterator[tuple[str, Saved]]:
    return iter(())


def _names_by_id(by_name: Mapping[str, object]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, value in by_name.items():
        names.setdefault(id(value), []).append(name)
    return names


def _add_names(by_name: dict[str, Any], second: str, first: str) -> None:
    # What is below an object gets the names that begin with a second path to the object.
    if not first or second.startswith(f"{first}/"):
        return
    names = _names_by_id(by_name)
    for name, value in tuple(by_name.items()):
        if (name == first or name.startswith(f"{first}/")) and len(names[id(value)]) < _NAMES:
            by_name[second + name[len(first):]] = value


def walk(value: object, path: str, seen: Seen, again: list[tuple[str, str]] | None = None
         ) -> Iterator[tuple[str, Tracked]]:
    """Yields (name, object) for all variables, iterators of datasets, and objects with `state_dict` below a value.

    It follows the items of dicts, lists and tuples and the public attributes of other objects, each object once.

    Args:
        value: where to begin.
        path: the name of the value; "" for a root.
        seen: collects the objects that were visited, so that a second path, or a circle, ends there.
        again: is given each such second path, and the first one.

    Raises:
        RD34: the iterator of a dataset whose position cannot be saved, or an object of Keras that is not connected.
    """
    if is_stand_in(value):
        value = value._checkpoint_variable()
    if isinstance(value, Saved):
        if not isinstance(value, ResourceVariable) or value._owner is None:
            yield path, value
        return
    if isinstance(value, _PASSED) or value is None:
        return
    if _is_unconnected(value):
        raise errors.error("RD34", "Checkpoint", f"{path or 'the root'} is {errors.type_of(value)}, whose variables "
                           "are not found, because Keras is not connected with refdist", "Begin with `from "
                           "refdist.tf.keras import connect` and `keras = connect()`, or use `tf.keras` of `import "
                           "refdist.tf as tf`.")
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
        if again is not None:
            again.append((path, seen[id(value)][0]))
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
        yield from walk(item, f"{path}/{escaped}" if path else escaped, seen, again)
