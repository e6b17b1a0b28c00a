"""refdist's own trainers, on the level `trainer`: docs/trainers.md says of each what its source of now does.

Those on PyTorch, JAX and Keras need what `make interop` installs.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import refdist.conformance
from refdist.conformance import report
from refdist.conformance.__main__ import main
from refdist.conformance.trainers.report import OUTCOMES

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"
VERDICTS = TESTEES.parents[2] / "docs" / "trainers"


@pytest.mark.slow
@pytest.mark.skipif(not VERDICTS.exists(), reason="the package is installed without its pages")
@pytest.mark.parametrize(("name", "start", "libraries"), [
    ("refdist_numpy", "", ()),
    ("refdist_torch", "-m refdist launch -n {replicas}", ("torch",)),
    ("refdist_jax", "", ("jax", "optax")),
    ("refdist_keras", "", ("keras", "torch")),
])
def test_a_trainer_of_refdist_does_what_its_page_says(
        name: str, start: str, libraries: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """After a change of what it does, `make trainers TRAINER=NAME`."""
    if missing := [library for library in libraries if find_spec(library) is None]:
        pytest.skip(f"{' and '.join(missing)} is not installed; `make interop` installs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = f"{sys.executable} {start} {TESTEES / f'{name}.py'}"
    main(["trainers", "--limit", "120", "--command", command, "--report", str(tmp_path)])
    [rows] = report.read(tmp_path)["implementations"].values()
    kept = json.loads((VERDICTS / f"{name}.json").read_text(encoding="utf-8"))["verdicts"]
    assert {row["clause"]: (row["outcome"], row["message"]) for row in rows} == {
        clause: (OUTCOMES[verdict["outcome"]], verdict["message"]) for clause, verdict in kept.items()}, \
        capsys.readouterr().out
