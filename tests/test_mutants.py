"""Wrong implementations are told from right ones by the specification alone."""

from __future__ import annotations

import pytest
from mutants import reach, source
from mutants.__main__ import tried
from mutants.forks import CHECKOUT, Fork, with_source
from mutants.slips import load

from refdist.conformance.chapters import cases

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


def test_a_line_is_reached_by_the_cases_that_run_it() -> None:
    file = "refdist/strategies/replica_context.py"
    reduces, gathers = "all_reduce.mean @ Mirrored 2", "gather.rows @ Central 2"
    source_lines = (CHECKOUT / file).read_text().splitlines()
    line = next(i for i, line in enumerate(source_lines, 1) if 'self._require("ReplicaContext.all_reduce")' in line)
    assert reach.of_lines([gathers, reduces], [(file, line)]) == {f"{file}:{line}": [reduces]}


def test_a_mutant_is_another_source_and_reads_no_chapter_again() -> None:
    file = "refdist/core/rules/values.py"
    mutated = (CHECKOUT / file).read_text().replace("PER_REPLICA, MIRRORED_VALUE =", "MIRRORED_VALUE, PER_REPLICA =")
    assert Fork(with_source(file, mutated), ["values.no-arithmetic"]).killer() is not None
    assert Fork(with_source(file, (CHECKOUT / file).read_text()), ["values.no-arithmetic"]).killer() is None


def test_a_sample_of_the_source_is_always_the_same() -> None:
    pytest.importorskip("cosmic_ray", reason="needs cosmic-ray")
    files = ["refdist/core/context_stack.py"]
    drawn = source.sample(5, 0, files)
    assert drawn == source.sample(5, 0, files) != source.sample(5, 1, files)
    assert len({mutant.source for mutant in drawn}) == 5
    assert len(source.sample(10_000, 0, files)) < 10_000
