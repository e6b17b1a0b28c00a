"""The questions of docs/debugging.md: each command is run, and says what the page says that it does."""

from __future__ import annotations

import re
import runpy
import shlex
import warnings
from pathlib import Path

import pytest

import refdist
from refdist.__main__ import main
from refdist.runtime import process

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "questions"
ROW = re.compile(r"^\| \[(.+?)\]\((https://github\.com/.+?)\) \| `(.+?)` \| (.+) \|$", re.MULTILINE)
QUESTIONS = ROW.findall((ROOT / "docs" / "debugging.md").read_text(encoding="utf-8"))


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, warns of and raises."""
    python, *words = shlex.split(command)
    assert python == "python"
    raised = ""
    with process.fresh(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if words[:2] == ["-m", "refdist"]:
                main(words[2:])
            else:
                runpy.run_path(words[0], run_name="__main__")
        except refdist.errors.RefdistError as error:
            raised = str(error)
    return "\n".join([capsys.readouterr().out, *(str(warning.message) for warning in warned), raised])


@pytest.mark.parametrize(("question", "command", "answer"), [
    pytest.param(question, command, answer, marks=[pytest.mark.slow] * ("compare" in command), id=command.split()[-1])
    for question, _, command, answer in QUESTIONS])
def test_one_command_answers_a_question(question: str, command: str, answer: str, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(FOLDER)
    printed_text = printed(command, capsys)
    for quoted in (first or second for first, second in re.findall(r"`` (.+?) ``|`([^`]+)`", answer)):
        assert quoted in printed_text, f"{question}\n{printed_text}"


def test_there_are_twenty_questions_each_with_its_program() -> None:
    programs = [command.split()[-1] for _, _, command, _ in QUESTIONS]
    assert len(programs) >= 20 and sorted(programs) == sorted(path.name for path in FOLDER.glob("*.py"))
    assert len({address for _, address, _, _ in QUESTIONS}) == len(QUESTIONS)
