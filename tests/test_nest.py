"""Structures: which containers there are, what comes back, and what counts as equal; as tf.nest of TensorFlow 2.21."""

from __future__ import annotations

import array
import collections
import dataclasses
import types
import typing
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdist
from refdist import nest


class Config(dict):
    """A dict that needs more than its entries to be made, and has attributes of its own."""

    def __init__(self, entries: Any, *, tag: str) -> None:
        super().__init__(entries)
        self.tag = tag


class Frozen(Mapping):
    def __init__(self, entries: Any) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Store(MutableMapping):
    """A mapping that is filled after it was made."""

    def __init__(self) -> None:
        self._entries: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._entries[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Stack(list):
    pass


class Row(tuple):
    __slots__ = ()


class Line(Sequence):
    def __init__(self, items: Any) -> None:
        self._items = list(items)

    def __getitem__(self, i: Any) -> Any:
        return self._items[i]

    def __len__(self) -> int:
        return len(self._items)


Pair = collections.namedtuple("Pair", "b a")


class Couple(Pair):
    __slots__ = ()


class Typed(typing.NamedTuple):
    b: Any
    a: Any = 3


class Attrs:
    """What the package attrs makes of a frozen class with keyword-only arguments."""

    __attrs_attrs__ = (types.SimpleNamespace(name="b"), types.SimpleNamespace(name="a"))

    def __init__(self, *, b: Any, a: Any) -> None:
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "a", a)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("frozen")


class Custom:
    def __init__(self, b: Any, a: Any, name: str) -> None:
        self.b, self.a, self.name = b, a, name

    def __tf_flatten__(self) -> tuple[Any, Any]:
        return self.name, (self.b, self.a)

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: Any) -> Custom:
        return cls(*components, metadata)


@dataclasses.dataclass
class Plain:
    b: Any
    a: Any


def stored(entries: Any) -> Store:
    store = Store()
    store.update(entries)
    return store


# Each makes a container of two items, the first of them under the key or name "b".
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "dict": lambda b, a: {"b": b, "a": a},
    "OrderedDict": lambda b, a: OrderedDict(b=b, a=a),
    "defaultdict": lambda b, a: defaultdict(list, b=b, a=a),
    "Counter": lambda b, a: Counter({"b": b, "a": a}),
    "subclass of dict": lambda b, a: Config({"b": b, "a": a}, tag="t"),
    "UserDict": lambda b, a: UserDict(b=b, a=a),
    "Mapping": lambda b, a: Frozen({"b": b, "a": a}),
    "MutableMapping": lambda b, a: stored({"b": b, "a": a}),
    "list": lambda b, a: [b, a],
    "subclass of list": lambda b, a: Stack([b, a]),
    "UserList": lambda b, a: UserList([b, a]),
    "tuple": lambda b, a: (b, a),
    "subclass of tuple": lambda b, a: Row((b, a)),
    "named tuple": Pair,
    "subclass of a named tuple": Couple,
    "typing.NamedTuple": Typed,
    "Sequence": lambda b, a: Line([b, a]),
    "deque": lambda b, a: deque([b, a], maxlen=7),
    "attrs": lambda b, a: Attrs(b=b, a=a),
    "__tf_flatten__": lambda b, a: Custom(b, a, "n"),
}
SORTED = {"dict", "OrderedDict", "defaultdict", "Counter", "subclass of dict", "UserDict", "Mapping", "MutableMapping"}
MAKERS = st.sampled_from(sorted(TWO))


def shown(structure: Any) -> Any:
    """A structure as data that can be compared: the class and the items, in their order, of every container."""
    if isinstance(structure, Mapping):
        return type(structure), [(key, shown(item)) for key, item in structure.items()]
    if isinstance(structure, (Attrs, Custom)):
        return type(structure), shown(structure.b), shown(structure.a)
    if isinstance(structure, (Sequence, deque)) and not isinstance(structure, str):
        return type(structure), *map(shown, structure)
    return structure


def nests() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.integers() | st.none() | st.just("text"),
        lambda inner: st.builds(lambda make, b, a: TWO[make](b, a), MAKERS, inner, inner), max_leaves=12)


@pytest.mark.parametrize("name", TWO)
def test_every_kind_of_container_is_taken_apart_and_comes_back_as_what_it_was(name: str) -> None:
    structure = TWO[name](1, [2, 3])
    assert nest.is_nested(structure)
    assert nest.flatten(structure) == ([2, 3, 1] if name in SORTED else [1, 2, 3])
    new = nest.map_structure(lambda leaf: leaf * 10, structure)
    assert new is not structure and shown(new) == shown(TWO[name](10, [20, 30]))
    assert shown(structure) == shown(TWO[name](1, [2, 3])), "the original is not changed"
    for attribute in ("tag", "name", "maxlen", "default_factory"):
        assert getattr(new, attribute, None) == getattr(structure, attribute, None)


@given(nests())
def test_packing_what_was_flattened_gives_the_same_types_and_items(structure: Any) -> None:
    leaves = nest.flatten(structure)
    packed = nest.pack_sequence_as(structure, leaves)
    assert shown(packed) == shown(structure)
    assert nest.compare([structure, packed]) is None
    numbered = nest.pack_sequence_as(structure, list(range(len(leaves))))
    assert nest.flatten(numbered) == list(range(len(leaves)))


@given(nests(), nests())
def test_structures_are_equal_exactly_if_they_can_be_mapped_together(first: Any, second: Any) -> None:
    if nest.structure_of(first) == nest.structure_of(second):
        assert nest.flatten(nest.map_structure(lambda a, b: (b,), first, second)) == nest.flatten(second)
    else:
        with pytest.raises((ValueError, TypeError), match=r"RD2[15].*the first has .*, the second "):
            nest.map_structure(lambda a, b: b, first, second)


@pytest.mark.parametrize("leaf", [
    None, "text", b"bytes", bytearray(b"bytes"), {1, 2}, frozenset([1]), np.ones(2), np.float32(1), Plain(1, 2), Custom,
    (i for i in [1]), array.array("i", [1, 2]), memoryview(b"ab"), refdist.IndexedSlices([[1.0]], [0]),
    refdist.PerReplica([1, 2]), refdist.Variable([1.0])], ids=lambda leaf: type(leaf).__name__)
def test_everything_else_is_a_leaf(leaf: Any) -> None:
    assert not nest.is_nested(leaf)
    assert nest.flatten(leaf)[0] is leaf
    assert nest.pack_sequence_as(leaf, [7]) == 7


def test_views_and_ranges_become_lists() -> None:
    entries = {"b": 1, "a": 2}
    for view, expected in ((entries.keys(), ["b", "a"]), (entries.values(), [1, 2]), (range(3), [0, 1, 2]),
                           (entries.items(), [("b", 1), ("a", 2)])):
        assert nest.is_nested(view)
        assert nest.map_structure(lambda leaf: leaf, view) == expected
    assert nest.map_structure(lambda leaf: leaf, ChainMap({"b": 1}, {"a": 2})) == {"a": 2, "b": 1}


@pytest.mark.parametrize("keys", [(1, "a"), (None, "a"), ((1,), 2), (1j, 2j)])
def test_keys_that_cannot_be_sorted_are_named(keys: tuple[Any, Any]) -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    for mapping in (dict.fromkeys(keys, 1.0), Frozen(dict.fromkeys(keys, 1.0))):
        for call in (lambda x: nest.flatten(x), lambda x: nest.compare([x, dict(x)]),
                     lambda x: strategy.run(lambda y: y, args=(x,)), lambda x: strategy.run(lambda: x),
                     lambda x: nest.pack_sequence_as(x, [1, 2])):
            with pytest.raises(TypeError, match=rf"RD25.*keys of a {type(mapping).__name__} cannot be sorted"):
                call(mapping)


def test_a_type_that_cannot_be_rebuilt_is_named() -> None:
    view = types.MappingProxyType({"a": 1})
    assert nest.flatten(view) == [1]
    with pytest.raises(TypeError, match=r"RD25.*rebuilding a mappingproxy"):
        nest.map_structure(lambda leaf: leaf, view)


@pytest.mark.parametrize(("structure", "other", "equal"), [
    ({"a": 1}, Config({"a": 2}, tag="t"), True), ({"a": 1}, OrderedDict(a=1), True), ({"a": 1}, Frozen({"a": 1}), True),
    ({"a": 1}, defaultdict(list, a=1), True), (UserDict(a=1), stored({"a": 1}), True), ([1], Stack([1]), True),
    (Pair(1, 2), collections.namedtuple("Pair", "b a")(1, 2), True), (deque([1], 3), deque([1], 4), True),
    ({"a": 1, "b": 2}, {"b": 1, "a": 2}, True), (Custom(1, 2, "n"), Custom(3, 4, "n"), True),
    ((1,), Row((1,)), False), (Pair(1, 2), Couple(1, 2), False), (Pair(1, 2), (1, 2), False), ([1], deque([1]), False),
    ([1], UserList([1]), False), ([1], (1,), False), ([0, 1], range(2), False), ({1: 2}.keys(), {1: 2}.values(), False),
    (Custom(1, 2, "n"), Custom(1, 2, "m"), False), (Attrs(b=1, a=2), Custom(1, 2, "n"), False), ([1], 1, False),
    ({"a": 1}, {"b": 1}, False), ([1], [1, 2], False), (Pair(1, [2]), Pair(1, [2, 3]), False)])
def test_which_structures_are_equal(structure: Any, other: Any, equal: bool) -> None:
    for first, second in ((structure, other), (other, structure)):
        if equal:
            nest.assert_same_structure(first, second)
        else:
            with pytest.raises((ValueError, TypeError), match=r"RD2[15]"):
                nest.assert_same_structure(first, second)


def test_mappings_with_other_keys_are_a_value_error_whatever_their_types() -> None:
    for structure, other in (({"b": 0, "a": 0}, OrderedDict(z=0, y=0)), (Frozen({"a": 0}), {"b": 0})):
        with pytest.raises(ValueError, match=r"RD21.*Use the same lengths and keys"):
            nest.assert_same_structure(structure, other)
    with pytest.raises(TypeError, match=r"RD25.*Use the same types of containers"):
        nest.assert_same_structure({"a": 0}, [0])


def test_the_place_of_a_difference_is_named_in_every_kind_of_container() -> None:
    for name, label in (("dict", r"\['b'\]"), ("Mapping", r"\['b'\]"), ("list", r"\[0\]"), ("deque", r"\[0\]"),
                        ("named tuple", r"\.b"), ("attrs", r"\.b"), ("__tf_flatten__", r"\[0\]")):
        with pytest.raises(ValueError, match=rf"RD21.*list of length 1.*list of length 2 at {label}\[0\]\.a\."):
            nest.assert_same_structure(TWO[name]([Pair(1, [1])], 2), TWO[name]([Pair(1, [1, 2])], 2))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", TWO)
def test_arguments_results_and_reductions_keep_every_kind_of_container(name: str, count: int) -> None:
    strategy = refdist.MirroredStrategy([f"GPU:{i}" for i in range(count)])
    seen: list[Any] = []

    def step(argument: Any) -> Any:
        seen.append(argument)
        replica = refdist.get_replica_context()
        summed = replica.all_reduce("SUM", argument)
        merged = replica.merge_call(lambda strategy, value: value, args=(argument,))
        assert shown(summed)[0] is shown(merged)[0] is type(argument)
        return argument

    parts = strategy.run(lambda: np.float32([refdist.get_replica_context().replica_id_in_sync_group + 1]))
    result = strategy.run(step, args=(TWO[name](parts, [np.float32([5])]),))
    for i, argument in enumerate(seen):
        assert shown(argument) == shown(TWO[name](np.float32([i + 1]), [np.float32([5])]))
    assert type(result) is type(seen[0])
    total = strategy.reduce("SUM", result, axis=None)
    gathered = strategy.gather(result, axis=0)
    assert shown(total) == shown(TWO[name](np.float32([sum(range(count + 1))]), [np.float32([5 * count])]))
    assert [leaf.tolist() for leaf in nest.flatten(gathered)] == [
        leaf.tolist() for leaf in nest.flatten(TWO[name](np.arange(1.0, count + 1), [np.full(count, 5.0)]))]
    for i, local in enumerate(strategy.experimental_local_results(result) if count > 1 else [result]):
        assert shown(local) == shown(seen[i])


def test_classes_made_on_the_fly_are_not_kept() -> None:
    for i in range(1500):
        nest.flatten(type(f"Leaf{i}", (), {})())
    assert len(nest._kind_of) <= 1000


@pytest.mark.parametrize("name", sorted({*TWO} - {"list", "subclass of list", "UserList", "Sequence", "deque"}))
def test_elements_of_datasets_keep_their_containers(name: str) -> None:
    structure = TWO[name](np.float32([1, 2]), {"c": np.float32([3, 4])})
    [element] = refdist.data.Dataset.from_tensors(structure)
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    [distributed] = strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensors(structure))
    assert type(element) is type(distributed) is type(structure)
    for leaf, wanted in zip(nest.flatten(element), nest.flatten(structure), strict=True):
        assert leaf.tolist() == wanted.tolist()
    for leaf, wanted in zip(nest.flatten(distributed), nest.flatten(structure), strict=True):
        assert [part.tolist() for part in leaf.values] == [[wanted[0]], [wanted[1]]]


@pytest.mark.parametrize("sequence", [[1, 2], Stack([1, 2]), range(1, 3), deque([1, 2]), UserList([1, 2])], ids=repr)
def test_a_sequence_that_is_not_a_tuple_is_an_array_in_a_dataset(sequence: Any) -> None:
    [element] = refdist.data.Dataset.from_tensors(sequence)
    assert element.tolist() == [1, 2]


SLICES = refdist.IndexedSlices(np.array([1.0]), np.array([0]), np.array([3]))


@pytest.mark.parametrize(("first", "second"), [
    ([1], (2,)), ({"a": 1}, {"b": 2}), ({"a": 1}, [2]), ([1, (2,)], (3, [4])), (1, 2)])
def test_structures_may_have_other_types_and_keys_if_these_are_not_checked(first: Any, second: Any) -> None:
    nest.assert_same_structure(first, second, check_types=False)
    assert nest.flatten(nest.map_structure(lambda a, b: a + b, first, second, check_types=False)) == [
        a + b for a, b in zip(nest.flatten(first), nest.flatten(second), strict=True)]
    assert type(nest.map_structure(lambda a, b: a + b, first, second, check_types=False)) is type(first)


@pytest.mark.parametrize(("first", "second", "message"), [
    ([1], (1, 2), "length 1, the second has a list of length 2"), ([1, [2]], (1, 2), r"a leaf at \[1\]"),
    ([[1], 2], ([1, 3], 2), r"length 1, the second has a list of length 2 at \[0\]")])
def test_nesting_is_checked_also_without_types(first: Any, second: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"RD21.*{message}"):
        nest.assert_same_structure(first, second, check_types=False)


def test_slices_and_distributed_values_are_leaves_unless_they_are_to_be_taken_apart() -> None:
    strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
    value = strategy.run(lambda: refdist.constant(float(refdist.get_replica_context().replica_id_in_sync_group)))
    with strategy.scope():
        variable = refdist.Variable(1.0)
    assert nest.flatten([SLICES, value]) == [SLICES, value]
    assert list(map(np.ravel, nest.flatten([SLICES, value], expand_composites=True))) == [1.0, 0, 3, 0.0, 1.0]
    assert nest.flatten(variable, expand_composites=True) == [variable]
    doubled = nest.map_structure(lambda x: x * 2, [value, SLICES], expand_composites=True)
    assert [float(part) for part in doubled[0].values] == [0, 2] and doubled[1].dense_shape.tolist() == [6]
    packed = nest.pack_sequence_as(SLICES, [np.ones(1), np.array([2]), np.array([4])], expand_composites=True)
    assert packed.indices.tolist() == [2]
    nest.assert_same_structure(SLICES, SLICES, expand_composites=True)
    with pytest.raises(ValueError, match="RD21"):
        nest.assert_same_structure(SLICES, value, expand_composites=True)
    with pytest.raises(ValueError, match="RD21"):
        nest.assert_same_structure(SLICES, refdist.IndexedSlices(SLICES.values, SLICES.indices), expand_composites=True)
