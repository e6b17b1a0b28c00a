"""Flatten and rebuild structures of values, with tf.nest's rules.

A *structure* is a container of structures, or a *leaf*.  `KINDS` is the table of containers, and everything that has
no row there is a leaf: None, text, sets, generators, dataclasses, arrays.  A rebuilt container has the type of the
original, also for subclasses.  The entries of a mapping are flattened in the order of their sorted keys, so that
replicas that built equal dicts in different orders agree on their leaves; a rebuilt mapping keeps the order of the
original.  This module knows nothing of replicas or arrays.

Invariants:

* `pack_sequence_as(x, flatten(x))` is equal to `x` and has its types, for every structure.
* Two structures are *the same* if their texts (`structure_of`) are equal.  So structures are compared, and sent to
  other workers, as one short text; where they differ is looked for only when the texts differ.
* The first row of `KINDS` whose `holds` accepts a class decides, so special rows come before general ones.  The answer
  is kept per class: flattening a leaf costs one look into a dict.

Why not a library: optree (0.20) and tf.nest disagree on what counts as a structure, and these rules are part of the
semantics.  optree takes None as an empty container, flattens an OrderedDict in the order of insertion, sees different
structures in a dict and an OrderedDict with equal entries, and as leaves subclasses of list and dict, ranges, views of
dicts, attrs classes and other mappings and sequences, unless each class is registered before.  It was not faster
either, because the structures of a training step are small: 2.1 us for four leaves in three containers (1.9 us here),
and 0.7 us for a single leaf (0.1 us here), which is what most calls pass.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    Sized,
    ValuesView,
)
from copy import copy
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from refdist import errors

_VIEWS = (range, KeysView, ItemsView, ValuesView)
_TEXT = (str, bytes, bytearray, memoryview, array)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Container = TypeVar("_Container")
_Mapping = TypeVar("_Mapping", bound=MutableMapping[Any, Any])


class _Attribute(Protocol):
    name: str


class _AttrsInstance(Protocol):
    __attrs_attrs__: ClassVar[Sequence[_Attribute]]


class Kind(NamedTuple):
    """A row of the table: one kind of container.

    The functions take a container that `holds` accepts, so their argument has no common type.

    Attributes:
        holds: whether instances of a class are of this kind; the first row that returns True decides.
        items: the items of a container, in the order in which they are flattened.
        rebuild: returns a container like the one passed, with other items in the same order.
        labels: for every item, how a path continues to it: "[0]", "['key']", ".field".
        text: the container as text, given a text for each item; equal for containers that count as the same structure.
    """

    holds: Callable[[type], bool]
    items: Callable[[Any], Sequence[Any]]
    rebuild: Callable[[Any, list[Any]], Any]
    labels: Callable[[Any], list[str]]
    text: Callable[[Any, list[str]], str]


def _sorted(mapping: Iterable[object]) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError as error:
        raise errors.error(
            "RD25", "flattening a structure", f"the keys of {errors.type_of(mapping)} cannot be sorted: {error}",
            "Give all keys of one mapping the same type, such as str.") from error


def _values(mapping: Mapping[_Key, _Value]) -> list[_Value]:
    return [mapping[key] for key in _sorted(mapping)]


def _entries(mapping: Mapping[_Key, object], items: list[_Value]) -> dict[_Key, _Value]:
    # In the order of the original; `items` are in the order of the sorted keys.
    keys = _sorted(mapping)
    new = dict(zip(keys, items, strict=True))
    return new if keys == [*mapping] else {key: new[key] for key in mapping}


def _fill(mapping: _Mapping, entries: Mapping[object, object]) -> _Mapping:
    for key, item in entries.items():
        mapping[key] = item
    return mapping


def _attributes(instance: _AttrsInstance) -> list[str]:
    return [field.name for field in type(instance).__attrs_attrs__]


def _with_attributes(instance: _AttrsInstance, items: list[object]) -> _AttrsInstance:
    # Not by `__init__`, whose parameters may differ from the attributes; `object`'s setter works on frozen classes too.
    new = copy(instance)
    for name, item in zip(_attributes(instance), items, strict=True):
        object.__setattr__(new, name, item)
    return new


def _keys(mapping: Iterable[object]) -> list[str]:
    return [f"[{key!r}]" for key in _sorted(mapping)]


def _positions(sequence: Sized) -> list[str]:
    return [f"[{i}]" for i in range(len(sequence))]


def _mapping_text(mapping: Iterable[object], items: list[str]) -> str:
    inside = ", ".join([f"{key!r}: {item}" for key, item in zip(_sorted(mapping), items, strict=True)])
    return f"{{{inside}}}"


def _list_text(sequence: object, items: list[str]) -> str:
    return f"[{', '.join(items)}]"


def _named_text(names: Iterable[str], items: list[str]) -> str:
    return ", ".join([f"{name}={item}" for name, item in zip(names, items, strict=True)])


def _text(container: object, items: list[str]) -> str:
    return f"{_name(container)}({', '.join(items)})"


def _name(container: object) -> str:
    return type(container).__name__


# Mappings of all types count as the same structure, and so do lists, as in tf.nest.
KINDS: dict[str, Kind] = {
    "dict": Kind(lambda cls: cls is dict, _values, _entries, _keys, _mapping_text),
    "list": Kind(lambda cls: cls is list, lambda x: x, lambda x, new: new, _positions, _list_text),
    "tuple": Kind(lambda cls: cls is tuple, lambda x: x, lambda x, new: tuple(new), _positions, _text),
    "named tuple": Kind(
        lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"), lambda x: x, lambda x, new: type(x)(*new),
        lambda x: [f".{name}" for name in x._fields], lambda x, items: f"{_name(x)}({_named_text(x._fields, items)})"),
    "class with __tf_flatten__": Kind(
        lambda cls: hasattr(cls, "__tf_flatten__") and hasattr(cls, "__tf_unflatten__"),
        lambda x: list(x.__tf_flatten__()[1]),
        lambda x, new: type(x).__tf_unflatten__(x.__tf_flatten__()[0], tuple(new)),
        lambda x: _positions(x.__tf_flatten__()[1]),
        lambda x, items: f"{x.__tf_flatten__()[0]!r} of {_text(x, items)}"),
    "attrs class": Kind(
        lambda cls: hasattr(cls, "__attrs_attrs__"), lambda x: [getattr(x, name) for name in _attributes(x)],
        _with_attributes, lambda x: [f".{name}" for name in _attributes(x)],
        lambda x, items: f"{_name(x)}({_named_text(_attributes(x), items)})"),
    "subclass of dict": Kind(
        lambda cls: issubclass(cls, dict), _values, lambda x, new: _fill(copy(x), _entries(x, new)), _keys,
        _mapping_text),
    "mutable mapping": Kind(
        lambda cls: issubclass(cls, MutableMapping), _values, lambda x, new: _fill(type(x)(), _entries(x, new)), _keys,
        _mapping_text),
    "mapping": Kind(
        lambda cls: issubclass(cls, Mapping), _values, lambda x, new: type(x)([*_entries(x, new).items()]), _keys,
        _mapping_text),
    "deque": Kind(
        lambda cls: issubclass(cls, deque), lambda x: x, lambda x, new: type(x)(new, x.maxlen), _positions, _text),
    "view of a dict, range": Kind(
        lambda cls: issubclass(cls, _VIEWS), list, lambda x, new: new, _positions, _text),
    "subclass of list": Kind(
        lambda cls: issubclass(cls, list), lambda x: x, lambda x, new: type(x)(new), _positions, _list_text),
    "sequence": Kind(
        lambda cls: issubclass(cls, Sequence) and not issubclass(cls, _TEXT), lambda x: x, lambda x, new: type(x)(new),
        _positions, _text),
}


# What is a leaf unless a caller asks for `expand_composites`: what consists of several arrays.  Its class says how.
COMPOSITE = Kind(
    lambda cls: hasattr(cls, "_components"), lambda x: x._components(), lambda x, new: x._with_components(new),
    lambda x: [f"[{i}]" for i in range(len(x._components()))], _text)


class _Known(dict[type, Kind | None]):
    # The kind of every class seen so far, None for leaves.
    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def __missing__(self, cls: type) -> Kind | None:
        if len(self) >= 1000:
            self.clear()  # so that classes created while the program runs are not kept for ever
        self[cls] = kind = next((kind for kind in self._kinds if kind.holds(cls)), None)
        return kind


_kind_of = _Known([*KINDS.values()])
_expanded = _Known([COMPOSITE, *KINDS.values()])


def is_nested(seq: object) -> bool:
    """Whether `seq` is a structure rather than a leaf.

    Args:
        seq: anything.

    Source: tf.nest.is_nested.
    """
    return _kind_of[type(seq)] is not None


def items(structure: object) -> list[Any]:
    """The items of the outermost container, be they leaves or containers; a leaf is the only item of itself.

    Args:
        structure: a structure, or a leaf.

    >>> items({"b": [1, 2], "a": None})
    [None, [1, 2]]
    """
    kind = _kind_of[type(structure)]
    return [structure] if kind is None else list(kind.items(structure))


def flatten(structure: object, expand_composites: bool = False) -> list[Any]:
    """The leaves of a structure.

    Args:
        structure: any.
        expand_composites: whether IndexedSlices and distributed values, which are leaves otherwise, are taken apart.

    >>> flatten({"b": [1, 2], "a": None})
    [None, 1, 2]

    Raises:
        RD25: the keys of a mapping cannot be sorted.

    Source: tf.nest.flatten.
    """
    known = _expanded if expand_composites else _kind_of
    kind = known[type(structure)]
    if kind is None:
        return [structure]
    leaves: list[Any] = []
    _collect(known, kind, structure, leaves)
    return leaves


def _collect(known: _Known, kind: Kind, structure: object, leaves: list[object]) -> None:
    for item in kind.items(structure):
        inner = known[type(item)]
        if inner is None:
            leaves.append(item)
        else:
            _collect(known, inner, item, leaves)


def _rebuild(known: _Known, kind: Kind, structure: object, leaves: Iterator[object]) -> Any:
    new = []
    for item in kind.items(structure):
        inner = known[type(item)]
        new.append(next(leaves) if inner is None else _rebuild(known, inner, item, leaves))
    return _made(kind, structure, new)


def _made(kind: Kind, structure: object, items: list[object]) -> Any:
    try:
        return kind.rebuild(structure, items)
    except TypeError as error:
        raise errors.error(
            "RD25", f"rebuilding a {_name(structure)} with other items", f"its class raised: {error}",
            "Use a list or dict, or a class whose `__init__` takes the items alone.") from error


def map_items(func: Callable[[Any], object], structure: object) -> Any:
    """Applies `func` to the items of the outermost container only, be they leaves or containers; a leaf stays as it is.

    Args:
        func: takes an item.
        structure: a structure, or a leaf.

    >>> map_items(str, {"b": [1, 2], "a": None})
    {'b': '[1, 2]', 'a': 'None'}
    """
    kind = _kind_of[type(structure)]
    return structure if kind is None else _made(kind, structure, [func(item) for item in kind.items(structure)])


def structure_of(structure: object) -> str:
    """The structure as text, with "*" for each leaf; equal for equal structures.

    Args:
        structure: a structure, or a leaf.

    >>> structure_of({"b": [1, 2], "a": None})
    "{'a': *, 'b': [*, *]}"
    """
    kind = _kind_of[type(structure)]
    if kind is None:
        return "*"
    parts = kind.items(structure)
    return kind.text(structure, ["*" if _kind_of[type(part)] is None else structure_of(part) for part in parts])


def _outline(known: _Known, structure: object, types: bool) -> Any:
    # The same nesting, with None for the leaves: of lists if types and keys do not matter.  Composites are containers.
    kind = known[type(structure)]
    if kind is None:
        return None
    inside = [_outline(known, item, types) for item in kind.items(structure)]
    if not types:
        return inside
    return {_name(structure): inside} if kind is COMPOSITE else _made(kind, structure, inside)


def pack_sequence_as(structure: object, flat_sequence: Sequence[object], expand_composites: bool = False) -> Any:
    """A structure like `structure` whose leaves are those of `flat_sequence`, in the order of `flatten`.

    Args:
        structure: a structure, or a leaf.
        flat_sequence: a list or tuple of leaves.
        expand_composites: as for `flatten`.

    >>> pack_sequence_as({"b": [1, 2], "a": None}, ["x", "y", "z"])
    {'b': ['y', 'z'], 'a': 'x'}

    Raises:
        RD21: the number of leaves differs.  RD25: `flat_sequence` is not a list or tuple, or a container cannot be
            rebuilt from its items.

    Source: tf.nest.pack_sequence_as.
    """
    if not isinstance(flat_sequence, (list, tuple)):
        raise errors.error("RD25", "nest.pack_sequence_as", f"flat_sequence is {errors.type_of(flat_sequence)}",
                           "Pass a list of leaves.")
    known = _expanded if expand_composites else _kind_of
    count = len(flatten(structure, expand_composites))
    if len(flat_sequence) != count:
        raise errors.error("RD21", "nest.pack_sequence_as", f"the structure has {count} leaves, the "
                           f"sequence {len(flat_sequence)}", "Pass as many leaves as the structure has.")
    kind = known[type(structure)]
    return flat_sequence[0] if kind is None else _rebuild(known, kind, structure, iter(flat_sequence))


def map_structure(func: Callable[..., object], *structure: object, check_types: bool = True,
                  expand_composites: bool = False) -> Any:
    """Applies `func` to the leaves of one or more equal structures; the result has the containers of the first.

    Args:
        func: takes a leaf of each structure.
        structure: one or more.
        check_types: as for `assert_same_structure`.
        expand_composites: as for `flatten`.

    >>> map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)])
    [11, (22,)]

    Raises:
        RD21, RD25: structures differ.

    Source: tf.nest.map_structure.
    """
    if not structure:
        raise errors.error("RD34", "nest.map_structure", "no structure was given", "Pass at least one structure.")
    first, *others = structure
    for other in others:
        assert_same_structure(first, other, check_types, expand_composites)
    known = _expanded if expand_composites else _kind_of
    kind = known[type(first)]
    if kind is None:
        return func(*structure)
    flat = [flatten(nested, expand_composites) for nested in structure]
    results = [func(*leaves) for leaves in zip(*flat, strict=True)]
    return _rebuild(known, kind, first, iter(results))


def assert_same_structure(nest1: object, nest2: object, check_types: bool = True,
                          expand_composites: bool = False) -> None:
    """Raises unless two structures are the same; their leaves may differ.

    Args:
        nest1, nest2: structures.
        check_types: False compares nesting and lengths only: neither types of containers nor keys.
        expand_composites: as for `flatten`.

    >>> assert_same_structure([1, (2,)], (3, [4]), check_types=False)

    Raises:
        RD21: lengths or keys differ (ValueError).  RD25: types of containers differ (TypeError).

    Source: tf.nest.assert_same_structure.
    """
    if expand_composites or not check_types:
        known = _expanded if expand_composites else _kind_of
        nest1, nest2 = (_outline(known, nest, check_types) for nest in (nest1, nest2))
    difference = compare([nest1, nest2])
    if difference is None:
        return
    differing = difference.between("the first", "the second")
    first, other = (text.split()[1] for text in (difference.first, difference.other))
    mappings = all(" with keys " in text for text in (difference.first, difference.other))  # which differ in keys alone
    if first != other and "leaf" not in (first, other) and not mappings:
        raise errors.error("RD25", "nest.assert_same_structure", differing, "Use the same types of containers.")
    raise errors.error("RD21", "nest.assert_same_structure", differing, "Use the same lengths and keys.")


class Difference(NamedTuple):
    """The first place at which two structures differ.

    Attributes:
        number: which of the structures differs from the first one, counted from 0.
        path: how to get to the place, for example "['a'][0]"; "" for the structures themselves.
        first: what the first structure has there: "a leaf", "a list of length 2", "a dict with keys ['a']".
        other: what the other one has there.
    """

    number: int
    path: str
    first: str
    other: str

    def between(self, first: str, other: str) -> str:
        """The difference as a sentence without its full stop, given the names of the two structures.

        Args:
            first: what the first structure is called.
            other: what the other one is called.
        """
        where = f" at {self.path}" if self.path else ""
        return f"{first} has {self.first}, {other} has {self.other}{where}"


def compare(structures: Sequence[object]) -> Difference | None:
    """Finds the first structure that is not the same as the first one; None if all are the same.

    Args:
        structures: at least one.

    >>> compare([[1, {"a": 2}], [3, {"a": (4, 5)}]]).between("replica 0", "replica 1")
    "replica 0 has a leaf, replica 1 has a tuple of length 2 at [1]['a']"
    """
    first = structures[0]
    wanted = structure_of(first)
    for i, other in enumerate(structures):
        if other is not first and structure_of(other) != wanted:
            return Difference(i, *_first_difference(first, other, ""))
    return None


def _first_difference(first: object, other: object, path: str) -> tuple[str, str, str]:
    kind = _kind_of[type(first)]
    if kind is not None and _alone(first) == _alone(other):
        other_kind = _kind_of[type(other)]
        assert other_kind is not None
        for label, left, right in zip(kind.labels(first), kind.items(first), other_kind.items(other), strict=True):
            if structure_of(left) != structure_of(right):
                return _first_difference(left, right, path + label)
    return path, _describe(first), _describe(other)


def _alone(structure: object) -> str:
    # The text of a container as if it held only leaves.
    kind = _kind_of[type(structure)]
    return "*" if kind is None else kind.text(structure, ["*"] * len(kind.items(structure)))


def _describe(structure: object) -> str:
    kind = _kind_of[type(structure)]
    if kind is None:
        return "a leaf"
    name = _name(structure)
    article = "an" if name[0] in "AEIOUaeiou" else "a"
    if isinstance(structure, Mapping):
        return f"{article} {name} with keys {list(structure)}"
    return f"{article} {name} of length {len(kind.items(structure))}"
