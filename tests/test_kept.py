"""What a testee is asked: what is kept of a case, and what is recorded where that is about another program."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest

from refdist.conformance import kept
from refdist.conformance.__main__ import main
from refdist.conformance.adapter import properties
from refdist.conformance.chapters import Case, cases
from refdist.conformance.recording import dump, record


def case_of(clause: str) -> Case:
    return next(case for case in cases() if case.clause.name == clause)


def test_what_is_kept_is_not_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("all_reduce.sum")
    recorded = record.question(case)
    monkeypatch.setattr(record, "recorded", lambda case: ["anew"])
    assert kept.question(case) == recorded


def test_a_case_that_is_not_as_it_is_kept_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("all_reduce.sum")
    [first, *others] = case.example.statements
    edited = dataclasses.replace(case.example, statements=(dataclasses.replace(first, source="x = 1"), *others))
    monkeypatch.setattr(record, "recorded", lambda case: ["anew"])
    for changed in (dataclasses.replace(case, strategy="Mirrored 4"), dataclasses.replace(case, example=edited)):
        assert kept.question(changed)["programs"] == ["anew"]


def test_every_property_is_kept_with_twenty_values_or_all_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "question", lambda case: pytest.fail(f"{case.name} is recorded: run `make cases`"))
    few = {"cross_device_ops.merged-options": 16, "all_reduce.indexed-slices-of-different-length": 16}
    for case in cases():
        if case.example.parameters:
            draws = kept.draws(case)
            assert len({drawn.name for drawn in draws}) == len(draws) == few.get(case.clause.name, properties.DRAWS)
            assert [kept.question(drawn)["name"] for drawn in draws] == [drawn.name for drawn in draws]


def test_the_simplest_values_of_a_property_are_asked_first() -> None:
    draws = kept.draws(next(case for case in cases() if case.name == "all_reduce.sums-of-ints-wrap @ Mirrored 2"))
    lengths = [len(drawn.name) for drawn in draws]
    assert draws[0].values == (("a", 0), ("b", 0)) and lengths == sorted(lengths)


def test_values_that_the_chapter_allows_no_more_are_not_asked() -> None:
    case = next(case for case in cases() if case.name == "all_reduce.sums-of-ints-wrap @ Mirrored 2")
    narrower = dataclasses.replace(case.example, parameters={**case.example.parameters, "b": "integers(0, 1)"})
    assert kept.draws(case) and not kept.draws(dataclasses.replace(case, example=narrower))


def test_values_that_are_kept_are_kept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.name == "cross_device_ops.merged-options @ Default")
    monkeypatch.setattr(dump, "drawn", lambda case, count: [case.drawn({"a": 0, "b": 0})])
    there = [line for line in kept.FILE.read_text(encoding="utf-8").splitlines() if f'"{case.name}, ' in line]
    assert sorted(list(dump.lines([case]))[1:]) == sorted(there) != []
    monkeypatch.setattr(dump, "draws", lambda case: [])
    assert len(list(dump.lines([case]))) == 2


def test_cases_are_written_without_what_refdist_says_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "cases", lambda: [case_of("all_reduce.nan-and-infinity")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["dump", str(tmp_path / "cases.jsonl")]) == 0
    assert len((tmp_path / "cases.jsonl").read_text().splitlines()) == 2


def test_cases_are_not_written_where_checkpoints_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refdist.conformance.__main__.find_spec", lambda name: None if name == "safetensors" else name)
    with pytest.raises(LookupError, match=r"safetensors is not installed\. Run `pip install pytest "):
        main(["dump", str(tmp_path / "cases.jsonl")])
    assert not any(tmp_path.iterdir())


def test_what_refdist_says_of_a_program_is_not_said_of_a_testee(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("all_reduce.nan-and-infinity")
    monkeypatch.setattr(kept, "_cases_of_clause", lambda name: {})
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        record.question(case)
    assert given
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept.question(case)["programs"]
