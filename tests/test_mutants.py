"""Wrong implementations are told from right ones by the specification alone."""

from __future__ import annotations

import pytest

from refdist.conformance.chapters import cases
from refdist.conformance.mutants.__main__ import tried
from refdist.conformance.mutants.killing import Fork
from refdist.conformance.mutants.slips import load

SLIPS = load()
CASES = {case.name: case for case in cases()}


@pytest.mark.slow
def test_every_slip_is_killed_by_the_clause_that_it_names() -> None:
    found = tried(SLIPS, 2)
    killers = {name: CASES[killer].clause.name if killer in CASES else killer for name, killer in found.items()}
    assert killers == {slip.name: slip.clause for slip in SLIPS}


def test_slips_name_what_is_there() -> None:
    assert len({slip.name for slip in SLIPS}) == len(SLIPS)
    assert {slip.clause for slip in SLIPS} <= {case.clause.name for case in CASES.values()}
    for slip in SLIPS:
        assert slip.old != slip.new and slip.mutate, slip.name


def test_what_is_not_wrong_survives() -> None:
    assert Fork(lambda: None, ["all_reduce.sum", "variables.dtype-of-the-initial-value"]).killer() is None


def test_what_cannot_be_imported_or_ends_the_process_is_not_killed_by_a_clause() -> None:
    import os

    assert Fork(lambda: os._exit(1), ["all_reduce.sum"]).killer() == "a hang or a crash"
