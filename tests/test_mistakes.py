"""Programs with one mistake each, by family, and the verdict on each; see `tests/mistakes`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import linecache
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import refdist
from refdist.runtime import process

Row = tuple[int, Callable[[], Any], str]
HERE = Path(__file__).parent
PLAIN = ["meeting", "scale", "variables", "data", "state"]
# The kinds of which a run said nothing before there were types, watches and comparisons.
SILENT = {3, 11, 16, 17, 18, 20, 23, 25, 26, 27, 28, 30, 31, 37, 38}
TYPES = {"RD37", "RD38", "RD39", "RD40", "RD41"}


def rows(family: str) -> list[Row]:
    mistakes: list[Row] = importlib.import_module(f"mistakes.{family}").MISTAKES
    return mistakes


def parameters(families: list[str]) -> list[Any]:
    return [pytest.param(program, verdict, id=f"{family}-{program.__name__}-{kind}")
            for family in families for kind, program, verdict in rows(family)]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(program: Callable[[], object]) -> list[tuple[str, str]]:
    """What a run with all checks says: "raises" or "warns" with a code or class, each with the line of a warning."""
    told = []
    with process.fresh(), refdist.config.checks(types=True, watch=True), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            program()
        except Exception as error:
            told.append((f"raises {getattr(error, 'code', None) or type(error).__name__}", ""))
    return told + [(f"warns {getattr(one.message, 'code', None) or one.category.__name__}",
                    linecache.getline(one.filename, one.lineno)) for one in given
                   if one.category is not ResourceWarning]


def compared(program: Callable[[], object]) -> str:
    """What comparison says, in one line."""
    report = refdist.compare(program, replicas=(1, 4), orders=1, limit=300)
    if report.differences:
        return f"compare {report.differences[0].cause}"
    return "missed" if report.same else str(report)


@pytest.mark.parametrize(("program", "verdict"), parameters(PLAIN))
def test_the_verdict_on_a_mistake(program: Callable[[], object], verdict: str) -> None:
    told = said(program)
    if verdict.startswith(("compare", "missed")):
        assert told == []
        assert compared(program) == verdict
        return
    assert verdict in [what for what, _ in told], told
    if "# here" in "".join(linecache.getlines(program.__code__.co_filename)[
            program.__code__.co_firstlineno - 1:]).split("\ndef ")[0]:
        assert any("# here" in line for what, line in told if what == verdict), told


@pytest.mark.slow
@pytest.mark.parametrize("family", ["with_torch", "with_jax", "with_keras"])
def test_the_verdicts_on_mistakes_with_a_library(family: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(family.removeprefix("with_")) is None:
        pytest.skip("`make interop` installs it")
    done = subprocess.run([sys.executable, "-c", "import sys, test_mistakes as t; t.tell(sys.argv[1])", family],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(
                              [str(HERE), str(HERE.parent)])}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = {program.__name__: verdict for _, program, verdict in rows(family)}
    assert json.loads(done.stdout.splitlines()[-1]) == wanted


@pytest.mark.slow
def test_a_layer_that_begins_otherwise_in_each_run_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="`make interop` installs it")
    (tmp_path / "layer.py").write_text("""
import refdist, torch
strategy, model = refdist.MirroredStrategy(["GPU:0", "GPU:1"]), torch.nn.Linear(3, 1)
for x in strategy.experimental_distribute_dataset(refdist.data.Dataset.from_tensor_slices(torch.ones(4, 3)).batch(4)):
    losses = strategy.run(lambda x: model(torch.as_tensor(x)).mean().detach(), (x,))
    print(float(strategy.reduce("MEAN", losses, axis=None)))
""")
    [difference] = refdist.compare(tmp_path / "layer.py", replicas=(1, 2), orders=0).differences
    assert difference.cause == "NO SEED"
    assert "torch.manual_seed(0)" in difference.advice


def tell(family: str) -> None:
    """Prints the verdicts on a family; those by comparison come first, before a library has started threads."""
    verdicts = {}
    for _, program, verdict in sorted(rows(family), key=lambda row: not row[2].startswith("compare")):
        if verdict.startswith("compare"):
            verdicts[program.__name__] = compared(program)
        else:
            warned_of = [what for what, _ in said(program)]
            verdicts[program.__name__] = verdict if verdict in warned_of else str(warned_of)
    print(json.dumps(verdicts))


def test_each_kind_that_users_report_has_a_program() -> None:
    kinds = Counter(kind for family in PLAIN for kind, _, _ in rows(family))
    assert set(kinds) == {*range(48)}
    assert kinds[0] >= 15


def test_the_silent_kinds_are_told_of() -> None:
    """Six of fifteen by types alone, and thirteen by all of these together."""
    verdicts = [(kind, verdict.split()[-1] if verdict.startswith("warns") else verdict)
                for family in PLAIN for kind, _, verdict in rows(family) if kind in SILENT]
    assert {kind for kind, _ in verdicts} == SILENT
    assert len({kind for kind, verdict in verdicts if verdict in TYPES}) >= 6
    assert len({kind for kind, verdict in verdicts if verdict != "missed"}) >= 13
