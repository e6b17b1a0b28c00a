"""The page of versions, from reports that are made up, and the command that makes reports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refdist.conformance.adapters import versions
from refdist.conformance.chapters import Chapter, cases, load


def row(case: str, outcome: str = "passed", message: str = "", level: str = "MUST") -> Any:
    clause = case.partition(" ")[0]
    return {"case": case, "clause": clause, "chapter": clause.partition(".")[0], "outcome": outcome,
            "message": message, "level": level}


REPORTS = {
    "2.8.1": [row("a.b @ Default"), row("a.c @ Mirrored 2"), row("a.d @ Default", level="SHOULD")],
    "2.9.0": [row("a.b @ Default", "failed", "found `1 | 2` (most recent call last): File /x"),
              row("a.c @ Mirrored 2"), row("a.d @ Default", level="SHOULD"), row("a.new @ Default", "failed")],
    "2.10.0": [row("a.b @ Default", "failed", "found 3"), row("a.c @ Mirrored 2", "errored"),
               row("a.d @ Default", level="SHOULD"), row("a.new @ Default", "failed")],
}


def test_each_changed_outcome_is_a_row_below_its_versions_and_its_reason() -> None:
    page = versions.page(REPORTS, ["-k", "a b"], "# a remark\n\nz.z @ *, a.* @ Default | 2.9 | it | is | so\n")
    assert "`python -m refdist.conformance versions FOLDER -k 'a b'`" in page
    assert "## TensorFlow 2.8 to 2.10\n" in page
    assert "| 2.10.0 | 0 | 2 | 1 | 1 | 0 | 0 |" in page
    first, second = page.split("\n### From ")[1:]
    assert first == ("2.8 to 2.9\n\nit | is | so\n\n| case | before | after |\n| --- | --- | --- |\n"
                     "| [a.b @ Default](../conformance/spec/a.md#ab) | passed | failed: found '1 \\| 2' |\n")
    assert second == ("2.9 to 2.10\n\n**Not explained.**\n\n| case | before | after |\n| --- | --- | --- |\n"
                      "| [a.c @ Mirrored 2](../conformance/spec/a.md#ac) | passed | errored |\n")
    assert "### From" not in versions.page(dict.fromkeys(("2.8.1", "2.9.0"), REPORTS["2.8.1"]), [], "")


def test_long_messages_are_cut() -> None:
    reports = {"1.0": [row("a.b @ Default")], "2.0": [row("a.b @ Default", "failed", "x" * 999)]}
    assert f"failed: {'x' * versions.LONGEST} ... |" in versions.page(reports, [], "")


def test_folders_of_one_machine_are_left_out() -> None:
    reports = {"1.0": [row("a.b @ Default")], "2.0": [row("a.b @ Default", "failed", 'at ("/home/me/x.py":9) /job:a')]}
    assert '| failed: at ("x.py":9) /job:a |' in versions.page(reports, [], "")


@pytest.mark.parametrize(("line", "message"), [
    ("a.b @ Default | 2.10 | why", "a.b @ Default | 2.10 | why: no case changed so"),
    ("a.c @ * | 2.9 | why", "no case changed so"), ("a.b | 2.9", "is not `cases | version | why`"),
    ("a.b @ Default | 2.9 |", "is not `cases | version | why`"),
])
def test_a_wrong_reason_is_an_error(line: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        versions.page(REPORTS, [], line)
    assert message in str(raised.value)


def test_the_reason_of_a_case_that_was_not_run_is_not_wrong() -> None:
    assert "Not explained" in versions.page(REPORTS, [], "z.z @ Default | 2.9 | why")


# A suite that says with what it was run, and is not content with one version.
SUITE = '''
import json, sys
python, folder = (sys.argv[sys.argv.index(option) + 1] for option in ("--python", "--report"))
if "2.0" in python and "--break" in sys.argv:
    sys.exit("broken")
import pathlib
path = pathlib.Path(folder)
path.mkdir(parents=True, exist_ok=True)
asked = [sys.argv[i + 1] for i, option in enumerate(sys.argv) if option == "--clause"] or ["a.b", "a.c"]
with open(path.parents[1] / "calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
if asked == ["a.unasked"]:
    sys.exit(5)
strategy = "OneDevice" if "--clause" in sys.argv else "Default"
rows = [{"case": f"{name} @ {strategy}", "clause": name, "chapter": "a", "outcome": "passed", "message": python,
         "level": "MUST"} for name in asked]
(path / "report.json").write_text(json.dumps({"implementations": {python: rows}}))
sys.exit(1)
'''


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "suite.py").write_text(SUITE)
    (tmp_path / "reasons").write_text("")
    monkeypatch.setattr(versions, "SUITE", [sys.executable, str(tmp_path / "suite.py")])
    monkeypatch.setattr(versions, "TENSORFLOW", ("1.0", "2.0"))
    monkeypatch.setattr(versions, "LIBRARIES", {})
    monkeypatch.setattr(versions, "REASONS", tmp_path / "reasons")
    monkeypatch.setattr(versions, "environment", lambda folder, package: folder / package)
    monkeypatch.setattr(versions, "_clauses", lambda level, chapters: {"a.b": "1", "a.c": "1"})
    return tmp_path


def test_each_version_is_run_once_for_each_selection(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = command / "all"
    for selection in ([], [], ["--level", "must"]):
        assert versions.main([str(folder), *selection]) == 0
    assert capsys.readouterr().out.count("## TensorFlow 1.0 to 2.0") == 3
    ran = [line.split()[3:] for line in (folder / "calls").read_text().splitlines()]
    assert [Path(line[0]).name for line in ran] == ["tensorflow-cpu==1.0", "tensorflow-cpu==2.0"] * 2
    assert [line[1:3] for line in ran[2:]] == [["--level", "must"]] * 2


def test_a_version_that_cannot_be_tested_ends_the_command(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main([str(command / "all"), "--break"]) == 1
    captured = capsys.readouterr()
    assert "tensorflow-cpu==2.0: the suite ended with exit status 1" in captured.err and not captured.out
    assert json.loads((command / "all" / "1.0" / "made.json").read_text())["options"] == ["--break"]


def test_only_clauses_that_have_changed_are_run_again(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(**clauses: str) -> tuple[list[str], list[str]]:
        monkeypatch.setattr(versions, "_clauses", lambda level, chapters: {
            f"a.{name}": digest for name, digest in clauses.items()})
        (command / "calls").write_text("")
        rows = versions.report(command / "1.0", "tensorflow-cpu==1.0", [])
        calls = (command / "calls").read_text().split()
        return [row["clause"] for row in rows], [name for name in calls if name.startswith("a.")]

    assert ran(b="1", c="1") == (["a.b", "a.c"], [])
    assert ran(c="1", b="2", d="1") == (["a.c", "a.b", "a.d"], ["a.b", "a.d"])
    assert ran(c="1", d="1") == (["a.c", "a.d"], [])
    assert (command / "calls").read_text() == ""
    assert ran(unasked="1", d="1") == (["a.d"], ["a.unasked"])
    assert ran(unasked="1", d="1") == (["a.d"], [])
    assert (command / "calls").read_text() == ""


def test_a_clause_has_changed_when_what_is_run_or_expected_has(monkeypatch: pytest.MonkeyPatch) -> None:
    chapters = load()
    before = versions._clauses(None, ())
    assert set(before) == {clause.name for chapter in chapters for clause in chapter.clauses}
    first, *others = chapters
    clause, *rest = first.clauses

    def changed(chapter: Chapter) -> set[str]:
        monkeypatch.setattr(versions, "load", lambda: (chapter, *others))
        now = versions._clauses(None, ())
        return {name for name in before if now[name] != before[name]}

    def with_clause(**changes: Any) -> Chapter:
        return replace(first, clauses=(replace(clause, **changes), *rest))

    *more, statement = clause.examples[0].statements
    assert statement.expectations
    assert changed(with_clause(rule="another text", line=7)) == set()
    assert changed(with_clause(strategies=("OneDevice",))) == {clause.name}
    assert changed(with_clause(examples=(replace(clause.examples[0], statements=tuple(more)),))) == {clause.name}
    for different in (replace(statement, source="tf"), replace(statement, expectations=())):
        example = replace(clause.examples[0], statements=(*more, different))
        assert changed(with_clause(examples=(example, *clause.examples[1:]))) == {clause.name}
    assert changed(with_clause(examples=(replace(clause.examples[0], parameters={"n": "ints()"}),))) == {clause.name}
    preamble = replace(clause.examples[0], source="x = 1")
    assert changed(replace(first, preamble=preamble)) == {clause.name for clause in first.clauses}


def test_a_library_is_asked_its_chapters_only(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "LIBRARIES", {"torch": "torch==3"})
    folder = command / "all"
    folder.mkdir()

    def asked(of_all: str, all_reduce: str, all_gather: str) -> list[list[str]]:
        monkeypatch.setattr(versions, "_clauses", lambda level, chapters: {
            "all_reduce.x": all_reduce, "all_gather.x": all_gather} if chapters else {"a.b": of_all, "a.c": of_all})
        (folder / "calls").write_text("")
        assert versions.main([str(folder), "--level", "must"]) == 0
        return [line.split() for line in (folder / "calls").read_text().splitlines() if "torch" in line]

    [call] = asked("1", "1", "1")
    assert call[:4] == ["--adapter", "torch", "--python", str(folder / "torch-3" / "env" / "torch==3")]
    assert call[4:8] == ["--clause", "all_reduce.x", "--clause", "all_gather.x"] and "--level" not in call
    assert asked("2", "1", "1") == []
    [call] = asked("2", "1", "2")
    assert call.count("--clause") == 1 and "all_gather.x" in call


def test_the_page_says_of_a_library_what_was_asked_and_what_failed() -> None:
    rows = [row("all_reduce.sum @ Mirrored 2"), row("all_reduce.sum @ Mirrored 3", "failed", "found `1 | 2`"),
            row("all_reduce.sum @ Mirrored 4", "errored", "it was ended by SIGABRT"),
            row("all_reduce.nests @ Mirrored 2", "unsupported", "NotImplementedError: nests, where n = 3"),
            row("all_gather.rows @ Central 2", "skipped", "needs Central, variables"),
            row("all_gather.rows @ OneDevice", "skipped", "needs variables")]
    section = versions.collectives({"torch": rows})
    assert "### torch " in section and "all_reduce SUM is `allreduce` with ReduceOp.SUM" in section
    assert "| chapter | MUST passed | MUST failed | MUST errored | MUST unsupported | MUST skipped |" in section
    assert "| all_reduce | 1 | 1 | 1 | 1 | 0 |\n| all_gather | 0 | 0 | 0 | 0 | 2 |" in section
    assert "that need variables (2), Central (1); some need several of them. Unsupported are nests (1)." in section
    failures = section.partition("| ---: | --- |\n")[2]
    assert failures == "| [all_reduce.sum](../conformance/spec/all_reduce.md#all_reducesum) | 2 of 3 | " \
                       "failed: found '1 \\| 2' |\n"


def test_only_clauses_are_asked_that_the_level_has() -> None:
    every = versions._clauses(None, ())
    level = {clause.name: clause.level for chapter in load() for clause in chapter.clauses}
    for option in (["--level", "should"], ["-k", "x", "--level=should"]):
        clauses = versions._clauses(versions._level(option), ("all_reduce",))
        assert clauses.keys() == {name for name in every if level[name] == "SHOULD" and name.startswith("all_reduce.")}
    assert versions._level(["-k", "level"]) is None


@pytest.mark.slow
def test_what_cannot_be_installed_says_so_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for _ in range(2):
        with pytest.raises(versions.Impossible, match=r"no-such-package==1 cannot be installed in .* for Python 3\.\d"):
            versions.environment(tmp_path / "env", "no-such-package==1")
    assert subprocess.run([tmp_path / "env" / "bin" / "python", "-c", "import sys"]).returncode == 0


def test_options_before_the_folder_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        versions.main(["--level", "must", "folder"])
    assert "usage: python -m refdist.conformance versions" in capsys.readouterr().err


def test_the_published_page_explains_each_change_of_a_clause() -> None:
    page = (Path(__file__).parents[1] / "docs" / "implementations.md").read_text()
    assert "Not explained" not in page
    named = set(re.findall(r"^\| \[([^\s\]]+)", page, re.MULTILINE))
    assert named and named <= {case.clause.name for case in cases()}
