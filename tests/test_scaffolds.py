"""`refdist-conformance new`: a testee in each language passes cases at once, and no file is overwritten."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import apart
import pytest

from refdist.conformance import new
from refdist.conformance.__main__ import main

# Runs a program where Lua is not installed and Python's package with it is.
LUPA = """#!{python}
import sys
from lupa import lua54
lua54.LuaRuntime().execute(open(sys.argv[1], encoding="utf-8").read())
"""


def environment(language: str, folder: Path) -> dict[str, str]:
    """Variables with which a shell finds the suite and what runs the language; skips where that is not installed."""
    runs = new.LANGUAGES[language].needs.split()[0].lower()
    places = [str(apart.install(folder / "apart")), str(Path(sys.executable).parent)]
    path = os.pathsep.join([*places, os.environ["PATH"]])
    if runs == "lua" and shutil.which("lua") is None and find_spec("lupa"):
        (folder / "lua").write_text(LUPA.format(python=sys.executable))
        (folder / "lua").chmod(0o755)
        path = f"{folder}{os.pathsep}{path}"
    elif shutil.which(runs, path=path) is None:
        pytest.skip(f"{runs} is not installed")
    return {**os.environ, "PATH": path}


def shell_lines(readme: Path) -> str:
    return "\n".join(line.strip() for line in readme.read_text().splitlines() if line.startswith("    "))


# A mistake of the implementation in each language.
MISTAKES = {"python": ("sum(column) for", "sum(column) + 1 for"), "js": ("reduce((a, b) => a + b)", "at(0)"),
            "lua": ("sums[at] + x", "sums[at]"), "go": ("sums[at] += x", "sums[at] = x")}


@pytest.mark.slow
@pytest.mark.parametrize("language", new.LANGUAGES)
def test_the_commands_of_the_readme_pass_cases_at_once_and_find_a_mistake(language: str, tmp_path: Path) -> None:
    """Where refdist is not installed, which a testee does not need."""
    variables = environment(language, tmp_path)
    folder = tmp_path / "my testee"
    subprocess.run([apart.COMMAND, "new", "--language", language, str(folder)], env=variables, check=True)
    commands = shell_lines(folder / "README.md")

    def run(options: str = "") -> tuple[int, str]:
        done = subprocess.run(["sh", "-ec", commands], cwd=folder, env={**variables, "PYTEST_ADDOPTS": options},
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    status, printed = run()
    assert status == 0, printed
    passed = re.search(r"^(\d+) passed, \d+ skipped", printed, re.MULTILINE)
    assert passed and f"passes {passed[1]} cases" in (folder / "README.md").read_text()
    assert "skipped: operator +" in printed  # what comes next
    testee = folder / new.LANGUAGES[language].file
    right, wrong = MISTAKES[language]
    assert testee.read_text().count(right) == 1
    testee.write_text(testee.read_text().replace(right, wrong))
    status, printed = run("-k sum")
    assert status == 1 and "failed: all_reduce.sum #1 @ Mirrored 2: " in printed


def test_it_says_how_to_run_what_it_has_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "mine"
    assert main(["new", "--language", "go", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"testee.go", "README.md"}
    printed = capsys.readouterr().out
    for line in (f"cd {folder}", *shell_lines(folder / "README.md").splitlines()):
        assert f"\n    {line}\n" in printed


@pytest.mark.parametrize("there", ["testee.js", "README.md"])
def test_no_file_is_overwritten(there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("mine")
    assert main(["new", "--language", "js", str(tmp_path)]) == 4
    assert capsys.readouterr().err == (f"ERROR: {there} in {tmp_path} would be overwritten; name another folder, or "
                                       f"move what is there\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


def test_wrong_usage_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--language", "cobol", str(tmp_path / "mine")]) == 4
    assert main(["new", str(tmp_path / "mine")]) == 4
    assert not (tmp_path / "mine").exists()
    capsys.readouterr()
    (tmp_path / "file").touch()
    assert main(["new", "--language", "js", str(tmp_path / "file")]) == 4
    printed = capsys.readouterr().err
    assert re.fullmatch(r"ERROR: .*/file cannot be written to \(.+\); name a folder that can be\n", printed)


def test_it_needs_neither_pytest_nor_hypothesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refdist.conformance.__main__.NEEDS", ("nothing_of_that_name",))
    assert main(["new", "--language", "python", str(tmp_path)]) == 0
