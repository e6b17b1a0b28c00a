"""Whole programs of TensorFlow, unchanged, beside what TensorFlow 2.21 prints: the folder `tensorflow_programs`.

Beside each program is a text, what TensorFlow prints on two devices; numbers may differ by a ten-thousandth.  A program
is added with its text: `python tests/test_tensorflow_programs.py PROGRAM` prints it, where TensorFlow is installed.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG

PROGRAMS = sorted((Path(__file__).parent / "tensorflow_programs").glob("*.py"))
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf")
needs_keras = pytest.mark.skipif(not all(map(importlib.util.find_spec, ("keras", "torch"))),
                                 reason="Keras or PyTorch is not installed")


def pieces(text: str) -> tuple[str, list[float]]:
    """What is said around the numbers, and the numbers."""
    return re.sub(r"\s+", "", _NUMBER.sub("#", text)), [float(number) for number in _NUMBER.findall(text)]


@needs_keras
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_a_program_prints_on_two_replicas_what_tensorflow_prints(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "refdist", "run", "--tensorflow", str(program)], cwd=tmp_path,
                          env={**os.environ, "REFDIST_DEVICES": "CPU:1,GPU:2"}, text=True, capture_output=True,
                          timeout=HANG)
    assert done.returncode == 0, done.stderr
    expected = program.with_suffix(".txt").read_text().splitlines()
    lines = done.stdout.splitlines()
    for line, wanted in zip(lines, expected, strict=True):
        (words, numbers), (wanted_words, wanted_numbers) = pieces(line), pieces(wanted)
        assert words == wanted_words
        assert all(math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5)
                   for one, other in zip(numbers, wanted_numbers, strict=True)), (line, wanted)


def on_tensorflow(program: Path) -> None:
    """Runs a program on TensorFlow, where two parts of the processor are the devices of a MirroredStrategy."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    own = tf.distribute.MirroredStrategy
    tf.distribute.MirroredStrategy = lambda: own(["CPU:0", "CPU:1"])
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    on_tensorflow(Path(sys.argv[1]))
