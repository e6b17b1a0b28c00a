"""Keras 3 under refdist's strategies: what `tf.keras` is.

    import refdist.tf as tf

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, y)

Keras runs on PyTorch, or on JAX with KERAS_BACKEND=jax, and nothing of it is copied: `connect` puts refdist where
Keras's own backend for TensorFlow puts tf.distribute.  What is made outside any scope stays Keras's own.

* `engine`: the library with which Keras computes, and what it has in its own way (`on_torch`, `on_jax`).
* `variables`: a Keras variable that is made in a scope holds a variable of the strategy.
* `optimizers`: gradients are summed over the replicas, and applied once.
* `losses`: a loss is divided by the rows of the global batch.
* `trainer`, `batches`: `fit`, `evaluate` and `predict` run their steps on the replicas.
* `without_fit`: on JAX they are refused.
* `randomness`: what seeds mean where several replicas draw.
* `dtypes`: float64 stays float64.
* `statistics`: the mean and the variance of a batch are computed as on TensorFlow.
* `embeddings`: where a token is more than once in a batch, TensorFlow's squares of gradients are others.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from refdist import errors

__all__ = ["connect"]

# What is connected, by the backend of Keras.  JAX has 64 bits only where a program switches them on, and takes the
# variance as TensorFlow does.
_PARTS = {
    "torch": ("variables", "optimizers", "losses", "trainer", "randomness", "dtypes", "statistics",
              "embeddings"),
    "jax": ("variables", "optimizers", "losses", "without_fit", "randomness"),
}


def connect() -> ModuleType:
    """Keras, connected with refdist's strategies; a second call changes nothing.

    Where the environment names no backend of Keras, it is PyTorch's; and where it names no device of PyTorch's, Keras
    computes on the CPU, also on a machine with a GPU.

    >>> from refdist.tf.keras import connect
    >>> keras = connect()                                                                           # doctest: +SKIP
    >>> with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():                                  # doctest: +SKIP
    ...     layer = keras.layers.Dense(1)

    Raises:
        RD27: Keras 3, or the library below it, is not installed.
        RD20: Keras is loaded, or the environment names it, with another backend than PyTorch and JAX, with Flax's NNX,
            or on a GPU.
    """
    loaded = sys.modules.get("keras.src.backend.config")
    backend = loaded.backend() if loaded else os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")
    # Asked before Keras is imported: without TensorFlow its backend for TensorFlow cannot be.
    if backend not in _PARTS:
        raise errors.error("RD20", "refdist.tf.keras.connect", f"Keras runs on the backend {backend!r}",
                           "Set KERAS_BACKEND=torch before Keras is imported, or leave it unset; with "
                           "KERAS_BACKEND=jax everything runs but `tf.GradientTape` and `fit`.")
    try:
        keras = import_module("keras")
    except ImportError as error:
        packages = "keras jax" if backend == "jax" else "keras torch"
        raise errors.error("RD27", "refdist.tf.keras.connect", f"Keras cannot be imported: {error}",
                           f"Install Keras 3 and what it computes with: `pip install {packages} ml_dtypes`.",
                           kind=errors.MissingPackageError) from error
    _check_place(keras, backend)
    for part in _PARTS[backend]:
        import_module(f"{__name__}.{part}").connect()
    return keras


def _check_place(keras: ModuleType, backend: str) -> None:
    if backend == "jax" and keras.config.is_nnx_enabled():
        raise errors.error("RD20", "refdist.tf.keras.connect", "Keras's variables are those of Flax's NNX",
                           "Set KERAS_NNX_ENABLED=0 before Keras is imported.")
    if backend == "torch":
        device = import_module("keras.src.backend.torch.core").get_device()
        if device.partition(":")[0] != "cpu":
            raise errors.error("RD20", "refdist.tf.keras.connect", f"Keras computes on the device {device!r}, and "
                               "replicas compute on the CPU", "Set KERAS_TORCH_DEVICE=cpu in the environment before "
                               "Keras is imported.")
