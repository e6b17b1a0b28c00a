"""float64 stays float64: elsewhere than on TensorFlow, Keras computes two float64 in float32."""

from __future__ import annotations

from keras.src.backend.common import dtypes


def connect() -> None:
    """From now on the sum, the product and the matrix product of float64 are float64."""
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
