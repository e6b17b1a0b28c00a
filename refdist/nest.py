"""Flatten and rebuild structures of values, with tf.nest's rules.

Lists, tuples, named tuples, dicts (ordered and default ones too) and deques are structures; everything else
is a leaf, None, strings, sets and dataclasses included.  Flattening visits dict entries in the order of
their sorted keys; rebuilt dicts keep the order of the original.  Replicas and arrays are not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import optree

from refdist import errors

_NESTED = (list, tuple, dict, deque)


def is_nested(seq: Any) -> bool:
    """Whether `seq` is a structure rather than a leaf.

    Source: tf.nest.is_nested.
    """
    return isinstance(seq, _NESTED)


def flatten(structure: Any) -> list[Any]:
    """The leaves of a structure.

    >>> flatten({"b": [1, 2], "a": None})
    [None, 1, 2]

    Source: tf.nest.flatten.
    """
    if not isinstance(structure, _NESTED):
        return [structure]
    leaves: list[Any] = optree.tree_leaves(structure, none_is_leaf=True)  # type: ignore[arg-type]
    return leaves


def structure_of(structure: Any) -> Any:
    """An object that is equal for equal structures, whatever the leaves are."""
    return optree.tree_structure(structure, none_is_leaf=True)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """A structure like `structure` with the leaves of `flat_sequence`.

    >>> pack_sequence_as({"b": [1, 2], "a": None}, ["x", "y", "z"])
    {'b': ['y', 'z'], 'a': 'x'}

    Raises:
        RD21: another number of leaves.  RD25: `flat_sequence` is no list or tuple.

    Source: tf.nest.pack_sequence_as.
    """
    if not isinstance(flat_sequence, (list, tuple)):
        raise errors.error("RD25", "nest.pack_sequence_as", f"flat_sequence is a {type(flat_sequence).__name__}",
                           "Pass a list of leaves.")
    spec = structure_of(structure)
    if len(flat_sequence) != spec.num_leaves:
        raise errors.error("RD21", "nest.pack_sequence_as", f"the structure has {spec.num_leaves} leaves, the "
                           f"sequence {len(flat_sequence)}", "Pass as many leaves as the structure has.")
    return optree.tree_unflatten(spec, flat_sequence)


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
    if not isinstance(first, _NESTED):
        return func(*structure)
    # All calls are made before the structure is rebuilt: a function may switch replicas, and no switch may happen
    # inside compiled code.
    results = [func(*leaves) for leaves in zip(*map(flatten, structure), strict=True)]
    return optree.tree_unflatten(structure_of(first), results)


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
    spec = structure_of(first)
    for i, other in enumerate(structures):
        if other is not first and structure_of(other) != spec:
            path, mine, theirs = _first_difference(first, other, "")
            return i, path, mine, theirs
    return None


def _first_difference(mine: Any, theirs: Any, path: str) -> tuple[str, str, str]:
    if type(mine) is not type(theirs) or not is_nested(mine):
        if is_nested(mine) or is_nested(theirs):
            return path, _describe(mine), _describe(theirs)
        return "", "", ""
    if isinstance(mine, dict):
        if mine.keys() != theirs.keys():
            return path, f"dict with keys {list(mine)}", f"dict with keys {list(theirs)}"
        pairs = [(f"{path}[{key!r}]", mine[key], theirs[key]) for key in mine]
    else:
        if len(mine) != len(theirs):
            return path, _describe(mine), _describe(theirs)
        pairs = [(f"{path}[{i}]", *pair) for i, pair in enumerate(zip(mine, theirs, strict=True))]
    for deeper, left, right in pairs:
        found = _first_difference(left, right, deeper)
        if found[1]:
            return found
    return "", "", ""


def _describe(structure: Any) -> str:
    if not is_nested(structure):
        return "leaf"
    return f"{type(structure).__name__} of length {len(structure)}"
