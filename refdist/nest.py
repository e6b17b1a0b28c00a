"""Flatten and rebuild structures of values, with tf.nest's rules.

`KINDS` is the table of containers; everything else is a leaf: None, text, sets, generators, dataclasses, arrays.
A container comes back as what it was, with its own type.  Flattening visits the entries of a mapping in the order
of their sorted keys; rebuilt mappings keep the order of the original.  Replicas and arrays are not known here.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, Sequence, ValuesView
from copy import copy
from typing import Any, NamedTuple

from refdist import errors

_VIEWS = (range, KeysView, ItemsView, ValuesView)
_TEXT = (str, bytes, bytearray, memoryview, array)


class Kind(NamedTuple):
    """A row of the table: one kind of container.

    Attributes:
        holds: whether instances of a class are of this kind; the first row that says yes counts.
        items: what a container holds, in the order of its leaves.
        rebuild: a container like the one given, with other items.
        labels: for every item, how a path continues with it.
        text: the container with texts for its items; equal for containers that count as the same structure.
    """

    holds: Callable[[type], bool]
    items: Callable[[Any], Sequence[Any]]
    rebuild: Callable[[Any, list[Any]], Any]
    labels: Callable[[Any], list[str]]
    text: Callable[[Any, list[str]], str]


def _sorted(mapping: Any) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError as error:
        raise errors.error(
            "RD25", "flattening a structure", f"the keys of a {type(mapping).__name__} cannot be sorted: {error}",
            "Give all keys of one mapping the same type, such as str.") from error


def _values(mapping: Any) -> list[Any]:
    return [mapping[key] for key in _sorted(mapping)]


def _entries(mapping: Any, items: list[Any]) -> dict[Any, Any]:
    # In the order of the original, though the items come in the order of the sorted keys.
    keys = _sorted(mapping)
    new = dict(zip(keys, items, strict=True))
    return new if keys == [*mapping] else {key: new[key] for key in mapping}


def _fill(mapping: Any, entries: dict[Any, Any]) -> Any:
    for key, item in entries.items():
        mapping[key] = item
    return mapping


def _attributes(instance: Any) -> list[str]:
    return [field.name for field in type(instance).__attrs_attrs__]


def _with_attributes(instance: Any, items: list[Any]) -> Any:
    # Neither `__init__` nor a frozen class is in the way: the attributes are there already and get other values.
    new = copy(instance)
    for name, item in zip(_attributes(instance), items, strict=True):
        object.__setattr__(new, name, item)
    return new


def _keys(mapping: Any) -> list[str]:
    return [f"[{key!r}]" for key in _sorted(mapping)]


def _positions(sequence: Any) -> list[str]:
    return [f"[{i}]" for i in range(len(sequence))]


def _mapping_text(mapping: Any, items: list[str]) -> str:
    inside = ", ".join([f"{key!r}: {item}" for key, item in zip(_sorted(mapping), items, strict=True)])
    return f"{{{inside}}}"


def _list_text(sequence: Any, items: list[str]) -> str:
    return f"[{', '.join(items)}]"


def _named_text(names: Any, items: list[str]) -> str:
    return ", ".join([f"{name}={item}" for name, item in zip(names, items, strict=True)])


def _text(container: Any, items: list[str]) -> str:
    return f"{_name(container)}({', '.join(items)})"


def _name(container: Any) -> str:
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


class _Known(dict[type, Kind | None]):
    # The kind of every class that was seen, None for leaves.
    def __missing__(self, cls: type) -> Kind | None:
        if len(self) >= 1000:
            self.clear()  # classes made on the fly must not be kept for ever
        self[cls] = kind = next((kind for kind in KINDS.values() if kind.holds(cls)), None)
        return kind


_kind_of = _Known()


def is_nested(seq: Any) -> bool:
    """Whether `seq` is a structure rather than a leaf.

    Source: tf.nest.is_nested.
    """
    return _kind_of[type(seq)] is not None


def flatten(structure: Any) -> list[Any]:
    """The leaves of a structure.

    >>> flatten({"b": [1, 2], "a": None})
    [None, 1, 2]

    Raises:
        RD25: a mapping whose keys cannot be sorted.

    Source: tf.nest.flatten.
    """
    kind = _kind_of[type(structure)]
    if kind is None:
        return [structure]
    leaves: list[Any] = []
    _collect(kind, structure, leaves)
    return leaves


def _collect(kind: Kind, structure: Any, leaves: list[Any]) -> None:
    for item in kind.items(structure):
        inner = _kind_of[type(item)]
        if inner is None:
            leaves.append(item)
        else:
            _collect(inner, item, leaves)


def _rebuild(kind: Kind, structure: Any, leaves: Iterator[Any]) -> Any:
    items = []
    for item in kind.items(structure):
        inner = _kind_of[type(item)]
        items.append(next(leaves) if inner is None else _rebuild(inner, item, leaves))
    return _made(kind, structure, items)


def _made(kind: Kind, structure: Any, items: list[Any]) -> Any:
    try:
        return kind.rebuild(structure, items)
    except TypeError as error:
        raise errors.error(
            "RD25", f"making a {_name(structure)} like the one given", f"its type does not allow it: {error}",
            "Let a sequence or mapping be made from its items alone, or pass a list or dict.") from error


def map_items(func: Callable[[Any], Any], structure: Any) -> Any:
    """Applies `func` to what a container holds at its own level, containers included.

    >>> map_items(str, {"b": [1, 2], "a": None})
    {'b': '[1, 2]', 'a': 'None'}
    """
    kind = _kind_of[type(structure)]
    return structure if kind is None else _made(kind, structure, [func(item) for item in kind.items(structure)])


def structure_of(structure: Any) -> str:
    """A text that is equal for equal structures, whatever the leaves are.

    >>> structure_of({"b": [1, 2], "a": None})
    "{'a': *, 'b': [*, *]}"
    """
    kind = _kind_of[type(structure)]
    if kind is None:
        return "*"
    items = kind.items(structure)
    return kind.text(structure, ["*" if _kind_of[type(item)] is None else structure_of(item) for item in items])


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """A structure like `structure` with the leaves of `flat_sequence`.

    >>> pack_sequence_as({"b": [1, 2], "a": None}, ["x", "y", "z"])
    {'b': ['y', 'z'], 'a': 'x'}

    Raises:
        RD21: another number of leaves.  RD25: `flat_sequence` is not a list or tuple, or a container that cannot be
            made from its items.

    Source: tf.nest.pack_sequence_as.
    """
    if not isinstance(flat_sequence, (list, tuple)):
        raise errors.error("RD25", "nest.pack_sequence_as", f"flat_sequence is a {type(flat_sequence).__name__}",
                           "Pass a list of leaves.")
    count = len(flatten(structure))
    if len(flat_sequence) != count:
        raise errors.error("RD21", "nest.pack_sequence_as", f"the structure has {count} leaves, the "
                           f"sequence {len(flat_sequence)}", "Pass as many leaves as the structure has.")
    kind = _kind_of[type(structure)]
    return flat_sequence[0] if kind is None else _rebuild(kind, structure, iter(flat_sequence))


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Applies `func` to the leaves of one or more equal structures.

    >>> map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)])
    [11, (22,)]

    Raises:
        RD21, RD25: structures differ.

    Source: tf.nest.map_structure.
    """
    if not structure:
        raise errors.error("RD25", "nest.map_structure", "no structure was given", "Pass at least one structure.",
                           kind=errors.InvalidValueError)
    first, *others = structure
    for other in others:
        assert_same_structure(first, other)
    kind = _kind_of[type(first)]
    if kind is None:
        return func(*structure)
    results = [func(*leaves) for leaves in zip(*map(flatten, structure), strict=True)]
    return _rebuild(kind, first, iter(results))


def assert_same_structure(nest1: Any, nest2: Any) -> None:
    """Raises unless two structures are equal, leaves aside.

    Raises:
        RD21: lengths or keys differ (ValueError).  RD25: types differ (TypeError).

    Source: tf.nest.assert_same_structure.
    """
    difference = compare([nest1, nest2])
    if difference is None:
        return
    _, path, mine, theirs = difference
    where = f" at {path}" if path else ""
    if mine.partition(" ")[0] != theirs.partition(" ")[0] and "leaf" not in (mine, theirs):
        raise errors.error("RD25", "nest.assert_same_structure", f"one has {mine}, the other {theirs}{where}",
                           "Use the same types of containers.")
    raise errors.error("RD21", "nest.assert_same_structure", f"one has {mine}, the other {theirs}{where}")


def compare(structures: Sequence[Any]) -> tuple[int, str, str, str] | None:
    """The first place where a structure differs from the first one.

    Returns:
        (index of the other structure, path such as "['a'][0]", text for the first, text for the other), or
        None when all are equal.
    """
    first = structures[0]
    wanted = structure_of(first)
    for i, other in enumerate(structures):
        if other is not first and structure_of(other) != wanted:
            path, mine, theirs = _first_difference(first, other, "")
            return i, path, mine, theirs
    return None


def _first_difference(mine: Any, theirs: Any, path: str) -> tuple[str, str, str]:
    kind = _kind_of[type(mine)]
    if kind is not None and _alone(mine) == _alone(theirs):
        other = _kind_of[type(theirs)]
        assert other is not None
        for label, left, right in zip(kind.labels(mine), kind.items(mine), other.items(theirs), strict=True):
            if structure_of(left) != structure_of(right):
                return _first_difference(left, right, path + label)
    return path, _describe(mine), _describe(theirs)


def _alone(structure: Any) -> str:
    # The text of a container as if it held only leaves.
    kind = _kind_of[type(structure)]
    return "*" if kind is None else kind.text(structure, ["*"] * len(kind.items(structure)))


def _describe(structure: Any) -> str:
    kind = _kind_of[type(structure)]
    if kind is None:
        return "leaf"
    if isinstance(structure, Mapping):
        return f"{_name(structure)} with keys {list(structure)}"
    return f"{_name(structure)} of length {len(kind.items(structure))}"
