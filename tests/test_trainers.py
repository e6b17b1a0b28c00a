"""The level `trainer`: what it expects, computed three ways, and how it treats a trainer that misbehaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import refdist.conformance
from refdist.conformance.__main__ import main

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"


@pytest.mark.slow
def test_refdists_own_trainer_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["trainers", "--command", f"{sys.executable} {TESTEES / 'refdist_numpy.py'}"])
    printed = capsys.readouterr().out
    assert status == 0 and "WRONG" not in printed and "errored" not in printed, printed
