"""Keras 3 under refdist's strategies: what `tf.keras` is.

    import refdist.tf as tf

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, y)

Keras runs on PyTorch, and nothing of it is copied: `connect` puts refdist where Keras's own backend for TensorFlow puts
tf.distribute.  What is made outside any scope stays Keras's own.

* `variables`: a Keras variable that is made in a scope holds a variable of the strategy.
* `optimizers`: gradients are summed over the replicas, and applied once.
* `losses`: a loss is divided by the rows of the global batch.
* `trainer`, `batches`: `fit`, `evaluate` and `predict` run their steps on the replicas.
* `randomness`: what seeds mean where several replicas draw.
* `dtypes`: float64 stays float64.
* `statistics`: the mean and the variance of a batch are computed as on TensorFlow.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

from refdist import errors

__all__ = ["connect"]


def connect() -> ModuleType:
    """Keras, connected with refdist's strategies; a second call changes nothing.

    Where the environment names no backend of Keras, it is PyTorch's; and where it names no device of PyTorch's, Keras
    computes on the CPU, also on a machine with a GPU.

    >>> from refdist.tf.keras import connect
    >>> keras = connect()                                                                           # doctest: +SKIP
    >>> with refdist.MirroredStrategy(["GPU:0", "GPU:1"]).scope():                                  # doctest: +SKIP
    ...     layer = keras.layers.Dense(1)

    Raises:
        RD27: Keras 3 or PyTorch is not installed.
        RD20: Keras is loaded, or the environment names it, with another backend than PyTorch, or on a GPU.
    """
    os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")
    try:
        keras = import_module("keras")
    except ImportError as error:
        raise errors.error("RD27", "refdist.tf.keras.connect", f"Keras cannot be imported: {error}",
                           "Install Keras 3 and PyTorch: `pip install keras torch ml_dtypes`.",
                           kind=errors.MissingPackageError) from error
    backend = keras.backend.backend()
    if backend != "torch":
        raise errors.error("RD20", "refdist.tf.keras.connect", f"Keras runs on the backend {backend!r}",
                           "Set KERAS_BACKEND=torch before Keras is imported, or leave it unset.")
    device = import_module("keras.src.backend.torch.core").get_device()
    if device.partition(":")[0] != "cpu":
        raise errors.error("RD20", "refdist.tf.keras.connect", f"Keras computes on the device {device!r}, and replicas "
                           "compute on the CPU", "Set KERAS_TORCH_DEVICE=cpu in the environment before Keras is "
                           "imported.")
    for part in ("variables", "optimizers", "losses", "trainer", "randomness", "dtypes", "statistics"):
        import_module(f"{__name__}.{part}").connect()
    return keras
