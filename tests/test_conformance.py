"""The suite itself: refdist passes, wrong implementations do not, and every way in works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_workers import mpiexec

from refdist.conformance.old import generate, mutants, report
from refdist.conformance.old.adapters.simulated import Simulated
from refdist.conformance.old.case import Case, Verdict, differences, judge
from refdist.conformance.old.cases import CONCEPTS, load
from refdist.conformance.old.language import const, op, run
from refdist.conformance.old.testee import Testee, arrays

ROOT = Path(__file__).parents[1]
CASES = load()
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*no row of a full batch")]


def suite(*arguments: str, limit: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "refdist.conformance.old", *arguments], capture_output=True, text=True,
                          cwd=ROOT, timeout=limit, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("concept", CONCEPTS)
def test_refdist_conforms(concept: str) -> None:
    found = [judge(case, Simulated()) for case in CASES if case.concept == concept]
    assert found and [verdict.message for verdict in found if verdict.outcome != "passed"] == []


def test_there_are_enough_cases_and_each_says_where_it_comes_from() -> None:
    assert len(CASES) >= 400
    assert sum(bool(case.fails) for case in CASES) >= 150
    for case in CASES:
        assert case.source and case.level in ("required", "recommended"), case.name
        said = case.document.partition(":")[0]
        assert said in ("right", "wrong", "ambiguous", "silent"), case.name
        assert (case.level == "required") == (said in ("right", "ambiguous")), case.name
        assert case.gives is None or not case.fails, case.name
        assert "|" not in case.name
        json.dumps(case.program)
    states = [case for case in CASES if case.fails and case.then is not None]
    assert len(states) >= 150


def test_what_is_said_of_tensorflow_and_what_a_case_says_of_the_document_agree() -> None:
    # What TensorFlow does wrong is against a document that is right, or not in it.
    words = {"the document is ambiguous": "ambiguous", "the document is silent": "silent", "undocumented": "silent",
             "against the document": "right"}
    said = {case.name: case.document.partition(":")[0] for case in CASES}
    found = [(name, why) for name, _, why in (
        [part.strip() for part in line.split("|")] for line in (
            ROOT / "conformance" / "old" / "expected" / "tensorflow.txt").read_text().splitlines()
        if line and line[0] != "#")]
    assert len(found) >= 50
    for name, why in found:
        meant = {words[text] for text in words if text in why}
        assert meant <= {said[name]}, f"{name}: {why}"


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_implementation_is_caught_by_the_concept_that_it_breaks(mutant: mutants.Mutant) -> None:
    assert mutants.killed_by(mutant) is not None


def test_there_are_enough_wrong_implementations() -> None:
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS) >= 60
    assert {mutant.concept for mutant in mutants.MUTANTS} == set(CONCEPTS)


def test_the_command_prints_a_table_and_writes_the_report(tmp_path: Path) -> None:
    done = suite("--report", str(tmp_path), f"--junitxml={tmp_path / 'junit.xml'}", "-k", "gather or values")
    assert done.returncode == 0, done.stdout
    assert "all_gather         69 passed" in done.stdout
    data = json.loads((tmp_path / "report.json").read_text())
    [found] = data.values()
    assert {row["outcome"] for row in found} == {"passed"}
    assert "| gather | 48 |" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert page.count('<tr class="row"') == len(found) and "http" not in page.replace("tf.distribute", "")
    assert "testcase" in (tmp_path / "junit.xml").read_text()


WRONG = """
from refdist.conformance.old.adapters.simulated import Simulated

class Wrong(Simulated):
    def gather(self, strategy, value, axis):
        found = super().gather(strategy, value, axis)
        wrong = type(strategy).__name__ == "MirroredStrategy" and strategy.num_replicas_in_sync == 2
        return found[::-1] if wrong else found

class Broken(Simulated):
    def strategy(self, kind, replicas):
        raise OSError("no machine")

class Poor(Simulated):
    capabilities = frozenset()
"""


@pytest.mark.parametrize(("package", "module"), [("pytest", ""), ("hypothesis", ".generate")])
def test_a_package_that_is_not_installed_is_named_with_what_to_do(tmp_path: Path, package: str, module: str) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no such module', name={package!r})")
    done = subprocess.run([sys.executable, "-m", f"refdist.conformance.old{module}"], capture_output=True, text=True,
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 1
    assert done.stderr.endswith(f"[RD27] refdist.conformance.old{module}: {package} is not installed. "
                                "Run `pip install pytest hypothesis`.\n")


def test_an_adapter_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WRONG)

    def mine(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "refdist.conformance.old", "--adapter", f"mine:{name}", *arguments], text=True,
            capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"})

    wrong = mine("Wrong", "-k", "values and gathered")
    assert wrong.returncode == 1 and "1 failed, 3 passed" in wrong.stdout
    assert "gives [1.0, 1.0, 1.0, 0.0], expected [0.0, 1.0, 1.0, 1.0]" in wrong.stdout
    assert "source: tf.distribute.Strategy.experimental_distribute_values_from_function" in wrong.stdout
    assert "errored" in mine("Broken", "-k", "values").stdout
    assert "Traceback" not in wrong.stdout + mine("Wrong", "-k", "values and gathered", "--tb=long").stdout
    raised = [mine("Broken", "-k", "values and gathered", f"--tb={style}").stdout for style in ("short", "long")]
    assert ["Traceback" in text and "mine.py" in text for text in raised] == [False, True]
    about_datasets = sum("datasets" in case.name.lower() for case in CASES)
    assert f"{about_datasets} skipped" in mine("Poor", "-k", "datasets").stdout
    assert mine("Absent").returncode == 4
    name = "values: values from a function can be gathered: mirrored 2"
    for text, status, says in (
            (f"{name} | expected [0.0 | it is wrong on purpose", 0, "1 xfailed"),
            (f"{name} | another message | it is wrong on purpose", 1, "1 failed, 3 passed"),
            (f"{name.replace('2', '3')} | gives | it is not wrong", 1,
             "passes, but is expected to fail (it is not wrong)"),
            ("no such case | x | y", 4, "of a case"), (name, 4, "of a case")):
        (tmp_path / "expected.txt").write_text(f"# a comment\n\n{text}\n")
        done = mine("Wrong", "--expected-failures", "expected.txt", "-k", "values and gathered")
        assert done.returncode == status and says in done.stdout + done.stderr, done.stdout


def test_a_testee_that_speaks_json() -> None:
    testee = Testee(f"{sys.executable} {ROOT / 'conformance' / 'old' / 'worked_testee.py'}")
    assert testee.name == "worked testee"
    verdicts = [testee.judge(case) for case in CASES if case.concept == "all_reduce" and case.strategy[0] == "mirrored"]
    passed = [verdict for verdict in verdicts if verdict.outcome == "passed"]
    assert len(passed) >= 60
    assert {verdict.outcome for verdict in verdicts} == {"passed", "failed", "skipped"}
    wrong = {verdict.message for verdict in verdicts if verdict.outcome == "failed"
             and "unsupported" not in verdict.message}
    assert wrong <= {"nothing was raised"}
    assert len((ROOT / "conformance" / "old" / "worked_testee.py").read_text().splitlines()) <= 150


@pytest.mark.parametrize(("program", "says"), [
    ("print('hello')", "the first line is"), ("", "the first line is"),
    ("print('{\"hello\": \"x\"}', flush=True); input(); print('[1]')", "not a JSON object"),
    ("print('{\"hello\": \"x\"}', flush=True); input(); print('{\"id\": 7}')", "the id of the answer is not 1"),
    ("print('{\"hello\": \"x\"}', flush=True); input()", "has ended")])
def test_a_testee_that_does_not_is_an_error_of_its_own(program: str, says: str) -> None:
    command = f"{sys.executable} -c \"{program.replace(chr(34), chr(92) + chr(34))}\""
    try:
        testee = Testee(command)
    except RuntimeError as error:
        assert says in str(error)
        return
    verdict = testee.judge(Case("x", op("replica_id"), 1))
    assert verdict.outcome == "errored" and says in verdict.message


def test_random_programs_agree_and_tell_a_wrong_implementation() -> None:
    assert generate.compare(Simulated(), Simulated(), 60) >= 60
    wrong = mutants.adapter_of(next(one for one in mutants.MUTANTS if one.name == "sums for means"))
    with pytest.raises(AssertionError) as caught:
        generate.compare(Simulated(), wrong, 200)
    program = str(caught.value).partition("\n\n")[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert "array(" in done.stdout


def test_how_results_are_compared() -> None:
    def same(expected: Any, found: Any, bitwise: bool = False) -> bool:
        return next(differences(expected, found, bitwise), None) is None

    third = np.float32(1) / np.float32(3)
    assert same(1 / 3, np.nextafter(third, np.float32(1))) and not same(1 / 3, np.float32(0.34))
    assert not same(1 / 3, np.nextafter(third, np.float32(1)), bitwise=True)
    assert same([1, [2, 3]], [np.int32(1), np.array([2, 3])]) and not same([1], [np.int32(1), np.int32(2)])
    assert same(float("nan"), np.float32("nan")) and same([], np.zeros(0)) and not same([], np.zeros(1))
    assert same({"a": 1}, {"a": np.int32(1)}) and not same({"a": 1}, {"b": np.int32(1)})
    assert not same("cross", "replica") and not same(1, "x") and not same("x", np.int32(1))
    assert arrays([["int32", [1]], "x", {"a": ["float32", 2.0]}])[2]["a"].dtype == np.float32
    lost = judge(Case("x", ["nothing"], 1), Simulated())
    assert (lost.outcome, lost.message) == ("errored", "the language does not have the operation 'nothing'")
    dtype = judge(Case("x", run(const([1.0])), [[1.0], [1.0]], dtype="float64"), Simulated())
    assert dtype.message == "gives dtype float32, expected float64"


def test_a_report_keeps_implementations_side_by_side(tmp_path: Path) -> None:
    case = Case("a <case>", ["x"], 1, source="page")
    for name, outcome in (("one", "passed"), ("two", "failed")):
        report.write(tmp_path, name, [Verdict(case, outcome, "gives 2, expected 1", 1, 2)])
    page = (tmp_path / "report.html").read_text()
    assert '<td class="passed">passed</td><td class="failed">failed</td>' in page
    assert "a &lt;case&gt;" in page and "two: gives 2, expected 1" in page


def test_tensorflow_s_file_names_cases_and_says_whose_fault_it_is() -> None:
    names = {case.name for case in CASES}
    for line in (ROOT / "conformance" / "old" / "expected" / "tensorflow.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, message, reason = line.split(" | ")
            assert name in names and message and reason.startswith("TensorFlow:")


def test_workers_conform_simulated_and_real() -> None:
    """Where a program of one process means something else for workers, the file says why."""
    file = str(ROOT / "conformance" / "old" / "expected" / "workers.txt")
    simulated = suite("--adapter", "refdist.conformance.old.adapters.workers:Workers", "--expected-failures", file)
    assert simulated.returncode == 0, simulated.stdout
    for processes in (2, 3):
        real = mpiexec(processes, "-W", "ignore", "-m", "refdist.conformance.old.adapters.workers",
                       "--expected-failures", file)
        assert real.returncode == 0, real.stderr
        assert f"{processes} processes: " in real.stdout and "failed" not in real.stdout
