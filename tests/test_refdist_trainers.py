"""refdist's own trainers on PyTorch, JAX and Keras, on the level `trainer`; `make interop` installs what they need."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import refdist.conformance
from refdist.conformance.__main__ import main

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"
ALL = "37 right"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start", "libraries", "counts"), [
    ("refdist_torch", "-m refdist launch -n {replicas}", ("torch",), ALL),
    ("refdist_jax", "", ("jax", "optax"), ALL),
    # What is wrong is Keras's, on every backend and on one replica: a schedule under accumulation (docs/trainers.md).
    ("refdist_keras", "", ("keras", "torch"), "1 WRONG, 4 documented, 31 right, 1 unsupported"),
])
def test_a_trainer_of_refdist_does_nothing_that_its_page_does_not_say(
        name: str, start: str, libraries: tuple[str, ...], counts: str, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    if missing := [library for library in libraries if find_spec(library) is None]:
        pytest.skip(f"{' and '.join(missing)} is not installed; `make interop` installs it")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status = main(["trainers", "--limit", "120", "--command", f"{sys.executable} {start} {TESTEES / f'{name}.py'}"])
    printed = capsys.readouterr().out
    assert status == ("WRONG" in counts) and printed.splitlines()[-1] == counts, printed
