"""refdist's own trainers on PyTorch, JAX and Keras, on the level `trainer`; `make interop` installs what they need."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import refdist.conformance
from refdist.conformance.__main__ import main

TESTEES = Path(refdist.conformance.__file__).parent / "trainers" / "testees"
ALL = "32 right"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start", "libraries", "counts"), [
    ("refdist_torch", "-m refdist launch -n {replicas}", ("torch",), ALL),
    ("refdist_jax", "", ("jax", "optax"), ALL),
    ("refdist_keras", "", ("keras", "torch"), "4 documented, 27 right, 1 unsupported"),
])
def test_a_trainer_of_refdist_does_nothing_that_no_page_says(
        name: str, start: str, libraries: tuple[str, ...], counts: str, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    if missing := [library for library in libraries if find_spec(library) is None]:
        pytest.skip(f"{' and '.join(missing)} is not installed; `make interop` installs it")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status = main(["trainers", "--limit", "120", "--command", f"{sys.executable} {start} {TESTEES / f'{name}.py'}"])
    printed = capsys.readouterr().out
    assert status == 0 and printed.splitlines()[-1] == counts, printed
