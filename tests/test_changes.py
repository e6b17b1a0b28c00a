"""`changes`: whoever has a testee is told what is asked or expected otherwise since an older file of cases."""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refdist.conformance import changes, kept
from refdist.conformance.__main__ import main
from refdist.conformance.distribution import VERSION

NAMES = ("all_reduce.sum", "all_reduce.mean", "names.strategies")
EVERY = [json.loads(line) for line in kept.FILE.read_text(encoding="utf-8").splitlines()]
LINES = [line for line in EVERY if line.get("clause") in NAMES or line.get("chapter") in ("all_reduce.md", "names.md")]


def line_of(lines: list[Any], clause: str) -> Any:
    return next(line for line in lines if line.get("clause") == clause)


def printed_for(change: Callable[[list[Any]], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed of a file and of one with a change, without the two first lines."""
    new = copy.deepcopy(LINES)
    change(new)
    for name, lines in (("old", LINES), ("new", new)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert main(["changes", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("from suite") and second.startswith("to   suite")
    return "\n".join(others).strip()


def expect_another_sum(lines: list[Any]) -> None:
    for case in line_of(lines, "all_reduce.mean")["cases"][:2]:
        case["expected"][0]["results"] = [7]


def ask_another_program(lines: list[Any]) -> None:
    line = line_of(lines, "all_reduce.mean")
    line["python"]["example"]["source"] += "\n\n\nstrategy.run(step)"
    for program in line["programs"]:
        program[0].append(program[0][0])
    for case in line["cases"]:
        case["expected"].append(case["expected"][0])


def change_what_only_python_runs(lines: list[Any]) -> None:
    next(line for line in lines if line.get("chapter") == "names.md")["preamble"]["source"] += "\npass"


@pytest.mark.parametrize(("change", "lines"), [
    (lambda lines: lines.remove(line_of(lines, "all_reduce.mean")),
     ("Clauses that have gone: 1", "  all_reduce.mean  (MUST; ", "      needs ")),
    (expect_another_sum, ("  all_reduce.mean", "      expected of statement ", "          is  [7]")),
    (ask_another_program, ("      asked otherwise: @ Mirrored 2", "          +strategy.run(step)")),
    (change_what_only_python_runs, ("  names.strategies", "      asked otherwise: @ Default")),
    (lambda lines: line_of(lines, "all_reduce.mean").update(level="SHOULD", rule="Another."),
     ("      rule:", "          is  Another.", "          was MUST", "          is  SHOULD")),
    (lambda lines: line_of(lines, "all_reduce.mean")["cases"].pop(), ("      no longer asked: @ ",)),
    (lambda lines: line_of(lines, "all_reduce.mean")["cases"][0]["needs"].append("tensor names"),
     ("      needs, @ Mirrored 2:", ", tensor names")),
])
def test_a_change_is_told(change: Callable[[list[Any]], object], lines: tuple[str, ...], tmp_path: Path,
                          capsys: pytest.CaptureFixture[str]) -> None:
    printed = printed_for(change, tmp_path, capsys)
    for line in lines:
        assert line in printed


def move(lines: list[Any]) -> None:
    line_of(lines, "all_reduce.sum")["python"]["example"]["line"] += 7


def word_the_same_steps_otherwise(lines: list[Any]) -> None:
    line_of(lines, "all_reduce.sum")["python"]["example"]["source"] += "  # another comment"


@pytest.mark.parametrize("change", [lambda lines: None, move, word_the_same_steps_otherwise])
def test_what_asks_a_testee_the_same_is_no_change(
        change: Callable[[list[Any]], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_for(change, tmp_path, capsys) == "Nothing is asked or expected otherwise."


def test_values_of_a_property_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = next(line for line in LINES if "property" in line and line.get("clause") == "all_reduce.sum")
    printed = printed_for(lambda lines: lines.remove(drawn), tmp_path, capsys)
    assert "no longer asked: #2 @ Mirrored 2 with 1 value; #2 @ Mirrored 3 with 1 value" in printed


def test_what_has_come_or_changed_can_be_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the cases that are installed; a clause whose wording alone is another need not be run."""
    lines = copy.deepcopy([line for line in EVERY if line.get("clause") != "all_reduce.sum"])
    expect_another_sum(lines)
    line_of(lines, "names.strategies")["rule"] = "Other words."
    (tmp_path / "old").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert main(["changes", str(tmp_path / "old"), "--adapter", "testee:node 'my t.js'"]) == 0
    printed = capsys.readouterr().out
    assert "Clauses that have come: 1\n  all_reduce.sum  (MUST; " in printed and "Other words." in printed
    assert printed.endswith("To run what has come or changed:\n    python -m refdist.conformance --adapter "
                            "\"testee:node 'my t.js'\" --clause all_reduce.sum --clause all_reduce.mean\n")


def test_the_cases_in_a_wheel_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "old.whl", "w") as wheel:
        wheel.write(kept.FILE, "refdist_conformance/cases.jsonl")
    assert main(["changes", str(tmp_path / "old.whl")]) == 0
    assert capsys.readouterr().out.endswith("\nNothing is asked or expected otherwise.\n")


@pytest.mark.parametrize("text", ["", "{}\n", "[1]\n", "no JSON\n"])
def test_a_file_without_cases_is_refused_by_name(
        text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").write_text(text)
    assert main(["changes", str(tmp_path / "old")]) == 4
    assert capsys.readouterr().err == (f"ERROR: {tmp_path / 'old'} has no cases; name a file that is a cases.jsonl, or "
                                       f"a wheel of the suite\n")
    assert main(["changes", str(tmp_path / "nosuch")]) == 4
    assert "nosuch cannot be read: No such file" in capsys.readouterr().err
    assert main(["changes"]) == 4


def test_clauses_are_read_with_all_their_examples(tmp_path: Path) -> None:
    every = changes.read(kept.FILE)
    assert sum(len(clause.cases) for clause in every.clauses.values()) == sum(
        len(line["cases"]) for line in EVERY if "cases" in line)


def test_a_file_that_repeats_the_preambles_is_read_as_the_one_that_does_not(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of form 1, whose lines had no chapters between them."""
    lines = [json.dumps(line) for line in LINES]
    old = [json.dumps({**example, "schema": 1}) for example in kept.examples(lines)]
    for name, written in (("old", old), ("new", lines)):
        (tmp_path / name).write_text("\n".join(written), encoding="utf-8")
    assert main(["changes", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert "\nThe form of the file was version 1 and is version 2: " in printed
    assert printed.endswith("\nNothing is asked or expected otherwise.\n")


def test_a_file_of_a_newer_suite_is_refused_with_what_reads_it(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new").write_text(json.dumps({"schema": 3, "suite": "9.1"}) + "\n")
    assert main(["changes", str(kept.FILE), str(tmp_path / "new")]) == 4
    assert capsys.readouterr().err == (
        f"ERROR: {tmp_path / 'new'} is a file of form 3, of suite 9.1, and this suite, {VERSION}, reads forms up to 2; "
        f"use the newer suite\n")
