"""Implementations that are run as processes of their own."""

from __future__ import annotations

import pytest

from refdist.conformance import session
from refdist.conformance.adapter import Unusable
from refdist.conformance.chapters import cases
from refdist.conformance.examples import program
from refdist.conformance.protocol import program_message, read_program

CASES = [case for case in cases() if not case.example.parameters]
SIMULATED = "refdist.conformance.adapters.simulated:Simulated"


@pytest.mark.parametrize("in_process", [True, False])
def test_refdist_passes_in_this_process_and_in_another_one(in_process: bool) -> None:
    simulated = session.tester(SIMULATED, in_process=in_process)
    verdicts = [simulated.run(case, bitwise=True) for case in CASES[::20]]
    assert {verdict.outcome for verdict in verdicts} == {"passed"}
    simulated.close()


def test_a_program_arrives_as_it_was_sent() -> None:
    for case in CASES:
        assert read_program(program_message(program(case))) == program(case)


@pytest.mark.parametrize(("text", "says"), [
    ("nosuch", "is not package.module:Class"), ("nosuch:X", "No module named 'nosuch'"), ("os:path", "not callable"),
    ("os:nosuch", "has no attribute 'nosuch'"), ("decimal:Decimal", "is not a refdist.conformance.adapter.Adapter"),
    ("testee:", "write testee:COMMAND"), ("testee:'", "No closing quotation"), ("testee:/nosuch/it", "No such file"),
    ("testee:cat", "its first line is {'protocol': 1, 'suite'"), ("testee:sh -c 'exit 3'", "exit status 3"),
])
@pytest.mark.parametrize("in_process", [True, False])
def test_what_cannot_be_started_is_wrong_usage(text: str, says: str, in_process: bool) -> None:
    with pytest.raises(Unusable, match=says):
        session.tester(text, in_process=in_process)
