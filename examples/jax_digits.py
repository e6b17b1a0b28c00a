"""Trains a network on handwritten digits with JAX's gradients, on replicas of one process or on several workers.

    python examples/jax_digits.py --replicas 4
    python -m refdist run --workers 4 examples/jax_digits.py
    python -m refdist launch -n 4 examples/jax_digits.py

The weights have the same bits in all three.  JAX computes the loss and its gradients, compiled once; the weights are
refdist's variables, and their values go into the compiled function as arguments, so that it sees every update.

The data are scikit-learn's 1,797 images of 8 x 8 pixels.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import refdist

WIDTHS = (64, 64, 10)


def logits(weights: list[Any], x: Any) -> Any:
    """The network: two layers, each a matrix and a bias."""
    return jnp.tanh(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


@jax.jit
@jax.value_and_grad
def loss_and_gradients(weights: list[Any], x: Any, labels: Any) -> Any:
    """The cross entropy, summed over the rows."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, x)), labels[:, None], 1).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, help="of this process; left out, there is one on each worker")
    options = parser.parse_args()
    strategy: Any = refdist.MultiWorkerMirroredStrategy() if options.replicas is None else refdist.MirroredStrategy(
        [f"GPU:{i}" for i in range(options.replicas)])

    drawn = np.random.default_rng(0)
    with strategy.scope():
        weights = [refdist.Variable(jnp.array(initial), aggregation=refdist.VariableAggregation.SUM)
                   for rows, columns in itertools.pairwise(WIDTHS)
                   for initial in (drawn.normal(0, rows ** -0.5, (rows, columns)).astype(np.float32),
                                   np.zeros(columns, np.float32))]

    def training_step(batch: tuple[Any, Any]) -> tuple[Any, Any]:
        x, labels = batch
        values = [variable.read_value() for variable in weights]
        loss, gradients = loss_and_gradients(values, x, labels)
        replica = refdist.get_replica_context()
        assert replica is not None
        # The last batch is smaller, and some replicas may get no rows at all: divide by the true number.
        total, rows = replica.all_reduce("SUM", [loss, np.float32(len(labels))])
        for variable, gradient in zip(weights, gradients, strict=True):
            variable.assign_sub(0.3 * gradient / float(rows))
        return total, rows

    pixels, classes = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((pixels / 16).astype(np.float32), classes.astype(np.int32), test_size=0.2,
                                            random_state=0)
    rows = jnp.array(x), jnp.array(y)
    dataset = refdist.data.Dataset.from_tensor_slices(rows).shuffle(len(x), seed=0).batch(options.batch)
    distributed = strategy.experimental_distribute_dataset(dataset)
    for epoch in range(options.epochs):
        loss = seen = 0.0
        for batch in distributed:
            total, count = (strategy.experimental_local_results(value)[0]
                            for value in strategy.run(training_step, args=(batch,)))
            loss, seen = loss + float(total), seen + float(count)
        if strategy.extended.should_save_summary:
            print(f"epoch {epoch + 1}: loss {loss / seen:.4f}")
    values = [variable.read_value() for variable in weights]
    right = np.mean(np.asarray(logits(values, x_test)).argmax(1) == y_test)
    digest = hashlib.sha256(b"".join([np.asarray(value).tobytes() for value in values])).hexdigest()[:12]
    if strategy.extended.should_save_summary:
        print(f"{right:.1%} of the held-out images, weights {digest}")


if __name__ == "__main__":
    main()
