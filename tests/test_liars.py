"""Implementations that lie: each is caught in nearly every case in which it does.

A liar changes what refdist answered.  It lies in a case where its answer differs from refdist's, bit by bit; there the
verdict must not be that it passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import worlds

import refdist
from refdist.conformance.adapters.simulated import Simulated
from refdist.conformance.chapters import Case, cases
from refdist.conformance.examples import Answer, program
from refdist.conformance.judging import judge
from refdist.conformance.results import COMPLEX, FLOATS, INTS, Result, array, integer, real

# What only has to hold of a result may hold of a changed one, too.
CASES = [case for case in worlds.some(cases()) if not any(expectation.holds for statement in case.example.statements
                                             for expectation in statement.expectations)]
Leaf = Callable[[dict[str, Any]], Result]
# One process of those that run tests asks refdist for the answers, once.
pytestmark = [pytest.mark.worlds, pytest.mark.xdist_group("liars"), pytest.mark.filterwarnings("ignore")]


@functools.cache
def honest() -> list[list[Answer]]:
    with refdist.config.temporary_devices():
        adapter = Simulated()
        return [adapter.run(program(case)) for case in CASES]


def each(result: Any, change: Callable[[dict[str, Any]], Result | None]) -> Any:
    """The result with every part for which `change` returns something replaced by that."""
    if isinstance(result, list):
        return [each(item, change) for item in result]
    if not isinstance(result, dict):
        return result
    changed = change(result)
    if changed is not None:
        return changed
    return result if {"dtype", "spec"} & set(result) else {key: each(item, change) for key, item in result.items()}


def of_arrays(change: Leaf) -> Callable[[Case, Answer], Answer]:
    """A liar about arrays of numbers."""
    def lie(case: Case, answer: Answer) -> Answer:
        return {i: each(result, lambda part: change(part) if part.get("dtype") in {*FLOATS, *INTS, *COMPLEX, "bool"}
                        else None) for i, result in answer.items()}
    return lie


def numbers(part: dict[str, Any]) -> list[Any]:
    if part["dtype"] in COMPLEX:
        return [complex(real(a) or 0, real(b) or 0) for a, b in part["data"]]
    return [item if isinstance(item, bool) else integer(item) if part["dtype"] in INTS else real(item)
            for item in part["data"]]


def cast(dtype: str, to: Callable[[Any], Any]) -> Callable[[Case, Answer], Answer]:
    return of_arrays(lambda part: array(dtype, part["shape"], [to(item) for item in numbers(part)]))


def small(number: Any) -> int:
    number = number.real if isinstance(number, complex) else number
    return 0 if number != number or abs(number) == float("inf") else (int(number) + 128) % 256 - 128


def plain_float(number: Any) -> float:
    return float(number.real if isinstance(number, complex) else number)


def only(words: str, liar: Callable[[Case, Answer], Answer]) -> Callable[[Case, Answer], Answer]:
    """The liar, in cases whose program has this word."""
    return lambda case, answer: liar(case, answer) if words in case.source else answer


def constant(result: Result) -> Callable[[Case, Answer], Answer]:
    return lambda case, answer: dict.fromkeys(answer, result)


def wrong_kind(case: Case, answer: Answer) -> Answer:
    """No clause takes the end of an iterator for any other error, whose kind it may leave open."""
    return {i: {"error": "lookup" if result["error"] == "end" else "end"}
            if isinstance(result, dict) and "error" in result else result for i, result in answer.items()}


def no_error(case: Case, answer: Answer) -> Answer:
    return {i: None if isinstance(result, dict) and "error" in result else result for i, result in answer.items()}


def parts(change: Callable[[list[Any]], list[Any]]) -> Callable[[Case, Answer], Answer]:
    """A liar about distributed values."""
    return lambda case, answer: {i: each(result, lambda part: {"per_replica": change(part["per_replica"])}
                                         if "per_replica" in part else None) for i, result in answer.items()}


def as_kind(kind: str, other: str) -> Callable[[Case, Answer], Answer]:
    return lambda case, answer: {i: each(result, lambda part: {other: part[kind]} if kind in part else None)
                                 for i, result in answer.items()}


def half_changed(case: Case, answer: Answer) -> Answer:
    """After an error every number is one more."""
    changed: Answer = {}
    failed = False
    for i in sorted(answer):
        changed[i] = cast_one(answer[i]) if failed else answer[i]
        failed |= isinstance(answer[i], dict) and "error" in answer[i]  # type: ignore[operator]  # a dict
    return changed


def cast_one(result: Result) -> Any:
    def more(part: dict[str, Any]) -> Result | None:
        if part.get("dtype") not in {*FLOATS, *INTS} or not part["data"]:
            return None
        first = numbers(part)
        return array(part["dtype"], part["shape"], [first[0] + 1, *first[1:]])
    return each(result, more)


def moved(units: int) -> Leaf:
    """Every float moved by so many units in the last place."""
    def change(part: dict[str, Any]) -> Result | None:
        from refdist.conformance.results import unit
        if part["dtype"] not in FLOATS:
            return None
        values = [item + units * unit(item, part["dtype"]) if item == item and abs(item) != float("inf") else item
                  for item in numbers(part)]
        return array(part["dtype"], part["shape"], values)
    return change


LIARS: dict[str, Callable[[Case, Answer], Answer]] = {
    "all bool": cast("bool", bool), "all int8": cast("int8", small), "all float64": cast("float64", plain_float),
    "all float32": cast("float32", plain_float), "all int64": cast("int64", lambda item: int(small(item))),
    "truncated means": only("MEAN", of_arrays(lambda part: array(part["dtype"], part["shape"], [
        float(int(item)) if isinstance(item, float) and abs(item) < 1e30 else item for item in numbers(part)]))),
    "integer means": only("MEAN", cast("int32", small)),
    "constant true": constant(True), "constant bool array": constant(array("bool", [], [True])),
    "constant 1.0": constant(array("float32", [], [1.0])), "constant None": constant(None),
    "always an error": constant({"error": "value"}), "always unsupported": constant({"error": "unsupported"}),
    "the wrong kind of error": wrong_kind, "never an error": no_error,
    "the first replica's for all": parts(lambda items: [items[0]] * len(items)),
    "the last replica's for all": parts(lambda items: [items[-1]] * len(items)),
    "replicas in reverse": parts(lambda items: items[::-1]),
    "one replica too few": parts(lambda items: items[:-1]),
    "shapes flattened": of_arrays(lambda part: {**part, "shape": [len(part["data"])]}),
    "scalars of shape (1,)": of_arrays(lambda part: {**part, "shape": part["shape"] or [1]}),
    "elements in reverse": of_arrays(lambda part: {**part, "data": part["data"][::-1]}),
    "distributed values as lists": as_kind("per_replica", "list"), "lists as tuples": as_kind("list", "tuple"),
    "tuples as lists": as_kind("tuple", "list"), "state half changed after an error": half_changed,
    "three units in the last place": of_arrays(moved(3)), "nothing": lambda case, answer: {},
}


@pytest.mark.parametrize("name", LIARS)
def test_a_liar_is_caught(name: str) -> None:
    lied = [(case, answers, [LIARS[name](case, answer) for answer in answers])
            for case, answers in zip(CASES, honest(), strict=True)]
    lies = [(case, answers) for case, right, answers in lied if answers != right]
    believed = [case.name for case, answers in lies if judge(case, answers).outcome == "passed"]
    assert len(lies) >= 20
    assert len(believed) <= len(lies) // 100, believed


def own_replica_only(self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
    return value


def test_collectives_that_return_what_each_replica_contributed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = honest()
    monkeypatch.setattr(refdist.ReplicaContext, "all_reduce", own_replica_only)
    with refdist.config.temporary_devices():
        adapter = Simulated()
        answers = [adapter.run(program(case)) for case in CASES if "all_reduce" in case.source]
    about = [(case, observed) for case, observed in zip(CASES, right, strict=True) if "all_reduce" in case.source]
    lies = [(case, observed) for (case, was), observed in zip(about, answers, strict=True) if observed != was]
    assert len(lies) >= 50
    assert [case.name for case, observed in lies if judge(case, observed).outcome == "passed"] == []


def test_one_that_is_honest_passes() -> None:
    assert {judge(case, answers, bitwise=True).outcome for case, answers in zip(CASES, honest(), strict=True)} == {
        "passed"}


@pytest.fixture(scope="module", autouse=True)
def devices() -> Iterator[None]:
    with refdist.config.temporary_devices():
        yield
