"""The command `python -m refdist.conformance`, used as the author of an implementation uses it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = '''
from refdist import tf
from refdist.conformance.adapters.simulated import Simulated


class Wrong(Simulated):
    """Sums where a mean was asked for."""

    name, version = "wrong", "1"

    def __init__(self):
        super().__init__()
        right = tf.distribute.ReplicaContext.all_reduce
        tf.distribute.ReplicaContext.all_reduce = lambda self, op, value, options=None: right(self, "SUM", value)


class Ending(Simulated):
    """Ends its process where it is asked for a mean."""

    name = "ending"

    def __init__(self):
        super().__init__()
        right = tf.distribute.ReplicaContext.all_reduce

        def all_reduce(self, op, value, options=None):
            if op == "MEAN":
                import os
                os._exit(3)
            return right(self, op, value, options)

        tf.distribute.ReplicaContext.all_reduce = all_reduce


class Lacking(Simulated):
    name, lacks = "lacking", frozenset({"all_reduce"})


class Without(Simulated):
    tf = property()
'''
MEAN = ("--clause", "all_reduce.mean", "--in-process")
WITH_WRONG = ("--adapter", "own:Wrong", *MEAN)


@pytest.fixture
def suite(tmp_path: Path):
    """Runs the command in a folder with adapters of one's own; returns its exit status and what it printed."""
    (tmp_path / "own.py").write_text(WRONG)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*arguments: object) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "refdist.conformance", "-p", "no:cacheprovider",
                               *map(str, arguments)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
                              capture_output=True, text=True)
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


def test_there_is_a_line_for_each_chapter_and_level(suite) -> None:
    status, printed = suite("--clause", "all_reduce.mean", "--clause", "reduce.mean", "--in-process")
    lines = [line.split() for line in printed.splitlines()]
    assert status == 0 and ["passed"] in lines
    assert {line[0] for line in lines if len(line) == 2 and line[1].isdigit()} >= {"all_reduce", "reduce", "MUST"}
    assert "of 2 of 2 clauses" in printed


def test_a_clause_is_itself_and_anything_else_is_how_names_begin(suite) -> None:
    assert "of 1 of 1 clauses" in suite(*MEAN, "-k", "Mirrored-2")[1]
    assert "of 1 of 1 clauses" not in suite("--clause", "all_reduce.mea", "--in-process", "-k", "Mirrored-2")[1]


def test_a_failure_says_which_rule_where_it_is_from_and_which_line(suite) -> None:
    status, printed = suite(*WITH_WRONG, "-k", "Mirrored-2")
    assert status == 1
    for told in ("replica 0: found [3.0, 30.0] float32, expected [1.5, 15.0] float32",
                 "clause:    MEAN divides the sum by the number of replicas. (MUST)",
                 "source:    ReduceOp, description; the page is right", "strategy:  Mirrored 2",
                 "run alone: python -m refdist.conformance --adapter own:Wrong --clause all_reduce.mean -k Mirrored-2",
                 "program:   all_reduce.md:"):
        assert told in printed
    assert [line.split()[2:] for line in printed.splitlines() if line.startswith("  > ")] == [["strategy.run(step)"]]


def test_the_report_is_three_files_and_keeps_other_implementations(suite, tmp_path: Path) -> None:
    suite(*MEAN, "--report", "told")
    suite(*WITH_WRONG, "--report", "told")
    everything = json.loads((tmp_path / "told" / "report.json").read_text())["implementations"]
    assert [{row["outcome"] for row in rows} for rows in everything.values()] == [{"passed"}, {"passed", "failed"}]
    assert "* `all_reduce.mean @ Mirrored 2`: replica 0: found" in (tmp_path / "told" / "report.md").read_text()
    assert "wrong 1" in (tmp_path / "told" / "report.html").read_text()


@pytest.mark.parametrize(("line", "status", "told"), [
    ("all_reduce.mean @ M* | : found [ | it sums\nall_reduce.mean @ Central 2 | replica 0 | it sums", 0,
     "expected failure"),
    ("all_reduce.mean @ Mirrored 2 | another text | it sums", 1, "it is expected to fail with 'another text'"),
    ("all_reduce.mean @ * | replica | it sums", 1, "passed, but is expected to fail"),
    ("all_reduce.mean @ Mirrored 9 | x | y", 4, "there is no such case"),
    ("all_reduce.mean @ Mirrored 2 | x | y\nall_reduce.mean @ M* | x | y", 4, "is expected to fail by another line"),
    ("all_reduce.mean @ Mirrored 2 | x |", 4, "it has no reason"), ("something else", 4, "is not `case | part"),
])
def test_expected_failures(suite, tmp_path: Path, line: str, status: int, told: str) -> None:
    (tmp_path / "known").write_text(line + "\n")
    found, printed = suite(*WITH_WRONG, "--expected-failures", "known")
    assert found == status and told in printed


def test_a_case_that_is_skipped_cannot_be_expected_to_fail(suite, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("all_reduce.mean @ Mirrored 2 | x | y\n")
    arguments = ("--adapter", "own:Lacking", *MEAN, "-k", "Mirrored-2")
    status, printed = suite(*arguments)
    assert status == 5 and "1 skipped: needs" in printed
    status, printed = suite(*arguments, "--expected-failures", "known")
    assert status == 1 and "skipped, but is expected to fail" in printed


@pytest.mark.parametrize(("arguments", "told"), [
    (("--clause", "nope"), "no clause begins with nope"),
    (("--clause", "all_reduce.mean", "--level", "should"), "no such clause is of this level"),
    (("--limit", "0"), "not a number of seconds above 0"), (("--bogus",), "unrecognized arguments"),
    (("--report", "own.py", *MEAN), "own.py"), (("--expected-failures", "nowhere"), "nowhere"),
    (("--adapter", "own"), "not package.module:Class"), (("--adapter", "own:Nothing"), "Nothing"),
    (("--adapter", "own:Without"), "has no attribute `tf`"), (("--adapter", "testee:nowhere"), "cannot be started"),
])
def test_wrong_usage(suite, arguments: tuple[str, ...], told: str) -> None:
    status, printed = suite(*arguments)
    assert status == 4 and told in printed


def test_no_selected_case_is_not_a_success(suite) -> None:
    assert suite(*MEAN, "-k", "nothing_at_all")[0] == 5


def test_restarts_are_counted(suite) -> None:
    status, printed = suite("--adapter", "own:Ending", "--clause", "all_reduce.name-of-the-op-in-lower-case",
                            "--clause", "all_reduce.mean", "--clause", "all_reduce.sum",
                            "-k", "Mirrored-2 or Mirrored-3")
    assert status == 1 and "restarts of the implementation: 2" in printed


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_several_processes_lose_nothing(suite) -> None:
    arguments = ("--adapter", "own:Wrong", "--clause", "all_reduce.mean", "--clause", "all_reduce.sum", "--in-process")
    tables = []
    for more in ((), ("-n", "2")):
        status, printed = suite(*arguments, *more)
        tables.append([line for line in printed.splitlines() if line.startswith(("all ", "MUST ", "all_reduce "))])
        assert status == 1
    assert tables[0] == tables[1]
