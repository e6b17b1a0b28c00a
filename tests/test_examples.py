"""The main job, as a user starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("replicas", "epochs"), [(1, 2), (3, 2), (4, 40)])
def test_digits_gives_the_weights_of_one_device_on_any_number_of_replicas(replicas: int, epochs: int,
                                                                          tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "digits.py"), "--replicas", str(replicas), "--epochs", str(epochs),
         "--no-progress", "--out", str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    differences = [float(text) for text in re.findall(r"and on one: ([\d.e+-]+)", done.stdout)]
    assert len(differences) == 2 and max(differences) <= 1e-5
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    if epochs == 40:
        shares = [float(text) for text in re.findall(r"([\d.]+)% of the held-out", done.stdout)]
        assert shares[1] >= 95.0
