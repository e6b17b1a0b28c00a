"""Whatever a trainer answers, its run ends in a table with a verdict on each clause, which says why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from refdist.conformance import report as reports
from refdist.conformance.__main__ import main

HUGE = 10 ** 400
DEEP: Any = 1.0
for _ in range(200):
    DEEP = [DEEP]
# What is answered to the jobs of a clause (of replica 0, where it names one), and what the verdict says.
ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "same-loss": ({"losses": [HUGE]}, "errored the losses: an integer of 401 digits, more than a double can hold"),
    "same-weights": ({"weights": {"dense/kernel": DEEP}}, "errored the weights: more than 32 lists in each other"),
    "is-distributed": ({"replica": 0, "rows": 5}, "errored the rows of replica 0 are 5, not a list for each step"),
    "shuffles-differ-by-epoch": ({}, "errored the losses are not in the answer"),
    "rows-once": ({"weights": {"\x1b[2J" * 1000: 1}}, "they have ?[2J?[2J"),
    "validation-rows-once": ({"eval_loss": HUGE}, "errored the eval_loss: an integer of 401 digits"),
    "metrics-of-all-rows": ({"metrics": {"mean_absolute_error": HUGE}}, "errored the metrics: an integer of 401"),
    "masked-rows": ({"unsupported": "\ud800\x1b]0;mine\x07" + "y" * 10_000}, "unsupported ??]0;mine?yyy"),
    "accumulation": ({"declared": {"page": "\x1b[2J"}, "weights": {"dense/kernel": [[0.0]] * 16}}, "(?[2J)"),
    "early-stop": ({"replica": 0, "rows": HUGE, "steps": [[]]}, "errored replica 1 does not say its steps")}
TESTEE = """
import json, sys
answers = json.loads({answers!r})
for job in map(json.loads, open(sys.argv[-1])):
    for line in (dict(answers[job["clause"]], trainer="\\ud800\\x1b[2Jmine"), dict(done=True)):
        print(json.dumps(dict(line, id=job["id"])), flush=True)
"""


@pytest.mark.slow
def test_whatever_is_answered_there_is_a_verdict_that_says_why(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "testee.py"
    script.write_text(TESTEE.format(answers=json.dumps({name: answer for name, (answer, _) in ANSWERS.items()})))
    chosen = [f"--clause={name}" for name in ANSWERS]
    assert main(["trainers", "--command", f"{sys.executable} {script}", *chosen, "--report", "told",
                 "--junitxml", "told.xml"]) == 1
    printed = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in printed)
    words = " ".join(printed.split())
    for name, (_, says) in ANSWERS.items():
        assert f"{name} " in words and says in words, name
    [(name, rows)] = reports.read(Path("told"))["implementations"].items()
    assert name == "??[2Jmine" and {row["case"] for row in rows} == set(ANSWERS)
    assert max(len(row["message"]) for row in rows) < 2100


@pytest.mark.slow
def test_a_field_that_was_not_asked_for_may_be_anything(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trainers", "--write-testee", "."]) == 0
    script, text = tmp_path / "testee.py", (tmp_path / "testee.py").read_text()
    script.write_text(text.replace("done=True", "rows=5, seed=10 ** 400, done=True"))
    assert main(["trainers", "--command", f"{sys.executable} {script}", "--clause", "uneven-end"]) == 0
    assert "uneven-end  right\n" in capsys.readouterr().out
