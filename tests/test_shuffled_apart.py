"""Rows and labels that are shuffled apart, which is wrong on one replica, too."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import refdist
from refdist.runtime import process

HEADER = """
import random
import numpy as np
import refdist
from refdist.data import Dataset

x, y = np.arange(24, dtype=np.float32).reshape(8, 3), np.arange(8)
other = x[::-1].copy()
rng = np.random.default_rng(0)
rows, labels = Dataset.from_tensor_slices(x), Dataset.from_tensor_slices(y)

"""
APART = {
    "two datasets": "Dataset.zip(rows.shuffle(8), labels.shuffle(8))  # here",
    "two datasets with two seeds": "Dataset.zip((rows.shuffle(8, seed=1), labels.shuffle(8, seed=2)))  # here",
    "two datasets that are mapped":
        "Dataset.zip(rows.shuffle(8).map(lambda x: x / 2), labels.shuffle(8).map(np.float32))  # here",
    "a dataset that is mapped": "Dataset.zip(rows.map(abs).shuffle(8), labels.shuffle(8))  # here",
    "a dictionary": "Dataset.from_tensor_slices({'x': rng.permutation(x), 'y': rng.permutation(y)})  # here",
    "a dictionary by a call":
        "Dataset.from_tensor_slices(dict(x=x[rng.permutation(8)], y=y[rng.permutation(8)]))  # here",
    "two datasets of batches": "Dataset.zip(rows.shuffle(8).batch(2), labels.shuffle(8).batch(2))  # here",
    "two permutations":
        "x = x[rng.permutation(8)]\ny = y[rng.permutation(8)]\nDataset.from_tensor_slices((x, y))  # here",
    "two permutations at once": "Dataset.from_tensor_slices((rng.permutation(x), rng.permutation(y)))  # here",
    "two orders by name":
        "first = np.random.permutation(8)\nsecond = np.random.permutation(8)\n"
        "Dataset.from_tensor_slices((x[first], y[second]))  # here",
    "in place": "rng.shuffle(x)\nrng.shuffle(y)\nDataset.from_tensor_slices((x, y))  # here",
    "in place, in a function":
        "def load(x, y):\n    np.random.shuffle(x)\n    np.random.shuffle(y)\n"
        "    return Dataset.from_tensor_slices((x, y.astype(np.int32)))  # here\n\nload(x, y)",
}
TOGETHER = {
    "pairs": "Dataset.zip(rows, labels).shuffle(8)",
    "one seed": "Dataset.zip(rows.shuffle(8, seed=1), labels.shuffle(8, seed=1))",
    "pictures of two kinds": "Dataset.zip(rows.shuffle(8), Dataset.from_tensor_slices(other).shuffle(8))",
    "mixed up on purpose":
        "pairs = Dataset.zip(rows, labels)\nDataset.zip(pairs.shuffle(8), pairs.shuffle(8))",
    "labelled rows and rows without labels":
        "Dataset.zip(Dataset.zip(rows, labels).shuffle(8), Dataset.from_tensor_slices(other).shuffle(8))",
    "one seed for three":
        "pairs = Dataset.zip(rows.shuffle(8, seed=1), labels.shuffle(8, seed=1))\n"
        "Dataset.zip(pairs, Dataset.from_tensor_slices(np.ones((8, 2))).shuffle(8, seed=1))",
    "pictures that are mapped":
        "Dataset.zip(rows.shuffle(8).map(abs), Dataset.from_tensor_slices(other).shuffle(8).map(np.int32))",
    "a dictionary of one order":
        "order = rng.permutation(8)\nDataset.from_tensor_slices({'x': x[order], 'y': y[order]})",
    "of other lengths": "Dataset.zip(rows.shuffle(8), labels.take(4).shuffle(8))",
    "numbered": "Dataset.zip(Dataset.range(8), rows.shuffle(8))",
    "shuffled before they part": "both = Dataset.zip(rows, labels).shuffle(8)\n"
                                 "Dataset.zip(both.map(lambda x, y: x), both.map(lambda x, y: y))",
    "one permutation": "order = rng.permutation(8)\nDataset.from_tensor_slices((x[order], y[order]))",
    "one permutation, by names":
        "order = rng.permutation(8)\nx, y = x[order], y[order]\nDataset.from_tensor_slices((x, y))",
    "seeded before each":
        "np.random.seed(0)\nnp.random.shuffle(x)\nnp.random.seed(0)\nnp.random.shuffle(y)\n"
        "Dataset.from_tensor_slices((x, y))",
    "two generators alike":
        "from numpy.random import RandomState\n"
        "Dataset.from_tensor_slices((RandomState(0).permutation(x), RandomState(0).permutation(y)))",
    "a generator made again":
        "x = x[rng.permutation(8)]\nrng = np.random.default_rng(0)\ny = y[rng.permutation(8)]\n"
        "Dataset.from_tensor_slices((x, y))",
    "one key":
        "draw = {'permutation': staticmethod(lambda key, x: np.random.default_rng(key).permutation(x))}\n"
        "keyed, key = type('keyed', (), draw), int('1')\n"
        "Dataset.from_tensor_slices((keyed.permutation(key, x), keyed.permutation(key, y)))",
    "a function of the program":
        "def shuffle(x):\n    return np.random.default_rng(0).permutation(x)\n\n"
        "Dataset.from_tensor_slices((shuffle(x), shuffle(y)))",
    "numbers that are drawn":
        "n = 8\nDataset.from_tensor_slices((rng.permutation(8), rng.permutation(n).astype(np.float32)))",
    "the state set back":
        "state = np.random.get_state()\nnp.random.shuffle(x)\nnp.random.set_state(state)\nnp.random.shuffle(y)\n"
        "Dataset.from_tensor_slices((x, y))",
    "two pictures of one": "Dataset.from_tensor_slices((x[rng.permutation(8)], x[rng.permutation(8)]))",
    "negatives": "Dataset.from_tensor_slices((x, y[rng.permutation(8)]))",
    "not shuffled": "Dataset.from_tensor_slices((x, y))",
    "two functions of one name":
        "def a():\n    x = np.ones((8, 3))\n    np.random.shuffle(x)\n\ndef b(x, y):\n    np.random.shuffle(y)\n"
        "    return Dataset.from_tensor_slices((x, y))\n\nb(x, y)",
}


def said(text: str, folder: Path) -> list[str]:
    """The lines and texts of the warnings of a program."""
    file = folder / "program.py"
    file.write_text(HEADER + text)
    with process.fresh(), refdist.config.checks(watch=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "program"})
    lines = file.read_text().splitlines()
    return [f"{lines[warning.lineno - 1]}: {warning.message}" for warning in caught if "[RD53]" in str(warning.message)]


@pytest.mark.parametrize("case", APART)
def test_rows_and_labels_in_two_orders_are_found(case: str, tmp_path: Path) -> None:
    [text] = said(APART[case], tmp_path)
    assert "# here: [RD53] Dataset." in text
    assert "each row gets what belongs to another" in text


@pytest.mark.parametrize("case", TOGETHER)
def test_rows_and_labels_in_one_order_are_left_alone(case: str, tmp_path: Path) -> None:
    assert said(TOGETHER[case], tmp_path) == []


@pytest.mark.parametrize(("begin", "arguments", "seeds"), [
    ("", ("", ""), "with no seed and with no seed"), ("", (", seed=1", ""), "with seed 1 and with no seed"),
    ("from refdist.tf.drawn import begin_again; begin_again(7)\n", (", seed=1", ", seed=2"),
     "with seed 1 after set_seed(7) and with seed 2 after set_seed(7)")])
def test_the_warning_names_the_seeds_as_the_program_does(begin: str, arguments: tuple[str, str], seeds: str,
                                                         tmp_path: Path) -> None:
    first, second = arguments
    [text] = said(f"{begin}Dataset.zip(rows.shuffle(8{first}), labels.shuffle(8{second}))", tmp_path)
    assert f"shuffled apart, {seeds}: " in text
