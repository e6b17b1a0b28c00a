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
    with process.fresh(), refdist.config.checks(watch=True), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "program"})
    lines = file.read_text().splitlines()
    return [f"{lines[one.lineno - 1]}: {one.message}" for one in given if "[RD53]" in str(one.message)]


@pytest.mark.parametrize("case", APART)
def test_rows_and_labels_in_two_orders_are_found(case: str, tmp_path: Path) -> None:
    [text] = said(APART[case], tmp_path)
    assert "# here: [RD53] Dataset." in text
    assert "each row gets what belongs to another" in text


@pytest.mark.parametrize("case", TOGETHER)
def test_rows_and_labels_in_one_order_are_left_alone(case: str, tmp_path: Path) -> None:
    assert said(TOGETHER[case], tmp_path) == []
