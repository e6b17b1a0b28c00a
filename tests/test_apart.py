"""The suite without refdist: it says of a testee what refdist's own command says, and what it cannot do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import apart
import pytest
from limits import HANG

import refdist.conformance
from refdist.conformance import kept
from refdist.conformance.__main__ import COMMANDS
from refdist.conformance.distribution import VERSION

TESTEES = Path(refdist.conformance.__file__).parent / "testees"
MISTAKES = {"worked.py": ("sum(rows[1:], rows[0])", "rows[0] * len(rows)"),
            "worked.js": ("elementwise((x, y) => x + y, a", "elementwise((x, y) => x, a")}
WHOLE = [sys.executable, "-m", "refdist.conformance"]


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """The command of a place without refdist."""
    return str(apart.install(tmp_path / "apart") / apart.COMMAND)


def run(command: list[str], folder: Path, **variables: str) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def report(folder: Path) -> dict[str, Any]:
    """The report without the command that is printed below failures, and how long cases took."""
    contents: dict[str, Any] = json.loads((folder / "told" / "report.json").read_text())
    for facts in contents["runs"].values():
        del facts["command"]
    for row in (row for rows in contents["implementations"].values() for row in rows):
        del row["seconds"]
    return contents


@pytest.mark.slow
@pytest.mark.parametrize("testee", MISTAKES)
def test_its_report_of_a_testee_is_that_of_refdist(testee: str, alone: str, tmp_path: Path) -> None:
    runs = {".py": sys.executable, ".js": shutil.which("node")}[Path(testee).suffix]
    if runs is None:
        pytest.skip("node is not installed")
    right, wrong = MISTAKES[testee]
    text = (TESTEES / testee).read_text()
    assert text.count(right) == 1
    (tmp_path / testee).write_text(text.replace(right, wrong))
    options = ["--adapter", f"testee:{runs} {tmp_path / testee}", "--report", "told", "--bitwise",
               *(f"--clause={chapter}" for chapter in ("names", "all_reduce", "reduce", "dataset_functions"))]
    printed = {}
    for name, command in (("whole", WHOLE), ("apart", [alone])):
        status, printed[name] = run([*command, *options], tmp_path / name)
        assert status == 1
    assert report(tmp_path / "apart") == report(tmp_path / "whole")
    [rows] = report(tmp_path / "apart")["implementations"].values()
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes["passed"] > 20 and outcomes["failed"] > 5
    assert [row for row in rows if re.search(r", where \w+ = ", row["message"])]  # a property
    again = re.compile(r"python -m refdist\.conformance|refdist-conformance")
    assert len({re.sub(r" in [\d.:() ]+s.*", "", again.sub("it", text)) for text in printed.values()}) == 1
    assert " to suite 0.1.0 ==" in printed["apart"]


@pytest.mark.slow
def test_what_failed_last_is_run_again_by_the_command_that_a_failure_shows(alone: str, tmp_path: Path) -> None:
    assert run([alone, "new", "--language", "python", "."], tmp_path)[0] == 0
    text = (tmp_path / "testee.py").read_text()
    (tmp_path / "testee.py").write_text(text.replace("sum(column) for", "sum(column) + 1 for"))
    python = f"testee:{sys.executable} testee.py"
    options = ["--adapter", python, "--profile", "collectives", "--clause", "all_reduce.sum"]
    status, printed = run([alone, *options], tmp_path)
    [failed] = set(re.findall(r"(\d+) failed", printed))
    assert status == 1
    status, printed = run([alone, "--adapter", python, "--last-failed", "--clause", "all_reduce"], tmp_path)
    assert status == 1 and f"\n{failed} failed, " in printed
    again = re.findall(r"run alone: (.*)", printed)[0]
    assert again.startswith(f'{apart.COMMAND} --adapter "{python}" --clause all_reduce.sum -k ')
    places = os.pathsep.join([str(Path(alone).parent), os.environ["PATH"]])
    assert run(["sh", "-c", again], tmp_path, PATH=places)[0] == 1


def test_a_sentence_of_the_documents_is_found(alone: str, tmp_path: Path) -> None:
    options = ["promises", "--find", "All-reduces value across all", "--adapter", "testee:./mine"]
    (status, printed), (_, whole) = run([alone, *options], tmp_path), run([*WHOLE, *options], tmp_path)
    assert status == 0 and "run alone: refdist-conformance --adapter testee:./mine --clause all_reduce." in printed
    assert printed.replace("refdist-conformance", "python -m refdist.conformance") == whole


def test_what_has_changed_since_older_cases_is_told(alone: str, tmp_path: Path) -> None:
    lines = kept.FILE.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "old.jsonl").write_text("".join(line for line in lines if '"clause":"all_reduce.sum"' not in line))
    status, printed = run([alone, "changes", "old.jsonl"], tmp_path)
    assert status == 0 and "\n  all_reduce.sum  (MUST; " in printed
    assert printed.endswith("    refdist-conformance --adapter testee:YOURS --clause all_reduce.sum\n")


def test_what_only_python_can_run_is_left_out_with_the_number_and_the_reason(alone: str, tmp_path: Path) -> None:
    (tmp_path / "testee.py").write_text("""if True:
        import json, sys
        print(json.dumps({"protocol": 1, "name": "whole"}), flush=True)
        sys.stdin.readline()
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps({"id": asked["id"], "skip": asked["case"].get("only_python", "mine")}), flush=True)""")
    counts = Counter(case.get("only_python") for line in kept.FILE.read_text(encoding="utf-8").splitlines()
                     if re.search('"clause":"(names[.]|run[.]results")', line)
                     for example in kept.examples([line]) for case in kept.cases_in(example))
    chosen = ["--clause", "names", "--clause", "run.results"]
    status, printed = run([alone, "--adapter", f"testee:{sys.executable} testee.py", *chosen], tmp_path)
    assert status == 5 and counts[None] and counts["it imports inspect"]
    for reason, count in counts.items():
        assert f"\n{count} skipped: {'mine' if reason is None else f'only Python can run it: {reason}'}\n" in printed


@pytest.mark.parametrize("options", [["--adapter", "refdist"], ["--adapter", "own:Mine"], []])
def test_an_adapter_in_python_needs_refdist(alone: str, tmp_path: Path, options: list[str]) -> None:
    status, printed = run([alone, *options], tmp_path)
    assert status == 4 and f'write {apart.COMMAND} --adapter "testee:COMMAND"' in printed
    assert "adapters in Python need refdist: " in printed


@pytest.mark.parametrize("command", [name for name, command in COMMANDS.items() if not command.apart])
def test_what_needs_refdist_says_so(alone: str, tmp_path: Path, command: str) -> None:
    status, printed = run([alone, command], tmp_path)
    assert status == 4 and f"ERROR: {command} needs refdist: " in printed
    assert ("`pip install .`" in printed) == (command == "trainers")  # which needs neither pytest nor hypothesis


@pytest.mark.slow
def test_a_trainer_is_judged_where_there_is_numpy_and_no_refdist(tmp_path: Path) -> None:
    """Elsewhere it says, before a trainer is started, what to install."""
    results = {}
    for name, absent in (("with", ("refdist", "greenlet")), ("without", ("refdist", "greenlet", "numpy"))):
        command = str(apart.install(tmp_path / name, absent) / apart.COMMAND)
        status, printed = run([command, "trainers", "--write-testee", "."], tmp_path / name)
        assert status == 0 and f'{apart.COMMAND} trainers --command "python testee.py"' in printed
        (tmp_path / name / "start.sh").write_text(f"touch started; exec {sys.executable} testee.py $1")
        results[name] = run([command, "trainers", "--command", "sh start.sh"], tmp_path / name)
    status, printed = results["with"]
    assert status == 0 and re.search(r"^\d+ right, \d+ unsupported$", printed, re.MULTILINE), printed
    status, printed = results["without"]
    assert status == 4 and "run `pip install numpy`" in printed and not (tmp_path / "without" / "started").exists()


def test_its_version_is_that_of_the_suite(alone: str, tmp_path: Path) -> None:
    assert run([alone, "--version"], tmp_path) == (0, f"{apart.COMMAND} {VERSION}\n")


def test_a_word_that_is_no_command_is_answered_with_those_that_are(alone: str, tmp_path: Path) -> None:
    status, printed = run([alone, "trainer"], tmp_path)
    assert status == 4 and printed.startswith("ERROR: trainer is none of compare, changes, promises, new, trainers; ")


def test_nothing_is_said_where_nobody_reads_on(alone: str, tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run([alone, "--help"], cwd=tmp_path, stdout=written, stderr=subprocess.PIPE, text=True,
                          timeout=HANG)
    os.close(written)
    assert done.stderr == ""


def test_its_help_has_what_it_can_do(alone: str, tmp_path: Path) -> None:
    status, printed = run([alone, "--help"], tmp_path)
    commands = re.findall(rf"^    {apart.COMMAND} (\w+) ", printed, re.MULTILINE)
    assert status == 0 and commands == [name for name, command in COMMANDS.items() if command.apart]
    assert "--in-process" not in printed and "--python" not in printed and "python -m refdist" not in printed
