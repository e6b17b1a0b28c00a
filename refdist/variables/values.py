"""The containers for one value per replica: `DistributedValues`, `PerReplica`, `Mirrored`.

`splitter` picks a replica's part of the arguments of a call, and `regroup` combines the results of all replicas.
Variables are distributed values too, but live in `variables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeGuard, assert_never

import numpy as np
from numpy.typing import DTypeLike

from refdist import errors, nest, notebook
from refdist.array.backend import constant
from refdist.array.convert import (
    HoldsArray,
    array_types,
    contributed,
    is_array,
    library_of,
    read_only,
    to_array,
    to_numpy,
)
from refdist.array.indexed_slices import IndexedSlices
from refdist.array.operators import ArrayOperators
from refdist.core import context_stack, devices
from refdist.core.agreement import names
from refdist.core.rules.values import RESULTS, Leaves, Result, Together


class DistributedValues(HoldsArray):
    """Base class for values that consist of one component per replica.

    Args:
        values: one object for each replica, in their order; at least one.
        component_devices: the names of the devices that they are on; () where they are on none.

    >>> import refdist
    >>> strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    >>> value = strategy.run(lambda: refdist.constant(refdist.get_replica_context().replica_id_in_sync_group))
    >>> isinstance(value, refdist.DistributedValues)
    True

    Raises:
        RD25, RD34: this class itself, which is only a base; no value.

    Source: tf.distribute.DistributedValues.
    """

    __slots__ = ("__weakref__", "_devices", "_values")

    def __init__(self, values: Sequence[object], component_devices: Sequence[str] = ()) -> None:
        if type(self) is DistributedValues:
            raise errors.error("RD25", "DistributedValues", "it is the base class of distributed values",
                               "Use `strategy.experimental_distribute_values_from_function`.")
        self._values = tuple(values)
        if not self._values:
            raise errors.error("RD34", type(self).__name__, "there is no value", "Pass one value per replica.")
        self._devices = tuple(component_devices)

    @property
    def values(self) -> tuple[Any, ...]:
        """The components, in replica order."""
        return self._values

    def _local(self) -> Any:
        """The component of the replica, or of the copy being updated, in which the code runs."""
        i = context_stack.frame().replica_id
        if i is None or i >= len(self._values):
            raise errors.error(
                "RD19", f"using a {type(self).__name__} as an array", f"it holds {len(self._values)} values "
                f"and the code runs {context_stack.describe()}")
        return self._values[i]

    def _read(self) -> Any:
        return shared(self._local())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self._read(), dtype=dtype, copy=copy)

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for i, value in enumerate(self._values):
            name = devices.short(self._devices[i]) if i < len(self._devices) else ""
            rows.append((f"{i}{' ' + name if name else ''}", _summary(value)))
        return rows

    def __repr__(self) -> str:
        lines = [f"  {label}: {text}" for label, text in _shorten(self._rows())]
        return "\n".join([f"{type(self).__name__}:{{", *lines, "}"])

    def _repr_html_(self) -> str:
        return notebook.drawing(self)


class _Composite(DistributedValues):
    """A value that `nest` takes apart with `expand_composites`, unlike a variable."""

    __slots__ = ()

    def _components(self) -> list[Any]:
        return [*self._values]

    def _with_components(self, components: list[Any]) -> Any:
        return type(self)(components, self._devices)


class PerReplica(_Composite):
    """One value for each replica, which may differ.

    It has no operators: several arrays are not one array.  A replica gets its own component as an argument.

    >>> value = PerReplica([1.0, 2.0])
    >>> value + 1
    Traceback (most recent call last):
    refdist.errors.InvalidTypeError: [RD19] x + y of a PerReplica: it holds 2 values and the code runs outside ...

    Raises:
        RD19: used as an array.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ARRAYS:
            raise self._several(f"x.{name}", errors.InvalidAttributeError)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        # Without this, NumPy would convert `self`, and take one component or fail, depending on the operands' order.
        raise self._several(f"np.{ufunc.__name__}")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._several(f"format(x, {spec!r})")
        return str(self)

    def _several(self, operation: str, kind: type[errors.RefdistError] = errors.InvalidTypeError) -> Exception:
        inside = context_stack.frame().replica_id is not None
        return errors.error(
            "RD19", f"{operation} of a {type(self).__name__}", f"it holds {len(self._values)} values and the code runs "
            f"{context_stack.describe()}",
            "Pass it to the function as an argument of `strategy.run`, or take this replica's component by "
            "`np.asarray(x)`." if inside else "", kind)


# Comparing for equality is left out: it compares identity, as for any object.
_OPERATIONS = {
    "bool": "bool(x)", "float": "float(x)", "int": "int(x)", "complex": "complex(x)", "index": "index(x)",
    "round": "round(x)", "len": "len(x)", "iter": "iter(x)", "contains": "y in x", "getitem": "x[...]",
    "setitem": "x[...] = y", "neg": "-x", "pos": "+x", "abs": "abs(x)", "invert": "~x", "lt": "x < y", "le": "x <= y",
    "gt": "x > y", "ge": "x >= y"}
for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("matmul", "@"), ("truediv", "/"), ("floordiv", "//"),
                     ("mod", "%"), ("pow", "**"), ("lshift", "<<"), ("rshift", ">>"), ("and", "&"), ("or", "|"),
                     ("xor", "^")):
    _OPERATIONS |= {_name: f"x {_sign} y", f"r{_name}": f"y {_sign} x"}
_OPERATIONS |= {"divmod": "divmod(x, y)", "rdivmod": "divmod(y, x)", "delitem": "del x[...]"}
_OF_ARRAYS = {name for name in dir(np.ndarray) if not name.startswith("_")} | {"numpy"}


def _refused(operation: str) -> Callable[..., Any]:
    def method(self: PerReplica, *args: object) -> Any:
        raise self._several(operation)
    return method


for _name, _sign in _OPERATIONS.items():
    setattr(PerReplica, f"__{_name}__", _refused(_sign))


class Mirrored(_Composite, ArrayOperators):
    """One value that all replicas hold; usable as an array everywhere."""

    __slots__ = ()

    def _read(self) -> Any:
        i = context_stack.frame().replica_id
        return to_array(shared(self._values[i if i is not None and i < len(self._values) else 0]))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.array(self._read(), dtype=dtype, copy=copy)

    def _rows(self) -> list[tuple[str, str]]:
        rows = super()._rows()
        if len({id(value) for value in self._values}) == 1 and len(rows) > 1:
            names = [devices.short(name) for name in self._devices] or [str(len(rows) - 1)]
            return [(f"0..{len(rows) - 1} {names[0]} .. {names[-1]}" if self._devices
                     else f"0..{names[0]}", rows[0][1])]
        return rows


def _summary(value: object) -> str:
    if is_array(value):
        array: Any = value
        text = np.array2string(to_numpy(array), threshold=6, edgeitems=2, separator=", ").replace("\n", "")
        shape = "x".join(map(str, array.shape)) or "scalar"
        return f"{array.dtype} {shape} {text}"
    return repr(value)


def _shorten(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return rows if len(rows) <= 8 else [*rows[:4], ("...", f"{len(rows) - 6} more"), *rows[-2:]]


# --- Taking apart and putting together -----------------------------------------------------------------------

def is_splittable(value: object) -> TypeGuard[PerReplica | Mirrored]:
    """Whether `run` gives each replica its component: true of distributed values that are not variables."""
    return isinstance(value, (PerReplica, Mirrored))


def shared(leaf: object) -> Any:
    """A leaf for code that does not own it: an array as a read-only view, never a copy."""
    if isinstance(leaf, IndexedSlices):
        return IndexedSlices(*map(read_only, (leaf.values, leaf.indices, leaf.dense_shape)))
    return read_only(leaf)


def splitter(structure: object) -> Callable[[int], Any]:
    """A function that takes a replica's number and returns its part of `structure`.

    Containers are copied, so that replicas do not share a list they might change; arrays are read-only for the same
    reason, and because they are the user's.
    """
    if not structure:
        return lambda i: structure
    if type(structure) is tuple and not any(map(nest.is_nested, structure)):
        whole = tuple(map(shared, structure))
        if not any(map(_is_handed_out_singly, whole)):
            return lambda i: whole
        return lambda i: tuple([_part(value, i) for value in whole])
    return lambda i: nest.map_structure(lambda leaf: _part(leaf, i), structure)


def _is_handed_out_singly(leaf: object) -> bool:
    # A guest's array may be a copy, of which each replica gets its own.
    return is_splittable(leaf) or (type(leaf) is not np.ndarray and library_of(leaf) is not None)


def _part(leaf: object, i: int) -> Any:
    if is_splittable(leaf):
        leaf = leaf._values[i]
        if nest.is_nested(leaf):
            return nest.map_structure(shared, leaf)
    return shared(leaf)


def packed(structure: object, attempted: str) -> Any:
    """Turns a structure with distributed values in it into one PerReplica of structures; returns any other as it is.

    Raises:
        RD34: values made for different numbers of replicas.
    """
    distributed = [leaf for leaf in nest.flatten(structure) if is_splittable(leaf)]
    if not distributed:
        return structure
    count = len(distributed[0].values)
    check_components(distributed, count, attempted)
    return PerReplica(list(map(splitter(structure), range(count))))


def on_device(structure: object) -> Any:
    """The structure with its arrays copied to the current device."""
    if not structure:
        return structure
    if type(structure) is tuple and not any(map(nest.is_nested, structure)):
        return tuple([read_only(constant(leaf)) if is_array(leaf) else leaf for leaf in structure])
    return nest.map_structure(lambda leaf: read_only(constant(leaf)) if is_array(leaf) else leaf, structure)


def check_components(structure: object, count: int, attempted: str) -> None:
    """Raises unless every distributed value in `structure` has one component per replica.

    Raises:
        RD34: a value made for another number of replicas.
    """
    for leaf in nest.flatten(structure):
        if is_splittable(leaf):
            check_count(leaf, count, attempted)


def check_count(value: DistributedValues, count: int, attempted: str) -> None:
    """Raises unless `value` has one component per replica.

    Raises:
        RD34: a value made for another number of replicas.
    """
    if len(value._values) != count:
        counts = (f"a {type(value).__name__} has {errors.counted(len(value._values), 'value')} and the strategy "
                 f"{errors.counted(count, 'replica')}")
        raise errors.error("RD34", attempted, counts, "Distribute it with this strategy.")


def as_parts(values: Sequence[object], attempted: str) -> list[Any]:
    """The contributions of the replicas as arrays; IndexedSlices stay what they are.

    Raises:
        RD25, RD34: None, with the replicas that contributed it, or something else that is not an array.
    """
    without = [i for i, value in enumerate(values) if value is None]
    if without:
        who = "every replica" if len(without) == len(values) else names(without, "replica")
        raise none_given(attempted, f"{who} contributed None")
    return [value if isinstance(value, IndexedSlices) else contributed(to_array(value), attempted)
            for value in values]


def none_given(attempted: str, found: str) -> errors.RefdistError:
    """The error for None where an array was expected."""
    return errors.error("RD34", attempted, found, "Use an array on every replica; leave out gradients that are "
                        "None, of variables on which the loss does not depend.")


def regroup(parts: Sequence[object], component_devices: Sequence[str], attempted: str, column: Result,
            container: Callable[[object], object]) -> Any:
    """One structure from the structures of all replicas, leaf by leaf as the table RESULTS says.

    Args:
        parts: what each replica returned, a structure or a leaf; arrays of any shape and dtype.
        component_devices: the device of each replica.
        attempted: the call, for the message.
        column: of the table.
        container: maps a copy of a variable to that variable, and anything else to itself.

    Raises:
        RD21: structures differ.
    """
    first = parts[0]
    if len(parts) == 1 and _ONE_REPLICA[column] is Together.BARE:
        return nest.map_structure(container, first)
    samples = dict(zip(map(type, parts), parts, strict=True))
    if len(parts) > 1:
        if samples.keys() <= array_types.value.keys():
            cell = _ARRAYS[column]
            return (PerReplica(parts, component_devices) if cell is _PER_REPLICA
                    else _together(cell, parts, component_devices, first))
        if first is None and len(samples) == 1:  # of most functions that only train
            return _together(_SAME_OBJECT[column], parts, component_devices, None)
    if not any(map(nest.is_nested, samples.values())):
        return _regroup_leaf(parts, component_devices, column, container)
    return nest.pack_sequence_as(first, [_regroup_leaf(leaf, component_devices, column, container)
                                         for leaf in _columns(parts, attempted)])


def _columns(parts: Sequence[object], attempted: str) -> Iterable[tuple[Any, ...]]:
    # For every leaf of the structure, the values of all replicas.
    difference = nest.compare(parts)
    if difference is not None:
        raise errors.error("RD21", attempted, difference.between("replica 0", f"replica {difference.number}"))
    return zip(*map(nest.flatten, parts), strict=True)


_PER_REPLICA: Final = Together.PER_REPLICA  # looked up once: members of an Enum are slow to look up
_ONE_REPLICA, _ARRAYS, _COPIES_OF_ONE, _SAME_OBJECT, _OTHER_OBJECTS = (RESULTS[leaves] for leaves in Leaves)


def _together(cell: Together, parts: Sequence[object], component_devices: Sequence[str], bare: object) -> Any:
    # Puts together one value of each replica.
    match cell:
        case Together.PER_REPLICA:
            return PerReplica(parts, component_devices)
        case Together.MIRRORED:
            return Mirrored(parts, component_devices)
        case Together.BARE:
            return bare
        case Together.NOTHING:
            return None
        case _:
            assert_never(cell)


def _is_array(value: object) -> bool:
    return is_array(value) or isinstance(value, IndexedSlices)


def _regroup_leaf(parts: Sequence[object], component_devices: Sequence[str], column: Result,
                  container: Callable[[object], object]) -> Any:
    bare = first = parts[0]
    row = _OTHER_OBJECTS
    if len(parts) == 1:
        row = _ONE_REPLICA
    elif _is_array(first) and all(map(_is_array, parts)):
        row = _ARRAYS
    else:
        owner = container(first)
        if owner is not first and all(container(part) is owner for part in parts):
            row, bare = _COPIES_OF_ONE, owner
        elif len({*map(id, parts)}) == 1:
            row = _SAME_OBJECT
    return _together(row[column], parts, component_devices, bare)
