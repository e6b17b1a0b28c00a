"""Keras's own DataParallel on PyTorch, around `fit`: `python keras_torch.py`.

The devices of a CPU are simulated in TensorFlow and JAX, and not in PyTorch: here they are named, as in a program for
two GPUs.
"""

import os
from contextlib import nullcontext

os.environ["KERAS_BACKEND"] = "torch"

import keras
from keras_fit import caveat, main, note

ONLY_JAX = {"what": "the distribution API is only implemented for the JAX backend for now",
            "page": "https://keras.io/guides/distribution/"}


def record(rows):
    def tell(x, numbers):
        if x.device.type != "meta":  # Keras looks at shapes
            note(rows, x.device.index or 0, numbers.detach())
        return x
    return tell


def on_torch(job):
    return ONLY_JAX if job["clause"] == "is-distributed" else caveat(job)


def distribute(job):
    devices = [f"cpu:{number}" for number in range(job["replicas"])]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    return nullcontext()


main(record, on_torch, lambda variable: [keras.ops.convert_to_numpy(variable)] * 4, distribute)
