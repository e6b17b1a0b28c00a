"""Whole programs of TensorFlow, unchanged, beside what TensorFlow 2.21 prints: the folder `tensorflow_programs`.

Beside each program is a text, what TensorFlow prints on two devices; numbers may differ by a ten-thousandth.  A program
is added with its text: `python tests/test_tensorflow_programs.py PROGRAM` prints it, where TensorFlow is installed.
"""

from __future__ import annotations

import importlib.util
import json
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


MEANS_SUMMED = """
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    w = tf.Variable(0.0, name="w")
    optimizer = tf.keras.optimizers.SGD(0.1)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x - w))
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])

rows = tf.data.Dataset.range(8).map(lambda x: tf.cast(x, tf.float32)).batch(8)
for x in strategy.experimental_distribute_dataset(rows):
    strategy.run(step, args=(x,))
"""


def compared(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "refdist", "compare", *options, "--orders", "0", "--replicas", "1,2",
                           script.name], cwd=script.parent, text=True, capture_output=True, timeout=HANG)


@needs_keras
@pytest.mark.parametrize("suffix", [".py", ".ipynb"])
def test_a_program_is_compared_at_other_numbers_of_replicas(suffix: str, tmp_path: Path) -> None:
    script = tmp_path / f"train{suffix}"
    script.write_text(MEANS_SUMMED if suffix == ".py" else json.dumps(
        {"cells": [{"cell_type": "code", "source": [MEANS_SUMMED]}], "nbformat": 4, "nbformat_minor": 5,
         "metadata": {}}))
    done = compared(script, "--tensorflow")
    assert done.returncode == 1 and "MEANS SUMMED" in done.stdout, done.stdout + done.stderr
    line = MEANS_SUMMED.splitlines().index("    optimizer.apply_gradients([(tape.gradient(loss, w), w)])") + 1
    assert f":{line} gets 2 times what it is on 1" in done.stdout, done.stdout


@pytest.mark.skipif(bool(importlib.util.find_spec("tensorflow")), reason="TensorFlow is installed")
def test_a_program_that_imports_tensorflow_is_told_of_the_option(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from tensorflow.keras import layers")
    advice = "No module named 'tensorflow'; write `--tensorflow` before the script, and the import finds refdist.tf"
    done = compared(script)
    assert done.returncode == 3 and advice in done.stdout, done.stdout + done.stderr
    done = subprocess.run([sys.executable, "-m", "refdist", "run", script.name], cwd=tmp_path, text=True,
                          capture_output=True, timeout=HANG)
    assert done.returncode == 1 and advice in done.stderr, done.stdout + done.stderr


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
