"""Trains a small network on handwritten digits, on several replicas and on one, and compares the two.

    python examples/digits.py --replicas 4
    mpiexec -n 4 python examples/digits.py
    python -m refdist run --workers 2 --replicas-per-worker 2 examples/digits.py

The gradients are written by hand against the array module of the strategy's backend, so the file does not
know where its arrays live.  The data are scikit-learn's 1,797 bundled images of 8 x 8 pixels; a fifth of
them is held out.  The training loop is the one of tf.distribute: scope, Variable,
experimental_distribute_dataset, run, all_reduce, reduce.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import refdist

CLASSES = 10
LEARNING_RATE = 0.5
MEAN = refdist.VariableAggregation.MEAN


def softmax_gradients(xp: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    """The summed cross entropy of a batch, and its gradient by the logits [rows, 10]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponents = xp.exp(shifted)
    probabilities = exponents / exponents.sum(axis=1, keepdims=True)
    rows = xp.arange(labels.shape[0])
    loss = -xp.log(probabilities[rows, labels]).sum(dtype=logits.dtype)
    gradient = probabilities
    gradient[rows, labels] -= 1
    return loss, gradient


class SoftmaxRegression:
    """Pixels -> classes."""

    name = "softmax regression"

    def __init__(self, seed: int) -> None:
        self.weights = refdist.Variable(np.zeros((64, CLASSES), np.float32), name="weights", aggregation=MEAN)
        self.bias = refdist.Variable(np.zeros(CLASSES, np.float32), name="bias", aggregation=MEAN)
        self.variables = [self.weights, self.bias]

    def logits(self, xp: Any, x: Any) -> Any:
        return x @ self.weights.value() + self.bias.value()

    def gradients(self, xp: Any, x: Any, labels: Any) -> tuple[Any, list[Any]]:
        loss, by_logits = softmax_gradients(xp, self.logits(xp, x), labels)
        return loss, [x.T @ by_logits, by_logits.sum(axis=0)]


class HiddenLayer:
    """Pixels -> 64 tanh units -> classes."""

    name = "one hidden layer"

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)

        def normal(rows: int, columns: int) -> Any:
            return (draw.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

        self.inner = refdist.Variable(normal(64, 64), name="inner", aggregation=MEAN)
        self.inner_bias = refdist.Variable(np.zeros(64, np.float32), name="inner_bias", aggregation=MEAN)
        self.outer = refdist.Variable(normal(64, CLASSES), name="outer", aggregation=MEAN)
        self.outer_bias = refdist.Variable(np.zeros(CLASSES, np.float32), name="outer_bias", aggregation=MEAN)
        self.variables = [self.inner, self.inner_bias, self.outer, self.outer_bias]

    def hidden(self, xp: Any, x: Any) -> Any:
        return xp.tanh(x @ self.inner.value() + self.inner_bias.value())

    def logits(self, xp: Any, x: Any) -> Any:
        return self.hidden(xp, x) @ self.outer.value() + self.outer_bias.value()

    def gradients(self, xp: Any, x: Any, labels: Any) -> tuple[Any, list[Any]]:
        hidden = self.hidden(xp, x)
        loss, by_logits = softmax_gradients(xp, hidden @ self.outer.value() + self.outer_bias.value(), labels)
        by_hidden = (by_logits @ self.outer.value().T) * (1 - hidden * hidden)
        return loss, [x.T @ by_hidden, by_hidden.sum(axis=0), hidden.T @ by_logits, by_logits.sum(axis=0)]


def training_step(model: Any, batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """What every replica does with its part of a batch; returns (summed loss, rows)."""
    xp = refdist.array_module()
    replica = refdist.get_replica_context()
    assert replica is not None
    x, labels = batch
    loss, gradients = model.gradients(xp, x, labels)
    # The last batch is smaller, and some replicas may get no rows at all: divide by the true number.
    rows = xp.asarray(labels.shape[0], dtype=xp.float32)
    total, *gradients = replica.all_reduce("SUM", [rows, *gradients])
    for variable, gradient in zip(model.variables, gradients, strict=True):
        variable.assign_sub(LEARNING_RATE / total * gradient)
    return loss, rows


def train(strategy: Any, kind: Any, data: Any, options: argparse.Namespace, show: bool) -> tuple[Any, list[float]]:
    """Trains a model of this kind; returns it and the mean loss of every epoch."""
    with strategy.scope():
        model = kind(options.seed)
    x, y = data
    dataset = refdist.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=options.seed).batch(options.batch)
    distributed = strategy.experimental_distribute_dataset(dataset)
    losses = []
    bar = tqdm(range(options.epochs), desc=f"{kind.name}, {strategy.num_replicas_in_sync} replicas",
               disable=None if show else True, file=sys.stdout)  # None: shown on a terminal only
    for _ in bar:
        loss = rows = 0.0
        for batch in distributed:
            part = strategy.run(training_step, args=(model, batch))
            loss += float(strategy.reduce("SUM", part[0], axis=None))
            rows += float(strategy.reduce("SUM", part[1], axis=None))
        losses.append(loss / rows)
        bar.set_postfix(loss=f"{losses[-1]:.4f}")
    return model, losses


def accuracy(model: Any, data: Any) -> float:
    """The share of images whose class is found."""
    xp = refdist.array_module()
    x, labels = data
    return float((model.logits(xp, xp.asarray(x)).argmax(axis=1) == xp.asarray(labels)).mean())


def largest_difference(first: Any, second: Any) -> float:
    """Between the variables of two models."""
    return max(float(abs(a.numpy() - b.numpy()).max()) for a, b in zip(first.variables, second.variables, strict=True))


def load() -> tuple[Any, Any]:
    """((training images, labels), (held-out images, labels)), pixels between 0 and 1."""
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (x / 16).astype(np.float32), y.astype(np.int32), test_size=0.2, random_state=0)
    return (x_train, y_train), (x_test, y_test)


def strategy_for(replicas: int) -> Any:
    """Workers, if this program was started as one of several; else `replicas` devices of this process."""
    if refdist.cluster_resolver.launched() or "TF_CONFIG" in os.environ:
        return refdist.MultiWorkerMirroredStrategy()
    return refdist.MirroredStrategy([f"GPU:{i}" for i in range(replicas)])


def fingerprint(model: Any) -> str:
    """Equal for models with the same bits."""
    return hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in model.variables)).hexdigest()[:12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=4, help="how many replicas (default 4)")
    parser.add_argument("--epochs", type=int, default=40, help="how often the data are read (default 40)")
    parser.add_argument("--batch", type=int, default=128, help="rows of a global batch (default 128)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the data")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture (default out)")
    parser.add_argument("--no-progress", action="store_true", help="print results only")
    options = parser.parse_args()

    training, held_out = load()
    many = strategy_for(options.replicas)
    replicas, chief = many.num_replicas_in_sync, many.extended.should_checkpoint
    single = refdist.OneDeviceStrategy("CPU:0")
    say = print if chief else lambda *_: None
    progress = chief and not options.no_progress
    say(f"{len(training[0])} images for training, {len(held_out[0])} held out; "
          f"{len(training[0]) % options.batch} in the last batch of {options.batch}")
    curves, failed = {}, False
    for kind in (SoftmaxRegression, HiddenLayer):
        model, losses = train(many, kind, training, options, progress)
        alone, losses_alone = train(single, kind, training, options, progress)
        right, difference = accuracy(model, held_out), largest_difference(model, alone)
        say(f"  {kind.name}: {right:.1%} of the held-out images right; largest difference between the weights "
            f"on {replicas} replicas and on one: {difference:.1e}; weights {fingerprint(model)}")
        curves[kind.name] = (losses, losses_alone)
        failed |= difference > 1e-5 or (kind is HiddenLayer and options.epochs >= 40 and right < 0.95)

    with refdist.record() as recording:
        batch = next(iter(many.experimental_distribute_dataset([(training[0][:100], training[1][:100])])))
        many.run(training_step, args=(model, batch))
    if chief:
        from digits_picture import draw

        options.out.mkdir(parents=True, exist_ok=True)
        print(f"picture: {draw(curves, recording.events, replicas, options.out / 'digits.png')}")
    if failed:
        print("FAILED: the weights differ by more than 1e-5, or less than 95 % were right", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
