"""What the chapters say of TensorFlow 2.21 and its file of expected failures: each difference is in both.

That they are true is seen where TensorFlow is: a run of the suite on it fails where a line of the file is wrong, and
where one is missing.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from refdist.conformance import expected_failures, results
from refdist.conformance.adapters import tensorflow, tensorflow_workers
from refdist.conformance.capabilities import needs
from refdist.conformance.chapters import cases
from refdist.conformance.examples import Answer, Code, Program, program
from refdist.conformance.programs import size
from refdist.conformance.random_programs.comparison import first_difference
from refdist.conformance.random_programs.writer import RandomProgram
from refdist.conformance.session import Reply

EXPECTED = Path(__file__).parent.parent / "conformance" / "expected"
CASES = [case for case in cases() if not needs(program(case)) & tensorflow_workers.Workers.lacks]
# What each of two runs takes, and its file of expected failures.
RUNS = (("tensorflow.txt", [case for case in CASES if not needs(program(case)) & tensorflow.TensorFlow.lacks]),
        ("tensorflow-2x2.txt", [case for case in CASES if "2x2" in case.identifier]))


def test_what_a_clause_says_of_tensorflow_is_shown_by_a_case() -> None:
    # Reading refuses lines that name no case of these, and those for which neither they nor the clause say why.
    shown = {case.clause.name for file, taken in RUNS
             for known in [expected_failures.read(EXPECTED / file, taken)] for case in taken if case.name in known}
    described = {case.clause.name for _, taken in RUNS for case in taken if case.clause.tensorflow}
    assert described - shown == set()


class _Pretended(tensorflow.TensorFlow):
    """The adapter's processes, with a function of the test in each worker."""

    def __init__(self, *workers: Callable[[], Answer]) -> None:
        self._workers = workers

    def _here(self, program: Program) -> Answer:
        return self._workers[json.loads(os.environ["TF_CONFIG"])["task"]["index"]]()


def _hangs() -> Answer:
    signal.pause()
    return {}


def _crashes() -> Answer:
    os._exit(1)


def test_workers_that_end_alone_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Program("MultiWorker 2x1", "example", None, Code("1\n2", 1), (0, 1))

    def answers(*workers: Callable[[], Answer]) -> list[Answer]:
        return _Pretended(*workers).run(asked)

    assert answers(lambda: {0: "a", 1: "b"}, lambda: {0: "c", 1: "d"}) == [{0: "a", 1: "b"}, {0: "c", 1: "d"}]
    crashed = {"error": "crash", "message": "the process has crashed"}
    assert answers(_crashes, _crashes) == [{0: crashed}, {0: crashed}]
    monkeypatch.setattr(tensorflow, "APART", 0.0)
    hanging = {"error": "crash", "message": "hangs"}
    assert answers(lambda: {0: "a", 1: "b"}, _hangs) == [{0: "a", 1: "b"}, {0: hanging}]
    assert answers(_hangs, lambda: {0: "a", 1: "b"}) == [{0: hanging}, {0: "a", 1: "b"}]
    monkeypatch.setattr(tensorflow, "LIMIT", 0.0)
    assert answers(_hangs, _hangs) == [{0: hanging}, {0: hanging}]


def test_a_worker_s_only_part_may_be_distributed_or_not() -> None:
    number = results.number(1.0)
    part = {"list": [{"per_replica": [number]}]}

    def compared(strategy: str) -> str:
        asked = RandomProgram(strategy, (("1", "one"),))
        workers = [{0: {"list": [number]}}], [{0: part}]
        replies = (Reply(answers * size(strategy)[0]) for answers in workers)
        difference = first_difference(asked, *replies, range(1))
        return str(difference.kind) if difference else ""

    assert compared("MultiWorker 2x1") == ""
    assert compared("Mirrored 1") == "one @ Mirrored 1: per_replica instead of float"
