"""Jobs: what a trainer is told to do, as data.

A job is a JSON object with all of its fields, on a line of its own, so that a trainer in any language needs no table of
defaults.  `jobs.schema.json` describes each field; this file has the same for a reader in Python, and makes jobs from
the fields in which they differ from the plainest job.

Rows are numbered from 0, in the order of the job, and steps from 1.  Names of weights are those of Keras:
`dense/kernel` has the shape inputs x outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

Matrix = list[list[float]]
Fields = dict[str, Any]


class Rows(TypedDict):
    """`x` [rows, inputs], `y` [rows, outputs], and `mask`, which has y's shape and holds 0 and 1, or is null."""

    x: Matrix
    y: Matrix
    mask: Matrix | None


class Layer(TypedDict, total=False):
    """A layer of the model; which fields it has depends on its kind (`dense`, `batch_norm`, ...)."""

    kind: Literal["dense", "batch_norm", "dropout", "embedding", "experts"]
    name: str
    kernel: Matrix | None
    shape: list[int]
    bias: list[float] | None
    activation: Literal["relu"] | None
    l2: float
    frozen: bool
    tied: str | None
    momentum: float
    epsilon: float
    features: int
    rate: float
    seed: int
    table: Matrix
    kernels: list[Matrix]


class Optimizer(TypedDict):
    """Stochastic gradient descent; after every step the learning rate is multiplied by `decay`."""

    kind: Literal["sgd"]
    learning_rate: float
    momentum: float
    decay: float


class Job(TypedDict):
    """What a trainer is to do, with all of its fields; `jobs.schema.json` says what each means."""

    id: int
    clause: str
    replicas: int
    rows: Rows
    batch: int
    epochs: int
    shuffle: int | None
    accumulate: int
    model: list[Layer]
    loss: Literal["mse", "masked_mse"]
    optimizer: Optimizer
    clip: dict[str, Any] | None
    loss_scale: float | None
    metrics: list[str]
    evaluate: Rows | None
    unfreeze: dict[str, Any] | None
    checkpoint: dict[str, str] | None
    stop: dict[str, int] | None
    fail: dict[str, Any] | None
    ask: list[str]
    ask_each: list[str]


def rows(x: Matrix, y: Matrix, mask: Matrix | None = None) -> Rows:
    """Rows of a job."""
    return {"x": x, "y": y, "mask": mask}


def dense(kernel: Matrix | None, name: str = "dense", **fields: Any) -> Layer:
    """A dense layer without a bias; `fields` are those in which it differs.

    >>> dense([[1.0], [2.0]])["shape"]
    [2, 1]
    """
    shape = [len(kernel), len(kernel[0])] if kernel else fields.pop("shape")
    layer: Layer = {"kind": "dense", "name": name, "kernel": kernel, "shape": shape, "bias": None, "activation": None,
                    "l2": 0.0, "frozen": False, "tied": None}
    return {**layer, **fields}  # type: ignore[typeddict-item]


def sgd(learning_rate: float, momentum: float = 0.0, decay: float = 1.0) -> Optimizer:
    """Stochastic gradient descent."""
    return {"kind": "sgd", "learning_rate": learning_rate, "momentum": momentum, "decay": decay}


def job(data: Rows, model: Iterable[Layer], ask: Iterable[str] = ("weights",), **fields: Any) -> Job:
    """The plainest job on these rows: one epoch, one step, two replicas, plain descent.

    Args:
        data: the rows.
        model: its layers.
        ask: what the answer must say of the whole.
        fields: those in which it differs.

    Raises:
        ValueError: there is no such field.
    """
    plain: Job = {"id": 0, "clause": "", "replicas": 2, "rows": data, "batch": len(data["x"]), "epochs": 1,
                  "shuffle": None, "accumulate": 1, "model": list(model), "loss": "mse", "optimizer": sgd(0.5),
                  "clip": None, "loss_scale": None, "metrics": [], "evaluate": None, "unfreeze": None,
                  "checkpoint": None, "stop": None, "fail": None, "ask": list(ask), "ask_each": []}
    if unknown := fields.keys() - plain.keys():
        raise ValueError(f"a job has no {', '.join(sorted(unknown))}")
    return {**plain, **fields}  # type: ignore[typeddict-item]


def write(path: Path, jobs: Iterable[Job]) -> None:
    """Writes jobs, one a line.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs), encoding="utf-8")
