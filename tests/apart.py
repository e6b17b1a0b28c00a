"""The distribution `refdist-conformance`, as if neither refdist nor what it needs were installed, or NumPy alone."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = "refdist-conformance"
SCRIPT = """#!{python}
import sys
from importlib.abc import MetaPathFinder


class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, Absent())
sys.path.insert(0, {folder!r})
from refdist_conformance.__main__ import main

sys.exit(main())
"""


def install(folder: Path, absent: tuple[str, ...] = ("refdist", "numpy", "greenlet")) -> Path:
    """Makes the package, and the command in a folder for PATH, which is returned."""
    commands = folder / "bin"
    commands.mkdir(parents=True)
    (folder / "refdist_conformance").symlink_to(ROOT / "conformance")
    (commands / COMMAND).write_text(SCRIPT.format(python=sys.executable, folder=str(folder), absent=absent))
    (commands / COMMAND).chmod(0o755)
    return commands
