"""64 bits stay 64 bits: elsewhere than on TensorFlow, Keras computes with float64 and int64 in 32 bits."""

from __future__ import annotations

from keras.src.backend.common import dtypes


def connect() -> None:
    """From now on the sum, the product and the matrix product of float64 are float64, and so with int64."""
    for name in ("float64", "int64"):
        dtypes.BIT64_TO_BIT32_DTYPE[name] = name
    # What counts the steps of an optimizer.
    dtypes.PYTHON_DTYPES_MAP["int"] = "int64"
