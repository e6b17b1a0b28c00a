"""Reports that cannot be written: refused before the run, or else one line after its verdicts; old ones stay whole."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from refdist.conformance import files
from refdist.conformance.__main__ import main

SUITE = [sys.executable, "-m", "refdist.conformance", "--clause", "all_reduce.sum"]
PROBLEMS = {
    "--report=file": "--report: file/report.json cannot be written: file is not a folder",
    "--report=file/new": "--report: file/new/report.json cannot be written: Not a directory",
    "--report=taken": "--report: taken/badge.json cannot be written: it is a folder",
    "--report=/proc/new": "--report: /proc/new/report.json cannot be written: No such file or directory",
    "--junitxml=file/junit.xml": "--junitxml: file/junit.xml cannot be written: file is not a folder",
    "--junitxml=/proc/new/junit.xml": "--junitxml: /proc/new/junit.xml cannot be written: No such file or directory"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: `file` is a file, and `taken` has a folder in the place of a file of a report."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("taken/badge.json").mkdir(parents=True)
    return tmp_path


def judge(*options: str, command: str = "") -> int:
    """Tests a trainer with one clause."""
    return main(["trainers", "--command", command or f"{sys.executable} testee/testee.py", "--clause=rows-once",
                 *options])


@pytest.mark.parametrize(("option", "problem"), [
    *PROBLEMS.items(), ("--junitxml=taken", "--junitxml: taken cannot be written: it is a folder")])
def test_a_trainer_is_not_started_for_a_report_that_cannot_be_written(
        option: str, problem: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(option, command=f"touch {folder / 'started'}") == 4
    assert capsys.readouterr().err == f"ERROR: {problem}\n" and not Path("started").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("option", "problem"), PROBLEMS.items())
def test_the_suite_is_not_run_for_a_report_that_cannot_be_written(option: str, problem: str, folder: Path) -> None:
    done = subprocess.run([*SUITE, "--adapter", f"testee:touch {folder / 'started'}", option], capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (4, "", f"ERROR: {problem}")
    assert not Path("started").exists()


@pytest.mark.parametrize(("option", "problem"), [
    ("--write-jobs=taken", "--write-jobs: taken cannot be written: Is a directory"),
    ("--write-jobs=/dev/full", "--write-jobs: /dev/full cannot be written: No space left on device"),
    ("--write-testee=file", "--write-testee: file cannot be written: file is not a folder")])
def test_what_is_only_written_names_its_option_where_it_cannot_be(
        option: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trainers", option]) == 4
    assert capsys.readouterr().err == f"ERROR: {problem}\n"


@pytest.mark.slow
def test_a_full_disk_costs_a_trainer_s_new_report_and_neither_the_verdicts_nor_the_old_one(
        capsys: pytest.CaptureFixture[str]) -> None:
    main(["trainers", "--write-testee", "testee"])
    assert judge("--report=told", "--junitxml=told/junit.xml") == 0
    before = {path.name: path.read_text() for path in Path("told").iterdir()}
    Path("told/badge.json").unlink()
    Path("told/badge.json").symlink_to("/dev/full")
    capsys.readouterr()
    assert judge("--report=told", "--junitxml=told/junit.xml") == 3
    printed = capsys.readouterr()
    assert printed.out.endswith("\n1 right\n")
    assert printed.err.endswith("\nERROR: --report: told/badge.json cannot be written: No space left on device\n")
    Path("told/badge.json").unlink()
    assert {**before, "badge.json": ""} == {**{path.name: path.read_text() for path in Path("told").iterdir()},
                                            "badge.json": ""}


def in_the_suite(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the suite on a disk that takes no file of more than 2,000 bytes."""
    limit = (2000, resource.RLIM_INFINITY)
    return subprocess.run([*SUITE, *options], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))


@pytest.mark.slow
@pytest.mark.parametrize(("option", "file"), [("--report=told", "report.json"), ("--junitxml=told/junit.xml",
                                                                                "junit.xml")])
def test_a_full_disk_costs_the_suite_s_new_report_and_neither_the_verdicts_nor_the_old_one(
        option: str, file: str) -> None:
    Path("told").mkdir()
    old = '{"schema": 1, "runs": {}, "chapters": {}, "clauses": {}, "implementations": {}}'
    Path("told", file).write_text(old)
    done = in_the_suite(option)
    *_, counts, error, passed = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (3, "")
    assert counts.endswith("of 1 of 1 clauses") and " passed in " in passed
    assert error == f"ERROR: {option.partition('=')[0]}: told/{file} cannot be written: File too large"
    assert [path.name for path in Path("told").iterdir()] == [file] and Path("told", file).read_text() == old


def test_what_is_no_file_of_a_disk_is_written_to_and_a_link_is_followed(folder: Path) -> None:
    Path("old").write_text("old")
    Path("link").symlink_to("old")
    files.check("--it", [Path("link"), Path("/dev/null")])
    files.write("--it", {Path("link"): "new", Path("/dev/null"): "new"})
    assert Path("link").is_symlink() and Path("old").read_text() == "new"
    assert Path("/dev/null").is_char_device()
    assert {path.name for path in folder.iterdir()} == {"file", "taken", "old", "link"}
