"""Mistakes of asynchronous training in programs as they are written (`asynchronous/`), and their corrected forms."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import refdist
from refdist.__main__ import main
from refdist.insight import explorer

FOLDER = Path(__file__).parent / "asynchronous"
BUDGET = "10min"  # never reached: what is proved does not depend on how busy the machine is
LOSSES = "any worker, once"
KILLS = "any checkpoint, once"


class Mistake(NamedTuple):
    """What is found in a program.

    Attributes:
        title: of what is found first.
        where: what the report says of it.
        options: for `explore`.
        corrected: for the corrected form; None for the same.
    """

    title: str
    where: str
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody writes to it
    corrected: dict[str, Any] | None = None


MISTAKES = {
    "epochs": Mistake("RAISED", "with a TORN READ of seen", corrected={"max_staleness": 1}),
    "embeddings": Mistake("LOST UPDATE", "of table/part_0"),
    "metric": Mistake("RAISED", "the mean was shown as 1.5"),
    "checkpoints": Mistake("RAISED", "the checkpoint has the weight 8.0 after 1 steps"),
    "early_stopping": Mistake("LOST UPDATE", "of best"),
    "stale_gradients": Mistake("RAISED", "the weight is -4.0", corrected={"max_staleness": 1}),
    "samples": Mistake("NOT RESTART-SAFE", "of rows", {"faults": LOSSES}),
    "resumed": Mistake("NOT RESTART-SAFE", "is killed before fsync of the folder of weights", {"faults": KILLS}),
}


@pytest.fixture(autouse=True)
def as_a_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))


def script(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> Callable[[], object]:
    path = str(FOLDER / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])

    def run() -> None:
        runpy.run_path(path, run_name="__main__")

    return run


def command(options: dict[str, Any]) -> list[str]:
    return [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_within_ten_runs_and_replayed_and_drawn_by_the_command(
        name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    report = refdist.explore(script(monkeypatch, name), budget=BUDGET, **mistake.options)
    finding = report.findings[0]
    assert finding.title == mistake.title and mistake.where in str(finding)
    assert report.first is not None and report.first <= 10
    assert f"the first after {report.first} of {report.runs} runs" in str(report)
    assert str(report) == str(refdist.explore(script(monkeypatch, name), budget=BUDGET, **mistake.options))
    capsys.readouterr()

    choices = ",".join(map(str, finding.choices))
    recording = tmp_path / "run.jsonl"
    assert main(["explore", *command(mistake.options), "--choices", choices, "--record", str(recording),
                 str(FOLDER / f"{name}.py")]) == 1
    assert finding.why.splitlines()[0] in capsys.readouterr().out
    recorded = refdist.insight.load(recording)
    assert {event["task"] for event in recorded.events if event.kind == "function"} == {0, 1}
    recorded.html(tmp_path / "run.html")
    assert (tmp_path / "run.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", MISTAKES)
def test_the_corrected_form_is_proved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, options, corrected = MISTAKES[name]
    options = options if corrected is None else corrected
    report = refdist.explore(script(monkeypatch, name, "corrected"), budget=BUDGET, **options)
    assert not report.findings
    if options.get("faults") == LOSSES:
        assert report.losses >= 4
    else:
        assert report.proved, report


@pytest.mark.parametrize("name", ["epochs", "stale_gradients"])
def test_the_bound_that_is_stated_is_the_smallest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [finding] = refdist.explore(script(monkeypatch, name, "corrected"), max_staleness=0, budget=BUDGET).findings
    assert finding.title == "TOO STALE"
    assert not explorer.replay(script(monkeypatch, name, "corrected"), finding.choices, max_staleness=0)[0]
