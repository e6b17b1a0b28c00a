"""Wrong implementations are told from right ones by the specification alone."""

from __future__ import annotations

from typing import Any

import pytest
from mutants import reach, slips, source
from mutants.__main__ import tried
from mutants.forks import CHECKOUT, DOES_NOT_WORK, Fork, with_source

import refdist
from refdist.conformance.chapters import cases

SLIPS = slips.load()
CASES = {case.name: case for case in cases()}


def by_clause(killed: dict[str, str | None]) -> dict[str, str | None]:
    """What kills each slip, a clause by its name."""
    return {name: CASES[killer].clause.name if killer in CASES else killer for name, killer in killed.items()}


@pytest.mark.slow
def test_every_slip_is_killed_by_the_clause_that_it_names() -> None:
    assert by_clause(tried(SLIPS, 2)) == {slip.name: slip.clause for slip in SLIPS}


@pytest.mark.slow
def test_a_slip_is_killed_for_its_mistake_and_not_because_functions_are_replaced() -> None:
    """The clauses pass where the functions in their places hand everything on."""
    for start in range(0, len(SLIPS), 8):
        some = SLIPS[start:start + 8]
        killer = Fork(slips.harmless(some), sorted({slip.clause for slip in some})).killer()
        assert killer is None, [slip.name for slip in some]


def test_slips_have_names_of_their_own_and_name_clauses() -> None:
    assert len({slip.name for slip in SLIPS}) == len(SLIPS) > 480
    assert {slip.clause for slip in SLIPS} <= {case.clause.name for case in CASES.values()}


def test_a_slip_that_does_not_work_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        @slips.instead(refdist.ReplicaContext, "all_reduce")
        def all_reduce(right: Any, self: Any, *arguments: Any) -> Any:
            return right(self, *arguments).no_such_name

    broken = slips.Slip("broken", "all_reduce.sum", make)
    killer = Fork(broken.mutate, [broken.clause]).killer()
    assert killer is not None and killer.startswith(DOES_NOT_WORK) and "no_such_name" in killer
    assert tried([broken], 1) == {"broken": None}


def test_a_slip_replaces_public_names_only() -> None:
    with pytest.raises(ValueError, match="_require is not public"):
        slips.instead(refdist.ReplicaContext, "_require")


def test_what_is_not_wrong_survives() -> None:
    assert Fork(lambda: None, ["all_reduce.sum", "variables.dtype-of-the-initial-value"]).killer() is None


def test_what_cannot_be_imported_or_ends_the_process_is_not_killed_by_a_clause() -> None:
    import os

    assert Fork(lambda: os._exit(1), ["all_reduce.sum"]).killer() == "a hang or a crash"


def test_a_line_is_reached_by_the_cases_that_run_it() -> None:
    file = "refdist/strategies/replica_context.py"
    reduces, gathers = "all_reduce.mean @ Mirrored 2", "gather.rows @ Central 2"
    source_lines = (CHECKOUT / file).read_text().splitlines()
    line = next(i for i, line in enumerate(source_lines, 1) if 'reduce_op_of(reduce_op, "all_reduce")' in line)
    assert reach.of_lines([gathers, reduces], [(file, line)]) == {f"{file}:{line}": [reduces]}


def test_a_mutant_is_another_source_and_reads_no_chapter_again() -> None:
    file = "refdist/core/rules/values.py"
    row = "arrays                    PerReplica"
    mutated = (CHECKOUT / file).read_text().replace(row, row.replace("PerReplica", "Mirrored  "))
    assert Fork(with_source(file, mutated), ["values.no-arithmetic"]).killer() is not None
    assert Fork(with_source(file, (CHECKOUT / file).read_text()), ["values.no-arithmetic"]).killer() is None


def test_a_sample_of_the_source_is_always_the_same() -> None:
    pytest.importorskip("cosmic_ray", reason="needs cosmic-ray")
    files = ["refdist/core/context_stack.py"]
    drawn = source.sample(5, 0, files)
    assert drawn == source.sample(5, 0, files) != source.sample(5, 1, files)
    assert len({mutant.source for mutant in drawn}) == 5
    assert len(source.sample(10_000, 0, files)) < 10_000
