"""What a run of a trainer leaves behind: a report in the suite's form, JUnit XML, and the clauses that failed last."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from schemas import fault

from refdist.conformance import page
from refdist.conformance import report as reports
from refdist.conformance.__main__ import main
from refdist.conformance.trainers import clauses, expected, report, verdicts
from refdist.conformance.trainers.table import table
from refdist.conformance.trainers.testees import trainer_jobs

SCHEMA = json.loads(Path(reports.__file__).with_name("report.schema.json").read_text(encoding="utf-8"))
RIGHT, MISTAKE = "return sum(part * count for part, count in zip(parts, counts, strict=True)) / sum(counts)", \
    "return sum(parts) / len(parts)"
CHOSEN = [f"--clause={name}" for name in ("rows-once", "uneven-end", "clip-by-value")]


@pytest.fixture
def testee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trainer that averages averages, in the current folder."""
    assert main(["trainers", "--write-testee", str(tmp_path)]) == 0
    script, text = tmp_path / "testee.py", (tmp_path / "testee.py").read_text()
    assert text.count(RIGHT) == text.count("done=True") == 1
    script.write_text(text.replace(RIGHT, MISTAKE).replace("done=True", "trainer='mine 1.0', done=True"))
    monkeypatch.chdir(tmp_path)
    return script


def judge(script: Path, *options: str) -> int:
    return main(["trainers", "--command", f"{sys.executable} {script}", *options])


@pytest.mark.slow
def test_a_run_is_a_report_beside_those_of_the_suite(testee: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(testee, *CHOSEN, "--report", "told", "--junitxml", "new/junit.xml") == 1
    assert f"\nreport: {Path('told') / 'report.html'}\n" in capsys.readouterr().out
    made = reports.read(Path("told"))
    assert fault(json.loads(Path("told/report.json").read_text()), SCHEMA) is None
    [(name, rows)] = made["implementations"].items()
    assert name == "mine 1.0" and made["runs"][name]["cases"] == {"MUST": 38, "SHOULD": 5}
    assert {row["case"]: row["outcome"] for row in rows} == {
        "rows-once": "passed", "uneven-end": "failed", "clip-by-value": "skipped"}
    assert rows[0]["seconds"] > 0.0 and "0.75 times its weight" in rows[1]["message"]
    [program] = made["clauses"]["uneven-end"]["examples"]
    assert main(["trainers", "--write-jobs", "jobs", CHOSEN[1]]) == 0
    assert program["source"] == Path("jobs").read_text().rstrip("\n")
    remark, [clause] = made["clauses"]["uneven-end"]["remark"], clauses.chosen(["uneven-end"])
    assert f". The mistake that is made: {clause.mistake[:-1]}. Otherwise: {clause.caveats[0].page}, " in remark
    assert json.loads(Path("told/badge.json").read_text()) == {
        "schemaVersion": 1, "label": "trainers", "message": "1 of 38 MUST", "color": "yellow"}
    assert f"{testee}\" --clause uneven-end`\n" in Path("told/report.md").read_text()
    assert Path("told/report.html").read_text() == page.render(made)

    [suite] = ElementTree.parse("new/junit.xml").getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    right, wrong, unsupported = suite
    assert [part.tag for part in right] == ["properties"] and wrong[1].tag == "failure"
    assert wrong[1].get("message") == rows[1]["message"] and unsupported[1].get("type") == "pytest.skip"
    assert {part.get("name") for part in right[0]} == {"source", "level", "clause", "standing"}  # as in plugin.py

    assert main(["compare", "told", "told/report.json", "--report", "both"]) == 0
    assert len(reports.read(Path("both"))["runs"]) == 2


@pytest.mark.slow
def test_what_failed_last_is_judged_again_until_it_is_right(testee: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def judged(*options: str) -> tuple[int, str]:
        status = judge(testee, *options)
        return status, capsys.readouterr().out.splitlines()[-1]

    capsys.readouterr()
    assert judged("--last-failed", *CHOSEN) == (1, "1 WRONG, 1 right, 1 unsupported")  # none has failed yet
    assert judged(*CHOSEN[:1]) == (0, "1 right")
    assert judged("--last-failed") == (1, "1 WRONG")
    testee.write_text(testee.read_text().replace(MISTAKE, RIGHT))
    assert judged("--last-failed") == (0, "1 right")
    assert judged("--last-failed", *CHOSEN) == (0, "2 right, 1 unsupported")


@pytest.mark.slow
def test_verdicts_are_printed_where_what_failed_cannot_be_kept(
        testee: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(".refdist-conformance").touch()  # a folder cannot be made here
    assert judge(testee, *CHOSEN) == 1
    printed = capsys.readouterr()
    assert printed.out.endswith("1 WRONG, 1 right, 1 unsupported\n")
    assert "WARNING: `--last-failed` will not know of this run: " in printed.err


@pytest.mark.parametrize("outcome", verdicts.OUTCOMES)
def test_a_verdict_has_an_outcome_of_the_suite_and_one_of_junit(outcome: str) -> None:
    [clause] = clauses.chosen(["uneven-end"])
    made, verdict = reports.empty(), verdicts.Verdict(clause.name, outcome, "on 2 replicas: \x1b[1m", "printed \x00")
    report.add(made, "mine", [report.row(verdict, clause, 0.25)], "it")
    [[[*_, case]]] = ElementTree.fromstring(report.junit(made, "mine"))
    [row] = made["implementations"]["mine"]
    below = {"passed": "properties", "failed": "failure", "errored": "error"}.get(row["outcome"], "skipped")
    assert case.tag == below and fault(made, SCHEMA) is None
    assert (row["outcome"] in ("failed", "errored")) == (outcome in verdicts.BAD) == (below in ("failure", "error"))
    assert (row["outcome"] == "expected failure") == (outcome == "documented") == bool(row["reason"])
    assert below == "properties" or case.get("message") == "on 2 replicas: ?[1m"


def test_a_report_of_another_form_is_refused_before_a_trainer_is_started(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text(json.dumps({**reports.empty(), "schema": 0}))
    assert main(["trainers", "--command", f"touch {tmp_path / 'started'}", "--report", str(tmp_path)]) == 4
    assert "is not a report of this version" in capsys.readouterr().err and not (tmp_path / "started").exists()


def test_a_file_of_expected_failures_cannot_become_outdated(tmp_path: Path) -> None:
    (tmp_path / "expected").write_text("# known\nuneven-end | 0.75 times | the sampler\nclip-* | weight | not yet\n")
    lines = expected.read(tmp_path / "expected")
    wrong = verdicts.Verdict("uneven-end", "WRONG", "it has 0.75 times its weight")
    judged = expected.compared([wrong, verdicts.Verdict("same-loss", "WRONG", "7, and 3.5 is right")], lines)
    assert [verdict.outcome for verdict in judged] == ["expected", "WRONG"]
    assert verdicts.exit_status(judged[:1]) == 0 and [*table(judged)][-1] == "1 WRONG, 1 expected"
    [clause] = clauses.chosen(["uneven-end"])
    row = report.row(judged[0], clause, 0.0, "the sampler")
    assert (row["outcome"], row["reason"], row["message"]) == ("expected failure", "the sampler", wrong.message)
    [other] = expected.compared([verdicts.Verdict("uneven-end", "errored", "it ended")], lines)
    assert (other.outcome, other.message) == ("errored", "it ended (it is expected to fail with '0.75 times')")
    for outcome in ("right", "documented", "unsupported", "stale"):
        [verdict] = expected.compared([verdicts.Verdict("uneven-end", outcome, "now 0.75 times")], lines)
        assert verdict.outcome == "stale" and verdicts.exit_status([verdict]) == 1
        assert verdict.message == (f"{outcome}, but is expected to fail: 'uneven-end | 0.75 times | the sampler'; "
                                   f"remove that line: now 0.75 times")
    assert {*lines} == {"uneven-end", "clip-by-norm", "clip-by-value", "clip-after-accumulation",
                      "clip-after-unscaling"}


@pytest.mark.parametrize(("line", "problem"), [
    ("uneven-end", "is not `clause | part of the message | why`"),
    ("uneven | 0.75 | why", "there is no such clause; docs/trainer-clauses.md lists the names, as in 'uneven-end'"),
    ("uneven-end | 0.75 |", "it has no reason, nor has the clause; write one after the second `|`"),
    ("*-end | 0.75 | why\nuneven-* | 0.75 | why", "uneven-end is expected to fail by another line")])
def test_a_line_that_cannot_be_understood_is_refused_before_a_trainer_is_started(
        line: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "expected").write_text(line)
    command = ["trainers", "--command", f"touch {tmp_path / 'started'}", "--expected-failures"]
    assert main([*command, str(tmp_path / "expected")]) == 4
    assert problem in capsys.readouterr().err and not (tmp_path / "started").exists()
    assert main([*command, str(tmp_path / "missing")]) == 4
    assert "No such file" in capsys.readouterr().err


def test_a_place_in_a_command_that_stands_for_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trainers", "--command", "torchrun --nproc-per-node {replica} mine.py"]) == 4
    assert "--command has {replica}, and only {replicas} stands for something" in capsys.readouterr().err


def test_a_testee_to_begin_with_needs_no_file_that_is_not_written(tmp_path: Path) -> None:
    assert main(["trainers", "--write-testee", str(tmp_path)]) == 0
    written = {file.stem for file in tmp_path.iterdir()}
    beside = {file.stem for file in (Path(clauses.__file__).parent / "testees").glob("*.py")}
    imported = {line.split()[1] for file in tmp_path.iterdir() for line in file.read_text().splitlines()
                if line.startswith(("from ", "import "))}
    assert {"testee", "ddp"} <= written and imported & beside <= written


def test_the_page_names_all_that_a_testee_may_be_able_to_do() -> None:
    page_of_trainers = (Path(__file__).parents[1] / "docs" / "testing-a-trainer.md").read_text(encoding="utf-8")
    listed = page_of_trainers.split("Names are the fields ")[1].split("; any other")[0]
    schema = json.loads(Path(clauses.__file__).with_name("jobs.schema.json").read_text(encoding="utf-8"))
    kinds = {layer["properties"]["kind"]["const"] for layer in schema["$defs"].values()
             if "kind" in layer.get("properties", {})} - {"dense"}
    assert {*re.findall("`([a-z_0-9]+)`", listed)} == {*trainer_jobs.PLAIN} | kinds | {"layers"}


@pytest.mark.slow
def test_what_is_expected_fails_no_run_and_what_is_outdated_does(
        testee: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("expected").write_text("uneven-end | 0.75 times its weight | not yet\nempty-part | it | another clause\n")
    capsys.readouterr()
    assert judge(testee, *CHOSEN, "--expected-failures=expected", "--junitxml=junit.xml") == 0
    printed = capsys.readouterr().out
    assert "1 right, 1 unsupported, 1 expected\n1 lines of expected are about clauses that were not run\n" in printed
    [suite] = ElementTree.parse("junit.xml").getroot()
    assert [suite.get(name) for name in ("failures", "skipped")] == ["0", "2"] and suite[1][1].text == "not yet"
    testee.write_text(testee.read_text().replace(MISTAKE, RIGHT))
    assert judge(testee, *CHOSEN, "--expected-failures=expected") == 1
    printed = capsys.readouterr().out
    assert "uneven-end     stale        right, but is expected to fail: 'uneven-end | 0.75 times its weight" in printed
    assert "--expected-failures expected --clause uneven-end\n" in printed
