"""Runs a notebook of TensorFlow's cell by cell and prints, as JSON, what each cell raised; "" for nothing.

    python notebook_cells.py NOTEBOOK REPLICAS

In place of what is downloaded stands random data, and the loops are shorter.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

SHORTER = {"EPOCHS = 10": "EPOCHS = 1", "EPOCHS = 12": "EPOCHS = 1", "epochs=3": "epochs=1",
           "steps_per_epoch=70": "steps_per_epoch=5", "steps_per_epoch=20": "steps_per_epoch=3",
           "time.sleep(10)": "pass", "'/tmp/": "'tmp/"}
ROWS = {"train": 2600, "test": 64}  # ten batches of 64 rows on each of four replicas


def digits() -> list[tuple[Any, Any]]:
    """Pictures of ten kinds, and their kinds."""
    random = np.random.default_rng(0)
    kinds = random.normal(size=(10, 28, 28))
    batches = []
    for rows in ROWS.values():
        y = random.integers(0, 10, rows)
        x = (kinds[y] + random.normal(size=(rows, 28, 28))) * 40 + 100
        batches.append((np.clip(x, 0, 255).astype(np.uint8), y.astype(np.uint8)))
    return batches


def stand_ins(tf: Any) -> None:
    """Puts data in place of what notebooks download."""
    for name in ("mnist", "fashion_mnist"):
        getattr(tf.keras.datasets, name).load_data = digits

    def load(name: str, with_info: bool = False, as_supervised: bool = True) -> Any:
        sets = {split: tf.data.Dataset.from_tensor_slices((x[..., None], y.astype(np.int64)))
                for split, (x, y) in zip(ROWS, digits(), strict=True)}
        info = types.SimpleNamespace(splits={
            split: types.SimpleNamespace(num_examples=rows) for split, rows in ROWS.items()})
        return (sets, info) if with_info else sets

    datasets: Any = types.ModuleType("tensorflow_datasets")
    datasets.load = load
    sys.modules["tensorflow_datasets"] = datasets


def main(path: Path, replicas: int) -> dict[int, str]:
    """What each cell raised."""
    os.environ["REFDIST_DEVICES"] = f"CPU:1,GPU:{replicas}"
    import refdist.tf as tf
    from refdist.tf import notebooks

    tf.install()
    stand_ins(tf)
    Path("tmp").mkdir()
    names: dict[str, Any] = {"__name__": "__main__"}
    raised = {}
    for cell in notebooks.cells(path):
        source = cell.source
        for long, short in SHORTER.items():
            source = source.replace(long, short)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                notebooks.execute(cell._replace(source=source), names)
            raised[cell.number] = ""
        except Exception as error:
            raised[cell.number] = f"{type(error).__name__}: {error}"
    return raised


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
