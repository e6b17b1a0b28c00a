"""TensorFlow's notebooks about distribution, cell by cell; REFDIST_NOTEBOOKS is the folder where they are."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("REFDIST_NOTEBOOKS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="REFDIST_NOTEBOOKS is not set"),
    pytest.mark.skipif(not all(map(importlib.util.find_spec, ("keras", "torch"))), reason="Keras is not installed")]

_SAVED = "saved_model"
# Of each notebook the cells that do not run, and what they raise.  A cell that needs one of them fails, too.
NOT_RUN = {
    "custom_training": {},
    "input": {},
    "keras": {},
    "save_and_load": {8: _SAVED, 9: _SAVED, 10: "inference_func", 11: _SAVED, 12: "tensorflow_hub", 13: "extension",
                      14: _SAVED, 16: _SAVED, 17: "save_spec", 18: "save_spec"},
    "multi_worker_with_keras": {29: "extension", 31: "not supported"},
}


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("name", NOT_RUN)
def test_the_cells_of_a_notebook_run(name: str, replicas: int, tmp_path: Path) -> None:
    cells = Path(__file__).with_name("notebook_cells.py")
    finished = subprocess.run([sys.executable, str(cells), str(Path(FOLDER).absolute() / f"{name}.ipynb"),
                               str(replicas)], cwd=tmp_path, text=True, capture_output=True)
    assert finished.returncode == 0, finished.stderr
    raised = {int(number): text for number, text in json.loads(finished.stdout.splitlines()[-1]).items() if text}
    assert raised.keys() == NOT_RUN[name].keys(), raised
    for number, text in raised.items():
        assert NOT_RUN[name][number] in text
