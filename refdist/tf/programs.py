"""Runs a program that was written for TensorFlow: a script or a notebook."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

from refdist.tf import notebooks
from refdist.tf.stand_in import install


def run(path: Path) -> None:
    """Runs a script or a notebook as `__main__`, with `refdist.tf` in TensorFlow's place.

    Raises:
        RD09: TensorFlow itself is loaded.  RD27: Keras is not installed.  RD30: a notebook that is none.
        What the program raises.
    """
    install()
    if not notebooks.is_notebook(path):
        runpy.run_path(str(path.absolute()), run_name="__main__")
        return
    cells = notebooks.cells(path)
    before = sys.modules["__main__"]
    module = sys.modules["__main__"] = ModuleType("__main__")
    try:
        for cell in cells:
            notebooks.execute(cell, vars(module))
    finally:
        sys.modules["__main__"] = before
