"""What differs is said with its place, and what has another form than a result is refused."""

from __future__ import annotations

from typing import Any

import pytest

from refdist.conformance.comparison import differences
from refdist.conformance.notation import cut, parsed, shown
from refdist.conformance.results import KINDS, fault


@pytest.mark.parametrize(("expected", "observed", "says"), [
    ("1.0 float32", "2.0 float32", "found 2.0 float32, expected 1.0 float32"),
    ("1.0 float32", "1 int32", "found 1 int32, expected 1.0 float32"),
    ("1.0 float32", "1.0", "found 1.0, expected 1.0 float32"),
    ("1.0 | 2.0 float32", "1.0 | 3.0 float32", "replica 1: found 3.0 float32, expected 2.0 float32"),
    ("1.0 | 2.0 float32", "1.0 float32", "found 1.0 float32, expected 1.0 | 2.0 float32"),
    ("[1 | 2 int32, 3]", "[1 | 2 int32, 4]", "[1]: found 4, expected 3"),
    ("[1 | 2 int32, 3]", "[1 | 0 int32, 3]", "[0], replica 1: found 0 int32, expected 2 int32"),
    ("[1] | [2]", "[1] | [3]", "replica 1, [0]: found 3, expected 2"),
    ('{"a": [1, (2, 3)]}', '{"a": [1, (2, 4)]}', "['a'][1][1]: found 4, expected 3"),
    ('{"a": 1}', '{"b": 1}', """found {"b": 1}, expected {"a": 1}"""),
    ("[1, 2]", "(1, 2)", "found (1, 2), expected [1, 2]"),
    ("[1, 2]", "[1]", "found [1], expected [1, 2]"),
    ("slices([1.0] float32, [0] int64, (4,))", "slices([1.0] float32, [1] int64, (4,))",
     "['indices']: found [1] int64, expected [0] int64"),
    ("1", "raises value", "raises value, expected 1"),
    ("1 | 2", "1 | None", "replica 1: found None, expected 2"),
    ("raises value", "1", "found 1, expected raises value"),
    ("raises value", "raises type", "raises type, expected raises value"),
    ("True", "1", "found 1, expected True"),
])
def test_a_difference_is_said_with_its_place(expected: str, observed: str, says: str) -> None:
    assert list(differences(parsed(expected), parsed(observed))) == [says]


def test_every_difference_is_found() -> None:
    assert len(list(differences(parsed("[1, 2 | 3, 4]"), parsed("[0, 2 | 0, 0]")))) == 3


def test_the_order_of_keys_does_not_count() -> None:
    assert list(differences(parsed('{"a": 1, "b": 2}'), parsed('{"b": 2, "a": 1}'))) == []
    assert list(differences({"error": "value"}, {"error": "value", "message": "why"})) == []


def nested(depth: int) -> Any:
    return {"list": [nested(depth - 1)]} if depth else None


@pytest.mark.parametrize("wrong", [
    3, 2.5, [1], [], {}, {"int": 1, "float": 1.0}, {"int": 1.0}, {"int": True}, {"int": "1e3"}, {"int": "9" * 5000},
    {"int": "\u0663"}, {"float": "1.0"}, {"float": 10**400}, {"float": False}, {"list": 3}, {"list": [3]},
    {"list": [{"tuple": [{"dict": {"a": 3}}]}]}, {"per_replica": {"0": None}}, {"dict": [1]},
    {"dict": {"\ud800": None}},
    {"slices": {}}, {"slices": {"values": None, "indices": None}}, {"object": 3}, {"object": "\ud800"}, "\udfff",
    {"error": "banana"}, {"error": ["value"]}, {"error": "value", "message": 3}, {"error": "value", "why": "because"},
    {"dtype": "float32", "shape": [2], "data": [1.0]}, {"dtype": "float31", "shape": [], "data": [1.0]},
    {"dtype": ["float32"], "shape": [], "data": [1.0]}, {"dtype": "float32", "shape": [-1], "data": []},
    {"dtype": "float32", "shape": [True], "data": [1.0]}, {"dtype": "float32", "shape": 1, "data": [1.0]},
    {"dtype": "float32", "shape": [1], "data": 1.0}, {"dtype": "float32", "shape": [10**9] * 100_000, "data": []},
    {"dtype": "float32", "shape": [1], "data": [True]}, {"dtype": "float32", "shape": [1], "data": ["one"]},
    {"dtype": "int32", "shape": [1], "data": [1.0]}, {"dtype": "bool", "shape": [1], "data": [1]},
    {"dtype": "string", "shape": [1], "data": [1]}, {"dtype": "string", "shape": [1], "data": ["\ud800"]},
    {"dtype": "complex64", "shape": [1], "data": [1.0]}, {"dtype": "complex64", "shape": [1], "data": [[1.0, "i"]]},
    {"dtype": "float32", "shape": [2, 2], "data": [[1.0, 2.0], [3.0, 4.0]]}, {"spec": {"dtype": [], "shape": []}},
    nested(200),
])
def test_what_has_another_form_is_refused_in_few_words(wrong: Any) -> None:
    message = fault(wrong)
    assert message is not None and len(message) < 300
    assert fault({"list": [None, wrong]}) is not None


@pytest.mark.parametrize("right", [None, True, "text", nested(50), {"float": 10**300}, {"int": str(2**64)},
                                   *({"error": kind, "message": "why"} for kind in KINDS)])
def test_what_is_a_result_is_not_refused(right: Any) -> None:
    assert fault(right) is None


def test_what_is_quoted_is_short_and_obeyed_by_no_terminal() -> None:
    assert len(shown({"object": "x" * 10**6})) < 2100 and len(cut("x" * 10**6)) < 300
    assert shown({"object": "\x1b[2J\n\ud800\u202e"}) == "?[2J ??"
