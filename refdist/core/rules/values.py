"""Which values can be reduced, and what becomes of their dtypes."""

from __future__ import annotations

# Kinds that can be summed (`arrays.kind_of`), and the dtype of a mean; other dtypes keep their own.
# Source: observed, TensorFlow 2.21.

REDUCIBLE_KINDS = "iufc"
MEAN_DTYPE = {
    "int2": "float32", "uint2": "float32", "int4": "float32", "uint4": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64", "int64": "float64", "uint64": "float64",
}
