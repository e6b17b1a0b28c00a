"""Strategies of other authors for TensorFlow: their faults are named, and what is right in them is not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from refdist.conformance import session
from refdist.conformance.chapters import cases
from refdist.conformance.judging import Verdict
from refdist.conformance.protocol import Unusable

pytestmark = [pytest.mark.slow, pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None,
                                                   reason="needs TensorFlow in this environment")]

# A fault of `other_strategies.Wrong`, the case that names it, and what is said.
FAULTS = [
    ("leaves out a contribution", "all_reduce.mean @ Mirrored 3", "found [1.3333334, 13.333333] float32, expected [2"),
    ("truncates means of ints", "all_reduce.mean-of-ints @ Mirrored 2", "found [2, -4] int64, expected [2.0, -4.0]"),
    ("numbers replicas from one", "values.from-a-function-by-replica @ Mirrored 2", "[0]: found 2.0, expected 3.0"),
]
# Further clauses, in some of which TensorFlow itself fails.
CLAUSES = {name.partition(" ")[0] for _, name, _ in FAULTS} | {
    "all_reduce.sum", "all_reduce.nests", "all_reduce.shared-array", "reduce.sum", "reduce.mean-of-integers",
    "reduce.several-axes", "gather.rows", "run.one-array-for-all"}
CASES = [case for case in cases() if case.clause.name in CLAUSES and not case.example.parameters
         and case.strategy in ("Mirrored 2", "Mirrored 3", "Central 2")]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


def verdicts(strategy: str) -> dict[str, Verdict]:
    tested = session.tester("tensorflow", python=sys.executable, strategy=strategy)
    by_case = {case.name: tested.run(case) for case in CASES}
    tested.close()
    return by_case


def failures(by_case: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in by_case.items() if verdict.outcome not in ("passed", "skipped")}


def test_each_fault_is_named_and_what_is_right_is_not() -> None:
    own, right, wrong = map(verdicts, ("", "other_strategies:right", "other_strategies:Wrong"))
    assert failures(own) and failures(right) <= failures(own)
    named = failures(wrong) - failures(own)
    for _, name, message in FAULTS:
        assert name in named and message in wrong[name].message
    assert {name.partition(".")[0] for name in named} == {"all_reduce", "values"}
    skipped = {name for name, verdict in right.items() if verdict.outcome == "skipped"}
    assert skipped == {case.name for case in CASES if case.strategy == "Central 2"}
    assert {right[name].message for name in skipped} == {"needs Central"}


@pytest.mark.parametrize(("source", "message"), [
    ("def make(): ...", "TypeError: make() takes 0 positional arguments"),
    ("def make(devices): return devices", "TypeError: list is not a tf.distribute.Strategy"),
    ("import tensorflow as tf\ntf.constant(1)\nmake = tf.distribute.MirroredStrategy", "cannot be modified after"),
    ("import os\ndef make(devices): os._exit(1)", "the process has crashed"),
])
def test_what_does_not_make_a_strategy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str,
                                                  message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(source + "\n")
    with pytest.raises(Unusable) as raised:
        session.tester("tensorflow", python=sys.executable, strategy="theirs:make")
    assert "theirs:make, called with two devices: " in str(raised.value) and message in str(raised.value)
