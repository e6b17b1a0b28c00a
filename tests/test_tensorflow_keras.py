"""Keras under refdist beside Keras on TensorFlow; `make tensorflow-keras`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from keras_checkpoints import CASES as CHECKPOINTS
from keras_checkpoints import LESS_ON_TENSORFLOW

pytest.importorskip("tensorflow", reason="`make tensorflow-keras` has it")

ROOT = Path(__file__).parents[1]
# Keras on PyTorch has a process, and an environment, of its own.
OTHER = os.environ.get("REFDIST_KERAS_PYTHON", str(ROOT / ".venv-interop" / "bin" / "python"))
CASES = [(program, replicas, "float32") for replicas in (1, 2, 4) for program in (
    "dense", "adam", "batchnorm", "embedding", "fit", "fit-batchnorm", "fit-embedding", "fit-weighted")]
CASES += [(program, 1, dtype) for dtype in ("float32", "float64") for program in ("servers", "servers-batchnorm")]
CASES += [(program, 2, "float64") for program in ("dense", "batchnorm", "fit-batchnorm")]


def numbers(python: str, world: str, *case: object) -> dict[str, Any]:
    done = subprocess.run([python, str(ROOT / "tests" / "keras_programs.py"), world, *map(str, case)], check=True,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_losses_weights_statistics_and_slots_are_tensorflow_s(case: tuple[str, int, str]) -> None:
    ours, theirs = numbers(OTHER, "refdist", *case), numbers(sys.executable, "tensorflow", *case)
    assert list(ours) == list(theirs)
    limit = 1e-6 if case[2] == "float32" else 1e-14
    for name, values in theirs.items():
        assert all(abs(one - other) <= limit * max(1.0, abs(other))
                   for one, other in zip(ours[name], values, strict=True)), name


def test_tensorflow_restores_what_the_tests_of_checkpoints_say() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "keras_checkpoints.py")], check=True,
                          capture_output=True, text=True)
    assert json.loads(done.stdout) == {case: list(restored) for case, restored in
                                       {**CHECKPOINTS, **LESS_ON_TENSORFLOW}.items()}
